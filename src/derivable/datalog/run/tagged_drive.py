"""Stores with tags in the driver: rounds are those of columns, and so are the tags, bit for bit.

A row that is new in a round adds up its tags at once, one that was there before in a column of its own, which the end
of the round adds to its tags, as `fused.emit_tags` says. What is recent is a list of row numbers, and so is what will
be: the driver exchanges the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.lazy import later
from derivable.datalog.fused.frontier import direction
from derivable.datalog.fused.tag_accumulator import TagAccumulator
from derivable.datalog.machine import words as w
from derivable.datalog.machine.machine import may_use_compiled
from derivable.datalog.ram import nodes as m
from derivable.datalog.run import drive
from derivable.datalog.run.pending import Pending
from derivable.datalog.run.profile import COLUMNS, KERNEL
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import parts_of
from derivable.datalog.tags.tags import SemiringTags
from derivable.device.cpu.memory import longer
from derivable.device.cpu.pages import zero_pages

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_tags
    from derivable.datalog.kernels import row_sets
    from derivable.datalog.run.execute import Executor
else:
    emit, emit_tags = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_tags")


def may_drive(
    executor: Executor, instructions: list[m.Store], pending: Sequence[Pending], rows: int, may_be_best_first: bool
) -> bool:
    """Whether the driver runs a round of a number of recent rows, and those behind it.

    It has the tags of a semiring, while no row waits for better ones to be propagated, or is to. Stores run in their
    order, as over columns, on which the bits of sums depend.
    """
    algebra = executor.algebra
    if not isinstance(algebra, SemiringTags):
        return False
    if may_be_best_first and _has_order(pending) and TagAccumulator.is_ready(pending[0].count, algebra.typed):
        return False
    if any(one.sums and one.sums.frontier and one.sums.frontier.rows for one in pending):
        return False
    if not executor.may_drive(executor.number, instructions, rows, TaggedDrive):
        return False
    work = executor.plans["work", executor.number]
    kinds = {one.table.stamps is not None for one in pending}
    ends = [emit_tags.compiled_end_of_round(algebra.typed, kind) for kind in kinds]
    # Of all, so that those that are not there begin to be compiled now.
    are_there = ["address" in vars(end) or may_use_compiled(work, end) for end in ends]
    return all(are_there)


def _has_order(pending: Sequence[Pending]) -> bool:
    """Whether the only relation of a recursion may have its best tags propagated first, once there are many."""
    assert isinstance(pending[0].algebra, SemiringTags)
    return pending[0].sums is None and direction(pending[0].algebra.typed) != 0


class TaggedDrive(drive.Drive):
    """Stores of one stratum with tags.

    lists    [table] the rows that are recent, and room for those that will be, or the other way round
    touched  [table] the round in which a row was touched last; pending: its tags of this round
    looks_again  whether who called is to see, after some candidates, if the recursion goes on best tag first
    """

    def __init__(self, executor: Executor, stores: Sequence[m.Store], relations: Sequence[str]):
        super().__init__(executor, stores, relations)
        algebra = executor.algebra
        assert isinstance(algebra, SemiringTags)
        self.algebra, self.typed = algebra, algebra.typed
        self.have_parts(len(self.typed.dtypes))
        self.lists = [[np.empty(0, np.int64), np.empty(0, np.int64)] for _ in self.tables]
        self.touched = [zero_pages(0, np.int32) for _ in self.tables]
        self.pending = [[np.empty(0, dtype) for dtype in self.typed.dtypes] for _ in self.tables]
        self.end_kernels = [emit_tags.compiled_end_of_round(self.typed, t.stamps is not None) for t in self.tables]
        self.end_blocks = [self.end_block(number) for number in range(len(self.tables))]
        self.looks_again = False

    def end_block(self, number: int) -> np.ndarray:
        """Where the memory has the arguments of the kernel that ends the rounds of a table."""
        at, parts = self.places_of_tables[number], range(len(self.typed.dtypes))
        words = w.LISTED, w.NEXT_LIST, w.VISIBLE, w.SIZE
        places = [*(at + word for word in words), w.NEXT_ROUND]
        places += [self.place_of_part(number, what, part) for what in (w.TAGS, w.PENDING) for part in parts]
        if self.tables[number].stamps is not None:
            places.append(at + w.STAMPS)
        return np.array(places, np.int64)

    # The memory

    def write_table(self, number: int) -> None:
        super().write_table(number)
        table, at, memory = self.tables[number], self.places_of_tables[number], self.memory
        room, lists = len(table.log), self.lists[number]
        if memory[at + w.NEXT_LIST] and memory[at + w.NEXT_LIST] == self.address(lists[0]):
            lists.reverse()
        if len(self.touched[number]) < room:
            self.touched[number] = longer(self.touched[number], room, len(self.touched[number]), cleared=True)
            used = memory[at + w.STOP], memory[at + w.LISTED]
            lists[:] = [longer(given, room, min(int(kept), len(given))) for given, kept in zip(lists, used)]
            self.pending[number] = [longer(part, room, len(part)) for part in self.pending[number]]
        memory[[at + place for place in (w.LIST, w.NEXT_LIST)]] = [*map(self.address, lists)]
        memory[at + w.TOUCHED] = self.address(self.touched[number])
        if table.stamps is not None:
            memory[at + w.STAMPS] = self.address(table.stamps)
        memory[at + w.END_ROUND] = self.end_kernels[number].address
        memory[at + w.END_ROUND_BLOCK] = self.address(self.end_blocks[number])
        for what, parts in ((w.TAGS, parts_of(table.tags)), (w.PENDING, self.pending[number])):
            for part, array in enumerate(parts):
                memory[self.place_of_part(number, what, part)] = self.address(array)

    def write_rows(self, number: int) -> None:
        table, at, recent = self.tables[number], self.places_of_tables[number], self.tables[number].recent
        rows = np.arange(recent.start, recent.stop) if isinstance(recent, slice) else recent
        current = self.lists[number][0]
        if len(current) < len(rows):
            current = self.lists[number][0] = np.empty(len(table.log), np.int64)
        current[: len(rows)] = rows
        words = 0, len(rows), table.size, 0, table.visible_size, table.width
        self.memory[at : at + w.LOG] = words
        self.memory[[at + w.NEXT_LIST, at + w.LISTED]] = 0
        self.memory[at + w.IS_LISTED] = 1

    def read_rows(self, number: int) -> None:
        at, table = self.places_of_tables[number], self.tables[number]
        table.visible_size, table.round = int(self.memory[at + w.VISIBLE]), int(self.memory[w.NEXT_ROUND]) - 1
        table.recent = self.rows_at(number, w.LIST)[: self.memory[at + w.STOP]].copy()

    def end_round(self, number: int) -> None:
        at, table = self.places_of_tables[number], self.tables[number]
        self.read_rows(number)
        table.recent = self.rows_at(number, w.NEXT_LIST)[: self.memory[at + w.LISTED]].copy()

    def rows_at(self, number: int, place: int) -> np.ndarray:
        """The list of rows that the memory has at that place of a table."""
        first, second = self.lists[number]
        return first if self.memory[self.places_of_tables[number] + place] == self.address(first) else second

    def compiled(self, plan: emit.Plan, form: row_sets.SetForm | None, table: Table) -> emit.RuleKernel:
        is_certain = self.executor.ram.relations[table.name].is_certain
        return emit.compiled(emit_tags.TaggedEmitter, plan, form, is_certain)

    # Running

    def run_from(self, stamp: int, pending: Mapping[str, Pending], may_be_best_first: bool) -> int:
        """Run the round that has begun, in which rows get this stamp, and those that follow while they are small.

        Returns the stamp of the last round.
        """
        self.looks_again = may_be_best_first and _has_order(list(pending.values()))
        before = [running.found for running in self.running]
        self.memory[[w.NEXT_ROUND, w.BOUND]] = stamp, stamp - 2
        self.run()
        for store, running, found in zip(self.stores, self.running, before):
            pending[store.relation].count += running.found - found
        return int(self.memory[w.NEXT_ROUND])

    def look(self) -> None:
        super().look()
        if self.looks_again:
            self.control[w.ROWS_LEFT] = 0

    def insert_by_columns(self, number: int) -> None:
        executor, store, target = self.executor, self.stores[number], int(self.words[number, w.TARGET])
        with executor.effort(store) as effort:
            executor.watch.enter(self.tables[target])
            effort.by(KERNEL if self.running[number].is_ready() else COLUMNS)
            for columns, count, tags in executor.stored(store):
                effort.candidates += count
                self.add(target, columns, count, tags)
            executor.credit(effort, executor.watch.leave())

    def add(self, number: int, columns: list[np.ndarray], count: int, tags: Any) -> None:
        """Add candidates over columns, as kernels do."""
        table, at, known = self.tables[number], self.places_of_tables[number], self.tables[number].size
        keep = np.flatnonzero(~self.algebra.is_zero(tags))
        if len(keep) < count:
            columns, count, tags = [column[keep] for column in columns], len(keep), tags[keep]
        ids = table.insert(columns, count)
        if self.executor.ram.relations[table.name].is_certain:
            table.tags[known : table.size] = self.algebra.one(table.size - known)
            return
        self.write_table(number)
        places = at + w.VISIBLE, w.NEXT_ROUND, at + w.LISTED
        visible, stamp, listed = (int(self.memory[place]) for place in places)
        accumulate = emit_tags.compiled_tags(self.typed, False)[0]
        self.memory[at + w.LISTED], _ = accumulate(
            *(count, visible, known, stamp, listed, ids, self.touched[number], self.rows_at(number, w.NEXT_LIST)),
            *(*parts_of(tags), *parts_of(table.tags), *self.pending[number]),
        )
