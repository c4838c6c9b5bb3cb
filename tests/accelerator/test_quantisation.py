"""Rounding agrees with torch's formats and with exact arithmetic; scales are the best of those tried."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import derivable as dv
from derivable.accelerator.lower.lower import _KINDS as LOWERED
from derivable.accelerator.lower.lower import lower, simulate
from derivable.accelerator.machine.instructions import Machine
from derivable.accelerator.numbers.emulation import _COMPUTE as COMPUTED
from derivable.accelerator.numbers.emulation import Emulation, is_done
from derivable.accelerator.numbers.precision import PRECISIONS
from derivable.accelerator.numbers.quantisation import (
    _best_scale_and_zero,
    _best_scales,
    _rounded,
    _steps,
    calibrate,
    evaluate,
)
from derivable.accelerator.operators import evaluation
from derivable.accelerator.operators.kinds import KINDS
from derivable.accelerator.operators.operators import Builder
from derivable.core.diagnostics import DomainError, UnsupportedError

from . import integers
from .networks import calibrated

NUMBERS = st.lists(st.floats(-600, 600, width=32), min_size=1, max_size=40)
INT8 = {"neural": "int8", "symbolic": "int8"}
MIXED = {"neural": "int8", "symbolic": "int4"}


def network(seed=0):
    """A convolution, a layer and two bound codes: [2, 3, 6, 6] and [2, 2, 8] -> [2, 4] and [2, 2, 8]."""
    rng = np.random.default_rng(seed)
    graph = Builder()
    x, codes = graph.input("x", (2, 3, 6, 6)), graph.input("codes", (2, 2, 8))
    weight = graph.constant(
        "weight", rng.normal(size=(5, 3, 3, 3)) * [[[[1.0]]], [[[9.0]]], [[[0.1]]], [[[1.0]]], [[[0.0]]]]
    )
    bias = graph.constant("bias", rng.normal(size=5))
    hidden = graph.add("relu", graph.add("conv2d", x, weight, bias, padding=(1, 1), name="conv"))
    flat = graph.add("reshape", hidden, shape=(2, 180))
    top = graph.add("linear", flat, graph.constant("top", rng.normal(size=(4, 180))), name="layer")
    graph.part = "symbolic"
    bound = graph.add("bind", codes, graph.constant("key", rng.random((2, 8))), name="bound")
    back = graph.add("unbind", bound, codes, name="unbound")
    return graph.build([top, back])


def samples(count=3, seed=1):
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(2, 3, 6, 6)), "codes": rng.random((2, 2, 8))} for _ in range(count)]


@settings(deadline=None)
@given(NUMBERS)
def test_floats_are_rounded_as_torch_rounds_them(numbers):
    numbers = np.array(numbers)
    given_numbers = torch.tensor(numbers)
    # Beyond the largest finite number torch gives NaN, the accelerator stays there.
    wanted = given_numbers.clamp(-448, 448).float().to(torch.float8_e4m3fn).double().numpy()
    np.testing.assert_array_equal(_rounded(numbers, PRECISIONS["fp8"], 1.0), wanted)
    np.testing.assert_array_equal(_rounded(numbers, PRECISIONS["fp16"], 1.0), given_numbers.half().double().numpy())


def test_all_numbers_of_eight_bits_stay_as_they_are():
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double().numpy()
    numbers = numbers[np.isfinite(numbers)]
    assert len(numbers) == 254
    np.testing.assert_array_equal(_rounded(numbers, PRECISIONS["fp8"], 1.0), numbers)
    np.testing.assert_array_equal(_rounded(1e9 * np.array([1, -1]), PRECISIONS["fp8"], 1.0), [448, -448])
    np.testing.assert_array_equal(_rounded(1e9 * np.array([1, -1]), PRECISIONS["fp16"], 1.0), [65504, -65504])


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_scales_lose_no_more_than_the_largest_number_allows(name):
    precision, rng = PRECISIONS[name], np.random.default_rng(0)
    rows = np.stack([rng.normal(size=500), rng.random(500), rng.standard_t(2, 500), np.zeros(500), np.eye(500)[3]])
    scales = _best_scales(rows, precision)
    whole = np.maximum(np.abs(rows).max(1), 1e-30) / (2 ** (precision.bits - 1) - 1)
    lost, lost_whole = (((rows - _rounded(rows, precision, scale[:, None])) ** 2).sum(1) for scale in (scales, whole))
    assert (lost <= lost_whole + 1e-12).all()
    # Heavy tails are cut where steps are few, numbers that are all alike are not.
    assert scales[2] < whole[2] or name == "int8"
    assert scales[4] == whole[4]


def test_integers_make_exactly_what_is_evaluated():
    graph = network()
    quantised = calibrate(graph, samples(), MIXED)
    given_inputs = samples(1, seed=7)[0]
    conv, layer = graph["conv"], graph["layer"]
    x = quantised.integers(conv, 0, given_inputs["x"])
    weight = quantised.integers(conv, 1, graph.constants["weight"])
    assert x.dtype == weight.dtype == np.int8
    assert np.abs(weight.astype(int)).reshape(5, -1).max(1).tolist()[4] == 0
    offsets = torch.tensor(x).int() - quantised.zeros["conv", 0]
    sums = torch.nn.functional.conv2d(offsets, torch.tensor(weight).int(), padding=1).numpy()
    steps = quantised.scales["conv", 0] * quantised.scales["conv", 1].reshape(5, 1, 1)
    bias = graph.constants["bias"] + quantised.biases["conv"]
    hidden = np.maximum(sums * steps + bias.reshape(5, 1, 1), 0).reshape(2, 180)
    rows = quantised.integers(layer, 0, hidden).astype(int)
    # Nothing comes out of a ReLU below zero: all steps are above.
    assert quantised.zeros["layer", 0] == -128 == rows.min()
    weight = quantised.integers(layer, 1, graph.constants["top"]).astype(int)
    # What zero adds to the sums is known before.
    sums = rows @ weight.T - quantised.zeros["layer", 0] * weight.sum(1)
    wanted = sums * quantised.scales["layer", 0] * quantised.scales["layer", 1] + quantised.biases["layer"]
    # What it gives is wide, and what is added to a sum is in whole steps of it.
    step = (quantised.scales["layer", 0] * quantised.scales["layer", 1]).max()
    np.testing.assert_allclose(evaluate(quantised, given_inputs)[0], wanted, rtol=1e-6, atol=step / 2 + 2.0**-16)
    codes = quantised.integers(graph["bound"], 0, given_inputs["codes"])
    assert np.abs(codes).max() <= 7


@pytest.mark.parametrize(
    ("precision", "most"), [("fp16", 2e-3), ("fp8", 0.1), ("int8", 0.05), ("int4", 0.5)], ids=lambda value: str(value)
)
def test_more_bits_lose_less(precision, most):
    graph = network()
    quantised = calibrate(graph, samples(), dict.fromkeys(("neural", "symbolic"), precision))
    given_inputs = samples(1, seed=8)[0]
    exact = evaluation.evaluate(graph, given_inputs)
    for found, wanted in zip(evaluate(quantised, given_inputs), exact):
        lost = np.abs(found - wanted).max() / np.abs(wanted).max()
        assert 1e-6 < lost < most


def test_channels_lose_nothing_on_average():
    graph, given_samples = network(), samples(4)
    quantised = calibrate(graph, given_samples, dict.fromkeys(INT8, "int4"))
    exact, found, uncorrected = (
        np.mean([run(each)[0] for each in given_samples], (0, 1))
        for run in (
            lambda each: evaluation.evaluate(graph, each),
            lambda each: evaluate(quantised, each),
            lambda each: evaluate(replace(quantised, biases={}), each),
        )
    )
    step = (quantised.scales["layer", 0] * quantised.scales["layer", 1]).max()
    np.testing.assert_allclose(found, exact, rtol=0, atol=step / 2 + 1e-4)
    assert np.abs(uncorrected - exact).max() > 1


@settings(deadline=None)
@given(st.lists(st.floats(-3, 9, width=32), min_size=2, max_size=40), st.sampled_from(["int8", "int4"]))
def test_zero_is_a_step(numbers, name):
    values, precision = np.array(numbers), PRECISIONS[name]
    scale, zero = _best_scale_and_zero(values, precision)
    assert _rounded(np.zeros(1), precision, scale, zero)[0] == 0
    steps = _steps(values, precision, scale, zero)
    assert -(2 ** (precision.bits - 1)) <= steps.min() <= steps.max() < 2 ** (precision.bits - 1)
    lost = ((values - _rounded(values, precision, scale, zero)) ** 2).sum()
    symmetric = _best_scales(values[None], precision)[0]
    assert lost <= ((values - _rounded(values, precision, symmetric)) ** 2).sum()


class Whole(nn.Module):
    """Paddings of what has a zero, a residual sum, pooling, a concatenation, layers that share an input; symbols."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, padding=1))
        self.one, self.two = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 4, 1)
        self.three = nn.Conv2d(10, 3, 3, padding=1)
        self.top = nn.Linear(3 * 25, 16)
        self.register_buffer("key", torch.softmax(2 * torch.randn(2, 8), -1))

    def forward(self, x):
        x = self.stem(x)
        both = torch.cat([self.one(x).relu(), self.two(x).relu()], 1)
        seen = (self.three(both) + both[:, :3]).relu()
        code = self.top(seen.flatten(1)).unflatten(-1, (2, 8)).softmax(-1)
        bound = dv.vsa.bind(code, self.key)
        return dv.vsa.unbind(bound, self.key), dv.vsa.match_probability(bound, code), seen


@pytest.mark.parametrize("precision", ["int8/int8", "int8/int4", "int4/int4"])
def test_the_hardware_does_what_is_evaluated(precision):
    """To the bit, operator by operator, on problems that it was not calibrated with."""
    torch.manual_seed(3)
    model, names = Whole().eval(), precision.split("/")
    quantised, _ = calibrated(model, [torch.randn(6, 2, 8, 8)], dict(zip(INT8, names)))
    lowered = lower(quantised, Machine(8, 8, 2, x=1 << 18, program=1 << 14))
    x = 2 * np.random.default_rng(5).normal(size=(6, 2, 8, 8))
    outputs, _ = simulate(lowered, [x])
    for found, wanted in zip(outputs, evaluate(quantised, [x])):
        np.testing.assert_array_equal(found, wanted)
    exact = integers.evaluate(lowered.graph, lowered.formats, {lowered.graph.inputs[0]: x})
    emulation = Emulation(lowered.graph, lowered.formats, [x])
    for operator in lowered.graph:
        emulated = emulation.advance(operator)
        if operator.kind != "constant":
            np.testing.assert_array_equal(emulated, exact[operator.name], err_msg=str(operator))
    assert (-128 if names[0] == "int8" else -8) in {format.zero for format in lowered.formats.values.values()}


def test_bounds_beyond_the_format_keep_all_numbers():
    """On the hardware as in what is evaluated, in whole numbers: up to the last one."""
    quantised, _ = calibrated(lambda x: (x * 3.0).clamp(-math.inf, 1e9), [torch.tensor([[-1e4, 0.1, 1e4]])], INT8)
    assert is_done(quantised.graph)
    x = np.array([[-2e4, 0.3, 2e4]])
    (found,), _ = simulate(lower(quantised, Machine(8, 8, 2, x=1 << 18)), [x])
    np.testing.assert_array_equal(found, evaluate(quantised, [x])[0])
    np.testing.assert_allclose(found, [[-32768, 0.9, 32768]], rtol=1e-4)


def test_the_emulation_knows_all_that_is_lowered():
    """A kind that it does not know would be emulated in floats, without a word."""
    missing = [kind for kind in LOWERED if KINDS[kind].unit != "view" and kind not in COMPUTED]
    assert not missing


def test_what_no_hardware_does_is_emulated_in_floats():
    graph = Builder()
    x, weights = graph.input("x", (2, 6)), graph.input("w", (4, 6))
    made = graph.build([graph.add("linear", x, weights, name="layer")])
    rng = np.random.default_rng(0)
    sample = {"x": rng.normal(size=(2, 6)), "w": rng.normal(size=(4, 6))}
    quantised = calibrate(made, [sample], INT8)
    (found,), (wanted,) = evaluate(quantised, sample), evaluation.evaluate(made, sample)
    assert 0 < np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()
    with pytest.raises(UnsupportedError, match="its weights are computed"):
        lower(quantised, Machine(8, 8, 2, x=1 << 18, program=1 << 14))


def test_bytes_of_constants():
    graph = network()
    weights, codes, bias = 5 * 27 + 4 * 180, 16, 5
    count = {
        name: calibrate(graph, samples(1), dict.fromkeys(INT8, name)).constant_bytes() for name in PRECISIONS.names()
    }
    assert count["int8"] == weights + codes + 4 * bias
    assert count["int4"] == -(-135 // 2) + 360 + 8 + 4 * bias
    assert count["fp16"] == 2 * (weights + codes + bias)
    assert calibrate(graph, samples(1), MIXED).constant_bytes() == weights + 8 + 4 * bias


@pytest.mark.parametrize(
    ("precision", "given_samples", "message"),
    [
        ({"neural": "int8"}, samples(1), "has both parts"),
        ({"neural": "int8", "symbolic": "int9"}, samples(1), "int8"),
        ({"neural": "int8", "logic": "int8", "symbolic": "int8"}, samples(1), "logic"),
        (INT8, [], "no sample"),
        (INT8, [{"x": np.full((2, 3, 6, 6), np.nan), "codes": np.ones((2, 2, 8))}], "%x is not finite"),
    ],
)
def test_what_cannot_be_calibrated_is_an_error(precision, given_samples, message):
    with pytest.raises(DomainError, match=message):
        calibrate(network(), given_samples, precision)


def test_what_stays_wide_has_no_integers():
    quantised = calibrate(network(), samples(1), INT8)
    with pytest.raises(DomainError, match="operand 2 of %conv is not quantised"):
        quantised.integers(quantised.graph["conv"], 2, np.zeros(5))
