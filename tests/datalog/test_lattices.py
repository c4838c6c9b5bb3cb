"""Columns with lattices are what networkx, brute force and the reference interpreter say, on every route."""

import itertools
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.observers import routes
from datalog.test_best_first import small_queues
from datalog.test_fused import settings_of
from derivable.core.diagnostics import DerivableError, DomainError, LimitError, UnsupportedError
from derivable.datalog.aggregates.lattices import LATTICES, Lattice
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.shortcuts.best_first import BestValueFirst
from drawn import examples

# What a node and a length are written as, of small integers.
KEYS = {"i64": lambda v: v, "usize": lambda v: v << 33, "String": lambda v: f"node {v}"}
LENGTHS = {
    "i32": lambda v: v,
    "i64": lambda v: v << 40,
    "usize": lambda v: (1 << 63) + v if v > 6 else v,
    "f32": lambda v: v / 4,
    "f64": lambda v: v / 8,
}
EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 9)), max_size=20)

DISTANCES = """
type edge(a: {key}, b: {key}, w: {value}), start({key})
type distance(node: {key}, min length: {value})
rel distance(x, 0) = start(x)
rel distance(y, d + w) = distance(x, d), edge(x, y, w)
query distance
"""
ALL_PAIRS = """
type edge(a: {key}, b: {key}, w: {value})
type distance(a: {key}, b: {key}, min length: {value})
rel distance(x, y, w) = edge(x, y, w)
rel distance(x, z, d + w) = distance(x, y, d), {step}(y, z, w)
query distance
"""


def program_of(text, key, value):
    zero = "0.0" if value.startswith("f") else "0"
    return dv.Program(text.replace("(x, 0)", f"(x, {zero})").format(key=key, value=value, step="edge"))


def graph_of(edges):
    """The shortest of parallel edges."""
    graph = nx.DiGraph()
    for a, b, w in edges:
        if not graph.has_edge(a, b) or graph[a][b]["weight"] > w:
            graph.add_edge(a, b, weight=w)
    return graph


def rows(relation):
    return set(map(tuple, relation))


@pytest.mark.parametrize(("key", "value"), [("i64", "f64"), ("String", "i32"), ("usize", "f32"), ("i64", "i64")])
@examples(12, 200, EDGES, st.sampled_from([0, 2, 1000]))
def test_shortest_paths_are_those_of_dijkstra(key, value, edges, few):
    named, length = KEYS[key], LENGTHS[value]
    program = program_of(DISTANCES, key, value)
    facts = {"edge": [(named(a), named(b), length(w)) for a, b, w in edges], "start": [(named(0),)]}
    graph = graph_of(edges)
    graph.add_node(0)
    wanted = {(named(v), length(d)) for v, d in nx.single_source_dijkstra_path_length(graph, 0).items()}
    # Rows wait for better ones from the third on.
    with settings_of(few, 2, compiled=True), under(many=2):
        assert rows(program.run(facts)["distance"]) == wanted
    assert interpret(program.lowered(), facts)["distance"] == wanted


@pytest.mark.parametrize("step", ["edge", "distance"])
@examples(12, 100, EDGES, st.sampled_from([0, 1000]))
def test_all_pairs_by_one_atom_and_by_two(step, edges, few):
    program = dv.Program(ALL_PAIRS.format(key="i64", value="i32", step=step))
    # The shortest way of at least one edge.
    wanted = {}
    for a, b, w in edges:
        for target, d in nx.single_source_dijkstra_path_length(graph_of(edges), b).items():
            wanted[a, target] = min(wanted.get((a, target), 1 << 30), w + d)
    with settings_of(few, 2, compiled=True):
        found = rows(program.run({"edge": edges})["distance"])
    assert found == {(*pair, d) for pair, d in wanted.items()}


@examples(12, 100, EDGES)
def test_labels_are_those_of_components(edges):
    program = dv.Program(
        "type edge(String, String), label(node: String, min of: String)\n"
        "rel both(x, y) = edge(x, y) or edge(y, x)\n"
        "rel label(x, x) = both(x, _)\n"
        "rel label(y, l) = label(x, l), both(x, y)\n"
        "rel size(l, n) = n := count(x: label(x, l))\n"
        "query label\nquery size"
    )
    # The order of texts is not that of their numbers, nor of when they come.
    texts = [f"{(5 * v) % 8}{'x' * v}" for v in range(8)]
    graph = nx.Graph([(texts[a], texts[b]) for a, b, _ in edges])
    found = program.run({"edge": [(texts[a], texts[b]) for a, b, _ in edges]})
    parts = [(min(part), part) for part in nx.connected_components(graph)]
    assert rows(found["label"]) == {(node, least) for least, part in parts for node in part}
    assert rows(found["size"]) == {(least, len(part)) for least, part in parts}


@examples(12, 100, EDGES, st.sampled_from([0, 1000]))
def test_sets_of_bits_are_unions_over_what_is_reached(edges, few):
    program = dv.Program(
        "type edge(i64, i64), own(i64, u64), mask(node: i64, bit_or bits: u64), common(node: i64, bit_and bits: u64)\n"
        "rel mask(x, b) = own(x, b)\nrel mask(x, b) = edge(x, y), mask(y, b)\n"
        "rel common(x, b) = own(x, b)\nrel common(x, b) = edge(x, y), common(y, b)\n"
        "query mask\nquery common"
    )
    own = {v: (1 << 63 if v == 7 else 0) | (0b1010101 ^ (1 << v)) for v in range(8)}
    graph = nx.DiGraph([(a, b) for a, b, _ in edges])
    graph.add_nodes_from(range(8))
    unions, sections = set(), set()
    for v in range(8):
        masks = [own[u] for u in {v, *nx.descendants(graph, v)}]
        union, section = masks[0], masks[0]
        for mask in masks:
            union, section = union | mask, section & mask
        unions.add((v, union))
        sections.add((v, section))
    facts = {"edge": [(a, b) for a, b, _ in edges], "own": list(own.items())}
    with settings_of(few, 2, compiled=True):
        found = program.run(facts)
    assert (rows(found["mask"]), rows(found["common"])) == (unions, sections)
    model = interpret(program.lowered(), facts)
    assert (model["mask"], model["common"]) == (unions, sections)


@examples(12, 100, EDGES)
def test_several_lattices_in_one_recursion(edges):
    """The widest of the shortest: bounds of both columns go round together."""
    program = dv.Program(
        "type edge(i64, i64, i32)\n"
        "type near(node: i64, min length: i32), wide(node: i64, max width: i32), seen(i64)\n"
        "rel near(0, 0)\nrel wide(0, 100)\n"
        "rel near(y, d + w) = seen(x), near(x, d), edge(x, y, w)\n"
        "rel wide(y, $min(c, w)) = wide(x, c), near(x, d), edge(x, y, w), d <= 15\n"
        "rel seen(x) = wide(x, c), c >= 1\n"
        "query near\nquery wide\nquery seen"
    )
    near, wide = {0: 0}, {0: 100}
    for _ in range(60):
        seen = {v for v, c in wide.items() if c >= 1}
        for x, y, w in edges:
            if x in seen and x in near:
                near[y] = min(near.get(y, 1 << 30), near[x] + w)
            if x in wide and near.get(x, 99) <= 15:
                wide[y] = max(wide.get(y, -1), min(wide[x], w))
    found = program.run({"edge": edges})
    assert rows(found["near"]) == set(near.items())
    assert rows(found["wide"]) == set(wide.items())
    assert rows(found["seen"]) == {(v,) for v, c in wide.items() if c >= 1}


# Recursions of one rule, all of which one kernel may end best value first; `#3` is 3 or 3.0.
ONE_RULE = [
    "low(x, z, d + w) = low(x, y, d), edge(y, z, w)",
    "low(x, z, d + w) = low(x, y, d), edge(y, z, w), d + w <= #9, z != 2",
    "low(x, z, $max(d, w)) = low(x, y, d), edge(y, z, w), not bad(z)",
    "low(x, z, d + w + u) = low(x, y, d), edge(y, m, w), edge(m, z, u)",
    "low(x, z, d + w - #3) = low(x, y, d), edge(y, z, w), w >= #3",
    "low(x, y + 1, d) = low(x, y, d), y < 12",
    "low(x, z, w) = low(x, y, _), edge(y, z, w)",
    "low(x, 7, if d < w then d else w) = low(x, y, d), edge(y, 3, w)",
    "low(x, z, e) = low(x, y, d), edge(y, z, w), e == d * #2 + w, e < #50",
]


@pytest.mark.parametrize("value", ["f64", "f32", "i32", "u64"])
@examples(
    10,
    200,
    st.sampled_from(ONE_RULE),
    EDGES,
    st.sampled_from([0, 8]),
    st.sampled_from([0, 1, 1 << 33]),
    st.booleans(),
)
def test_best_values_first_are_those_of_rounds(value, rule, edges, most_times, far, is_last):
    """Of all prefixes and of one; words that no floats are, and values out of reach of sets, go on in rounds."""
    rule = re.sub(r"#(\d+)", r"\1.0" if value.startswith("f") else r"\1", rule)
    if not is_last:
        rule = rule.replace("low(x, ", "low(")
    text = f"type edge(i64, i64, {{v}}), bad(i64), low({'i64, ' if is_last else ''}i64, min v: {{v}})\n"
    base = "rel low(x, y, w) = edge(x, y, w)" if is_last else "rel low(y, w) = edge(_, y, w)"
    program = dv.Program(f"{text}{base}\nrel {rule}\nquery low".format(v=value))
    length = {"i32": lambda v: v, "u64": lambda v: v if v < 9 else v << 51}.get(value, lambda v: v / 8)
    facts = {"edge": [(a, far if b == 6 else b, length(w)) for a, b, w in edges], "bad": [(5,)]}
    with settings_of(0, 1), small_queues(most_times):
        found = rows(program.run(facts)["low"])
    assert found == rows(program.run(facts, round_limit=1_000_000)["low"])
    assert found == interpret(program.lowered(), facts)["low"]


@pytest.mark.parametrize("value", ["f64", "i32"])
def test_values_that_get_better_than_all_before(costs, value):
    """Lengths below zero, from the first round on by the kernel, whose levels are those of values so far."""
    costs(few_rows=0)
    length = float if value == "f64" else int
    edges = [(x, x + 1, length(-x)) for x in range(300)] + [(x, x + 7, length(-9 * x)) for x in range(0, 280, 3)]
    program = program_of(DISTANCES, "i64", value)
    found = program.run({"edge": edges, "start": [(0,)]}, keep=True)
    assert BestValueFirst.route() in routes(found)
    wanted = nx.single_source_bellman_ford_path_length(graph_of(edges), 0)
    assert rows(found["distance"]) == set(wanted.items())


def test_long_ways_take_few_rounds():
    """A chain, whose rounds have one row each, and lengths below zero, for which the best rows are not final."""
    program = program_of(DISTANCES, "i64", "f64")
    count = 3_000
    chain = [(x, x + 1, 0.5) for x in range(count)]
    with small_queues():
        found = program.run({"edge": chain, "start": [(0,)]}, keep=True)
    assert BestValueFirst.route() in routes(found)
    assert rows(found["distance"]) == {(x, x / 2) for x in range(count + 1)}
    rng = np.random.default_rng(0)
    # No cycle is below zero: each length is moved by what its ends are worth.
    worth = rng.integers(0, 50, 200)
    edges = [(a, b, int(w + worth[a] - worth[b])) for a, b, w in rng.integers(0, 200, (3000, 3)) % [200, 200, 9]]
    negative = program_of(DISTANCES, "i64", "i32")
    wanted = set(nx.single_source_bellman_ford_path_length(graph_of(edges), 0).items())
    assert rows(negative.run({"edge": edges, "start": [(0,)]})["distance"]) == wanted


# Rules of one recursion over lattices of several directions, all of which follow their orders and come to an end.
RULES = {
    "low": [
        "low(x, v) = own(x, v)",
        "low(y, $min(d + w, 40)) = low(x, d), edge(x, y, w)",
        "low(y, w) = low(x, d), low(y, e), edge(x, y, w), d + e <= 20",
        "low(y, 40 - h) = high(x, h), edge(x, y, _)",
        "low(y, $max(d, e)) = low(x, d), both(x, y), low(y, e)",
        "low(x, 3) = high(x, h), h > 30 - 9",
        "low(x, $min(e, 40)) = two(x, y, e), low(y, _)",
    ],
    "high": [
        "high(x, v) = own(x, v)",
        "high(y, $min(h, w)) = high(x, h), edge(x, y, w)",
        "high(y, $min(40, h + 2)) = high(x, h), low(y, d), edge(y, x, w), d < w && d <= 5",
        "high(y, 40 - d) = low(x, d), both(x, y)",
    ],
    "mask": [
        "mask(x, $bit_shift_left(1, x as u32)) = own(x, _)",
        "mask(y, b) = mask(x, b), edge(x, y, _)",
        "mask(y, $bit_or(b, c)) = mask(x, b), mask(y, c), both(x, y)",
        "mask(x, 6) = low(x, d), d <= 4",
    ],
    "both": ["both(x, y) = edge(x, y, w), low(x, d), d < 9", "both(y, x) = both(x, y), high(x, _)"],
    "two": [
        "two(x, y, w) = edge(x, y, w)",
        "two(x, z, $min(d + e, 40)) = two(x, y, d), two(y, z, e)",
        "two(x, z, $min(d + w, 40)) = two(x, y, d), edge(y, z, w)",
        "two(y, x, d) = two(x, y, d), both(x, y)",
    ],
}
HEADS = (
    "type edge(i64, i64, i32), own(i64, i32), low(node: i64, min v: i32), high(node: i64, max v: i32)\n"
    "type mask(node: i64, bit_or v: i64), both(i64, i64), two(a: i64, b: i64, min v: i32)\n"
)
ALL_RULES = [rule for rules in RULES.values() for rule in rules]


@examples(
    6,
    400,
    st.lists(st.sampled_from(ALL_RULES), min_size=2, max_size=8, unique=True),
    EDGES,
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 30)), max_size=5),
    st.sampled_from([0, 3, 1000]),
)
def test_random_rules_are_those_of_the_interpreter(rules, edges, own, few):
    """With joins of all kinds among relations with lattices and without, by kernels and over columns."""
    text = HEADS + "".join(f"rel {rule}\n" for rule in rules) + "".join(f"query {name}\n" for name in RULES)
    program = dv.Program(text)
    facts = {"edge": edges, "own": own}
    model = interpret(program.lowered(), facts)
    with settings_of(few, 2, compiled=True), under(many=2):
        found = program.run(facts)
    assert {name: rows(found[name]) for name in RULES} == {name: model[name] for name in RULES}


def test_lengths_below_zero_and_no_keys():
    edges = [(0, 1, 5), (1, 2, -4), (0, 2, 3), (2, 3, -7), (3, 4, 1), (0, 4, 0), (0, 3, -1)]
    program = program_of(DISTANCES, "i64", "i32")
    graph = graph_of(edges)
    wanted = set(nx.single_source_bellman_ford_path_length(graph, 0).items())
    assert rows(program.run({"edge": edges, "start": [(0,)]})["distance"]) == wanted
    least = dv.Program("type least(min f64), p(f64)\nrel least(x) = p(x)\nquery least")
    assert rows(least.run({"p": [(3.5,), (-1.25,), (7.0,)]})["least"]) == {(-1.25,)}
    assert rows(least.run({"p": []})["least"]) == set()


def test_facts_of_a_lattice_are_joined_and_added_to():
    program = program_of(DISTANCES + "rel far(x) = distance(x, d), d > 5\nquery far", "i64", "i32")
    facts = {"edge": [(0, 1, 4), (1, 2, 4)], "start": [(0,)], "distance": [(2, 100), (3, 7), (3, 9)]}
    found = program.run(facts)
    assert rows(found["distance"]) == {(0, 0), (1, 4), (2, 8), (3, 7)}
    assert rows(found["far"]) == {(2,), (3,)}
    database = program.run(facts, keep=True)
    database.add({"edge": [(0, 2, 1)]})
    assert rows(database["distance"]) == {(0, 0), (1, 4), (2, 1), (3, 7)}
    assert rows(database["far"]) == {(3,)}


@examples(15, 100, EDGES, EDGES, EDGES, st.sampled_from([0, 1000]))
def test_facts_are_added_and_branches_know_nothing_of_one_another(edges, more, others, few):
    program = program_of(DISTANCES + "rel near(x) = distance(x, d), d < 4\nquery near", "i64", "i32")
    with settings_of(few, 2, compiled=True):
        database = program.run({"edge": edges, "start": [(0,)]}, keep=True)
        branch = database.fork()
        branch.add({"edge": others, "distance": [(5, 3)]})
        database.add({"edge": more})
    for found, given, own in ((database, edges + more, []), (branch, edges + others, [(5, 3)])):
        model = interpret(program.lowered(), {"edge": given, "start": [(0,)], "distance": own})
        assert rows(found["distance"]) == model["distance"]
        assert rows(found["near"]) == model["near"]


@examples(15, 100, EDGES)
def test_questions_about_labels_that_are_handed_through(edges):
    """`label(x, l)` of one node is asked from that node on."""
    program = dv.Program(
        "type edge(i64, i64), label(node: i64, min of: i64)\nrel label(x, x) = edge(x, _) or edge(_, x)\n"
        "rel label(x, l) = edge(x, y), label(y, l)\nquery label(0, l)"
    )
    pairs = [(a, b) for a, b, _ in edges]
    graph = nx.DiGraph(pairs)
    wanted = {(0, min([0, *nx.descendants(graph, 0)]))} if 0 in graph else set()
    assert rows(program.run({"edge": pairs})["label(0, l)"]) == wanted
    assert "flip label" in program.explain("demand")


def test_questions_ask_for_what_they_need():
    text = ALL_PAIRS.format(key="i64", value="i32", step="edge").replace("query distance", "query distance(3, y, d)")
    edges = [(a, (a * 7 + k) % 50, (a * k) % 9 + 1) for a in range(50) for k in (1, 5)]
    program = dv.Program(text)
    wanted = {}
    for a, b, w in edges:
        if a == 3:
            for target, d in nx.single_source_dijkstra_path_length(graph_of(edges), b).items():
                wanted[target] = min(wanted.get(target, 1 << 30), w + d)
    found = rows(program.run({"edge": edges})["distance(3, y, d)"])
    assert found == {(3, y, d) for y, d in wanted.items()}
    assert "#demand_distance" in program.explain("demand")
    by_value = dv.Program(text.replace("distance(3, y, d)", "distance(x, y, 4)"))
    all_rows = rows(dv.Program(text.replace("(3, y, d)", "")).run({"edge": edges})["distance"])
    assert rows(by_value.run({"edge": edges})["distance(x, y, 4)"]) == {row for row in all_rows if row[2] == 4}


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob", "topkproofs", "min_plus", "counting"])
def test_runs_with_tags_have_lattices_of_what_is_certain(provenance):
    text = "rel open(x) = distance(x, d), lamp(x), not blocked(x, d)\nquery open"
    program = dv.Program(f"type lamp(i64), blocked(i64, i32)\n{DISTANCES.format(key='i64', value='i32')}{text}")
    facts = {"edge": [(0, 1, 4), (1, 2, 4), (0, 2, 9)], "start": [(0,)], "blocked": [(1, 4)]}
    lamps = dv.independent([(0,), (1,), (2,)], [0.5, 0.25, 0.75])
    found = program.run({**facts, "lamp": lamps}, provenance=provenance)
    assert rows(found["distance"]) == {(0, 0), (1, 4), (2, 8)}
    assert rows(found["open"]) == {(0,), (2,)}
    if provenance in ("exact", "minmaxprob"):
        assert found["open"][(2,)] == pytest.approx(0.75)
    uncertain = {**facts, "edge": dv.independent(facts["edge"], [0.5, 0.5, 0.5]), "lamp": lamps}
    with pytest.raises(UnsupportedError, match="the lattice of `distance` joins uncertain values: tuples of `edge`"):
        program.run(uncertain, provenance=provenance)


@pytest.mark.parametrize("provenance", [None, "exact", "minmaxprob"])
def test_relations_without_columns_stand_in_recursions_too(provenance):
    program = dv.Program(
        "type edge(i64, i64, i32), distance(node: i64, min length: i32), lamp(i64)\n"
        "rel distance(0, 0)\nrel near() = distance(x, d), d < 3\nrel far() = distance(_, d), d < 0\n"
        "rel distance(y, w) = near(), edge(_, y, w)\nrel distance(y, 1) = far(), edge(y, _, _)\n"
        "rel seen() = lamp(x), near()\nquery distance\nquery near\nquery far\nquery seen"
    )
    facts = {"edge": [(0, 1, 4), (1, 2, 2), (3, 2, 5)], "lamp": dv.independent([(1,)], [0.5])}
    found = program.run(facts, provenance=provenance)
    assert rows(found["distance"]) == {(0, 0), (1, 4), (2, 2)}
    assert (rows(found["near"]), rows(found["far"]), rows(found["seen"])) == ({()}, set(), {()})


def test_devices_say_that_they_have_none():
    pytest.importorskip("torch")
    program = program_of(DISTANCES, "i64", "i32")
    with pytest.raises(UnsupportedError, match="`distance` is computed by the host, which has lattices"):
        program.run({"edge": [(0, 1, 1)], "start": [(0,)]}, device="torch:cpu")


def test_limits_hold_for_what_gets_better_for_ever():
    program = program_of(DISTANCES, "i64", "i64")
    circle = {"edge": [(0, 1, 1), (1, 0, -3)], "start": [(0,)]}
    with pytest.raises(LimitError, match="round_limit"):
        program.run(circle, round_limit=50)
    with pytest.raises(LimitError, match="tuple_limit"):
        program.run(circle, tuple_limit=1000)
    assert rows(program.run(circle, iteration_limit=1)["distance"]) == {(0, 0), (1, 1)}


HEAD = "type edge(i64, i64, i32), distance(node: i64, min length: i32), widest(node: i64, max width: i32)\n"
MISUSES = {
    "distance(y, d + w) = distance(x, d), edge(x, y, w), d > 2": (r"`\(d > 2\)` may hold for d = ", "d > 2"),
    "distance(y, d + w) = distance(x, d), edge(x, y, w), d / 100 > 700": ("not for a better one", "d / 100"),
    "distance(y, d + w) = distance(x, d), edge(x, y, w), d > 30000": (r"for d = 300\d\d and not", "d > 30000"),
    "distance(y, d + w) = distance(x, d), edge(x, y, w), w == d": ("may hold for", "w == d"),
    "distance(y, if d > 777 then 1 else 2) = distance(x, d), edge(x, y, w)": ("may be better for d = 7", "if d"),
    "distance(y, w - d) = distance(x, d), edge(x, y, w)": ("may be better for d = ", "w - d"),
    "distance(y, d % 7) = distance(x, d), edge(x, y, w)": ("may be better for d = ", "d % 7"),
    "distance(y, w) = distance(x, 3), edge(x, y, w)": ("is looked up by the value", "distance(x, 3)"),
    "distance(y, w) = distance(x, d), edge(x, y, d), w == 3": ("is looked up by a value", "edge(x, y, d)"),
    "distance(y, w) = distance(x, d), not edge(x, y, d), edge(x, y, w)": ("is looked up by a value", "edge(x, y, d)"),
    "distance(d as i64, w) = distance(x, d), edge(x, _, w)": ("is a key of `distance`", "d as i64"),
    "widest(y, d) = distance(x, d), edge(x, y, _)\nrel distance(x, c) = widest(x, c)": ("may be better for d = ", "d"),
    "hop(y, d) = distance(x, d), edge(x, y, _)\nrel distance(x, 1) = hop(x, _)": ("which has no lattice", "d"),
    "distance(y, e) = distance(x, d), edge(x, y, w), e == w - d": ("may be better for d = ", None),
}


@pytest.mark.parametrize("rule", MISUSES)
def test_what_does_not_follow_the_order_is_refused_where_it_stands(rule):
    message, place = MISUSES[rule]
    with pytest.raises(DerivableError, match=message) as caught:
        dv.Program(f"{HEAD}rel {rule}")
    line = f"rel {rule}".split("\n")[0]
    if place is not None:
        at = line.index(place, line.index("=") if place == "d" and "widest" not in line and "hop" not in line else 0)
        if place != "d":
            assert str(caught.value).startswith(f"<program>:2:{at + 1}: error")
    assert "outside of its recursion" in str(caught.value)


@pytest.mark.parametrize(
    "rule",
    [
        "distance(y, d + w) = distance(x, d), edge(x, y, w), d <= 20",
        "distance(y, d + w) = distance(x, d), edge(x, y, w), d + w < 20000 && w > 0",
        "distance(y, d * 2 + w) = distance(x, d), edge(x, y, w)",
        "distance(y, d * w) = distance(x, d), edge(x, y, w)",
        "distance(y, $max(d, w)) = distance(x, d), edge(x, y, w)",
        "distance(y, if d < w then d else w) = distance(x, d), edge(x, y, w)",
        "distance(y, e) = distance(x, d), edge(x, y, w), e == d + w",
        "distance(y, w) = distance(x, _), edge(x, y, w)",
        "widest(y, 100 - d) = distance(x, d), edge(x, y, _)\nrel distance(x, 109 - c) = widest(x, c)",
        "far(x) = distance(x, d), d > 2",
    ],
)
def test_what_follows_the_order_is_taken(rule):
    program = dv.Program(f"{HEAD}rel distance(0, 0)\nrel {rule}")
    facts = {"edge": [(0, 1, 3), (1, 2, 1), (2, 0, 4)]}
    if "d * 2" not in rule:
        model = interpret(program.lowered(), facts)
        assert {name: rows(found) for name, found in program.run(facts).items()} == {
            name: model[name] for name in program.run(facts)
        }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type p(i32, minn i32)", "unknown lattice `minn`"),
        ("type p(min i32, i32)", "`min` stands on column 1 of `p`, which has 2"),
        ("type p(max Tensor)", "no column of type Tensor"),
        ("type p(i32, bit_or f64)", "the lattice `bit_or` has no column of type f64"),
        ("type p(i32, min bound i32)", "cannot be bound"),
        ('type p(i32, min i32)\n@demand("fb") rel p(x, x) = q(x)', "asked by the column of its lattice"),
    ],
)
def test_declarations_that_are_none(text, message):
    with pytest.raises(DerivableError, match=message):
        dv.Program(text)


def test_the_declaration_is_printed_as_it_is_written():
    program = dv.Program("type distance(node: i64, min length: f64), best(max i32)")
    for stage in ("syntax", "types"):
        assert "type distance(node: i64, min length: f64)" in program.explain(stage)
        assert "type best(max i32)" in program.explain(stage)
    for stage in ("desugar", "ram"):
        assert "relation distance(i64, min f64)" in program.explain(stage)


class TestOfAUser:
    """A join of a user's own is a lattice like those that are built in."""

    @pytest.fixture
    def nearest(self):
        made = dv.datalog.lattice(
            "nearest_to_zero",
            lambda a, b: dv.where(abs(a) < abs(b), a, dv.where(abs(b) < abs(a), b, dv.maximum(a, b))),
            takes="float",
        )
        yield made
        LATTICES.remove(made.name)

    @pytest.mark.parametrize("few", [0, 1000])
    def test_it_is_used_by_its_name(self, nearest, few):
        program = dv.Program(
            "type edge(i64, i64), own(i64, f64), least(node: i64, nearest_to_zero x: f64)\n"
            "rel least(v, x) = own(v, x)\nrel least(v, x) = edge(u, v), least(u, x)\nquery least"
        )
        facts = {"edge": [(0, 1), (1, 2), (2, 0), (3, 2)], "own": [(0, -4.0), (1, 4.0), (2, 5.0), (3, -0.5)]}
        with settings_of(few, 2, compiled=True):
            found = program.run(facts)
        assert rows(found["least"]) == {(0, -0.5), (1, -0.5), (2, -0.5), (3, -0.5)}
        assert interpret(program.lowered(), facts)["least"] == rows(found["least"])

    @pytest.mark.parametrize(
        ("join", "law"),
        [
            (lambda a, b: a + b, "idempotent"),
            (lambda a, b: a, "commutative"),
            (lambda a, b: dv.where(abs(a - b) > 2, 0 * a, dv.maximum(a, b)), "associative"),
        ],
    )
    def test_its_laws_are_checked(self, join, law):
        with pytest.raises(DomainError, match=f"is not {law}.* for a = "):
            dv.datalog.lattice("wrong", join, takes="float")
        assert "wrong" not in LATTICES

    def test_what_is_none_is_refused(self):
        with pytest.raises(DomainError, match="is an identifier"):
            dv.datalog.lattice("two words", dv.maximum)
        with pytest.raises(DomainError, match="numbers or bools"):
            dv.datalog.lattice("texts", dv.maximum, takes="text")
        with pytest.raises(DomainError, match="taken"):
            dv.datalog.lattice("min", dv.maximum)


@pytest.mark.parametrize("name", sorted(name for name in LATTICES.names() if not LATTICES[name].is_final))
@pytest.mark.parametrize("kind", ["i8", "u64", "f64", "bool", "String", "i128"])
def test_joins_are_those_of_values(name, kind):
    """On words, as joins of Python's values."""
    from derivable.datalog.values.symbols import SymbolTable
    from derivable.datalog.values.values import TYPES, show_column, word_of

    t, lattice = TYPES[kind], LATTICES[name]
    if not lattice.takes_type(t):
        pytest.skip("the lattice takes no such column")
    values = {"i8": [-128, -1, 0, 5, 127], "u64": [0, 1, 6, (1 << 63) + 2, (1 << 64) - 1], "f64": [-2.5, 0.0, 1e300]}
    values |= {"bool": [False, True], "String": ["b", "a", "", "ab"], "i128": [-(1 << 100), 0, 7, 1 << 90]}
    symbols, pairs = SymbolTable(), list(itertools.product(values[kind], repeat=2))
    a, b = (np.array([word_of(v, t, symbols) for v in column], np.int64) for column in zip(*pairs))
    found = show_column(lattice.joined(a, b, t, symbols), t, symbols).tolist()
    operation = {"min": min, "max": max, "bit_or": lambda x, y: x | y, "bit_and": lambda x, y: x & y}[name]
    assert found == [operation(x, y) for x, y in pairs]
    assert isinstance(lattice, Lattice)
