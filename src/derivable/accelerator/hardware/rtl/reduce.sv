// The sum or the maximum of all lanes, by a tree with two registers behind each level: a level compares the
// two halves of its numbers in parallel in one cycle, and chooses in the next one.
//
// Timing: lanes in cycle 0, result in cycle 2 * clog2(LANES); one a cycle. `is_max` stands still.
module reduce #(
    parameter int LANES = 8
) (
    input  logic                clk,
    input  logic                is_max,
    input  logic [64*LANES-1:0] lanes,
    output logic [63:0]         result
);
  if (LANES == 1) begin : leaf
    assign result = lanes;
    logic unused;
    assign unused = &{1'b0, clk, is_max};
  end else begin : tree
    localparam int LEFT = 1 << ($clog2(LANES) - 1);
    logic [63:0] left, right;
    reduce #(.LANES(LEFT)) of_left (.clk, .is_max, .lanes(lanes[64*LEFT-1:0]), .result(left));

    // The right part may be less deep: registers make up for it.
    localparam int RIGHT = LANES - LEFT;
    localparam int LATE = 2 * ($clog2(LEFT) - $clog2(RIGHT));
    logic [63:0] early;
    reduce #(.LANES(RIGHT)) of_right (.clk, .is_max, .lanes(lanes[64*LANES-1:64*LEFT]), .result(early));
    delay #(.BITS(64), .CYCLES(LATE)) make_up (.clk, .in(early), .out(right));

    logic [63:0] sum, left_1, right_1;
    logic        is_more, is_upper_more, is_upper_less, is_lower_more;
    assign is_more = is_upper_more || (!is_upper_less && is_lower_more);
    always_ff @(posedge clk) begin
      sum           <= left + right;
      left_1        <= left;
      right_1       <= right;
      is_upper_more <= $signed(left[63:32]) > $signed(right[63:32]);
      is_upper_less <= $signed(left[63:32]) < $signed(right[63:32]);
      is_lower_more <= left[31:0] > right[31:0];
      result        <= !is_max ? sum : is_more ? left_1 : right_1;
    end
  end
endmodule
