"""Recursive joins over columns where whole rows would repeat them (souffle-lang/souffle#2232)."""

from itertools import product

import numpy as np
import pytest

import derivable as dv
from derivable.datalog.rules import nodes

PAIRS = "type e(i32, i32), r(i32, i32)\nrel r(n, m) = e(n, m)\nrel r(n, m) = r(n, _), r(m, _), m < n\nquery r"


def chain(n):
    return {"e": np.stack([np.arange(n), np.arange(1, n + 1)], 1).astype(np.int32)}


def test_wide_bodies_are_read_once(calls_of):
    calls = calls_of(nodes, "names")
    dv.Program("rel p(x) = q(x) " + "and q(x) " * 300)
    assert len(calls) < 30 * 300


@pytest.mark.parametrize("provenance", ["unit", "minmaxprob", "exact", "min_plus"])
def test_pairs_of_the_first_columns(provenance):
    n = 60
    program = dv.Program(PAIRS)
    expected = {(a, b) for a in range(n) for b in range(n) if b < a} | {(a, a + 1) for a in range(n)}
    assert set(program.run(chain(n), provenance=provenance)["r"]) == expected
    # Nine million pairs of whole rows are left.
    assert sum(program._profile(chain(n), provenance).counts.values()) < 20 * len(expected)


RULES = {
    "both": "rel r(n, m) = r(n, _), r(m, _), m < n",
    "connected": "rel r(n, k) = r(n, _), e(n, m), r(m, k)",
    "a relation that is complete": "rel r(n, m) = r(n, _), f(m, _), m < n",
    "nothing needed": "rel r(m, m) = r(_, _), f(m, _)",
    "a constant": "rel r(n, m) = r(n, 2), r(m, _), m != n",
    "a value that occurs twice": "rel r(n, m) = r(n, n), r(m, _)\nrel r(n, n) = r(n, _), f(n, _)",
    "two relations": "rel s(n) = r(n, _), f(n, _)\nrel r(n, m) = s(n), r(m, _)",
    "a generator": "rel r(n, m) = r(n, _), range(0, 3, m)",
    "negation": "rel r(n, m) = r(n, _), r(m, _), not f(n, m)",
}
FACTS = {"e": [(0, 1), (1, 2), (2, 0)], "f": [(1, 2), (3, 0)]}


def program_of(rules):
    return dv.Program(f"type e(i32, i32), f(i32, i32), r(i32, i32)\nrel r(n, m) = e(n, m)\n{rules}\nquery r")


def truth(rules, facts):
    """The rows of `r` by the naive evaluation of each of RULES."""
    e, f = facts["e"], facts["f"]
    r = set(e)
    while True:
        first = {n for n, _ in r}
        new = {
            "both": {(n, m) for n in first for m in first if m < n},
            "connected": {(n, k) for n, m in e for m2, k in r if m == m2 and n in first},
            "a relation that is complete": {(n, m) for n in first for m, _ in f if m < n},
            "nothing needed": {(m, m) for m, _ in f if r},
            "a constant": {(n, m) for n, two in r if two == 2 for m in first if m != n},
            "a value that occurs twice": {(n, m) for n, k in r if n == k for m in first}
            | {(n, n) for n in first if n in {m for m, _ in f}},
            "two relations": {(n, m) for n in first & {m for m, _ in f} for m in first},
            "a generator": {(n, m) for n in first for m in range(3)},
            "negation": {(n, m) for n in first for m in first if (n, m) not in f},
        }[rules]
        if new <= r:
            return r
        r = r | new


@pytest.mark.parametrize("rules", RULES)
def test_rows_and_probabilities_are_those_of_all_worlds(rules):
    """The probability of a row is the sum of those of the worlds of random facts in which it follows."""
    chances = {("e", row): 0.3 + 0.1 * i for i, row in enumerate(FACTS["e"])}
    chances |= {("f", row): 0.55 + 0.2 * i for i, row in enumerate(FACTS["f"])}
    expected: dict[tuple[int, int], float] = {}
    for there in product([False, True], repeat=len(chances)):
        facts: dict[str, set] = {"e": set(), "f": set()}
        weight = 1.0
        for ((name, row), chance), is_there in zip(chances.items(), there):
            weight *= chance if is_there else 1 - chance
            facts[name] |= {row} if is_there else set()
        for row in truth(rules, facts):
            expected[row] = expected.get(row, 0.0) + weight
    program = program_of(RULES[rules])
    assert set(program.run(FACTS, provenance="unit")["r"]) == truth(rules, {k: set(v) for k, v in FACTS.items()})
    tagged = {name: {row: chances[name, row] for row in some} for name, some in FACTS.items()}
    found = program.run(tagged, provenance="exact")["r"]
    assert dict(found.items()) == pytest.approx(expected)


def test_limits_of_rounds_are_those_of_the_rules_as_written():
    program = dv.Program(PAIRS)
    first = range(20)
    rows = {(n, n + 1) for n in first} | {(n, m) for n in first for m in first if m < n}
    assert set(program.run(chain(20), iteration_limit=1)["r"]) == rows


def test_sums_that_are_cut_stay_sums_of_products():
    """Under addmultprob each pair of rows counts; sums first, which are cut at 1, would give 0.2."""
    text = "rel e = {0.5::(1, 0), 0.5::(1, 1), 0.9::(1, 2), 0.2::(0, 5)}\nrel r(n, m) = e(n, m)\n"
    text += "rel r(n + 10, m) = r(n, _), r(m, _), m < n, n < 2\nquery r"
    found = dv.Program(text).run(provenance="addmultprob")["r"]
    assert found[11, 0] == pytest.approx(0.2 * (0.5 + 0.5 + 0.9))


@pytest.mark.parametrize("provenance", ["minmaxprob", "exact", "max_product"])
def test_pairs_outside_of_a_recursion(provenance):
    """Of rows with tags a projection has the sum: the greatest value, or 1 - (1 - p) (1 - q) of two facts."""
    n, generator = 24, np.random.default_rng(5)
    first, second = generator.uniform(0.1, 0.9, (2, n))
    facts = [(float(p), (k, k + 1)) for k, p in enumerate(first)] + [(float(p), (k, -1)) for k, p in enumerate(second)]
    program = dv.Program("type r(i32, i32)\nrel q(n, m) = r(n, _), r(m, _), m < n\nquery q")
    found = program.run({"r": facts}, provenance)["q"]
    either = 1 - (1 - first) * (1 - second) if provenance == "exact" else np.maximum(first, second)
    both = np.minimum if provenance == "minmaxprob" else np.multiply
    expected = {(a, b): both(either[a], either[b]) for a in range(n) for b in range(a)}
    assert dict(zip(found, found.tags.tolist())) == pytest.approx(expected, rel=1e-9)
    # Of 4 n^2 pairs of whole rows half would be left.
    assert sum(program._profile({"r": facts}, provenance).counts.values()) < 1.5 * n * n + 8 * n


@pytest.mark.parametrize("body", ["r(n, _, _), s(m, _)", "r(n, _, _), s(m, _), n < m", "s(m, _), r(n, _, _), n != m"])
def test_complete_relations_are_joined_by_their_distinct_columns(body):
    """A row is read once, though the columns that nobody reads differ: 2,000 by 2,000 rows are 40 by 30 values."""
    k, program = 2000, dv.Program(f"type r(i32, i32, i32), s(i32, i32)\nrel pair(n, m) = {body}\nquery pair")
    facts = {"r": [(i % 40, i, i * 7 % k) for i in range(k)], "s": [(i % 30, i) for i in range(k)]}
    holds = {"<": lambda n, m: n < m, "!=": lambda n, m: n != m}.get(body.split()[-2], lambda n, m: True)
    assert set(program.run(facts)["pair"]) == {(n, m) for n in range(40) for m in range(30) if holds(n, m)}
    counted = program._profile(facts, "unit")
    assert counted is not None
    assert sum(counted.counts.values()) < 200 * k
