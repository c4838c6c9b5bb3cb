"""Aggregates that go by the weights of tags, in runs and in layers, against Python on the probabilities."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.tags.choice_facts import Derived

# A row of q holds if one of its two facts does, and rows share facts of u.
PROGRAM = dv.Program("""type e(i32, i32), u(i32)
rel q(x) = e(x, y), u(y)
rel top_r(x) = x := top<2>(x: q(x))
rel unique_r(x) = x := unique(x: q(x))
rel rank_r(i, x) = (i, x) := rank(x: q(x))
rel low_r(i, x) = (i, x) := rank<asc>(x: q(x))
rel normalize_r(x) = x := normalize(x: q(x))
rel softmax_r(x) = x := softmax(x: q(x))
rel two() = normalize_r(x), normalize_r(y), x != y
rel some() = normalize_r(_)
rel discrete(x) = x := top!<1>(x: q(x))
""")
CHANCE = st.floats(0.05, 0.95).map(lambda p: round(p, 3))
EDGES = st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 1)), CHANCE, min_size=1, max_size=5)


def chances(edges, units):
    """P(q(x)), over all worlds of u."""
    found = {}
    for x in {x for x, _ in edges}:
        absent = 0.0
        for world in np.ndindex(2, 2):
            weight, none = 1.0, 1.0
            for y, there in enumerate(world):
                weight *= units[y] if there else 1 - units[y]
                none *= 1 - edges.get((x, y), 0.0) if there else 1.0
            absent += weight * none
        found[x] = 1 - absent
    return found


def expected(p):
    ranked = sorted(p, key=lambda x: (-round(p[x], 9), x))
    low = sorted(p, key=lambda x: (round(p[x], 9), x))
    total, soft = sum(p.values()), sum(map(math.exp, p.values()))
    return {
        "top_r": {(x,): p[x] for x in ranked[:2]},
        "unique_r": {(ranked[0],): p[ranked[0]]},
        "rank_r": {(i, x): p[x] for i, x in enumerate(ranked)},
        "low_r": {(i, x): p[x] for i, x in enumerate(low)},
        "normalize_r": {(x,): p[x] / total for x in p},
        "softmax_r": {(x,): math.exp(p[x]) / soft for x in p},
        "some": {(): 1.0},
        "discrete": {(min(p),): 1.0},
    }


@settings(max_examples=30, deadline=None)
@given(EDGES, st.tuples(CHANCE, CHANCE))
def test_runs_agree_with_python(edges, units):
    facts = {"e": edges, "u": {(y,): p for y, p in enumerate(units)}}
    wanted = expected(chances(edges, units))
    for options in ({}, {"provenance": "topkproofs", "k": 1000}):
        db = PROGRAM.run(facts=facts, **options)
        for name, rows in wanted.items():
            assert dict(db[name].items()) == pytest.approx(rows), name
        assert len(db["two"]) == 0


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.integers(-3, 3), CHANCE, min_size=1, max_size=5))
@pytest.mark.parametrize("provenance", ["minmaxprob", "addmultprob", "real", "max_product", "log", "min_plus"])
def test_semirings_agree_with_python(provenance, p):
    tag = {"log": math.log, "min_plus": lambda p: -math.log(p)}.get(provenance, lambda p: p)
    # Lengths are given as they are, and probabilities under `log`.
    given = tag if provenance == "min_plus" else lambda p: p
    db = PROGRAM.run(facts={"e": {(x, 0): given(q) for x, q in p.items()}, "u": [(0,)]}, provenance=provenance)
    for name, rows in expected(p).items():
        if name not in ("some", "discrete"):
            shown = {row: tag(q) for row, q in rows.items()}
            assert dict(db[name].items()) == pytest.approx(shown, abs=1e-12), name
    assert set(db["discrete"]) == {(min(p),)}


def test_runs_without_probabilities():
    facts = {"e": [(3, 0), (1, 0), (2, 0), (1, 1)], "u": [0]}
    db = PROGRAM.run(facts=facts)
    assert db.provenance == "unit"
    assert set(db["top_r"]) == {(1,), (2,)}
    assert set(db["rank_r"]) == set(db["low_r"]) == {(0, 1), (1, 2), (2, 3)}
    assert set(db["softmax_r"]) == {(1,), (2,), (3,)}
    assert set(PROGRAM.run(facts=facts, provenance="counting")["softmax_r"]) == {(1,), (2,), (3,)}


WEIGHTED = dv.Program("""type e(i32, f64)
rel s(v) = v := weighted_sum[x](y: e(x, y))
rel a(v) = v := weighted_avg[x](y: e(x, y))
rel ds(v) = v := weighted_sum![x](y: e(x, y))
rel da(v) = v := weighted_avg![x](y: e(x, y))
""")


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.tuples(st.integers(0, 3), st.sampled_from([-1.5, 0.25, 2.0])), CHANCE, max_size=4))
def test_weighted_totals(facts):
    rows = sorted(facts.items(), key=lambda item: (item[0][1], item[0][0]))
    totals, means = Counter(), Counter()
    for world in np.ndindex(*(2,) * len(rows)):
        chance, total, weight = 1.0, 0.0, 0.0
        for there, ((_, value), p) in zip(world, rows):
            chance *= p if there else 1 - p
            total, weight = (total + p * value, weight + p) if there else (total, weight)
        totals[total] += chance
        if any(world):
            means[total / weight] += chance
    db = WEIGHTED.run(facts={"e": facts}, provenance="exact")

    def rounded(found):
        merged = Counter()
        for value, p in found:
            merged[round(value, 9) + 0.0] += p
        return dict(merged)

    assert rounded((v, p) for (v,), p in db["s"].items()) == pytest.approx(rounded(totals.items()))
    assert rounded((v, p) for (v,), p in db["a"].items()) == pytest.approx(rounded(means.items()))
    total, weight = sum(p * v for (_, v), p in rows), sum(p for _, p in rows)
    assert [v for (v,) in db["ds"]] == pytest.approx([total])
    assert [v for (v,) in db["da"]] == pytest.approx([total / weight] if rows else [])


def test_disjunct():
    program = dv.Program("""rel lamp = {0.6::1, 2}
    rel side = {"on", "off", "broken"}
    rel state(x, s) = (x, s) := disjunct[x](s: lamp(x), side(s))
    rel both(x) = state(x, "on"), state(x, "off")
    rel any(x) = state(x, _)
    rel dark() = not state(1, "on"), not state(2, "on")""")
    db = program.run()
    assert dict(db["state"].items()) == pytest.approx(
        {(x, s): p / 3 for x, p in ((1, 0.6), (2, 1.0)) for s in ("on", "off", "broken")}
    )
    assert len(db["both"]) == 0
    assert dict(db["any"].items()) == pytest.approx({(1,): 0.6, (2,): 1.0})
    assert db["dark"][()] == pytest.approx((1 - 0.2) * (2 / 3))
    assert program.run(provenance="minmaxprob")["state"][1, "on"] == 0.6
    assert len(program.run(provenance="unit")["both"]) == 2


# Samples

SAMPLES = dv.Program("""type e(i32, String)
rel three(k, s) = s := uniform<3>(s: e(k, s))
rel drawn(k, s) = s := categorical<3>(s: e(k, s))
rel one(s) = s := categorical<1>(s: e(_, s))""")
WORDS = [f"word {i}" for i in range(8)]


def test_samples_depend_on_the_seed_alone():
    rows = [(k, word) for k in range(20) for word in WORDS]
    first, again = SAMPLES.run(facts={"e": rows}), SAMPLES.run(facts={"e": rows[::-1]})
    other = SAMPLES.run(facts={"e": rows}, seed=1)
    fewer = SAMPLES.run(facts={"e": [row for row in rows if row[0] < 10]})
    for name in ("three", "drawn"):
        assert set(first[name]) == set(again[name])
        assert set(first[name]) != set(other[name])
        assert set(fewer[name]) == {row for row in first[name] if row[0] < 10}
    sizes = Counter(k for k, _ in first["three"])
    assert set(sizes.values()) == {3}
    assert {1, 2, 3} >= set(Counter(k for k, _ in first["drawn"]).values())
    # Groups are independent: not all have the same sample.
    assert len({tuple(sorted(s for k, s in first["three"] if k == g)) for g in range(20)}) > 5


def test_the_interpreter_draws_the_same():
    rows = [(k, word) for k in range(5) for word in WORDS[: k + 1]]
    meaning, db = interpret(SAMPLES.lowered(), {"e": rows}), SAMPLES.run(facts={"e": rows})
    for name in ("three", "drawn", "one"):
        assert set(db[name]) == meaning[name]


def test_samples_of_values_that_are_numbered():
    """Terms and durations have numbers that depend on the order of the facts; samples do not."""
    text = """type T = A(i32) | B(T)
    type e(T), f(i32)
    rel d = {d"1d", d"2h", d"5m", d"1y", d"3s", d"9m"}
    rel e(new B(new A(x))) = f(x)
    rel e(new A(x)) = f(x)
    rel terms(t) = t := uniform<3>(t: e(t))
    rel times(t) = t := uniform<2>(t: d(t))
    query terms query times"""
    items = text.split("rel d = {")[1].split("}")[0]
    other = text.replace(items, ", ".join(items.split(", ")[::-1]))
    first = dv.Program(text).run(facts={"f": [1, 2, 3, 4]})
    again = dv.Program(other).run(facts={"f": [4, 2, 1, 3]})
    for name in ("terms", "times"):
        assert {str(row) for row in first[name]} == {str(row) for row in again[name]}
        assert first[name]


def test_samples_follow_the_weights():
    rows = [(k, x) for k in range(4000) for x in range(3)]
    program = dv.Program(
        "type e(i32, i32)\nrel one(k, x) = x := categorical<1>(x: e(k, x))\nrel two(k, x) = x := uniform<2>(x: e(k, x))"
    )
    p = dict.fromkeys(rows, 0.0) | {(k, x): [0.1, 0.3, 0.6][x] for k, x in rows}
    db = program.run(facts={"e": p}, provenance="minmaxprob")
    counts = Counter(x for _, x in db["one"])
    # Three standard deviations of 4000 draws are at most 0.024.
    assert [counts[x] / 4000 for x in range(3)] == pytest.approx([0.1, 0.3, 0.6], abs=0.03)
    counts = Counter(x for _, x in db["two"])
    assert [counts[x] / 4000 for x in range(3)] == pytest.approx([2 / 3] * 3, abs=0.03)
    assert all(tag == p[row] for row, tag in db["one"].items())


# Layers

FACTS = [(0, 0), (0, 1), (1, 0), (2, 1)]
LAYER_OUTPUTS = {
    "top_r": [0, 1, 2],
    "rank_r": [(i, x) for i in range(3) for x in range(3)],
    "low_r": [(i, x) for i in range(3) for x in range(3)],
    "normalize_r": [0, 1, 2],
    "softmax_r": [0, 1, 2],
}


@pytest.mark.parametrize("name", LAYER_OUTPUTS)
def test_layers_agree_with_runs_and_have_gradients(name):
    inputs = {"e": dv.independent(FACTS), "u": dv.independent([0, 1])}
    layer = dv.nn.Logic(PROGRAM, inputs, {name: LAYER_OUTPUTS[name]})
    random = np.random.default_rng(0)
    e, u = random.uniform(0.1, 0.9, (3, 4)), random.uniform(0.1, 0.9, (3, 2))
    tensors = [torch.tensor(p, requires_grad=True) for p in (e, u)]
    found = layer(*tensors)
    for row in range(3):
        p = chances(dict(zip(FACTS, e[row])), u[row])
        wanted = expected(p)[name]
        keys = [fact if isinstance(fact, tuple) else (fact,) for fact in LAYER_OUTPUTS[name]]
        assert found[row].tolist() == pytest.approx([wanted.get(key, 0.0) for key in keys])
    assert torch.autograd.gradcheck(layer, tensors)
    torch.testing.assert_close(layer.log(*tensors).exp(), found)
    in_logs = dv.nn.Logic(PROGRAM, inputs, {name: LAYER_OUTPUTS[name]}, log_probabilities=True)
    logs = [tensor.detach().log().requires_grad_() for tensor in tensors]
    torch.testing.assert_close(in_logs(*logs).exp(), found)
    assert torch.autograd.gradcheck(lambda *given: in_logs(*given).exp(), logs)


def test_new_probabilities_of_new_probabilities():
    text = """type e(i32)
    rel q(x) = x := softmax(x: e(x))
    rel r(x) = x := normalize(x: q(x), x > 0)
    rel s(x) = r(x), e(x)"""
    layer = dv.nn.Logic(text, {"e": dv.independent([0, 1, 2])}, {"s": [0, 1, 2]})
    p = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64, requires_grad=True)
    db = dv.Program(text).run(facts={"e": {(x,): q for x, q in enumerate(p.tolist())}})
    assert layer(p).tolist() == pytest.approx([db["s"].get(x, 0.0) for x in range(3)])
    assert torch.autograd.gradcheck(layer, (p,))


@pytest.mark.parametrize("kind", ["normalize", "softmax", "top", "rank", "rank_up"])
def test_the_module_agrees_with_the_reference(kind):
    from derivable.nn.derived import DerivedFacts

    offsets = np.array([0, 3, 4, 4, 8])
    sizes = np.diff(offsets)
    count = int((sizes**2).sum()) if kind.startswith("rank") else 8
    facts = Derived(kind, offsets, np.arange(8), np.arange(count), k=2)
    # With ties, and a group that weighs nothing.
    p = np.array([[0.5, 0.25, 0.5, 0.0, 0.1, 0.1, 0.1, 0.0]])
    module = DerivedFacts(facts)
    wanted = torch.tensor(facts.probabilities(p))
    torch.testing.assert_close(module(torch.tensor(p), False), wanted)
    torch.testing.assert_close(module(torch.tensor(p).log(), True).exp(), wanted)


@pytest.mark.parametrize("use", ["top<1>", "softmax", "categorical<1>"])
def test_other_layers_are_refused(use):
    text = f"type e(i32)\nrel r(x) = x := {use}(x: e(x))"
    with pytest.raises(dv.DerivableError, match="given only later"):
        dv.nn.Logic(text, {"e": dv.independent([0, 1])}, {"r": [0]}, "minmaxprob")
