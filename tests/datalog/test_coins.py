"""Rules with probabilities: a coin for each ground instance, in every provenance and on every way to a result."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog import tagged
from datalog.naive import splits
from datalog.test_fused import on_threads
from datalog.worlds import worlds
from derivable.datalog.exact.exact import compile_exact
from drawn import examples

# Program -> what `exact` gives, by counting worlds by hand, as in the reports of Scallop and ProbLog.
EXACT = {
    "a variable that the head has not": ("rel e = {(1, 2), (1, 3)} rel 0.3::h(x) = e(x, y)", {"h": {(1,): 0.51}}),
    "a wildcard": ("rel e = {(1, 2), (1, 3)} rel 0.3::h(x) = e(x, _)", {"h": {(1,): 0.51}}),
    "rows are independent": ("rel p = {1, 2} rel 0.3::h(x) = p(x) rel both() = h(1), h(2)", {"both": {(): 0.09}}),
    "a nullary head": ("rel p = {1, 2} rel 0.3::h() = p(x)", {"h": {(): 0.51}}),
    "a rule without variables is one coin": (
        "rel p = {1, 2} rel 0.3::h() = p(1), p(2) rel twice() = h(), h()",
        {"h": {(): 0.3}, "twice": {(): 0.3}},
    ),
    "a computed tag": (
        "rel p = {(1, 0.5), (2, 0.5)} rel q::h(x) = p(x, q) rel both() = h(1), h(2)",
        {"both": {(): 0.25}},
    ),
    "computed tags that differ": (
        "rel p = {(1, 0.5), (2, 0.4)} rel q::h(x) = p(x, q) rel both() = h(1), h(2)",
        {"both": {(): 0.2}},
    ),
    "disjuncts are rules": ("rel a = {1} rel b = {1} rel 0.3::p(x) = a(x) or b(x)", {"p": {(1,): 0.51}}),
    "disjuncts inside a conjunction": (
        "rel a = {1} rel b = {1} rel c = {(1, 1), (1, 2)} rel 0.3::p(x) = (a(x) or b(x)) and c(x, _)",
        {"p": {(1,): 1 - 0.7**4}},
    ),
    "a recursion": (
        "rel e = {0.3::(1, 2), 0.5::(2, 2)} rel p(x, y) = e(x, y) rel 0.5::p(x, y) = p(x, z), e(z, y)"
        " rel 0.5::once(x, y) = e(x, y)",
        {"p": {(1, 2): 0.3, (2, 2): 0.5}, "once": {(1, 2): 0.15, (2, 2): 0.25}},
    ),
    "a count": (
        "rel a = {1, 2} rel 0.3::p(x) = a(x) rel n(k) = k := count(x: p(x))",
        {"n": {(0,): 0.49, (1,): 0.42, (2,): 0.09}},
    ),
    "variables inside an aggregate are not the rule's": (
        "rel e = {(1, 2), (1, 3), (2, 4)} rel 0.3::p(x, n) = n := count(y: e(x, y)) rel some() = p(1, _), p(2, _)",
        {"p": {(1, 2): 0.3, (2, 1): 0.3}, "some": {(): 0.09}},
    ),
    "the result of an aggregate is one": (
        "rel e = {0.5::(1, 2), (1, 3)} rel 0.3::p(x) = n := count(y: e(x, y)), x == 1",
        {"p": {(1,): 0.3}},
    ),
    "variables of a quantifier are not": (
        "rel a = {1} rel e = {(1, 2), (1, 3)} rel 0.3::p(x) = a(x), exists(y: e(x, y))"
        " rel 0.3::q(x) = a(x), not e(2, _)",
        {"p": {(1,): 0.3}, "q": {(1,): 0.3}},
    ),
    "variables under a negation are not": (
        "rel a = {1} rel e = {0.5::(1, 2), 0.5::(1, 3)} rel 0.3::p(x) = a(x), not e(x, y)",
        {"p": {(1,): 0.075}},
    ),
    "what an equation defines adds nothing": (
        "rel a = {1, 2} rel 0.3::p() = a(x), y == x * 2, z == x + y",
        {"p": {(): 0.51}},
    ),
    "a range": ("rel a = {3} rel 0.3::p() = a(x), y in 0..x", {"p": {(): 1 - 0.7**3}}),
    "a foreign predicate": ('rel a = {"ab"} rel 0.3::p() = a(x), string_chars(x, _, _)', {"p": {(): 0.51}}),
    "heads of one instance share its coin": (
        "rel a = {1, 2} rel 0.3::{p(x), q(x)} = a(x) rel same(x) = p(x), q(x) rel two() = p(1), q(2)",
        {"same": {(1,): 0.3, (2,): 0.3}, "two": {(): 0.09}},
    ),
    "a rule that is written twice throws twice": (
        "rel a = {1} rel 0.3::p(x) = a(x) rel 0.3::p(x) = a(x)",
        {"p": {(1,): 0.51}},
    ),
    "a fact with an expression": ("rel 0.3::p(1 + 1) rel 0.5::p(2)", {"p": {(2,): 0.65}}),
    "terms taken apart": (
        "type T = A(i32) | B(T, T) const X = B(A(1), A(2)) rel t(X)"
        " rel 0.3::p() = t(B(A(x), _)) rel 0.3::q() = case _ is A(_)",
        {"p": {(): 0.3}, "q": {(): 0.51}},
    ),
    "choices of exclusive heads": (
        "rel a = {1} rel 0.5::{on(x); off(x)} = a(x)",
        {"on": {(1,): 0.25}, "off": {(1,): 0.25}},
    ),
    "tags that a recursion computes": (
        "rel r(0, 1.0) rel (1.0 / d)::r(y, d + 1.0) = r(x, d), e(x, y) rel e = {(0, 1), (1, 2), (2, 3)}",
        {"r": {(0, 1.0): 1.0, (1, 2.0): 1.0, (2, 3.0): 0.5, (3, 4.0): 1 / 6}},
    ),
}


@pytest.mark.parametrize(("text", "expected"), EXACT.values(), ids=EXACT)
@pytest.mark.parametrize("provenance", ["exact", "topkproofs"])
def test_coins_by_hand(text, expected, provenance):
    program = dv.Program(text)
    db = program.run(provenance=provenance, k=1000)
    for name, rows in expected.items():
        assert dict(db[name].items()) == pytest.approx(rows), name
    if "not " not in text and "count" not in text:
        # Tags that are ignored keep all rows that some world has.
        plain = program.run(provenance="unit")
        assert all(set(plain[name]) == set(rows) for name, rows in expected.items())


SMOKERS = """
rel person = {1, 2, 3, 4}
rel friend = {(1, 2), (2, 1), (2, 4), (3, 2), (4, 2)}
rel 0.3::stress(x) = person(x)
rel 0.2::influences(x, y) = person(x), person(y)
rel smokes(x) = stress(x)
rel smokes(x) = friend(x, y), influences(y, x), smokes(y)
rel 0.4::asthma(x) = smokes(x)
"""
PROBLOG = {
    "smokers": (
        SMOKERS,
        """
        person(1). person(2). person(3). person(4).
        friend(1,2). friend(2,1). friend(2,4). friend(3,2). friend(4,2).
        0.3::stress(X) :- person(X).
        0.2::influences(X,Y) :- person(X), person(Y).
        smokes(X) :- stress(X).
        smokes(X) :- friend(X,Y), influences(Y,X), smokes(Y).
        0.4::asthma(X) :- smokes(X).
        query(smokes(_)). query(asthma(_)).
        """,
    ),
    "a recursion with wildcards": (
        """
        rel e = {0.3::(1, 2), 0.6::(2, 2), 0.2::(2, 3), (3, 1)}
        rel p(x, y) = e(x, y)
        rel 0.5::p(x, y) = p(x, z), e(z, y)
        rel 0.7::q(x) = p(x, _), not e(x, 3)
        """,
        """
        0.3::e(1,2). 0.6::e(2,2). 0.2::e(2,3). e(3,1).
        p(X,Y) :- e(X,Y).
        0.5::p(X,Y) :- p(X,Z), e(Z,Y).
        0.7::q(X) :- p(X,_), \\+ e(X,3).
        query(p(_,_)). query(q(_)).
        """,
    ),
    "tags that are computed": (
        """
        rel e = {(1, 2, 0.5), (2, 3, 0.25), (1, 3, 0.125), (3, 1, 0.5)}
        rel r(1)
        rel (w * 0.5)::r(y) = r(x), e(x, y, w)
        rel w::s(y) = e(_, y, w), not r(y)
        """,
        """
        e(1,2,0.5). e(2,3,0.25). e(1,3,0.125). e(3,1,0.5).
        r(1).
        P::r(Y) :- r(X), e(X,Y,W), P is W * 0.5.
        W::s(Y) :- e(_,Y,W), \\+ r(Y).
        query(r(_)). query(s(_)).
        """,
    ),
}


def problog(text):
    from problog import get_evaluatable
    from problog.program import PrologString

    answers = get_evaluatable().create_from(PrologString(text)).evaluate()
    return {(str(term.functor), tuple(int(a) for a in term.args)): p for term, p in answers.items()}


@pytest.mark.parametrize(("text", "prolog"), PROBLOG.values(), ids=PROBLOG)
def test_agreement_with_problog(text, prolog):
    expected = problog(prolog)
    program = dv.Program(text)
    for provenance in ("exact", "topkproofs"):
        db = program.run(provenance=provenance, k=1000)
        for (name, row), probability in expected.items():
            assert db[name].get(row, 0.0) == pytest.approx(probability), (provenance, name, row)


def test_smokers():
    # Of ProbLog's home page: who has one friend with stress, 1 - 0.7 (1 - 0.2 * 0.3).
    people = {"person": [1, 2, 3, 4], "friend": [(1, 2), (1, 3), (1, 4), (3, 2)]}
    rules = "\n".join(row for row in SMOKERS.split("\n") if "= {" not in row)
    assert dv.Program(rules).run(facts=people, provenance="exact")["smokes"][3] == pytest.approx(0.342)


CHANCE = st.sampled_from([0.25, 0.5, 0.9])
EDGE = st.tuples(st.integers(0, 3), st.integers(0, 3))


@st.composite
def some_facts(draw):
    """(certain facts, independent facts) for e and u, few of them."""
    certain, independent = {"e": [], "u": [(draw(st.integers(0, 3)),)]}, []
    for place, edge in enumerate(draw(st.lists(EDGE, min_size=2, max_size=3, unique=True))):
        if place and draw(st.integers(0, 2)):
            certain["e"].append(edge)
        else:
            independent.append(("e", edge, draw(CHANCE)))
    return certain, independent


def counted(found):
    """What the program's last lines count."""
    return {"n0": {(len(found["p0"]),)}, "some": {()} if found["p0"] else set()}


COUNTED = {1: ("rel n0(k) = k := count(x: p0(x))", "rel some() = p0(_)")}
COUNTED[2] = tuple(row.replace("x: p0(x)", "x, y: p0(x, y)").replace("p0(_)", "p0(_, _)") for row in COUNTED[1])


def width(rules):
    return next(len(arguments) for head, arguments, _, _ in rules if head == "p0")


def expected_of(program, facts):
    rules, order = program
    certain, independent = facts

    def with_certain():
        for probability, drawn in worlds(independent):
            yield probability, {name: [*certain[name], *drawn.get(name, ())] for name in certain}

    return tagged.probabilities(rules, order, with_certain(), counted)


def given_facts(facts):
    certain, independent = facts
    made = {name: list(rows) for name, rows in certain.items()}
    for relation, row, p in independent:
        made[relation].append((p, row))
    return made


def same(db, expected, names=None):
    for name in names or db:
        rows = dict(db[name].items())
        for row in rows.keys() | {row for relation, row in expected if relation == name}:
            assert rows.get(row, 0.0) == pytest.approx(expected.get((name, row), 0.0), abs=1e-9), (name, row)


@examples(20, 300, tagged.tagged_programs(), some_facts())
def test_random_programs_agree_with_worlds_of_coins(program, facts):
    rules, _ = program
    expected = expected_of(program, facts)
    text = tagged.text_of(rules, COUNTED[width(rules)])
    made = dv.Program(text)
    same(made.run(given_facts(facts), "exact"), expected)
    same(made.run(given_facts(facts), "topkproofs", k=10_000), expected)


@examples(12, 150, tagged.tagged_programs(), some_facts(), st.data())
def test_demand_throws_the_same_coins(program, facts, data):
    rules, order = program
    expected = expected_of(program, facts)
    name = order[-1]
    number = next(len(arguments) for head, arguments, _, _ in rules if head == name)
    value = data.draw(st.integers(0, 3))
    shown = f"{name}({', '.join([str(value), *'yz'[: number - 1]])})"
    wanted = {(shown, row): p for (relation, row), p in expected.items() if relation == name and row[0] == value}
    for provenance in ("exact", "topkproofs"):
        for narrow in (True, False):
            made = dv.Program(tagged.text_of(rules, [f"query {shown}"]), narrow=narrow)
            same(made.run(given_facts(facts), provenance, k=10_000), wanted)


@examples(12, 150, tagged.tagged_programs(), some_facts(), st.data())
def test_more_facts_throw_no_coin_twice(program, facts, data):
    rules, order = program
    expected = expected_of(program, facts)
    certain, independent = facts
    parts = data.draw(splits(certain, 3))
    made = dv.Program(tagged.text_of(rules, COUNTED[width(rules)]))
    for provenance in ("exact", "topkproofs"):
        first, *rest = parts
        db = made.run(
            {**first, "e": [*first.get("e", ()), *((p, row) for _, row, p in independent)]},
            provenance,
            k=10_000,
            keep=True,
        )
        # A branch goes its own way from the same coins.
        for branch in (db.fork(), db):
            for part in rest:
                branch.add(part)
            same(branch, expected, [*order, "n0", "some"])


@examples(25, 200, tagged.tagged_programs(), some_facts())
def test_best_derivations_agree_with_the_naive_evaluator(program, facts):
    rules, order = program
    certain, independent = facts
    tags = {(name, row): 1.0 for name, rows in certain.items() for row in rows}
    tags.update(((relation, row), p) for relation, row, p in independent)
    expected = tagged.godel(rules, order, tags)
    same(dv.Program(tagged.text_of(rules)).run(given_facts(facts), "minmaxprob"), expected, order)


@examples(8, 100, tagged.tagged_programs(), some_facts())
def test_compiled_programs_agree_with_worlds_of_coins(program, facts):
    rules, order = program
    certain, independent = facts
    expected = expected_of(program, facts)
    wanted = {name: sorted(row for relation, row in expected if relation == name) for name in order}
    if not independent or not any(wanted.values()):
        return
    text = tagged.text_of(rules).replace("u(i32)", "u(i32), f(i32, i32)") + "\nrel e(x, y) = f(x, y)"
    inputs = {"f": dv.independent([row for _, row, _ in independent])}
    query = compile_exact(dv.Program(text), inputs, wanted, certain)
    chances = [expected[name, row] for name in order for row in wanted[name]]
    np.testing.assert_allclose(query.probabilities(f=np.array([p for _, _, p in independent])), chances, atol=1e-9)


LAYER = "rel 0.3::h(x) = e(x, _) rel 0.5::both() = h(1), h(2)"
FORMULAS = {
    "exact": lambda p, either: (either(0.3 * p[0], 0.3 * p[1]), 0.3 * p[2]),
    "topkproofs": lambda p, either: (either(0.3 * p[0], 0.3 * p[1]), 0.3 * p[2]),
    "addmultprob": lambda p, either: (0.3 * p[0] + 0.3 * p[1], 0.3 * p[2]),
    "max_product": lambda p, either: (0.3 * p[0].maximum(p[1]), 0.3 * p[2]),
}


@pytest.mark.parametrize("provenance", FORMULAS)
def test_gradients_of_layers_are_those_of_the_formula(provenance):
    torch = pytest.importorskip("torch")
    layer = dv.nn.Logic(
        LAYER,
        inputs={"e": dv.independent([(1, 2), (1, 3), (2, 2)])},
        outputs={"h": [1, 2], "both": [()]},
        provenance=provenance,
        k=16,
    )
    p = torch.tensor([0.2, 0.9, 0.6], dtype=torch.float64, requires_grad=True)
    one, two = FORMULAS[provenance](p, lambda a, b: a + b - a * b)
    wanted = torch.stack([one, two, 0.5 * one * two])
    found = layer(e=p)
    found = torch.cat([found["h"], found["both"].reshape(1)])
    torch.testing.assert_close(found, wanted)
    for row in range(3):
        (a,) = torch.autograd.grad(found[row], p, retain_graph=True)
        (b,) = torch.autograd.grad(wanted[row], p, retain_graph=True)
        torch.testing.assert_close(a, b)


def test_the_strongest_derivation_is_bounded_by_the_rule():
    db = dv.Program("rel e = {0.2::(1, 2), 0.9::(1, 3), 0.1::(2, 2)} rel 0.3::h(x) = e(x, _)").run(None, "minmaxprob")
    assert dict(db["h"].items()) == {(1,): 0.3, (2,): 0.1}


def test_sums_count_each_instance():
    text = "rel e = {0.2::(1, 2), 0.9::(1, 3), 0.1::(2, 2)} rel 0.3::h(x) = e(x, _) rel both() = h(1), h(2)"
    db = dv.Program(text).run(provenance="addmultprob")
    assert dict(db["h"].items()) == pytest.approx({(1,): 0.33, (2,): 0.03})
    assert db["both"][()] == pytest.approx(0.33 * 0.03)
    # How many derivations there are does not depend on what rules weigh.
    assert dict(dv.Program(text).run(provenance="counting")["h"].items()) == {(1,): 2, (2,): 1}
    assert dict(dv.Program(text).run(provenance="unit")["h"].items()) == {(1,): True, (2,): True}


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "addmultprob", "minmaxprob"])
@pytest.mark.parametrize("threads", [1, 2])
def test_many_instances(provenance, threads):
    """So many rows that kernels run, and tables have sets; each row throws a coin, and only one."""
    number = 6 if provenance == "topkproofs" else 100
    rows = np.array([(x, y) for x in range(6000 // number * 12) for y in range(number)])
    edges = np.stack([np.arange(7), np.arange(1, 8)], 1)
    text = """type e(i32, i32), f(i32, i32)
        rel 0.01::h(x) = e(x, y), z == y + 1, z >= 0
        rel p(x, y) = f(x, y)
        rel 0.5::p(x, z) = p(x, y), f(y, z)
        query h
        query p"""
    with on_threads(threads):
        db = dv.Program(text).run({"e": rows, "f": edges}, provenance, k=number)
    value = {"addmultprob": 0.01 * number, "minmaxprob": 0.01}.get(provenance, 1 - 0.99**number)
    np.testing.assert_allclose(np.array(db["h"].tags, float), value, rtol=1e-9)
    assert len(db["h"]) == len(rows) // number
    chain = {(x, y): 0.5 if provenance == "minmaxprob" and y > x + 1 else 0.5 ** (y - x - 1) for x, y in db["p"]}
    assert dict(db["p"].items()) == pytest.approx(chain)


def test_what_explain_shows():
    program = dv.Program("rel e = {(1, 2), (1, 3)} rel 0.3::h(x) = e(x, _)")
    for stage in ("desugar", "optimise", "demand", "strata"):
        assert "rule h(x) :- e(x, '1), 0.3::#coin_1(x, '1)".removeprefix("rule ") in program.explain(stage), stage
    assert "coin 0.3::#coin_1(x, '1)" in program.explain("ram")
    assert "coin 0.3::#coin_1(x, '1)" in program.explain("plan", provenance="exact")
    assert "coin 0.3::#coin_1(x, '1)" in program.explain("apm")
    # Without tags nothing tells the instances apart.
    assert "coin" not in program.explain("plan", provenance="unit")
    assert "scan e(x, _)" in program.explain("plan", provenance="unit")


@pytest.mark.parametrize("query", ["", "query far(0, y)"])
def test_lengths_of_rules_add_up(query):
    """Shortest ways: the number of a rule is a value of `min_plus`, of each instance anew."""
    graph = nx.gnp_random_graph(12, 0.25, seed=3, directed=True)
    random = np.random.default_rng(0)
    rows = [(a, b, float(w)) for (a, b), w in zip(graph.edges, random.integers(1, 9, graph.number_of_edges()))]
    graph.add_weighted_edges_from(rows)
    text = f"type e(i32, i32, f64) rel w::far(x, y) = e(x, y, w) rel w::far(x, z) = far(x, y), e(y, z, w) {query}"
    db = dv.Program(text).run({"e": rows}, "min_plus")
    found = dict(db["far(0, y)" if query else "far"].items())
    for a in [0] if query else graph:
        lengths = nx.single_source_dijkstra_path_length(graph, a)
        expected = {(a, b): length for b, length in lengths.items() if b != a}
        assert {row: tag for row, tag in found.items() if row[0] == a != row[1]} == expected


def test_facts_that_come_later_find_the_coins_of_earlier_ones():
    program = dv.Program("type e(i32, i32) rel 0.3::h(x) = e(x, _) rel both() = h(1), h(2)")
    for provenance in ("exact", "topkproofs", "addmultprob", "minmaxprob"):
        db = program.run({"e": [(1, 2), (2, 2)]}, provenance, keep=True)
        for rows in ([(1, 3)], [(1, 3), (1, 2)], [(2, 2)]):
            db.add({"e": rows})
        whole = program.run({"e": [(1, 2), (2, 2), (1, 3)]}, provenance)
        for name in ("h", "both"):
            assert dict(db[name].items()) == pytest.approx(dict(whole[name].items())), (provenance, name)
