"""Ordered indexes: the rows of a table by the values of some columns and then in the order of one more, for joins whose
conditions bound that column.

A table that grows has sorted runs of consecutive rows, each more than the next one, so that a row is sorted again only
a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from derivable.datalog.kernels import relations as kernels
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.values import ValueType, from_words
from derivable.device.cpu.memory import empty

# What moves the words of integers without sign to those with one, in their order.
LEAST = np.int64(-(1 << 63))
# (comparison of the column with it, its words [probe] in the order of `ordered`, whether it has a value, None for all)
Bounds = Sequence[tuple[str, np.ndarray, "np.ndarray | None"]]


def ordered(words: np.ndarray, t: ValueType) -> np.ndarray:
    """Integers [row] int64 in the order of numbers, from their words; NaN is above all, and -0.0 equals 0.0."""
    if t.family == "float":
        values = from_words(words, t).astype(np.float64) + 0.0
        bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
        return np.where(bits < 0, bits ^ ~LEAST, bits)
    words = np.ascontiguousarray(words, np.int64)
    return words + LEAST if is_moved(t) else words


def is_moved(t: ValueType) -> bool:
    """Whether words of a type that has no floats are in the order of the values only when `LEAST` is added."""
    return t.family == "unsigned" and t.bits == 64


class OrderedIndex(Index):
    """Row numbers by the values of key columns, and in the order of column `by` where these are equal."""

    def __init__(self, table: Table, key_columns: tuple[int, ...], by: int):
        self.table, self.key_columns, self.by = table, np.array(key_columns, np.int64), by
        self.kind, self.is_ordered, self.is_static, self.rows_inserted = "range", False, False, 0
        self.ordered: dict[Any, Any] = {}
        self.runs: list[_Run] = []

    def update(self) -> None:
        """Insert the rows that the table has got since; of a static table there is one run."""
        start, size = self.rows_inserted, self.table.size
        if start == size and not (self.is_static and len(self.runs) > 1):
            return
        while self.runs and (self.is_static or len(self.runs[-1].rows) <= size - start):
            start -= len(self.runs.pop().rows)
        self.runs.append(_Run(self, start, size))
        self.rows_inserted = size
        self.ordered.clear()

    @property
    def rows(self) -> np.ndarray:
        """The row numbers in order, of a static table."""
        return self.runs[0].rows if self.runs else np.empty(0, np.int64)

    @property
    def ordered_words(self) -> np.ndarray:
        """The column `by` in that order, as `ordered` has it."""
        return self.runs[0].ordered_words if self.runs else np.empty(0, np.int64)

    def argument(self, what: str, part: int) -> Any:
        return len(self.ordered_words) if what == "top" else super().argument(what, part)

    def between(
        self, probes: Sequence[np.ndarray], count: int, bounds: Bounds, limit: int, stamps: np.ndarray, bound: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (probe numbers, row numbers) as `matches` gives them, of rows within the bounds of each probe.

        probes  the words [probe] of each key column
        """
        self.update()
        for run in self.runs:
            for left, rows in run.between(probes, count, bounds):
                there = rows < limit
                if len(stamps):
                    there &= stamps[rows] <= bound
                yield (left, rows) if there.all() else (left[there], rows[there])


def ordered_index(table: Table, key_columns: tuple[int, ...], by: int) -> OrderedIndex:
    """The index of a table over some columns, ordered by one more."""
    key = (key_columns, by)
    index = table.indexes.get(key)
    if index is None:
        index = table.indexes[key] = OrderedIndex(table, key_columns, by)
    assert isinstance(index, OrderedIndex)
    return index


class _Run:
    """Consecutive rows of a table in the order of an index.

    keys    [key] the words [row] of each key column
    ordered_words  the words [row] of the column that they are ordered by then, as `ordered` has them
    rows    their numbers
    """

    def __init__(self, index: OrderedIndex, start: int, stop: int):
        table, part = index.table, slice(start, stop)
        keys = [table.column(c, part) for c in index.key_columns.tolist()]
        ordered_words = ordered(table.column(index.by, part), table.types[index.by])
        order = np.lexsort((ordered_words, *reversed(keys))) if keys else np.argsort(ordered_words, kind="stable")
        self.keys, self.ordered_words, self.rows = [key[order] for key in keys], ordered_words[order], order + start

    def between(
        self, probes: Sequence[np.ndarray], count: int, bounds: Bounds
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        spans: tuple[np.ndarray, np.ndarray] | None = None
        for values, words in zip(self.keys, probes):
            spans = _search(values, words, "left", spans), _search(values, words, "right", spans)
        low = np.zeros(count, np.int64) if spans is None else spans[0]
        high = np.full(count, len(self.rows)) if spans is None else spans[1]
        there = np.ones(count, bool)
        for operator, words, valid in bounds:
            bound = _search(self.ordered_words, words, "left" if operator in (">=", "<") else "right", spans)
            if operator in (">", ">="):
                low = np.maximum(low, bound)
            else:
                high = np.minimum(high, bound)
            there &= True if valid is None else valid
        # Two offsets for each probe, as the keys of a dense index would have.
        offsets = empty(2 * count + 1, np.int64)
        offsets[0:-1:2], offsets[1::2], offsets[-1] = low, np.where(there, np.maximum(low, high), low), 0
        keys = np.arange(0, 2 * count, 2)
        room = min(policy().chunk, int((offsets[1::2] - offsets[0:-1:2]).sum()))
        i, row = 0, -1
        while i < count and room:
            left, right = empty(room, np.int64), empty(room, np.int64)
            made, i, row = kernels.dense_expand(offsets, self.rows, 0, keys, left, right, i, row)
            if made:
                yield left[:made], right[:made]


def _search(
    values: np.ndarray, words: np.ndarray, side: Any, spans: tuple[np.ndarray, np.ndarray] | None
) -> np.ndarray:
    """Where words [probe] belong in values that are in order within the span of each probe, in all without one."""
    if spans is None:
        return np.searchsorted(values, words, side)
    low, high = spans[0].copy(), spans[1].copy()
    is_before = np.less if side == "left" else np.less_equal
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        # A span that has come to its end may be behind all values.
        before = is_before(values.take(middle, mode="clip"), words) & (low < high)
        high = np.where(before, high, middle)
        low = np.where(before, middle + 1, low)
    return low
