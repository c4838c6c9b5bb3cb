// The product of two numbers as codes of logarithms (see log_sum.sv): the sum of the codes less that of one, from 0 to
// the code of zero.
//
// Timing: two cycles, one product a cycle.
module log_product #(
    parameter int W = 16,
    parameter int BIAS = 0  // the code of one
) (
    input  wire         clk,
    input  wire [W-1:0] a,
    input  wire [W-1:0] b,
    output reg  [W-1:0] y
);
  reg [W+1:0] sum;
  reg is_zero;
  always_ff @(posedge clk) begin
    sum     <= {2'b0, a} + {2'b0, b} - (W + 2)'(BIAS);
    is_zero <= &a || &b;
    // The highest bit says that the sum is negative, the next one that it has too many bits.
    if (is_zero || sum[W+1:W] == 2'b01) y <= '1;
    else if (sum[W+1]) y <= '0;
    else y <= sum[W-1:0];
  end
endmodule
