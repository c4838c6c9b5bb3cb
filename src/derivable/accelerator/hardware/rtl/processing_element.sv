// One multiplier, the register of its stationary operand, the two registers that its other operand comes through, and
// the register of the sum that goes down the column.
//
//                 weight/stream above   sum above
//                          |   |            |
//              load --> [stationary]        |
//                          |   |            |
//                          | [passing]      |
//                          |   |            |
//   from the left ---------|->(mux)         |
//                          |   |            |
//                          | [streaming] ---|--> to the right; below: to the next passing register
//                          |   |            |
//                         (multiplier)-->  (+)
//                                           |
//                                         [sum]
//                                           |
// GEMM (circular = 0): the passing register is bypassed, inputs come from the left and go right, a cycle each.
// Circular convolution (circular = 1): inputs come from above, through two registers. So the stream falls half as fast
// as the sums, and a sum that is one row further down meets a value that is one place earlier in the stream.
//
// Timing: an input from the left is in `streaming` after 1 cycle (from above after 2), its product leaves the multiplier
// four cycles later, and is in `sum` one cycle later. While `load` is set the stationary registers of a column shift
// down; the product of the cycle in which they first shift is still that of the old value. Without `enable` all registers
// keep their values.
module processing_element (
    input  wire        clk,
    input  wire        enable,
    input  wire        circular,
    input  wire        nibbles,
    input  wire        split,
    input  wire        load,
    input  wire [ 7:0] stationary_above,
    input  wire [ 7:0] streaming_above,
    input  wire [ 7:0] left,
    input  wire [31:0] sum_above,
    output reg  [ 7:0] stationary,
    output reg  [ 7:0] streaming,
    output reg  [31:0] sum
);
  reg  [ 7:0] passing;
  wire [31:0] product;

  multiplier multiplier (
      .clk,
      .enable,
      .nibbles,
      .split,
      .a(stationary),
      .b(streaming),
      .product
  );

  always_ff @(posedge clk)
    if (enable) begin
      if (load) stationary <= stationary_above;
      passing   <= streaming_above;
      streaming <= circular ? passing : left;
      sum       <= sum_above + product;
    end
endmodule
