"""Wide disjunctions of independent alternatives become decisions that mean the same."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.circuit import alternatives
from derivable.circuit.and_or_graph import AndOrGraph
from derivable.circuit.choice import compile_formula_dag
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


ROWS = st.lists(st.lists(st.booleans(), min_size=1, max_size=3), min_size=2, max_size=4)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.booleans())
def test_chains_mean_the_same(signs, is_shared):
    count, disjuncts = 0, []
    for row in signs:
        disjuncts.append([(count + i + 1) * (1 if sign else -1) for i, sign in enumerate(row)])
        count += len(row)
    if is_shared:
        disjuncts[-1][0] = 1
    graph = graph_of(disjuncts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(alternatives, "WIDE", 2)
        found = alternatives.decided(graph, np.ones(count, bool))
        assert (found is graph) == is_shared
        assert alternatives.decided(graph, np.arange(count) > 0) is graph
    for world in itertools.product([False, True], repeat=count):
        assert truth(found, world) == truth(graph, world)


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
