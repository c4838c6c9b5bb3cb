"""Random programs with every feature, by every route: from the syntax by search, interpreters, kernels, orders, demand,
branches and growth. `formulas` shares only the parser with the library."""

import contextlib
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.formulas import matched, model_of
from datalog.naive import splits
from datalog.programs import MonotoneRule, RichRule, closures, inputs, questions, sources
from datalog.test_apm import run_apm
from datalog.test_fused import SET_ROWS, by_bits, settings_of
from datalog.test_plan import ALWAYS
from derivable.datalog.policy.costs import under
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.syntax.nodes import Query
from derivable.datalog.syntax.parse import parse
from drawn import examples

PROGRAMS = sources(rule=RichRule)


@contextlib.contextmanager
def planned(few_orders):
    """Every body is planned, whatever that costs, by trying all orders where there are no more, and cut in two in a
    recursion."""
    with under(**ALWAYS, most_plans=few_orders, most_at_once=0):
        yield


def assert_model(found, wanted, names):
    for name in names:
        assert set(found[name]) == wanted[name], name


def test_the_comparison_can_fail():
    with pytest.raises(AssertionError):
        assert_model({"p": [(1,)]}, {"p": {(2,)}}, ["p"])


def test_the_search_knows_what_programs_mean():
    syntax = parse("""
        type e(i32, i32), big(i32), out(i32, i32), all(i32), n(i32, usize), best(i32)
        rel big(x) = e(x, _), not e(_, x)
        rel out(x, y) = e(x, z) and (e(z, y) or x == y), y < 3
        rel all(x) = e(x, _), forall(y: e(x, y) implies y > 1)
        rel n(x, c) = c := count(y: e(x, y) where x: big(x))
        rel best(x) = x := argmax[x](y: e(x, y))
    """)
    order = ["big", "out", "all", "n", "best"]
    model = model_of(syntax, {"e": [(0, 1), (1, 2), (1, 3), (4, 2)]}, order)
    assert model["big"] == {(0,), (4,)}
    assert model["out"] == {(0, 2), (0, 0), (1, 1)}
    assert model["all"] == {(1,), (4,)}
    assert model["n"] == {(0, 1), (4, 1)}
    assert model["best"] == {(1,)}


def check_routes(source, facts, data):
    source.rules += data.draw(closures(source))
    program = dv.Program(source.text())
    wanted = model_of(program.syntax, facts, source.derived)
    names = source.derived
    assert_model(interpret(program.lowered(facts), facts), wanted, names)
    assert_model(run_apm(program, facts)[0], wanted, names)
    assert_model(program.run(facts), wanted, names)
    set_rows, room = data.draw(SET_ROWS), data.draw(st.integers(1, 4))
    for num_threads in (1, 2, 3):
        with settings_of(0, set_rows, room, num_threads=num_threads):
            assert_model(program.run(facts), wanted, names)
    with settings_of(0, set_rows, room), by_bits():
        assert_model(program.run(facts), wanted, names)
    with settings_of(0, set_rows, room, is_whole=True):
        # What a run leaves behind is cleared by the next one.
        for given, meant in ((facts, wanted), ({}, model_of(program.syntax, {}, names)), (facts, wanted)):
            assert_model(program.run(given), meant, names)
    for few_orders in (0, 720):
        with planned(few_orders), settings_of(0, set_rows, room) if few_orders else contextlib.nullcontext():
            assert_model(dv.Program(source.text()).run(facts), wanted, names)


@examples(18, 60, PROGRAMS, inputs(), st.data())
def test_all_routes_agree(source, facts, data):
    check_routes(source, facts, data)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=False)
@given(sources(max_relations=5, max_rules=4, rule=RichRule), inputs(12), st.data())
def test_all_routes_agree_on_larger_programs(source, facts, data):
    check_routes(source, facts, data)


@examples(30, 60, PROGRAMS, inputs(), st.data())
def test_what_is_asked_is_what_the_whole_program_has(source, facts, data):
    asked = data.draw(questions(source))
    program = dv.Program(source.text(asked))
    wanted = model_of(parse(source.text()), facts, source.derived)
    found = program.run(facts)
    queries = [item for item in program.syntax.items if isinstance(item, Query)]
    assert len(found) == len(queries)
    for query, view in zip(queries, found.values()):
        rows = wanted[query.relation]
        if query.arguments is not None:
            rows = {row for row in rows if matched(query.arguments, row, {}) is not None}
        assert set(view) == rows, query


@examples(30, 60, PROGRAMS, inputs(), st.data())
def test_growing_databases_are_those_of_all_facts(source, facts, data):
    program = dv.Program(source.text())
    wanted = model_of(program.syntax, facts, source.derived)
    first, *rest = data.draw(splits(facts, 3))
    database = program.run(first, keep=True)
    before = {name: set(database[name]) for name in source.relations}
    branch = database.fork()
    for part in rest:
        branch.add(part)
    assert_model(branch, wanted, source.derived)
    assert_model(database, before, source.relations)


LIKELY = 0.2, 0.4, 0.6, 0.8


@examples(12, 60, sources(max_relations=3, rule=MonotoneRule), inputs(), st.data())
def test_the_best_derivation_is_from_facts_as_likely(source, facts, data):
    """A tuple's tag under minmaxprob is the largest chance such that it follows from the facts with that or more."""
    source.rules += data.draw(closures(source))
    program = dv.Program(source.text(data.draw(st.just([]) | questions(source))))
    chances = {(name, row): data.draw(st.sampled_from(LIKELY)) for name, rows in facts.items() for row in rows}
    syntax, wanted = parse(source.text()), {name: {} for name in source.derived}
    for least in (*LIKELY, 1.0):
        likely = {name: [row for row in rows if chances[name, row] >= least] for name, rows in facts.items()}
        for name, rows in model_of(syntax, likely, source.derived).items():
            wanted.setdefault(name, {}).update(dict.fromkeys(rows, least))
    tagged = {name: [(chances[name, row], row) for row in rows] for name, rows in facts.items()}
    first, *rest = data.draw(splits(tagged, 2))
    with settings_of(0, data.draw(SET_ROWS), data.draw(st.integers(1, 4))):
        found, branch = program.run(tagged, "minmaxprob"), program.run(first, "minmaxprob", keep=True).fork()
        for part in rest:
            branch.add(part)
    queries = [item for item in program.syntax.items if isinstance(item, Query)]
    asked = dict.fromkeys(source.derived) if not queries else dict(zip(found, queries))
    for title, query in asked.items():
        rows = wanted[title if query is None else query.relation]
        if query is not None and query.arguments is not None:
            rows = {row: tag for row, tag in rows.items() if matched(query.arguments, row, {}) is not None}
        assert dict(found[title].items()) == dict(branch[title].items()) == rows, title


@examples(30, 60, sources(max_relations=3, rule=RichRule), inputs(4), st.data())
def test_probabilities_are_those_of_all_worlds(source, facts, data):
    """Some facts are random; what a tuple's probability is follows from the worlds in which the search finds it."""
    program = dv.Program(source.text())
    rows = [(name, row) for name, given_rows in facts.items() for row in given_rows]
    chosen = data.draw(st.lists(st.sampled_from(rows), max_size=4, unique=True)) if rows else []
    chances = {fact: 0.1 + 0.2 * i for i, fact in enumerate(chosen)}
    wanted = {name: {} for name in source.derived}
    for world in itertools.product([False, True], repeat=len(chosen)):
        absent = {fact for fact, there in zip(chosen, world) if not there}
        probability = math.prod(p if there else 1 - p for p, there in zip(chances.values(), world))
        certain = {name: [row for row in rows if (name, row) not in absent] for name, rows in facts.items()}
        model = model_of(program.syntax, certain, source.derived)
        for name in source.derived:
            for row in model[name]:
                wanted[name][row] = wanted[name].get(row, 0.0) + probability
    tagged = {
        name: [(chances[name, row], row) if (name, row) in chances else row for row in rows]
        for name, rows in facts.items()
    }
    found = program.run(tagged, provenance="exact")
    for name in source.derived:
        assert dict(found[name].items()) == pytest.approx(wanted[name], abs=1e-12), name
