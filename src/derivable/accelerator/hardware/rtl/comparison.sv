// Whether a signed number of 64 bits is larger than another one, in three parts beside each other, so that no chain of
// carries is longer than half of the numbers:
//
//   larger = upper halves larger, or not smaller and the lower half larger
//
// They are signs of differences: of two comparisons of the same numbers synthesis would make one, and the other one of
// whether they are equal, which is slower. Without a register.
module comparison (
    input  logic [63:0] a,
    input  logic [63:0] b,
    output logic        is_upper_more,
    output logic        is_upper_not_less,
    output logic        is_lower_more
);
  logic [32:0] more, lower;  // b - a
  logic [33:0] not_less;     // twice b - a, less one
  assign more              = {b[63], b[63:32]} - {a[63], a[63:32]};
  assign not_less          = {b[63], b[63:32], 1'b0} - {a[63], a[63:32], 1'b1};
  assign lower             = {1'b0, b[31:0]} - {1'b0, a[31:0]};
  assign is_upper_more     = more[32];
  assign is_upper_not_less = not_less[33];
  assign is_lower_more     = lower[32];

  logic unused;
  assign unused = &{1'b0, more, not_less, lower};
endmodule
