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
    logic [BITS-1:0] waiting[CYCLES];
    always_ff @(posedge clk) begin
      waiting[0] <= in;
      for (int i = 1; i < CYCLES; i++) waiting[i] <= waiting[i-1];
    end
    assign out = waiting[CYCLES-1];
  end
endmodule
