// Who reads the cache: its two ports for the operands of VEC, the words of MOVE and the lines of a store.
//
// VEC asks for none, one or both of its operands, which it gets together. As long as all that is asked for is at most two
// reads, all is granted. Else who was refused in the last cycle comes first, so that nobody waits for long.
//
// Timing: grants are combinational; data are those of the cache, five cycles later, and the port that was granted is
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

    output logic [31:0]    address_0,
    input  logic [8*L-1:0] data_0,
    output logic [31:0]    address_1,
    input  logic [8*L-1:0] data_1
);
  // Who was refused in the last cycle.
  logic vec_waited, move_waited;
  // VEC takes both ports, or the others take one each; of three reads, MOVE and the store take turns.
  logic vec_both, vec_one;
  assign vec_both      = vec_a && vec_b;
  assign vec_one       = vec_a != vec_b;
  assign vec_granted   = vec_one || (vec_both && (vec_waited || !(move || store)));
  assign move_granted  = move && !(vec_both && vec_waited) && !(vec_one && store && !move_waited);
  assign store_granted = store && !(vec_both && vec_waited) && !(vec_one && move && move_waited);

  // VEC has port 0 for a and port 1 for b; the store prefers port 0, MOVE port 1.
  logic a_on_0, b_on_1, store_on_1, move_on_0;
  assign a_on_0     = vec_granted && vec_a;
  assign b_on_1     = vec_granted && vec_b;
  assign store_on_1 = a_on_0;
  assign move_on_0  = b_on_1 || (store_granted && store_on_1);

  assign address_0 = a_on_0 ? vec_address_a : store_granted && !store_on_1 ? store_address : move_address;
  assign address_1 = b_on_1 ? vec_address_b : store_granted && store_on_1 ? store_address : move_address;

  logic store_from_1, move_from_0;
  delay #(.BITS(2), .CYCLES(5)) until_data (.clk, .in({store_on_1, move_on_0}), .out({store_from_1, move_from_0}));
  assign vec_data_a = data_0;
  assign vec_data_b = data_1;
  assign store_data = store_from_1 ? data_1 : data_0;
  assign move_data  = move_from_0 ? data_0 : data_1;

  always_ff @(posedge clk) begin
    vec_waited  <= (vec_a || vec_b) && !vec_granted && !rst;
    move_waited <= move && !move_granted && !rst;
  end
endmodule
