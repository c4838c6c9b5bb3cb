"""Equivalences written as rules are those of networkx and of the rules as they stand, in any spelling."""

from contextlib import contextmanager

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.observers import solved_by
from datalog.test_fused import NEVER, settings_of
from datalog.test_whole_program import leaves_to_others, rows, whole
from derivable.core.diagnostics import DerivableWarning, LimitError
from derivable.datalog.policy.costs import under
from derivable.datalog.shortcuts import SHORTCUTS, union_find

EDGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12, unique=True)
NODES = st.lists(st.integers(0, 9), max_size=6, unique=True)
# Words in reach of sets, below and above.
VALUES = {"i64": [lambda v: v, lambda v: v - 4, lambda v: (v - 4) << 40], "String": [lambda v: f"node {v}"]}

BASE = "rel e(x, y) = edge(x, y)\n"
BOTH = "rel e(x, y) = edge(x, y) or edge(y, x)\n"
TURNED = "rel e(x, y) = e(y, x)\n"
NODE = "rel e(x, x) = node(x)\n"
WHOLE = {
    "three rules": NODE + BASE + TURNED + "rel e(x, z) = e(x, y), e(y, z)",
    "other order and names": "rel e(q, a) = e(b, a), e(q, b)\nrel e(a, q) = e(q, a)\n" + BASE,
    "members": BASE + "rel e(x, x) = e(x, _) or e(_, x)\n" + TURNED + "rel e(x, z) = e(x, y), e(y, z)",
    "one rule": "rel e(x, y) = edge(x, y) or node(x) and x == y or e(y, x) or (e(x, z) and e(z, y))",
    "symmetric base": NODE + BOTH + "rel e(x, z) = e(x, y), e(y, z)",
    "backwards": BOTH + "rel e(x, z) = e(z, y), e(y, x)",
    "same targets": NODE + BOTH + "rel e(x, z) = e(x, y), e(z, y)",
    "same sources": BASE + TURNED + "rel e(x, z) = e(y, x), e(y, z)",
    "Euclidean": BASE + "rel e(x, x) = e(_, x)\nrel e(x, z) = e(x, y), e(z, y)",
    "Euclidean, sources": BASE + "rel e(x, x) = e(x, _)\nrel e(x, z) = e(y, x), e(y, z)",
    "restricted too": NODE + BOTH + "rel e(x, z) = e(x, y), e(y, z)\nrel e(x, z) = e(x, y), e(y, z), node(y)",
    "left-linear": NODE + "rel both(x, y) = edge(x, y) or edge(y, x)\nrel e(x, y) = both(x, y)\n"
    "rel e(x, z) = e(x, y), both(y, z)",
    "right-linear": "rel both(x, y) = edge(x, y) or edge(y, x)\nrel e(x, y) = both(x, y)\n"
    "rel e(x, z) = both(y, x), e(y, z)",
    "linear, turned": "rel both(x, y) = edge(x, y) or edge(y, x)\nrel e(x, y) = both(x, y)\n"
    "rel e(y, x) = e(x, y)\nrel e(x, z) = e(y, x), both(z, y)",
}


def program_of(rules, t="i64"):
    return dv.Program(f"type edge({t}, {t}), node({t}), e({t}, {t})\n{rules}\nquery e")


@contextmanager
def union_finds(bits=False):
    """The relations that union-find has solved; `bits` if it always makes rows of bits where words allow it."""
    costs = {"set_rows": 0, "bytes_a_pair": 1 << 40} if bits else {}
    with under(**costs), solved_by(union_find.UnionFind, lambda one: one.rules.relation) as solved:
        yield solved


def as_it_stands(program, facts, **options):
    """The pairs that the ordinary route finds."""
    with under(shortcuts=tuple(one for one in SHORTCUTS if one is not union_find.UnionFind)):
        return set(dv.Program(program.text).run(facts, **options)["e"])


def classes_of(edges, nodes=()):
    graph = nx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return {(x, y) for c in nx.connected_components(graph) for x in c for y in c}


@pytest.mark.parametrize("rules", WHOLE.values(), ids=WHOLE)
@settings(max_examples=20, deadline=None)
@given(EDGES, NODES, st.sampled_from([(t, made) for t, forms in VALUES.items() for made in forms]), st.booleans())
def test_spellings(rules, edges, nodes, form, bits):
    t, made = form
    edges = [(made(a), made(b)) for a, b in edges]
    nodes = [made(node) for node in nodes] if "node(x)\n" in rules or "x == y" in rules else []
    facts = {"edge": edges, "node": nodes}
    with union_finds(bits) as solved:
        db = program_of(rules, t).run(facts)
    assert solved == (["e"] if edges or nodes else [])
    wanted = classes_of(edges, nodes)
    assert set(db["e"]) == wanted
    assert len(db["e"]) == len(wanted)
    assert as_it_stands(program_of(rules, t), facts) == wanted


@pytest.mark.parametrize("large", [0, 1000])
@pytest.mark.parametrize("rules", WHOLE.values(), ids=WHOLE)
@settings(max_examples=5, deadline=None)
@given(EDGES, EDGES, st.booleans())
def test_pairs_that_are_added(large, rules, edges, more, bits):
    """Classes that are large are found again, and others go on by the rules; whoever reads them follows."""
    program = dv.Program(
        f"type edge(i64, i64), node(i64), e(i64, i64)\n{rules}\nrel own(y) = e(0, y)\n"
        "rel other(y) = e(y, y), not e(0, y)\nquery e\nquery own\nquery other"
    )
    with union_finds(bits), under(far_off=large):
        db = program.run({"edge": edges}, keep=True)
        done = db.add({"edge": more})
    wanted = classes_of(edges + more)
    assert set(db["e"]) == wanted
    assert set(db["own"]) == {(y,) for x, y in wanted if x == 0}
    assert set(db["other"]) == {(y,) for y, z in wanted if y == z and (0, y) not in wanted}
    # Some rules read both directions of edges, which an edge of the other direction leaves as they are.
    if {*more} - {*edges} - {(y, x) for x, y in edges} and edges and large == 0:
        assert "e" in done.recomputed


def test_two_large_classes_become_one():
    program = program_of(WHOLE["three rules"])
    edges = [(x, x + 1) for x in range(900) if x != 450]
    db = program.run({"edge": edges, "node": []}, keep=True)
    assert len(db["e"]) == 451**2 + 450**2
    done = db.add({"edge": [(3, 700)]})
    assert "its classes are computed again" in str(done)
    assert len(db["e"]) == 901**2


# Rules of a recursion, among which some make an equivalence of some pairs, and others do not.
RULES = [
    "rel e(x, y) = e(y, x)",
    "rel e(x, z) = e(x, y), e(y, z)",
    "rel e(x, z) = e(z, y), e(y, x)",
    "rel e(x, z) = e(x, y), e(z, y)",
    "rel e(x, z) = e(y, x), e(y, z)",
    "rel e(x, z) = e(x, y), step(y, z)",
    "rel e(x, z) = e(y, x), step(z, y)",
    "rel e(x, z) = step(x, y), e(y, z)",
    "rel e(x, z) = step(y, x), e(y, z)",
    "rel e(x, x) = e(x, _)",
    "rel e(x, x) = e(_, x)",
    "rel e(x, x) = e(x, x), e(x, _)",
    "rel e(x, x) = e(x, 2)",
    "rel e(x, y) = e(x, _), e(y, _)",
    "rel e(x, w) = e(x, y), e(y, z), e(z, w)",
    "rel e(x, z) = e(x, y), e(y, z), node(y)",
    "rel e(x, y) = e(y, x), node(x)",
    "rel e(x, y) = e(y, x), x != y",
    "rel e(x, z) = e(x, y), edge(y, w), step(w, z)",
    "rel e(x, x) = e(_, _), node(x)",
]
FEW_EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=7, unique=True)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True),
    st.tuples(*[FEW_EDGES] * 3),
    st.lists(st.integers(0, 4), max_size=3, unique=True),
    st.sampled_from(["alike", "both", "turned", "apart"]),
)
def test_random_rules_say_what_they_say(rules, drawn, nodes, kind):
    edges, steps, own = drawn
    if kind == "alike":
        edges = steps = sorted({*steps, *((b, a) for a, b in steps)})
    elif kind == "both":
        steps = sorted({*steps, *((b, a) for a, b in steps)})
    elif kind == "turned":
        edges = sorted({*edges, *((b, a) for a, b in edges)})
    text = "type step(i64, i64)\nrel e(x, y) = edge(x, y)\n" + "\n".join(rules)
    facts = {"edge": edges, "step": steps, "e": own if kind == "apart" else [], "node": nodes}
    program = program_of(text)
    assert set(program.run(facts)["e"]) == as_it_stands(program, facts)


NOT_WHOLE = {
    "filtered": BASE + TURNED + "rel e(x, z) = e(x, y), e(y, z), y > 2",
    "restricted": BASE + TURNED + "rel e(x, z) = e(x, y), e(y, z), node(y)",
    "arithmetic": BASE + "rel e(x, y + 1) = e(y, x), x < 6\nrel e(x, z) = e(x, y), e(y, z)",
    "sum": BASE + TURNED + "rel e(x, y + 1) = e(x, y), y < 6\nrel e(x, z) = e(x, y), e(y, z)",
    "symmetric alone": BASE + TURNED,
    "transitive alone": BASE + "rel e(x, z) = e(x, y), e(y, z)",
    "steps of one way": BASE + TURNED + "rel e(x, z) = e(x, y), edge(y, z)",
    "from outside": BASE + TURNED + "rel e(x, z) = e(x, y), e(y, z)\nrel e(x, y) = e(_, _), node(x), node(y)",
    "odd paths": BASE + TURNED + "rel e(x, w) = e(x, y), e(y, z), e(z, w)",
    "a way there": BASE + TURNED + "rel e(x, z) = e(x, y), e(w, z)",
    "negated": BASE + TURNED + "rel e(x, z) = e(x, y), e(y, z), not node(x)",
}


@pytest.mark.parametrize("rules", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_rules_of_something_else_run_as_they_stand(rules):
    facts = {"edge": [(1, 2), (2, 3), (5, 1), (4, 4), (7, 6)], "node": [2, 5]}
    program = program_of(rules)
    with union_finds() as solved:
        db = program.run(facts)
    assert not solved
    assert set(db["e"]) == as_it_stands(program, facts)


LINEAR = "rel e(x, z) = e(x, y), step(y, z)"
# Rules that reach an equivalence from some pairs, and pairs from which they do not.
NOT_FROM_THERE = {
    "a row alone": (LINEAR, [(1, 1)], [(1, 2), (2, 1)]),
    "steps of one way": (LINEAR, [(0, 1), (2, 1)], [(0, 1), (2, 1)]),
    "pairs between classes": (LINEAR, [(0, 0), (1, 1), (2, 2), (3, 3), (0, 2)], [(0, 1), (1, 0), (2, 3), (3, 2)]),
    "Euclidean": ("rel e(x, z) = e(x, y), e(z, y)", [(0, 0), (0, 1)], []),
    "Euclidean, sources": ("rel e(x, z) = e(y, x), e(y, z)", [(1, 1), (0, 1)], []),
    "reflexive on the other side": ("rel e(x, x) = e(x, _)\nrel e(x, z) = e(x, y), e(z, y)", [(0, 1)], []),
    "steps to nowhere": (TURNED + "rel e(x, z) = e(x, y), e(y, z)\n" + LINEAR, [(0, 1)], [(0, 1), (7, 7)]),
    "steps outside": (TURNED + "rel e(x, z) = e(x, y), e(y, z)\n" + LINEAR, [(0, 1)], [(0, 1), (1, 2)]),
    "as many in as out": ("rel e(x, z) = e(x, y), e(y, z)", [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1)], []),
    "the same sums": ("rel e(x, z) = e(x, y), e(y, z)", [(0, 2), (2, 1), (2, 1), (1, 1), (0, 0)], []),
}


@pytest.mark.parametrize(("rules", "own", "steps"), NOT_FROM_THERE.values(), ids=NOT_FROM_THERE)
def test_pairs_decide_whether_rules_reach_an_equivalence(rules, own, steps):
    program = dv.Program(f"type step(i64, i64), e(i64, i64)\n{rules}\nquery e")
    facts = {"e": own, "step": steps}
    with union_finds() as solved:
        db = program.run(facts)
    assert not solved
    assert set(db["e"]) == as_it_stands(program, facts)


def test_turned_pairs_reach_both_ends_of_steps():
    program = dv.Program(f"type step(i64, i64), e(i64, i64)\n{TURNED}{LINEAR}\nquery e")
    with union_finds() as solved:
        db = program.run({"e": [(0, 1), (5, 5)], "step": [(0, 1), (1, 0)]})
    assert solved == ["e"]
    assert set(db["e"]) == classes_of([(0, 1)], [5])


def test_three_columns_floats_tags_and_two_relations_run_as_they_stand():
    rules = NODE + BASE + TURNED + "rel e(x, z) = e(x, y), e(y, z)"
    with union_finds() as solved:
        grouped = dv.Program(
            "type edge(i64, i64, i64)\n"
            "rel e(g, x, y) = edge(g, x, y) or e(g, y, x) or (e(g, x, z) and e(g, z, y))\nquery e"
        ).run({"edge": [(0, 1, 2), (0, 2, 3), (1, 3, 4)]})
        assert set(grouped["e"]) == {(0, *p) for p in classes_of([(1, 2), (2, 3)])} | {
            (1, *p) for p in classes_of([(3, 4)])
        }
        floats = program_of(rules, "f64").run({"edge": [(0.5, 1.5)]})
        assert set(floats["e"]) == classes_of([(0.5, 1.5)])
        two = program_of(BASE + "rel f(x, y) = e(y, x)\nrel e(x, y) = f(x, y)\nrel e(x, z) = e(x, y), e(y, z)")
        assert set(two.run({"edge": [(1, 2), (2, 3)]})["e"]) == classes_of([(1, 2), (2, 3)])
        tagged = dv.Program(
            "type edge(i64, i64)\nrel edge = {0.5::(1, 2), 0.25::(2, 3)}\n"
            + BASE
            + TURNED
            + "rel e(x, z) = e(x, y), e(y, z)\nquery e"
        )
        for provenance, middle, ends in (("minmaxprob", 0.5, 0.25), ("exact", 0.625, 0.125)):
            view = tagged.run(provenance=provenance)["e"]
            tags = dict(zip(view, view.tag_list()))
            assert tags.keys() == classes_of([(1, 2), (2, 3)])
            assert tags[2, 2] == pytest.approx(middle)
            assert tags[1, 3] == tags[3, 1] == pytest.approx(ends)
    assert not solved


EQUIVALENCE = NODE + BASE + TURNED + "rel e(x, z) = e(x, y), e(y, z)"


def test_facts_of_the_relation_itself_and_rules_that_read_it():
    program = program_of(
        EQUIVALENCE
        + """
rel first(x, m) = m := min(y: e(x, y)), node(x)
rel apart(x, y) = node(x), node(y), not e(x, y), x < y
rel three(x) = e(x, y), y == 3
query first
query apart
query three"""
    )
    with union_finds(bits=True) as solved:
        db = program.run({"edge": [(1, 2), (7, 8)], "e": [(2, 3), (9, 9)], "node": [0, 3, 8]})
    assert solved == ["e"]
    assert set(db["e"]) == classes_of([(1, 2), (7, 8), (2, 3)], [0, 9])
    assert set(db["first"]) == {(0, 0), (3, 1), (8, 7)}
    assert set(db["apart"]) == {(0, 3), (0, 8), (3, 8)}
    assert set(db["three"]) == {(1,), (2,), (3,)}


@settings(max_examples=40, deadline=None)
@given(st.lists(EDGES, min_size=1, max_size=4), NODES, st.booleans(), st.integers(1, 2))
def test_added_facts(parts, nodes, bits, number):
    with union_finds(bits):
        db = program_of(EQUIVALENCE).run({"edge": parts[0], "node": nodes[:number]}, keep=True)
        before = set(db["e"])
        for edges in parts[1:]:
            db.add({"edge": edges})
        db.add({"node": nodes})
        edges = [edge for part in parts for edge in part]
        assert set(db["e"]) == classes_of(edges, nodes)
    assert before == classes_of(parts[0], nodes[:number])


def test_constants_and_demand():
    edges = [(1, 2), (3, 2), (5, 6)]
    asked = dv.Program(f"type edge(i64, i64)\n{BASE}{TURNED}rel e(x, z) = e(x, y), e(y, z)\nquery e(1, y)")
    with union_finds() as solved:
        assert set(asked.run({"edge": edges})["e(1, y)"]) == {(1, 1), (1, 2), (1, 3)}
        assert solved == ["e"]
    with pytest.warns(DerivableWarning, match="demanded elsewhere"):
        demanded = dv.Program(f'type edge(i64, i64)\n@demand("bf")\n{asked.text.partition(chr(10))[2]}')
    with union_finds() as solved:
        # A turned pair is another demand, which nothing makes.
        assert set(demanded.run({"edge": edges})["e(1, y)"]) == {(1, 1), (1, 2)}
    assert not solved


def test_limits():
    program, edges = program_of(EQUIVALENCE), [(n, n + 1) for n in range(40)]
    with union_finds() as solved:
        assert len(program.run({"edge": edges}, iteration_limit=1)["e"]) < 41**2
        with pytest.raises(LimitError, match="round"):
            program.run({"edge": edges}, round_limit=2)
        with pytest.raises(LimitError, match="tuple"):
            program.run({"edge": edges}, tuple_limit=500)
        assert not solved
        assert len(program.run({"edge": edges}, tuple_limit=5000)["e"]) == 41**2
        assert solved == ["e"]


def test_the_plan_names_the_route():
    text = program_of(EQUIVALENCE).explain("plan", {"edge": [(1, 2), (2, 3)]})
    assert "union-find: e 3 values in 1 class\n" in text
    assert text.count("by shortcut union-find") == 3


@pytest.mark.parametrize("bits", [False, True])
def test_many_classes_are_read_as_any_relation(bits):
    """Of pairs by pieces, and of bits of several words; compiled."""
    rng = np.random.default_rng(5)
    edges = rng.integers(0, 900, (700, 2)) * 3
    wanted = classes_of(edges.tolist())
    with union_finds(bits), under(chunk=100, set_rows=0 if bits else 1 << 60):
        view = program_of(BASE + TURNED + "rel e(x, z) = e(x, y), e(y, z)").run({"edge": edges})["e"]
    assert set(zip(*(column.tolist() for column in view.columns))) == wanted
    assert len(view) == len(wanted)
    assert all(((x, y) in view) == ((x, y) in wanted) for x in range(300) for y in (0, 3, 6, 2697))


def test_small_runs_ask_the_list():
    """Both columns of a cycle have one sum, as those of an equivalence; a small run of one goes on."""
    asked, program = [], dv.Program("type e(i32, i32)\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), e(y, z)\nquery p")
    cycle = [(k, (k + 1) % 5) for k in range(5)]
    both = [(0, 1), (1, 0), (0, 0), (1, 1)]

    class Watched(union_find.UnionFind):
        def pays(self):
            asked.append(super().pays())
            return asked[-1]

    with settings_of(0, NEVER, is_whole=True), under(shortcuts=(Watched,)):
        assert set(program.run({"e": cycle})["p"]) == {(a, b) for a in range(5) for b in range(5)}
        assert asked == [False]
        assert set(program.run({"e": both})["p"]) == set(both)
        # The run that goes on behind the small one asks again.
        assert asked == [False, True, True]
        assert set(program.run({"e": [(0, 1), (1, 2)]})["p"]) == {(0, 1), (1, 2), (0, 2)}
        assert len(asked) == 3


def test_an_equivalence_is_left_to_union_find():
    program = dv.Program("rel q(x, y) = edge(x, y)\nrel q(x, z) = q(x, y), edge(z, y)\nquery q")
    with whole() as made:
        assert len(program.run({"edge": [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)]})["q"]) == 5
        assert len(program.run({"edge": [(1, 2), (1, 3)]})["q"]) == 3
    assert made == [False, True]


def test_a_stratum_that_is_run_in_another_way_keeps_those_before_it():
    """The machine comes back with a reason, and the run goes on from there."""
    text = "type edge(i64, i64)\nrel two(x, y) = edge(x, z), edge(z, y)\nrel q(x, y) = two(x, y)\n"
    program = dv.Program(f"{text}rel q(x, z) = q(x, y), two(z, y)\nquery two\nquery q")
    facts = {"edge": [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3)]}
    with settings_of(NEVER, NEVER):
        wanted = program.run(facts)
    with whole():
        database, other = program.run(facts), program.run({"edge": [(1, 2), (2, 3)]})
    assert rows(database) == rows(wanted)
    ways = {effort.instruction.relation: effort.route.name for effort in database.profile.rules}
    assert ways["two"] == "kernel in the driver"
    assert ways["q"] != "kernel in the driver"
    assert set(other["q"]) == {(1, 3), (1, 1)}


def test_equivalences_say_nothing_of_the_next_run():
    assert leaves_to_others([(k, (k + step) % 5) for k in range(5) for step in (1, 4)])
