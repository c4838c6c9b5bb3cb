"""Few rows looked for among many by one pass over these.

A pass reads 2 ns a row. The set of a table takes the time of about ten passes and an index that of up to twenty, and
both take memory; so the first few times a pass is what whoever has few rows to look for pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.index import NO_STAMPS, dense_pairs
from derivable.device.cpu.memory import empty, full

if TYPE_CHECKING:
    from derivable.datalog.tables.storage import Table

# Bits of a hash that a row of few is looked for by, more than their number has: one in 2^6 others has the same.
FILTER_BITS = 6


def pays(table: Table, count: int) -> bool:
    """Whether to look for that number of rows by a pass over a table, which counts it."""
    if (
        table.size <= policy().few
        or count * policy().rows_a_pass > table.size
        or table.row_set.passes == policy().most_passes
    ):
        return False
    table.row_set.passes += 1
    return True


def among(few: Table, columns: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of many rows, given as word columns, a table of few has: (positions, in order; their numbers there)."""
    if not few.size:
        return empty(0, np.int64), empty(0, np.int64)
    positions: slice | np.ndarray = slice(0, count)
    if count > policy().few and columns:
        # Of one column few hashes of so many bits are those of a row.
        own = [few.column(c) for c in range(len(columns))]
        column = max(range(len(columns)), key=lambda c: len(np.unique(own[c])))
        bits = min(20, FILTER_BITS + few.size.bit_length())
        is_there = np.zeros(1 << bits, bool)
        is_there[_low_hashes(own[column], bits)] = True
        parts = [
            start
            + np.flatnonzero(
                is_there.take(_low_hashes(columns[column][start : min(start + policy().cache_rows, count)], bits))
            )
            for start in range(0, count, policy().cache_rows)
        ]
        positions = np.concatenate(parts)
    some = [np.asarray(column[positions], np.int64) for column in columns]
    ids = few.find(some, len(positions) if isinstance(positions, np.ndarray) else count)
    there = np.flatnonzero(ids >= 0)
    return (positions[there] if isinstance(positions, np.ndarray) else there), ids[there]


def find(table: Table, probes: Table, columns: Sequence[np.ndarray], count: int) -> np.ndarray:
    """As `Table.find`, by means of an empty table that numbers its rows."""
    numbers = probes.insert(columns, count)
    rows, own = among(probes, list(table.log.T), table.size)
    ids = full(probes.size, -1, np.int64)
    ids[own] = rows
    return ids[numbers]


def matches(
    table: Table,
    keys: Table,
    key_columns: Sequence[int],
    probes: np.ndarray,
    limit: int,
    stamps: np.ndarray = NO_STAMPS,
    bound: int = 0,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As `Table.matches`, by means of an empty table that numbers its rows."""
    numbers = keys.insert(list(probes.T), len(probes))
    rows, own = among(keys, [table.log[:limit, c] for c in key_columns], limit)
    if len(stamps):
        stays = stamps[rows] <= bound
        rows, own = rows[stays], own[stays]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=keys.size))])
    return dense_pairs(offsets, rows[np.argsort(own, kind="stable")], 0, numbers)


def _low_hashes(words: np.ndarray, bits: int) -> np.ndarray:
    """Hashes [row] of so many bits, of the low 32 bits of words."""
    if words.dtype.itemsize < 4:
        words = words.astype(np.int32)
    return words.astype(np.uint32) * np.uint32(0x9E3779B1) >> np.uint32(32 - bits)
