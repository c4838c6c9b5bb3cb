// N sub-arrays. Those that are folded together for GEMM each have a slice of the reduction, and their partial sums are
// added; each other one may run circular convolutions, one in each column, at the same time.
//
//   vertical 0    vertical 1          vertical N-1
//       |             |                   |
//   [sub-array 0] [sub-array 1]  ...  [sub-array N-1]  <-- horizontal 0 .. N-1, each through skew registers
//       |   |         |   |               |   |
//       |   +---------|---+---------------|---+--> adder tree --> deskew registers --> total
//       |             |                   |
//    columns 0     columns 1           columns N-1     (of circular convolutions)
//
// `enable`, `circular`, `nibbles`, `split` and `load` have one bit for each sub-array; `folded` says whose sums go into
// the total. A sub-array without `enable` stands still.
//
// Timing, from the port of the value of row 0 to the port of the result:
//   total    H + W + 4 + $clog2(N) cycles, all columns at once
//   columns  H + 6 cycles
module ad_array #(
    parameter int H = 4,
    parameter int W = 4,
    parameter int N = 2
) (
    input  wire              clk,
    input  wire [     N-1:0] enable,
    input  wire [     N-1:0] circular,
    input  wire [     N-1:0] nibbles,
    input  wire [     N-1:0] split,
    input  wire [     N-1:0] load,
    input  wire [     N-1:0] folded,
    input  wire [ N*W*8-1:0] vertical,
    input  wire [ N*H*8-1:0] horizontal,
    output wire [N*W*32-1:0] columns,
    output wire [  W*32-1:0] total
);
  wire [N*W*32-1:0] sums;
  for (genvar n = 0; n < N; n = n + 1) begin : part
    wire [H*8-1:0] left;
    skew #(
        .LANES(H),
        .BITS (8)
    ) skew (
        .clk,
        .in (horizontal[n*H*8+:H*8]),
        .out(left)
    );
    sub_array #(
        .H(H),
        .W(W)
    ) sub_array (
        .clk,
        .enable(enable[n]),
        .circular(circular[n]),
        .nibbles(nibbles[n]),
        .split(split[n]),
        .load(load[n]),
        .vertical(vertical[n*W*8+:W*8]),
        .left,
        .sums(sums[n*W*32+:W*32])
    );
    split_sum #(
        .W(W)
    ) whole (
        .split (split[n]),
        .sums  (sums[n*W*32+:W*32]),
        .halves(columns[n*W*32+:W*32])
    );
  end

  wire [W*32-1:0] skewed;
  adder_tree #(
      .N(N),
      .W(W)
  ) tree (
      .clk,
      .take(folded),
      .words(sums),
      .sum(skewed)
  );
  skew #(
      .LANES (W),
      .BITS  (32),
      .DESKEW(1'b1)
  ) deskew (
      .clk,
      .in (skewed),
      .out(total)
  );
endmodule
