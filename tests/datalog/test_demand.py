"""Demand changes no result: with and without it, in every provenance, and it ends what nothing else ends."""

import warnings

import pytest
from hypothesis import assume
from hypothesis import strategies as st

import derivable as dv
from datalog.programs import inputs, questions, sources
from derivable.core.diagnostics import BindingError
from derivable.datalog.desugar import desugar
from derivable.datalog.ram.check import check_ram
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.ram.lower import lower
from derivable.datalog.rules.check import check_rules
from derivable.datalog.rules.demand import demand
from derivable.datalog.rules.strata import check_strata, stratify
from derivable.datalog.syntax.parse import parse
from derivable.datalog.types import infer
from drawn import examples


def core(text):
    return desugar(infer(parse(text)))


@st.composite
def declared(draw, source):
    """Queries, and patterns for some of the derived relations that every use can bind."""
    patterns = {}
    for name in source.derived:
        pattern = "".join(draw(st.sampled_from("bf")) for _ in source.relations[name])
        if "b" in pattern and draw(st.integers(0, 2)):
            patterns[name] = pattern
    asked = draw(questions(source, patterns))
    while True:
        text = source.text(asked, patterns)
        found = demand(core(text))
        if found.idle:
            del patterns[found.idle[0].literal.relation]
            continue
        # Without the rules that nothing needs, a relation that was computed whole may be demanded, and not by all.
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            dv.Program(text)
        assume(not any(issubclass(warning.category, dv.DerivableWarning) for warning in given))
        assume(found.first is not None)
        return asked, patterns


@examples(50, 100, st.data(), sources(), inputs())
def test_questions_make_demand_and_change_nothing(data, source, facts):
    text = source.text(data.draw(questions(source)))
    narrow = interpret(lower(stratify(demand(core(text)).rules)), facts)
    whole = interpret(lower(stratify(demand(core(text), automatic=False).rules)), facts)
    for query in core(text).queries:
        assert narrow[query.output] == whole[query.output]


@examples(15, 100, st.data(), sources(), inputs())
def test_declared_demand_changes_nothing_that_is_asked(data, source, facts):
    asked, patterns = data.draw(declared(source))
    text = source.text(asked, patterns)
    found = demand(core(text))
    for rules in (found.rules, found.then, *([found.first] if found.first else [])):
        check_rules(rules)
        strata = stratify(rules)
        check_strata(strata)
        check_ram(lower(strata))
    program = dv.Program(text)
    without = interpret(lower(stratify(core(source.text(asked)))), facts)
    results = [
        interpret(lower(stratify(found.rules)), facts),
        interpret(program.lowered(), facts),
        {name: set(rows) for name, rows in program.run(facts=facts).items()},
    ]
    for query in program.run(facts=facts):
        for result in results:
            if query in patterns:
                assert result[query] <= without[query]
            else:
                assert result[query] == without[query], query


PROVENANCES = ["exact", "topkproofs", "addmultprob", "minmaxprob", "counting", "real"]


@st.composite
def random_facts(draw):
    """Facts of which some have probabilities, few enough for exact inference."""
    return {
        name: [(draw(st.sampled_from([0.25, 0.5, 1.0])), row) if draw(st.booleans()) else row for row in rows]
        for name, rows in draw(inputs(max_rows=4)).items()
    }


def tags(text, facts, provenance, narrow):
    """Relation -> tuple -> tag, or the class of the refusal."""
    try:
        db = dv.Program(text, narrow=narrow).run(facts=facts, provenance=provenance)
    except dv.DerivableError as error:
        return type(error)
    return {name: dict(rows.items()) for name, rows in db.items()}


def assert_same_tags(left, right, but=()):
    if isinstance(left, type) or isinstance(right, type):
        assert left == right or not isinstance(left, type)
        return
    for name in set(left) - set(but):
        assert left[name] == pytest.approx(right[name], abs=1e-9), name


@examples(30, 60, st.data(), sources(max_relations=3, max_rules=2), random_facts(), st.sampled_from(PROVENANCES))
def test_tags_do_not_depend_on_demand(data, source, facts, provenance):
    text = source.text(data.draw(questions(source)))
    assert_same_tags(tags(text, facts, provenance, True), tags(text, facts, provenance, False))


@examples(30, 60, st.data(), sources(max_relations=3, max_rules=2), random_facts(), st.sampled_from(PROVENANCES))
def test_tags_do_not_depend_on_declared_demand(data, source, facts, provenance):
    asked, patterns = data.draw(declared(source))
    assert_same_tags(
        tags(source.text(asked, patterns), facts, provenance, False),
        tags(source.text(asked), facts, provenance, False),
        but=patterns,
    )


# What does not end without demand, and its results.
ENDING = {
    "fib": (
        "type fib(bound n: i32, v: u64)\nrel fib = {(0, 1), (1, 1)}\n"
        "rel fib(x, a + b) = fib(x - 1, a), fib(x - 2, b), x > 1\nquery fib(60, v)",
        {"fib(60, v)": {(60, 2504730781961)}},
    ),
    "fib by an attribute of a rule": (
        '@demand("bf") rel fib(x, a + b) = fib(x - 1, a), fib(x - 2, b), x > 1\nrel fib = {(0, 1), (1, 1)}\n'
        "rel want = {3, 5}\nrel got(x, v) = want(x), fib(x, v)\nquery got",
        {"got": {(3, 3), (5, 8)}},
    ),
    "what only demand binds": (
        "type square(bound n: i32, v: i32)\nrel square(n, n * n) = n >= 0\nrel want = {-2, 3}\n"
        "rel got(v) = want(n), square(n, v)\nquery got",
        {"got": {(9,)}},
    ),
    "gcd": (
        "type gcd(bound a: i32, bound b: i32, g: i32)\nrel gcd(a, 0, a) = a >= 0\n"
        "rel gcd(a, b, g) = gcd(b, a % b, g), b != 0\nquery gcd(252, 105, g)",
        {"gcd(252, 105, g)": {(252, 105, 21)}},
    ),
    "ackermann": (
        "type ack(bound m: i32, bound n: i32, v: i32)\nrel ack(0, n, n + 1) = n >= 0\n"
        "rel ack(m, 0, v) = ack(m - 1, 1, v), m > 0\n"
        "rel ack(m, n, v) = ack(m, n - 1, w), ack(m - 1, w, v), m > 0, n > 0\nquery ack(2, 3, v)",
        {"ack(2, 3, v)": {(2, 3, 9)}},
    ),
    "collatz": (
        "type steps(bound n: i64, k: i64)\nrel steps(1, 0)\n"
        "rel steps(n, k + 1) = steps(if n % 2 == 0 then n / 2 else 3 * n + 1, k), n > 1\nquery steps(27, k)",
        {"steps(27, k)": {(27, 111)}},
    ),
    "a list as a text": (
        "type cons(l: i32, head: i32, tail: i32), nil(l: i32)\ntype show(bound l: i32, s: String)\n"
        'rel show(l, "") = nil(l)\nrel show(l, (h as String) + ";" + s) = cons(l, h, t), show(t, s)\n'
        "rel nil(0) rel cons = {(1, 7, 0), (2, 8, 1), (3, 9, 2), (4, 0, 4)}\nquery show(3, s)",
        {"show(3, s)": {(3, "9;8;7;")}},
    ),
    "an expression tree": (
        "type leaf(t: i32, v: i32), plus(t: i32, a: i32, b: i32)\ntype eval(bound t: i32, v: i32)\n"
        "rel eval(t, v) = leaf(t, v) or (plus(t, a, b), eval(a, x), eval(b, y), v == x + y)\n"
        "rel leaf = {(3, 10), (4, 20), (5, 30)} rel plus = {(1, 2, 3), (2, 4, 5), (9, 9, 3)}\nquery eval(1, v)",
        {"eval(1, v)": {(1, 60)}},
    ),
    "counted and negated": (
        "type down(bound n: i32, m: i32)\nrel down(n, n) = n >= 0\nrel down(n, m) = down(n - 1, m), n > 0\n"
        "rel want = {2, 5}\nrel size(n, c) = want(n), c := count(m: down(n, m))\n"
        "rel without(n, 3) = want(n), not down(n, 3)\nquery size\nquery without",
        {"size": {(2, 3), (5, 6)}, "without": {(2, 3)}},
    ),
    "for all": (
        "type divisor(bound n: i32, d: i32)\nrel divisor(n, d) = d in 2..n, n % d == 0\nrel want = {7, 9, 11}\n"
        "rel prime(n) = want(n), forall(d: divisor(n, d) implies d == 1)\nquery prime",
        {"prime": {(7,), (11,)}},
    ),
    "asked whole: what is asked elsewhere": (
        "type up(bound n: i32, m: i32)\nrel up(n, n + 1) = n < 3\nrel up(n, m) = up(n + 1, m), n < 3\n"
        "rel start(m) = up(1, m)\nquery up",
        {"up": {(1, 2), (1, 3), (2, 3)}},
    ),
    "two relations that ask each other": (
        "type even(bound n: i32), odd(bound n: i32)\nrel even(0)\nrel even(n) = odd(n - 1), n > 0\n"
        "rel odd(n) = even(n - 1), n > 0\nrel want = {6, 7}\nrel got(n) = want(n), even(n)\nquery got",
        {"got": {(6,)}},
    ),
    "a tail call": (
        "type loop(bound n: u64, bound acc: u64, v: u64)\nrel loop(0, a, a) = true\n"
        "rel loop(n, a, v) = loop(n - 1, a * n, v), n > 0\nquery loop(20, 1, v)",
        {"loop(20, 1, v)": {(20, 1, 2432902008176640000)}},
    ),
}


@pytest.mark.parametrize("name", ENDING)
@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "exact"])
def test_ends(name, provenance):
    text, expected = ENDING[name]
    db = dv.Program(text).run(provenance=provenance, time_limit=60)
    assert {relation: set(rows) for relation, rows in db.items()} == expected


@examples(
    30,
    60,
    st.data(),
    sources(max_relations=3, max_rules=2),
    random_facts(),
    random_facts(),
    st.sampled_from(PROVENANCES),
)
def test_added_facts_are_demanded(data, source, facts, more, provenance):
    asked, patterns = data.draw(declared(source))
    program = dv.Program(source.text(asked, patterns))
    more = {name: [row for row in rows if row not in facts[name]] for name, rows in more.items()}
    together = {name: rows + more[name] for name, rows in facts.items()}
    try:
        at_once = program.run(facts=together, provenance=provenance)
        database = program.run(facts=facts, provenance=provenance, keep=True)
        database.add(more)
    except dv.DerivableError:
        assume(False)
        return
    if provenance == "addmultprob":
        # Its values depend on the rounds in which tuples are found.
        assert {name: set(rows) for name, rows in at_once.items()} == {n: set(rows) for n, rows in database.items()}
        return
    everything = {name: dict(rows.items()) for name, rows in at_once.items()}
    assert_same_tags(everything, {name: dict(rows.items()) for name, rows in database.items()}, but=patterns)


CHOOSING = """
type square(bound n: i32, v: i32), offer(i32)
rel square(n, n * n) = n >= 0
rel offer = {0.3::1, 0.9::2, 0.6::3}
"""


@pytest.mark.parametrize("choice", ["x := top<1>(y: offer(y))", "x := unique(y: offer(y))"])
def test_what_weights_choose_is_asked(choice):
    """The demand is found before the weights are known."""
    db = dv.Program(f"{CHOOSING} rel got(v) = {choice}, square(x, v) query got").run(provenance="exact")
    assert dict(db["got"].items()) == pytest.approx({(4,): 0.9})


def test_what_weights_say_cannot_be_asked():
    rule = "rel got(v) = (n, y) := rank(y: offer(y)), square(n as i32, v) query got"
    with pytest.raises(BindingError, match="`square` cannot be computed on demand"):
        dv.Program(CHOOSING + rule)
    # It is computed whole where that is possible.
    bound = CHOOSING.replace("n >= 0", "n in 0..3")
    db = dv.Program(bound + rule).run(provenance="exact")
    assert dict(db["got"].items()) == pytest.approx({(0,): 0.9, (1,): 0.6, (4,): 0.3})


def test_questions_do_not_go_through_double_recursion():
    """The demand of `path(x, y), path(y, z)` goes through all paths: to compute them whole is much cheaper."""
    rules = "type e(i32, i32)\nrel p(x, y) = e(x, y) or (p(x, z) and {}(z, y))\nquery p(0, y)"
    assert demand(core(rules.format("p"))).first is None
    assert demand(core(rules.format("e"))).first is not None


QUERIES = {
    "S(a, (a * 2))": {(1, 2), (2, 4)},
    "S(a, a)": {(3, 3)},
    "S(_, 4)": {(2, 4)},
    "S(TWO, x)": {(2, 4)},
    "S((1 + 1), x)": {(2, 4)},
    "S(x, (2 * 2))": {(2, 4)},
    "S(a, b)": {(1, 2), (2, 4), (3, 3)},
    "S(9, b)": set(),
}


@pytest.mark.parametrize("narrow", [True, False])
def test_queries_of_atoms_are_named_by_their_text(narrow):
    """Constants, expressions, repeated variables and wildcards."""
    recursive = "rel S(x, y) = T(x, y) or (S(x, z), z > 5, T(z, y)) rel T = {(1, 2), (2, 4), (3, 3)} const TWO = 2"
    text = "\n".join([recursive, *(f"query {query}" for query in QUERIES)])
    db = dv.Program(text, narrow=narrow).run()
    assert {name: set(rows) for name, rows in db.items()} == QUERIES


# Rules of p: of exits, of recursion that hands its last columns through, and of some that does not or is not asked.
EXITS = [
    "p(x, y, z) = e(x, y), e(y, z)",
    "p(x, y, x) = e(x, y)",
    "p(x + 1, y, z) = e(x, y), e(y, z), x < 4",
    "p(0, y, z) = e(y, z)",
    "p(x, y, z) = u(x), e(y, z), not e(z, x)",
]
THROUGH = [
    "p(x, y, z) = e(x, w), p(w, y, z)",
    "p(x, y, z) = e(x, w), u(w), p(w, y, z)",
    "p(x, y, z) = p(w, y, z), e(w, x), not u(x)",
    "p(x, y, z) = p(0, y, z), u(x)",
    "p(x, y, z) = w in 0..x, p(w, y, z), e(x, w)",
]
OTHERS = [
    "p(x, y, z) = x == w - 1, p(w, y, z), u(w)",
    "p(2, y, z) = e(2, w), p(w, y, z)",
    "p(x, y, z) = p(x, w, z), e(w, y)",
    "p(x, y, z) = e(x, w), p(w, y, z), u(z)",
    "p(x, y, z) = e(x, w), p(w, z, y)",
    "p(x, y, z) = e(x, w), p(w, y, z), p(w, y, z)",
    "p(x, y, y) = e(x, w), p(w, y, y)",
]
USES = [
    "query p(1, y, z)",
    "query p(0, y, 2)",
    "rel q(y) = p(1, y, _)\nquery q",
    "rel n() = u(0), not p(2, 1, 0)\nquery n",
]
PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)


@examples(
    60,
    80,
    st.lists(st.sampled_from(EXITS), min_size=1, max_size=2),
    st.lists(st.sampled_from(THROUGH), min_size=1, max_size=2),
    st.lists(st.sampled_from(OTHERS), max_size=1),
    st.lists(st.sampled_from(USES), min_size=1, max_size=2, unique=True),
    PAIRS,
    st.lists(st.integers(0, 4), max_size=4),
    st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=3),
)
def test_recursion_that_is_flipped_has_the_same_answers(exits, through, others, uses, e, u, p):
    rules = "\n".join(f"rel {rule}" for rule in (*exits, *through, *others))
    text = "type e(i32, i32), u(i32), p(i32, i32, i32)\n" + rules + "\n" + "\n".join(uses)
    facts = {"e": e, "u": [(x,) for x in u], "p": p}
    found = demand(core(text))
    is_flipped = any(note.startswith("flip p b") for note in found.notes)
    # With all columns asked, every linear rule hands the rest through.
    assert is_flipped or others
    check_rules(found.rules)
    narrow = interpret(lower(stratify(found.rules)), facts)
    whole = interpret(lower(stratify(demand(core(text), automatic=False).rules)), facts)
    program = dv.Program(text)
    run = program.run(facts=facts)
    tagged = program.run(facts={**facts, "u": {(x,): 0.5 for x in u}}, provenance="minmaxprob")
    plain = dv.Program(text, narrow=False).run(facts={**facts, "u": {(x,): 0.5 for x in u}}, provenance="minmaxprob")
    for query in core(text).queries:
        assert narrow[query.output] == whole[query.output]
        assert set(run[query.output]) == whole[query.output]
        assert dict(tagged[query.output].items()) == dict(plain[query.output].items())


@pytest.mark.parametrize("rule", OTHERS)
def test_what_does_not_hand_its_answers_through_is_not_flipped(rule):
    text = f"type e(i32, i32), u(i32), p(i32, i32, i32)\nrel {EXITS[0]}\nrel {rule}\nquery p(1, y, z)"
    assert not any(note.startswith("flip") for note in demand(core(text)).notes)


def test_flipped_recursion_is_linear():
    # A chain: with the answers of all that is reached, 4.5 million tuples.
    text = "type edge(i32, i32)\nrel path(x, z) = edge(x, z) or (edge(x, y) and path(y, z))\nquery path(0, z)"
    program = dv.Program(text)
    db = program.run({"edge": [(i, i + 1) for i in range(3000)]}, tuple_limit=30_000, keep=True)
    assert len(db["path(0, z)"]) == 3000
    db.add({"edge": [(3000, 3001), (50, 9000)]})
    assert len(db["path(0, z)"]) == 3002


def test_what_leads_to_something_else_on_demand_is_not_flipped():
    text = """
        type edge(i32, i32), leaf(i32, i32)
        rel up(x, y) = edge(x, y) or (up(x, z) and edge(z, y))
        rel path(x, y) = leaf(x, y) or (up(x, z) and leaf(z, w) and path(w, y))
        query path(1, y)
    """
    assert not any(note.startswith("flip") for note in demand(core(text)).notes)


def test_a_negation_is_demanded_for_a_variable_that_an_equation_behind_it_binds():
    text = """rel e = {(0, 0), (2, 2), (1, 0)}
    rel p(x, x) = p(x, x), e(x, _)
    rel p(x, x) = e(x, x)
    rel q(y) = not p(x, x), e(x - 2, y)
    query q(0)"""
    assert set(dv.Program(text).run()["q(0)"]) == {(0,)}


def test_a_flipped_recursion_whose_exit_has_an_expression_in_its_head():
    text = """rel e = {(0, 2), (1, 0)}
    rel p(x, y, z) = e(x, w), p(w, y, z)
    rel p(x + 1, y, z) = e(x, y), e(y, z), x < 4
    query p(1, y, z)"""
    program = dv.Program(text)
    assert "flip p" in program.explain("demand")
    assert set(program.run()["p(1, y, z)"]) == {(1, 0, 2)}


def test_what_cannot_demand_anything_reads_what_is_demanded_elsewhere():
    """As in Scallop, which makes no demand where it cannot; a head over unsigned numbers ends too."""
    text = """@demand("bf") rel f(n, m) = e(n, m)
    rel e = {(1, 2), (1, 3), (2, 3)}
    rel g(m) = f(1, m)
    query f(n, 3)
    query g"""
    with pytest.warns(dv.DerivableWarning, match="the bound column 1 of `f`"):
        db = dv.Program(text).run()
    assert (set(db["f(n, 3)"]), set(db["g"])) == ({(1, 3)}, {(2,), (3,)})
    with pytest.warns(dv.DerivableWarning, match="the bound column `b` of `v`"):
        ended = dv.Program("type v(bound b: usize) rel v(3) rel v(b - 1) = v(b) rel r(x) = v(x), x == 0 query r").run(
            tuple_limit=100
        )
    assert not ended["r"]
