"""Programs and facts of databases that grow and shrink, and what they are compared by."""

import itertools

import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import splits, text_of

PROVENANCES = [None, "unit", "minmaxprob", "max_product", "addmultprob", "topkproofs", "exact", "boolean", "min_plus"]


def content(db):
    return {name: dict(zip(view, view.tag_list())) for name, view in db.items()}


def assert_same(found, wanted):
    found, wanted = content(found), content(wanted)
    assert found.keys() == wanted.keys()
    for name, tuples in wanted.items():
        assert found[name].keys() == tuples.keys()
        for row, tag in tuples.items():
            assert found[name][row] == pytest.approx(tag, abs=1e-9), (name, row)


def united(*parts):
    return {
        name: [row for part in parts for row in part.get(name, ())] for name in dict.fromkeys(itertools.chain(*parts))
    }


def with_chances(parts, random):
    """Most facts random, with chances that are all different."""

    def tagged(row):
        return row if random.random() < 0.2 else (round(random.uniform(0.05, 0.95), 6), tuple(row))

    return [{name: [tagged(row) for row in rows] for name, rows in part.items()} for part in parts]


def drawn_program(data, program, facts, provenance, random):
    """(the program, which may ask for a part alone; the facts in three parts, with chances if tags count)"""
    rules, _ = program
    parts = data.draw(splits(facts, 3))
    if provenance != "unit":
        parts = with_chances(parts, random)
    text = text_of(rules)
    if data.draw(st.booleans()):
        # Only what is asked for is computed.
        head, arguments, _ = rules[-1]
        text += f"\nquery {head}({', '.join(['1', 'x', 'y'][: len(arguments)])})"
    return dv.Program(text), parts


AGGREGATES = """
    type edge(a: i32, b: i32), label(a: i32, s: String)
    rel 0.4::maybe(x) = edge(x, _)
    rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
    rel degree(x, n) = n := count(y: edge(x, y))
    rel far(x, m) = m := max(y: path(x, y))
    rel lonely(x) = label(x, _), not edge(x, _)
    rel named(s) = label(x, s), path(x, _)
    rel both(x) = maybe(x), lonely(y), x < y
    query path
    query degree
    query far
    query lonely
    query named
    query both
    query maybe
"""
WEIGHED = """
    type edge(a: i32, b: i32), label(a: i32, s: String)
    rel near(y) = y := top<1>(y: edge(0, y))
    rel order(i, x) = (i, x) := sort(x: edge(x, _))
    rel joined(s) = s := string_join<",">(s: label(_, s))
    rel after(x) = near(x) or (after(z) and edge(z, x))
    query near
    query order
    query joined
    query after
"""
TERMS = """
    type List = Nil() | Cons(i32, List)
    type edge(a: i32, b: i32), label(a: i32, s: String)
    rel walk(x, new Cons(x, new Nil())) = label(x, _)
    rel walk(y, new Cons(y, l)) = walk(x, l), edge(x, y), x < y
    rel ends(s, x) = walk(_, l), case l is Cons(x, Cons(y, _)), label(y, s)
    rel longest(x, l) = walk(x, l), not edge(x, _)
    query walk
    query ends
    query longest
"""
NODES = st.integers(0, 4)
EDGES = st.lists(st.tuples(NODES, NODES), max_size=4, unique=True)
LABELS = st.lists(st.tuples(NODES, st.sampled_from("abc")), max_size=3, unique=True)
# Text -> its program.
MADE = {}
