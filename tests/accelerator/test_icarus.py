"""Networks of convolutions in Icarus and Verilator, whose caches begin with random bytes, give the golden outputs."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

import derivable as dv
from derivable.accelerator.hardware import elaboration, verilator

from .networks import Basic

pytestmark = pytest.mark.filterwarnings("ignore::derivable.accelerator.CalibrationWarning")
needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
needs_verilator = pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")


def conv(before, after, size=3, padding=1, **options):
    return nn.Conv2d(before, after, size, padding=padding, **options)


NETWORKS = {
    "two padded": lambda: [
        conv(1, 2),
        nn.ReLU(),
        conv(2, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(27, 4),
    ],
    "pools with padding": lambda: [conv(1, 2), nn.MaxPool2d(3, 2, 1), conv(2, 3), nn.AvgPool2d(2, 1, 1), nn.Flatten()],
    "residual": lambda: [conv(1, 2), nn.BatchNorm2d(2), nn.ReLU(), Basic(2, 2, 1), nn.AdaptiveAvgPool2d(1)],
    "three, one strided": lambda: [conv(1, 2), nn.ReLU(), conv(2, 3, stride=2), nn.ReLU(), conv(3, 2), nn.Sigmoid()],
    "groups": lambda: [conv(1, 4), nn.ReLU(), conv(4, 4, groups=4), nn.ReLU(), conv(4, 2, 1, 0)],
    "dilated": lambda: [conv(1, 2), nn.Tanh(), conv(2, 2, padding=2, dilation=2), nn.Flatten(), nn.Linear(72, 3)],
    "wide padding": lambda: [conv(1, 2, 1, 0), nn.ReLU(), conv(2, 3, 5, 4), nn.ReLU(), conv(3, 1, (3, 1), (1, 0))],
    "transposed": lambda: [conv(1, 2), nn.ReLU(), nn.ConvTranspose2d(2, 2, 3, 2, 1), conv(2, 1)],
}
QUICK = ("two padded", "pools with padding", "residual")
SLOW = tuple(name for name in NETWORKS if name not in QUICK)


def check(name, precision, backend):
    torch.manual_seed(0)
    model, pictures = nn.Sequential(*NETWORKS[name]()).eval(), torch.rand(2, 1, 6, 6)
    made = dv.accelerator.design(model, pictures[:1], pes=16, precision=precision, calibration=[pictures])
    run, golden = (made.simulate(pictures[:1], each) for each in (backend, "python"))
    for found, expected in zip(run.outputs, golden.outputs, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert (run.cycles, run.busy) == (golden.cycles, golden.busy)
    if precision == "int8":
        expected = model(pictures[:1]).detach().double().numpy()
        assert np.abs(run.outputs[0] - expected).max() <= 0.05 * np.abs(expected).max()


@needs_icarus
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS if name not in QUICK)]
)
def test_networks_in_icarus(name):
    check(name, "int8", "icarus")


@needs_icarus
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_int4_in_icarus(name):
    check(name, "int4", "icarus")


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_verilator(name):
    check(name, "int8", "verilator")


@needs_icarus
def test_unknown_bits_that_reach_an_output_are_still_told(monkeypatch):
    """Where nothing fills the cache, as before, a padded convolution reads bytes that were never written."""
    texts = elaboration._texts()
    before = "memory[row] = $random(state);"
    assert before in texts["cache.sv"]
    monkeypatch.setitem(texts, "cache.sv", texts["cache.sv"].replace(before, "memory[row] = 8'hxx;"))
    with pytest.raises(dv.DerivableError, match="unknown bits"):
        check("two padded", "int8", "icarus")


@needs_icarus
@pytest.mark.slow
def test_memories_have_as_many_words_as_programs_touch():
    """Eighths of powers of two: of a picture in 16 elements, B has 1,792 words in the place of 2,048."""
    torch.manual_seed(0)
    model, pictures = nn.Sequential(conv(1, 4), nn.ReLU(), conv(4, 2)).eval(), torch.rand(2, 1, 40, 40)
    made = dv.accelerator.design(model, pictures[:1], pes=16, precision="int8", calibration=[pictures])
    machine = made.lowered.machine
    assert any(words & (words - 1) for words in (machine.a, machine.b, machine.c))
    run, golden = (made.simulate(pictures[:1], each) for each in ("icarus", "python"))
    np.testing.assert_array_equal(run.outputs[0], golden.outputs[0])
    assert (run.cycles, run.busy) == (golden.cycles, golden.busy)
