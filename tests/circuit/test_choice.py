"""Exact probabilities of and-or DAGs over independent and categorical choices, against all worlds."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.reference import value_of_nodes
from derivable.circuit.compilation.choice import CategoricalVariables, compile_formula_dag
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import CompileTimeout, DomainError


class Dag:
    """A DAG written node by node."""

    def __init__(self, num_variables, groups=()):
        self.kind, self.literal, self.rows, self.roots = [], [], [], []
        self.num_variables, self.groups = num_variables, [list(group) for group in groups]

    def add(self, kind, row=(), literal=0):
        self.kind.append(kind)
        self.literal.append(literal)
        self.rows.append(list(row))
        return len(self.kind) - 1

    def lit(self, literal):
        return self.add(LITERAL, literal=literal)

    def both(self, *row):
        return self.add(AND, row)

    def either(self, *row):
        return self.add(OR, row)

    def compile(self, *roots, **options):
        self.roots = list(roots)
        offsets = np.cumsum([0, *map(len, self.rows)])
        children = np.array([child for row in self.rows for child in row], dtype=np.int64)
        return compile_formula_dag(
            np.array(self.kind, np.uint8), np.array(self.literal, np.int32), offsets, children,
            np.array(roots), self.num_variables, [np.array(g) for g in self.groups], **options,
        )  # fmt: skip

    def holds(self, world):
        """[node] truth in a world: a set of true variables."""
        values = []
        for kind, literal, row in zip(self.kind, self.literal, self.rows):
            if kind == LITERAL:
                values.append((abs(literal) in world) == (literal > 0))
            else:
                parts = [values[child] for child in row]
                values.append({AND: all(parts), OR: any(parts), TRUE: True, FALSE: False}[kind])
        return values

    def worlds(self, with_none=False):
        """(true variables, weight as a function of the weight vector) for every world."""
        owned = {variable for group in self.groups for variable in group}
        choices = [[(variable,) for variable in group] + ([()] if with_none else []) for group in self.groups]
        choices += [[(v,), ()] for v in range(1, self.num_variables + 1) if v not in owned]
        return [set().union(*world) for world in itertools.product(*choices)]

    def weight(self, world, weights):
        total = Fraction(1)
        owned = {variable for group in self.groups for variable in group}
        for group in self.groups:
            chosen = [v for v in group if v in world]
            total *= weights[chosen[0] - 1] if chosen else 1 - sum(weights[v - 1] for v in group)
        for v in range(1, self.num_variables + 1):
            if v not in owned:
                total *= weights[v - 1] if v in world else 1 - weights[v - 1]
        return total

    def probabilities(self, weights, with_none=False):
        result = [Fraction(0)] * len(self.roots)
        for world in self.worlds(with_none):
            weight = self.weight(world, weights)
            truth = self.holds(world)
            result = [old + weight * truth[root] for old, root in zip(result, self.roots)]
        return result


def evaluate(circuit, weights, groups):
    owned = {int(variable) for group in groups for variable in group}

    def weight_of(literal):
        if literal > 0:
            return weights[literal - 1]
        return Fraction(1) if -literal in owned else 1 - weights[-literal - 1]

    values = value_of_nodes(circuit, weight_of)
    return [values[root] for root in circuit.roots]


def random_weights(rng, dag, zero_share=0.2):
    weights = [Fraction(int(rng.integers(0, 11)), 10) for _ in range(dag.num_variables)]
    for group in dag.groups:
        parts = [0 if rng.random() < zero_share else int(rng.integers(1, 9)) for _ in group]
        parts[int(rng.integers(len(group)))] += 1
        for variable, part in zip(group, parts):
            weights[variable - 1] = Fraction(part, sum(parts))
    return weights


def random_dag(rng, sizes, free, nodes, negation=True):
    """Mixed groups, one and two roots near the top."""
    groups, start = [], 1
    for size in sizes:
        groups.append(list(range(start, start + size)))
        start += size
    dag = Dag(start - 1 + free, groups)
    for variable in range(1, dag.num_variables + 1):
        dag.lit(variable)
        if negation:
            dag.lit(-variable)
    for _ in range(nodes):
        row = rng.choice(len(dag.kind), size=int(rng.integers(1, 4)))
        dag.add(AND if rng.random() < 0.5 else OR, row.tolist())
    return dag


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 4), max_size=3),
    free=st.integers(0, 3),
    nodes=st.integers(1, 25),
)
def test_all_worlds(seed, sizes, free, nodes):
    if sum(sizes) + free == 0:
        return
    rng = np.random.default_rng(seed)
    dag = random_dag(rng, sizes, free, nodes)
    circuit = dag.compile(len(dag.kind) - 1, int(rng.integers(len(dag.kind))), len(dag.kind) - 1)
    circuit.check()
    assert circuit.num_variables == dag.num_variables
    other = dag.compile(*dag.roots, method="sdd")
    for _ in range(2):
        weights = random_weights(rng, dag)
        expected = dag.probabilities(weights)
        assert evaluate(circuit, weights, dag.groups) == expected
        assert evaluate(other, weights, dag.groups) == expected


def structured_dag(rng, sizes):
    """Decision-like: deterministic and decomposable with positive group literals only."""
    groups, start = [], 1
    for size in sizes:
        groups.append(list(range(start, start + size)))
        start += size
    dag = Dag(start - 1, groups)
    made = {(): dag.add(TRUE)}

    def grow(left):
        if not left or rng.random() < 0.15:
            return made[()]
        group = left[0]
        row = [dag.both(dag.lit(v), grow(left[1:])) for v in groups[group] if rng.random() < 0.8]
        return dag.either(*row)

    return dag, [grow(rng.permutation(len(sizes)).tolist()) for _ in range(2)]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_missing_mass_is_none_of_them(seed, sizes):
    """The structural path, with weights that do not sum to one: the rest is a world without the group."""
    rng = np.random.default_rng(seed)
    dag, roots = structured_dag(rng, sizes)
    circuit = dag.compile(*roots)
    assert circuit.origin == ""
    assert not (circuit.literal < 0).any()
    weights = [Fraction(int(rng.integers(0, 6)), 10) for _ in range(dag.num_variables)]
    assert evaluate(circuit, weights, dag.groups) == dag.probabilities(weights, with_none=True)


def test_gradients_are_those_of_the_polynomial():
    """Along directions that keep every group's sum: the derivative is that of the sum over worlds."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        dag = random_dag(rng, [3, 2], 2, 15)
        circuit = dag.compile(len(dag.kind) - 1)
        weights = random_weights(rng, dag, 0)
        step = [Fraction(int(rng.integers(-5, 6))) for _ in weights]
        for group in dag.groups:
            step[group[0] - 1] -= sum(step[v - 1] for v in group)

        def moved(t, weights=weights, step=step):
            return [w + t * s for w, s in zip(weights, step)]

        # Both are polynomials in t of degree at most 4 along a line; equal at five points, equal in all derivatives.
        for t in range(5):
            assert evaluate(circuit, moved(t), dag.groups) == dag.probabilities(moved(t))


def test_one_more_variable_makes_none_of_them_possible():
    """Not deterministic and with weights that sum to less than one: the rest goes to a variable mentioned nowhere."""
    rng = np.random.default_rng(11)
    for _ in range(20):
        inner = random_dag(rng, [2, 3], 2, 15)
        dag = Dag(inner.num_variables + 2, [[*inner.groups[0], 8], [*inner.groups[1], 9]])
        dag.kind, dag.literal, dag.rows = inner.kind, inner.literal, inner.rows
        circuit = dag.compile(len(dag.kind) - 1)
        weights = [Fraction(int(rng.integers(0, 4)), 10) for _ in range(7)] + [Fraction(0)] * 2
        inner.roots = dag.roots
        for group in dag.groups:
            weights[group[-1] - 1] = 1 - sum(weights[v - 1] for v in group[:-1])
        assert evaluate(circuit, weights, dag.groups) == inner.probabilities(weights, with_none=True)


def digit_sum(digits_of, digits=10):
    """The DAG of "the digits sum to s", built digit by digit: one root for each s."""
    groups = [list(range(digits * i + 1, digits * i + digits + 1)) for i in range(digits_of)]
    dag = Dag(digits * digits_of, groups)
    state = {value: dag.lit(groups[0][value]) for value in range(digits)}
    for group in groups[1:]:
        rows: dict[int, list[int]] = {}
        for total, node in state.items():
            for value in range(digits):
                rows.setdefault(total + value, []).append(dag.both(node, dag.lit(group[value])))
        state = {total: dag.either(*row) for total, row in rows.items()}
    return dag, [state[total] for total in sorted(state)]


def test_sums_stay_structural():
    dag, roots = digit_sum(6)
    circuit = dag.compile(*roots)
    assert circuit.num_nodes < 3000
    rng = np.random.default_rng(0)
    weights = random_weights(rng, dag)
    expected = np.array([1.0])
    for group in dag.groups:
        expected = np.convolve(expected, [float(weights[v - 1]) for v in group])
    assert np.allclose([float(x) for x in evaluate(circuit, weights, dag.groups)], expected)


def test_parity_and_carry_stay_structural():
    """States that several values lead to: exclusive only by what lies below."""
    groups = [list(range(4 * i + 1, 4 * i + 5)) for i in range(8)]
    dag = Dag(32, groups)
    even, odd = dag.add(TRUE), dag.add(FALSE)
    for group in groups:
        lits = [dag.lit(v) for v in group]
        from_even = [dag.both(even, lit) for lit in lits]
        from_odd = [dag.both(odd, lit) for lit in lits]
        even, odd = dag.either(*from_even[::2], *from_odd[1::2]), dag.either(*from_even[1::2], *from_odd[::2])
    circuit = dag.compile(even, odd)
    assert not (circuit.literal < 0).any()
    weights = random_weights(np.random.default_rng(1), dag)
    difference = 1
    for group in groups:
        difference *= sum(weights[v - 1] * (-1) ** i for i, v in enumerate(group))
    values = evaluate(circuit, weights, groups)
    assert values[0] + values[1] == 1
    assert values[0] - values[1] == difference


def test_two_values_of_a_group_are_false():
    dag = Dag(3, [[1, 2, 3]])
    one, two = dag.lit(1), dag.lit(2)
    inner = dag.both(one, dag.either(two, dag.lit(3)))
    circuit = dag.compile(dag.both(one, two), inner, dag.either(inner, two))
    assert circuit.kind[circuit.roots].tolist()[:2] == [FALSE, FALSE]
    assert circuit.kind[circuit.roots[2]] == LITERAL


def test_all_values_stay_a_sum():
    dag = Dag(3, [[1, 2, 3]])
    circuit = dag.compile(dag.either(*(dag.lit(v) for v in (1, 2, 3))))
    assert evaluate(circuit, [Fraction(1, 4)] * 3, dag.groups) == [Fraction(3, 4)]


def test_negation_of_one_value_is_the_others():
    dag = Dag(3, [[1, 2, 3]])
    circuit = dag.compile(dag.lit(-2), dag.lit(2))
    weights = [Fraction(1, 8), Fraction(5, 8), Fraction(2, 8)]
    assert evaluate(circuit, weights, dag.groups) == [Fraction(3, 8), Fraction(5, 8)]
    single = Dag(1, [[1]])
    assert single.compile(single.lit(-1)).kind.tolist() == [FALSE]


def test_a_fact_used_twice_in_a_proof():
    dag = Dag(5, [[1, 2], [3, 4]])
    digit = dag.lit(1)
    circuit = dag.compile(dag.both(digit, dag.both(digit, dag.lit(3)), dag.lit(5)))
    assert not (circuit.literal < 0).any()
    weights = [Fraction(1, 3), Fraction(2, 3), Fraction(1, 4), Fraction(3, 4), Fraction(1, 5)]
    assert evaluate(circuit, weights, dag.groups) == [Fraction(1, 60)]


def test_a_large_group():
    size = 300
    groups = [list(range(1, size + 1)), list(range(size + 1, 2 * size + 1))]
    dag = Dag(2 * size, groups)
    same = dag.either(*(dag.both(dag.lit(v), dag.lit(size + v)) for v in range(1, size + 1)))
    circuit = dag.compile(same)
    assert not (circuit.literal < 0).any()
    weights = random_weights(np.random.default_rng(3), dag)
    assert evaluate(circuit, weights, groups) == [sum(weights[v] * weights[size + v] for v in range(size))]


def test_independent_only_is_a_decision_circuit():
    dag = Dag(2)
    xor = dag.either(dag.both(dag.lit(1), dag.lit(-2)), dag.both(dag.lit(-1), dag.lit(2)))
    assert dag.compile(xor).origin == "decision"


def test_noisy_or_of_many():
    """Not deterministic: goes through an SDD in a process of its own."""
    count = 60
    dag = Dag(2 * count)
    circuit = dag.compile(dag.either(*(dag.both(dag.lit(2 * i + 1), dag.lit(2 * i + 2)) for i in range(count))))
    weights = [Fraction(i % 7, 10) for i in range(2 * count)]
    none = Fraction(1)
    for i in range(count):
        none *= 1 - weights[2 * i] * weights[2 * i + 1]
    assert evaluate(circuit, weights, []) == [1 - none]
    assert circuit.num_nodes < 20 * count


def test_paths_of_a_grid():
    """Two-terminal reliability of a small grid with categorical turns at some nodes, against all worlds."""
    dag = Dag(13, [[11, 12, 13]])
    lits = {v: dag.lit(v) for v in range(1, 14)}
    a = dag.either(dag.both(lits[1], lits[2]), dag.both(lits[1], lits[3]), lits[11])
    b = dag.either(dag.both(a, lits[4]), dag.both(a, lits[5], lits[12]), lits[6])
    c = dag.either(dag.both(b, lits[7]), dag.both(b, a), dag.both(lits[8], lits[13], lits[9]))
    circuit = dag.compile(a, b, c)
    weights = random_weights(np.random.default_rng(2), dag)
    assert evaluate(circuit, weights, dag.groups) == dag.probabilities(weights)


def addition(digits):
    """Flat arrays of the sum of two numbers of so many digits: 10^(2 digits) products, one root a sum."""
    values, size = 10**digits, 20 * digits
    shown = (np.arange(values)[:, None] // 10 ** np.arange(digits)) % 10 + 10 * np.arange(digits)
    first, second = np.divmod(np.arange(values**2), values)
    total = first + second
    products = np.stack([size + first, size + values + second], axis=1)
    kind = np.repeat([LITERAL, AND, OR], [size, 2 * values + values**2, 2 * values - 1]).astype(np.uint8)
    literal = np.where(kind == LITERAL, np.arange(len(kind)) + 1, 0)
    widths = np.bincount(total)
    lengths = np.concatenate([np.zeros(size), np.full(2 * values, digits), np.full(values**2, 2), widths])
    children = np.concatenate(
        [shown.ravel(), shown.ravel() + 10 * digits, products.ravel(), size + 2 * values + np.argsort(total)]
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    roots = np.arange(len(kind) - 2 * values + 1, len(kind))
    return kind, literal, offsets, children, roots, size, np.arange(1, size + 1).reshape(-1, 10)


@pytest.mark.parametrize("digits", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_addition(digits):
    circuit = compile_formula_dag(*addition(digits))
    assert circuit.num_roots == 2 * 10**digits - 1
    assert not (circuit.literal < 0).any()
    probabilities = np.random.default_rng(0).dirichlet(np.ones(10), 2 * digits)
    numbers = []
    for half in (probabilities[:digits], probabilities[digits:]):
        number = np.ones(1)
        for digit in reversed(half):  # the first group is the lowest digit
            number = np.outer(number, digit).ravel()
        numbers.append(number)
    expected = np.convolve(*numbers)
    values = np.zeros(circuit.num_nodes)
    leaf = circuit.kind == LITERAL
    values[leaf] = probabilities.ravel()[circuit.literal[leaf] - 1]
    for level in range(1, circuit.num_levels):
        nodes = slice(*circuit.level_offsets[level : level + 2])
        starts = circuit.offsets[nodes]
        stop = circuit.offsets[circuit.level_offsets[level + 1]]
        parts = values[circuit.children[starts[0] : stop]]
        folded = [np.multiply.reduceat(parts, starts - starts[0]), np.add.reduceat(parts, starts - starts[0])]
        values[nodes] = np.where(circuit.kind[nodes] == AND, *folded)
    assert np.allclose(values[circuit.roots], expected, rtol=1e-12)


@pytest.mark.slow
def test_an_sdd_of_sums_is_smaller():
    groups = addition(2)[-1]
    plain, compact = compile_formula_dag(*addition(2)), compile_formula_dag(*addition(2), method="sdd")
    assert compact.num_edges < plain.num_edges / 2
    weights = random_weights(np.random.default_rng(0), Dag(40, groups))
    assert evaluate(plain, weights, groups) == evaluate(compact, weights, groups)
    with pytest.raises(DomainError, match="no method 'bdd'"):
        compile_formula_dag(*addition(1), method="bdd")  # type: ignore[arg-type]


def test_time_limit():
    rng = np.random.default_rng(0)
    dag = random_dag(rng, [], 120, 0, negation=True)
    clauses = [dag.either(*rng.choice(240, 3, replace=False).tolist()) for _ in range(300)]
    with pytest.raises(CompileTimeout, match="within"):
        dag.compile(dag.both(*clauses), time_limit=1.0)


@pytest.mark.parametrize(
    ("groups", "words"),
    [([[]], "empty"), ([[1, 9]], "outside 1..3"), ([[1, 2], [2, 3]], "in a group already"), ([[1, 1]], "already")],
)
def test_bad_groups(groups, words):
    with pytest.raises(DomainError, match=words):
        CategoricalVariables.of(3, groups)


@pytest.mark.parametrize("method", ["prove", "sdd"])
def test_no_nodes_and_constant_roots(method):
    dag = Dag(0)
    circuit = dag.compile(dag.add(TRUE), dag.add(FALSE), dag.both(), dag.either(), method=method)
    assert circuit.kind[circuit.roots].tolist() == [TRUE, FALSE, TRUE, FALSE]
    assert compile_formula_dag([], [], [0], [], [], 0).num_roots == 0


def test_a_builder_circuit_goes_in():
    b = CircuitBuilder()
    root = b.disjunction([b.conjunction([b.literal(1), b.literal(2)]), b.conjunction([b.literal(2), b.literal(3)])])
    plain = b.build([root], num_variables=3)
    circuit = compile_formula_dag(plain.kind, plain.literal, plain.offsets, plain.children, plain.roots, 3)
    assert evaluate(circuit, [Fraction(1, 2)] * 3, []) == [Fraction(3, 8)]
