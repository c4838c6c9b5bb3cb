// Words of a line, dealt out to N banks: bank n has the one whose number is `which[n]`. Without a register.
module deal #(
    parameter int N    = 2,
    parameter int SIZE = 8,   // bytes of a word
    parameter int L    = 32
) (
    input  logic [8*L-1:0]      line,
    input  logic [4*N-1:0]      which,  // below N and L / SIZE
    output logic [8*SIZE*N-1:0] words
);
  localparam int COUNT = N < L / SIZE ? N : L / SIZE;
  localparam int BITS = COUNT > 1 ? $clog2(COUNT) : 1;
  logic [8*SIZE-1:0] listed[COUNT];
  for (genvar i = 0; i < COUNT; i++) begin : word
    assign listed[i] = line[8*SIZE*i+:8*SIZE];
  end
  for (genvar n = 0; n < N; n++) begin : bank
    if (COUNT == 1) assign words[8*SIZE*n+:8*SIZE] = listed[0];
    else assign words[8*SIZE*n+:8*SIZE] = listed[which[4*n+:BITS]];
  end
  logic unused;
  assign unused = &{1'b0, line, which};
endmodule
