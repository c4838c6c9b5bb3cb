// 2^x in fixed point, 16 bits behind the point: a table of 256 mantissas with lines between them, and a shift.
// At most 2^31 - 1, which is what 2^15 and more become. Bit for bit `exp2` of fixed.py.
//
// Timing: x in cycle 0, y in cycle 6; one a cycle.
//   1  table    2  its register    3  product    4  mantissa, with what rounds it    5  shift by eights    6  by ones
module exp2 (
    input  logic               clk,
    input  logic signed [31:0] x,
    output logic        [31:0] y
);
  logic [24:0] value, value_1, value_2, value_3, product;
  logic [16:0] step, step_1, step_2;
  logic [ 7:0] rest_1, rest_2;
  exp2_table entries (.entry(x[15:8]), .value, .step);

  // The mantissa has 24 bits behind the point: 2^whole of it goes to the right by 8 - whole, rounded, or to the left.
  logic signed [15:0] whole_1;
  logic        [ 4:0] right_2, right_3, right_4;
  logic        [ 2:0] left_2, left_3, left_4, ones_5;
  logic        [31:0] half_3, rounded, by_eights;
  logic               is_large_2, is_large_3, is_large_4, is_large_5, is_most_2, is_most_3, is_most_4, is_most_5;

  always_ff @(posedge clk) begin
    value_1    <= value;
    step_1     <= step;
    rest_1     <= x[7:0];
    whole_1    <= x[31:16];

    value_2    <= value_1;
    step_2     <= step_1;
    rest_2     <= rest_1;
    right_2    <= whole_1 < -16'sd18 ? 5'd27 : 5'(16'sd8 - whole_1);
    left_2     <= whole_1[2:0];  // whole - 8, where it is used
    is_most_2  <= whole_1 >= 16'sd15;
    is_large_2 <= whole_1 >= 16'sd8;

    product    <= step_2 * rest_2;
    value_3    <= value_2;
    right_3    <= right_2;
    left_3     <= left_2;
    is_most_3  <= is_most_2;
    is_large_3 <= is_large_2;
    half_3     <= is_large_2 ? '0 : 32'd1 << (right_2 - 5'd1);

    rounded    <= 32'(value_3) + 32'(product[24:8]) + half_3;
    right_4    <= right_3;
    left_4     <= left_3;
    is_large_4 <= is_large_3;
    is_most_4  <= is_most_3;

    by_eights  <= is_large_4 ? rounded : rounded >> {right_4[4:3], 3'd0};
    ones_5     <= is_large_4 ? left_4 : right_4[2:0];
    is_large_5 <= is_large_4;
    is_most_5  <= is_most_4;

    y          <= is_most_5 ? 32'h7fffffff : is_large_5 ? by_eights << ones_5 : by_eights >> ones_5;
  end

  logic unused;
  assign unused = &{1'b0, product[7:0]};
endmodule
