// The elements of a word, a lane each: int4 two in a byte, low nibble first, int8, int16 or int32, little endian; or the
// first of them for all lanes. Without a register.
module unpack #(
    parameter int LANES = 8
) (
    input  logic [32*LANES-1:0] word,
    input  logic [1:0]          element_type,
    input  logic                is_one,
    output logic [32*LANES-1:0] lanes
);
  logic [32*LANES-1:0] own;
  for (genvar j = 0; j < LANES; j++) begin : element
    assign own[32*j+:32] = element_type == 2'd0 ? {{28{word[4*j+3]}}, word[4*j+:4]}
                         : element_type == 2'd1 ? {{24{word[8*j+7]}}, word[8*j+:8]}
                         : element_type == 2'd2 ? {{16{word[16*j+15]}}, word[16*j+:16]}
                         : word[32*j+:32];
    assign lanes[32*j+:32] = is_one ? own[31:0] : own[32*j+:32];
  end
endmodule
