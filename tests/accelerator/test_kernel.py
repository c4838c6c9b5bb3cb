"""The kernel of Vitis: its AXI4-Lite port cycle by cycle, with registers in the place of the accelerator; programs on
the whole of it, with a host and a memory that do all that AXI allows; and that memory on masters that do more."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from accelerator.card import Card, CardError, load
from accelerator.player import Player
from accelerator.random_programs import SMALL, Composer, random_program
from derivable.accelerator.hardware import elaboration, verilator
from derivable.accelerator.machine import machine
from derivable.accelerator.machine.instructions import Transfer

pytestmark = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")

# The ports of the accelerator; what is written at an address is read there, in the next cycle.
REGISTERS = """
  logic [31:0] registers[64];
  always_ff @(posedge clk) begin
    if (host_write) registers[host_address[7:2]] <= host_write_data;
    if (host_read) host_read_data <= registers[host_address[7:2]];
  end
  assign aw_lines = {8{rst}};
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
    outputs = {f"s_axi_control_{name}": bits for name, bits in back.items()} | {"m_axi_memory_awlen": 8}
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
        kernel, 42,
        # An address that waits for its data; data that wait for their address; four writes, the answer to the first of
        # which is not taken at once, so that the fourth has to wait.
        awvalid=[(2, 2, 1), (12, 12, 1), (20, 26, 1)], awaddr=[(2, 2, 0x10), (12, 12, 0x14), (20, 26, 0x18)],
        wvalid=[(5, 5, 1), (10, 10, 1), (20, 26, 1)],
        wdata=[(5, 5, 111), (10, 10, 222), (20, 20, 333), (21, 21, 334), (22, 22, 335), (23, 26, 336)],
        bready=[(5, 21, 1), (24, 41, 1)],
        # A read at the same time as a write comes after it; an answer that is not taken at once stays.
        arvalid=[(12, 12, 1), (33, 33, 1), (36, 36, 1)], araddr=[(12, 12, 0x14), (33, 33, 0x10), (36, 36, 0x18)],
        rready=[(0, 35, 1), (37, 41, 1)],
    )  # fmt: skip
    assert not {2, 12, *range(20, 23), 26} - set(high(found, "awready"))
    assert not {5, 10, *range(20, 23), 26} - set(high(found, "wready"))
    # Two transfers are held: the ports are ready until both places are full, whatever is offered then.
    assert not {23, 24, 25, 27} & {*high(found, "awready"), *high(found, "wready")}
    assert high(found, "bvalid") == [7, 14, 22, 23, 24, 26, 28, 30]
    assert not {12, 33, 36} - set(high(found, "arready"))
    assert high(found, "rvalid") == [16, 36, 37, 40]
    assert found["rdata"][[80 + 16, 80 + 36, 80 + 37, 80 + 40]].tolist() == [222, 111, 111, 336]
    assert not found["bresp"].any()
    assert not found["rresp"].any()


def test_the_reset_inside_is_as_long_as_the_accelerator_asks(kernel):
    found = play(kernel, 1, awvalid=[(-40, -40, 1)], wvalid=[(-40, -40, 1)])
    # `rst` goes out as awlen: 63 cycles after the one from outside ends, in which no transfer is taken.
    assert high(found, "m_axi_memory_awlen") == list(range(-78, -13))
    assert all(at < -78 or at >= -13 for at in high(found, "awready"))
    assert not [at for at in high(found, "bvalid") if at >= -78]


@pytest.fixture(scope="module")
def skid():
    inputs = {"rst": 1, "in_valid": 1, "in_data": 8, "out_ready": 1}
    return Player("skid", {"BITS": 8}, inputs, {"in_ready": 1, "out_valid": 1, "out_data": 8})


@pytest.mark.parametrize(("offered", "taken"), [(100, 100), (100, 50), (50, 100), (60, 60), (100, 10), (10, 100)])
def test_a_skid_hands_over_all_in_order_and_one_a_cycle(skid, offered, taken):
    cycles, rng = 600, np.random.default_rng(offered * taken)
    ready = (rng.integers(100, size=cycles) < taken).tolist()
    willing = (rng.integers(100, size=cycles) < offered).tolist()
    # A sender keeps what it offers until it is taken: the plan is found by a queue of two places, and then played.
    places, valid, data, takes, comes, number, is_offered, is_open = [], [], [], [], [], 0, False, False
    for cycle in range(cycles):
        is_offered = (is_offered or willing[cycle]) and cycle >= 3
        valid.append(is_offered)
        data.append(number % 251)
        takes.append(is_open)
        comes.append(places[0] if places else None)
        leaves, enters = bool(places) and ready[cycle], is_offered and is_open
        places = places[leaves:] + [data[-1]] * enters
        number, is_offered = number + enters, is_offered and not enters
        is_open = cycle >= 2 and len(places) < 2
    found = skid.play(
        cycles, rst=np.arange(cycles) < 2, in_valid=np.array(valid), in_data=np.array(data), out_ready=np.array(ready)
    )
    assert found["in_ready"][1:, 0].tolist() == takes[1:]
    assert found["out_valid"][1:, 0].tolist() == [place is not None for place in comes[1:]]
    assert [int(n) for n, place in zip(found["out_data"][:, 0], comes) if place is not None] == [
        place for place in comes if place is not None
    ]
    if offered == taken == 100:
        assert number == cycles - 3


BASE = 0x3_FFFF_F000  # memory lies on both sides of 4 GiB
CONTROL, ERRORS, IDENTITY = 0x00, 0x48, 0x4C


@pytest.mark.parametrize("port", [16, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(12))
def test_programs_are_exact_whatever_the_memory_does(seed, port):
    program, far = random_program(SMALL, seed, 60)
    # A latency within which a whole page could come, or answers whenever they like, and few at a time.
    options = [{"latency": 150}, {"seed": seed, "refuse": 45, "late": 60, "bursts": 1 + seed % 3, "order": seed % 3}]
    card = Card(SMALL, far, BASE, port, **options[seed % 4 != 0])
    card.load(program.words)
    card.run()
    np.testing.assert_array_equal(card.memory, machine.run(SMALL, program, far).memory)
    counts = card.counts()
    assert counts["longest"] == 4096 // port
    assert counts["most_reads"] == counts["most_writes"] == 4 if seed % 4 == 0 else counts["most_reads"] == 1 + seed % 3
    if seed % 4:
        assert min(counts[channel] for channel in ("ar", "aw", "w")) > 50
    # B is always taken at once. A line waits where the lanes write; every write was late enough to be seen.
    assert counts["b"] == 0
    assert (counts["data_first"] == counts["writes"]) == (seed % 3 == 2 and seed % 4 != 0)
    assert card.read(ERRORS) == 0
    card.close()


def transfers(*lines: int):
    """Loads of that many lines to the beginning of X, one behind the other, and a store of what came last."""
    composer = Composer(SMALL, 3)
    for number, count in enumerate(lines):
        composer.must(Transfer(operation="load", x=0, far=number * SMALL.line, lines=count))
    composer.must(Transfer(operation="store", x=0, far=2 * SMALL.x + 4064, lines=max(lines)))
    return composer.program(), composer.far


def test_bursts_end_at_pages_and_latency_is_paid_once_a_transfer():
    program, far = transfers(1, 127, 128, 129, 300)
    found = {}
    for latency in (10, 110):
        card = Card(SMALL, far, BASE, latency=latency)
        card.load(program.words)
        found[latency] = card.run()
        # Loads from line 0, 1, .. of a page: 1, 1, 2, 2 and 3 bursts. The store begins with the last line of a page.
        assert (card.counts()["reads"], card.counts()["writes"]) == (9, 4)
        np.testing.assert_array_equal(card.memory, machine.run(SMALL, program, far).memory)
        card.close()
    assert found[110] - found[10] == 6 * 100


def test_a_transfer_comes_and_one_goes_in_every_cycle():
    found = []
    for lines in (128, 256):
        program, far = transfers(lines)
        card = Card(SMALL, far, BASE, latency=10)
        card.load(program.words)
        found.append(card.run())
        card.close()
    # A line is two transfers of the port: 128 lines more are loaded, and then stored.
    assert found[1] - found[0] == 2 * 128 + 2 * 128


@pytest.mark.parametrize(("option", "expected"), [("fail_read", 1), ("fail_write", 2)])
def test_memory_that_fails_is_told_until_the_next_start(option, expected):
    program, far = transfers(200, 10)
    card = Card(SMALL, far, **{option: 2})
    card.load(program.words)
    card.run()
    assert card.read(ERRORS) == expected
    assert (card.memory != machine.run(SMALL, program, far).memory).any()
    card.run()
    assert card.read(ERRORS) == 0
    np.testing.assert_array_equal(card.memory, machine.run(SMALL, program, far).memory)
    card.close()


def test_a_reset_ends_a_run_and_the_next_one_is_whole():
    program, far = random_program(SMALL, 30, 60)  # one that reads nothing that runs before it left
    expected = machine.run(SMALL, program, far).memory
    card = Card(SMALL, far, seed=5, refuse=20, late=20)
    card.load(program.words)
    for cycles in (10, 300, 700, 1500):
        card.write(CONTROL, 1)
        card.ticks(cycles)
        card.reset(3)
        assert card.read(CONTROL) == 4
        card.memory[:] = far
    card.run()
    np.testing.assert_array_equal(card.memory, expected)
    card.close()


def test_registers_that_are_none_and_the_identity():
    program, far = transfers(5)
    card = Card(SMALL, far)
    card.load(program.words)
    card.write(0x100, 1)
    card.ticks(100)
    assert card.read(CONTROL) == 4
    assert card.read(0x100) == card.read(0xFFC) == card.read(0x50) == 0
    assert card.read(IDENTITY) == elaboration.kernel(SMALL).parameters["IDENTITY"] > 0
    other = elaboration.kernel(replace(SMALL, height=8)).parameters["IDENTITY"]
    assert card.read(IDENTITY) != other
    card.close()


NONE = (0, 0, 0, 0, 0)
GOOD = (1, 1 << 20, 3, 4, 1)  # valid, address, transfers less one, size, burst


@pytest.mark.parametrize(
    ("cycles", "message"),
    [
        # What the master drives on AR, AW and W (valid, byte, strobes, last), cycle by cycle.
        ([(GOOD, NONE, NONE), (NONE, NONE, NONE)], "ARVALID fell before ARREADY"),
        ([(GOOD, NONE, NONE), ((1, (1 << 20) + 16, 3, 4, 1), NONE, NONE)], "AR changed while it waited"),
        ([(NONE, GOOD, NONE), (NONE, NONE, NONE)], "AWVALID fell before AWREADY"),
        ([(NONE, GOOD, NONE), (NONE, (1, 1 << 20, 2, 4, 1), NONE)], "AW changed while it waited"),
        ([(NONE, NONE, (1, 7, 255, 0)), (NONE, NONE, NONE)], "WVALID fell before WREADY"),
        ([(NONE, NONE, (1, 7, 255, 0)), (NONE, NONE, (1, 8, 255, 0))], "W changed while it waited"),
        ([(NONE, NONE, (1, 7, 255, 0)), (NONE, NONE, (1, 7, 255, 1))], "W changed while it waited"),
        ([((1, 1 << 20, 3, 3, 1), NONE, NONE)], "a transfer is not as wide as the port"),
        ([((1, 1 << 20, 3, 4, 0), NONE, NONE)], "a burst does not increase its address"),
        ([((1, (1 << 20) + 8, 3, 4, 1), NONE, NONE)], "a burst does not begin with a whole transfer"),
        ([((1, (1 << 20) + 4080, 1, 4, 1), NONE, NONE)], "a burst crosses 4096 bytes"),
        ([((1, (1 << 20) - 16, 0, 4, 1), NONE, NONE)], "a burst is beyond its memory"),
        ([((1, (1 << 20) + (1 << 14), 0, 4, 1), NONE, NONE)], "a burst is beyond its memory"),
        ([(NONE, GOOD, (1, 7, 255, 1))], "WLAST is not with the last line of a burst"),
        ([(NONE, (1, 1 << 20, 0, 4, 1), (1, 7, 255, 0))], "WLAST is not with the last line of a burst"),
        ([(NONE, NONE, (1, 7, 255, 0)), (NONE, (1, 1 << 20, 0, 4, 1), NONE)], "WLAST is not with the last line"),
        (["reset"] * 4 + [(GOOD, NONE, NONE, "reset")], "VALID is set in reset"),
    ],
)
def test_masters_that_break_the_protocol_are_found(cycles, message):
    library = load(SMALL)
    # A memory that takes nothing, for what has to wait, and one that takes all.
    refusing = "fell" in message or "changed" in message
    memory = ctypes.c_void_p(library.memory_open(b"refuse=100" if refusing else b"refuse=0"))
    words = ctypes.c_uint64 * 5
    failed = []
    for cycle in cycles:
        ar, aw, w, *more = (NONE, NONE, NONE, 1) if cycle == "reset" else cycle
        failed.append(library.memory_cycle(memory, len(more), words(*ar), words(*aw), words(*w)))
    library.memory_close(memory)
    assert failed == [0] * (len(cycles) - 1) + [-1]
    assert library.card_message().decode().startswith(message)


def test_what_the_card_cannot_do_is_an_error():
    program, far = transfers(5)
    card = Card(SMALL, far, silent=1)
    card.load(program.words)
    with pytest.raises(CardError, match="not done in time"):
        card.run(1000)
    card.close()
    card = Card(SMALL, far[: SMALL.x])
    card.load(program.words)
    with pytest.raises(CardError, match="a burst is beyond its memory"):
        card.run()
    card.close()
