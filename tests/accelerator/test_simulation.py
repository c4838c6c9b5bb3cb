"""The simulated hardware against the golden machine: the bits of all off-chip memory, and the cycles."""

import json
import shutil
import subprocess
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from accelerator.random_programs import SMALL, Composer, random_program
from derivable.accelerator.hardware import elaboration, verilator
from derivable.accelerator.hardware.simulation import OffChip, simulator
from derivable.accelerator.machine import hazards, machine
from derivable.accelerator.machine.instructions import NUM_UNITS, UNITS, End, Machine, Program, Transfer, Vector
from derivable.accelerator.machine.machine import Latencies
from derivable.accelerator.numbers import fixed
from derivable.core.diagnostics import DerivableError, LayoutError

pytestmark = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")


@pytest.fixture(scope="module")
def device():
    return simulator(SMALL)


def serial(program: Program) -> Program:
    """The program with every instruction after all before it."""
    counts, listed = [0] * NUM_UNITS, []
    for instruction in program:
        listed.append(replace(instruction, needs=tuple(counts)))
        if not isinstance(instruction, End):
            counts[UNITS.index(instruction.unit)] += 1
    return Program(listed)


@pytest.mark.parametrize("seed", range(30))
def test_programs_whose_units_run_beside_each_other_are_exact(device, seed):
    program, far = random_program(SMALL, seed, 60)
    expected = machine.run(SMALL, program, far)
    found = device.run(program, far, OffChip(seed=seed % 3), most_cycles=100_000)
    np.testing.assert_array_equal(found.memory, expected.memory)
    if not seed % 3:
        assert found.cycles == expected.cycles
        np.testing.assert_array_equal(found.begin, expected.begin[:-1])
        np.testing.assert_array_equal(found.end, expected.end[:-1])
        # What an instruction takes beside its own cycles is what its unit waited for the cache.
        alone = np.array([machine.cycles(SMALL, instruction) for instruction in program][:-1])
        for unit in ("dma", "move", "vec"):
            own = np.array([instruction.unit == unit for instruction in program][:-1])
            assert (expected.end[:-1] - expected.begin[:-1] - alone)[own].sum() == found.waits[unit]
    assert found.cycles > found.end.max()
    units = np.array([UNITS.index(instruction.unit) for instruction in program][:-1])
    for unit, name in enumerate(UNITS[:NUM_UNITS]):
        # Cycles after the one in which an instruction is taken; two instructions never share a cycle.
        assert found.busy[name] == (found.end - found.begin)[units == unit].sum()


@pytest.mark.parametrize("seed", range(30, 38))
@pytest.mark.parametrize("latency", [4, 25])
def test_without_others_at_the_cache_each_instruction_takes_the_cycles_of_the_model(device, seed, latency):
    program, far = random_program(SMALL, seed, 40)
    program = serial(program)
    found = device.run(program, far, OffChip(latency=latency))
    expected = machine.run(SMALL, program, far, Latencies(off_chip=latency))
    np.testing.assert_array_equal(found.memory, expected.memory)
    np.testing.assert_array_equal(found.begin, expected.begin[:-1])
    np.testing.assert_array_equal(found.end, expected.end[:-1])
    assert found.cycles == expected.cycles
    assert not any(found.waits.values())


def test_slow_memory_is_modelled(device):
    for seed in range(40, 46):
        program, far = random_program(SMALL, seed, 60)
        found = device.run(program, far, OffChip(latency=30, interval=3))
        begin, end = machine.timing(SMALL, program, Latencies(off_chip=30, interval=3))
        np.testing.assert_array_equal(found.begin, begin[:-1])
        np.testing.assert_array_equal(found.end, end[:-1])
        assert found.cycles == end[-1]


def test_queues_fill_and_the_controller_waits_as_the_model_says(device):
    composer = Composer(SMALL, 0)
    composer.start()
    for number in range(24):
        composer.must(Vector(operation="add", n1=5, a=0, a1=8, b=number, y=4096 + 128 * number, y1=8))
    # The last transfers stand behind the queue of vec, though they need nothing of it.
    for number in range(3):
        composer.must(Transfer(operation="load", x=12000, far=SMALL.x + 32 * number, lines=1))
    composer.end()
    program, far = composer.program(), composer.far
    found, expected = device.run(program, far), machine.run(SMALL, program, far)
    np.testing.assert_array_equal(found.memory, expected.memory)
    np.testing.assert_array_equal(found.begin, expected.begin[:-1])
    assert found.cycles == expected.cycles


def test_functions_are_those_of_the_tables(device):
    edges = [
        0,
        1,
        -1,
        65535,
        65536,
        -65536,
        (15 << 16) - 1,
        15 << 16,
        -17 << 16,
        -18 << 16,
        -19 << 16,
        2**31 - 1,
        -(2**31),
    ]
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [edges, rng.integers(-20 << 16, 16 << 16, 300), rng.integers(1, 2**31, 199) >> rng.integers(0, 31, 199)]
    )
    x = x.astype(np.int32)
    composer = Composer(SMALL, 1)
    composer.far[: 4 * len(x)] = x.view(np.uint8)
    composer.state.off_chip[:] = composer.far
    composer.must(Transfer(operation="load", x=0, far=0, lines=4 * len(x) // SMALL.line))
    for at, operation in ((4096, "exp2"), (8192, "log2")):
        composer.must(Vector(operation=operation, n2=len(x) // 8, a_type="i32", a2=32, y_type="i32", y=at, y2=32))
    composer.end()
    found = device.run(composer.program(), composer.far).memory[3 * SMALL.x :].view(np.int32)
    np.testing.assert_array_equal(found[1024 : 1024 + len(x)], fixed.exp2(x))
    np.testing.assert_array_equal(found[2048 : 2048 + len(x)], fixed.log2(x))


def test_numbers_that_are_changed_where_they_are(device):
    """Steps that lie beside each other may write where they read; a sum into one place would read what it wrote."""
    composer = Composer(SMALL, 2)
    composer.start()
    row = {"a": 100, "a1": 10, "a2": 8, "y": 100, "y1": 10, "y2": 8, "tail": 2, "tail_inner": 1}
    composer.must(Vector(operation="mul", n1=6, n2=2, b=3, **row))
    composer.end()
    program, far = composer.program(), composer.far
    np.testing.assert_array_equal(device.run(program, far).memory, machine.run(SMALL, program, far).memory)
    for wrong in ({"a2": 0, "y2": 0}, {"a2": 7, "y2": 7}, {"tail": 3}):
        with pytest.raises(LayoutError, match="it writes X"):
            hazards.check(SMALL, Program([Vector(operation="mul", n1=6, n2=2, **(row | wrong)), End()]), len(far))


def test_a_program_can_be_run_again_and_errors_of_the_device_are_told(device):
    program, far = random_program(SMALL, 50, 20)
    first, second = device.run(program, far), device.run(program, far)
    np.testing.assert_array_equal(first.memory, second.memory)
    assert (first.cycles, first.waits) == (second.cycles, second.waits)
    with pytest.raises(DerivableError, match="beyond its memory"):
        device.run(program, far[: SMALL.x // 2])
    with pytest.raises(DerivableError, match="not done in time"):
        device.run(program, far, most_cycles=100)


MACHINES = {
    "a word of P is wider than a line": Machine(8, 8, 3, lanes=8, line=32, a=512, b=512, k=64, c=512, p=16, x=12288),
    "words of B are wider than those of P": Machine(
        64, 4, 1, lanes=4, line=64, a=1024, b=512, k=16, c=256, p=4, x=32768
    ),
    "lanes and words are no power of two": Machine(
        4, 4, 2, lanes=12, line=64, a=320, b=384, k=64, c=448, p=16, x=32768
    ),
}


@pytest.mark.parametrize(("of", "port"), list(zip(MACHINES.values(), (32, 64, 16))), ids=MACHINES.keys())
def test_verilator_has_nothing_to_warn_of(tmp_path, of, port):
    """The port to memory is as wide as a line, or not."""
    made = elaboration.kernel(of)
    elaboration.write(replace(made, parameters=made.parameters | {"PORT": port}), tmp_path / "rtl")
    command = ["verilator", "--lint-only", "-Wall", "--top-module", "kernel", "-F", str(tmp_path / "rtl" / "files.f")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("yosys") is None, reason="yosys is not installed")
def test_yosys_reads_the_whole_accelerator_and_finds_no_latches(tmp_path):
    made = elaboration.kernel(SMALL)
    elaboration.write(made, tmp_path / "rtl")
    sources = made.sources
    script = f"read_verilog -sv {' '.join(sources)}; hierarchy -check -top kernel; proc; "
    script += "select -assert-none t:$dlatch t:$adlatch t:$dlatchsr t:$sr"
    subprocess.run(["yosys", "-q", "-p", script], cwd=tmp_path / "rtl", check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("yosys") is None, reason="yosys is not installed")
@pytest.mark.parametrize("port", [16, 32])
def test_no_path_leads_from_a_port_of_axi_to_another_but_through_a_register(tmp_path, port):
    """A3.2.1 of the specification of AXI. Of the accelerator inside, all outputs may depend on all inputs at once."""
    made = elaboration.kernel(SMALL)
    elaboration.write(replace(made, parameters=made.parameters | {"PORT": port}), tmp_path / "rtl")
    around = sorted({"kernel.sv", "line_port.sv", "skid.sv"} & set(made.sources))
    script = f"read_verilog -sv -lib accelerator.sv; read_verilog -sv {' '.join(around)}; "
    script += "hierarchy -top kernel; proc; flatten; opt_clean; simplemap; write_json kernel.json"
    subprocess.run(["yosys", "-q", "-p", script], cwd=tmp_path / "rtl", check=True, capture_output=True)
    module = json.loads((tmp_path / "rtl" / "kernel.json").read_text())["modules"]["kernel"]
    after = defaultdict(set)  # the bits that depend on a bit in the same cycle
    registers = 0
    for cell in module["cells"].values():
        if "dff" in cell["type"].lower():
            registers += 1
            continue
        bits = {"input": set(), "output": set()}
        for pin, connected in cell["connections"].items():
            bits[cell["port_directions"][pin]].update(connected)
        for bit in bits["input"]:
            after[bit] |= bits["output"]
    outputs = {bit: name for name, of in module["ports"].items() if of["direction"] == "output" for bit in of["bits"]}
    for name, of in module["ports"].items():
        if of["direction"] == "input" and name != "ap_clk":
            reached, waiting = set(), [bit for bit in of["bits"] if not isinstance(bit, str)]
            while waiting:
                bit = waiting.pop()
                if bit not in reached:
                    reached.add(bit)
                    waiting += after[bit]
            assert {outputs[bit] for bit in reached & outputs.keys()} == set(), name
    assert registers > 32 * port  # what is held of transfers, twice each way


@pytest.mark.skipif(shutil.which("yosys") is None, reason="yosys is not installed")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"H": 12}, "H is a power of two from 4 to 64"),
        ({"S": 16}, "a line has four bytes for each lane"),
        ({"S": 6}, "S is a multiple of W"),
        ({"X_BYTES": 16400}, "X has whole lines"),
        ({"PORT": 8}, "the port has 16 to 128 bytes"),
    ],
)
def test_parameters_that_are_changed_by_hand_are_checked(tmp_path, wrong, message):
    made = elaboration.kernel(SMALL)
    elaboration.write(replace(made, parameters=made.parameters | wrong), tmp_path / "rtl")
    script = "read_verilog -sv kernel.sv; hierarchy -top kernel"
    done = subprocess.run(["yosys", "-q", "-p", script], cwd=tmp_path / "rtl", capture_output=True, text=True)
    assert done.returncode
    assert message in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("of", MACHINES.values(), ids=MACHINES.keys())
def test_other_machines_are_exact(of):
    other = simulator(of)
    for seed in range(40):
        program, far = random_program(of, seed, 60)
        found = other.run(program, far, OffChip(seed=seed % 3), most_cycles=1_000_000)
        expected = machine.run(of, program, far)
        np.testing.assert_array_equal(found.memory, expected.memory)
        if not seed % 3:
            np.testing.assert_array_equal(found.end, expected.end[:-1])
