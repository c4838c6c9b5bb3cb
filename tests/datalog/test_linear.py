"""Transitive recursion that is run as a linear one means the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog.ram.transitive_loop import BASE, linear_loop

EDGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=25, unique=True)


def loops_of(text):
    """Which recursive strata of a program are run as linear ones."""
    return [linear_loop(s, BASE) is not None for s in dv.Program(text).lowered().strata if s.loop]


def closure(edges, step=lambda a, b: a[1] == b[0] and (a[0], b[1])):
    """The least set with the edges and all steps of pairs of its members, by going over all pairs."""
    found = set(edges)
    while True:
        new = {made for a in found for b in found if (made := step(a, b))} - found
        if not new:
            return found
        found |= new


@settings(max_examples=60, deadline=None)
@given(EDGES)
def test_closures(edges):
    db = dv.Program("type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and p(z, y))\nquery p").run({"e": edges})
    assert set(db["p"]) == closure(edges)


@settings(max_examples=40, deadline=None)
@given(EDGES, st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=5, unique=True))
def test_facts_of_the_relation_itself_and_added_facts(edges, more):
    program = dv.Program(
        "type e(i32, i32), p(i32, i32)\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), p(y, z)\nquery p"
    )
    db = program.run({"e": edges[: len(edges) // 2], "p": edges[len(edges) // 2 :]}, keep=True)
    assert set(db["p"]) == closure(edges)
    db.add({"p": more})
    assert set(db["p"]) == closure([*edges, *more])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 2)] * 5), max_size=12, unique=True))
def test_columns_of_groups_and_of_several_places(rows):
    """Sources are columns 4 and 0, targets 1 and 3, in this order; column 2 stays as it is."""
    text = "type e(i32, i32, i32, i32, i32)\nrel p(a, b, g, c, d) = e(a, b, g, c, d)\n"
    text += "rel p(x0, z0, g, z1, x1) = p(x0, y0, g, y1, x1), p(y0, z0, g, z1, y1)\nquery p"
    assert loops_of(text) == [True]

    def step(a, b):
        return a[2] == b[2] and (a[1], a[3]) == (b[0], b[4]) and (a[0], b[1], a[2], b[3], a[4])

    assert set(dv.Program(text).run({"e": rows})["p"]) == closure(rows, step)


@pytest.mark.parametrize(
    "rule",
    [
        "p(x, z) = p(x, y), p(z, y)",
        "p(z, x) = p(x, y), p(y, z)",
        "p(x, z) = p(x, y), p(x, z)",
        "p(x, x) = p(x, y), p(y, x)",
        "p(x, z) = p(x, y), p(y, z), x != z",
        "p(x, z) = p(x, _), p(_, z)",
        "p(x, z) = p(x, y), p(y, z), e(y, y)",
        "p(x, 3) = p(x, y), p(y, 3)",
    ],
)
@settings(max_examples=15, deadline=None)
@given(edges=EDGES)
def test_what_only_looks_transitive(rule, edges):
    text = f"type e(i32, i32)\nrel p(x, y) = e(x, y)\nrel {rule}\nquery p"
    assert loops_of(text) == [False]
    loops = {
        "p(x, z) = p(x, y), p(z, y)": lambda a, b: a[1] == b[1] and (a[0], b[0]),
        "p(z, x) = p(x, y), p(y, z)": lambda a, b: a[1] == b[0] and (b[1], a[0]),
        "p(x, z) = p(x, y), p(x, z)": lambda a, b: a[0] == b[0] and (a[0], b[1]),
        "p(x, x) = p(x, y), p(y, x)": lambda a, b: (a[1], a[0]) == b and (a[0], a[0]),
        "p(x, z) = p(x, y), p(y, z), x != z": lambda a, b: a[1] == b[0] and a[0] != b[1] and (a[0], b[1]),
        "p(x, z) = p(x, _), p(_, z)": lambda a, b: (a[0], b[1]),
        "p(x, z) = p(x, y), p(y, z), e(y, y)": lambda a, b: (
            a[1] == b[0] and (a[1], a[1]) in set(edges) and (a[0], b[1])
        ),
        "p(x, 3) = p(x, y), p(y, 3)": lambda a, b: a[1] == b[0] and b[1] == 3 and (a[0], 3),
    }
    assert set(dv.Program(text).run({"e": edges})["p"]) == closure(edges, loops[rule])


def test_other_rules_of_the_recursion_keep_it_as_it_is():
    start = "type e(i32, i32)\nrel p(x, y) = e(x, y)\nrel p(x, z) = p(x, y), p(y, z)\n"
    assert loops_of(start + "rel p(y, x) = p(x, y)") == [False]
    assert loops_of(start + "rel q(x, y) = p(x, y)\nrel p(x, x) = q(x, _)") == [False]


def test_rounds_are_those_of_the_rules_for_who_counts_them():
    """A line of 16 edges: after two rounds of the rules paths have up to four edges."""
    program = dv.Program("type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and p(z, y))\nquery p")
    edges = np.stack([np.arange(16), np.arange(1, 17)], 1)
    db = program.run({"e": edges}, iteration_limit=2)
    assert max(y - x for x, y in db["p"]) == 4
    with pytest.raises(dv.DerivableError, match="round_limit"):
        program.run({"e": edges}, round_limit=2)
    assert len(program.run({"e": edges}, round_limit=8)["p"]) == 136


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob"])
def test_tags_are_those_of_the_linear_program(provenance):
    facts = {"e": {(0, 1): 0.5, (1, 2): 0.25, (2, 0): 0.75, (1, 3): 0.5, (3, 2): 0.5}}
    start = "type e(i32, i32)\nrel p(x, y) = e(x, y)\n"
    found = dv.Program(start + "rel p(x, z) = p(x, y), p(y, z)").run(facts, provenance)["p"]
    expected = dv.Program(start + "rel p(x, z) = p(x, y), e(y, z)").run(facts, provenance)["p"]
    assert dict(found.items()) == pytest.approx(dict(expected.items()))
