// Lanes as bytes of a word, and which of its bytes count: the other way round of `unpack`. A byte of two int4 counts with
// its first lane; a second lane that does not count is zero in it. Without a register.
module pack #(
    parameter int LANES = 8  // even
) (
    input  logic [32*LANES-1:0] lanes,
    input  logic [LANES-1:0]    live,
    input  logic [1:0]          element_type,
    output logic [32*LANES-1:0] word,
    output logic [4*LANES-1:0]  mask
);
  logic [4*LANES-1:0]  nibbles;
  logic [8*LANES-1:0]  bytes;
  logic [16*LANES-1:0] halves;
  logic [LANES/2-1:0]  mask_nibbles;
  logic [2*LANES-1:0]  mask_halves;
  logic [4*LANES-1:0]  mask_words;
  for (genvar j = 0; j < LANES; j++) begin : lane
    assign nibbles[4*j+:4]    = live[j] ? lanes[32*j+:4] : 4'd0;
    assign bytes[8*j+:8]      = lanes[32*j+:8];
    assign halves[16*j+:16]   = lanes[32*j+:16];
    assign mask_halves[2*j+:2] = {2{live[j]}};
    assign mask_words[4*j+:4] = {4{live[j]}};
    if (j % 2 == 0) assign mask_nibbles[j/2] = live[j];
  end
  always_comb begin
    case (element_type)
      2'd0: {word, mask} = {(32 * LANES)'(nibbles), (4 * LANES)'(mask_nibbles)};
      2'd1: {word, mask} = {(32 * LANES)'(bytes), (4 * LANES)'(live)};
      2'd2: {word, mask} = {(32 * LANES)'(halves), (4 * LANES)'(mask_halves)};
      2'd3: {word, mask} = {lanes, mask_words};
    endcase
  end
endmodule
