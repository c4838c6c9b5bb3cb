// The logarithm to base 2 in fixed point, 16 bits behind the point: the place of the leading one, and a table of 256
// entries with lines between them for the bits after it; the lowest number where x is not positive. Bit for bit `log2` of
// fixed.py.
//
// Timing: x in cycle 0, y in cycle 2; one a cycle.
module log2 (
    input  logic               clk,
    input  logic signed [31:0] x,
    output logic        [31:0] y
);
  logic [31:0] shifted, mantissa;  // the leading one in bit 31
  logic [ 4:0] place, whole;       // where it was
  logic        positive;
  always_comb begin
    shifted = x;
    place   = 5'd31;
    for (int i = 4; i >= 0; i--)
      if ((shifted >> (32 - (1 << i))) == 0) begin
        shifted = shifted << (1 << i);
        place   = place - 5'(1 << i);
      end
  end

  logic [24:0] value, between;
  logic [16:0] step;
  logic [32:0] product;
  log2_table entries (.entry(mantissa[30:23]), .value, .step);
  assign product = step * mantissa[22:7];
  assign between = value + 25'(product[32:16]) + 25'd128;

  always_ff @(posedge clk) begin
    mantissa <= shifted;
    whole    <= place;
    positive <= x > 0;
    y        <= positive ? {16'(whole) - 16'd16, 16'd0} + 32'(between[24:8]) : 32'h80000000;
  end

  logic unused;
  assign unused = &{1'b0, mantissa[31], mantissa[6:0], product[15:0], between[7:0]};
endmodule
