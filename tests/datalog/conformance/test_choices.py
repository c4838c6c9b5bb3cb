"""Disjunctive heads against the enumeration of all worlds and all choices."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from datalog.worlds import worlds

CHANCE = st.sampled_from([0.25, 0.5, 0.75])
PAIR = st.tuples(st.integers(0, 2), st.integers(0, 1))


def model(rows, choices, num_heads):
    """Relation -> rows, where row number i of the body chose head choices[i]."""
    heads = {f"h{k}": {(x,) for (x, _), choice in zip(rows, choices) if choice == k} for k in range(num_heads)}
    found = dict(heads)
    found["both"] = heads["h0"] & heads["h1"]
    found["one"] = heads["h0"] | heads["h1"]
    found["none"] = {()} if not heads["h0"] else set()
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(PAIR, CHANCE), min_size=1, max_size=4, unique_by=lambda fact: fact[0]), st.integers(2, 3))
def test_disjunctive_heads_agree_with_all_choices(facts, num_heads):
    heads = "; ".join(f"h{k}(x)" for k in range(num_heads))
    text = (
        f"type b(i32, i32) rel {{{heads}}} = b(x, y)"
        " rel both(x) = h0(x), h1(x) rel one(x) = h0(x) or h1(x) rel none() = not h0(_)"
    )
    expected = {}
    for weight, there in worlds([("b", row, chance) for row, chance in facts]):
        rows = there.get("b", [])
        options = list(itertools.product(range(num_heads), repeat=len(rows)))
        for choices in options:
            for name, found in model(rows, choices, num_heads).items():
                for row in found:
                    expected[name, row] = expected.get((name, row), 0.0) + weight / len(options)
    program = dv.Program(text)
    for provenance, k in (("exact", 3), ("topkproofs", 10_000)):
        db = program.run({"b": [(chance, row) for row, chance in facts]}, provenance, k=k)
        found = {(name, row): tag for name in db if name != "b" for row, tag in db[name].items()}
        assert found == pytest.approx(expected), provenance


BODIES = {
    "a wildcard": ("b(x, _)", lambda b: [(x,) for x, _ in b]),
    "a disjunction": ("b(x, 0) or b(x, _)", lambda b: [(x,) for x, y in b if y == 0] + [(x,) for x, _ in b]),
    "a join of wildcards": (
        "b(x, _) and (b(_, 1) or b(x, 0))",
        lambda b: (
            [(x,) for x, _ in b for _, z in b if z == 1] + [(x,) for x, _ in b for u, z in b if u == x and z == 0]
        ),
    ),
    "what equations define": ("b(x, y), z == y + 1, z > 0", lambda b: [(x,) for x, _ in b]),
    "a negation": ("b(x, _), not b(_, x)", lambda b: [(x,) for x, _ in b if x not in {y for _, y in b}]),
}


@pytest.mark.parametrize(("body", "instances"), BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("tag", [None, 0.5])
def test_each_instance_of_a_body_chooses(body, instances, tag):
    """As in annotated disjunctions: wildcards have values, and each disjunct of an `or` is a rule."""
    facts = [((0, 1), 0.5), ((0, 0), 0.25), ((1, 0), 0.75)]
    written = "" if tag is None else f"{tag}::"
    program = dv.Program(f"type b(i32, i32) rel {written}{{on(x); off(x)}} = {body} rel both(x) = on(x), off(x)")
    options = [("on", 0.5), ("off", 0.5)] if tag is None else [("on", tag / 2), ("off", tag / 2), (None, 1 - tag)]
    expected = {}
    for weight, there in worlds([("b", row, chance) for row, chance in facts]):
        found = instances(there.get("b", []))
        for choices in itertools.product(options, repeat=len(found)):
            heads = {name: {row for row, (head, _) in zip(found, choices) if head == name} for name in ("on", "off")}
            chance = weight
            for _, share in choices:
                chance *= share
            for name, rows in {**heads, "both": heads["on"] & heads["off"]}.items():
                for row in rows:
                    expected[name, row] = expected.get((name, row), 0.0) + chance
    given_facts = {"b": [(chance, row) for row, chance in facts]}
    for provenance in ("exact", "topkproofs"):
        added = program.run({}, provenance, k=10_000, keep=True)
        added.add(given_facts)
        for db in (program.run(given_facts, provenance, k=10_000), added):
            found = {(name, row): p for name in ("on", "off", "both") for row, p in db[name].items()}
            assert found == pytest.approx({key: p for key, p in expected.items() if p > 0}), provenance


def test_choices_over_wildcards_by_hand():
    program = dv.Program("rel l = {(1, 2), (1, 3)} rel {on(x); off(x)} = l(x, _)")
    for provenance in ("exact", "topkproofs"):
        db = program.run(provenance=provenance)
        assert (db["on"][1], db["off"][1]) == pytest.approx((0.75, 0.75))
    assert set(program.run()["on"]) == set(program.run()["off"]) == {(1,)}


@settings(max_examples=20, deadline=None)
@given(st.lists(PAIR, min_size=1, max_size=4, unique=True))
def test_untagged_heads_all_hold(rows):
    db = dv.Program("type b(i32, i32) rel {p(x); q(y)} = b(x, y)").run({"b": rows})
    assert set(db["p"]) == {(x,) for x, _ in rows}
    assert set(db["q"]) == {(y,) for _, y in rows}
