"""Tables of a finished run with more rows, or fewer: those that were there stay where they are, for all that read them.

An overlay table costs what its added rows and those that went cost, however many lie below them, so a large database
has many branches that differ by a few facts each. The set and the indexes of the rows below are made once, for all
branches. Whoever wants the rows as one log, as kernels do, gets it: the table becomes a plain one then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from derivable.core.forks import renew_in_children
from derivable.core.interrupts import sigint_deferred
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.index import NO_STAMPS
from derivable.datalog.tables.row_set import RowSet
from derivable.datalog.tables.storage import Holes, Table
from derivable.device.cpu.memory import contiguous

_indexing = threading.Lock()
renew_in_children(globals(), _indexing=threading.Lock)


def may_be_overlaid(table: Table) -> bool:
    """Whether a layer on a table is better than writing to it or to a copy.

    A layer that differs much from what lies below becomes a plain table first, so that there are at most two.
    """
    if table.new_tags is not None or not table.types:
        return False
    if isinstance(table, OverlayTable):
        if policy().layer_times * table.difference <= table.below.size:
            return True
        table.merge()
    return table.size >= policy().set_rows


class OverlayTable(Table):
    """A table without tags: the rows of `below`, which does not change any more, but for those of `gone`, and `added`.

    gone   a table without tags, all of whose rows lie below, which does not change any more; holes: their numbers there
    The added rows have the last numbers.
    """

    def __init__(self, below: Table, added: Table, gone: Table, holes: Holes):
        # Not that of `Table`: there is no log.
        self.name, self.types = below.name, below.types
        self.below, self.added, self.gone, self.holes = below, added, gone, holes
        self.new_tags = self.tags = self.stamps = None
        self.round = below.round
        self.visible_size = self.size
        self.recent: slice | np.ndarray = slice(self.size, self.size)
        self.indexes: dict = {}

    @staticmethod
    def on(table: Table) -> OverlayTable:
        """A layer for more rows than those of a table, which must not change any more."""
        if isinstance(table, OverlayTable):
            return OverlayTable(table.below, table.added.fork(with_set=True), table.gone, table.holes)
        added, gone = (Table(table.name, table.types) for _ in range(2))
        for made in (added, gone):
            # Sets by prefix, of which each branch has copies, have room for as many prefixes as the values are large.
            made.row_set.use_hash(made)
        return OverlayTable(table, added, gone, Holes(np.empty(0, np.int64), table.size))

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.holes.size + self.added.size

    @property
    def difference(self) -> int:
        """How many rows it adds and hides."""
        return self.added.size + self.gone.size

    @property
    def num_known(self) -> int:
        return self.size

    @property
    def log(self) -> np.ndarray:  # type: ignore[override]
        self.merge()
        return self.log

    @property
    def has_log(self) -> bool:
        return True

    @property
    def word_type(self) -> np.dtype:
        return self.log.dtype

    @property
    def row_set(self) -> RowSet:  # type: ignore[override]
        self.merge()
        return self.row_set

    @property
    def rows_worth_kernels(self) -> float:
        return self.size / (policy().layer_times if self.gone.size else policy().rows_a_pass)

    def merge(self) -> None:
        """Become a plain table with the same rows, which keep their numbers."""
        plain = self.below.without(self.holes.rows) if self.gone.size else self.below.fork(with_set=True)
        for start in range(0, self.added.size, policy().chunk):
            rows = slice(start, min(start + policy().chunk, self.added.size))
            plain.insert([self.added.column(c, rows) for c in range(len(self.types))], rows.stop - rows.start)
        for name in ("recent", "visible_size", "round"):
            setattr(plain, name, getattr(self, name))
        with sigint_deferred():
            self.__class__ = Table  # type: ignore[assignment]
            self.__dict__ = plain.__dict__

    def fork(self, size: int | None = None, with_set: bool = False) -> Table:
        added = self.added.fork(None if size is None else size - self.holes.size, with_set)
        return OverlayTable(self.below, added, self.gone, self.holes)

    def losing(self, lost: Table) -> OverlayTable:
        """The table without the rows of another one, all of which it has."""
        shared = self.added.rows_in(lost)
        hidden = lost.without(lost.rows_in(self.added)) if len(shared) else lost
        gone = self.gone.fork(with_set=True)
        gone.insert(hidden.all_columns([np.int64] * len(self.types)), hidden.size)
        rows = np.sort(np.concatenate([self.holes.rows, self.below.rows_in(hidden)]))
        return OverlayTable(self.below, self.added.without(shared), gone, Holes(rows, self.below.size))

    def column(self, position: int, rows: slice | np.ndarray | None = None, dtype: Any = np.int64) -> np.ndarray:
        count, holes = self.holes.size, self.holes
        if rows is None:
            rows = slice(0, self.size)
        if isinstance(rows, slice):
            if rows.start >= count:
                return self.added.column(position, slice(rows.start - count, rows.stop - count), dtype)
            stop = min(rows.stop, count)
            low = self.below.column(position, slice(rows.start, stop), dtype)
            first, last = np.searchsorted(holes.filled, [rows.start, stop]).tolist()
            if first < last:
                moved = self.below.column(position, holes.movers[first:last], dtype)
                low[holes.filled[first:last] - rows.start] = moved
            if rows.stop <= count:
                return low
            return np.concatenate([low, self.added.column(position, slice(0, rows.stop - count), dtype)])
        is_added = rows >= count
        if not is_added.any():
            return self.below.column(position, holes.old(rows), dtype)
        if is_added.all():
            return self.added.column(position, rows - count, dtype)
        values = np.empty(len(rows), dtype)
        values[~is_added] = self.below.column(position, holes.old(rows[~is_added]), dtype)
        values[is_added] = self.added.column(position, rows[is_added] - count, dtype)
        return values

    def words(self) -> list[np.ndarray]:
        return self.all_columns([np.int64] * len(self.types))

    def insert(
        self, columns: Sequence[np.ndarray], count: int, check_budget: Callable[[], Any] | None = None
    ) -> np.ndarray:
        for start in range(0, count, policy().chunk):
            part = [contiguous(column[start : min(start + policy().chunk, count)], np.int64) for column in columns]
            fresh = np.flatnonzero(self.find_below(part, len(part[0])) < 0)
            if len(fresh):
                self.added.insert([column[fresh] for column in part], len(fresh))
        # As a set of rows without numbers.
        return np.empty(count, np.int64)

    def find_below(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        """As `find`, of the rows below."""
        ids = self.below.find(columns, count)
        if self.gone.size and len(there := np.flatnonzero(ids >= 0)):
            is_gone = self.gone.find([column[there] for column in columns], len(there)) >= 0
            ids[there] = np.where(is_gone, -1, self.holes.new(ids[there]))
        return ids

    def find(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        ids = self.find_below(columns, count)
        absent = np.flatnonzero(ids < 0)
        if len(absent) and self.added.size:
            numbers = self.added.find([column[absent] for column in columns], len(absent))
            ids[absent] = np.where(numbers < 0, -1, numbers + self.holes.size)
        return ids

    def matches(
        self,
        key_columns: tuple[int, ...],
        is_static: bool,
        probes: np.ndarray,
        limit: int,
        stamps: np.ndarray = NO_STAMPS,
        bound: int = 0,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        below, holes = self.below, self.holes
        # Branches of one database may be added to in several threads.
        with _indexing:
            if (index := below.indexes.get(key_columns)) is not None:
                index.update()
            pairs = below.matches(key_columns, True, probes, below.size if len(holes.rows) else min(limit, below.size))
        for left, rows in pairs:
            if len(holes.rows):
                stay = np.flatnonzero(~holes.has(rows))
                left, rows = left[stay], holes.new(rows[stay])
                if limit < holes.size:
                    left, rows = left[rows < limit], rows[rows < limit]
            yield left, rows
        if self.added.size and limit > holes.size:
            for left, rows in self.added.matches(key_columns, False, probes, limit - holes.size):
                yield left, rows + holes.size
