"""Tries: the values of one column below each combination of values of others, in order, and rows of bits for many.

What intersects the candidates of several atoms goes through the shortest list and looks its values up in the others, or
through words of bits where all of them have many values. The longest lists have a row of bits, as long as all rows take
no more memory than the lists, or little.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.datalog.kernels import relations as kernels
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.packing import WORD_BITS, Packing, distinct
from derivable.datalog.tables.storage import Table

# What divides by the bits of a word.
WORD_SHIFT = WORD_BITS.bit_length() - 1
# Words of bits that rows may have for each row of the table, and for each if they are not more than so many in all.
WORDS, MORE_WORDS, FEW_WORDS = 1, 8, 1 << 18


class Trie(Index):
    """The values of column `by` of a table that does not change, below each combination of values of key columns.

    kind     "dense" if the combinations, of one column, are numbered from `low` on, "hash" if `numbers` numbers them
    offsets  [combination + 1] and values [row] int64: those of combination g are values[offsets[g]:offsets[g + 1]]
    bit_rows [combination] int64 which row of bits it has, -1 for none
    bits     [row * num_words] uint64: bit v of the words from `first_word` on says whether value v is there
    """

    def __init__(self, table: Table, key_columns: tuple[int, ...], by: int):
        self.table, self.key_columns, self.by = table, np.array(key_columns, np.int64), by
        self.is_static, self.is_ordered, self.rows_inserted = True, False, table.size
        self.ordered: dict[Any, Any] = {}
        keys, values = [table.column(c) for c in key_columns], table.column(by)
        low, high = (int(keys[0].min()), int(keys[0].max())) if table.size else (0, -1)
        self.low, self.numbers = low, Table("keys", [table.types[c] for c in key_columns])
        self.kind = "dense" if len(keys) == 1 and high - low <= 4 * table.size + 1024 else "hash"
        if self.kind == "dense":
            offsets = np.empty(high - low + 2, np.int64)
            if not kernels.dense_offsets(keys[0], low, offsets):
                rows = np.empty(table.size, np.int64)
                kernels.dense_rows(keys[0], low, offsets, rows)
                values = values[rows]
            number, count = np.repeat(np.arange(high - low + 1), np.diff(offsets)), high - low + 1
        else:
            self.numbers.row_set.leave(self.numbers)
            number = self.numbers.insert(keys, table.size)
            count = self.numbers.size
        # Rows that were loaded in bulk are in order already, and so is each list of another column by the first one.
        if not ((number[1:] > number[:-1]) | (number[1:] == number[:-1]) & (values[1:] > values[:-1])).all():
            number, values = _in_order(number, values)
        self.values, degrees = values, np.bincount(number, minlength=count)
        self.offsets = np.concatenate([[0], np.cumsum(degrees)])
        self._make_bits(number, degrees)

    def _make_bits(self, number: np.ndarray, degrees: np.ndarray) -> None:
        places = self.values >> WORD_SHIFT
        self.first_word, last = (int(places.min()), int(places.max())) if len(places) else (0, 0)
        self.num_words = last - self.first_word + 1
        rows = len(self.values)
        most = max(WORDS * rows, min(MORE_WORDS * rows, FEW_WORDS)) // self.num_words
        least = (
            1 if most >= len(degrees) else max(1, int(np.partition(degrees, len(degrees) - most - 1)[-most - 1]) + 1)
        )
        has_bits = degrees >= least
        self.bit_rows = np.where(has_bits, np.cumsum(has_bits) - 1, -1)
        self.bits = np.zeros(int(has_bits.sum()) * self.num_words, np.uint64)
        rows = self.bit_rows[number]
        there = rows >= 0
        if not there.any():
            return
        words = rows[there] * self.num_words + places[there] - self.first_word
        bits = np.uint64(1) << (self.values[there] & (WORD_BITS - 1)).view(np.uint64)
        # Bits of one word follow one another.
        starts = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
        self.bits[words[starts]] = np.bitwise_or.reduceat(bits, starts)

    def update(self) -> None:
        """Nothing: the table does not change."""

    def argument(self, what: str) -> Any:
        """What a kernel reads of it."""
        match what:
            case "top":
                return len(self.offsets) - 1  # type: ignore[arg-type]
            case "key_table":
                return self.numbers.row_set.slots
            case "key_slots":
                return len(self.numbers.row_set.slots) // 2
            case "key_words":
                return self.numbers.log.reshape(-1)
        return getattr(self, what)


def trie(table: Table, key_columns: tuple[int, ...], by: int) -> Trie:
    """The trie of a table for some columns and one more."""
    key = (key_columns, by, "trie")
    found = table.indexes.get(key)
    if found is None:
        found = table.indexes[key] = Trie(table, key_columns, by)
    assert isinstance(found, Trie)
    return found


def _in_order(number: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of both in order, each once."""
    if not len(number):
        return number, values
    packing = Packing.of([number, values])
    if packing is None:
        order = np.lexsort((values, number))
        number, values = number[order], values[order]
        differs = (number[1:] != number[:-1]) | (values[1:] != values[:-1])
        fresh = np.concatenate([[True], differs])
        return number[fresh], values[fresh]
    words = distinct(packing.pack([number, values]))
    pairs = np.empty((len(words), 2), np.int64)
    packing.unpack(words, pairs)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
