// COUNT signed multipliers that add up: each is a DSP slice.
module multipliers #(parameter COUNT = 2) (
    input  logic clk,
    input  logic [COUNT*8-1:0] a,
    input  logic [COUNT*8-1:0] b,
    output logic [COUNT*32-1:0] sums
);
  genvar i;
  generate
    for (i = 0; i < COUNT; i = i + 1) begin : each
      logic signed [7:0] x, y;
      logic signed [31:0] sum;
      always_ff @(posedge clk) begin
        x <= a[i*8 +: 8];
        y <= b[i*8 +: 8];
        sum <= sum + x * y;
      end
      assign sums[i*32 +: 32] = sum;
    end
  endgenerate
endmodule
