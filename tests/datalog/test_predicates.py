"""Foreign predicates in rules: against Python's own answers, and tagged ones against all worlds."""

import itertools
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.test_apm import run_apm
from datalog.test_fused import settings_of
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.ram.check import check_ram
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.rules.check import check_generator
from derivable.datalog.scalars.nodes import Const
from derivable.datalog.values.values import TYPES

TEXTS = st.text(st.sampled_from("ab,\u00e9\U0001f600"), max_size=7)


def models(text, facts):
    """Relation -> its rows, by the engine and, as a check, by the reference interpreter."""
    program = dv.Program(text)
    ram = program.lowered(facts)
    check_ram(ram)
    db, model = program.run(facts, "unit"), interpret(ram, facts)
    assert all(set(db[name]) == model[name] for name in db)
    return {name: model[name] for name in db}


def answers(text, relation, facts):
    return models(text, facts)[relation]


def test_all_of_them_are_there():
    wanted = "range float_eq soft_eq soft_neq soft_gt soft_lt string_chars string_index string_find string_split "
    wanted += "datetime_ymd tensor_shape new_tag_variable"
    assert len(wanted.split()) == 13
    assert set(wanted.split()) <= set(PREDICATES.names())


# Texts


def places(text, part):
    """Where a part begins and ends, in bytes, without overlaps."""
    raw, wanted, place = text.encode(), part.encode(), 0
    while (place := raw.find(wanted, place)) >= 0:
        if part or place == len(raw) or raw[place] & 0xC0 != 0x80:
            yield place, place + len(wanted)
        place += len(wanted) or 1


def split(text, by):
    if by:
        return text.split(by)
    return ["", *text, ""]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30))
def test_texts(rows):
    text = """type q(s: String, p: String)
    rel c(s, i, x) = q(s, _), string_chars(s, i, x)
    rel i(s, i) = q(s, _), string_index(s, i)
    rel f(s, p, b, e) = q(s, p), string_find(s, p, b, e)
    rel t(s, p, x) = q(s, p), string_split(s, p, x)
    rel none(s, p) = q(s, p), not string_find(s, p, _, _)
    rel at_first(s, p) = q(s, p), string_find(s, p, 0, _)
    rel twice(s) = q(s, _), string_chars(s, 0, x), string_chars(s, 1, x)
    rel last(s, i) = q(s, _), string_chars(s, i, _), not string_chars(s, i + 1, _)"""
    found = models(text, {"q": rows})
    assert found["c"] == {(s, i, x) for s, _ in rows for i, x in enumerate(s)}
    assert found["i"] == {(s, i) for s, _ in rows for i in range(len(s.encode()))}
    assert found["f"] == {(s, p, *place) for s, p in rows for place in places(s, p)}
    assert found["t"] == {(s, p, x) for s, p in rows for x in split(s, p)}
    assert found["none"] == {(s, p) for s, p in rows if p not in s}
    assert found["at_first"] == {(s, p) for s, p in rows if s.startswith(p)}
    assert found["twice"] == {(s,) for s, _ in rows if len(s) > 1 and s[0] == s[1]}
    assert found["last"] == {(s, len(s) - 1) for s, _ in rows if s}


# Ranges


@pytest.mark.parametrize("t", [t for t in TYPES.values() if t.is_integer and t.bits <= 64], ids=str)
def test_ranges_of_all_types(t):
    low, high = t.limits
    rows = [(low, low + 3), (high - 3, high), (0, 5), (5, 0), (7, 7), (high, high), (low, low)]
    text = f"""type q(a: {t}, b: {t}), w(x: {t})
    rel r(a, b, x) = q(a, b), range<{t}>(a, b, x)
    rel closed(a, b, x) = q(a, b), x in a..=b
    rel inside(a, b, x) = q(a, b), w(x), range(a, b, x)
    rel outside(a, b, x) = q(a, b), w(x), not range(a, b, x)
    rel some(a, b) = q(a, b), range(a, b, _)
    rel shifted(a, b, x) = q(a, b), x - 1 in a..b"""
    points = [low, low + 1, 0, 3, 5, high - 1, high]
    facts = {"q": rows, "w": [(x,) for x in points]}
    found = models(text, facts)
    assert found["r"] == {(a, b, x) for a, b in rows for x in range(a, b)}
    assert found["closed"] == {(a, b, x) for a, b in rows for x in range(a, b + 1)}
    assert found["inside"] == {(a, b, x) for a, b in rows for x in points if a <= x < b}
    assert found["outside"] == {(a, b, x) for a, b in rows for x in points if not a <= x < b}
    assert found["some"] == {(a, b) for a, b in rows if a < b}
    assert found["shifted"] == {(a, b, min(x + 1, high)) for a, b in rows for x in range(a, b)}


def test_ranges_in_kernels(monkeypatch, costs):
    costs(few_rows=1, many_rows=1)
    text = """type e(i32, i32), w(i32)
    rel r(x, z) = e(x, y), e(y, n), z in x..=n
    rel inside(x, z) = e(x, y), w(z), e(y, n), range(x, n, z)
    rel outside(x, z) = e(x, y), w(z), e(y, n), not range(x, n, z)"""
    e = [(i, (i * 5) % 9 - 2) for i in range(-4, 9)]
    joined = [(x, n) for x, y in e for a, n in e if a == y]
    db = dv.Program(text).run({"e": e, "w": list(range(-3, 8))})
    assert set(db["r"]) == {(x, z) for x, n in joined for z in range(x, n + 1)}
    assert set(db["inside"]) == {(x, z) for x, n in joined for z in range(-3, 8) if x <= z < n}
    assert set(db["outside"]) == {(x, z) for x, n in joined for z in range(-3, 8) if not x <= z < n}


def test_the_validators_know_signatures():
    program = dv.Program("type q(s: String)\nrel r(s, c) = q(s), string_chars(s, 0, c)")
    ram = program.lowered()
    store = ram.strata[-1].full[0]
    node = store.query.operators[-1]
    check_generator(node, "here")
    place, letter = node.types
    for changes, message in [
        ({"predicate": "string_runes"}, "no foreign predicate string_runes in `here`"),
        ({"inputs": ()}, "0 inputs and 2 outputs of string_chars in `here`"),
        ({"types": (place,)}, "1 inputs and 2 outputs"),
        ({"types": (letter, letter)}, "the types of `here` differ from string_chars"),
        ({"inputs": (Const(1, TYPES["i32"]),)}, "the types of `here` differ from string_chars"),
    ]:
        with pytest.raises(dv.DerivableError, match=re.escape(message)):
            check_generator(replace(node, **changes), "here")


def test_a_relation_hides_a_predicate():
    assert set(dv.Program("rel range = {(1, 2)}\nrel r(x) = range(x, _)").run()["r"]) == {(1,)}
    program = dv.Program("type string_index(String, i32)\nrel r(x) = string_index(x, _)")
    assert set(program.run({"string_index": [("own", 3)]})["r"]) == {("own",)}


def test_outputs_are_equations_and_quantifiers_bind_them():
    text = """rel word = {"aba", "abc", ""}
    rel same(w) = word(w), forall(c: string_chars(w, _, c) implies string_find("ab", $format("{}", c), _, _))
    rel length(w, n) = n := count(i: string_chars(w, i, _) where w: word(w))
    rel second(w, c) = word(w), string_chars(w, 3 - 2, c)
    rel any_of(w) = word(w), exists(i: string_chars(w, i, 'c'))"""
    db = dv.Program(text).run()
    assert set(db["same"]) == {("aba",), ("",)}
    assert set(db["length"]) == {("aba", 3), ("abc", 3), ("", 0)}
    assert set(db["second"]) == {("aba", "b"), ("abc", "b")}
    assert set(db["any_of"]) == {("abc",)}


# All routes

# A literal, and (the variables that it reads, those that it may bind, its answers in Python).
LITERALS = {
    "string_chars(s, {i}, {c})": (("s",), ("i", "c"), lambda s: enumerate(s)),
    "string_chars(p, {i}, {c})": (("p",), ("i", "c"), lambda p: enumerate(p)),
    "string_find(s, p, {b}, {i})": (("s", "p"), ("b", "i"), places),
    "string_split(s, p, {t})": (("s", "p"), ("t",), lambda s, p: ((x,) for x in split(s, p))),
    "string_index(p, {b})": (("p",), ("b",), lambda p: ((i,) for i in range(len(p.encode())))),
    "range(1, $string_length(s), {i})": (("s",), ("i",), lambda s: ((i,) for i in range(1, len(s.encode())))),
    "{b} in 0..=$string_length(p)": (("p",), ("b",), lambda p: ((i,) for i in range(len(p.encode()) + 1))),
}


def extended(world, outputs, answers):
    """The worlds in which a row of answers agrees with what is bound; None is a wildcard."""
    for answer in answers:
        found = dict(world)
        if all(name is None or found.setdefault(name, value) == value for name, value in zip(outputs, answer)):
            yield found


@st.composite
def bodies(draw):
    """(text, [(outputs, reads, answers, negated)], bound variables) of predicates over q(s, p)."""
    texts, literals, bound = [], [], {"s", "p"}
    for _ in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(sorted(LITERALS)))
        reads, names, answers = LITERALS[form]
        # Only an atom takes wildcards.
        outputs = [None if " in " not in form and draw(st.integers(0, 4)) == 0 else name for name in names]
        negated = draw(st.integers(0, 3)) == 0 and all(name is None or name in bound for name in outputs)
        shown = form.format(**{name: name if output else "_" for name, output in zip(names, outputs)})
        texts.append(f"not {shown}" if negated else shown)
        literals.append((outputs, reads, answers, negated))
        bound |= set() if negated else {name for name in outputs if name}
    return texts, literals, sorted(bound)


@settings(max_examples=40, deadline=None)
@given(
    bodies(), st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6, unique=True), st.randoms(use_true_random=False)
)
def test_all_routes_agree(body, rows, random):
    texts, literals, bound = body
    worlds = [{"s": s, "p": p} for s, p in rows]
    for outputs, reads, given_answers, negated in sorted(literals, key=lambda literal: literal[3]):
        made = [list(extended(w, outputs, given_answers(*(w[name] for name in reads)))) for w in worlds]
        worlds = [w for w, found in zip(worlds, made) if not found] if negated else list(itertools.chain(*made))
    expected = {tuple(world[name] for name in bound) for world in worlds}
    random.shuffle(texts)
    types = {"s": "String", "p": "String", "c": "char", "t": "String"}
    columns = ", ".join(f"{name}: {types.get(name, 'usize')}" for name in bound)
    text = f"type q(s: String, p: String), r({columns})\nrel r({', '.join(bound)}) = q(s, p), {', '.join(texts)}"
    facts = {"q": rows}
    assert answers(text, "r", facts) == expected
    program = dv.Program(text)
    assert set(run_apm(program, facts)[0]["r"]) == expected
    assert set(program.run(facts, "addmultprob")["r"]) == expected
    assert set(program.run(facts, "exact")["r"]) == expected
    with settings_of(0, 1, 1):
        assert set(program.run(facts, "unit")["r"]) == expected


# Soft comparisons


def logistic(x):
    return 1 / (1 + math.exp(-x))


SOFT = {
    "soft_gt": lambda a, b: logistic(a - b),
    "soft_lt": lambda a, b: logistic(b - a),
    "soft_eq": lambda a, b: 1 / math.cosh((a - b) / 2),
    "soft_neq": lambda a, b: 1 - 1 / math.cosh((a - b) / 2),
}


@pytest.mark.parametrize("name", SOFT)
@pytest.mark.parametrize("t", ["f32", "f64", "i32", "u8", "i64"])
def test_soft_comparisons(name, t):
    rows = [(1, 3), (3, 1), (2, 2), (0, 90), (90, 0)]
    program = dv.Program(f"type q(a: {t}, b: {t})\nrel r(a, b) = q(a, b), {name}<{t}>(a, b)\nquery r")
    db = program.run({"q": rows})
    assert db.provenance == "exact"
    expected = {row: SOFT[name](*row) for row in rows}
    for row, p in expected.items():
        assert db["r"].get(row, 0.0) == pytest.approx(p, rel=1e-6, abs=1e-30)
    for provenance in ("addmultprob", "minmaxprob", "topkproofs", "max_product"):
        found = program.run({"q": rows}, provenance)["r"]
        assert found[1, 3] == pytest.approx(expected[1, 3])
    assert "provenance exact" in program.explain("ram")


def test_float_eq():
    rows = [(1.0, 1.0005), (1.0, 1.01), (math.inf, math.inf), (-math.inf, math.inf), (2.0, 2.0)]
    found = answers("type q(f64, f64)\nrel r(a, b) = q(a, b), float_eq<f64>(a, b)", "r", {"q": rows})
    assert found == {(1.0, 1.0005), (math.inf, math.inf), (2.0, 2.0)}


WORLDS = """type v(x: f64), e(i32)
rel near(x, y) = v(x), v(y), x < y, soft_eq(x, y)
rel above(x, y) = v(x), v(y), x != y, soft_gt(x, y)
rel apart(x, y) = v(x), v(y), x < y, not soft_eq(x, y)
rel linked(x, y) = near(x, y) or near(y, x)
rel linked(x, z) = linked(x, y), linked(y, z)
rel both(x) = above(x, y), above(y, x)
rel top(x) = v(x), not above(y, x) and v(y)
rel top_of(x) = v(x), forall(y: v(y) and x != y implies above(x, y))
rel mixed(x) = e(1), above(x, _)
rel again(x, y) = v(x), v(y), x < y, soft_eq(x, y), near(x, y)
"""


def test_exact_provenance_against_all_worlds():
    """Each argument tuple of a soft predicate is one independent random fact, wherever it is asked for."""
    values, chance = [0.0, 0.5, 1.5], 0.3
    facts = {"v": [(x,) for x in values], "e": {(1,): chance}}
    text = WORLDS.replace("rel top(x) = v(x), not above(y, x) and v(y)\n", "")
    found = dv.Program(text).run(facts)
    events = [("eq", x, y) for x in values for y in values if x < y]
    events += [("gt", x, y) for x in values for y in values if x != y]
    events.append(("e", 1, 1))
    chances = [
        SOFT["soft_eq"](x, y) if k == "eq" else SOFT["soft_gt"](x, y) if k == "gt" else chance for k, x, y in events
    ]
    expected = {}
    for bits in itertools.product([0, 1], repeat=len(events)):
        p = math.prod(c if bit else 1 - c for c, bit in zip(chances, bits))
        true = {event for event, bit in zip(events, bits) if bit}
        near = {(x, y) for k, x, y in true if k == "eq"}
        above = {(x, y) for k, x, y in true if k == "gt"}
        linked = near | {(y, x) for x, y in near}
        for _ in values:
            linked |= {(x, z) for x, y in linked for a, z in linked if a == y}
        world = {
            "near": near,
            "above": above,
            "apart": {(x, y) for x in values for y in values if x < y} - near,
            "linked": linked,
            "both": {(x,) for x, y in above if (y, x) in above},
            "top_of": {(x,) for x in values if all((x, y) in above for y in values if x != y)},
            "mixed": {(x,) for x, _ in above if ("e", 1, 1) in true},
            "again": near,
        }
        for name, rows in world.items():
            for row in rows:
                expected[name, row] = expected.get((name, row), 0.0) + p
    for name in ["near", "above", "apart", "linked", "both", "top_of", "mixed", "again"]:
        got = {row: p for row, p in found[name].items() if p > 1e-15}
        assert got == pytest.approx({row: p for (n, row), p in expected.items() if n == name}), name


def test_facts_that_are_added_later_know_the_same_random_facts():
    text = """type v(f32)
    rel above(x, y) = v(x), v(y), x != y, soft_gt(x, y)
    rel both(x) = above(x, y), above(y, x)
    rel far(x) = v(x), not soft_eq(x, 2.0)"""
    program = dv.Program(text)
    for provenance in (None, "addmultprob"):
        db = program.run({"v": [1.0, 2.0]}, provenance, keep=True)
        db.add({"v": [3.0]})
        branch = db.fork()
        branch.add({"v": [4.0]})
        for found, values in ((db, [1.0, 2.0, 3.0]), (branch, [1.0, 2.0, 3.0, 4.0])):
            scratch = program.run({"v": values}, provenance)
            for name in ("above", "both", "far"):
                assert dict(found[name].items()) == pytest.approx(dict(scratch[name].items()))


def test_demand_goes_through_predicates():
    text = """type value(bound text: String, n: i32)
    rel value("", 0)
    rel value(s, 10 * n + d) = $string_length(s) > 0, k == $string_length(s) - 1, string_chars(s, k, c),
        t == $substring(s, 0, k), value(t, n), d == c as i32
    rel word = {"123", "40"}
    rel number(s, n) = word(s), value(s, n)
    query number"""
    assert set(dv.Program(text).run()["number"]) == {("123", 123), ("40", 40)}


def test_soft_predicates_in_layers():
    torch = pytest.importorskip("torch")
    text = "type d(i32)\nrel r(x) = d(x), soft_lt<i32>(x, 2)\nrel s(x) = d(x), not soft_lt<i32>(x, 2)"
    layer = dv.nn.Logic(text, {"d": dv.categorical([1, 3])}, {"r": [1, 3], "s": [1, 3]})
    p = torch.tensor([[0.25, 0.75]], requires_grad=True)
    found = layer(p)
    one, three = logistic(1), logistic(-1)
    assert found["r"][0].tolist() == pytest.approx([0.25 * one, 0.75 * three])
    assert found["s"][0].tolist() == pytest.approx([0.25 * (1 - one), 0.75 * (1 - three)])
    found["r"].sum().backward()
    assert p.grad[0].tolist() == pytest.approx([one, three])
