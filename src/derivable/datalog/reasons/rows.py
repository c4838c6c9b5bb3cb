"""The rows of a relation, looked for by the values of any of its columns.

An index over some columns is one sort: keys of several columns are packed in one word where their ranges fit, else the
columns' words are numbered first. To sort a large relation takes the time of many passes over a column, and the
tuples of a proof often share a word, such as where a path begins; so at first only the rows are sorted that have one of
the words of a key, and all rows when other words come again and again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

from derivable.datalog.policy.costs import policy
from derivable.parallel.digits import order_by_digits

Row = tuple[int, ...]


def _no_words(count: int) -> list[memoryview | None]:
    return [None] * count


class Index:
    """The numbers of rows in the order of their keys.

    columns  the words [row] of what a key is made of
    rows     the numbers [row] of the rows, in order; None for all rows of a relation
    only     the column and the word that these rows have
    """

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        rows: np.ndarray | None = None,
        only: tuple[int, int] | None = None,
    ):
        self.only = only
        self.words: list[memoryview | None] = []
        self.scales: list[tuple[int, int, int]] = []
        is_empty = not len(columns[0])
        lows = [0 if is_empty else int(c.min()) for c in columns]
        highs = [0 if is_empty else int(c.max()) for c in columns]
        spans = [high - low + 1 for low, high in zip(lows, highs)]
        total = 1
        for span in spans:
            total *= span
        parts = []
        if len(columns) == 1:
            lows, spans, parts, self.words = [0], [0], list(columns), _no_words(1)
        elif total < 1 << 62:
            parts, self.words = [c - low for c, low in zip(columns, lows)], _no_words(len(columns))
        else:
            lows, spans = [0] * len(columns), []
            for column in columns:
                words, ranks = np.unique(column, return_inverse=True)
                parts.append(ranks.reshape(-1).astype(np.int64))
                self.words.append(words.data)
                spans.append(len(words))
        scale = 1
        for low, span in zip(reversed(lows), reversed(spans)):
            self.scales.append((low, span, scale))
            scale *= span
        self.scales.reverse()
        keys = parts[0]
        for part, (_, span, _) in zip(parts[1:], self.scales[1:]):
            keys = keys * span + part
        self.sorted, order = _in_order(keys)
        self.order = order if rows is None else rows if order is None else rows[order]
        self.keys = self.sorted.data
        self.is_single = len(columns) == 1
        self.pair = self.scales if len(columns) == 2 and self.words == [None, None] else None

    def range_of(self, key: Sequence[int]) -> tuple[int, int]:
        """From where to where the rows of a key are in the order."""
        if self.is_single:
            packed = key[0]
        elif self.pair is not None:
            (low, span, scale), (other_low, other_span, _) = self.pair
            first, second = key[0] - low, key[1] - other_low
            if not (0 <= first < span and 0 <= second < other_span):
                return 0, 0
            packed = first * scale + second
        else:
            packed = self._packed(key)
            if packed is None:
                return 0, 0
        start = bisect_left(self.keys, packed)
        if start == len(self.keys) or self.keys[start] != packed:
            return 0, 0
        if start + 1 == len(self.keys) or self.keys[start + 1] != packed:
            return start, start + 1
        return start, bisect_right(self.keys, packed, start)

    def _packed(self, key: Sequence[int]) -> int | None:
        """The word of a key, None if no row has it."""
        packed = 0
        for word, words, (low, span, scale) in zip(key, self.words, self.scales):
            if words is not None:
                number = bisect_left(words, word)
                if number == len(words) or words[number] != word:
                    return None
                word = number
            word -= low
            if not 0 <= word < span:
                return None
            packed += word * scale
        return packed

    def numbers(self, start: int, stop: int) -> Sequence[int]:
        if self.order is None:
            return range(start, stop)
        return self.order[start:stop].tolist()


def _in_order(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Keys in order, and where each was before, equal ones as they were; None if they were in order."""
    if bool((keys[1:] >= keys[:-1]).all()):
        return np.ascontiguousarray(keys), None
    low, bits = int(keys.min()), len(keys).bit_length()
    if (int(keys.max()) - low).bit_length() + bits >= 63:
        order = order_by_digits([keys])
        return keys[order], order
    # NumPy sorts words several times faster than it puts numbers in the order of words.
    both = keys - low
    both <<= bits
    both |= np.arange(len(keys))
    both.sort()
    order = both & ((1 << bits) - 1)
    both >>= bits
    both += low
    return both, order


class Rows:
    """The distinct or repeated rows of a relation.

    columns    words [row] of 32 or 64 bits, all of one type
    stride     how far they are from one another, in words; the same in all columns
    """

    def __init__(self, columns: Sequence[np.ndarray], size: int):
        self.columns, self.size, self.stride = list(columns), size, 1
        self.is_narrow = bool(columns) and all(column.dtype == np.int32 for column in columns)
        word_type = np.dtype(np.int32 if self.is_narrow else np.int64)
        strides = {column.strides[0] for column in columns}
        if len(strides) == 1 and {column.dtype for column in columns} == {word_type}:
            self.stride, rest = divmod(strides.pop(), word_type.itemsize)
            assert not rest
        else:
            self.columns = [np.ascontiguousarray(column, dtype=word_type) for column in columns]
        self.words = [column.data for column in self.columns]
        self.all_columns = tuple(range(len(self.columns)))
        self.indexes: dict[tuple[int, ...], Index] = {}
        # Indexes of the rows with a word: columns of the key, and (column, word).
        self.parts: dict[tuple[tuple[int, ...], tuple[int, int]], Index] = {}
        # (column, word) -> the numbers of the rows that have it, by a pass over the column.
        self.with_word: dict[tuple[int, int], np.ndarray] = {}

    @staticmethod
    def none(width: int) -> Rows:
        return Rows([np.empty(0, np.int64)] * width, 0)

    def row(self, number: int) -> Row:
        return tuple([column[number] for column in self.words])

    def index(self, columns: tuple[int, ...], key: Sequence[int]) -> Index:
        """An index over some columns that has the rows of a key at least."""
        index = self.indexes.get(columns)
        if index is not None:
            return index
        if self.parts:
            for only in zip(columns, key):
                index = self.parts.get((columns, only))
                if index is not None:
                    return index
        only = self._few_with_word(columns, key)
        if only is None:
            index = self.indexes[columns] = Index([self.columns[c].astype(np.int64, copy=False) for c in columns])
        else:
            rows = self.with_word[only]
            words = [self.columns[c][rows].astype(np.int64) for c in columns]
            index = self.parts[columns, only] = Index(words, rows, only)
        return index

    def _few_with_word(self, columns: tuple[int, ...], key: Sequence[int]) -> tuple[int, int] | None:
        """The column and the word of a key that the fewest rows have; None if all rows are better sorted."""
        if self.size <= policy().few:
            return None
        pairs = list(zip(columns, key))
        known = [pair for pair in pairs if pair in self.with_word]
        if not known:
            if len(self.with_word) + len(pairs) > policy().far_off:
                return None
            for column, word in pairs:
                self.with_word[column, word] = np.flatnonzero(self.columns[column] == word)
            known = pairs
        best = min(known, key=lambda pair: len(self.with_word[pair]))
        return best if len(self.with_word[best]) * policy().layer_times <= self.size else None

    def numbers(self, columns: tuple[int, ...], key: Sequence[int]) -> Sequence[int]:
        """The numbers of the rows that have these words in these columns."""
        if not self.size or not columns:
            return range(self.size)
        index = self.index(columns, key)
        return index.numbers(*index.range_of(key))

    def find(self, row: Row) -> Sequence[int]:
        """The numbers of a row, none if it is not there."""
        return self.numbers(self.all_columns, row)

    def numbers_of(self, columns: Sequence[np.ndarray], count: int) -> np.ndarray | None:
        """The numbers of the same distinct rows in another order; None if they are not the same."""
        if count != self.size:
            return None
        if not columns or not count:
            return np.arange(count)
        index = self.indexes.get(self.all_columns)
        if index is None:
            index = Index([column.astype(np.int64, copy=False) for column in self.columns])
            self.indexes[self.all_columns] = index
        other, numbers = Index(columns), np.empty(count, np.int64)
        words = zip(index.words, other.words)
        if (
            index.scales != other.scales
            or not np.array_equal(index.sorted, other.sorted)
            or not all(a is b or np.array_equal(np.asarray(a), np.asarray(b)) for a, b in words)
        ):
            return None
        numbers[slice(None) if other.order is None else other.order] = (
            np.arange(count) if index.order is None else index.order
        )
        return numbers

    def __contains__(self, row: Row) -> bool:
        return len(self.find(row)) > 0
