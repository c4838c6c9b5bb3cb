"""RAM to loops: the leading steps of a query become one kernel over rows of its driver.

A `Plan` says what the kernel does, without names: registers are numbered in the order of binding, and constants of
scans are parameters. So rules of one shape share a kernel, whatever they are called. The kernel is a loop over rows of
the driver with one loop inside for each join, conditions where they are first decidable, and writes candidates to
columns until they are full. It is called again with the positions of all loops, which it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from derivable.algebra.expr.functions import bitcast, cast, equal
from derivable.algebra.expr.nodes import Argument, Constant, Expr
from derivable.algebra.expr.types import FLOATS
from derivable.algebra.semiring import TypedSemiring
from derivable.core.and_or import TRUE as CERTAIN
from derivable.datalog.fused.emit_intersection import emit_intersection
from derivable.datalog.fused.kernel_steps import (
    ONE,
    Condition,
    Count,
    Define,
    Factor,
    Intersect,
    Match,
    Plan,
    Probe,
    Rows,
    first_free_loop,
)
from derivable.datalog.kernels.row_sets import SetForm, SetParameters, find, find_words
from derivable.datalog.policy.costs import policy
from derivable.datalog.policy.kernels import Built
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute

# What a kernel is called with: (what, number of the step, column or component).
Key = tuple[str, int, int]


@dataclass(frozen=True)
class RuleKernel:
    """The compiled kernel of a plan; its emitter says what it is called with before the arguments of `parameters`.

    function    what Python calls, or a `llvm_code.Packed`
    parameters  for each argument (what, number of the step, column or component), see `store_state.argument_of`
    columns     dtypes of the columns to write, if it writes any
    """

    function: Any
    parameters: tuple[Key, ...]
    num_positions: int
    columns: tuple[str, ...]


def is_compiled(*key: Any) -> bool:
    """Whether this process has the kernel of an emitter and its arguments already."""
    return key in policy().kernels.made


def compiled(emitter: Any, *arguments: Any) -> Any:
    """The kernel of an emitter and its arguments, a plan first: its function and notes, as the emitter has them."""
    kernels, key = policy().kernels, (emitter, *arguments)
    if key not in kernels.made:
        kernels.made[key] = emitter.compiled(*kernels.of(key, lambda: emitter(*arguments).emit()))
    return kernels.made[key]


class Emitter:
    """Candidates to columns: (i, stop, room, *positions, *arguments, *columns) -> (written, i, *positions, *counts).

    Other emitters have another loop around the driver, or write each row elsewhere.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.k = Builder("store")
        self.parameters: list[Key] = []
        self.arrays: dict[Key, n.Array] = {}
        self.scalars: dict[Key, n.Register] = {}
        self.values: dict[Argument, Expr] = {}
        self.columns: list[n.Array] = []

    def scalar(self, what: str, step: int = 0, part: int = 0) -> n.Register:
        key = what, step, part
        if key not in self.scalars:
            self.parameters.append(key)
            self.scalars[key] = self.k.scalar(_name(what, step))
        return self.scalars[key]

    def array(self, what: str, dtype: str, step: int, part: int = 0) -> n.Array:
        key = what, step, part
        if key not in self.arrays:
            self.parameters.append(key)
            self.arrays[key] = self.k.array(_name(what, step), dtype)
        return self.arrays[key]

    def column(self, name: str, dtype: str) -> n.Array:
        """An array to write to: these come behind all other parameters, wherever they are needed first."""
        made = self.k.array(name, dtype)
        self.k.parameters.pop()
        self.columns.append(made)
        return made

    def value(self, term: Expr) -> Expr:
        return substitute([term], self.values)[0]

    def bind(self, register: Argument, value: Expr) -> None:
        self.values[register] = value if isinstance(value, Argument) else self.k.let("x", value)

    def begin(self) -> None:
        """The parameters and registers of all emitters: positions of loops, constants, and what is counted."""
        k, plan = self.k, self.plan
        self.positions = [k.scalar(f"p{j}") for j in range(plan.num_loops)]
        self.free = iter(self.positions)
        for word in plan.words:
            self.values[word] = self.scalar("word", 0, word.index)
        self.counts = {number: k.let("count", 0) for number in plan.counted}
        self.first_free = first_free_loop(plan)
        self.has_row = k.let("has_row", 0) if self.first_free < len(plan.steps) else None

    def built(self, is_packed: bool = False) -> Built:
        """The kernel, with the fields of its `RuleKernel`."""
        self.k.parameters.extend(self.columns)
        columns = [column.dtype for column in self.columns]
        return Built(self.k.kernel(), is_packed, (self.parameters, self.plan.num_loops, columns))

    @staticmethod
    def compiled(function: Any, notes: Any) -> RuleKernel:
        parameters, num_positions, columns = notes
        return RuleKernel(function, tuple(map(tuple, parameters)), num_positions, tuple(columns))

    def emit(self) -> Built:
        k = self.k
        self.i, stop, self.room = k.scalar("i"), k.scalar("stop"), k.scalar("room")
        self.begin()
        self.written = k.let("written", 0)
        with k.while_(self.i < stop):
            self.driver()
            k.set(self.i, self.i + 1)
        k.return_(self.written, self.i, *self.positions, *self.counts.values())
        return self.built()

    def driver(self) -> None:
        k, step = self.k, self.plan.steps[0]
        assert isinstance(step, Rows)
        log = self.array("log", step.layout.dtype, 0)
        row = k.load(self.array("list", "int64", 0), self.i, "row") if step.is_listed else self.i
        with self.matching(0, log, row, step.layout.width, step.checks, step.repeats):
            for column, register in step.takes:
                self.values[register] = k.load(log, row * step.layout.width + column, "x")
            self.rest(1, self.times(None, "tags", 0, row))

    def matching(
        self, step: int, log: n.Array, row: Expr, width: int, checks: Sequence, repeats: Sequence
    ) -> ExitStack:
        """A block for rows of the log that hold what they must."""
        k, blocks = self.k, ExitStack()
        for column, term in checks:
            there = k.load(log, row * width + column, "key")
            blocks.enter_context(k.when(equal(there, self.value(term))))
        for a, b in repeats:
            pair = k.load(log, row * width + a, "key"), k.load(log, row * width + b, "key")
            blocks.enter_context(k.when(equal(*pair)))
        return blocks

    # Tags: registers of a semiring's components, or the numbers of the matched rows

    def times(self, tags: tuple | None, where: str, step: int, position: Expr) -> tuple | None:
        """The tags times those of a row; `where` is its column of tags."""
        semiring = self.plan.tags
        if semiring == "rows":
            return (*(tags or ()), position)
        if semiring == "factors":
            return (*(tags or ()), self.k.load(self.array(where, "int64", step), position, "tag"))
        if not isinstance(semiring, TypedSemiring):
            return None
        arrays = [self.array(where, dtype, step, c) for c, dtype in enumerate(semiring.dtypes)]
        loaded = tuple(self.k.load(array, position, "tag", dtype) for array, dtype in zip(arrays, semiring.dtypes))
        return loaded if tags is None else self.product(tags, loaded)

    def product(self, a: tuple, b: tuple) -> tuple:
        typed = self.plan.tags
        assert isinstance(typed, TypedSemiring)
        operands = dict(zip((*typed.times.left, *typed.times.right), (*a, *b)))
        made = self.k.registers("tag", typed.dtypes)
        self.k.set(made, substitute(typed.times.values, operands))
        return made

    def is_not_discarded(self, tags: tuple) -> Expr:
        typed = self.plan.tags
        assert isinstance(typed, TypedSemiring)
        (operand,) = typed.discard.operands
        return ~substitute(typed.discard.values, dict(zip(operand, tags)))[0]

    def counter_behind(self, number: int) -> n.Register | None:
        """What counts the rows that come to a step, if that is all that happens to them."""
        return None

    # Steps

    def rest(self, number: int, tags: tuple | None) -> None:
        """The steps from this one on, for the rows at hand."""
        if number in self.counts:
            self.k.set(self.counts[number], self.counts[number] + 1)
        if self.has_row is not None and number == self.first_free:
            # Another row of the loops that bind what is written.
            self.k.set(self.has_row, 0)
        if number == len(self.plan.steps):
            self.write(tags)
            return
        k, step = self.k, self.plan.steps[number]
        match step:
            case Condition(holds=holds):
                with k.when(self.value(holds)):
                    self.rest(number + 1, tags)
            case Define(register=register, value=value):
                self.bind(register, self.value(value))
                self.rest(number + 1, tags)
            case Count():
                at, count = next(self.free), k.let("number", self.value(step.number))
                low = k.let("low", self.value(step.low))
                with k.when(at < 0):
                    k.set(at, 0)
                with k.while_(self.goes_on(number, at < count)):
                    self.bind(step.register, k.let("x", low + at))
                    self.rest(number + 1, tags)
                    k.set(at, at + 1)
                k.set(at, -1)
            case Factor():
                self.rest(number + 1, self.times(tags, "tags", number, Constant(0, "int64")))
            case Probe():
                self.probe(number, step, tags)
            case Intersect():
                emit_intersection(self, number, tags)
            case Match(index="dense"):
                self.dense(number, step, tags)
            case Match(index="range"):
                self.range(number, step, tags)
            case Match():
                self.chain(number, step, tags)

    def probe(self, number: int, step: Probe, tags: tuple | None) -> None:
        k, layout = self.k, step.layout
        # Rows of a nullary relation are one zero.
        terms = [self.value(term) for term in step.terms] or [k.let("nothing", 0)]
        if layout.sets is None:
            row = k.let("row", -1)
            table, log = self.array("table", "uint32", number), self.array("log", layout.dtype, number)
            find_words(k, table, self.scalar("table_size", number), log, layout.width, terms, row)
        else:
            row = find(k, self.set_parameters(number, layout.sets), terms)
        if step.negated:
            self.difference(number, step, tags, row)
            return
        blocks = ExitStack()
        if layout.sets is None or layout.sets.numbered:
            blocks.enter_context(k.when((row >= 0) & (row < self.scalar("limit", number))))
            self.only_older(blocks, number, step, row)
        else:
            blocks.enter_context(k.when(row >= 0))
        with blocks:
            self.rest(number + 1, self.times(tags, "tags", number, row))

    def difference(self, number: int, step: Probe, tags: tuple | None, row: n.Register) -> None:
        k, typed = self.k, self.plan.tags
        if typed == "factors":
            factor = k.let("factor", ONE)
            with k.when(row >= 0):
                k.load_into(factor, self.array("negated", "int64", number), row)
            self.rest(number + 1, (*(tags or ()), factor))
            return
        if isinstance(typed, TypedSemiring):
            made = k.registers("tag", typed.dtypes)
            k.set(made, tags or ())
            with k.when(row >= 0):
                arrays = [self.array("tags", dtype, number, c) for c, dtype in enumerate(typed.dtypes)]
                there = [k.load(array, row, "tag", dtype) for array, dtype in zip(arrays, typed.dtypes)]
                negated = k.registers("negated", typed.dtypes)
                (operand,) = typed.negation.operands
                k.set(negated, substitute(typed.negation.values, dict(zip(operand, there))))
                k.set(made, self.product(made, negated))
            with k.when(self.is_not_discarded(made)):
                self.rest(number + 1, made)
            return
        if step.certain_only:
            with k.when(row >= 0):
                tag = k.load(self.array("tags", "int64", number), row, "tag")
                with k.when(~equal(tag, CERTAIN)):
                    k.set(row, -1)
        with k.when(row < 0):
            self.rest(number + 1, tags)

    def set_parameters(self, number: int, form: SetForm) -> SetParameters:
        self.parameters.append(("sets", number, 0))
        return SetParameters(self.k, form)

    def only_older(self, blocks: ExitStack, number: int, step: Match | Probe, row: Expr) -> None:
        if step.is_stamped:
            stamp = self.k.load(self.array("stamps", "int32", number), row, "stamp")
            blocks.enter_context(self.k.when(stamp <= self.scalar("bound", number)))

    def dense(self, number: int, step: Match, tags: tuple | None) -> None:
        k = self.k
        offsets, top = self.array("offsets", "int64", number), self.scalar("top", number)
        key = k.let("key", self.value(step.keys[0][1]) - self.scalar("low", number))
        inside = (key >= 0) & (key < top)
        if step.only_exists:
            with k.when(inside), k.when(k.load(offsets, key, "start") < k.load(offsets, key + 1, "end")):
                self.rest(number + 1, tags)
            return
        at = next(self.free)
        counter = None if step.repeats else self.counter_behind(number + 1)
        if counter is not None:
            with k.when(inside):
                k.set(counter, counter + k.load(offsets, key + 1, "end") - k.load(offsets, key, "start"))
            return
        with k.when(inside):
            with k.when(at < 0):
                k.load_into(at, offsets, key)
            self.ordered(number, step, tags, at, k.load(offsets, key + 1, "end"))
        k.set(at, -1)

    def ordered(self, number: int, step: Match, tags: tuple | None, at: n.Register, end: Expr) -> None:
        """Rows of an index that has them one after the other, from `at` to `end`."""
        k = self.k
        with k.while_(self.goes_on(number, at < end)):
            blocks = ExitStack()
            for a, b in step.repeats:
                pair = [k.load(self.array("values", "int64", number, c), at, "key") for c in (a, b)]
                blocks.enter_context(k.when(equal(*pair)))
            with blocks:
                for column, register in step.takes:
                    self.values[register] = k.load(self.array("values", "int64", number, column), at, "x")
                row = k.load(self.array("rows", "int64", number), at, "row") if self.plan.tags == "rows" else at
                self.rest(number + 1, self.times(tags, "ordered_tags", number, row))
            k.set(at, at + 1)

    def range(self, number: int, step: Match, tags: tuple | None) -> None:
        """The rows with equal keys and within bounds: each key and each bound is a binary search in what is left."""
        k, at = self.k, next(self.free)
        low, end = k.let("low", 0), k.let("end", self.scalar("top", number))
        searches = [
            (self.array("values", "int64", number, column), (operator, term))
            for column, term in step.keys
            for operator in ("<=", ">=")
        ]
        ordered_words = self.array("ordered_words", "int64", number)
        for values, (operator, term) in (*searches, *((ordered_words, bound) for bound in step.within)):
            word, first, behind = k.let("word", self.value(term)), k.let("first", low), k.let("behind", end)
            with k.while_(first < behind):
                middle = k.let("middle", (first + behind) // 2)
                there = k.load(values, middle, "there")
                with k.when(there < word if operator in (">=", "<") else there <= word):
                    k.set(first, middle + 1)
                with k.otherwise():
                    k.set(behind, middle)
            k.set(low if operator in (">", ">=") else end, first)
        with k.when(at < 0):
            k.set(at, low)
        self.ordered(number, step, tags, at, end)
        k.set(at, -1)

    def chain(self, number: int, step: Match, tags: tuple | None) -> None:
        """Rows with equal hashes one after the other, or all rows."""
        k, layout, is_all = self.k, step.layout, step.index == "all"
        log, limit = self.array("log", layout.dtype, number), self.scalar("limit", number)
        at = k.let("at", -1) if step.only_exists else next(self.free)
        with k.when(at < 0):
            if is_all:
                k.set(at, 0)
            else:
                slot, _ = k.hash([self.value(term) for _, term in step.keys], self.scalar("heads_size", number))
                k.load_into(at, self.array("heads", "int32", number), slot)
        there = k.let("there", False) if step.only_exists else None
        with k.while_(self.goes_on(number, at < limit if is_all else at >= 0)):
            blocks = ExitStack()
            if not is_all:
                blocks.enter_context(k.when(at < limit))
            self.only_older(blocks, number, step, at)
            blocks.enter_context(self.matching(number, log, at, layout.width, step.keys, step.repeats))
            with blocks:
                if there is not None:
                    k.set(there, True)
                    k.break_()
                else:
                    for column, register in step.takes:
                        self.values[register] = k.load(log, at * layout.width + column, "x")
                    self.rest(number + 1, self.times(tags, "tags", number, at))
            if is_all:
                k.set(at, at + 1)
            else:
                k.load_into(at, self.array("following", "int32", number), at)
        if there is not None:
            with k.when(there):
                self.rest(number + 1, tags)
        elif is_all or number >= self.first_free:
            k.set(at, -1)

    def goes_on(self, number: int, is_inside: Expr) -> Expr:
        """The condition of the loop of a step: where it binds nothing that is written, one row written is enough."""
        if self.has_row is None or number < self.first_free:
            return is_inside
        return is_inside & equal(self.has_row, 0)

    def write(self, tags: tuple | None) -> None:
        k, typed = self.k, self.plan.tags
        values = [self.value(term) for term in self.plan.outputs]
        with ExitStack() as blocks:
            if isinstance(typed, TypedSemiring):
                blocks.enter_context(k.when(self.is_not_discarded(tags or ())))
            self.leave_if_full()
            kinds = typed.dtypes if isinstance(typed, TypedSemiring) else ["int64"] * len(tags or ())
            for c, (kind, value) in enumerate(zip((*["int64"] * len(values), *kinds), (*values, *(tags or ())))):
                k.store(self.column(f"out{c}", kind), self.written, value)
            self.has_written()

    def has_written(self) -> None:
        self.k.set(self.written, self.written + 1)
        if self.has_row is not None:
            self.k.set(self.has_row, 1)

    def leave_if_full(self) -> None:
        k = self.k
        with k.when(equal(self.written, self.room)):
            # The rows at hand come again.
            k.return_(self.written, self.i, *self.positions, *(count - 1 for count in self.counts.values()))


def _name(what: str, step: int) -> str:
    return what.removeprefix("target ") if what in ("word", "progress", "left") or " " in what else f"{what}{step}"


def word_of_value(value: Expr) -> Expr:
    """A value of any scalar type as a word."""
    if value.dtype in FLOATS:
        # Adding zero turns -0.0 into 0.0, so that equal floats have equal words.
        return bitcast(cast(value, "float64") + 0.0, "int64")
    return cast(value, "int64")
