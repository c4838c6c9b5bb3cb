"""Every aggregate: certain rows against Python, uncertain ones against all worlds, whose models Python folds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.worlds import probabilities
from derivable.datalog.ram.interpret import interpret

# Name, use, and what Python makes of the rows (a, v) of a group: a set of results.


def _places(rows, key, reverse=False):
    """Ascending by argument among equal values."""
    return enumerate(sorted(sorted(rows), key=key, reverse=reverse))


def _saturated(total):
    return max(-(2**31), min(2**31 - 1, total))


def _wrapped(total):
    return (total + 2**31) % 2**32 - 2**31


def _ties(rows, best, keep):
    top = best((v for _, v in rows), default=None)
    return {keep(a, v) for a, v in rows if v == top}


USES = {
    "count": ("n := count(a, v: p(k, a, v))", lambda rows: {(len(rows),)}),
    "sum": ("n := sum[a](v: p(k, a, v))", lambda rows: {(_saturated(sum(v for _, v in rows)),)}),
    "prod": ("n := prod[a](v: p(k, a, v))", lambda rows: {(_wrapped(math.prod(v for _, v in rows)),)}),
    "avg": (
        "n := avg[a](v: p(k, a, v))",
        lambda rows: {(math.trunc(sum(v for _, v in rows) / len(rows)),)} if rows else set(),
    ),
    "min": ("(n, m) := min[n](m: p(k, n, m))", lambda rows: _ties(rows, min, lambda a, v: (a, v))),
    "max": ("(n, m) := max[n](m: p(k, n, m))", lambda rows: _ties(rows, max, lambda a, v: (a, v))),
    "argmin": ("n := argmin[n](v: p(k, n, v))", lambda rows: _ties(rows, min, lambda a, v: (a,))),
    "argmax": ("n := argmax[n](v: p(k, n, v))", lambda rows: _ties(rows, max, lambda a, v: (a,))),
    "exists": ("n := exists(a, v: p(k, a, v))", lambda rows: {(bool(rows),)}),
    "sort": (
        "(i, n, m) := sort[n](m: p(k, n, m))",
        lambda rows: {(i, a, v) for i, (a, v) in _places(rows, lambda r: r[1], True)},
    ),
    "argsort": (
        "(i, n) := argsort<asc>[n](v: p(k, n, v))",
        lambda rows: {(i, a) for i, (a, v) in _places(rows, lambda r: r[1])},
    ),
    "enumerate": (
        "(i, n, m) := enumerate(n, m: p(k, n, m))",
        lambda rows: {(i, a, v) for i, (a, v) in _places(rows, lambda r: r)},
    ),
    "string_join": (
        'n := string_join<"-">[a](s: p(k, a, v), s == $string_of(v))',
        lambda rows: {("-".join(text for _, text in sorted((a, str(v)) for a, v in rows)),)},
    ),
}


LAZY = ("min", "max", "argmin", "argmax", "sort", "argsort", "enumerate")


@dv.datalog.function
def string_of(x: int) -> str:
    return str(x)


def outputs_of(use):
    left = use.split(":=")[0].strip().strip("()")
    return [name.strip() for name in left.split(",")]


def text_of(uses, grouping):
    """A relation for each use; `grouping` is "all", "implicit" or "where"."""
    rows = ["type p(i32, i32, i32), sure(i32, i32, i32), keys(i32)", "rel p(k, a, v) = sure(k, a, v)"]
    for name, (use, _) in uses.items():
        head = ", ".join(outputs_of(use))
        if grouping == "all":
            rows.append(f"rel {name}_r({head}) = {use.replace('p(k', 'p(_')}")
        elif grouping == "implicit":
            rows.append(f"rel {name}_r(k, {head}) = {use}")
        else:
            rows.append(f"rel {name}_r(k, {head}) = {use[:-1]} where k: keys(k))")
        rows.append(f"query {name}_r")
    return "\n".join(rows)


def folded(uses, grouping, world, keys):
    """Relation -> set of tuples, by Python."""
    model = {}
    rows = set(world.get("p", ()))
    for name, (_, fold) in uses.items():
        if grouping == "all":
            # The rows of a relation without the key are distinct.
            found = fold({(a, v) for _, a, v in rows})
        else:
            there = keys if grouping == "where" else {k for k, _, _ in rows}
            found = {(k, *r) for k in there for r in fold({(a, v) for key, a, v in rows if key == k})}
        model[f"{name}_r"] = found
    return model


VALUE = st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, -(2**31), 2**30]))
FACT = st.tuples(st.integers(0, 2), st.integers(0, 3), VALUE)
PROGRAMS = {grouping: dv.Program(text_of(USES, grouping)) for grouping in ("all", "implicit", "where")}


@pytest.mark.parametrize("grouping", PROGRAMS)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(FACT, max_size=9, unique=True), keys=st.sets(st.integers(0, 3), max_size=3))
def test_certain_rows_agree_with_python(grouping, rows, keys):
    facts = {"p": rows, "keys": [(k,) for k in keys]}
    program = PROGRAMS[grouping]
    db = program.run(facts=facts)
    expected = folded(USES, grouping, {"p": rows}, keys)
    meaning = interpret(program.lowered(), facts)
    for name in expected:
        assert set(db[name]) == expected[name], name
        assert meaning[name] == expected[name], name


@st.composite
def uncertain(draw, most=5):
    """(certain, independent, choices): a few facts of p, some of which exclude each other."""
    rows = draw(st.lists(FACT, min_size=1, max_size=most, unique=True))
    chance = st.sampled_from([0.1, 0.25, 0.5, 0.75])
    cut = draw(st.integers(0, len(rows)))
    independent = [("p", row, draw(chance)) for row in rows[:cut] if draw(st.integers(0, 5))]
    certain = [row for row in rows[:cut] if ("p", row) not in {(r, t) for r, t, _ in independent}]
    rest = rows[cut:]
    choice = [("p", row, round(draw(st.sampled_from([0.6, 0.9, 1.0])) / len(rest), 6)) for row in rest]
    return certain, independent, [choice] if choice else []


def run_uncertain(program, certain, independent, choices, keys, provenance, **options):
    facts = [dv.independent([row for _, row, _ in independent], [p for *_, p in independent])] if independent else []
    facts += [dv.categorical([row for _, row, _ in c], [p for *_, p in c]) for c in choices]
    given_facts = {"p": facts or [], "sure": list(certain), "keys": [(k,) for k in keys]}
    return program.run(facts=given_facts, provenance=provenance, **options)


def assert_worlds(db, expected, names):
    for name in names:
        found = dict(db[name].items())
        wanted = {row: p for (relation, row), p in expected.items() if relation == name}
        for row in found.keys() | wanted.keys():
            assert found.get(row, 0.0) == pytest.approx(wanted.get(row, 0.0), abs=1e-9), (name, row)


@pytest.mark.parametrize("grouping", PROGRAMS)
@settings(max_examples=25, deadline=None)
@given(facts=uncertain(), keys=st.sets(st.integers(0, 2), max_size=2))
def test_uncertain_rows_agree_with_all_worlds(grouping, facts, keys):
    certain, independent, choices = facts

    def model(world):
        return folded(USES, grouping, {"p": [*certain, *world.get("p", ())]}, keys)

    expected = probabilities(independent, choices, model)
    names = [f"{name}_r" for name in USES]
    db = run_uncertain(PROGRAMS[grouping], certain, independent, choices, keys, "exact")
    assert_worlds(db, expected, names)
    db = run_uncertain(PROGRAMS[grouping], certain, independent, choices, keys, "topkproofs", k=10_000)
    assert_worlds(db, expected, names)


@settings(max_examples=25, deadline=None)
@given(facts=uncertain(4), provenance=st.sampled_from(["minmaxprob", "max_product", "real", "log"]))
def test_semirings_agree_with_their_sum_over_worlds(facts, provenance):
    """The tag of a result is plus over the worlds that give it of the product of their facts' and absences' tags.

    Extremes and places say nothing of rows that do not matter, which is the same where p plus (not p) is one; `exists`
    adds up its rows.
    """
    _, independent, _ = facts
    plus, times = {
        "minmaxprob": (max, min),
        "max_product": (max, lambda a, b: a * b),
    }.get(provenance, (lambda a, b: a + b, lambda a, b: a * b))
    expected = {}
    # Of the other groups nothing is said.
    for key in {row[0] for _, row, _ in independent}:
        own = [(row, p) for _, row, p in independent if row[0] == key]
        for bits in np.ndindex(*(2,) * len(own)):
            weight, world = 1.0, []
            for bit, (row, p) in zip(bits, own):
                weight = times(weight, p if bit else 1 - p)
                world += [row] if bit else []
            for name, rows in folded(USES, "implicit", {"p": world}, ()).items():
                for row in rows:
                    expected[name, row] = plus(expected.get((name, row), 0.0), weight)
    db = run_uncertain(PROGRAMS["implicit"], [], independent, [], (), provenance)
    for name in USES:
        if name == "exists" or (provenance in ("minmaxprob", "max_product") and name in LAZY):
            continue
        found = {row: math.exp(t) if provenance == "log" else t for row, t in db[f"{name}_r"].items()}
        wanted = {row: t for (relation, row), t in expected.items() if relation == f"{name}_r"}
        assert found == pytest.approx(wanted), name
