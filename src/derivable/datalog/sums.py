"""Tags of a table's candidates, added up as they come; see `ram/emit_tags`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.ram.emit_tags import compiled_tags
from derivable.datalog.storage import Table
from derivable.datalog.tag_columns import parts_of
from derivable.device.cpu.memory import empty, zeros


class Sums:
    """touched, listed, pending: [row] of the table's capacity, as the kernels want them."""

    def __init__(self, table: Table, typed: TypedSemiring):
        self.table = table
        self.accumulate, self.entered = compiled_tags(typed)
        self.touched, self.listed = zeros(0, np.int32), empty(0, np.int64)
        assert table.new_tags is not None
        self.pending = table.new_tags(0)
        self.number = 0
        self.old: int | None = None

    def add(self, columns: Sequence[np.ndarray], count: int, tags: Any, stamp: int) -> None:
        """Add candidates; those whose tags are to be discarded must be left out."""
        table = self.table
        if self.old is None:
            self.old = table.size
        before = self.number
        ids = table.insert(columns, count)
        self._grow(before)
        given, there, pending = (parts_of(part) for part in (tags, table.tags, self.pending))
        self.number = self.accumulate(
            count, self.old, stamp, self.number, ids, self.touched, self.listed, *given, *there, *pending
        )

    def _grow(self, used: int) -> None:
        capacity, table = len(self.table.log), self.table
        if len(self.touched) == capacity:
            return
        touched, listed = zeros(capacity, np.int32), empty(capacity, np.int64)
        touched[: len(self.touched)] = self.touched
        listed[:used] = self.listed[:used]
        assert table.new_tags is not None
        pending = table.new_tags(capacity)
        pending[: len(self.pending)] = self.pending
        self.touched, self.listed, self.pending = touched, listed, pending

    def merge(self, stamp: int) -> None:
        """The end of a round: sums become tags, and what is news becomes recent."""
        table = self.table
        kept = 0
        if self.number:
            there, pending = parts_of(table.tags), parts_of(self.pending)
            kept = self.entered(self.number, self.old, stamp, self.listed, table.stamps, *there, *pending)
        table.recent = self.listed[:kept].copy()
        self.number, self.old = 0, None
