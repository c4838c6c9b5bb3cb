// The logarithm to base 2 in fixed point, 16 bits behind the point: where the leading one is, and a table of 256 entries
// with lines between them for the bits after it; the lowest number where x is not positive. Bit for bit `log2` of
// fixed.py.
//
// Timing: x in cycle 0, y in cycle 6; one a cycle.
//   1, 2  leading one    3  table    4  its register    5  product    6  sum
module log2 (
    input  logic               clk,
    input  logic signed [31:0] x,
    output logic        [31:0] y
);
  logic [31:0] coarse_1, fine;           // the leading one in the first 8 bits, then in bit 31
  logic [23:0] mantissa;                 // what is behind it
  logic [ 1:0] eights, eights_1;         // zeros before it: eights of them
  logic [ 2:0] ones;                     // and the rest
  logic [ 4:0] whole_2, whole_3, whole_4;  // where it was
  logic        positive_1, positive_2, positive_3, positive_4, positive_5;
  always_comb begin
    eights[1] = x[31:16] == 0;
    eights[0] = eights[1] ? x[15:8] == 0 : x[31:24] == 0;
    casez (coarse_1[31:24])
      8'b1???????: ones = 3'd0;
      8'b01??????: ones = 3'd1;
      8'b001?????: ones = 3'd2;
      8'b0001????: ones = 3'd3;
      8'b00001???: ones = 3'd4;
      8'b000001??: ones = 3'd5;
      8'b0000001?: ones = 3'd6;
      default: ones = 3'd7;
    endcase
    fine = coarse_1 << ones;
  end

  logic [24:0] value, value_3, value_4;
  logic [16:0] step, step_3, step_4;
  logic [15:0] rest_3, rest_4;
  logic [32:0] product;
  logic [39:0] base, sum;
  log2_table entries (.entry(mantissa[23:16]), .value, .step);
  assign sum = base + 40'(product[32:16]);

  always_ff @(posedge clk) begin
    coarse_1   <= x << {eights, 3'd0};
    eights_1   <= eights;
    positive_1 <= x > 0;

    mantissa   <= fine[30:7];
    whole_2    <= ~{eights_1, ones};
    positive_2 <= positive_1;

    value_3    <= value;
    step_3     <= step;
    rest_3     <= mantissa[15:0];
    whole_3    <= whole_2;
    positive_3 <= positive_2;

    value_4    <= value_3;
    step_4     <= step_3;
    rest_4     <= rest_3;
    whole_4    <= whole_3;
    positive_4 <= positive_3;

    product    <= step_4 * rest_4;
    base       <= {16'(whole_4) - 16'd16, 24'd128} + 40'(value_4);
    positive_5 <= positive_4;

    y          <= positive_5 ? sum[39:8] : 32'h80000000;
  end

  logic unused;
  assign unused = &{1'b0, fine[31], fine[6:0], product[15:0], sum[7:0]};
endmodule
