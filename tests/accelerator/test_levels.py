"""Small ranges have small steps, so that int8 is used; few steps are warned of; weights are rounded a few times."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import derivable as dv
from derivable.accelerator import CalibrationWarning
from derivable.accelerator.numbers import formats, quantisation
from derivable.accelerator.numbers.precision import PRECISIONS


def book(items, size):
    return F.normalize(torch.randn(items, size, generator=torch.Generator().manual_seed(1)), dim=-1)


BOOK, BOOK_32, BOOK_24, ONE_HOT = book(10, 512), book(10, 32), book(10, 24), torch.eye(32)[3]

# What is compared or weighed: numbers whose known range is far wider than they are.
SMALL = {
    "normalise": lambda x: F.normalize(x, dim=-1) @ BOOK.T,
    "divided by its length": lambda x: (x / x.norm(dim=-1, keepdim=True)) @ BOOK.T,
    "unit vectors of HRR": lambda x: dv.vsa.similarities(x, BOOK, model="hrr"),
    "cosines of values": lambda x: F.normalize(x[:8], dim=-1) @ F.normalize(x[8:], dim=-1).transpose(0, 1),
    "softmax": lambda x: x[:, :24].softmax(-1) @ BOOK_24.T,
    "probabilities that are bound": lambda x: dv.vsa.bind((x[:, :32] / 3).softmax(-1), ONE_HOT, model="hrr"),
    "average of a bundle": lambda x: torch.tanh(9 * x.reshape(4, 4, 512)).mean(1) @ BOOK.T,
    "average of many": lambda x: torch.tanh(9 * x.reshape(256, 32)).mean(0, keepdim=True) @ BOOK_32.T,
    "small part of tanh": lambda x: torch.tanh(x / 200) @ BOOK.T,
}


@pytest.mark.parametrize("name", SMALL)
def test_small_ranges_have_small_steps(name):
    """The error is what eight bits lose where their steps are used: about a hundredth, and of two operands."""
    torch.manual_seed(0)
    function, x, other = SMALL[name], torch.randn(16, 512), torch.randn(16, 512)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        made = dv.accelerator.design(function, x, pes=64, precision="int8", calibration=[x, other])
    run, expected = made.simulate(x, "python"), function(x).double().numpy()
    error = run.outputs[0] - expected
    assert np.sqrt((error**2).mean()) <= 0.03 * np.sqrt((expected**2).mean())
    quantised = made.quantised
    for (operator, place), scale in quantised.scales.items():
        name_of = quantised.graph[operator].inputs[place]
        if name_of in quantised.ranges and scale.ndim == 0 and name_of != "x":
            assert max(map(abs, quantised.ranges[name_of])) / scale > 31, "levels are not used"


@pytest.mark.parametrize("size", [64, 256, 2048])
def test_cosines_of_hypervectors(size):
    torch.manual_seed(0)
    layer, vectors = nn.Linear(20, size), book(12, size)
    samples = [torch.randn(64, 20) for _ in range(3)]

    def model(x):
        return F.normalize(layer(x), dim=-1) @ vectors.T

    made = dv.accelerator.design(model, samples[0], pes=64, precision="int8", calibration=samples)
    expected = model(samples[2]).detach().double().numpy()
    error = made.simulate(samples[2], "python").outputs[0] - expected
    assert np.abs(error).max() <= 0.03 * np.abs(expected).max()


def test_halved_ranges_hold_the_samples_and_more():
    torch.manual_seed(0)
    x = torch.randn(32, 512)
    made = dv.accelerator.design(SMALL["normalise"], x, pes=64, precision="int8", calibration=[x, -x])
    (scale,) = (scale for place, scale in made.quantised.scales.items() if place[1] == 0)
    most = float(F.normalize(x, dim=-1).abs().max())
    assert most <= 127 * scale <= 2 * most
    assert 127 * scale == pytest.approx(0.25)  # a power of two of the range
    assert made.simulate(x, "python").lost.saturated == 0


def test_few_levels_are_warned_of():
    """One number is a hundred times as large as the others."""
    torch.manual_seed(0)
    x, layer = torch.rand(512, 64), nn.Linear(64, 4)
    x[0, 1] = 80
    with pytest.warns(CalibrationWarning, match=r"rounding %input to int8 loses .*% of its energy .* of 127 steps"):
        dv.accelerator.design(layer, x, pes=16, precision="int8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dv.accelerator.design(layer, x.clamp(max=1), pes=16, precision="int8", calibration=[x.clamp(max=1)] * 2)


# How often weights are rounded


@pytest.mark.parametrize("kind", ["linear", "matmul", "conv2d"])
def test_weights_are_rounded_a_few_times(kind, monkeypatch):
    torch.manual_seed(0)
    size = 800
    weights = torch.randn(size, size)
    models = {
        "linear": (nn.Linear(size, size, bias=False), (2, size), size * size),
        "matmul": (lambda x: x @ weights, (2, size), size * size),
        "conv2d": (nn.Conv2d(250, 250, 3, bias=False), (1, 250, 3, 3), 250 * 250 * 9),
    }
    model, shape, count = models[kind]
    rounded = 0

    def counting(function):
        def counted(*arguments):
            nonlocal rounded
            found = function(*arguments)
            rounded += found.size if found.size >= count // 8 else 0
            return found

        return counted

    monkeypatch.setattr(quantisation, "_steps", counting(quantisation._steps))
    monkeypatch.setattr(formats.Format, "steps", counting(formats.Format.steps))
    x = torch.rand(shape)
    dv.accelerator.design(model, x, pes=256, precision="int8", calibration=[x, -x])
    assert 2 * count <= rounded <= 10 * count


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("distribution", ["normal", "uniform", "cauchy", "sparse"])
def test_scales_of_large_tensors_are_nearly_the_best(precision, distribution):
    """Of so many numbers four scales of 46 are tried; here all are."""
    rng = np.random.default_rng(0)
    shape = (300, 4000)
    rows = {
        "normal": lambda: rng.normal(size=shape),
        "uniform": lambda: rng.uniform(-3, 3, shape),
        "cauchy": lambda: np.clip(rng.standard_cauchy(shape), -40, 40),
        "sparse": lambda: rng.normal(size=shape) * (rng.random(shape) < 0.05),
    }[distribution]()
    of = PRECISIONS[precision]
    found = quantisation._best_scales(rows, of)
    some = rows[::100]
    largest, most = np.abs(some).max(1), 2 ** (of.bits - 1) - 1

    def lost(scale):
        return ((some - quantisation._rounded(some, of, scale[:, None])) ** 2).sum(1)

    losses = np.stack([lost(clip * largest / most) for clip in np.linspace(0.25, 1, 46)])
    assert (lost(found[::100]) <= 1.03 * losses.min(0)).all()
