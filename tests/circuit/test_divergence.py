"""Entropy and divergence against lists of all worlds."""

import math

import numpy as np
import pytest
from scipy.special import rel_entr

from circuit.deterministic import assert_close, satisfiable_circuit, world_masses
from circuit.test_count import parity_chain
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.queries.divergence import entropy, kl_divergence
from derivable.core.diagnostics import DomainError, ShapeError


def distributions(circuit, positive, negative):
    masses = world_masses(circuit, positive, negative)
    return masses / masses.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(30))
def test_entropy_and_divergence(seed):
    circuit = satisfiable_circuit(seed, num_variables=6, num_roots=1 + seed % 2)
    rng = np.random.default_rng(seed)
    weights = rng.random((4, 6))
    p = distributions(circuit, weights[0], weights[1])
    q = distributions(circuit, weights[2], weights[3])
    plogp = np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0)
    assert_close(np.atleast_1d(entropy(circuit, weights[0], weights[1])), np.maximum(0, -plogp.sum(axis=1)))
    assert_close(
        np.atleast_1d(kl_divergence(circuit, weights[0], weights[2], weights[1], weights[3])),
        rel_entr(p, q).sum(axis=1),
    )
    assert_close(np.atleast_1d(kl_divergence(circuit, weights[0], weights[0])), np.zeros(circuit.num_roots))


def test_zero_weights():
    infinite = finite = 0
    for seed in range(60):
        circuit = satisfiable_circuit(seed, num_variables=5)
        rng = np.random.default_rng(seed)
        a, b = rng.choice([0.0, 0.3, 0.6, 1.0], (2, 5), p=[0.1, 0.4, 0.4, 0.1])
        masses = [world_masses(circuit, w, 1 - w)[0] for w in (a, b)]
        if min(m.sum() for m in masses) == 0:
            with pytest.raises(DomainError, match="no model"):
                kl_divergence(circuit, a, b)
            continue
        p, q = (m / m.sum() for m in masses)
        expected = rel_entr(p, q).sum()
        infinite += expected == np.inf
        finite += expected < np.inf
        got = kl_divergence(circuit, a, b)
        assert not np.isnan(got)
        assert_close(got, expected, atol=1e-9)
    assert infinite >= 5
    assert finite >= 5


def test_uniform_entropy_is_the_log_of_the_count():
    circuit = parity_chain(2000)
    assert circuit.entropy(np.full(2000, 0.5)) == pytest.approx(1999 * math.log(2))
    b = CircuitBuilder()
    assert entropy(b.build([b.true()], num_variables=3), [0.5, 0.5, 1.0]) == pytest.approx(2 * math.log(2))
    assert entropy(b.build([b.literal(1)]), [0.3]) == 0.0


def test_entropy_by_marginals():
    # H = log Z - sum of expected log weights, another way to the same number.
    circuit = satisfiable_circuit(31, num_variables=6)
    p = np.random.default_rng(3).random(6)
    m = circuit.marginals(p)
    by_marginals = np.log(circuit.weighted_count(p)) - m @ np.log(p) - (1 - m) @ np.log(1 - p)
    assert circuit.entropy(p) == pytest.approx(by_marginals)


def test_vanishing_mass_is_finite_where_support_is_kept():
    b = CircuitBuilder()
    circuit = b.build([b.disjunction([b.literal(1), b.conjunction([b.literal(-1), b.literal(2)])])])
    got = kl_divergence(circuit, [0.5, 0.5], [1e300, 0.5], [0.5, 0.5], [1e-300, 0.5])
    # Q is all but certain of variable 1: log of 10^600 is kept.
    p = np.array([1, 1, 1]) / 3
    log_q = np.array([math.log(0.5), math.log(0.5), -600 * math.log(10) + math.log(0.5)])
    assert got == pytest.approx((p * (np.log(p) - log_q)).sum())


def test_batches_broadcast():
    circuit = satisfiable_circuit(2, num_variables=4)
    rng = np.random.default_rng(1)
    a, b = rng.random((3, 1, 4)), rng.random((5, 4))
    got = kl_divergence(circuit, a, b)
    assert got.shape == (3, 5)
    assert got[2, 4] == pytest.approx(kl_divergence(circuit, a[2, 0], b[4]))
    assert entropy(circuit, b).shape == (5,)
    with pytest.raises(ShapeError, match="broadcast"):
        kl_divergence(circuit, np.ones((3, 4)), np.ones((2, 4)))
