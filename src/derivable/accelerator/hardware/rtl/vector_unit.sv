// The SIMD unit: arithmetic on lanes, from C and X to X. A step a cycle, as long as the cache grants its reads.
//
//   loops -> addresses -> X, C, P -> unpack -> operation -> along -> across -> requantise -> pack -> X
//   cycle 0                1..5       5        6..12        13       (tree)    15..22       23      23
//
//   along   sums (or maxima) over the inner loop, which stay in the lane; one result at its end
//   across  sums (or maxima) over the lanes, by a tree of clog2(S) levels of two cycles; the result is in lane 0
//
//   turned  the results of a pass of the inner loop are bytes, which leave lane by lane (turner.sv); a pass shorter than
//           there are lanes is followed by cycles without a step, until as many have gone by
//
// What belongs to a step goes through the pipeline with it: the address of its result, its word of P, and which lanes take
// part.
//
// Timing: the first step is read in the cycle after the instruction is accepted; its result is written 23 cycles later,
// and 2 * clog2(S) more with `across`; `done` the cycle after the last result. Turned, the last pass leaves from 26 cycles
// after its last step on.
module vector_unit #(
    parameter int W = 8,
    parameter int S = 8,
    parameter int L = 32,
    parameter int P_WORDS = 64
) (
    input  logic            clk,
    input  logic            rst,

    input  logic            valid,
    input  logic [511:0]    instruction,
    output logic            ready,
    output logic            done,

    // The cache: both reads of a step at once, repeated until granted.
    output logic            read_a,
    output logic            read_b,
    input  logic            granted,
    output logic [31:0]     address_a,
    output logic [31:0]     address_b,
    input  logic [8*L-1:0]  data_a,         // five cycles after the grant
    input  logic [8*L-1:0]  data_b,
    input  logic            pause,          // no step in this cycle
    output logic            paused,         // there would have been one
    output logic            write,          // never refused
    output logic [31:0]     write_address,
    output logic [8*L-1:0]  write_data,
    output logic [L-1:0]    write_mask,

    output logic            c_read,
    output logic [3:0]      c_bank,
    output logic [31:0]     c_address,
    input  logic [32*W-1:0] c_data,         // five cycles after c_read

    input  logic            p_write,
    input  logic [1:0]      p_half,         // low: what is added, high: what multiplies
    input  logic [31:0]     p_address,
    input  logic [64*W-1:0] p_data
);
  `include "isa.svh"

  localparam int P_BITS = P_WORDS > 1 ? $clog2(P_WORDS) : 1;
  localparam int DEPTH = 2 * $clog2(S);  // cycles of the tree of `across`

  // The instruction, and what of it every stage needs: those from cycle 1 on have it from a second register, which is
  // for the lanes.
  logic [511:0] held, late;
  logic         active;
  logic         from_c, is_b_read, is_along, is_across, is_max, is_drain, is_one_a, is_turned;
  logic [3:0]   operation;
  logic [1:0]   type_a, type_x;
  assign operation = late[OPERATION_LSB+:4];
  assign from_c    = held[VEC_A_FROM_LSB];
  assign is_one_a  = late[VEC_A_ONE_LSB];
  assign is_along  = held[VEC_ALONG_LSB];
  assign is_across = late[VEC_ACROSS_LSB];
  assign is_max    = late[VEC_REDUCTION_LSB];
  assign is_turned = held[VEC_TURNED_LSB];
  assign type_a    = held[VEC_A_TYPE_LSB+:2];
  always_ff @(posedge clk) begin
    late     <= held;
    is_drain <= late[OPERATION_LSB+:4] == VEC_DRAIN;
    type_x   <= {type_a[1] || from_c, type_a[0]};  // numbers of C are int16 or int32
  end

  // Cycle 0: addresses, reads.
  localparam int BITS = VEC_A_BITS;
  logic              step, accepted;
  logic [2:0]        first, last;
  logic [BITS-1:0]   stride_y2;
  logic [4*BITS-1:0] addresses;
  assign ready    = !active;
  assign accepted = valid && ready;
  loops #(.LOOPS(3), .ADDRESSES(4), .ADDRESS_BITS(BITS)) nest (
      .clk,
      .load(accepted),
      .step,
      .counts(instruction[VEC_N0_LSB+:48]),
      .bases({
        BITS'(instruction[VEC_P_LSB+:VEC_P_BITS]), instruction[VEC_Y_LSB+:BITS],
        instruction[VEC_B_LSB+:BITS], instruction[VEC_A_LSB+:BITS]
      }),
      .strides({
        {2 * BITS{1'b0}}, BITS'(1), stride_y2, held[VEC_Y0_LSB+:2*BITS],
        held[VEC_B0_LSB+:3*BITS], held[VEC_A0_LSB+:3*BITS]
      }),
      .addresses,
      .first,
      .last
  );

  // Cycles without a step, after a pass that is shorter than its results take to leave: how many, and whether any are left.
  logic [7:0]  width, idle, gap;
  logic [7:0]  lanes_next;
  logic [15:0] pass_next;
  logic        is_idle, has_gap;
  assign width      = late[VEC_A_FROM_LSB] ? 8'(W) : 8'(S);
  assign lanes_next = instruction[VEC_A_FROM_LSB] ? 8'(W) : 8'(S);
  assign pass_next  = instruction[VEC_N2_LSB+:16];
  always_ff @(posedge clk) begin
    if (accepted) begin
      gap     <= lanes_next - pass_next[7:0];
      has_gap <= instruction[VEC_TURNED_LSB] && pass_next < 16'(lanes_next);
    end
    if (step && last[2]) begin
      idle    <= gap;
      is_idle <= has_gap;
    end else begin
      idle    <= idle - 8'd1;
      is_idle <= is_idle && idle != 8'd1;
    end
    if (rst) is_idle <= 1'b0;
  end

  logic issuing, asking;  // steps are left; one is due
  assign asking    = issuing && !is_idle && !pause;
  assign paused    = issuing && !is_idle && pause;
  assign read_a    = asking && !from_c;
  assign read_b    = asking && is_b_read;
  assign step      = asking && (granted || (from_c && !is_b_read));
  assign address_a = 32'(addresses[0+:BITS]);
  assign address_b = 32'(addresses[BITS+:BITS]);
  assign c_read    = step && from_c;
  assign c_bank    = held[VEC_A_BANK_LSB+:4];
  assign c_address = type_a == TYPE_I16 ? 32'(addresses[1+:BITS-1]) : 32'(addresses[0+:BITS]);

  // The memory P: addends are read with the operands, in cycle 0. Multipliers are read in cycle 12, so that they pass the
  // output register of the memory and a register behind the choice of a multiplier before the result needs them.
  (* no_rw_check *)  // no program reads a word while MOVE writes it
  logic [32*W-1:0] memory_added[P_WORDS];
  (* no_rw_check *)
  logic [32*W-1:0] memory_multiplied[P_WORDS];
  logic [32*W-1:0] added, added_5, multiplied, multiplied_late;
  logic [P_BITS-1:0] p_12, p_tree, p_late;
  always_ff @(posedge clk) begin
    if (p_write && p_half[0]) memory_added[p_address[P_BITS-1:0]] <= p_data[32*W-1:0];
    if (p_write && p_half[1]) memory_multiplied[p_address[P_BITS-1:0]] <= p_data[64*W-1:32*W];
    added           <= memory_added[addresses[3*BITS+:P_BITS]];
    multiplied      <= memory_multiplied[p_late];
    multiplied_late <= multiplied;
  end
  delay #(.BITS(P_BITS), .CYCLES(12)) p_to_12 (.clk, .in(addresses[3*BITS+:P_BITS]), .out(p_12));
  delay #(.BITS(P_BITS), .CYCLES(DEPTH)) p_through_tree (.clk, .in(p_12), .out(p_tree));
  assign p_late = is_across ? p_tree : p_12;
  delay #(.BITS(32 * W), .CYCLES(4)) added_to_5 (.clk, .in(added), .out(added_5));

  // What goes through the pipeline with a step.
  localparam int CONTROL = 6 + BITS;
  logic              go_13, last_13, end_13, result_13, tail_11, tail_13, first_12, first_13, go_12;
  logic [BITS-1:0]   y_13;
  logic [CONTROL-1:0] control_0, control_11, control_12, control_13;
  logic              tail, result, half_4, half_5;
  assign tail      = held[VEC_TAIL_LSB+:8] != 0 && (held[VEC_TAIL_INNER_LSB] ? last[2] : last[1]);
  assign result    = !is_along || last[2];
  assign control_0 = {addresses[2*BITS+:BITS], &last, last[2], result, tail, first[2] || !is_along, step};
  delay #(.BITS(CONTROL), .CYCLES(11)) to_11 (.clk, .in(control_0), .out(control_11));
  delay #(.BITS(1), .CYCLES(4)) half_to_4 (.clk, .in(addresses[0]), .out(half_4));
  always_ff @(posedge clk) begin
    control_12 <= control_11;
    control_13 <= control_12;
    half_5     <= half_4 && late[VEC_A_TYPE_LSB+:2] == TYPE_I16;
  end
  assign tail_11  = control_11[2];
  assign {first_12, go_12} = control_12[1:0];
  assign {y_13, last_13, end_13, result_13, tail_13, first_13, go_13} = control_13;

  // Which lanes take part, in a whole step and in one with a tail.
  logic [S-1:0] whole_lanes, tail_lanes, lanes_12;
  for (genvar j = 0; j < S; j++) begin : taking_part
    always_ff @(posedge clk) begin
      whole_lanes[j] <= j < W || !from_c;
      tail_lanes[j]  <= (j < W || !from_c) && 8'(j) < held[VEC_TAIL_LSB+:8];
    end
  end
  always_ff @(posedge clk) lanes_12 <= tail_11 ? tail_lanes : whole_lanes;

  // Cycle 5: words become lanes.
  logic [32*S-1:0] word_c, lanes_b, a_5, b_5, a_6, b_6;
  logic [32*W-1:0] half_c;
  logic            is_c, is_b;
  assign is_c   = late[VEC_A_FROM_LSB];
  assign half_c = half_5 ? c_data >> (16 * W) : c_data;
  assign word_c = (32 * S)'(half_c);
  unpack #(.LANES(S)) of_a (
      .word(is_c ? word_c : data_a[32*S-1:0]), .element_type(type_x), .is_one(is_one_a), .lanes(a_5)
  );
  unpack #(.LANES(S)) of_b (
      .word(data_b[32*S-1:0]), .element_type(late[VEC_B_TYPE_LSB+:2]), .is_one(late[VEC_B_ONE_LSB]), .lanes(lanes_b)
  );
  always_ff @(posedge clk) is_b <= is_b_read;
  assign b_5 = is_drain ? (32 * S)'(added_5) : is_b ? lanes_b : {S{late[VEC_B_LSB+:32]}};
  always_ff @(posedge clk) begin
    a_6 <= a_5;
    b_6 <= b_5;
  end

  // Cycles 6 to 13: the operation, then the result of this step or of the inner loop so far. A maximum is one cycle's, and
  // the two halves of numbers are compared in parallel.
  logic [64*S-1:0] v_14;
  logic            sums_13, always_13, compares_13;  // a sum; the result changes, or does if the step's is larger
  always_ff @(posedge clk) begin
    sums_13     <= !first_12 && !is_max;
    always_13   <= go_12 && (first_12 || !is_max);
    compares_13 <= go_12 && !first_12 && is_max;
  end
  for (genvar j = 0; j < S; j++) begin : lanes
    logic signed [63:0] v_13, so_far;
    logic               is_more, is_upper_more, is_upper_less, is_lower_more;
    lane arithmetic (
        .clk, .operation, .a(a_6[32*j+:32]), .b(b_6[32*j+:32]), .is_max, .live(lanes_12[j]), .v(v_13)
    );
    assign is_upper_more  = $signed(v_13[63:32]) > $signed(so_far[63:32]);
    assign is_upper_less  = $signed(v_13[63:32]) < $signed(so_far[63:32]);
    assign is_lower_more  = v_13[31:0] > so_far[31:0];
    assign is_more        = is_upper_more || (!is_upper_less && is_lower_more);
    assign v_14[64*j+:64] = so_far;
    always_ff @(posedge clk)
      if (always_13 || (compares_13 && is_more)) so_far <= sums_13 ? so_far + v_13 : v_13;
  end

  // A lane is written if it took part in any step of the inner loop; only the last step may have a tail.
  logic tail_kept, tail_of_result;
  assign tail_of_result = first_13 ? tail_13 : tail_kept;
  always_ff @(posedge clk) if (go_13) tail_kept <= tail_of_result;

  // Across lanes: a result that goes through the tree takes longer, and so does what goes with it.
  localparam int LATER = 4 + BITS;
  logic [LATER-1:0]  later_13, later_tree, later;
  logic [63:0]       v_tree;
  logic              go_23, last_23, end_23, tail_22, tail_23;
  logic [BITS-1:0]   y_23;
  reduce #(.LANES(S)) across (.clk, .is_max, .lanes(v_14), .result(v_tree));
  assign later_13 = {end_13, y_13, last_13, tail_of_result, go_13 && result_13};
  delay #(.BITS(LATER), .CYCLES(DEPTH)) through_tree (.clk, .in(later_13), .out(later_tree));
  assign later  = is_across ? later_tree : later_13;
  logic [LATER-1:0] later_22, later_23;
  delay #(.BITS(LATER), .CYCLES(9)) to_22 (.clk, .in(later), .out(later_22));
  always_ff @(posedge clk) later_23 <= later_22;
  assign tail_22 = later_22[1];
  assign {end_23, y_23, last_23, tail_23, go_23} = later_23;

  // Cycles 15 to 22 (and those of the tree). The bounds are those of the clamp, kept within the type of the result. They are
  // needed long after the instruction came, and computed in steps.
  logic [63:0]        half;
  logic [ 5:0]        shift, shift_before;
  logic signed [31:0] of_type;
  assign shift   = late[VEC_SHIFT_LSB+:6];
  always_ff @(posedge clk) begin
    of_type      <= 32'sh7fffffff >>> (6'd32 - (6'd4 << late[VEC_Y_TYPE_LSB+:2]));
    shift_before <= shift - 6'd1;
    half         <= shift == 0 ? '0 : 64'd1 << shift_before;
  end
  logic               is_clamped;
  logic signed [15:0] low, high;
  logic [63:0]        bounds;  // the least and the most
  assign is_clamped = late[VEC_IS_CLAMPED_LSB];
  assign low        = late[VEC_LOW_LSB+:16];
  assign high       = late[VEC_HIGH_LSB+:16];
  for (genvar m = 0; m < 2; m++) begin : bound
    logic signed [31:0] of_clamp;
    logic               is_over, is_under;
    always_ff @(posedge clk) begin
      of_clamp         <= m == 0 && low < high ? 32'(low) : 32'(high);
      is_over          <= is_clamped ? of_clamp > of_type : m == 1;
      is_under         <= is_clamped ? of_clamp < ~of_type : m == 0;
      bounds[32*m+:32] <= is_under ? ~of_type : is_over ? of_type : of_clamp;
    end
  end

  logic [32*S-1:0] y;
  for (genvar j = 0; j < S; j++) begin : narrow
    logic [63:0] wide_14, wide_15;
    logic [31:0] multiplier_14, multiplier_15;
    if (j == 0) assign wide_14 = is_across ? v_tree : v_14[63:0];
    else assign wide_14 = v_14[64*j+:64];
    if (j < W) assign multiplier_14 = is_drain ? multiplied_late[32*j+:32] : 32'($signed(late[VEC_MULTIPLIER_LSB+:16]));
    else assign multiplier_14 = 32'($signed(late[VEC_MULTIPLIER_LSB+:16]));
    always_ff @(posedge clk) begin
      wide_15       <= wide_14;
      multiplier_15 <= multiplier_14;
    end
    requantise to_type (
        .clk,
        .v(wide_15),
        .multiplier(multiplier_15),
        .shift,
        .half,
        .least(bounds[31:0]),
        .most(bounds[63:32]),
        .y(y[32*j+:32])
    );
  end

  // Cycle 23: the result goes into the cache.
  logic [S-1:0]    live_23;
  logic [32*S-1:0] packed_y;
  logic [4*S-1:0]  packed_mask;
  always_ff @(posedge clk) live_23 <= is_across ? S'(1) : tail_22 ? tail_lanes : whole_lanes;
  pack #(.LANES(S)) to_word (
      .lanes(y), .live(live_23), .element_type(late[VEC_Y_TYPE_LSB+:2]), .word(packed_y), .mask(packed_mask)
  );
  // Or it is turned before that.
  localparam int TURNED = 1 << $clog2(S);
  logic [8*S-1:0]      bytes;
  logic                turned_write, turned_last;
  logic [BITS-1:0]     turned_address;
  logic [8*TURNED-1:0] turned_data;
  logic [TURNED-1:0]   turned_mask;
  for (genvar j = 0; j < S; j++) assign bytes[8*j+:8] = y[32*j+:8];
  turner #(.S(S), .BITS(BITS)) turn (
      .clk,
      .rst,
      .valid(go_23 && is_turned),
      .row(bytes),
      .is_end(end_23),
      .is_last(last_23),
      .lanes(width),
      .used(tail_23 ? late[VEC_TAIL_LSB+:8] : width),
      .address(y_23),
      .stride(held[VEC_Y2_LSB+:BITS]),
      .write(turned_write),
      .write_address(turned_address),
      .write_data(turned_data),
      .write_mask(turned_mask),
      .write_last(turned_last)
  );

  logic is_over;  // the last result is written
  assign is_over       = is_turned ? turned_last : go_23 && last_23;
  assign write         = is_turned ? turned_write : go_23;
  assign write_address = is_turned ? 32'(turned_address) : 32'(y_23);
  assign write_data    = is_turned ? (8 * L)'(turned_data) : (8 * L)'(packed_y);
  assign write_mask    = is_turned ? L'(turned_mask) : L'(packed_mask);

  always_ff @(posedge clk) begin
    done <= is_over;
    if (accepted) begin
      held      <= instruction;
      // Results of a pass of the inner loop stay in a lane, or are turned: they have one address.
      stride_y2 <= instruction[VEC_ALONG_LSB] || instruction[VEC_TURNED_LSB] ? '0 : instruction[VEC_Y2_LSB+:BITS];
      // Functions, first and drain have no use for b.
      is_b_read <= instruction[VEC_B_FROM_LSB] && instruction[OPERATION_LSB+:4] <= VEC_MIN;
      active    <= 1'b1;
      issuing   <= 1'b1;
    end
    if (step && &last) issuing <= 1'b0;
    if (is_over) active <= 1'b0;
    if (rst) begin
      active  <= 1'b0;
      issuing <= 1'b0;
      done    <= 1'b0;
    end
  end

  logic unused;
  assign unused = &{1'b0, held, instruction, data_a, data_b, p_address, first, addresses, control_13};
endmodule
