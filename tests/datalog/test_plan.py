"""Join orders: every order of a body means the same, and the planner takes a good one."""

import itertools
import re
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import fact_sets, least_model, programs, text_of
from datalog.test_drive import check_profile
from datalog.test_errors import compare
from datalog.test_fused import NEVER, settings_of
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.nodes import Store
from derivable.datalog.ram.statistics import summary_of
from derivable.datalog.run import execute, profile
from drawn import examples

# Settings under which every clause takes the best order found, whatever it costs to look for it, and every column that
# nothing needs is projected away.
ALWAYS = {"small_round": 1, "clearly": 1e9, "plan_ns": 0.0}
PROVENANCES = ["unit", "minmaxprob", "addmultprob", "topkproofs", "exact", "min_plus"]


@examples(40, 80, programs(), fact_sets(), st.sampled_from([0, 1, 720]), st.booleans(), st.sampled_from([0, NEVER]))
def test_planned_programs_agree_with_the_naive_evaluator(program, facts, few_orders, by_kernels, least):
    rules, order = program
    model = least_model(rules, facts, order)
    always = under(**ALWAYS, most_plans=few_orders, most_at_once=least)
    with always, settings_of(0, 4) if by_kernels else nullcontext():
        db = dv.Program(text_of(rules)).run(facts=facts)
    for name in order:
        assert set(db[name]) == model[name]


RECURSIONS = [
    "r(x, y) = e(p, x), r(p, q), e(q, y)",
    "r(x, w) = r(x, y), s(y), r(y, z), e(z, w)",
    "r(x, w) = e(x, y), r(y, z), t(z, u), e(u, w)\nrel t(x, z) = r(x, y), t(y, z), e(z, _)\nrel t = {(1, 2), (3, 0)}",
    "r(x, w + 0) = r(x, y), v == x + y, v < 30, e(y, z), not s(z), e(z, w), w != x",
    "r(x, v) = r(x, y), e(y, z), e(z, w), e(w, u), e(u, v)",
    "r(z, z) = r(3, y), r(u, y), e(u, z)",
]


@pytest.mark.parametrize(
    ("rule", "by_kernels"), [(rule, False) for rule in RECURSIONS] + [(rule, True) for rule in RECURSIONS[:2]]
)
def test_clauses_of_recursions_are_cut_in_two(rule, by_kernels):
    random = np.random.default_rng(0)
    text = f"type e(i32, i32), s(i32), r(i32, i32)\nrel r(x, y) = e(x, y), y < 5\nrel {rule}\nquery r"
    facts = {"e": random.integers(0, 12, (30, 2)), "s": [(i,) for i in range(0, 12, 3)]}
    expected = set(dv.Program(text).run(facts)["r"])
    assert len(expected) > len({pair for pair in map(tuple, facts["e"].tolist()) if pair[1] < 5})
    with under(**ALWAYS, most_at_once=0), settings_of(0, 4) if by_kernels else nullcontext():
        program = dv.Program(text)
        for _ in range(2):
            db = program.run(facts, keep=True)
            assert set(db["r"]) == expected
            # Rows of a middle are no rows of its stratum.
            check_profile(db, facts)
            assert not any(name.startswith("#middle") for name in db._evaluation.tables)
        assert "#middle_" in program.explain("plan", facts=facts)
        more = {"e": [(11, 0), (2, 11), (5, 5)]}
        db.add(more)
    both = {**facts, "e": np.concatenate([facts["e"], more["e"]])}
    assert set(db["r"]) == set(dv.Program(text).run(both)["r"])


def test_a_clause_is_cut_where_its_middle_is_large():
    """The same generation, as one rule."""
    random = np.random.default_rng(0)
    text = """
    type e(u32, u32)
    rel g(x, y) = e(p, x), e(p, y), x < y, x % 4 == 0
    rel g(x, y) = e(p, x), g(p, q), e(q, y)
    query g
    """
    facts = {"e": random.integers(0, 600, (12_000, 2)).astype(np.uint32)}
    db = dv.Program(text).run(facts, keep=True)
    shown = str(db.profile)
    assert "#middle_" in shown
    check_profile(db, {})
    with under(most_at_once=1 << 60):
        whole = dv.Program(text).run(facts, keep=True)
    assert "#middle_" not in str(whole.profile)
    assert all(np.array_equal(*map(np.sort, pair)) for pair in zip(db["g"].columns, whole["g"].columns))
    assert len(db["g"]) == len(whole["g"])


BODY = ["e(x, y)", "e(y, z)", "not u(z)", "x != z", "u(x)", "f(z, w)", "w > 0"]
ATOMS = [0, 1, 4, 5]


@pytest.mark.parametrize("provenance", PROVENANCES)
def test_all_orders_of_a_body_have_the_same_rows_and_tags(provenance, costs):
    """As they are written, unplanned; sums of floats may differ in the last bits, nothing else may."""
    rng = np.random.default_rng(0)
    facts = {
        name: {
            tuple(row): 0.1 + 0.03 * i
            for i, row in enumerate(np.unique(rng.integers(0, 6, (4 * width**2, width)), axis=0).tolist())
        }
        for name, width in (("e", 2), ("u", 1), ("f", 2))
    }
    text = "type e(i32, i32), u(i32), f(i32, i32)\nrel q(x, w) = "
    expected = dv.Program(text + ", ".join(BODY)).run(facts=facts, provenance=provenance)["q"]
    assert len(expected) > 2
    costs(plan_ns=np.inf)
    rest = [literal for place, literal in enumerate(BODY) if place not in ATOMS]
    for atoms in list(itertools.permutations(BODY[place] for place in ATOMS))[:: 5 if provenance == "exact" else 1]:
        program = dv.Program(text + ", ".join([*atoms, *rest]))
        found = program.run(facts=facts, provenance=provenance)["q"]
        assert list(found) == list(expected)
        np.testing.assert_allclose(found.tag_list(), expected.tag_list(), rtol=1e-12)


STAR = """type likes(i32, i32), few(i32), rare(i32)
rel q(a, b) = likes(a, x), likes(b, x), few(a), rare(b), a != b
query q"""


def star(size=4000):
    """Everybody likes thing 0: the join of `likes` with itself has about size^2 rows."""
    likes = np.stack([np.arange(size), np.zeros(size, np.int64)], 1)
    return {"likes": likes, "few": np.arange(5)[:, None], "rare": np.arange(10)[:, None]}


def test_a_star_is_not_joined_with_itself(costs):
    """In the order in which the body is written it goes through a million pairs."""
    program, facts = dv.Program(STAR), star(1000)

    def work():
        found = program._profile(facts, "unit")
        return sum(found.counts.values())

    planned = work()
    assert set(program.run(facts)["q"]) == {(a, b) for a in range(5) for b in range(10) if a != b}
    assert planned < 300
    costs(plan_ns=np.inf)
    program = dv.Program(STAR)
    written = work()
    assert written > 1000 * planned


def test_orders_are_kept_by_size_class():
    program, facts = dv.Program(STAR), star(2000)
    plans = program.run(facts).profile.ram.plans
    before = dict(plans)
    program.run({**facts, "likes": facts["likes"][:1500]})
    assert plans == before
    program.run({**facts, "likes": facts["likes"][:700]})
    assert len(plans) == len(before) + 1


def test_plans_do_not_pile_up(costs):
    costs(most_plans=6)
    program = dv.Program(STAR)
    for size in (600, 1200, 2400, 4800, 700, 1500):
        found = program.run(star(size))
        assert len(found["q"]) == 45
        assert len(found.profile.ram.plans) <= 10


def test_small_programs_are_not_planned():
    plans = dv.Program(STAR).run(star(100)).profile.ram.plans
    assert all(len(key) == 2 for key in plans)


def test_recursion_is_planned_again_when_it_has_grown():
    """`p` begins with one row, so that at first it is the best to join with; later `tiny` is."""
    program = dv.Program("""type e(i32, i32), tiny(i32)
rel p(x, y) = e(x, y), x == 0
rel p(x, z) = p(x, y), e(y, z)
rel p(y, z) = p(x, y), e(y, z), tiny(z)
query p""")
    edges = np.stack([np.arange(600), np.arange(1, 601)], 1)
    db = program.run({"e": edges, "tiny": [(k,) for k in range(0, 600, 3)]})
    path = {(0, y) for y in range(1, 601)}
    path |= {(x, y) for z in range(3, 600, 3) if (z - 1) > 0 for x in [z - 1] for y in range(z, 601)}
    assert set(db["p"]) == path


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob"])
@pytest.mark.parametrize("by_kernels", [False, True])
def test_the_plan_says_when_an_order_is_new(by_kernels, provenance):
    """`p` begins with a row for each edge, so that a rule first joins with it; a hundred times as many come."""
    text = """type e(i32, i32), f(i32, i32)
rel p(x, y) = e(x, y)
rel p(x, w) = p(x, y), e(y, z), p(z, w), f(w, x)
rel p(x, z) = p(x, y), e(y, z)
query p"""
    random, nodes = np.random.default_rng(0), np.arange(119)
    edges = np.concatenate([np.stack([nodes, nodes + 1], 1), random.integers(0, 120, (240, 2))])
    facts = {"e": edges, "f": random.integers(0, 120, (600, 2))}
    with nullcontext() if by_kernels else settings_of(NEVER, NEVER):
        shown = dv.Program(text).explain("plan", facts, provenance)
    rounds = int(re.findall(r"recursive, (\d+) rounds", shown)[0])
    head = r"(?:new order from round (\d+) on, at ([\d,]+) rows: )?(\d+) runs, "
    part = shown.split("line 3:")[-1].split("\n\n")[0]
    entries = [re.match(head, line.strip()) for line in part.splitlines()]
    entries = [entry.groups() for entry in entries if entry]
    before, after = [e for e in entries if e[0] is None], [e for e in entries if e[0] is not None]
    assert before
    assert after
    for since, rows, runs in after:
        # The round that finds the rows to be many runs in the new order already.
        assert all(int(first) == int(since) - 1 for *_, first in before)
        assert int(runs) == rounds - int(since) + 1
        assert int(rows.replace(",", "")) > 16 * len(edges) / 2


def column_of(words):
    return summary_of(np.asarray(words, np.int64), len(words))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-5, 40), max_size=60), st.lists(st.integers(-5, 40), max_size=60))
def test_summaries_of_small_columns_are_nearly_exact(a, b):
    left, right = column_of(a), column_of(b)
    exact = sum(x == y for x in a for y in b)
    assert left.rows == len(a)
    assert left.distinct == pytest.approx(len(set(a)), rel=0.01)
    # Values of few buckets seldom meet in one, and where they do it is taken off again; noise must not make a join
    # disappear.
    spread, found = len(a) * len(b), left.pairs(right)
    least = 0.5 * spread / max(left.distinct, right.distinct) if spread else 0.0
    assert found >= least
    if len(set(a) | set(b)) <= 3:
        assert found == pytest.approx(max(exact, least), abs=0.02 * spread)
    for value in set(a):
        assert left.occurrences(value) >= a.count(value)


@pytest.mark.parametrize("kind", ["uniform", "zipf", "keys", "sorted"])
def test_join_sizes_of_large_columns(kind):
    rng = np.random.default_rng(1)
    a, b = {
        "uniform": (rng.integers(0, 1000, 300_000), rng.integers(0, 1000, 20_000)),
        "zipf": (rng.zipf(1.5, 200_000) % 100_000, rng.zipf(1.5, 100_000) % 100_000),
        "keys": (np.arange(100_000), rng.integers(0, 100_000, 400_000)),
        "sorted": (np.arange(300_000) // 10, rng.integers(0, 30_000, 50_000)),
    }[kind]
    values = np.union1d(a, b)
    counts = [np.bincount(np.searchsorted(values, column), minlength=len(values)) for column in (a, b)]
    exact = int(counts[0] @ counts[1])
    rows = rng.permutation(len(a))[:65_536]
    left = summary_of(a.astype(np.int64)[rows] if len(a) > 131_072 else a.astype(np.int64), len(a))
    right = column_of(b)
    assert left.pairs(right) == pytest.approx(exact, rel=0.5)
    # A sample misses rare values.
    assert left.distinct == pytest.approx(len(np.unique(a)), rel=0.6 if kind == "zipf" else 0.1)


PROFILED = """type edge(i32, i32), start(i32)
rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
rel from_start(x, z) = path(x, y), path(y, z), start(x), not edge(x, z), z > x
rel reached(n) = n := count(x, y: from_start(x, y))
query reached"""


@pytest.fixture
def clock(monkeypatch, costs):
    """Every look at the clock is a millisecond after the last. Kernels, which look less often, are not asked."""
    costs(few_rows=NEVER)
    looks = itertools.count()

    def look():
        return next(looks) / 1000

    monkeypatch.setattr(profile, "perf_counter", look)
    monkeypatch.setattr(execute, "perf_counter", look)


def test_the_plan_of_known_facts(clock, costs):
    """A line of 200 edges: all rows of all operators can be counted by hand."""
    costs(few_pairs=NEVER)
    program = dv.Program(PROFILED)
    facts = {"edge": [(i, i + 1) for i in range(200)], "start": [(0,), (10,)]}
    compare("explain_plan", program.explain("plan", facts))
    shown = program.run(facts).explain("plan")
    assert "200 rounds" in shown
    assert "line 3: rel from_start(x, z)" in shown


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "exact"])
def test_kernels_count_the_rows_that_columns_count(provenance):
    """Also where they go on in the middle of a row, because a buffer was full."""
    rng = np.random.default_rng(3)
    edges = np.unique(rng.integers(0, 8, (16, 2)), axis=0).tolist()
    facts = {"edge": {tuple(e): 0.5 for e in edges[:10]} if provenance == "exact" else edges, "start": [(1,), (2,)]}

    def actual():
        database = dv.Program(PROFILED)._profile(facts, provenance)
        return [[database.counts.get(id(n), 0) for n in e.instruction.query.operators] for e in stores(database)]

    def stores(found):
        return sorted(
            (e for e in found.rules if isinstance(e.instruction, Store)), key=lambda e: (e.stratum, repr(e.instruction))
        )

    expected = actual()
    assert sum(map(sum, expected)) > 100
    with settings_of(0, 4):
        assert actual() == expected


CHAINS = [
    "r(w) = s(x), e(x, y), e(y, z), e(z, w)",
    "r(x) = e(x, y), e(y, z), not s(z), e(z, w), w != y",
    "r(w) = e(x, y), s(y), v == x + y, e(v, z), e(z, w)",
    "r(a) = e(a, x), e(b, x), e(b, c), s(c)",
    "r(y) = e(x, y), e(z, w), s(y)",
    "r(w) = s(x), w in 0..x, e(w, y), e(y, _)",
]


@pytest.mark.parametrize(("rule", "by_kernels"), [(rule, False) for rule in CHAINS] + [(CHAINS[0], True)])
def test_columns_that_nothing_needs_are_projected_away(rule, by_kernels):
    random = np.random.default_rng(0)
    text = f"type e(i32, i32), s(i32)\nrel {rule}\nquery r"
    facts = {"e": random.integers(0, 30, (60, 2)), "s": [(i,) for i in range(0, 30, 3)]}
    expected = set(dv.Program(text).run(facts)["r"])
    with under(**ALWAYS), settings_of(0, 4) if by_kernels else nullcontext():
        program = dv.Program(text)
        db = program.run(facts, keep=True)
        assert set(db["r"]) == expected
        assert not any(name.startswith("#part") for name in db._evaluation.tables)
        shown = program.explain("plan", facts=facts)
        assert "#part_r_0_1" in shown
        more = {"e": [(40, 41), (1, 40), (41, 0)]}
        db.add(more)
    both = {**facts, "e": np.concatenate([facts["e"], more["e"]])}
    assert set(db["r"]) == set(dv.Program(text).run(both)["r"])
    tags = {**facts, "s": {(i,): 0.5 + i / 100 for i in range(0, 30, 3)}}
    with under(**ALWAYS):
        tagged = dict(dv.Program(text).run(tags, provenance="addmultprob")["r"].items())
    assert tagged == dict(dv.Program(text).run(tags, provenance="addmultprob")["r"].items())


def test_projection_pays_where_paths_are_many():
    random = np.random.default_rng(0)
    text = "type e(i32, i32), s(i32)\nrel r(w) = s(x), e(x, y), e(y, z), e(z, w)\nquery r"
    facts = {"e": random.integers(0, 2000, (200_000, 2)), "s": [(i,) for i in range(20)]}
    shown = dv.Program(text).explain("plan", facts=facts)
    assert "#part_r_0_1(z) :- s(x), e(x, y), e(y, z)" in shown
    joins = [line for line in shown.splitlines() if "join" in line]
    assert all(int(line.split()[1].replace(",", "")) < 300_000 for line in joins)


def test_the_rows_of_facts_are_rows_of_their_stratum():
    facts = {"e": np.stack([np.arange(200_000), np.arange(200_000)[::-1]], 1)}
    program = dv.Program("type e(i32, i32)\nrel e = {(-1, -1)}\nrel p(x, y) = e(y, x), e(x, y)\nquery p")
    found = program.run(facts).profile
    assert [stratum.size for stratum in found.strata] == [200_001, 200_001]
    # Strata without rules are shown if they take long.
    found.strata[0].seconds = 1.0
    assert "stratum 0: e; 200,001 rows, 1.000 s\nstratum 1: p; 200,001 rows" in str(found)
