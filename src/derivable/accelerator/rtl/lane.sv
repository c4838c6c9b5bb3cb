// A lane of the SIMD unit: one operation on two numbers.
//
// Timing: a and b in cycle 0, v in cycle 2; one a cycle.
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

  logic signed [63:0] early, late, held;
  always_comb begin
    case (operation)
      VEC_ADD, VEC_DRAIN: early = 64'(a) + 64'(b);
      VEC_SUB: early = 64'(a) - 64'(b);
      VEC_MUL: early = a * b;
      VEC_MAX: early = a > b ? 64'(a) : 64'(b);
      VEC_MIN: early = a < b ? 64'(a) : 64'(b);
      default: early = 64'(a);
    endcase
  end
  // `operation` stays as it is while an instruction is under way.
  always_ff @(posedge clk) begin
    late <= early;
    held <= late;
  end
  assign v = operation == VEC_EXP2 ? 64'(power) : operation == VEC_LOG2 ? 64'(logarithm) : held;
endmodule
