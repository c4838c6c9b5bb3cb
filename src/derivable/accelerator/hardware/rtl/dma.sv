// Moves lines of L bytes between the memory off the chip and the cache X.
//
// The port is AXI-like: bursts of whole lines, never across a boundary of 4096 bytes, addresses ahead of the data, so
// that the latency of the memory is paid once an instruction and not once a burst. `ready` of every channel may fall at
// any time. A load writes one line a cycle while lines come and the cache takes them; a store reads the cache as long as
// its buffer has room for what is under way.
//
// Timing: the first address two cycles after the instruction was taken, and a cycle between one and the next; `done` two
// cycles after the last line of a load was taken, one cycle after the last answer to a store.
module dma #(
    parameter int L = 64
) (
    input  logic           clk,
    input  logic           rst,

    input  logic           valid,
    input  logic [511:0]   instruction,
    output logic           ready,
    output logic           done,

    // The cache: a request is repeated until it is granted.
    output logic           read,
    input  logic           read_granted,
    output logic [31:0]    read_address,
    input  logic [8*L-1:0] read_data,     // five cycles after the grant
    output logic           write,
    input  logic           write_granted,
    output logic [31:0]    write_address,
    output logic [8*L-1:0] write_data,

    output logic           ar_valid,
    input  logic           ar_ready,
    output logic [31:0]    ar_address,
    output logic [7:0]     ar_lines,      // of this burst, less one
    input  logic           r_valid,
    output logic           r_ready,
    input  logic [8*L-1:0] r_data,
    output logic           aw_valid,
    input  logic           aw_ready,
    output logic [31:0]    aw_address,
    output logic [7:0]     aw_lines,
    output logic           w_valid,
    input  logic           w_ready,
    output logic [8*L-1:0] w_data,
    output logic           w_last,
    input  logic           b_valid,
    output logic           b_ready
);
  `include "isa.svh"

  localparam int PAGE = 4096 / L;  // lines between two boundaries
  localparam int BURST = PAGE < 256 ? PAGE : 256;
  localparam int SHIFT = $clog2(L);
  localparam int LINES = DMA_LINES_BITS;

  localparam logic [1:0] IDLE = 2'd0, LOAD = 2'd1, STORE = 2'd2, FINISH = 2'd3;
  logic [1:0] state;

  logic [31:0] burst_address;   // of the next burst to be issued
  logic [LINES-1:0] burst_left;      // lines not issued yet
  logic [LINES-1:0] lines;           // of the next burst, once it is `sized`
  logic [LINES-1:0] room;            // until the next boundary
  logic             sized;
  logic [31:0] cache_address;   // of the next line
  logic [LINES-1:0] lines_left;      // lines that have not come (load) or gone (store)
  logic [LINES-1:0] reads_left;      // lines of a store that have not been read
  logic [LINES-1:0] answers_left;    // bursts of a store that are issued and not answered
  logic        issued;
  // Whether any are left, as registers: what depends on them goes on to the ports of the cache in the same cycle.
  logic        loading, reading;

  // A burst ends at the next boundary or with the instruction.
  assign room  = LINES'(BURST) - (LINES'(burst_address >> SHIFT) & LINES'(BURST - 1));
  assign issued = (ar_valid && ar_ready) || (aw_valid && aw_ready);
  assign ready = state == IDLE;

  assign ar_valid   = state == LOAD && sized;
  assign ar_address = burst_address;
  assign ar_lines   = 8'(lines - LINES'(1));
  assign aw_valid   = state == STORE && sized;
  assign aw_address = burst_address;
  assign aw_lines   = 8'(lines - LINES'(1));

  // Load: a line goes straight into the cache.
  logic taken;
  assign write         = loading && r_valid;
  assign write_address = cache_address;
  assign write_data    = r_data;
  assign r_ready       = write && write_granted;
  assign taken         = r_valid && r_ready;

  // Store: eight lines are buffered; five reads may be under way.
  logic [8*L-1:0] buffer[8];
  logic [2:0]     buffer_in, buffer_out;
  logic [3:0]     held;      // lines in the buffer and under way to it
  logic [4:0]     underway;  // reads granted one to five cycles ago
  logic [3:0]     filled;    // lines in the buffer
  logic           sent, granted;
  logic [31:0]    send_address;  // off-chip address of the line that is sent next: it says where bursts end
  assign read         = reading && !held[3];
  assign read_address = cache_address;
  assign granted      = read && read_granted;
  assign w_valid      = filled != 0;
  assign w_data       = buffer[buffer_out];
  assign w_last       = lines_left == LINES'(1) || &send_address[SHIFT+:$clog2(BURST)];
  assign sent         = w_valid && w_ready;
  assign b_ready      = 1'b1;

  always_ff @(posedge clk) begin
    underway <= {underway[3:0], granted};
    held     <= held + 4'(granted) - 4'(sent);
    filled   <= filled + 4'(underway[4]) - 4'(sent);
    if (underway[4]) begin
      buffer[buffer_in] <= read_data;
      buffer_in         <= buffer_in + 3'd1;
    end
    if (sent) begin
      buffer_out   <= buffer_out + 3'd1;
      send_address <= send_address + 32'(L);
    end
    if (!sized) lines <= burst_left < room ? burst_left : room;
    sized <= burst_left != 0 && !issued && state != IDLE;
    if (issued) begin
      burst_address <= burst_address + (32'(lines) << SHIFT);
      burst_left    <= burst_left - lines;
    end
    answers_left <= answers_left + LINES'(aw_valid && aw_ready) - LINES'(b_valid);
    if (taken || sent) lines_left <= lines_left - LINES'(1);
    if (taken || granted) cache_address <= cache_address + 32'(L);
    if (granted) reads_left <= reads_left - LINES'(1);
    if (taken && lines_left == LINES'(1)) loading <= 1'b0;
    if (granted && reads_left == LINES'(1)) reading <= 1'b0;

    done <= 1'b0;
    case (state)
      IDLE:
      if (valid) begin
        state         <= instruction[OPERATION_LSB+:4] == DMA_STORE ? STORE : LOAD;
        burst_address <= instruction[DMA_FAR_LSB+:32];
        send_address  <= instruction[DMA_FAR_LSB+:32];
        cache_address <= 32'(instruction[DMA_X_LSB+:DMA_X_BITS]);
        burst_left    <= instruction[DMA_LINES_LSB+:LINES];
        lines_left    <= instruction[DMA_LINES_LSB+:LINES];
        reads_left    <= instruction[DMA_LINES_LSB+:LINES];
        loading       <= instruction[OPERATION_LSB+:4] != DMA_STORE && instruction[DMA_LINES_LSB+:LINES] != 0;
        reading       <= instruction[OPERATION_LSB+:4] == DMA_STORE && instruction[DMA_LINES_LSB+:LINES] != 0;
      end
      LOAD:
      if (lines_left == LINES'(1) && taken) state <= FINISH;
      STORE:
      if (lines_left == 0 && burst_left == 0 && answers_left == LINES'(b_valid)) state <= FINISH;
      FINISH: begin  // What was written last is seen by reads from the next cycle on.
        state <= IDLE;
        done  <= 1'b1;
      end
    endcase

    if (rst) begin
      state        <= IDLE;
      loading      <= 1'b0;
      reading      <= 1'b0;
      underway     <= '0;
      held         <= '0;
      filled       <= '0;
      buffer_in    <= '0;
      buffer_out   <= '0;
      answers_left <= '0;
      done         <= 1'b0;
    end
  end

  logic unused;
  assign unused = &{1'b0, instruction};
endmodule
