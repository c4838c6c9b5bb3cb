"""Tables of a finished run with more rows: the rows that were there stay where they are, for all that read them.

An overlay table costs what its own rows cost, however many lie below them, so a large database has many branches with a
few facts each. The set and the indexes of the rows below are made once, for all branches. Whoever wants the rows as one
log, as kernels do, gets it: the table becomes a plain one then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from derivable.core.forks import renew_in_children
from derivable.core.interrupts import sigint_deferred
from derivable.datalog.tables.index import CHUNK, Index
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.memory import contiguous

_indexing = threading.Lock()
renew_in_children(globals(), _indexing=threading.Lock)
# Rows from which a table without tags gets a layer rather than more rows of its own; and how many times its own rows
# lie below a layer at least.
LEAST_BELOW, TIMES_BELOW = 1 << 12, 4
# Rows that a rule goes through on an overlay table before it is worth one log: this share of all.
WORTH_ONE_LOG = 1 / 64


def may_be_overlaid(table: Table, is_shared: bool) -> bool:
    """Whether to put a layer on a table for more rows, rather than to write to it or to a copy.

    A layer with many rows of its own becomes a plain table first, so that there are at most two.
    """
    if table.new_tags is not None or not table.types:
        return False
    if isinstance(table, OverlayTable):
        if TIMES_BELOW * table.own.size <= table.below.size:
            return is_shared
        table.merge()
    return table.size >= LEAST_BELOW


class OverlayTable(Table):
    """A table without tags: the rows of `below`, which does not change any more, and those of `own`."""

    def __init__(self, below: Table, own: Table):
        # Not that of `Table`: there is no log.
        self.name, self.types, self.width = below.name, below.types, below.width
        self.below, self.own = below, own
        self.new_tags = self.tags = self.stamps = None
        self.may_have_sets = self.may_be_built = self.set_is_stale = self.shared = False
        self.top, self.round = below.top, below.round
        self.recent: slice | np.ndarray = slice(0, 0)
        self.stable_size = 0
        self.visible_size = self.size
        self.indexes: dict = {}

    @staticmethod
    def on(table: Table) -> OverlayTable:
        """A layer for more rows than those of a table, which must not change any more."""
        if isinstance(table, OverlayTable):
            return OverlayTable(table.below, table.own.fork(with_set=True))
        return OverlayTable(table, Table(table.name, table.types))

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.below.size + self.own.size

    @property
    def log(self) -> np.ndarray:  # type: ignore[override]
        self.merge()
        return self.log

    @property
    def tail(self) -> np.ndarray:  # type: ignore[override]
        return self.log

    @property
    def sets(self):  # type: ignore[override]
        self.merge()
        return self.sets

    @property
    def table(self) -> np.ndarray:  # type: ignore[override]
        self.merge()
        return self.table

    @property
    def rows_worth_kernels(self) -> float:
        return self.size * WORTH_ONE_LOG

    def merge(self) -> None:
        """Become a plain table with the same rows."""
        plain = self.below.fork(with_set=True)
        for start in range(0, self.own.size, CHUNK):
            rows = slice(start, min(start + CHUNK, self.own.size))
            plain.insert([self.own.column(c, rows) for c in range(len(self.types))], rows.stop - rows.start)
        for name in ("recent", "stable_size", "visible_size", "round"):
            setattr(plain, name, getattr(self, name))
        with sigint_deferred():
            self.__class__ = Table  # type: ignore[assignment]
            self.__dict__ = plain.__dict__

    def fork(self, size: int | None = None, with_set: bool = False) -> Table:
        return OverlayTable(self.below, self.own.fork(None if size is None else size - self.below.size, with_set))

    def without(self, gone: Table, may_take_sets: bool = False) -> Table:
        return OverlayTable(self.below.without(gone, may_take_sets), self.own.without(gone))

    def update_set(self) -> None:
        self.below.update_set()

    def column(self, position: int, rows: slice | np.ndarray | None = None, dtype: Any = np.int64) -> np.ndarray:
        count = self.below.size
        if rows is None:
            rows = slice(0, self.size)
        if isinstance(rows, slice):
            if rows.start >= count:
                return self.own.column(position, slice(rows.start - count, rows.stop - count), dtype)
            low = self.below.column(position, slice(rows.start, min(rows.stop, count)), dtype)
            if rows.stop <= count:
                return low
            return np.concatenate([low, self.own.column(position, slice(0, rows.stop - count), dtype)])
        is_own = rows >= count
        if not is_own.any():
            return self.below.column(position, rows, dtype)
        if is_own.all():
            return self.own.column(position, rows - count, dtype)
        found = np.empty(len(rows), dtype)
        found[~is_own] = self.below.column(position, rows[~is_own], dtype)
        found[is_own] = self.own.column(position, rows[is_own] - count, dtype)
        return found

    def insert(
        self, columns: Sequence[np.ndarray], count: int, check_budget: Callable[[], Any] | None = None
    ) -> np.ndarray:
        for start in range(0, count, CHUNK):
            part = [contiguous(column[start : min(start + CHUNK, count)], np.int64) for column in columns]
            fresh = np.flatnonzero(self.below.find(part, len(part[0])) < 0)
            if len(fresh):
                self.own.insert([column[fresh] for column in part], len(fresh))
        # As a set of rows without numbers.
        return np.empty(count, np.int64)

    def find(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        ids = self.below.find(columns, count)
        absent = np.flatnonzero(ids < 0)
        if len(absent) and self.own.size:
            found = self.own.find([column[absent] for column in columns], len(absent))
            ids[absent] = np.where(found < 0, -1, found + self.below.size)
        return ids

    def index(self, key_columns: tuple[int, ...], is_static: bool) -> Index:
        return OverlayIndex(self, key_columns)  # type: ignore[return-value]


class OverlayIndex:
    """The index of the rows below, and that of the others."""

    def __init__(self, table: OverlayTable, key_columns: tuple[int, ...]):
        self.count = table.below.size
        # Branches of one database may be added to in several threads.
        with _indexing:
            self.below = table.below.index(key_columns, True)
            self.below.update()
        self.own = table.own.index(key_columns, False) if table.own.size else None

    def matches(
        self, probes: np.ndarray, limit: int, stamps: np.ndarray | None = None, bound: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As `Index.matches`."""
        yield from self.below.matches(probes, min(limit, self.count))
        if self.own is not None and limit > self.count:
            for left, rows in self.own.matches(probes, limit - self.count):
                yield left, rows + self.count
