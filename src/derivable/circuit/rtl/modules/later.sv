// A word some cycles later, from 2 to 17: in a memory of 16 words that is written at an address that counts on, and read
// at one that follows it.
//
// Timing: `from` is `at` less CYCLES - 1, modulo 16.
module later #(
    parameter int BITS = 8
) (
    input  wire            clk,
    input  wire [     3:0] at,
    input  wire [     3:0] from,
    input  wire [BITS-1:0] in,
    output reg  [BITS-1:0] out
);
  reg [BITS-1:0] memory[0:15];
  always_ff @(posedge clk) begin
    memory[at] <= in;
    out        <= memory[from];
  end
endmodule
