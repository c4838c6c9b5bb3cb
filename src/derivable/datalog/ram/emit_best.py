"""RAM to loops: a recursive rule whose rows are told one by one, best tag first, in one kernel.

The kernel takes a row from the best level that has any, goes through the joins as `emit` has them, and enters each
candidate where it is found: a row that is new, or whose tag is better than before, goes to the end of the level of its
tag. So nothing is written that nobody keeps, and nothing leaves the cache. Within a level the first row comes first:
the last one would have long ways told before shorter ones, and all that follows from them again. A row may differ from
the one that it follows from in its last column alone.

Levels are lists of entries: row and tag. An entry whose row has got a better tag since says nothing any more. Level 0
is not told; rows wait there until there are levels for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from derivable.algebra.expr.functions import equal, where
from derivable.algebra.expr.nodes import Expr
from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.kernels import row_sets
from derivable.datalog.kernels.row_sets import SetForm, SetParameters
from derivable.datalog.ram import emit
from derivable.kernel import nodes as n
from derivable.kernel.emit_numba import compile_kernel

# What a kernel returns besides the codes of `row_sets`.
QUEUE_FULL, PAUSED = range(10, 12)
SCALARS = ("entry", "level", "size", "used", "free", "left", "made", "log_room", "arena_room", "queue_room", "levels")
# Those of them that change, and are returned.
CHANGING = SCALARS[:7]


@dataclass(frozen=True)
class BestKernel:
    """(*SCALARS, *positions, *sets, count, state, lows, lasts, following, queued, keys, *arguments) ->
    (code, *CHANGING, *positions).

    entry   the entry whose row is at hand, -1 if none is; left: rows to tell before a pause; made: candidates
    lows    [level] float64, the bounds that tags, times the direction, reach; lasts: the last entry of each level
    following, queued, keys  [entry]: the next one of its level, after the last the first, its row and its tag; free
    ones have row -1, and are a list from `free` on
    parameters  the rest, see `emit.StoreKernel`
    """

    kernel: n.Kernel
    function: Callable
    parameters: tuple[tuple[str, int, int], ...]
    num_positions: int


_compiled: dict[tuple[emit.Plan, SetForm, int], BestKernel] = {}


def compiled_best(plan: emit.Plan, form: SetForm, sign: int) -> BestKernel:
    """The kernel of a plan with tags of one float; larger ones are better if `sign` is 1, else smaller ones."""
    key = plan, form, sign
    if key not in _compiled:
        _compiled[key] = _BestEmitter(plan, form, sign).emit_best()
    return _compiled[key]


class _BestEmitter(emit.Emitter):
    def __init__(self, plan: emit.Plan, form: SetForm, sign: int):
        super().__init__(plan)
        assert isinstance(plan.tags, TypedSemiring)
        self.form, self.sign = form, sign

    def emit_best(self) -> BestKernel:
        k, plan = self.k, self.plan
        scalars = [k.scalar(name) for name in SCALARS]
        self.entry, self.level, self.size, self.used, self.next_free, self.left, self.made = self.changing = scalars[:7]
        self.log_room, self.arena_room, self.queue_room, self.levels = scalars[7:]
        self.positions = [k.scalar(f"p{j}") for j in range(plan.num_loops)]
        self.free = iter(self.positions)
        self.sets = SetParameters(k, self.form)
        self.count, self.state = k.array("count", "int32"), k.array("state", "int64")
        self.lows, self.lasts = k.array("lows", "float64"), k.array("lasts", "int64")
        self.following, self.queued = k.array("following", "int64"), k.array("queued", "int64")
        self.keys = k.array("keys", "float64")
        self.counts, self.first_free, self.found = {}, len(plan.steps), None
        for word in plan.words:
            self.values[word] = self.scalar("word", 0, word.index)
        driver = plan.steps[0]
        assert isinstance(driver, emit.Rows)
        self.width = driver.layout.width
        self.log = self.array("log", driver.layout.dtype, 0)
        self.row_tags = self.array("tags", "float64", 0)
        with k.while_(self.level > 0):
            with k.when(self.entry < 0):
                self.take()
            row = k.load(self.queued, self.entry, "row")
            self.prefix = [k.load(self.log, row * self.width + c, "first") for c in range(self.width - 1)]
            self.x = self.prefix[0] if self.width == 2 else k.let("prefix", 0)
            if self.form.has_table:
                row_sets.find_words(
                    k, self.sets.table, self.sets.table_size, self.sets.words, self.width - 1, self.prefix, self.x
                )
            self.block = row_sets.block_of(k, self.sets, self.x)
            with self.matching(0, self.log, row, self.width, driver.checks, driver.repeats):
                for column, register in driver.takes:
                    self.values[register] = k.load(self.log, row * self.width + column, "x")
                self.rest(1, (k.load(self.keys, self.entry, "tag", "float64"),))
            self.release()
        self.leave(row_sets.DONE)
        kernel = k.kernel()
        return BestKernel(kernel, compile_kernel(kernel), tuple(self.parameters), plan.num_loops)

    def leave(self, code: int) -> None:
        self.k.return_(code, *self.changing, *self.positions)

    def take(self) -> None:
        """Take the next entry that still says something; the loop begins anew where there is none."""
        k = self.k
        with k.when(equal(self.left, 0)):
            self.leave(PAUSED)
        last = k.load(self.lasts, self.level, "end")
        with k.when(last < 0):
            k.set(self.level, self.level - 1)
            k.continue_()
        k.load_into(self.entry, self.following, last)
        with k.when(equal(self.entry, last)):
            k.store(self.lasts, self.level, -1)
        with k.otherwise():
            k.store(self.following, last, k.load(self.following, self.entry, "next"))
        there = k.load(self.row_tags, k.load(self.queued, self.entry, "row"), "tag", "float64")
        with k.when(~equal(there, k.load(self.keys, self.entry, "key", "float64"))):
            self.release()
            k.continue_()
        k.set(self.left, self.left - 1)

    def release(self) -> None:
        k = self.k
        k.store(self.queued, self.entry, -1)
        k.store(self.following, self.entry, self.next_free)
        k.set(self.next_free, self.entry)
        k.set(self.entry, -1)

    def write(self, tags: tuple | None) -> None:
        assert tags is not None
        k, (tag,) = self.k, tags
        with k.when(self.is_kept((tag,))):
            with k.when((self.next_free < 0) & equal(self.used, self.queue_room)):
                self.leave(QUEUE_FULL)
            with k.when(equal(self.size, self.log_room)):
                self.leave(row_sets.LOG_FULL)
            y = k.let("last", self.value(self.plan.outputs[-1]))
            with k.when((y < 0) | (y >= self.sets.domain)):
                self.leave(row_sets.OUT_OF_REACH)
            is_new, number = row_sets.enter_last(
                *(k, self.sets, self.count, self.state, self.x, y, self.size, self.arena_room, self.leave, self.block)
            )
            assert number is not None
            k.set(self.made, self.made + 1)
            with k.when(is_new):
                for c, value in enumerate((*self.prefix, y)):
                    k.store(self.log, number * self.width + c, value)
                k.set(self.size, self.size + 1)
            with k.otherwise():
                there = k.load(self.row_tags, number, "there", "float64")
                k.set(is_new, there < tag if self.sign > 0 else tag < there)
            with k.when(is_new):
                k.store(self.row_tags, number, tag)
                self.queue(number, tag)

    def queue(self, number: Expr, tag: Expr) -> None:
        k = self.k
        key = tag if self.sign > 0 else k.let("key", -tag)
        k.comment("Without branches, which nobody could foretell.")
        low, step = k.let("low", 0), k.let("step", self.levels // 2)
        with k.while_(step > 0):
            bound = k.load(self.lows, low + step, "bound", "float64")
            k.set(low, where(bound <= key, low + step, low))
            k.set(step, step // 2)
        place = k.let("place", self.next_free)
        with k.when(place < 0):
            k.set(place, self.used)
            k.set(self.used, self.used + 1)
        with k.otherwise():
            k.load_into(self.next_free, self.following, place)
        k.store(self.queued, place, number)
        k.store(self.keys, place, tag)
        end = k.load(self.lasts, low, "end")
        with k.when(end < 0):
            k.store(self.following, place, place)
        with k.otherwise():
            k.store(self.following, place, k.load(self.following, end, "head"))
            k.store(self.following, end, place)
        k.store(self.lasts, low, place)
        with k.when(low > self.level):
            k.set(self.level, low)
