"""Circuits and folds under everything that JAX does with a function, against finite differences and jax.numpy."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import derivable as dv
from bridge.test_torch_bridge import DAMPED
from circuit.decimal_circuits import random_circuit
from derivable.algebra import semirings
from derivable.circuit.fold.engine import GraphFold

P = dv.parallel


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


# From rows of four to rows of two, nearly all of them, so that what JAX compiles for one is there for the next.
def circuit(name, negatives=False):
    f = random_circuit(np.random.default_rng(3), 4, 18, 2).to_jax(name)

    def call(x):
        x = x if name not in ("log", "max_plus") else jnp.log(x)
        return f(x[..., :4], x[..., 4:]) if negatives else f(x)

    return call, 8 if negatives else 4


def fold(operator, kind="scan"):
    def call(x):
        rows = jnp.moveaxis(x, -1, 0)
        if kind == "segment_reduce":
            found = P.segment_reduce(operator, rows, np.array([0, 2, 2, 4]))[::2]
        else:
            found = P.scan(operator, rows)
        return jnp.moveaxis(found, 0, -1)

    return call, 4


CASES = {
    "circuit log": lambda: circuit("log"),
    "circuit real": lambda: circuit("real"),
    "circuit log, negative weights": lambda: circuit("log", negatives=True),
    "circuit max_product": lambda: circuit("max_product"),
    "circuit damped": lambda: circuit(DAMPED),
    "scan": lambda: fold("mul"),
    "segment_reduce": lambda: fold(P.operator(lambda a, b: a + b - a * b, neutral=0.0), "segment_reduce"),
}
# One of each engine, and a semiring of a user's own, for what takes JAX seconds each.
QUICK = ["circuit log", "circuit damped", "segment_reduce"]
case = cache(lambda name: CASES[name]())


def drawn(count, *batch, seed=0):
    return np.random.default_rng(seed).uniform(0.1, 0.4, (*batch, count))


@pytest.mark.parametrize(
    ("name", "transform"),
    [
        # Operation by operation JAX takes as long again, for the same rules.
        pytest.param(name, transform, marks=pytest.mark.slow if transform == "none" and name not in QUICK else ())
        for name in CASES
        for transform in ("jit", "none")
    ],
)
def test_derivatives_to_the_second_order(name, transform):
    f, count = case(name)
    f = jax.jit(f) if transform == "jit" else f
    check_grads(f, (drawn(count, 2),), order=2, modes=("fwd", "rev"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_transformations(name):
    f, count = case(name)
    x, rows = drawn(count), drawn(count, 3, seed=1)

    def total(y):
        return jnp.sin(f(y)).sum()

    done = []

    def both(transform, *arguments):
        found = transform(*arguments)
        done.append((transform, arguments, found))
        return found

    jacobian = both(jax.jacrev(f), x)
    np.testing.assert_allclose(both(jax.jacfwd(f), x), jacobian, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(jax.jvp(f, (x,), (rows[0],))[1], jacobian @ rows[0], rtol=1e-9)
    np.testing.assert_allclose(both(jax.vmap(f), rows), np.stack([f(row) for row in rows]), rtol=1e-12)
    gradients = both(jax.vmap(jax.grad(total)), rows)
    np.testing.assert_allclose(gradients, np.stack([jax.grad(total)(row) for row in rows]), rtol=1e-9)
    hessian = both(jax.hessian(total), x)
    np.testing.assert_allclose(both(jax.jacrev(jax.jacrev(total)), x), hessian, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(both(jax.jacrev(jax.jacfwd(total)), x), hessian, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(both(jax.vmap(jax.hessian(total)), rows)[0], jax.hessian(total)(rows[0]), rtol=1e-8)
    # Under jit in one function, since compiling many takes longer.
    compiled = jax.jit(lambda given: [transform(*x) for (transform, _, _), x in zip(done, given, strict=True)])
    for one, (_, _, found) in zip(compiled([arguments for _, arguments, _ in done]), done, strict=True):
        np.testing.assert_allclose(one, found, rtol=1e-10, atol=1e-12)


def test_circuits_are_what_jax_computes():
    a, b, c = dv.circuit.variables("a b c")
    made = dv.circuit.compile((a & b) | (~a & c))

    def written(w):
        return w[0] * w[1] + (1 - w[0]) * w[2]

    x = drawn(3)
    real, logs = made.to_jax("real"), made.to_jax("log")
    np.testing.assert_allclose(jax.hessian(lambda w: real(w)[0])(x), jax.hessian(written)(x), atol=1e-12)
    expected = jax.hessian(lambda w: jnp.log(written(jnp.exp(w))))(np.log(x))
    np.testing.assert_allclose(jax.hessian(lambda w: logs(w)[0])(np.log(x)), expected, atol=1e-12)
    np.testing.assert_allclose(
        jax.grad(lambda w: jax.grad(lambda v: logs(v)[0])(w)[0])(np.log(x)), expected[0], atol=1e-12
    )


@pytest.mark.parametrize("name", ["real", "log", "godel"])
def test_the_form_for_other_devices(name):
    made = random_circuit(np.random.default_rng(5), 4, 18, 2)
    engine = GraphFold(made, semirings.get(name), True, "float64")
    operands = (
        [np.log(drawn(4, 3)), np.log(drawn(4, 3, seed=1))] if name == "log" else [drawn(4, 3), drawn(4, 3, seed=1)]
    )
    results, seeds = engine.apply(None, operands), [drawn(2, 3, seed=2)]
    apply, pull = engine.elsewhere("JAX")
    np.testing.assert_allclose(jax.jit(lambda *x: apply(None, x))(*operands)[0], results[0], rtol=1e-12)
    for mine, other in zip(pull(None, seeds, operands, results), engine.pull(None, seeds, operands, results)):
        np.testing.assert_allclose(mine, other, rtol=1e-10)


def test_engines_of_one_form_are_not_taken_for_each_other():
    """Two circuits, and two chains, with as many nodes and variables: the forward derivatives of forward derivatives of
    one stay its own when those of the other have been compiled."""
    point = jnp.array([0.2, 0.6, 0.7])
    hessians = []
    for clauses in ([[1, 2], [2, 3]], [[1, -2], [-2, 3]]):
        module = dv.circuit.compile(clauses).to_jax("real")

        def value(w, module=module):
            return module(w, 1 - w).sum()

        hessians.append((jax.jit(jax.jacfwd(jax.jacfwd(value))), value))
    for compiled, _ in hessians:
        compiled(point)
    for compiled, value in hessians:
        steps = 1e-3 * np.eye(3)
        rows = [
            [
                (value(point + a + b) - value(point + a - b) - value(point - a + b) + value(point - a - b)) / 4e-6
                for a in steps
            ]
            for b in steps
        ]
        np.testing.assert_allclose(compiled(point), rows, atol=1e-4)


def test_keys_say_what_engines_are_made_of():
    from derivable.algebra.semirings import get
    from derivable.bridge.engines import Chain, Elementwise
    from derivable.circuit.fold.engine import GraphFold

    graphs = [dv.circuit.compile(clauses) for clauses in ([[1, 2], [2, 3]], [[1, -2], [-2, 3]], [[1, 2], [2, 3]])]
    folds = [GraphFold(graph, get("real"), False, "float64") for graph in graphs]
    ring = get("minmaxprob").typed("float64")
    show = [Elementwise(ring.show, [np.array(others)]) for others in ([0, 1], [1, 0], [0, 1])]
    for engines in (folds, [fold.dual for fold in folds], show, [Chain(fold, one) for fold, one in zip(folds, show)]):
        first, second, third = [engine.number for engine in engines]
        assert first == third
        assert first != second
