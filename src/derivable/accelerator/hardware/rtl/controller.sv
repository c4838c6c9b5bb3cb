// Runs a program: fetches its instructions in order, puts each into the queue of its unit, and lets the head of a queue
// go when the units have completed what it needs.
//
//   program memory --> [read] --> [word] --> ahead --> [fetched] --+--> queue DMA  --> unit
//                                                                  +--> queue MOVE --> unit
//                                                                  +--> ...
//                                 done of all units --> counters of completed instructions, by need of heads
//
// Up to seven instructions are read ahead of the one that waits for a queue, so that a queue that is full is no part of a
// path to the memories of the program. After REPEAT, what was read ahead is dropped and read again from where the program
// goes on.
//
// Timing: one instruction a cycle is fetched; it waits while its queue is full. With `start` in cycle 0, the first
// instruction goes into its queue in cycle 5. END waits until all units have completed what they were given; `running`
// falls then. REPEAT waits for that too, and `again` is 1 in the cycle after: needs count from zero again, and the first
// instruction of a section goes into its queue five cycles later, as after a start. That is instruction TO until the
// section was done COUNT times, then the one behind REPEAT.
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

  // Sixteen memories of one word each, so that the host writes a word and a fetch reads them all, with the register that
  // blocks of memory have behind their outputs. The first word is written with a bit for each unit, and one for END,
  // instead of the code; these are 35 bits, and blocks of memory have 36.
  localparam int OWNERS = 6, BITS_READ = 512 - UNIT_BITS + OWNERS;
  logic [BITS-1:0]      at;
  logic [OWNERS-1:0]    owner_written;
  logic [BITS_READ-1:0] word;
  for (genvar u = 0; u < OWNERS; u++) begin : decoded
    assign owner_written[u] = program_data[UNIT_LSB+:UNIT_BITS] == UNIT_BITS'(u);
  end
  for (genvar w = 0; w < 16; w++) begin : of_word
    localparam int WIDTH = w == 0 ? 32 - UNIT_BITS + OWNERS : 32;
    (* no_rw_check *)  // the host writes no program that runs
    logic [WIDTH-1:0] memory[PROGRAM];
    logic [WIDTH-1:0] written, read, behind_read;
    if (w == 0) begin : first
      assign written        = {program_data[31:UNIT_BITS], owner_written};
      assign word[0+:WIDTH] = behind_read;
    end else begin : other
      assign written                            = program_data;
      assign word[32*w-UNIT_BITS+OWNERS+:WIDTH] = behind_read;
    end
    always_ff @(posedge clk) begin
      if (program_write && program_index[3:0] == 4'(w)) memory[program_index[4+:BITS]] <= written;
      read        <= memory[at];
      behind_read <= read;
    end
  end

  // What was read ahead.
  logic [BITS_READ-1:0] ahead[8];
  logic [2:0]           first, last;      // the index of the next one, and that of the next word
  logic [2:0]           underway;         // instructions of it and on the way to it, seven at most
  logic                 fetch, was_read, is_word;

  logic [4:0]   full, empty, push, busy;
  logic [79:0]  completed;
  logic [511:0] fetched;
  logic         here;     // `fetched` holds an instruction that is in no queue yet
  logic         ended;    // END or REPEAT was fetched
  logic         moves;    // `fetched` is free, or leaves for its queue
  logic         follows;  // an instruction comes there
  logic [4:0]   unit;     // a bit for each unit: whose the instruction is that is here, none for END
  logic         is_end;
  logic         repeats;  // it was REPEAT
  logic         is_last;  // the section is not repeated
  logic [END_COUNT_BITS-1:0] times, count;  // that the section was done before, and that it is done
  logic [BITS-1:0] to, after, next;         // the first instruction of the section, the one behind it, what follows
  assign moves   = !here || |(unit & ~full);
  assign follows = first != last && !ended;
  assign fetch   = running && !(&underway);
  assign clear   = start && !running;
  assign next    = is_last ? after : to;

  for (genvar u = 0; u < 5; u++) begin : of_unit
    assign push[u] = unit[u] && !full[u];
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
    if (fetch) at <= at + BITS'(1);
    was_read    <= fetch;
    is_word     <= was_read;
    underway    <= underway + 3'(fetch) - 3'(moves && follows);
    ahead[last] <= word;
    if (is_word) last <= last + 3'd1;
    if (moves) begin
      fetched        <= {ahead[first][BITS_READ-1:OWNERS], UNIT_BITS'(0)};
      here           <= follows;
      {is_end, unit} <= follows ? ahead[first][OWNERS-1:0] : '0;
      if (follows) first <= first + 3'd1;
    end
    // For two cycles, as END goes to no queue and nothing follows it: `moves`, which comes late, is an enable alone.
    if (is_end) begin
      ended   <= 1'b1;
      here    <= 1'b0;
      repeats <= fetched[OPERATION_LSB+:4] == END_REPEAT;
      count   <= fetched[END_COUNT_LSB+:END_COUNT_BITS];
      to      <= BITS'(fetched[END_TO_LSB+:END_TO_BITS]);
      after   <= at - BITS'(underway);  // all before that came to `fetched`
    end
    is_last <= times + END_COUNT_BITS'(1) == count;
    again   <= ended && repeats && &empty && busy == 0 && !again;
    if (ended && !repeats && &empty && busy == 0) running <= 1'b0;
    if (again) times <= is_last ? '0 : times + END_COUNT_BITS'(1);
    if (clear) begin
      times   <= '0;
      running <= 1'b1;
    end
    if (again || clear) at <= again ? next : '0;
    if (rst) begin
      again   <= 1'b0;
      running <= 1'b0;
    end
    if (rst || clear || again) begin
      {was_read, is_word, underway, first, last} <= '0;
      {here, is_end, unit, ended}                <= '0;
    end
  end

  logic unused;
  assign unused = &{1'b0, program_index};
endmodule
