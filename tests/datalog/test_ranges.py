"""Joins by ordered indexes agree with the products that they replace, whatever the types, conditions and routes."""

import contextlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.test_fused import settings_of
from datalog.test_plan import ALWAYS
from derivable.datalog.policy.costs import under
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.check import check_ram
from derivable.datalog.ram.interpret import interpret
from drawn import examples

INTEGERS = ["i8", "i16", "i32", "i64", "isize", "u8", "u16", "u32", "u64", "usize"]
# Bounds of y by x, and by both columns of the row before.
CONDITIONS = [
    "y >= x", "y < x + 2", "x < y", "x + 1 >= y", "y > x - 2", "y <= x * 2", "y < x + k", "y > 2", "y <= 3",
    "x - k <= y and y <= x + k", "y >= x / k", "y != x", "y in x..x + 3", "x < k + 9, y in k..=x",
    "x > y - 3", "y + 2 > x", "x - y <= 2", "x - y < k", "y - x >= k", "k - y < x", "x >= k - y", "y - 1 + k >= x",
    "x <= 2 - (k - y)", "y + y < x", "x - y == 1", "k == y + x",
]  # fmt: skip
BODIES = ["s(_, y)", "s(k, y)", "s(k, y), s(y, _)", "s(z, y), u(z)", "s(y, y)", "s(y, z), z >= y"]


def limits(t):
    bits = 64 if t.endswith("size") else int(t[1:])
    return (0, 2**bits - 1) if t[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def numbers(t):
    if t[0] == "f":
        return st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 2.0**100, math.inf])
    low, high = limits(t)
    return st.sampled_from([v for v in (low, low + 1, -2, -1, 0, 1, 2, 3, 4, 5, high - 1, high) if low <= v <= high])


@st.composite
def cases(draw):
    t = draw(st.sampled_from([*INTEGERS, "f32", "f64"]))
    own = [c for c in CONDITIONS if t[0] != "f" or " in " not in c]
    conditions = draw(st.lists(st.sampled_from(own), min_size=1, max_size=3, unique=True))
    body = [*draw(st.permutations(["r(x, k)", draw(st.sampled_from(BODIES))])), *conditions]
    text = f"type r({t}, {t}), s({t}, {t}), u({t})\nrel t(x, y) = {', '.join(draw(st.permutations(body)))}\nquery t"
    pairs = st.lists(st.tuples(numbers(t), numbers(t)), max_size=8, unique=True)
    one = st.lists(st.tuples(numbers(t)), max_size=4, unique=True)
    return text, {"r": draw(pairs), "s": draw(pairs), "u": draw(one)}


# Costs of a search by which ordered indexes are always best, or never, where the integers of a range come first.
SEARCHES = st.sampled_from([-1e12, 1e12])


@contextlib.contextmanager
def planned(search):
    """Every join is planned, for this cost of a search in an ordered index."""
    with under(**ALWAYS, search_ns=search):
        yield


def without_ranges(text):
    """The reference interpreter, and a program whose joins look at all rows."""
    with under(narrows_joins=False):
        return interpret, dv.Program(text).lowered()


def joins(ram):
    queries = [s.query for stratum in ram.strata for s in stratum.full if isinstance(s, m.Store)]
    return [node for query in queries for node in query.operators if isinstance(node, m.Join)]


@examples(150, 1500, cases(), st.sampled_from(["unit", "minmaxprob", "addmultprob", "topkproofs"]), SEARCHES)
def test_joins_within_bounds_are_those_of_all_rows(case, provenance, search):
    with planned(search):
        check_joins(*case, provenance)


def check_joins(text, facts, provenance):
    program = dv.Program(text)
    check_ram(program.lowered())
    meaning, plain = without_ranges(text)
    wanted = meaning(plain, facts)["t"]
    assert set(program.run(facts)["t"]) == wanted
    for room in (1, 3):
        with settings_of(0, 4, room):
            assert set(dv.Program(text).run(facts)["t"]) == wanted
    if provenance == "unit":
        return
    given_tags = {
        name: [(0.1 + 0.08 * i, row) for i, row in enumerate(rows)] if name != "u" else rows
        for name, rows in facts.items()
    }
    with under(narrows_joins=False):
        expected = dict(dv.Program(text).run(given_tags, provenance=provenance)["t"].items())
    for by_kernel in (False, True):
        with settings_of(0, 4, 2) if by_kernel else settings_of(1 << 12, 1 << 12, 1 << 14, compiled=True):
            found = dict(dv.Program(text).run(given_tags, provenance=provenance)["t"].items())
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("t", [*INTEGERS, "f64"])
def test_sums_near_the_ends_of_types_bound_as_they_compare(t):
    low, high = (-1e300, 1e300) if t == "f64" else limits(t)
    values = [low, low + 3, low + 10, high - 10, high - 3, high]
    text = f"type r(x: {t}), s(y: {t})\nrel t(x, y) = r(x), s(y), y >= x - 5, y < x + 5\nquery t"
    facts = {"r": [(v,) for v in values], "s": [(v,) for v in values]}
    meaning, plain = without_ranges(text)
    assert set(dv.Program(text).run(facts)["t"]) == meaning(plain, facts)["t"]


RECURSIVE = """
type start(i32), s(i32)
rel p(x) = start(x)
rel p(y) = p(x), s(y), y > x, y <= x + 3
rel q(x, y) = p(x), p(y), x < y, y < x + 4
rel far(x) = start(x)
rel far(z) = far(x), far(y), s(z), z > x, z <= y + 2
rel twice(x) = start(x)
rel twice(y) = twice(x), y in x + 1..x + 4, s(y), not q(x, y)
rel near(x, y) = start(x), s(y), y in x..x + 3
rel near(x, z) = near(x, y), near(w, z), z >= y, z <= y + 1
"""


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 25), min_size=1, max_size=14), st.integers(0, 8), st.booleans(), SEARCHES)
def test_recursions_with_bounds_agree_with_the_interpreter(values, start, by_kernel, search):
    facts = {"start": [(start,)], "s": [(v,) for v in values]}
    meaning, plain = without_ranges(RECURSIVE)
    wanted = meaning(plain, facts)
    kernels = settings_of(0, 4, 2) if by_kernel else settings_of(1 << 12, 1 << 12, 1 << 14, compiled=True)
    with planned(search), kernels:
        found = dv.Program(RECURSIVE).run(facts)
        grown = dv.Program(RECURSIVE).run({**facts, "s": facts["s"][:3]}, keep=True)
        grown.add({"s": facts["s"][3:]})
    for name in ("p", "q", "far", "twice", "near"):
        assert set(found[name]) == wanted[name]
        assert set(grown[name]) == wanted[name]


def test_plans_show_the_conditions_of_ordered_indexes():
    text = "type r(x: i32), s(y: i32)\nrel t(x, y) = r(x), s(y), y >= x, x + 20 > y\nquery t"
    assert "join [] in order y >= x and y < (x + 20)" in dv.Program(text).explain("ram")
    assert joins(dv.Program(text).lowered())[0].range is not None
    # Texts and integers of 128 bits have no ordered index.
    for t in ("String", "i128"):
        text = f"type r(x: {t}), s(y: {t})\nrel t(x, y) = r(x), s(y), y >= x\nquery t"
        assert joins(dv.Program(text).lowered())[0].range is None


@pytest.mark.parametrize("body", ["r(x), s(y), y >= x, y < x + 20", "r(x), y in x..x + 20, s(y)"])
def test_a_range_join_looks_at_the_rows_within(body):
    text = f"type r(x: i32), s(y: i32)\nrel t(x, y) = {body}\nquery t"
    random = np.random.default_rng(0)
    facts = {name: np.unique(random.integers(0, 100_000, 20_000)).astype(np.int32)[:, None] for name in "rs"}
    rows, there = facts["r"][:, 0].tolist(), set(facts["s"][:, 0].tolist())
    wanted = {(x, y) for x, d in itertools.product(rows, range(20)) if (y := x + d) in there}
    program = dv.Program(text)
    assert set(program.run(facts)["t"]) == wanted
    shown = program.explain("plan", facts=facts)
    looks = [line for line in shown.splitlines() if "join" in line]
    assert looks
    assert all(int(line.split()[1].replace(",", "")) == len(wanted) for line in looks), shown


def test_few_integers_find_the_keys_of_the_next_atom():
    text = "type r(x: i32), s(y: i32, z: i32)\nrel t(x, z) = r(x), y in x..x + 3, s(y, z)\nquery t"
    random = np.random.default_rng(0)
    x = np.unique(random.integers(0, 30_000, 3_000)).astype(np.int32)
    s = np.unique(random.integers(0, 30_000, (3_000, 2)), axis=0).astype(np.int32)
    facts = {"r": x[:, None], "s": s}
    shown = [line.split("  ")[-1] for line in dv.Program(text).explain("plan", facts=facts).splitlines()]
    assert shown[-3:] == ["scan r(x)", "generate y in x..(x + 3)", "join [y] s(y, z)"]
    there = set(x.tolist())
    wanted = {(v, z) for y, z in s.tolist() for v in (y - 2, y - 1, y) if v in there}
    assert set(dv.Program(text).run(facts)["t"]) == wanted
