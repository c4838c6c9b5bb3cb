"""The and-or graph: what it means, its printed form, its validator, and what is done with any such graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.random_circuits import assert_same_circuit, random_arrays
from circuit.reference import holds
from derivable.circuit.formulas.formula import evaluate, exactly_one, to_nnf, variables
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.graph.builder import circuit_from_arrays
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import LayoutError
from derivable.core.progress import NEVER
from derivable.datalog.exact.unroll import acyclic, normal_form, unroll

WORLDS = (np.arange(16)[:, None] >> np.arange(4)[None, :] & 1).astype(bool)


def paths(edges, negated=()):
    """reach(i) from node 0 over random edges (a, b): the graph of the rules reach(b) if reach(a) and edge(a, b)."""
    kind, literal, rows = [FALSE, TRUE], [0, 0], [[], []]
    size = max(max(edge) for edge in edges) + 1
    first_tuple = 2 + 2 * len(edges)
    for number, (a, _) in enumerate(edges):
        kind += [LITERAL, AND]
        literal += [number + 1, 0]
        rows += [[], [first_tuple + a, 2 + 2 * number]]
    for tuple_ in range(size):
        kind.append(OR)
        literal.append(0)
        rows.append([3 + 2 * number for number, (_, b) in enumerate(edges) if b == tuple_] + [1] * (tuple_ == 0))
    return AndOrGraph.of(
        kind, literal, rows, [~(first_tuple + t) if t in negated else first_tuple + t for t in range(size)]
    )


def reached(edges, world):
    """[node] whether there is a path from 0 over the edges that are there."""
    seen = {0}
    for _ in edges:
        seen |= {b for (a, b), there in zip(edges, world) if there and a in seen}
    return [node in seen for node in range(max(max(edge) for edge in edges) + 1)]


EDGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(EDGES, st.sets(st.integers(0, 3)))
def test_cycles_mean_the_least_fixpoint_and_can_be_unrolled(edges, negated):
    graph = paths(edges, negated)
    graph.check()
    worlds = WORLDS[:, : len(edges)]
    expected = np.array([reached(edges, world) for world in worlds]).T
    expected[[node for node in negated if node < len(expected)]] ^= True
    assert (graph.truth(worlds) == expected).all()
    for other in (unroll(graph), normal_form(acyclic(graph, NEVER))):
        other.check()
        assert other.is_ordered
        assert (other.truth(worlds) == expected).all()
    assert (normal_form(acyclic(graph, NEVER)).children >= 0).all()


def test_negation_normal_form_keeps_shared_negations():
    inner = AndOrGraph.of(
        [LITERAL, LITERAL, LITERAL, AND, OR, AND], [1, 2, 3, 0, 0, 0], [[], [], [], [0, 1], [~3, 2], [~4, 3]], [~5, 4]
    )
    form = normal_form(acyclic(inner, NEVER))
    assert (form.truth(WORLDS) == inner.truth(WORLDS)).all()
    a, b, c, _ = WORLDS.T
    both, either = a & b, ~(a & b) | c
    assert (form.truth(WORLDS) == [~(~either & both), either]).all()


def test_the_graph_of_a_formula_means_the_formula():
    a, b, c, d = variables("a b c d")
    formula = exactly_one(a, b & ~c, d) ^ (c | ~(a & d))
    graph = to_nnf(formula)
    graph.check()
    assert (graph.truth(WORLDS) == evaluate(formula, WORLDS)).all()
    assert graph.is_ordered


@pytest.mark.parametrize("seed", range(5))
def test_a_circuit_is_such_a_graph(seed):
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, 4, 12)
    circuit = circuit_from_arrays(*arrays, [len(arrays[0]) - 1, len(arrays[0]) - 3], 4)
    assert (circuit.truth(WORLDS) == holds(circuit, WORLDS)).all()
    shuffled = circuit.taken(rng.permutation(circuit.num_nodes))
    assert (shuffled.truth(WORLDS) == holds(circuit, WORLDS)).all()
    ordered = shuffled.ordered()
    ordered.check()
    assert_same_circuit(circuit_from_arrays(*ordered.arrays, 4), circuit)


def test_substituted_nodes_stand_for_nodes_of_the_parts():
    part = AndOrGraph.of([LITERAL, LITERAL, AND], [1, 2, 0], [[], [], [0, 1]], [])
    other = AndOrGraph.of([LITERAL], [4], [[]], [])
    graph = AndOrGraph.of([LITERAL, LITERAL, OR, OR], [3, 4, 0, 0], [[], [], [0, 1], [2, 0]], [3, 1])
    joined = graph.substituted(np.array([1, 2]), np.array([3, 2]), [part, other])
    joined.check()
    a, b, c, d = WORLDS.T
    assert (joined.truth(WORLDS) == [(a & b) | c, d]).all()


def test_printed_form():
    graph = AndOrGraph.of([LITERAL, OR, AND, TRUE], [-1, 0, 0, 0], [[], [2, 0], [0, ~3], []], [1, ~2, 1])
    assert graph.text() == "0 = ~x1\n1 = or 2 0  root 0  root 2\n2 = and 0 ~3  ~root 1\n3 = true"


@pytest.mark.parametrize(
    ("kind", "literal", "rows", "roots", "message"),
    [
        ([9], [0], [[]], [0], "node 0 has kind 9; kinds are 0 to 4"),
        ([LITERAL], [0], [[]], [0], "node 0 is of kind literal and has literal 0"),
        ([LITERAL, TRUE], [1, 0], [[], [0]], [0], r"node 1 is a leaf \(true\) with 1 children"),
        ([LITERAL, OR], [1, 0], [[], [0, ~2]], [0], "node 1 has child -3 of 2 nodes"),
        ([LITERAL], [1], [[]], [1], "root 0 is node 1; there are 1 nodes"),
    ],
)
def test_what_the_validator_refuses(kind, literal, rows, roots, message):
    with pytest.raises(LayoutError, match=message):
        AndOrGraph.of(kind, literal, rows, roots).check()
