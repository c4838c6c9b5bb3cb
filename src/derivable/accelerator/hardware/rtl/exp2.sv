// 2^x in fixed point, 16 bits behind the point: a table of 256 mantissas with lines between them, and a shift.
// At most 2^31 - 1, which is what 2^15 and more become. Bit for bit `exp2` of fixed.py.
//
// Timing: x in cycle 0, y in cycle 4; one a cycle.
//   1  table    2  product    3  mantissa, with what rounds it    4  shift
module exp2 (
    input  logic               clk,
    input  logic signed [31:0] x,
    output logic        [31:0] y
);
  logic [24:0] value, value_1, value_2, product;
  logic [16:0] step, step_1;
  logic [ 7:0] rest_1;
  exp2_table entries (.entry(x[15:8]), .value, .step);

  // The mantissa has 24 bits behind the point: 2^whole of it goes to the right by 8 - whole, rounded, or to the left.
  logic signed [15:0] whole_1, whole_2;
  logic        [ 4:0] right_2, right_3;
  logic        [ 2:0] left_2, left_3;
  logic        [31:0] half_2, rounded;
  logic               is_large_2, is_large_3, is_most_2, is_most_3;
  logic        [ 4:0] right;
  assign right = whole_1 < -16'sd18 ? 5'd27 : 5'(16'sd8 - whole_1);

  always_ff @(posedge clk) begin
    value_1    <= value;
    step_1     <= step;
    rest_1     <= x[7:0];
    whole_1    <= x[31:16];

    product    <= step_1 * rest_1;
    value_2    <= value_1;
    whole_2    <= whole_1;
    right_2    <= right;

    rounded    <= 32'(value_2) + 32'(product[24:8]) + half_2;
    right_3    <= right_2;
    left_3     <= left_2;
    is_large_3 <= is_large_2;
    is_most_3  <= is_most_2;

    y          <= is_most_3 ? 32'h7fffffff : is_large_3 ? rounded << left_3 : rounded >> right_3;
  end
  assign is_most_2  = whole_2 >= 16'sd15;
  assign is_large_2 = whole_2 >= 16'sd8;
  assign left_2     = whole_2[2:0];  // whole - 8, where it is used
  assign half_2     = is_large_2 ? '0 : 32'd1 << (right_2 - 5'd1);

  logic unused;
  assign unused = &{1'b0, product[7:0]};
endmodule
