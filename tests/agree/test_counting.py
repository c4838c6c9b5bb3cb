"""Model counts and weighted counts of random CNFs: our circuits, PySDD, Ganak and enumeration."""

import math

import numpy as np
import pytest

import derivable as dv
from agree.enumeration import random_clauses, satisfied, truth, world_weights

SIZES = [(1, 1), (3, 2), (6, 9), (9, 30), (12, 44)]
CASES = [(seed, *size) for seed, size in enumerate(SIZES)]
CASES += [pytest.param(seed, *size, marks=pytest.mark.slow) for seed, size in enumerate(SIZES * 2, len(SIZES))]


def pysdd_weighted_count(clauses, weights, negative_weights):
    from pysdd.sdd import SddManager

    n = len(weights)
    manager = SddManager(var_count=n, auto_gc_and_minimize=False)
    node = manager.true()
    for clause in clauses:
        part = manager.false()
        for literal in clause:
            part = part | manager.literal(literal)
        node = node & part
    counter = node.wmc(log_mode=False)
    for variable in range(1, n + 1):
        counter.set_literal_weight(manager.literal(variable), float(weights[variable - 1]))
        counter.set_literal_weight(manager.literal(-variable), float(negative_weights[variable - 1]))
    return counter.propagate()


@pytest.mark.parametrize("compiler", ["sdd", "d4"])
@pytest.mark.parametrize(("seed", "num_variables", "num_clauses"), CASES)
def test_counts(seed, num_variables, num_clauses, compiler):
    if compiler == "d4":
        pytest.importorskip("py_d4")
    rng = np.random.default_rng(seed)
    clauses = random_clauses(rng, num_variables, num_clauses)
    models = satisfied(clauses, num_variables)
    circuit = dv.circuit.compile(clauses, compiler=compiler, num_variables=num_variables)
    circuit.check()
    np.testing.assert_array_equal(truth(circuit)[0], models)
    assert circuit.model_count() == models.sum()

    weights, negative_weights = rng.uniform(0.1, 2, (2, num_variables))
    expected = world_weights(weights, negative_weights)[models].sum()
    assert math.isclose(pysdd_weighted_count(clauses, weights, negative_weights), expected, rel_tol=1e-9)
    np.testing.assert_allclose(circuit.weighted_count(weights, negative_weights), expected, rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_ganak_agrees_on_more_variables(seed):
    pyganak = pytest.importorskip("pyganak")
    rng = np.random.default_rng(100 + seed)
    clauses = random_clauses(rng, 30, 70)
    counter = pyganak.Counter()
    counter.new_vars(30)
    for clause in clauses:
        counter.add_clause(clause)
    assert dv.circuit.compile(clauses, num_variables=30).model_count() == counter.count()


@pytest.mark.parametrize("seed", range(6))
def test_marginals_and_best_assignment(seed):
    rng = np.random.default_rng(200 + seed)
    n = 8
    clauses = [*random_clauses(rng, n, 14), [n, -1]]
    models = satisfied(clauses, n)
    if not models.any():
        pytest.skip("the random CNF has no model")
    circuit = dv.circuit.compile(clauses, num_variables=n)
    weights = rng.uniform(0.05, 0.95, n)
    weight = world_weights(weights, 1 - weights) * models
    numbers = np.arange(2**n)
    expected = [(weight * (numbers >> v & 1)).sum() / weight.sum() for v in range(n)]
    np.testing.assert_allclose(np.ravel(circuit.marginals(weights)), expected, rtol=1e-9)
    np.testing.assert_allclose(circuit.probability(weights), weight.sum(), rtol=1e-9)
