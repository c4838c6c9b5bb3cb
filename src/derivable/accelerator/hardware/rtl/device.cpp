// The simulated device for Python: plain functions, loaded with ctypes.
#include "attempt.h"
#include "device.h"

#include <algorithm>

extern "C" {

// A device with a program of `words` 32-bit words, or a null pointer with a message.
void* device_open(uint32_t line, const uint32_t* program, uint64_t words, uint32_t latency, uint32_t interval,
                  uint32_t seed, uint32_t initial) {
  std::unique_ptr<derivable::Device> device;
  attempt([&] {
    device = std::make_unique<derivable::Device>(line, derivable::Device::Timing{latency, interval, seed}, initial);
    for (uint32_t address : {0x10, 0x14, 0x18}) device->write_register(address, 0);
    for (uint64_t i = 0; i < words; ++i) device->write_register(0x1c, program[i]);
  });
  return device.release();
}

// Starts the program over `size` bytes of memory, and waits until it is done. Returns the number of events, of which at
// most `capacity` are written, or -1 with a message. `counters`: cycles, busy of five units, waits of three.
int64_t device_start(void* opened, uint8_t* memory, uint64_t size, uint64_t most_cycles, uint64_t* counters,
                     derivable::Event* events, uint64_t capacity) {
  int64_t count = 0;
  int failed = attempt([&] {
    auto& device = *static_cast<derivable::Device*>(opened);
    device.memory(memory, size);
    device.events.clear();
    uint64_t start = device.cycle();
    device.write_register(0x00, 1);
    do {
      if (device.cycle() - start > most_cycles) throw std::runtime_error("the device is not done in time");
      for (int i = 0; i < 64; ++i) device.tick();
    } while (!(device.read_register(0x00) & 2));
    counters[0] = device.read_wide(0x20);
    for (uint32_t i = 0; i < 8; ++i) counters[1 + i] = device.read_register(0x28 + 4 * i);
    for (auto& event : device.events) event.cycle -= start;
    std::copy_n(device.events.begin(), std::min<uint64_t>(capacity, device.events.size()), events);
    count = int64_t(device.events.size());
  });
  return failed ? failed : count;
}

void device_close(void* opened) { delete static_cast<derivable::Device*>(opened); }

const char* device_message() { return message; }
}
