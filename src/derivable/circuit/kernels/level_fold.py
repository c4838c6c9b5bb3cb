"""The primitive "fold levels" as kernels: sums of products over a program, in any semiring, forward and in reverse.

A program is a list of runs over a buffer of slots, [slot] for one row of a batch or [slot, lane] for a line of rows;
`kernels.levels_plan` makes it and says what runs and terms are. `forward` computes the slots in order, and `backward`
adds up the adjoints of their operands (`kernels.level_passes`). `fold_values` and `fold_gradient` are the whole call:
for each tile of rows they read weights, fold, and write.

A value has one component or several, each with buffers of its own; those that are floats have adjoints. Sums and
products are folded from the left in the order of their terms, and the rules go through the partial results backwards,
so minima and maxima give the adjoint of a tie to the first term.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce

from derivable.algebra.expr.functions import equal, less, logical_and, logical_not, where
from derivable.algebra.expr.nodes import Apply, Expr, in_order
from derivable.algebra.semiring import TypedSemiring
from derivable.algebra.typed import TypedMonoid
from derivable.circuit.kernels.level_passes import Arrays, Passes, Registers, applied
from derivable.kernel import nodes as n
from derivable.kernel.lines import has_line_form
from derivable.kernel.schedule import Schedule


class LevelFold:
    """What the level fold of a semiring needs, and its kernels.

    has_negation    whether programs may have negations; circuits have none
    floats          the components that have adjoints
    plus_rule, ...  adjoints of the left operand, then of the right one [2 * float component]; () without derivatives
    has_gradient    whether there are derivatives
    hands_on        whether plus hands its adjoint on to both operands as it is, so that the reverse pass needs no
                    partial results of sums; `times_hands_on` likewise
    is_plus_free    whether the order of the terms of a sum shows in rounding only: where plus hands its adjoint on, and
                    for one bool; the order of a maximum shows where it ties
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
        all_float = len(self.floats) == len(self.dtypes)
        self.hands_on = self._hands_on(typed.plus, self.plus_rule)
        self.times_hands_on = self._hands_on(typed.times, self.times_rule)
        self.is_plus_free = (self.hands_on and all_float) or self.dtypes == ("bool",)
        plain = {"add", "subtract", "multiply", "negate"}
        rules = in_order((*self.plus_rule, *self.times_rule))
        self.is_plain = self.hands_on and all(x.operation in plain for x in rules if isinstance(x, Apply))
        self.schedule = self._schedule()

    def _rule(self, monoid: TypedMonoid) -> tuple[Expr, ...]:
        if not self.has_gradient:
            return ()
        rule = monoid.adjoints
        return tuple(side[k] for side in (rule.left, rule.right) for k in self.floats)

    def _hands_on(self, monoid: TypedMonoid, rule: tuple[Expr, ...]) -> bool:
        return self.has_gradient and rule == 2 * tuple(monoid.adjoints.arguments[k] for k in self.floats)

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
        emit = Passes("forward", self)
        emit.values = emit.buffers("values")
        emit.program()
        emit.forward()
        return emit.k.kernel()

    @cached_property
    def backward(self) -> n.Kernel:
        """backward(values.., adjoints.., partial.., runs, terms, num_runs): adds to `adjoints` what each slot's gives.

        adjoints  those of the roots are set, all others zero
        partial   scratch, with as many rows as the longest product has factors, or sum has terms unless `hands_on`
        """
        emit = Passes("backward", self)
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
        emit = _Call("fold_values", self)
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
        emit = _Call("fold_gradient", self)
        emit.parameters(gradient=True)
        with emit.each_tile():
            with emit.k.when(emit.has_out):
                emit.write_roots()
            emit.seed_and_fold_back()
            emit.write_gradients()
        emit.k.return_(-1)
        return emit.k.kernel()


class _Call(Passes):
    """Emits a whole call: tiles of rows around the passes."""

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
                    self.store(self.values, other, self.let("y", applied(self.typed.complement, found)))
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
