// A card: the Verilated kernel, an AXI4-Lite master as the host has it, and memory. Plain functions return 0, or -1 with
// a message.
#include <algorithm>
#include <memory>

#include "Vkernel.h"
#include "attempt.h"
#include "axi.h"
#include "verilated.h"

namespace {

class Card {
 public:
  explicit Card(const axi::Options& options)
      : port_(uint32_t(options.get("port"))), memory(port_, options), random_(uint32_t(options.get("seed")) + 1),
        identity_(uint32_t(options.get("identity"))) {
    // Zeros, as the golden machine's memories begin, or random bits.
    context_.randReset(options.get("initial") ? 2 : 0);
    context_.randSeed(int(options.get("initial")));
    top_ = std::make_unique<Vkernel>(&context_);
    top_->s_axi_control_awvalid = top_->s_axi_control_wvalid = top_->s_axi_control_arvalid = 0;
    top_->s_axi_control_bready = top_->s_axi_control_rready = 0;
    reset(20);
  }
  ~Card() { top_->final(); }

  void reset(uint64_t cycles) {
    top_->ap_rst_n = 0;
    while (cycles--) tick();
    top_->ap_rst_n = 1;
  }

  // Address and data come in any order, or at once, and stay until they are taken. An answer stays until it is taken.
  void write(uint32_t address, uint32_t value) {
    const uint64_t first = random_() % 3, second = random_() % 3, answer = random_() % 4;
    bool has_address = false, has_data = false, waited = false;
    for (uint64_t passed = 0; passed < 1000; ++passed) {
      if (passed == first) top_->s_axi_control_awvalid = 1, top_->s_axi_control_awaddr = address;
      if (passed == second) {
        top_->s_axi_control_wvalid = 1, top_->s_axi_control_wdata = value, top_->s_axi_control_wstrb = 15;
      }
      top_->s_axi_control_bready = passed >= answer && memory.willing();
      settle();
      const bool takes_address = top_->s_axi_control_awvalid && top_->s_axi_control_awready;
      const bool takes_data = top_->s_axi_control_wvalid && top_->s_axi_control_wready;
      const bool answers = top_->s_axi_control_bvalid, answered = answers && top_->s_axi_control_bready;
      if (answers && !(has_address && has_data)) throw std::runtime_error("BVALID comes before the write was taken");
      if (waited && !answers) throw std::runtime_error("BVALID fell before BREADY");
      if (answers && top_->s_axi_control_bresp) throw std::runtime_error("a write to a register failed");
      if (top_->s_axi_control_rvalid) throw std::runtime_error("RVALID without a read");
      waited = answers;
      edge();
      if (takes_address) has_address = true, top_->s_axi_control_awvalid = 0;
      if (takes_data) has_data = true, top_->s_axi_control_wvalid = 0;
      if (answered) {
        top_->s_axi_control_bready = 0;
        return;
      }
    }
    throw std::runtime_error("a write to a register is not taken");
  }

  uint32_t read(uint32_t address) {
    if (address == 0x4c && identity_) return identity_;
    const uint64_t answer = random_() % 4;
    bool taken = false, waited = false;
    uint32_t before = 0;
    top_->s_axi_control_arvalid = 1, top_->s_axi_control_araddr = address;
    for (uint64_t passed = 0; passed < 1000; ++passed) {
      top_->s_axi_control_rready = passed >= answer && memory.willing();
      settle();
      const bool takes = top_->s_axi_control_arvalid && top_->s_axi_control_arready;
      const bool answers = top_->s_axi_control_rvalid, answered = answers && top_->s_axi_control_rready;
      const uint32_t found = top_->s_axi_control_rdata;
      if (answers && !taken) throw std::runtime_error("RVALID comes before the address was taken");
      if (waited && !answers) throw std::runtime_error("RVALID fell before RREADY");
      if (waited && found != before) throw std::runtime_error("RDATA changed while it waited");
      if (answers && top_->s_axi_control_rresp) throw std::runtime_error("a read of a register failed");
      if (top_->s_axi_control_bvalid) throw std::runtime_error("BVALID without a write");
      waited = answers, before = found;
      edge();
      if (takes) taken = true, top_->s_axi_control_arvalid = 0;
      if (answered) {
        top_->s_axi_control_rready = 0;
        return found;
      }
    }
    throw std::runtime_error("a read of a register is not answered");
  }

  void tick() {
    settle();
    if (top_->ap_rst_n && (top_->s_axi_control_bvalid || top_->s_axi_control_rvalid))
      throw std::runtime_error("a register answers without being asked");
    edge();
  }

 private:
  // What stands at the ports in this cycle.
  void settle() {
    top_->ap_clk = 0;
    const axi::Slave& slave = memory.offer(!top_->ap_rst_n);
    top_->m_axi_memory_arready = slave.ar_ready, top_->m_axi_memory_awready = slave.aw_ready;
    top_->m_axi_memory_wready = slave.w_ready;
    top_->m_axi_memory_rvalid = slave.r_valid, top_->m_axi_memory_rlast = slave.r_last;
    top_->m_axi_memory_rresp = slave.r_response;
    std::memcpy(&top_->m_axi_memory_rdata, slave.r_line.data(), port_);
    top_->m_axi_memory_bvalid = slave.b_valid, top_->m_axi_memory_bresp = slave.b_response;
    top_->eval();
  }

  void edge() {
    axi::Master master;
    master.ar = {bool(top_->m_axi_memory_arvalid), top_->m_axi_memory_araddr, top_->m_axi_memory_arlen,
                 top_->m_axi_memory_arsize, top_->m_axi_memory_arburst};
    master.aw = {bool(top_->m_axi_memory_awvalid), top_->m_axi_memory_awaddr, top_->m_axi_memory_awlen,
                 top_->m_axi_memory_awsize, top_->m_axi_memory_awburst};
    master.w.valid = top_->m_axi_memory_wvalid;
    if (master.w.valid) {
      master.w.last = top_->m_axi_memory_wlast;
      master.w.line.resize(port_), master.w.strobes.resize((port_ + 7) / 8);
      std::memcpy(master.w.line.data(), &top_->m_axi_memory_wdata, port_);
      std::memcpy(master.w.strobes.data(), &top_->m_axi_memory_wstrb, master.w.strobes.size());
    }
    master.r_ready = top_->m_axi_memory_rready, master.b_ready = top_->m_axi_memory_bready;
    memory.observe(master, !top_->ap_rst_n);
    top_->ap_clk = 1;
    top_->eval();
  }

  uint32_t port_;

 public:
  axi::Memory memory;

 private:
  std::mt19937 random_;
  uint32_t identity_;  // that another design would have
  VerilatedContext context_;
  std::unique_ptr<Vkernel> top_;
};

}  // namespace

extern "C" {

const char* card_message() { return message; }
void* card_open(const char* options) {
  void* found = nullptr;
  attempt([&] { found = new Card(axi::Options(options)); });
  return found;
}
void card_close(void* card) { delete static_cast<Card*>(card); }
int card_memory(void* card, uint8_t* bytes, uint64_t size, uint64_t base) {
  return attempt([&] { static_cast<Card*>(card)->memory.place(bytes, size, base); });
}
int card_write(void* card, uint32_t address, uint32_t value) {
  return attempt([&] { static_cast<Card*>(card)->write(address, value); });
}
int card_read(void* card, uint32_t address, uint32_t* value) {
  return attempt([&] { *value = static_cast<Card*>(card)->read(address); });
}
int card_ticks(void* card, uint64_t cycles) {
  return attempt([&] {
    while (cycles--) static_cast<Card*>(card)->tick();
  });
}
int card_reset(void* card, uint64_t cycles) {
  return attempt([&] { static_cast<Card*>(card)->reset(cycles); });
}
// Eleven counts; fails while a burst is under way.
int card_counts(void* card, uint64_t* counts) {
  return attempt([&] {
    const auto& memory = static_cast<Card*>(card)->memory;
    if (!memory.is_quiet()) throw std::runtime_error("bursts are under way");
    const auto found = memory.counts();
    std::memcpy(counts, &found, sizeof found);
  });
}

// The memory alone, for masters that break the protocol: one cycle in which the master drives this.
void* memory_open(const char* options) { return new axi::Memory(16, axi::Options(options)); }
void memory_close(void* memory) { delete static_cast<axi::Memory*>(memory); }
int memory_cycle(void* memory, int in_reset, const uint64_t* ar, const uint64_t* aw, const uint64_t* w) {
  return attempt([&] {
    static uint8_t bytes[1 << 14];
    auto* of = static_cast<axi::Memory*>(memory);
    of->place(bytes, sizeof bytes, 1 << 20);
    axi::Master master;
    master.ar = {bool(ar[0]), ar[1], uint32_t(ar[2]), uint32_t(ar[3]), uint32_t(ar[4])};
    master.aw = {bool(aw[0]), aw[1], uint32_t(aw[2]), uint32_t(aw[3]), uint32_t(aw[4])};
    master.w.valid = w[0];
    master.w.line.assign(16, uint8_t(w[1]));
    master.w.strobes.assign(2, uint8_t(w[2]));
    master.w.last = w[3];
    of->offer(in_reset);
    of->observe(master, in_reset);
  });
}
}
