"""Circuits as JAX functions: jit, grad and vmap, in any order, to the second derivative."""

import numpy as np
import pytest

from circuit.decimal_circuits import random_circuit
from derivable.circuit.fold.evaluate import value_and_gradient
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def drawn(name, shape, seed=0):
    weights = np.random.default_rng(seed).uniform(0.1, 0.9, shape)
    return np.log(weights) if name in ("log", "max_plus") else weights


@pytest.mark.parametrize("name", ["real", "log", "max_plus", "godel"])
def test_transformations(name):
    circuit = random_circuit(np.random.default_rng(3), 5, 20, num_roots=2)
    f = circuit.to_jax(name)
    weights, negatives = drawn(name, (3, 5)), drawn(name, (3, 5), 1)
    expected = circuit.evaluate(weights, negatives, name)
    np.testing.assert_array_equal(f(weights, negatives), expected)
    np.testing.assert_array_equal(jax.jit(jax.vmap(f))(weights, negatives), expected)
    np.testing.assert_array_equal(jax.vmap(f, (0, None))(weights, negatives[0])[0], expected[0])

    def total(w, n):
        return f(w, n).sum()

    _, gradient, negative_gradient = value_and_gradient(circuit, weights, negatives, name, np.ones((3, 2)))
    found = jax.jit(jax.grad(total, (0, 1)))(weights, negatives)
    np.testing.assert_array_equal(found[0], gradient)
    np.testing.assert_array_equal(found[1], negative_gradient)
    by_row = jax.vmap(jax.grad(total, (0, 1)))(weights, negatives)
    np.testing.assert_array_equal(by_row[0], gradient)


@pytest.mark.parametrize("name", ["real", "log"])
def test_second_derivatives(name):
    circuit = random_circuit(np.random.default_rng(4), 4, 12)
    f = circuit.to_jax(name)
    weights = drawn(name, 4)
    hessian = jax.jacrev(jax.grad(lambda w: f(w)[0]))(weights)
    step = 1e-6
    for k in range(4):
        change = np.eye(4)[k] * step
        up, down = (value_and_gradient(circuit, weights + s * change, None, name)[1] for s in (1, -1))
        np.testing.assert_allclose(hessian[k], (up - down) / (2 * step), rtol=1e-5, atol=1e-5)


def test_dtypes_and_refusals():
    circuit = random_circuit(np.random.default_rng(3), 5, 20, num_roots=2)
    f = circuit.to_jax("log")
    assert f(jnp.full((0, 5), -0.5, jnp.float32)).shape == (0, 2)
    assert f(jnp.full(5, -0.5, jnp.float32)).dtype == jnp.float32
    assert f(jnp.full(5, -0.5, jnp.bfloat16)).dtype == jnp.float32
    assert circuit.to_jax("boolean")(jnp.ones(5, bool)).dtype == jnp.bool_
    with pytest.raises(ShapeError, match="has 4 entries"):
        f(jnp.zeros(4))
    with pytest.raises(DomainError, match="int32"):
        f(jnp.zeros(5, jnp.int32))
    with pytest.raises(DomainError, match="no complement"):
        circuit.to_jax("max_plus")(jnp.zeros(5))
    with pytest.raises(UnsupportedError, match="integers of any size"):
        circuit.to_jax("counting")
    with pytest.raises(Exception, match="weights is NaN at variable"):
        jax.block_until_ready(f(jnp.full(5, jnp.nan)))
