"""Transformed circuits against the truth tables they must have."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from circuit.deterministic import all_worlds, assert_close, random_circuit, satisfiable_circuit, world_masses
from circuit.random_circuits import root_tables
from circuit.test_count import parity_chain
from derivable.circuit import compile, variables
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.queries.transform import condition, forget, restrict, restrict_roots, smooth, smooth_over
from derivable.core.diagnostics import DomainError, UnsupportedError


def mentioned_by_children(circuit):
    """[node] frozenset of variables, by the obvious loop."""
    scopes = []
    for n in range(circuit.num_nodes):
        children = circuit.children[circuit.offsets[n] : circuit.offsets[n + 1]]
        own = {abs(int(circuit.literal[n]))} - {0}
        scopes.append(frozenset(own.union(*(scopes[c] for c in children))))
    return scopes


@pytest.mark.parametrize("seed", range(30))
def test_condition_and_restrict(seed):
    circuit = random_circuit(seed, num_variables=6, num_roots=2)
    rng = np.random.default_rng(seed)
    evidence = {int(v): bool(rng.integers(2)) for v in rng.choice(np.arange(1, 7), 3, replace=False)}
    worlds = all_worlds(6)
    agrees = np.all([worlds[:, v - 1] == value for v, value in evidence.items()], axis=0)
    table = root_tables(circuit)
    conditioned = condition(circuit, evidence)
    conditioned.check()
    assert (root_tables(conditioned) == table & agrees).all()
    assert conditioned.model_count() == (table & agrees).sum(axis=1).tolist()
    as_literals = condition(circuit, [v if value else -v for v, value in evidence.items()])
    assert (root_tables(as_literals) == table & agrees).all()
    restricted = restrict(circuit, evidence)
    restricted.check()
    forced = np.arange(64)
    for v, value in evidence.items():
        forced = forced | (1 << (v - 1)) if value else forced & ~(1 << (v - 1))
    assert (root_tables(restricted) == table[:, forced]).all()
    assert not any(scope & set(evidence) for scope in mentioned_by_children(restricted))


def test_posteriors_by_conditioning():
    circuit = satisfiable_circuit(3, num_variables=6)
    p = np.random.default_rng(0).random(6)
    evidence = {2: True, 5: False}
    masses = world_masses(circuit, p, 1 - p)[0]
    worlds = all_worlds(6)
    masses = masses * (worlds[:, 1] & ~worlds[:, 4])
    if masses.sum():
        assert_close(condition(circuit, evidence).marginals(p), masses @ worlds / masses.sum())


def test_variables_by_name():
    a, b, c = variables("a b c")
    circuit = compile((a | b) & (~a | c))
    for evidence in ({1: True, 2: False}, {"a": True, "b": False}, {a: True, b: False}, ["a", ~b], [1, ~b], [a, -2]):
        fixed = circuit.condition(evidence)
        assert root_tables(fixed)[0].tolist() == [w[0] and not w[1] and w[2] for w in all_worlds(3)]
    assert root_tables(circuit.forget(["a"])).tolist() == root_tables(circuit.forget([1])).tolist()
    chances = np.array([0.5, 0.25, 0.125])
    batch = np.stack([chances, [0.5, 0.75, 0.125]])
    for names in (("a", "b", "c"), (a, b, c), (1, 2, 3), (c, "a", 2)):
        numbers = [circuit.variable_number(name) for name in names]
        given = {name: chances[number - 1] for name, number in zip(names, numbers)}
        assert circuit.probability(given) == circuit.probability(chances)
        assert circuit.weighted_count(given, given) == circuit.weighted_count(chances, chances)
        assert circuit.marginals(given).tolist() == circuit.marginals(chances).tolist()
        assert circuit.evaluate(given).tolist() == circuit.evaluate(chances).tolist()
        value, gradient, _ = circuit.value_and_gradient(given)
        expected, by_column, _ = circuit.value_and_gradient(chances)
        assert (value.tolist(), gradient.tolist()) == (expected.tolist(), by_column.tolist())
        given = {
            name: batch[:, number - 1] if number == 2 else chances[number - 1] for name, number in zip(names, numbers)
        }
        assert circuit.probability(given).tolist() == circuit.probability(batch).tolist()
    exact = {"a": Fraction(1, 3), b: Fraction(1, 2), 3: 1}
    assert circuit.weighted_count(exact) == Fraction(1, 3) + Fraction(2, 3) * Fraction(1, 2)


def test_evidence_errors():
    circuit = random_circuit(1, num_variables=4)
    with pytest.raises(DomainError, match="both 2 and -2"):
        condition(circuit, [2, -2])
    with pytest.raises(DomainError, match="5 is not a variable of the circuit, which has 4"):
        condition(circuit, {5: True})
    with pytest.raises(DomainError, match="0 is not a variable"):
        condition(circuit, [0])
    with pytest.raises(DomainError, match="is 'yes'"):
        condition(circuit, {1: "yes"})
    assert condition(circuit, {}).model_count() == circuit.model_count()
    assert condition(circuit, [1, 1]).model_count() == condition(circuit, {1: True}).model_count()


def test_evidence_against_the_circuit():
    b = CircuitBuilder()
    circuit = b.build([b.conjunction([b.literal(1), b.literal(2)])])
    impossible = condition(circuit, [-1])
    assert impossible.model_count() == 0
    with pytest.raises(DomainError, match="unsatisfiable"):
        impossible.marginals([0.5, 0.5])


@pytest.mark.parametrize("seed", range(30))
def test_forget(seed):
    circuit = random_circuit(seed, num_variables=6, num_roots=2)
    variables = np.random.default_rng(seed).choice(np.arange(1, 7), 2, replace=False).tolist()
    expected = root_tables(circuit)
    for v in variables:
        expected = expected | expected[:, np.arange(64) ^ (1 << (v - 1))]
    forgotten = forget(circuit, variables)
    forgotten.check()
    assert (root_tables(forgotten) == expected).all()
    assert forgotten.is_decomposable
    assert forgotten.origin == "forgotten"
    try:
        counts = forgotten.model_count()
    except UnsupportedError:
        assert not forgotten.check_determinism().holds
    else:
        assert counts == expected.sum(axis=1).tolist()


def test_forgetting_loses_determinism():
    b = CircuitBuilder()
    # (1 and 2) or (-1 and 3): without 1 it is 2 or 3.
    circuit = b.build(
        [b.disjunction([b.conjunction([b.literal(1), b.literal(2)]), b.conjunction([b.literal(-1), b.literal(3)])])],
        origin="decision",
    )
    assert circuit.model_count() == 4
    loose = circuit.forget([1])
    with pytest.raises(UnsupportedError, match="deterministic"):
        loose.model_count()
    with pytest.raises(UnsupportedError, match="deterministic"):
        loose.marginals([0.5] * 3)
    assert loose.most_probable([0.5, 0.2, 0.7]).assignment.tolist() == [False, False, True]
    # Forgetting 2 and 3 too leaves true, whose determinism is plain.
    assert circuit.forget([1, 2, 3]).model_count() == 8
    assert circuit.forget([]) is circuit
    with pytest.raises(DomainError, match="4 is not a variable"):
        circuit.forget([4])


def test_forget_needs_decomposability():
    b = CircuitBuilder()
    x, y, z = b.literal(1), b.literal(2), b.literal(3)
    circuit = b.build([b.conjunction([b.disjunction([x, y]), b.disjunction([b.literal(-1), z])])])
    with pytest.raises(UnsupportedError, match="decomposable"):
        forget(circuit, [1])


@pytest.mark.parametrize("seed", range(40))
def test_smooth(seed):
    circuit = random_circuit(seed, num_variables=1 + seed % 9, num_roots=1 + seed % 3)
    smoothed = smooth(circuit)
    smoothed.check()
    assert (root_tables(smoothed) == root_tables(circuit)).all()
    assert smoothed.is_smooth
    assert smoothed.is_decomposable
    assert smoothed.check_determinism().exact
    scopes = mentioned_by_children(smoothed)
    for n in np.flatnonzero(smoothed.kind == 4):
        assert len({scopes[c] for c in smoothed.children[smoothed.offsets[n] : smoothed.offsets[n + 1]]}) == 1
    for root in smoothed.roots:
        assert smoothed.kind[root] == 0 or len(scopes[root]) == circuit.num_variables
    assert smooth(smoothed).num_nodes == smoothed.num_nodes


def test_smooth_over_some_variables():
    circuit = random_circuit(6, num_variables=6)
    part = smooth_over(circuit, np.array([2, 5]))
    assert (root_tables(part) == root_tables(circuit)).all()
    scopes = mentioned_by_children(part)
    for n in np.flatnonzero(part.kind == 4):
        children = part.children[part.offsets[n] : part.offsets[n + 1]]
        assert len({scopes[c] & {2, 5} for c in children}) == 1


def test_smooth_many_variables():
    # 1500 variables take three passes; each of the literals 1..40 lacks all the variables of the others.
    b = CircuitBuilder()
    node = b.false()
    for v in range(1, 41):
        node = b.disjunction([b.literal(v), b.conjunction([b.literal(-v), node])])
    circuit = b.build([node], num_variables=1500)
    smoothed = smooth(circuit)
    smoothed.check()
    assert smoothed.is_smooth
    assert smoothed.model_count() == circuit.model_count() == (2**40 - 1) << 1460
    scopes = mentioned_by_children(smoothed)
    assert len(scopes[smoothed.roots[0]]) == 1500
    assert smoothed.num_edges < 4 * 1500 + 40 * 40
    assert smooth(parity_chain(300)).num_edges == parity_chain(300).num_edges


def test_constants_stay_or_grow():
    b = CircuitBuilder()
    circuit = b.build([b.true(), b.false()], num_variables=3)
    smoothed = smooth(circuit)
    assert smoothed.model_count() == [8, 0]
    assert smooth(b.build([b.true()], num_variables=0)).model_count() == 1


def test_restrict_roots():
    circuit = random_circuit(4, num_variables=5, num_roots=3)
    picked = restrict_roots(circuit, [2, 0, 2])
    picked.check()
    assert (root_tables(picked) == root_tables(circuit)[[2, 0, 2]]).all()
    with pytest.raises(DomainError, match="no root 3"):
        restrict_roots(circuit, [3])


def test_names_and_weights_are_kept():
    b = CircuitBuilder()
    weights = np.array([0.2, 0.3]), np.array([0.8, 0.7])
    circuit = b.build([b.disjunction([b.literal(1), b.conjunction([b.literal(-1), b.literal(2)])])], weights=weights)
    circuit = replace(circuit, names=("rain", "sprinkler"))
    for other in (circuit.condition([1]), circuit.forget([2]), circuit.smooth(), restrict_roots(circuit, [0])):
        assert other.names == ("rain", "sprinkler")
        assert other.weights is not None
        np.testing.assert_array_equal(other.weights[0], weights[0])
