"""Tables: what a relation is while a program runs.

A table is an append-only log of rows of 64-bit words, a hash set of its row numbers, and indexes that grow with the
log; nothing is ever sorted or merged. A row's life: pending (in the candidates of a round), recent (new or improved in
the last round), stable. Untagged recent rows are a slice of the log; tagged ones a list of row numbers, because a
better tag makes an old row recent again; a stamp, the round in which it last became recent, tells the parts apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from derivable.datalog.pairs import PairSet
from derivable.datalog.values import ValueType
from derivable.device.cpu import pair_set
from derivable.device.cpu import relations as kernels
from derivable.device.cpu.memory import empty, zeros

CHUNK = 1 << 16
_NO_STAMPS = empty(0, np.int32)


class Index:
    """Row numbers by the values of some columns of a table."""

    def __init__(self, table: Table, key_columns: tuple[int, ...], is_static: bool):
        self.table = table
        self.key_columns = np.array(key_columns, dtype=np.int64)
        self.rows_entered = 0
        self.offsets: np.ndarray | None = None
        self.value_columns: dict[int, np.ndarray] = {}
        self.top_values: dict[int, int] = {}
        if is_static and len(key_columns) <= 1 and self._build_dense():
            return
        self.heads = np.full(16, -1, dtype=np.int64)
        self.following = empty(16, np.int64)

    def values_of(self, column: int) -> np.ndarray:
        """A column of the table in the order of a dense index's rows."""
        if column not in self.value_columns:
            self.value_columns[column] = self.table.column(column, self.rows)
        return self.value_columns[column]

    def top_value(self, column: int) -> int:
        """The largest value of a column."""
        if column not in self.top_values:
            self.top_values[column] = int(self.values_of(column).max(initial=0))
        return self.top_values[column]

    def _build_dense(self) -> bool:
        size = self.table.size
        keys = self.table.column(int(self.key_columns[0])) if len(self.key_columns) else zeros(size, np.int64)
        low, high = (int(keys.min()), int(keys.max())) if size else (0, 0)
        if high - low > 4 * size + 1024:
            return False
        self.low = low
        self.offsets = empty(high - low + 2, np.int64)
        self.rows = empty(size, np.int64)
        kernels.dense_index(np.ascontiguousarray(keys), low, self.offsets, self.rows)
        return True

    def _update(self) -> None:
        size = self.table.size
        if self.offsets is not None or self.rows_entered == size:
            return
        log = self.table.log
        if len(self.following) < size:
            grown = empty(max(size, 2 * len(self.following)), np.int64)
            grown[: self.rows_entered] = self.following[: self.rows_entered]
            self.following = grown
        if len(self.heads) < size:
            self.heads = np.full(1 << int(size * 2 - 1).bit_length(), -1, dtype=np.int64)
            self.rows_entered = 0
        kernels.chain_append(log, self.key_columns, self.heads, self.following, self.rows_entered, size)
        self.rows_entered = size

    def matches(
        self, probes: np.ndarray, limit: int, stamps: np.ndarray = _NO_STAMPS, bound: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (probe numbers, row numbers), at most CHUNK at a time, for probes [probe, key] int64."""
        self._update()
        left = empty(CHUNK, np.int64)
        right = empty(CHUNK, np.int64)
        i, row = 0, -1
        count_probes = len(probes)
        keys = None
        if self.offsets is not None:
            keys = np.ascontiguousarray(probes[:, 0]) if len(self.key_columns) else zeros(count_probes, np.int64)
        while i < count_probes:
            if keys is not None:
                count, i, row = kernels.dense_expand(self.offsets, self.rows, self.low, keys, left, right, i, row)
            else:
                count, i, row = kernels.chain_expand(
                    self.table.log,
                    self.key_columns,
                    self.heads,
                    self.following,
                    probes,
                    limit,
                    stamps,
                    bound,
                    left,
                    right,
                    i,
                    row,
                )
            if count:
                # Copies, because the buffers are filled again while the consumer may still hold the last chunk.
                yield left[:count].copy(), right[:count].copy()


class Table:
    """The rows of one relation; see the module's docstring.

    log     [capacity, max(arity, 1)] int64 (a nullary relation has one column of zeros); int32 with `pairs`
    pairs   the set of an untagged binary relation over small integers, instead of the hash set
    tags    [capacity] made by `new_tags`, or None for untagged tables
    stamps  [capacity] int32, the round in which a row last became recent (tagged tables only)
    recent  row numbers, or a slice of the log
    """

    def __init__(self, name: str, types: Sequence[ValueType], new_tags: Callable[[int], Any] | None = None):
        self.name = name
        self.types = tuple(types)
        self.width = max(1, len(self.types))
        self.size = 0
        is_binary = len(self.types) == 2 and all(t.family != "float" for t in self.types)
        self.pairs = PairSet() if is_binary and new_tags is None else None
        self.log: np.ndarray = empty((16, self.width), np.int32 if self.pairs else np.int64)
        self.table = zeros(64, np.uint64)
        self.new_tags = new_tags
        self.tags: Any = None if new_tags is None else new_tags(16)
        self.stamps = _NO_STAMPS if new_tags is None else zeros(16, np.int32)
        self.recent: slice | np.ndarray = slice(0, 0)
        self.stable_size = 0
        self.visible_size = 0
        self.round = 0
        self.indexes: dict[tuple[int, ...], Index] = {}

    def __len__(self) -> int:
        return self.size

    def column(self, position: int, rows: slice | np.ndarray | None = None) -> np.ndarray:
        """Words of one column, of all rows or some."""
        if rows is None:
            rows = slice(0, self.size)
        if isinstance(rows, slice):
            column = self.log[rows, position]
            return np.ascontiguousarray(column) if self.pairs is None else column.astype(np.int64)
        return self.log[:, position].take(rows).astype(np.int64, copy=False)

    def rows_of(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Rows [row, column] of word columns."""
        rows = empty((count, self.width), np.int64)
        if not columns:
            rows[:] = 0
        for i, column in enumerate(columns):
            rows[:, i] = column
        return rows

    def reserve(self, more: int) -> None:
        """Make room for `more` rows in the log, the tags and the set."""
        needed = self.size + more
        if needed > len(self.log):
            capacity = max(needed, 2 * len(self.log))
            self.grow_log(capacity)
            if self.new_tags is not None:
                tags = self.new_tags(capacity)
                tags[: self.size] = self.tags[: self.size]
                self.tags = tags
                stamps = zeros(capacity, np.int32)
                stamps[: self.size] = self.stamps[: self.size]
                self.stamps = stamps
        if self.pairs is None and 2 * needed > len(self.table):
            self.table = zeros(1 << int(4 * needed - 1).bit_length(), np.uint64)
            kernels.rehash_rows(self.log, self.size, self.table)

    def grow_log(self, capacity: int) -> None:
        log = empty((capacity, self.width), self.log.dtype)
        log[: self.size] = self.log[: self.size]
        self.log = log

    def leave_pairs(self) -> None:
        """Go over to the representation that numbers its rows and holds any values."""
        if self.pairs is None:
            return
        self.pairs = None
        self.log = self.log.astype(np.int64)
        self.table = zeros(1 << max(6, int(4 * self.size).bit_length()), np.uint64)
        kernels.rehash_rows(self.log, self.size, self.table)

    def insert_pairs(self, pairs: PairSet, columns: Sequence[np.ndarray]) -> None:
        xs, ys = columns
        pairs.widen(int(xs.max()), int(ys.max()), self.log, self.size)
        self.enter_pairs(pairs, xs.astype(np.int32), ys.astype(np.int32))

    def enter_pairs(self, pairs: PairSet, xs: np.ndarray, ys: np.ndarray) -> None:
        """Append the new pairs; the set is wide enough for them."""
        i = 0
        while i < len(xs):
            result, i, self.size = pair_set.insert_pairs(xs, ys, i, True, self.log, self.size, *pairs.arrays)
            if result == pair_set.ARENA_FULL:
                pairs.grow_arena()
            elif result == pair_set.LOG_FULL:
                self.grow_log(2 * len(self.log))

    def insert(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Find or append rows given as word columns; returns their numbers [row] int64 (not with `pairs`)."""
        if self.pairs is not None and count:
            if self.pairs.fits(list(columns)):
                self.insert_pairs(self.pairs, columns)
                return empty(0, np.int64)
            self.leave_pairs()
        ids = empty(count, np.int64)
        rows = self.rows_of(columns, count)
        for start in range(0, count, CHUNK):
            part = rows[start : start + CHUNK]
            self.reserve(len(part))
            self.size = kernels.insert_rows(self.log, self.size, self.table, part, ids[start : start + CHUNK])
        return ids

    def find(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Row numbers [row] int64 of rows given as word columns, -1 if absent (with `pairs`: 0 if present)."""
        ids = empty(count, np.int64)
        if self.pairs is not None:
            base, slots, _, arena, _ = self.pairs.arrays
            pair_set.find_pairs(columns[0], columns[1], base, slots, arena, self.pairs.domain, ids)
            return ids
        kernels.find_rows(self.log, self.table, self.rows_of(columns, count), ids)
        return ids

    def index(self, key_columns: tuple[int, ...], is_static: bool) -> Index:
        """The index over some columns; a static table has all its rows already."""
        found = self.indexes.get(key_columns)
        if found is None:
            found = self.indexes[key_columns] = Index(self, key_columns, is_static)
        return found
