// Assertions on a channel with valid and ready, as AXI has them: what is offered stays, and stays the same, until it is
// taken, and `valid` is never unknown. Nothing is checked in reset. A simulator ends the run where one fails; a prover
// takes the same statements as what is to be proved. Not for synthesis.
`ifdef FORMAL
`define HOLDS(condition, why) assert (condition);
`else
`define HOLDS(condition, why) assert (condition) else $fatal(1, "%m: %s", why);
`endif
module handshake #(
    parameter int BITS = 32
) (
    input wire            clk,
    input wire            rst,
    input wire            valid,
    input wire            ready,
    input wire [BITS-1:0] data
);
  reg            stalled = 1'b0;
  reg [BITS-1:0] offered;
  always @(posedge clk) begin
    stalled <= valid && !ready && !rst;
    offered <= data;
    if (!rst) begin
      `HOLDS(valid === 1'b0 || valid === 1'b1, "valid is unknown")
      if (stalled) begin
        `HOLDS(valid, "valid fell before ready came")
        `HOLDS(data === offered, "data changed before ready came")
      end
    end
  end
endmodule
`undef HOLDS
