// The sum of two numbers as codes of logarithms: how far each is below the largest number, in units of log2; the largest
// code is zero.
//
//   y = min(a, b) - log2(1 + 2^-|a - b|), the second from a table; at least 0
//
// Timing: four cycles, one sum a cycle.
module log_sum #(
    parameter int W = 16
) (
    input  wire         clk,
    input  wire [W-1:0] a,
    input  wire [W-1:0] b,
    output reg  [W-1:0] y
);
  `include "log_table.svh"

  reg signed [W:0] difference;
  reg [W-1:0] a_1, b_1, near_2, near_3;
  reg [W-1:0] distance;
  reg alone_1, alone_2;
  reg [TABLE_BITS-1:0] added;
  always_ff @(posedge clk) begin
    difference <= {1'b0, a} - {1'b0, b};
    a_1        <= a;
    b_1        <= b;
    alone_1    <= &a || &b;

    distance   <= difference[W] ? W'(-difference) : difference[W-1:0];
    near_2     <= difference[W] ? a_1 : b_1;
    alone_2    <= alone_1;

    added      <= alone_2 || distance >= W'(TABLE_SIZE) ? '0 : table_entry(distance[TABLE_ADDRESS-1:0]);
    near_3     <= near_2;

    y          <= near_3 < W'(added) ? '0 : near_3 - W'(added);
  end
endmodule
