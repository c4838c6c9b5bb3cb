"""Circuits that are folded as tables: against sums over all assignments, finite differences, and their own nodes."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.fold import block_fold
from derivable.circuit.fold.evaluate import literals_possible
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import EliminationCircuit
from derivable.circuit.queries.count import log_weighted_count
from derivable.core.diagnostics import DomainError, OutOfMemory


@pytest.fixture(autouse=True)
def folds_tables_alone(monkeypatch):
    """However many passes there are, they are over tables."""
    monkeypatch.setattr(block_fold, "BLOCK", np.inf)


def problem(seed: int, zeros: float = 0.3) -> tuple[list[tuple[list[int], np.ndarray]], list[int]]:
    """Random tables over a few variables, some numbers zero, one or equal; each variable is in one of them."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, int(rng.integers(1, 7))).tolist()
    factors = []
    for number in range(int(rng.integers(1, 9)) + len(sizes)):
        count = int(rng.integers(1, min(4, len(sizes)) + 1))
        scope = rng.choice(len(sizes), count, replace=False).tolist()
        if number < len(sizes) and number not in scope:
            scope.append(number)
        table = rng.choice([0.25, 1.0, *rng.random(4)], [sizes[v] for v in scope])
        factors.append((scope, np.where(rng.random(table.shape) < zeros, 0.0, table)))
    return factors, sizes


def products(factors, sizes) -> Iterator[tuple[tuple[int, ...], float]]:
    """Each assignment, and the product of its entries in all tables."""
    for values in itertools.product(*map(range, sizes)):
        yield values, float(np.prod([table[tuple(values[v] for v in scope)] for scope, table in factors]))


def sums(factors, sizes, allowed) -> tuple[float, np.ndarray]:
    """The sum over all assignments of allowed values, and of those with each value [indicator]."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    parts = np.zeros(starts[-1])
    for values, product in products(factors, sizes):
        cells = [int(starts[v]) + value for v, value in enumerate(values)]
        parts[cells] += product * all(allowed[cell] for cell in cells)
    return float(parts[: sizes[0]].sum()), parts


def tables_of(seed: int, zeros: float = 0.3) -> tuple[EliminationCircuit, list, list[int]]:
    """A circuit that is folded as tables, whose problem has a positive sum."""
    for attempt in range(100):
        factors, sizes = problem(1000 * attempt + seed, zeros)
        circuit = dv.circuit.from_factors(factors, sizes)
        if isinstance(circuit, EliminationCircuit) and sums(factors, sizes, np.ones(sum(sizes)))[0] > 0:
            return circuit, factors, sizes
    raise AssertionError("no problem of many has a sum")


def observed(circuit: EliminationCircuit, sizes: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights where some indicators are false, and which indicators may be true."""
    assert circuit.weights is not None
    allowed = np.random.default_rng(seed).random(sum(sizes)) < 0.8
    positive = circuit.weights[0].copy()
    positive[: len(allowed)] *= allowed
    return positive, allowed


@pytest.mark.parametrize("seed", range(40))
def test_sums_and_marginals_are_those_of_all_assignments(seed):
    circuit, factors, sizes = tables_of(seed)
    positive, allowed = observed(circuit, sizes, seed)
    total, parts = sums(factors, sizes, allowed)
    negative = np.ones(len(positive))
    np.testing.assert_allclose(circuit.evaluate(positive, negative)[0], total, rtol=1e-13)
    np.testing.assert_allclose(circuit.weighted_count(positive, negative), total, rtol=1e-13)
    with np.errstate(divide="ignore"):
        log_weights = np.log(positive), np.log(negative)
        logs = circuit.evaluate(*log_weights, "log")[0], log_weighted_count(circuit, positive, negative)
        np.testing.assert_allclose(logs, np.log([total, total]), rtol=1e-12, atol=1e-12)
    assert circuit.evaluate(positive > 0, negative > 0, "boolean")[0] == (total > 0)
    if total == 0:
        with pytest.raises(DomainError, match="no model"):
            circuit.marginals(positive, negative)
    else:
        marginals = circuit.marginals(positive, negative)[: sum(sizes)]
        np.testing.assert_allclose(marginals, parts / total, rtol=1e-12, atol=1e-15)
        columns = np.arange(sum(sizes))
        possible = literals_possible(circuit, positive > 0, negative > 0, columns)
        assert possible.tolist() == (parts > 0).tolist()
    assert not circuit.has_nodes


@pytest.mark.parametrize("seed", range(15))
def test_gradients_are_finite_differences(seed):
    circuit, _, _sizes = tables_of(100 + seed)
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 1.5, (2, circuit.num_variables))
    adjoints = rng.random((1, 1))
    _, *gradients = circuit.value_and_gradient(weights[:1], weights[1:], "real", adjoints)
    _, *log_gradients = circuit.value_and_gradient(np.log(weights[:1]), np.log(weights[1:]), "log", adjoints)
    assert not circuit.has_nodes
    step = 1e-6
    for sign, variable in itertools.product((0, 1), range(circuit.num_variables)):
        for by_sign, logs in ((gradients, False), (log_gradients, True)):
            ends = []
            for move in (step, -step):
                moved = np.log(weights) if logs else weights.copy()
                moved[sign, variable] += move
                ends.append(circuit.evaluate(moved[0], moved[1], "log" if logs else "real")[0])
            expected = adjoints[0, 0] * (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(by_sign[sign][0, variable], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_are_those_of_the_nodes(seed, dtype):
    circuit, _, _ = tables_of(200 + seed)
    nodes = circuit.make()
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1.0, (3, circuit.num_variables)).astype(dtype)
    tolerance = {"rtol": 1e-12 if dtype is np.float64 else 2e-5, "atol": 1e-7 if dtype is np.float32 else 1e-14}
    for name, some in (("real", weights), ("log", np.log(weights) - 0.1)):
        for negatives in (None, some[::-1].copy()):
            ours, theirs = (one.value_and_gradient(some, negatives, name) for one in (circuit, nodes))
            assert ours[0].dtype == dtype
            assert ours[0].shape == (3, 1)
            for one, other in zip(ours, theirs):
                assert (one is None) == (other is None)
                if one is not None:
                    np.testing.assert_allclose(one, other, **tolerance)
            np.testing.assert_allclose(circuit.evaluate(some, negatives, name), theirs[0], **tolerance)
    for wrong in (np.nan, np.inf):
        weights[1, 0] = wrong
        with np.errstate(all="ignore"):
            for name in ("real", "log"):
                outcomes = []
                for one in (circuit, nodes):
                    try:
                        outcomes.append(np.nan_to_num(one.evaluate(weights, None, name)).tolist())
                    except DomainError as error:
                        # Tables have variables of which no node is left, so the messages may name other positions.
                        outcomes.append(error.message.split()[:2])
                assert outcomes[0] == outcomes[1]


def chain(length: int, number: float) -> tuple[list, list[int]]:
    return [([v, v + 1], np.array([[number, 2 * number], [3 * number, number]])) for v in range(length)], [2] * (
        length + 1
    )


@pytest.mark.parametrize("number", [1e-200, 1e200])
def test_products_beyond_floats_are_scaled(number):
    factors, sizes = chain(40, number)
    circuit = dv.circuit.from_factors(factors, sizes)
    ordinary = dv.circuit.from_factors(*chain(40, 1.0))
    expected = log_weighted_count(ordinary) + 40 * np.log(number)
    np.testing.assert_allclose(log_weighted_count(circuit), expected, rtol=1e-13)
    np.testing.assert_allclose(circuit.marginals()[:82], ordinary.marginals()[:82], rtol=1e-12)
    assert isinstance(circuit, EliminationCircuit)
    assert not circuit.has_nodes


def test_what_underflows_in_tables_is_said_by_nodes():
    """One value has a weight that is lost in a sum with the other's, and the other is impossible by other tables."""
    tiny = np.array([1.0, 1e-300])
    factors = [([0], tiny), ([0, 1], np.array([[1.0, 1e-5], [1.0, 1.0]])), ([1], tiny), ([1], np.array([0.0, 1.0]))]
    factors += [([0], np.array([1e-300, 1.0])), ([0], np.array([1e-300, 1.0]))]
    circuit = dv.circuit.from_factors(factors, [2, 2])
    expected = np.logaddexp(np.log(1e-300) * 3 + np.log(1e-5), np.log(1e-300) * 2)
    np.testing.assert_allclose(log_weighted_count(circuit), expected, rtol=1e-12)


@pytest.mark.parametrize(("large", "small"), [(1.0, 1e-300), (1e300, 1e-300)])
def test_what_weighs_far_less_than_the_rest_is_not_impossible(large, small):
    """The large one is ruled out by another table, so that all of the sum is the small one."""
    factors = [([0], np.array([large, small])), ([0], np.array([small, 1.0])), ([0], np.array([0.0, 1.0]))]
    circuit = dv.circuit.from_factors(factors, [2])
    np.testing.assert_allclose(circuit.weighted_count(), small, rtol=1e-12)
    np.testing.assert_allclose(log_weighted_count(circuit), np.log(small), rtol=1e-12)
    np.testing.assert_allclose(circuit.marginals()[:2], [0.0, 1.0], atol=1e-15)


def test_logarithms_below_those_of_floats_are_possible():
    circuit = dv.circuit.from_factors([([0], np.array([0.5, 0.25])), ([0], np.array([0.0, 1.0]))], [2])
    for logarithm in (-700.0, -800.0, -1e5):
        weights = np.zeros((1, circuit.num_variables))
        weights[0, 1] = logarithm
        np.testing.assert_allclose(circuit.evaluate(weights, np.zeros_like(weights), "log"), [[logarithm]])


def test_floats_far_below_others_of_a_result_do_not_vanish():
    """A result of which one number is 1e200 is scaled down, and the sum is of those that are 1e-200 alone."""
    table = np.array([[1e200, 1e-200], [1e200, 1e-200]])
    factors = [([0, 1], table), ([0, 2], np.ones((2, 2))), ([1], np.array([0.0, 1.0])), ([1, 3], np.ones((2, 2)))]
    circuit = dv.circuit.from_factors(factors, [2, 2, 2, 2])
    nodes = circuit.make()
    np.testing.assert_allclose(circuit.weighted_count(), 8e-200, rtol=1e-12)
    expected = nodes.value_and_gradient(*circuit.weights)
    np.testing.assert_allclose(circuit.evaluate(*circuit.weights), [8e-200], rtol=1e-12)
    for one, other in zip(circuit.value_and_gradient(*circuit.weights), expected):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.filterwarnings("error")
def test_queries_under_any_weights_are_those_of_the_nodes(seed):
    """Weights of both literals, of several rows, and of variables that can be neither."""
    circuit, _, _ = tables_of(300 + seed)
    nodes, rng = circuit.make(), np.random.default_rng(seed)
    positive, negative = rng.uniform(0.1, 3.0, (2, 3, circuit.num_variables))
    for query in (Circuit.weighted_count, log_weighted_count, Circuit.marginals):
        np.testing.assert_allclose(query(circuit, positive, negative), query(nodes, positive, negative), rtol=1e-11)
    dead = rng.integers(circuit.num_variables)
    positive[1, dead] = negative[1, dead] = 0.0
    for query in (Circuit.weighted_count, log_weighted_count):
        np.testing.assert_allclose(query(circuit, positive, negative), query(nodes, positive, negative), rtol=1e-11)
    with pytest.raises(DomainError, match=f"both literals of variable {dead + 1} weigh 0"):
        circuit.marginals(positive, negative)
    assert not circuit.has_nodes


def test_nodes_are_made_once_for_whatever_looks_at_them():
    circuit, factors, sizes = tables_of(5)
    text = repr(circuit)
    assert "entries" in text
    assert not circuit.has_nodes
    best = circuit.most_probable()
    assert circuit.has_nodes
    assert "nodes" in repr(circuit)
    circuit.check()
    np.testing.assert_allclose(best[1], max(product for _, product in products(factors, sizes)), rtol=1e-12)
    conditioned = circuit.condition([1])
    assert not isinstance(conditioned, EliminationCircuit)
    again = pickle.loads(pickle.dumps(tables_of(5)[0]))
    assert again.num_nodes == circuit.num_nodes


def test_many_passes_are_over_nodes_where_these_are_cheaper(monkeypatch):
    circuit, _, _ = tables_of(7)
    expected = circuit.marginals()
    assert not circuit.has_nodes
    monkeypatch.setattr(block_fold, "BLOCK", 0.0)
    monkeypatch.setattr(block_fold, "MAKING", 0.0)
    np.testing.assert_allclose(circuit.marginals(), expected, rtol=1e-12)
    assert circuit.has_nodes


def test_networks_beyond_the_memory_as_tables_are_compiled_otherwise():
    """Two variables of three values each, and a weight for each pair of values."""
    clauses = [[1, 2, 3], [4, 5, 6], *([-a, -b] for s in (1, 4) for a, b in itertools.combinations(range(s, s + 3), 2))]
    for weight, pair in enumerate(itertools.product((1, 2, 3), (4, 5, 6)), 7):
        clauses += [[-pair[0], -pair[1], weight], [-weight, pair[0]], [-weight, pair[1]]]
    assert isinstance(dv.circuit.compile(clauses, "auto"), EliminationCircuit)
    circuit = dv.circuit.compile(clauses, "auto", memory_limit=100)
    assert not isinstance(circuit, EliminationCircuit)
    weights = np.append(np.ones(6), np.arange(1.0, 10.0))
    np.testing.assert_allclose(circuit.weighted_count(weights, np.ones(15)), 45.0)


def test_tables_beyond_the_memory_are_refused():
    factors, sizes = chain(40, 1.0)
    with pytest.raises(OutOfMemory, match="width 1"):
        dv.circuit.from_factors(factors, sizes, memory_limit=1000)
