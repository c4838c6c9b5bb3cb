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
from functools import reduce
from typing import Any

from derivable.algebra.expr.functions import equal, less, logical_and, logical_not, where
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, arguments_of, in_order
from derivable.algebra.expr.types import FLOATS, Dtype
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute
from derivable.kernel.emit_numba import has_line_form
from derivable.kernel.schedule import Schedule

# The columns of `runs`.
FIRST, COUNT, PAIRS, SINGLES, FACTORS, START = range(6)
_RUN = 6
Registers = tuple[n.Register, ...]
Arrays = tuple[n.Array, ...]


@dataclass(frozen=True)
class LevelOperators:
    """A semiring as a level fold needs it: expressions of scalars, one or several for each value.

    dtypes              [component]
    zero, one           [component] numbers
    left, right         [component] the arguments of plus and times
    plus, times         [component]
    complement          [component] of `left`; None if there is none
    adjoint             [float component] what stands for the adjoint of the result in the rules
    plus_vjp, ...       the adjoints of the left operand, then of the right one [2 * float component]; None if there are
                        no derivatives
    """

    dtypes: tuple[Dtype, ...]
    zero: tuple[Any, ...]
    one: tuple[Any, ...]
    left: tuple[Argument, ...]
    right: tuple[Argument, ...]
    plus: tuple[Expr, ...]
    times: tuple[Expr, ...]
    complement: tuple[Expr, ...] | None
    adjoint: tuple[Argument, ...]
    plus_vjp: tuple[Expr, ...] | None
    times_vjp: tuple[Expr, ...] | None
    complement_vjp: tuple[Expr, ...] | None

    @property
    def floats(self) -> tuple[int, ...]:
        """The components that have adjoints."""
        return tuple(k for k, dtype in enumerate(self.dtypes) if dtype in FLOATS)

    @property
    def is_differentiable(self) -> bool:
        return self.plus_vjp is not None and self.times_vjp is not None

    @property
    def is_plus_free(self) -> bool:
        """Whether the order of the terms of a sum shows in rounding only.

        So it is where plus hands its adjoint on as it is, and for one bool. A maximum's order shows where it ties.
        """
        if self.plus_vjp is not None and self.floats == tuple(range(len(self.dtypes))):
            return self.plus_vjp == (*self.adjoint, *self.adjoint)
        return self.dtypes == ("bool",)

    @property
    def partial_sums(self) -> bool:
        """Whether the rule of plus reads its operands, so that the reverse pass needs the partial results of sums."""
        return self.plus_vjp is not None and not set(arguments_of(self.plus_vjp)) <= set(self.adjoint)

    @property
    def is_plain(self) -> bool:
        """Whether the adjoints are sums of products of adjoints and operands, so a zero gives zeros."""
        plain = {"add", "subtract", "multiply", "negate"}
        rules = (*(self.plus_vjp or ()), *(self.times_vjp or ()))
        found = all(node.operation in plain for node in in_order(rules) if isinstance(node, Apply))
        return found and not self.partial_sums

    def expressions(self) -> tuple[Expr, ...]:
        rules = self.complement, self.plus_vjp, self.times_vjp, self.complement_vjp
        return (*self.plus, *self.times, *(expr for rule in rules for expr in rule or ()))


def schedule_of(operators: LevelOperators) -> Schedule:
    """Lines of 8 or 16 rows where all operations have a form on lines and all components fit, else row by row."""
    if has_line_form(operators.expressions()):
        for lanes, held in ((16, {"bool", "float32"}), (8, {"bool", "int64", "float64"})):
            if held.issuperset(operators.dtypes) and (lanes == 8 or "float32" in operators.dtypes):
                return Schedule(lanes)
    return Schedule()


def forward_kernel(operators: LevelOperators, schedule: Schedule) -> n.Kernel:
    """forward(values.., runs, terms, num_runs): all inner slots of `values` from constants and leaves."""
    fold = _Fold("forward", operators, schedule)
    fold.values = fold.buffers("values")
    fold.program()
    fold.forward()
    return fold.k.kernel()


def backward_kernel(operators: LevelOperators, schedule: Schedule) -> n.Kernel:
    """backward(values.., adjoints.., partial.., runs, terms, num_runs): adds to `adjoints` what each slot's gives.

    adjoints  those of the roots are set, all others zero
    partial   scratch, with as many rows as the longest product has factors, or sum has terms if rules of plus read them
    """
    fold = _Fold("backward", operators, schedule)
    fold.values, fold.adjoints = fold.buffers("values"), fold.buffers("adjoints", operators.floats)
    fold.partial = fold.buffers("partial")
    fold.program()
    fold.backward()
    return fold.k.kernel()


def values_kernel(operators: LevelOperators, schedule: Schedule) -> n.Kernel:
    """Rows start:stop of a batch; returns -1, or the first row of a tile with a NaN weight.

    lanes                      rows of a tile: 1 for buffers [slot], else the lanes of a line
    has_negative               whether there are negative weights; if not, they are the complement of the weights
    positive, negative         [variable] int32: the slots of the literals
    roots                      [root] int32: slots
    weights, negative_weights  [row, variable], one array per component
    values                     scratch [slot] or [slot, lane]; bool lines are masks, integers of the lanes' width
    out                        [row, root]
    """
    fold = _Fold("fold_values", operators, schedule)
    fold.parameters()
    with fold.each_tile():
        fold.write_roots()
    fold.k.return_(-1)
    return fold.k.kernel()


def gradient_kernel(operators: LevelOperators, schedule: Schedule) -> n.Kernel:
    """As `values_kernel`, with the gradient of the sum of the roots weighted by seeds.

    has_out, has_seeds           whether roots are written, and whether seeds are given; without they are ones
    adjoints, partial            scratch as in `backward_kernel`
    seeds                        [row, root] the adjoints of the roots
    gradient, negative_gradient  [row, variable]
    """
    fold = _Fold("fold_gradient", operators, schedule)
    fold.parameters(gradient=True)
    with fold.each_tile():
        with fold.k.when(fold.has_out):
            fold.write_roots()
        fold.seed_and_fold_back()
        fold.write_gradients()
    fold.k.return_(-1)
    return fold.k.kernel()


class _Fold:
    """Emits one kernel."""

    def __init__(self, name: str, operators: LevelOperators, schedule: Schedule):
        self.k = Builder(name, max(8, schedule.lanes))
        self.operators, self.schedule = operators, schedule
        self.is_lines = schedule.lanes > 1
        self.floats = operators.floats
        self.float_dtypes = tuple(operators.dtypes[k] for k in self.floats)

    # Registers and buffers

    def buffers(self, name: str, components: Sequence[int] | None = None) -> Arrays:
        """One array of slots per component."""
        return self.columns(name, components, self.is_lines)

    def columns(self, name: str, components: Sequence[int] | None = None, is_lines: bool = False) -> Arrays:
        every = range(len(self.operators.dtypes)) if components is None else components
        dtypes = self.operators.dtypes
        return tuple(self.k.array(f"{name}{k if len(dtypes) > 1 else ''}", dtypes[k], is_lines) for k in every)

    def program(self) -> None:
        self.runs, self.terms = self.k.array("runs", "int32"), self.k.array("terms", "int32")
        self.num_runs = self.k.scalar("num_runs")

    def load(self, arrays: Arrays, index: Any, name: str) -> Registers:
        return tuple(self.k.load(array, index, name) for array in arrays)

    def store(self, arrays: Arrays, index: Any, values: Sequence[Any]) -> None:
        for array, value in zip(arrays, values, strict=True):
            self.k.store(array, index, value)

    def let(self, name: str, values: Sequence[Expr]) -> Registers:
        targets = tuple(self.k.register(name, value.dtype) for value in values)
        self.k.set(targets, values)
        return targets

    def constants(self, name: str, values: Sequence[Any], dtypes: Sequence[Dtype]) -> Registers:
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

    def combined(self, exprs: tuple[Expr, ...], left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        operators = self.operators
        return substitute(exprs, dict(zip((*operators.left, *operators.right), (*left, *right), strict=True)))

    def plus(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        return self.combined(self.operators.plus, left, right)

    def times(self, left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, ...]:
        return self.combined(self.operators.times, left, right)

    def pulled(
        self, rule: tuple[Expr, ...] | None, left: Sequence[Expr], right: Sequence[Expr], adjoint: Registers
    ) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """The adjoints of both operands."""
        assert rule is not None
        operators = self.operators
        given = dict(zip(operators.adjoint, adjoint, strict=True))
        given |= dict(zip((*operators.left, *operators.right), (*left, *right), strict=True))
        values = substitute(rule, given)
        if not operators.is_plain:
            # No adjoint, no contribution: 0 * inf has no say.
            dead = self.vanished(adjoint)
            values = tuple(
                value if _vanishes(value, adjoint) else where(dead, Constant(0, value.dtype), value) for value in values
            )
        return values[: len(values) // 2], values[len(values) // 2 :]

    def vanished(self, adjoint: Registers) -> Expr:
        return reduce(logical_and, [equal(a, Constant(0, a.dtype)) for a in adjoint])

    @contextmanager
    def live(self, adjoint: Registers) -> Iterator[None]:
        """What follows is left out where the adjoint is zero in all lanes, if that is common: in minima and maxima."""
        if self.operators.is_plain:
            yield
        else:
            with self.k.when(logical_not(self.holds("idle", self.vanished(adjoint)))):
                yield

    def push(self, slot: Expr, adjoint: Sequence[Expr]) -> None:
        """Add to the adjoint of a slot."""
        for array, value in zip(self.adjoints, adjoint, strict=True):
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

    def push_pair(self, index: Expr, adjoint: Registers) -> None:
        first, second = self.slot(index), self.slot(index + 1)
        x, y = self.load(self.values, first, "x"), self.load(self.values, second, "y")
        left, right = self.pulled(self.operators.times_vjp, x, y, adjoint)
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

    def each_slot(self, run: _Run, width: Any, compute: Callable[[n.Register], Registers]) -> None:
        with self.k.loop("slot", run.first, run.first + run.count) as slot:
            self.store(self.values, slot, compute(run.at))
            self.k.set(run.at, run.at + width)

    def product(self, at: Expr, factors: Expr) -> Registers:
        total = self.single(at)
        with self.k.loop("factor", 1, factors) as factor:
            self.k.set(total, self.times(total, self.single(at + factor)))
        return total

    def sum(self, at: Expr, run: _Run) -> Registers:
        k = self.k
        total = tuple(k.register("total", dtype) for dtype in self.operators.dtypes)
        begin = k.let("begin", 0)
        with k.when(less(0, run.pairs)):
            k.set(total, self.pair(at))
            with k.loop("term", 1, run.pairs) as term:
                k.set(total, self.plus(total, self.pair(at + 2 * term)))
        with k.otherwise():
            k.set(total, self.single(at))
            k.set(begin, 1)
        first = k.let("single", at + 2 * run.pairs)
        with k.loop("term", begin, run.singles) as term:
            k.set(total, self.plus(total, self.single(first + term)))
        return total

    def backward(self) -> None:
        k, operators = self.k, self.operators
        with self.each_run(down=True) as run:
            width = k.let("width", 2 * run.pairs + run.singles + run.factors)
            k.set(run.at, run.at + run.count * width)

            def each_slot(push: Callable[[n.Register, Registers], None]) -> None:
                with k.loop("slot", run.first, run.first + run.count, down=True) as slot:
                    k.set(run.at, run.at - width)
                    adjoint = self.load(self.adjoints, slot, "a")
                    with self.live(adjoint):
                        push(run.at, adjoint)

            with k.when(less(0, run.factors)):
                if set(arguments_of(operators.times_vjp or ())) <= set(operators.adjoint):
                    each_slot(lambda at, adjoint: self.push_each(operators.times_vjp, at, run.factors, adjoint))
                else:
                    with k.when(equal(run.factors, 3)):
                        each_slot(self.push_three)
                    with k.otherwise():
                        each_slot(lambda at, adjoint: self.push_product(at, run.factors, adjoint))
            with k.otherwise():
                if operators.partial_sums:
                    with k.when(logical_and(equal(run.pairs, 1), equal(run.singles, 0))):
                        each_slot(self.push_pair)
                    with k.otherwise():
                        with k.when(logical_and(equal(run.pairs, 2), equal(run.singles, 0))):
                            each_slot(self.push_two_pairs)
                        with k.otherwise():
                            each_slot(lambda at, adjoint: self.push_sum(at, run, adjoint))
                else:
                    each_slot(lambda at, adjoint: self.push_free_sum(at, run, adjoint))

    def push_each(self, rule: tuple[Expr, ...] | None, at: Expr, count: Expr, adjoint: Registers) -> None:
        """A fold whose rule reads no operands."""
        with self.k.loop("term", 1, count, down=True) as term:
            adjoint = self.push_last(rule, (), (), adjoint, lambda a: self.push_single(at + term, a))
        self.push_single(at, adjoint)

    def push_last(
        self,
        rule: tuple[Expr, ...] | None,
        before: Sequence[Expr],
        term: Sequence[Expr],
        adjoint: Registers,
        push: Callable[[Registers], None],
    ) -> Registers:
        """Give the last term its adjoint; those of all before it are what `adjoint` is then."""
        assert rule is not None
        if not before:
            before = term = tuple(Constant(0, dtype) for dtype in self.operators.dtypes)
        left, right = self.pulled(rule, before, term, adjoint)
        own = self.let("own", right)
        self.k.set(adjoint, left)
        push(own)
        return adjoint

    def push_three(self, at: Expr, adjoint: Registers) -> None:
        slots = [self.slot(at + place) for place in range(3)]
        x, y, z = (self.load(self.values, slot, name) for slot, name in zip(slots, "xyz"))
        rule = self.operators.times_vjp
        adjoint = self.push_last(rule, self.let("xy", self.times(x, y)), z, adjoint, lambda a: self.push(slots[2], a))
        adjoint = self.push_last(rule, x, y, adjoint, lambda a: self.push(slots[1], a))
        self.push(slots[0], adjoint)

    def push_product(self, at: Expr, factors: Expr, adjoint: Registers) -> None:
        k = self.k
        total = self.single(at)
        self.store(self.partial, 0, total)
        with k.loop("factor", 1, factors - 1) as factor:
            k.set(total, self.times(total, self.single(at + factor)))
            self.store(self.partial, factor, total)
        with k.loop("factor", 1, factors, down=True) as factor:
            slot = self.slot(at + factor)
            x, before = self.load(self.values, slot, "x"), self.load(self.partial, factor - 1, "before")
            self.push_last(self.operators.times_vjp, before, x, adjoint, lambda a: self.push(slot, a))
        self.push_single(at, adjoint)

    def push_two_pairs(self, at: Expr, adjoint: Registers) -> None:
        first, second = self.let("term", self.pair(at)), self.let("term", self.pair(at + 2))
        left, right = self.pulled(self.operators.plus_vjp, first, second, adjoint)
        left, right = self.let("own", left), self.let("own", right)
        for place, own in ((at + 2, right), (at, left)):
            with self.live(own):
                self.push_pair(place, own)

    def push_sum(self, at: Expr, run: _Run, adjoint: Registers) -> None:
        """Form the partial results of a sum again and go through them backwards."""
        k, rule = self.k, self.operators.plus_vjp
        total = tuple(k.register("total", dtype) for dtype in self.operators.dtypes)
        count = k.let("num_terms", run.pairs + run.singles)
        # The position of single number `term`, counted with the pairs.
        singles = k.let("single", at + run.pairs)
        with k.when(less(0, run.pairs)):
            k.set(total, self.pair(at))
        with k.otherwise():
            k.set(total, self.single(at))
        self.store(self.partial, 0, total)
        last_pair = k.let("stop", where(less(run.pairs, count), run.pairs, count - 1))
        with k.loop("term", 1, last_pair) as term:
            k.set(total, self.plus(total, self.pair(at + 2 * term)))
            self.store(self.partial, term, total)
        first_single = k.let("begin", where(less(run.pairs, 1), 1, run.pairs))
        with k.loop("term", first_single, count - 1) as term:
            k.set(total, self.plus(total, self.single(singles + term)))
            self.store(self.partial, term, total)
        with k.loop("term", first_single, count, down=True) as term:
            before = self.load(self.partial, term - 1, "before")
            slot = self.slot(singles + term)
            x = self.load(self.values, slot, "x")
            self.push_last(rule, before, x, adjoint, lambda a: self.push(slot, a))
        with k.loop("term", 1, run.pairs, down=True) as term:
            before = self.load(self.partial, term - 1, "before")
            x = self.let("product", self.pair(at + 2 * term))

            def push(own: Registers) -> None:
                with self.live(own):
                    self.push_pair(at + 2 * term, own)

            self.push_last(rule, before, x, adjoint, push)
        with k.when(less(0, run.pairs)):
            self.push_pair(at, adjoint)
        with k.otherwise():
            self.push_single(at, adjoint)

    def push_free_sum(self, at: Expr, run: _Run, adjoint: Registers) -> None:
        """The adjoint of each term is that of the sum: the rule of plus reads nothing."""
        single = self.k.let("single", at + 2 * run.pairs)
        rule = self.operators.plus_vjp
        if rule != (*self.operators.adjoint, *self.operators.adjoint):
            self.push_scaled_sum(at, run, adjoint)
            return
        with self.k.loop("term", 0, run.singles, down=True) as term:
            self.push_single(single + term, adjoint)
        with self.k.loop("term", 0, run.pairs, down=True) as term:
            self.push_pair(at + 2 * term, adjoint)

    def push_scaled_sum(self, at: Expr, run: _Run, adjoint: Registers) -> None:
        """A rule that reads nothing and changes the adjoint on its way, as of a + 2 * b."""
        k, rule = self.k, self.operators.plus_vjp
        singles = k.let("single", at + run.pairs)
        with k.loop("term", where(less(run.pairs, 1), 1, run.pairs), run.pairs + run.singles, down=True) as term:
            self.push_last(rule, (), (), adjoint, lambda a: self.push_single(singles + term, a))
        with k.loop("term", 1, run.pairs, down=True) as term:
            self.push_last(rule, (), (), adjoint, lambda a: self.push_pair(at + 2 * term, a))
        with k.when(less(0, run.pairs)):
            self.push_pair(at, adjoint)
        with k.otherwise():
            self.push_single(at, adjoint)

    # The whole call

    def parameters(self, gradient: bool = False) -> None:
        k, floats = self.k, self.floats
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
        k, operators = self.k, self.operators
        for slot, constant in enumerate((operators.zero, operators.one)):
            self.store(self.values, slot, self.constants("constant", constant, operators.dtypes))
        self.row = k.let("row", self.start)
        with k.while_(less(self.row, self.stop)):
            left = self.stop - self.row
            self.count = k.let("count", where(less(self.lanes, left), self.lanes, left))
            self.read_and_fold()
            yield
            k.set(self.row, self.row + self.lanes)

    def read_and_fold(self) -> None:
        """Read a tile's weights and compute all slots."""
        k, operators = self.k, self.operators
        (valid,) = self.constants("valid", (True,), ("bool",)) if self.floats else (None,)

        def read(arrays: Arrays, slot: Expr, variable: Expr) -> Registers:
            found = self.load_rows(arrays, self.row * self.num_variables + variable, self.num_variables, "x")
            self.store(self.values, slot, found)
            if valid is not None:
                k.set(valid, reduce(logical_and, [equal(found[c], found[c]) for c in self.floats], valid))
            return found

        with k.loop("variable", 0, self.num_variables) as variable:
            found = read(self.weights, k.load(self.positive, variable, "slot"), variable)
            other = k.load(self.negative, variable, "other")
            with k.when(self.has_negative):
                read(self.negative_weights, other, variable)
            if operators.complement is not None:
                with k.otherwise():
                    given = dict(zip(operators.left, found, strict=True))
                    self.store(self.values, other, self.let("y", substitute(operators.complement, given)))
        if valid is not None:
            with k.when(logical_not(self.holds("fine", valid))):
                k.return_(self.row)
        k.call(forward_kernel(operators, self.schedule), (*self.values, self.runs, self.terms, self.num_runs))

    def write_roots(self) -> None:
        with self.k.loop("root", 0, self.num_roots) as root:
            found = self.load(self.values, self.k.load(self.roots, root, "slot"), "x")
            self.store_rows(self.out, self.row * self.num_roots + root, self.num_roots, found)

    def seed_and_fold_back(self) -> None:
        k, operators = self.k, self.operators
        nothing = self.constants("nothing", [0] * len(self.floats), self.float_dtypes)
        unit = self.constants("unit", [1] * len(self.floats), self.float_dtypes)
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
        k.call(backward_kernel(operators, self.schedule), arguments)

    def write_gradients(self) -> None:
        k, operators = self.k, self.operators
        with k.loop("variable", 0, self.num_variables) as variable:
            slot, other = k.load(self.positive, variable, "slot"), k.load(self.negative, variable, "other")
            index = k.let("index", self.row * self.num_variables + variable)
            a, b = self.load(self.adjoints, slot, "a"), self.load(self.adjoints, other, "b")
            with k.when(self.has_negative):
                self.store_rows(self.gradient, index, self.num_variables, a)
                self.store_rows(self.negative_gradient, index, self.num_variables, b)
            with k.otherwise():
                if operators.complement_vjp is not None:
                    given = dict(zip(operators.left, self.load(self.values, slot, "x"), strict=True))
                    given |= dict(zip(operators.adjoint, b, strict=True))
                    more = substitute(operators.complement_vjp, given)
                    a = self.let("total", tuple(x + y for x, y in zip(a, more, strict=True)))
                self.store_rows(self.gradient, index, self.num_variables, a)


@dataclass(frozen=True)
class _Run:
    """The registers of one run; `at` is moved from slot to slot."""

    first: n.Register
    count: n.Register
    pairs: n.Register
    singles: n.Register
    factors: n.Register
    at: n.Register


def _vanishes(value: Expr, adjoint: Registers) -> bool:
    """Whether a value is surely zero where the adjoint is."""
    if isinstance(value, Constant):
        return value.value == 0
    if isinstance(value, Apply):
        operands = value.operands[1:] if value.operation == "where" else value.operands
        if value.operation in ("where", "add", "subtract", "negate"):
            return all(_vanishes(operand, adjoint) for operand in operands)
        return False
    return len(adjoint) == 1 and value in adjoint
