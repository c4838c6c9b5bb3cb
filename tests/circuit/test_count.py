"""Counts against lists of all worlds, and where worlds are too many, against arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.deterministic import (
    all_worlds,
    assert_close,
    random_circuit,
    satisfiable_circuit,
    world_masses,
)
from circuit.random_circuits import root_tables
from derivable.circuit.graph.builder import CircuitBuilder, circuit_from_arrays
from derivable.circuit.queries.count import _is_prime, log_weighted_count, model_count, probability, weighted_count
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError


def test_assert_close_can_fail():
    with pytest.raises(AssertionError):
        assert_close([1.0, 2.0], [1.0, 2.1])
    with pytest.raises(AssertionError):
        assert_close([1.0], 1.0)


@pytest.mark.parametrize("seed", range(40))
def test_model_count(seed):
    circuit = random_circuit(seed, num_variables=1 + seed % 8, num_roots=1 + seed % 3)
    expected = root_tables(circuit).sum(axis=1).tolist()
    assert circuit.model_count() == (expected[0] if circuit.num_roots == 1 else expected)


def test_model_count_is_a_python_int():
    assert type(random_circuit(1).model_count()) is int


def test_constants_and_unmentioned_variables():
    b = CircuitBuilder()
    circuit = b.build([b.true(), b.false(), b.literal(2)], num_variables=100)
    assert circuit.model_count() == [2**100, 0, 2**99]
    assert b.build([b.true()], num_variables=0).model_count() == 1
    assert b.build([b.false()], num_variables=0).model_count() == 0
    assert b.build([], num_variables=3).model_count() == []
    assert weighted_count(b.build([b.true()], num_variables=2), [0.5, 3.0], [0.25, 1.0]) == 3.0


def parity_chain(num_variables, num_roots=1):
    """x1 xor x2 xor ... as a decision diagram: 2^(n - 1) models, 4n nodes, and a depth of 2n."""
    kind, literal, children = [], [], []

    def add(k, lit, below):
        kind.append(k)
        literal.append(lit)
        children.append(below)
        return len(kind) - 1

    odd, even = add(0, 0, []), add(1, 0, [])
    for v in range(1, num_variables + 1):
        yes, no = add(2, v, []), add(2, -v, [])
        odd, even = (
            add(4, 0, [add(3, 0, [yes, even]), add(3, 0, [no, odd])]),
            add(4, 0, [add(3, 0, [yes, odd]), add(3, 0, [no, even])]),
        )
    offsets = np.cumsum([0, *(len(row) for row in children)])
    flat = [c for row in children for c in row]
    return circuit_from_arrays(kind, literal, offsets, flat, [odd, even][:num_roots], num_variables)


def test_large_counts():
    circuit = parity_chain(3000, num_roots=2)
    assert circuit.model_count() == [2**2999, 2**2999]


def test_counts_that_are_no_powers_of_two():
    # At least one of n variables: 2^n - 1, whose every bit matters.
    b = CircuitBuilder()
    node = b.false()
    for v in range(1, 701):
        node = b.disjunction([b.literal(v), b.conjunction([b.literal(-v), node])])
    circuit = b.build([node])
    assert circuit.model_count() == 2**700 - 1
    halves = [Fraction(1, 2)] * 700
    assert weighted_count(circuit, halves) == 1 - Fraction(1, 2**700)
    assert weighted_count(circuit, [1] * 699 + [Fraction(1)], [1] * 700) == 2**700 - 1


def test_primes():
    sieve = np.ones(3000, bool)
    sieve[:2] = False
    for i in range(2, 60):
        sieve[i * i :: i] = False
    for n in range(11, 3000, 2):
        assert _is_prime(n) == sieve[n]
    assert _is_prime(2**31 - 1)
    assert not _is_prime(46337 * 46327)


weight = st.one_of(st.just(0.0), st.floats(-4, 4, allow_subnormal=False), st.sampled_from([1.0, -1.0, 0.5]))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.tuples(weight, weight), min_size=5, max_size=5))
def test_weighted_count(seed, pairs):
    circuit = random_circuit(seed, num_variables=5)
    positive, negative = np.array(pairs).T
    expected = world_masses(circuit, positive, negative)
    scale = np.abs(expected).sum() + 1e-300
    assert_close(weighted_count(circuit, positive, negative) / scale, expected.sum() / scale)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.fractions(-3, 3, max_denominator=20), min_size=8, max_size=8))
def test_exact_weighted_count(seed, numbers):
    circuit = random_circuit(seed, num_variables=4)
    positive, negative = numbers[:4], numbers[4:]
    expected = Fraction(0)
    for world, holds in zip(all_worlds(4), root_tables(circuit)[0]):
        if holds:
            expected += math.prod((p if x else n for x, p, n in zip(world, positive, negative)), start=Fraction(1))
    assert weighted_count(circuit, positive, negative) == expected


def test_weights_that_cancel():
    b = CircuitBuilder()
    circuit = b.build([b.disjunction([b.literal(1), b.conjunction([b.literal(-1), b.literal(2)])])])
    # Models 1 2, 1 -2, -1 2 with w1 = 3, nw1 = 2, w2 = 5, nw2 = -5.
    assert weighted_count(circuit, [3.0, 5.0], [2.0, -5.0]) == 10.0
    assert weighted_count(circuit, [Fraction(3), 5], [2, -5]) == 10


def test_batches_and_roots():
    circuit = random_circuit(5, num_variables=5, num_roots=3)
    rng = np.random.default_rng(0)
    positive, negative = rng.random((2, 4, 5)), rng.random((4, 5))
    got = weighted_count(circuit, positive, negative)
    assert got.shape == (2, 4, 3)
    for i in range(2):
        for j in range(4):
            assert_close(got[i, j], world_masses(circuit, positive[i, j], negative[j]).sum(axis=1))
    assert weighted_count(circuit, np.empty((0, 5))).shape == (0, 3)
    single = random_circuit(5, num_variables=5)
    assert weighted_count(single, positive).shape == (2, 4)
    assert isinstance(weighted_count(single, positive[0, 0]), float)


def test_default_weights():
    b = CircuitBuilder()
    either = b.disjunction([b.literal(1), b.conjunction([b.literal(-1), b.literal(2)])])
    plain = b.build([either])
    assert plain.weighted_count() == 3.0
    own = b.build([either], weights=(np.array([0.5, 2.0]), np.array([1.0, 4.0])))
    assert own.weighted_count() == pytest.approx(0.5 * 6 + 1.0 * 2.0)
    assert own.weighted_count([0.5, 0.5]) == pytest.approx(0.75)


def test_neither_underflow_nor_overflow():
    circuit = parity_chain(5000)
    tiny, huge = np.full(5000, 1e-300), np.full(5000, 1e300)
    assert log_weighted_count(circuit, tiny, tiny) == pytest.approx(4999 * math.log(2) + 5000 * math.log(1e-300))
    assert weighted_count(circuit, tiny, tiny) == 0.0
    assert weighted_count(circuit, huge, huge) == math.inf
    mixed = np.where(np.arange(5000) % 2, 1e300, 1e-300)
    assert weighted_count(circuit, mixed / 2, mixed / 2) == pytest.approx(0.5, rel=1e-9)
    # One literal outweighs the other by 10^600: within the product, not within float64.
    assert log_weighted_count(circuit, huge, tiny) == pytest.approx(
        4999 * math.log(1e300) + math.log(1e-300) + math.log(5000)
    )


def test_denormal_and_zero_weights():
    circuit = satisfiable_circuit(3, num_variables=4)
    for w in ([5e-324, 0.3, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]):
        masses = world_masses(circuit, np.array(w), 1 - np.array(w))
        assert_close(weighted_count(circuit, w), masses.sum())
        with np.errstate(divide="ignore"):
            assert_close(log_weighted_count(circuit, w), np.log(masses.sum()))
    assert log_weighted_count(circuit, np.zeros(4), np.zeros(4)) == -math.inf


def test_probability():
    circuit = random_circuit(11, num_variables=6)
    p = np.random.default_rng(1).random(6)
    assert_close(probability(circuit, p), world_masses(circuit, p, 1 - p).sum())
    with pytest.raises(DomainError, match=r"weights\[2\] is 1.5, which is no probability"):
        probability(circuit, [0.1, 0.2, 1.5, 0, 0, 0])


def test_refusals():
    circuit = random_circuit(11, num_variables=6)
    with pytest.raises(ShapeError, match=r"shape \[5\], but the circuit has 6 variables"):
        weighted_count(circuit, np.ones(5))
    with pytest.raises(DomainError, match=r"weights\[1, 3\] is nan \(variable 4\)"):
        weighted_count(circuit, [[0.5] * 6, [0, 0, 0, math.nan, 0, 0]])
    with pytest.raises(DomainError, match="inf"):
        weighted_count(circuit, [math.inf] * 6)
    with pytest.raises(DomainError, match="at least 0"):
        log_weighted_count(circuit, [2.0] * 6)
    with pytest.raises(ShapeError, match="do not broadcast"):
        weighted_count(circuit, np.ones((2, 6)), np.ones((3, 6)))
    with pytest.raises(ShapeError, match="numbers"):
        weighted_count(circuit, ["a"] * 6)
    with pytest.raises(DomainError, match="not exact"):
        weighted_count(circuit, [Fraction(1, 2)] * 5 + [0.5])


def test_what_cannot_be_counted():
    b = CircuitBuilder()
    x, y, z = b.literal(1), b.literal(2), b.literal(3)
    shared = b.build([b.conjunction([b.disjunction([x, y]), b.disjunction([x, z])])])
    with pytest.raises(UnsupportedError, match="decomposable"):
        model_count(shared)
    loose = b.build([b.disjunction([x, y])])
    with pytest.raises(UnsupportedError, match="deterministic"):
        model_count(loose)
    with pytest.raises(UnsupportedError, match="deterministic"):
        weighted_count(loose, [0.5, 0.5])


def test_a_deep_circuit():
    circuit = parity_chain(20_000)
    assert circuit.num_levels > 39_000
    assert log_weighted_count(circuit, np.full(20_000, 0.5)) == pytest.approx(math.log(0.5))
