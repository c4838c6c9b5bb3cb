"""Well-known analyses in Soufflé's syntax, and FlowLog's, over random facts, against an evaluator of a few lines."""

import random
import re

import pytest

import derivable as dv

# Each rule is "head :- atom, atom, ..." of variables, numbers and `!=`.
PROGRAMS = {
    "tc": (
        "e/2",
        "tc(x, y) :- e(x, y). tc(x, z) :- tc(x, y), e(y, z).",
    ),
    "reach": ("e/2 s/1", "r(x) :- s(x). r(y) :- r(x), e(x, y)."),
    "sg": ("e/2", "sg(x, y) :- e(a, x), e(a, y), x != y. sg(x, y) :- e(a, x), sg(a, b), e(b, y)."),
    "bipartite": (
        "e/2 s/1",
        "zero(x) :- s(x). one(y) :- e(x, y), zero(x). one(x) :- e(x, y), zero(y). zero(y) :- e(x, y), one(x)."
        " zero(x) :- e(x, y), one(y). wrong(x) :- one(x), zero(x).",
    ),
    "dyck": (
        "a/3",
        "o(x, y) :- a(x, y, 0). c(x, y) :- a(x, y, 1). d(x, y) :- o(x, z), c(z, y)."
        " d(x, y) :- o(x, z), d(z, w), c(w, y). d(x, y) :- d(x, z), d(z, y).",
    ),
    "andersen": (
        "addressOf/2 assign/2 load/2 store/2",
        "pts(y, x) :- addressOf(y, x). pts(y, x) :- assign(y, z), pts(z, x)."
        " pts(y, w) :- load(y, x), pts(x, z), pts(z, w). pts(z, w) :- store(y, x), pts(y, z), pts(x, w).",
    ),
    "pointsto": (
        "alloc/2 move/2 load/3 store/3",
        "assign(a, b) :- move(a, b). alias(x, y) :- vpt(x, h), vpt(y, h). vpt(v, h) :- alloc(v, h)."
        " vpt(a, h) :- assign(b, a), vpt(b, h). assign(a, b) :- store(a, y, f), alias(y, x), load(x, b, f).",
    ),
    "cspa": (
        "assign/2 deref/2",
        "vf(y, x) :- assign(y, x). vf(x, y) :- assign(x, z), ma(z, y). vf(x, y) :- vf(x, z), vf(z, y)."
        " ma(x, w) :- deref(y, x), va(y, z), deref(z, w). va(x, y) :- vf(z, x), vf(z, y)."
        " va(x, y) :- vf(z, x), ma(z, w), vf(w, y). vf(x, x) :- assign(x, y). ma(x, x) :- assign(y, x).",
    ),
    "csda": ("nullEdge/2 arc/2", "null(x, y) :- nullEdge(x, y). null(x, y) :- null(x, w), arc(w, y)."),
    "galen": (
        "inp/2 inq/3 r/3 c/3 u/3 s/2",
        "p(x, z) :- inp(x, z). q(x, y, z) :- inq(x, y, z). p(x, z) :- p(x, y), p(y, z)."
        " q(x, r, z) :- p(x, y), q(y, r, z). p(x, z) :- p(y, w), u(w, r, z), q(x, r, y)."
        " p(x, z) :- c(y, w, z), p(x, w), p(x, y). q(x, q, z) :- q(x, r, z), s(r, q)."
        " q(x, e, o) :- q(x, y, z), r(y, u, e), q(z, u, o).",
    ),
    "polonius": (
        "cfg/2 base/3 loan/3 killed/2 liveAt/2",
        "subset(a, b, p) :- base(a, b, p). subset(a, c, p) :- subset(a, b, p), base(b, c, p)."
        " subset(a, b, q) :- subset(a, b, p), cfg(p, q), liveAt(a, q), liveAt(b, q)."
        " has(o, l, p) :- loan(o, l, p). has(b, l, p) :- has(a, l, p), subset(a, b, p)."
        " has(o, l, q) :- has(o, l, p), cfg(p, q), liveAt(o, q), !killed(l, p)."
        " live(l, p) :- has(o, l, p), liveAt(o, p).",
    ),
    "doop": (
        "allocIn/3 moves/2 loads/3 stores/3 vcall/3 this/2 resolve/3 main/1",
        "reachable(m) :- main(m). vpt(v, h) :- reachable(m), allocIn(v, h, m). vpt(v, h) :- moves(v, w), vpt(w, h)."
        " ipt(b, f, h) :- stores(x, f, v), vpt(x, b), vpt(v, h). vpt(v, h) :- loads(v, x, f), vpt(x, b), ipt(b, f, h)."
        " calls(i, m) :- vcall(x, n, i), vpt(x, h), resolve(h, n, m). reachable(m) :- calls(i, m)."
        " vpt(t, h) :- vcall(x, n, i), vpt(x, h), resolve(h, n, m), this(m, t).",
    ),
}


def evaluated(inputs, rules, facts):
    """All relations by going through the rules until nothing is new; a negated atom is of an input."""
    rows = {name: set(facts.get(name, ())) for name in inputs}
    parsed = []
    for rule in re.findall(r"[^.]+\.", rules):
        head, _, body = rule.strip(" .").partition(":-")
        parsed.append((_atom(head), re.findall(r"!?\w+\([^)]*\)|\w+ != \w+", body)))
        rows.setdefault(parsed[-1][0][0], set())
    while True:
        before = sum(map(len, rows.values()))
        for (name, arguments), body in parsed:
            bindings = [{}]
            for literal in body:
                bindings = [found for binding in bindings for found in _extended(literal, binding, rows)]
            rows[name] |= {tuple(binding[a] for a in arguments) for binding in bindings}
        if sum(map(len, rows.values())) == before:
            return rows


def _atom(text):
    name, _, inner = text.strip(" )").partition("(")
    return name.strip(), [part.strip() for part in inner.split(",")]


def _extended(literal, binding, rows):
    if "!=" in literal:
        left, right = literal.split(" != ")
        return [binding] if binding[left] != binding[right] else []
    name, arguments = _atom(literal.lstrip("!"))
    if literal.startswith("!"):
        return [] if tuple(binding[a] for a in arguments) in rows[name] else [binding]
    found = []
    for row in rows[name]:
        made = dict(binding)
        if all(value == (int(a) if a.isdigit() else made.setdefault(a, value)) for a, value in zip(arguments, row)):
            found.append(made)
    return found


@pytest.mark.parametrize("type_name", ["number", "int32", "int64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_analyses_have_the_rows_of_a_plain_evaluation(name, type_name, tmp_path):
    declared, rules = PROGRAMS[name]
    widths = {part.partition("/")[0]: int(part.partition("/")[2]) for part in declared.split()}
    drawn = random.Random(name)
    facts = {one: {tuple(drawn.randrange(7) for _ in range(width)) for _ in range(9)} for one, width in widths.items()}
    heads = {head: inner.count(",") + 1 for head, inner in re.findall(r"(?:^|\. )\s*(\w+)\(([^)]*)\) :-", rules)}
    lines = [
        f".decl {one}({', '.join(f'c{i}:{type_name}' for i in range(width))})"
        for one, width in (widths | heads).items()
    ]
    lines += [f'.input {one}(IO="file", filename="{one}.csv", delimiter=",")' for one in widths]
    lines += [rules.replace(". ", ".\n"), *(f".output {one}" for one in heads)]
    for one, rows in facts.items():
        (tmp_path / f"{one}.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    program = dv.Program.from_souffle("\n".join(lines))
    found = program.run(program.read(tmp_path))
    expected = evaluated(widths, rules, facts)
    for one in heads:
        assert set(found[one]) == expected[one], one


def test_the_best_value_of_a_head_is_kept_as_in_flowlog():
    text = """
    .decl arc(a: int32, b: int32, l: int32)
    .decl cc(node: int32, least: int32)
    cc(x, min(x)) :- arc(x, _, _).
    cc(y, min(c)) :- arc(x, y, _), cc(x, c).
    .decl longest(node: int32, length: int32)
    longest(x, max(0)) :- arc(x, _, _).
    longest(y, max(l)) :- arc(_, y, l).
    .decl label(s: string)
    label(to_string(x) cat "=" cat to_string(c)) :- cc(x, c).
    .output cc, longest, label
    """
    found = dv.Program.from_souffle(text).run({"arc": [(3, 4, 5), (4, 2, 1), (2, 3, 7), (8, 9, -1), (9, 8, 2)]})
    assert sorted(found["cc"]) == [(2, 2), (3, 2), (4, 2), (8, 8), (9, 8)]
    assert sorted(found["longest"]) == [(2, 1), (3, 7), (4, 5), (8, 2), (9, 0)]
    assert sorted(found["label"]) == [("2=2",), ("3=2",), ("4=2",), ("8=8",), ("9=8",)]
    with pytest.raises(dv.DerivableError, match="stands in heads alone"):
        dv.Program.from_souffle(".decl p(x:number)\np(x) :- p(x), p(min(x)).")
