"""Wide disjunctions of independent alternatives become decisions that mean the same."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.circuit.compilation import alternatives
from derivable.circuit.compilation.choice import compile_formula_dag
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.core.and_or import AND, LITERAL, OR


def graph_of(disjuncts):
    """The disjunction of conjunctions of literals; a single literal stands for itself."""
    kinds, literals, rows, tops = [], [], [], []
    for literal_row in disjuncts:
        start = len(kinds)
        kinds += [LITERAL] * len(literal_row)
        literals += literal_row
        rows += [[]] * len(literal_row)
        tops.append(start)
        if len(literal_row) > 1:
            kinds.append(AND)
            literals.append(0)
            rows.append(list(range(start, start + len(literal_row))))
            tops[-1] = len(kinds) - 1
    return AndOrGraph.of([*kinds, OR], [*literals, 0], [*rows, tops], [len(kinds)])


def truth(graph, world):
    values = []
    for node, kind in enumerate(graph.kind):
        children = [values[c] for c in graph.children[graph.offsets[node] : graph.offsets[node + 1]]]
        literal = int(graph.literal[node])
        is_true = (literal > 0) == world[abs(literal) - 1]
        values.append({LITERAL: is_true, AND: all(children), OR: any(children)}[int(kind)])
    return values[graph.roots[0]]


@st.composite
def read_once_graphs(draw):
    """(graph, number of variables) of a formula that mentions no variable twice."""
    kinds, literals, rows, variables = [], [], [], 0
    for _ in range(draw(st.integers(2, 6))):
        variables += 1
        kinds.append(LITERAL)
        literals.append(variables * draw(st.sampled_from([1, -1])))
        rows.append([])
    open_nodes = list(range(variables))
    while len(open_nodes) > 1:
        size = draw(st.integers(2, len(open_nodes)))
        chosen, open_nodes = open_nodes[:size], open_nodes[size:]
        kinds.append(draw(st.sampled_from([AND, OR])))
        literals.append(0)
        rows.append(chosen)
        open_nodes = [*open_nodes, len(kinds) - 1] if draw(st.booleans()) else [len(kinds) - 1, *open_nodes]
    return AndOrGraph.of(kinds, literals, rows, open_nodes), variables


def sizes_of(graph):
    below = [set() for _ in range(graph.num_nodes)]
    for node in range(graph.num_nodes):
        row = graph.children[graph.offsets[node] : graph.offsets[node + 1]].tolist()
        below[node] = set().union({abs(int(graph.literal[node]))} - {0}, *(below[c] for c in row))
    return np.array([len(found) for found in below])


@settings(max_examples=100, deadline=None)
@given(read_once_graphs(), st.data())
def test_decisions_mean_the_same(case, data):
    graph, count = case
    everything, sizes = np.arange(graph.num_nodes), sizes_of(graph)
    is_once = alternatives.read_once(graph, everything, sizes, np.ones(count, bool))
    assert is_once.all()
    assert not alternatives.read_once(graph, everything, sizes, np.arange(count) > 0)[graph.roots[0]]
    found, decisions = alternatives.decided(graph, np.flatnonzero(graph.kind == OR))
    for world in itertools.product([False, True], repeat=count):
        assert truth(found, world) == truth(graph, world)
        for decision in decisions.tolist():
            row = found.children[found.offsets[decision] : found.offsets[decision + 1]]
            assert sum(truth(found.with_roots(np.array([child])), world) for child in row) <= 1
    p = np.array([data.draw(st.floats(0, 1)) for _ in range(count)])
    worlds = [world for world in itertools.product([False, True], repeat=count) if truth(graph, world)]
    chance = sum(np.prod(np.where(world, p, 1 - p)) for world in worlds)
    circuit = compile_formula_dag(*graph.arrays, count)
    np.testing.assert_allclose(circuit.evaluate(p, 1 - p, "real"), [chance], atol=1e-12)


def test_a_variable_that_is_mentioned_twice_is_seen():
    graph = graph_of([[1, 2], [3, -1], [4]])
    sizes = sizes_of(graph)
    found = alternatives.read_once(graph, np.arange(graph.num_nodes), sizes, np.ones(4, bool))
    assert not found[graph.roots[0]]
    assert found[:-1].all()


def test_many_alternatives_stay_small_and_need_no_compiler():
    disjuncts = [[i + 1] for i in range(300)] + [[-(i + 1), i + 2] for i in range(300, 700, 2)]
    graph, random = graph_of(disjuncts), np.random.default_rng(0)
    circuit = compile_formula_dag(*graph.arrays, 800)
    p = random.random(800) / 50
    chances = [p[abs(x) - 1] if x > 0 else 1 - p[abs(x) - 1] for row in disjuncts for x in row]
    absent, place = 1.0, 0
    for row in disjuncts:
        absent *= 1 - np.prod(chances[place : place + len(row)])
        place += len(row)
    assert circuit.num_nodes < 5 * 1100
    np.testing.assert_allclose(circuit.evaluate(p, 1 - p, "real"), [1 - absent], rtol=1e-12)


def test_exists_over_many_facts():
    program = dv.Program("type e(i32) rel some(b) = b := exists(x: e(x)) rel any() = e(_)")
    p = np.random.default_rng(0).random(400) / 400
    db = program.run(facts={"e": dv.independent(range(400), p)})
    some = 1 - np.prod(1 - p)
    assert db["some"][True] == pytest.approx(some)
    assert db["some"][False] == pytest.approx(1 - some)
    assert db["any"][()] == pytest.approx(some)


def test_exists_over_many_pairs_of_facts_and_its_gradient():
    torch = pytest.importorskip("torch")
    n = 2000
    text = "rel some() = a(x), b(x) rel none(v) = v := forall(x: a(x) implies not b(x))"
    p = np.random.default_rng(1).random((2, n)) / 40
    facts = {"a": dv.independent(range(n), p[0]), "b": dv.independent(range(n), p[1])}
    none = np.prod(1 - p[0] * p[1])
    db = dv.Program(text).run(facts=facts)
    assert db["some"][()] == pytest.approx(1 - none)
    assert db["none"][True] == pytest.approx(none)
    layer = dv.nn.Logic(text, inputs={k: dv.independent(range(n)) for k in "ab"}, outputs={"some": [()]})
    given = [torch.tensor(row, requires_grad=True) for row in p]
    layer(a=given[0], b=given[1]).sum().backward()
    np.testing.assert_allclose(given[0].grad, p[1] * none / (1 - p[0] * p[1]), rtol=1e-9)
