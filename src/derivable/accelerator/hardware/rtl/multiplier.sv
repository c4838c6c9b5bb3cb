// One signed product of 14 x 14 bits, which a slice of every family has in hardware, as one product of int8 or two of
// int4.
//
//   nibbles split   a             b             product
//      0      -     int8          int8          a * b
//      1      0     {a1, a0}      {b1, b0}      a0 * b0 + a1 * b1
//      1      1     {a1, a0}      {b1, b0}      a0 * b0 + (a1 * b1) * 2^16, as one number (see split_sum.sv)
//
// Two int4 products come from one multiplication, because they lie in fields of their own, with the sum of the other two
// partial products between them:
//
//   (a0 + a1 * 2^9) * (b0 + b1 * 2^9) = a0*b0 + (a1*b0 + a0*b1) * 2^9 + a1*b1 * 2^18
//
//    25          18 17               9 8             0
//   +--------------+------------------+---------------+
//   |    a1*b1     |  a1*b0 + a0*b1   |     a0*b0     |
//   +--------------+------------------+---------------+
//
// A field below that is negative borrows one from the field above it. The lowest field has none below it; the highest
// is one too small exactly if bit 17, the sign of all that is below it, is set.
//
// Timing: four cycles, the registers of the operands, those of a hardware multiplier behind it, those of the fabric, for
// the way from one to the other is long, and those behind what is taken of it. They keep their values without `enable`.
// `nibbles` and `split` stand still while an instruction runs.
module multiplier (
    input  wire        clk,
    input  wire        enable,
    input  wire        nibbles,
    input  wire        split,
    input  wire [ 7:0] a,
    input  wire [ 7:0] b,
    output reg  [31:0] product
);
  // Both nibbles in one number: below the upper one is the sign of the lower one, which takes one from it.
  function automatic logic signed [13:0] both(input logic [7:0] nibble);
    both = {{nibble[7], nibble[7:4]} - {4'b0, nibble[3]}, {5{nibble[3]}}, nibble[3:0]};
  endfunction

  reg signed [13:0] x, y;
  reg signed [25:0] whole, fields;
  // The highest field, as it is below 2^16 times which the lowest stands, and with the lowest added.
  wire one = fields[17];
  wire [15:0] above = {{8{fields[25]}}, fields[25:18]} + {16{!one && fields[7]}} + {15'b0, one && !fields[7]};
  wire [8:0] sum = {fields[25], fields[25:18]} + {fields[7], fields[7:0]} + {8'b0, one};
  always_ff @(posedge clk)
    if (enable) begin
      x      <= nibbles ? both(a) : {{6{a[7]}}, a};
      y      <= nibbles ? both(b) : {{6{b[7]}}, b};
      whole  <= 26'(x * y);
      fields <= whole;
      if (!nibbles) product <= {{16{fields[15]}}, fields[15:0]};
      else if (split) product <= {above, {8{fields[7]}}, fields[7:0]};
      else product <= {{23{sum[8]}}, sum};
    end

  // The field between the two.
  wire unused = &{1'b0, fields[16]};
endmodule
