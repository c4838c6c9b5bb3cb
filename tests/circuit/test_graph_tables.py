"""And-or graphs over choices by variable elimination, against sums over all worlds."""

import itertools
import math
import random

import numpy as np
import pytest

from derivable.circuit.compilation import compile_graph as graph_compiler
from derivable.circuit.compilation import graph_tables
from derivable.circuit.compilation.compile_graph import compile_graph
from derivable.circuit.compilation.graph_definitions import Choices
from derivable.circuit.compilation.graph_tables import GraphTables
from derivable.circuit.compilation.tables import TooLarge
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.core.and_or import AND, LITERAL, OR
from derivable.core.diagnostics import CompileTimeout
from derivable.core.progress import Deadline


def random_graph(seed: int) -> tuple[AndOrGraph, list[np.ndarray], int]:
    """Independent variables and choices of three values; gates over them, signed."""
    rnd = random.Random(seed)
    num_groups, num_free = rnd.randint(0, 3), rnd.randint(1, 4)
    groups = [np.arange(3 * g + 1, 3 * g + 4) for g in range(num_groups)]
    count = 3 * num_groups + num_free
    kinds, literals, rows = [LITERAL] * count, list(range(1, count + 1)), [[] for _ in range(count)]
    for _ in range(rnd.randint(1, 9)):
        chosen = rnd.sample(range(len(kinds)), min(len(kinds), rnd.randint(1, 4)))
        rows.append([node if rnd.random() < 0.75 else ~node for node in chosen])
        kinds.append(rnd.choice([AND, OR]))
        literals.append(0)
    roots = [rnd.choice([node, ~node]) for node in rnd.sample(range(len(kinds)), min(3, len(kinds)))]
    return AndOrGraph.of(kinds, literals, rows, [*roots, len(kinds) - 1]), groups, count


def worlds_of(groups: list[np.ndarray], count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All worlds [world, variable], their probabilities, and the probabilities of the variables."""
    rng = np.random.default_rng(seed)
    weights = rng.random(count)
    for group in groups:
        weights[group - 1] /= weights[group - 1].sum()
    grouped = {int(v) for group in groups for v in group}
    free = [v for v in range(1, count + 1) if v not in grouped]
    rows, numbers = [], []
    for choice in itertools.product(*groups):
        for truth in itertools.product([False, True], repeat=len(free)):
            world = np.zeros(count, bool)
            world[np.array(choice, int) - 1] = True
            world[np.array(free, int) - 1] = truth
            rows.append(world)
            numbers.append(
                np.prod([weights[v - 1] for v in choice])
                * np.prod([weights[v - 1] if held else 1 - weights[v - 1] for v, held in zip(free, truth)])
            )
    return np.array(rows), np.array(numbers), weights


def negatives(groups: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    absent = 1 - weights
    for group in groups:
        absent[group - 1] = 1.0
    return absent


@pytest.mark.parametrize("seed", range(120))
def test_random_graphs(seed, monkeypatch):
    if seed % 3 == 0:
        monkeypatch.setattr(graph_tables, "MOST_OF_ONE", 8)
    graph, groups, count = random_graph(seed)
    worlds, numbers, weights = worlds_of(groups, count, seed)
    truth = graph.truth(worlds)
    circuit = compile_graph(graph, count, groups)
    assert circuit is not None
    assert circuit.is_decomposable
    np.testing.assert_allclose(circuit.evaluate(weights, negatives(groups, weights)), truth @ numbers, atol=1e-12)


@pytest.mark.parametrize("seed", range(120, 200))
def test_random_graphs_with_observations(seed):
    graph, groups, count = random_graph(seed)
    rows, seen = graph.with_roots(graph.roots[:2]), graph.roots[2:].tolist()
    worlds, numbers, weights = worlds_of(groups, count, seed)
    truth, observed = rows.truth(worlds), graph.with_roots(np.array(seen)).truth(worlds)
    circuit = compile_graph(rows, count, groups, seen, count + 1)
    assert circuit is not None
    absent = negatives(groups, weights)
    for signs in itertools.product([True, False, None], repeat=len(seen)):
        agree = np.ones(len(worlds), bool)
        for sign, held in zip(signs, observed):
            agree &= True if sign is None else held == sign
        pair = [sign is not False for sign in signs], [sign is not True for sign in signs]
        found = circuit.evaluate(np.append(weights, pair[0]), np.append(absent, pair[1]))
        np.testing.assert_allclose(found, [agree @ numbers, *((row & agree) @ numbers for row in truth)], atol=1e-12)


def network_graph(nodes: int, states: int) -> tuple[AndOrGraph, list[np.ndarray], int]:
    """A chain in which each node has a row of numbers for each state of the one before, written as derivations."""
    kinds, literals, rows, groups, count = [], [], [], [], 0

    def add(kind, row=(), literal=0):
        kinds.append(kind)
        literals.append(literal)
        rows.append(list(row))
        return len(kinds) - 1

    def choice():
        nonlocal count
        groups.append(np.arange(count + 1, count + states + 1))
        count += states
        return [add(LITERAL, literal=int(v)) for v in groups[-1]]

    current = choice()
    for _ in range(nodes):
        table = [choice() for _ in range(states)]
        pairs = [[add(AND, [current[i], table[i][j]]) for i in range(states)] for j in range(states)]
        current = [add(OR, row) for row in pairs]
    return AndOrGraph.of(kinds, literals, rows, current), groups, count


def test_states_of_a_network_are_values_of_one_variable():
    graph, groups, count = network_graph(30, 4)
    tables = GraphTables(graph, Choices.of(count, groups))
    assert tables.cardinalities == [4] * 31
    assert [order.width for order in tables.orders()] == [1]
    circuit = compile_graph(graph, count, groups)
    weights = np.tile([0.1, 0.2, 0.3, 0.4], count // 4)
    np.testing.assert_allclose(circuit.evaluate(weights, np.ones(count)), [0.1, 0.2, 0.3, 0.4])
    assert circuit.num_nodes < 5000


def test_circuits_of_stars_are_linear():
    """Readings of one cause, each of which is a root: a cause, and a reading of it with one probability or another."""

    def num_edges(readings: int) -> int:
        count = 1 + 2 * readings
        kinds = [LITERAL] * count + [AND, AND, OR] * readings
        literals = [*range(1, count + 1), *[0] * (3 * readings)]
        rows = [[] for _ in range(count)]
        for k in range(readings):
            first = count + 3 * k
            rows += [[0, 1 + 2 * k], [~0, 2 + 2 * k], [first, first + 1]]
        roots = [count + 3 * k + 2 for k in range(readings)]
        observed = roots[: readings // 2]
        graph = AndOrGraph.of(kinds, literals, rows, roots)
        circuit = compile_graph(graph, count, (), observed, count + 1)
        p = np.append(np.full(count, 0.5), np.ones(len(observed)))
        negative = np.append(np.full(count, 0.5), np.zeros(len(observed)))
        values = circuit.evaluate(p, negative)
        np.testing.assert_allclose(values[0], 0.5 ** len(observed), rtol=1e-12)
        return circuit.num_edges

    assert num_edges(80) < 5 * num_edges(20)


def test_what_is_wide_is_left_to_others(monkeypatch):
    monkeypatch.setattr(graph_compiler, "HOPED", 10)
    graph, groups, count = network_graph(3, 3)
    with pytest.raises(TooLarge, match="would make tables of"):
        compile_graph(graph, count, groups)
    monkeypatch.setattr(graph_compiler, "HOPED", 1e9)
    monkeypatch.setattr(graph_compiler, "CHEAP", 10)
    monkeypatch.setattr(graph_compiler, "MOST_TRIED", 5)
    with pytest.raises(TooLarge, match="made"):
        compile_graph(graph, count, groups)


def pairs_graph(count: int) -> AndOrGraph:
    """Two of so many variables are true: one alternative a pair."""
    kinds, literals, rows = [LITERAL] * count, list(range(1, count + 1)), [[] for _ in range(count)]
    for pair in itertools.combinations(range(count), 2):
        kinds.append(AND)
        literals.append(0)
        rows.append(list(pair))
    first = len(kinds)
    return AndOrGraph.of([*kinds, OR], [*literals, 0], [*rows, list(range(count, first))], [first])


def test_a_wide_disjunction_is_cut_in_steps_that_do_not_grow(monkeypatch):
    """Each step looked at all alternatives that were left: minutes for the pairs of 182 variables."""
    looks = []
    of = GraphTables._of
    monkeypatch.setattr(GraphTables, "_of", lambda self, signed: looks.append(signed) or of(self, signed))
    counts = []
    for count in (12, 24):
        looks.clear()
        GraphTables(pairs_graph(count), Choices.of(count, []))
        counts.append(len(looks) / math.comb(count, 2))
    assert counts[1] < 1.5 * counts[0]


def test_a_wide_disjunction_is_cut_within_its_time():
    class Ended(Deadline):
        looks = 0

        def remaining(self):
            self.looks += 1
            if self.looks > 50:
                raise self.error()

    with pytest.raises(CompileTimeout):
        GraphTables(pairs_graph(24), Choices.of(24, []), deadline=Ended(1.0, "it", "wait"))


@pytest.mark.parametrize("count", [5, 9, 11])
def test_two_of_many(count):
    circuit = compile_graph(pairs_graph(count), count, [])
    p = np.linspace(0.1, 0.6, count)
    none = np.prod(1 - p)
    assert circuit.weighted_count(p, 1 - p) == pytest.approx(1 - none - none * (p / (1 - p)).sum(), abs=1e-12)
