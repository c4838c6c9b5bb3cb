"""`n := forall(...)` and `n := exists(...)` of groups, in every world and over all of them."""

from collections import defaultdict

import pytest

import derivable as dv
from datalog.worlds import worlds
from derivable.core.diagnostics import DerivableError

T = {(1, 1): 0.5, (1, 2): 0.4, (2, 3): 0.3, (3, 1): 1.0, (3, 2): 0.2}
S = {2: 0.6, 3: 1.0}
U = {1: 1.0, 2: 0.7, 4: 0.9}
KEYS = range(1, 5)


def rows_of(t, g):
    return [v for k, v in sorted(t) if k == g]


def forall_large(t, s, u):
    return {(g, all(v > 1 for v in rows_of(t, g))) for g in KEYS if rows_of(t, g)}


def forall_in(t, s, u):
    return {(g, all(v in s for v in rows_of(t, g))) for g in KEYS if rows_of(t, g)}


def of_given(found):
    return lambda t, s, u: {(g, n) for g, n in found(t, s, u) if g in u}


def forall_two(t, s, u):
    return {(g, h, all(v in s for v in rows_of(t, g))) for g in KEYS if rows_of(t, g) for h in u}


def bound_outside(t, s, u):
    return {(g, all((g, v) in t for v in s)) for g in u if s}


def exists_large(t, s, u):
    return {(g, True) for g in KEYS if any(v > 1 for v in rows_of(t, g))}


def asked(quantifier):
    return lambda t, s, u: {(g, quantifier(v > 1 for v in rows_of(t, g))) for g in u}


CASES = {
    "rel r(g, n) = n := forall(v: t(g, v) implies v > 1)": forall_large,
    "rel r(g, n) = n := forall(v: t(g, v) implies s(v))": forall_in,
    "rel r(g, n) = n := forall(v: t(g, v) and v > 0 implies (s(v) or false))": forall_in,
    "rel r(g, n) = u(g), n := forall(v: t(g, v) implies v > 1)": of_given(forall_large),
    "rel r(g, n) = u(g) and n := forall(v: t(g, v) implies s(v))": of_given(forall_in),
    "rel r(g, h, n) = n := forall(v: t(g, v) and u(h) implies s(v))": forall_two,
    "rel r(g, n) = u(g), n := forall(v: s(v) implies t(g, v))": bound_outside,
    "rel r(g, n) = n := forall(v: t(g, v) implies v > 1 where g: t(g, _))": forall_large,
    "rel r(g, n) = n := forall(v: t(g, v) implies v > 1 where g: u(g))": asked(all),
    "rel r(g, n) = n := exists(v: t(g, v) and v > 1)": exists_large,
    "rel r(g, n) = u(g), n := exists(v: t(g, v) and v > 1)": of_given(exists_large),
    "rel r(g, n) = n := exists(v: t(g, v) and v > 1 where g: u(g))": asked(any),
    "rel r(g, true) = u(g), forall(v: t(g, v) implies v > 1)": lambda *w: {row for row in asked(all)(*w) if row[1]},
    "rel r(g, true) = u(g), exists(v: t(g, v) and v > 1)": lambda *w: {row for row in asked(any)(*w) if row[1]},
    "rel r(g, true) = u(g), not exists(v: t(g, v) and v > 1)": lambda *w: {
        (g, True) for g, n in asked(any)(*w) if not n
    },
    "rel r(g, true) = u(g), not forall(v: t(g, v) implies v > 1)": lambda *w: {
        (g, True) for g, n in asked(all)(*w) if not n
    },
}
DECLARED = "type t(i32, i32), s(i32), u(i32)\n"


@pytest.mark.parametrize("rule", CASES)
def test_in_every_world(rule):
    """Without tags, in each world, and with them over all: exact, and by all proofs."""
    program, meaning = dv.Program(f"{DECLARED}{rule}\nquery r"), CASES[rule]
    independent = [("t", row, p) for row, p in T.items()]
    independent += [(name, (v,), p) for name, rows in (("s", S), ("u", U)) for v, p in rows.items()]
    expected = defaultdict(float)
    for number, (probability, facts) in enumerate(worlds(independent)):
        if not probability:
            continue
        t, s, u = ({row if name == "t" else row[0] for row in facts.get(name, [])} for name in "tsu")
        found = meaning(t, s, u)
        for row in found:
            expected[row] += probability
        if number % 16 == 0:
            assert set(program.run({"t": list(t), "s": list(s), "u": list(u)})["r"]) == found
    given = {"t": T, "s": S, "u": U}
    for provenance in ("exact", "topkproofs"):
        assert dict(program.run(given, provenance=provenance, k=1000)["r"]) == pytest.approx(dict(expected))


@pytest.mark.parametrize("provenance", ["minmaxprob", "addmultprob", "max_product", "real"])
def test_tags_of_true_and_false(provenance):
    """A group without a row that breaks the rule is true as far as it is there."""
    db = dv.Program(f"{DECLARED}rel r(g, n) = n := forall(v: t(g, v) implies v > 1)").run(
        {"t": T}, provenance=provenance
    )
    true_of_1 = {"minmaxprob": 0.5, "addmultprob": 0.45, "max_product": 0.25, "real": 0.45}[provenance]
    assert dict(db["r"]) == pytest.approx({(1, False): 0.5, (1, True): true_of_1, (2, True): 0.3, (3, False): 1.0})


def test_discrete():
    """`forall!` takes every row that may be there for certain."""
    db = dv.Program(f"{DECLARED}rel r(g, n) = n := forall!(v: t(g, v) implies v > 1)").run({"t": T}, provenance="exact")
    assert dict(db["r"]) == {(1, False): 1.0, (2, True): 1.0, (3, False): 1.0}


def test_a_layer():
    torch = pytest.importorskip("torch")
    text = f"{DECLARED}rel r(g, n) = n := forall(v: t(g, v) implies v > 1)"
    layer = dv.nn.Logic(text, {"t": dv.independent(list(T))}, {"r": [(1, True), (2, True)]})
    assert layer(torch.tensor(list(T.values()))).tolist() == pytest.approx([0.5 * 0.4, 0.3])


def test_a_group_that_only_the_conclusion_has():
    with pytest.raises(DerivableError, match="`g`"):
        dv.Program(f"{DECLARED}rel r(g, n) = n := forall(v: s(v) implies t(g, v))")
