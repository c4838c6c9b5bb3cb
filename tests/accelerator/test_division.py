"""Quotients of numbers of every size: how far divisors go decides in which way they are computed."""

import numpy as np
import pytest
import torch

from derivable.accelerator.lower.lower import lower, simulate
from derivable.accelerator.numbers.emulation import evaluate
from derivable.accelerator.numbers.fixed import ONE, inverse_power

from . import integers
from .networks import calibrated
from .test_lower import SMALL, check

STEP = 1 / ONE


def _spread(least, most, *shape, seed=0):
    """Numbers with 16 bits behind the point, of every size between two."""
    random = torch.rand(*shape, generator=torch.Generator().manual_seed(seed))
    return ((least * (most / least) ** random) * ONE).round() / ONE


def _signs(*shape):
    return 2.0 * torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(9)) - 1


def _divided(a, b):
    return a / b


def _near(function, *inputs):
    """Every quotient is as near as 16 bits allow, beside itself and not only beside the largest."""
    lowered, run = check(function, inputs, near=1e-3)
    (found,) = lowered.integers(run.memory)
    wanted = function(*inputs).double().numpy()
    np.testing.assert_allclose(found * STEP, wanted, rtol=3e-4, atol=3 * STEP)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (_spread(0.1, 100, 6, 9), _spread(0.01, 10000, 6, 9, seed=1)),
        (_spread(0.1, 100, 6, 9) * _signs(6, 9), _spread(0.01, 10000, 6, 9, seed=1)),
        (_spread(0.1, 100, 6, 9), _spread(0.01, 10000, 6, 1, seed=1) * _signs(6, 1)),
        (_spread(0.1, 100, 9) * _signs(9), _spread(0.01, 10000, 6, 9, seed=1) * _signs(6, 9)),
        (_spread(0.1, 100, 6, 9), _spread(0.5, 10000, 6, 9, seed=1)),
        (_spread(0.1, 100, 6, 9) * _signs(6, 9), _spread(0.01, 10, 6, 9, seed=1) * _signs(6, 9)),
        (_spread(0.1, 100, 6, 9).index_fill(1, torch.tensor([3]), 0), _spread(0.01, 10000, 6, 9, seed=1)),
    ],
    ids=["wide", "signed", "divisor signed", "both signed", "far from zero", "narrow", "zeros"],
)
def test_quotients(a, b):
    _near(_divided, a, b)


def test_reciprocals_and_constants():
    b = _spread(0.01, 10000, 40)
    _near(lambda b: 1 / b, b)
    _near(lambda b: torch.tensor([[-3.0], [250.0]]) / b, b)


def test_divisors_that_the_calibration_did_not_meet():
    """Negative ones, zeros and those beyond are the same on the machine and in the emulation, though no quotients."""
    for b in (_spread(0.01, 10000, 5, 4), _spread(0.01, 2, 5, 4), _spread(0.01, 10000, 5, 4) * _signs(5, 4)):
        quantised, (a, given) = calibrated(_divided, (_spread(0.1, 10, 5, 4) * _signs(5, 4), b))
        lowered = lower(quantised, SMALL)
        given = np.concatenate([-given[:2], 0 * given[:1], 3 * given[3:]])
        _, run = simulate(lowered, [a, given])
        expected = integers.evaluate(lowered.graph, lowered.formats, dict(zip(lowered.graph.inputs, [a, given])))
        (found,), (emulated,) = lowered.integers(run.memory), evaluate(lowered.graph, lowered.formats, [a, given])
        np.testing.assert_array_equal(found, expected[lowered.graph.outputs[0]])
        np.testing.assert_array_equal(found, emulated)


def test_when_inverses_are_kept():
    assert [inverse_power(*ends) for ends in ((0, 1), (-16, 3), (0, 17), (1, 1000), (-1000, -1))] == [
        0,
        4,
        None,
        10,
        10,
    ]
    assert inverse_power(2.0**-10, 32) == 5
    assert inverse_power(2.0**-11, 32) is None
