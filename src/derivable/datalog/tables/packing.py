"""Rows of integers packed into words of 64 bits, which sort like the rows: how relations are built in bulk.

Sorting words takes some nanoseconds each, less than asking a set that is not in cache, and gives a log whose first
column is in order: an index over it goes through memory from front to back, and so do groups. The result does not
depend on the order of what is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from derivable.device.cpu.memory import empty, longer, next_length
from derivable.device.cpu.threads import chunk_bounds, run_chunks

WORD_BITS = 64
# Rows that are packed at once: what lies between two steps stays in cache.
PART = 1 << 15
# Rows that are worth a thread.
SHARED = 1 << 17


@dataclass(frozen=True)
class Packing:
    """Places of columns in a word, the first column in the highest bits.

    lows, highs  the least and the greatest value of each column
    shifts       how far a column, less its least value, is shifted to the left
    """

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    shifts: tuple[int, ...]

    @staticmethod
    def of(columns: Sequence[np.ndarray]) -> Packing | None:
        """The packing of columns [row] of int64 or smaller integers, with at least one row.

        None if there are no columns or they need more bits than a word has.
        """
        return Packing.between([int(column.min()) for column in columns], [int(column.max()) for column in columns])

    @staticmethod
    def between(lows: Sequence[int], highs: Sequence[int], spare: bool = False) -> Packing | None:
        """The packing of columns with values between these; None if there are no columns or they need more bits.

        spare  whether columns get the bits that are left, for values below and above those; below zero only if some are
        """
        widths = [(high - low).bit_length() for low, high in zip(lows, highs)]
        left = WORD_BITS - sum(widths)
        if not widths or left < 0:
            return None
        if spare:
            widths = [width + left // len(widths) for width in widths]
            tops = [(1 << width) - 1 for width in widths]
            margins = [top - (high - low) for top, low, high in zip(tops, lows, highs)]
            lows = [low - margin // 2 if low < 0 else max(0, low - margin) for low, margin in zip(lows, margins)]
            highs = [low + top for low, top in zip(lows, tops)]
        return Packing(tuple(lows), tuple(highs), tuple(sum(widths[c + 1 :]) for c in range(len(widths))))

    def pack(self, columns: Sequence[np.ndarray], packed: np.ndarray | None = None) -> np.ndarray:
        """Words [row] uint64 of columns [row] of int64 or smaller integers, in `packed` if it is given."""
        packed = empty(len(columns[0]), np.uint64) if packed is None else packed
        run_chunks(self._pack, len(packed), SHARED, columns, packed)
        return packed

    def _pack(self, begin: int, end: int, columns: Sequence[np.ndarray], packed: np.ndarray) -> None:
        part = empty(min(end - begin, PART), np.uint64)
        for start in range(begin, end, PART):
            stop = min(start + PART, end)
            whole = packed[start:stop]
            for c, (column, low, shift) in enumerate(zip(columns, self.lows, self.shifts)):
                into = part[: len(whole)] if c else whole
                given = column[start:stop]
                if given.dtype != np.int64:
                    np.copyto(into.view(np.int64), given)
                    given = into
                # Differences of words without sign wrap around to what they should be.
                np.subtract(given.view(np.uint64), np.uint64(low % (1 << WORD_BITS)), out=into)
                if shift < WORD_BITS:
                    np.left_shift(into, np.uint64(shift), out=into)
                if c:
                    np.bitwise_or(whole, into, out=whole)

    def unpack(self, words: np.ndarray, rows: np.ndarray, order: Sequence[int] | None = None) -> None:
        """Write the columns of `words` to `rows` [row, column], there in their order or to the columns `order`."""
        places = range(len(self.lows)) if order is None else order
        run_chunks(self._unpack, len(words), SHARED, words, rows, places)

    def _unpack(self, begin: int, end: int, words: np.ndarray, rows: np.ndarray, places: Sequence[int]) -> None:
        part = empty(min(end - begin, PART), np.uint64)
        for start in range(begin, end, PART):
            stop = min(start + PART, end)
            given, made = words[start:stop], rows[start:stop]
            into = part[: len(given)]
            for c, low, high, shift in zip(places, self.lows, self.highs, self.shifts):
                bits = (high - low).bit_length()
                if not bits:
                    made[:, c] = low
                    continue
                np.right_shift(given, np.uint64(shift), out=into)
                if shift + bits < WORD_BITS:
                    np.bitwise_and(into, np.uint64((1 << bits) - 1), out=into)
                if low:
                    np.add(into, np.uint64(low % (1 << WORD_BITS)), out=into)
                made[:, c] = into.view(np.int64)


def sort(words: np.ndarray) -> None:
    """Sort words where they are: parts of equal lengths at once, each with words that are not above the next one's."""
    cuts = chunk_bounds(len(words), SHARED)[1:-1]
    if cuts:
        words.partition(cuts)
    run_chunks(_sort, len(words), SHARED, words)


def _sort(start: int, stop: int, words: np.ndarray) -> None:
    words[start:stop].sort()


def distinct(words: np.ndarray) -> np.ndarray:
    """The words in order, without repeats, on the memory of those given."""
    if not _ascends(words):
        sort(words)
    kept = min(1, len(words))
    for part in _overlapping(words):
        fresh = part[1:][part[1:] != part[:-1]]
        words[kept : kept + len(fresh)] = fresh
        kept += len(fresh)
    return words[:kept]


def _ascends(words: np.ndarray) -> bool:
    return all(bool((part[1:] > part[:-1]).all()) for part in _overlapping(words))


def _overlapping(words: np.ndarray) -> Iterator[np.ndarray]:
    """Parts that begin with the last word of the part before."""
    for start in range(1, len(words), PART):
        yield words[start - 1 : start + PART]


def runs_of(columns_of: Callable[[slice], Sequence[np.ndarray]], count: int) -> np.ndarray | None:
    """Where runs of equal rows begin [run], of at least one row; None if rows are not in order, the first column first.

    columns_of  gives the columns of some rows
    """
    starts, found = empty(1 << 15, np.int64), 1
    starts[0] = 0
    for start in range(1, count, PART):
        columns = columns_of(slice(start - 1, min(start + PART, count)))
        if not is_in_order(columns):
            return None
        is_new = columns[0][1:] != columns[0][:-1]
        for column in columns[1:]:
            is_new |= column[1:] != column[:-1]
        fresh = np.flatnonzero(is_new)
        if found + len(fresh) > len(starts):
            starts = longer(starts, next_length(len(starts), found + len(fresh)), found)
        np.add(fresh, start, out=starts[found : found + len(fresh)])
        found += len(fresh)
    return starts[:found]


def is_in_order(columns: Sequence[np.ndarray]) -> bool:
    """Whether rows of columns that can be compared come in order, the first column first."""
    count = len(columns[0]) if columns else 0
    # Parts overlap in one row; what is compared stays in cache.
    return all(
        _are_in_order([column[start : start + PART + 1] for column in columns]) for start in range(0, count, PART)
    )


def _are_in_order(columns: Sequence[np.ndarray]) -> bool:
    fine: np.ndarray | bool = True
    for column in reversed(columns):
        before, after = column[:-1], column[1:]
        if fine is True:
            fine = before <= after
        else:
            fine = (before < after) | ((before == after) & fine)
    return bool(np.all(fine))


def order_of(columns: Sequence[np.ndarray]) -> slice | np.ndarray:
    """Row numbers that bring rows in order, the first column first; equal rows stay as they come."""
    if is_in_order(columns):
        return slice(None)
    words = [_words(column) for column in columns]
    if any(column is None for column in words):
        return np.lexsort(tuple(reversed(columns)))
    order: np.ndarray | None = None
    for group in reversed(_groups(words, len(columns[0]))):  # type: ignore[arg-type]
        order = _sorted_by(group if order is None else [column[order] for column in group], order)
    assert order is not None
    return order


def _groups(columns: Sequence[np.ndarray], count: int) -> list[list[np.ndarray]]:
    """The columns in groups that fit in a word beside a row number; wide ones are cut in two."""
    most = WORD_BITS - (count - 1).bit_length()
    groups: list[list[np.ndarray]] = [[]]
    room = most
    for column in columns:
        parts = [column]
        if (int(column.max()) - int(column.min())).bit_length() > most:
            parts = [column >> 32, column & 0xFFFFFFFF]
        for part in parts:
            bits = (int(part.max()) - int(part.min())).bit_length()
            if bits > room:
                groups.append([])
                room = most
            groups[-1].append(part)
            room -= bits
    return groups


def _sorted_by(columns: Sequence[np.ndarray], order: np.ndarray | None) -> np.ndarray:
    """Row numbers by the columns, which come in an order, None for that of the rows; equal rows keep it."""
    count = len(columns[0])
    numbered = [*columns, np.arange(count)]
    packing = Packing.of(numbered)
    assert packing is not None
    packed = packing.pack(numbered)
    sort(packed)
    np.bitwise_and(packed, np.uint64((1 << (count - 1).bit_length()) - 1), out=packed)
    places = packed.view(np.int64)
    return places if order is None else order[places]


def _words(column: np.ndarray) -> np.ndarray | None:
    """A column of integers as int64; None if it holds others, or some that are too large."""
    if column.dtype.kind not in "iub" or (column.dtype == np.uint64 and column.max(initial=0) >> np.uint64(63)):
        return None
    return np.ascontiguousarray(column, np.int64)
