// A bank of C: words of W numbers of 32 bits, to which the array adds, and which the SIMD unit reads.
//
//   data ------[ ]--+
//                  (+ if `add`)--> write
//   address -> read-+
//
// With `split` each number is two of 16 bits, between which nothing is carried.
//
// Timing: what comes with `valid` in cycle t is written at the end of cycle t + 1, so that a read in cycle t + 2 finds
// it; the same address may come again from cycle t + 2 on (the array comes back to an address after a whole tile or
// pass). `read_data` is the word at `read_address` one cycle later. The two read ports are two copies of the memory in
// an FPGA, whose blocks have one.
module accumulator #(
    parameter int WORDS   = 1024,
    parameter int W       = 4,
    parameter int ADDRESS = WORDS > 1 ? $clog2(WORDS) : 1
) (
    input  wire               clk,
    input  wire               valid,
    input  wire               add,
    input  wire               split,
    input  wire [ADDRESS-1:0] address,
    input  wire [   W*32-1:0] data,
    input  wire [ADDRESS-1:0] read_address,
    output reg  [   W*32-1:0] read_data
);
  reg [W*32-1:0] memory[0:WORDS-1];
  reg [W*32-1:0] held, arrived;
  reg [ADDRESS-1:0] place;
  reg writes, adds, splits;

  wire [W*32-1:0] after;
  for (genvar w = 0; w < W; w = w + 1) begin : column
    wire [31:0] old = adds ? held[w*32+:32] : 32'b0;
    wire [16:0] low = {1'b0, old[15:0]} + {1'b0, arrived[w*32+:16]};
    wire carry = low[16] && !splits;
    assign after[w*32+:32] = {old[31:16] + arrived[w*32+16+:16] + {15'b0, carry}, low[15:0]};
  end

  always_ff @(posedge clk) begin
    held      <= memory[address];
    arrived   <= data;
    place     <= address;
    writes    <= valid;
    adds      <= add;
    splits    <= split;
    read_data <= memory[read_address];
    if (writes) memory[place] <= after;
  end
endmodule
