"""Candidates of a table that has no rows yet: gathered and sorted.

Candidates that jump from prefix to prefix would miss the cache each time. They are gathered as words, one for each row,
which are sorted without repeats now and then, and become the table at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.packing import Packing, distinct
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.memory import empty, longer, next_length


class BulkLoad:
    """Candidates on their way to a table without tags.

    look   who looks at the clock between the steps of entering many
    many   candidates that are made words as they come
    most   candidates that are sorted at once, fewer where a limit lets the table have no more rows
    words  [count] candidates, the first `num_sorted` of them in order and without repeats
    """

    def __init__(self, table: Table, look: Callable[[], Any] | None = None, room: int | None = None):
        """room  rows that a limit lets the table have"""
        self.table, self.look = table, look or (lambda: None)
        self.most = policy().most_at_once if room is None else max(policy().set_rows, min(policy().most_at_once, room))
        self.many = min(policy().set_rows, policy().chunk)
        # What is gathered is not counted before it is sorted.
        self.gathers = table.row_set.may_be_sorted and not table.size and (room is None or room >= policy().set_rows)
        self.columns: list[np.ndarray] = []
        self.waiting = 0
        self.words = empty(0, np.uint64)
        self.count = self.num_sorted = 0
        self.packing: Packing | None = None
        self.lows: list[int] = []
        self.highs: list[int] = []

    def add(self, columns: Sequence[np.ndarray], count: int) -> None:
        """Add candidates; the columns may be overwritten afterwards."""
        if not self.gathers:
            self.table.insert(columns, count)
        elif count >= self.many:
            self.pack([column[:count] for column in columns])
        elif count:
            if self.columns and self.waiting + count > len(self.columns[0]):
                self.pack_waiting()
            self.columns = self.columns or [empty(2 * self.many, np.int64) for _ in columns]
            for there, column in zip(self.columns, columns):
                there[self.waiting : self.waiting + count] = column[:count]
            self.waiting += count

    def flush(self) -> None:
        """Insert what was gathered, after the last candidate."""
        if self.count:
            self.pack_waiting()
        elif self.waiting:
            self.table.insert([column[: self.waiting] for column in self.columns], self.waiting, self.look)
        if self.count:
            self.sort()
            self.build_table()

    def pack_waiting(self) -> None:
        count, self.waiting = self.waiting, 0
        if count:
            self.pack([column[:count] for column in self.columns])

    def pack(self, columns: Sequence[np.ndarray]) -> None:
        """Make words of candidates, at least one."""
        words = [np.ascontiguousarray(column, np.int64) for column in columns]
        packing = self.packing_of(words) if self.gathers else None
        if packing is None:
            if self.count:
                self.build_table()
            self.gathers = False
            self.table.insert(words, len(words[0]))
            return
        needed = self.count + len(words[0])
        if needed > len(self.words):
            self.words = longer(self.words, next_length(max(1 << 15, len(self.words)), needed), self.count)
        packing.pack(words, self.words[self.count : needed])
        self.count = needed
        if needed - self.num_sorted >= max(self.most, self.num_sorted):
            self.sort()

    def packing_of(self, columns: Sequence[np.ndarray]) -> Packing | None:
        """The packing of all candidates and these; None if they need more than a word."""
        lows, highs = [int(column.min()) for column in columns], [int(column.max()) for column in columns]
        if self.packing is not None:
            lows, highs = list(map(min, lows, self.lows)), list(map(max, highs, self.highs))
        packing, fits = self.packing, False
        if packing is not None:
            fits = all(map(int.__ge__, lows, packing.lows)) and all(map(int.__le__, highs, packing.highs))
        if fits:
            self.lows, self.highs = lows, highs
            return packing
        made = Packing.between(lows, highs, spare=True)
        if made is not None:
            if packing is not None and self.count:
                rows = empty((self.count, len(columns)), np.int64)
                packing.unpack(self.words[: self.count], rows)
                # Whose order is that of the rows, whatever the packing.
                made.pack([np.ascontiguousarray(column) for column in rows.T], self.words[: self.count])
            self.packing, self.lows, self.highs = made, lows, highs
        return made

    def sort(self) -> None:
        """Have the words in order, without repeats."""
        self.look()
        self.num_sorted = self.count = len(distinct(self.words[: self.count]))
        self.table.row_set.gathered = self.num_sorted
        self.look()

    def build_table(self) -> None:
        """Make the words the rows of the table."""
        assert self.packing is not None
        if self.num_sorted < self.count:
            self.sort()
        self.table.row_set.gathered = 0
        self.table.build(self.packing, self.words[: self.num_sorted], self.lows, self.highs)
        self.words, self.count = self.words[:0], 0
