"""The kit of a design: `make test` passes in a folder elsewhere, and fails where an output, the cycles or a handshake
are others; its proofs hold, and fail for modules with a fault."""

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest
import torch

import derivable as dv
from derivable.accelerator.hardware import elaboration, kit, verilator

pytestmark = pytest.mark.filterwarnings("ignore::derivable.accelerator.CalibrationWarning")
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
needs_verilator = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
needs_yosys = pytest.mark.skipif(shutil.which("yosys") is None, reason="yosys is not installed")
needs_cocotb = pytest.mark.skipif(importlib.util.find_spec("cocotb") is None, reason="cocotb is not installed")


def make(folder, *targets):
    command = ["make", "-C", str(folder), f"PYTHON={sys.executable}", *targets]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder.parent)


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    samples = [torch.rand(4, 8)]
    return dv.accelerator.design(torch.nn.Linear(8, 4), torch.rand(1, 8), pes=16, precision="int8", calibration=samples)


@pytest.fixture
def folder(made, tmp_path):
    torch.manual_seed(1)
    return made.write_kit(tmp_path / "kit", torch.rand(2, 8))


def changed(folder):
    """Change a digit of an expected output."""
    compared, expected = ((folder / f"{name}.hex").read_text().split() for name in ("compared", "expected"))
    # Four outputs of each of two passes, of a byte or two each.
    assert "".join(compared).count("ff") >= 8
    line = next(number for number, text in enumerate(compared) if "ff" in text)
    digit, text = compared[line].index("ff"), expected[line]
    expected[line] = text[:digit] + f"{int(text[digit], 16) ^ 1:x}" + text[digit + 1 :]
    (folder / "expected.hex").write_text("\n".join(expected))


@pytest.mark.slow
@needs_icarus
def test_the_kit_compares_outputs_and_cycles(made, folder):
    torch.manual_seed(1)
    cycles = made.simulate(torch.rand(2, 8), "python").cycles
    done = make(folder, "icarus")
    assert done.returncode == 0, done.stdout + done.stderr
    # Once with memory that takes everything, and three times with one that refuses and is late, which takes longer.
    first, *others = map(int, re.findall(r"^passed: .* (\d+) cycles", done.stdout, re.MULTILINE))
    assert first == cycles < min(others)
    assert len(set(others)) > 1
    expected = (folder / "expected.hex").read_text()
    changed(folder)
    done = make(folder, "icarus")
    assert done.returncode != 0
    assert "an output differs" in (folder / "failed.txt").read_text()
    (folder / "expected.hex").write_text(expected)
    bench = folder / "device_bench.sv"
    bench.write_text(bench.read_text().replace(f"CYCLES = {cycles} ", f"CYCLES = {cycles + 1} "))
    assert make(folder, "icarus").returncode != 0
    assert "another number of cycles" in (folder / "failed.txt").read_text()


@pytest.mark.slow
@needs_verilator
def test_the_kit_in_verilator_with_random_memories(folder):
    done = make(folder, "verilator")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^passed", done.stdout, re.MULTILINE)) == 4
    changed(folder)
    assert make(folder, "verilator").returncode != 0


@pytest.mark.slow
@needs_icarus
@needs_cocotb
def test_the_kernel_passes_the_test_in_python(folder):
    done = make(folder, "cocotb")
    assert done.returncode == 0, done.stdout + done.stderr
    changed(folder)
    done = make(folder, "cocotb")
    assert done.returncode != 0
    assert "bytes of the outputs differ" in done.stdout


@pytest.mark.slow
@needs_icarus
@pytest.mark.parametrize(
    ("module", "before", "after", "why"),
    [
        # A burst that is offered only every other cycle, a line that changes while it waits, a head that withdraws.
        ("dma", "sized <= burst_left != 0 && !issued", "sized <= burst_left != 0 && !issued && !sized", "valid fell"),
        ("dma", "w_data       = buffer[buffer_out]", "w_data       = buffer[buffer_out] ^ (8*L)'(!w_ready)", "changed"),
        ("queue", "valid <= here && !taken", "valid <= here && !taken && !valid", "valid fell"),
        ("dma", "SHIFT) & LINES'(BURST - 1)", "SHIFT) & LINES'(0)", "crosses a boundary"),
    ],
)
def test_assertions_end_a_run_with_a_fault(made, tmp_path, module, before, after, why):
    if "SHIFT" in before:  # Weights of 6144 bytes, beyond a boundary.
        samples = [torch.rand(4, 64)]
        made = dv.accelerator.design(
            torch.nn.Linear(64, 96), torch.rand(1, 64), pes=16, precision="int8", calibration=samples
        )
        folder = made.write_kit(tmp_path / "kit", torch.rand(1, 64))
    else:
        folder = made.write_kit(tmp_path / "kit", torch.rand(2, 8))
    source = folder / f"{module}.sv"
    text = source.read_text()
    assert before in text
    source.write_text(text.replace(before, after))
    done = make(folder, "icarus")
    assert done.returncode != 0
    assert why in done.stdout


@needs_yosys
@pytest.mark.parametrize("module", ["skid", "loops", pytest.param("queue", marks=pytest.mark.slow)])
def test_proofs_hold(folder, module):
    done = make(folder, f"{module}.proved", "YOSYS=yosys")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"proved: {module}" in done.stdout


FAULTS = [
    ("skid", "holds ? held : in_data", "in_data"),
    ("skid", "if (in_ready) held", "held"),
    ("skid", "holds     <= 1'b0;", ""),
    ("loops", "== COUNT_BITS'(1);", "== COUNT_BITS'(2);"),
    ("loops", "|(goes & LOOPS'((2 << i) - 1))", "|goes"),
    ("loops", "began[i*ADDRESS_BITS+:ADDRESS_BITS] + strides", "began[0+:ADDRESS_BITS] + strides"),
    ("queue", "!taken && &met;", "!taken && &met[3:0];"),
    ("queue", "valid <= here && !taken", "valid <= here"),
    ("queue", "full  <= !taken && (full", "full  <= (full"),
]


@needs_yosys
@pytest.mark.parametrize(
    ("module", "before", "after"),
    [pytest.param(*fault, marks=pytest.mark.slow) if fault[0] == "queue" else fault for fault in FAULTS],
)
def test_proofs_fail_for_a_module_with_a_fault(folder, module, before, after):
    source = folder / f"{module}.sv"
    text = source.read_text()
    assert before in text
    source.write_text(text.replace(before, after, 1))
    done = make(folder, f"{module}.proved", "YOSYS=yosys")
    assert done.returncode != 0
    assert "proof did fail" in done.stdout + done.stderr


@needs_icarus
@pytest.mark.parametrize(
    ("driven", "why"),
    [
        ("valid = 1; data = 5; tick; tick; ready = 1; tick; valid = 0; data = 6; tick;", None),
        ("valid = 1; tick; valid = 0; tick;", "valid fell before ready came"),
        ("valid = 1; data = 5; tick; data = 6; tick;", "data changed before ready came"),
        ("valid = 1'bx; tick;", "valid is unknown"),
        ("rst = 1; valid = 1; data = 5; tick; data = 6; valid = 0; tick;", None),
    ],
)
def test_a_handshake_is_checked(tmp_path, driven, why):
    bench = f"""module bench;
  reg clk = 0, rst = 0, valid = 0, ready = 0;
  reg [3:0] data = 0;
  handshake #(.BITS(4)) checked (.clk, .rst, .valid, .ready, .data);
  task tick; begin #1 clk = 1; #1 clk = 0; end endtask
  initial begin {driven} $display("passed"); $finish; end
endmodule
"""
    (tmp_path / "bench.sv").write_text(bench)
    checker = str(elaboration.FOLDER / "handshake.sv")
    subprocess.run(["iverilog", "-g2012", "-o", "bench", checker, "bench.sv"], cwd=tmp_path, check=True)
    done = subprocess.run(["vvp", "-n", "bench"], cwd=tmp_path, capture_output=True, text=True)
    assert ("passed" in done.stdout) == (why is None)
    assert why is None or why in done.stdout


@pytest.mark.parametrize("many", [1, 40])
def test_files_of_memory_have_the_lines_that_are_compared(made, tmp_path, many):
    folder = made.write_kit(tmp_path / "kit", torch.rand(many, 8))
    line, lowered = made.lowered.machine.line, made.lower(many)
    compared = {
        view_byte for places in lowered.places for view in places.outputs for view_byte in view.places().ravel()
    }
    found, number = set(), 0
    for text in (folder / "compared.hex").read_text().split():
        if text.startswith("@"):
            number = int(text[1:], 16)
            continue
        found |= {number * line + at for at, byte in enumerate(bytes.fromhex(text)[::-1]) if byte}
        number += 1
    assert found == compared
    assert {path.name for path in kit.FOLDER.iterdir() if path.is_file()} <= {path.name for path in folder.iterdir()}
