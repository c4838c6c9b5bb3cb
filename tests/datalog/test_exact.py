"""Exact inference against brute force over worlds and against ProbLog."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import least_model, programs, text_of
from datalog.test_agreement import AGGREGATES, CLOSURE
from datalog.worlds import probabilities
from derivable.core.diagnostics import CompileTimeout
from derivable.datalog.exact.exact import compile_exact
from drawn import examples
from work import processor_seconds

CHANCE = st.sampled_from([0.1, 0.25, 0.5, 0.75, 0.9])
EDGE = st.tuples(st.integers(0, 3), st.integers(0, 3))


@st.composite
def random_facts(draw, most=5):
    """(certain facts, independent facts, choices) for e and u."""
    edges = draw(st.lists(EDGE, min_size=1, max_size=most, unique=True))
    independent, certain = [], {"e": [], "u": []}
    for edge in edges:
        if draw(st.integers(0, 4)):
            independent.append(("e", edge, draw(CHANCE)))
        else:
            certain["e"].append(edge)
    values = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True))
    weights = draw(st.lists(st.integers(1, 5), min_size=len(values), max_size=len(values)))
    total = sum(weights) + draw(st.integers(0, 2))
    return certain, independent, [[("u", (v,), w / total) for v, w in zip(values, weights)]]


def run_exact(text, certain, independent, choices, provenance="exact", **options):
    """(relation, tuple) -> tag, through the fact forms of `Program.run`."""
    facts = {name: list(rows) for name, rows in certain.items()}
    for relation, row, p in independent:
        facts.setdefault(relation, []).append((p, row))
    for choice in choices:
        assert not facts.get("u")
        facts["u"] = dv.categorical([row for _, row, _ in choice], [p for _, _, p in choice])
    db = dv.Program(text).run(facts=facts, provenance=provenance, **options)
    return {(name, row): tag for name in db for row, tag in db[name].items()}


def assert_same(found, expected):
    for key in found.keys() | expected.keys():
        assert found.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), abs=1e-9), key


def model_of(rules, order, certain):
    def model(facts):
        merged = {name: list(certain.get(name, ())) + list(facts.get(name, ())) for name in ("e", "u")}
        return least_model(rules, merged, order)

    return model


@settings(max_examples=60, deadline=None)
@given(programs(max_rules=2), random_facts(4))
def test_random_programs_agree_with_all_worlds(program, facts):
    rules, order = program
    certain, independent, choices = facts
    expected = probabilities(independent, choices, model_of(rules, order, certain))
    assert_same(run_exact(text_of(rules), certain, independent, choices), expected)


@settings(max_examples=30, deadline=None)
@given(programs(max_rules=2), random_facts(4))
def test_topk_with_all_proofs_is_exact(program, facts):
    rules, order = program
    certain, independent, choices = facts
    expected = probabilities(independent, choices, model_of(rules, order, certain))
    assert_same(run_exact(text_of(rules), certain, independent, choices, "topkproofs", k=10_000), expected)


@examples(12, 25, random_facts())
def test_aggregates_agree_with_all_worlds(facts):
    certain, independent, choices = facts
    text = "type e(i32, i32), u(i32)" + AGGREGATES
    program = dv.Program(text)

    def model(world):
        merged = {name: list(certain.get(name, ())) + list(world.get(name, ())) for name in ("e", "u")}
        return {name: set(rows) for name, rows in program.run(facts=merged).items()}

    expected = probabilities(independent, choices, model)
    assert_same(run_exact(text, certain, independent, choices), expected)
    assert_same(run_exact(text, certain, independent, choices, "topkproofs", k=10_000), expected)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("i8", [100, 27, -3, 99]),
        ("u64", [2**64 - 1, 7, 2**63, 0]),
        ("i64", [2**63 - 1, 2**62, -(2**63), -5]),
        ("f64", [float("inf"), float("-inf"), 0.0, 2.5]),
    ],
)
def test_sums_and_products_at_the_limits_agree_with_all_worlds(kind, rows):
    text = f"type p({kind}) rel s(n) = n := sum(x: p(x)) rel m(n) = n := prod(x: p(x)) query s query m"
    program = dv.Program(text)

    def model(world):
        return {name: set(found) for name, found in program.run(facts={"p": world.get("p", [])}).items()}

    independent = [("p", (row,), 0.5 + place / 10) for place, row in enumerate(rows)]
    assert_same(run_exact(text, {}, independent, []), probabilities(independent, [], model))


@pytest.mark.parametrize("size", [12, 60])
def test_time_limits_cover_the_whole_run(size):
    """With 12 vertices the knowledge compiler is what takes long, with 60 breaking the cycles."""
    program = dv.Program(CLOSURE)
    edges = np.random.default_rng(0).integers(0, size, size=(4 * size, 2)).tolist()
    facts = {"edge": {(a, b): 0.5 for a, b in edges if a != b}}
    program.run(facts={"edge": {(0, 1): 0.5, (1, 0): 0.5}})

    def work():
        with pytest.raises(dv.DerivableError, match="the run did not finish within 1 s") as caught:
            program.run(facts=facts, time_limit=1.0)
        assert "topkproofs" in str(caught.value)
        assert "d4" not in str(caught.value)

    assert processor_seconds(work) < 8


def test_a_formula_that_is_too_hard_is_named_with_its_size(monkeypatch):
    """A cycle of five edges both ways, and a sample of two with less."""
    import torch

    from derivable.circuit.compilation import choice

    def compile_formula_dag(*arrays, **options):
        raise CompileTimeout("PySDD did not finish within 9 s", hint="raise time_limit, or try compiler='d4'")

    monkeypatch.setattr(choice, "compile_formula_dag", compile_formula_dag)
    edges = [pair for i in range(5) for pair in ((i, (i + 1) % 5), ((i + 1) % 5, i))]
    with pytest.raises(
        CompileTimeout, match=r"did not finish within 9 s while it compiled .*: \d+ nodes over 10 "
    ) as one:
        dv.Program(CLOSURE).run(facts={"edge": [(0.5, edge) for edge in edges]}, provenance="exact", time_limit=9)
    # From 0 to 3 there are three edges that count.
    layer = dv.nn.Logic(CLOSURE, {"edge": dv.varying()}, {"path": [(0, 3)]}, time_limit=9)
    with pytest.raises(CompileTimeout, match="derivations of sample 1: 4 nodes over 3 random facts") as two:
        layer(edge=[([], torch.zeros(0)), (edges[:6], torch.full((6,), 0.5))])
    for caught in (one, two):
        assert "topkproofs" in str(caught.value)
        assert "d4" not in str(caught.value)


def test_exclusive_facts_of_the_program():
    text = 'rel s = {0.3::"s"; 0.7::"t"} rel q() = s("s") or s("t") rel r() = s("s") and s("t")'
    db = dv.Program(text).run(provenance="exact")
    assert db["q"][()] == 1.0
    assert db["s"]["s"] == 0.3
    assert db["r"].get((), 0.0) == 0.0
    part = dv.Program("rel d = {0.3::1; 0.2::2} rel any() = d(_) rel none() = not d(_)").run(provenance="exact")
    assert part["any"][()] == pytest.approx(0.5)
    assert part["none"][()] == pytest.approx(0.5)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(EDGE, CHANCE), min_size=1, max_size=7, unique_by=lambda f: f[0]))
def test_paths_agree_with_problog(edges):
    from problog import get_evaluatable
    from problog.program import PrologString

    rows = [f"{p}::edge({a},{b})." for (a, b), p in edges]
    rows += ["path(X,Y) :- edge(X,Y).", "path(X,Y) :- path(X,Z), edge(Z,Y).", "query(path(X,Y)) :- path(X,Y)."]
    rows[-1] = "query(path(_,_))."
    answers = get_evaluatable().create_from(PrologString("\n".join(rows))).evaluate()
    expected = {("path", tuple(int(a) for a in term.args)): p for term, p in answers.items()}
    db = dv.Program(CLOSURE).run(facts={"edge": [(p, edge) for edge, p in edges]}, provenance="exact")
    assert_same({("path", row): tag for row, tag in db["path"].items()}, expected)


def test_annotated_disjunctions_agree_with_problog():
    from problog import get_evaluatable
    from problog.program import PrologString

    text = (
        "0.3::c(a); 0.5::c(b). 0.6::d(a); 0.4::d(b). same :- c(X), d(X). other :- \\+ same. query(same). query(other)."
    )
    answers = get_evaluatable().create_from(PrologString(text)).evaluate()
    expected = {str(term): p for term, p in answers.items()}
    db = dv.Program(
        'rel c = {0.3::"a"; 0.5::"b"} rel d = {0.6::"a"; 0.4::"b"} rel same() = c(x), d(x) rel other() = not same()'
    ).run(provenance="exact")
    assert db["same"][()] == pytest.approx(expected["same"])
    assert db["other"][()] == pytest.approx(expected["other"])


def test_tagged_rules():
    db = dv.Program("rel p = {1, 2} rel 0.8::q(x) = p(x) rel both() = q(1), q(2)").run(provenance="exact")
    # Each row of the body is a random fact of its own.
    assert db["both"][()] == pytest.approx(0.64)
    db = dv.Program("rel p = {1.0, 4.0} rel (1.0 / x)::q(x) = p(x) rel any() = q(4.0)").run(provenance="exact")
    assert db["any"][()] == pytest.approx(0.25)
    assert db["q"][1.0] == pytest.approx(1.0)


def test_sum_of_two_digits_is_a_convolution():
    digits = {"digit_1": dv.categorical(range(10)), "digit_2": dv.categorical(range(10))}
    query = compile_exact(dv.Program("rel sum_2(a + b) = digit_1(a), digit_2(b)"), digits, {"sum_2": range(19)})
    assert query.circuit.num_roots == 19
    assert query.exclusive.all()
    assert sorted(np.concatenate(list(query.variables.values()))) == list(range(20))
    random = np.random.default_rng(0)
    a, b = random.dirichlet(np.ones(10), size=(2, 4))
    found = query.probabilities(digit_1=a, digit_2=b)
    np.testing.assert_allclose(found, [np.convolve(x, y) for x, y in zip(a, b)], atol=1e-12)


def test_outputs_that_cannot_be_derived_are_false():
    digits = {"d": dv.categorical([1, 2])}
    query = compile_exact(dv.Program("rel twice(a * 2) = d(a)"), digits, {"twice": [2, 3, 4], "d": [1, 7]})
    np.testing.assert_allclose(query.probabilities(d=[0.25, 0.75]), [0.25, 0.0, 0.75, 0.25, 0.0])


def test_facts_of_the_program_have_fixed_weights():
    text = "rel 0.4::storm() rel alarm(x) = sensor(x) or storm()\ntype sensor(i32)\nrel x() = sensor(1), storm()"
    query = compile_exact(
        dv.Program("type alarm(i32)\nrel k = {1, 2}\n" + text.replace("or storm()", "or (k(x) and storm())")),
        {"sensor": dv.independent([1, 2])},
        {"alarm": [1, 2], "x": [()]},
    )
    assert not query.exclusive.any()
    np.testing.assert_allclose(query.fixed_weights, [0.4])
    found = query.probabilities(sensor=[0.5, 0.1])
    np.testing.assert_allclose(found, [1 - 0.5 * 0.6, 1 - 0.9 * 0.6, 0.2])


def test_cyclic_components_need_as_many_rounds_as_they_have_tuples():
    # A bidirected chain: the longest derivation of path(0, n) passes every tuple of its component.
    size = 7
    edges = [(a, a + 1) for a in range(size)] + [(a + 1, a) for a in range(size)]
    db = dv.Program(CLOSURE).run(facts={"edge": [(0.5, e) for e in edges]}, provenance="exact")
    assert db["path"][0, size] == pytest.approx(0.5**size)
    assert db["path"][size, 0] == pytest.approx(0.5**size)


def test_count_of_many_uncertain_facts_is_polynomial():
    n = 40
    chances = np.random.default_rng(1).random(n)
    db = dv.Program("type p(i32)\nrel c(n) = n := count(x: p(x))\nquery c").run(
        facts={"p": dv.independent(range(n), chances)}, provenance="exact"
    )
    expected = np.array([1.0])
    for p in chances:
        expected = np.convolve(expected, [1 - p, p])
    np.testing.assert_allclose([db["c"][i] for i in range(n + 1)], expected, atol=1e-12)


def test_discrete_count_ignores_tags():
    db = dv.Program("type p(i32)\nrel c(n) = n := count!(x: p(x))\nquery c").run(
        facts={"p": [(0.5, (1,)), (0.5, (2,))]}, provenance="exact"
    )
    assert dict(db["c"].items()) == {(2,): 1.0}


def test_a_tuple_that_derives_itself():
    db = dv.Program("type q(i32)\nrel p(x) = q(x) or p(x)").run(facts={"q": [(0.25, (1,))]}, provenance="exact")
    assert db["p"][1] == pytest.approx(0.25)


@pytest.mark.parametrize("size", [50, 5000])
def test_a_long_chain_is_one_conjunction(size):
    text = f"type edge(u32, u32)\nrel reach(0)\nrel reach(y) = reach(x), edge(x, y)\nquery reach({size})"
    edges = [(i, i + 1) for i in range(size)]
    db = dv.Program(text).run(facts={"edge": dv.independent(edges, [0.999] * size)}, provenance="exact")
    assert db[f"reach({size})"][size] == pytest.approx(0.999**size)


def test_tables_that_are_too_large_are_not_made_again_of_the_unrolled_graph(calls_of, monkeypatch):
    from derivable.circuit.compilation import compile_graph as graph_compiler

    text = "rel joined(a, b) = e(a, b) or e(b, a)  rel path(b) = joined(0, b) or (path(a), joined(a, b))  query path(8)"
    cells = range(9)
    pairs = [(c, c + 1) for c in cells if c % 3 < 2] + [(c, c + 3) for c in range(6)] + [(0, 4), (4, 8), (2, 4), (4, 6)]
    facts = {"e": [(0.5, pair) for pair in pairs]}

    def answer() -> float:
        return dv.Program(text).run(facts, provenance="exact")["path(8)"][(8,)]

    expected = answer()
    monkeypatch.setattr(graph_compiler, "HOPED", 1)
    tables = calls_of(graph_compiler, "compile_graph")
    assert answer() == pytest.approx(expected, rel=1e-12)
    assert len(tables) == 1


def test_how_a_program_is_compiled():
    """Sizes, who compiled it, and what each way costs: nothing to prove, some of it, and a network of width 1."""
    certain = dv.Program("rel e = {(1, 2)} query e").explain("compilation")
    assert "over 0 random facts" in certain
    assert "compiled by proof\n" in certain
    alarm = "rel 0.1::b() rel 0.2::e() rel 0.9::al() = b() rel 0.3::al() = e() evidence al() query b query e"
    some = dv.Program(alarm).explain("compilation")
    assert "2 rows of outputs, 1 items of evidence: " in some
    assert "over 4 random facts" in some
    assert "compiled by proof and sdd\n" in some
    assert "elimination  width 2, " in some
    text = """
        rel 0.5::edge(x, y) = next(x, y)
        rel linked(x, y) = edge(x, y) or edge(y, x)
        rel goal(0)
        rel goal(y) = goal(x), linked(x, y)
        query goal(15)
    """
    cells = [(4 * row + column) for row in range(4) for column in range(4)]
    steps = [(c, c + 1) for c in cells if c % 4 < 3] + [(c, c + 4) for c in cells if c < 12]
    grid = dv.Program(text).explain("compilation", {"next": steps})
    assert "over 24 random facts" in grid
    assert "compiled by elimination, cycles by states of a frontier\n" in grid
    assert "sdd          not known before" in grid
