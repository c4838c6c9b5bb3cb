// The unit VSA: runs one instruction of circular convolutions, the vectors of a pair in the same column, on the
// sub-arrays that it has; the stationary vector is taken H elements at a time.
//
//   for g in groups: for p in passes (d / H, rounded up):
//     load     H cycles           words A[a_base + g * a_stride + p * H + h], the highest h first; 0 from element d on
//     stream   H - 1 + d cycles   words A[b_base + g * b_stride + (j - p * H) mod d], j = -(H - 1) .. d - 1
//     wait     H cycles           for the last sum to come down
//     and C[c_base + g * d + n] is set to, or increased by, the sum that started with j = n
//
// `reverse` takes and gives elements in the order 0, d - 1, d - 2, ..., 1: circular correlation.
//
// The index of the stream is reduced modulo d by counting: it goes back by one in each cycle of `load`, by H a pass; with
// `reverse` the other way round.
//
// Timing: an instruction is taken in a cycle with `valid` and `ready`, in which all fields are sampled. `done` is set
// for one cycle, groups * passes * (3H + d - 1) + DELAY - H + 4 cycles later (T of equations (3) and (4), and a
// constant): from then on C can be read. `ready` is set again in that cycle. `load` and `zero` go with `address`; results
// of the element of the stream whose address is given now come DELAY cycles later. d and groups are at least 1.
module convolution_sequencer #(
    parameter int H         = 4,
    parameter int DELAY     = 9,
    parameter int A_ADDRESS = 10,
    parameter int C_ADDRESS = 10
) (
    input wire clk,
    input wire rst,

    input  wire                 valid,
    output wire                 ready,
    output reg                  done,
    input  wire                 accumulate,
    input  wire                 reverse,
    input  wire [A_ADDRESS-1:0] a_base,
    input  wire [A_ADDRESS-1:0] b_base,
    input  wire [C_ADDRESS-1:0] c_base,
    input  wire [         15:0] d,
    input  wire [         15:0] groups,
    input  wire [A_ADDRESS-1:0] a_stride,
    input  wire [A_ADDRESS-1:0] b_stride,

    output wire                 load,
    output wire                 zero,
    output wire [A_ADDRESS-1:0] address,
    output wire                 c_valid,
    output wire                 c_add,
    output wire [C_ADDRESS-1:0] c_address
);
  localparam [2:0] IDLE = 3'd0, LOAD = 3'd1, STREAM = 3'd2, WAIT = 3'd3, FINISH = 3'd4;

  reg [2:0] state;
  reg [16:0] step;
  reg adds, reverses;
  reg [15:0] length, top, num_groups, group;  // top: the last element
  reg [A_ADDRESS-1:0] stride_a, stride_b, stationary, stream;
  // The element of the stationary vector that is loaded, the first element of the pass and of the next one; the start of
  // the pass in the stream, and where the stream is.
  reg [16:0] element, begins, next_pass, last_step;
  reg [15:0] start, index;
  reg end_pass, end_group;  // known in the cycle after the pass and the group

  // The next element modulo d, and the one before.
  function automatic logic [15:0] up(input logic [15:0] of, input logic [15:0] last);
    up = of == last ? 16'd0 : of + 16'd1;
  endfunction
  function automatic logic [15:0] down(input logic [15:0] of, input logic [15:0] last);
    down = of == 0 ? last : of - 16'd1;
  endfunction
  wire [15:0] earlier = reverses ? up(start, top) : down(start, top);
  wire end_stream = step == last_step;

  assign ready = state == IDLE;
  assign load = state == LOAD;
  assign zero = element >= {1'b0, length};
  assign address = (load ? stationary : stream) + (load ? A_ADDRESS'(element) : A_ADDRESS'(index));

  always_ff @(posedge clk) begin
    case (state)
      IDLE: begin
        {step, group, begins} <= 0;
        next_pass <= 17'(H);
        {adds, reverses, length, num_groups} <= {accumulate, reverse, d, groups};
        top <= d - 1'b1;
        last_step <= {1'b0, d} + 17'(H - 2);
        {stationary, stream, stride_a, stride_b} <= {a_base, b_base, a_stride, b_stride};
        element <= 17'(H - 1);
        start <= d == 1 ? 16'd0 : reverse ? d - 16'd1 : 16'd1;
        if (valid) state <= LOAD;
      end
      LOAD: begin
        step <= step + 1'b1;
        element <= element - 1'b1;
        start <= earlier;
        index <= earlier;
        if (step == 17'(H - 1)) begin
          step  <= 0;
          state <= STREAM;
        end
      end
      STREAM: begin
        step  <= step + 1'b1;
        index <= reverses ? down(index, top) : up(index, top);
        if (end_stream) begin
          step  <= 0;
          state <= WAIT;
        end
      end
      WAIT: begin
        step <= step + 1'b1;
        if (step == 17'(H - 1)) begin
          step <= 0;
          begins <= end_pass ? 0 : next_pass;
          next_pass <= end_pass ? 17'(H) : next_pass + 17'(H);
          element <= end_pass ? 17'(H - 1) : next_pass + 17'(H - 1);
          if (end_pass) begin
            start <= top == 0 ? 16'd0 : reverses ? top : 16'd1;
            group <= group + 1'b1;
            stationary <= stationary + stride_a;
            stream <= stream + stride_b;
          end
          state <= end_pass && end_group ? FINISH : LOAD;
        end
      end
      default: if (written[2]) state <= IDLE;
    endcase
    end_pass  <= next_pass >= {1'b0, length};
    end_group <= group == num_groups - 1;
    if (rst) state <= IDLE;
  end

  // What travels with an element of the stream to the result that starts with it.
  reg [DELAY-1:0] results, ends, firsts, lasts, finals;
  always_ff @(posedge clk) begin
    results <= {results[DELAY-2:0], state == STREAM && step >= 17'(H - 1) && !rst};
    ends    <= {ends[DELAY-2:0], end_stream};
    firsts  <= {firsts[DELAY-2:0], begins == 0};
    lasts   <= {lasts[DELAY-2:0], end_pass};
    finals  <= {finals[DELAY-2:0], end_group};
    if (rst) results <= 0;
  end
  wire pass_ends = ends[DELAY-1], in_first = firsts[DELAY-1], in_last = lasts[DELAY-1], in_final = finals[DELAY-1];
  assign c_valid = results[DELAY-1];
  assign c_add   = adds || !in_first;

  reg [C_ADDRESS-1:0] vector;
  reg [15:0] n;
  reg [2:0] written;  // the last result: on its way, and in C
  assign c_address = vector + C_ADDRESS'(n);
  always_ff @(posedge clk) begin
    if (ready) begin
      vector <= c_base;
      n <= 0;
    end else if (c_valid) begin
      n <= pass_ends ? 16'd0 : reverses ? down(n, top) : up(n, top);
      if (pass_ends && in_last) vector <= vector + C_ADDRESS'(length);
    end
    written <= {written[1:0], c_valid && pass_ends && in_last && in_final};
    done    <= written[2] && !rst;
    if (rst) written <= 3'b0;
  end
endmodule
