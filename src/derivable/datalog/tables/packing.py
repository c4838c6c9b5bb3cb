"""Rows of integers packed into words of 64 bits, which sort like the rows: how relations are built in bulk.

Sorting words takes some nanoseconds each, less than asking a set that is not in cache, and gives a log whose first
column is in order: an index over it goes through memory from front to back, and so do groups. The result does not
depend on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from derivable.datalog.kernels import relations as kernels
from derivable.datalog.policy.costs import policy
from derivable.device.cpu.memory import empty
from derivable.device.cpu.threads import chunk_bounds, run_chunks

WORD_BITS = 64


@dataclass(frozen=True)
class Packing:
    """Bit positions of columns in a word, the first column in the highest bits.

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
        """Words [row] uint64 of columns [row] of int64 or smaller integers, in `packed` unless it is None."""
        packed = empty(len(columns[0]), np.uint64) if packed is None else packed
        run_chunks(self._pack, len(packed), policy().shared_rows, columns, packed)
        return packed

    def _pack(self, begin: int, end: int, columns: Sequence[np.ndarray], packed: np.ndarray) -> None:
        part = empty(min(end - begin, policy().cache_rows), np.uint64)
        for start in range(begin, end, policy().cache_rows):
            stop = min(start + policy().cache_rows, end)
            whole = packed[start:stop]
            for c, (column, low, shift) in enumerate(zip(columns, self.lows, self.shifts)):
                into = part[: len(whole)] if c else whole
                source = column[start:stop]
                if source.dtype != np.int64:
                    np.copyto(into.view(np.int64), source)
                    source = into
                # Differences of words without sign wrap around to what they should be.
                np.subtract(source.view(np.uint64), np.uint64(low % (1 << WORD_BITS)), out=into)
                if shift < WORD_BITS:
                    np.left_shift(into, np.uint64(shift), out=into)
                if c:
                    np.bitwise_or(whole, into, out=whole)

    def unpack(self, words: np.ndarray, rows: np.ndarray) -> None:
        """Write the columns of `words` to `rows` [row, column]."""
        run_chunks(self._unpack, len(words), policy().shared_rows, words, rows)

    def _unpack(self, begin: int, end: int, words: np.ndarray, rows: np.ndarray) -> None:
        part = empty(min(end - begin, policy().cache_rows), np.uint64)
        for start in range(begin, end, policy().cache_rows):
            stop = min(start + policy().cache_rows, end)
            packed_words, made = words[start:stop], rows[start:stop]
            into = part[: len(packed_words)]
            for c, (low, high, shift) in enumerate(zip(self.lows, self.highs, self.shifts)):
                bits = (high - low).bit_length()
                if not bits:
                    made[:, c] = low
                    continue
                np.right_shift(packed_words, np.uint64(shift), out=into)
                if shift + bits < WORD_BITS:
                    np.bitwise_and(into, np.uint64((1 << bits) - 1), out=into)
                if low:
                    np.add(into, np.uint64(low % (1 << WORD_BITS)), out=into)
                made[:, c] = into.view(np.int64)


def sort(words: np.ndarray) -> None:
    """Sort words where they are: parts of equal lengths at once, each with words that are not above the next one's."""
    cuts = chunk_bounds(len(words), policy().shared_rows)[1:-1]
    if cuts:
        words.partition(cuts)
    run_chunks(_sort, len(words), policy().shared_rows, words)


def _sort(start: int, stop: int, words: np.ndarray) -> None:
    part = words[start:stop]
    # NumPy takes as long where it uses the processor's vectors well, else five times.
    if len(part) < policy().cache_rows:
        part.sort()
        return
    keys, other = part.view(np.int64), empty(len(part), np.int64)
    if kernels.sort_by_digits(keys, other, empty(1 << kernels.DIGIT_BITS, np.int64)):
        np.copyto(keys, other)


def distinct(words: np.ndarray) -> np.ndarray:
    """The words in order, without repeats, on the memory of `words`."""
    if not ascends(words):
        sort(words)
    count = min(1, len(words))
    for part in _overlapping(words):
        fresh = part[1:][part[1:] != part[:-1]]
        words[count : count + len(fresh)] = fresh
        count += len(fresh)
    return words[:count]


def ascends(words: np.ndarray) -> bool:
    """Whether each word is above the one before it."""
    return all(bool((part[1:] > part[:-1]).all()) for part in _overlapping(words))


def _overlapping(words: np.ndarray) -> Iterator[np.ndarray]:
    """Parts that begin with the last word of the part before."""
    for start in range(1, len(words), policy().cache_rows):
        yield words[start - 1 : start + policy().cache_rows]
