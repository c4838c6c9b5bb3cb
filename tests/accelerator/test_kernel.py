"""The kernel's AXI4-Lite port, cycle by cycle, with registers in the place of the accelerator."""

import numpy as np
import pytest

from accelerator.player import Player
from derivable.accelerator import elaboration, verilator

pytestmark = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")

# The ports of the accelerator; what is written at an address is read there, in the next cycle.
REGISTERS = """
  logic [31:0] registers[64];
  always_ff @(posedge clk) begin
    if (host_write) registers[host_address[7:2]] <= host_write_data;
    if (host_read) host_read_data <= registers[host_address[7:2]];
  end
  assign ar_address = {63'd0, rst};
  assign ar_valid = rst;
endmodule
"""


@pytest.fixture(scope="module")
def kernel():
    files = elaboration.hardware("kernel").files
    ports = files["accelerator.sv"].split(");")[0] + ");"
    lite = {"awvalid": 1, "awaddr": 12, "wvalid": 1, "wdata": 32, "wstrb": 4, "bready": 1}
    lite |= {"arvalid": 1, "araddr": 12, "rready": 1}
    back = {"awready": 1, "wready": 1, "bvalid": 1, "arready": 1, "rvalid": 1, "rdata": 32, "bresp": 2, "rresp": 2}
    inputs = {"ap_rst_n": 1} | {f"s_axi_control_{name}": bits for name, bits in lite.items()}
    outputs = {f"s_axi_control_{name}": bits for name, bits in back.items()} | {"m_axi_memory_arvalid": 1}
    # A player calls its clock `clk`.
    extra = {"accelerator.sv": ports + REGISTERS, "kernel.sv": files["kernel.sv"].replace("ap_clk", "clk")}
    return Player("kernel", {}, inputs, outputs, extra)


def play(kernel, cycles, **values):
    """After 80 cycles, which the reset takes; 0 where nothing is given."""
    given = {"ap_rst_n": np.arange(80 + cycles) >= 3}
    for name, at in values.items():
        column = np.zeros(80 + cycles, np.int64)
        for first, last, value in at:
            column[80 + first : 80 + last + 1] = value
        given[f"s_axi_control_{name}"] = column
    found = kernel.play(80 + cycles, **given)
    shown = {}
    for name, rows in found.items():
        number = np.zeros(len(rows), np.int64)
        for byte in range(rows.shape[1]):
            number |= rows[:, byte].astype(np.int64) << (8 * byte)
        shown[name.removeprefix("s_axi_control_")] = number
    return shown


def high(found, name):
    """The cycles after the reset in which an output is 1."""
    return (np.flatnonzero(found[name]) - 80).tolist()


def test_registers_are_written_and_read(kernel):
    found = play(
        kernel, 40,
        # An address that waits for its data; data that wait for their address; an answer that is not taken at once.
        awvalid=[(2, 5, 1), (12, 12, 1), (20, 26, 1)], awaddr=[(2, 5, 0x10), (12, 12, 0x14), (20, 26, 0x18)],
        wvalid=[(5, 5, 1), (10, 12, 1), (20, 26, 1)], wdata=[(5, 5, 111), (10, 12, 222), (20, 26, 333)],
        bready=[(5, 21, 1), (24, 40, 1)],
        # A read at the same time as a write comes after it; an answer that is not taken at once stays.
        arvalid=[(12, 13, 1), (30, 30, 1), (34, 34, 1)], araddr=[(12, 13, 0x14), (30, 30, 0x10), (34, 34, 0x18)],
        rready=[(0, 31, 1), (33, 40, 1)],
    )  # fmt: skip
    assert high(found, "awready") == high(found, "wready") == [5, 12, 20, 22, 25]
    assert high(found, "bvalid") == [6, 13, 21, 23, 24, 26]
    assert high(found, "arready") == [13, 30, 34]
    assert high(found, "rvalid") == [15, 32, 33, 36]
    assert found["rdata"][[80 + 15, 80 + 32, 80 + 33, 80 + 36]].tolist() == [222, 111, 111, 333]
    assert not found["bresp"].any()
    assert not found["rresp"].any()


def test_the_reset_inside_is_as_long_as_the_accelerator_asks(kernel):
    found = play(kernel, 1, awvalid=[(-40, -40, 1)], wvalid=[(-40, -40, 1)])
    # `rst` is shown as arvalid: 63 cycles after the one from outside ends, in which no transfer is taken.
    assert high(found, "m_axi_memory_arvalid") == list(range(-79, -14))
    assert not found["awready"].any()
