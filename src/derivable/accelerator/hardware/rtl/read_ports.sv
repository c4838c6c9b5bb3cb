// Who reads the cache: its two ports for the operands of VEC, the words of MOVE and the lines of a store.
//
// VEC asks for none, one or both of its operands, which it gets together. As long as all that is asked for is at most two
// reads, all is granted. Else who was refused in the last cycle comes first, so that nobody waits for long.
//
// Timing: grants are combinational; data are those of the cache, two cycles later, and the port that was granted is
// remembered until then.
module read_ports #(
    parameter int L = 32
) (
    input  logic           clk,
    input  logic           rst,

    input  logic           vec_a,
    input  logic           vec_b,
    input  logic [31:0]    vec_address_a,
    input  logic [31:0]    vec_address_b,
    output logic           vec_granted,
    output logic [8*L-1:0] vec_data_a,
    output logic [8*L-1:0] vec_data_b,

    input  logic           move,
    input  logic [31:0]    move_address,
    output logic           move_granted,
    output logic [8*L-1:0] move_data,

    input  logic           store,
    input  logic [31:0]    store_address,
    output logic           store_granted,
    output logic [8*L-1:0] store_data,

    output logic           read_0,
    output logic [31:0]    address_0,
    input  logic [8*L-1:0] data_0,
    output logic           read_1,
    output logic [31:0]    address_1,
    input  logic [8*L-1:0] data_1
);
  // Who was refused in the last cycle.
  logic vec_waited, move_waited;
  logic is_crowded;
  assign is_crowded = 3'(vec_a) + 3'(vec_b) + 3'(move) + 3'(store) > 3'd2;

  always_comb begin
    vec_granted   = vec_a || vec_b;
    move_granted  = move;
    store_granted = store;
    if (is_crowded) begin
      if (vec_a && vec_b) begin
        // VEC takes both ports, or the others take one each.
        vec_granted   = vec_waited;
        move_granted  = move && !vec_waited;
        store_granted = store && !vec_waited;
      end else begin
        // Three reads: MOVE and the store take turns.
        move_granted  = move_waited;
        store_granted = !move_waited;
      end
    end
  end

  // VEC has port 0 for a and port 1 for b; the store prefers port 0, MOVE port 1.
  logic a_on_0, b_on_1, store_on_1, move_on_0;
  assign a_on_0     = vec_granted && vec_a;
  assign b_on_1     = vec_granted && vec_b;
  assign store_on_1 = a_on_0;
  assign move_on_0  = b_on_1 || (store_granted && store_on_1);

  assign read_0    = a_on_0 || (store_granted && !store_on_1) || (move_granted && move_on_0);
  assign read_1    = b_on_1 || (store_granted && store_on_1) || (move_granted && !move_on_0);
  assign address_0 = a_on_0 ? vec_address_a : store_granted && !store_on_1 ? store_address : move_address;
  assign address_1 = b_on_1 ? vec_address_b : store_granted && store_on_1 ? store_address : move_address;

  logic store_from_1, move_from_0;
  delay #(.BITS(2), .CYCLES(2)) until_data (.clk, .in({store_on_1, move_on_0}), .out({store_from_1, move_from_0}));
  assign vec_data_a = data_0;
  assign vec_data_b = data_1;
  assign store_data = store_from_1 ? data_1 : data_0;
  assign move_data  = move_from_0 ? data_0 : data_1;

  always_ff @(posedge clk) begin
    vec_waited  <= (vec_a || vec_b) && !vec_granted && !rst;
    move_waited <= move && !move_granted && !rst;
  end
endmodule
