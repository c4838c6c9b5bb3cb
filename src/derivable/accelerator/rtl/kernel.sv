// The accelerator as a kernel of Vitis: reset and control as Xilinx's tools expect them, AXI4 to memory, AXI4-Lite from
// the host. kernel.xml describes it; the registers are those of accelerator.sv, where bit 0 of control starts a run, and
// bits 1 and 2 say that it is done and idle (ap_ctrl_hs), and two more:
//   0x48  errors          bit 0: memory refused a read since the start, bit 1: a write; what was computed is wrong then
//   0x4c  identity        a hash of the design, by which a driver knows it
// Other addresses are zero, and writes to them do nothing.
//
// AXI4-Lite: one transfer at a time. A write is taken when its address and its data are both there, and answered in the
// next cycle; a read is answered two cycles after its address. Bytes cannot be written alone.
// AXI4: bursts of whole lines, to addresses that increase, never across 4096 bytes; no identifiers, so that all is
// answered in order. Several bursts may be under way. The port is as wide as a line, but not wider than 64 bytes.
module kernel #(
    parameter int H = 8,
    parameter int W = 8,
    parameter int N = 2,
    parameter int S = 8,
    parameter int L = 32,
    parameter int A_WORDS = 2048,
    parameter int B_WORDS = 2048,
    parameter int K_WORDS = 256,
    parameter int C_WORDS = 2048,
    parameter int P_WORDS = 64,
    parameter int X_BYTES = 65536,
    parameter int PROGRAM = 4096,
    parameter int IDENTITY = 0,
    parameter int PORT = L < 64 ? L : 64 // bytes of the port to memory
) (
    input  logic           ap_clk,
    input  logic           ap_rst_n,

    input  logic           s_axi_control_awvalid,
    output logic           s_axi_control_awready,
    input  logic [11:0]    s_axi_control_awaddr,
    input  logic           s_axi_control_wvalid,
    output logic           s_axi_control_wready,
    input  logic [31:0]    s_axi_control_wdata,
    input  logic [3:0]     s_axi_control_wstrb,
    output logic           s_axi_control_bvalid,
    input  logic           s_axi_control_bready,
    output logic [1:0]     s_axi_control_bresp,
    input  logic           s_axi_control_arvalid,
    output logic           s_axi_control_arready,
    input  logic [11:0]    s_axi_control_araddr,
    output logic           s_axi_control_rvalid,
    input  logic           s_axi_control_rready,
    output logic [31:0]    s_axi_control_rdata,
    output logic [1:0]     s_axi_control_rresp,

    output logic           m_axi_memory_arvalid,
    input  logic           m_axi_memory_arready,
    output logic [63:0]    m_axi_memory_araddr,
    output logic [7:0]     m_axi_memory_arlen,
    output logic [2:0]     m_axi_memory_arsize,
    output logic [1:0]     m_axi_memory_arburst,
    input  logic           m_axi_memory_rvalid,
    output logic           m_axi_memory_rready,
    input  logic [8*PORT-1:0] m_axi_memory_rdata,
    input  logic           m_axi_memory_rlast,
    input  logic [1:0]     m_axi_memory_rresp,
    output logic           m_axi_memory_awvalid,
    input  logic           m_axi_memory_awready,
    output logic [63:0]    m_axi_memory_awaddr,
    output logic [7:0]     m_axi_memory_awlen,
    output logic [2:0]     m_axi_memory_awsize,
    output logic [1:0]     m_axi_memory_awburst,
    output logic           m_axi_memory_wvalid,
    input  logic           m_axi_memory_wready,
    output logic [8*PORT-1:0] m_axi_memory_wdata,
    output logic [PORT-1:0] m_axi_memory_wstrb,
    output logic           m_axi_memory_wlast,
    input  logic           m_axi_memory_bvalid,
    output logic           m_axi_memory_bready,
    input  logic [1:0]     m_axi_memory_bresp
);
  // What the modules take for granted; instructions.py says it of a machine, too.
  if (H < 4 || H > 64 || (H & (H - 1)) != 0) $error("H is a power of two from 4 to 64");
  if (W < 4 || W > 64 || (W & (W - 1)) != 0) $error("W is a power of two from 4 to 64");
  if (N < 1 || N > 16) $error("N is from 1 to 16");
  if (S < 4 || S > 128 || S % W != 0) $error("S is a multiple of W, at most 128");
  if (L > 512 || (L & (L - 1)) != 0) $error("L is a power of two, at most 512");
  if (L < 4 * S || L < H || L < W) $error("a line has four bytes for each lane, and those of a word of A and of B");
  if (X_BYTES < 2 * L || X_BYTES % L != 0 || X_BYTES > 1 << 22) $error("X has whole lines, at most 4 MiB");
  if (PORT < 16 || PORT > 128 || L % PORT != 0) $error("the port has 16 to 128 bytes, and lines are whole transfers");

  // Reset lasts as long as the accelerator asks for, however short the one from outside is.
  logic [5:0] resetting;
  logic       rst;
  assign rst = resetting != 0;
  always_ff @(posedge ap_clk) begin
    if (!ap_rst_n) resetting <= '1;
    else if (rst) resetting <= resetting - 6'd1;
  end

  logic        writes, reads, asked, is_register;
  logic [31:0] read_data;
  logic [11:0] address, asked_at;
  logic [1:0]  errors;
  assign writes = s_axi_control_awvalid && s_axi_control_wvalid && !s_axi_control_bvalid && !rst;
  // A write goes first where both come at once: there is one address.
  assign reads  = s_axi_control_arvalid && !writes && !asked && !s_axi_control_rvalid && !rst;
  assign address     = writes ? s_axi_control_awaddr : s_axi_control_araddr;
  assign is_register = address[11:8] == 4'd0;
  assign s_axi_control_awready = writes;
  assign s_axi_control_wready  = writes;
  assign s_axi_control_arready = reads;
  assign s_axi_control_bresp   = 2'b00;
  assign s_axi_control_rresp   = 2'b00;
  always_ff @(posedge ap_clk) begin
    s_axi_control_bvalid <= (writes || (s_axi_control_bvalid && !s_axi_control_bready)) && !rst;
    s_axi_control_rvalid <= (asked || (s_axi_control_rvalid && !s_axi_control_rready)) && !rst;
    asked                <= reads;
    if (reads) asked_at <= address;
    if (asked) begin
      case (asked_at)
        12'h048: s_axi_control_rdata <= {30'd0, errors};
        12'h04c: s_axi_control_rdata <= IDENTITY;
        default: s_axi_control_rdata <= asked_at[11:8] == 4'd0 ? read_data : '0;
      endcase
    end
  end

  // SLVERR and DECERR have bit 1 set.
  always_ff @(posedge ap_clk) begin
    if (rst || (writes && address == 12'h000 && s_axi_control_wdata[0])) errors <= '0;
    else begin
      if (m_axi_memory_rvalid && m_axi_memory_rready && m_axi_memory_rresp[1]) errors[0] <= 1'b1;
      if (m_axi_memory_bvalid && m_axi_memory_bready && m_axi_memory_bresp[1]) errors[1] <= 1'b1;
    end
  end

  assign m_axi_memory_arsize  = 3'($clog2(PORT));
  assign m_axi_memory_awsize  = 3'($clog2(PORT));
  assign m_axi_memory_arburst = 2'b01;
  assign m_axi_memory_awburst = 2'b01;
  assign m_axi_memory_wstrb   = '1;

  logic           r_valid, r_ready, w_valid, w_ready, w_last;
  logic [7:0]     ar_lines, aw_lines;
  logic [8*L-1:0] r_line, w_line;
  line_port #(.L(L), .PORT(PORT)) memory (
      .clk(ap_clk),
      .rst,
      .ar_lines,
      .ar_length(m_axi_memory_arlen),
      .r_valid,
      .r_ready,
      .r_line,
      .aw_lines,
      .aw_length(m_axi_memory_awlen),
      .w_valid,
      .w_ready,
      .w_line,
      .w_last,
      .port_r_valid(m_axi_memory_rvalid),
      .port_r_ready(m_axi_memory_rready),
      .port_r_data(m_axi_memory_rdata),
      .port_w_valid(m_axi_memory_wvalid),
      .port_w_ready(m_axi_memory_wready),
      .port_w_data(m_axi_memory_wdata),
      .port_w_last(m_axi_memory_wlast)
  );

  logic [4:0] taken, done;
  accelerator #(
      .H(H),
      .W(W),
      .N(N),
      .S(S),
      .L(L),
      .A_WORDS(A_WORDS),
      .B_WORDS(B_WORDS),
      .K_WORDS(K_WORDS),
      .C_WORDS(C_WORDS),
      .P_WORDS(P_WORDS),
      .X_BYTES(X_BYTES),
      .PROGRAM(PROGRAM)
  ) engine (
      .clk(ap_clk),
      .rst,
      .host_write(writes && is_register),
      .host_read(reads),
      .host_address(address[7:0]),
      .host_write_data(s_axi_control_wdata),
      .host_read_data(read_data),
      .ar_valid(m_axi_memory_arvalid),
      .ar_ready(m_axi_memory_arready),
      .ar_address(m_axi_memory_araddr),
      .ar_lines,
      .r_valid,
      .r_ready,
      .r_data(r_line),
      .aw_valid(m_axi_memory_awvalid),
      .aw_ready(m_axi_memory_awready),
      .aw_address(m_axi_memory_awaddr),
      .aw_lines,
      .w_valid,
      .w_ready,
      .w_data(w_line),
      .w_last,
      .b_valid(m_axi_memory_bvalid),
      .b_ready(m_axi_memory_bready),
      .taken,
      .done
  );

  // The accelerator counts lines itself; bit 0 of an answer says which error it is.
  logic unused;
  assign unused = &{
    1'b0, taken, done, m_axi_memory_rlast, m_axi_memory_rresp[0], m_axi_memory_bresp[0], s_axi_control_wstrb
  };
endmodule
