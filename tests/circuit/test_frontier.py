"""Cycles of derivations as states of a frontier, against sums over all worlds."""

import itertools
import random

import numpy as np
import pytest

from circuit.test_graph_tables import negatives, worlds_of
from derivable.circuit.compilation import compile_graph as compile_graph_module
from derivable.circuit.compilation import frontier
from derivable.circuit.compilation.compile_graph import compile_graph
from derivable.circuit.compilation.graph_definitions import Choices
from derivable.circuit.compilation.graph_tables import GraphTables, Unsuited
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.core.and_or import AND, LITERAL, OR


def cyclic_graph(seed: int) -> tuple[AndOrGraph, list[np.ndarray], int]:
    """Atoms that derive each other by rules of one atom and some facts, and gates over them.

    Facts are shared between rules, negated, conjoined, and values of choices.
    """
    rnd = random.Random(seed)
    groups = [np.arange(3 * g + 1, 3 * g + 4) for g in range(rnd.randint(0, 2))]
    count = 3 * len(groups) + rnd.randint(2, 6)
    kinds, literals, rows = [LITERAL] * count, list(range(1, count + 1)), [[] for _ in range(count)]

    def add(kind, row):
        kinds.append(kind)
        literals.append(0)
        rows.append(row)
        return len(kinds) - 1

    atoms = [add(OR, []) for _ in range(rnd.randint(2, 5))]
    for atom in atoms:
        for _ in range(rnd.randint(1, 3)):
            facts = [rnd.choice([f, f, ~f]) for f in rnd.sample(range(count), rnd.choice([0, 1, 1, 1, 2]))]
            body = rnd.choice([[], [rnd.choice(atoms)], [rnd.choice(atoms)]])
            if len(facts + body) == 1:
                rows[atom] += facts + body
            elif facts + body:
                rows[atom].append(add(AND, facts + body))
    gates = [
        add(rnd.choice([AND, OR]), [rnd.choice([n, ~n]) for n in rnd.sample(range(len(kinds)), 2)])
        for _ in range(rnd.randint(0, 2))
    ]
    roots = [*rnd.sample(atoms, min(2, len(atoms))), *gates, rnd.choice(atoms)]
    graph = AndOrGraph.of(kinds, literals, rows, roots)
    graph = graph.kept(graph.children != graph.parents)
    return graph.taken(np.flatnonzero(graph.needed())), groups, count


@pytest.mark.parametrize("seed", range(150))
def test_random_cycles(seed):
    graph, groups, count = cyclic_graph(seed)
    worlds, numbers, weights = worlds_of(groups, count, seed)
    circuit = compile_graph(graph, count, groups)
    if circuit is None:
        with pytest.raises(Unsuited):
            GraphTables(graph, Choices.of(count, groups))
        return
    assert circuit.is_decomposable
    found = circuit.evaluate(weights, negatives(groups, weights))
    np.testing.assert_allclose(found, graph.truth(worlds) @ numbers, atol=1e-12)


@pytest.mark.parametrize("seed", range(200, 280))
def test_atoms_of_a_cycle_apart(seed, monkeypatch):
    """Each with a frontier of its own, as where all together are too many nodes."""
    monkeypatch.setattr(compile_graph_module, "MOST_TOGETHER", 0)
    graph, groups, count = cyclic_graph(seed)
    worlds, numbers, weights = worlds_of(groups, count, seed)
    circuit = compile_graph(graph, count, groups)
    if circuit is None:
        return
    assert circuit.is_decomposable
    values = circuit.evaluate(weights, negatives(groups, weights))
    np.testing.assert_allclose(values, graph.truth(worlds) @ numbers, atol=1e-12)


def test_random_atoms_are_compiled_apart(monkeypatch):
    monkeypatch.setattr(compile_graph_module, "MOST_TOGETHER", 0)
    graphs = [cyclic_graph(seed) for seed in range(200, 280)]
    made = [compile_graph(graph, count, groups) for graph, groups, count in graphs]
    assert sum(one is not None and "of their own" in one.explain("compilation") for one in made) > 30


@pytest.mark.parametrize("last", range(6))
def test_the_atom_that_is_wanted_leaves_last(last):
    """On a ring with a chord, whatever atom is first."""
    pairs = [*((a, (a + 1) % 6) for a in range(6)), (0, 3)]
    order = frontier.sequence_of([frontier.Bundle((pair,)) for pair in pairs], range(6), {last}, lambda: None)
    assert sorted(order) == list(range(6))
    assert order[-1] == last


@pytest.mark.parametrize("seed", range(150, 200))
def test_random_cycles_with_observations(seed):
    graph, groups, count = cyclic_graph(seed)
    worlds, numbers, weights = worlds_of(groups, count, seed)
    seen, rows = graph.roots[:1].tolist(), graph.with_roots(graph.roots[1:])
    circuit = compile_graph(rows, count, groups, seen, count + 1)
    if circuit is None:
        return
    observed, truth = graph.truth(worlds)[0], rows.truth(worlds)
    for sign in (True, False):
        agree = observed == sign
        pair = np.append(weights, float(sign)), np.append(negatives(groups, weights), float(not sign))
        expected = [agree @ numbers, *((row & agree) @ numbers for row in truth)]
        np.testing.assert_allclose(circuit.evaluate(*pair), expected, atol=1e-12)


def test_most_random_cycles_are_suited():
    assert sum(compile_graph(*cyclic_graph(seed)[::2], cyclic_graph(seed)[1]) is not None for seed in range(50)) > 40


def grid(size: int) -> tuple[AndOrGraph, int]:
    """Reachability over the uncertain edges of a grid, which go both ways, from one corner to the other."""
    cells = list(itertools.product(range(size), repeat=2))
    edges = [(a, b) for a, b in itertools.combinations(cells, 2) if abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1]
    kinds = [LITERAL] * len(edges) + [OR] * (len(cells) - 1)
    literals = [*range(1, len(edges) + 1), *[0] * (len(cells) - 1)]
    rows: list[list[int]] = [[] for _ in kinds]
    node = {cell: len(edges) + number for number, cell in enumerate(cells[1:])}
    for fact, (a, b) in enumerate(edges):
        for body, head in ((a, b), (b, a)):
            if head not in node:
                continue
            if body not in node:
                rows[node[head]].append(fact)
                continue
            kinds.append(AND)
            literals.append(0)
            rows.append([fact, node[body]])
            rows[node[head]].append(len(kinds) - 1)
    return AndOrGraph.of(kinds, literals, rows, [node[cells[-1]]]), len(edges)


def test_corner_to_corner_of_a_grid():
    """The value of 3x3 by all worlds; larger ones by the number of nodes."""
    graph, count = grid(3)
    worlds = np.array(list(itertools.product([False, True], repeat=count)))
    circuit = compile_graph(graph, count, ())
    assert circuit.evaluate(np.full(count, 0.5))[0] == pytest.approx(graph.truth(worlds).mean(), abs=1e-12)
    graph, count = grid(5)
    circuit = compile_graph(graph, count, ())
    assert circuit.num_nodes < 10_000
    assert circuit.explain("compilation").startswith("compiled by elimination, cycles by states of a frontier")
    assert circuit.is_decomposable


def test_roots_with_cycles_of_their_own_are_compiled_apart():
    """The ways from each node of a graph to all others, which have facts in common and no derivations."""
    rnd = random.Random(3)
    edges = rnd.sample([(a, b) for a in range(5) for b in range(5) if a != b], 11)
    kinds, literals, rows = [LITERAL] * 11, list(range(1, 12)), [[] for _ in range(11)]
    atoms = {pair: 11 + number for number, pair in enumerate(itertools.product(range(5), repeat=2))}
    kinds, literals = kinds + [OR] * 25, literals + [0] * 25
    rows += [[] for _ in atoms]
    for (start, end), atom in atoms.items():
        for fact, (a, b) in enumerate(edges):
            if b == end and a == start:
                rows[atom].append(fact)
            if b == end and (start, a) != (start, end):
                kinds.append(AND)
                literals.append(0)
                rows.append([fact, atoms[start, a]])
                rows[atom].append(len(kinds) - 1)
    graph = AndOrGraph.of(kinds, literals, rows, list(atoms.values()))
    worlds = np.array(list(itertools.product([False, True], repeat=11)))
    circuit = compile_graph(graph, 11, ())
    np.testing.assert_allclose(circuit.evaluate(np.full(11, 0.5)), graph.truth(worlds).mean(1), atol=1e-12)
    assert circuit.explain("compilation").startswith("compiled by elimination, 5 groups of roots")


def test_what_is_too_wide_is_left_to_others(monkeypatch):
    monkeypatch.setattr(frontier, "MOST_STATES", 5)
    graph, count = grid(4)
    assert compile_graph(graph, count, ()) is None


def test_rules_of_two_atoms_are_left_to_others():
    graph = AndOrGraph.of([LITERAL, LITERAL, OR, OR, AND], [1, 2, 0, 0, 0], [[], [], [0, 4], [1, 2], [2, 3]], [2, 3])
    assert compile_graph(graph.kept(np.ones(graph.num_edges, bool)), 2, ()) is None
