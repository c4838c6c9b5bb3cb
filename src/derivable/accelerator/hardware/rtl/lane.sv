// A lane of the SIMD unit: one operation on two numbers.
//
// The product of 32 x 32 bits is the sum of four of 16 x 16 bits, a multiplier each, as in requantise.sv.
//
// The larger or smaller one is chosen by the sign of the difference, which is there a cycle before. A lane that takes no
// part gives what changes no sum, or no maximum.
//
// Timing: a and b in cycle 0, `live` in cycle 6, v in cycle 7; one a cycle. `operation` and `is_max` stand still.
module lane (
    input  logic               clk,
    input  logic        [ 3:0] operation,
    input  logic signed [31:0] a,
    input  logic signed [31:0] b,       // of drain: what is added
    input  logic               is_max,  // of the reduction
    input  logic               live,
    output logic signed [63:0] v
);
  `include "isa.svh"

  logic signed [31:0] power, logarithm;
  exp2 to_power (.clk, .x(a), .y(power));
  log2 to_logarithm (.clk, .x(a), .y(logarithm));

  // In front of products is a register for them alone, which is one of their multipliers'.
  logic signed [31:0] a_1, b_1;
  logic signed [16:0] a0, a1, b0, b1;
  assign a0 = {1'b0, a_1[15:0]};
  assign a1 = 17'($signed(a_1[31:16]));
  assign b0 = {1'b0, b_1[15:0]};
  assign b1 = 17'($signed(b_1[31:16]));

  // What follows from the operation.
  logic adds, subtracts, chooses, takes_more, multiplies, is_power, is_logarithm;
  always_ff @(posedge clk) begin
    adds         <= operation == VEC_ADD || operation == VEC_DRAIN;
    subtracts    <= operation == VEC_SUB || operation == VEC_MAX || operation == VEC_MIN;
    chooses      <= operation == VEC_MAX || operation == VEC_MIN;
    takes_more   <= operation == VEC_MAX;
    multiplies   <= operation == VEC_MUL;
    is_power     <= operation == VEC_EXP2;
    is_logarithm <= operation == VEC_LOG2;
  end

  logic signed [33:0] p00, p01, p10, p11;
  logic signed [63:0] outer, product, result_4, result_6, chosen;
  logic signed [34:0] inner;
  logic signed [32:0] second, sum_1, simple_2, simple_3;
  logic               unused_carry;
  assign second  = {33{adds || subtracts}} & ({b[31], b} ^ {33{subtracts}});
  assign product = outer + {{13{inner[34]}}, inner, 16'd0};
  assign chosen  = is_power ? 64'(power) : is_logarithm ? 64'(logarithm) : result_6;
  always_ff @(posedge clk) begin
    a_1      <= a;
    b_1      <= b;
    {sum_1, unused_carry} <= {a[31], a, 1'b1} + {second, subtracts};

    p00      <= a0 * b0;
    p01      <= a0 * b1;
    p10      <= a1 * b0;
    p11      <= a1 * b1;
    simple_2 <= !chooses ? sum_1 : sum_1[32] != takes_more ? 33'(a_1) : 33'(b_1);

    outer    <= {p11[31:0], p00[31:0]};
    inner    <= 35'(p01) + 35'(p10);
    simple_3 <= simple_2;

    result_4 <= multiplies ? product : 64'(simple_3);
  end
  delay #(.BITS(64), .CYCLES(2)) to_6 (.clk, .in(result_4), .out(result_6));
  always_ff @(posedge clk) v <= live ? chosen : {is_max, 63'd0};

  logic unused;
  assign unused = &{1'b0, p00[33:32], p11[33:32], unused_carry};
endmodule
