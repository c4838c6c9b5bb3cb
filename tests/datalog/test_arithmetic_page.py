"""The tables of docs/arithmetic.md: each row, for every type that it names, against the Python that stands in it."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import derivable as dv
from derivable.datalog.values.values import TYPES

PAGE = (Path(__file__).parents[2] / "docs" / "arithmetic.md").read_text()
NUMBERS = [t for t in TYPES.values() if t.is_number]
KINDS = {
    "numbers": NUMBERS,
    "integers": [t for t in NUMBERS if t.is_integer],
    "signed": [t for t in NUMBERS if t.family == "signed"],
    "unsigned": [t for t in NUMBERS if t.family == "unsigned"],
    "floats": [t for t in NUMBERS if t.family == "float"],
    "wide": [t for t in NUMBERS if t.is_integer and t.limits[1] > 0xFFFF],
}


def rows_of(header):
    """The rows of the tables with this header: cells without their backquotes."""
    found, inside = [], False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if inside and line.startswith("|") and not set(cells[0]) <= set("-"):
            found.append(tuple(cell.strip("`") for cell in cells))
        inside = cells == header or (inside and line.startswith("|"))
    return found


OPERATIONS = rows_of(["expression", "types", "x", "y", "value"])
AGGREGATES = rows_of(["aggregate", "types", "rows", "value"])


def names_of(t):
    """What the cells of a row may name."""
    if t.family == "float":
        low, high = -float(np.finfo(t.dtype).max), float(np.finfo(t.dtype).max)
    else:
        low, high = t.limits
    return {"low": low, "high": high, "inf": math.inf, "wrapped": lambda n: (n - t.limits[0]) % 2**t.bits + t.limits[0]}


def cell(text, t):
    """The Python value of a cell in a type; None for "no value"."""
    return None if text == "no value" else eval(text, names_of(t))


def typed(value, t):
    return float(value) if t.family == "float" and not isinstance(value, bool) else value


def test_the_tables_are_there():
    assert len(OPERATIONS) > 75
    assert len(AGGREGATES) >= 26
    functions = "abs sign min max pow powf floor ceil exp exp2 log log2 sin cos tan asin acos atan2"
    shown = {name for row in OPERATIONS for name in re.findall(r"\$(\w+)", row[0])}
    assert set(functions.split()) <= shown


@pytest.mark.parametrize("kind", KINDS)
def test_operations(kind):
    rows = [row for row in OPERATIONS if row[1] == kind]
    assert rows
    for t in KINDS[kind]:
        rules = [f"rel r{i}({row[0]}) = q(i, x, y), i == {i}" for i, row in enumerate(rows)]
        program = dv.Program(f"type q(i: usize, x: {t}, y: {t})\n" + "\n".join(rules))
        facts = [(i, *(typed(cell(c, t), t) if c else typed(0, t) for c in row[2:4])) for i, row in enumerate(rows)]
        db = program.run({"q": facts})
        for i, row in enumerate(rows):
            expected = cell(row[4], t)
            found = list(db[f"r{i}"])
            assert found == ([] if expected is None else [(expected,)]), (row, t)
            assert not isinstance(expected, bool) or isinstance(found[0][0], bool)


@pytest.mark.parametrize("kind", ["numbers", "integers", "signed", "floats"])
def test_aggregates(kind):
    rows = [row for row in AGGREGATES if row[1] == kind]
    assert rows
    for t in KINDS[kind]:
        # Equal values are counted as often as they occur.
        forms = {name: f"{name}[k](x: q{{i}}(k, x))" for name in ("sum", "prod", "avg", "weighted_sum", "weighted_avg")}
        rules = []
        for i, row in enumerate(rows):
            aggregate = forms.get(row[0], f"{row[0]}(x: q{{i}}(_, x))").format(i=i)
            rules.append(f"type q{i}(k: usize, x: {t})\nrel r{i}(v) = v := {aggregate}")
        values = [[typed(v, t) for v in cell(row[2], t)] for row in rows]
        db = dv.Program("\n".join(rules)).run({f"q{i}": list(enumerate(given)) for i, given in enumerate(values)})
        for i, row in enumerate(rows):
            expected = cell(row[3], t)
            assert list(db[f"r{i}"]) == ([] if expected is None else [(expected,)]), (row, t)
