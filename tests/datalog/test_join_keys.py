"""Equalities between expressions of two atoms are keys of their join, and mean what they did as tests of each pair."""

import numpy as np
import pytest

import derivable as dv
from derivable.datalog.policy.costs import under
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.interpret import interpret

NEAR = "type r(i64), s(i64, i64)\nrel near(x, y) = r(x), s(y, _), x % 10 == y / 7\nquery near"


def products(program):
    """Joins of a program that share nothing with what is before them."""
    stores = [one for stratum in program.lowered({}).strata for one in stratum.full if isinstance(one, m.Store)]
    joins = [step for one in stores for step in one.query.steps if isinstance(step.node, m.Join)]
    assert joins
    return [step for step in joins if step.bindings and not step.bindings.keys]


def test_no_pairs_are_gone_through():
    assert not products(dv.Program(NEAR))
    random = np.random.default_rng(0)
    facts = {"r": random.integers(0, 300, (200, 1)), "s": random.integers(0, 200, (200, 2))}
    pairs = [(x, y) for x in set(facts["r"][:, 0].tolist()) for y in set(facts["s"][:, 0].tolist())]
    assert set(dv.Program(NEAR).run(facts)["near"]) == {(x, y) for x, y in pairs if x % 10 == y // 7}


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "minmaxprob"])
def test_tags_are_those_of_the_atoms(provenance):
    facts = {"r": [(0.5, (3,)), (0.8, (13,))], "s": [(0.5, (21, 0)), (0.4, (21, 1)), (0.9, (22, 0)), (0.3, (7, 5))]}
    found = dict(dv.Program(NEAR).run(facts, provenance)["near"].items())
    either = 0.5 if provenance == "minmaxprob" else 1 - 0.5 * 0.6
    wanted = {}
    for (x,), p in (((3,), 0.5), ((13,), 0.8)):
        for y, q in ((21, either), (22, 0.9)):
            wanted[x, y] = min(p, q) if provenance == "minmaxprob" else p * q
    assert found == pytest.approx(wanted)


SHAPES = {"r": (12, 1), "s": (20, 2)}
RULES = {
    "several equations": "t(x, y) = r(x), s(y, z), x % 3 == y % 4, x / 2 == z / 3",
    "both sides joined": "t(x, z) = r(x), s(x, y), s(z, w), (x + y) % 5 == (z + w) % 5, not r(w)",
    "a constant": "t(x, y) = r(x), s(y, y), x % 3 == y % 4\nrel t(x, y) = r(x), s(2, y), x * x == y % 9",
    "a recursion": "t(x, x) = r(x)\nrel t(x, z) = t(x, y), s(z, _), y % 4 == z / 2",
    "two atoms of a recursion": "t(x, y) = s(x, y)\nrel t(x, w) = t(x, y), t(z, w), y % 3 == z % 5",
    "one relation twice": "t(x, y) = s(x, _), s(_, y), x / 3 == y / 3",
    "three atoms": "t(x, z) = r(x), r(y), r(z), x % 5 == y / 3, y % 4 == z / 5",
}


@pytest.mark.parametrize("name", RULES)
def test_rules_agree_with_the_reference(name):
    """The reference has the rules without keys."""
    text = f"type r(i64), s(i64, i64), t(i64, i64)\nrel {RULES[name]}\nquery t"
    random = np.random.default_rng(1)
    facts = {name: [tuple(row) for row in random.integers(-3, 9, shape).tolist()] for name, shape in SHAPES.items()}
    with under(narrows_joins=False):
        plain = dv.Program(text)
        wanted = interpret(plain.lowered(facts), facts)["t"]
        assert products(plain)
    keyed = dv.Program(text)
    # What a recursion adds to has no relation of keys: that would have it a round later.
    has_keys = any(relation.startswith("#key_") for relation in keyed.lowered({}).relations)
    assert has_keys == (name != "two atoms of a recursion")
    assert set(keyed.run(facts)["t"]) == wanted
    assert wanted


def test_floats_are_compared_as_values():
    text = "type r(f64), s(f64)\nrel t(x, y) = r(x), s(y), x * 0.0 == y * 0.0\nquery t"
    rows = [(-1.0,), (1.0,), (float("inf"),)]
    found = set(dv.Program(text).run({"r": rows, "s": rows}, "unit")["t"])
    assert found == {(x, y) for x in (-1.0, 1.0) for y in (-1.0, 1.0)}
