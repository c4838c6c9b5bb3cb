"""Every aggregate: certain rows against Python, uncertain ones against all worlds, whose models Python folds."""

import math
import operator
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.naive import FOLDS
from datalog.worlds import probabilities
from derivable.core.diagnostics import DerivableWarning
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.ram.interpret import interpret
from drawn import examples

# Name -> use, and the settings of the fold in Python. Rows have one argument a and one value v; `count` and others take
# both as values.
USES = {
    "count": ("n := count(a, v: p(k, a, v))", {}),
    "sum": ("n := sum[a](v: p(k, a, v))", {}),
    "prod": ("n := prod[a](v: p(k, a, v))", {}),
    "avg": ("n := avg[a](v: p(k, a, v))", {}),
    "min": ("(n, m) := min[n](m: p(k, n, m))", {}),
    "max": ("(n, m) := max[n](m: p(k, n, m))", {}),
    "argmin": ("n := argmin[n](v: p(k, n, v))", {}),
    "argmax": ("n := argmax[n](v: p(k, n, v))", {}),
    "exists": ("n := exists(a, v: p(k, a, v))", {}),
    "sort": ("(i, n, m) := sort[n](m: p(k, n, m))", {}),
    "argsort": ("(i, n) := argsort<asc>[n](v: p(k, n, v))", {"asc": True}),
    "enumerate": ("(i, n, m) := enumerate(n, m: p(k, n, m))", {}),
    "string_join": ('n := string_join<"-">[a](s: p(k, a, v), s == $string_of(v))', {"separator": "-"}),
}
# Those that choose by weights, and what else there is of certain rows.
CERTAIN_USES = {
    **USES,
    "rank": ("(i, n, m) := rank(n, m: p(k, n, m))", {}),
    "top": ("(n, m) := top<2>(n, m: p(k, n, m))", {"k": 2}),
    "unique": ("(n, m) := unique(n, m: p(k, n, m))", {}),
    "normalize": ("(n, m) := normalize(n, m: p(k, n, m))", {}),
    "softmax": ("n := softmax(n: p(k, n, _))", {}),
    "disjunct": ("(n, m) := disjunct[n](m: p(k, n, m))", {}),
}
COMBINED = {
    "string_join": (
        'n := string_join<"", all=true>[a](s: p(k, a, v), s == $string_of(v))',
        {"separator": "", "all": True},
    )
}
# Python's own folds of the two values that several variables are.
OF_BOTH = ("count", "exists", "enumerate", "rank", "top", "unique", "normalize")


def fold(name, settings, rows):
    """The results for rows (a, v) of a group."""
    if name == "softmax":
        pairs = {((), (a,)) for a, _ in rows}
    elif name in OF_BOTH:
        pairs = {((), row) for row in rows}
    elif name == "string_join":
        pairs = {((a,), (str(v),)) for a, v in rows}
    else:
        pairs = {((a,), (v,)) for a, v in rows}
    return FOLDS[name](pairs, **settings)


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
    for name, (_, given_settings) in uses.items():
        if grouping == "all":
            # The rows of a relation without the key are distinct.
            found = fold(name, given_settings, {(a, v) for _, a, v in rows})
        else:
            there = keys if grouping == "where" else {k for k, _, _ in rows}
            found = {
                (k, *row)
                for k in there
                for row in fold(name, given_settings, {(a, v) for key, a, v in rows if key == k})
            }
        model[f"{name}_r"] = found
    return model


VALUE = st.one_of(st.integers(-3, 3), st.sampled_from([2**31 - 1, -(2**31), 2**30]))
FACT = st.tuples(st.integers(0, 2), st.integers(0, 3), VALUE)
GROUPINGS = ("all", "implicit", "where")
PROGRAMS, CERTAIN_PROGRAMS, COMBINED_PROGRAMS = (
    {grouping: dv.Program(text_of(uses, grouping)) for grouping in GROUPINGS} for uses in (USES, CERTAIN_USES, COMBINED)
)


@pytest.mark.parametrize("grouping", PROGRAMS)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(FACT, max_size=9, unique=True), keys=st.sets(st.integers(0, 3), max_size=3))
def test_certain_rows_agree_with_python(grouping, rows, keys):
    facts = {"p": rows, "keys": [(k,) for k in keys]}
    for program, uses in ((CERTAIN_PROGRAMS[grouping], CERTAIN_USES), (COMBINED_PROGRAMS[grouping], COMBINED)):
        db = program.run(facts=facts)
        expected = folded(uses, grouping, {"p": rows}, keys)
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


def noisy_or(a, b):
    return 1 - (1 - a) * (1 - b)


class Noisy:
    """Its sums do not distribute, as those of `nandmultprob`."""

    zero, one = staticmethod(lambda: 0.0), staticmethod(lambda: 1.0)
    add, mult, negate = staticmethod(noisy_or), staticmethod(operator.mul), staticmethod(lambda a: 1 - a)


@settings(max_examples=35, deadline=None)
@given(
    facts=uncertain(4),
    provenance=st.sampled_from(
        ["minmaxprob", "max_product", "real", "log", "nandmultprob", "nandminprob", "addmultprob", Noisy()]
    ),
)
def test_semirings_agree_with_their_sum_over_worlds(facts, provenance):
    """The tag of a result is plus over the worlds that give it of the product of their facts' and absences' tags.

    Extremes and places say nothing of rows that do not matter, which is the same where p plus (not p) is one; `exists`
    adds up its rows.
    """
    _, independent, _ = facts
    plus, times = {
        "minmaxprob": (max, min),
        "max_product": (max, operator.mul),
        "nandmultprob": (noisy_or, operator.mul),
        "nandminprob": (noisy_or, min),
        "addmultprob": (lambda a, b: min(a + b, 1.0), operator.mul),
    }.get(
        provenance,
        (noisy_or, operator.mul) if isinstance(provenance, Noisy) else (lambda a, b: a + b, lambda a, b: a * b),
    )
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
        if name == "exists" or (provenance not in ("real", "log", "addmultprob") and name in LAZY):
            continue
        found = {row: math.exp(t) if provenance == "log" else t for row, t in db[f"{name}_r"].items()}
        wanted = {row: t for (relation, row), t in expected.items() if relation == f"{name}_r"}
        assert found == pytest.approx(wanted), name


# At the limits of the types

INTEGERS = {
    "i8": [100, 27, -3, 99],
    "u8": [200, 100],
    "i32": [2**31 - 1, 1, 5],
    "i64": [2**63 - 1, 2**62, -5],
    "isize": [-(2**63), -1],
    "u64": [2**64 - 1, 7, 2**63],
    "usize": [2**64 - 1, 1],
}


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_at_the_limits(kind):
    from derivable.datalog.values.values import TYPES

    rows, (low, high) = INTEGERS[kind], TYPES[kind].limits
    uses = ["sum", "prod", "avg", "min", "max"]
    text = f"type p({kind}) " + " ".join(f"rel {u}_r(n) = n := {u}(x: p(x))" for u in uses)
    db = dv.Program(text).run(facts={"p": rows})
    total, product = sum(rows), math.prod(rows)
    span = high - low + 1
    wanted = {
        "sum": min(max(total, low), high),
        "prod": (product - low) % span + low,
        "avg": abs(total) // len(rows) * (1 if total >= 0 else -1),
        "min": min(rows),
        "max": max(rows),
    }
    assert {u: [n for (n,) in db[f"{u}_r"]] for u in uses} == {u: [n] for u, n in wanted.items()}


INF = float("inf")


@pytest.mark.parametrize(
    ("rows", "total", "mean", "product"),
    [
        ([INF, 1.0], [INF], [INF], [INF]),
        ([INF, -INF], [], [], [-INF]),
        ([-INF, 0.0], [-INF], [-INF], []),
        ([1e308, 1.5e308], [INF], [INF], [INF]),
        ([-0.0], [0.0], [0.0], [0.0]),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], None, None, None),
    ],
)
def test_floats_at_the_limits(rows, total, mean, product):
    if total is None:
        # Added in order of their values, in double precision.
        added = 0.0
        for row in rows:
            added += row
        total, mean, product = [added], [added / len(rows)], [math.prod(rows)]
    text = "type p(f64) " + " ".join(f"rel {u}_r(n) = n := {u}(x: p(x))" for u in ("sum", "avg", "prod", "min", "max"))
    for facts in (rows, rows[::-1]):
        db = dv.Program(text).run(facts={"p": facts})
        found = {u: [n for (n,) in db[f"{u}_r"]] for u in ("sum", "avg", "prod", "min", "max")}
        assert found == {"sum": total, "avg": mean, "prod": product, "min": [min(rows)], "max": [max(rows)]}
        assert math.copysign(1, found["min"][0]) == math.copysign(1, min(rows) + 0.0)
    single = dv.Program(text.replace("f64", "f32")).run(facts={"p": [0.1, 0.2, 0.7]})
    wide = np.array([0.1, 0.2, 0.7], np.float32).astype(np.float64)
    assert [n for (n,) in single["sum_r"]] == [float(np.float32(wide[0] + wide[1] + wide[2]))]
    assert [n for (n,) in single["avg_r"]] == [float(np.float32((wide[0] + wide[1] + wide[2]) / 3))]


def test_empty_groups():
    text = """type p(i32, i32), f(i32, f64), s(i32, String), keys(i32)
    rel n_r(k, n) = n := count(x: p(k, x) where k: keys(k))
    rel sum_r(k, n) = n := sum(x: p(k, x) where k: keys(k))
    rel prod_r(k, n) = n := prod(x: p(k, x) where k: keys(k))
    rel avg_r(k, n) = n := avg(x: p(k, x) where k: keys(k))
    rel min_r(k, n) = n := min(x: p(k, x) where k: keys(k))
    rel argmax_r(k, n) = n := argmax[n](x: p(k, x), n == x where k: keys(k))
    rel exists_r(k, n) = n := exists(x: p(k, x) where k: keys(k))
    rel forall_r(k, n) = n := forall(x: p(k, x) implies keys(x) where k: keys(k))
    rel ws_r(k, n) = n := weighted_sum(x: f(k, x) where k: keys(k))
    rel wa_r(k, n) = n := weighted_avg(x: f(k, x) where k: keys(k))
    rel join_r(k, n) = n := string_join<",">(x: s(k, x) where k: keys(k))
    rel sort_r(k, i, n) = (i, n) := sort(x: p(k, x) where k: keys(k))
    rel top_r(k, n) = n := top<2>(x: p(k, x) where k: keys(k))
    rel soft_r(k, n) = n := softmax(x: p(k, x) where k: keys(k))
    rel drawn_r(k, n) = n := categorical<2>(x: p(k, x) where k: keys(k))"""
    wanted = {"n": [0], "sum": [0], "prod": [1], "exists": [False], "forall": [True], "ws": [0.0], "join": [""]}
    for provenance in ("unit", "minmaxprob", "exact"):
        db = dv.Program(text).run(facts={"keys": [3], "p": [(4, 4)], "f": [], "s": []}, provenance=provenance)
        for name in db:
            if name.endswith("_r"):
                assert [row[-1] for row in db[name]] == wanted.get(name[:-2], []), (name, provenance)


def test_values_of_all_types_are_ordered():
    """Texts by their characters, chars and bools, more than one variable, negative floats."""
    text = """type p(String, char, bool, f32)
    rel first(a, b) = (a, b) := min(a, b: p(a, b, _, _))
    rel last(x) = x := max(x: p(_, _, _, x))
    rel least(x) = x := min(x: p(_, _, _, x))
    rel yes(c) = c := max(c: p(_, _, c, _))
    rel places(i, a) = (i, a) := sort<asc>(a: p(a, _, _, _))"""
    rows = [("b", "z", True, -1.5), ("a\0", "y", False, -0.25), ("a", "y", False, 3.0), ("é", "x", False, -2.0)]
    db = dv.Program(text).run(facts={"p": rows})
    assert set(db["first"]) == {("a", "y")}
    assert set(db["last"]) == {(3.0,)}
    assert set(db["least"]) == {(-2.0,)}
    assert set(db["yes"]) == {(True,)}
    assert set(db["places"]) == {(0, "a"), (1, "a\0"), (2, "b"), (3, "é")}


# Facts that rows share, tuples as carriers, large groups

SHARED = """type coin(i32), edge(i32, i32, i32)
rel p(k, a, v) = edge(k, a, v), coin(a), coin(v + 3)
"""


@settings(max_examples=15, deadline=None)
@given(
    edges=st.lists(st.tuples(st.just(0), st.integers(0, 2), st.integers(-1, 1)), min_size=1, max_size=5, unique=True),
    chances=st.lists(st.sampled_from([0.2, 0.5, 0.9]), min_size=5, max_size=5),
)
def test_rows_that_share_facts(edges, chances):
    coins = [("coin", (c,), p) for c, p in enumerate(chances)]

    def model(world):
        there = {c for (c,) in world.get("coin", ())}
        rows = [(k, a, v) for k, a, v in edges if a in there and v + 3 in there]
        return folded(USES, "implicit", {"p": rows}, ())

    program = dv.Program(SHARED + text_of(USES, "implicit").replace("type p(i32, i32, i32), ", "type "))
    facts = {"coin": {(c,): p for _, (c,), p in coins}, "edge": edges, "sure": [], "keys": []}
    for options in ({}, {"provenance": "topkproofs", "k": 10_000}):
        db = program.run(facts=facts, **options)
        assert_worlds(db, probabilities(coins, [], model), [f"{name}_r" for name in USES])


def test_semirings_on_nests():
    """Dual numbers: the derivative of every tag by the first fact, against differences of exact probabilities."""
    from strangers.dual import dual

    rows = [(0, 0, 1), (0, 1, -2), (0, 2, 1), (1, 0, 3)]
    program = PROGRAMS["implicit"]

    def run(p, provenance):
        facts = {"p": dict(zip(rows, (p, 0.3, 0.8, 0.6))), "sure": [], "keys": []}
        return program.run(facts=facts, provenance=provenance)

    db, low, high = run(0.4, dual), run(0.3, "real"), run(0.5, "real")
    for name in USES:
        for row, (value, slope) in db[f"{name}_r"].items():
            a, b = low[f"{name}_r"][row], high[f"{name}_r"][row]
            assert (value, slope) == pytest.approx(((a + b) / 2, (b - a) / 0.2), abs=1e-9), (name, row)


@pytest.mark.parametrize("provenance", ["real", "minmaxprob", "log", "max_product", "addmultprob"])
def test_counts_of_large_groups(provenance):
    """The special forms against the plain programme in Python."""
    random = np.random.default_rng(0)
    p = np.concatenate([random.random(60), [0.5, 0.5, 0.0, 1.0]])
    plus, times = {"minmaxprob": (np.maximum, np.minimum), "max_product": (np.maximum, np.multiply)}.get(
        provenance, (np.add, np.multiply)
    )
    state = np.array([1.0])
    for q in p:
        stay, step = np.append(times(state, 1 - q), 0.0), np.append(0.0, times(state, q))
        state = plus(stay, step)
    db = dv.Program("type e(i32) rel r(n) = n := count(x: e(x))").run(
        facts={"e": dv.independent(range(len(p)), p)}, provenance=provenance
    )
    found = {n: math.exp(t) if provenance == "log" else t for (n,), t in db["r"].items()}
    assert found == pytest.approx({n: t for n, t in enumerate(state) if t > 0}, rel=1e-9)


@pytest.mark.parametrize("grouping", PROGRAMS)
def test_many_groups(grouping):
    """Groups of many sizes at once, large keys, against Python; nothing is dominated by a loop over groups."""
    random = np.random.default_rng(1)
    rows = sorted({(int(k) ** 3, int(a), int(v)) for k, a, v in random.integers(0, 60, (4000, 3))})
    keys = {k for k, _, _ in rows[::7]} | {-1}
    db = PROGRAMS[grouping].run(facts={"p": rows, "sure": [], "keys": [(k,) for k in keys]})
    for name, found in folded(USES, grouping, {"p": rows}, keys).items():
        assert set(db[name]) == found, name


@pytest.mark.parametrize("provenance", ["exact", "minmaxprob", "max_product", "addmultprob", "real", "topkproofs"])
def test_layers_agree_with_runs_and_have_gradients(provenance):
    """Rows share coins. Runs compute tags in columns, layers fold the derivation graph, except for `exact`."""
    import torch

    edges = [(0, 0, 1), (0, 1, -1), (0, 2, 1), (1, 0, 0)]
    program = dv.Program(SHARED + text_of(USES, "implicit").replace("type p(i32, i32, i32), ", "type "))
    fixed = {"edge": edges, "sure": [], "keys": []}
    chances = torch.tensor([0.31, 0.62, 0.83, 0.44, 0.75], dtype=torch.float64, requires_grad=True)
    coins = [(c,) for c in range(5)]
    db = program.run(facts={**fixed, "coin": dict(zip(coins, chances.tolist()))}, provenance=provenance, k=6)
    outputs = {f"{name}_r": sorted(db[f"{name}_r"]) for name in USES}
    layer = dv.nn.Logic(program, {"coin": dv.independent(coins)}, outputs, provenance, facts=fixed, k=6)
    found = layer(chances)
    for name, rows in outputs.items():
        assert found[name].tolist() == pytest.approx([db[name][row] for row in rows], abs=1e-12), name
    if provenance != "addmultprob":
        # The cut of addmultprob lets gradients pass.
        assert torch.autograd.gradcheck(lambda p: torch.cat(list(layer(p).values())), (chances,))


CHAINED = dv.Program("""type p(i32, i32, i32), sure(i32, i32, i32), keys(i32)
rel q(k, a, v) = p(k, a, v) or sure(k, a, v)
rel top(k, v) = v := max(v: q(k, _, v))
rel high(n) = n := count(k: top(k, v), v > 0)
rel total(n) = n := sum[k](v: top(k, v), v < 9)
rel place(i, k) = (i, k) := argsort[k](v: top(k, v))
rel sizes(k, n) = n := count(a, v: q(k, a, v))
rel same(k) = sizes(k, n), sizes(j, n), k != j
rel none(k) = keys(k), not sizes(k, _)
rel mean(m) = m := avg[k](n: sizes(k, n))
rel odd() = exists(k: sizes(k, n), n % 2 == 1)
rel all() = forall(k: keys(k) implies top(k, _))
query high query total query place query same query none query mean query odd query all
""")


@settings(max_examples=25, deadline=None)
@given(facts=uncertain(), keys=st.sets(st.integers(0, 2), max_size=2))
def test_aggregates_of_aggregates_agree_with_all_worlds(facts, keys):
    """Every world is run without tags, which the tests above compare with Python."""
    certain, independent, choices = facts
    given_keys = [(k,) for k in keys]

    def model(world):
        db = CHAINED.run(facts={"p": world.get("p", []), "sure": certain, "keys": given_keys})
        return {name: set(rows) for name, rows in db.items()}

    db = run_uncertain(CHAINED, certain, independent, choices, keys, "exact")
    assert_worlds(db, probabilities(independent, choices, model), list(db))


def _discrete(use):
    mark = "[" if "[" in use else "("
    return use.replace(mark, "!" + mark, 1)


DISCRETE = {name: (_discrete(use), given) for name, (use, given) in CERTAIN_USES.items() if not use.startswith("(")}
DISCRETE_PROGRAM = dv.Program(text_of(DISCRETE, "implicit"))


@settings(max_examples=15, deadline=None)
@given(facts=uncertain(), provenance=st.sampled_from(["exact", "minmaxprob", "topkproofs"]))
def test_discrete_aggregates_take_every_row(facts, provenance):
    certain, independent, choices = facts
    db = run_uncertain(DISCRETE_PROGRAM, certain, independent, choices, (), provenance)
    rows = {*certain, *(row for _, row, _ in independent), *(row for choice in choices for _, row, _ in choice)}
    for name, found in folded(DISCRETE, "implicit", {"p": rows}, ()).items():
        assert dict(db[name].items()) == dict.fromkeys(found, 1.0), name


def test_a_mean_of_integers_says_that_it_is_one():
    program = dv.Program("rel t = {1, 2, 4}\nrel a(n) = n := avg(v: t(v))\nquery a")
    with pytest.warns(DerivableWarning, match="`avg` of i32 is an integer: 7 / 3 is 2 here") as caught:
        assert set(program.run()["a"]) == {(2,)}
    assert "avg(w: r(v), w == v as f64)" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact = dv.Program("rel t = {1, 3}\nrel a(n) = n := avg(v: t(v))\nquery a")
        assert set(exact.run()["a"]) == {(2,)}
        means = dv.Program("rel t = {1, 2, 4}\nrel a(n) = n := avg(w: t(v), w == v as f64)\nquery a")
        assert set(means.run()["a"]) == {(7 / 3,)}


PLACES = [
    "p < {k}",
    "p <= {k}",
    "{k} > p",
    "p == {k}",
    "{k} >= p, x > 1",
    "p < {k} && x != 2",
    "p + 1 < {k}",
    "p > {k}",
]
ORDERS = ["sort[i]", "sort<asc>[i]", "sort", "argsort[i]", "argsort<asc>[i]", "enumerate"]


@examples(40, 400, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 4)), max_size=14), st.data())
def test_sorts_of_which_the_first_rows_are_read(rows, data):
    """The reference interpreter computes all places."""
    k, order = data.draw(st.integers(0, 4)), data.draw(st.sampled_from(ORDERS))
    body = "p, i" if order.startswith("argsort") else "p, i, x" if "[i]" in order else "p, x"
    key = data.draw(st.sampled_from(["", "g, "]))
    conditions = data.draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=2, unique=True))
    rules = []
    for condition in conditions:
        found = condition.format(k=k).replace("x", "i" if order.startswith("argsort") else "x")
        arguments = "g, i, x" if key else "_, i, x"
        rules.append(f"rel r({key}p) = ({body}) := {order}(x: e({arguments})), {found}")
    program = dv.Program("\n".join(["type e(g: i64, i: i64, x: i64)", *rules, "query r"]))
    facts = {"e": rows}
    assert set(program.run(facts)["r"]) == interpret(program.lowered(), facts)["r"]
    assert set(program.run(facts, "minmaxprob")["r"]) == interpret(program.lowered(), facts)["r"]


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ("rel r(p, i) = (p, i) := argsort[i](x: e(i, x)), p < 3", 3),
        ("rel r(p, i) = (p, i) := argsort[i](x: e(i, x)), (p < 3 or p == 5)", 6),
        ("rel r(i) = (0, i) := argsort[i](x: e(i, x))", 1),
        ("rel r(i) = (p, i) := argsort[i](x: e(i, x)), p < 2, p < 7", 2),
        ("rel r(i) = (p, i) := argsort[i](x: e(i, x)), p > 2", 100),
        ("rel r(i) = (p, i) := argsort[i](x: e(i, x)), p < i as usize", 100),
        ("rel s(p, i) = (p, i) := argsort[i](x: e(i, x))\nrel r(i) = s(p, i), p < 3\nquery s", 100),
    ],
)
def test_no_more_rows_are_sorted_than_are_read(rules, wanted):
    program = dv.Program(f"type e(i: i64, x: f64)\n{rules}\nquery r")
    found = program.run({"e": [(k, float(k * 37 % 50)) for k in range(100)]}, keep=True)
    assert max(rule.candidates for rule in found.profile.rules if isinstance(rule.instruction, AggregateRule)) == wanted
