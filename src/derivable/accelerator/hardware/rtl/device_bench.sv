// The accelerator with a model of off-chip memory, in SystemVerilog alone: cycle by cycle what device.h is in C++. With
// +seed=N the memory refuses a quarter of what it may refuse, and what it lends comes up to 32 cycles later; the outputs
// are the same. Not for synthesis.
//
// Files, in the folder in which it runs: program.hex and far.hex are read; events.txt (cycle, unit, is done),
// counters.txt (cycles, busy of five units, waits of three) and far.out are written; or failed.txt, with why. With CYCLES
// the memory afterwards is compared with expected.hex, as far as compared.hex says, and the cycles with that number unless
// memory refuses. With STARTS above 1 the program is started so often, the second time after far1.hex was read into
// memory, and so on; events1.txt, counters1.txt and far1.out are what that gives.
module device_bench #(
    parameter int H = 8,
    parameter int W = 8,
    parameter int N = 2,
    parameter int S = 8,
    parameter int L = 32,
    parameter int A_WORDS = 2048,
    parameter int B_WORDS = 2048,
    parameter int K_WORDS = 256,
    parameter int C_WORDS = 2048,
    parameter int P_WORDS = 64,
    parameter int X_BYTES = 65536,
    parameter int PROGRAM = 4096,
    parameter int PROGRAM_WORDS = 16,  // that are in program.hex
    parameter int FAR_LINES = 1,       // that are in far.hex
    parameter int LATENCY = 16,
    parameter int INTERVAL = 1,
    parameter int MOST_CYCLES = 0,     // 0: any number
    parameter int STARTS = 1,
    parameter int CYCLES = 0           // 0: nothing is compared
);
  localparam int DEPTH = 4096;  // bursts, lines and answers that may be under way

  reg clk = 0, rst = 1;
  reg host_write = 0, host_read = 0;
  reg  [    7:0] host_address = 0;
  reg  [   31:0] host_write_data = 0;
  wire [   31:0] host_read_data;
  wire ar_valid, r_ready, aw_valid, w_valid, w_last, b_ready;
  reg ar_ready = 1, r_valid = 0, aw_ready = 1, w_ready = 1, b_valid = 0;
  wire [63:0] ar_address, aw_address;
  wire [7:0] ar_lines, aw_lines;
  reg  [8*L-1:0] r_data = 0;
  wire [8*L-1:0] w_data;
  wire [4:0] taken, done;
  accelerator #(
      .H(H), .W(W), .N(N), .S(S), .L(L), .A_WORDS(A_WORDS), .B_WORDS(B_WORDS), .K_WORDS(K_WORDS), .C_WORDS(C_WORDS),
      .P_WORDS(P_WORDS), .X_BYTES(X_BYTES), .PROGRAM(PROGRAM)
  ) device (
      .clk, .rst, .host_write, .host_read, .host_address, .host_write_data, .host_read_data, .ar_valid, .ar_ready,
      .ar_address, .ar_lines, .r_valid, .r_ready, .r_data, .aw_valid, .aw_ready, .aw_address, .aw_lines, .w_valid,
      .w_ready, .w_data, .w_last, .b_valid, .b_ready, .taken, .done
  );

  reg [31:0] words[0:PROGRAM_WORDS-1];
  reg [8*L-1:0] far[0:FAR_LINES-1];
  reg [8*L-1:0] expected[0:FAR_LINES-1], compared[0:FAR_LINES-1];

  // Bursts asked for, the line each is at and how many are left; lines that have come; answers that are due.
  integer read_line[0:DEPTH-1], read_left[0:DEPTH-1], read_due[0:DEPTH-1], read_head = 0, read_tail = 0;
  integer write_line[0:DEPTH-1], write_left[0:DEPTH-1], write_head = 0, write_tail = 0;
  reg [8*L-1:0] come[0:DEPTH-1];
  integer come_head = 0, come_tail = 0;
  integer answer_due[0:DEPTH-1], answer_head = 0, answer_tail = 0;
  integer cycle = 0, start = 0, next_read = 0, events, counters, out, i, u, number;
  integer seed = 0;  // of refusals; 0: none
  reg refuses = 0;
  reg was_taken = 0;
  reg [31:0] value;
  string name;

  task fail(input reg [8*64-1:0] why);
    begin
      out = $fopen("failed.txt", "w");
      $fdisplay(out, "%0s", why);
      $fclose(out);
      $finish;
    end
  endtask

  handshake #(.BITS(8 * L)) offers (.clk, .rst, .valid(r_valid), .ready(r_ready), .data(r_data));

  function automatic integer below(input integer most);
    below = refuses ? $unsigned($random(seed)) % most : 0;
  endfunction

  // A cycle: what the memory offers, what the device does with it, the edge.
  task tick;
    begin
      if (refuses) begin
        ar_ready = below(4) != 0;
        aw_ready = below(4) != 0;
        w_ready  = below(4) != 0;
      end
      if (!r_valid || was_taken)
        r_valid = read_head != read_tail && cycle >= read_due[read_head%DEPTH] && cycle >= next_read
            && (!refuses || below(4) != 0);
      if (r_valid) r_data = far[read_line[read_head%DEPTH]];
      b_valid = answer_head != answer_tail && cycle >= answer_due[answer_head%DEPTH];
      #1 was_taken = 0;
      if (!rst) begin
        if (ar_valid && ar_ready) begin
          if (ar_address / L + ar_lines >= FAR_LINES) fail("the device went beyond its memory");
          read_line[read_tail%DEPTH] = ar_address / L;
          read_left[read_tail%DEPTH] = ar_lines + 1;
          read_due[read_tail%DEPTH] = cycle + LATENCY + below(32);
          read_tail = read_tail + 1;
        end
        if (r_valid && r_ready) begin
          was_taken = 1;
          next_read = cycle + INTERVAL;
          read_line[read_head%DEPTH] = read_line[read_head%DEPTH] + 1;
          read_left[read_head%DEPTH] = read_left[read_head%DEPTH] - 1;
          if (read_left[read_head%DEPTH] == 0) read_head = read_head + 1;
        end
        if (aw_valid && aw_ready) begin
          if (aw_address / L + aw_lines >= FAR_LINES) fail("the device went beyond its memory");
          write_line[write_tail%DEPTH] = aw_address / L;
          write_left[write_tail%DEPTH] = aw_lines + 1;
          write_tail = write_tail + 1;
        end
        if (w_valid && w_ready) begin
          come[come_tail%DEPTH] = w_data;
          come_tail = come_tail + 1;
        end
        while (come_head != come_tail && write_head != write_tail) begin
          far[write_line[write_head%DEPTH]] = come[come_head%DEPTH];
          come_head = come_head + 1;
          write_line[write_head%DEPTH] = write_line[write_head%DEPTH] + 1;
          write_left[write_head%DEPTH] = write_left[write_head%DEPTH] - 1;
          if (write_left[write_head%DEPTH] == 0) begin
            write_head = write_head + 1;
            answer_due[answer_tail%DEPTH] = cycle + LATENCY + below(32);
            answer_tail = answer_tail + 1;
          end
        end
        if (b_valid && b_ready) answer_head = answer_head + 1;
        for (u = 0; u < 5; u = u + 1) begin
          if (taken[u]) $fdisplay(events, "%0d %0d 0", cycle - start, u);
          if (done[u]) $fdisplay(events, "%0d %0d 1", cycle - start, u);
        end
      end
      clk = 1;
      #1 clk = 0;
      cycle = cycle + 1;
    end
  endtask

  task write_register(input reg [7:0] address, input reg [31:0] data);
    begin
      host_write = 1;
      host_address = address;
      host_write_data = data;
      tick;
      host_write = 0;
    end
  endtask

  task read_register(input reg [7:0] address);
    begin
      host_read = 1;
      host_address = address;
      tick;
      host_read = 0;
      value = host_read_data;
    end
  endtask

  initial begin
    if (!$value$plusargs("seed=%d", seed)) seed = 0;
    refuses = seed != 0;
    seed = seed * 32'h9e3779b1;  // neighbours would begin alike
    $readmemh("program.hex", words);
    $readmemh("far.hex", far);
    for (i = 0; i < 40; i = i + 1) tick;
    rst = 0;
    tick;
    write_register(8'h10, 0);
    write_register(8'h14, 0);
    write_register(8'h18, 0);
    for (i = 0; i < PROGRAM_WORDS; i = i + 1) write_register(8'h1c, words[i]);
    for (number = 0; number < STARTS; number = number + 1) begin
      name = "";
      if (number != 0) begin
        $sformat(name, "%0d", number);
        $readmemh({"far", name, ".hex"}, far);
      end
      events = $fopen({"events", name, ".txt"}, "w");
      start = cycle;
      write_register(8'h00, 1);
      value = 0;
      while (!value[1]) begin
        if (MOST_CYCLES != 0 && cycle - start > MOST_CYCLES) fail("the device is not done in time");
        for (i = 0; i < 64; i = i + 1) tick;
        read_register(8'h00);
      end
      counters = $fopen({"counters", name, ".txt"}, "w");
      read_register(8'h20);
      $fdisplay(counters, "%0d", value);
      if (STARTS != 1) $display("start %0d: %0d cycles", number, value);
      for (i = 0; i < 8; i = i + 1) begin
        read_register(8'h28 + 4 * i);
        $fdisplay(counters, "%0d", value);
      end
      out = $fopen({"far", name, ".out"}, "w");
      for (i = 0; i < FAR_LINES; i = i + 1) $fdisplay(out, "%h", far[i]);
      $fclose(out);
      $fclose(counters);
      $fclose(events);
    end
    if (CYCLES != 0) begin
      for (i = 0; i < FAR_LINES; i = i + 1) compared[i] = 0;
      $readmemh("expected.hex", expected);
      $readmemh("compared.hex", compared);
      read_register(8'h20);
      if (!refuses && value !== CYCLES) fail("the program takes another number of cycles");
      for (i = 0; i < FAR_LINES; i = i + 1)
        if (((far[i] ^ expected[i]) & compared[i]) !== 0) fail("an output differs");
      $display("passed: %0d lines of memory, %0d cycles", FAR_LINES, value);
    end
    $finish;
  end
endmodule
