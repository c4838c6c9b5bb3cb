"""Stores with tags in the driver: rounds are those of columns, and so are the tags, bit for bit.

Kernels write candidates, which `machine.merges` adds up. What is recent is a list of row numbers, and so is what will
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
from derivable.datalog.machine.merges import Candidates, Sums, kernels_of
from derivable.datalog.ram import nodes as m
from derivable.datalog.run import drive
from derivable.datalog.run.pending import Pending
from derivable.datalog.run.profile import COLUMNS, KERNEL
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import SemiringTags

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert
    from derivable.datalog.kernels import row_sets
    from derivable.datalog.run.execute import Executor
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")

# Candidates of a store between two times that they are added up: these stay in cache.
CANDIDATES = 1 << 12


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
    if not executor.may_drive(executor.number, instructions, rows, kind=TaggedDrive):
        return False
    work = executor.plans["work", executor.number]
    relations = executor.ram.relations
    kernels = [kernels_of(one.table, algebra.typed, relations[one.table.name].is_certain, False) for one in pending]
    # Of all, so that those that are not there begin to be compiled now.
    functions = {id(one): one for add_up, end_round in kernels for one in (add_up.function, end_round)}
    are_there = ["address" in vars(one) or may_use_compiled(work, one) for one in functions.values()]
    return all(are_there)


def _has_order(pending: Sequence[Pending]) -> bool:
    """Whether the only relation of a recursion may have its best tags propagated first, once there are many."""
    assert isinstance(pending[0].algebra, SemiringTags)
    return pending[0].sums is None and direction(pending[0].algebra.typed) != 0


class TaggedDrive(drive.Drive):
    """Stores of one stratum with tags.

    looks_again  whether who called is to see, after some candidates, if the recursion goes on best tag first
    """

    def __init__(self, executor: Executor, stores: Sequence[m.Store], relations: Sequence[str]):
        super().__init__(executor, stores, relations)
        algebra = executor.algebra
        assert isinstance(algebra, SemiringTags)
        self.algebra = algebra
        candidates = Candidates(max(table.width for table in self.tables), algebra.typed.dtypes, CANDIDATES)
        self.merge = Sums(self, algebra.typed, False, [candidates] * len(self.tables))
        self.looks_again = False

    # The memory

    def write_table(self, number: int) -> None:
        super().write_table(number)
        self.merge.write_table(self, number)

    def write_rows(self, number: int) -> None:
        self.merge.write_rows(self, number)

    def read_rows(self, number: int) -> None:
        self.end_round(number, False)

    def end_round(self, number: int, is_ended: bool = True) -> None:
        at, table = self.places_of_tables[number], self.tables[number]
        table.visible_size, table.round = int(self.memory[at + w.VISIBLE]), int(self.memory[w.NEXT_ROUND]) - 1
        table.recent = self.merge.recent(self, number, is_ended)

    def compiled(self, plan: emit.Plan, form: row_sets.SetForm | None, table: Table) -> emit.RuleKernel:
        return emit.compiled(emit_insert.CandidateEmitter, plan)

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
        at, candidates = self.places_of_tables[number], self.merge.candidates[number]
        keep = np.flatnonzero(~self.algebra.is_zero(tags))
        if len(keep) < count:
            columns, count, tags = [column[keep] for column in columns], len(keep), tags[keep]
        self.control[w.ONLY_TABLE] = number
        for start in range(0, count, candidates.room):
            stop = min(count, start + candidates.room)
            words = candidates.rows(stop - start)
            # A nullary relation has one column of zeros.
            words[:] = 0
            for c, column in enumerate(columns):
                words[:, c] = column[start:stop]
            candidates.write_tags(tags[start:stop])
            self.memory[at + w.NUM_CANDIDATES] = stop - start
            while (reason := self.call()) != w.ENDED:
                self.make_room(reason)
        self.control[w.ONLY_TABLE] = -1
        self.read_table(number)
