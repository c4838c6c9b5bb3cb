// From a wide result to a narrow number: times a multiplier, shifted to the right and rounded (halves up), and kept within
// bounds, which a clamp and the type of the result give.
//
// The product of 64 x 32 bits is the sum of those of 17 and 17 bits, for which every family has a multiplier; of it 64
// bits are kept:
//
//   v = v3 * 2^51 + v2 * 2^34 + v1 * 2^17 + v0,  m = m1 * 2^17 + m0
//
//   bit  63        51          34          17         0
//        |        m0*v2         |         m0*v0       |   one word: they do not meet
//        |         |      m0*v1 + m1*v0    |
//        |         | m1*v1      |
//        | m0*v3 + m1*v2 |
//
// Timing: v in cycle 0, y in cycle 8; one a cycle. `half`, 2^(shift-1) or 0, and the bounds stand still like `shift`.
//   1  products    2  sums of equal places    3, 4  their sum    5  shift by eights    6  by ones    7  compared
//   8  bounds
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
  logic signed [17:0] v0, v1, v2, m0, m1;
  logic signed [12:0] v3;
  assign v0 = {1'b0, v[16:0]};
  assign v1 = {1'b0, v[33:17]};
  assign v2 = {1'b0, v[50:34]};
  assign v3 = v[63:51];
  assign m0 = {1'b0, multiplier[16:0]};
  assign m1 = 18'($signed(multiplier[31:17]));

  logic signed [35:0] p00, p01, p02, p10, p11, p12;  // p01: m0 * v1
  logic signed [30:0] p03;
  logic        [63:0] low, low_3, total;
  logic        [46:0] middle, upper;  // from bit 17 on
  logic        [29:0] high;           // from bit 34 on
  logic        [12:0] top;            // from bit 51 on
  logic signed [63:0] by_eights, shifted;
  logic               is_beyond, is_negative, is_lower, is_higher, is_less, is_more;
  logic        [31:0] kept;
  assign top     = p03[12:0] + p12[12:0];
  assign is_less = is_beyond ? is_negative : is_lower;
  assign is_more = is_beyond ? !is_negative : is_higher;
  always_ff @(posedge clk) begin
    p00       <= m0 * v0;
    p01       <= m0 * v1;
    p02       <= m0 * v2;
    p03       <= m0 * v3;
    p10       <= m1 * v0;
    p11       <= m1 * v1;
    p12       <= m1 * v2;

    low       <= {p02[29:0], p00[33:0]} + half;
    middle    <= 47'(p01) + 47'(p10);
    high      <= p11[29:0] + {top, 17'd0};

    low_3     <= low;
    upper     <= middle + {high, 17'd0};

    total     <= low_3 + {upper, 17'd0};
    by_eights <= $signed(total) >>> {shift[5:3], 3'd0};
    shifted   <= by_eights >>> shift[2:0];

    // What 32 bits do not hold is beyond the bounds, which are numbers of 32 bits.
    is_beyond   <= shifted[63:31] != {33{shifted[63]}};
    is_negative <= shifted[63];
    is_lower    <= $signed(shifted[31:0]) < least;
    is_higher   <= $signed(shifted[31:0]) > most;
    kept        <= shifted[31:0];
    y           <= is_less ? least : is_more ? most : kept;
  end

  logic unused;
  assign unused = &{1'b0, p00[35:34], p02[35:30], p03[30:13], p11[35:30], p12[35:13]};
endmodule
