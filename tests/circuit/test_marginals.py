"""Marginals against lists of all worlds."""

import numpy as np
import pytest

from circuit.deterministic import all_worlds, assert_close, satisfiable_circuit, world_masses
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.queries.marginals import marginals
from derivable.core.diagnostics import DomainError


def listed(circuit, positive, negative):
    masses = world_masses(circuit, np.asarray(positive), np.asarray(negative))
    return masses @ all_worlds(circuit.num_variables), masses.sum(axis=1)


@pytest.mark.parametrize("seed", range(30))
def test_marginals(seed):
    circuit = satisfiable_circuit(seed, num_variables=6, num_roots=1 + seed % 3)
    rng = np.random.default_rng(seed)
    positive, negative = rng.random(6), 3 * rng.random(6)
    joint, total = listed(circuit, positive, negative)
    got, got_joint = marginals(circuit, positive, negative), marginals(circuit, positive, negative, joint=True)
    if circuit.num_roots == 1:
        got, got_joint = got[None], got_joint[None]
    assert_close(got, joint / total[:, None])
    assert_close(got_joint, joint)


def test_zero_weights():
    for seed in range(40):
        circuit = satisfiable_circuit(seed, num_variables=5)
        rng = np.random.default_rng(seed)
        positive = rng.choice([0.0, 0.3, 1.0], 5)
        joint, total = listed(circuit, positive, 1 - positive)
        if total[0] > 0:
            assert_close(marginals(circuit, positive), joint[0] / total[0])
        else:
            with pytest.raises(DomainError, match="no model of the circuit has positive weight"):
                marginals(circuit, positive)


def test_batches():
    circuit = satisfiable_circuit(8, num_variables=5, num_roots=2)
    positive = np.random.default_rng(0).random((3, 2, 5))
    got = circuit.marginals(positive)
    assert got.shape == (3, 2, 2, 5)
    for i in np.ndindex(3, 2):
        joint, total = listed(circuit, positive[i], 1 - positive[i])
        assert_close(got[i], joint / total[:, None])


def test_constants_and_extreme_weights():
    b = CircuitBuilder()
    always = b.build([b.true()], num_variables=3)
    assert_close(marginals(always, [0.25, 0.0, 1.0]), [0.25, 0.0, 1.0])
    assert_close(marginals(always, [1e-300, 1e300, 1e300], [1e300, 1e300, 1e-300]), [0.0, 0.5, 1.0])
    never = b.build([b.false()], num_variables=3)
    with pytest.raises(DomainError, match="unsatisfiable"):
        marginals(never, [0.5] * 3)
    with pytest.raises(DomainError, match="both literals of variable 2 weigh 0"):
        marginals(always, [1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    with pytest.raises(DomainError, match="at least 0"):
        marginals(always, [1.0, -0.5, 1.0])


def test_marginals_are_derivatives():
    # P(v | root) = w_v dZ/dw_v / Z, by central differences.
    circuit = satisfiable_circuit(21, num_variables=6)
    rng = np.random.default_rng(2)
    positive, negative = rng.random(6) + 0.1, rng.random(6) + 0.1
    step = 1e-6
    for v in range(6):
        up, down = positive.copy(), positive.copy()
        up[v] += step
        down[v] -= step
        slope = (circuit.weighted_count(up, negative) - circuit.weighted_count(down, negative)) / (2 * step)
        total = circuit.weighted_count(positive, negative)
        assert marginals(circuit, positive, negative)[v] == pytest.approx(positive[v] * slope / total, abs=1e-8)
