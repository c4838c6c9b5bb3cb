"""Join orders of recursions that are chosen before there are rows: what their joins go through, by the profile."""

import numpy as np
import pytest

import derivable as dv
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.statistics import Statistics
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.symbols import SymbolTable

CALLS = """type insn(i32, i32), base(i32, i32), name(i32, i32), kind(i32, i32), look(i32, i32, i32)
type start(i32), alloc(i32, i32, i32)
rel reach(m) = start(m)
rel points(h, v) = alloc(h, v, m), reach(m)
rel reach(t) = reach(m), insn(i, m), base(i, b), points(h, b), kind(h, k), name(i, s), look(s, k, t)
query reach
query points"""


def calls(n=2000, starts=30):
    """Methods that call methods, by what their variables point to, as doop has it (Bravenboer and Smaragdakis 2009)."""
    random, kinds = np.random.default_rng(1), n // 6
    i, h = np.arange(4 * n), np.arange(2 * n)
    return {
        "start": np.arange(starts)[:, None],
        "insn": np.stack([i, i // 4], 1),
        "base": np.stack([i, i // 4 * 8 + random.integers(0, 8, 4 * n)], 1),
        "name": np.stack([i, random.integers(0, 70, 4 * n)], 1),
        "alloc": np.stack([h, h // 2 * 8 + random.integers(0, 8, 2 * n), h // 2], 1),
        "kind": np.stack([h, random.integers(0, kinds, 2 * n)], 1),
        "look": np.stack([random.integers(0, top, 6 * n) for top in (70, kinds, n)], 1),
    }


def called(facts):
    """(reached methods, what variables point to), one method at a time."""
    rows = {name: some.tolist() for name, some in facts.items()}
    by = {}
    for name, key in (("insn", 1), ("base", 0), ("name", 0), ("kind", 0), ("alloc", 2)):
        for row in rows[name]:
            by.setdefault((name, row[key]), []).append(row)
    looks = {}
    for s, k, t in rows["look"]:
        looks.setdefault((s, k), []).append(t)
    reached, waiting, points = set(), [m for (m,) in rows["start"]], {}
    while waiting:
        method = waiting.pop()
        if method in reached:
            continue
        reached.add(method)
        for h, v, _ in by.get(("alloc", method), []):
            points.setdefault(v, set()).add(h)
        # A call may have been reached before what its base points to.
        for one in reached:
            for i, _ in by.get(("insn", one), []):
                for _, b in by.get(("base", i), []):
                    for h in points.get(b, ()):
                        for _, k in by.get(("kind", h), []):
                            for _, s in by.get(("name", i), []):
                                waiting += [t for t in looks.get((s, k), []) if t not in reached]
    return reached, {(h, v) for v, some in points.items() for h in some}


def test_calls_by_what_variables_point_to_are_joined_without_products():
    facts = {name: rows.astype(np.int32) for name, rows in calls().items()}
    reached, points = called(facts)
    assert len(reached) > 40
    program = dv.Program(CALLS)
    for provenance in ("unit", "minmaxprob", "addmultprob", "exact"):
        found = program.run(facts, provenance=provenance)
        assert {row[0] for row in found["reach"]} == reached
        assert set(found["points"]) == points
    for provenance in ("unit", "minmaxprob"):
        profile = program._profile(facts, provenance)
        assert max(profile.counts.values()) < 10 * (len(reached) + len(points))
        for effort in profile.rules:
            joins = effort.instruction.query.steps[1:]
            assert all(step.bindings.keys for step in joins if isinstance(step.node, m.Join))


def test_combinations_of_columns_are_counted():
    """A column with 100 values that decides on another one with 60."""
    random = np.random.default_rng(0)
    pairs = np.array([(a, a * 7 % 60) for a in range(100)])[random.integers(0, 100, 3000)]
    view = dv.Program("type r(i64, i64)\nquery r").run({"r": pairs[:100]})["r"]
    table = Table("r", view.table.types)
    table.insert([column.copy() for column in pairs.T], 3000)
    known = Statistics({"r": table}, SymbolTable())
    assert known.combinations("r", (0, 1)) == pytest.approx(100, rel=0.02)


# A register has one value that returns something; a function has one end. Joined by the register first, each row of
# `used` meets a sixteenth of all definitions.
REGISTERS = """type seed(i32, i32, i32), end(i32, i32, i32), last(i32, i32, i32)
rel value(x, c, r) = seed(x, c, r), x < 2
rel value(y, c, r) = value(x, _, _), y == x + 1, seed(y, c, r)
rel used(e, r) = value(_, c, r), end(c, _, b), last(b, e, r)
rel value(e, c, r) = used(e, r), seed(e, c, r)
query used"""


def test_a_function_comes_before_a_register():
    functions = np.arange(1000)
    random = np.random.default_rng(0)
    blocks = np.arange(20 * len(functions))
    last = np.stack([np.repeat(blocks, 4), np.arange(4 * len(blocks)), random.integers(0, 16, 4 * len(blocks))], 1)
    end = np.stack([functions, 20 * functions, 20 * functions + 9], 1)
    facts = {"seed": np.stack([functions, functions, 0 * functions], 1), "end": end, "last": last}
    facts = {name: rows.astype(np.int32) for name, rows in facts.items()}
    program = dv.Program(REGISTERS)
    ends = {c: b for c, _, b in end.tolist()}
    by_block = {}
    for b, e, r in last.tolist():
        by_block.setdefault((b, r), []).append(e)
    expected = {(e, 0) for c in functions.tolist() for e in by_block.get((ends[c], 0), [])}
    assert set(program.run(facts)["used"]) == expected
    profile = program._profile(facts, "unit")
    assert max(profile.counts.values()) < 3 * len(functions)
