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
  logic [31:0] one;
  always_comb begin
    case (element_type)
      2'd0: one = {{28{word[3]}}, word[3:0]};
      2'd1: one = {{24{word[7]}}, word[7:0]};
      2'd2: one = {{16{word[15]}}, word[15:0]};
      2'd3: one = word[31:0];
    endcase
  end
  for (genvar j = 0; j < LANES; j++) begin : lane
    logic [31:0] own;
    always_comb begin
      case (element_type)
        2'd0: own = {{28{word[4*j+3]}}, word[4*j+:4]};
        2'd1: own = {{24{word[8*j+7]}}, word[8*j+:8]};
        2'd2: own = {{16{word[16*j+15]}}, word[16*j+:16]};
        2'd3: own = word[32*j+:32];
      endcase
    end
    assign lanes[32*j+:32] = is_one ? one : own;
  end
endmodule
