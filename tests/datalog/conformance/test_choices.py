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


@settings(max_examples=20, deadline=None)
@given(st.lists(PAIR, min_size=1, max_size=4, unique=True))
def test_untagged_heads_all_hold(rows):
    db = dv.Program("type b(i32, i32) rel {p(x); q(y)} = b(x, y)").run({"b": rows})
    assert set(db["p"]) == {(x,) for x, _ in rows}
    assert set(db["q"]) == {(y,) for _, y in rows}
