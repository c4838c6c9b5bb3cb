"""What terms cost: how often the bodies of loops run, by the sizes of axes and the numbers of entries.

The cost of a loop is multiplicative: that of its range, and that of its body for each entry.

Source: the cost model of Schleich et al., Optimizing tensor programs on flexible storage (2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from derivable.algebra.expr.operations import OPERATIONS

# For each axis of a tensor, how many entries are below one key of the axes before it, and how many indices there are.
Entries = tuple[tuple[float, float], ...]

# Where nothing is known: the indices of an axis, and the entries of a row of a matrix. Vectors are dense.
SIZE, PER_ROW = 10_000.0, 10.0
_FUNCTION = 10.0


@dataclass(frozen=True, order=True)
class Cost:
    """total    of making the value, each entry of a tensor
    access   of beginning to run over it, or to look something up in it
    entries  of the value
    indices  of an integer, how many values it may have"""

    total: float
    access: float = field(default=0.0, compare=False)
    entries: Entries = field(default=(), compare=False)
    indices: float = field(default=SIZE, compare=False)


def entries_of(shape: Sequence[float], count: float) -> Entries:
    """The entries of a tensor with so many of them, spread evenly."""
    found, left = [], max(count, 1.0)
    for size in shape:
        found.append((min(size, left), size))
        left = max(left / found[-1][0], 1.0)
    return tuple(found)


def count_of(entries: Entries) -> float:
    return math.prod(count for count, _ in entries)


def _rounds(entries: Entries) -> float:
    return max(entries[0][0], 1.0) if entries else 1.0


def _together(times: float, entries: Entries) -> Entries:
    """The entries of the sum of so many tensors."""
    return entries_of([size for _, size in entries], times * count_of(entries)) if entries else ()


@dataclass
class Costs:
    """The cost of an operation from those of its operands.

    tensors  the entries of those that have names
    indices  how many values integers that have names may have: those of the axis that they run over
    """

    tensors: dict[str, Entries]
    indices: dict[str, float]

    def of(self, operation: str, parts: Sequence[Any]) -> Cost:
        """parts  costs of terms, and names"""
        match operation, parts:
            case "var", (name,):
                entries = self.tensors.get(name, ())
                total = count_of(entries) if entries else 0.0
                return Cost(total, 0.0, entries, self.indices.get(name, SIZE))
            case "number", (text,):
                kind, _, value = text.partition(" ")
                return Cost(0.0, indices=max(float(value), 1.0) if kind == "int" else SIZE)
            case "zero" | "one", _:
                return Cost(0.0)
            case "look", (tensor, key):
                access = tensor.access + key.total + 1.0
                entries = tensor.entries[1:]
                return Cost(access + (count_of(entries) if entries else 0.0), access, entries)
            case "singleton" | "row", (key, value):
                return _made(key.total + value.total + 1.0, ((1.0, key.indices), *value.entries))
            case "over", (_, range_, body):
                rounds = _rounds(range_.entries)
                return _made(range_.access + rounds * (1.0 + body.total), _together(rounds, body.entries))
            case "run", (_, _, range_, body):
                rounds = _rounds(range_.entries)
                return _made(range_.total + rounds * (1.0 + body.total), _together(rounds, body.entries))
            case "let", (_, value, body):
                return _made(value.total + body.total + 1.0, body.entries)
            case "when", (condition, body):
                return _made(condition.total + body.total + 1.0, body.entries)
            case "add", (left, right):
                return _made(left.total + right.total + 1.0, _added(left.entries, right.entries))
            case "times" | "scale", (factor, value):
                return _made(factor.total + value.total + count_of(value.entries), value.entries)
            case "outer", (left, right):
                total = left.total + count_of(left.entries) * (1.0 + right.total)
                return _made(total, (*left.entries, *right.entries))
            case "between", (start, stop):
                return _made(start.total + stop.total + 1.0, ((stop.indices, stop.indices),))
        row = OPERATIONS[parts[0]]
        own = _FUNCTION if row.rule == "float" else 1.0
        return _made(sum(part.total for part in parts[1:]) + own, ())


def _made(total: float, entries: Entries) -> Cost:
    return Cost(total, total, entries)


def _added(left: Entries, right: Entries) -> Entries:
    return tuple((min(a + b, max(m, n)), max(m, n)) for (a, m), (b, n) in zip(left, right))
