"""Logarithms of values with gradients by the weights: at zeros and ones, far below the smallest float, on every route.

Expected values: the real semiring and its logarithm where that does not underflow, exact fractions where it does.
"""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch

import derivable as dv
from derivable.circuit.fold.log_values import LogValues
from derivable.core.diagnostics import DomainError, UnsupportedError

DTYPES = [torch.float32, torch.float64]


def _circuits():
    rng = np.random.default_rng(3)
    for _ in range(4):
        clauses = [
            [int(s * (v + 1)) for v, s in zip(rng.choice(6, 3, replace=False), rng.choice([-1, 1], 3))]
            for _ in range(5)
        ]
        yield dv.circuit.compile(clauses), rng


def _rows(circuit, rng, dtype):
    weights = torch.tensor(rng.choice([0, 0.3, 0.7, 1], (12, circuit.num_variables)), dtype=dtype)
    values = circuit.to_torch("real")(weights)[:, 0]
    return weights[values > 0].requires_grad_()


def _gradient(values, weights):
    return torch.autograd.grad(values.sum(), weights)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_at_zeros_and_ones(dtype):
    for circuit, rng in _circuits():
        weights = _rows(circuit, rng, dtype)
        found, expected = circuit.to_torch("real", log_values=True)(weights), circuit.to_torch("real")(weights).log()
        tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
        torch.testing.assert_close(found, expected, **tolerance)
        torch.testing.assert_close(_gradient(found, weights), _gradient(expected, weights), **tolerance)


def test_other_devices_have_the_same_values_and_gradients():
    for circuit, rng in _circuits():
        weights = _rows(circuit, rng, torch.float64)
        engine = LogValues(circuit, "float64")
        operand = torch.cat([weights, 1 - weights], -1) if engine.has_negatives else weights
        given = operand.detach().numpy()
        apply, pull = engine.elsewhere("torch")
        values = apply(None, [operand.detach()])
        np.testing.assert_allclose(values[0], engine.apply(None, [given])[0], rtol=1e-12)
        seeds = np.random.default_rng(0).normal(size=values[0].shape)
        expected = engine.pull(None, [seeds], [given], [])[0]
        found = pull(None, [torch.from_numpy(seeds)], [operand.detach()], values)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_second_derivatives_at_zeros_and_ones():
    a, b, c = dv.circuit.variables(3)
    circuit = dv.circuit.compile((a | b) & (c | ~a))
    log, real = circuit.to_torch("real", log_values=True), circuit.to_torch("real")
    for row in ([0.0, 0.5, 0.2], [1.0, 0.3, 0.7], [0.4, 1.0, 0.9], [0.0, 1.0, 0.0]):
        point = torch.tensor(row, dtype=torch.float64)
        found = torch.autograd.functional.hessian(lambda p: log(p).sum(), point)
        expected = torch.autograd.functional.hessian(lambda p: real(p).log().sum(), point)
        torch.testing.assert_close(found, expected)


def test_jax_has_them_too():
    jax = pytest.importorskip("jax")
    a, b = dv.circuit.variables(2)
    function = dv.circuit.compile(a | b).to_jax("real", log_values=True)
    for row, expected in (((0.0, 0.5), (1, 2)), ((1.0, 0.5), (0.5, 0))):
        gradient = jax.grad(lambda p: function(p).sum())
        np.testing.assert_allclose(gradient(np.float32(row)), expected, rtol=1e-6)
        np.testing.assert_allclose(jax.jit(gradient)(np.float32(row)), expected, rtol=1e-6)


@pytest.mark.parametrize("zero", [0.0, 1e-300, 1e-320])
def test_a_gradient_beside_a_product_far_below_the_smallest_float(zero):
    """f = (a0 or a1) and b1 and ... and b8, each b 1e-100."""
    a0, a1, *others = dv.circuit.variables(10)
    formula = a0 | a1
    for other in others:
        formula = formula & other
    module = dv.circuit.compile(formula).to_torch("real", log_values=True)
    weights = torch.tensor([zero, 0.5, *[1e-100] * 8], dtype=torch.float64, requires_grad=True)
    value = module(weights)
    assert float(value.detach()) == pytest.approx(math.log(0.5) - 800 * math.log(10), rel=1e-14)
    np.testing.assert_allclose(_gradient(value, weights), [1, 2, *[1e100] * 8], rtol=1e-12)


def test_shares_of_tiny_terms():
    """f = x y or ~x z with y and z far below: the derivative by x is (y - z) / f, by exact fractions."""
    x, y, z = dv.circuit.variables(3)
    circuit = dv.circuit.compile((x & y) | (~x & z))
    numbers = [0.0, 1e-308, 3e-308]
    weights = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    p, q, r = map(Fraction, numbers)
    f = p * q + (1 - p) * r
    expected = [float((q - r) / f), 0.0, float((1 - p) / f)]
    found = _gradient(circuit.to_torch("real", log_values=True)(weights), weights)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_an_entry_that_overflows_is_the_largest_float():
    (a,) = dv.circuit.variables(1)
    module = dv.circuit.compile(a).to_torch("real", log_values=True)
    for dtype, small in ((torch.float32, 1e-40), (torch.float64, 1e-310)):
        weights = torch.tensor([small], dtype=dtype, requires_grad=True)
        assert float(_gradient(module(weights), weights)) == torch.finfo(dtype).max
    # What is not wanted stays zero.
    assert float(torch.autograd.grad((module(weights) * 0).sum(), weights)[0]) == 0


def test_an_impossible_root_has_no_gradient():
    builder = dv.circuit.CircuitBuilder()
    a, not_a, b = (builder.literal(literal) for literal in (1, -1, 2))
    roots = builder.conjunction([a, b]), builder.disjunction([a, builder.conjunction([not_a, b])])
    module = builder.build(roots).to_torch("real", log_values=True)
    weights = torch.tensor([0.0, 0.5], dtype=torch.float64, requires_grad=True)
    value = module(weights)
    assert value.tolist()[0] == -math.inf
    assert _gradient(value[..., 0], weights).tolist() == [0, 0]
    assert _gradient(module(weights), weights).tolist() == [1, 2]


def test_the_module_in_other_forms():
    a, b = dv.circuit.variables(2)
    module = dv.circuit.compile(a & ~b).to_torch("real", log_values=True)
    copy = pickle.loads(pickle.dumps(module))
    weights, negative = torch.tensor([2.0, 5.0]), torch.tensor([9.0, 3.0])
    assert float(copy(weights, negative)) == pytest.approx(math.log(6))
    assert module(torch.zeros(0, 2)).shape == (0, 1)
    assert module(weights.half() / 8).dtype == torch.float32
    assert "log_values=True" in repr(module)
    with pytest.raises(DomainError, match="NaN at variable 2"):
        module(torch.tensor([0.5, 1.5]))
    with pytest.raises(UnsupportedError, match="real values"):
        dv.circuit.compile(a).to_torch("max_product", log_values=True)
