"""Databases that facts are added to are those of a run with all facts; branches know nothing of one another."""

import copy
import itertools
import pickle
import sys
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.growing import (
    AGGREGATES,
    EDGES,
    LABELS,
    MADE,
    PROVENANCES,
    TERMS,
    WEIGHED,
    assert_same,
    content,
    drawn_program,
    united,
    with_chances,
)
from datalog.naive import fact_sets, least_model, programs, splits, text_of
from datalog.test_fused import settings_of
from derivable.core.diagnostics import DerivableError, LimitError, TypeMismatchError, UnsupportedError
from derivable.datalog.tables import overlay, scan
from derivable.device.cpu import memory
from drawn import examples


def outcome(work):
    try:
        return work()
    except UnsupportedError as error:
        return type(error)


@examples(
    60,
    120,
    programs(),
    fact_sets(max_edges=6),
    st.data(),
    st.sampled_from(PROVENANCES),
    st.randoms(use_true_random=False),
)
def test_adding_is_running_with_all_facts(program, facts, data, provenance, random):
    made, parts = drawn_program(data, program, facts, provenance, random)
    db = made.run(facts=parts[0], provenance=provenance, keep=True)
    branch = None
    for number, part in enumerate(parts[1:], 2):
        if number == 3:
            branch = db.fork()
        db.add(part)
        assert_same(db, made.run(facts=united(*parts[:number]), provenance=provenance))
    # The branch has seen nothing of the last part, and goes its own way.
    assert_same(branch, made.run(facts=united(*parts[:2]), provenance=provenance))
    branch.add(parts[0])
    assert_same(branch, made.run(facts=united(*parts[:2], parts[0]), provenance=provenance))
    assert_same(db, made.run(facts=united(*parts), provenance=provenance))


@examples(
    40,
    80,
    programs(),
    fact_sets(),
    st.data(),
    st.sampled_from([1, 3, 1 << 60]),
    st.sampled_from([0, 1 << 60]),
)
def test_adding_by_kernels_and_by_columns_with_layers_and_without(program, facts, data, set_rows, few):
    rules, order = program
    parts = data.draw(splits(facts, 3))
    made = dv.Program(text_of(rules))
    with settings_of(few, set_rows):
        db = made.run(facts=parts[0], keep=True)
        db.add(parts[1])
        branch = db.fork()
        branch.add(parts[2])
        db.add(parts[2])
    model = least_model(rules, facts, order)
    for name in order:
        assert set(db[name]) == set(branch[name]) == model[name]


@settings(max_examples=40, deadline=None)
@given(
    programs(),
    fact_sets(max_edges=6),
    st.data(),
    st.sampled_from(["minmaxprob", "addmultprob", "topkproofs", "exact"]),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 3, 1 << 60]),
)
def test_adding_tags_by_kernels(program, facts, data, provenance, random, set_rows):
    parts = with_chances(data.draw(splits(facts, 3)), random)
    made = dv.Program(text_of(program[0]))
    with settings_of(0, set_rows):
        db = made.run(facts=parts[0], provenance=provenance, keep=True)
        db.add(parts[1])
        branch = db.fork()
        branch.add(parts[2])
        db.add(parts[2])
    wanted = made.run(facts=united(*parts), provenance=provenance)
    assert_same(db, wanted)
    assert_same(branch, wanted)


@examples(
    40,
    80,
    st.lists(st.fixed_dictionaries({}, optional={"edge": EDGES, "label": LABELS}), min_size=2, max_size=4),
    st.sampled_from(
        [
            (AGGREGATES, None),
            (AGGREGATES, "minmaxprob"),
            (WEIGHED, None),
            (WEIGHED, "minmaxprob"),
            (TERMS, "unit"),
            (TERMS, None),
            (TERMS, "topkproofs"),
        ]
    ),
)
def test_adding_under_aggregates_choices_texts_and_terms(parts, kind):
    text, provenance = kind
    made = MADE[text] = MADE.get(text) or dv.Program(text)
    if text is WEIGHED or provenance != "minmaxprob":
        # All different, so that there is one best.
        chances = (0.3 + 0.011 * number for number in itertools.count())
        parts = [{name: [(next(chances), row) for row in rows] for name, rows in part.items()} for part in parts]
    db = made.run(facts=parts[0], provenance=provenance, keep=True)
    for number in range(1, len(parts)):
        db.add(parts[number])
    assert_same(db, made.run(facts=united(*parts), provenance=provenance))


CLOSURE = """
    type edge(a: usize, b: usize), other(x: usize)
    rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
    rel number(n) = n := count(x, y: path(x, y))
    rel also(x) = other(x)
    query path
    query number
    query also
"""


def test_what_is_done_is_told():
    db = dv.Program(CLOSURE).run({"edge": [(0, 1), (1, 2)], "other": [5]}, keep=True)
    done = db.add({"edge": [(2, 3)]})
    assert done.continued == ("edge", "path")
    assert done.recomputed == ("number",)
    assert "path went on; 3 tuples more, 1 round" in str(done)
    assert "number recomputed, because it reads `path` through an aggregate" in str(done)
    assert str(done).endswith("2 strata kept")
    # What is there already reaches nothing.
    assert str(db.add({"edge": [(2, 3)]})).splitlines() == ["stratum 0: edge went on; 0 tuples more", "6 strata kept"]
    assert db.add({}).steps == ()


def test_a_negated_relation_takes_tuples_back():
    program = dv.Program("type a(x: i32), b(x: i32) rel c(x) = a(x), not b(x) rel d(x) = c(x) query d")
    db = program.run({"a": [1, 2]}, keep=True)
    view = db["d"]
    done = db.add({"b": [1]})
    assert list(view) == [(2,)]
    assert done.recomputed == ()
    assert "c went on; 1 tuple fewer" in str(done)
    db.remove({"b": [1]})
    assert list(view) == [(1,), (2,)]
    tagged = program.run({"a": [1, 2]}, "minmaxprob", keep=True)
    done = tagged.add({"b": [1]})
    assert set(tagged["d"]) == {(2,)}
    assert done.recomputed == ("c", "d")
    assert "`b` through a negation" in str(done)


def test_views_show_what_was_added():
    db = dv.Program(CLOSURE).run({"edge": [(0, 1)], "other": []}, keep=True)
    view = db["path"]
    columns = view.columns
    assert list(view) == [(0, 1)]
    db.add({"edge": [(1, 2)]})
    assert list(view) == [(0, 1), (0, 2), (1, 2)]
    assert (0, 2) in view
    assert view.columns[0].tolist() == [0, 1, 0]
    assert columns[0].tolist() == [0]


def test_all_forms_of_facts():
    db = dv.Program(CLOSURE).run({"edge": np.array([[0, 1]]), "other": []}, keep=True)
    db.add({"edge": {"a": [1], "b": [2]}})
    db.add({"edge": ((i, i + 1) for i in range(2, 4))})
    assert len(db["path"]) == 10
    db.add({"edge": dv.independent([(4, 5)], [0.5])})
    assert db.provenance == "exact"
    assert db["path"][0, 5] == 0.5
    db.add({"edge": dv.categorical([(5, 6), (5, 7)], [0.3, 0.7])})
    assert db["path"][0, 7] == pytest.approx(0.35)


def test_arrays_of_the_caller_are_copied():
    program = dv.Program("type a(x: i64), b(x: i64) rel c(x) = a(x), not b(x) query c")
    given, more = np.arange(3), np.array([7])
    db = program.run({"a": {"x": given}, "b": []}, keep=True)
    db.add({"a": more})
    given[:], more[:] = 100, 100
    # All of `c` is recomputed, from what `a` was.
    db.add({"b": [1]})
    assert set(db["c"]) == {(0,), (2,), (7,)}
    # So are those of an addition that makes the database an exact one.
    db = program.run({"a": [0], "b": []}, keep=True)
    more = np.array([7])
    db.add({"a": {"x": more, "probability": np.array([0.5])}})
    more[:] = 100
    db.add({"b": [0]})
    assert dict(db["c"].items()) == {(7,): 0.5}


def test_facts_are_loaded_once():
    """What a caller does with the list afterwards changes nothing."""
    edges = [(0, 1)]
    db = dv.Program(CLOSURE).run({"edge": edges, "other": []}, keep=True)
    edges.append((2, 3))
    db.add({"edge": [(1, 2)]})
    assert set(db["path"]) == {(0, 1), (1, 2), (0, 2)}


def test_a_database_of_outputs_alone_says_so():
    db = dv.Program(CLOSURE).run({"edge": [(0, 1)], "other": []})
    for refused in (lambda: db.add({"edge": [(1, 2)]}), db.fork):
        with pytest.raises(UnsupportedError, match="keep=True"):
            refused()
    kept = dv.Program(CLOSURE).run({"edge": [(0, 1)], "other": []}, keep=True)
    branch = kept.fork()
    kept.freeze()
    branch.add({"edge": [(1, 2)]})
    assert list(kept["path"]) == [(0, 1)]
    assert (0, 1) in kept["path"]
    assert (0, 2) not in kept["path"]
    with pytest.raises(UnsupportedError, match="keep=True"):
        kept.add({"edge": [(1, 2)]})


def test_bad_facts_change_nothing():
    db = dv.Program(CLOSURE).run({"edge": [(0, 1)], "other": []}, keep=True)
    for bad in (
        {"edge": [(1, "x")]},
        {"edge": [(1, 2), (3,)]},
        {"nothing": [1]},
        {"edge": [(1, 2)], "other": ["x"]},
        7,
    ):
        with pytest.raises(DerivableError):
            db.add(bad)
    with pytest.raises(TypeMismatchError, match="row 1"):
        db.add({"edge": [(1, 2), (-1, 3)]})
    assert list(db["path"]) == [(0, 1)]
    db.add({"edge": [(1, 2)]})
    assert len(db["path"]) == 3


BAD = set()


@dv.datalog.function(name="checked_step")
def checked_step(x: np.int64) -> np.int64:
    if int(x) in BAD:
        raise ValueError(f"no {x}")
    return x + 1


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "exact", "topkproofs", "addmultprob"])
def test_an_addition_that_fails_leaves_all_as_it_was(provenance):
    """A function that raises after its strata have begun to grow; the same facts go in once it does not."""
    program = dv.Program("""
        type start(x: i64), stop(x: i64)
        rel n(x) = start(x)
        rel n($checked_step(x)) = n(x), not stop(x)
        rel pair(x, y) = n(x), n(y)
        query n
        query pair
    """)
    facts = {"start": [(0.5, (0,))], "stop": [3, 9]}
    db = program.run(facts, provenance, keep=True)
    branch = db.fork()
    before = content(db)
    BAD.add(7)
    with pytest.raises(DerivableError, match="no 7"):
        db.add({"start": [(0.7, (5,))]})
    assert content(db) == before == content(branch)
    BAD.clear()
    db.add({"start": [(0.7, (5,))]})
    assert content(branch) == before
    wanted = program.run({"start": [(0.5, (0,)), (0.7, (5,))], "stop": [3, 9]}, provenance)
    assert_same(db, wanted)


def test_limits_hold_for_additions():
    program = dv.Program("type s(x: i64) rel n(x) = s(x) rel n(x + 1) = n(x), x < 5000 query n")
    db = program.run({"s": [4990]}, keep=True)
    before = list(db["n"])
    for limit in ({"tuple_limit": 100}, {"round_limit": 20}):
        with pytest.raises(LimitError):
            db.add({"s": [0]}, **limit)
        assert list(db["n"]) == before
        assert (0,) not in db["n"]
    db.add({"s": [0]})
    assert len(db["n"]) == 5001


def test_limited_rounds_are_run_again():
    program = dv.Program("type s(x: i64) rel n(x) = s(x) rel n(x + 1) = n(x) query n")
    db = program.run({"s": [0]}, iteration_limit=3, keep=True)
    done = db.add({"s": [100]})
    assert set(db["n"]) == set(program.run({"s": [0, 100]}, iteration_limit=3)["n"])
    assert "rounds are limited" in str(done)


def chain(count):
    return np.stack([np.arange(count), np.arange(1, count + 1)], axis=1)


def rows_below(db):
    """The rows of the table that a database's own ones lie on."""
    table = db._evaluation.tables["path"]
    assert type(table) is overlay.OverlayTable
    return table.below.size


def test_many_rows_in_layers():
    """Branches of branches of a table that is never copied, until their own rows are many."""
    program = dv.Program(CLOSURE)
    db = program.run({"edge": chain(200), "other": []}, keep=True)
    databases, ends = [db], [200]
    for _ in range(6):
        db = databases[-1].fork()
        db.add({"edge": [(ends[-1], ends[-1] + 1)]})
        databases.append(db)
        ends.append(ends[-1] + 1)
        assert (0, ends[-1]) in db["path"]
        assert (0, ends[-1]) not in databases[-2]["path"]
    assert {*map(rows_below, databases[1:])} == {200 * 201 // 2}
    for db, end in zip(databases, ends):
        assert len(db["path"]) == end * (end + 1) // 2
        assert list(db["number"]) == [(end * (end + 1) // 2,)]
    db.add({"edge": chain(300)[200:]})
    db.add({"edge": [(300, 301)]})
    assert rows_below(db) >= 300 * 301 // 2
    assert set(db["path"]) == set(program.run({"edge": chain(301), "other": []})["path"])
    assert len(databases[0]["path"]) == 200 * 201 // 2


def test_branches_in_several_threads():
    program = dv.Program("type edge(a: String, b: String) rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))")
    base = program.run({"edge": [(str(i), str(i + 1)) for i in range(120)]}, keep=True)

    def branch(number):
        db = base.fork()
        for step in range(20):
            db.add({"edge": [(f"{number}-{step}", f"{number}-{step + 1}"), ("120", f"{number}-{step}")]})
        return set(db["path"])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(branch, range(4)))
    for number, path in enumerate(found):
        assert path == branch(number)
        assert len(path) == 120 * 121 // 2 + 121 * 21 + 20 * 21 // 2


@pytest.mark.slow
def test_the_cost_of_an_edge_and_of_a_branch(monkeypatch):
    """An edge more, a branch, and an edge more in a branch cost the same in closures of 5,050 and of 4 million pairs:
    in calls, in rows that are gone through, and in memory, of which a copy of the pairs takes 32 MB.
    """
    program = dv.Program("type edge(a: usize, b: usize) rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))")
    databases = [program.run({"edge": chain(count)}, keep=True) for count in (100, 2830)]
    assert [len(db["path"]) for db in databases] == [100 * 101 // 2, 2830 * 2831 // 2]
    for db in databases:
        db.add({"edge": [(5000, 5001)]})
    counts = Counter()

    def counting(module, name, what, amount):
        plain = getattr(module, name)

        def counted(*arguments):
            counts[what] += amount(*arguments)
            return plain(*arguments)

        monkeypatch.setattr(module, name, counted)

    counting(memory, "_take", "bytes", lambda key, used: used)
    counting(scan.kernels, "filter_words", "rows", lambda words, step, blocks, rows, *_: len(blocks) * rows)
    counting(scan.kernels, "bound_blocks", "rows", lambda words, first, stop, rows, *_: (stop - first) * rows)

    def cost(work):
        """(calls, rows, bytes)"""
        counts.clear()
        tracemalloc.start()
        before = sys.getprofile()
        sys.setprofile(lambda frame, event, argument: counts.update(calls=event in ("call", "c_call")))
        try:
            work()
        finally:
            sys.setprofile(before)
            counts["bytes"] += tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return counts["calls"], counts["rows"], counts["bytes"]

    branches = [db.fork() for db in databases]
    works = {
        "an edge": [lambda db=db: db.add({"edge": [(6000, 7000)]}) for db in databases],
        "a branch": [db.fork for db in databases],
        "an edge in a branch": [lambda db=db: db.add({"edge": [(8000, 8001)]}) for db in branches],
    }
    for name, (small, large) in works.items():
        (few_calls, few_rows, few_bytes), (calls, rows, taken) = cost(small), cost(large)
        assert calls < 2 * few_calls, name
        assert rows < few_rows + 10_000, name
        assert taken < few_bytes + 2_000_000, name


def test_a_database_that_is_kept_says_why_it_is_not_pickled():
    db = dv.Program("type e(i32) rel p(x) = e(x)").run({"e": [1, 2]}, keep=True)
    for work in (pickle.dumps, copy.deepcopy):
        with pytest.raises(UnsupportedError, match=r"help: `fork\(\)` .* `freeze\(\)`"):
            work(db)
    db.freeze()
    assert list(pickle.loads(pickle.dumps(db))["p"]) == [(1,), (2,)]
