"""Indexes of tables: row numbers by the values of some columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.kernels import relations as kernels
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.tag_columns import parts_of
from derivable.device.cpu.memory import empty, full, longer, next_length, zeros

if TYPE_CHECKING:
    from derivable.datalog.tables.storage import Table

NO_STAMPS = empty(0, np.int32)


def most_apart(rows: int) -> int:
    """How far apart the values of a column with this number of rows may be for arrays of all values between."""
    return 4 * rows + 1024


class Index:
    """Row numbers by the values of some columns of a table: a counting sort if it does not change, else chains.

    offsets, rows   rows of key k are rows[offsets[k - low]:offsets[k - low + 1]]; offsets is None for chains
    is_ordered      whether the rows of the table are in the order of their keys
    heads, following  int32: the last row of each slot, and the row before each row, -1 for none
    """

    # Rows that one of chains may have: their numbers have 32 bits.
    most_rows = (1 << 31) - 1

    def __init__(self, table: Table, key_columns: tuple[int, ...], is_static: bool):
        self.table = table
        self.key_columns = np.array(key_columns, dtype=np.int64)
        self.is_static = is_static
        self.rows_inserted = 0
        self.offsets: np.ndarray | None = None
        self.ordered: dict[Any, Any] = {}
        self.low = 0
        # "dense", "chain", or "all" without key columns.
        self.kind = "chain" if key_columns else "all"
        self.is_ordered = False
        if not key_columns or (is_static and len(key_columns) == 1 and self._build_dense()):
            return
        self.heads = np.full(16, -1, np.int32)
        self.following = empty(16, np.int32)

    def values_of(self, column: int) -> np.ndarray:
        """A column of the table in the order of a dense index's rows."""
        if column not in self.ordered:
            self.ordered[column] = self.table.column(column, None if self.is_ordered else self.rows)
        return self.ordered[column]

    def tags_of(self) -> Any:
        """The tags of the table in that order."""
        if "tags" not in self.ordered:
            assert self.table.tags is not None
            tags = self.table.tags[: self.table.size]
            self.ordered["tags"] = tags if self.is_ordered else tags[self.rows]
        return self.ordered["tags"]

    def argument(self, what: str, part: int) -> Any:
        """What a kernel reads of it; of columns and tags one."""
        match what:
            case "top":
                assert self.offsets is not None
                return len(self.offsets) - 1
            case "values":
                return self.values_of(part)
            case "ordered_tags":
                return parts_of(self.tags_of())[part]
            case "heads_size":
                return len(self.heads)
        return getattr(self, what)

    def _build_dense(self) -> bool:
        size = self.table.size
        keys = self.table.column(int(self.key_columns[0]))
        low, high = (int(keys.min()), int(keys.max())) if size else (0, 0)
        if high - low > most_apart(size):
            return False
        self.low = low
        self.kind, self.offsets = "dense", empty(high - low + 2, np.int64)
        self.is_ordered = bool(kernels.dense_offsets(keys, low, self.offsets))
        if not self.is_ordered:
            self.rows = empty(size, np.int64)
            kernels.dense_rows(keys, low, self.offsets, self.rows, keys[:0])
        return True

    @cached_property
    def rows(self) -> np.ndarray:
        return np.arange(self.table.size)

    def update(self) -> None:
        """Insert the rows that the table has got since."""
        size = self.table.size
        if self.kind != "chain" or self.rows_inserted == size:
            return
        log = self.table.log
        self.make_room(size)
        kernels.chain_append(log, self.key_columns, self.heads, self.following, self.rows_inserted, size)
        self.rows_inserted = size

    def make_room(self, size: int) -> None:
        """Make room for `size` rows; `rows_inserted` is 0 if all are to be inserted again."""
        if size > self.most_rows:
            message = f"an index over {size:,} rows of `{self.table.name}`, of which one has {self.most_rows:,} at most"
            raise UnsupportedError(message, hint="split the relation, or join it by one column of small integers")
        if len(self.following) < size:
            length = min(next_length(len(self.following), size), self.most_rows)
            self.following = longer(self.following, length, self.rows_inserted)
        if len(self.heads) < size:
            # Gone before its successor is there.
            self.heads = self.heads[:0]
            self.heads = full(1 << int(size * 2 - 1).bit_length(), -1, np.int32)
            self.rows_inserted = 0

    def matches(
        self, probes: np.ndarray, limit: int, stamps: np.ndarray = NO_STAMPS, bound: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (probe numbers, row numbers), at most a chunk at a time, for probes [probe, key] int64.

        Of an index that may change only rows below `limit` with stamps up to `bound`, if there are stamps.
        """
        self.update()
        if self.kind == "all":
            rows = np.arange(limit)
            rows = rows if not len(stamps) else rows[stamps[:limit] <= bound]
            return dense_pairs(np.array([0, len(rows)]), rows, 0, zeros(len(probes), np.int64))
        if self.offsets is not None:
            return dense_pairs(self.offsets, self.rows, self.low, np.ascontiguousarray(probes[:, 0]))
        chains = self.table.log, self.key_columns, self.heads, self.following, probes, limit, stamps, bound
        return _pairs(partial(kernels.chain_expand, *chains), len(probes))


def dense_pairs(
    offsets: np.ndarray, rows: np.ndarray, low: int, keys: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As `Index.matches`, for keys [probe] of a dense index."""
    return _pairs(partial(kernels.dense_expand, offsets, rows, low, keys), len(keys))


def _pairs(expand: Callable, num_probes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    room = min(policy().chunk, max(1024, 4 * num_probes))
    left, right = empty(room, np.int64), empty(room, np.int64)
    i, row = 0, -1
    while i < num_probes:
        count, i, row = expand(left, right, i, row)
        if count and i == num_probes:
            yield left[:count], right[:count]
        elif count:
            # Copies, because the buffers are filled again while the consumer may still hold the last chunk.
            yield left[:count].copy(), right[:count].copy()
