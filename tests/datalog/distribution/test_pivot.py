"""Which columns are pivots, and why others are not."""

import pytest

import derivable as dv
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.distribution.partition import prepared
from derivable.datalog.distribution.pivot import Pivots, Version

EDGE = "type edge(x: usize, y: usize) "
CLOSURE = EDGE + "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z)"
SAME = (
    "type parent(usize, usize) rel same(x, y) = parent(x, p), parent(y, p), x != y "
    "rel same(x, y) = parent(x, p), same(p, q), parent(y, q)"
)


def pivots_of(text, inputs=(), is_linear=False):
    rules = dv.Program(text)._plan({}).optimised(True)
    return Pivots(prepared(rules, inputs, is_linear))


def columns(text, relation, **options):
    pivots = pivots_of(text, **options)
    width = len(pivots.rules.relations[relation].types)
    return [c for c in range(width) if not isinstance(pivots.by(relation, c), str)]


@pytest.mark.parametrize(
    ("text", "relation", "expected"),
    [
        (CLOSURE, "path", [0]),
        (EDGE + "rel path(x, y) = edge(x, y) rel path(x, z) = edge(x, y), path(y, z)", "path", [1]),
        (EDGE + "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), path(y, z)", "path", []),
        (SAME, "same", []),
        # The pivot changes its place from one relation to the other.
        (
            EDGE + "rel odd(x, y) = edge(x, y) rel odd(x, z) = even(y, x), edge(y, z) "
            "rel even(z, x) = odd(x, y), edge(y, z)",
            "odd",
            [0],
        ),
        # A sample that all atoms have.
        (
            "type edge(s: usize, x: usize, y: usize) rel path(s, x, y) = edge(s, x, y) "
            "rel path(s, x, z) = path(s, x, y), edge(s, y, z)",
            "path",
            [0, 1],
        ),
        # Computed, and joined in a lattice.
        (EDGE + "rel d(0, 0) rel d(y, n + 1) = d(x, n), edge(x, y), n < 9", "d", []),
        (
            "type near(usize, usize, min f64) rel near(x, x, 0.0) = edge(x, _, _) type edge(usize, usize, f64) "
            "rel near(x, z, a + b) = near(x, y, a), edge(y, z, b)",
            "near",
            [0],
        ),
        # Floats have no keys.
        ("type e(f64, f64) rel p(x, y) = e(x, y) rel p(x, z) = p(x, y), e(y, z)", "p", []),
        # Groups of aggregates, and what they give.
        (CLOSURE + " rel n(x, c) = c := count(y: path(x, y))", "n", [0]),
        (CLOSURE + " rel n(c) = c := count(x, y: path(x, y))", "n", []),
        # Negation of what is partitioned alike.
        (CLOSURE + " type node(usize) rel un(x, y) = node(x), node(y), not path(x, y)", "un", [0, 1]),
    ],
)
def test_columns(text, relation, expected):
    assert columns(text, relation) == expected


def test_transitive_rules_have_a_pivot_where_they_run_as_linear_ones():
    text = EDGE + "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), path(y, z)"
    assert columns(text, "path", is_linear=True) == [0]


def test_what_rules_read():
    pivots = pivots_of(CLOSURE)
    assert pivots.by("path", 0).pivots == {"path": 0}
    assert list(pivots.by("path", 0).reads.values()) == [
        (Version("edge", 0),),
        (Version("path", 0), Version("edge")),
    ]


def test_reasons_name_the_rule():
    pivots = pivots_of(CLOSURE)
    assert (
        pivots.by("path", 1)
        == "column 1 of `path` is not passed on by `path` in `path(x, z) :- path(x, y), edge(y, z)`"
    )
    assert "is computed" in pivots_of(EDGE + "rel d(0, 0) rel d(y, n + 1) = d(x, n), edge(x, y), n < 9").by("d", 1)


def test_explain():
    text = dv.Program(CLOSURE + " rel total(n) = n := count(x, y: path(x, y))").explain(
        "distribution", {"edge": [(0, 1), (1, 2)]}
    )
    assert "edge\n  broadcast, and by column 0 of it, 32 bytes" in text
    assert "(recursive): path\n  pivot: column 0 (`x`)" in text
    assert "output total: one partition, as the engine has no facts for it: " in text
    assert "output path: partitions, by column 0" in text


def test_terms_and_draws_are_refused():
    with pytest.raises(UnsupportedError, match="terms"):
        dv.Program("type E = Leaf(i32) | Pair(E, E) rel p(x) = case x is Leaf(1)").explain("distribution")
    with pytest.raises(UnsupportedError, match="draws"):
        dv.Program("rel p = {1, 2, 3} rel q(x) = x := uniform<2>(y: p(y))").explain("distribution")
