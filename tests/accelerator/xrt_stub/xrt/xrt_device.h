// The part of XRT that drivers use, on the simulated device. Declarations follow the public API; what a card would do
// that the driver must not rely on, this does not do: memory of the card and of the host are apart until `sync`.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
void* device_open(uint32_t line, uint32_t latency, uint32_t interval, uint32_t seed);
int device_memory(void* device, uint8_t* memory, uint64_t size);
int device_write(void* device, uint32_t address, uint32_t value);
int device_read(void* device, uint32_t address, uint32_t* value);
int device_ticks(void* device, uint64_t cycles);
void device_close(void* device);
const char* device_message();
}

namespace stub {

inline void check(int failed) {
  if (failed) throw std::runtime_error(device_message());
}

struct Card {
  void* device;
  std::vector<uint8_t> memory = std::vector<uint8_t>(1 << 20);
  uint64_t used = 0x3000;  // buffers do not begin at 0

  Card() : device(device_open(uint32_t(std::atoi(std::getenv("STUB_LINE"))), 20, 1, 3)) {
    if (!device) throw std::runtime_error(device_message());
    check(device_memory(device, memory.data(), memory.size()));
  }
  ~Card() { device_close(device); }
};

}  // namespace stub

namespace xrt {

struct uuid {};

class device {
 public:
  explicit device(unsigned index) {
    if (index) throw std::runtime_error("there is no such device");
    card = std::make_shared<stub::Card>();
  }
  uuid load_xclbin(const std::string& path) {
    if (path.size() < 7 || path.substr(path.size() - 7) != ".xclbin") throw std::runtime_error(path + " is no xclbin");
    return {};
  }
  std::shared_ptr<stub::Card> card;
};

}  // namespace xrt
