// Runs a program: fetches its instructions in order, puts each into the queue of its unit, and lets the head of a queue
// go when the units have completed what it needs.
//
//   program memory --> [read] --> [fetched] --+--> queue DMA  --> unit
//                                             +--> queue MOVE --> unit      done of all units --> counters of completed
//                                             +--> ...                                            instructions, by need
//                                                                                                 of heads
//
// Timing: one instruction a cycle is fetched; fetching stops while the queue of the fetched instruction is full. With
// `start` in cycle 0, the first instruction goes into its queue in cycle 3. END waits until all units have completed what
// they were given; `running` falls then. REPEAT waits for that too, and `again` is 1 in the cycle after: needs count from
// zero again, and the first instruction of a section goes into its queue three cycles later, as after a start. That is
// instruction TO until the section was done COUNT times, then the one behind REPEAT.
module controller #(
    parameter int PROGRAM = 1024  // instructions
) (
    input  logic            clk,
    input  logic            rst,

    // The program, a word of 32 bits at a time.
    input  logic            program_write,
    input  logic [31:0]     program_index,   // of the word: 16 words are an instruction
    input  logic [31:0]     program_data,

    input  logic            start,
    output logic            running,
    output logic            clear,           // resets the units' queues and counters when a program starts
    output logic            again,           // a section begins

    output logic [4:0]      valid,
    output logic [5*512-1:0] instruction,
    input  logic [4:0]      ready,
    input  logic [4:0]      done
);
  `include "isa.svh"

  localparam int BITS = $clog2(PROGRAM);

  // Sixteen memories of one word each, so that the host writes a word and a fetch reads them all. A register behind them
  // has the time that a block of memory takes.
  logic            fetch, moves;
  logic [BITS-1:0] at;
  logic [511:0]    read, fetched;
  for (genvar w = 0; w < 16; w++) begin : word
    (* no_rw_check *)  // the host writes no program that runs
    logic [31:0] memory[PROGRAM];
    always_ff @(posedge clk) begin
      if (program_write && program_index[3:0] == 4'(w)) memory[program_index[4+:BITS]] <= program_data;
      if (fetch) read[32*w+:32] <= memory[at];
      if (moves) fetched[32*w+:32] <= read[32*w+:32];
    end
  end

  logic [4:0]  full, empty, push, busy;
  logic [79:0] completed;
  logic        was_read; // `read` holds an instruction
  logic        here;     // `fetched` holds an instruction that is in no queue yet
  logic        ended;    // END or REPEAT was fetched
  logic        goes;     // the fetched instruction leaves for its queue
  logic [4:0]  unit;     // a bit for each unit: whose the fetched instruction is, none for END
  logic        is_end, repeats;
  logic        is_last;  // the section is not repeated
  logic [END_COUNT_BITS-1:0] times, count;  // that the section was done before, and that it is done
  logic [BITS-1:0] behind_read, behind, to;  // the instruction behind `read` and `fetched`; the first of the section
  assign goes   = here && |(unit & ~full);
  assign moves  = !here || goes;
  assign fetch  = running && !ended && (!was_read || moves);
  assign clear  = start && !running;

  for (genvar u = 0; u < 5; u++) begin : of_unit
    assign push[u] = here && unit[u] && !full[u];
    queue waiting (
        .clk,
        .rst(rst || clear),
        .push(push[u]),
        .pushed(fetched),
        .full(full[u]),
        .empty(empty[u]),
        .completed,
        .valid(valid[u]),
        .instruction(instruction[512*u+:512]),
        .ready(ready[u])
    );
    always_ff @(posedge clk) begin
      if (done[u]) busy[u] <= 1'b0;
      if (valid[u] && ready[u]) busy[u] <= 1'b1;
      if (done[u]) completed[16*u+:16] <= completed[16*u+:16] + 16'd1;
      if (rst || clear || again) begin
        busy[u]             <= 1'b0;
        completed[16*u+:16] <= '0;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (fetch) begin
      at          <= at + BITS'(1);
      behind_read <= at + BITS'(1);
    end
    if (fetch || moves) was_read <= fetch;
    if (moves) begin
      here   <= was_read;
      is_end <= read[UNIT_LSB+:3] == UNIT_END;
      for (int u = 0; u < 5; u++) unit[u] <= read[UNIT_LSB+:3] == 3'(u);
    end
    if (moves && was_read) begin
      repeats <= read[OPERATION_LSB+:4] == END_REPEAT;
      count   <= read[END_COUNT_LSB+:END_COUNT_BITS];
      to      <= BITS'(read[END_TO_LSB+:END_TO_BITS]);
      behind  <= behind_read;
    end
    if (here && is_end) begin
      ended    <= 1'b1;
      was_read <= 1'b0;
      here     <= 1'b0;
    end
    // While `ended`, nothing is fetched, and what is of the instruction that was fetched last stands.
    is_last <= times + END_COUNT_BITS'(1) == count;
    again   <= ended && repeats && &empty && busy == 0 && !again;
    if (ended && !repeats && &empty && busy == 0) running <= 1'b0;
    if (again) begin
      ended <= 1'b0;
      at    <= is_last ? behind : to;
      times <= is_last ? '0 : times + END_COUNT_BITS'(1);
    end
    if (clear) begin
      times    <= '0;
      running  <= 1'b1;
      at       <= '0;
      was_read <= 1'b0;
      here     <= 1'b0;
      ended    <= 1'b0;
    end
    if (rst) begin
      again    <= 1'b0;
      running  <= 1'b0;
      was_read <= 1'b0;
      here     <= 1'b0;
      ended    <= 1'b0;
    end
  end

  logic unused;
  assign unused = &{1'b0, program_index};
endmodule
