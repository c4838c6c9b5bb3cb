"""RAM to loops: a store whose rows are inserted where they are derived; for those with tags see `emit_tags`.

Candidates that wait in columns are written, read and looked up again from the first word; here the set of a prefix is
at hand as soon as the prefix is known. All such kernels are called in one way, with packed arguments: `memory` has what
a stratum knows of its tables, and the block of a store says where its kernel finds what it reads. So one driver calls
them round after round (`machine/driver.py`), and stores of one form share a kernel.
"""

from __future__ import annotations

from contextlib import ExitStack

from derivable.algebra.expr.functions import not_equal
from derivable.algebra.expr.nodes import Argument, Constant, Expr, in_order
from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.fused import emit, kernel_steps
from derivable.datalog.kernels import row_sets
from derivable.datalog.kernels.row_sets import SetForm, SetParameters
from derivable.datalog.policy.kernels import Built

# What a kernel returns besides the codes of `row_sets`.
PAUSED = 10
# The first words of a store's progress: the row of the driver, and where to stop. The positions of its loops follow,
# and the candidate that there was no room for.
ROW, STOP, FIRST_POSITION = range(3)


class InsertEmitter(emit.Emitter):
    """Rows to the set of a table: (memory, block) -> code.

    `parameters` has all whose addresses the block has: words of its "progress", "left" candidates and rows of the
    driver before a pause, parts of the "target" table, and then what the plan reads.
    form  the sets of the table; None for one hash of row numbers
    """

    # Of the target, how many it has and may have.
    sizes = "size", "room"

    def __init__(self, plan: kernel_steps.Plan, form: SetForm | None):
        super().__init__(plan)
        assert not plan.counted
        self.form = form

    def emit(self) -> Built:
        k = self.k
        self.memory, self.block = k.array("memory", "int64"), k.array("block", "int64")
        self.i, self.stop = (self.scalar("progress", part=part) for part in (ROW, STOP))
        self.left = self.scalar("left")
        self.size, self.room = (self.scalar(f"target {what}") for what in self.sizes)
        # What a kernel changes in the memory, and the index in its block.
        self.changing = [(2, self.left), (3, self.size)]
        width = self.target()
        self.begin()
        self.row = [k.let(f"v{c}", -1) for c in range(width)]
        if self.form is not None:
            self.prefix_step = _prefix_step(self.plan)
            self.x = k.let("x", -1 if self.form.has_table else 0)
            self.slots = k.let("slots", 0), k.let("start", 0)
        with k.while_(self.i < self.stop):
            with k.when(self.left <= 0):
                self.leave(PAUSED)
            self.driver()
            k.set((self.i, self.left), (self.i + 1, self.left - 1))
        self.leave(row_sets.DONE)
        return self.built(is_packed=True)

    def target(self) -> int:
        """The parameters of the table that is written to; returns the columns of its log."""
        if self.form is None:
            self.hash = self.array("target hash", "uint32", 0), self.scalar("target hash_slots")
            self.log = self.array("target log", "int64", 0)
            return max(1, len(self.plan.outputs))
        self.arena_room = self.scalar("target arena_room")
        self.parameters.append(("target sets", 0, 0))
        self.sets = SetParameters(self.k, self.form)
        self.count, self.state = self.array("target count", "int32", 0), self.array("target state", "int64", 0)
        self.log = self.array("target log", "int32", 0)
        return self.form.width

    def begin(self) -> None:
        index = len(self.parameters)
        super().begin()
        # Positions of loops are words of the store as well; they come before what the plan reads.
        loops = range(self.plan.num_loops)
        self.parameters[index:index] = [("progress", 0, FIRST_POSITION + number) for number in loops]

    def leave(self, code: int, *row: Expr) -> None:
        k = self.k
        state_words = k.load(self.block, 0, "progress")
        k.store(self.memory, state_words, self.i)
        for number, position in enumerate(self.positions):
            k.store(self.memory, state_words + FIRST_POSITION + number, position)
        for column, word in enumerate(row):
            k.store(self.memory, state_words + FIRST_POSITION + len(self.positions) + column, word)
        for index, value in self.changing:
            k.store(self.memory, k.load(self.block, index, "position"), value)
        k.return_(code)

    def leave_if_full(self) -> None:
        with self.k.when(self.left <= 0):
            self.leave(PAUSED)
        with self.k.when(self.size >= self.room):
            self.leave(row_sets.LOG_FULL)

    def leave_with_row(self, code: int) -> None:
        self.leave(code, *self.row)

    def rest(self, number: int, tags: tuple | None) -> None:
        if self.form is not None and number == self.prefix_step:
            self.find_prefix(self.form)
        super().rest(number, tags)

    def find_prefix(self, form: SetForm) -> None:
        """The set of the prefix, as soon as that is known. A new one is inserted with the first row that has it."""
        k, p, width = self.k, self.sets, form.width
        prefix = [self.value(term) for term in self.plan.outputs[: width - 1]]
        if not form.has_table:
            if width == 2:
                k.set(self.row[0], prefix[0])
                self.is_reached = (self.row[0] >= 0) & (self.row[0] < p.firsts)
                with k.when(self.is_reached):
                    k.set(self.x, self.row[0])
            k.set(self.slots, row_sets.block_of(k, p, self.x))
            return
        prefix = [k.let("first", word) for word in prefix]
        is_new = k.let("changed", self.x < 0)
        for before, word in zip(self.row, prefix):
            k.set(is_new, is_new | not_equal(before, word))
        with k.when(is_new):
            k.set(self.row[:-1], prefix)
            k.set(self.x, -1)
            row_sets.find_words(k, p.table, p.table_size, p.words, width - 1, self.row[:-1], self.x)
            with k.when(self.x >= 0):
                k.set(self.slots, row_sets.block_of(k, p, self.x))

    def write(self, tags: tuple | None) -> None:
        self.insert()
        if self.has_row is not None:
            self.k.set(self.has_row, 1)

    def insert(self) -> tuple[Expr, Expr | None]:
        """Insert the row; whether it is new, and its number if rows have any."""
        k = self.k
        self.leave_if_full()
        is_new, number = self.insert_in_hash() if self.form is None else self.insert_in_set(self.form)
        k.set(self.left, self.left - 1)
        with k.when(is_new):
            for c, value in enumerate(self.row):
                k.store(self.log, self.size * len(self.row) + c, value)
            k.set(self.size, self.size + 1)
        return is_new, number

    def insert_in_hash(self) -> tuple[Expr, Expr]:
        """Whether the row is new, and its number if not; if it is, the hash of row numbers gets it."""
        k, (table, slots) = self.k, self.hash
        # Rows of a nullary relation are one zero.
        k.set(self.row, [self.value(term) for term in self.plan.outputs] or [0])
        there = k.let("there", -1)
        slot, tag = row_sets.find_words(k, table, slots, self.log, len(self.row), self.row, there)
        with k.when(there < 0):
            k.store(table, slot * 2, self.size + 1)
            k.store(table, slot * 2 + 1, tag)
        return there < 0, there

    def insert_in_set(self, form: SetForm) -> tuple[Expr, Expr | None]:
        """Whether the row is new, and its number if rows have any; if it is, the set of its prefix gets it."""
        k, p = self.k, self.sets
        y = self.row[-1]
        k.set(y, self.value(self.plan.outputs[-1]))
        if form.has_table:
            with k.when(self.x < 0):
                row_sets.number_prefix(k, p, self.state, self.row, self.x, self.leave_with_row)
                k.set(self.slots, (0, 0))
        is_out = (y < 0) | (y >= p.domain)
        if form.width == 2:
            is_out = is_out | ~self.is_reached
        with k.when(is_out):
            self.leave_with_row(row_sets.OUT_OF_REACH)
        return row_sets.insert_last(
            *(k, p, self.count, self.state, self.x, y, self.size, self.arena_room, self.leave_with_row, self.slots)
        )


class CandidateEmitter(InsertEmitter):
    """The same of tagged rows, which wait as candidates of the target: its words [candidate, column], and a column
    "candidate_tags" for each scalar of their tags, or for each factor."""

    sizes = "num_candidates", "candidate_room"

    def __init__(self, plan: kernel_steps.Plan):
        super().__init__(plan, None)
        assert plan.tags is not None

    def target(self) -> int:
        self.words = self.array("target candidate_words", "int64", 0)
        return max(1, len(self.plan.outputs))

    def write(self, tags: tuple | None) -> None:
        k, typed, width = self.k, self.plan.tags, len(self.row)
        assert tags is not None
        with ExitStack() as blocks:
            if isinstance(typed, TypedSemiring):
                blocks.enter_context(k.when(self.is_not_discarded(tags)))
            self.leave_if_full()
            k.set(self.left, self.left - 1)
            # Rows of a nullary relation are one zero.
            for c, term in enumerate(self.plan.outputs or [Constant(0, "int64")]):
                k.store(self.words, self.size * width + c, self.value(term))
            for part, tag in enumerate(tags):
                k.store(self.array("target candidate_tags", tag.dtype, 0, part), self.size, tag)
            k.set(self.size, self.size + 1)


def _prefix_step(plan: kernel_steps.Plan) -> int:
    """The step before which all columns but the last are known."""
    needed = {node for node in in_order(plan.outputs[:-1]) if isinstance(node, Argument)}
    return 1 + max(
        (number for number, step in enumerate(plan.steps) if needed & kernel_steps.bound_by(step)), default=0
    )
