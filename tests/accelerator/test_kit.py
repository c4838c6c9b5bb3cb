"""The kit of a design: `make test` passes in a folder elsewhere, and fails where an output or the cycles are others."""

import shutil
import subprocess

import pytest
import torch

import derivable as dv

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")


def make(folder):
    return subprocess.run(
        ["make", "-C", str(folder), "test"], capture_output=True, text=True, timeout=300, cwd=folder.parent
    )


@pytest.mark.slow
@needs_icarus
@pytest.mark.filterwarnings("ignore::derivable.accelerator.CalibrationWarning")
def test_the_kit_compares_outputs_and_cycles(tmp_path):
    torch.manual_seed(0)
    made = dv.accelerator.design(
        torch.nn.Linear(8, 4), torch.rand(1, 8), pes=16, precision="int8", calibration=[torch.rand(4, 8)]
    )
    inputs = torch.rand(2, 8)
    folder = made.write_kit(tmp_path / "kit", inputs)
    cycles = made.simulate(inputs, "python").cycles
    done = make(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cycles} cycles" in done.stdout
    compared = (folder / "compared.hex").read_text().split()
    # Four outputs of each of two passes, of a byte or two each.
    assert "".join(compared).count("ff") >= 8
    line = next(number for number, text in enumerate(compared) if "ff" in text)
    expected = (folder / "expected.hex").read_text().split()
    digit = compared[line].index("ff")
    text = expected[line]
    other = f"{int(text[digit], 16) ^ 1:x}"
    changed = [*expected[:line], text[:digit] + other + text[digit + 1 :], *expected[line + 1 :]]
    (folder / "expected.hex").write_text("\n".join(changed))
    done = make(folder)
    assert done.returncode != 0
    assert "an output differs" in done.stdout
    (folder / "expected.hex").write_text("\n".join(expected))
    bench = folder / "device_bench.sv"
    bench.write_text(bench.read_text().replace(f"CYCLES = {cycles} ", f"CYCLES = {cycles + 1} "))
    assert "another number of cycles" in make(folder).stdout
