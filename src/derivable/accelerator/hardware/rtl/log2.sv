// The logarithm to base 2 in fixed point, 16 bits behind the point: the place of the leading one, and a table of 256
// entries with lines between them for the bits after it; the lowest number where x is not positive. Bit for bit `log2` of
// fixed.py.
//
// Timing: x in cycle 0, y in cycle 4; one a cycle.
//   1  leading one    2  table    3  product    4  sum
module log2 (
    input  logic               clk,
    input  logic signed [31:0] x,
    output logic        [31:0] y
);
  logic [31:0] shifted;            // the leading one in bit 31
  logic [23:0] mantissa;           // what is behind it
  logic [ 4:0] place, whole_1, whole_2;  // where it was
  logic        positive_1, positive_2, positive_3;
  always_comb begin
    shifted = x;
    place   = 5'd31;
    for (int i = 4; i >= 0; i--)
      if ((shifted >> (32 - (1 << i))) == 0) begin
        shifted = shifted << (1 << i);
        place   = place - 5'(1 << i);
      end
  end

  logic [24:0] value, value_2;
  logic [16:0] step, step_2;
  logic [15:0] rest_2;
  logic [32:0] product;
  logic [39:0] base, sum;
  log2_table entries (.entry(mantissa[23:16]), .value, .step);
  assign sum = base + 40'(product[32:16]);

  always_ff @(posedge clk) begin
    mantissa   <= shifted[30:7];
    whole_1    <= place;
    positive_1 <= x > 0;

    value_2    <= value;
    step_2     <= step;
    rest_2     <= mantissa[15:0];
    whole_2    <= whole_1;
    positive_2 <= positive_1;

    product    <= step_2 * rest_2;
    base       <= {16'(whole_2) - 16'd16, 24'd128} + 40'(value_2);
    positive_3 <= positive_2;

    y          <= positive_3 ? sum[39:8] : 32'h80000000;
  end

  logic unused;
  assign unused = &{1'b0, shifted[31], shifted[6:0], product[15:0], sum[7:0]};
endmodule
