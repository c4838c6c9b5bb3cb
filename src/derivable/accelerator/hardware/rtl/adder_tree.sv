// The sum of those of N words of W numbers whose bit in `take` is set, number by number: partial sums of the sub-arrays
// that share a reduction.
//
//   word 0 --+
//            (+)-[ ]--+
//   word 1 --+        |
//                    (+)-[ ]-- sum
//   word 2 --+        |
//            (+)-[ ]--+
//   word 3 --+
//
// Timing: $clog2(N) cycles, a register after each level.
module adder_tree #(
    parameter int N = 4,
    parameter int W = 4
) (
    input  wire              clk,
    input  wire [     N-1:0] take,
    input  wire [N*W*32-1:0] words,
    output wire [  W*32-1:0] sum
);
  localparam int LEVELS = $clog2(N);
  for (genvar l = 0; l <= LEVELS; l = l + 1) begin : level
    localparam int NODES = (N + (1 << l) - 1) >> l;
    wire [NODES*W*32-1:0] nodes;
    for (genvar i = 0; i < NODES; i = i + 1) begin : node
      if (l == 0) begin : leaf
        assign nodes[i*W*32+:W*32] = take[i] ? words[i*W*32+:W*32] : '0;
      end else begin : inner
        localparam int BELOW = (N + (1 << (l - 1)) - 1) >> (l - 1);
        for (genvar w = 0; w < W; w = w + 1) begin : column
          reg [31:0] total;
          if (2 * i + 1 < BELOW) begin : two
            always_ff @(posedge clk)
              total <= level[l-1].nodes[(2*i*W+w)*32+:32] + level[l-1].nodes[((2*i+1)*W+w)*32+:32];
          end else begin : one
            always_ff @(posedge clk) total <= level[l-1].nodes[(2*i*W+w)*32+:32];
          end
          assign nodes[(i*W+w)*32+:32] = total;
        end
      end
    end
  end
  assign sum = level[LEVELS].nodes;
  if (N == 1) begin : single
    wire unused = clk;
  end
endmodule
