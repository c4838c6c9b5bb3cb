"""Aggregates of a recursion's keys over what is complete before it: simulated, in worlds, with facts added later."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.core.diagnostics import StratificationError, UnsupportedError
from derivable.datalog.ram.interpret import interpret

OPERATORS = {"count": len, "max": max, "min": min, "sum": sum}
CONDITIONS = {
    "z > k": lambda k, z: z > k,
    "z < k": lambda k, z: z < k,
    "z != k and z < k + 3": lambda k, z: z != k and z < k + 3,
}
TEXT = """
type score(i32), step(i32, i32), level(i32, i32)
rel level(0, 7)
rel level(k2, n as i32) = level(k, _), step(k, k2), n := OPERATOR(z: score(z) and CONDITION)
rel other(0)
rel other(k + n as i32) = other(k), k < 6, n := OPERATOR(z: score(z) and CONDITION), n != 0
query other
query level
"""
STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8)
SCORES = st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True)


def text_of(operator, condition):
    return TEXT.replace("OPERATOR", operator).replace("CONDITION", condition)


def simulated(operator, condition, steps, scores):
    levels = {(0, 7)}
    while True:
        new = set(levels)
        for (k, _), (before, k2) in itertools.product(levels, steps):
            values = [z for z in set(scores) if CONDITIONS[condition](k, z)]
            if before == k and values:
                new.add((k2, OPERATORS[operator](values)))
        if new == levels:
            return levels
        levels = new


def simulated_other(operator, condition, scores):
    """Keys that only the recursion has."""
    found = {0}
    while True:
        new = set(found)
        for k in found:
            values = [z for z in set(scores) if CONDITIONS[condition](k, z)]
            if k < 6 and values and (n := OPERATORS[operator](values)):
                new.add(k + n)
        if new == found:
            return {(k,) for k in found}
        found = new


def both(database):
    return set(database["level"]), set(database["other"])


def simulated_both(operator, condition, steps, scores):
    return simulated(operator, condition, steps, scores), simulated_other(operator, condition, scores)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([*OPERATORS]), st.sampled_from([*CONDITIONS]), STEPS, SCORES, STEPS, SCORES)
def test_levels_are_those_of_a_simulation(operator, condition, steps, scores, more_steps, more_scores):
    program = dv.Program(text_of(operator, condition))
    wanted = simulated_both(operator, condition, steps, scores)
    database = program.run({"step": steps, "score": scores}, keep=True)
    assert both(database) == wanted
    meaning = interpret(program.lowered(), {"step": steps, "score": [(z,) for z in scores]})
    assert (meaning["level"], meaning["other"]) == wanted
    other = database.fork()
    database.add({"step": more_steps})
    assert both(database) == simulated_both(operator, condition, steps + more_steps, scores)
    database.add({"score": more_scores})
    assert both(database) == simulated_both(operator, condition, steps + more_steps, scores + more_scores)
    other.add({"score": more_scores})
    assert both(other) == simulated_both(operator, condition, steps, scores + more_scores)
    other.add({"step": more_steps})
    assert both(other) == both(database)


@pytest.mark.parametrize("operator", ["count", "max"])
def test_probabilities_are_those_of_worlds(operator):
    chances = np.random.default_rng(0).uniform(0.1, 0.9, 7).round(2).tolist()
    scores, steps = [1, 2, 5], [(0, 1), (1, 2), (0, 2), (2, 0)]
    wanted: dict[tuple, float] = {}
    for world in itertools.product([False, True], repeat=7):
        weight = np.prod([p if there else 1 - p for p, there in zip(chances, world)])
        kept = [fact for fact, there in zip([*scores, *steps], world) if there]
        given = [f for f in kept if isinstance(f, tuple)], [f for f in kept if not isinstance(f, tuple)]
        for row in set.union(*simulated_both(operator, "z > k", *given)):
            wanted[row] = wanted.get(row, 0.0) + weight
    facts = {"score": dict(zip(scores, chances)), "step": dict(zip(steps, chances[3:]))}
    database = dv.Program(text_of(operator, "z > k")).run(facts, "exact")
    assert {**dict(database["level"].items()), **dict(database["other"].items())} == pytest.approx(wanted)


def test_the_groups_may_be_given():
    text = text_of("count", "z > k").replace("z > k)", "z > k where k: level(k, _))")
    found = dv.Program(text).run({"step": [(0, 6), (6, 3), (3, 1)], "score": [1, 2, 5]})
    # No score is above 6.
    assert set(found["level"]) == {(0, 7), (6, 3), (3, 0), (1, 1)}


@pytest.mark.parametrize(
    "aggregate",
    [
        "count(z: level(z, _) and z < k)",
        "count(z: score(z) and level(k, z))",
        "count(z: score(z) and not level(z, _) and z > k)",
        "count(z: score(z) and z > k where k: level(_, k))",
    ],
)
def test_what_the_recursion_has_is_not_aggregated_in_it(aggregate):
    text = text_of("count", "z > k").replace("count(z: score(z) and z > k)", aggregate)
    with pytest.raises(StratificationError, match="`level` depends on itself"):
        dv.Program(text)


def test_devices_and_batches_do_not_ask_for_groups():
    program, facts = dv.Program(text_of("count", "z > k")), {"step": [(0, 1)], "score": [3]}
    with pytest.raises(UnsupportedError, match="has its groups as the recursion looks them up"):
        program.run(facts, device="torch:cpu")


DEGREES = """
    rel edge = {EDGES}
    rel node = {0, 1, 2, 3}
    rel reach(0)
    rel deg(x, n) = n := count(z: edge(x, z) where x: GROUPS)
    rel reach(y) = deg(x, n), edge(x, y), n > 0
    query reach
    query deg
"""


@pytest.mark.parametrize("groups", ["reach(x)", "reach(x), node(x)", "node(x), reach(x)"])
def test_groups_that_the_recursion_finds(groups):
    """The degree of each node that is reached, by a walk in Python."""
    edges = {(0, 1), (0, 2), (1, 3), (5, 6)}
    text = DEGREES.replace("EDGES", ", ".join(map(str, sorted(edges)))).replace("GROUPS", groups)
    degree = {x: sum(a == x for a, _ in edges) for x in range(7)}
    reached, waiting = {0}, [0]
    while waiting:
        x = waiting.pop()
        waiting += [y for a, y in edges if a == x and y not in reached]
        reached |= {y for a, y in edges if a == x}
    database = dv.Program(text).run()
    assert set(database["reach"]) == {(x,) for x in reached}
    assert set(database["deg"]) == {(x, degree[x]) for x in reached}


@pytest.mark.parametrize("provenance", ["exact", "topkproofs"])
def test_groups_that_an_uncertain_recursion_finds(provenance):
    """By the two worlds of the one uncertain edge."""
    text = DEGREES.replace("EDGES", "0.25::(0, 1), (0, 2), (1, 3)").replace("GROUPS", "reach(x)")
    database = dv.Program(text).run(None, provenance)
    expected = {(0, 2): 0.25, (0, 1): 0.75, (1, 1): 0.25, (2, 0): 1.0, (3, 0): 0.25}
    assert dict(database["deg"].items()) == pytest.approx(expected)


def test_groups_that_lack_what_the_recursion_has_are_no_stratum():
    for groups, counted in [("node(x), not reach(x)", "edge(x, z)"), ("node(x)", "reach(z), edge(x, z)")]:
        text = DEGREES.replace("EDGES", "(0, 1)").replace("GROUPS", groups).replace("edge(x, z)", counted)
        with pytest.raises(dv.DerivableError, match="not stratifiable"):
            dv.Program(text)
