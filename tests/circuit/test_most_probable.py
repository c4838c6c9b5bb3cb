"""Best models against lists of all worlds."""

import numpy as np
import pytest

from circuit.deterministic import all_worlds, assert_close, satisfiable_circuit, world_masses
from circuit.random_circuits import root_tables
from circuit.test_count import parity_chain
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.queries.most_probable import k_most_probable, most_probable
from derivable.core.diagnostics import DomainError, UnsupportedError


def world_number(assignment):
    return assignment.astype(np.int64) @ (1 << np.arange(assignment.shape[-1]))


@pytest.mark.parametrize("seed", range(30))
def test_most_probable(seed):
    circuit = satisfiable_circuit(seed, num_variables=6, num_roots=1 + seed % 3)
    rng = np.random.default_rng(seed)
    positive, negative = rng.random((2, 6)), rng.random((2, 6))
    best = most_probable(circuit, positive, negative)
    assert best.assignment.dtype == bool
    for i in range(2):
        masses = world_masses(circuit, positive[i], negative[i])
        numbers = np.atleast_1d(world_number(best.assignment[i]))
        assert numbers.tolist() == masses.argmax(axis=1).tolist()
        assert_close(np.atleast_1d(best.weight[i]), masses.max(axis=1))
        assert_close(np.atleast_1d(best.log_weight[i]), np.log(masses.max(axis=1)))


def test_weights_of_zero():
    for seed in range(40):
        circuit = satisfiable_circuit(seed, num_variables=5)
        positive = np.random.default_rng(seed).choice([0.0, 0.25, 1.0], 5)
        masses = world_masses(circuit, positive, 1 - positive)[0]
        if masses.max() == 0:
            with pytest.raises(DomainError, match="positive weight"):
                most_probable(circuit, positive)
        else:
            best = most_probable(circuit, positive)
            assert masses[world_number(best.assignment)] == pytest.approx(masses.max())
            ranked = k_most_probable(circuit, 100, positive)
            assert sorted(world_number(ranked.assignment).tolist()) == np.flatnonzero(masses).tolist()


def test_ties():
    b = CircuitBuilder()
    always = b.build([b.true()], num_variables=3)
    best = most_probable(always, [0.5, 0.6, 0.4])
    assert best.assignment.tolist() == [False, True, False]
    # Both children of the or-node weigh the same: the smaller node id, which is literal 1's.
    x = b.build([b.disjunction([b.literal(1), b.conjunction([b.literal(-1), b.literal(2)])])])
    assert most_probable(x, [0.5, 1.0]).assignment.tolist() == [True, True]


def test_it_needs_no_determinism():
    b = CircuitBuilder()
    loose = b.build([b.disjunction([b.literal(1), b.literal(2)])])
    assert most_probable(loose, [0.3, 0.4]).assignment.tolist() == [False, True]
    with pytest.raises(UnsupportedError, match="deterministic"):
        k_most_probable(loose, 2, [0.3, 0.4])


# Deeper than Python recurses, and in the long suite much deeper.
DEEP = pytest.mark.parametrize("size", [600, pytest.param(3000, marks=pytest.mark.slow)])


@DEEP
def test_far_beyond_float64(size):
    circuit = parity_chain(size)
    best = most_probable(circuit, np.full(size, 1e-300), np.full(size, 1e300))
    assert best.assignment.sum() == 1
    assert best.weight == np.inf
    assert best.log_weight == pytest.approx((size - 2) * np.log(1e300))


@pytest.mark.parametrize("seed", range(30))
def test_k_most_probable(seed):
    circuit = satisfiable_circuit(seed, num_variables=7)
    rng = np.random.default_rng(seed)
    positive, negative = rng.random(7), rng.random(7)
    masses = np.sort(world_masses(circuit, positive, negative)[0])[::-1]
    count = int(root_tables(circuit)[0].sum())
    for k in (0, 1, 3, 200):
        ranked = k_most_probable(circuit, k, positive, negative)
        numbers = world_number(ranked.assignment)
        assert len(numbers) == len(set(numbers.tolist())) == min(k, count)
        assert_close(ranked.weight, masses[: len(numbers)])
        assert_close(world_masses(circuit, positive, negative)[0][numbers], ranked.weight)
        assert (np.diff(ranked.log_weight) <= 0).all()


def test_k_most_probable_of_wide_conjunctions():
    # A conjunction of ten exclusive ors, each with two models: all 1024 models, best first.
    b = CircuitBuilder()
    pairs = []
    for v in range(1, 21, 2):
        pairs.append(
            b.disjunction(
                [
                    b.conjunction([b.literal(v), b.literal(-v - 1)]),
                    b.conjunction([b.literal(-v), b.literal(v + 1)]),
                ]
            )
        )
    circuit = b.build([b.conjunction(pairs)])
    p = np.random.default_rng(3).random(20)
    ranked = k_most_probable(circuit, 2000, p)
    assert len(ranked.weight) == 1024 == len(np.unique(ranked.assignment, axis=0))
    odd, even = p[::2], p[1::2]
    choices = all_worlds(10)
    expected = np.where(choices, odd * (1 - even), (1 - odd) * even).prod(axis=1)
    assert_close(ranked.weight, np.sort(expected)[::-1])


@DEEP
def test_k_most_probable_roots_and_depth(size):
    circuit = parity_chain(size, num_roots=2)
    both = k_most_probable(circuit, 3, np.full(size, 0.1))
    assert len(both) == 2
    odd, even = both
    # Odd parity: one is true. Even parity: none, then two are.
    assert odd.assignment.sum(axis=1).tolist() == [1, 1, 1]
    assert even.assignment.sum(axis=1).tolist() == [0, 2, 2]
    assert len(np.unique(odd.assignment, axis=0)) == 3


def test_k_most_probable_refusals():
    circuit = satisfiable_circuit(1, num_variables=4)
    with pytest.raises(DomainError, match="k is -1"):
        k_most_probable(circuit, -1, np.full(4, 0.5))
    with pytest.raises(DomainError, match=r"not a batch \[2\]"):
        k_most_probable(circuit, 1, np.full((2, 4), 0.5))
    b = CircuitBuilder()
    with pytest.raises(DomainError, match="positive weight"):
        k_most_probable(b.build([b.false()], num_variables=2), 1, [0.5, 0.5])
    always = k_most_probable(b.build([b.true()], num_variables=2), 9, [0.5, 0.9])
    assert_close(always.weight, [0.45, 0.45, 0.05, 0.05])
