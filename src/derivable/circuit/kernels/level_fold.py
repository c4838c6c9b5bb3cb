"""The primitive "fold levels" as kernels: sums of products over a program, in any semiring, forward and in reverse.

A program is a list of runs over a buffer of slots, [slot] for one row of a batch or [slot, lane] for a line of rows;
`device.cpu.levels_plan` makes it and says what runs and terms are. `forward` computes the slots in order. `backward`
goes through slots and operands in exactly the reverse of that order (what was touched last is still in the cache) and
adds to each operand's adjoint what the rule of plus or times gives it; nothing is divided, so zeros need no care.
`values` and `gradient` are the whole call: for each tile of rows they read weights, fold, and write.

A value has one component or several, each with buffers of its own; those that are floats have adjoints. Sums and
products are folded from the left in the order of their terms, and the rules go through the partial results backwards,
so minima and maxima give the adjoint of a tie to the first term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from derivable.algebra.expr.functions import equal, less, logical_and, logical_not, where
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, arguments_of, in_order
from derivable.algebra.monoid import TypedFunction, TypedMonoid
from derivable.algebra.semiring import TypedSemiring
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute
from derivable.kernel.emit_numba import has_line_form
from derivable.kernel.schedule import Schedule

# The columns of `runs`.
FIRST, COUNT, PAIRS, SINGLES, FACTORS, START = range(6)
_RUN = 6
Registers = tuple[n.Register, ...]
Arrays = tuple[n.Array, ...]


class LevelFold:
    """What the level fold of a semiring needs, and its kernels.

    has_negation    whether programs may have negations; circuits have none
    floats          the components that have adjoints
    plus_rule, ...  adjoints of the left operand, then of the right one [2 * float component]; () without derivatives
    has_gradient    whether there are derivatives
    hands_on        whether plus hands its adjoint on to both operands as it is
    is_plus_free    whether the order of the terms of a sum shows in rounding only: where plus hands its adjoint on, and
                    for one bool; the order of a maximum shows where it ties
    partial_sums    whether the rule of plus reads its operands, so that the reverse pass needs partial results of sums
    is_plain        whether adjoints are sums of products of adjoints and operands, so that a zero gives zeros
    schedule        lines of 8 or 16 rows where all operations have a form on lines and the components fit, else row by
                    row
    """

    def __init__(self, typed: TypedSemiring, has_negation: bool = False):
        self.typed, self.has_negation = typed, has_negation
        self.dtypes = typed.dtypes
        self.floats = typed.plus.float_components
        self.has_gradient = typed.semiring.differentiable and len(self.floats) > 0
        self.plus_rule, self.times_rule = self._rule(typed.plus), self._rule(typed.times)
        adjoints = typed.plus.adjoints.arguments if self.has_gradient else ()
        handed_on = tuple(adjoints[k] for k in self.floats) if self.has_gradient else ()
        all_float = len(self.floats) == len(self.dtypes)
        self.hands_on = self.has_gradient and self.plus_rule == (*handed_on, *handed_on)
        self.is_plus_free = (self.hands_on and all_float) or self.dtypes == ("bool",)
        self.partial_sums = not set(arguments_of(self.plus_rule)) <= set(adjoints)
        plain = {"add", "subtract", "multiply", "negate"}
        rules = in_order((*self.plus_rule, *self.times_rule))
        self.is_plain = not self.partial_sums and all(x.operation in plain for x in rules if isinstance(x, Apply))
        self.schedule = self._schedule()

    def _rule(self, monoid: TypedMonoid) -> tuple[Expr, ...]:
        if not self.has_gradient:
            return ()
        rule = monoid.adjoints
        return tuple(side[k] for side in (rule.left, rule.right) for k in self.floats)

    def _schedule(self) -> Schedule:
        typed = self.typed
        exprs = [*typed.plus.values, *typed.times.values, *self.plus_rule, *self.times_rule]
        for function in (typed.complement, typed.negation if self.has_negation else None):
            if function is not None:
                exprs += function.values
                if self.has_gradient:
                    exprs += function.adjoints[1][0]
        if has_line_form(exprs):
            for lanes, held in ((16, {"bool", "float32"}), (8, {"bool", "int64", "float64"})):
                if held.issuperset(self.dtypes) and (lanes == 8 or "float32" in self.dtypes):
                    return Schedule(lanes)
        return Schedule()

    @cached_property
    def forward(self) -> n.Kernel:
        """forward(values.., runs, terms, num_runs): all inner slots of `values` from constants and leaves."""
        emit = _Emitter("forward", self)
        emit.values = emit.buffers("values")
        emit.program()
        emit.forward()
        return emit.k.kernel()

    @cached_property
    def backward(self) -> n.Kernel:
        """backward(values.., adjoints.., partial.., runs, terms, num_runs): adds to `adjoints` what each slot's gives.

        adjoints  those of the roots are set, all others zero
        partial   scratch, with as many rows as the longest product has factors, or sum has terms if `partial_sums`
        """
        emit = _Emitter("backward", self)
        emit.values, emit.adjoints = emit.buffers("values"), emit.buffers("adjoints", self.floats)
        emit.partial = emit.buffers("partial")
        emit.program()
        emit.backward()
        return emit.k.kernel()

    @cached_property
    def fold_values(self) -> n.Kernel:
        """Rows start:stop of a batch; returns -1, or the first row of a tile with a NaN weight.

        lanes                      rows of a tile: 1 for buffers [slot], else the lanes of a line
        has_negative               whether there are negative weights; if not, they are the complement of the weights
        positive, negative         [variable] int32: the slots of the literals
        roots                      [root] int32: slots
        weights, negative_weights  [row, variable], one array per component
        values                     scratch [slot] or [slot, lane]; bool lines are masks, integers as wide as the lanes
        out                        [row, root]
        """
        emit = _Emitter("fold_values", self)
        emit.parameters()
        with emit.each_tile():
            emit.write_roots()
        emit.k.return_(-1)
        return emit.k.kernel()

    @cached_property
    def fold_gradient(self) -> n.Kernel:
        """As `fold_values`, with the gradient of the sum of the roots weighted by seeds.

        has_out, has_seeds           whether roots are written, and whether seeds are given; without they are ones
        adjoints, partial            scratch as in `backward`
        seeds                        [row, root] the adjoints of the roots
        gradient, negative_gradient  [row, variable]
        """
        emit = _Emitter("fold_gradient", self)
        emit.parameters(gradient=True)
        with emit.each_tile():
            with emit.k.when(emit.has_out):
                emit.write_roots()
            emit.seed_and_fold_back()
            emit.write_gradients()
        emit.k.return_(-1)
        return emit.k.kernel()


class _Emitter:
    """Emits one kernel."""

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
            # No adjoint, no contribution: 0 * inf has no say.
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
                    self.each_slot(run, 1, lambda at: self.let("total", _applied(self.typed.negation, self.single(at))))
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
        k, times = self.k, self.typed.times
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
                if set(arguments_of(self.fold.times_rule)) <= set(times.adjoints.arguments):
                    each_slot(lambda at, adjoint: self.push_each(at, run.factors, adjoint))
                else:
                    with k.when(equal(run.factors, 3)):
                        each_slot(self.push_three)
                    with k.otherwise():
                        each_slot(lambda at, adjoint: self.push_product(at, run.factors, adjoint))
            with k.otherwise():
                if self.fold.partial_sums:
                    with k.when(logical_and(equal(run.pairs, 1), equal(run.singles, 0))):
                        each_slot(self.push_pair)
                    with k.otherwise():
                        with k.when(logical_and(equal(run.pairs, 2), equal(run.singles, 0))):
                            each_slot(self.push_two_pairs)
                        with k.otherwise():
                            each_slot(lambda at, adjoint: self.push_sum(at, run, adjoint))
                else:
                    each_slot(lambda at, adjoint: self.push_free_sum(at, run, adjoint))

    def push_negation(self, at: Expr, adjoint: Registers) -> None:
        slot = self.slot(at)
        x = self.load(self.values, slot, "x")
        self.push(slot, self.let("own", self.pulled_once(self.typed.negation, x, adjoint)))

    def push_each(self, at: Expr, count: Expr, adjoint: Registers) -> None:
        """A product whose rule reads no operands."""
        with self.k.loop("term", 1, count, down=True) as term:
            self.push_last(self.typed.times, (), (), adjoint, lambda a: self.push_single(at + term, a))
        self.push_single(at, adjoint)

    def push_last(
        self,
        monoid: TypedMonoid,
        before: Sequence[Expr],
        term: Sequence[Expr],
        adjoint: Registers,
        push: Callable[[Sequence[Expr]], None],
    ) -> None:
        """Give the last term its adjoint; that of all before it is what `adjoint` is then. () where no rule reads."""
        if not before:
            before = term = tuple(Constant(0, dtype) for dtype in self.dtypes)
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

    def push_two_pairs(self, at: Expr, adjoint: Sequence[Expr]) -> None:
        first, second = self.let("term", self.pair(at)), self.let("term", self.pair(at + 2))
        left, right = self.pulled(self.typed.plus, first, second, adjoint)
        left, right = self.let("own", left), self.let("own", right)
        for place, own in ((at + 2, right), (at, left)):
            with self.live(own):
                self.push_pair(place, own)

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
        """The adjoint of each term is that of the sum: the rule of plus reads nothing."""
        if not self.fold.hands_on:
            self.push_scaled_sum(at, run, adjoint)
            return
        single = self.k.let("single", at + 2 * run.pairs)
        with self.k.loop("term", 0, run.singles, down=True) as term:
            self.push_single(single + term, adjoint)
        with self.k.loop("term", 0, run.pairs, down=True) as term:
            self.push_pair(at + 2 * term, adjoint)

    def push_scaled_sum(self, at: Expr, run: _Run, adjoint: Registers) -> None:
        """A rule that reads nothing and changes the adjoint on its way, as of a + 2 * b."""
        k, plus = self.k, self.typed.plus
        singles = k.let("single", at + run.pairs)
        with k.loop("term", where(less(run.pairs, 1), 1, run.pairs), run.pairs + run.singles, down=True) as term:
            self.push_last(plus, (), (), adjoint, lambda a: self.push_single(singles + term, a))
        with k.loop("term", 1, run.pairs, down=True) as term:
            self.push_last(plus, (), (), adjoint, lambda a: self.push_pair(at + 2 * term, a))
        with k.when(less(0, run.pairs)):
            self.push_pair(at, adjoint)
        with k.otherwise():
            self.push_single(at, adjoint)

    # The whole call

    def parameters(self, gradient: bool = False) -> None:
        k, floats = self.k, self.fold.floats
        self.start, self.stop, self.lanes = k.scalar("start"), k.scalar("stop"), k.scalar("lanes")
        self.has_negative = k.scalar("has_negative", "bool")
        if gradient:
            self.has_out, self.has_seeds = k.scalar("has_out", "bool"), k.scalar("has_seeds", "bool")
        self.program()
        self.num_variables, self.num_roots = k.scalar("num_variables"), k.scalar("num_roots")
        self.positive, self.negative = k.array("positive", "int32"), k.array("negative", "int32")
        self.roots = k.array("roots", "int32")
        self.weights, self.negative_weights = self.columns("weights"), self.columns("negative_weights")
        self.values = self.buffers("values")
        self.out = self.columns("out")
        if gradient:
            self.num_slots = k.scalar("num_slots")
            self.adjoints, self.partial = self.buffers("adjoints", floats), self.buffers("partial")
            self.seeds = self.columns("seeds", floats)
            self.gradient = self.columns("gradient", floats)
            self.negative_gradient = self.columns("negative_gradient", floats)

    def load_rows(self, arrays: Arrays, index: Expr, stride: Expr, name: str) -> Registers:
        if not self.is_lines:
            return self.load(arrays, index, name)
        targets = []
        for array in arrays:
            target = self.k.register(name, array.dtype)  # type: ignore[arg-type]
            self.k.load_rows(target, array, index, stride, self.count)
            targets.append(target)
        return tuple(targets)

    def store_rows(self, arrays: Arrays, index: Expr, stride: Expr, values: Sequence[Expr]) -> None:
        for array, value in zip(arrays, values, strict=True):
            if self.is_lines:
                self.k.store_rows(array, index, stride, self.count, value)
            else:
                self.k.store(array, index, value)

    @contextmanager
    def each_tile(self) -> Iterator[None]:
        """A loop over tiles of rows, with all slots computed."""
        k = self.k
        for slot, constant in enumerate((self.typed.zero, self.typed.one)):
            self.store(self.values, slot, self.constants("constant", constant, self.dtypes))
        self.row = k.let("row", self.start)
        with k.while_(less(self.row, self.stop)):
            left = self.stop - self.row
            self.count = k.let("count", where(less(self.lanes, left), self.lanes, left))
            self.read_and_fold()
            yield
            k.set(self.row, self.row + self.lanes)

    def read_and_fold(self) -> None:
        """Read a tile's weights and compute all slots."""
        k = self.k
        (valid,) = self.constants("valid", (True,), ("bool",)) if self.fold.floats else (None,)

        def read(arrays: Arrays, slot: Expr, variable: Expr) -> Registers:
            found = self.load_rows(arrays, self.row * self.num_variables + variable, self.num_variables, "x")
            self.store(self.values, slot, found)
            if valid is not None:
                k.set(valid, reduce(logical_and, [equal(found[c], found[c]) for c in self.fold.floats], valid))
            return found

        with k.loop("variable", 0, self.num_variables) as variable:
            found = read(self.weights, k.load(self.positive, variable, "slot"), variable)
            other = k.load(self.negative, variable, "other")
            with k.when(self.has_negative):
                read(self.negative_weights, other, variable)
            if self.typed.complement is not None:
                with k.otherwise():
                    self.store(self.values, other, self.let("y", _applied(self.typed.complement, found)))
        if valid is not None:
            with k.when(logical_not(self.holds("fine", valid))):
                k.return_(self.row)
        k.call(self.fold.forward, (*self.values, self.runs, self.terms, self.num_runs))

    def write_roots(self) -> None:
        with self.k.loop("root", 0, self.num_roots) as root:
            found = self.load(self.values, self.k.load(self.roots, root, "slot"), "x")
            self.store_rows(self.out, self.row * self.num_roots + root, self.num_roots, found)

    def seed_and_fold_back(self) -> None:
        k = self.k
        nothing, unit = (
            self.constants(name, [value] * len(self.float_dtypes), self.float_dtypes)
            for value, name in enumerate(("nothing", "unit"))
        )
        with k.loop("slot", 0, self.num_slots) as slot:
            self.store(self.adjoints, slot, nothing)
        with k.loop("root", 0, self.num_roots) as root:
            slot = k.load(self.roots, root, "slot")
            with k.when(self.has_seeds):
                index = self.row * self.num_roots + root
                self.push(slot, self.load_rows(self.seeds, index, self.num_roots, "seed"))
            with k.otherwise():
                self.push(slot, unit)
        arguments = (*self.values, *self.adjoints, *self.partial, self.runs, self.terms, self.num_runs)
        k.call(self.fold.backward, arguments)

    def write_gradients(self) -> None:
        k = self.k
        with k.loop("variable", 0, self.num_variables) as variable:
            slot, other = k.load(self.positive, variable, "slot"), k.load(self.negative, variable, "other")
            index = k.let("index", self.row * self.num_variables + variable)
            a, b = self.load(self.adjoints, slot, "a"), self.load(self.adjoints, other, "b")
            with k.when(self.has_negative):
                self.store_rows(self.gradient, index, self.num_variables, a)
                self.store_rows(self.negative_gradient, index, self.num_variables, b)
            with k.otherwise():
                if self.typed.complement is not None:
                    more = self.pulled_once(self.typed.complement, self.load(self.values, slot, "x"), b)
                    a = self.let("total", tuple(x + y for x, y in zip(a, more, strict=True)))
                self.store_rows(self.gradient, index, self.num_variables, a)


def _applied(function: TypedFunction, x: Sequence[Expr]) -> tuple[Expr, ...]:
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
