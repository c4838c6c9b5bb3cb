"""Large steps on several threads: each finds and inserts the rows whose first column lies in its partition.

Every thread goes through the driver of a store, whose kernel asks the bounds of the first column as soon as it is
known, and inserts what it finds into the sets of its own prefixes, which no other thread reads or writes. New rows wait
with the thread; after a step of a fixed number of candidates each they get places in the log, one partition after the
other. So the log depends on the rows and the number of threads alone, and nothing is locked but the room for sets that
grow.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from derivable.algebra.expr.nodes import Argument, in_order
from derivable.datalog.fused import emit, fused
from derivable.datalog.fused.fused import Running
from derivable.datalog.fused.kernel_plan import Fused, Range
from derivable.datalog.kernels.row_sets import ARENA_FULL, DONE
from derivable.datalog.tables.sets import ArenaSlice
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.memory import empty
from derivable.device.cpu.threads import run_chunks

# Candidates that are worth several threads, and those of a thread between two looks at the clock.
FEW, STEP = 1 << 16, 1 << 18
# First columns that are looked at to choose the partitions.
SAMPLE = 1 << 11


class Partition:
    """The rows whose first column lies in one range, and the thread that inserts them.

    columns, count, next  candidates, how many they are, and the next of them to enter
    rows                  [row, 2] int32: `size` new ones, whose place in the log begins at `place` after a step
    found, left           all candidates so far, and those until the end of the step
    wants                 what there was no room for, DONE if nothing
    """

    def __init__(self, running: Running, part: Range, table: Table, arena_slice: ArenaSlice):
        self.table, self.arena_slice = table, arena_slice
        self.stream = running.run_part(part, [])
        self.columns: list[np.ndarray] = []
        self.rows = empty((STEP + fused.ROOM, 2), np.int32)
        self.count = self.next = self.size = self.place = self.found = self.left = 0
        self.wants, self.is_done = DONE, False

    def begin(self) -> None:
        """Begin a step: the rows of the last one have their places."""
        self.write()
        self.left = STEP

    def go_on(self) -> None:
        """Find and enter candidates to the end of the step, or as far as there is room."""
        while self.enter() and self.left > 0 and self.find():
            # To have found none costs something too.
            self.left -= max(1, self.count)

    def find(self) -> bool:
        """Find the next candidates; false if there are none."""
        given = next(self.stream, None)
        if given is None:
            self.is_done = True
            return False
        (self.columns, self.count, _), self.next = given, 0
        self.found += self.count
        return True

    def enter(self) -> bool:
        """Enter candidates as far as there is room; whether that is all."""
        sets = self.table.sets
        assert sets is not None
        self.wants = DONE
        while self.next < self.count:
            self.wants, self.next, self.size = sets.place(
                self.arena_slice, self.rows, self.size, self.columns, self.next, self.count
            )
            if self.wants != DONE and not (self.wants == ARENA_FULL and sets.reserve(self.arena_slice)):
                return False
        return True

    def rest(self) -> list[np.ndarray]:
        """The candidates that are not entered."""
        return [column[self.next : self.count] for column in self.columns]

    def write(self) -> None:
        """Write the new rows to their places."""
        self.table.log[self.place : self.place + self.size] = self.rows[: self.size]
        self.size = 0


def may_be_partitioned(running: Running, table: Table) -> bool:
    """Whether threads may insert the partitions of a store, and have each a part of its work.

    Its first column has bounds, it does not read the sets it writes to, and rows have no numbers there: a row gets its
    number with its place in the log, which is known after the step alone.
    """
    found = running.fused
    if found is None or found.kept.bounds is None or fused.num_shares() == 1 or _repeats(found):
        return False
    if table.sets is None or table.sets.form.numbered:
        return False
    asked = [found.reads[k][0] for k, step in enumerate(found.plan.steps) if isinstance(step, emit.Probe)]
    return not any(other is table for other in asked)


def _repeats(found: Fused) -> bool:
    """Whether each thread would go through all candidates, because the last join is what gives their first column."""
    steps, number = found.plan.steps, found.kept.bounds
    assert number is not None
    bound = Argument(number, "int64", f"word{number}")
    joins = [isinstance(step, (emit.Match, emit.Count)) for step in steps]
    asks = [isinstance(step, emit.Condition) and bound in in_order((step.holds,)) for step in steps]
    return any(joins) and not any(joins[asks.index(True) :])


def insert_partitions(running: Running, table: Table, look: Callable[[], Any]) -> int | None:
    """Insert what a store finds, by partitions; returns the number of candidates, None if there is only one partition.

    look  who looks at the limits between steps
    """
    ranges = _ranges(running, table)
    if len(ranges) == 1:
        return None
    running.begin()
    sets = table.sets
    assert sets is not None
    slices = sets.slices_for(len(ranges))
    partitions = [Partition(running, part, table, arena_slice) for part, arena_slice in zip(ranges, slices)]
    going = partitions
    while going:
        run_chunks(_step, len(going), 1, going)
        # Where there was no room depends on who asked first: rows get places when all are at the ends of their steps.
        while blocked := [partition for partition in going if partition.wants == ARENA_FULL]:
            for partition in blocked:
                sets.make_room(table, partition.arena_slice, ARENA_FULL, [])
            run_chunks(_go_on, len(blocked), 1, blocked)
        look()
        _place(table, going)
        if any(partition.wants != DONE for partition in going) and not _reach(table, partitions):
            return _one_by_one(running, table, partitions, look)
        going = [partition for partition in going if not partition.is_done]
    run_chunks(_write, len(partitions), 1, partitions)
    return _found(running, partitions)


def _step(start: int, stop: int, partitions: list[Partition]) -> None:
    for partition in partitions[start:stop]:
        partition.begin()
        partition.go_on()


def _go_on(start: int, stop: int, partitions: list[Partition]) -> None:
    for partition in partitions[start:stop]:
        partition.go_on()


def _write(start: int, stop: int, partitions: list[Partition]) -> None:
    for partition in partitions[start:stop]:
        partition.write()


def _place(table: Table, partitions: list[Partition]) -> None:
    """Give new rows their places in the log, to which they are written when the next step begins."""
    needed = table.size + sum(partition.size for partition in partitions)
    if needed > len(table.log):
        table.grow_log(needed)
    for partition in partitions:
        partition.place = table.size
        table.size += partition.size


def _reach(table: Table, partitions: list[Partition]) -> bool:
    """Have sets that reach what partitions found, if there can be such; else the table leaves its sets."""
    _write(0, len(partitions), partitions)
    for partition in partitions:
        # Sets that are made again are made of the whole log.
        sets = table.sets
        assert sets is not None
        if partition.wants != DONE and not sets.make_room(
            table, partition.arena_slice, partition.wants, partition.rest()
        ):
            table.leave_sets()
            return False
        for own, arena_slice in zip(partitions, sets.slices_for(len(partitions))):
            own.arena_slice = arena_slice
    return True


def _one_by_one(running: Running, table: Table, partitions: list[Partition], look: Callable[[], Any]) -> int:
    """Enter the rest in the table, which has left its sets."""
    running.settle()
    for partition in partitions:
        table.insert(partition.rest(), partition.count - partition.next)
        while partition.find():
            look()
            table.insert(partition.columns, partition.count)
    return _found(running, partitions)


def _found(running: Running, partitions: list[Partition]) -> int:
    found = sum(partition.found for partition in partitions)
    running.found += found
    return found


def _ranges(running: Running, table: Table) -> list[Range]:
    """Ranges of first columns with about as many rows of the driver each, or of the table where it has other ones."""
    assert running.fused is not None
    plan = running.fused.plan
    driver = plan.steps[0]
    assert isinstance(driver, emit.Rows)
    column, start, stop = 0, 0, table.size
    for place, register in driver.takes:
        if register == plan.outputs[0]:
            (start, stop), column, table = running.driven(), place, running.fused.reads[0][0]
    rows = np.arange(start, stop, max(1, (stop - start) // SAMPLE))
    words, number = np.sort(table.column(column, rows)), fused.num_shares()
    cuts = [int(words[len(words) * k // number]) for k in range(1, number)] if len(words) else []
    ends = [Range.low, *dict.fromkeys(cut for cut in cuts if cut > words[0]), Range.high]
    return [Range(low, high) for low, high in pairwise(ends)]
