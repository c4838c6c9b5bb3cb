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

`ifdef FORMAL
  // What comes out is what went in, in its order: a list of what is inside, the oldest first, is what the places hold.
  logic            begun = 1'b0;
  logic [1:0]      inside;
  logic [BITS-1:0] list[2];
  logic            comes, leaves;
  assign comes  = in_valid && in_ready;
  assign leaves = out_valid && out_ready;
  always_ff @(posedge clk) begin
    begun  <= 1'b1;
    inside <= rst ? 2'd0 : inside + 2'(comes) - 2'(leaves);
    if (leaves) list[0] <= list[1];
    if (comes) list[1'(inside - 2'(leaves))] <= in_data;
  end
  always_comb begin
    if (!begun) assume (rst);
    else begin
      assert (inside == 2'(out_valid) + 2'(holds));
      assert (out_valid || !holds);
      assert (!(in_ready && holds));
      if (out_valid) assert (out_data == list[0]);
      if (holds) assert (held == list[1]);
    end
  end
  handshake #(.BITS(BITS)) offered (.clk, .rst, .valid(out_valid), .ready(out_ready), .data(out_data));
`endif
endmodule
