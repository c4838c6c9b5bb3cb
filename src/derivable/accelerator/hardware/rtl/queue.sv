// The instructions that wait for one unit, in order. The head goes when every unit has completed what it needs.
//
// Timing: an instruction pushed in cycle 0 can be taken in cycle 1.
module queue #(
    parameter int DEPTH = 8  // a power of two
) (
    input  logic           clk,
    input  logic           rst,
    input  logic           push,
    input  logic [511:0]   pushed,
    output logic           full,
    output logic           empty,
    input  logic [79:0]    completed,    // instructions completed by each unit, 16 bits each
    output logic           valid,        // the head is here and may go
    output logic [511:0]   instruction,
    input  logic           ready
);
  `include "isa.svh"

  localparam int BITS = $clog2(DEPTH);
  logic [511:0]    entries[DEPTH];
  logic [BITS-1:0] head, tail;
  logic [BITS:0]   count;
  logic [4:0]      met;
  logic            taken;

  assign instruction = entries[head];
  assign empty       = count == 0;
  assign full        = count == (BITS + 1)'(DEPTH);
  assign valid       = !empty && &met;
  assign taken       = valid && ready;

  // Counts are modulo 2^16: a need is met where the difference is not negative.
  for (genvar u = 0; u < 5; u++) begin : need
    logic [15:0] difference;
    logic        unused;
    assign unused     = &{1'b0, difference[14:0]};
    assign difference = completed[16*u+:16] - instruction[NEED_DMA_LSB+16*u+:16];
    assign met[u]     = !difference[15];
  end

  always_ff @(posedge clk) begin
    if (push) begin
      entries[tail] <= pushed;
      tail          <= tail + BITS'(1);
    end
    if (taken) head <= head + BITS'(1);
    count <= count + (BITS + 1)'(push) - (BITS + 1)'(taken);
    if (rst) begin
      head  <= '0;
      tail  <= '0;
      count <= '0;
    end
  end
endmodule
