"""Properties against their definitions, over all worlds."""

import numpy as np
import pytest

from circuit.deterministic import random_circuit
from circuit.random_circuits import random_arrays, truth_tables
from circuit.test_count import parity_chain
from circuit.test_transform import mentioned_by_children
from derivable.circuit.graph.builder import CircuitBuilder, circuit_from_arrays
from derivable.circuit.queries import properties


def obvious(circuit):
    """(decomposable, smooth, deterministic) by their definitions."""
    scopes = mentioned_by_children(circuit)
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    tables = truth_tables(*arrays, circuit.num_variables)
    decomposable = smooth = deterministic = True
    for n in range(circuit.num_nodes):
        children = circuit.children[circuit.offsets[n] : circuit.offsets[n + 1]]
        if circuit.kind[n] == 3:
            decomposable &= sum(len(scopes[c]) for c in children) == len(scopes[n])
        if circuit.kind[n] == 4:
            smooth &= len({scopes[c] for c in children}) == 1
            deterministic &= bool((tables[children].sum(axis=0) <= 1).all())
    return decomposable, smooth, deterministic


def check_counterexample(circuit, verdict):
    """Raise AssertionError unless the counterexample makes two children of the node true."""
    arrays = circuit.kind, circuit.literal, circuit.offsets, circuit.children
    world = int(verdict.counterexample.astype(np.int64) @ (1 << np.arange(circuit.num_variables)))
    tables = truth_tables(*arrays, circuit.num_variables)
    children = circuit.children[circuit.offsets[verdict.node] : circuit.offsets[verdict.node + 1]]
    assert circuit.kind[verdict.node] == 4
    assert tables[children, world].sum() >= 2


def random_nnf(seed):
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, 5, int(rng.integers(1, 14)), max_children=3, constants=False)
    return circuit_from_arrays(*arrays, [len(arrays[0]) - 1], 5)


@pytest.mark.parametrize("seed", range(120))
def test_random_circuits(seed):
    circuit = random_nnf(seed)
    decomposable, smooth, deterministic = obvious(circuit)
    assert circuit.is_decomposable == decomposable
    assert circuit.is_smooth == smooth
    verdict = circuit.check_determinism()
    assert verdict.exact
    assert verdict.holds == bool(verdict) == deterministic
    if not verdict.holds:
        check_counterexample(circuit, verdict)


@pytest.mark.parametrize("seed", range(120))
def test_sums_of_words_see_what_passes_over_variables_see(seed, monkeypatch):
    monkeypatch.setattr(properties, "MANY", 1)
    drawn = random_nnf(seed)
    for circuit in (drawn, drawn.smooth()) if drawn.is_decomposable else (drawn,):
        decomposable, smooth, _ = obvious(circuit)
        assert properties._offends_nowhere(circuit) == (decomposable and smooth)
        assert properties.first_offences(circuit) == circuit.first_offences


def test_the_random_circuits_are_of_all_kinds():
    seen = {obvious(random_nnf(seed)) for seed in range(120)}
    assert {answer[0] for answer in seen} == {answer[1] for answer in seen} == {True, False}
    assert (True, True, True) in seen
    assert any(not answer[2] for answer in seen)


def test_check_counterexample_can_fail():
    circuit = parity_chain(3)
    verdict = type(circuit.check_determinism())(False, "sampled", int(circuit.roots[0]), np.zeros(3, bool))
    with pytest.raises(AssertionError):
        check_counterexample(circuit, verdict)


@pytest.mark.parametrize("seed", range(20))
def test_deterministic_circuits(seed):
    circuit = random_circuit(seed, num_variables=8)
    assert obvious(circuit)[2]
    verdict = circuit.check_determinism()
    assert verdict.holds
    assert verdict.method == "decision"


def test_structural_proof():
    # An equivalence of two pairs: primes (x and y), not (x and y) with no literal in common.
    b = CircuitBuilder()

    def pair(x, y):
        both = b.conjunction([b.literal(x), b.literal(y)])
        other = b.disjunction([b.literal(-x), b.conjunction([b.literal(x), b.literal(-y)])])
        return both, other

    (p, not_p), (s, not_s) = pair(1, 2), pair(3, 4)
    circuit = b.build([b.disjunction([b.conjunction([p, s]), b.conjunction([not_p, not_s])])])
    verdict = circuit.check_determinism()
    assert (verdict.holds, verdict.method, verdict.exact) == (True, "literals", True)


def xor_halves(builder, first, count, odd):
    """Parity of `count` variables from `first` on as a disjunction over halves."""
    if count == 1:
        return builder.literal(first if odd else -first)
    half = count // 2
    return builder.disjunction(
        [
            builder.conjunction(
                [
                    xor_halves(builder, first, half, left),
                    xor_halves(builder, first + half, count - half, odd ^ left),
                ]
            )
            for left in (False, True)
        ]
    )


def test_exhaustive():
    # x1 + x2 + x3 even, and exactly two true, differently bracketed: exclusive only as whole functions.
    b = CircuitBuilder()
    odd = xor_halves(b, 1, 3, True)
    x, y, z = (b.literal(v) for v in (1, 2, 3))
    two = b.conjunction([b.disjunction([b.conjunction([x, y, b.literal(-3)]), b.conjunction([x, b.literal(-2), z])])])
    circuit = b.build([b.disjunction([odd, two])])
    verdict = circuit.check_determinism()
    assert verdict.holds
    assert verdict.exact
    wrong = b.build([b.disjunction([odd, b.conjunction([x, b.disjunction([y, b.literal(-2)])])])])
    verdict = wrong.check_determinism()
    assert not verdict.holds
    check_counterexample(wrong, verdict)


def large_overlap(num_variables):
    """Two parities that agree on one assignment in four: neither structure nor a truth table tells."""
    b = CircuitBuilder()
    half = num_variables // 2
    first = xor_halves(b, 1, half, True)
    second = xor_halves(b, half + 1, num_variables - half, True)
    return b.build([b.disjunction([first, second])])


def test_sampled():
    circuit = large_overlap(64)
    verdict = circuit.check_determinism()
    assert (verdict.holds, verdict.method, verdict.exact) == (False, "sampled", True)
    assert verdict.node == circuit.roots[0]
    first, second = verdict.counterexample[:32], verdict.counterexample[32:]
    assert first.sum() % 2 == second.sum() % 2 == 1


def test_an_unproved_circuit_says_so():
    # Odd and even parity in different bracketings exclude each other, and the structure does not show it.
    b = CircuitBuilder()
    n = 40
    odd, even = b.false(), b.true()
    for v in range(1, n + 1):
        yes, no = b.literal(v), b.literal(-v)
        odd, even = (
            b.disjunction([b.conjunction([yes, even]), b.conjunction([no, odd])]),
            b.disjunction([b.conjunction([yes, odd]), b.conjunction([no, even])]),
        )
    other_even = xor_halves(b, 1, n, False)
    top = b.disjunction([odd, other_even])
    verdict = b.build([top]).check_determinism(budget=20_000)
    assert (verdict.holds, verdict.method, verdict.exact) == (True, "sampled", False)
    verdict = b.build([top], origin="sdd").check_determinism(budget=20_000)
    assert (verdict.holds, verdict.method) == (True, "construction")


def test_many_variables():
    # 2000 variables, four passes of 512; the one overlap is in the last.
    b = CircuitBuilder()
    node = b.conjunction([b.literal(v) for v in range(1, 2001)])
    good = b.build([node])
    assert good.is_decomposable
    assert good.is_smooth
    bad = b.build([b.conjunction([node, b.disjunction([b.literal(2000), b.literal(-2000)])])])
    assert not bad.is_decomposable
    uneven = b.build([b.disjunction([node, b.conjunction([b.literal(v) for v in range(1, 2000)])])])
    assert not uneven.is_smooth
    assert uneven.is_decomposable


def test_constants():
    b = CircuitBuilder()
    circuit = b.build([b.true(), b.false()], num_variables=3)
    assert circuit.is_decomposable
    assert circuit.is_smooth
    assert circuit.check_determinism().method == "decision"
    assert b.build([]).is_decomposable
