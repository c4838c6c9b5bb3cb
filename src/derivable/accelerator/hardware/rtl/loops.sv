// A nest of counted loops with addresses: loop 0 is the outermost. Each address begins at its base; an iteration of
// loop i adds the stride of loop i to what the address was when the last iteration of loop i began.
//
// Timing: `load` in cycle 0 sets everything; from cycle 1 the outputs are those of the current step, and `step` goes to
// the next one. `first` and `last` say of each loop whether it stands at its first and at its last iteration. Counts and
// bases are those of the load, strides have to stand still from the cycle after it.
module loops #(
    parameter int LOOPS = 3,
    parameter int ADDRESSES = 2,
    parameter int COUNT_BITS = 16,
    parameter int ADDRESS_BITS = 32
) (
    input  logic                                    clk,
    input  logic                                    load,
    input  logic                                    step,
    input  logic [LOOPS*COUNT_BITS-1:0]             counts,   // of loop i at i * COUNT_BITS; 0 is not allowed
    input  logic [ADDRESSES*ADDRESS_BITS-1:0]       bases,
    input  logic [ADDRESSES*LOOPS*ADDRESS_BITS-1:0] strides,  // of address a and loop i at (a * LOOPS + i) * ADDRESS_BITS
    output logic [ADDRESSES*ADDRESS_BITS-1:0]       addresses,
    output logic [LOOPS-1:0]                        first,
    output logic [LOOPS-1:0]                        last
);
  logic [LOOPS*COUNT_BITS-1:0] left;  // iterations of each loop after this one; `last`: none, known a cycle before
  logic [LOOPS-1:0]            goes;  // this loop is the one that goes on: it has iterations left, inner loops have not

  for (genvar i = 0; i < LOOPS; i++) begin : loop
    logic inner_are_done;
    if (i == LOOPS - 1) assign inner_are_done = 1'b1;
    else assign inner_are_done = &last[LOOPS-1:i+1];
    assign goes[i] = inner_are_done && !last[i];

    // Of the load, for when the loop begins again: what is left in its first iteration, and whether that is none.
    logic [COUNT_BITS-1:0] all;
    logic                  is_one;
    always_ff @(posedge clk)
      if (load) begin
        all    <= counts[i*COUNT_BITS+:COUNT_BITS] - COUNT_BITS'(1);
        is_one <= counts[i*COUNT_BITS+:COUNT_BITS] == COUNT_BITS'(1);
      end

    logic begun;
    assign first[i] = !begun;
    always_ff @(posedge clk) begin
      if (load) begin
        left[i*COUNT_BITS+:COUNT_BITS] <= counts[i*COUNT_BITS+:COUNT_BITS] - COUNT_BITS'(1);
        last[i]                        <= counts[i*COUNT_BITS+:COUNT_BITS] == COUNT_BITS'(1);
        begun                          <= 1'b0;
      end else if (step && inner_are_done && last[i]) begin
        left[i*COUNT_BITS+:COUNT_BITS] <= all;
        last[i]                        <= is_one;
        begun                          <= 1'b0;
      end else if (step && inner_are_done) begin
        left[i*COUNT_BITS+:COUNT_BITS] <= left[i*COUNT_BITS+:COUNT_BITS] - COUNT_BITS'(1);
        last[i]                        <= left[i*COUNT_BITS+:COUNT_BITS] == COUNT_BITS'(1);
        begun                          <= 1'b1;
      end
    end
  end

  for (genvar a = 0; a < ADDRESSES; a++) begin : address
    logic [LOOPS*ADDRESS_BITS-1:0] began;  // the address when the current iteration of each loop began
    logic [LOOPS*ADDRESS_BITS-1:0] sums;   // and with its stride: a sum for each loop is there before the choice of a loop
    logic [ADDRESS_BITS-1:0]       next;
    for (genvar i = 0; i < LOOPS; i++) begin : of_loop
      assign sums[i*ADDRESS_BITS+:ADDRESS_BITS] =
          began[i*ADDRESS_BITS+:ADDRESS_BITS] + strides[(a*LOOPS+i)*ADDRESS_BITS+:ADDRESS_BITS];
    end
    always_comb begin
      next = '0;
      for (int i = 0; i < LOOPS; i++)
        next |= sums[i*ADDRESS_BITS+:ADDRESS_BITS] & {ADDRESS_BITS{goes[i]}};
    end
    always_ff @(posedge clk) begin
      for (int i = 0; i < LOOPS; i++)
        if (load) began[i*ADDRESS_BITS+:ADDRESS_BITS] <= bases[a*ADDRESS_BITS+:ADDRESS_BITS];
        // The loop that goes on and all loops inside it begin here.
        else if (step && |(goes & LOOPS'((2 << i) - 1))) began[i*ADDRESS_BITS+:ADDRESS_BITS] <= next;
    end
    assign addresses[a*ADDRESS_BITS+:ADDRESS_BITS] = began[(LOOPS-1)*ADDRESS_BITS+:ADDRESS_BITS];
  end

`ifdef FORMAL
  // The indices of a nest of loops: the addresses are what bases, strides and indices say, until the last step.
  logic                                    begun = 1'b0;
  logic                                    runs;
  logic [LOOPS*COUNT_BITS-1:0]             index, held_counts;
  logic [ADDRESSES*ADDRESS_BITS-1:0]       held_bases;
  logic [ADDRESSES*LOOPS*ADDRESS_BITS-1:0] held_strides;
  logic                                    carry;
  always_ff @(posedge clk) begin
    begun <= 1'b1;
    if (load) begin
      runs         <= 1'b1;
      index        <= '0;
      held_counts  <= counts;
      held_bases   <= bases;
      held_strides <= strides;
    end else if (step) begin
      carry = 1'b1;
      for (int i = LOOPS - 1; i >= 0; i--)
        if (carry) begin
          carry = index[i*COUNT_BITS+:COUNT_BITS] + COUNT_BITS'(1) == counts[i*COUNT_BITS+:COUNT_BITS];
          index[i*COUNT_BITS+:COUNT_BITS] <= carry ? '0 : index[i*COUNT_BITS+:COUNT_BITS] + COUNT_BITS'(1);
        end
      if (carry) runs <= 1'b0;
    end
  end
  always_comb begin
    if (!begun) assume (load);
    else if (!load) assume (counts == held_counts && bases == held_bases && strides == held_strides);
    for (int i = 0; i < LOOPS; i++) assume (counts[i*COUNT_BITS+:COUNT_BITS] != '0);
    if (begun && runs && !load) begin
      for (int i = 0; i < LOOPS; i++) begin
        assert (index[i*COUNT_BITS+:COUNT_BITS] < counts[i*COUNT_BITS+:COUNT_BITS]);
        assert (left[i*COUNT_BITS+:COUNT_BITS] + index[i*COUNT_BITS+:COUNT_BITS] + COUNT_BITS'(1)
                == counts[i*COUNT_BITS+:COUNT_BITS]);
        assert (first[i] == (index[i*COUNT_BITS+:COUNT_BITS] == '0));
        assert (last[i] == (left[i*COUNT_BITS+:COUNT_BITS] == '0));
      end
    end
  end
  for (genvar i = 0; i < LOOPS; i++) begin : remembered
    always_comb
      if (begun && runs && !load) begin
        assert (loop[i].all == counts[i*COUNT_BITS+:COUNT_BITS] - COUNT_BITS'(1));
        assert (loop[i].is_one == (counts[i*COUNT_BITS+:COUNT_BITS] == COUNT_BITS'(1)));
      end
  end
  for (genvar a = 0; a < ADDRESSES; a++) begin : proved
    // Of the outermost loops up to each of them: what an iteration of it began with.
    logic [(LOOPS+1)*ADDRESS_BITS-1:0] sums;
    assign sums[ADDRESS_BITS-1:0] = bases[a*ADDRESS_BITS+:ADDRESS_BITS];
    for (genvar i = 0; i < LOOPS; i++) begin : to
      assign sums[(i+1)*ADDRESS_BITS+:ADDRESS_BITS] = sums[i*ADDRESS_BITS+:ADDRESS_BITS]
          + ADDRESS_BITS'(index[i*COUNT_BITS+:COUNT_BITS]) * strides[(a*LOOPS+i)*ADDRESS_BITS+:ADDRESS_BITS];
      always_comb
        if (begun && runs && !load)
          assert (address[a].began[i*ADDRESS_BITS+:ADDRESS_BITS] == sums[(i+1)*ADDRESS_BITS+:ADDRESS_BITS]);
    end
    always_comb
      if (begun && runs && !load)
        assert (addresses[a*ADDRESS_BITS+:ADDRESS_BITS] == sums[LOOPS*ADDRESS_BITS+:ADDRESS_BITS]);
  end
`endif
endmodule
