"""The two passes of a level fold over a program, emitted into a kernel: `kernels.level_fold` says what they compute.

`forward` computes the slots in order. `backward` goes through slots and operands in exactly the reverse of that order
(what was touched last is still in the cache) and adds to each operand's adjoint what the rule of plus or times gives
it; nothing is divided, so zeros need no care.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from derivable.algebra.expr.functions import equal, less, logical_and, logical_not, where
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr
from derivable.algebra.typed import TypedFunction, TypedMonoid
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute

if TYPE_CHECKING:
    from derivable.circuit.kernels.level_fold import LevelFold

# The columns of `runs`.
FIRST, COUNT, PAIRS, SINGLES, FACTORS, START = range(6)
_RUN = 6
Registers = tuple[n.Register, ...]
Arrays = tuple[n.Array, ...]


class Passes:
    """Emits the passes of a level fold into one kernel.

    values, adjoints, partial  the buffers that the passes work on, one array per component
    """

    values: Arrays
    adjoints: Arrays
    partial: Arrays

    def __init__(self, name: str, fold: LevelFold):
        self.k = Builder(name, max(8, fold.schedule.lanes))
        self.fold, self.typed, self.dtypes = fold, fold.typed, fold.dtypes
        self.is_lines = fold.schedule.lanes > 1
        self.float_dtypes = tuple(self.dtypes[k] for k in fold.floats)

    # Registers and buffers

    def buffers(self, name: str, components: Sequence[int] | None = None) -> Arrays:
        """One array of slots per component."""
        return self.columns(name, components, self.is_lines)

    def columns(self, name: str, components: Sequence[int] | None = None, is_lines: bool = False) -> Arrays:
        several = len(self.dtypes) > 1
        every = range(len(self.dtypes)) if components is None else components
        return tuple(self.k.array(f"{name}{k if several else ''}", self.dtypes[k], is_lines) for k in every)

    def program(self) -> None:
        self.runs, self.terms = self.k.array("runs", "int32"), self.k.array("terms", "int32")
        self.num_runs = self.k.scalar("num_runs")

    def load(self, arrays: Arrays, index: Any, name: str) -> Registers:
        return tuple(self.k.load(array, index, name) for array in arrays)

    def store(self, arrays: Arrays, index: Any, values: Sequence[Any]) -> None:
        for array, value in zip(arrays, values, strict=True):
            self.k.store(array, index, value)

    def let(self, name: str, values: Sequence[Expr]) -> tuple[Expr, ...]:
        """Registers with these values; constants stay what they are."""
        found = tuple(value if isinstance(value, Constant) else self.k.register(name, value.dtype) for value in values)
        computed = [(target, value) for target, value in zip(found, values) if isinstance(target, Argument)]
        self.k.set([target for target, _ in computed], [value for _, value in computed])
        return found

    def set(self, targets: Registers, values: Sequence[Expr]) -> None:
        constants = [k for k, value in enumerate(values) if self.is_lines and isinstance(value, Constant)]
        others = [k for k in range(len(targets)) if k not in constants]
        self.k.set([targets[k] for k in others], [values[k] for k in others])
        for k in constants:
            self.k.spread(targets[k], values[k])

    def constants(self, name: str, values: Sequence[Any], dtypes: Sequence[str]) -> Registers:
        targets = tuple(self.k.register(name, dtype) for dtype in dtypes)
        for target, value in zip(targets, values, strict=True):
            if self.is_lines:
                self.k.spread(target, Constant(value, target.dtype))
            else:
                self.k.set(target, Constant(value, target.dtype))
        return targets

    def holds(self, name: str, condition: Expr) -> Expr:
        """Whether a condition holds in all lanes."""
        return self.k.all_lanes(name, condition) if self.is_lines else condition

    # Operations

    def plus(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        return _combined(self.typed.plus, left, right)

    def times(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        return _combined(self.typed.times, left, right)

    def pulled(
        self, monoid: TypedMonoid, left: Sequence[Expr], right: Sequence[Expr], adjoint: Sequence[Expr]
    ) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """The adjoints of both operands."""
        rule = self.fold.plus_rule if monoid is self.typed.plus else self.fold.times_rule
        given = dict(zip((*monoid.left, *monoid.right), (*left, *right), strict=True))
        given |= self.adjoint_arguments(monoid.adjoints.arguments, adjoint)
        values = substitute(rule, given)
        if not self.fold.is_plain:
            # A zero adjoint contributes zero even where the factor is infinite.
            dead = self.vanished(adjoint)
            values = tuple(
                value if _vanishes(value, adjoint) else where(dead, Constant(0, value.dtype), value) for value in values
            )
        return values[: len(values) // 2], values[len(values) // 2 :]

    def pulled_once(self, function: TypedFunction, x: Sequence[Expr], adjoint: Sequence[Expr]) -> tuple[Expr, ...]:
        """The adjoints of what a function of one element is applied to; zero where those of its value are."""
        arguments, (rule,) = function.adjoints
        given = dict(zip(function.operands[0], x, strict=True)) | self.adjoint_arguments(arguments, adjoint)
        return substitute([rule[c] for c in self.fold.floats], given)

    def adjoint_arguments(self, arguments: Sequence[Argument], adjoint: Sequence[Expr]) -> dict[Argument, Expr]:
        return {arguments[k]: value for k, value in zip(self.fold.floats, adjoint, strict=True)}

    def vanished(self, adjoint: Sequence[Expr]) -> Expr:
        tests = [equal(a, Constant(0, a.dtype)) for a in adjoint if not isinstance(a, Constant)]
        # Constants among adjoints are zeros.
        return reduce(logical_and, tests) if tests else Constant(True, "bool")

    @contextmanager
    def live(self, adjoint: Sequence[Expr]) -> Iterator[None]:
        """What follows is left out where the adjoint is zero in all lanes, if that is common: in minima and maxima."""
        if self.fold.is_plain:
            yield
            return
        idle = self.vanished(adjoint)
        with self.k.when(logical_not(idle if isinstance(idle, Constant) else self.holds("idle", idle))):
            yield

    def push(self, slot: Expr, adjoint: Sequence[Expr]) -> None:
        """Add to the adjoint of a slot."""
        for array, value in zip(self.adjoints, adjoint, strict=True):
            if not isinstance(value, Constant):
                self.k.store(array, slot, self.k.load(array, slot, "before") + value)

    # Terms: what is at a position in `terms`

    def slot(self, index: Expr) -> n.Register:
        return self.k.load(self.terms, index, "slot")

    def single(self, index: Expr) -> Registers:
        return self.load(self.values, self.slot(index), "x")

    def pair(self, index: Expr) -> tuple[Expr, ...]:
        return self.times(self.single(index), self.single(index + 1))

    def push_single(self, index: Expr, adjoint: Sequence[Expr]) -> None:
        self.push(self.slot(index), adjoint)

    def push_pair(self, index: Expr, adjoint: Sequence[Expr]) -> None:
        first, second = self.slot(index), self.slot(index + 1)
        x, y = self.load(self.values, first, "x"), self.load(self.values, second, "y")
        left, right = self.pulled(self.typed.times, x, y, adjoint)
        # Both before either is added: the slots may be the same.
        self.push(first, left)
        self.push(second, right)

    # The passes

    @contextmanager
    def each_run(self, down: bool = False) -> Iterator[_Run]:
        with self.k.loop("run", 0, self.num_runs, down=down) as run:

            def field(column: int, name: str) -> n.Register:
                return self.k.load(self.runs, run * _RUN + column, name)

            yield _Run(
                field(FIRST, "first"),
                field(COUNT, "num_slots"),
                field(PAIRS, "pairs"),
                field(SINGLES, "singles"),
                field(FACTORS, "factors"),
                field(START, "at"),
            )

    def forward(self) -> None:
        k = self.k
        with self.each_run() as run:
            if self.fold.has_negation:
                with k.when(less(run.factors, 0)):
                    self.each_slot(run, 1, lambda at: self.let("total", applied(self.typed.negation, self.single(at))))
                    k.continue_()
            with k.when(less(0, run.factors)):
                self.each_slot(run, run.factors, lambda at: self.product(at, run.factors))
            with k.otherwise():
                with k.when(logical_and(equal(run.pairs, 1), equal(run.singles, 0))):
                    self.each_slot(run, 2, lambda at: self.let("total", self.pair(at)))
                with k.otherwise():
                    with k.when(logical_and(equal(run.pairs, 2), equal(run.singles, 0))):
                        self.each_slot(
                            run, 4, lambda at: self.let("total", self.plus(self.pair(at), self.pair(at + 2)))
                        )
                    with k.otherwise():
                        width = k.let("width", 2 * run.pairs + run.singles)
                        self.each_slot(run, width, lambda at: self.sum(at, run))

    def each_slot(self, run: _Run, width: Any, compute: Callable[[n.Register], Sequence[Expr]]) -> None:
        with self.k.loop("slot", run.first, run.first + run.count) as slot:
            self.store(self.values, slot, compute(run.at))
            self.k.set(run.at, run.at + width)

    def product(self, at: Expr, factors: Expr) -> Registers:
        total = self.single(at)
        with self.k.loop("factor", 1, factors) as factor:
            self.set(total, self.times(total, self.single(at + factor)))
        return total

    def sum(self, at: Expr, run: _Run) -> Registers:
        k = self.k
        total = tuple(k.register("total", dtype) for dtype in self.dtypes)
        begin = k.let("begin", 0)
        with k.when(less(0, run.pairs)):
            self.set(total, self.pair(at))
            with k.loop("term", 1, run.pairs) as term:
                self.set(total, self.plus(total, self.pair(at + 2 * term)))
        with k.otherwise():
            self.set(total, self.single(at))
            k.set(begin, 1)
        first = k.let("single", at + 2 * run.pairs)
        with k.loop("term", begin, run.singles) as term:
            self.set(total, self.plus(total, self.single(first + term)))
        return total

    def backward(self) -> None:
        k = self.k
        with self.each_run(down=True) as run:
            width = k.let("width", 2 * run.pairs + run.singles + abs(run.factors))
            k.set(run.at, run.at + run.count * width)

            def each_slot(push: Callable[[n.Register, Registers], None]) -> None:
                with k.loop("slot", run.first, run.first + run.count, down=True) as slot:
                    k.set(run.at, run.at - width)
                    adjoint = self.load(self.adjoints, slot, "a")
                    with self.live(adjoint):
                        push(run.at, adjoint)

            if self.fold.has_negation:
                with k.when(less(run.factors, 0)):
                    each_slot(self.push_negation)
                    k.continue_()
            with k.when(less(0, run.factors)):
                if self.fold.times_hands_on:
                    each_slot(lambda at, adjoint: self.push_each(at, run.factors, adjoint))
                else:
                    with k.when(equal(run.factors, 3)):
                        each_slot(self.push_three)
                    with k.otherwise():
                        each_slot(lambda at, adjoint: self.push_product(at, run.factors, adjoint))
            with k.otherwise():
                if self.fold.hands_on:
                    each_slot(lambda at, adjoint: self.push_free_sum(at, run, adjoint))
                else:
                    with k.when(logical_and(equal(run.pairs, 1), equal(run.singles, 0))):
                        each_slot(self.push_pair)
                    with k.otherwise():
                        each_slot(lambda at, adjoint: self.push_sum(at, run, adjoint))

    def push_negation(self, at: Expr, adjoint: Registers) -> None:
        slot = self.slot(at)
        x = self.load(self.values, slot, "x")
        self.push(slot, self.let("own", self.pulled_once(self.typed.negation, x, adjoint)))

    def push_each(self, at: Expr, count: Expr, adjoint: Registers) -> None:
        """A product that hands its adjoint on."""
        with self.k.loop("term", 0, count, down=True) as term:
            self.push_single(at + term, adjoint)

    def push_last(
        self,
        monoid: TypedMonoid,
        before: Sequence[Expr],
        term: Sequence[Expr],
        adjoint: Registers,
        push: Callable[[Sequence[Expr]], None],
    ) -> None:
        """Give the last term its adjoint; that of all before it is what `adjoint` is then."""
        left, right = self.pulled(monoid, before, term, adjoint)
        own = self.let("own", right)
        self.set(adjoint, left)
        push(own)

    def push_three(self, at: Expr, adjoint: Registers) -> None:
        slots = [self.slot(at + place) for place in range(3)]
        x, y, z = (self.load(self.values, slot, name) for slot, name in zip(slots, "xyz"))
        times = self.typed.times
        self.push_last(times, self.let("xy", self.times(x, y)), z, adjoint, lambda a: self.push(slots[2], a))
        self.push_last(times, x, y, adjoint, lambda a: self.push(slots[1], a))
        self.push(slots[0], adjoint)

    def push_product(self, at: Expr, factors: Expr, adjoint: Registers) -> None:
        k = self.k
        total = self.single(at)
        self.store(self.partial, 0, total)
        with k.loop("factor", 1, factors - 1) as factor:
            self.set(total, self.times(total, self.single(at + factor)))
            self.store(self.partial, factor, total)
        with k.loop("factor", 1, factors, down=True) as factor:
            slot = self.slot(at + factor)
            x, before = self.load(self.values, slot, "x"), self.load(self.partial, factor - 1, "before")
            self.push_last(self.typed.times, before, x, adjoint, lambda a: self.push(slot, a))
        self.push_single(at, adjoint)

    def push_sum(self, at: Expr, run: _Run, adjoint: Registers) -> None:
        """Form the partial results of a sum again and go through them backwards."""
        k, plus = self.k, self.typed.plus
        total = tuple(k.register("total", dtype) for dtype in self.dtypes)
        count = k.let("num_terms", run.pairs + run.singles)
        # The position of single number `term`, counted with the pairs.
        singles = k.let("single", at + run.pairs)
        with k.when(less(0, run.pairs)):
            self.set(total, self.pair(at))
        with k.otherwise():
            self.set(total, self.single(at))
        self.store(self.partial, 0, total)
        last_pair = k.let("stop", where(less(run.pairs, count), run.pairs, count - 1))
        with k.loop("term", 1, last_pair) as term:
            self.set(total, self.plus(total, self.pair(at + 2 * term)))
            self.store(self.partial, term, total)
        first_single = k.let("begin", where(less(run.pairs, 1), 1, run.pairs))
        with k.loop("term", first_single, count - 1) as term:
            self.set(total, self.plus(total, self.single(singles + term)))
            self.store(self.partial, term, total)
        with k.loop("term", first_single, count, down=True) as term:
            before = self.load(self.partial, term - 1, "before")
            slot = self.slot(singles + term)
            x = self.load(self.values, slot, "x")
            self.push_last(plus, before, x, adjoint, lambda a: self.push(slot, a))
        with k.loop("term", 1, run.pairs, down=True) as term:
            before = self.load(self.partial, term - 1, "before")
            x = self.let("product", self.pair(at + 2 * term))

            def push(own: Sequence[Expr]) -> None:
                with self.live(own):
                    self.push_pair(at + 2 * term, own)

            self.push_last(plus, before, x, adjoint, push)
        with k.when(less(0, run.pairs)):
            self.push_pair(at, adjoint)
        with k.otherwise():
            self.push_single(at, adjoint)

    def push_free_sum(self, at: Expr, run: _Run, adjoint: Registers) -> None:
        """A sum that hands its adjoint on."""
        single = self.k.let("single", at + 2 * run.pairs)
        with self.k.loop("term", 0, run.singles, down=True) as term:
            self.push_single(single + term, adjoint)
        with self.k.loop("term", 0, run.pairs, down=True) as term:
            self.push_pair(at + 2 * term, adjoint)


def applied(function: TypedFunction, x: Sequence[Expr]) -> tuple[Expr, ...]:
    return substitute(function.values, dict(zip(function.operands[0], x, strict=True)))


def _combined(monoid: TypedMonoid, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
    return substitute(monoid.values, dict(zip((*monoid.left, *monoid.right), (*left, *right), strict=True)))


@dataclass(frozen=True)
class _Run:
    """The registers of one run; `at` is moved from slot to slot."""

    first: n.Register
    count: n.Register
    pairs: n.Register
    singles: n.Register
    factors: n.Register
    at: n.Register


def _vanishes(value: Expr, adjoint: Sequence[Expr]) -> bool:
    """Whether a value is surely zero where the adjoint is."""
    if isinstance(value, Constant):
        return value.value == 0
    if isinstance(value, Apply):
        operands = value.operands[1:] if value.operation == "where" else value.operands
        if value.operation in ("where", "add", "subtract", "negate"):
            return all(_vanishes(operand, adjoint) for operand in operands)
        return False
    return len(adjoint) == 1 and value in adjoint
