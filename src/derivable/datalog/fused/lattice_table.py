"""The table of a relation that has a lattice, while its stratum runs.

`joined_rows` has a row for each combination of the other columns, whose tag is the join of all values so far. A row
with a better value waits until it is propagated: then it is appended to the log, as a recent row of all columns. So
rules read ordinary rows, some of which have got better since; what follows from such ones is no better than what is
there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.datalog.aggregates.lattices import Lattice, column_dtype, is_ranked
from derivable.datalog.fused.frontier import Frontier
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import reduce_segments
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType
from derivable.device.cpu.memory import empty, longer, next_length, zeros


class LatticeTable(Table):
    """frontier  the rows that wait, where values have an order
    keeps_log  whether rules read rows that are not recent
    touched, listed  [row] of `joined_rows`: the round in which an older row got better last; the first `number` are
                     those of this round. Rows from `old` on are new
    """

    def __init__(
        self, name: str, types: Sequence[ValueType], lattice: Lattice, symbols: SymbolTable, keeps_log: bool = True
    ):
        super().__init__(name, types)
        self.row_set.may_have_prefixes = self.row_set.may_be_sorted = False
        self.lattice, self.symbols, self.keeps_log = lattice, symbols, keeps_log
        self.value_type, self.dtype = self.types[-1], column_dtype(self.types[-1])
        self.joined_rows = Table(name, self.types[:-1], lambda count: empty(count, self.dtype))
        self.touched, self.listed = zeros(0, np.int32), empty(0, np.int64)
        self.number = self.old = self.seen = 0
        self.stamp = 1
        is_ordered = lattice.direction != 0 and not is_ranked(self.value_type)
        self.frontier = Frontier(self.joined_rows, lattice.direction, np.inf) if is_ordered else None

    @property
    def joins_values(self) -> bool:
        return True

    def insert(
        self, columns: Sequence[np.ndarray], count: int, check_budget: Callable[[], Any] | None = None
    ) -> np.ndarray:
        """Join values into the rows of `joined_rows`, whose numbers it returns."""
        known = self.joined_rows.size
        ids = self.joined_rows.insert(columns[:-1], count, check_budget)
        values = np.ascontiguousarray(columns[-1], np.int64).view(self.dtype)
        if len(self.touched) < self.joined_rows.size:
            length = next_length(len(self.touched), self.joined_rows.size)
            self.touched = longer(self.touched, length, len(self.touched), cleared=True)
            self.listed = longer(self.listed, length, self.number)
        self.seen += count
        if self.seen >= policy().few_rows and not is_ranked(self.value_type):
            from derivable.datalog.fused.emit_tags import accumulate_kernel

            join = policy().kernels.function_of(accumulate_kernel, self.lattice.typed(self.value_type), True, True)
            self.number, _ = join(
                *(count, self.old, known, self.stamp, self.number, ids, self.touched, self.listed),
                *(values, self.joined_rows.tags),
            )
        elif count:
            self.join(ids, values, known)
        self.row_set.gathered = self.number + self.joined_rows.size - self.old
        return ids

    def join(self, ids: np.ndarray, values: np.ndarray, known: int) -> None:
        """The same over columns."""
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        rows, offsets = ids[starts], np.append(starts, len(ids))
        values, tags = reduce_segments(values[order], offsets, self.joined), self.joined_rows.tags
        is_new = rows >= known
        tags[rows[is_new]] = values[is_new]
        rows, before = rows[~is_new], tags[rows[~is_new]]
        after = self.joined(before, values[~is_new])
        rows, after = rows[before != after], after[before != after]
        tags[rows] = after
        changed = rows[(rows < self.old) & (self.touched[rows] != self.stamp)]
        self.touched[changed] = self.stamp
        self.listed[self.number : self.number + len(changed)] = changed
        self.number += len(changed)

    def joined(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.lattice.joined(a.view(np.int64), b.view(np.int64), self.value_type, self.symbols).view(self.dtype)

    def all_waiting(self) -> np.ndarray:
        """The rows of `joined_rows` that are better than when they were propagated; they wait no more."""
        waiting = [] if self.frontier is None else [self.frontier.all_rows()]
        return np.unique(np.concatenate([self.better_rows(), *waiting]))

    def better_rows(self) -> np.ndarray:
        """The rows of `joined_rows` that have got better since the last call, or are new."""
        rows = np.concatenate([self.listed[: self.number], np.arange(self.old, self.joined_rows.size)])
        self.number, self.old = 0, self.joined_rows.size
        return rows

    def wait(self, rows: np.ndarray) -> None:
        """Rows of `joined_rows` that are better than when they were propagated: all there are."""
        self.touched, self.listed = zeros(self.joined_rows.size, np.int32), empty(self.joined_rows.size, np.int64)
        self.listed[: len(rows)] = rows
        self.number, self.old = len(rows), self.joined_rows.size

    def take_news(self) -> int:
        rows: slice | np.ndarray = self.better_rows()
        if self.frontier is not None:
            rows = self.frontier.to_propagate(rows)
        assert isinstance(rows, np.ndarray)
        self.stamp += 1
        self.row_set.gathered, count = 0, len(rows)
        if not self.keeps_log:
            self.size = 0
        start = self.size
        if count:
            values = self.joined_rows.tags[rows]
            if self.frontier is not None:
                # What is better than all that it follows from shows that the best rows are not final.
                self.frontier.one = float((values * float(self.frontier.sign)).max())
            if len(self.log) < start + count:
                self.grow_log(start + count)
            for c in range(len(self.types) - 1):
                self.log[start : start + count, c] = self.joined_rows.column(c, rows)
            self.log[start : start + count, -1] = values.view(np.int64)
        self.size = self.visible_size = start + count
        self.recent = slice(start, self.size)
        return count

    def all_rows(self) -> tuple[list[np.ndarray], int]:
        """The columns of words [row] of `joined_rows`, and their length."""
        columns = [self.joined_rows.column(c) for c in range(len(self.types) - 1)]
        return [*columns, self.joined_rows.tags[: self.joined_rows.size].view(np.int64)], self.joined_rows.size
