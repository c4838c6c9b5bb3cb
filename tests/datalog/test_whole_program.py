"""Small runs as one call: the same rows in the same order as by columns, run after run in the same memory."""

import copy
import pickle
from contextlib import contextmanager
from threading import Thread

import numpy as np
from hypothesis import strategies as st

import derivable as dv
from datalog.observers import results_of
from datalog.test_drive import RULES, STRATUM
from datalog.test_fused import NEVER, settings_of
from datalog.test_num_threads import CLOSURE
from derivable.datalog.machine.whole_program import WholeProgram
from derivable.datalog.run import small_runs
from drawn import examples

# A transitive rule, which reads what was before it; an equivalence in some spellings; texts; three atoms; negation of
# recursions; a store of a lower stratum and of the recursion that read one index; strata that are run in another way.
MORE = [
    "rel p(x, y) = edge(x, y)\nrel p(x, z) = p(x, y), p(y, z)\nquery p",
    "rel q(x, y) = edge(x, y)\nrel q(x, z) = q(x, y), edge(z, y)\nquery q",
    'rel s(x, "a") = edge(x, _)\nrel s(y, t) = s(x, t), edge(x, y)\nrel s(x, "b") = s(x, "a"), x > {k}\nquery s',
    "rel u(x, y) = edge(x, z), edge(z, y), not edge(x, y)\nrel v(x) = u(x, _), not u(_, x)\nquery v",
    "rel w(x) = edge(x, {k})\nrel w2(x, y) = w(x), w(y)\nrel w3(x) = w2(x, _), start(x)\nquery w3",
    "rel num(n) = n := count(x, y: edge(x, y))\nrel far(x, n) = num(n), edge(x, _)\n"
    "rel far(y, n) = far(x, n), edge(x, y)\nquery far",
    'rel g(x, $string_concat("n", "x")) = edge(x, _)\nrel g2(x) = g(x, _), not low(x)\nquery g2',
    "rel m(x) = start(x)\nrel m(y) = m(x), edge(x, y)\nrel m2(x, y) = m(x), edge(y, x), m(y)\nquery m2",
]


@contextmanager
def whole(compiled=False, note=lambda found: found is not None):
    """Whole programs from the first run on; what `note` says of the end of each, None where it failed."""
    with (
        settings_of(0, 1 << 12, 1 << 20, compiled, is_whole=True),
        results_of(small_runs, "finish", note) as made,
    ):
        yield made


def rows(database):
    return {name: [column.tolist() for column in view.columns] for name, view in database.items()}


@examples(6, 100, st.data())
def test_rows_and_their_order_are_those_over_columns(data):
    rules = data.draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True))
    rules += data.draw(st.lists(st.sampled_from(MORE), min_size=1, max_size=2, unique=True))
    text = "\n".join([STRATUM, *(rule.format(k=data.draw(st.integers(1, 4))) for rule in rules)])
    values = st.integers(0, 6).map(lambda value: value * data.draw(st.sampled_from([1, 1, 1 << 40])))
    facts = [
        {
            "start": data.draw(st.lists(st.tuples(st.integers(-2, 8)), max_size=3)),
            "edge": data.draw(st.lists(st.tuples(values, values), max_size=6)),
        }
        for _ in range(3)
    ]
    program = dv.Program(text)
    with settings_of(NEVER, NEVER):
        wanted = [rows(program.run(given)) for given in facts]
    with whole():
        assert [rows(program.run(given)) for given in facts] == wanted


def test_tables_grow_until_a_run_is_no_small_one():
    program, rng = dv.Program(CLOSURE), np.random.default_rng(1)
    sizes = 3, 80, 200, 40, 900, 5
    facts = [{"edge": rng.integers(0, 12 if size < 300 else 70, (size, 2))} for size in sizes]
    with settings_of(NEVER, NEVER):
        wanted = [program.run(given)["path"] for given in facts]
    with whole(compiled=True) as made:
        found = [program.run(given)["path"] for given in facts]
    assert list(map(set, found)) == list(map(set, wanted))
    assert made == [True, True, True, True, False, True]


def test_many_stores_make_larger_runs_small():
    """Strata with more rows in all than one small table has, and one large table that many rules write to."""
    rules = [f"rel s{k}(x) = node(x), not s{k - 1}(x), x % 7 != {k % 7}" for k in range(1, 90)]
    rules += [f"rel all({k}, x) = s{k}(x)" for k in range(90)]
    text = "\n".join(
        ["type node(u32), all(u32, u32)", "rel s0(x) = node(x), x % 2 == 0", *rules, "query s89", "query all"]
    )
    program, facts = dv.Program(text), [{"node": np.arange(size)[:, None]} for size in (40, 150, 1 << 12)]
    with settings_of(NEVER, NEVER):
        wanted = [rows(program.run(given)) for given in facts]
    with whole(compiled=True) as made:
        found = [rows(program.run(given)) for given in facts]
    assert len(found[1]["all"][0]) > 1 << 12
    assert found == wanted
    assert made == [True, True, False]


def test_stores_of_one_form_share_what_is_planned(calls_of):
    """Rules that differ in relations, constants and names alone are bound together, the others by themselves."""
    rules = []
    for k in range(6):
        rules += [
            # Words: of a scan, of a comparison, of what is written, of texts.
            f'rel a{k}(x, {k}, "text {k}") = edge(x, {k}), x != {k + 1}',
            # A constant that something is computed from makes a form, and so does a variable that is there twice.
            f"rel b{k}(y{k}) = a{k}(x, _, _), edge(x, y{k}), not c{k % 2}(y{k}), x + {k % 2} >= {k % 3} || y{k} == {k}",
            f"rel d{k}(x, y) = edge(x, y), edge(y, {'x' if k % 2 else 'y'})",
            f"rel e{k}(x) = b{k}(x) or e{(k + 1) % 6}(x)",
        ]
        # Two that are the same relation twice, and one with two.
        rules.append(f"rel f{k}(x) = e{k}(x), e{k if k % 2 else (k + 1) % 6}(x)")
    queries = [f"query {name}{k}" for name in "abdef" for k in range(6)]
    types = "type edge(i32, i32), c0(i32), c1(i32)"
    program = dv.Program("\n".join([types, "rel c0 = {1, 2}", "rel c1 = {0, 3}", *rules, *queries]))
    rng = np.random.default_rng(0)
    facts = [{"edge": rng.integers(0, 6, (size, 2))} for size in (12, 5, 25)]
    with settings_of(NEVER, NEVER):
        wanted = [rows(program.run(given)) for given in facts]
    bound = calls_of(WholeProgram, "bind_form", lambda own, numbers, *_: len(numbers))
    with whole() as made:
        found = [rows(program.run(given)) for given in facts]
    assert found == wanted
    assert made == [True] * 3
    assert sum(map(bool, (row for columns in found[2].values() for row in columns))) > 20
    assert sorted(bound) == [3, 3, 3, 3, 6, 6, 6, 6]


def test_a_table_of_no_recursion_may_have_more_rows_than_one_without_sets():
    """Rules that write some thousand rows each, in a run that is small because it has many rules."""
    rules = [f"rel a(x + {10_000 * k}) = b(x), x >= 0" for k in range(7)]
    rules += [f"rel c{k}(x) = b(x), x > 5000000" for k in range(60)]
    text = "\n".join(["type b(i64), a(x: i64)", *rules, "query a", *(f"query c{k}" for k in range(60))])
    program, facts = dv.Program(text), [{"b": np.arange(size)[:, None]} for size in (1000, 900, 1001)]
    with settings_of(NEVER, NEVER):
        wanted = [rows(program.run(given)) for given in facts]
    with whole(compiled=True) as made:
        assert [rows(program.run(given)) for given in facts] == wanted
    assert made == [True] * 3


def leaves_to_others(others):
    """Whether a run is a small one is decided by its facts: no number of runs that are none changes that."""
    program, small = dv.Program(CLOSURE), {"edge": [(0, 1), (1, 2), (2, 3), (3, 4), (4, 7)]}
    with whole(compiled=True) as made:
        for _ in range(20):
            assert len(program.run({"edge": others})["path"]) in (25, 120 * 121 // 2)
        assert len(program.run(small)["path"]) == 15
    return made == [False] * 20 + [True]


def test_what_a_run_leaves_to_others_says_nothing_of_the_next():
    """Many candidates would be sorted."""
    assert leaves_to_others([(k, k + 1) for k in range(120)])


def test_many_facts_make_no_memory(calls_of):
    made = calls_of(small_runs, "small_program")
    program, many = dv.Program(CLOSURE), np.stack([np.arange(0, 6000, 2), np.arange(1, 6000, 2)], 1)
    for _ in range(3):
        assert len(program.run(facts={"edge": many})["path"]) == len(many)
    assert made == []
    for _ in range(3):
        assert len(program.run(facts={"edge": many[:5]})["path"]) == 5
    assert len(made) == 1


def test_what_was_loaded_counts():
    text = """
    type n(x: u8), on(), name(x: i32, s: String)
    rel on() = n(3)
    rel found(s, x) = on(), n(x), name(x as i32, s)
    rel named(x) = name(x, "three") or name(x, "four")
    query found
    query named
    query on
    """
    program = dv.Program(text)
    with whole() as made:
        for names in (["three", "two"], ["two", "three", "four"], []):
            facts = {"n": np.array([3, 1, 3], np.uint8), "name": [(k + 1, name) for k, name in enumerate(names)]}
            database = program.run(facts)
            assert set(database["named"]) == {(k + 1,) for k, name in enumerate(names) if name in ("three", "four")}
            assert set(database["found"]) == {(name, k + 1) for k, name in enumerate(names) if k in (0, 2)}
            assert set(database["on"]) == {()}
    assert made == [True] * 3


def test_questions_with_constants_are_asked_once_more_in_each_run():
    program = dv.Program("type edge(x: i64, y: i64)\nrel q(x, y) = edge(x, y) or q(x, z), edge(z, y)\nquery q(1, y)")
    with whole() as made:
        for last in (4, 7, 2):
            (found,) = program.run({"edge": [(k, k + 1) for k in range(last)]}).values()
            assert set(found) == {(1, k) for k in range(2, last + 1)}
    assert made == [True] * 3


def test_limits_and_what_is_kept_take_the_other_way():
    program, facts = dv.Program(CLOSURE), {"edge": [(0, 1), (1, 2), (2, 3)]}
    with whole() as made:
        assert len(program.run(facts, "unit", keep=True)["path"]) == 6
        assert len(program.run(facts, iteration_limit=1)["path"]) == 5
        assert len(program.run({"edge": [(0.5, (0, 1)), (1, 2)]}, "unit")["path"]) == 3
    assert made == []


def test_profiles_count_what_was_done():
    program = dv.Program(CLOSURE)
    with settings_of(NEVER, NEVER):
        wanted = program.run({"edge": [(0, 1), (1, 2), (2, 3)]}).profile
    with whole() as made:
        found = program.run({"edge": [(0, 1), (1, 2), (2, 3)]}).profile
    assert made == [True]
    assert [stratum.rounds for stratum in found.strata] == [stratum.rounds for stratum in wanted.strata]
    assert [stratum.rows for stratum in found.strata] == [stratum.rows for stratum in wanted.strata]
    counts = [{(e.instruction.relation, e.runs, e.candidates, e.rows) for e in p.rules} for p in (found, wanted)]
    assert counts[0] == counts[1]
    assert "by kernel in the driver" in str(found)


def test_strata_before_one_that_is_run_in_another_way_are_one_call():
    program = dv.Program(f"{CLOSURE}\nrel reached(x, n) = n := count(y: path(x, y))\nquery reached")
    facts = {"edge": [(0, 1), (1, 2), (2, 0), (2, 3)]}
    with settings_of(NEVER, NEVER):
        wanted = program.run(facts)
    with whole() as made:
        program.run({"edge": [(0, 1)]})
        found = program.run(facts)
    assert made == [True, True]
    assert set(found["reached"]) == set(wanted["reached"]) == {(0, 4), (1, 4), (2, 4)}
    assert rows(found) == rows(wanted)
    efforts = [{(e.instruction.relation, e.runs, e.rows) for e in p.profile.rules} for p in (found, wanted)]
    assert efforts[0] == efforts[1]
    strata = [[(s.rounds, s.rows) for s in p.profile.strata] for p in (found, wanted)]
    assert strata[0] == strata[1]
    assert "by kernel in the driver" in str(found.profile)


def test_copies_have_no_memory_of_a_program():
    program, facts = dv.Program(CLOSURE), {"edge": [(0, 1), (1, 2)]}
    with whole(compiled=True) as made:
        database = program.run(facts)
        others = copy.deepcopy(program), pickle.loads(pickle.dumps(program))
        assert [set(other.run(facts)["path"]) for other in others] == [{(0, 1), (1, 2), (0, 2)}] * 2
        assert set(program.run(facts)["path"]) == set(pickle.loads(pickle.dumps(database))["path"])
    assert made == [True] * 4


def test_threads_have_their_own_memory():
    program, found = dv.Program(CLOSURE), {}

    def work(first):
        for k in range(40):
            edges = [(first, first + 1 + k), (first + 1 + k, first)]
            found[first, k] = set(program.run({"edge": edges})["path"])

    with whole(compiled=True):
        threads = [Thread(target=work, args=(first,)) for first in (0, 100, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for (first, k), pairs in found.items():
        assert pairs == {(x, y) for x in (first, first + 1 + k) for y in (first, first + 1 + k)}
    assert len(found) == 120
