"""How many steps the loops of a kernel take, about, for inputs as large as some.

`loop_cost` estimates expressions; here the loops themselves are counted, searches among them, so that two ways to run
the same expression can be compared. A register has the number that it typically has: an offset of compressed storage
is the average length of a part for each part before it, so that the loop over any part has the average length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from derivable.algebra.expr.nodes import Apply, Constant, Expr, in_order
from derivable.algebra.expr.operations import OPERATIONS
from derivable.kernel import nodes as n
from derivable.tensor.analysis.loop_cost import PER_ROW

# A place in a hash table is hardly ever in a cache; a search there ends after so many rounds on average.
_HASH, _PROBES = 20.0, 1.5
_FUNCTION = 10.0
# A loop that ends with the first entry that fits.
_FIRST = 2.0

_ARITHMETIC = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "floor_divide": lambda a, b: a / b if b else a,
    "minimum": min,
    "maximum": max,
}


def loop_steps(
    kernel: n.Kernel,
    numbers: Mapping[n.Register, float],
    parts: Mapping[n.Array, float],
    most: Mapping[n.Register, float],
) -> float:
    """Loads, stores, and operations on numbers; loops that nothing is known of have `PER_ROW` rounds.

    numbers  by parameter, its value
    parts    by array of an input, the average length of a part if it holds offsets, else 0
    most     by register that counts, a number that it does not exceed
    """
    counting = _Counting(numbers, parts, most)
    counting.block(kernel.body, 1.0)
    return counting.total


class _Counting:
    def __init__(
        self, numbers: Mapping[n.Register, float], parts: Mapping[n.Array, float], most: Mapping[n.Register, float]
    ):
        self.numbers: dict[Expr, float | None] = {**numbers}
        self.parts, self.most = parts, most
        # How often a register was set anew, beside which additions to it count.
        self.settings: dict[Expr, float] = {}
        self.read: set[n.Register] = set()
        self.total = 0.0

    def block(self, block: tuple[n.Statement, ...], times: float) -> None:
        for statement in block:
            self.statement(statement, times)

    def statement(self, statement: n.Statement, times: float) -> None:
        self.total += times * (1.0 + sum(map(_operations, n.operands_of(statement))))
        match statement:
            case n.Assign(targets, values):
                for target, value in zip(targets, values):
                    self.assign(target, value, times)
            case n.Load(target, array, index):
                part = self.parts.get(array)
                place = self.number(index)
                self.numbers[target] = part * place if part and place is not None else None
                if part is not None:
                    self.read.add(target)
            case n.Hash():
                self.total += times * _HASH
            case n.For(target, start, stop, body):
                first, last = self.number(start), self.number(stop)
                rounds = PER_ROW if first is None or last is None else max(last - first, 0.0)
                rounds = min(rounds, _FIRST) if _is_left(body) else rounds
                self.numbers[target] = first
                self.block(body, times * rounds)
            case n.While(condition, body):
                self.block(body, times * self.rounds(condition))
            case n.If(condition, body, otherwise):
                share = 0.5 if otherwise else self.share(condition)
                self.block(body, times * share)
                self.block(otherwise, times * share)

    def assign(self, target: n.Register, value: Expr, times: float) -> None:
        before = self.numbers.get(target)
        if isinstance(value, Apply) and value.operation == "add" and value.operands[0] is target:
            each, started = self.number(value.operands[1]), self.settings.get(target)
            if before is not None and each is not None and started:
                self.numbers[target] = min(before + each * times / started, self.most.get(target, math.inf))
            return
        self.numbers[target] = self.number(value)
        self.settings[target] = times

    def number(self, value: Expr) -> float | None:
        """What an expression typically is; None if nothing is known."""
        if isinstance(value, Constant):
            return float(value.value)
        if isinstance(value, Apply) and value.operation in _ARITHMETIC and len(value.operands) == 2:
            left, right = map(self.number, value.operands)
            return None if left is None or right is None else _ARITHMETIC[value.operation](left, right)
        return self.numbers.get(value)

    def rounds(self, condition: Expr) -> float:
        """Of a bisection, a chain of entries, or a search in a hash table."""
        if not isinstance(condition, Apply) or condition.operation not in ("less", "greater"):
            return _PROBES
        left, right = condition.operands
        if isinstance(right, Constant):
            return PER_ROW
        first, last = self.number(left), self.number(right)
        return math.log2(PER_ROW if first is None or last is None else max(last - first, 0.0) + 1.0)

    def share(self, condition: Expr) -> float:
        """How often a condition holds: what an input holds at a place is seldom what is looked for."""
        is_compared = isinstance(condition, Apply) and condition.operation == "equal"
        return 1.0 / PER_ROW if is_compared and self.read & set(condition.operands) else 1.0


def _is_left(body: tuple[n.Statement, ...]) -> bool:
    """Whether a loop with that body may end before its last round."""
    return any(
        isinstance(part, n.Break) or (isinstance(part, n.If) and any(map(_is_left, n.blocks_of(part)))) for part in body
    )


def _operations(value: Expr) -> float:
    applied = [part.operation for part in in_order([value]) if isinstance(part, Apply)]
    return sum(_FUNCTION if OPERATIONS[operation].rule == "float" else 1.0 for operation in applied)
