// The units NN and VSA with all that is theirs: the array, its memories A, B, K and C, and the two sequencers. Both
// run at once on different sub-arrays; a sub-array belongs to VSA while an instruction of it runs there, else to NN.
//
//   MOVE ---> A[n] ------------------------> vertical ---+
//   MOVE ---> K[n] --(+ offset)--> B[n] ---> horizontal --+--> ad_array --> total -----> C[0]
//   MOVE ---> B[n] --------------^                        |              \-> columns n -> C[n]
//   NN ----> gemm_sequencer --------> addresses, load ----+
//   VSA ---> convolution_sequencer -> addresses, load ----+                        C[bank] ---> SIMD unit
//
// Timing: an address that a sequencer gives is registered, then read, so that its word is at the array 3 cycles later.
// Instructions are taken in a cycle with `valid` and `ready`; `done` is set for a cycle when all results are in C:
//   NN    columns * tiles * (2H + W + M - 2) + 13 + $clog2(N) cycles later
//   VSA   groups * passes * (3H + d - 1) + 13 cycles later
// What MOVE writes in a cycle is read from the next one on. `c_word` is the word at `c_address` of bank `c_bank` 5
// cycles later; any number of reads may be on their way.
module array_engine #(
    parameter int H       = 8,
    parameter int W       = 8,
    parameter int N       = 2,
    parameter int A_WORDS = 2048,
    parameter int B_WORDS = 2048,
    parameter int K_WORDS = 256,
    parameter int C_WORDS = 2048,
    parameter int A_BITS  = A_WORDS > 1 ? $clog2(A_WORDS) : 1,
    parameter int B_BITS  = B_WORDS > 1 ? $clog2(B_WORDS) : 1,
    parameter int K_BITS  = K_WORDS > 1 ? $clog2(K_WORDS) : 1,
    parameter int C_BITS  = C_WORDS > 1 ? $clog2(C_WORDS) : 1,
    parameter int N_BITS  = N > 1 ? $clog2(N) : 1
) (
    input wire clk,
    input wire rst,

    input  wire         nn_valid,
    input  wire [511:0] nn_instruction,
    output wire         nn_ready,
    output wire         nn_done,

    input  wire         vsa_valid,
    input  wire [511:0] vsa_instruction,
    output wire         vsa_ready,
    output wire         vsa_done,

    // Writes by MOVE, one bit of `write` and a word for each bank.
    input wire [     N-1:0] a_write,
    input wire [A_BITS-1:0] a_address,
    input wire [ N*W*8-1:0] a_words,
    input wire [     N-1:0] b_write,
    input wire [B_BITS-1:0] b_address,
    input wire [ N*H*8-1:0] b_words,
    input wire [     N-1:0] k_write,
    input wire [K_BITS-1:0] k_address,
    input wire [  N*24-1:0] k_words,

    input  wire [N_BITS-1:0] c_bank,
    input  wire [C_BITS-1:0] c_address,
    output reg  [  W*32-1:0] c_word
);
  `include "isa.svh"

  // From the address of the row that a result starts with to the result: three cycles to the array, and the array's.
  localparam int NN_DELAY = 3 + H + W + 4 + $clog2(N);
  localparam int VSA_DELAY = 3 + H + 6;

  wire nn_load, nn_c_valid, nn_c_add;
  wire [A_BITS-1:0] nn_a;
  wire [K_BITS-1:0] nn_k;
  wire [B_BITS-1:0] nn_b;
  wire [C_BITS-1:0] nn_c;
  gemm_sequencer #(
      .H(H),
      .W(W),
      .DELAY(NN_DELAY),
      .A_ADDRESS(A_BITS),
      .B_ADDRESS(B_BITS),
      .K_ADDRESS(K_BITS),
      .C_ADDRESS(C_BITS)
  ) nn (
      .clk,
      .rst,
      .valid(nn_valid),
      .ready(nn_ready),
      .done(nn_done),
      .accumulate(nn_instruction[NN_ACCUMULATE_LSB]),
      .a_base(nn_instruction[NN_A_LSB+:A_BITS]),
      .b_base(nn_instruction[NN_B_LSB+:B_BITS]),
      .k_base(nn_instruction[NN_K_LSB+:K_BITS]),
      .c_base(nn_instruction[NN_C_LSB+:C_BITS]),
      .tiles(nn_instruction[NN_TILES_LSB+:16]),
      .columns(nn_instruction[NN_COLUMNS_LSB+:16]),
      .n0(nn_instruction[NN_N0_LSB+:16]),
      .n1(nn_instruction[NN_N1_LSB+:16]),
      .n2(nn_instruction[NN_N2_LSB+:16]),
      .s0(nn_instruction[NN_B0_LSB+:B_BITS]),
      .s1(nn_instruction[NN_B1_LSB+:B_BITS]),
      .s2(nn_instruction[NN_B2_LSB+:B_BITS]),
      .load(nn_load),
      .a_address(nn_a),
      .k_address(nn_k),
      .b_address(nn_b),
      .c_valid(nn_c_valid),
      .c_add(nn_c_add),
      .c_address(nn_c)
  );

  wire vsa_load, vsa_zero, vsa_c_valid, vsa_c_add;
  wire [A_BITS-1:0] vsa_a;
  wire [C_BITS-1:0] vsa_c;
  convolution_sequencer #(
      .H(H),
      .DELAY(VSA_DELAY),
      .A_ADDRESS(A_BITS),
      .C_ADDRESS(C_BITS)
  ) vsa (
      .clk,
      .rst,
      .valid(vsa_valid),
      .ready(vsa_ready),
      .done(vsa_done),
      .accumulate(vsa_instruction[VSA_ACCUMULATE_LSB]),
      .reverse(vsa_instruction[VSA_REVERSE_LSB]),
      .a_base(vsa_instruction[VSA_A_LSB+:A_BITS]),
      .b_base(vsa_instruction[VSA_B_LSB+:A_BITS]),
      .c_base(vsa_instruction[VSA_C_LSB+:C_BITS]),
      .d(vsa_instruction[VSA_LENGTH_LSB+:16]),
      .groups(vsa_instruction[VSA_GROUPS_LSB+:16]),
      .a_stride(vsa_instruction[VSA_A0_LSB+:A_BITS]),
      .b_stride(vsa_instruction[VSA_B0_LSB+:A_BITS]),
      .load(vsa_load),
      .zero(vsa_zero),
      .address(vsa_a),
      .c_valid(vsa_c_valid),
      .c_add(vsa_c_add),
      .c_address(vsa_c)
  );

  // Which sub-arrays the instructions that run are on, and how they multiply.
  reg nn_nibbles, vsa_split;
  reg [N-1:0] folded, convolving;
  wire [16:0] vsa_arrays = (17'd1 << vsa_instruction[VSA_ARRAYS_LSB+:5]) - 17'd1;
  always_ff @(posedge clk) begin
    if (nn_ready) begin
      folded <= N'((17'd1 << nn_instruction[NN_ARRAYS_LSB+:5]) - 17'd1);
      nn_nibbles <= nn_instruction[NN_NIBBLES_LSB];
    end
    if (vsa_ready) begin
      convolving <= vsa_valid ? N'(vsa_arrays << vsa_instruction[VSA_FIRST_LSB+:4]) : '0;
      vsa_split  <= vsa_instruction[VSA_SPLIT_LSB];
    end
  end

  // Addresses, registered; what goes with a word arrives with it.
  reg [1:0] nn_loads, vsa_loads;
  reg [2:0] vsa_zeros;
  reg [N-1:0] enable;
  always_ff @(posedge clk) begin
    nn_loads  <= {nn_loads[0], nn_load};
    vsa_loads <= {vsa_loads[0], vsa_load};
    vsa_zeros <= {vsa_zeros[1:0], vsa_load && vsa_zero};
    enable    <= (folded & {N{!nn_ready}}) | (convolving & {N{!vsa_ready}});
  end

  wire [N*W*8-1:0] vertical;
  wire [N*H*8-1:0] horizontal;
  wire [N*W*32-1:0] columns;
  wire [W*32-1:0] total;
  wire [N*W*32-1:0] read;
  reg [N-1:0] load;
  reg [C_BITS-1:0] c_at;
  for (genvar n = 0; n < N; n = n + 1) begin : part
    reg [A_BITS-1:0] at_a;
    reg [B_BITS-1:0] at_b;
    wire [B_BITS-1:0] offset;
    wire [W*8-1:0] from_a;
    always_ff @(posedge clk) begin
      at_a    <= convolving[n] ? vsa_a : nn_a;
      at_b    <= nn_b + offset;
      load[n] <= convolving[n] ? vsa_loads[1] : nn_loads[1];
    end
    bank #(
        .WORDS(A_WORDS),
        .BITS(W * 8),
        .MEETS_ZEROS(1),  // rows of the last tile of a reduction that is shorter
        .ADDRESS(A_BITS)
    ) a (
        .clk,
        .write_enable(a_write[n]),
        .write_address(a_address),
        .write_data(a_words[n*W*8+:W*8]),
        .read_address(at_a),
        .read_data(from_a)
    );
    bank #(
        .WORDS(B_WORDS),
        .BITS(H * 8),
        .ADDRESS(B_BITS)
    ) b (
        .clk,
        .write_enable(b_write[n]),
        .write_address(b_address),
        .write_data(b_words[n*H*8+:H*8]),
        .read_address(at_b),
        .read_data(horizontal[n*H*8+:H*8])
    );
    bank #(
        .WORDS(K_WORDS),
        .BITS(B_BITS),
        .ADDRESS(K_BITS)
    ) k (
        .clk,
        .write_enable(k_write[n]),
        .write_address(k_address),
        .write_data(k_words[n*24+:B_BITS]),
        .read_address(nn_k),
        .read_data(offset)
    );
    assign vertical[n*W*8+:W*8] = convolving[n] && vsa_zeros[2] ? '0 : from_a;

    wire own = convolving[n] || n != 0;
    accumulator #(
        .WORDS(C_WORDS),
        .W(W),
        .ADDRESS(C_BITS)
    ) c (
        .clk,
        .valid(own ? convolving[n] && vsa_c_valid : nn_c_valid),
        .add(own ? vsa_c_add : nn_c_add),
        .split(own && vsa_split),
        .address(own ? vsa_c : nn_c),
        .data(own ? columns[n*W*32+:W*32] : total),
        .read_address(c_at),
        .read_data(read[n*W*32+:W*32])
    );
  end

  ad_array #(
      .H(H),
      .W(W),
      .N(N)
  ) array (
      .clk,
      .enable,
      .circular(convolving),
      .nibbles((convolving & {N{vsa_split}}) | (~convolving & {N{nn_nibbles}})),
      .split(convolving & {N{vsa_split}}),
      .load,
      .folded,
      .vertical,
      .horizontal,
      .columns,
      .total
  );

  // Five cycles from an address of C to its word: the address, the memory, a register behind it, the choice of a bank, and
  // one more, for the word comes as late as one of the cache.
  reg [N*W*32-1:0] c_read;
  reg [W*32-1:0] c_chosen;
  wire [N_BITS-1:0] bank_read;
  delay #(
      .BITS  (N_BITS),
      .CYCLES(3)
  ) with_c (
      .clk,
      .in (c_bank),
      .out(bank_read)
  );
  always_ff @(posedge clk) begin
    c_at   <= c_address;
    c_read <= read;
    c_chosen <= c_read[bank_read*W*32+:W*32];
    c_word <= c_chosen;
  end

  wire unused = &{1'b0, nn_instruction, vsa_instruction, k_words};
endmodule
