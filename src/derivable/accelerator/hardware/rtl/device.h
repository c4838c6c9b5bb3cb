// The simulated device: the Verilated top with its off-chip memory, clocked from here.
//
// The memory answers a burst `latency` cycles after it was asked for, then hands over a line every `interval` cycles. With
// a seed it refuses what it may refuse in about a quarter of all cycles, and what it lends late comes later.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "Vaccelerator.h"
#include "verilated.h"

namespace derivable {

struct Event {  // a unit has taken its next instruction, or is done with it
  uint64_t cycle;
  uint32_t unit;
  uint32_t is_done;
};

class Device {
 public:
  struct Timing {
    uint32_t latency = 16, interval = 1, seed = 0;
  };

  // Registers and memories begin with random bits, others for each `initial`, or with zeros where it is 0.
  Device(uint32_t line, Timing timing, uint32_t initial) : line_(line), timing_(timing), random_(timing.seed) {
    context_.randReset(initial ? 2 : 0);
    context_.randSeed(int(initial & 0x7fffffff));
    top_ = std::make_unique<Vaccelerator>(&context_);
    top_->rst = 1;
    top_->host_write = top_->host_read = top_->r_valid = top_->b_valid = 0;
    for (int i = 0; i < 40; ++i) tick();
    top_->rst = 0;
    tick();
  }
  ~Device() { top_->final(); }

  // What the device sees as off-chip memory from address 0 on.
  void memory(uint8_t* bytes, uint64_t size) { memory_ = bytes, size_ = size; }

  void write_register(uint32_t address, uint32_t value) {
    top_->host_write = 1, top_->host_address = uint8_t(address), top_->host_write_data = value;
    tick();
    top_->host_write = 0;
  }
  uint32_t read_register(uint32_t address) {
    top_->host_read = 1, top_->host_address = uint8_t(address);
    tick();
    top_->host_read = 0;
    top_->eval();
    return top_->host_read_data;
  }
  uint64_t read_wide(uint32_t address) {
    uint64_t low = read_register(address);
    return low | uint64_t(read_register(address + 4)) << 32;
  }

  void tick() {
    // Inputs of this cycle, then outputs, then the edge.
    top_->clk = 0;
    offer();
    top_->eval();
    observe();
    top_->clk = 1;
    top_->eval();
    ++cycle_;
  }

  uint64_t cycle() const { return cycle_; }
  std::vector<Event> events;

 private:
  struct Burst {
    uint64_t address, due;
    uint32_t lines;
  };

  bool willing() { return !timing_.seed || random_() % 4 != 0; }
  uint64_t due() { return cycle_ + timing_.latency + (timing_.seed ? random_() % 32 : 0); }
  uint8_t* at(uint64_t address) {
    if (address + line_ > size_) throw std::out_of_range("the device went beyond its memory");
    return memory_ + address;
  }
  template <class Port>
  void give(Port& port, const uint8_t* from) { std::memcpy(&port, from, line_); }

  void offer() {
    top_->ar_ready = willing();
    top_->aw_ready = willing();
    top_->w_ready = willing();
    bool is_due = !reads_.empty() && cycle_ >= reads_.front().due && cycle_ >= next_read_;
    if (!top_->r_valid || taken_) top_->r_valid = is_due && willing();  // once offered, it stays until it is taken
    if (top_->r_valid) give(top_->r_data, at(reads_.front().address));
    top_->b_valid = !answers_.empty() && cycle_ >= answers_.front();
  }

  void observe() {
    taken_ = false;
    if (top_->rst) return;
    if (top_->ar_valid && top_->ar_ready) reads_.push_back({top_->ar_address, due(), uint32_t(top_->ar_lines) + 1});
    if (top_->r_valid && top_->r_ready) {
      taken_ = true;
      next_read_ = cycle_ + timing_.interval;
      Burst& burst = reads_.front();
      burst.address += line_;
      if (--burst.lines == 0) reads_.pop_front();
    }
    if (top_->aw_valid && top_->aw_ready) writes_.push_back({top_->aw_address, 0, uint32_t(top_->aw_lines) + 1});
    if (top_->w_valid && top_->w_ready) {
      std::vector<uint8_t> line(line_);
      std::memcpy(line.data(), &top_->w_data, line_);
      written_.push_back({line, bool(top_->w_last)});
    }
    // Lines may come before the address of their burst.
    while (!written_.empty() && !writes_.empty()) {
      Burst& burst = writes_.front();
      std::memcpy(at(burst.address), written_.front().first.data(), line_);
      burst.address += line_;
      bool is_last = --burst.lines == 0;
      if (is_last != written_.front().second) throw std::runtime_error("w_last is not with the last line of a burst");
      written_.pop_front();
      if (is_last) answers_.push_back(due()), writes_.pop_front();
    }
    if (top_->b_valid && top_->b_ready) answers_.pop_front();
    for (uint32_t unit = 0; unit < 5; ++unit) {
      if (top_->taken >> unit & 1) events.push_back({cycle_, unit, 0});
      if (top_->done >> unit & 1) events.push_back({cycle_, unit, 1});
    }
  }

  uint32_t line_;
  Timing timing_;
  std::mt19937 random_;
  VerilatedContext context_;
  std::unique_ptr<Vaccelerator> top_;
  uint8_t* memory_ = nullptr;
  uint64_t size_ = 0, cycle_ = 0, next_read_ = 0;
  bool taken_ = false;
  std::deque<Burst> reads_, writes_;
  std::deque<uint64_t> answers_;
  std::deque<std::pair<std::vector<uint8_t>, bool>> written_;
};

}  // namespace derivable
