"""Tries: the values of one column below each combination of values of others, in order, and rows of bits for many.

What intersects the candidates of several atoms goes through the shortest list and looks its values up in the others, or
through words of bits where all of them have many values. The longest lists have a row of bits, as long as all rows take
no more memory than the lists, or little.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from derivable.datalog.kernels import relations as kernels
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.index import Index, most_apart
from derivable.datalog.tables.packing import WORD_BITS, Packing, distinct
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.memory import empty, zeros

# What divides by the bits of a word.
WORD_SHIFT = WORD_BITS.bit_length() - 1


class Trie(Index):
    """The values of column `by` of a table that does not change, below each combination of values of key columns.

    kind     "dense" if the combinations, of one column, are numbered from `low` on, "hash" if `numbers` numbers them
    offsets  [combination + 1] and values [row] int64: those of combination g are values[offsets[g]:offsets[g + 1]]
    has_rows_in_order  whether the lists are those of all rows, in the order in which these come
    bit_rows [combination] int64 which row of bits it has, -1 for none
    bits     [row * num_words] uint64: bit v of the words from `first_word` on says whether value v is there
    """

    def __init__(self, table: Table, key_columns: tuple[int, ...], by: int):
        self.table, self.key_columns, self.by = table, np.array(key_columns, np.int64), by
        self.is_static, self.rows_inserted = True, table.size
        self.ordered: dict[Any, Any] = {}
        keys, values = [table.column(c) for c in key_columns], table.column(by)
        low, high = (int(keys[0].min()), int(keys[0].max())) if table.size else (0, -1)
        self.low, self.numbers = low, Table("keys", [table.types[c] for c in key_columns])
        self.kind = "dense" if len(keys) == 1 and high - low <= most_apart(table.size) else "hash"
        if self.kind == "dense":
            number, count = keys[0], high - low + 1
        else:
            self.low = 0
            self.numbers.row_set.use_hash(self.numbers)
            number = self.numbers.insert(keys, table.size)
            count = self.numbers.size
        offsets = np.empty(count + 1, np.int64)
        ascends = bool(kernels.dense_offsets(number, self.low, offsets))
        if not ascends:
            values, of_rows = empty(table.size, np.int64), values
            kernels.dense_rows(number, self.low, offsets, values, of_rows)
        # Rows that were loaded in bulk are in order already, and so is each list of another column by the first one.
        self.has_rows_in_order = self._make_bits(offsets, values)
        self.is_ordered = ascends and self.has_rows_in_order
        if not self.has_rows_in_order:
            offsets, values = _in_order(offsets, values)
            self._make_bits(offsets, values)
        self.offsets, self.values = offsets, values

    def _make_bits(self, offsets: np.ndarray, values: np.ndarray) -> bool:
        """Make rows of bits for the longest lists; returns whether all lists ascend."""
        size, degrees = len(values), np.diff(offsets)
        first, last = (int(values.min()), int(values.max())) if size else (0, 0)
        self.first_word = first >> WORD_SHIFT
        self.num_words = (last >> WORD_SHIFT) - self.first_word + 1
        words, more_words, few_words = policy().bit_words
        most = max(words * size, min(more_words * size, few_words)) // self.num_words
        # The length of the shortest lists with a row of bits; empty ones have none.
        least = 1
        if most < len(degrees):
            least = max(1, int(np.partition(degrees, len(degrees) - most - 1)[-most - 1]) + 1)
        self.bit_rows = np.empty(len(degrees), np.int64)
        self.bits = zeros(int((degrees >= least).sum()) * self.num_words, np.uint64)
        lists = offsets, values, least
        return bool(kernels.trie_bits(*lists, self.first_word, self.num_words, self.bit_rows, self.bits))

    @cached_property
    def rows(self) -> np.ndarray:
        """[value] the row that it comes from, where the key columns and `by` are all columns of the table."""
        if self.is_ordered:
            return np.arange(self.table.size)
        keys = [self.table.column(int(c)) for c in self.key_columns]
        number = keys[0] if self.kind == "dense" else self.numbers.find(keys, self.table.size)
        if not self.has_rows_in_order:
            return np.lexsort((self.table.column(self.by), number))
        assert self.offsets is not None
        rows = empty(self.table.size, np.int64)
        kernels.dense_rows(number, self.low, self.offsets.copy(), rows, rows[:0])
        return rows

    def update(self) -> None:
        """Nothing: the table does not change."""

    def argument(self, what: str, part: int) -> Any:
        match what:
            case "values":
                return self.values
            case "key_table":
                return self.numbers.row_set.slots
            case "key_slots":
                return len(self.numbers.row_set.slots) // 2
            case "key_words":
                return self.numbers.log.reshape(-1)
        return super().argument(what, part)


def trie(table: Table, key_columns: tuple[int, ...], by: int) -> Trie:
    """The trie of a table for some columns and one more."""
    key = (key_columns, by, "trie")
    trie = table.indexes.get(key)
    if trie is None:
        trie = table.indexes[key] = Trie(table, key_columns, by)
    assert isinstance(trie, Trie)
    return trie


def _in_order(offsets: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same lists in order, each value once."""
    number = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    packing = Packing.of([number, values])
    if packing is None:
        order = np.lexsort((values, number))
        number, values = number[order], values[order]
        differs = (number[1:] != number[:-1]) | (values[1:] != values[:-1])
        fresh = np.concatenate([[True], differs])
        number, values = number[fresh], values[fresh]
    else:
        words = distinct(packing.pack([number, values]))
        pairs = np.empty((len(words), 2), np.int64)
        packing.unpack(words, pairs)
        number, values = pairs[:, 0], np.ascontiguousarray(pairs[:, 1])
    return np.searchsorted(number, np.arange(len(offsets))), values
