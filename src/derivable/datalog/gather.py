"""Candidates of a table that has no rows yet: gathered and sorted, or entered as they come, whichever is faster.

A rule whose candidates have many repeats is best entered row by row. Candidates that jump from prefix to prefix miss
the cache each time; those are gathered, some millions at a time, sorted, and entered in order without repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.datalog import storage
from derivable.datalog.storage import Table
from derivable.device.cpu.memory import empty, longer, next_length

# Candidates that are sorted at once.
MOST = 1 << 22
# Rows that are entered between looks at the clock.
PART = 1 << 18
# Of candidates that have so many repeats a set drops most where they are.
REPEATS = 4
# Fewer rows than this part of a table are not worth sorting it again.
FEW = 16


class Gathered:
    """Candidates on their way to a table without tags.

    look  who looks at the clock between the steps of entering many
    """

    def __init__(self, table: Table, look: Callable[[], Any] | None = None):
        self.table, self.look = table, look or (lambda: None)
        self.count = 0
        self.columns: list[np.ndarray] = []
        self.gathers = table.may_be_built and not table.size

    def add(self, columns: Sequence[np.ndarray], count: int) -> None:
        """Add candidates; the columns may be overwritten afterwards."""
        if not self.gathers:
            self.table.insert(columns, count)
            return
        needed = self.count + count
        if not self.columns:
            self.columns = [empty(max(1 << 15, needed), np.int64) for _ in columns]
        if needed > len(self.columns[0]):
            length = next_length(len(self.columns[0]), needed)
            self.columns = [longer(column, length, self.count) for column in self.columns]
        for there, column in zip(self.columns, columns):
            there[self.count : needed] = column[:count]
        self.count = needed
        if needed >= max(MOST, self.table.size):
            self.flush()

    def flush(self) -> None:
        """Enter what was gathered; what comes after it may go to the set at once."""
        columns, count, self.count = [column[: self.count] for column in self.columns], self.count, 0
        if not count:
            return
        before = self.table.size
        # Between flushes a table doubles, so it is sorted again twice or thrice in all; a few rows more are entered.
        is_worth_it = before and count >= max(storage.SET_ROWS, before // FEW)
        if not before:
            self.table.insert(columns, count, self.look)
        elif not (is_worth_it and self.table.build_again(columns, self.look)):
            for start in range(0, count, PART):
                self.look()
                part = [column[start : start + PART] for column in columns]
                self.table.insert(part, len(part[0]))
        kept = self.table.size - before
        self.gathers = self.table.may_be_built and REPEATS * kept > count
        if not self.gathers:
            self.columns = []
