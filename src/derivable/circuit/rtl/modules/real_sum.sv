// The sum of two fixed-point numbers. Timing: a cycle.
module real_sum #(
    parameter int A = 9,  // bits of each operand and of the result
    parameter int B = 9,
    parameter int Y = 10
) (
    input  wire         clk,
    input  wire [A-1:0] a,
    input  wire [B-1:0] b,
    output reg  [Y-1:0] y
);
  always_ff @(posedge clk) y <= Y'(a) + Y'(b);
endmodule
