// Memory behind an AXI4 port, which checks what its master does, cycle by cycle. It knows no simulator: a cycle is
// `offer`, what the memory drives in it, and `observe`, what the master drove, after which the clock ticks.
//
// Within the protocol (AMBA AXI, IHI 0022) it is as unpleasant as its options say. What breaks the protocol is an error.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace axi {

struct Options {
  std::map<std::string, uint64_t> values;

  // "name=value name=value": bytes of the port (port), latency, and up to how much later an answer may come (late); percent of cycles in which the
  // memory is not ready, of each channel (refuse); how many bursts of a direction it takes before it has answered one
  // (bursts); whether it takes the address of a write before its data (order=1) or some data first (order=2); the
  // number of the burst that fails (fail_read, fail_write); whether it answers nothing at all (silent).
  explicit Options(const std::string& text) {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      const size_t at = word.find('=');
      if (at == std::string::npos) throw std::invalid_argument("an option without value: " + word);
      values[word.substr(0, at)] = std::stoull(word.substr(at + 1), nullptr, 0);
    }
  }
  uint64_t get(const std::string& name, uint64_t usual = 0) const {
    auto found = values.find(name);
    return found == values.end() ? usual : found->second;
  }
};

struct Address {  // the channel AR or AW
  bool valid = false;
  uint64_t address = 0;
  uint32_t length = 0, size = 0, burst = 0;
  bool operator==(const Address& other) const {
    return address == other.address && length == other.length && size == other.size && burst == other.burst;
  }
};

struct Data {  // the channel W
  bool valid = false;
  std::vector<uint8_t> line, strobes;
  bool last = false;
  bool operator==(const Data& other) const {
    return line == other.line && strobes == other.strobes && last == other.last;
  }
};

struct Master {
  Address ar, aw;
  Data w;
  bool r_ready = false, b_ready = false;
};

struct Slave {
  bool ar_ready = false, aw_ready = false, w_ready = false;
  bool r_valid = false, r_last = false, b_valid = false;
  uint32_t r_response = 0, b_response = 0;
  std::vector<uint8_t> r_line;
};

// A channel's valid stays until it meets ready, and so does what goes with it.
template <class Payload>
class Channel {
 public:
  explicit Channel(const char* name) : name_(name) {}
  bool transfer(const Payload& now, bool ready) {
    if (waiting_ && !now.valid) throw std::runtime_error(std::string(name_) + "VALID fell before " + name_ + "READY");
    if (waiting_ && !(now == before_)) throw std::runtime_error(std::string(name_) + " changed while it waited");
    waiting_ = now.valid && !ready;
    before_ = now;
    waits += waiting_;
    return now.valid && ready;
  }
  void reset() { waiting_ = false; }
  uint64_t waits = 0;

 private:
  const char* name_;
  bool waiting_ = false;
  Payload before_;
};

class Memory {
 public:
  struct Counts {  // what a test wants to have seen
    uint64_t reads = 0, writes = 0, most_reads = 0, most_writes = 0, longest = 0, data_first = 0;
    uint64_t waits_ar = 0, waits_r = 0, waits_aw = 0, waits_w = 0, waits_b = 0;
  };

  Memory(uint32_t port, const Options& options)
      : port_(port), options_(options), random_(uint32_t(options.get("seed"))), slave_{} {
    slave_.r_line.resize(port);
  }

  // Bytes of the card from `base` on; nothing else may be touched.
  void place(uint8_t* bytes, uint64_t size, uint64_t base) { bytes_ = bytes, size_ = size, base_ = base; }

  const Slave& offer(bool in_reset) {
    if (in_reset) {
      reads_.clear(), writes_.clear(), come_.clear(), answers_.clear();
      ar_.reset(), aw_.reset(), w_.reset();
      slave_.ar_ready = slave_.aw_ready = slave_.w_ready = slave_.r_valid = slave_.b_valid = false;
      lines_before_ = 0;
      return slave_;
    }
    const uint64_t most = options_.get("bursts", 64), order = options_.get("order");
    const bool silent = options_.get("silent");
    slave_.ar_ready = willing() && !silent && reads_.size() < most;
    slave_.aw_ready = willing() && !silent && writes_.size() + answers_.size() < most;
    slave_.w_ready = willing() && !silent && come_.size() < 1024;
    if (order == 1) slave_.w_ready &= !writes_.empty();
    if (order == 2) slave_.aw_ready &= !come_.empty();
    if (!slave_.r_valid && !reads_.empty() && cycle_ >= reads_.front().due && willing()) {
      const Burst& burst = reads_.front();
      slave_.r_valid = true, slave_.r_last = burst.left == 1, slave_.r_response = burst.fails ? 2 : 0;
      if (burst.fails) std::fill(slave_.r_line.begin(), slave_.r_line.end(), uint8_t(0xee));
      else std::memcpy(slave_.r_line.data(), at(burst.address), port_);
    }
    if (!slave_.b_valid && !answers_.empty() && cycle_ >= answers_.front().due && willing())
      slave_.b_valid = true, slave_.b_response = answers_.front().fails ? 2 : 0;
    return slave_;
  }

  void observe(const Master& master, bool in_reset) {
    ++cycle_;
    if (in_reset) {
      // The first cycles of a reset may still show what was before it.
      if (++reset_for_ > 4 && (master.ar.valid || master.aw.valid || master.w.valid))
        throw std::runtime_error("VALID is set in reset");
      return;
    }
    reset_for_ = 0;
    if (ar_.transfer(master.ar, slave_.ar_ready)) {
      reads_.push_back(burst(master.ar, ++counts_.reads == options_.get("fail_read")));
      counts_.most_reads = std::max<uint64_t>(counts_.most_reads, reads_.size());
    }
    counts_.waits_r += slave_.r_valid && !master.r_ready;
    if (slave_.r_valid && master.r_ready) {
      slave_.r_valid = false;
      Burst& burst = reads_.front();
      burst.address += port_;
      if (--burst.left == 0) reads_.pop_front();
    }
    // What is written, which may come before its address.
    if (w_.transfer(master.w, slave_.w_ready)) {
      if (writes_.empty()) ++lines_before_;
      come_.push_back(master.w);
    }
    if (aw_.transfer(master.aw, slave_.aw_ready)) {
      writes_.push_back(burst(master.aw, ++counts_.writes == options_.get("fail_write")));
      counts_.most_writes = std::max<uint64_t>(counts_.most_writes, writes_.size() + answers_.size());
      counts_.data_first += lines_before_ != 0;
      lines_before_ = 0;
    }
    while (!come_.empty() && !writes_.empty()) take();
    counts_.waits_b += slave_.b_valid && !master.b_ready;
    if (slave_.b_valid && master.b_ready) slave_.b_valid = false, answers_.pop_front();
  }

  bool is_quiet() const { return reads_.empty() && writes_.empty() && come_.empty() && answers_.empty(); }
  Counts counts() const {
    Counts found = counts_;
    found.waits_ar = ar_.waits, found.waits_aw = aw_.waits, found.waits_w = w_.waits;
    return found;
  }
  bool willing() { return random_() % 100 >= options_.get("refuse"); }

 private:
  struct Burst {
    uint64_t address, due;
    uint32_t left;
    bool fails;
  };

  uint64_t due() { return cycle_ + options_.get("latency", 16) + random_() % (options_.get("late") + 1); }
  uint8_t* at(uint64_t address) { return bytes_ + (address - base_); }

  Burst burst(const Address& of, bool fails) {
    const uint64_t bytes = uint64_t(of.length + 1) * port_, end = of.address + bytes - 1;
    if (uint32_t(1) << of.size != port_) throw std::runtime_error("a transfer is not as wide as the port");
    if (of.burst != 1) throw std::runtime_error("a burst does not increase its address");
    if (of.address % port_) throw std::runtime_error("a burst does not begin with a whole transfer");
    if (of.length > 255) throw std::runtime_error("a burst has more than 256 transfers");
    if (of.address / 4096 != end / 4096) throw std::runtime_error("a burst crosses 4096 bytes");
    if (of.address < base_ || end >= base_ + size_) throw std::runtime_error("a burst is beyond its memory");
    counts_.longest = std::max<uint64_t>(counts_.longest, of.length + 1);
    return {of.address, due(), of.length + 1, fails};
  }

  void take() {
    Burst& burst = writes_.front();
    const Data& data = come_.front();
    if (data.last != (burst.left == 1)) throw std::runtime_error("WLAST is not with the last line of a burst");
    for (uint32_t i = 0; i < port_; ++i)
      if (data.strobes[i / 8] >> i % 8 & 1 && !burst.fails) at(burst.address)[i] = data.line[i];
    burst.address += port_;
    come_.pop_front();
    if (--burst.left == 0) {
      burst.due = due();
      answers_.push_back(burst);
      writes_.pop_front();
    }
  }

  uint32_t port_;
  Options options_;
  std::mt19937 random_;
  Slave slave_;
  uint8_t* bytes_ = nullptr;
  uint64_t size_ = 0, base_ = 0, cycle_ = 0, lines_before_ = 0, reset_for_ = 0;
  Channel<Address> ar_{"AR"}, aw_{"AW"};
  Channel<Data> w_{"W"};
  std::deque<Burst> reads_, writes_, answers_;
  std::deque<Data> come_;
  Counts counts_;
};

}  // namespace axi
