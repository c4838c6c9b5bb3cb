// The product of two fixed-point numbers with BITS bits behind the point, rounded to nearest, halves up.
//
// Timing: two cycles, one product a cycle.
module real_product #(
    parameter int A = 9,    // bits of each operand and of the result
    parameter int B = 9,
    parameter int Y = 9,
    parameter int BITS = 8  // at least 1
) (
    input  wire         clk,
    input  wire [A-1:0] a,
    input  wire [B-1:0] b,
    output reg  [Y-1:0] y
);
  localparam [A+B:0] HALF = (A + B + 1)'(1) << (BITS - 1);
  reg [A+B-1:0] product;
  wire [A+B:0] rounded = {1'b0, product} + HALF;
  always_ff @(posedge clk) begin
    product <= a * b;
    y       <= Y'(rounded >> BITS);
  end
  wire unused = &{1'b0, rounded};
endmodule
