// A memory of WORDS words with one write port and one read port: a bank of A, B or K.
// Timing: `read_data` is the word at `read_address` two cycles later, behind a register of its own, for a block of memory
// takes most of a cycle; a word that is written is seen from the next cycle on, and may be anything in that cycle, in which
// programs do not read it: a block of memory would need a choice behind it else.
module bank #(
    parameter int WORDS   = 1024,
    parameter int BITS    = 32,
    /* verilator lint_off UNUSEDPARAM */
    parameter int MEETS_ZEROS = 0,  // words that were never written are read, and multiplied by zero
    /* verilator lint_on UNUSEDPARAM */
    parameter int ADDRESS = WORDS > 1 ? $clog2(WORDS) : 1
) (
    input  wire               clk,
    input  wire               write_enable,
    input  wire [ADDRESS-1:0] write_address,
    input  wire [   BITS-1:0] write_data,
    input  wire [ADDRESS-1:0] read_address,
    output reg  [   BITS-1:0] read_data
);
  (* no_rw_check *)
  reg [BITS-1:0] memory[0:WORDS-1];
  reg [BITS-1:0] read;
`ifdef CHECKS
  // Random then, as memory on a chip is at first: in Icarus, the unknown times zero is unknown.
  integer state = BITS, row;
  initial if (MEETS_ZEROS != 0) for (row = 0; row < WORDS; row = row + 1) memory[row] = {(BITS / 32 + 1) {$random(state)}};
`endif
  always_ff @(posedge clk) begin
    if (write_enable) memory[write_address] <= write_data;
    read      <= memory[read_address];
    read_data <= read;
  end
endmodule
