// From a wide result to a narrow number: times a multiplier, shifted to the right and rounded (halves up), and kept within
// bounds, which a clamp and the type of the result give.
//
// The product of 64 x 32 bits is the sum of those of 26 and 17 bits, a DSP slice each; of it 64 bits are kept:
//
//   v = v2 * 2^52 + v1 * 2^26 + v0,  m = m1 * 2^17 + m0
//
//   bit  63        52        43         26      17       0
//        |  m1*v1 (21 bits)  |         m0*v0             |   one word: they do not meet
//        |                        m1*v0          |
//        |            m0*v1             |
//        |  m0*v2  |
//
// Timing: v in cycle 0, y in cycle 5; one a cycle. `half`, 2^(shift-1) or 0, and the bounds stand still like `shift`.
//   1  products    2  two sums    3  their sum    4  shift    5  bounds
module requantise (
    input  logic               clk,
    input  logic signed [63:0] v,
    input  logic signed [31:0] multiplier,
    input  logic        [ 5:0] shift,
    input  logic        [63:0] half,
    input  logic signed [31:0] least,
    input  logic signed [31:0] most,
    output logic signed [31:0] y
);
  logic signed [26:0] v0, v1;
  logic signed [11:0] v2;
  logic signed [17:0] m0, m1;
  assign v0 = {1'b0, v[25:0]};
  assign v1 = {1'b0, v[51:26]};
  assign v2 = v[63:52];
  assign m0 = {1'b0, multiplier[16:0]};
  assign m1 = 18'($signed(multiplier[31:17]));

  logic signed [44:0] p00, p01, p10, p11;  // p01: m0 * v1
  logic signed [29:0] p02;
  logic        [63:0] low, high, total;
  logic        [11:0] top;
  logic signed [63:0] shifted;
  always_ff @(posedge clk) begin
    p00     <= m0 * v0;
    p01     <= m0 * v1;
    p10     <= m1 * v0;
    p11     <= m1 * v1;
    p02     <= m0 * v2;

    low     <= {p11[20:0], p00[42:0]} + {{2{p10[44]}}, p10, 17'd0};
    high    <= {p01[37:0], 26'd0} + half;
    top     <= p02[11:0];

    total   <= low + {high[63:52] + top, high[51:0]};
    shifted <= $signed(total) >>> shift;
    y       <= shifted < 64'(least) ? least : shifted > 64'(most) ? most : shifted[31:0];
  end

  logic unused;
  assign unused = &{1'b0, p00[44:43], p11[44:21], p01[44:38], p02[29:12]};
endmodule
