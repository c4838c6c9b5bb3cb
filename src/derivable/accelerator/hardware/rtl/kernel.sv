// The accelerator as a kernel of Vitis: reset and control as Xilinx's tools expect them, AXI4 to memory, AXI4-Lite from
// the host. kernel.xml describes it; the registers are those of accelerator.sv, where bit 0 of control starts a run, and
// bits 1 and 2 say that it is done and idle (ap_ctrl_hs), and two more:
//   0x48  errors          bit 0: memory refused a read since the start, bit 1: a write; what was computed is wrong then
//   0x4c  identity        a hash of the design, by which a driver knows it
// Other addresses are zero, and writes to them do nothing.
//
// Every channel goes through a `skid`: no path leads from a port to a port but through a register, as AXI wants it
// (A3.2.1). It costs a cycle each way, so that memory answers two cycles later than it does; transfers follow one another
// in every cycle as before.
//
// AXI4-Lite: a write is done when its address and its data have both come, and answered two cycles after the later one;
// a read is answered three cycles after its address. Bytes cannot be written alone.
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
  // What the modules take for granted; instructions.py says it of a machine, too. Icarus 11 has no such statements.
`ifndef __ICARUS__
  if (H < 4 || H > 64 || (H & (H - 1)) != 0) $error("H is a power of two from 4 to 64");
  if (W < 4 || W > 64 || (W & (W - 1)) != 0) $error("W is a power of two from 4 to 64");
  if (N < 1 || N > 16) $error("N is from 1 to 16");
  if (S < 4 || S > 128 || S % W != 0) $error("S is a multiple of W, at most 128");
  if (L > 512 || (L & (L - 1)) != 0) $error("L is a power of two, at most 512");
  if (L < 4 * S || L < H || L < W) $error("a line has four bytes for each lane, and those of a word of A and of B");
  if (X_BYTES < 2 * L || X_BYTES % L != 0 || X_BYTES > 1 << 22) $error("X has whole lines, at most 4 MiB");
  if (PORT < 16 || PORT > 128 || L % PORT != 0) $error("the port has 16 to 128 bytes, and lines are whole transfers");
`endif

  // Reset lasts as long as the accelerator asks for, however short the one from outside is.
  logic [5:0] resetting;
  logic       rst;
  assign rst = resetting != 0;
  always_ff @(posedge ap_clk) begin
    if (!ap_rst_n) resetting <= '1;
    else if (rst) resetting <= resetting - 6'd1;
  end

  logic        writes, reads, asked, is_register, to_write, has_data, to_read;
  logic [31:0] read_data, write_data;
  logic [11:0] write_address, read_address, address, asked_at;
  logic [1:0]  errors;
  skid #(.BITS(12)) write_addresses (
      .clk(ap_clk),
      .rst,
      .in_valid(s_axi_control_awvalid),
      .in_ready(s_axi_control_awready),
      .in_data(s_axi_control_awaddr),
      .out_valid(to_write),
      .out_ready(writes),
      .out_data(write_address)
  );
  skid #(.BITS(32)) written (
      .clk(ap_clk),
      .rst,
      .in_valid(s_axi_control_wvalid),
      .in_ready(s_axi_control_wready),
      .in_data(s_axi_control_wdata),
      .out_valid(has_data),
      .out_ready(writes),
      .out_data(write_data)
  );
  skid #(.BITS(12)) read_addresses (
      .clk(ap_clk),
      .rst,
      .in_valid(s_axi_control_arvalid),
      .in_ready(s_axi_control_arready),
      .in_data(s_axi_control_araddr),
      .out_valid(to_read),
      .out_ready(reads),
      .out_data(read_address)
  );
  assign writes = to_write && has_data && !s_axi_control_bvalid;
  // A write goes first where both come at once: there is one address.
  assign reads  = to_read && !writes && !asked && !s_axi_control_rvalid;
  assign address     = writes ? write_address : read_address;
  assign is_register = address[11:8] == 4'd0;
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

  // What is between the skids of the port and the lines.
  logic              ar_valid, ar_ready, r_valid, r_ready, aw_valid, aw_ready, w_valid, w_ready, b_valid, b_ready;
  logic [63:0]       ar_address, aw_address;
  logic [7:0]        ar_length, aw_length;
  logic [8*PORT-1:0] r_data, w_data;
  logic              r_failed, w_last, b_failed;

  // SLVERR and DECERR have bit 1 set.
  always_ff @(posedge ap_clk) begin
    if (rst || (writes && address == 12'h000 && write_data[0])) errors <= '0;
    else begin
      if (r_valid && r_ready && r_failed) errors[0] <= 1'b1;
      if (b_valid && b_ready && b_failed) errors[1] <= 1'b1;
    end
  end

  assign m_axi_memory_arsize  = 3'($clog2(PORT));
  assign m_axi_memory_awsize  = 3'($clog2(PORT));
  assign m_axi_memory_arburst = 2'b01;
  assign m_axi_memory_awburst = 2'b01;
  assign m_axi_memory_wstrb   = '1;

  skid #(.BITS(72)) read_bursts (
      .clk(ap_clk),
      .rst,
      .in_valid(ar_valid),
      .in_ready(ar_ready),
      .in_data({ar_length, ar_address}),
      .out_valid(m_axi_memory_arvalid),
      .out_ready(m_axi_memory_arready),
      .out_data({m_axi_memory_arlen, m_axi_memory_araddr})
  );
  skid #(.BITS(1 + 8 * PORT)) read_data_in (
      .clk(ap_clk),
      .rst,
      .in_valid(m_axi_memory_rvalid),
      .in_ready(m_axi_memory_rready),
      .in_data({m_axi_memory_rresp[1], m_axi_memory_rdata}),
      .out_valid(r_valid),
      .out_ready(r_ready),
      .out_data({r_failed, r_data})
  );
  skid #(.BITS(72)) write_bursts (
      .clk(ap_clk),
      .rst,
      .in_valid(aw_valid),
      .in_ready(aw_ready),
      .in_data({aw_length, aw_address}),
      .out_valid(m_axi_memory_awvalid),
      .out_ready(m_axi_memory_awready),
      .out_data({m_axi_memory_awlen, m_axi_memory_awaddr})
  );
  skid #(.BITS(1 + 8 * PORT)) write_data_out (
      .clk(ap_clk),
      .rst,
      .in_valid(w_valid),
      .in_ready(w_ready),
      .in_data({w_last, w_data}),
      .out_valid(m_axi_memory_wvalid),
      .out_ready(m_axi_memory_wready),
      .out_data({m_axi_memory_wlast, m_axi_memory_wdata})
  );
  skid #(.BITS(1)) answers (
      .clk(ap_clk),
      .rst,
      .in_valid(m_axi_memory_bvalid),
      .in_ready(m_axi_memory_bready),
      .in_data(m_axi_memory_bresp[1]),
      .out_valid(b_valid),
      .out_ready(b_ready),
      .out_data(b_failed)
  );

  logic           line_in_valid, line_in_ready, line_out_valid, line_out_ready, line_out_last;
  logic [7:0]     ar_lines, aw_lines;
  logic [8*L-1:0] line_in, line_out;
  line_port #(.L(L), .PORT(PORT)) memory (
      .clk(ap_clk),
      .rst,
      .ar_lines,
      .ar_length,
      .r_valid(line_in_valid),
      .r_ready(line_in_ready),
      .r_line(line_in),
      .aw_lines,
      .aw_length,
      .w_valid(line_out_valid),
      .w_ready(line_out_ready),
      .w_line(line_out),
      .w_last(line_out_last),
      .port_r_valid(r_valid),
      .port_r_ready(r_ready),
      .port_r_data(r_data),
      .port_w_valid(w_valid),
      .port_w_ready(w_ready),
      .port_w_data(w_data),
      .port_w_last(w_last)
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
      .host_write_data(write_data),
      .host_read_data(read_data),
      .ar_valid,
      .ar_ready,
      .ar_address,
      .ar_lines,
      .r_valid(line_in_valid),
      .r_ready(line_in_ready),
      .r_data(line_in),
      .aw_valid,
      .aw_ready,
      .aw_address,
      .aw_lines,
      .w_valid(line_out_valid),
      .w_ready(line_out_ready),
      .w_data(line_out),
      .w_last(line_out_last),
      .b_valid,
      .b_ready,
      .taken,
      .done
  );

  // The accelerator counts lines itself; bit 0 of an answer says which error it is.
  logic unused;
  assign unused = &{
    1'b0, taken, done, m_axi_memory_rlast, m_axi_memory_rresp[0], m_axi_memory_bresp[0], s_axi_control_wstrb
  };

`ifdef CHECKS
  // Every channel of both ports; the other side's, too.
  logic stopped;
  assign stopped = !ap_rst_n || rst;
  handshake #(.BITS(12)) host_aw (
      .clk(ap_clk), .rst(stopped), .valid(s_axi_control_awvalid), .ready(s_axi_control_awready),
      .data(s_axi_control_awaddr)
  );
  handshake #(.BITS(32)) host_w (
      .clk(ap_clk), .rst(stopped), .valid(s_axi_control_wvalid), .ready(s_axi_control_wready),
      .data(s_axi_control_wdata)
  );
  handshake #(.BITS(2)) host_b (
      .clk(ap_clk), .rst(stopped), .valid(s_axi_control_bvalid), .ready(s_axi_control_bready),
      .data(s_axi_control_bresp)
  );
  handshake #(.BITS(12)) host_ar (
      .clk(ap_clk), .rst(stopped), .valid(s_axi_control_arvalid), .ready(s_axi_control_arready),
      .data(s_axi_control_araddr)
  );
  handshake #(.BITS(32)) host_r (
      .clk(ap_clk), .rst(stopped), .valid(s_axi_control_rvalid), .ready(s_axi_control_rready),
      .data(s_axi_control_rdata)
  );
  handshake #(.BITS(72)) port_ar (
      .clk(ap_clk), .rst(stopped), .valid(m_axi_memory_arvalid), .ready(m_axi_memory_arready),
      .data({m_axi_memory_arlen, m_axi_memory_araddr})
  );
  handshake #(.BITS(8*PORT)) port_r (
      .clk(ap_clk), .rst(stopped), .valid(m_axi_memory_rvalid), .ready(m_axi_memory_rready),
      .data(m_axi_memory_rdata)
  );
  handshake #(.BITS(72)) port_aw (
      .clk(ap_clk), .rst(stopped), .valid(m_axi_memory_awvalid), .ready(m_axi_memory_awready),
      .data({m_axi_memory_awlen, m_axi_memory_awaddr})
  );
  handshake #(.BITS(8*PORT+1)) port_w (
      .clk(ap_clk), .rst(stopped), .valid(m_axi_memory_wvalid), .ready(m_axi_memory_wready),
      .data({m_axi_memory_wlast, m_axi_memory_wdata})
  );
  handshake #(.BITS(2)) port_b (
      .clk(ap_clk), .rst(stopped), .valid(m_axi_memory_bvalid), .ready(m_axi_memory_bready),
      .data(m_axi_memory_bresp)
  );
`endif
endmodule
