// Moves words from the cache X to the memories A, B, K and P, in four nested loops: one line a cycle as long as the cache
// grants the reads. The first `spread` words of the line are dealt out to the banks: bank first + j has word j mod spread.
// A word of P that is wider than a line takes two cycles, one for each half.
//
// Timing: the first word is read in the cycle after the instruction is accepted, and written 6 cycles later; `done` the
// cycle after the last write.
module mover #(
    parameter int H = 8,
    parameter int W = 8,
    parameter int L = 32,
    parameter int N = 2
) (
    input  logic            clk,
    input  logic            rst,

    input  logic            valid,
    input  logic [511:0]    instruction,
    output logic            ready,
    output logic            done,

    output logic            read,
    input  logic            granted,
    output logic [31:0]     read_address,
    input  logic [8*L-1:0]  read_data,      // five cycles after the grant

    output logic            write,
    output logic [1:0]      write_memory,   // A, B, K, P
    output logic [N-1:0]    write_banks,
    output logic [31:0]     write_address,
    output logic [8*W*N-1:0] a_words,       // a word for each bank
    output logic [8*H*N-1:0] b_words,
    output logic [24*N-1:0] k_words,
    output logic [64*W-1:0] p_word,
    output logic [1:0]      p_half
);
  `include "isa.svh"

  localparam int BITS = MOVE_X_BITS;
  localparam bit IS_SPLIT = 8 * W > L;  // a word of P is wider than a line
  localparam int TO = MOVE_TO_BITS;

  logic [511:0] held;
  logic         active, issuing, accepted, step, taken, is_p, second;
  logic [3:0]   first, last;
  logic [3*BITS-1:0] addresses;
  assign ready    = !active;
  assign accepted = valid && ready;
  assign is_p     = held[OPERATION_LSB+:4] == MOVE_P;

  // Addresses: in X, of the words, and the first of their banks.
  logic [4*BITS-1:0] to_strides, bank_strides;
  for (genvar i = 0; i < 4; i++) begin : stride
    assign to_strides[i*BITS+:BITS]   = BITS'($signed(held[MOVE_TO0_LSB+i*TO+:TO]));
    assign bank_strides[i*BITS+:BITS] = held[MOVE_BANK_LOOP_LSB+:3] == 3'(i) ? BITS'(held[MOVE_SPREAD_LSB+:5]) : '0;
  end
  loops #(.LOOPS(4), .ADDRESSES(3), .ADDRESS_BITS(BITS)) nest (
      .clk,
      .load(accepted),
      .step,
      .counts(accepted ? instruction[MOVE_N0_LSB+:64] : held[MOVE_N0_LSB+:64]),
      .bases({
        BITS'(instruction[MOVE_FIRST_LSB+:MOVE_FIRST_BITS]),
        BITS'(instruction[MOVE_TO_LSB+:TO]),
        instruction[MOVE_X_LSB+:BITS]
      }),
      .strides({bank_strides, to_strides, held[MOVE_X0_LSB+:4*BITS]}),
      .addresses,
      .first,
      .last
  );

  assign read         = issuing;
  assign taken        = issuing && granted;
  assign step         = taken && (!IS_SPLIT || !is_p || second);
  assign read_address = 32'(addresses[0+:BITS]) + (second ? 32'(4 * W) : 32'd0);

  // Beside the read: the word, the bank, the half, whether it is the last.
  localparam int BESIDE = 3 + TO + 4;
  logic [BESIDE-1:0] beside_0, beside_5;
  logic              go_5, last_5, second_5;
  logic [TO-1:0]     to_5;
  logic [3:0]        bank_5;
  assign beside_0 = {addresses[2*BITS+:4], addresses[BITS+:TO], second, step && &last, taken};
  delay #(.BITS(BESIDE), .CYCLES(5)) to_data (.clk, .in(beside_0), .out(beside_5));
  assign {bank_5, to_5, second_5, last_5, go_5} = beside_5;

  // Bytes from `valid` on are zero in A and B. Which they are is known before the first line comes.
  logic [8*L-1:0] kept;
  logic [L-1:0]   is_valid;
  for (genvar j = 0; j < L; j++) begin : of_byte
    always_ff @(posedge clk) is_valid[j] <= 10'(j) < held[MOVE_VALID_LSB+:10];
    assign kept[8*j+:8] = is_valid[j] ? read_data[8*j+:8] : 8'd0;
  end

  // Which word of the line a bank has. A spread of 16 is 0 here.
  function automatic logic [1023:0] remainders();
    for (int i = 0; i < 256; i++) remainders[4*i+:4] = 4'(i / 16 == 0 ? i : (i % 16) % (i / 16));
  endfunction
  localparam logic [1023:0] REMAINDERS = remainders();
  logic [4*N-1:0]    which;
  logic [8*W*N-1:0]  dealt_a;
  logic [8*H*N-1:0]  dealt_b;
  logic [32*N-1:0]   dealt_k;
  for (genvar n = 0; n < N; n++) begin : of_bank
    logic [3:0] from_first;
    assign from_first = 4'(n) - held[MOVE_FIRST_LSB+:4];
    always_ff @(posedge clk) which[4*n+:4] <= REMAINDERS[{held[MOVE_SPREAD_LSB+:4], from_first, 2'b00}+:4];
    always_ff @(posedge clk) k_words[24*n+:24] <= dealt_k[32*n+:24];
  end
  deal #(.N(N), .SIZE(W), .L(L)) to_a (.line(kept), .which, .words(dealt_a));
  deal #(.N(N), .SIZE(H), .L(L)) to_b (.line(kept), .which, .words(dealt_b));
  deal #(.N(N), .SIZE(4), .L(L)) to_k (.line(read_data), .which, .words(dealt_k));
  logic [64*W-1:0] word_p;
  assign word_p = (64 * W)'(read_data);

  logic [2*N+16-1:0] banks;
  logic last_6;
  always_ff @(posedge clk) begin
    banks         <= ((2 * N + 16)'(1) << held[MOVE_BANKS_LSB+:MOVE_BANKS_BITS]) - (2 * N + 16)'(1);
    write         <= go_5;
    write_memory  <= held[OPERATION_LSB+:2];
    write_banks   <= N'(banks << bank_5);
    write_address <= 32'(to_5);
    a_words       <= dealt_a;
    b_words       <= dealt_b;
    p_word        <= second_5 ? {word_p[32*W-1:0], word_p[32*W-1:0]} : word_p;
    p_half        <= !IS_SPLIT ? 2'b11 : second_5 ? 2'b10 : 2'b01;
    last_6        <= go_5 && last_5;
    done          <= last_6;

    if (taken && IS_SPLIT && is_p) second <= !second;
    if (accepted) begin
      held    <= instruction;
      active  <= 1'b1;
      issuing <= 1'b1;
      second  <= 1'b0;
    end
    if (step && &last) issuing <= 1'b0;
    if (last_6) active <= 1'b0;
    if (rst) begin
      active  <= 1'b0;
      issuing <= 1'b0;
      second  <= 1'b0;
      done    <= 1'b0;
    end
  end

  logic unused;
  assign unused = &{1'b0, held, instruction, read_data, addresses, first, dealt_k, word_p, banks};
endmodule
