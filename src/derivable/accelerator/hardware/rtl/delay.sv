// A word, some cycles later.
module delay #(
    parameter int BITS = 1,
    parameter int CYCLES = 1
) (
    input  logic            clk,
    input  logic [BITS-1:0] in,
    output logic [BITS-1:0] out
);
  if (CYCLES == 0) begin : none
    assign out = in;
    logic unused;
    assign unused = &{1'b0, clk};
  end else begin : some
    logic [BITS*CYCLES-1:0] waiting;
    always_ff @(posedge clk) waiting <= (BITS * CYCLES)'({waiting, in});
    assign out = waiting[BITS*(CYCLES-1)+:BITS];
  end
endmodule
