"""Evaluation: the kernels against the reference, decimals, and each other; the edges of the range; bad input."""

import math

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.decimal_circuits import log_of_expansion, log_value_and_gradient, random_circuit
from data import data_path
from derivable.algebra import semirings
from derivable.circuit import load
from derivable.circuit.fold.evaluate import evaluate, value_and_gradient
from derivable.circuit.fold.plan import Plan, describe_plan, plan_of
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.device.cpu import threads
from derivable.parallel.levels import fold_levels
from parallel.level_oracle import fold_levels_vjp

NAMES = ["real", "log", "max_product", "max_plus", "min_plus", "godel"]


def leaves_of(circuit, weights, negative_weights):
    node, variable, positive = plan_of(circuit).leaves()
    leaf = np.zeros(circuit.num_nodes, np.int64)
    leaf[node] = np.arange(len(node))
    columns = np.where(positive[:, None], weights.T[variable], negative_weights.T[variable])
    return columns, (circuit.kind, leaf, circuit.offsets, circuit.children), variable, positive


def drawn(rng, name, shape):
    weights = rng.uniform(0.05, 0.95, (2, *shape))
    return np.log(weights) if name in ("log", "max_plus", "min_plus") else weights


@pytest.mark.parametrize("batch", [1, 3, 8, 21])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_the_reference(name, seed, batch):
    rng = np.random.default_rng([seed, batch])
    circuit = random_circuit(rng, 5, 30, num_roots=3, widest=7)
    ring = semirings.get(name)
    weights, negatives = drawn(rng, name, (batch, 5))
    leaves, nodes, variable, positive = leaves_of(circuit, weights, negatives)
    expected = fold_levels(leaves, *nodes, ring)
    np.testing.assert_allclose(
        evaluate(circuit, weights, negatives, name), expected[circuit.roots].T, rtol=1e-12, atol=1e-13
    )
    seeds = rng.normal(size=(batch, 3))
    adjoints = np.zeros((circuit.num_nodes, batch))
    for place, root in enumerate(circuit.roots):
        adjoints[root] += seeds[:, place]
    by_leaf = fold_levels_vjp(leaves, *nodes, ring, adjoints)
    _, gradient, negative_gradient = value_and_gradient(circuit, weights, negatives, name, seeds)
    found = np.where(positive[:, None], gradient.T[variable], negative_gradient.T[variable])
    np.testing.assert_allclose(found, by_leaf, rtol=1e-9, atol=1e-11)
    unused = np.setdiff1d(np.arange(5), variable)
    assert not gradient[:, unused].any()


@pytest.mark.parametrize("path", ["linear", "scaled", "unbounded"])
@pytest.mark.parametrize("seed", range(8))
def test_log_semiring_against_decimals(seed, path, monkeypatch):
    if path != "linear":
        monkeypatch.setattr(Plan, "budget", -1.0)
    if path == "unbounded":
        monkeypatch.setattr(Plan, "bound", 0.0)
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, 5, 20, widest=6)
    for negatives in (None, rng.normal(-2, 2, 5)):
        weights = rng.normal(-2, 2, 5) if negatives is not None else -rng.exponential(2, 5)
        logs, gradient, negative_gradient = log_value_and_gradient(circuit, weights, negatives)
        for rows in (1, 5):
            repeated = np.tile(weights, (rows, 1))
            other = None if negatives is None else np.tile(negatives, (rows, 1))
            value, found, negative_found = value_and_gradient(circuit, repeated, other, "log")
            np.testing.assert_allclose(value, np.tile(logs, (rows, 1)), rtol=1e-13, atol=1e-13)
            np.testing.assert_allclose(found, np.tile(gradient, (rows, 1)), rtol=1e-11, atol=1e-14)
            if negatives is not None:
                np.testing.assert_allclose(negative_found, np.tile(negative_gradient, (rows, 1)), rtol=1e-11)


# Weights around everything that can go wrong: -inf, tiny, huge, the edges of float64 and of the proof's budget.
SPECIAL = [-math.inf, -1e6, -2000.0, -760.0, -709.0, -700.0, -555.0, -277.0, -140.0, -1e-30, -1e-9, 0.0]
ABOVE = [*SPECIAL, 1e-9, 1.0, 140.0, 277.0, 555.0, 700.0, 2000.0, 1e6]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 60),
    st.lists(st.sampled_from(ABOVE), min_size=6, max_size=6),
    st.booleans(),
    st.integers(1, 9),
    st.booleans(),
)
def test_log_semiring_at_the_edges(seed, chosen, with_negatives, rows, unbounded):
    with pytest.MonkeyPatch.context() as monkeypatch:
        if unbounded:
            monkeypatch.setattr(Plan, "bound", 0.0)
        check_at_the_edges(seed, chosen, with_negatives, rows)


def check_at_the_edges(seed, chosen, with_negatives, rows):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, 3, 12, num_roots=2)
    weights, negatives = np.array(chosen[:3]), np.array(chosen[3:])
    if not with_negatives:
        weights, negatives = -np.abs(weights), None
    logs, gradient, negative_gradient = log_value_and_gradient(circuit, weights, negatives)
    # The special row among ordinary ones, which share its tile.
    batch = np.full((rows, 3), -0.5)
    batch[-1] = weights
    others = None
    if negatives is not None:
        others = np.full((rows, 3), -1.0)
        others[-1] = negatives
    for place in range(2):
        seeds = np.zeros((rows, 2))
        seeds[:, place] = 1.0
        value, found, negative_found = value_and_gradient(circuit, batch, others, "log", seeds)
        np.testing.assert_allclose(value[-1], logs, rtol=1e-12, atol=1e-12)
        # Never NaN; infinite where the true derivative is beyond float64 (1 - exp(0) against a root of exp(-1e6)).
        if negatives is None:
            rounding = 1e-12 * negative_gradient[place]
            rounding[~np.isfinite(rounding)] = 0
            same = np.isclose(found[-1], gradient[place], rtol=1e-9, atol=1e-50)
            assert (same | (np.abs(found[-1] - gradient[place]) <= rounding)).all()
        else:
            np.testing.assert_allclose(found[-1], gradient[place], rtol=1e-9, atol=1e-50)
            np.testing.assert_allclose(negative_found[-1], negative_gradient[place], rtol=1e-9, atol=1e-50)


# Weights around the bounds of scaled floats, usual masks, and the ends of float32 and float64.
FINITE = [-math.inf, -1e300, -3.4e38, -1e30, -1e19, -(2.0**53) + 1, -(2.0**41), -(2.0**40), -(2.0**39) - 0.5]
FINITE += [-7e5, -800.0, -2.5, 0.0, 0.5, 3e5, 2.0**38, 2.0**39 + 1, 2.0**50, 1e19, 1e30, 1e300]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), st.lists(st.sampled_from(FINITE), min_size=6, max_size=6), st.integers(1, 9))
def test_log_semiring_at_any_finite_weight(seed, chosen, rows):
    circuit = random_circuit(np.random.default_rng(seed), 3, 6, num_roots=2, widest=3)
    weights, negatives = np.array(chosen[:3]), np.array(chosen[3:])
    logs, gradient, negative_gradient = log_of_expansion(circuit, weights, negatives)
    batch, others = np.full((2, rows, 3), -0.5)
    batch[-1], others[-1] = weights, negatives
    for place in range(2):
        seeds = np.zeros((rows, 2))
        seeds[:, place] = 1.0
        value, found, negative_found = value_and_gradient(circuit, batch, others, "log", seeds)
        np.testing.assert_allclose(value[-1], logs, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(found[-1], gradient[place], rtol=1e-9, atol=1e-50)
        np.testing.assert_allclose(negative_found[-1], negative_gradient[place], rtol=1e-9, atol=1e-50)


def test_masked_log_weights_in_all_libraries():
    """A mask of -1e30 on a factor leaves the other gradients as they are, a certain literal's included."""
    b = CircuitBuilder()
    either = b.disjunction([b.literal(2), b.literal(-3)])
    circuit = b.build([b.conjunction([b.literal(1), either])])
    row = np.array([-1e30, -0.5, 0.0], np.float32)
    for weights in (row, np.tile(row, (5, 1))):
        expected = np.broadcast_to([1.0, 1.0, -math.exp(0.5)], weights.shape)
        value, gradient, _ = value_and_gradient(circuit, weights, None, "log")
        assert value.dtype == gradient.dtype == np.float32
        np.testing.assert_allclose(value, np.float32(-1e30))
        np.testing.assert_allclose(gradient, expected, rtol=1e-6)
        given = torch.tensor(weights, requires_grad=True)
        circuit.to_torch("log")(given).sum().backward()
        np.testing.assert_allclose(given.grad, expected, rtol=1e-6)
        function = circuit.to_jax("log")
        np.testing.assert_allclose(function(weights), value)
        np.testing.assert_allclose(jax.grad(lambda w: function(w).sum())(weights), expected, rtol=1e-6)  # noqa: B023


def test_masks_that_no_root_depends_on_stay_with_the_kernels(monkeypatch):
    """Circuits of more than 2^800 products take scaled floats; a mask must not make them a hundred times slower."""
    b = CircuitBuilder()
    pairs = [b.disjunction([b.literal(v), b.literal(-v)]) for v in range(2, 1200)]
    circuit = b.build([b.disjunction([b.conjunction(pairs), b.conjunction([b.literal(1), *pairs])])])
    monkeypatch.setattr("derivable.circuit.fold.log_domain.log_rows_unbounded", None)
    weights, zeros = np.full((3, 1199), -700.0), np.zeros((3, 1199))
    weights[:, 0] = -1e30
    value, gradient, _ = value_and_gradient(circuit, weights, zeros, "log")
    np.testing.assert_allclose(value, 1198 * math.log1p(math.exp(-700.0)), atol=1e-300)
    np.testing.assert_allclose(gradient[:, 1:], math.exp(-700.0), rtol=1e-12)
    assert not gradient[:, 0].any()


def test_a_lost_product_that_matters_is_not_lost():
    """exp(-800) underflows, yet times exp(900) it outweighs the other term: no product may be dropped unseen."""
    b = CircuitBuilder()
    small = b.conjunction([b.literal(1), b.literal(2)])
    large = b.conjunction([b.literal(3), b.literal(4)])
    circuit = b.build([b.disjunction([b.conjunction([small, large]), b.literal(5)])])
    weights = np.array([-400.0, -400.0, 450.0, 450.0, 0.0])
    zeros = np.zeros(5)
    value, gradient, _ = value_and_gradient(circuit, weights, zeros, "log")
    assert value[0] == pytest.approx(100.0)
    np.testing.assert_allclose(gradient, [1, 1, 1, 1, math.exp(-100)], rtol=1e-12)


def test_zero_roots_are_told_from_underflow():
    b = CircuitBuilder()
    circuit = b.build([b.conjunction([b.literal(v) for v in range(1, 41)])])
    weights = np.full((9, 40), -100.0)
    weights[4, 7] = -math.inf
    value, gradient, _ = value_and_gradient(circuit, weights, None, "log")
    np.testing.assert_allclose(np.delete(value, 4), -4000.0)
    assert value[4, 0] == -math.inf
    np.testing.assert_allclose(np.delete(gradient, 4, 0), 1.0)
    assert not gradient[4].any()


def test_complement_at_its_ends():
    b = CircuitBuilder()
    circuit = b.build([b.literal(-1)])
    for weight in (-1e-20, -1e-8, -0.5, -math.log(2), -5.0, -50.0, -1000.0):
        value, gradient, _ = value_and_gradient(circuit, np.array([weight]), None, "log")
        expected = math.log(-math.expm1(weight)) if weight > -1 else math.log1p(-math.exp(weight))
        assert value[0] == pytest.approx(expected, rel=1e-14, abs=2e-16)
        assert gradient[0] == pytest.approx(math.exp(weight) / math.expm1(weight), rel=1e-13, abs=1e-300)
    value, gradient, _ = value_and_gradient(circuit, np.array([0.0]), None, "log")
    assert value[0] == -math.inf
    assert gradient[0] == 0.0


def test_large_adjoints_keep_their_size():
    circuit = random_circuit(np.random.default_rng(3), 4, 12, num_roots=2)
    weights = np.full((3, 4), -0.7)
    _, small, _ = value_and_gradient(circuit, weights, None, "log", np.full((3, 2), 1.0))
    _, large, _ = value_and_gradient(circuit, weights, None, "log", np.full((3, 2), 1e250))
    np.testing.assert_allclose(large, small * 1e250, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_ties_and_zeros_have_finite_gradients(name):
    circuit = random_circuit(np.random.default_rng(8), 4, 20, widest=5)
    ring = semirings.get(name)
    for value in (ring.zero, ring.one):
        weights = np.full((2, 4), value)
        _, gradient, negative_gradient = value_and_gradient(circuit, weights, weights, name)
        assert np.isfinite(gradient).all()
        assert np.isfinite(negative_gradient).all()


def test_ties_give_the_adjoint_to_the_smallest_index():
    b = CircuitBuilder()
    circuit = b.build([b.disjunction([b.literal(1), b.literal(2), b.literal(3)])])
    _, gradient, _ = value_and_gradient(circuit, np.array([0.25, 0.5, 0.5]), None, "max_product")
    np.testing.assert_array_equal(gradient, [0, 1, 0])


def test_products_of_zeros_have_exact_gradients():
    b = CircuitBuilder()
    circuit = b.build([b.conjunction([b.literal(v) for v in (1, 2, 3, 4)])])
    _, gradient, _ = value_and_gradient(circuit, np.array([0.0, 2.0, 3.0, 5.0]))
    np.testing.assert_array_equal(gradient, [30, 0, 0, 0])
    _, gradient, _ = value_and_gradient(circuit, np.array([0.0, 0.0, 3.0, 5.0]))
    np.testing.assert_array_equal(gradient, [0, 0, 0, 0])


def test_counting_is_exact():
    circuit = load(data_path("circuits/sudoku_4.sdd.gz"))
    ones = np.ones(64, np.int64)
    assert circuit.evaluate(ones, semiring="counting").tolist() == [288]
    big = circuit.evaluate(np.full(64, 10**30, dtype=object), np.ones(64, object), semiring="counting")
    assert big.tolist() == [288 * 10**480]
    assert circuit.evaluate(np.ones(64, bool), np.ones(64, bool), semiring="boolean").tolist() == [True]


@pytest.mark.parametrize("name", ["real", "log"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_for_the_same_input(name, dtype):
    """Whatever the number of threads: rows are independent; and one row alone is the row of a batch."""
    circuit = load(data_path("circuits/4-grid.sdd.gz"))
    weights = drawn(np.random.default_rng(0), name, (203, 40))[0].astype(dtype)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(1)
        one = value_and_gradient(circuit, weights, None, name)
        threads.set_num_threads(3)
        three = value_and_gradient(circuit, weights, None, name)
    finally:
        threads.set_num_threads(before)
    again = value_and_gradient(circuit, weights, None, name)
    for first, second, third in zip(one[:2], three[:2], again[:2], strict=True):
        assert first.dtype == dtype
        assert first.tobytes() == second.tobytes() == third.tobytes()


def test_float32_in_the_log_semiring_is_computed_in_float64():
    circuit = load(data_path("circuits/4-grid.sdd.gz"))
    weights = drawn(np.random.default_rng(1), "log", (9, 40))[0].astype(np.float32)
    wide = value_and_gradient(circuit, weights.astype(np.float64), None, "log")
    narrow = value_and_gradient(circuit, weights, None, "log")
    np.testing.assert_array_equal(narrow[0], wide[0].astype(np.float32))
    np.testing.assert_array_equal(narrow[1], wide[1].astype(np.float32))


@pytest.mark.parametrize("name", ["real", "log"])
def test_read_only_arrays_take_the_same_kernels(name):
    """JAX's arrays and what NumPy spreads are read-only, and refused if written."""
    circuit = random_circuit(np.random.default_rng(4), 4, 12, num_roots=2)
    weights, negatives = drawn(np.random.default_rng(5), name, (3, 4))
    seeds = np.ones((3, 2))
    expected = value_and_gradient(circuit, weights, negatives, name, seeds)
    for array in (weights, negatives, seeds):
        array.flags.writeable = False
    others = [(weights, negatives, seeds), (weights, negatives, 1.0)]
    found = [value_and_gradient(circuit, *given[:2], name, given[2]) for given in others]
    with jax.enable_x64(True):
        function = circuit.to_jax(name)
        own = jax.jit(jax.grad(lambda w, n: function(w, n).sum(), (0, 1)))(weights, negatives)
    for values in (*found, (expected[0], *own)):
        for ours, theirs in zip(values, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_batches_of_any_shape_and_constant_roots():
    b = CircuitBuilder()
    circuit = b.build([b.true(), b.false(), b.literal(-2)], num_variables=3)
    weights = np.random.default_rng(0).random((2, 1, 4, 3))
    for name, false in (("real", 0.0), ("max_product", 0.0)):
        found = evaluate(circuit, weights, None, name)
        assert found.shape == (2, 1, 4, 3)
        assert (found[..., 0] == 1).all()
        assert (found[..., 1] == false).all()
        np.testing.assert_array_equal(found[..., 2], 1 - weights[..., 1])
    logs = evaluate(circuit, np.log(weights), None, "log")
    assert (logs[..., 0] == 0).all()
    assert (logs[..., 1] == -np.inf).all()
    assert evaluate(circuit, weights[:0], None, "log").shape == (0, 1, 4, 3)
    transposed = np.moveaxis(weights, 2, 0)
    np.testing.assert_array_equal(evaluate(circuit, transposed), np.moveaxis(evaluate(circuit, weights), 2, 0))
    np.testing.assert_array_equal(evaluate(circuit, weights, np.zeros(3))[..., 2], 0)


@pytest.mark.parametrize("name", ["real", "log", "max_product"])
@pytest.mark.parametrize("rows", [1, 20])
def test_nan_is_refused_with_its_place(name, rows):
    circuit = random_circuit(np.random.default_rng(0), 4, 12)
    weights = np.full((rows, 4), -0.5 if name == "log" else 0.5)
    used = int(np.abs(circuit.literal[circuit.literal != 0][0])) - 1
    weights[rows - 1, used] = np.nan
    where = f"variable {used + 1}" + (f" in row {rows - 1}" if rows > 1 else "")
    with pytest.raises(DomainError, match=f"weights is NaN at {where}"):
        evaluate(circuit, weights, None, name)
    with pytest.raises(DomainError, match="negative_weights is NaN"):
        evaluate(circuit, np.full((rows, 4), -0.5), np.full((rows, 4), np.nan), name)


def test_refusals():
    circuit = random_circuit(np.random.default_rng(0), 4, 12)
    with pytest.raises(ShapeError, match=r"has 3 entries in its last axis, the circuit has 4 variables"):
        evaluate(circuit, np.zeros((2, 3)))
    with pytest.raises(ShapeError, match="do not broadcast"):
        evaluate(circuit, np.zeros((2, 4)), np.zeros((3, 4)))
    with pytest.raises(DomainError, match="a log weight above 0 has no complement"):
        evaluate(circuit, np.full(4, 0.25), semiring="log")
    with pytest.raises(DomainError, match="weights is inf"):
        evaluate(circuit, np.full(4, np.inf), np.zeros(4), semiring="log")
    with pytest.raises(DomainError, match="has no complement"):
        evaluate(circuit, np.zeros(4), semiring="max_plus")
    with pytest.raises(DomainError, match="not of the carrier"):
        evaluate(circuit, np.zeros(4), semiring="boolean")
    with pytest.raises(UnsupportedError, match="not differentiable"):
        value_and_gradient(circuit, np.ones(4, bool), semiring="boolean")


def test_the_plan_is_made_once_and_explained():
    circuit = load(data_path("circuits/sudoku_4.sdd.gz"))
    assert plan_of(circuit) is plan_of(circuit)
    text = describe_plan(circuit)
    assert "853 nodes" in text
    assert "sum of 4 pairs" in text
    assert circuit.explain("kernels") == text


def test_a_wide_node_and_a_deep_chain():
    """More children than shapes are told apart by; and 20,000 levels."""
    b = CircuitBuilder()
    pairs = [b.conjunction([b.literal(v), b.literal(-v - 1)]) for v in range(1, 60)]
    wide = b.disjunction(pairs)
    product = b.conjunction([b.literal(v) for v in range(1, 60)])
    chain = b.literal(1)
    for step in range(20_000):
        chain = (b.conjunction if step % 2 else b.disjunction)([chain, b.literal(2 + step % 50)])
    circuit = b.build([wide, product, chain], num_variables=60)
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 0.9, (3, 60))
    leaves, nodes, _, _ = leaves_of(circuit, weights, 1 - weights)
    expected = fold_levels(leaves, *nodes, semirings.real)[circuit.roots].T
    np.testing.assert_allclose(evaluate(circuit, weights), expected, rtol=1e-10)
    np.testing.assert_allclose(evaluate(circuit, np.log(weights), None, "log"), np.log(expected), rtol=1e-9)
