// The part of XRT that drivers use, on a simulated card (card.cpp). Declarations follow the public API; what a card would
// do that the driver must not rely on, this does not do: memory of the card and of the host are apart until `sync`.
// An xclbin is the kernel.xml here, and the card is as CARD says, the options of axi.h; there is none without it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
void* card_open(const char* options);
int card_memory(void* card, uint8_t* bytes, uint64_t size, uint64_t base);
int card_write(void* card, uint32_t address, uint32_t value);
int card_read(void* card, uint32_t address, uint32_t* value);
int card_ticks(void* card, uint64_t cycles);
void card_close(void* card);
const char* card_message();
}

namespace stub {

inline void check(int failed) {
  if (failed) throw std::runtime_error(card_message());
}

struct Card {
  static constexpr uint64_t BASE = 0x3'ffff'd000;  // memory lies on both sides of 4 GiB
  void* card;
  std::vector<uint8_t> memory = std::vector<uint8_t>(1 << 20);
  uint64_t used = 0x2000;  // buffers do not begin at the first byte

  explicit Card(const char* options) : card(card_open(options)) {
    if (!card) throw std::runtime_error(card_message());
    check(card_memory(card, memory.data(), memory.size(), BASE));
  }
  ~Card() { card_close(card); }
};

}  // namespace stub

namespace xrt {

struct uuid {
  std::string kernel;  // kernel.xml
};

class device {
 public:
  explicit device(unsigned index) {
    const char* options = std::getenv("CARD");
    if (index || !options) throw std::runtime_error("no such device with index '" + std::to_string(index) + "'");
    card = std::make_shared<stub::Card>(options);
  }
  uuid load_xclbin(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("failed to open file '" + path + "' for reading");
    uuid found{{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}};
    if (found.kernel.find("<kernel ") == std::string::npos) throw std::runtime_error("bad magic number");
    return found;
  }
  std::shared_ptr<stub::Card> card;
};

}  // namespace xrt
