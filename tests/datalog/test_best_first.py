"""Recursions that one kernel tells best tag first have the tags of those that run round by round, and of Dijkstra."""

import math
from contextlib import contextmanager
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.observers import solved_by
from datalog.test_fused import settings_of
from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import max_product, min_plus
from derivable.core.diagnostics import LimitError
from derivable.datalog.policy.costs import under
from derivable.datalog.shortcuts.best_first import BestFirst, Propagation
from drawn import examples

RULES = {
    "p(x, z)": ["p(x, y), e(y, z)", "p(x, y), e(y, w), e(w, z)", "e(z, y), p(x, y), z != 2", "p(x, x), e(z, x)"],
    "p(x, y + 1)": ["p(x, y), e(y, _), y < 5", "p(x, y), y < 3"],
    "p(x, 7)": ["p(x, y), e(y, 3)"],
    "p(x, y + 150)": ["p(x, y), e(_, y), y < 600"],
    "t(g, x, z)": ["t(g, x, y), e(y, z), not u(z)"],
    "r(z)": ["r(y), e(y, z)", "r(y), z in y..9, e(z, y)"],
}
BASE = """
type e(i64, i64), u(i64), p(i64, i64), t(i64, i64, i64), r(i64)
rel p(x, y) = e(x, y)
rel t(x, y, y) = e(x, y)
rel r(x) = u(x)
query p
query t
query r
"""
NODES = st.sampled_from([0, 1, 2, 3, 40, 300, 1 << 33])


@contextmanager
def small_queues(most_times=8):
    """The recursions that are told best first."""
    with under(levels=4, first_rows=1, look_rows=2, far_off=most_times), solved_by(BestFirst) as solved:
        yield solved


@examples(
    35,
    70,
    st.sampled_from([f"rel {head} = {body}" for head, bodies in RULES.items() for body in bodies]),
    st.lists(st.tuples(NODES, NODES), min_size=1, max_size=10, unique=True),
    st.lists(st.tuples(st.integers(0, 3)), min_size=1, max_size=3, unique=True),
    st.sampled_from(["minmaxprob", "max_product", "min_plus"]),
    st.integers(2, 9),
    st.sampled_from([0, 8]),
    st.randoms(use_true_random=False),
)
def test_all_orders_lead_to_the_same_tags(rule, edges, units, provenance, few, most_times, random):
    """Sets get new blocks, wider domains and values out of reach; queues get longer, pause and give up."""
    facts = {"e": edges, "u": units}
    facts = {name: [(random.randrange(1, few) / few, row) for row in rows] for name, rows in facts.items()}
    program = dv.Program(BASE + rule)
    expected = program.run(facts, provenance=provenance)
    with settings_of(0, 1), small_queues(most_times):
        found = program.run(facts, provenance=provenance)
    for name in "ptr":
        assert dict(found[name]) == dict(expected[name])


def test_the_shortest_paths_are_those_of_networkx():
    """Levels follow the rows, which get farther and farther."""
    graph = nx.gnm_random_graph(90, 360, seed=2, directed=True)
    lengths = np.random.default_rng(0).integers(1, 50, graph.number_of_edges())
    for edge, length in zip(graph.edges, lengths.tolist()):
        graph.edges[edge]["weight"] = length
    expected = {
        (a, b): float(length)
        for a, found in nx.all_pairs_dijkstra_path_length(graph)
        for b, length in found.items()
        if a != b
    }
    text = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))\nrel q(x, y) = p(x, y), x != y\nquery q"
    scaled = replace(min_plus, name="lengths", fact=lambda p, v: 64.0 * p)
    with settings_of(0, 50, room=64, compiled=True), small_queues() as taken:
        found = dv.Program(text).run({"e": dv.independent(list(graph.edges), lengths / 64)}, provenance=scaled)["q"]
    assert taken
    assert dict(found.items()) == expected


def test_few_rows_are_told_again_on_a_grid():
    """The way to a row is long there, and one row is reached first on many ways that are no shortest ones."""
    graph = nx.grid_2d_graph(24, 24)
    edges = [(24 * a[0] + a[1], 24 * b[0] + b[1]) for a, b in nx.DiGraph(graph).edges]
    lengths = np.random.default_rng(1).uniform(0.1, 0.9, len(edges))
    weighted = nx.DiGraph()
    weighted.add_weighted_edges_from((a, b, float(length)) for (a, b), length in zip(edges, lengths))
    expected = nx.single_source_dijkstra_path_length(weighted, 0)
    plain = replace(min_plus, name="plain_lengths", fact=lambda p, v: p)
    text = "type s(i32), e(i32, i32)\nrel r(x) = s(x)\nrel r(y) = r(x) and e(x, y)\nquery r"
    with settings_of(0, 1), solved_by(BestFirst) as solved:
        facts = {"s": [(0,)], "e": dv.independent(edges, lengths)}
        found = dict(dv.Program(text).run(facts, provenance=plain)["r"])
    assert {node: length for (node,), length in found.items()} == pytest.approx({**expected, 0: found[(0,)]})
    assert solved
    assert sum(one.propagation.made for one in solved) < 1.5 * len(edges)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6) | st.just(-math.inf), min_size=1, max_size=60), st.sampled_from([2, 4, 64]))
def test_each_cell_is_of_a_level_that_there_is(keys, levels):
    """Better tags are of no lower level, and a tag that no row has yet is of some level too."""
    ranked = object.__new__(Propagation)
    ranked.levels, ranked.cells = levels, np.zeros(4 * levels, np.int32)
    ranked.rank(np.array(keys))
    assert 0 <= ranked.cells.min() <= ranked.cells.max() < levels
    assert (np.diff(ranked.cells) >= 0).all()


def test_tags_better_than_one_are_not_told_so():
    text = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))"
    doubling = replace(max_product, name="doubling", fact=lambda p, v: 2.0 + 0.0 * p)
    facts = {"e": [(0.5, (i, j)) for i in range(9) for j in range(i + 1, 9) if (i * j) % 3 != 1]}
    expected = dict(dv.Program(text).run(facts, provenance=doubling)["p"])
    with settings_of(0, 1), small_queues() as taken:
        assert dict(dv.Program(text).run(facts, provenance=doubling)["p"]) == expected
    assert not taken


def test_a_limit_ends_it():
    text = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and e(z, y))"
    facts = {"e": [(0.5, (i, i + 1)) for i in range(60)]}
    with settings_of(0, 1), small_queues() as taken, pytest.raises(LimitError, match="tuple_limit = 300"):
        dv.Program(text).run(facts, provenance="minmaxprob", tuple_limit=300)
    assert taken


def test_rows_without_a_prefix_have_a_level_for_a_few_of_them():
    """The smallest label of each of 400 chains goes over nearly all edges once."""
    smallest = Semiring(
        "smallest_label",
        lambda a, b: dv.where(b < a, b, a),
        lambda a, b: dv.where(a < b, b, a),
        zero=float("inf"),
        one=-1.0,
        idempotent_plus=True,
        selective_plus=True,
        absorptive=True,
        domain=(-1.0, float("inf")),
        fact=lambda chance, variable: dv.cast(variable, "float64"),
    )
    nodes = np.arange(16_000)
    before = nodes[nodes % 40 != 39]
    edges = np.stack([before, before + 1], 1)
    program = dv.Program("""type edge(u32, u32), start(u32)
rel reached(x) = start(x)
rel reached(y) = reached(x), edge(x, y)
query reached""")
    facts = {
        "edge": np.concatenate([edges, edges[:, ::-1]]),
        "start": dv.independent(nodes.tolist(), [0.5] * len(nodes)),
    }
    found = program.run(facts, smallest)
    assert {x: float(tag) for (x,), tag in found["reached"].items()} == {int(x): float(x // 40 * 40) for x in nodes}
    (solved,) = (rule for rule in found.profile.rules if "best first" in rule.route.name)
    assert solved.candidates <= 4 * len(edges)
