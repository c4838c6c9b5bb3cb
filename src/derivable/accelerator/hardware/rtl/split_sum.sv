// Sums of `split` products, number by number: the array adds low + high * 2^16 as one number of 32 bits, so that the
// high half is one too small where the low half is negative. This gives the two halves as numbers of 16 bits each.
// Without `split` a number stays as it is. Timing: no register.
module split_sum #(
    parameter int W = 4
) (
    input  wire            split,
    input  wire [W*32-1:0] sums,
    output wire [W*32-1:0] halves
);
  for (genvar w = 0; w < W; w = w + 1) begin : column
    wire borrowed = split && sums[w*32+15];
    assign halves[w*32+:32] = {sums[w*32+16+:16] + {15'b0, borrowed}, sums[w*32+:16]};
  end
endmodule
