// A lane of the SIMD unit: one operation on two numbers.
//
// The product of 32 x 32 bits is the sum of four of 26 and 17 bits, a DSP slice each, as in requantise.sv.
//
// Timing: a and b in cycle 0, v in cycle 4; one a cycle.
module lane (
    input  logic               clk,
    input  logic        [ 3:0] operation,
    input  logic signed [31:0] a,
    input  logic signed [31:0] b,  // of drain: what is added
    output logic signed [63:0] v
);
  `include "isa.svh"

  logic signed [31:0] power, logarithm;
  exp2 to_power (.clk, .x(a), .y(power));
  log2 to_logarithm (.clk, .x(a), .y(logarithm));

  logic signed [26:0] a0;
  logic signed [ 5:0] a1;
  logic signed [17:0] b0, b1;
  assign a0 = {1'b0, a[25:0]};
  assign a1 = a[31:26];
  assign b0 = {1'b0, b[16:0]};
  assign b1 = 18'($signed(b[31:17]));

  logic signed [44:0] p00, p01;
  logic signed [23:0] p10, p11;
  logic signed [63:0] outer, inner, product, simple_0, simple_1, simple_2, simple_3, simple_4, multiplied;
  always_comb begin
    case (operation)
      VEC_ADD, VEC_DRAIN: simple_0 = 64'(a) + 64'(b);
      VEC_SUB: simple_0 = 64'(a) - 64'(b);
      VEC_MAX: simple_0 = a > b ? 64'(a) : 64'(b);
      VEC_MIN: simple_0 = a < b ? 64'(a) : 64'(b);
      default: simple_0 = 64'(a);
    endcase
  end
  // `operation` stays as it is while an instruction is under way.
  always_ff @(posedge clk) begin
    p00        <= a0 * b0;
    p01        <= a0 * b1;
    p10        <= a1 * b0;
    p11        <= a1 * b1;
    outer      <= {p11[20:0], p00[42:0]};
    inner      <= 64'(p01) * 64'sd131072 + 64'(p10) * 64'sd67108864;
    product    <= outer + inner;
    multiplied <= product;
    simple_1   <= simple_0;
    simple_2   <= simple_1;
    simple_3   <= simple_2;
    simple_4   <= simple_3;
  end
  always_comb begin
    case (operation)
      VEC_EXP2: v = 64'(power);
      VEC_LOG2: v = 64'(logarithm);
      VEC_MUL: v = multiplied;
      default: v = simple_4;
    endcase
  end

  logic unused;
  assign unused = &{1'b0, p00[44:43], p11[23:21]};
endmodule
