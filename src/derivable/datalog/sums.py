"""Tags of a table's candidates, added up as they come; see `ram/emit_tags`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.datalog import fused
from derivable.datalog.ram import emit_tags
from derivable.datalog.storage import Table
from derivable.datalog.tag_columns import parts_of
from derivable.device.cpu.memory import empty, zeros


class Sums:
    """touched, listed, pending: [row], for the rows that were there before the round."""

    @staticmethod
    def is_ready(count: int, typed: TypedSemiring) -> bool:
        """Whether a table that has seen so many candidates is to have sums now."""
        return count >= (fused.FEW_ROWS if emit_tags.is_compiled(typed) else fused.MANY_ROWS)

    def __init__(self, table: Table, typed: TypedSemiring):
        self.table = table
        self.accumulate, self.entered = emit_tags.compiled_tags(typed)
        self.touched, self.listed = zeros(0, np.int32), empty(0, np.int64)
        assert table.new_tags is not None
        self.pending = table.new_tags(0)
        self.number = self.known = self.old = 0
        self.is_begun = False

    def add(self, columns: Sequence[np.ndarray], count: int, tags: Any, stamp: int) -> None:
        """Add candidates; those whose tags are to be discarded must be left out."""
        table = self.table
        if not self.is_begun:
            self.is_begun, self.old, self.known = True, table.size, table.size
        ids = table.insert(columns, count)
        if len(self.touched) < self.old:
            self._grow(len(table.log))
        given, there, pending = (parts_of(part) for part in (tags, table.tags, self.pending))
        self.number, self.known = self.accumulate(
            *(count, self.old, self.known, stamp, self.number, ids, self.touched, self.listed),
            *(*given, *there, *pending),
        )

    def _grow(self, capacity: int) -> None:
        """Between rounds: nothing is pending. Only older rows are."""
        assert not self.number
        assert self.table.new_tags is not None
        self.touched, self.listed = zeros(capacity, np.int32), empty(capacity, np.int64)
        self.pending = self.table.new_tags(capacity)

    def merge(self, stamp: int) -> None:
        """The end of a round: sums become tags, and what is news becomes recent."""
        table = self.table
        old, kept = self.old if self.is_begun else table.size, 0
        if self.number:
            kept = self.entered(self.number, self.listed, *parts_of(table.tags), *parts_of(self.pending))
        table.recent = empty(kept + table.size - old, np.int64)
        table.recent[:kept] = self.listed[:kept]
        table.recent[kept:] = np.arange(old, table.size)
        table.stamps[self.listed[:kept]] = stamp
        table.stamps[old : table.size] = stamp
        self.number, self.is_begun = 0, False
