"""The semantic loss: definition 1 of Xu et al. 2018 by listing all worlds, and the properties the paper proves."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.diagnostics import DomainError, ShapeError


def by_worlds(holds, p):
    """-log of the sum over satisfying worlds of their probability, p [variable] float64."""
    total = 0.0
    for world in itertools.product((False, True), repeat=len(p)):
        if holds(world):
            total += math.prod(q if x else 1 - q for x, q in zip(world, p))
    return -math.log(total) if total else math.inf


def satisfies(clauses):
    return lambda world: all(any(world[abs(x) - 1] == (x > 0) for x in clause) for clause in clauses)


CLAUSES = [[1, 2], [-2, 3], [-1, -3, 4]]
INPUTS = ["probabilities", "log_probabilities", "logits"]


def presented(p, inputs):
    return {"probabilities": p, "log_probabilities": p.log(), "logits": torch.logit(p)}[inputs]


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("compiler", ["sdd", "d4"])
def test_definition(inputs, compiler):
    p = torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 0.98 + 0.01
    loss = dv.nn.SemanticLoss(CLAUSES, inputs=inputs, compiler=compiler, reduction="none")(presented(p, inputs))
    expected = [by_worlds(satisfies(CLAUSES), row) for row in p.tolist()]
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(-4, 4).filter(bool), min_size=1, max_size=3), min_size=1, max_size=5), st.data())
def test_definition_on_random_clauses(clauses, data):
    # Products of four smaller numbers would underflow in the oracle.
    likely = st.floats(0, 1).map(lambda p: p if p > 1e-60 else 0.0)
    p = data.draw(st.lists(likely, min_size=4, max_size=4))
    got = dv.nn.semantic_loss([*clauses, [4, -4]], torch.tensor(p, dtype=torch.float64), reduction="none")
    expected = by_worlds(satisfies(clauses), p)
    assert float(got) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_exactly_one_in_closed_form(n):
    """Section 4.2 of the paper: -log sum_i p_i prod_{j != i} (1 - p_j)."""
    x = dv.circuit.variables(n)
    p = torch.rand(3, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    rest = torch.stack([torch.cat([p[:, :i], p[:, i + 1 :]], 1) for i in range(n)], 1)
    closed = -(p * (1 - rest).prod(-1)).sum(-1).log()
    loss = dv.nn.semantic_loss(dv.circuit.exactly_one(*x), p, reduction="none")
    torch.testing.assert_close(loss, closed, rtol=1e-12, atol=0)


def test_zero_iff_satisfied():
    """Proposition: for 0/1 probabilities the loss is 0 on the models and infinite elsewhere."""
    worlds = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4)))
    loss = dv.nn.semantic_loss(CLAUSES, worlds, reduction="none")
    expected = [satisfies(CLAUSES)(tuple(map(bool, world))) for world in worlds.tolist()]
    assert any(expected)
    assert not all(expected)
    assert (loss[torch.tensor(expected)] == 0).all()
    assert (loss[~torch.tensor(expected)] == torch.inf).all()


def test_monotone():
    """Proposition 1: if one constraint implies another, its loss is at least the other's."""
    p = torch.rand(50, 4, generator=torch.Generator().manual_seed(3))
    weaker = dv.nn.semantic_loss([*CLAUSES[:2], [4, -4]], p, reduction="none")
    stronger = dv.nn.semantic_loss(CLAUSES, p, reduction="none")
    assert (stronger >= weaker).all()
    assert (stronger > weaker).any()


def test_the_way_of_writing_does_not_matter():
    a, b, c = dv.circuit.variables("a b c")
    p = torch.rand(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    first = dv.nn.semantic_loss(dv.circuit.implies(a, b & c), p, reduction="none")
    second = dv.nn.semantic_loss((~a | b) & (~a | c), p, reduction="none")
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)


def test_a_label_is_cross_entropy():
    """Proposition: the semantic loss of one world is the cross-entropy of that world."""
    p = torch.rand(4, 3, generator=torch.Generator().manual_seed(5))
    loss = dv.nn.semantic_loss([[1], [-2], [3]], p)
    target = torch.tensor([1.0, 0.0, 1.0]).expand(4, 3)
    torch.testing.assert_close(loss, torch.nn.functional.binary_cross_entropy(p, target) * 3)


@pytest.mark.parametrize("inputs", INPUTS)
def test_gradients(inputs):
    p = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(6)) * 0.8 + 0.1
    loss = dv.nn.SemanticLoss(CLAUSES, inputs=inputs, reduction="none")
    assert torch.autograd.gradcheck(loss, presented(p, inputs).requires_grad_(), eps=1e-7, atol=1e-6)


def test_logits_do_not_underflow():
    """float32 sigmoids of 200 are 1: from logits the loss and its gradient survive."""
    scores = torch.tensor([[200.0, -1.0]], requires_grad=True)
    loss = dv.nn.semantic_loss([[-1]], scores[:, :1], inputs="logits")
    assert float(loss.detach()) == pytest.approx(200)
    loss.backward()
    assert float(scores.grad[0, 0]) == pytest.approx(1)


def test_exclusive_groups():
    """Two softmaxes of three values that must agree: -log sum_i p_i q_i, from clauses and from a formula."""
    x = dv.circuit.variables(6)
    agree = [[-1, 4], [-2, 5], [-3, 6]]
    formula = ~(x[0] ^ x[3]) & ~(x[1] ^ x[4]) & ~(x[2] ^ x[5])
    groups = [[1, 2, 3], [4, 5, 6]]
    p = torch.rand(5, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7)).softmax(-1)
    expected = -(p[:, 0] * p[:, 1]).sum(-1).log()
    for constraint in (agree, formula):
        loss = dv.nn.SemanticLoss(constraint, exclusive=groups, reduction="none")
        torch.testing.assert_close(loss(p.flatten(1)), expected, rtol=1e-12, atol=0)
    logs = dv.nn.semantic_loss(agree, p.flatten(1).log(), inputs="log_probabilities", exclusive=groups)
    torch.testing.assert_close(logs, expected.mean(), rtol=1e-12, atol=0)


def test_groups_are_distributions_or_factors():
    """A sigmoid where a softmax belongs gave a negative loss in silence."""
    groups, either = [[1, 2], [3, 4]], [[1, 3]]
    rows = torch.tensor([[0.25, 0.75, 0.5, 0.5], [0.9, 0.8, 0.5, 0.5]], requires_grad=True)
    for inputs, predictions in (("probabilities", rows), ("log_probabilities", rows.log())):
        loss = dv.nn.SemanticLoss(either, inputs=inputs, exclusive=groups)
        with pytest.raises(DomainError, match=r"row \[1\] of the predictions of the group \[1, 2\] adds up to 1.7"):
            loss(predictions)
        with pytest.raises(DomainError, match="factors=True"):
            dv.nn.semantic_loss(either, predictions, inputs=inputs, exclusive=groups)
        factors = torch.tensor([[2.0, 0.25, 0.5, 3.0]], requires_grad=True)
        given = factors.log() if inputs == "log_probabilities" else factors
        found = dv.nn.semantic_loss(either, given, inputs=inputs, exclusive=groups, factors=True)
        assert found.item() == pytest.approx(-math.log(2.0 * 0.5 + 2.0 * 3.0 + 0.25 * 0.5))
        (slopes,) = torch.autograd.grad(found, factors)
        assert slopes.tolist() == [pytest.approx([-3.5 / 7.125, -0.5 / 7.125, -2.25 / 7.125, -2.0 / 7.125])]
    with pytest.raises(DomainError, match="a factor, from 0 on"):
        dv.nn.semantic_loss(either, -torch.ones(1, 4), exclusive=groups, factors=True)
    with pytest.raises(DomainError, match="there are no groups"):
        dv.nn.SemanticLoss(either, factors=True)
    with pytest.raises(DomainError, match="log-probability"):
        dv.nn.semantic_loss([[1]], torch.tensor([[0.5]]), inputs="log_probabilities")


def test_reductions_and_shapes():
    p = torch.rand(2, 3, 4)
    each = dv.nn.semantic_loss(CLAUSES, p, reduction="none")
    assert each.shape == (2, 3)
    torch.testing.assert_close(dv.nn.semantic_loss(CLAUSES, p, reduction="sum"), each.sum())
    torch.testing.assert_close(dv.nn.semantic_loss(CLAUSES, p), each.mean())
    assert dv.nn.semantic_loss(CLAUSES, torch.rand(0, 4)) == 0
    assert dv.nn.semantic_loss(CLAUSES, torch.rand(0, 4), reduction="none").shape == (0,)
    assert dv.nn.semantic_loss(CLAUSES, torch.rand(4), reduction="none").shape == ()


def test_from_a_circuit_and_a_file(tmp_path):
    circuit = dv.circuit.compile(CLAUSES)
    path = tmp_path / "rules.cnf"
    path.write_text("p cnf 4 3\n1 2 0\n-2 3 0\n-1 -3 4 0\n")
    p = torch.rand(5, 4)
    expected = dv.nn.semantic_loss(CLAUSES, p)
    torch.testing.assert_close(dv.nn.semantic_loss(circuit, p), expected)
    torch.testing.assert_close(dv.nn.semantic_loss(path, p), expected)


def test_copies_and_state():
    module = dv.nn.SemanticLoss(CLAUSES)
    p = torch.rand(3, 4)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.nn.DataParallel(module)):
        torch.testing.assert_close(other(p), module(p))
    assert not module.state_dict()


def test_circuits_that_are_no_probability_are_refused():
    b = CircuitBuilder()
    overlapping = b.build([b.disjunction([b.literal(1), b.literal(2)])])
    with pytest.raises(DomainError, match="not deterministic"):
        dv.nn.SemanticLoss(overlapping)
    b = CircuitBuilder()
    shared = b.disjunction([b.conjunction([b.literal(1), b.literal(2)]), b.conjunction([b.literal(-1), b.literal(3)])])
    entangled = b.build([b.conjunction([b.literal(1), shared])])
    with pytest.raises(DomainError, match="not decomposable"):
        dv.nn.SemanticLoss(entangled)


def test_bad_predictions():
    loss = dv.nn.SemanticLoss(CLAUSES)
    with pytest.raises(ShapeError, match=r"shape \[2, 3\]; the constraint has 4 variables"):
        loss(torch.rand(2, 3))
    p = torch.rand(2, 4)
    p[1, 2] = torch.nan
    with pytest.raises(DomainError, match=r"predictions\[1, 2\] is NaN"):
        loss(p)
    with pytest.raises(DomainError, match=r"is 1\.5, which is not a probability"):
        loss(torch.full((2, 4), 1.5))
    with pytest.raises(ShapeError, match=r"torch\.int64"):
        loss(torch.ones(2, 4, dtype=torch.int64))
