// The cache X: L banks of bytes, so that any L neighbouring bytes are one word, whatever their address.
//
//   bytes r .. r+L-1 of rows q, q+1            bank 0   bank 1  ..  bank r  ..  bank L-1
//   (r = address mod L, q = address / L)  row   q+1      q+1          q           q
//
// Bank b reads row q, or q+1 where b < r; the outputs, rotated by r, are the word. Bytes behind the end of the memory may
// be anything: nothing uses them. Each port reads a word in every cycle, whether anything uses it or not: without an enable
// of reads, the registers behind the banks can be those that blocks of memory have.
//
// The word is rotated in two steps, by the upper half of the bits of r and by the lower half.
//
// Timing: cycle  0: address;  1: rows;  2: outputs of the banks;  3: the same, behind a register;  4: rotated by the upper
//         bits of r;  5: data.
//         A write takes three cycles (port, rotated, rows), and is seen by reads of cycle 2 and later.
module cache #(
    parameter int L = 64,        // bytes of a word, a power of two
    parameter int BYTES = 65536  // whole words, at least two
) (
    input  logic           clk,

    input  logic [31:0]    address_0,
    output logic [8*L-1:0] data_0,

    input  logic [31:0]    address_1,
    output logic [8*L-1:0] data_1,

    input  logic           write,
    input  logic [31:0]    write_address,
    input  logic [8*L-1:0] write_data,
    input  logic [L-1:0]   write_mask
);
  localparam int SHIFT = $clog2(L);
  localparam int ROW = $clog2(BYTES / L);

  // The word rotated towards higher bytes, and the masks with it.
  logic [SHIFT+ROW-1:0] to;
  logic [8*L-1:0]       written;
  logic [L-1:0]         mask;
  logic [SHIFT-1:0]     into;
  assign into = to[SHIFT-1:0];
  logic [16*L-1:0] doubled_data;
  logic [2*L-1:0]  doubled_mask;
  assign doubled_data = {written, written} << {into, 3'b000};
  assign doubled_mask = {mask, mask} << into;

  logic [8*L-1:0]   rotated;
  logic [L-1:0]     enable;
  always_ff @(posedge clk) begin
    to         <= write_address[SHIFT+ROW-1:0];
    written    <= write_data;
    mask       <= write ? write_mask : '0;
    enable     <= doubled_mask[2*L-1:L];
    rotated    <= doubled_data[16*L-1:8*L];
  end

  logic [SHIFT+ROW-1:0] from_0, from_1;
  logic [SHIFT-1:0]     turn_0, turn_1;
  logic [8*L-1:0]       banks_0, banks_1, bytes_0, bytes_1;
  always_ff @(posedge clk) begin
    from_0  <= address_0[SHIFT+ROW-1:0];
    from_1  <= address_1[SHIFT+ROW-1:0];
    bytes_0 <= banks_0;
    bytes_1 <= banks_1;
  end
  delay #(.BITS(2 * SHIFT), .CYCLES(2)) until_bytes (
      .clk, .in({from_1[SHIFT-1:0], from_0[SHIFT-1:0]}), .out({turn_1, turn_0})
  );

  for (genvar b = 0; b < L; b++) begin : bank
    (* no_rw_check *)  // bytes that are read and written in a cycle may be anything: no program uses such bytes
    logic [7:0]     memory[BYTES/L];
`ifdef CHECKS
    // It begins with random bytes, as memory on a chip does: programs read bytes that were never written and multiply
    // them by zero, at the borders of paddings. In Icarus, registers and the other memories but A begin unknown.
    integer state = b + 1, row;
    initial for (row = 0; row < BYTES / L; row = row + 1) memory[row] = $random(state);
`endif
    logic [ROW-1:0] row_0, row_1, row_write;
    // A bank before the first byte of a word has it one row further. Each compares for itself: a mask of all banks,
    // (1 << first) - 1, would be a chain of carries as long as the word.
    assign row_0     = from_0[SHIFT+:ROW] + ROW'((SHIFT+1)'(b) < {1'b0, from_0[SHIFT-1:0]});
    assign row_1     = from_1[SHIFT+:ROW] + ROW'((SHIFT+1)'(b) < {1'b0, from_1[SHIFT-1:0]});
    always_ff @(posedge clk) begin
      row_write       <= to[SHIFT+:ROW] + ROW'((SHIFT+1)'(b) < {1'b0, into});
      banks_0[8*b+:8] <= memory[row_0];
      banks_1[8*b+:8] <= memory[row_1];
      if (enable[b]) memory[row_write] <= rotated[8*b+:8];
    end
  end

  localparam logic [SHIFT-1:0] LOWER = SHIFT'((1 << SHIFT / 2) - 1);
  logic [8*L-1:0]   half_0, half_1;
  logic [SHIFT-1:0] rest_0, rest_1;
  logic [16*L-1:0]  upper_0, upper_1, turned_0, turned_1;
  assign upper_0  = {bytes_0, bytes_0} >> {turn_0 & ~LOWER, 3'b000};
  assign upper_1  = {bytes_1, bytes_1} >> {turn_1 & ~LOWER, 3'b000};
  assign turned_0 = {half_0, half_0} >> {rest_0, 3'b000};
  assign turned_1 = {half_1, half_1} >> {rest_1, 3'b000};
  always_ff @(posedge clk) begin
    half_0 <= upper_0[8*L-1:0];
    half_1 <= upper_1[8*L-1:0];
    rest_0 <= turn_0 & LOWER;
    rest_1 <= turn_1 & LOWER;
    data_0 <= turned_0[8*L-1:0];
    data_1 <= turned_1[8*L-1:0];
  end

  logic unused;
  assign unused = &{1'b0, address_0, address_1, write_address, upper_0, upper_1, turned_0, turned_1, doubled_data, doubled_mask};
endmodule
