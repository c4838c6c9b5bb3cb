"""Stores without tags whose kernel enters what it finds, and goes on with the next rounds while these are small.

A round that goes through Python costs as much as some thousand rows. So where a recursion is one rule that reads its
recent rows alone, the kernel goes on with the rows that it has found, and comes back for room, for a look at the
limits, or for what larger rounds need: threads, other join orders, a log without the rows that were told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.lazy import later
from derivable.datalog.fused import fused
from derivable.datalog.fused.fused import Running
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.profile import Effort
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.threads import get_num_threads

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert, partition
    from derivable.datalog.kernels import row_sets
    from derivable.datalog.run.execute import Executor
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")
    partition = later("derivable.datalog.fused.partition")
    row_sets = later("derivable.datalog.kernels.row_sets")

# Rows and candidates between two looks at the limits; rows of a round that may follow at once, few enough for the sets
# of their prefixes to stay in cache; rows that are told in one call, and stay in the log so long.
PAUSE, MOST, TOLD = 1 << 18, 1 << 12, 1 << 17
# As good as no limit.
ENDLESS = 1 << 62


def may_follow(loop: tuple[m.Store, ...], relations: tuple[str, ...]) -> bool:
    """Whether the rounds of a recursion are one rule that reads its own recent rows, once, and nothing else of it."""
    if len(loop) != 1 or len(relations) != 1:
        return False
    driver, *others = [m.scan_of(step.node) for step in loop[0].query.steps]
    own = driver is not None and driver.relation == loop[0].relation and driver.part == "recent"
    return own and not any(scan is not None and scan.relation in relations for scan in others)


class Inserting:
    """One call of a store whose kernel enters its rows in a table that has sets by prefix.

    most  rows of a round that the kernel goes on with; below zero if no round may follow
    """

    def __init__(self, executor: Executor, running: Running, table: Table, effort: Effort):
        self.executor, self.running, self.table, self.effort = executor, running, table, effort
        self.most = MOST if running.follows else -1
        if running.follows and get_num_threads() > 1:
            # Several threads have more to share in a larger one.
            self.most = min(MOST, running.driven_rows * partition.FEW // max(1, running.driven_rows, running.found))
        self.start, self.stop = running.driven()
        self.i, self.round = self.start, 0
        self.ends = np.zeros(emit_insert.ENDS, np.int64)

    def run(self) -> bool:
        """Whether all rows are entered; else the table has left its sets, and all are to be found again."""
        running, table = self.running, self.table
        running.begin()
        driver = running.tables[0]
        found = running.fused
        assert found is not None
        before = self.start, self.stop
        bounds = {step: running.state.bounds_of(scan) for step, scan in found.scans.items()}
        positions: list[Any] | None = None
        rounds, until = self.limits()
        while True:
            sets = table.sets
            assert sets is not None
            arena_slice, tail = sets.slices[0], table.tail
            kernel = found.enters.get(sets.form)
            if kernel is None:
                kernel = found.enters[sets.form] = emit.compiled(emit_insert.InsertEmitter, found.plan, sets.form)
            gone = driver.num_evicted
            arguments: list[Any] = []
            for what, step, part in kernel.parameters:
                arguments += fused.argument_of(found, bounds, None, what, step, part)
            code, i, stop, size, left, number, *rest = kernel.function(
                *(self.i - gone, self.stop - gone, table.size - table.num_evicted, PAUSE, self.round),
                *(rounds, self.most, until - table.num_evicted, len(tail), arena_slice.end),
                *sets.find_arguments,
                *(sets.count, arena_slice.state, self.ends, tail.reshape(-1)),
                *(positions or [-1] * kernel.num_positions),
                *arguments,
            )
            # Else a log that grows now would stay beside its successor.
            del arguments, tail
            row, positions = rest[: table.width], rest[table.width :]
            made = PAUSE - left - (i + gone - self.i)
            self.i, self.stop, table.size = i + gone, stop + gone, size + table.num_evicted
            self.account(number, made)
            if code == row_sets.DONE:
                break
            if code == row_sets.LOG_FULL:
                table.grow_log(len(table.tail) + 1)
            elif code != emit_insert.PAUSED and not sets.make_room(
                table, arena_slice, code, [np.array([w]) for w in row]
            ):
                table.leave_sets()
                break
            running.state.deadline.remaining()
        if self.stop > before[1]:
            running.driven_rows += self.stop - before[1]
            if table.visible_size == before[1]:
                table.visible_size = self.stop
            table.recent = slice(self.start, self.stop)
        return table.sets is not None

    def limits(self) -> tuple[int, int]:
        """(rounds that this call may take, size of the table at which a round ends it)"""
        executor, limits = self.executor, self.executor.watch.limits
        rounds = executor.stratum_effort[executor.number].rounds
        given = [limit - rounds + 1 for limit in (limits.iteration_limit, limits.round_limit) if limit is not None]
        rows = executor.plan_again - executor.stratum_effort[executor.number].rows
        return min(given, default=ENDLESS), self.table.size + int(min(TOLD, max(rows, 0)))

    def account(self, number: int, made: int) -> None:
        """Rounds up to this one have ended; what the last one has found is left to who called."""
        self.effort.candidates += made
        self.running.found += made
        watch, effort, table = self.executor.watch, self.effort, self.table
        stratum, kept, first = self.executor.stratum_effort[self.executor.number], len(self.ends), self.round
        for ended in range(max(first, number - kept), number):
            if ended + 1 == number and self.i == self.stop:
                break
            passed = ended + 1 - self.round
            rows = watch.end_rounds(passed, table.num_evicted + int(self.ends[(ended - first) % kept]))
            self.round += passed
            effort.runs += passed
            effort.rows += rows
            stratum.rounds += passed
            stratum.rows += rows
            if rows:
                effort.grew(watch.round - 1, rows)
