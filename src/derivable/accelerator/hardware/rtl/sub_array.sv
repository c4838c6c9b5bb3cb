// H rows of W processing elements: a weight-stationary systolic array for GEMM, or W columns that each run one circular
// convolution.
//
//              vertical word: W bytes (weights, stationary vectors, streams)
//                |      |      |
//   left 0 --> [PE] -> [PE] -> [PE]
//   left 1 --> [PE] -> [PE] -> [PE]      `left` comes skewed: row h is h cycles later than row 0 (skew.sv)
//   left 2 --> [PE] -> [PE] -> [PE]
//                |      |      |
//              sums: W x 32 bits
//
// H cycles with `load` bring H vertical words in, the one for the lowest row first.
//
// Timing, counted from the cycle in which a value is at the port to that in which its sum is at the port `sums`:
//   GEMM               H + 5 + w cycles in column w, from the value of row 0
//   circular           H + 6 cycles in all columns, from the value of the stream that row 0 adds to that sum
// so that a tile of M rows needs H + (H + W + M - 2) cycles until the next one may load, and a pass over vectors of
// length d H + (H - 1 + d) + H: weights or vectors, then the stream and its warm-up, then the way down.
module sub_array #(
    parameter int H = 4,
    parameter int W = 4
) (
    input  wire            clk,
    input  wire            enable,
    input  wire            circular,
    input  wire            nibbles,
    input  wire            split,
    input  wire            load,
    input  wire [ W*8-1:0] vertical,
    input  wire [ H*8-1:0] left,
    output wire [W*32-1:0] sums
);
  for (genvar h = 0; h < H; h = h + 1) begin : row
    wire [W*8-1:0] stationary_above, streaming_above, stationary, streaming;
    wire [W*32-1:0] sums_above, sums_below;
    if (h == 0) begin : first
      assign stationary_above = vertical;
      assign streaming_above  = vertical;
      assign sums_above       = '0;
    end else begin : other
      assign stationary_above = row[h-1].stationary;
      assign streaming_above  = row[h-1].streaming;
      assign sums_above       = row[h-1].sums_below;
    end

    array_row #(
        .W(W)
    ) elements (
        .clk,
        .enable,
        .circular,
        .nibbles,
        .split,
        .load,
        .left(left[h*8+:8]),
        .stationary_above,
        .streaming_above,
        .sums_above,
        .stationary,
        .streaming,
        .sums(sums_below)
    );
  end
  assign sums = row[H-1].sums_below;

  // Nothing is below the last row.
  wire unused = &{1'b0, row[H-1].stationary, row[H-1].streaming};
endmodule
