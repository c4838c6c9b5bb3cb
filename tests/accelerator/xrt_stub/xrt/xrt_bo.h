#pragma once

#include <algorithm>

#include "xrt_device.h"

enum xclBOSyncDirection { XCL_BO_SYNC_BO_TO_DEVICE, XCL_BO_SYNC_BO_FROM_DEVICE };

namespace xrt {

class bo {
 public:
  bo(const device& of, size_t size, int group) : card_(of.card), host_(size, 0xa5), place_(of.card->used) {
    if (group != 0) throw std::runtime_error("there is no such bank of memory");
    card_->used = (place_ + size + 4095) / 4096 * 4096;
    if (card_->used > card_->memory.size()) throw std::runtime_error("the card has no such memory");
    std::fill_n(card_->memory.begin() + long(place_), size, 0x5a);
  }
  template <class Pointer>
  Pointer map() { return reinterpret_cast<Pointer>(host_.data()); }
  void sync(xclBOSyncDirection direction) {
    auto there = card_->memory.begin() + long(place_);
    if (direction == XCL_BO_SYNC_BO_TO_DEVICE) std::copy(host_.begin(), host_.end(), there);
    else std::copy_n(there, host_.size(), host_.begin());
  }
  uint64_t address() const { return stub::Card::BASE + place_; }

 private:
  std::shared_ptr<stub::Card> card_;
  std::vector<uint8_t> host_;
  uint64_t place_;
};

}  // namespace xrt
