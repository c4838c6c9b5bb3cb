// A circuit behind the host port of an accelerator: words of 32 bits at byte addresses; what is read comes in the next
// cycle.
//
//   0x00  control  write bit 0: start; read bit 0: running, bit 1: done since the start, bit 2: idle
//   0x18  index    of the next weight that is written and of the next value that is read
//   0x1c  weight   writes it; the index goes to the next
//   0x20  value    of a root; reading it moves the index to the next
//   0x24  cycles   from the start until the values were there
//
// Reset: `rst` is synchronous, and high for at least a cycle at first.
module circuit_host (
    input  wire        clk,
    input  wire        rst,
    input  wire        host_write,
    input  wire        host_read,
    input  wire [ 7:0] host_address,
    input  wire [31:0] host_write_data,
    output reg  [31:0] host_read_data
);
  `include "circuit.svh"

  reg [INPUTS*INPUT_BITS-1:0] weights;
  wire [OUTPUTS*OUTPUT_BITS-1:0] values;
  reg [OUTPUTS*OUTPUT_BITS-1:0] held;
  reg [31:0] index, cycles;
  reg starts, running, has_run;
  wire done;
  circuit evaluator (.clk, .rst, .in_valid(starts), .weights, .out_valid(done), .values);

  for (genvar i = 0; i < INPUTS; i = i + 1) begin : weight
    always_ff @(posedge clk)
      if (host_write && host_address == 8'h1c && index == i)
        weights[INPUT_BITS*i+:INPUT_BITS] <= host_write_data[INPUT_BITS-1:0];
  end

  always_ff @(posedge clk) begin
    starts <= host_write && host_address == 8'h00 && host_write_data[0] && !running && !rst;
    if (running) cycles <= cycles + 32'd1;
    if (done) begin
      held    <= values;
      running <= 1'b0;
      has_run <= 1'b1;
    end
    if (host_write) begin
      case (host_address)
        8'h00:
        if (host_write_data[0] && !running) begin
          running <= 1'b1;
          has_run <= 1'b0;
          cycles  <= '0;
        end
        8'h18: index <= host_write_data;
        8'h1c: index <= index + 32'd1;
        default: ;
      endcase
    end
    if (host_read) begin
      case (host_address)
        8'h00: host_read_data <= {29'd0, !running, has_run, running};
        8'h20: begin
          host_read_data <= index < OUTPUTS ? 32'(held[OUTPUT_BITS*index+:OUTPUT_BITS]) : '0;
          index          <= index + 32'd1;
        end
        8'h24: host_read_data <= cycles;
        default: host_read_data <= '0;
      endcase
    end
    if (rst) begin
      running <= 1'b0;
      has_run <= 1'b0;
      index   <= '0;
    end
  end
endmodule
