"""What terms cost: how often the bodies of loops run, by the sizes of axes and the numbers of entries.

The cost of a loop is multiplicative: that of its range, and that of its body for each entry.

Source: the cost model of Schleich et al., Optimizing tensor programs on flexible storage (2022).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from derivable.algebra.expr.operations import OPERATIONS

# For each axis of a tensor, how many entries are below one key of the axes before it, and how many indices there are.
Entries = tuple[tuple[float, float], ...]

# Where nothing is known: the indices of an axis, and the entries of a row of a matrix. Vectors are dense.
SIZE, PER_ROW = 10_000.0, 10.0
_FUNCTION, _HELD = 10.0, 2.0


@dataclass(frozen=True, order=True)
class Cost:
    """total    of making the value, each entry of a tensor
    access   of beginning to run over it, or to look something up in it
    entries  of the value
    indices  of an integer, how many values it may have
    path     of a name, and of what is looked up in one at a name: itself
    lookups  by path, what of the total is for looking it up: nothing, once there is a loop around that is at it"""

    total: float
    access: float = field(default=0.0, compare=False)
    entries: Entries = field(default=(), compare=False)
    indices: float = field(default=SIZE, compare=False)
    path: str = field(default="", compare=False)
    lookups: Mapping[str, float] = field(default_factory=dict, compare=False)


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
    product  of an outer product that is the whole result, for each entry, once both factors are made; None where it is
             made in loops as any other
    """

    tensors: dict[str, Entries]
    indices: dict[str, float]
    product: float | None = None

    def copy(self) -> Costs:
        return Costs(dict(self.tensors), dict(self.indices), self.product)

    def of_whole(self, operation: str, parts: Sequence[Any]) -> Cost:
        """As `of`, of what is the whole result."""
        if operation != "outer" or self.product is None:
            return self.of(operation, parts)
        left, right = parts
        entries = (*left.entries, *right.entries)
        return Cost(left.total + right.total + self.product * count_of(entries), entries=entries)

    def of(self, operation: str, parts: Sequence[Any]) -> Cost:
        """parts  costs of terms, and names"""
        match operation, parts:
            case "var", (name,):
                entries = self.tensors.get(name, ())
                total = count_of(entries) if entries else 0.0
                return Cost(total, 0.0, entries, self.indices.get(name, SIZE), name)
            case "number", (text,):
                kind, _, value = text.partition(" ")
                return Cost(0.0, indices=max(float(value), 1.0) if kind == "int" else SIZE)
            case "zero" | "one", _:
                return Cost(0.0)
            case "look", (tensor, key):
                return _looked_up(tensor, key)
            case "singleton" | "row", (key, value):
                return _made(key.total + value.total + 1.0, ((1.0, key.indices), *value.entries), parts)
            case "over", (key, range_, body):
                rounds = _rounds(range_.entries)
                lookups = dict(body.lookups)
                each = 1.0 + body.total - lookups.pop(f"{range_.path}({key})", 0.0)
                lookups = _added_up((range_.lookups, 1.0), (lookups, rounds))
                total = range_.access + rounds * each
                return Cost(total, total, _together(rounds, body.entries), lookups=lookups)
            case "run", (_, _, range_, body):
                rounds = _rounds(range_.entries)
                total = range_.total + rounds * (1.0 + body.total)
                lookups = _added_up((range_.lookups, 1.0), (body.lookups, rounds))
                return Cost(total, total, _together(rounds, body.entries), lookups=lookups)
            case "let", (_, value, body):
                # To add to what is held takes more than to add in a register.
                own = _HELD * value.total if value.entries and not value.path else 1.0
                return _made(value.total + body.total + own, body.entries, (value, body))
            case "when", (condition, body):
                return _made(condition.total + body.total + 1.0, body.entries, parts)
            case "add", (left, right):
                return _made(left.total + right.total + 1.0, _added(left.entries, right.entries), parts)
            case "times" | "scale", (factor, value):
                # Of a tensor that is computed each addition is multiplied, so factors are better off inside.
                own = count_of(value.entries) + (operation == "scale" and not value.path)
                return _made(factor.total + value.total + own, value.entries, parts)
            case "outer", (left, right):
                count = count_of(left.entries)
                total = left.total + count * (1.0 + right.total)
                lookups = _added_up((left.lookups, 1.0), (right.lookups, count))
                return Cost(total, total, (*left.entries, *right.entries), lookups=lookups)
            case "between", (start, stop):
                return _made(start.total + stop.total + 1.0, ((stop.indices, stop.indices),), parts)
        row = OPERATIONS[parts[0]]
        own = _FUNCTION if row.rule == "float" else 1.0
        return _made(sum(part.total for part in parts[1:]) + own, (), parts[1:])


def _looked_up(tensor: Cost, key: Cost) -> Cost:
    # In a dense axis there is a place for each index; else it is found by search.
    count, size = tensor.entries[0] if tensor.entries else (SIZE, SIZE)
    own = 1.0 if 2.0 * count >= size else 1.0 + math.log2(count + 1.0)
    path = f"{tensor.path}({key.path})" if tensor.path and key.path else ""
    lookups = _added_up((tensor.lookups, 1.0), (key.lookups, 1.0), ({path: own} if path else {}, 1.0))
    access = tensor.access + key.total + own
    entries = tensor.entries[1:]
    return Cost(access + (count_of(entries) if entries else 0.0), access, entries, path=path, lookups=lookups)


def _made(total: float, entries: Entries, parts: Sequence[Cost]) -> Cost:
    return Cost(total, total, entries, lookups=_added_up(*((part.lookups, 1.0) for part in parts)))


def _added_up(*of: tuple[Mapping[str, float], float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for lookups, times in of:
        for path, cost in lookups.items():
            found[path] = found.get(path, 0.0) + times * cost
    return found


def _added(left: Entries, right: Entries) -> Entries:
    return tuple((min(a + b, max(m, n)), max(m, n)) for (a, m), (b, n) in zip(left, right))
