// 2^x in fixed point, 16 bits behind the point: a table of 256 mantissas with lines between them, and a shift.
// At most 2^31 - 1, which is what 2^15 and more become. Bit for bit `exp2` of fixed.py.
//
// Timing: x in cycle 0, y in cycle 2; one a cycle.
module exp2 (
    input  logic               clk,
    input  logic signed [31:0] x,
    output logic        [31:0] y
);
  logic [24:0] value, product, mantissa;
  logic [16:0] step;
  exp2_table entries (.entry(x[15:8]), .value, .step);
  assign product = step * x[7:0];

  // The mantissa has 24 bits behind the point: 2^whole of it goes to the right by 8 - whole, rounded, or to the left.
  logic signed [15:0] whole;
  logic        [ 4:0] right;
  logic        [ 2:0] left;
  logic        [31:0] half, result;
  assign right = whole < -16'sd18 ? 5'd27 : 5'(16'sd8 - whole);
  assign left  = whole[2:0];  // whole - 8, where it is used
  assign half  = 32'd1 << (right - 5'd1);
  always_comb begin
    if (whole >= 16'sd15) result = 32'h7fffffff;
    else if (whole >= 16'sd8) result = 32'(mantissa) << left;
    else result = (32'(mantissa) + half) >> right;
  end

  always_ff @(posedge clk) begin
    mantissa <= value + 25'(product[24:8]);
    whole    <= x[31:16];
    y        <= result;
  end

  logic unused;
  assign unused = &{1'b0, product[7:0]};
endmodule
