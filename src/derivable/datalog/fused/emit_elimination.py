"""The kernel of an elimination: numbers of rows by hops from variable to variable, for each value of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from derivable.algebra.expr.functions import equal
from derivable.algebra.expr.nodes import Expr
from derivable.datalog.fused.elimination import Elimination, Hop, Variable, anchors
from derivable.datalog.policy.kernels import Built
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder

# What is done for a value of a variable and a number of ways that lead to it.
Action = Callable[[Expr, Expr], None]


@dataclass(frozen=True)
class EliminationKernel:
    """A kernel (i, stop, low, *indexes, *messages, pairs) -> (rows, i, pairs that are written).

    indexes   low, top, offsets, values of each
    messages  for each the number of ways to each value, all of them zeros, and room for the values that have some
    pairs     [pair * 2] a value of the fixed variable and its number of rows, if they are grouped by it
    """

    function: Any
    num_messages: int
    is_grouped: bool


class _Message:
    """The number of ways to each value of a variable, less `low`: `numbers`, and the values that have some."""

    def __init__(self, k: Builder, number: int):
        self.numbers, self.values = k.array(f"numbers{number}", "int64"), k.array(f"values{number}", "int64")
        self.count = k.register(f"count{number}")


class EliminationEmitter:
    """is_grouped  whether the number of each value of the fixed variable is written"""

    def __init__(self, elimination: Elimination, is_grouped: bool):
        self.elimination, self.is_grouped = elimination, is_grouped
        self.k = Builder("eliminate")
        self.messages: list[_Message] = []

    def emit(self) -> Built:
        k = self.k
        i, stop, self.low = k.scalar("i"), k.scalar("stop"), k.scalar("low")
        self.indexes = [
            (k.scalar("index_low"), k.scalar("top"), k.array("offsets", "int64"), k.array("values", "int64"))
            for _ in range(self.elimination.num_reads)
        ]
        total, pairs, out = k.let("total", 0), k.let("pairs", 0), k.array("out", "int64")
        # Behind the messages, or nowhere.
        k.parameters.remove(out)
        with k.while_(i < stop):
            self.spans: dict[int, tuple[Expr, Expr]] = {
                read: self.span(read, i) for read in sorted(anchors(self.elimination))
            }
            product = k.let("product", 1)
            for root, power in self.elimination.roots:
                with k.when(product > 0):
                    number = k.let("number", 0)
                    self.count_rows(root, number)
                    for _ in range(power):
                        k.set(product, product * number)
            k.set(total, total + product)
            if self.is_grouped:
                with k.when(product > 0):
                    k.store(out, 2 * pairs, i)
                    k.store(out, 2 * pairs + 1, product)
                    k.set(pairs, pairs + 1)
            k.set(i, i + 1)
        k.return_(total, i, pairs)
        k.parameters += [out] if self.is_grouped else []
        return Built(k.kernel(), notes=(len(self.messages), self.is_grouped))

    @staticmethod
    def compiled(function: Any, notes: Any) -> EliminationKernel:
        return EliminationKernel(function, *notes)

    def span(self, read: int, key: Expr) -> tuple[Expr, Expr]:
        """Where an index has the rows of a key."""
        k, (low, top, offsets, _) = self.k, self.indexes[read]
        position, begin, end = k.let("position", key - low), k.let("begin", 0), k.let("end", 0)
        with k.when((position >= 0) & (position < top)):
            k.load_into(begin, offsets, position)
            k.load_into(end, offsets, position + 1)
        return begin, end

    def count_rows(self, root: Variable, number: n.Register) -> None:
        """Have `number` be the number of rows of a tree."""
        k = self.k
        # The hop that comes from farthest needs no message.
        (hop, power), *others = sorted(root.hops, key=lambda one: -_depth(one[0]))
        if others or power > 1:
            rows = Variable(((hop, power), *others))
            self.of_variable(rows, lambda _, ways: k.set(number, number + ways), once=False)
        elif hop.origin is None:
            begin, end = self.spans[hop.read]
            k.set(number, end - begin)
        else:
            # What comes by one hop is as much as its index has.
            def add(value: Expr, ways: Expr) -> None:
                begin, end = self.span(hop.read, value)
                k.set(number, number + ways * (end - begin))

            self.of_variable(hop.origin, add)

    def times(self, ways: Expr, value: Expr, messages: list[tuple[_Message, int]]) -> Expr:
        k = self.k
        for message, power in messages:
            number = k.load(message.numbers, value - self.low, "ways")
            for _ in range(power):
                ways = ways * number
        return ways

    def along(self, hop: Hop, action: Action) -> None:
        """The values that come by a hop, those of an origin several times."""
        if hop.origin is None:
            begin, end = self.spans[hop.read]
            self.through(hop.read, begin, end, lambda value: action(value, self.k.let("one", 1)))
            return

        def hand_on(value: Expr, ways: Expr) -> None:
            begin, end = self.span(hop.read, value)
            self.through(hop.read, begin, end, lambda other: action(other, ways))

        self.of_variable(hop.origin, hand_on)

    def through(self, read: int, begin: Expr, end: Expr, action: Callable[[Expr], None]) -> None:
        k, values = self.k, self.indexes[read][3]
        at = k.let("at", begin)
        with k.while_(at < end):
            action(k.load(values, at, "x"))
            k.set(at, at + 1)

    def of_variable(self, variable: Variable, action: Action, once: bool = True) -> None:
        """Each value of a variable with all that comes to it: once, or in parts, which come to the same sum."""
        k = self.k
        (hop, power), *others = variable.hops
        messages = [(self.message(other), times) for other, times in others]
        is_along = power == 1 and (hop.origin is None or not once)
        message = None if is_along else self.message(hop)
        if message is not None and power > 1:
            messages.append((message, power - 1))

        def some(value: Expr, ways: Expr) -> None:
            product = k.let("ways", self.times(ways, value, messages))
            with k.when(product > 0):
                action(value, product)

        if message is None:
            self.along(hop, some if messages else action)
        else:
            self.of_message(message, some if messages else action)
            if power == 1:
                self.clear(message)
        for one, _ in messages:
            self.clear(one)

    def message(self, hop: Hop) -> _Message:
        """The numbers of ways to all values that come by a hop."""
        k, made = self.k, _Message(self.k, len(self.messages))
        self.messages.append(made)
        k.set(made.count, 0)

        def count_ways(value: Expr, ways: Expr) -> None:
            position = value - self.low
            before = k.load(made.numbers, position, "before")
            k.store(made.numbers, position, before + ways)
            # Stored in any case, so that there is no branch.
            k.store(made.values, made.count, value)
            with k.when(equal(before, 0)):
                k.set(made.count, made.count + 1)

        self.along(hop, count_ways)
        return made

    def of_message(self, message: _Message, action: Action) -> None:
        k, at = self.k, self.k.let("at", 0)
        with k.while_(at < message.count):
            value = k.load(message.values, at, "x")
            action(value, k.load(message.numbers, value - self.low, "ways"))
            k.set(at, at + 1)

    def clear(self, message: _Message) -> None:
        k, at = self.k, self.k.let("at", 0)
        with k.while_(at < message.count):
            k.store(message.numbers, k.load(message.values, at, "x") - self.low, 0)
            k.set(at, at + 1)


def _depth(hop: Hop) -> int:
    """How many hops there are before it."""
    return 0 if hop.origin is None else 1 + max(_depth(before) for before, _ in hop.origin.hops)
