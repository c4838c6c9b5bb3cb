"""RAM to loops: a store without tags whose rows are entered where they are found, round after round.

Candidates that wait in columns are written, read and looked up again from the first word; here the set of a prefix is
at hand as soon as the prefix is known. Rows of the driver that are the recent ones of the table that is written to are
followed by those that they have led to, as long as these are few: so many small rounds are one call.
"""

from __future__ import annotations

from derivable.algebra.expr.functions import equal, not_equal, where
from derivable.algebra.expr.nodes import Argument, in_order
from derivable.datalog.fused import emit
from derivable.datalog.kernels import row_sets
from derivable.datalog.kernels.row_sets import SetForm, SetParameters

# What a kernel returns besides the codes of `row_sets`.
PAUSED = 10
SCALARS = ("i", "stop", "size", "left", "round", "rounds", "most", "until", "log_room", "arena_room")
# Those of them that change, and are returned.
CHANGING = SCALARS[:5]
# Rounds whose ends are remembered.
ENDS = 8


class InsertEmitter(emit.Emitter):
    """Rows to sets of one form: (*SCALARS, *sets, count, state, ends, log, *positions, *arguments) -> (code,
    *CHANGING, *row, *positions).

    i, stop        rows of the driver that are propagated; size: rows of the log that is written to
    left           rows and candidates before a pause
    round, rounds  rounds that have ended, and how many may
    most, until    rows of the next round, and where it may end, if it is to follow; -1 where the driver is another log
    ends           [k] the size of the log at the end of the k-th round of the call, from the first again after ENDS
    row            the candidate that there was no room for
    """

    def __init__(self, plan: emit.Plan, form: SetForm):
        super().__init__(plan)
        assert plan.tags is None
        assert not plan.counted
        self.form = form

    def emit(self) -> emit.RuleKernel:
        k = self.k
        scalars = [k.scalar(name) for name in SCALARS]
        self.i, self.stop, self.size, self.left, self.round = self.changing = scalars[:5]
        self.rounds, self.most, self.until, self.log_room, self.arena_room = scalars[5:]
        self.sets = SetParameters(k, self.form)
        self.count, self.state = k.array("count", "int32"), k.array("state", "int64")
        self.ends, self.log = k.array("ends", "int64"), k.array("written", "int32")
        self.begin()
        self.row = [k.let(f"v{c}", -1) for c in range(self.form.width)]
        self.prefix_step = _prefix_step(self.plan)
        self.x = k.let("x", -1 if self.form.has_table else 0)
        self.block = k.let("slots", 0), k.let("start", 0)
        at = k.let("at", 0)
        with k.while_(self.i < self.stop):
            with k.when(self.left <= 0):
                self.leave(PAUSED)
            self.driver()
            k.set((self.i, self.left), (self.i + 1, self.left - 1))
            with k.when(equal(self.i, self.stop)):
                k.store(self.ends, at, self.size)
                k.set(at, where(equal(at, ENDS - 1), 0, at + 1))
                k.set(self.round, self.round + 1)
                may_follow = (self.size - self.stop <= self.most) & (self.size <= self.until)
                with k.when(may_follow & (self.round < self.rounds)):
                    k.set(self.stop, self.size)
        self.leave(row_sets.DONE)
        return self.compiled()

    def leave(self, code: int) -> None:
        self.k.return_(code, *self.changing, *self.row, *self.positions)

    def rest(self, number: int, tags: tuple | None) -> None:
        if number == self.prefix_step:
            self.find_prefix()
        super().rest(number, tags)

    def find_prefix(self) -> None:
        """The set of the prefix, as soon as that is known. A new one is entered with the first row that has it."""
        k, p, width = self.k, self.sets, self.form.width
        given = [self.value(term) for term in self.plan.outputs[: width - 1]]
        if not self.form.has_table:
            if width == 2:
                k.set(self.row[0], given[0])
                self.is_reached = (self.row[0] >= 0) & (self.row[0] < p.firsts)
                with k.when(self.is_reached):
                    k.set(self.x, self.row[0])
            slots, start = row_sets.block_of(k, p, self.x)
            k.set(self.block, (slots, start))
            return
        given = [k.let("first", word) for word in given]
        is_new = k.let("changed", self.x < 0)
        for before, word in zip(self.row, given):
            k.set(is_new, is_new | not_equal(before, word))
        with k.when(is_new):
            k.set(self.row[:-1], given)
            k.set(self.x, -1)
            row_sets.find_words(k, p.table, p.table_size, p.words, width - 1, self.row[:-1], self.x)
            with k.when(self.x >= 0):
                slots, start = row_sets.block_of(k, p, self.x)
                k.set(self.block, (slots, start))

    def write(self, tags: tuple | None) -> None:
        k, p, width = self.k, self.sets, self.form.width
        with k.when(self.left <= 0):
            self.leave(PAUSED)
        with k.when(equal(self.size, self.log_room)):
            self.leave(row_sets.LOG_FULL)
        y = self.row[-1]
        k.set(y, self.value(self.plan.outputs[-1]))
        if self.form.has_table:
            with k.when(self.x < 0):
                row_sets.number_prefix(k, p, self.state, self.row, self.x, self.leave)
                k.set(self.block, (0, 0))
            is_out = (y < 0) | (y >= p.domain)
        else:
            is_out = (y < 0) | (y >= p.domain)
            if width == 2:
                is_out = is_out | ~self.is_reached
        with k.when(is_out):
            self.leave(row_sets.OUT_OF_REACH)
        is_new, _ = row_sets.enter_last(
            *(k, p, self.count, self.state, self.x, y, self.size, self.arena_room, self.leave, self.block)
        )
        k.set(self.left, self.left - 1)
        with k.when(is_new):
            for c, value in enumerate(self.row):
                k.store(self.log, self.size * width + c, value)
            k.set(self.size, self.size + 1)
        if self.found is not None:
            k.set(self.found, 1)


def _prefix_step(plan: emit.Plan) -> int:
    """The step before which all columns but the last are known."""
    needed = {node for node in in_order(plan.outputs[:-1]) if isinstance(node, Argument)}
    return 1 + max((number for number, step in enumerate(plan.steps) if needed & emit.bound_by(step)), default=0)
