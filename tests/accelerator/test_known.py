"""Ranges that are known without a sample hold for all inputs, and are those of the numbers that the array takes."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import derivable as dv
from accelerator.random_models import model as random_model
from derivable.accelerator.numbers import known
from derivable.accelerator.numbers.formats import prepare
from derivable.accelerator.numbers.quantisation import calibrate, evaluate
from derivable.accelerator.operators.evaluation import Evaluation
from derivable.accelerator.operators.operators import Builder
from derivable.accelerator.trace.trace import trace

torch.manual_seed(0)
ITEMS, DIRECTIONS = torch.randn(6, 8), F.normalize(torch.randn(6, 8), dim=-1)
CODES = torch.randn(6, 4, 8).softmax(-1)
WEIGHTS = torch.randn(6, 3)


@pytest.mark.parametrize(
    ("function", "example", "expected"),
    [
        (lambda x: x.softmax(-1), (2, 8), (0, 1)),
        (lambda x: x.softmax(0), (2, 8), (0, 1)),
        (lambda x: torch.sigmoid(3 * x), (2, 8), (0, 1)),
        (lambda x: torch.tanh(x).reshape(2, 2, 4).amax(-1), (2, 8), (-1, 1)),
        (lambda x: 2 * torch.tanh(x).abs() - 1, (2, 8), (-1, 1)),
        (lambda x: F.hardtanh(x) * x.softmax(-1), (2, 8), (-1, 1)),
        (lambda x: torch.cat([torch.sigmoid(x), torch.tanh(x)], -1), (2, 8), (-1, 1)),
        (lambda x: F.cosine_similarity(x.unsqueeze(1), ITEMS, -1), (2, 8), (-1, 1)),
        (lambda x: F.normalize(x, dim=-1) @ DIRECTIONS.T, (2, 8), (-1, 1)),
        (lambda x: F.normalize(x, dim=-1) @ F.normalize(x, dim=-1).transpose(0, 1), (2, 8), (-1, 1)),
        (lambda x: dv.vsa.similarity(x.unsqueeze(1), ITEMS, model="hrr"), (2, 8), (-1, 1)),
        (lambda x: dv.vsa.similarity(x.unsqueeze(1), CODES), (2, 4, 8), (-1, 1)),
        (lambda x: dv.vsa.similarities(x, CODES), (2, 4, 8), (-1, 1)),
        (lambda x: dv.vsa.bind(x.softmax(-1), CODES[0]), (2, 4, 8), (0, 1)),
        (lambda x: dv.vsa.match_probabilities(x.softmax(-1), CODES), (2, 4, 8), (0, float(CODES.max()))),
        (lambda x: dv.vsa.match_probability(x.softmax(-1), CODES[:2]), (2, 4, 8), (0, float(CODES.max()))),
        (lambda x: x.softmax(-1) @ WEIGHTS, (2, 6), (float(WEIGHTS.min()), float(WEIGHTS.max()))),
        # Nothing is known of these, or nothing that is near what they are.
        (lambda x: x @ WEIGHTS, (2, 6), None),
        (lambda x: torch.tanh(x) + torch.sigmoid(x), (2, 6), None),
        (lambda x: torch.tanh(x) @ WEIGHTS, (2, 6), None),
        (lambda x: F.normalize(x, dim=-1) @ (3 * DIRECTIONS).T, (2, 8), None),
        (lambda x: x / (x.norm(dim=-1, keepdim=True).clamp(max=1)), (2, 8), None),
        (lambda x: (x / x.norm(dim=0, keepdim=True)) @ DIRECTIONS.T, (2, 8), None),
        (lambda x: x.softmax(0).sum(-1), (2, 8), None),
        (lambda x: torch.exp(x), (2, 6), None),
    ],
)  # fmt: skip
def test_what_is_known(function, example, expected):
    graph = prepare(trace(function, torch.randn(example)))
    found = known.ranges(graph).get(graph.outputs[0])
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-6))
    holds(graph)


def holds(graph):
    """No value of the graph is out of its range, for inputs of all sizes."""
    ranges, rng = known.ranges(graph), np.random.default_rng(0)
    for size in (0.0, 1e-3, 1.0, 30.0):
        inputs = {name: size * rng.normal(size=graph[name].shape) for name in graph.inputs}
        if size == 30.0:
            inputs = {name: np.sign(value) * size for name, value in inputs.items()}
        with np.errstate(invalid="ignore", divide="ignore"):
            run = Evaluation(graph, inputs)
            for operator in graph:
                value = run.advance(operator)
                if operator.name in ranges:
                    low, high = ranges[operator.name]
                    value = value[~np.isnan(value)]  # zero divided by its length is no number
                    assert value.min(initial=low) >= low - 1e-6, operator.name
                    assert value.max(initial=high) <= high + 1e-6, operator.name
    return len(ranges)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 80))])
def test_known_ranges_hold(seed):
    draw = random.Random(seed)
    model, example = random_model(draw.randint, draw.choice)
    assert holds(prepare(trace(model, example))) > 0


class Chosen(nn.Module):
    """Probabilities of eight classes, and what each is worth."""

    def __init__(self):
        super().__init__()
        self.worth = nn.Linear(8, 4, bias=False)

    def forward(self, x):
        return self.worth(x.softmax(-1))


@pytest.mark.parametrize("function", [Chosen(), lambda x: dv.vsa.bind(x.softmax(-1), CODES[0, 0], model="hrr")])
def test_probabilities_of_unseen_inputs_do_not_saturate(function):
    timid, sure = 0.3 * torch.randn(16, 8), 20 * torch.randn(16, 8)
    calibration = [timid, -timid]
    design = dv.accelerator.design(function, timid, pes=16, precision="int8", calibration=calibration)
    run = design.simulate(sure, backend="python")
    assert run.lost.saturated == 0
    wanted = function(sure).detach().double().numpy()
    assert np.abs(run.outputs[0] - wanted).max() <= 0.03 * np.abs(wanted).max()


def softly(count, precision, peak):
    """The scale of probabilities of classes, of which the first is about `peak`, and what they were calibrated with."""
    graph = Builder()
    x = graph.input("x", (64, count))
    chance = graph.add("softmax", x, axis=1, name="chance")
    made = graph.build([graph.add("bind", chance, graph.constant("key", np.eye(count)[0]), name="bound")])
    logits = np.random.default_rng(0).normal(size=(64, count)) / 10
    logits[:, 0] += np.log(peak / (1 - peak) * (count - 1))
    quantised = calibrate(made, [{"x": logits}], {"neural": precision, "symbolic": precision})
    return float(quantised.scales["bound", 0]), quantised, logits


def test_steps_that_are_too_coarse_for_the_samples_are_not_taken():
    assert softly(8, "int8", 0.3)[0] == pytest.approx(1 / 127)
    assert softly(8, "int8", 0.9)[0] == pytest.approx(1 / 127)
    assert softly(8, "int4", 0.99)[0] == pytest.approx(1 / 7)
    # A step of a seventh would make nothing of probabilities of sixteen classes, nor one of 127 of a thousand.
    for count, precision, most in ((16, "int4", 7), (1000, "int8", 127)):
        scale, quantised, logits = softly(count, precision, 2 / count)
        assert scale < 0.5 / most
        assert np.count_nonzero(evaluate(quantised, {"x": logits})[0]) > 0.9 * logits.size
