"""Few rows looked for among many without a set or an index: by bisection where the rows are in order, else by a pass.

A pass reads 0.7 ns a row. The set of a table, or an index, takes the time of fifty passes or so, and memory; so a pass
is what a look for few rows costs, unless it comes again and again. It reads only the blocks between whose least and
greatest words there are some that are looked for; to find those of all columns takes 0.4 ns a row, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from derivable.datalog.kernels import relations as kernels
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.index import NO_STAMPS, dense_pairs
from derivable.device.cpu.memory import empty, full

if TYPE_CHECKING:
    from derivable.datalog.tables.storage import Table

# Bits of a hash that a row of few is looked for by: at least those of which a table stays in cache, and more than their
# number has, so that one in 2^6 others has the same at most.
LEAST_BITS, MORE_BITS, MOST_BITS = 14, 6, 20
# Rows of a block, and of those that are compared at once.
BLOCK, LANES = 1 << 8, 1 << 4


def pays(table: Table, key_columns: Sequence[int], count: int) -> bool:
    """Whether to look for the rows of so many keys without a set and an index; passes are counted."""
    if table.size <= policy().few or count * policy().rows_a_pass > table.size:
        return False
    if table.size - _ordered(table, key_columns) <= policy().few:
        return True
    table.row_set.passes += 1
    return table.row_set.passes <= policy().far_off


def different(words: np.ndarray) -> np.ndarray:
    """`np.unique` of few words, which takes longer."""
    words = np.sort(words)
    return words[np.append(True, words[1:] != words[:-1])] if len(words) else words


def among(
    few: Table, columns: Sequence[np.ndarray], count: int, blocks: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Which of many rows, passed as word columns, a table of few has: (positions, in order; their numbers there).

    blocks  those that may have some, None for all
    """
    if not few.size:
        return empty(0, np.int64), empty(0, np.int64)
    if count > policy().few and columns and few.size * policy().rows_a_pass <= policy().layer_times * count:
        words = [different(few.column(c)) for c in range(len(columns))]
        column = max(range(len(columns)), key=lambda c: len(words[c]))
        positions = _filtered(columns[column], count, words[column], blocks)
    else:
        positions = np.arange(count)
    ids = few.find([np.asarray(column[positions], np.int64) for column in columns], len(positions))
    there = np.flatnonzero(ids >= 0)
    return positions[there], ids[there]


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
    rows, key_numbers = _rows_with(table, keys, key_columns, limit)
    if len(stamps):
        stays = stamps[rows] <= bound
        rows, key_numbers = rows[stays], key_numbers[stays]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(key_numbers, minlength=keys.size))])
    return dense_pairs(offsets, rows[np.argsort(key_numbers, kind="stable")], 0, numbers)


def _ordered(table: Table, key_columns: Sequence[int]) -> int:
    """How many of the first rows are known to be in the order of these columns."""
    return table.row_set.ordered if tuple(key_columns) == tuple(range(len(key_columns))) else 0


def _rows_with(table: Table, keys: Table, key_columns: Sequence[int], limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Those of the first `limit` rows whose keys a table of few has: (their numbers, those of the keys)."""
    first = min(limit, _ordered(table, key_columns))
    starts, stops = empty(keys.size, np.int64), empty(keys.size, np.int64)
    kernels.bisect_rows(table.log, first, keys.log[: keys.size], starts, stops)
    counts = stops - starts
    rows = np.arange(counts.sum()) + (starts - np.cumsum(counts) + counts).repeat(counts)
    key_numbers = np.arange(keys.size).repeat(counts)
    if first < limit:
        others, their = _passed(table, keys, key_columns, first, limit)
        rows, key_numbers = np.concatenate([rows, others]), np.concatenate([key_numbers, their])
    return rows, key_numbers


def _passed(
    table: Table, keys: Table, key_columns: Sequence[int], first: int, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same of the rows from `first` on, by a pass over them, unless the last one had the rows of these keys."""
    # Several threads may look for rows.
    what, last = (tuple(key_columns), first, limit), table.row_set.last_pass
    if last is not None and last[0] == what:
        _, known, rows, key_numbers = last
        numbers = known.find([keys.column(c) for c in range(len(key_columns))], keys.size)
        if numbers.min(initial=0) >= 0:
            renumbered = full(known.size, -1, np.int64)
            renumbered[numbers] = np.arange(keys.size)
            key_numbers = renumbered[key_numbers]
            return rows[key_numbers >= 0], key_numbers[key_numbers >= 0]
    blocks = _blocks(table, keys, key_columns, first, limit)
    rows, key_numbers = among(keys, [table.log[:limit, c] for c in key_columns], limit, blocks)
    start = np.searchsorted(rows, first)
    rows, key_numbers = rows[start:], key_numbers[start:]
    # What looks for rows that go, and then for others like them, comes with the same keys again.
    table.row_set.last_pass = (what, keys, rows, key_numbers) if len(rows) <= policy().chunk else None
    return rows, key_numbers


def _blocks(table: Table, keys: Table, key_columns: Sequence[int], first: int, limit: int) -> np.ndarray:
    """The blocks of rows `first` to `limit` that may have keys of a table of few, in order; the last one has fewer."""
    # All looks at a table of one column go to the rows behind those that are in order.
    lows, highs = _bounds(table, first // BLOCK if table.width == 1 else 0, limit // BLOCK)
    may_have = np.ones(lows.shape[1] + 1, bool)
    may_have[: first // BLOCK] = False
    for number, c in enumerate(key_columns):
        words = np.append(different(keys.column(number)), np.iinfo(np.int64).max)
        may_have[:-1] &= words[np.searchsorted(words[:-1], lows[c])] <= highs[c]
    return np.flatnonzero(may_have)


def _bounds(table: Table, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest words [column, block] of the first `count` blocks of rows, which do not change any
    more; those before `first` are anything."""
    known, log = table.row_set.bounds, table.log
    done = min(first, count) if known is None else known[0].shape[1]
    if known is None or done < count:
        lows, highs = (empty((table.width, count), log.dtype) for _ in range(2))
        if known is not None:
            lows[:, :done], highs[:, :done] = known
        kernels.bound_blocks(
            log.reshape(-1), done, count, BLOCK, lows, highs, empty((2, LANES * table.width), log.dtype)
        )
        known = table.row_set.bounds = lows, highs
    return known[0][:, :count], known[1][:, :count]


def _filtered(column: np.ndarray, count: int, wanted: np.ndarray, blocks: np.ndarray | None) -> np.ndarray:
    """The positions of those of the first words of a column that are wanted, which are few and in order."""
    bits = min(MOST_BITS, max(LEAST_BITS, MORE_BITS + len(wanted).bit_length()))
    is_there = np.zeros(1 << bits, np.uint8)
    is_there[(wanted * kernels.SPREAD & 0xFFFFFFFF) >> (32 - bits)] = 1
    step, gap = divmod(column.strides[0], column.itemsize)
    if column.dtype not in (np.int32, np.int64) or step < 1 or gap or not column.flags.aligned:
        column, step = column.astype(np.int64), 1
    # The memory between the words as well.
    words = np.lib.stride_tricks.as_strided(column, ((count - 1) * step + 1,), (column.itemsize,))
    rows, blocks = (policy().chunk, np.arange(-(-count // policy().chunk))) if blocks is None else (BLOCK, blocks)
    at_once, parts = max(1, policy().chunk // rows), []
    numbers = empty(min(count, at_once * rows) + 1, np.int64)
    for start in range(0, len(blocks), at_once):
        some = blocks[start : start + at_once]
        num_passed = kernels.filter_words(words, step, some, rows, count, wanted, is_there, bits, numbers)
        parts.append(numbers[:num_passed].copy())
    return np.concatenate(parts) if parts else empty(0, np.int64)
