// A lane of the SIMD unit: one operation on two numbers.
//
// The product of 32 x 32 bits is the sum of four of 16 x 16 bits, a multiplier each, as in requantise.sv.
//
// Timing: a and b in cycle 0, v in cycle 7; one a cycle.
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

  logic signed [16:0] a0, a1, b0, b1;
  assign a0 = {1'b0, a[15:0]};
  assign a1 = 17'($signed(a[31:16]));
  assign b0 = {1'b0, b[15:0]};
  assign b1 = 17'($signed(b[31:16]));

  logic signed [33:0] p00, p01, p10, p11;
  logic signed [63:0] outer, product, simple_0, simple_1, result_3, result_6;
  logic signed [34:0] inner;
  logic signed [63:0] simple_2;
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
  assign product = outer + {{13{inner[34]}}, inner, 16'd0};
  always_ff @(posedge clk) begin
    p00      <= a0 * b0;
    p01      <= a0 * b1;
    p10      <= a1 * b0;
    p11      <= a1 * b1;
    simple_1 <= simple_0;

    outer    <= {p11[31:0], p00[31:0]};
    inner    <= 35'(p01) + 35'(p10);
    simple_2 <= simple_1;

    result_3 <= operation == VEC_MUL ? product : simple_2;
  end
  delay #(.BITS(64), .CYCLES(3)) to_6 (.clk, .in(result_3), .out(result_6));
  always_ff @(posedge clk) begin
    case (operation)
      VEC_EXP2: v <= 64'(power);
      VEC_LOG2: v <= 64'(logarithm);
      default: v <= result_6;
    endcase
  end

  logic unused;
  assign unused = &{1'b0, p00[33:32], p11[33:32]};
endmodule
