// From a wide result to a narrow number: times a multiplier, shifted to the right and rounded (halves up), clamped to a
// range, and kept within its type: int4 -8 to 7, int8 -128 to 127, int16 and int32 likewise.
//
// Timing: v in cycle 0, y in cycle 3; one a cycle.
module requantise (
    input  logic               clk,
    input  logic signed [63:0] v,
    input  logic signed [31:0] multiplier,
    input  logic        [ 5:0] shift,
    input  logic               is_clamped,
    input  logic signed [15:0] low,
    input  logic signed [15:0] high,
    input  logic        [ 1:0] result_type,
    output logic signed [31:0] y
);
  logic signed [63:0] product, half, shifted, limited;
  assign half = shift == 0 ? 64'sd0 : 64'sd1 <<< (shift - 6'd1);

  logic signed [31:0] least, most;
  always_comb begin
    case (result_type)
      2'd0: most = 32'sd7;
      2'd1: most = 32'sd127;
      2'd2: most = 32'sd32767;
      2'd3: most = 32'sh7fffffff;
    endcase
    least   = ~most;

    limited = shifted;
    if (is_clamped && limited < 64'(low)) limited = 64'(low);
    if (is_clamped && limited > 64'(high)) limited = 64'(high);
    if (limited < 64'(least)) limited = 64'(least);
    if (limited > 64'(most)) limited = 64'(most);
  end

  always_ff @(posedge clk) begin
    product <= v * 64'(multiplier);
    shifted <= (product + half) >>> shift;
    y       <= limited[31:0];
  end
endmodule
