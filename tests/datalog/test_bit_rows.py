"""Recursions that end in rows of bits agree with Python's sets, with networkx and with the pairs told one by one.

Kernels are interpreted, a statement at a time with every position checked, but where it is said.
"""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import fact_sets, least_model, text_of
from datalog.observers import solved_by
from datalog.test_fused import by_bits, interpreted, on_threads, settings_of
from derivable.core.diagnostics import LimitError, OutOfMemory
from derivable.core.graph import from_edges
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.inclusions import systems_of
from derivable.datalog.shortcuts import bit_kernels as kernels
from derivable.datalog.shortcuts import bit_rows
from derivable.datalog.shortcuts.condensed import Condensed
from drawn import examples

CLOSURES = {
    "left": "rel path(x, z) = path(x, y), edge(y, z)",
    "right": "rel path(x, z) = edge(x, y), path(y, z)",
    "both": "rel path(x, z) = path(x, y), edge(y, z)\nrel path(x, z) = edge(x, y), path(y, z)",
    "nonlinear": "rel path(x, z) = path(x, y), path(y, z)",
}


def closure(kind):
    return f"type edge(u32, u32)\nrel path(x, y) = edge(x, y)\n{CLOSURES[kind]}\nquery path"


def counted():
    """The recursions that ended in rows of bits."""
    return solved_by(bit_rows.BitRows, str)


# Kernels

GRAPHS = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=24))
)


def condensed(n, edges):
    """What is found, and its arrays."""
    found = Condensed.of({}, *from_edges(n, *np.array(edges, np.int64).reshape(-1, 2).T))
    return found.count, found.order, found.bounds, found.links, found.ends


@settings(max_examples=150, deadline=None)
@given(GRAPHS)
def test_components_come_after_those_that_they_include(given_graph):
    n, edges = given_graph
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges)
    count, order, bounds, links, ends = condensed(n, edges)
    found = [order[a:b].tolist() for a, b in itertools.pairwise(bounds)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, nx.strongly_connected_components(graph)))
    place = {row: c for c, rows in enumerate(found) for row in rows}
    for c in range(count):
        linked = links[ends[c] : ends[c + 1]].tolist()
        assert len(set(linked)) == len(linked)
        assert {place[row] for row in linked} == {place[b] for a, b in edges if place[a] == c} - {c}
        assert all(place[row] < c and found[place[row]][0] == row for row in linked)


@settings(max_examples=60, deadline=None)
@given(GRAPHS, st.data())
def test_rows_get_what_they_reach(given_graph, data):
    n, edges = given_graph
    width = data.draw(st.integers(1, 3))
    words = np.array(data.draw(st.lists(st.integers(0, 7), min_size=n * width, max_size=n * width)), np.uint64)
    before = words.copy().reshape(n, width)
    begin = data.draw(st.integers(0, width))
    count, order, bounds, links, ends = condensed(n, edges)
    interpreted(kernels.include_kernel())(begin, width, count, width, order, words, bounds, links, ends)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges)
    wanted = before.copy()
    for x in range(n):
        for y in nx.descendants(graph, x):
            wanted[x, begin:] |= before[y, begin:]
    np.testing.assert_array_equal(words.reshape(n, width), wanted)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 70), (64, 64), (65, 130), (130, 5)])
def test_bits_are_turned(rows, columns):
    rng = np.random.default_rng(rows)
    there = rng.random((rows, columns)) < rng.choice([0.02, 0.5])
    width, depth = -(-columns // 64), -(-rows // 64)
    bits, turned = np.zeros(rows * width, np.uint64), np.zeros(columns * depth, np.uint64)
    pairs = np.argwhere(there).astype(np.int32)
    interpreted(kernels.fill_kernel())(0, len(pairs), 0, 1, width, pairs.reshape(-1), bits.view(np.uint32))
    turn = interpreted(kernels.transpose_kernel())
    for band in range(depth):
        turn(band, band + 1, rows, width, columns, depth, bits, turned, np.zeros(64, np.uint64))
    found = np.unpackbits(turned.view(np.uint8), bitorder="little").reshape(columns, depth * 64)
    np.testing.assert_array_equal(found[:, :rows].astype(bool), there.T)
    assert not found[:, rows:].any()


# Programs

# What a rule has beside its recursive atom, whose key is `y`; the key of the head is `k`.
RESTS = [
    [("+", "e", ("k", "y"))],
    [("+", "e", ("y", "k"))],
    [("+", "e", ("k", "w")), ("+", "e", ("w", "y"))],
    [("+", "e", ("k", "y")), ("!=", "k", "y")],
    [("+", "e", ("k", "y")), ("-", "e", ("y", "k"))],
    [("+", "u", ("k",)), ("+", "u", ("y",))],
    [("-", "e", ("k", "y")), ("+", "u", ("k",)), ("+", "e", ("y", 1))],
]


@st.composite
def rules_of_rows(draw):
    """Rules of two relations that put rows, or columns, of one into the other, and now and then look into them."""
    rules = [
        ("p", ("x", "y"), (("+", "e", ("x", "y")),)),
        ("q", ("x", "y"), (("+", "e", ("y", "x")), ("+", "u", ("x",)))),
    ]
    for _ in range(draw(st.integers(1, 4))):
        head, source = (draw(st.sampled_from("pq")) for _ in range(2))
        key, into, rest = "y", "k", draw(st.sampled_from(RESTS))
        kind = draw(st.integers(0, 9))
        if kind == 0:
            into, rest = "y", []
        elif kind == 1:
            into, rest = 2, [("+", "u", ("y",))]
        elif kind == 2:
            key, rest = 1, [("+", "u", ("k",))]
        elif kind == 3:
            rest = [*rest, ("+", "u", ("z",))]
        pair = [key, "z"] if draw(st.booleans()) else ["z", key]
        made = [into, "z"] if draw(st.integers(0, 4)) == 0 or pair[1] == "z" else ["z", into]
        rules.append((head, tuple(made), (("+", source, tuple(pair)), *rest)))
    return rules


def fixpoint(rules, facts, names):
    """`least_model`, again and again: relations may depend on one another."""
    model = dict(facts)
    while True:
        found = least_model(rules, model, names)
        if all(found[name] == set(model.get(name, ())) for name in names):
            return found
        model = {name: sorted(rows) for name, rows in found.items()}


@examples(25, 50, rules_of_rows(), fact_sets(), st.integers(1, 2), st.sampled_from([1, 4]), st.booleans())
def test_random_rules_agree_with_sets(rules, facts, num_threads, set_rows, keep):
    model = fixpoint(rules, facts, ["p", "q"])
    program = dv.Program(text_of(rules))
    with settings_of(0, set_rows, num_threads=num_threads), by_bits():
        db = program.run(facts=facts, keep=keep)
        for name in "pq":
            assert set(db[name]) == model[name]
            assert set(zip(*(column.tolist() for column in db[name].columns))) == model[name]
            assert all(((x, y) in db[name]) == ((x, y) in model[name]) for x in range(5) for y in range(5))


@pytest.mark.parametrize("kind", CLOSURES)
@pytest.mark.parametrize("num_threads", [1, 2])
def test_closures_are_those_of_networkx(kind, num_threads):
    """Compiled; with chains, cycles, rows without an end, several words and numbers that leave gaps."""
    edges = np.random.default_rng(3).integers(0, 90, (130, 2)) * 7
    wanted = set(nx.transitive_closure(nx.DiGraph(edges.tolist())).edges)
    with on_threads(num_threads), by_bits(), counted() as solved:
        db = dv.Program(closure(kind)).run({"edge": edges.astype(np.uint32)})
        assert set(zip(*(column.tolist() for column in db["path"].columns))) == wanted
    # A nonlinear one has this form once another shortcut has made it linear.
    assert len(solved) == 1 or kind == "nonlinear"
    assert all("rows of bits: path" in one for one in solved)


GROUPED = {
    "g, x, y": "rel path(g, x, z) = path(g, x, y), edge(g, y, z)",
    "g, y, x": "rel path(g, z, x) = edge(g, y, z), path(g, y, x)",
    "x, g, y": "rel path(x, g, z) = path(x, g, y), edge(g, y, z)",
    "x, y, g": "rel path(x, z, g) = path(x, y, g), edge(g, y, z)",
    "y, x, g": "rel path(z, x, g) = path(y, x, g), edge(g, y, z)",
    "y, x, g, g": "rel path(z, x, g, h) = path(y, x, g, h), edge(g, y, z)",
    "g, x, g, y": "rel path(g, x, h, z) = path(g, x, h, y), edge(g, y, z), g == h",
}


# What is added runs round by round, by kernels compiled for each place of the columns.
@pytest.mark.parametrize(
    ("columns", "keep"),
    [
        *[(columns, False) for columns in GROUPED],
        *[
            pytest.param(columns, True, marks=[] if columns in ("g, x, y", "g, x, g, y") else pytest.mark.slow)
            for columns in GROUPED
        ],
    ],
)
def test_closures_of_groups_are_those_of_networkx(columns, keep):
    text = f"type edge(u32, u32, u32)\nrel path({columns}) = edge(g, x, y)\n{GROUPED[columns]}\nquery path"
    rng = np.random.default_rng(2)
    edges = np.column_stack([rng.integers(0, 3, 60) * 2, rng.integers(0, 25, (60, 2)) * 3])
    order = columns.split(", ")
    wanted = set()
    for g in range(0, 6, 2):
        for x, y in nx.transitive_closure(nx.DiGraph(edges[edges[:, 0] == g, 1:].tolist())).edges:
            wanted.add(tuple({"g": g, "x": x, "y": y}[name] for name in order))
    with settings_of(0, 1, room=64, compiled=True), by_bits(), counted() as solved:
        db = dv.Program(text).run({"edge": edges.astype(np.uint32)}, keep=keep)
        assert set(zip(*(column.tolist() for column in db["path"].columns))) == wanted
        assert all(row in db["path"] for row in wanted)
        assert (1,) * len(order) not in db["path"]
        if keep:
            db.add({"edge": [(2, 1000, 5), (7, 1, 2)]})
            assert set(db["path"]) >= wanted
            assert tuple({"g": 7, "x": 1, "y": 2}[name] for name in order) in db["path"]
    assert len(solved) == 1


def test_keys_that_pass_through_are_those_of_each_row():
    """The places of a program in contexts, and a copy with columns that change places."""
    text = """
        type step(u32, u32), start(u32, u32)
        rel at(c, x, x) = start(c, x)
        rel at(c, x, z) = at(c, x, y), step(y, z)
        rel at(c, x, z) = there(x, z, c)
        rel there(x, z, c) = at(c, x, z)
        query at query there
    """
    steps = np.random.default_rng(4).integers(0, 30, (45, 2))
    starts = np.random.default_rng(5).integers(0, 30, (12, 2)) % [4, 30]
    graph = nx.DiGraph(steps.tolist())
    graph.add_nodes_from(range(30))
    wanted = {(c, x, z) for c, x in starts.tolist() for z in {x, *nx.descendants(graph, x)}}
    with settings_of(0, 1, room=64, compiled=True), by_bits(), counted() as solved:
        db = dv.Program(text).run({"step": steps.astype(np.uint32), "start": starts.astype(np.uint32)})
    assert set(db["at"]) == wanted
    assert set(db["there"]) == {(x, z, c) for c, x, z in wanted}
    assert len(solved) == 1


def test_what_comes_after_reads_the_rows():
    """Joins by either column, negation, aggregates, copies and another recursion; all as without rows of bits."""
    text = f"""
        {closure("left")}
        rel other(x, y) = edge(x, _), edge(_, y), not path(x, y)
        rel count_of(x, n) = n := count(y: path(x, y))
        rel twice(x, y) = path(x, y), path(y, x)
        rel named(x, z) = path(x, y), twice(y, z), x < z
        rel copy(x, y) = path(x, y)
        rel copy(y, x) = copy(x, y)
        query path query other query count_of query twice query named query copy
    """
    edges = np.random.default_rng(5).integers(0, 40, (60, 2)).astype(np.uint32)
    expected = dv.Program(text).run({"edge": edges})
    with settings_of(0, 1), by_bits(), counted() as solved:
        found = dv.Program(text).run({"edge": edges})
    assert solved
    for name in expected:
        assert set(found[name]) == set(expected[name]), name


@examples(
    8,
    15,
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=3, max_size=30),
    st.integers(1, 4),
    st.data(),
)
def test_databases_grow_and_branch(edges, parts, data):
    kind = data.draw(st.sampled_from(sorted(CLOSURES)))
    cuts = [len(edges) * k // (parts + 1) for k in range(parts + 2)]
    with settings_of(0, data.draw(st.sampled_from([1, 4]))), by_bits():
        db = dv.Program(closure(kind)).run({"edge": edges[: cuts[1]]}, keep=True)
        before = set(db["path"])
        branch = db.fork()
        for low, high in itertools.pairwise(cuts[1:]):
            branch.add({"edge": edges[low:high]})
            wanted = set(nx.transitive_closure(nx.DiGraph(edges[:high])).edges)
            assert set(branch["path"]) == wanted
        assert set(db["path"]) == before


def test_any_number_of_threads_finds_the_same():
    edges = np.random.default_rng(1).integers(0, 3000, (4000, 2)).astype(np.uint32)
    found = []
    for number in (1, 2, 3):
        with on_threads(number), by_bits(), under(shared_rows=0):
            found.append(dv.Program(closure("left")).run({"edge": edges})["path"].columns)
    for columns in found[1:]:
        for a, b in zip(found[0], columns):
            np.testing.assert_array_equal(a, b)


# When


def dense(count=900):
    """A cycle with chords, all of whose pairs are in its closure."""
    nodes = np.arange(count)
    return np.concatenate([np.stack([nodes, (nodes + step) % count], 1) for step in (1, 7)]).astype(np.uint32)


def test_a_dense_closure_goes_over_by_itself():
    with counted() as solved:
        db = dv.Program(closure("left")).run({"edge": dense()})
    assert len(db["path"]) == 900 * 900
    assert solved == ["rows of bits: path 900 x 900; 1,800 inclusions, 0 of them between 1 components"]
    assert solved[0] in db.explain("plan")


def test_a_sparse_one_does_not():
    """400,000 pairs among 90,000 nodes would take a gigabyte."""
    starts = np.arange(0, 90_000, 10)
    edges = np.concatenate([np.stack([starts + k, starts + k + 1], 1) for k in range(9)]).astype(np.uint32)
    with counted() as solved:
        assert len(dv.Program(closure("left")).run({"edge": edges})["path"]) == 405_000
    assert not solved


def test_limits_hold():
    program, facts = dv.Program(closure("left")), {"edge": dense()}
    with counted() as solved:
        with pytest.raises(LimitError, match=r"tuple_limit = 300,000"):
            program.run(facts, tuple_limit=300_000)
        with pytest.raises(LimitError, match="round_limit"):
            program.run(facts, round_limit=3)
        assert len(program.run(facts, iteration_limit=2)["path"]) < 900 * 900
    assert not solved
    with by_bits(), pytest.raises(LimitError, match=r"tuple_limit = 300,000"):
        program.run(facts, tuple_limit=300_000)


def test_memory_that_is_not_there_is_our_error():
    def none(*_):
        raise MemoryError("an array of 1.0 GB where 0.5 GB are left")

    program = dv.Program(closure("left"))
    with pytest.MonkeyPatch.context() as patch, by_bits():
        patch.setattr(bit_rows, "zeros", none)
        with pytest.raises(OutOfMemory, match="are left"):
            program.run({"edge": dense()})


# What rules say


def systems(rules):
    ram = dv.Program(f"type e(u32, u32), u(u32)\nrel p(x, y) = e(x, y)\n{rules}\nquery p").lowered({})
    (stratum,) = (stratum for stratum in ram.strata if "p" in stratum.relations)
    return systems_of(stratum, stratum.loop)


@pytest.mark.parametrize(
    ("rule", "passing"),
    [
        ("rel p(x, z) = e(x, y), p(y, z)", [{"p": 1}]),
        ("rel p(x, z) = p(x, y), e(y, z)", [{"p": 0}]),
        ("rel p(x, z) = p(x, y), e(y, z)\nrel p(x, z) = e(x, y), p(y, z)", [{"p": 0}, {"p": 1}]),
        ("rel p(x, z) = q(y, z), e(x, y)\nrel q(x, z) = p(x, z)", [{"p": 1, "q": 1}]),
        ("rel p(z, x) = q(y, z), e(x, y)\nrel q(x, z) = p(z, x)", [{"p": 0, "q": 1}]),
        ("rel p(x + 1, z) = u(x), p(x, z), not e(x, x), x > 3", [{"p": 1}]),
        ("rel p(3, z) = p(4, z), u(7)", [{"p": 1}]),
        # The value decides, or goes into the key, or comes twice; keys are free, or computed from those of no atom.
        ("rel p(x, z) = e(x, y), p(y, z), u(z)", []),
        ("rel p(x, z) = e(x, y), p(y, z), x < z", []),
        ("rel p(z, z) = e(_, y), p(y, z)", []),
        ("rel p(x, z + 1) = e(x, y), p(y, z)", []),
        ("rel p(x, z) = e(x, _), p(_, z)", []),
        ("rel p(x, z) = p(x, y), p(y, z)", []),
        ("rel p(z, x) = e(x, y), p(y, z)", []),
        ("rel p(y + 1, z) = p(y, z), y < 9", []),
        ("rel p(x, z) = p(y, z), u(y), x in y..9", [{"p": 1}]),
        # What functions are asked depends on what is reached.
        ("rel p(x, z) = e(x, y), p(y, z), $abs(y) > 3", []),
        ("rel p($max(x, y), z) = e(x, y), p(y, z)", []),
        ("rel p(x, z) = e(x, y), p(y, z)\nrel p(x, z) = p(z, x)", []),
    ],
)
def test_what_is_an_inclusion(rule, passing):
    assert [system.passing for system in systems(rule)] == passing
