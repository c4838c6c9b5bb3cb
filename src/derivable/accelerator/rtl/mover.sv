// Moves words from the cache X to the memories A, B, K and P, in four nested loops: one word a cycle as long as the cache
// grants the reads. A word of P that is wider than a line takes two cycles, one for each half.
//
// Timing: the first word is read in the cycle after the instruction is accepted, and written 3 cycles later; `done` the
// cycle after the last write.
module mover #(
    parameter int H = 8,
    parameter int W = 8,
    parameter int L = 32,
    parameter int N = 2,
    parameter int BYTES = 8 * W > H ? 8 * W : H
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
    input  logic [8*L-1:0]  read_data,      // two cycles after the grant

    output logic            write,
    output logic [1:0]      write_memory,   // A, B, K, P
    output logic [N-1:0]    write_banks,
    output logic [31:0]     write_address,
    output logic [8*BYTES-1:0] write_data, // of P, and of B where that is wider; others have the low bytes
    output logic [1:0]      write_half      // of P
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

  // Addresses: in X, of the word, and the bank.
  logic [4*BITS-1:0] to_strides, bank_strides;
  for (genvar i = 0; i < 4; i++) begin : stride
    assign to_strides[i*BITS+:BITS]   = BITS'($signed(held[MOVE_TO0_LSB+i*TO+:TO]));
    assign bank_strides[i*BITS+:BITS] = BITS'(held[MOVE_BANK_LOOP_LSB+:3] == 3'(i));
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
  logic [BESIDE-1:0] beside_0, beside_2;
  logic              go_2, last_2, second_2;
  logic [TO-1:0]     to_2;
  logic [3:0]        bank_2;
  assign beside_0 = {addresses[2*BITS+:4], addresses[BITS+:TO], second, step && &last, taken};
  delay #(.BITS(BESIDE), .CYCLES(2)) to_data (.clk, .in(beside_0), .out(beside_2));
  assign {bank_2, to_2, second_2, last_2, go_2} = beside_2;

  // A word: bytes from `valid` on are zero in A and B.
  logic [8*BYTES-1:0] word, kept;
  assign word = (8 * BYTES)'(read_data);
  for (genvar j = 0; j < BYTES; j++) begin : of_byte
    logic is_kept;
    if (j < 256) assign is_kept = 8'(j) < held[MOVE_VALID_LSB+:8] || held[OPERATION_LSB+1];
    else assign is_kept = held[OPERATION_LSB+1];
    assign kept[8*j+:8] = is_kept ? word[8*j+:8] : 8'd0;
  end

  logic [2*N+16-1:0] banks;
  logic last_3;
  assign banks = ((2 * N + 16)'(1) << held[MOVE_BANKS_LSB+:MOVE_BANKS_BITS]) - (2 * N + 16)'(1);
  always_ff @(posedge clk) begin
    write         <= go_2;
    write_memory  <= held[OPERATION_LSB+:2];
    write_banks   <= N'(banks << bank_2);
    write_address <= 32'(to_2);
    write_data    <= second_2 ? (8 * BYTES)'({kept[32*W-1:0], kept[32*W-1:0]}) : kept;
    write_half    <= !IS_SPLIT ? 2'b11 : second_2 ? 2'b10 : 2'b01;
    last_3        <= go_2 && last_2;
    done          <= last_3;

    if (taken && IS_SPLIT && is_p) second <= !second;
    if (accepted) begin
      held    <= instruction;
      active  <= 1'b1;
      issuing <= 1'b1;
      second  <= 1'b0;
    end
    if (step && &last) issuing <= 1'b0;
    if (last_3) active <= 1'b0;
    if (rst) begin
      active  <= 1'b0;
      issuing <= 1'b0;
      second  <= 1'b0;
      done    <= 1'b0;
    end
  end

  logic unused;
  assign unused = &{1'b0, held, instruction, read_data, addresses, first, kept, word, banks};
endmodule
