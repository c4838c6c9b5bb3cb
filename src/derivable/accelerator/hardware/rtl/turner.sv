// Rows of bytes become columns: a pass of n rows of S lanes, a row a cycle, leaves as a word of n bytes for each lane.
//
//   row i        l0 l1 l2 ..     lane j of row i is in bank i + j mod T,      word j       r0 r1 r2 ..
//                                so rows and words meet all banks once
//
// T is the least power of two that is not below S. Of two halves, one is filled while the other leaves; a pass must not end
// earlier than `lanes` cycles after the one before.
//
// Timing: the first word of a pass is written 3 cycles after its last row came, then one a cycle, `lanes` of them; those
// of lanes from `used` on have an empty mask.
module turner #(
    parameter int S    = 8,
    parameter int BITS = 22,
    parameter int T    = 1 << $clog2(S)
) (
    input  logic            clk,
    input  logic            rst,

    input  logic            valid,
    input  logic [8*S-1:0]  row,
    input  logic            is_end,         // of a pass
    input  logic            is_last,        // pass of the instruction
    input  logic [7:0]      lanes,
    input  logic [7:0]      used,
    input  logic [BITS-1:0] address,        // of the first word of the pass
    input  logic [BITS-1:0] stride,         // between words

    output logic            write,
    output logic [BITS-1:0] write_address,
    output logic [8*T-1:0]  write_data,
    output logic [T-1:0]    write_mask,
    output logic            write_last
);
  localparam int TURN = $clog2(T);

  // Rows come in, rotated.
  logic            half;
  logic [TURN-1:0] i;
  logic [16*T-1:0] doubled;
  assign doubled = {(8 * T)'(row), (8 * T)'(row)} << {i, 3'b000};

  // Words leave: the pass, and the lane.
  logic            leaves, from, ends;
  logic [TURN-1:0] count;  // rows of the pass but one
  logic [7:0]      j, left, live;
  logic [BITS-1:0] at;
  always_ff @(posedge clk) begin
    if (valid) i <= is_end ? '0 : i + TURN'(1);
    if (valid && is_end) begin
      half   <= !half;
      leaves <= 1'b1;
      from   <= half;
      ends   <= is_last;
      count  <= i;
      j      <= '0;
      left   <= lanes - 8'd1;
      live   <= used;
      at     <= address;
    end else begin
      j    <= j + 8'd1;
      left <= left - 8'd1;
      at   <= at + stride;
      if (left == 0) leaves <= 1'b0;
    end
    if (rst) begin
      i      <= '0;
      half   <= 1'b0;
      leaves <= 1'b0;
    end
  end

  logic [8*T-1:0] banks;
  for (genvar b = 0; b < T; b++) begin : bank
    logic [7:0]      memory[2*T];
    logic [TURN-1:0] own;
    assign own = TURN'(b) - j[TURN-1:0];
    always_ff @(posedge clk) begin
      if (valid) memory[{half, i}] <= doubled[8*T+8*b+:8];
      banks[8*b+:8] <= memory[{from, own}];
    end
  end

  logic            leaves_1, live_1, last_1;
  logic [TURN-1:0] j_1, count_1;
  logic [BITS-1:0] at_1;
  logic [16*T-1:0] turned;
  assign turned = {banks, banks} >> {j_1, 3'b000};
  always_ff @(posedge clk) begin
    leaves_1      <= leaves;
    live_1        <= j < live;
    last_1        <= leaves && ends && left == 0;
    j_1           <= j[TURN-1:0];
    count_1       <= count;
    at_1          <= at;
    write         <= leaves_1;
    write_address <= at_1;
    write_data    <= turned[8*T-1:0];
    write_mask    <= live_1 ? {T{1'b1}} >> (TURN'(T - 1) - count_1) : '0;
    write_last    <= last_1;
  end

  logic unused;
  assign unused = &{1'b0, doubled, turned};
endmodule
