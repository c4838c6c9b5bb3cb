"""Rows of integers packed into words of 64 bits, which sort like the rows: how relations are built in bulk.

Sorting words takes some nanoseconds each, less than asking a set that is not in cache, and gives a log whose first
column is in order: an index over it goes through memory from front to back, and so do groups. The result does not
depend on the order of what is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from derivable.device.cpu.memory import empty

WORD_BITS = 64
# Rows that are packed at once: what lies between two steps stays in cache.
PART = 1 << 15


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
        """The packing of columns [row] int64 with at least one row; None if there are none or they need more bits."""
        lows, highs = [int(column.min()) for column in columns], [int(column.max()) for column in columns]
        widths = [(high - low).bit_length() for low, high in zip(lows, highs)]
        if not columns or sum(widths) > WORD_BITS:
            return None
        return Packing(tuple(lows), tuple(highs), tuple(sum(widths[c + 1 :]) for c in range(len(columns))))

    def pack(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """[row] uint64"""
        count = len(columns[0])
        packed, part = empty(count, np.uint64), empty(min(count, PART), np.uint64)
        for start in range(0, count, PART):
            whole = packed[start : start + PART]
            for c, (column, low, shift) in enumerate(zip(columns, self.lows, self.shifts)):
                into = part[: len(whole)] if c else whole
                # Differences of words without sign wrap around to what they should be.
                given = column[start : start + PART].view(np.uint64)
                np.subtract(given, np.uint64(low % (1 << WORD_BITS)), out=into)
                if shift < WORD_BITS:
                    np.left_shift(into, np.uint64(shift), out=into)
                if c:
                    np.bitwise_or(whole, into, out=whole)
        return packed

    def unpack(self, words: np.ndarray, rows: np.ndarray, order: Sequence[int] | None = None) -> None:
        """Write the columns of `words` to `rows` [row, column], there in their order or to the columns `order`."""
        part = empty(min(len(words), PART), np.uint64)
        places = range(len(self.lows)) if order is None else order
        for start in range(0, len(words), PART):
            given, made = words[start : start + PART], rows[start : start + PART]
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


def distinct(words: np.ndarray) -> np.ndarray:
    """The words in order, without repeats; those given are sorted."""
    words.sort()
    if len(words) < 2:
        return words
    is_new = empty(len(words), bool)
    is_new[0] = True
    np.not_equal(words[1:], words[:-1], out=is_new[1:])
    return words if is_new.all() else words[is_new]


def is_in_order(columns: Sequence[np.ndarray]) -> bool:
    """Whether rows of columns that can be compared come in order, the first column first."""
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
    packed.sort()
    np.bitwise_and(packed, np.uint64((1 << (count - 1).bit_length()) - 1), out=packed)
    places = packed.view(np.int64)
    return places if order is None else order[places]


def _words(column: np.ndarray) -> np.ndarray | None:
    """A column of integers as int64; None if it holds others, or some that are too large."""
    if column.dtype.kind not in "iub" or (column.dtype == np.uint64 and column.max(initial=0) >> np.uint64(63)):
        return None
    return np.ascontiguousarray(column, np.int64)
