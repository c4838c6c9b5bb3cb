"""Candidates of a table that has no rows yet: gathered and sorted, or entered as they come, whichever is faster.

A rule whose candidates have many repeats is best entered row by row. Candidates that jump from prefix to prefix miss
the cache each time; those are gathered, some millions at a time, sorted, and entered in order without repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.datalog import storage
from derivable.datalog.packing import Packing, distinct
from derivable.datalog.storage import Table
from derivable.device.cpu.memory import empty, longer, next_length

# Candidates that are sorted at once.
MOST = 1 << 22
# Rows that are entered between looks at the clock.
PART = 1 << 18
# Of candidates that have so many repeats a set drops most where they are.
REPEATS = 4


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
        if needed >= MOST:
            self.flush()

    def flush(self) -> None:
        """Enter what was gathered; what comes after it may go to the set at once."""
        columns, count, self.count = [column[: self.count] for column in self.columns], self.count, 0
        if not count:
            return
        is_first = not self.table.size
        packing = Packing.of(columns) if count >= storage.SET_ROWS and not is_first else None
        if packing is not None:
            words = packing.pack(columns)
            self.look()
            words = distinct(words)
            self.look()
            rows = empty((len(columns), len(words)), np.int64)
            packing.unpack(words, rows.T)
            columns = list(rows)
        if is_first:
            self.table.insert(columns, len(columns[0]), self.look)
        else:
            for start in range(0, len(columns[0]), PART):
                self.look()
                part = [column[start : start + PART] for column in columns]
                self.table.insert(part, len(part[0]))
        kept = self.table.size if is_first else len(columns[0])
        self.gathers = self.table.may_be_built and REPEATS * kept > count
        if not self.gathers:
            self.columns = []
