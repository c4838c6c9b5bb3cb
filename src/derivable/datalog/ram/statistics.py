"""What is known of the columns of tables: rows, distinct values and how often they occur, for the planner.

A column is summed up by counts of its values in hashed buckets. Two such summaries estimate how many pairs of rows
agree, which is the size of a join, also where some values are much more frequent than others: with buckets g, h and
rows n, m the pairs are (g . h - n m / B) / (1 - 1 / B) in expectation over hash functions (Alon, Gibbons, Matias and
Szegedy 1999, without signs). Large columns are sampled, always the same rows.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np

from derivable.core import splitmix64
from derivable.datalog.scalars.nodes import Const
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import word_of

# Rows above which a column is sampled, rows of a sample, buckets, and slots that count distinct values.
ALL_ROWS, SAMPLE, BUCKETS, SLOTS = 1 << 17, 1 << 16, 1 << 10, 1 << 18


def _hashed(words: np.ndarray) -> np.ndarray:
    """Hashes [row] uint64 of words [row] int64: the estimate is about hashes that look random (splitmix64)."""
    with np.errstate(over="ignore"):
        return splitmix64.multiplied(words.view(np.uint64) * np.uint64(splitmix64.STEP))


def _bucket(hashed: np.ndarray, buckets: int) -> np.ndarray:
    """The upper bits of hashes."""
    return (hashed >> np.uint64(65 - buckets.bit_length())).view(np.int64)


class ColumnSummary:
    """rows, distinct values (a float: they may be estimated), the rows of each bucket, how many rows each row of the
    sample stands for, and how many integers there are from the least word to the greatest."""

    __slots__ = ("buckets", "distinct", "reach", "rows", "scale")

    def __init__(self, rows: int, distinct: float, buckets: np.ndarray, scale: float = 1.0, reach: float = 0.0):
        self.rows, self.distinct, self.buckets, self.scale, self.reach = rows, distinct, buckets, scale, reach

    def pairs(self, other: ColumnSummary) -> float:
        """How many pairs of rows of both columns agree."""
        if not self.rows or not other.rows:
            return 0.0
        spread = float(self.rows) * other.rows
        agreeing = (float(self.buckets @ other.buckets) - spread / BUCKETS) / (1 - 1 / BUCKETS)
        if other is self:
            # A sampled row agrees with itself, not with all rows that it stands for.
            agreeing -= self.rows * (self.scale - 1)
        # Noise must not say that there are none.
        return max(agreeing, 0.5 * spread / max(self.distinct, other.distinct))

    def occurrences(self, word: int) -> float:
        """How many rows have this value, about: at most those of its bucket."""
        if not self.rows:
            return 0.0
        bucket = _bucket(_hashed(np.array([word], np.int64)), BUCKETS)
        return min(float(self.buckets[bucket[0]]), self.rows)


def summary_of(words: np.ndarray, rows: int) -> ColumnSummary:
    """The summary of a column of `rows` rows from some of its words [row] int64."""
    count = len(words)
    if not count:
        return ColumnSummary(rows, 0.0, np.zeros(BUCKETS))
    hashed = _hashed(words)
    buckets = np.bincount(_bucket(hashed, BUCKETS), minlength=BUCKETS) * (rows / count)
    there = np.zeros(SLOTS, bool)
    there[_bucket(hashed, SLOTS)] = True
    taken = int(np.count_nonzero(there))
    # Linear counting (Whang et al. 1990).
    distinct = min(count, -SLOTS * math.log1p(-taken / SLOTS)) if taken < SLOTS else count
    if count < rows:
        distinct = _of_all(distinct, count, rows)
    reach = int(words.max()) - int(words.min()) + 1
    return ColumnSummary(rows, max(1.0, min(distinct, rows, reach)), buckets, rows / count, reach)


def _of_all(distinct: float, count: int, rows: int) -> float:
    """Distinct values of a column if a sample of `count` rows has so many: those whose expectation it is."""
    if distinct >= 0.98 * count:
        return rows
    low, high = distinct, float(rows)
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if -middle * math.expm1(-count / middle) < distinct else (low, middle)
    return low


class Statistics:
    """Summaries of the columns of a run's tables, made when they are asked for and again when a table has doubled."""

    def __init__(self, tables: Mapping[str, Table], symbols: SymbolTable):
        self.tables, self.symbols = tables, symbols
        self._known: dict[tuple[str, int], ColumnSummary] = {}
        self._combinations: dict[tuple[str, tuple[int, ...]], tuple[int, float]] = {}

    def is_complete(self, relation: str) -> bool:
        return True

    def rows(self, relation: str) -> int:
        return self.tables[relation].size

    def column(self, relation: str, column: int) -> ColumnSummary:
        table = self.tables[relation]
        summary = self._known.get((relation, column))
        if summary is None or table.size > 2 * summary.rows:
            words = table.column(column, _sampled(table, relation, column))
            summary = self._known[relation, column] = summary_of(words, table.size)
        return summary

    def combinations(self, relation: str, columns: tuple[int, ...]) -> float:
        """Distinct combinations of the values of some columns, about."""
        table = self.tables[relation]
        combined = self._combinations.get((relation, columns))
        if combined is None or table.size > 2 * combined[0]:
            rows = _sampled(table, relation, columns[0])
            mixed = np.zeros(len(table.column(columns[0], rows)), np.int64)
            for column in columns:
                mixed = _hashed(mixed ^ table.column(column, rows)).view(np.int64)
            combined = self._combinations[relation, columns] = table.size, summary_of(mixed, table.size).distinct
        return combined[1]

    def forget(self, relation: str) -> None:
        """Its table is another one."""
        self._known = {key: one for key, one in self._known.items() if key[0] != relation}
        self._combinations = {key: one for key, one in self._combinations.items() if key[0] != relation}

    def word(self, constant: Const) -> int | None:
        """The word of a constant; None if it is a text that nothing has, which is not to be inserted for this."""
        if constant.type.family == "text" and self.symbols.find(constant.value) is None:
            return None
        return word_of(constant.value, constant.type, self.symbols)


def _sampled(table: Table, relation: str, column: int) -> slice | np.ndarray:
    """The rows to look at: not the same ones in relations that hold the same, whose noise would agree."""
    size = table.size
    if size <= ALL_ROWS:
        return slice(0, size)
    return np.random.default_rng(zlib.crc32(f"{relation}/{column}".encode())).integers(0, size, SAMPLE)
