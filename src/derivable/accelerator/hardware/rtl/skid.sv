// A channel with valid and ready whose two sides share no logic: valid, data and ready go out of registers.
//
// Timing: a cycle later, one transfer a cycle. There are two places: what waits to be taken, and what came in the one
// cycle in which the sender could not know yet that the first stays. Nothing is taken in reset, nor in the cycle after.
module skid #(
    parameter int BITS = 32
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            in_valid,
    output logic            in_ready,
    input  logic [BITS-1:0] in_data,
    output logic            out_valid,
    input  logic            out_ready,
    output logic [BITS-1:0] out_data
);
  logic            holds;  // the second place is full
  logic [BITS-1:0] held;
  logic            moves;  // the first place is free after this cycle
  assign moves = out_ready || !out_valid;
  always_ff @(posedge clk) begin
    if (in_ready) held <= in_data;
    if (moves) begin
      out_valid <= holds || (in_valid && in_ready);
      out_data  <= holds ? held : in_data;
      holds     <= 1'b0;
      in_ready  <= 1'b1;
    end else if (in_valid && in_ready) begin
      holds    <= 1'b1;
      in_ready <= 1'b0;
    end
    if (rst) begin
      out_valid <= 1'b0;
      holds     <= 1'b0;
      in_ready  <= 1'b0;
    end
  end
endmodule
