"""Kernels that enter their rows and go on with the next rounds: rounds and limits are those of columns."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.observers import calls_of
from datalog.test_fused import NEVER, SET_ROWS, settings_of
from datalog.test_num_threads import CLOSURE
from derivable.algebra.expr.functions import maximum, minimum
from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import max_product, min_plus
from derivable.core.diagnostics import LimitError
from derivable.datalog.fused.store_state import StoreState
from derivable.datalog.machine import words as w
from derivable.datalog.machine.machine import Machine
from derivable.datalog.machine.recursion import Recursion
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.run import execute
from derivable.datalog.run.execute import Executor
from drawn import examples

REACH = """
type edge(x: i64, y: i64)
rel far(0)
rel far(y) = far(x), edge(x, y)
query far
"""
GROUPS = """
type edge(x: i64, y: i64)
rel path(x - y, x, y) = edge(x, y)
rel path(g, x, z) = path(g, x, y), edge(y, z)
query path
"""
STEPS = """
type edge(x: i64, y: i64)
rel far(x, 0) = edge(x, _)
rel far(x, n + 1 + y - y) = far(x, n), n < 12, edge(n, y)
query far
"""
ALONE = """
type edge(x: i64, y: i64)
rel far(x, y) = edge(x, y)
rel far(x + 1, y - 2) = far(x, y), x < 12, y != x + 5
query far
"""
EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25)
# Out of reach of sets after some rounds.
FAR_EDGES = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 2, 5, 6, -1, 1 << 40, 300])), min_size=1)


@contextmanager
def counted():
    """The driver's runs."""
    with calls_of(Recursion, "run") as made:
        yield made


def found(text, edges, **limits):
    database = dv.Program(text).run({"edge": edges}, "unit", keep=True, **limits)
    (view,) = database.values()
    profile = database.profile
    return set(view), [stratum.rounds for stratum in profile.strata], [rule.runs for rule in profile.rules]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([REACH, CLOSURE, GROUPS, STEPS, ALONE]),
    EDGES | FAR_EDGES,
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(0, 6)),
)
def test_tuples_and_rounds_are_those_over_columns(text, edges, room, iterations):
    limits = {"iteration_limit": iterations} if iterations is not None else {}
    with settings_of(NEVER, NEVER):
        wanted = found(text, edges, **limits)
    with settings_of(0, 1, room):
        assert found(text, edges, **limits) == wanted


def test_rounds_of_a_rule_with_one_atom_are_one_call():
    text = "type n(x: i64)\nrel n = {0, 3}\nrel n(x + 1) = n(x), x < 90\nquery n"
    with settings_of(0, 1, 1 << 20, compiled=True), counted() as made:
        database = dv.Program(text).run(keep=True)
        assert set(database["n"]) == {(k,) for k in range(91)}
        assert sum(stratum.rounds for stratum in database.profile.strata) == 88
    assert len(made) == 1


@pytest.mark.parametrize("text", [REACH, CLOSURE])
def test_small_rounds_are_one_call(text):
    edges = [(k, k + 1) for k in range(90)]
    with settings_of(0, 1, 1 << 20, compiled=True), counted() as made:
        tuples, (*_, rounds), runs = found(text, edges)
    assert len(tuples) == (91 if text == REACH else 91 * 90 // 2)
    assert rounds == 91 - (text == CLOSURE)
    assert rounds in runs
    assert len(made) < 5


@pytest.mark.parametrize("limit", [1, 7, 40])
def test_a_limit_of_rounds_ends_them_where_it_ends_others(limit):
    edges = [(k, k + 1) for k in range(90)]
    texts = []
    for few in (0, NEVER):
        with settings_of(few, 1, 1 << 20, compiled=True), pytest.raises(LimitError) as caught:
            found(REACH, edges, round_limit=limit)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert f"round {limit}" in texts[0]


def test_a_limit_of_tuples_names_the_rows_of_the_last_rounds():
    edges = [(k, m) for k in range(200) for m in (3 * k + 1, 3 * k + 2, 3 * k + 3)]
    with settings_of(0, 1, 4, compiled=True), pytest.raises(LimitError) as caught:
        found(REACH, edges, tuple_limit=700)
    assert "added 3, 9, 27 and " in str(caught.value)


SAME = """
type edge(x: i64, y: i64)
rel same(x, y) = edge(p, x), edge(p, y), x != y
rel same(x, y) = edge(a, x), same(a, b), edge(b, y)
query same
"""
TURNS = """
type edge(x: i64, y: i64)
rel there(x, y) = edge(x, y)
rel back(z, x) = there(x, y), edge(y, z)
rel there(y, z) = back(x, y), edge(x, z)
query there
"""


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([REACH, CLOSURE, GROUPS, STEPS, SAME, TURNS]),
    EDGES,
    st.integers(1, 5),
    st.sampled_from([1, 2, 16]),
    st.integers(2, 40),
)
def test_pieces_find_what_rounds_find_and_no_row_is_in_two(text, edges, piece, again, few_pairs):
    with settings_of(NEVER, NEVER):
        database = dv.Program(text).run({"edge": edges}, "unit", keep=True)
        (wanted,) = map(set, database.values())
        candidates = [rule.candidates for rule in database.profile.rules]
    # They come back on the way, for orders of joins and for a look at rows of bits, which do not pay.
    looks = under(far_off=again, few_pairs=few_pairs, pairs_a_word=np.inf, piece_rows=piece)
    with settings_of(0, 1), looks:
        database = dv.Program(text).run({"edge": edges}, "unit", keep=True)
        (tuples,) = map(set, database.values())
    assert tuples == wanted
    assert [rule.candidates for rule in database.profile.rules] == candidates


def test_more_pieces_than_may_wait():
    """Each of 50 steps finds two rows, of which one is propagated at once; then all of a piece are."""
    edges = [(2 * step + a, 2 * step + 2 + b) for step in range(50) for a in (0, 1) for b in (0, 1)]
    with settings_of(0, 1, 1 << 10, compiled=True), under(piece_rows=1):
        database = dv.Program(CLOSURE).run({"edge": edges}, "unit", keep=True)
    (tuples,) = database.values()
    assert set(tuples) == {(x, y) for x in range(102) for y in range(102) if x // 2 < y // 2}


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([REACH, CLOSURE, SAME, TURNS]), EDGES, st.integers(1, 3), st.integers(1, 4))
def test_rows_that_wait_where_joins_get_other_orders_are_not_left_out(text, edges, piece, room):
    with settings_of(NEVER, NEVER):
        wanted, *_ = found(text, edges)
    with settings_of(0, 1, room), under(far_off=0, piece_rows=piece), pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute.Executor, "look_for_orders", lambda own, number, rounds: True)
        tuples, *_ = found(text, edges)
    assert tuples == wanted


def test_a_limit_of_tuples_ends_pieces():
    edges = [(x, y) for x in range(100) for y in range(x + 1, 100)]
    with settings_of(0, 1, 1 << 20, compiled=True), pytest.raises(LimitError):
        dv.Program(SAME).run({"edge": edges}, "unit", tuple_limit=len(edges) + 9_000)


def test_larger_rounds_of_a_first_run_wait_for_kernels():
    edges = [tuple(edge) for edge in np.random.default_rng(0).integers(0, 60, (200, 2)).tolist()]
    with settings_of(NEVER, NEVER):
        wanted = found(CLOSURE, edges)
    begun = {}
    for many in (1, NEVER):
        costs = under(few_rows=100, many_rows=many)
        rounds = calls_of(Recursion, "run", lambda own, *_, **__: own.executor.watch.round)
        with settings_of(0, 1, 1 << 20, compiled=True), costs, rounds as begun[many]:
            assert found(CLOSURE, edges) == wanted
    # Kernels that are on disk are looked for seldom, so that a run of few rows may end before.
    assert begun[1]
    assert not begun[NEVER] or begun[1][0] < begun[NEVER][0]


STRATUM = """
type start(x: i64), edge(x: i64, y: i64), t(x: i64, s: String)
rel low(x) = edge(x, x)
rel a(x) = start(x)
rel b(x, y) = edge(x, y)
rel c(x, y) = edge(y, x)
rel d(x, y, x + y) = edge(x, y)
rel t(x, "") = start(x)
rel e() = edge(5, 5)
"""
# Rules with arithmetic, several atoms, negation, tests of rows, integers of ranges, values below zero and above what
# sets reach, projections, nullary relations, and a rule that no kernel has.
RULES = [
    "rel b((x + {k}) % 11, x) = a(x)",
    "rel a(y - 1) = b(x, y), x > {k}",
    "rel a(x - 9) = c(x, _), not low(x), x > -5",
    "rel a(x * 1000000) = c({k}, x), x < 3",
    "rel b(x, z) = b(x, y), c(y, z)",
    "rel c(x, z) = c(x, y), b(y, z), not edge(z, x)",
    "rel c(y, x) = b(x, y), not low({k}), x != y",
    "rel c(x, y) = d(y, x, z), z % 2 == 1",
    "rel d((x + 1) % 5, y, x) = d(x, y, _), a(y)",
    "rel d(x, y, z) = b(x, y), b(y, z), edge(z, x)",
    "rel d(x, y, w) = a(x), b(x, y), w in y..y + {k}, w < 9",
    "rel a(x) = d(x, x, _) or b(x, x)",
    "rel e() = b(x, x), x > 7",
    "rel a({k}) = e()",
    'rel t(x, $string_concat(s, "n")) = t(x, s), c(x, _), $string_length(s) < {k}',
    "rel a(x + 1) = t(x, s), $string_length(s) == 2, x < 7",
    "rel a(x + {k}) = a(x), x < 15, x % 4 != 2",
]


@examples(20, 300, st.data())
def test_recursions_of_several_relations_agree_with_the_reference_interpreter(data):
    rules = data.draw(st.lists(st.sampled_from(RULES), min_size=2, max_size=5, unique=True))
    program = dv.Program("\n".join([STRATUM, *(rule.format(k=data.draw(st.integers(1, 4))) for rule in rules)]))
    facts = {
        "start": data.draw(st.lists(st.tuples(st.integers(-2, 8)), max_size=3)),
        "edge": data.draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=5)),
    }
    meaning = interpret(program.lowered(), facts)
    with settings_of(0, data.draw(SET_ROWS), data.draw(st.integers(1, 4))):
        database = program.run(facts, keep=True)
    check_profile(database, facts)
    for name in database:
        assert set(database[name]) == meaning[name], name


FLOATS = """
type start(x: f64), edge(x: f64, y: f64), short(x: f32, y: f32), whole(x: i32)
type a(x: f64), b(x: f64, y: f64), c(x: f32), d(x: i32), e()
rel a(x) = start(x)
query a
query b
query c
query d
query e
"""
# Values that come to the same ones again, so that recursions end.
FLOAT_RULES = [
    "rel a(y) = a(x), edge(x, y)",
    "rel a(x * y) = a(x), edge(x, y), x * y < {k}.0, x * y > 0.3",
    "rel a(0.0 - x) = a(x)",
    "rel a(-x * 0.0) = a(x)",
    "rel b(x, x / y) = edge(x, y)",
    "rel b(x % y, x) = edge(x, y), a(y)",
    "rel b(y, z) = b(x, y), b(x, z), x < {k}.0",
    "rel b(x, x + y) = a(x), edge(x, y), not edge(y, x)",
    "rel b(x, y) = a(x), start(y), y >= x - {k}.0, y < x + 1.5",
    "rel b(x, {k}.0) = b(x, x)",
    "rel c(x * y + x) = short(x, y), x * y + x < 100.0",
    "rel c($min(x, y)) = short(x, y), x != y",
    "rel c(x as f32) = a(x)",
    "rel a(x as f64) = c(x)",
    "rel d(x as i32) = a(x)",
    "rel a((x as f64) / {k}.0) = whole(x)",
    "rel a($floor(x) + $abs(x) - $ceil(x)) = start(x)",
    "rel e() = a(x), x == {k}.0",
    "rel a(if x > y then x else y) = edge(x, y)",
]
NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 0.1, 1e300, -1e-300, math.inf, -math.inf])
SHORT_NUMBERS = NUMBERS.map(lambda number: 3e38 if number == 1e300 else number)  # 1e300 is beyond f32 and refused


@examples(15, 600, st.data())
def test_kernels_of_floats_agree_with_the_reference_interpreter(data):
    rules = data.draw(st.lists(st.sampled_from(FLOAT_RULES), min_size=2, max_size=6, unique=True))
    program = dv.Program("\n".join([FLOATS, *(rule.format(k=data.draw(st.integers(1, 4))) for rule in rules)]))
    pairs = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=5)
    facts = {
        "start": data.draw(st.lists(st.tuples(NUMBERS), max_size=3)),
        "edge": data.draw(pairs),
        "short": data.draw(st.lists(st.tuples(SHORT_NUMBERS, SHORT_NUMBERS), max_size=5)),
        "whole": data.draw(st.lists(st.tuples(st.integers(-3, 3)), max_size=3)),
    }
    meaning = interpret(program.lowered(), facts)
    set_rows, room, is_whole = data.draw(SET_ROWS), data.draw(st.integers(1, 4)), data.draw(st.booleans())
    with settings_of(0, set_rows, room, is_whole=is_whole):
        found, tagged = program.run(facts), program.run(facts, "minmaxprob")
    for name in found:
        rows = np.array(list(found[name]), float)
        assert not np.signbit(rows[rows == 0]).any(), name
        assert set(found[name]) == set(tagged[name]) == meaning[name], name


def test_floats_in_kernels():
    text = """
    type e(x: f64, y: f64), n(x: i32), short(x: f32)
    rel b(x as f64) = n(x)
    rel a(x * y) = e(x, y), b(y), x < 2.5
    rel c(x + 0.1) = short(x), e(y, _), (x as f64) > y
    query a query c
    """
    facts = {"e": [(1.5, 2.0), (-0.0, 3.0), (4.0, 1.0)], "n": [(k,) for k in range(4)], "short": [(0.7,)]}
    with settings_of(0, NEVER, compiled=True):
        found = dv.Program(text).run(facts, keep=True)
    assert set(found["a"]) == {(3.0,), (0.0,)}
    assert set(found["c"]) == {(float(np.float32(0.7) + np.float32(0.1)),)}
    assert [rule.route.name for rule in found.profile.rules if rule.instruction.relation != "b"] == ["kernel", "kernel"]


def test_the_plan_says_why_no_kernel_computed_a_rule():
    text = """
    type e(x: i64, y: f64), n(x: i64), s(x: i64, t: String)
    rel doubled(x, $exp(y)) = e(x, y), n(x)
    rel n(x + 1) = n(x), x < 9
    rel s(x + 1, $string_concat(t, "a")) = s(x, t), n(x)
    query doubled
    query s
    """
    facts = {"e": [(1, 0.5), (2, 1.5)], "n": [(0,), (1,)], "s": [(0, "")]}
    program = dv.Program(text)
    with settings_of(0, 1):
        kernels = program.run(facts, keep=True).explain("plan")
    with settings_of(NEVER, NEVER):
        columns = program.run(facts, keep=True).explain("plan")
    assert "it computes exp of floats, which libraries round differently" in kernels
    assert "it calls a function that works on columns" in kernels
    assert "8 new; by kernel in the driver\n" in kernels
    assert "too few rows" not in kernels
    assert columns.count("too few rows") >= 3


@pytest.mark.parametrize("late", range(4))
def test_kernels_that_come_later_read_indexes_as_they_are(late, monkeypatch):
    """Stores that share an index, of which some run over columns for a while: no row is entered twice."""
    text = """
    type e(u32, u32)
    rel r(x, y) = e(x, y), x % 3 == 0
    rel t(x, y) = e(y, x), x % 4 == 1
    rel r(x, w) = e(x, y), r(y, z), t(z, u), e(u, w)
    rel t(x, y) = r(x, z), e(z, u), t(u, y)
    query r query t
    """
    facts = {"e": np.random.default_rng(1).integers(0, 25, (45, 2)).astype(np.uint32)}
    with settings_of(NEVER, NEVER):
        wanted = dv.Program(text).run(facts)
    asked, bind = {}, Machine.bind

    def is_worth(own, number, kernel):
        asked[number] = asked.get(number, 0) + 1
        return asked[number] > 2 * (number == late)

    def bound(own, *given, **options):
        found = bind(own, *given, **options)
        for index, at in own.indexes.items():
            assert own.memory[at + w.INDEXED] == index.rows_inserted
        return found

    monkeypatch.setattr(Machine, "is_worth", is_worth)
    monkeypatch.setattr(Machine, "bind", bound)
    with settings_of(0, 1 << 12, 1 << 20):
        found = dv.Program(text).run(facts)
    assert asked[late] > 2
    assert {name: set(view) for name, view in found.items()} == {name: set(view) for name, view in wanted.items()}


LENGTHS_AND_WIDTHS = Semiring(
    "lengths_and_widths",
    lambda a, b: (minimum(a[0], b[0]), maximum(a[1], b[1])),
    lambda a, b: (a[0] + b[0], minimum(a[1], b[1])),
    (math.inf, 0.0),
    (0.0, 1.0),
    idempotent_plus=True,
    complement=lambda a: (1.0 - a[1], a[1]),
    fact=lambda tag, variable: (1.0 - tag, tag),
    domain=((0.0, math.inf), (0.0, 1.0)),
)
TAGS = ["minmaxprob", "addmultprob", "boolean", max_product, min_plus, LENGTHS_AND_WIDTHS]
ASKED = ["", "query b({k}, x)", "query c(x, {k}) query d"]


def check_profile(database, facts):
    """Every new row is that of one rule, whatever computed it, and each rule says by what it was computed."""
    profile, found, rows = database.profile, {}, [0] * len(database.profile.strata)
    for effort in profile.rules:
        relation = effort.instruction.relation
        if relation in profile.ram.relations:
            found[relation] = found.get(relation, 0) + effort.rows
            rows[effort.stratum] += effort.rows
        assert effort.route.name, effort
        assert effort.rows <= effort.candidates
        has_kernel = effort.route.name == "kernel in the driver" or effort.route.name.startswith("shortcut")
        assert not has_kernel or not effort.route.reason, effort
        assert effort.route.reason or effort.route.name != "columns", effort
    assert rows == [stratum.rows for stratum in profile.strata]
    given = {name: set(map(tuple, rows)) for name, rows in facts.items()}
    for one in profile.ram.facts:
        given.setdefault(one.relation, set()).update(one.rows)
    for name in database:
        assert len(database[name]) == found.get(name, 0) + len(given.get(name, ())), name


def tagged(text, facts, provenance, **limits):
    database = dv.Program(text).run(facts, provenance, keep=True, **limits)
    check_profile(database, {name: [row for _, row in rows] for name, rows in facts.items()})
    tags = {name: dict(zip(view, view.tag_list(), strict=True)) for name, view in database.items()}
    return tags, [stratum.rounds for stratum in database.profile.strata]


def test_candidates_over_columns_have_the_width_of_their_relation():
    text = """
    type edge(x: i64, y: i64), name(x: i64, s: String), a(x: i64, y: i64), b(x: i64, y: i64, z: i64)
    rel a(x, y) = edge(x, y)
    rel b(x, y, z) = a(x, y), edge(y, z)
    rel a(x + 0, z + ($string_length(s) as i64)) = b(x, y, z), name(y, s), z < 4
    query a query b
    """
    facts = {"edge": [((1 + x + y) / 16, (x, y)) for x in range(6) for y in range(x)]}
    facts["name"] = [(1.0, (k, "x" * (k % 3))) for k in range(8)]
    with settings_of(NEVER, NEVER):
        wanted = tagged(text, facts, "minmaxprob")
    with settings_of(0, 1, 1 << 20, compiled=True), counted() as made:
        assert tagged(text, facts, "minmaxprob") == wanted
    assert made


@examples(12, 2000, st.data())
def test_tags_and_rounds_are_those_over_columns(data):
    rules = data.draw(st.lists(st.sampled_from(RULES), min_size=1, max_size=5, unique=True))
    k, asked = st.integers(1, 4), data.draw(st.sampled_from(ASKED)).format(k=data.draw(st.integers(0, 6)))
    text = "\n".join([STRATUM, *(rule.format(k=data.draw(k)) for rule in rules), asked])
    chances = st.sampled_from([0.25, 0.4, 0.55, 0.7, 0.85])
    starts = st.tuples(chances, st.tuples(st.integers(-2, 8)))
    edges = st.tuples(chances, st.tuples(st.integers(0, 6), st.integers(0, 6)))
    facts = {"start": data.draw(st.lists(starts, max_size=3)), "edge": data.draw(st.lists(edges, max_size=7))}
    given_tags = text, facts, data.draw(st.sampled_from(TAGS))
    limits = {"iteration_limit": data.draw(st.integers(0, 8))}
    if given_tags[2] != "addmultprob" and data.draw(st.booleans()):
        limits = {}
    with settings_of(NEVER, NEVER):
        wanted = tagged(*given_tags, **limits)
    with settings_of(0, data.draw(SET_ROWS), data.draw(k)):
        found = tagged(*given_tags, **limits)
    assert found[0] == wanted[0]
    # Without a limit the best tags may come first.
    assert found[1] == wanted[1] or not limits


def test_small_rounds_with_tags_are_one_call():
    """Two relations in turn; each way to a row is better than the one before, and negation is of tags."""
    text = """
    type edge(x: i64, y: i64), bad(x: i64)
    rel a(0)
    rel b(y) = a(x), edge(x, y), not bad(x)
    rel a(y) = b(x), edge(x, y)
    query a query b
    """
    edges = [(0.5 + k / 400, (k, k + 1)) for k in range(90)] + [(0.3, (0, 3)), (0.2, (0, 5))]
    facts = {"edge": edges, "bad": [(0.6, (k,)) for k in range(4)]}
    with settings_of(NEVER, NEVER):
        wanted = tagged(text, facts, "minmaxprob")
    with settings_of(0, 1, 1 << 20, compiled=True), counted() as made:
        assert tagged(text, facts, "minmaxprob") == wanted
    assert wanted[0]["b"][(3,)] == 0.4
    assert len(made) == 1


def test_a_store_that_runs_as_a_kernel_becomes_worth_one_that_inserts(monkeypatch):
    """Rounds of a row whose store has the kernel that writes columns, until the other one is to be had."""
    program = dv.Program("rel n = {0}\nrel n(x + 1) = n(x), x < 300\ntype n(x: i64)\nquery n")
    monkeypatch.setattr(StoreState, "is_ready", lambda own: own.rebind() is None)
    # Without the driver.
    monkeypatch.setattr(Executor, "may_drive", lambda *_: False)
    # As if each round had many.
    seen_rows = calls_of(StoreState, "run", lambda own, keep: own.seen)
    with settings_of(0, 1 << 12), under(small_round=-1), seen_rows as seen:
        assert len(program.run()["n"]) == 301
    assert len(seen) >= 300
    assert seen == sorted(set(seen))
