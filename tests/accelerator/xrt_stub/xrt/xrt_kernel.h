#pragma once

#include <chrono>

#include "xrt_bo.h"

enum ert_cmd_state { ERT_CMD_STATE_NEW = 1, ERT_CMD_STATE_COMPLETED = 4, ERT_CMD_STATE_TIMEOUT = 9 };

namespace xrt {

class kernel {
 public:
  enum class cu_access_mode { exclusive, shared, none };
  kernel(const device& of, const uuid& binary, const std::string& name, cu_access_mode mode)
      : card(of.card), mode_(mode) {
    if (binary.kernel.find("<kernel name=\"" + name + "\"") == std::string::npos)
      throw std::runtime_error("no compute units satisfy requested connectivity");
    const std::string before = " offset=\"";  // of the argument
    argument = uint32_t(std::stoul(binary.kernel.substr(binary.kernel.find(before) + before.size()), nullptr, 0));
  }
  int group_id(int number) const {
    if (number != 0) throw std::runtime_error("the kernel has one argument");
    return 0;
  }
  void write_register(uint32_t offset, uint32_t data) {
    is_allowed();
    stub::check(card_write(card->card, offset, data));
  }
  uint32_t read_register(uint32_t offset) const {
    is_allowed();
    uint32_t found = 0;
    stub::check(card_read(card->card, offset, &found));
    return found;
  }
  std::shared_ptr<stub::Card> card;
  uint32_t argument = 0;

 private:
  void is_allowed() const {
    if (mode_ != cu_access_mode::exclusive) throw std::runtime_error("registers are for exclusive users");
  }
  cu_access_mode mode_;
};

class run {
 public:
  explicit run(const kernel& of) : kernel_(of) {}
  void set_arg(int index, const bo& memory) {
    if (index != 0) throw std::runtime_error("the kernel has one argument");
    base_ = memory.address();
  }
  void start() {
    void* card = kernel_.card->card;
    stub::check(card_write(card, kernel_.argument, uint32_t(base_)));
    stub::check(card_write(card, kernel_.argument + 4, uint32_t(base_ >> 32)));
    stub::check(card_write(card, 0x00, 1));
  }
  // A second is 2,000 cycles here.
  ert_cmd_state wait(const std::chrono::milliseconds& limit) {
    for (long long cycles = 0; cycles < 2 * limit.count(); cycles += 64) {
      stub::check(card_ticks(kernel_.card->card, 64));
      uint32_t control = 0;
      stub::check(card_read(kernel_.card->card, 0x00, &control));
      if (control & 2) return ERT_CMD_STATE_COMPLETED;
    }
    return ERT_CMD_STATE_TIMEOUT;
  }

 private:
  kernel kernel_;
  uint64_t base_ = 0;
};

}  // namespace xrt
