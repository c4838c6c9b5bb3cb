// The instructions that wait for one unit, in order. The head, which stands in a register, goes when every unit has
// completed what it needs.
//
//   pushed --> entries --> [instruction] --> unit
//                               |
//            completed --> (all needs met) --> [valid]
//
// Timing: an instruction pushed in cycle 0 can be taken in cycle 3, two cycles after the one before it was taken, and
// two cycles after the last instruction that it needs was done, at the earliest.
module queue #(
    parameter int DEPTH = 8  // instructions with the head, a power of two
) (
    input  logic           clk,
    input  logic           rst,
    input  logic           push,
    input  logic [511:0]   pushed,
    output logic           full,         // as a register: the controller goes on from it to its memory
    output logic           empty,
    input  logic [79:0]    completed,    // instructions completed by each unit, 16 bits each
    output logic           valid,        // the head is here and may go
    output logic [511:0]   instruction,
    input  logic           ready
);
  `include "isa.svh"

  localparam int BITS = $clog2(DEPTH);
  logic [511:0]    entries[DEPTH];
  logic [BITS-1:0] next, tail;  // of the entries that follow the head
  logic [BITS:0]   count;
  logic [4:0]      met;
  logic            here;        // `instruction` holds the head
  logic            taken, moves;

  assign empty = count == 0;
  assign taken = valid && ready;
  assign moves = !here || taken;

  // Counts are modulo 2^16: a need is met where the difference is not negative.
  for (genvar u = 0; u < 5; u++) begin : need
    logic [15:0] difference;
    logic        unused;
    assign unused     = &{1'b0, difference[14:0]};
    assign difference = completed[16*u+:16] - instruction[NEED_DMA_LSB+16*u+:16];
    assign met[u]     = !difference[15];
  end

  always_ff @(posedge clk) begin
    // The entry behind the last one is free in every cycle, for the head takes none.
    entries[tail] <= pushed;
    if (push) tail <= tail + BITS'(1);
    if (moves) begin
      instruction <= entries[next];
      here        <= next != tail;
      if (next != tail) next <= next + BITS'(1);
    end
    valid <= here && !taken && &met;
    count <= count + (BITS + 1)'(push) - (BITS + 1)'(taken);
    full  <= !taken && (full || (push && count == (BITS + 1)'(DEPTH - 1)));
    if (rst) begin
      next  <= '0;
      tail  <= '0;
      count <= '0;
      full  <= 1'b0;
      here  <= 1'b0;
      valid <= 1'b0;
    end
  end

`ifdef FORMAL
  // Any one bit of the instructions, in a list with the head first; and a need that was met stays met, as counts only grow.
  (* anyconst *) logic [8:0] place;
  logic             begun = 1'b0;
  logic [BITS:0]    inside, behind;
  logic [DEPTH-1:0] list;
  logic [4:0]       was_met;
  assign behind = count - (BITS + 1)'(here);
  always_ff @(posedge clk) begin
    begun   <= 1'b1;
    inside  <= rst ? '0 : inside + (BITS + 1)'(push) - (BITS + 1)'(taken);
    was_met <= moves ? '0 : met;
    if (taken) list <= list >> 1;
    if (push) list[BITS'(inside - (BITS + 1)'(taken))] <= pushed[place];
  end
  always_comb begin
    assume (!push || !full);
    assume ((was_met & ~met) == '0);
    if (!begun) assume (rst);
    else begin
      assert (inside == count && count <= (BITS + 1)'(DEPTH) && full == (count == (BITS + 1)'(DEPTH)));
      assert (here || count <= (BITS + 1)'(1));
      assert (BITS'(tail - next) == behind[BITS-1:0] && behind < (BITS + 1)'(DEPTH));
      assert (!here || instruction[place] == list[0]);
      for (int k = 0; k < DEPTH - 1; k++)
        if ((BITS + 1)'(k) < behind) assert (entries[BITS'(next + k)][place] == list[BITS'(k + here)]);
      assert (!valid || (here && &met));
    end
  end
  handshake #(.BITS(1)) offered (.clk, .rst, .valid, .ready, .data(instruction[place]));
`endif
endmodule
