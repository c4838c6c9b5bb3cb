"""The machine, the RAM interpreter, the naive evaluator and networkx agree."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from data import data_path
from datalog.naive import (
    fact_sets,
    least_model,
    programs,
    text_of,
    unsigned_facts,
    unsigned_model,
    unsigned_programs,
    unsigned_text,
)
from derivable.datalog.desugar import desugar
from derivable.datalog.ram.check import check_ram
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.ram.lower import lower
from derivable.datalog.rules.check import check_rules
from derivable.datalog.rules.strata import check_strata, stratify
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.text import syntax_text
from derivable.datalog.types import infer
from drawn import examples

CLOSURE = "type edge(i32, i32)\nrel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))\nquery path"


@settings(max_examples=80, deadline=None)
@given(programs(), fact_sets())
def test_random_programs_agree_with_the_naive_evaluator(program, facts):
    rules, order = program
    db = dv.Program(text_of(rules)).run(facts=facts)
    model = least_model(rules, facts, order)
    for name in order:
        assert set(db[name]) == model[name]


UNSIGNED = {"u8": 8, "u16": 16, "u32": 32, "u64": 64, "u128": 128, "usize": 64}


@examples(60, 600, unsigned_programs(), st.sampled_from(sorted(UNSIGNED)), st.data())
def test_unsigned_sums_and_differences_are_equations_in_bodies_and_stop_in_heads(program, t, data):
    """Whatever is bound first, in every width, and where a query with a constant narrows what is computed."""
    rules, order = program
    high = 2 ** UNSIGNED[t] - 1
    facts = data.draw(unsigned_facts(high))
    text = unsigned_text(rules, t)
    model = unsigned_model(rules, facts, order, high)
    db = dv.Program(text).run(facts=facts)
    for name in order:
        assert set(db[name]) == model[name]
    name = order[-1]
    first = min(model[name], default=(0, 0))[0]
    rest = ", x" * (len(next(r[1] for r in rules if r[0] == name)) - 1)
    [(_, found)] = dv.Program(f"{text}\nquery {name}({first}{rest})").run(facts=facts).items()
    assert set(found) == {row for row in model[name] if row[0] == first}


@settings(max_examples=40, deadline=None)
@given(programs(), fact_sets())
def test_every_stage_is_valid_and_the_interpreter_agrees(program, facts):
    rules, order = program
    syntax = parse(text_of(rules))
    assert parse(syntax_text(syntax)).items == syntax.items
    core = desugar(infer(syntax))
    check_rules(core)
    strata = stratify(core)
    check_strata(strata)
    ram = lower(strata)
    check_ram(ram)
    meaning = interpret(ram, facts)
    db = dv.Program(text_of(rules)).run(facts=facts)
    for name in order:
        assert set(db[name]) == meaning[name]


AGGREGATES = """
rel counts(x, n) = n := count(y: e(x, y))
rel total(n) = n := count(x, y: e(x, y))
rel asked(x, n) = n := count(y: e(x, y) where x: u(x))
rel asked_pairs(x, y, n) = n := count(z: e(x, z), e(z, y) where x, y: e(y, x))
rel pairs(x, y, n) = n := count(z: e(x, z), e(z, y))
rel sums(x, s) = s := sum[y](z: e(x, y), z == x + y)
rel products(s) = s := prod(y: e(_, y))
rel least(x, y) = y := min(y: e(x, y))
rel most(y) = y := max(y: e(_, y))
rel first(x) = x := argmin[x](y: e(x, y))
rel last(k, x) = x := argmax[x](y: e(x, y), e(y, k))
rel some(b) = b := exists(x: e(x, x))
rel every(x) = u(x), forall(y: e(x, y) implies u(y))
rel all(b) = b := forall(x: u(x) implies e(x, x))
rel asked_every(x) = forall(y: e(x, y) implies u(y) where x: u(x))
rel lonely(x) = u(x), not e(x, _), not exists(y: e(y, x))
"""


@settings(max_examples=60, deadline=None)
@given(fact_sets())
def test_aggregates_agree_with_the_interpreter(facts):
    program = dv.Program("type e(i32, i32), u(i32)" + AGGREGATES)
    db = program.run(facts=facts)
    meaning = interpret(program.lowered(), facts)
    for name in db:
        assert set(db[name]) == meaning[name], name
    assert set(db["asked_every"]) == set(db["every"])


TYPED = st.sampled_from(["i8", "u8", "i32", "u32", "i64", "u64", "f32", "f64"])


@settings(max_examples=60, deadline=None)
@given(TYPED, st.data())
def test_arithmetic_agrees_with_the_interpreter(type_name, data):
    from derivable.datalog.values.values import TYPES

    t = TYPES[type_name]
    if t.is_integer:
        low, high = t.limits
        number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1, high - 1]))
    else:
        number = st.floats(allow_nan=False, width=t.bits)
    pairs = data.draw(st.lists(st.tuples(number, number), min_size=1, max_size=8, unique=True))
    operator = data.draw(st.sampled_from(["+", "-", "*", "/", "%"]))
    program = dv.Program(
        f"type p({type_name}, {type_name})\nrel q(a, b, a {operator} b) = p(a, b)\nrel r(a, b) = p(a, b), a < b\n"
        "rel s(a, if a == b then a - b else b) = p(a, b)"
    )
    db = program.run(facts={"p": pairs})
    meaning = interpret(program.lowered(), {"p": [tuple(x + 0.0 if not t.is_integer else x for x in p) for p in pairs]})
    for name in "qrs":
        assert set(db[name]) == meaning[name]


def closure_by_networkx(edges):
    graph = nx.DiGraph(edges)
    return (
        {(a, b) for a in graph for b in nx.descendants(graph, a)}
        | {(a, a) for component in nx.strongly_connected_components(graph) for a in component if len(component) > 1}
        | {(a, a) for a in graph if graph.has_edge(a, a)}
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=80, unique=True))
def test_transitive_closure_is_networkx(edges):
    db = dv.Program(CLOSURE).run(facts={"edge": np.array(edges)})
    assert set(db["path"]) == closure_by_networkx(edges)
    doubled = CLOSURE.replace("edge(z, y))", "path(z, y))")
    assert set(dv.Program(doubled).run(facts={"edge": edges})["path"]) == closure_by_networkx(edges)


@pytest.mark.parametrize("name", ["cal.cedge", "p2p-Gnutella04"])
def test_real_graphs(name):
    import gzip

    with gzip.open(data_path(f"graphs/{name}.txt.gz"), "rt") as file:
        edges = np.loadtxt(file, dtype=np.int64)
    keep = edges[(edges < 3000).all(axis=1)]
    db = dv.Program(CLOSURE).run(facts={"edge": keep})
    graph = nx.DiGraph(keep.tolist())
    expected = sum(len(nx.descendants(graph, a)) for a in graph)
    cyclic = {a for c in nx.strongly_connected_components(graph) if len(c) > 1 for a in c}
    cyclic |= {a for a in graph if graph.has_edge(a, a)}
    assert len(db["path"]) == expected + len(cyclic)


def test_same_generation():
    text = """type parent(i32, i32)
    rel same(x, y) = parent(p, x), parent(p, y), x != y
    rel same(x, y) = parent(a, x), same(a, b), parent(b, y), x != y"""
    tree = [(i, 2 * i + 1) for i in range(15)] + [(i, 2 * i + 2) for i in range(15)]
    db = dv.Program(text).run(facts={"parent": tree})

    def depth(n):
        return 0 if n == 0 else 1 + depth((n - 1) // 2)

    nodes = range(31)
    assert set(db["same"]) == {(a, b) for a in nodes for b in nodes if a != b and depth(a) == depth(b)}
