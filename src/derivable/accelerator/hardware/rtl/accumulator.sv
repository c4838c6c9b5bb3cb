// A bank of C: words of W numbers of 32 bits, to which the array adds, and which the SIMD unit reads.
//
//   data ------[ ]--[ ]--+
//                       (+ if `add`)--[ ]--> write
//   address -> read-[ ]--+
//
// With `split` each number is two of 16 bits, between which nothing is carried: a bit stands between the halves, which
// hands a carry on if it is set.
//
// Timing: what comes with `valid` in cycle t is written at the end of cycle t + 3, so that a read in cycle t + 4 finds
// it; the same address may come again from cycle t + 4 on (the array comes back to an address after a whole tile or
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
  (* no_rw_check *)  // a word that is read and written in a cycle may be anything; none is, by what is said above
  reg [W*32-1:0] memory[0:WORDS-1];
  reg [W*32-1:0] held, held_2, arrived, arrived_2, after;
  reg [ADDRESS-1:0] place, place_2, place_3;
  reg writes, writes_2, writes_3, adds, adds_2, splits, splits_2;

  wire [W*32-1:0] sums;
  for (genvar w = 0; w < W; w = w + 1) begin : column
    wire [31:0] old = adds_2 ? held_2[w*32+:32] : 32'b0;
    wire [31:0] more = arrived_2[w*32+:32];
    wire [32:0] sum = {old[31:16], !splits_2, old[15:0]} + {more[31:16], 1'b0, more[15:0]};
    assign sums[w*32+:32] = {sum[32:17], sum[15:0]};
    wire unused = &{1'b0, sum[16]};
  end

  always_ff @(posedge clk) begin
    held      <= memory[address];
    arrived   <= data;
    place     <= address;
    writes    <= valid;
    adds      <= add;
    splits    <= split;

    held_2    <= held;
    arrived_2 <= arrived;
    place_2   <= place;
    writes_2  <= writes;
    adds_2    <= adds;
    splits_2  <= splits;

    after     <= sums;
    place_3   <= place_2;
    writes_3  <= writes_2;

    read_data <= memory[read_address];
    if (writes_3) memory[place_3] <= after;
  end
endmodule
