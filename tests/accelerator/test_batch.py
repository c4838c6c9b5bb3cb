"""Many samples through one program of one pass: the bits and the cycles of single passes, in any order."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from derivable.accelerator.designs import samples
from derivable.accelerator.hardware import batch, simulation, verilator
from derivable.accelerator.hardware.simulation import OffChip
from derivable.accelerator.lower.lower import lower
from derivable.cli.main import main
from derivable.core.diagnostics import DerivableError, ShapeError

from .networks import calibrated
from .random_programs import SMALL

needs_verilator = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")


class Reader(nn.Module):
    """All units have work: a convolution, a layer, a binding, arithmetic on lanes."""

    key: torch.Tensor

    def __init__(self):
        super().__init__()
        self.picture, self.top = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(16, 8)
        self.register_buffer("key", dv.vsa.random(2, 4, generator=0))

    def forward(self, x):
        seen = nn.functional.max_pool2d(torch.relu(self.picture(x)), 2).flatten(1)
        codes = self.top(seen).reshape(-1, 2, 4).softmax(-1)
        return dv.vsa.bind(codes, self.key), codes.argmax(-1)


@pytest.fixture(scope="module")
def lowered():
    torch.manual_seed(0)
    return lower(calibrated(Reader(), (torch.randn(2, 1, 4, 4),))[0], SMALL)


def drawn(passes):
    return 2 * np.random.default_rng(1).normal(size=(2 * passes, 1, 4, 4))


def singles(lowered, inputs):
    return [simulation.simulate(lowered, [part], "python") for part in np.split(inputs, len(inputs) // 2)]


@pytest.mark.parametrize(
    ("backend", "off_chip"),
    [
        ("python", OffChip()),
        pytest.param("verilator", OffChip(), marks=needs_verilator),
        pytest.param("verilator", OffChip(latency=40, seed=3), marks=needs_verilator),
        pytest.param("icarus", OffChip(), marks=needs_icarus),
    ],
)
def test_each_pass_has_the_bits_and_the_cycles_of_one_by_itself_in_any_order(lowered, backend, off_chip):
    inputs = drawn(4)
    expected = singles(lowered, inputs)
    assert len({run.outputs[0].tobytes() for run in expected}) == 4
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 2, 0, 2]):
        # Registers and memories begin with random bits, others for each order; what is left is never cleared.
        together = np.concatenate([inputs[2 * k : 2 * k + 2] for k in order])
        result = batch.run(lowered, [together], backend, off_chip, initial=1 + sum(order) + 7 * order[0])
        for number, output in enumerate(result.outputs):
            assert np.array_equal(output, np.concatenate([expected[k].outputs[number] for k in order]))
        if off_chip.seed:
            assert all(result.cycles > expected[0].cycles)
        else:
            assert result.cycles.tolist() == [expected[k].cycles for k in order]
        assert (result.passes, result.total) == (4, sum(result.cycles.tolist()))


@needs_verilator
def test_a_pass_that_gives_other_bits_is_an_error(lowered, monkeypatch):
    honest = simulation.started

    def third(*arguments):
        for number, run in enumerate(honest(*arguments)):
            run.memory[lowered.outputs[0].places().ravel()[0]] ^= number == 2
            yield run

    monkeypatch.setattr(simulation, "started", third)
    with pytest.raises(DerivableError, match="pass 2: the output %bind_1 in verilator is not that of the emulation"):
        batch.run(lowered, [drawn(4)])


def test_inputs_that_do_not_fit_are_errors(lowered):
    with pytest.raises(ShapeError, match=r"\[3, 1, 4, 4\], expected \[2, 1, 4, 4\]"):
        batch.run(lowered, [drawn(2)[:3]], "python")


MODEL = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), torch.rand(2, 6)
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    return f"{tmp_path / 'model.py'}:build"


def expected_of(x):
    space: dict = {}
    exec(MODEL, space)
    network, example = space["build"]()
    made = dv.accelerator.design(network, example, pes=16, calibration=[example])
    return np.concatenate([made.simulate(part, "python").outputs[0] for part in np.split(x, len(x) // 2)])


@pytest.mark.parametrize("backend", ["python", pytest.param("icarus", marks=needs_icarus)])
def test_the_command_runs_the_samples_of_a_file(model, tmp_path, capsys, backend):
    x = np.random.default_rng(0).random((6, 6))
    np.save(tmp_path / "x.npy", x)
    simulate = [] if backend == "python" else ["--simulate", backend]
    arguments = ["accelerate", model, "-o", str(tmp_path / "out"), "--pes", "16", *simulate, "--json"]
    assert main([*arguments, "--run", str(tmp_path / "x.npy"), "--outputs", str(tmp_path / "y.csv")]) == 0
    result = json.loads(capsys.readouterr().out)["run"]
    assert (len(result["cycles"]), result["backend"]) == (3, backend)
    assert len(set(result["cycles"])) == 1
    assert result["total_cycles"] == sum(result["cycles"])
    assert np.array_equal(np.loadtxt(tmp_path / "y.csv", delimiter=","), expected_of(x))


def test_files_in_three_forms_are_one(model, tmp_path, capsys):
    x = np.random.default_rng(0).random((4, 6))
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", input=x)
    np.savetxt(tmp_path / "x.csv", x, "%.17g", delimiter=",", header="a,b,c,d,e,f", comments="")
    wanted = expected_of(x)
    for suffix in ("npy", "npz", "csv"):
        arguments = ["accelerate", model, "-o", str(tmp_path / "out"), "--pes", "16"]
        assert main([*arguments, "--run", str(tmp_path / f"x.{suffix}")]) == 0
        printed = capsys.readouterr().out
        assert "2 passes in python" in printed
        assert "all bits as the emulation has them" in printed
        with np.load(tmp_path / "out" / "outputs.npz") as file:
            (name,) = file.files
            assert np.array_equal(file[name], wanted)


def test_what_is_wrong_with_files_is_said_and_nothing_is_written(model, tmp_path, capsys):
    x = np.random.default_rng(0).random((4, 6))
    np.savez(tmp_path / "other.npz", x=x)
    np.savetxt(tmp_path / "narrow.csv", x[:, :5], delimiter=",")
    (tmp_path / "empty.csv").write_text("a,b\n")
    (tmp_path / "typo.csv").write_text("1,2,3,4,5,6o\n" + "1,2,3,4,5,6\n" * 2)
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04 and no more")
    np.save(tmp_path / "odd.npy", x[:3])
    arguments = ["accelerate", model, "-o", str(tmp_path / "out"), "--pes", "16"]
    for name, message in {
        "other.npz": "the file has x, the model takes input",
        "narrow.csv": "rows have 5 numbers, and the input %input [2, 6] has 6",
        "empty.csv": "the samples cannot be read",
        "typo.csv": "the samples cannot be read: could not convert string '6o'",
        "damaged.npz": "the samples cannot be read",
        "odd.npy": "the input %input is [3, 6], expected [2, 6]",
        "none.npy": "there is no such file",
        "x.txt": "the name ends with '.txt'",
    }.items():
        assert main([*arguments, "--run", str(tmp_path / name)]) == 1, name
        assert message in " ".join(capsys.readouterr().err.split()), name
        assert not (tmp_path / "out" / "outputs.npz").exists()
    assert main([*arguments, "--outputs", "y.npz"]) == 1
    assert "--outputs without --run" in capsys.readouterr().err


def test_outputs_that_do_not_fit_a_table_are_an_error_before_the_run(tmp_path, capsys, monkeypatch):
    (tmp_path / "two.py").write_text(
        "import torch\n\n\ndef build():\n    layer = torch.nn.Linear(3, 2)\n"
        "    return (lambda x: (torch.relu(layer(x)), torch.tanh(x))), torch.ones(2, 3)\n"
    )
    np.save(tmp_path / "x.npy", np.ones((4, 3)))
    monkeypatch.setattr(batch, "run", None)
    arguments = ["accelerate", f"{tmp_path / 'two.py'}:build", "-o", str(tmp_path / "out"), "--pes", "16"]
    assert main([*arguments, "--run", str(tmp_path / "x.npy"), "--outputs", str(tmp_path / "y.csv")]) == 1
    assert ".csv has one" in " ".join(capsys.readouterr().err.split())


def test_outputs_of_one_array_only_go_into_a_table(tmp_path):
    with pytest.raises(DerivableError, match=r"there are 2 outputs, a, b, and \.csv has one"):
        samples.write(tmp_path / "y.csv", {"a": np.zeros(2), "b": np.zeros(2)})
    assert not list(tmp_path.iterdir())
    written = samples.write(tmp_path / "y.npz", {"file": np.arange(3), "b": np.array(1.5)})
    before = written.read_bytes()
    assert samples.write(tmp_path / "y.npz", {"file": np.arange(3), "b": np.array(1.5)}).read_bytes() == before
    with np.load(written) as file:
        assert (file["file"].tolist(), float(file["b"])) == ([0, 1, 2], 1.5)
