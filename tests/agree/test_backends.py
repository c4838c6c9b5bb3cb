"""NumPy, torch and JAX give the same values and gradients, and both are those of the definition."""

import functools
import math

import numpy as np
import pytest

from agree.enumeration import decision_circuit, log_add, semiring_sum, truth
from derivable.algebra import expr
from derivable.algebra.semiring import Semiring

# name: plus, times, zero, one, and the range to draw weights from
SEMIRINGS = {
    "real": (lambda a, b: a + b, lambda a, b: a * b, 0.0, 1.0, (0.05, 0.95)),
    "log": (log_add, lambda a, b: a + b, -math.inf, 0.0, (-3.0, -0.05)),
    "max_product": (max, lambda a, b: a * b, 0.0, 1.0, (0.05, 0.95)),
    "max_plus": (max, lambda a, b: a + b, -math.inf, 0.0, (-2.0, 2.0)),
    "min_plus": (min, lambda a, b: a + b, math.inf, 0.0, (-2.0, 2.0)),
    "godel": (max, min, 0.0, 1.0, (0.05, 0.95)),
}
# A user's own: plus is the Euclidean length. Passed as a record, never registered.
EUCLIDEAN = Semiring(
    "euclidean",
    plus=lambda a, b: expr.sqrt(a * a + b * b),
    times=lambda a, b: a * b,
    zero=0.0,
    one=1.0,
    complement=lambda a: expr.sqrt(1 - a * a),
)
SEMIRINGS["euclidean"] = (math.hypot, lambda a, b: a * b, 0.0, 1.0, (0.05, 0.95))
SHAPES = [(), (1,), (5,), (2, 3), (0,)]


def semiring_of(name: str):
    return EUCLIDEAN if name == "euclidean" else name


@functools.cache
def circuit_of(seed: int):
    rng = np.random.default_rng(seed)
    return decision_circuit(rng, int(rng.integers(1, 9)), num_roots=int(rng.integers(1, 4)))


def draw(seed: int, name: str, shape, num_variables: int):
    low, high = SEMIRINGS[name][4]
    return np.random.default_rng([seed, 7]).uniform(low, high, (2, *shape, num_variables))


@pytest.mark.parametrize("name", SEMIRINGS)
@pytest.mark.parametrize("seed", range(4))
def test_values_are_those_of_the_definition(name, seed):
    circuit = circuit_of(seed)
    plus, times, zero, one, _ = SEMIRINGS[name]
    weights, negative = draw(seed, name, (3,), circuit.num_variables)
    found = circuit.evaluate(weights, negative, semiring=semiring_of(name))
    assert found.shape == (3, circuit.num_roots)
    for root, models in enumerate(truth(circuit)):
        expected = [semiring_sum(models, w, n, plus, times, zero, one) for w, n in zip(weights, negative, strict=True)]
        np.testing.assert_allclose(found[:, root], expected, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SEMIRINGS)
def test_torch_is_numpy(name, shape, dtype):
    import torch

    circuit = circuit_of(1)
    weights, negative = draw(1, name, shape, circuit.num_variables).astype(dtype)
    expected = circuit.evaluate(weights, negative, semiring=semiring_of(name))
    assert expected.dtype == dtype
    found = circuit.to_torch(semiring=semiring_of(name))(torch.from_numpy(weights), torch.from_numpy(negative))
    assert found.dtype == getattr(torch, dtype)
    assert tuple(found.shape) == (*shape, circuit.num_roots)
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-6 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SEMIRINGS)
def test_jax_is_numpy(name, shape):
    jax = pytest.importorskip("jax")
    circuit = circuit_of(2)
    weights, negative = draw(2, name, shape, circuit.num_variables).astype("float32")
    expected = circuit.evaluate(weights, negative, semiring=semiring_of(name))
    function = circuit.to_jax(semiring=semiring_of(name))
    for call in (function, jax.jit(function)):
        found = np.asarray(call(weights, negative))
        assert found.shape == (*shape, circuit.num_roots)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SEMIRINGS)
def test_gradients_agree(name, seed):
    """torch, JAX and central differences in float64, of a fixed random combination of the roots."""
    import torch

    circuit = circuit_of(seed)
    weights, negative = draw(seed, name, (), circuit.num_variables)
    mix = np.random.default_rng([seed, 9]).uniform(0.5, 2, circuit.num_roots)

    def value(w, n):
        return float(
            (np.where(np.isfinite(v := circuit.evaluate(w, n, semiring=semiring_of(name))), v, 0.0) * mix).sum()
        )

    step = 1e-6
    eye = np.eye(circuit.num_variables) * step
    numeric = [
        [(value(weights + e, negative) - value(weights - e, negative)) / (2 * step) for e in eye],
        [(value(weights, negative + e) - value(weights, negative - e)) / (2 * step) for e in eye],
    ]

    w = torch.tensor(weights, requires_grad=True)
    n = torch.tensor(negative, requires_grad=True)
    roots = circuit.to_torch(semiring=semiring_of(name))(w, n)
    finite = torch.isfinite(roots)
    (roots[finite] * torch.from_numpy(mix)[finite]).sum().backward()
    assert w.grad is not None
    assert n.grad is not None
    np.testing.assert_allclose(np.stack([w.grad.numpy(), n.grad.numpy()]), numeric, rtol=1e-5, atol=1e-6)

    jax = pytest.importorskip("jax")
    function = circuit.to_jax(semiring=semiring_of(name))

    def total(w, n):
        roots = function(w, n)
        return jax.numpy.where(jax.numpy.isfinite(roots), roots, 0.0) @ mix.astype("float32")

    found = jax.grad(total, (0, 1))(weights.astype("float32"), negative.astype("float32"))
    np.testing.assert_allclose(np.stack(found), numeric, rtol=2e-4, atol=2e-4)


def test_a_missing_negative_weight_is_the_complement():
    circuit = circuit_of(3)
    probability = np.random.default_rng(5).uniform(0.05, 0.95, (4, circuit.num_variables))
    real = circuit.evaluate(probability, 1 - probability, semiring="real")
    np.testing.assert_allclose(circuit.evaluate(probability), real, rtol=1e-12)
    with np.errstate(divide="ignore"):
        expected = np.log(real)
    np.testing.assert_allclose(circuit.evaluate(np.log(probability), semiring="log"), expected, rtol=1e-10)
