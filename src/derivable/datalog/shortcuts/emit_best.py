"""RAM to loops: a recursive rule whose rows are told one by one, best tag first, prefix after prefix, in one kernel.

What follows from rows of a prefix has that prefix, so prefixes are separate recursions. The kernel spreads the tags
of one over an array by the last column. It takes a row from the best level that has any, goes through the joins as
`emit` has them, and looks at one tag for each candidate: one that is new, or better than before, goes to the end of
the level of its tag. When no row of the prefix waits any more, tags go to their column. Within a level the first row
comes first: the last one would have long ways told before shorter ones, and all that follows from them again.

Levels are lists of entries: last column and tag. An entry whose row has got a better tag since says nothing any more.
What is in the lowest level waits there until there are levels for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from derivable.algebra.expr.functions import bitcast, cast, equal, where
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.fused import emit, kernel_steps
from derivable.datalog.kernels.row_sets import DONE, LOG_FULL, OUT_OF_REACH
from derivable.datalog.policy.kernels import Built

# Integers up to here are floats.
EXACT = 1 << 53
# What a kernel returns besides the codes of `row_sets`.
QUEUE_FULL, PAUSED, LOWEST = range(10, 13)
SCALARS = ("group", "first", "entry", "level", "size", "used", "free", "left", "made", "beyond")
LIMITS = ("groups", "log_room", "queue_room", "domain", "floor")
FLOATS = ("base", "scale", "last_cell")


class BestEmitter(emit.Emitter):
    """Rows of one prefix after another, with tags of one float: larger ones are better if `sign` is 1, else smaller
    ones. (*SCALARS, *LIMITS, *FLOATS, starts, old_rows, waits, local, cells, lasts, following, queued, keys,
    *positions, *arguments) -> (code, *SCALARS, *positions).

    group, groups  the prefix at hand, and how many there are; first: the row where its new ones begin, -1 before it
                   begins
    entry          the entry whose row is at hand, -1 if none is
    left           rows to propagate before a pause; made: candidates; beyond: a last column that is not below `domain`
    floor          a level that is not propagated: 0, or -1 to propagate all
    starts, old_rows, waits  [group + 1], [k], [k]: the rows that are there, prefix after prefix, and whether they wait
    local          [domain] float64, worse than all tags where there is no row
    base, scale    what is taken from a tag, times the direction, and what it is multiplied by, to find its cell
    cells, lasts   [cell], [level] int32: the level of a cell, better tags being higher; the last entry of a level
    following, queued, keys  [entry]: the next one of its level, after the last the first, its last column and its tag;
                   free ones have column -1, and are a list from `free` on

    values  without tags, the type of the last column, which has a lattice: "float64", "int64", or "uint64" of words
            that are no integers with a sign. It is what tags are else, and the columns before it are those of the table
    """

    def __init__(self, plan: kernel_steps.Plan, sign: int, values: str | None = None):
        super().__init__(plan)
        assert isinstance(plan.tags, TypedSemiring) == (values is None)
        self.sign, self.values_type = sign, values
        self.tag_dtype = "float64" if values in (None, "float64") else "int64"
        self.absent = Constant(-sign * float("inf"), "float64")

    def emit(self) -> Built:
        k = self.k
        self.changing = [k.scalar(name) for name in SCALARS]
        self.group, self.first, self.entry, self.level, self.size = self.changing[:5]
        self.used, self.next_free, self.left, self.made, self.beyond = self.changing[5:]
        groups, self.log_room, self.queue_room, self.domain, self.floor = map(k.scalar, LIMITS)
        self.base, self.scale, self.last_cell = (k.scalar(name, "float64") for name in FLOATS)
        self.starts, self.old_rows, self.waits = (
            k.array("starts", "int64"),
            k.array("old_rows", "int64"),
            k.array("waits", "bool"),
        )
        self.local = k.array("local", "float64")
        self.cells, self.lasts = k.array("cells", "int32"), k.array("lasts", "int32")
        self.following, self.queued = k.array("following", "int32"), k.array("queued", "int32")
        self.keys = k.array("keys", "float64")
        self.begin()
        driver = self.plan.steps[0]
        assert isinstance(driver, kernel_steps.Rows)
        self.width = driver.layout.width
        self.log = self.array("log", driver.layout.dtype, 0)
        self.row_tags = self.array("tags", self.tag_dtype, 0)
        with k.while_(self.group < groups):
            row = k.load(self.old_rows, k.load(self.starts, self.group, "start"), "row")
            self.prefix = [k.load(self.log, row * self.width + c, "first") for c in range(self.width - 1)]
            with k.when(self.first < 0):
                self.begin_prefix()
            with k.while_(self.level > self.floor):
                with k.when(self.entry < 0):
                    self.take()
                self.propagate(driver)
                self.release()
            with k.when(equal(self.floor, 0)), k.when(k.load(self.lasts, 0, "end") >= 0):
                self.leave(LOWEST)
            self.finish()
        self.leave(DONE)
        return self.built()

    def leave(self, code: int) -> None:
        self.k.return_(code, *self.changing, *self.positions)

    # One prefix

    def begin_prefix(self) -> None:
        """Spread the tags of the rows that are there, and queue those that wait."""
        k = self.k
        k.set((self.first, self.used, self.next_free, self.level), (self.size, 0, -1, 0))
        with self.each_old_row() as (position, row, y):
            tag = k.load(self.row_tags, row, "tag", self.tag_dtype)
            if self.tag_dtype != "float64":
                tag = k.let("tag", cast(tag, "float64"))
            k.store(self.local, y, tag)
            with k.when(k.load(self.waits, position, "waits")):
                self.queue(y, tag)

    def finish(self) -> None:
        """Write the tags where they belong, and have none spread."""
        k = self.k
        with self.each_old_row() as (_, row, y):
            self.write_tag(row, y)
        with k.loop("row", self.first, self.size) as row:
            self.write_tag(row, k.load(self.log, row * self.width + self.width - 1, "y"))
        k.set((self.group, self.first), (self.group + 1, -1))

    def write_tag(self, row: Expr, y: Expr) -> None:
        k, tag = self.k, self.k.load(self.local, y, "tag", "float64")
        k.store(self.row_tags, row, tag if self.tag_dtype == "float64" else k.let("word", cast(tag, "int64")))
        k.store(self.local, y, self.absent)

    @contextmanager
    def each_old_row(self) -> Iterator[tuple[Expr, Expr, Expr]]:
        """A block for each row of the prefix that was there: its position, its number and its last column."""
        k = self.k
        end = k.load(self.starts, self.group + 1, "end")
        with k.loop("position", k.load(self.starts, self.group, "start"), end) as position:
            row = k.load(self.old_rows, position, "row")
            yield position, row, k.load(self.log, row * self.width + self.width - 1, "y")

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
        there = k.load(self.local, k.load(self.queued, self.entry, "y"), "tag", "float64")
        with k.when(~equal(there, k.load(self.keys, self.entry, "key", "float64"))):
            self.release()
            k.continue_()
        k.set(self.left, self.left - 1)

    def propagate(self, driver: kernel_steps.Rows) -> None:
        k = self.k
        row = [*self.prefix, k.load(self.queued, self.entry, "y")]
        with ExitStack() as blocks:
            for column, term in driver.checks:
                blocks.enter_context(k.when(equal(row[column], self.value(term))))
            for a, b in driver.repeats:
                blocks.enter_context(k.when(equal(row[a], row[b])))
            tag = k.load(self.keys, self.entry, "tag", "float64")
            for column, register in driver.takes:
                if column < self.width:
                    self.values[register] = row[column]
                else:
                    is_float = self.values_type == "float64"
                    self.bind(register, emit.word_of_value(tag) if is_float else cast(tag, "int64"))
            self.rest(1, (tag,))

    def release(self) -> None:
        k = self.k
        k.store(self.queued, self.entry, -1)
        k.store(self.following, self.entry, self.next_free)
        k.set((self.next_free, self.entry), (self.entry, -1))

    def written_value(self) -> Expr:
        """The value that is written, as a float; what no float is has to be written elsewhere."""
        k, value = self.k, self.k.let("value", self.value(self.plan.outputs[-1]))
        if self.values_type == "float64":
            return k.let("tag", bitcast(value, "float64"))
        with k.when((value < (0 if self.values_type == "uint64" else -EXACT)) | (value > EXACT)):
            k.set(self.beyond, -1)
            self.leave(OUT_OF_REACH)
        return k.let("tag", cast(value, "float64"))

    def write(self, tags: tuple | None) -> None:
        k, outputs = self.k, self.plan.outputs
        y = k.let("last", self.value(outputs[self.width - 1]))
        with k.when((y < 0) | (y >= self.domain)):
            k.set(self.beyond, y)
            self.leave(OUT_OF_REACH)
        (tag,) = tags or (self.written_value(),)
        there = k.load(self.local, y, "there", "float64")
        is_better = there < tag if self.sign > 0 else tag < there
        with k.when(is_better), ExitStack() as blocks:
            if tags is not None:
                blocks.enter_context(k.when(self.is_not_discarded(tags)))
            with k.when((self.next_free < 0) & equal(self.used, self.queue_room)):
                self.leave(QUEUE_FULL)
            with k.when(equal(there, self.absent)):
                with k.when(equal(self.size, self.log_room)):
                    self.leave(LOG_FULL)
                for c, value in enumerate((*self.prefix, y)):
                    k.store(self.log, self.size * self.width + c, value)
                k.set(self.size, self.size + 1)
            k.store(self.local, y, tag)
            self.queue(y, tag)
        k.set(self.made, self.made + 1)
        if self.has_row is not None:
            k.set(self.has_row, 1)

    def queue(self, y: Expr, tag: Expr) -> None:
        k = self.k
        key = tag if self.sign > 0 else k.let("key", -tag)
        cell = k.let("cell", (key - self.base) * self.scale)
        k.set(cell, where(cell > 0.0, cell, 0.0))
        k.set(cell, where(cell < self.last_cell, cell, self.last_cell))
        low = k.load(self.cells, cast(cell, "int64"), "low")
        slot = k.let("slot", self.next_free)
        with k.when(slot < 0):
            k.set(slot, self.used)
            k.set(self.used, self.used + 1)
        with k.otherwise():
            k.load_into(self.next_free, self.following, slot)
        k.store(self.queued, slot, y)
        k.store(self.keys, slot, tag)
        end = k.load(self.lasts, low, "end")
        with k.when(end < 0):
            k.store(self.following, slot, slot)
        with k.otherwise():
            k.store(self.following, slot, k.load(self.following, end, "head"))
            k.store(self.following, end, slot)
        k.store(self.lasts, low, slot)
        with k.when(low > self.level):
            k.set(self.level, low)
