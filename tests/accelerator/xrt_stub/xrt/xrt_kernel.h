#pragma once

#include <chrono>

#include "xrt_bo.h"

enum ert_cmd_state { ERT_CMD_STATE_NEW = 1, ERT_CMD_STATE_COMPLETED = 4, ERT_CMD_STATE_TIMEOUT = 9 };

namespace xrt {

class kernel {
 public:
  enum class cu_access_mode { exclusive, shared, none };
  kernel(const device& of, const uuid&, const std::string& name, cu_access_mode mode) : card(of.card), mode_(mode) {
    if (name != "accelerator") throw std::runtime_error("there is no kernel " + name);
  }
  int group_id(int argument) const {
    if (argument != 0) throw std::runtime_error("the kernel has one argument");
    return 0;
  }
  void write_register(uint32_t offset, uint32_t data) {
    is_allowed();
    stub::check(device_write(card->device, offset, data));
  }
  uint32_t read_register(uint32_t offset) const {
    is_allowed();
    uint32_t found = 0;
    stub::check(device_read(card->device, offset, &found));
    return found;
  }
  std::shared_ptr<stub::Card> card;

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
    stub::check(device_write(kernel_.card->device, 0x10, uint32_t(base_)));
    stub::check(device_write(kernel_.card->device, 0x14, uint32_t(base_ >> 32)));
    stub::check(device_write(kernel_.card->device, 0x00, 1));
  }
  ert_cmd_state wait(const std::chrono::milliseconds&) {
    for (int tries = 0; tries < 100000; ++tries) {
      stub::check(device_ticks(kernel_.card->device, 64));
      uint32_t control = 0;
      stub::check(device_read(kernel_.card->device, 0x00, &control));
      if (control & 2) return ERT_CMD_STATE_COMPLETED;
    }
    return ERT_CMD_STATE_TIMEOUT;
  }

 private:
  kernel kernel_;
  uint64_t base_ = 0;
};

}  // namespace xrt
