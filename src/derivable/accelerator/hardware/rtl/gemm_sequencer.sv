// The unit NN: runs one GEMM instruction, weights stationary, on the sub-arrays that are folded together.
//
//   for c in columns: for t in tiles:
//     load     H cycles           words A[a_base + (c * tiles + t) * H + h], the highest h first
//     stream   M cycles           words B[b_base + K[k_base + t] + i * s0 + y * s1 + x * s2], i < n0, y < n1, x < n2
//     wait     H + W - 2 cycles   for the last row to pass the last element
//     and C[c_base + c * M + m] is set to, or increased by, the sum of row m; M = n0 * n1 * n2
//
// The sequencer gives addresses, to which what K has is added in each bank (array_engine.sv). `load` goes with
// `a_address`; the results of the row whose `b_address` is given now come DELAY cycles later, when `c_valid` and
// `c_address` go with them. Of the results it knows only what travels with each row through a delay line: whether the
// row is the last of its tile, and its tile the first or last of its column.
//
//   cycle of a tile   0 ...... H-1 | H .......... H+M-1 | ....... 2H+W+M-3
//                     load         | stream             | wait
//   results                                  c_valid, M cycles in a row, DELAY after `stream`
//
// Timing: an instruction is taken in a cycle with `valid` and `ready`, in which all fields are sampled. `done` is set
// for one cycle, columns * tiles * (2H + W + M - 2) + DELAY - H - W + 6 cycles later (equation (1) and a constant): from
// then on C can be read. `ready` is set again in that cycle. All counts are at least 1.
module gemm_sequencer #(
    parameter int H         = 4,
    parameter int W         = 4,
    parameter int DELAY     = 16,
    parameter int A_ADDRESS = 10,
    parameter int B_ADDRESS = 10,
    parameter int K_ADDRESS = 10,
    parameter int C_ADDRESS = 10
) (
    input wire clk,
    input wire rst,

    input  wire                 valid,
    output wire                 ready,
    output reg                  done,
    input  wire                 accumulate,
    input  wire [A_ADDRESS-1:0] a_base,
    input  wire [B_ADDRESS-1:0] b_base,
    input  wire [K_ADDRESS-1:0] k_base,
    input  wire [C_ADDRESS-1:0] c_base,
    input  wire [         15:0] tiles,
    input  wire [         15:0] columns,
    input  wire [         15:0] n0,
    input  wire [         15:0] n1,
    input  wire [         15:0] n2,
    input  wire [B_ADDRESS-1:0] s0,
    input  wire [B_ADDRESS-1:0] s1,
    input  wire [B_ADDRESS-1:0] s2,

    output wire                 load,
    output reg  [A_ADDRESS-1:0] a_address,
    output reg  [K_ADDRESS-1:0] k_address,
    output wire [B_ADDRESS-1:0] b_address,
    output wire                 c_valid,
    output wire                 c_add,
    output reg  [C_ADDRESS-1:0] c_address
);
  localparam int STEPS = $clog2(H + W);
  localparam [2:0] IDLE = 3'd0, LOAD = 3'd1, STREAM = 3'd2, WAIT = 3'd3, FINISH = 3'd4;

  reg [2:0] state;
  reg [STEPS-1:0] step;
  reg adds;
  reg [K_ADDRESS-1:0] first_k;
  reg [15:0] num_tiles, num_columns, num0, num1, num2;
  reg [B_ADDRESS-1:0] base, stride0, stride1, stride2;
  reg [15:0] tile, column;
  reg first_tile, end_tile, end_column;  // known in the cycle after the tile and the column

  assign ready = state == IDLE;
  assign load  = state == LOAD;

  wire [2:0] first_rows, last_rows;
  wire end_row = &last_rows;
  loops #(
      .LOOPS(3),
      .ADDRESSES(1),
      .ADDRESS_BITS(B_ADDRESS)
  ) rows_of_a_tile (
      .clk,
      .load,
      .step(state == STREAM),
      .counts({num2, num1, num0}),
      .bases(base),
      .strides({stride2, stride1, stride0}),
      .addresses(b_address),
      .first(first_rows),
      .last(last_rows)
  );

  always_ff @(posedge clk) begin
    case (state)
      IDLE: begin
        step <= 0;
        {tile, column} <= 0;
        {adds, first_k, num_tiles, num_columns} <= {accumulate, k_base, tiles, columns};
        {num0, num1, num2, base, stride0, stride1, stride2} <= {n0, n1, n2, b_base, s0, s1, s2};
        a_address <= a_base + A_ADDRESS'(H - 1);
        k_address <= k_base;
        if (valid) state <= LOAD;
      end
      LOAD: begin
        step <= step + 1'b1;
        if (step == STEPS'(H - 1)) begin
          step  <= 0;
          state <= STREAM;
        end else a_address <= a_address - 1'b1;
      end
      STREAM: if (end_row) state <= WAIT;
      WAIT: begin
        step <= step + 1'b1;
        if (step == STEPS'(H + W - 3)) begin
          step <= 0;
          a_address <= a_address + A_ADDRESS'(2 * H - 1);
          tile <= end_tile ? 0 : tile + 1'b1;
          k_address <= end_tile ? first_k : k_address + 1'b1;
          if (end_tile) column <= column + 1'b1;
          state <= end_tile && end_column ? FINISH : LOAD;
        end
      end
      default: if (written[2]) state <= IDLE;
    endcase
    first_tile <= tile == 0;
    end_tile   <= tile == num_tiles - 1;
    end_column <= column == num_columns - 1;
    if (rst) state <= IDLE;
  end

  // What travels with a row to its result.
  reg [DELAY-1:0] rows, ends, firsts, lasts, finals;
  always_ff @(posedge clk) begin
    rows   <= {rows[DELAY-2:0], state == STREAM && !rst};
    ends   <= {ends[DELAY-2:0], end_row};
    firsts <= {firsts[DELAY-2:0], first_tile};
    lasts  <= {lasts[DELAY-2:0], end_tile};
    finals <= {finals[DELAY-2:0], end_column};
    if (rst) rows <= 0;
  end
  wire row_ends = ends[DELAY-1], in_first = firsts[DELAY-1], in_last = lasts[DELAY-1], in_final = finals[DELAY-1];
  assign c_valid = rows[DELAY-1];
  assign c_add   = adds || !in_first;

  // The results of a column start at `start`; those of the next column follow.
  reg [C_ADDRESS-1:0] start;
  reg [2:0] written;  // the last result: on its way, and in C
  always_ff @(posedge clk) begin
    if (ready) {start, c_address} <= {c_base, c_base};
    else if (c_valid) begin
      c_address <= row_ends && !in_last ? start : c_address + 1'b1;
      if (row_ends && in_last) start <= c_address + 1'b1;
    end
    written <= {written[1:0], c_valid && row_ends && in_last && in_final};
    done    <= written[2] && !rst;
    if (rst) written <= 3'b0;
  end

  wire unused = &{1'b0, first_rows};
endmodule
