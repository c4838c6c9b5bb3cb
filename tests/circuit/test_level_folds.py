"""Circuits in semirings of one's own: generated kernels against the reference, brute force, differences and PyTorch."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest

from circuit.decimal_circuits import random_circuit
from derivable.algebra import expr, semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit.fold.evaluate import evaluate, value_and_gradient
from derivable.circuit.fold.fold_rows import fold, fold_vjp
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.kernels.level_fold import LevelFold
from derivable.circuit.kernels.level_passes import PAIRS, SINGLES
from derivable.circuit.kernels.levels import level_kernels
from derivable.core.and_or import AND, LITERAL, NOT, OR
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.kernel.interpret import interpret
from derivable.parallel.levels import fold_levels
from parallel.level_oracle import fold_levels_vjp


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def own(name, plus, times, zero, one, **more):
    return Semiring(name, plus=plus, times=times, zero=zero, one=one, **more)


def one_minus(a):
    return 1 - a


RINGS = {
    "real": own("mine", lambda a, b: a + b, lambda a, b: a * b, 0.0, 1.0, complement=one_minus),
    "log": own("plain_log", expr.logaddexp, lambda a, b: a + b, -math.inf, 0.0, complement=expr.log1mexp),
    "max_product": own("best", expr.maximum, lambda a, b: a * b, 0.0, 1.0, complement=one_minus),
    "godel": own("weakest", expr.maximum, expr.minimum, 0.0, 1.0, complement=one_minus),
    # Adjoints that are neither handed on nor depend on operands; and a function that has no form on lines.
    "halves": own("halves", lambda a, b: a / 2 + b, lambda a, b: a * b, 0.0, 1.0, complement=one_minus),
    "tanh": own("squashed", lambda a, b: a + b, lambda a, b: expr.tanh(a * b), 0.0, 1.0, complement=one_minus),
    # A projection: the rule of times gives one operand a constant zero.
    "left": own("left", expr.maximum, lambda a, b: a + 0.0 * b, 0.0, 1.0, complement=one_minus),
}


def leaves_of(circuit, weights, negatives):
    node, variable, positive = plan_of(circuit).leaves()
    leaf = np.zeros(circuit.num_nodes, np.int64)
    leaf[node] = np.arange(len(node))
    columns = np.where(positive[:, None], weights.T[variable], negatives.T[variable])
    return columns, (circuit.kind, leaf, circuit.offsets, circuit.children), variable, positive


def drawn(rng, name, shape, ties=False):
    found = rng.choice([0.25, 0.5, 0.75], (2, *shape)) if ties else rng.uniform(0.05, 0.95, (2, *shape))
    return np.log(found) if name == "log" else found


def assert_is_the_reference(circuit, ring, weights, negatives, seeds, rtol):
    leaves, nodes, variable, positive = leaves_of(circuit, weights, negatives)
    expected = fold_levels(leaves, *nodes, ring)
    adjoints = np.zeros((circuit.num_nodes, len(weights)), weights.dtype)
    for place, root in enumerate(circuit.roots):
        adjoints[root] += seeds[:, place]
    by_leaf = fold_levels_vjp(leaves, *nodes, ring, adjoints)
    value, gradient, negative_gradient = value_and_gradient(circuit, weights, negatives, ring, seeds)
    found = np.where(positive[:, None], gradient.T[variable], negative_gradient.T[variable])
    np.testing.assert_allclose(value, expected[circuit.roots].T, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found, by_leaf, rtol=10 * rtol, atol=10 * rtol)


@pytest.mark.parametrize(("name", "dtype"), [*((name, "float64") for name in RINGS), ("max_product", "float32")])
def test_kernels_are_the_reference(name, dtype):
    for seed, (batch, ties) in enumerate(itertools.product((1, 3, 21), (False, True))):
        rng = np.random.default_rng(seed)
        circuit = random_circuit(rng, 5, 40, num_roots=3, widest=7)
        weights, negatives = drawn(rng, name, (batch, 5), ties).astype(dtype)
        seeds = rng.normal(size=(batch, 3)).astype(dtype)
        assert_is_the_reference(circuit, RINGS[name], weights, negatives, seeds, 1e-12 if dtype == "float64" else 1e-4)


def test_the_comparison_can_fail():
    rng = np.random.default_rng(0)
    circuit = random_circuit(rng, 5, 40, num_roots=3, widest=7)
    weights, negatives = drawn(rng, "real", (3, 5))
    other = own("other", lambda a, b: a + 1.001 * b, lambda a, b: a * b, 0.0, 1.0)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            evaluate(circuit, weights, negatives, other), evaluate(circuit, weights, negatives), rtol=1e-12
        )


def test_a_copy_of_real_has_the_kernels_of_real():
    mine, theirs = level_kernels(RINGS["real"], "float64"), level_kernels(semirings.get("real"), "float64")
    assert mine.compiled(True, by_row=False) is theirs.compiled(True, by_row=False)
    assert mine.lanes == 8
    assert level_kernels(RINGS["real"], "float32").lanes == 16
    assert level_kernels(RINGS["tanh"], "float64").lanes == 1


def mixed_sums():
    """(circuit, sums with products and other children in turn, whose order shows where they tie)."""
    b = CircuitBuilder()
    x = [b.literal(v) for v in range(1, 7)]
    low = b.disjunction([x[0], b.conjunction([x[1], x[2]])])
    middle = b.disjunction([b.conjunction([x[1], x[2]]), low, b.conjunction([x[3], x[4]])])
    high = b.disjunction([b.conjunction([x[3], low]), middle, b.conjunction([x[1], x[2], x[5]]), x[5]])
    return b.build([high, middle, low])


@pytest.mark.parametrize("batch", [1, 40])
@pytest.mark.parametrize("name", ["max_product", "godel"])
def test_ties_go_to_the_first_child_of_a_mixed_sum(name, batch):
    circuit = mixed_sums()
    free, ordered = plan_of(circuit), plan_of(circuit).in_order()
    assert ((free.runs[:, PAIRS] > 0) & (free.runs[:, SINGLES] > 0)).any()
    assert not ((ordered.runs[:, PAIRS] > 0) & (ordered.runs[:, SINGLES] > 0)).any()
    rng = np.random.default_rng(batch)
    for _ in range(20):
        weights = rng.choice([0.0, 0.5, 1.0], (batch, 6))
        assert_is_the_reference(circuit, RINGS[name], weights, 1 - weights, rng.normal(size=(batch, 3)), 1e-12)


def test_products_shared_by_many_sums_are_parted_in_turn():
    """Each sum shares a product with the next, and only the first is mixed: that reaches all of them."""
    b = CircuitBuilder()
    x = [b.literal(v) for v in range(1, 61)]
    pairs = [b.conjunction([x[v], x[v + 1]]) for v in range(0, 58, 2)]
    sums = [b.disjunction([x[59], pairs[0]])]
    sums += [b.disjunction([one, other]) for one, other in itertools.pairwise(pairs)]
    # The other way round, so that one pass over the nodes does not do.
    circuit = b.build([b.disjunction([s, x[58]]) for s in reversed(sums)])
    runs = plan_of(circuit).in_order().runs
    assert not ((runs[:, PAIRS] > 0) & (runs[:, SINGLES] > 0)).any()
    weights = np.random.default_rng(3).choice([0.25, 0.5, 1.0], (5, 60))
    seeds = np.random.default_rng(4).normal(size=(5, len(circuit.roots)))
    assert_is_the_reference(circuit, RINGS["max_product"], weights, 1 - weights, seeds, 1e-12)


def test_a_tie_between_a_literal_and_a_product():
    """0.5 = 1.0 * 0.5: the literal is the child of the smaller index, then the product is."""
    b = CircuitBuilder()
    product = b.conjunction([b.literal(2), b.literal(3)])
    first = b.disjunction([b.literal(1), product])
    later = b.disjunction([product, b.conjunction([b.literal(1), b.literal(4), b.literal(5)])])
    circuit = b.build([first, later])
    weights = np.array([[0.5, 1.0, 0.5, 1.0, 1.0]])
    for seeds, expected in (([1.0, 0.0], [1, 0, 0, 0, 0]), ([0.0, 1.0], [0, 0.5, 1, 0, 0])):
        for rows in (1, 9):
            _, gradient, _ = value_and_gradient(
                circuit, np.repeat(weights, rows, 0), None, RINGS["max_product"], np.tile(seeds, (rows, 1))
            )
            assert gradient.tolist() == [expected] * rows


def test_boolean_of_ones_own_by_brute_force():
    ring = own(
        "truth", expr.logical_or, expr.logical_and, False, True,
        carrier="bool", complement=expr.logical_not, differentiable=False,
    )  # fmt: skip
    circuit = random_circuit(np.random.default_rng(7), 6, 40, num_roots=2, widest=5)
    worlds = np.array(list(itertools.product([False, True], repeat=6)))

    def holds(world):
        known = []
        for node in range(circuit.num_nodes):
            parts = [known[child] for child in circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]]]
            if circuit.kind[node] == LITERAL:
                value = circuit.literal[node]
                known.append(world[abs(value) - 1] == (value > 0))
            else:
                known.append({AND: all(parts), OR: any(parts)}.get(circuit.kind[node], circuit.kind[node] == 1))
        return [known[root] for root in circuit.roots]

    expected = [holds(world) for world in worlds]
    found = evaluate(circuit, worlds, None, ring)
    assert found.dtype == bool
    assert found.tolist() == expected
    assert evaluate(circuit, worlds[:1], None, ring).tolist() == expected[:1]


@pytest.mark.parametrize("name", ["real", "log"])
def test_gradients_by_differences(name):
    rng = np.random.default_rng(11)
    circuit = random_circuit(rng, 4, 20, widest=6)
    weights, _ = drawn(rng, name, (1, 4))
    _, gradient, _ = value_and_gradient(circuit, weights, None, RINGS[name])
    for variable in range(4):
        step = np.zeros((1, 4))
        step[0, variable] = 1e-6
        above, below = (evaluate(circuit, weights + sign * step, None, RINGS[name]).sum() for sign in (1, -1))
        assert gradient[0, variable] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(("name", "plus", "times"), [("real", "add", "mul"), ("log", "logaddexp", "add")])
def test_gradients_by_torch(name, plus, times):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(5)
    circuit = random_circuit(rng, 5, 30, num_roots=2, widest=5)
    weights, negatives = drawn(rng, name, (9, 5))
    positive, negative = (torch.tensor(array, requires_grad=True) for array in (weights, negatives))
    values = []
    for node in range(circuit.num_nodes):
        kind, literal = circuit.kind[node], circuit.literal[node]
        parts = [values[child] for child in circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]]]
        if kind == LITERAL:
            values.append((positive if literal > 0 else negative)[:, abs(literal) - 1])
        elif parts:
            operation = getattr(torch, times if kind == AND else plus)
            total = parts[0]
            for part in parts[1:]:
                total = operation(total, part)
            values.append(total)
        else:
            values.append(torch.full((9,), float(RINGS[name].one if kind == 1 else RINGS[name].zero)).double())
    sum(values[root].sum() for root in circuit.roots).backward()
    _, gradient, negative_gradient = value_and_gradient(circuit, weights, negatives, RINGS[name])
    np.testing.assert_allclose(gradient, positive.grad.numpy(), rtol=1e-11)
    np.testing.assert_allclose(negative_gradient, negative.grad.numpy(), rtol=1e-11)


def test_no_adjoint_no_contribution():
    """The loser of a maximum gets nothing, whatever it is multiplied with."""
    b = CircuitBuilder()
    circuit = b.build([b.disjunction([b.conjunction([b.literal(1), b.literal(2)]), b.literal(3)])])
    weights = np.array([[0.0, math.inf, 1.0], [-1.0, math.inf, 1.0]])
    for rows in (weights[1:], weights[[1] * 9]):
        _, gradient, _ = value_and_gradient(circuit, rows, None, RINGS["max_product"])
        assert gradient.tolist() == [[0.0, 0.0, 1.0]] * len(rows)


# Elements of several scalars


class Best(NamedTuple):
    """The best derivation's value and number, the sum of all."""

    value: float
    number: int
    total: float


def better(a, b):
    first = b.value <= a.value
    return Best(expr.where(first, a.value, b.value), expr.where(first, a.number, b.number), a.total + b.total)


def both(a, b):
    return Best(a.value * b.value, a.number + b.number, a.total * b.total)


BEST = Semiring(
    "best",
    plus=better,
    times=both,
    zero=Best(0.0, 0, 0.0),
    one=Best(1.0, 0, 1.0),
    fact=lambda p, v: Best(p, v + 1, p),
    complement=lambda a: Best(1 - a.value, 0 * a.number, 1 - a.total),
)
DUAL = own("dual", lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda a, b: (a[0] * b[0], a[0] * b[1] + a[1] * b[0]),
           (0.0, 0.0), (1.0, 0.0))  # fmt: skip


def folded(circuit, ring, elements):
    """[root] elements, one node after the other with Python's numbers; elements [literal node] -> element."""
    values = []
    for node in range(circuit.num_nodes):
        parts = [values[child] for child in circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]]]
        if circuit.kind[node] == LITERAL:
            values.append(elements(circuit.literal[node]))
        elif parts:
            total = parts[0]
            for part in parts[1:]:
                total = (ring.times if circuit.kind[node] == AND else ring.plus)(total, part)
            values.append(total)
        else:
            values.append(ring.one if circuit.kind[node] == 1 else ring.zero)
    return [values[root] for root in circuit.roots]


@pytest.mark.parametrize("batch", [1, 11])
def test_best_derivation_with_its_number_and_the_sum_of_all(batch):
    rng = np.random.default_rng(2)
    circuit = random_circuit(rng, 5, 40, num_roots=3, widest=6)
    probabilities = rng.choice([0.25, 0.5, 0.75], (batch, 5))
    found = evaluate(circuit, probabilities, None, BEST)
    assert isinstance(found, Best)
    for row in range(batch):

        def element(literal, row=row):
            p = probabilities[row, abs(literal) - 1]
            return Best(p, abs(literal), p) if literal > 0 else Best(1 - p, 0, 1 - p)

        expected = folded(circuit, BEST, element)
        for part, name in enumerate(Best._fields):
            np.testing.assert_allclose(getattr(found, name)[row], [float(e[part]) for e in expected], rtol=1e-12)
    # Its parts are the semirings of before, and so are their gradients.
    values, gradient, _ = value_and_gradient(circuit, probabilities, None, BEST)
    np.testing.assert_array_equal(values.number, found.number)
    parts = [value_and_gradient(circuit, probabilities, None, name)[1] for name in ("max_product", "real")]
    np.testing.assert_allclose(gradient, sum(parts), rtol=1e-11)
    elements = Best(probabilities, np.broadcast_to(np.arange(1, 6), probabilities.shape), probabilities)
    _, nested, _ = value_and_gradient(circuit, elements, None, BEST)
    assert nested.number is None
    np.testing.assert_allclose(nested.value, parts[0], rtol=1e-11)
    np.testing.assert_allclose(nested.total, parts[1], rtol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dual_numbers_carry_tangents(dtype):
    rng = np.random.default_rng(9)
    circuit = random_circuit(rng, 5, 30, num_roots=2, widest=5)
    weights, negatives, tangents, others = rng.uniform(0.1, 0.9, (4, 10, 5)).astype(dtype)
    value, tangent = evaluate(circuit, (weights, tangents), (negatives, others), DUAL)
    assert value.dtype == dtype
    expected, gradient, negative_gradient = value_and_gradient(circuit, weights, negatives)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    pushed = (gradient * tangents + negative_gradient * others).sum(1)
    np.testing.assert_allclose(tangent.sum(1), pushed, rtol=1e-4 if dtype == "float32" else 1e-11)
    # The gradient of the tangent by the tangents is that of the value by the values.
    zeros = np.zeros_like(value)
    _, (_, by_tangent), _ = value_and_gradient(
        circuit, (weights, tangents), (negatives, others), DUAL, (zeros, zeros + 1)
    )
    np.testing.assert_allclose(by_tangent, gradient, rtol=1e-4 if dtype == "float32" else 1e-11)


def test_what_is_no_element_is_refused():
    circuit = mixed_sums()
    with pytest.raises(DomainError, match="not nested like its elements"):
        evaluate(circuit, np.zeros((2, 6)), None, DUAL)
    with pytest.raises(ShapeError, match=r"a leaf of weights has shape \(2, 5\)"):
        evaluate(circuit, (np.zeros((2, 6)), np.zeros((2, 5))), None, DUAL)
    with pytest.raises(DomainError, match="weights is NaN at variable 3 in row 1"):
        evaluate(circuit, (np.zeros((2, 6)), np.where(np.arange(12).reshape(2, 6) == 8, np.nan, 0.0)), None, DUAL)


@pytest.mark.parametrize("rows", [1, 19])
def test_negations_of_sums_and_literals_in_any_order(rows):
    """A graph of derivations: 1 - (a or b), with a literal after an inner node, and one literal twice."""
    ring = RINGS["max_product"]
    assert ring.complement_negates
    kind = np.array([LITERAL, LITERAL, OR, NOT, LITERAL, AND, LITERAL, OR], np.uint8)
    literal = np.array([1, 2, 0, 0, 3, 0, 1, 0], np.int32)
    children = np.array([0, 1, 2, 3, 4, 5, 6], np.int32)
    offsets = np.array([0, 0, 0, 2, 3, 3, 5, 5, 7])
    plan = plan_of(AndOrGraph(kind, literal, offsets, children, np.array([7, 3])), 3)
    assert plan.has_negation
    weights = np.random.default_rng(rows).uniform(0.1, 0.9, (rows, 3))
    a, b, c = weights.T
    (found,) = fold(plan, ring, [weights])
    either = np.maximum(a, b)
    np.testing.assert_allclose(found, np.stack([np.maximum((1 - either) * c, a), 1 - either], 1))
    seeds = np.random.default_rng(0).normal(size=(rows, 2))
    _, (gradient,), _ = fold_vjp(plan, ring, [weights], None, [seeds])
    wins = (1 - either) * c >= a
    down = -(seeds[:, 1] + np.where(wins, seeds[:, 0] * c, 0))
    first = np.where(a >= b, down, 0) + np.where(wins, 0, seeds[:, 0])
    expected = np.stack([first, np.where(a >= b, 0, down), np.where(wins, seeds[:, 0] * (1 - either), 0)], 1)
    np.testing.assert_allclose(gradient, expected, atol=1e-13)


# The kernels as loop IR


@pytest.mark.parametrize("name", RINGS)
def test_the_interpreter_says_the_same(name):
    """What is printed is what is meant: values and gradients of the IR's interpreter, for lines and for scalars."""
    rng = np.random.default_rng(1)
    circuit = random_circuit(rng, 3, 12, num_roots=2, widest=4)
    fold = LevelFold(RINGS[name].typed("float64"))
    plan = plan_of(circuit) if fold.is_plus_free else plan_of(circuit).in_order()
    weights, seeds = rng.uniform(0.1, 0.9, (11, 3)), rng.normal(size=(11, 2))
    lanes = fold.schedule.lanes
    shape = (lanes,) if lanes > 1 else ()
    values, adjoints, partial = (
        np.full((count, *shape), np.nan)
        for count in (plan.num_slots, plan.num_slots, max(plan.longest, plan.most_terms))
    )
    out, gradient = np.empty((11, 2)), np.empty((11, 3))
    program = plan.runs, plan.terms, len(plan.runs), 3, 2, plan.positive, plan.negative, plan.root_slots
    none = np.zeros((0, 0))
    bad = interpret(
        fold.fold_gradient, 0, 11, lanes, False, True, True, *program, weights, none,
        values, out, plan.num_slots, adjoints, partial, seeds, gradient, none,
    )  # fmt: skip
    assert bad == (-1,)
    value, expected, _ = value_and_gradient(circuit, weights, None, RINGS[name], seeds)
    np.testing.assert_allclose(out, value, rtol=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-11, atol=1e-13)
