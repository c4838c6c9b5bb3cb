// The sum or the maximum of all lanes, by a tree with a register behind each level.
//
// Timing: lanes in cycle 0, result in cycle clog2(LANES); one a cycle.
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
    localparam int LATE = $clog2(LEFT) - $clog2(RIGHT);
    logic [63:0] early;
    reduce #(.LANES(RIGHT)) of_right (.clk, .is_max, .lanes(lanes[64*LANES-1:64*LEFT]), .result(early));
    delay #(.BITS(64), .CYCLES(LATE)) make_up (.clk, .in(early), .out(right));

    always_ff @(posedge clk) begin
      if (is_max) result <= $signed(left) > $signed(right) ? left : right;
      else result <= left + right;
    end
  end
endmodule
