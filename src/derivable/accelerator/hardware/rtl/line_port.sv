// Lines of L bytes through a port to memory that is PORT bytes wide, which AXI4 and Vitis bound: a line is L / PORT
// transfers, the lowest bytes first. Bursts stay the same bytes. With PORT = L there is nothing in between.
//
//   lines --> ar, aw ---- count of transfers ----> AXI4
//   r  <-- {transfer, [earlier transfers]} <------ r
//   w  --> one transfer of the line after another -> w
//
// Timing: nothing is delayed; a line comes in the cycle of its last transfer, and is taken in that of its last one. So
// paths lead from one side to the other: between this and the ports of a chip there are skids.
module line_port #(
    parameter int L = 32,    // bytes of a line
    parameter int PORT = 16  // bytes of the port, of which a line has a power of two
) (
    input  logic              clk,
    input  logic              rst,

    input  logic [7:0]        ar_lines,  // of a burst, less one
    output logic [7:0]        ar_length, // transfers of it, less one
    output logic              r_valid,
    input  logic              r_ready,
    output logic [8*L-1:0]    r_line,
    input  logic [7:0]        aw_lines,
    output logic [7:0]        aw_length,
    input  logic              w_valid,
    output logic              w_ready,
    input  logic [8*L-1:0]    w_line,
    input  logic              w_last,

    input  logic              port_r_valid,
    output logic              port_r_ready,
    input  logic [8*PORT-1:0] port_r_data,
    output logic              port_w_valid,
    input  logic              port_w_ready,
    output logic [8*PORT-1:0] port_w_data,
    output logic              port_w_last
);
  localparam int BEATS = L / PORT;
  localparam int BITS = BEATS > 1 ? $clog2(BEATS) : 1;

  // What has come of a line, and where in its line each direction is.
  logic [BITS-1:0] r_beat, w_beat;
  logic            r_ends, w_ends;
  assign r_ends = r_beat == BITS'(BEATS - 1);
  assign w_ends = w_beat == BITS'(BEATS - 1);
  always_ff @(posedge clk) begin
    if (port_r_valid && port_r_ready) r_beat <= r_ends ? '0 : r_beat + BITS'(1);
    if (port_w_valid && port_w_ready) w_beat <= w_ends ? '0 : w_beat + BITS'(1);
    if (rst) begin
      r_beat <= '0;
      w_beat <= '0;
    end
  end

  if (BEATS == 1) begin : straight
    assign ar_length   = ar_lines;
    assign aw_length   = aw_lines;
    assign r_line      = port_r_data;
    assign port_w_data = w_line;
  end else begin : parts
    // A burst is at most 4096 bytes, 256 transfers of 16.
    assign ar_length = {ar_lines[7-BITS:0], {BITS{1'b1}}};
    assign aw_length = {aw_lines[7-BITS:0], {BITS{1'b1}}};
    logic unused;
    assign unused = &{1'b0, ar_lines[7:8-BITS], aw_lines[7:8-BITS]};

    logic [8*(L-PORT)-1:0] earlier;
    assign r_line      = {port_r_data, earlier};
    assign port_w_data = w_line[8*PORT*w_beat+:8*PORT];
    always_ff @(posedge clk) if (port_r_valid && port_r_ready) earlier <= r_line[8*L-1:8*PORT];
  end

  assign r_valid      = port_r_valid && r_ends;
  assign port_r_ready = r_ready || !r_ends;
  assign port_w_valid = w_valid;
  assign port_w_last  = w_last && w_ends;
  assign w_ready      = port_w_ready && w_ends;
endmodule
