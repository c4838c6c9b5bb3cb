// The whole accelerator.
//
//                 host port                                              off-chip memory
//                     |                                                        |
//               +------------+     queues     +-------+                    +-------+
//               | controller |--------------->| units |                    |  DMA  |
//               +------------+   <--- done    +-------+                    +-------+
//                                                                              |
//    array_engine (NN, VSA: A, B, K, C) <--- MOVE <--- read ports <--- cache X <---+
//              |                                             |                     |
//              +---- C ----> vector_unit (VEC: P) <----------+                     |
//                                  +-----------------------------------------------+
//
// VEC has the cache's port for writing before DMA, which waits: results cannot, off-chip memory can. For every eight
// cycles that a load waits, VEC leaves out a step, the next one; so a load is not put off until lanes that write in every
// cycle end, and lanes that nothing but this load would keep waiting lose little.
//
// Host port, words of 32 bits at byte addresses; what is read comes in the next cycle:
//   0x00  control         write bit 0: start; read bit 0: running, bit 1: done since the start, bit 2: idle
//   0x10  base, 0x14      where byte 0 of the program's off-chip memory is, 64 bits
//   0x18  program index   of the next word that is written, 16 words an instruction
//   0x1c  program word    writes it; the index goes to the next
//   0x20  cycles, 0x24    from the start until all units were done, 64 bits
//   0x28  busy            cycles in which a unit was busy, five words: DMA, MOVE, NN, VSA, VEC
//   0x3c  waits           cycles in which DMA, MOVE and VEC waited for the cache, three words
//
// Off-chip port: AXI-like, one transfer a cycle and channel where valid and ready meet. Bursts are of `lines` + 1 lines
// of L bytes, and cross no boundary of 4096 bytes. `base` is a multiple of 4096.
//
// Reset: `rst` is synchronous, and high for at least 32 cycles at first.
module accelerator #(
    parameter int H = 8,          // rows and columns of a sub-array
    parameter int W = 8,
    parameter int N = 2,          // sub-arrays
    parameter int S = 8,          // lanes
    parameter int L = 32,         // bytes of a line
    parameter int A_WORDS = 2048, // words of a bank of the memories
    parameter int B_WORDS = 2048,
    parameter int K_WORDS = 256,
    parameter int C_WORDS = 2048,
    parameter int P_WORDS = 64,
    parameter int X_BYTES = 65536,
    parameter int PROGRAM = 4096  // instructions
) (
    input  logic           clk,
    input  logic           rst,

    input  logic           host_write,
    input  logic           host_read,
    input  logic [7:0]     host_address,
    input  logic [31:0]    host_write_data,
    output logic [31:0]    host_read_data,

    output logic           ar_valid,
    input  logic           ar_ready,
    output logic [63:0]    ar_address,
    output logic [7:0]     ar_lines,
    input  logic           r_valid,
    output logic           r_ready,
    input  logic [8*L-1:0] r_data,
    output logic           aw_valid,
    input  logic           aw_ready,
    output logic [63:0]    aw_address,
    output logic [7:0]     aw_lines,
    output logic           w_valid,
    input  logic           w_ready,
    output logic [8*L-1:0] w_data,
    output logic           w_last,
    input  logic           b_valid,
    output logic           b_ready,

    // For observers: a unit takes an instruction in this cycle, or has completed one. DMA is bit 0.
    output logic [4:0]     taken,
    output logic [4:0]     done
);
  localparam int DMA = 0, MOVE = 1, NN = 2, VSA = 3, VEC = 4;

  // Controller and registers.
  logic            start, clear, again, running, program_write;
  logic [31:0]     program_index;
  logic [63:0]     base, cycles;
  logic [4:0]      valid, ready, busy;
  logic [5*512-1:0] instruction;
  logic [2:0]      waiting, waited;
  logic [5*32-1:0] busy_cycles;
  logic [3*32-1:0] waiting_cycles;
  logic            has_run;
  assign start         = host_write && host_address == 8'h00 && host_write_data[0];
  assign program_write = host_write && host_address == 8'h1c;
  assign taken         = valid & ready;
  controller #(.PROGRAM(PROGRAM)) control (
      .clk,
      .rst,
      .program_write,
      .program_index,
      .program_data(host_write_data),
      .start,
      .running,
      .clear,
      .again,
      .valid,
      .instruction,
      .ready,
      .done
  );

  for (genvar u = 0; u < 5; u++) begin : count_busy
    always_ff @(posedge clk) begin
      busy[u] <= (busy[u] && !done[u] || taken[u]) && !rst;
      if (clear) busy_cycles[32*u+:32] <= '0;
      else if (busy[u]) busy_cycles[32*u+:32] <= busy_cycles[32*u+:32] + 32'd1;
    end
  end
  for (genvar u = 0; u < 3; u++) begin : count_waiting
    always_ff @(posedge clk) begin
      if (clear) waiting_cycles[32*u+:32] <= '0;
      else if (waited[u]) waiting_cycles[32*u+:32] <= waiting_cycles[32*u+:32] + 32'd1;
    end
  end
  always_ff @(posedge clk) begin
    waited <= waiting;
    if (clear) cycles <= '0;
    else if (running) cycles <= cycles + 64'd1;
    has_run <= (has_run || running) && !clear && !rst;
    if (program_write) program_index <= program_index + 32'd1;
    if (host_write) begin
      case (host_address)
        8'h10: base[31:0] <= host_write_data;
        8'h14: base[63:32] <= host_write_data;
        8'h18: program_index <= host_write_data;
        default: ;
      endcase
    end
    if (host_read) begin
      case (host_address)
        8'h00: host_read_data <= {29'd0, !running, has_run && !running, running};
        8'h20: host_read_data <= cycles[31:0];
        8'h24: host_read_data <= cycles[63:32];
        8'h28: host_read_data <= busy_cycles[32*DMA+:32];
        8'h2c: host_read_data <= busy_cycles[32*MOVE+:32];
        8'h30: host_read_data <= busy_cycles[32*NN+:32];
        8'h34: host_read_data <= busy_cycles[32*VSA+:32];
        8'h38: host_read_data <= busy_cycles[32*VEC+:32];
        8'h3c: host_read_data <= waiting_cycles[31:0];
        8'h40: host_read_data <= waiting_cycles[63:32];
        8'h44: host_read_data <= waiting_cycles[95:64];
        default: host_read_data <= '0;
      endcase
    end
  end

  // The cache and who reads and writes it.
  logic           vec_a, vec_b, vec_granted, move_read, move_granted, store_read, store_granted;
  logic [31:0]    address_0, address_1, vec_address_a, vec_address_b, move_from, store_address;
  logic [8*L-1:0] data_0, data_1, vec_data_a, vec_data_b, move_data, store_data, load_data, vec_data;
  logic           load_write, vec_write;
  logic [31:0]    load_address, vec_address;
  logic [L-1:0]   vec_mask;
  read_ports #(.L(L)) ports (
      .clk,
      .rst,
      .vec_a,
      .vec_b,
      .vec_address_a,
      .vec_address_b,
      .vec_granted,
      .vec_data_a,
      .vec_data_b,
      .move(move_read),
      .move_address(move_from),
      .move_granted,
      .move_data,
      .store(store_read),
      .store_address,
      .store_granted,
      .store_data,
      .address_0,
      .data_0,
      .address_1,
      .data_1
  );
  cache #(.L(L), .BYTES(X_BYTES)) x (
      .clk,
      .address_0,
      .data_0,
      .address_1,
      .data_1,
      .write(load_write || vec_write),
      .write_address(vec_write ? vec_address : load_address),
      .write_data(vec_write ? vec_data : load_data),
      .write_mask(vec_write ? vec_mask : {L{1'b1}})
  );
  logic [2:0] refusals;
  logic       vec_pause, vec_paused;
  always_ff @(posedge clk) begin
    vec_pause <= load_write && vec_write && refusals == 3'd7;
    refusals  <= rst || clear || again ? 3'd0 : refusals + 3'(load_write && vec_write);
  end
  assign waiting = {
    ((vec_a || vec_b) && !vec_granted) || vec_paused,
    move_read && !move_granted,
    (store_read && !store_granted) || (load_write && vec_write)
  };

  logic [31:0] ar_offset, aw_offset;
  assign ar_address = base + 64'(ar_offset);
  assign aw_address = base + 64'(aw_offset);
  dma #(.L(L)) transfer (
      .clk,
      .rst,
      .valid(valid[DMA]),
      .instruction(instruction[512*DMA+:512]),
      .ready(ready[DMA]),
      .done(done[DMA]),
      .read(store_read),
      .read_granted(store_granted),
      .read_address(store_address),
      .read_data(store_data),
      .write(load_write),
      .write_granted(!vec_write),
      .write_address(load_address),
      .write_data(load_data),
      .ar_valid,
      .ar_ready,
      .ar_address(ar_offset),
      .ar_lines,
      .r_valid,
      .r_ready,
      .r_data,
      .aw_valid,
      .aw_ready,
      .aw_address(aw_offset),
      .aw_lines,
      .w_valid,
      .w_ready,
      .w_data,
      .w_last,
      .b_valid,
      .b_ready
  );

  logic            word_write;
  logic [1:0]      word_memory, p_half;
  logic [N-1:0]    word_banks;
  logic [31:0]     word_address;
  logic [8*W*N-1:0] a_words;
  logic [8*H*N-1:0] b_words;
  logic [24*N-1:0] k_words;
  logic [64*W-1:0] p_word;
  mover #(.H(H), .W(W), .L(L), .N(N)) move (
      .clk,
      .rst,
      .valid(valid[MOVE]),
      .instruction(instruction[512*MOVE+:512]),
      .ready(ready[MOVE]),
      .done(done[MOVE]),
      .read(move_read),
      .granted(move_granted),
      .read_address(move_from),
      .read_data(move_data),
      .write(word_write),
      .write_memory(word_memory),
      .write_banks(word_banks),
      .write_address(word_address),
      .a_words,
      .b_words,
      .k_words,
      .p_word,
      .p_half
  );

  localparam int N_BITS = N > 1 ? $clog2(N) : 1;
  localparam int A_BITS = A_WORDS > 1 ? $clog2(A_WORDS) : 1;
  localparam int B_BITS = B_WORDS > 1 ? $clog2(B_WORDS) : 1;
  localparam int K_BITS = K_WORDS > 1 ? $clog2(K_WORDS) : 1;
  localparam int C_BITS = C_WORDS > 1 ? $clog2(C_WORDS) : 1;
  logic [3:0]      c_bank;
  logic [31:0]     c_address;
  logic [32*W-1:0] c_word;
  array_engine #(
      .H(H),
      .W(W),
      .N(N),
      .A_WORDS(A_WORDS),
      .B_WORDS(B_WORDS),
      .K_WORDS(K_WORDS),
      .C_WORDS(C_WORDS)
  ) arrays (
      .clk,
      .rst,
      .nn_valid(valid[NN]),
      .nn_instruction(instruction[512*NN+:512]),
      .nn_ready(ready[NN]),
      .nn_done(done[NN]),
      .vsa_valid(valid[VSA]),
      .vsa_instruction(instruction[512*VSA+:512]),
      .vsa_ready(ready[VSA]),
      .vsa_done(done[VSA]),
      .a_write(word_write && word_memory == 2'd0 ? word_banks : '0),
      .a_address(word_address[A_BITS-1:0]),
      .a_words,
      .b_write(word_write && word_memory == 2'd1 ? word_banks : '0),
      .b_address(word_address[B_BITS-1:0]),
      .b_words,
      .k_write(word_write && word_memory == 2'd2 ? word_banks : '0),
      .k_address(word_address[K_BITS-1:0]),
      .k_words,
      .c_bank(c_bank[N_BITS-1:0]),
      .c_address(c_address[C_BITS-1:0]),
      .c_word
  );

  logic c_read;
  vector_unit #(.W(W), .S(S), .L(L), .P_WORDS(P_WORDS)) lanes (
      .clk,
      .rst,
      .valid(valid[VEC]),
      .instruction(instruction[512*VEC+:512]),
      .ready(ready[VEC]),
      .done(done[VEC]),
      .read_a(vec_a),
      .read_b(vec_b),
      .granted(vec_granted),
      .address_a(vec_address_a),
      .address_b(vec_address_b),
      .data_a(vec_data_a),
      .data_b(vec_data_b),
      .pause(vec_pause),
      .paused(vec_paused),
      .write(vec_write),
      .write_address(vec_address),
      .write_data(vec_data),
      .write_mask(vec_mask),
      .c_read,
      .c_bank,
      .c_address,
      .c_data(c_word),
      .p_write(word_write && word_memory == 2'd3),
      .p_half,
      .p_address(word_address),
      .p_data(p_word)
  );

  logic unused;
  assign unused = &{1'b0, c_read, c_bank, c_address, word_address};

`ifdef CHECKS
  handshake #(.BITS(72)) reads (.clk, .rst, .valid(ar_valid), .ready(ar_ready), .data({ar_lines, ar_address}));
  handshake #(.BITS(72)) writes (.clk, .rst, .valid(aw_valid), .ready(aw_ready), .data({aw_lines, aw_address}));
  handshake #(.BITS(8*L+1)) lines (.clk, .rst, .valid(w_valid), .ready(w_ready), .data({w_last, w_data}));
  for (genvar u = 0; u < 5; u++) begin : heads
    handshake #(.BITS(512)) head (
        .clk, .rst(rst || clear), .valid(valid[u]), .ready(ready[u]), .data(instruction[512*u+:512])
    );
  end
  always @(posedge clk)
    if (!rst) begin
      if (ar_valid)
        assert (13'(ar_address[11:0]) + (13'(ar_lines) + 13'd1) * 13'(L) <= 13'd4096)
        else $fatal(1, "a burst of reads crosses a boundary of 4096 bytes");
      if (aw_valid)
        assert (13'(aw_address[11:0]) + (13'(aw_lines) + 13'd1) * 13'(L) <= 13'd4096)
        else $fatal(1, "a burst of writes crosses a boundary of 4096 bytes");
    end
`endif
endmodule
