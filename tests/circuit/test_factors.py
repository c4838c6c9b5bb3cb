"""Products of tables as circuits, against sums over all assignments."""

import itertools
import math

import numpy as np
import pytest

import derivable as dv
from derivable.circuit import from_factors
from derivable.circuit.compilation.eliminate import Elimination, TooLarge, ones_of
from derivable.circuit.compilation.orders import best_order
from derivable.circuit.compilation.tables import Space
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.diagnostics import CompileTimeout, DomainError, OutOfMemory, ShapeError


def random_problem(seed: int):
    """Tables over a few variables of one to four values, with zeros, ones and equal numbers."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, rng.integers(1, 8)).tolist()
    factors = []
    for _ in range(rng.integers(0, 9)):
        scope = rng.permutation(len(sizes))[: rng.integers(0, min(4, len(sizes) + 1))].tolist()
        numbers = rng.choice([0.0, 1.0, 0.5, 0.25, 2.0, rng.random()], [sizes[v] for v in scope])
        factors.append((scope, numbers))
    return factors, sizes


def joint(factors, sizes) -> np.ndarray:
    """The product of the tables, with an axis for each variable: arithmetic, assignment by assignment."""
    found = np.ones(sizes)
    for place in itertools.product(*map(range, sizes)):
        for scope, table in factors:
            found[place] *= table[tuple(place[v] for v in scope)]
    return found


def others(sizes, variable) -> tuple[int, ...]:
    return tuple(v for v in range(len(sizes)) if v != variable)


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_the_sum_over_assignments(seed):
    factors, sizes = random_problem(seed)
    circuit, table = from_factors(factors, sizes), joint(factors, sizes)
    circuit.check()
    assert circuit.weighted_count() == pytest.approx(table.sum(), rel=1e-12)
    assert circuit.evaluate(*circuit.weights)[0] == pytest.approx(table.sum(), rel=1e-12)
    assert circuit.model_count() == np.count_nonzero(table)
    if table.sum() == 0:
        return
    marginals = circuit.marginals()
    start = 0
    for variable, size in enumerate(sizes):
        expected = table.sum(axis=others(sizes, variable)) / table.sum()
        np.testing.assert_allclose(marginals[start : start + size], expected, atol=1e-12)
        start += size
    assert circuit.most_probable(*circuit.weights).weight == pytest.approx(table.max(), rel=1e-12)


@pytest.mark.parametrize("seed", range(40, 70))
def test_roots_of_all_values_of_all_variables(seed):
    """The second sweep: joint sums for each value of each variable, as roots of one circuit."""
    factors, sizes = random_problem(seed)
    order = best_order([scope for scope, _ in factors], sizes)
    position = np.argsort(order.order)
    space, builder = Space(position, np.array(sizes)), CircuitBuilder()
    tables, weights = [], []
    for variable, size in enumerate(sizes):
        values = range(len(weights) + 1, len(weights) + 1 + size)
        tables.append(space.table([variable], ones_of(builder, [values])[0][0]))
        weights += [1.0] * size
    for scope, table in factors:
        flat = [builder.literal(len(weights) + 1 + n) if w else 0 for n, w in enumerate(table.reshape(-1))]
        tables.append(space.table(scope, np.array(flat).reshape(table.shape)))
        weights += table.reshape(-1).tolist()
    elimination = Elimination(builder, tables, space, order)
    roots = np.concatenate([elimination.roots(variable) for variable in range(len(sizes))])
    circuit = builder.build(roots, len(weights))
    assert circuit.is_decomposable
    found = circuit.evaluate(np.array(weights), np.ones(len(weights)))
    full = joint(factors, sizes)
    expected = np.concatenate([full.sum(axis=others(sizes, v)) for v in range(len(sizes))])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_literals_that_exclude_each_other_by_counts():
    """Each of them is one model of the literals of its group, and so is none of them, among groups of all sizes."""
    sizes = [0, 1, 2, 3, 5, 8, 9, 2]
    starts = np.cumsum([1, *sizes])
    builder = CircuitBuilder()
    groups = [range(first, first + size) for first, size in zip(starts.tolist(), sizes)]
    for group, (nodes, none) in zip(groups, ones_of(builder, groups)):
        assert len(nodes) == len(group)
        for number, node in [*zip(group, nodes.tolist()), (0, none)]:
            circuit = builder.build([node], int(starts[-1]) - 1)
            signs = [variable if variable == number else -variable for variable in group]
            # With a literal of another sign it is false, and nothing else is mentioned.
            for changed in range(len(group) + 1):
                lits = [-lit if place == changed else lit for place, lit in enumerate(signs)]
                weights = [np.array([0.0 if -v * s in lits else 1.0 for v in range(1, starts[-1])]) for s in (1, -1)]
                assert circuit.evaluate(*weights)[0] == float(changed == len(group))


def chain(length: int):
    return [((i, i + 1), [[0.9, 0.1], [0.2, 0.8]]) for i in range(length - 1)], [2] * length


def test_a_chain_stays_linear():
    sizes = [from_factors(*chain(length)).num_nodes for length in (100, 200)]
    assert sizes[1] < 2.1 * sizes[0]
    order = best_order([scope for scope, _ in chain(200)[0]], [2] * 200)
    assert order.width == 1
    assert order.cost <= 4 * 200


def cost_and_width(order, scopes, sizes) -> tuple[float, int]:
    """What eliminating the variables in an order takes, from the sets of neighbours."""
    near = {variable: {v for scope in scopes if variable in scope for v in scope} | {variable} for variable in order}
    cost, width = 0.0, 0
    for gone in order:
        clique = near.pop(gone)
        cost += np.prod([float(sizes[variable]) for variable in clique])
        width = max(width, len(clique) - 1)
        for other in clique - {gone}:
            near[other] = (near[other] | clique) - {gone}
    return cost, width


@pytest.mark.parametrize("seed", range(40))
def test_orders_cost_what_they_say(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 30))
    sizes = rng.integers(1, 5, count).tolist()
    scopes = [
        tuple(rng.permutation(count)[: rng.integers(0, 4)].tolist()) for _ in range(int(rng.integers(0, 2 * count + 1)))
    ]
    order = best_order(scopes, sizes)
    assert sorted(order.order) == list(range(count))
    cost, width = cost_and_width(order.order, scopes, sizes)
    assert order.cost == pytest.approx(cost)
    assert order.width == width
    # No random order is better than the best of the greedy ones by much.
    others = [cost_and_width(rng.permutation(count).tolist(), scopes, sizes)[0] for _ in range(20)]
    assert cost <= 1.5 * min(others)


def test_a_grid_costs_no_more_than_row_by_row():
    side = 8
    edges = [(i * side + j, i * side + j + step) for i in range(side) for j in range(side) for step in (1, side)]
    edges = [(a, b) for a, b in edges if b < side * side and (b - a == side or b % side)]
    assert best_order(edges, [2] * side**2).cost <= cost_and_width(range(side**2), edges, [2] * side**2)[0]


def test_zeros_are_pruned():
    """Of a permutation only one entry in eight of each table is there."""
    factors = [((i, i + 1), np.eye(8)[np.roll(np.arange(8), i)] * 0.5) for i in range(20)]
    circuit = from_factors(factors, [8] * 21)
    assert circuit.weighted_count() == pytest.approx(8 * 0.5**20)
    assert circuit.num_nodes < 3000


def test_names_and_evidence():
    names = ["healthy", "ill", "negative", "positive"]
    circuit = from_factors([((0,), [0.9, 0.1]), ((0, 1), [[0.8, 0.2], [0.3, 0.7]])], [2, 2], names=names)
    given = circuit.condition(["positive"])
    assert circuit.names[:4] == tuple(names)
    assert given.marginals()[1] == pytest.approx(0.07 / 0.25)
    assert math.isclose(given.weighted_count(), 0.25)


def test_no_variables_and_no_tables():
    assert from_factors([], []).weighted_count() == 1.0
    assert from_factors([((), 0.25)], []).weighted_count() == 0.25
    assert from_factors([], [3, 2]).weighted_count() == 6.0


@pytest.mark.parametrize(
    ("factor", "error", "part"),
    [
        (((0, 1), np.ones((2, 2))), ShapeError, "shape (2, 2), its variables [0, 1] have (2, 3)"),
        (((0, 0), np.ones((2, 2))), DomainError, "variable twice"),
        (((0,), [0.5, -0.5]), DomainError, "-0.5 at [1]"),
        (((0,), [0.5, math.nan]), DomainError, "nan at [1]"),
    ],
)
def test_errors(factor, error, part):
    with pytest.raises(error) as caught:
        from_factors([factor], [2, 3])
    assert part in caught.value.message


def test_what_does_not_fit_is_refused_with_its_size():
    grid = [((i, j), np.ones((4, 4))) for i in range(30) for j in range(i)]
    with pytest.raises(OutOfMemory, match="width 29"):
        from_factors(grid, [4] * 30)
    with pytest.raises(OutOfMemory, match="GiB"):
        from_factors(*chain(100), memory_limit=1000)
    with pytest.raises(CompileTimeout):
        from_factors(*chain(300), time_limit=1e-6)


def test_elimination_ends_at_its_most_nodes():
    builder, space = CircuitBuilder(), Space(np.arange(2), np.array([4, 4]))
    nodes = np.array([[builder.literal(4 * i + j + 1) for j in range(4)] for i in range(4)])
    table = space.table([0, 1], nodes)
    with pytest.raises(TooLarge, match="nodes"):
        Elimination(builder, [table], space, best_order([(0, 1)], [4, 4]), most_nodes=10)


def test_published_network_by_its_tables():
    from agree.bayesian_networks import read_bif, to_factors
    from data import data_path

    network = read_bif(data_path("bayesnets/alarm.bif.gz"))
    circuit = dv.circuit.from_factors(*to_factors(network))
    assert circuit.weighted_count() == pytest.approx(1.0, rel=1e-6)
    assert circuit.num_nodes < 3000
