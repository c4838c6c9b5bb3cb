// W processing elements side by side: values from the left pass through all of them, a cycle each; what comes from
// above and goes below is a word of the row, element w in lane w.
module array_row #(
    parameter int W = 4
) (
    input  wire            clk,
    input  wire            enable,
    input  wire            circular,
    input  wire            nibbles,
    input  wire            split,
    input  wire            load,
    input  wire [     7:0] left,
    input  wire [ W*8-1:0] stationary_above,
    input  wire [ W*8-1:0] streaming_above,
    input  wire [W*32-1:0] sums_above,
    output wire [ W*8-1:0] stationary,
    output wire [ W*8-1:0] streaming,
    output wire [W*32-1:0] sums
);
  for (genvar w = 0; w < W; w = w + 1) begin : column
    wire [7:0] from_left;
    wire [7:0] held, passed;
    wire [31:0] sum;
    if (w == 0) begin : first
      assign from_left = left;
    end else begin : other
      assign from_left = column[w-1].passed;
    end

    processing_element element (
        .clk,
        .enable,
        .circular,
        .nibbles,
        .split,
        .load,
        .stationary_above(stationary_above[w*8+:8]),
        .streaming_above(streaming_above[w*8+:8]),
        .left(from_left),
        .sum_above(sums_above[w*32+:32]),
        .stationary(held),
        .streaming(passed),
        .sum
    );
    assign stationary[w*8+:8] = held;
    assign streaming[w*8+:8]  = passed;
    assign sums[w*32+:32]     = sum;
  end
endmodule
