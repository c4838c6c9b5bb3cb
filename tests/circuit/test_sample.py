"""The sampler against the exact distribution, by chi-square with fixed seeds."""

import numpy as np
import pytest
from scipy import stats

from circuit.deterministic import satisfiable_circuit, world_masses
from circuit.random_circuits import root_tables
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.queries.sample import sample
from derivable.core.diagnostics import DomainError
from derivable.device.cpu.threads import get_num_threads, set_num_threads


def chi_square(samples, masses):
    """p-value of samples [sample, variable] under masses [world]; raises if a sample has no mass."""
    numbers = samples.astype(np.int64) @ (1 << np.arange(samples.shape[1]))
    seen = np.bincount(numbers, minlength=len(masses))
    assert not seen[masses == 0].any(), "a sample outside the support"
    expected = masses / masses.sum() * len(samples)
    kept = expected > 5
    rest = expected[~kept].sum()
    observed, expected = np.append(seen[kept], seen[~kept].sum()), np.append(expected[kept], rest)
    if rest < 5:
        observed, expected = observed[:-1], expected[:-1]
        expected *= observed.sum() / expected.sum()
    if len(observed) < 2:
        return 1.0
    return stats.chisquare(observed, expected).pvalue


def test_chi_square_can_fail():
    rng = np.random.default_rng(0)
    samples = rng.random((4000, 2)) < 0.5
    assert chi_square(samples, np.ones(4)) > 0.001
    assert chi_square(samples, np.array([1.0, 1.0, 1.0, 1.5])) < 0.001
    with pytest.raises(AssertionError, match="support"):
        chi_square(samples, np.array([1.0, 1.0, 0.0, 1.0]))


@pytest.mark.parametrize("seed", range(12))
def test_distribution(seed):
    circuit = satisfiable_circuit(seed, num_variables=5)
    rng = np.random.default_rng(seed)
    positive, negative = rng.random(5), rng.random(5)
    drawn = sample(circuit, 20_000, positive, negative, seed=seed)
    assert drawn.dtype == bool
    assert drawn.shape == (20_000, 5)
    assert chi_square(drawn, world_masses(circuit, positive, negative)[0]) > 1e-4


def test_uniform_without_weights():
    circuit = satisfiable_circuit(4, num_variables=6)
    drawn = circuit.sample(20_000, seed=1)
    assert chi_square(drawn, root_tables(circuit)[0].astype(float)) > 1e-4


def test_independence_of_successive_samples():
    circuit = satisfiable_circuit(4, num_variables=4)
    drawn = circuit.sample(40_000, seed=7)
    pairs = np.concatenate([drawn[::2], drawn[1::2]], axis=1)
    masses = root_tables(circuit)[0].astype(float)
    assert chi_square(pairs, np.outer(masses, masses).T.reshape(-1)) > 1e-4


def test_reproducible_for_any_number_of_threads():
    circuit = satisfiable_circuit(9, num_variables=6, num_roots=2)
    p = np.random.default_rng(0).random((3, 6))
    one = sample(circuit, 1000, p, seed=5)
    assert one.shape == (3, 2, 1000, 6)
    before = get_num_threads()
    try:
        for threads in (1, 3):
            set_num_threads(threads)
            np.testing.assert_array_equal(sample(circuit, 1000, p, seed=5), one)
    finally:
        set_num_threads(before)
    np.testing.assert_array_equal(sample(circuit, 10, p, seed=5), one[:, :, :10])
    assert (sample(circuit, 1000, p, seed=6) != one).any()
    assert (sample(circuit, 1000, p) != sample(circuit, 1000, p)).any()


def test_zero_weights_and_refusals():
    b = CircuitBuilder()
    always = b.build([b.true()], num_variables=3)
    drawn = sample(always, 500, [1.0, 0.0, 0.5], seed=0)
    assert drawn[:, 0].all()
    assert not drawn[:, 1].any()
    assert 0 < drawn[:, 2].sum() < 500
    assert sample(always, 0, seed=0).shape == (0, 3)
    with pytest.raises(DomainError, match="samples is -1"):
        sample(always, -1)
    with pytest.raises(DomainError, match="no model"):
        sample(b.build([b.false()], num_variables=1), 3)
    with pytest.raises(DomainError, match="rule out all its models"):
        sample(b.build([b.literal(1)]), 3, [0.0])
