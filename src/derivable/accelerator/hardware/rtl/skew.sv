// Lane i of the output is lane i of the input `i` cycles later, or `LANES - 1 - i` cycles later with DESKEW = 1.
//
//   DESKEW = 0    lane 0 -----------------> lane 0        DESKEW = 1    lane 0 --[ ]--[ ]------> lane 0
//                 lane 1 --[ ]------------> lane 1                      lane 1 --[ ]-----------> lane 1
//                 lane 2 --[ ]--[ ]-------> lane 2                      lane 2 ----------------> lane 2
module skew #(
    parameter int LANES  = 4,
    parameter int BITS   = 8,
    parameter bit DESKEW = 1'b0
) (
    input  wire                  clk,
    input  wire [LANES*BITS-1:0] in,
    output wire [LANES*BITS-1:0] out
);
  for (genvar i = 0; i < LANES; i = i + 1) begin : lane
    localparam int DELAY = DESKEW ? LANES - 1 - i : i;
    if (DELAY == 0) begin : none
      assign out[i*BITS+:BITS] = in[i*BITS+:BITS];
    end else begin : some
      reg [DELAY*BITS-1:0] line;
      if (DELAY == 1) begin : one
        always_ff @(posedge clk) line <= in[i*BITS+:BITS];
      end else begin : more
        always_ff @(posedge clk) line <= {line[(DELAY-1)*BITS-1:0], in[i*BITS+:BITS]};
      end
      assign out[i*BITS+:BITS] = line[DELAY*BITS-1-:BITS];
    end
  end
  if (LANES == 1) begin : single
    wire unused = clk;
  end
endmodule
