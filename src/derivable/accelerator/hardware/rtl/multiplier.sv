// One signed product of 27 x 18 bits, which a DSP48E2 has in hardware, as one product of int8 or two of int4.
//
//   nibbles split   a             b             product
//      0      -     int8          int8          a * b
//      1      0     {a1, a0}      {b1, b0}      a0 * b0 + a1 * b1
//      1      1     {a1, a0}      {b1, b0}      a0 * b0 + (a1 * b1) * 2^16, as one number (see split_sum.sv)
//
// Two int4 products come from one multiplication, because the four partial products lie in fields of their own:
//
//   (a0 + a1 * 2^11) * (b0 + b1 * 2^22) = a0*b0 + a1*b0 * 2^11 + a0*b1 * 2^22 + a1*b1 * 2^33
//
//    44          33 32          22 21          11 10           0
//   +--------------+--------------+--------------+--------------+
//   |    a1*b1     |    a0*b1     |    a1*b0     |    a0*b0     |
//   +--------------+--------------+--------------+--------------+
//
// A field below that is negative borrows one from the field above it. The lowest field has none below it; the highest
// is one too small exactly if bit 32, the sign of all that is below it, is set.
//
// Timing: one cycle, the register behind the multiplier, which keeps its value without `enable`. `nibbles` and `split`
// stand still while an instruction runs.
module multiplier (
    input  wire        clk,
    input  wire        enable,
    input  wire        nibbles,
    input  wire        split,
    input  wire [ 7:0] a,
    input  wire [ 7:0] b,
    output wire [31:0] product
);
  // Both nibbles in one number: below the upper one is the sign of the lower one, which takes one from it.
  wire signed [ 6:0] a1 = {{3{a[7]}}, a[7:4]} - {6'b0, a[3]};
  wire signed [ 4:0] b1 = {b[7], b[7:4]} - {4'b0, b[3]};
  wire signed [17:0] x = nibbles ? {a1, {7{a[3]}}, a[3:0]} : {{10{a[7]}}, a};
  wire signed [26:0] y = nibbles ? {b1, {18{b[3]}}, b[3:0]} : {{19{b[7]}}, b};

  reg signed  [44:0] fields;
  always_ff @(posedge clk) if (enable) fields <= x * y;

  wire [7:0] high = fields[40:33] + {7'b0, fields[32]};
  wire [31:0] low = nibbles ? {{24{fields[7]}}, fields[7:0]} : {{16{fields[15]}}, fields[15:0]};
  wire [31:0] second = !nibbles ? 32'b0 : split ? {{8{high[7]}}, high, 16'b0} : {{24{high[7]}}, high};
  assign product = low + second;

  // The fields between the two, and copies of their signs.
  wire unused = &{1'b0, fields[44:41], fields[31:16]};
endmodule
