// Compares a circuit with the vectors of weights.hex and values.hex: one row a cycle with gaps through `circuit`, then
// each of the first rows through `circuit_host`. Memories and registers begin with random numbers where a simulator can.
// Says `passed`, or ends with an error. Not for synthesis.
`timescale 1ns / 1ps
module testbench;
  `include "circuit.svh"
  `include "vectors.svh"

  reg clk = 0, rst = 1, in_valid = 0, host_write = 0, host_read = 0;
  reg [7:0] host_address = 0;
  reg [31:0] host_write_data = 0;
  wire [31:0] host_read_data;
  reg [INPUTS*INPUT_BITS-1:0] weights = 0;
  wire out_valid;
  wire [OUTPUTS*OUTPUT_BITS-1:0] values;
  circuit device (.clk, .rst, .in_valid, .weights, .out_valid, .values);
  circuit_host host (.clk, .rst, .host_write, .host_read, .host_address, .host_write_data, .host_read_data);

  reg [INPUTS*INPUT_BITS-1:0] given[0:ROWS-1];
  reg [OUTPUTS*OUTPUT_BITS-1:0] expected[0:ROWS-1];
  integer sent = 0, come = 0, cycle = 0, row, i, seed = 1;

  task fail;
    begin
      $display("failed: row %0d has %h, expected %h", come, values, expected[come]);
      $fatal(1);
    end
  endtask

  task write_register(input reg [7:0] address, input reg [31:0] data);
    begin
      host_write = 1;
      host_address = address;
      host_write_data = data;
      #1 clk = 1;
      #1 clk = 0;
      host_write = 0;
    end
  endtask

  task read_register(input reg [7:0] address);
    begin
      host_read = 1;
      host_address = address;
      #1 clk = 1;
      #1 clk = 0;
      host_read = 0;
    end
  endtask

  initial begin
    $readmemh("weights.hex", given);
    $readmemh("values.hex", expected);
    for (i = 0; i < 4; i = i + 1) begin
      #1 clk = 1;
      #1 clk = 0;
    end
    rst = 0;
    while (come < ROWS) begin
      in_valid = sent < ROWS && $random(seed) % 4 != 0;
      weights = in_valid ? given[sent] : {(INPUTS * INPUT_BITS + 31) / 32{$random(seed)}};
      if (in_valid) sent = sent + 1;
      #1;
      if (out_valid) begin
        if (values !== expected[come]) fail;
        come = come + 1;
      end
      clk = 1;
      #1 clk = 0;
      cycle = cycle + 1;
      if (cycle > 16 * ROWS + 2 * LATENCY + 100) begin
        $display("failed: %0d rows of %0d came in %0d cycles", come, ROWS, cycle);
        $fatal(1);
      end
    end
    for (row = 0; row < ROWS && row < 3; row = row + 1) begin
      write_register(8'h18, 0);
      for (i = 0; i < INPUTS; i = i + 1) write_register(8'h1c, 32'(given[row][INPUT_BITS*i+:INPUT_BITS]));
      write_register(8'h00, 1);
      read_register(8'h00);
      for (i = 0; !host_read_data[1] && i < LATENCY + 16; i = i + 1) read_register(8'h00);
      write_register(8'h18, 0);
      for (i = 0; i < OUTPUTS; i = i + 1) begin
        read_register(8'h20);
        if (host_read_data !== 32'(expected[row][OUTPUT_BITS*i+:OUTPUT_BITS])) begin
          $display("failed: by the host, root %0d of row %0d is %h", i, row, host_read_data);
          $fatal(1);
        end
      end
    end
    $display("passed: %0d rows, latency %0d cycles", ROWS, LATENCY);
    $finish;
  end
endmodule
