"""Tags of a table's candidates, added up as they come; see `emit_tags`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.fused.frontier import Frontier, direction
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import parts_of
from derivable.datalog.tags.tags import SemiringTags
from derivable.device.cpu.memory import empty
from derivable.device.cpu.pages import empty_pages, zero_pages


def fold(algebra: SemiringTags, tags: Any, offsets: np.ndarray) -> Any:
    """`algebra.reduce`, and the same bits, in a time that does not depend on the longest segment."""
    lengths = np.diff(offsets)
    are_short = lengths.max() <= policy().first_rows
    if algebra.typed.plus.special is not None or algebra.semiring.selective_plus or are_short:
        return algebra.reduce(tags, offsets)
    from derivable.datalog.fused.emit_tags import accumulating

    accumulate = policy().kernels.function_of(*accumulating(algebra.typed, False))
    segments, folded = np.repeat(np.arange(len(lengths)), lengths), tags[offsets[:-1]]
    # All segments are new in this round: nothing is touched or pending.
    touched, listed = np.empty(0, np.int32), np.empty(0, np.int64)
    pending = [np.empty(0, dtype) for dtype in algebra.typed.dtypes]
    accumulate(
        *(len(segments), 0, 0, 0, 0, segments, touched, listed),
        *(*parts_of(tags), *parts_of(folded), *pending),
    )
    return folded


class TagAccumulator:
    """touched, listed, pending: [row], for the rows that were there before the round.

    frontier  the rows that wait, where tags have an order and any order of news leads to the same end; nothing is
              pending then, since better tags are stored at once
    """

    @staticmethod
    def is_ready(count: int, typed: TypedSemiring) -> bool:
        """Whether a table that has seen so many candidates is to have sums now."""
        from derivable.datalog.fused.emit_tags import is_compiled

        return count >= (policy().few_rows if is_compiled(typed) else policy().many_rows)

    def __init__(self, table: Table, typed: TypedSemiring, any_order: bool = False):
        """any_order  whether only the fixpoint counts, not what each round finds"""
        from derivable.datalog.fused.emit_tags import accumulating, merge_kernel

        self.table, kernels = table, policy().kernels
        sign = direction(typed) if any_order else 0
        self.frontier = Frontier(table, sign, sign * float(typed.one[0])) if sign else None
        self.dtypes = () if self.frontier else typed.dtypes
        self.accumulate = kernels.function_of(*accumulating(typed, self.frontier is not None))
        self.merged = None if self.frontier else kernels.function_of(merge_kernel, typed)
        self.number = self.known = self.old = 0
        self._grow(0)
        self.is_begun = False

    def add(self, columns: Sequence[np.ndarray], count: int, tags: Any, stamp: int) -> None:
        """Add candidates; those whose tags are to be discarded must be left out."""
        table = self.table
        if not self.is_begun:
            self.is_begun, self.old, self.known = True, table.size, table.size
        ids = table.insert(columns, count)
        if len(self.touched) < self.old:
            self._grow(len(table.log))
        candidate_tags, there = parts_of(tags), parts_of(table.tags)
        self.number, self.known = self.accumulate(
            *(count, self.old, self.known, stamp, self.number, ids, self.touched, self.listed),
            *(*candidate_tags, *there, *self.pending),
        )

    def _grow(self, capacity: int) -> None:
        """Between rounds: nothing is pending. Only older rows are."""
        assert not self.number
        # Where no tag changes nothing here is ever touched, and so takes no memory.
        self.touched, self.listed = zero_pages(capacity, np.int32), empty_pages(capacity, np.int64)
        self.pending = [empty_pages(capacity, dtype) for dtype in self.dtypes]

    def merge(self, stamp: int) -> None:
        """The end of a round: sums become tags, and what is news becomes recent."""
        table = self.table
        old, num_changed = self.old if self.is_begun else table.size, 0
        if self.frontier is not None:
            num_changed = self.number
        elif self.number:
            assert self.merged is not None
            num_changed = self.merged(self.number, self.listed, *parts_of(table.tags), *self.pending)
        changed, new = self.listed[:num_changed], slice(old, table.size)
        table.recent = new
        if num_changed:
            table.recent = empty(num_changed + table.size - old, np.int64)
            table.recent[:num_changed] = changed
            for start in range(old, table.size, policy().chunk):
                stop = min(start + policy().chunk, table.size)
                table.recent[num_changed + start - old : num_changed + stop - old] = np.arange(start, stop)
        if self.frontier is not None:
            table.recent = self.frontier.to_propagate(table.recent)
            table.become_recent(table.recent, stamp)
        else:
            table.become_recent(changed, stamp)
            table.become_recent(new, stamp)
        self.number, self.is_begun = 0, False
