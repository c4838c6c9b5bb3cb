"""Tagged candidates of a table in a round: they wait for its end, where equal rows are added up and entered."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.datalog.fused.tag_accumulator import TagAccumulator, fold
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import ColumnTags, SemiringTags

# Columns, their number and their tags.
Part = tuple[list[np.ndarray], int, Any]


class Pending:
    """Candidates as columns, or once they have been many, added up as they come.

    count       of all rounds
    size        of the table after the last round
    is_certain  whether the rows are certain whatever the tags of what they follow from (`Relation.is_certain`)
    """

    def __init__(
        self,
        table: Table,
        algebra: ColumnTags,
        is_certain: bool = False,
        any_order: bool = False,
        is_recursive: bool = False,
    ):
        """any_order  whether only the fixpoint counts, not what each round finds"""
        self.table, self.algebra, self.is_certain, self.any_order = table, algebra, is_certain, any_order
        self.parts: list[Part] = []
        self.count = 0
        self.size = table.size
        self.sums: TagAccumulator | None = None
        self.fold = None if is_certain else algebra.fold(table, is_recursive)

    @property
    def keeps_columns(self) -> bool:
        """Whether the columns of a part are read after the next part is made."""
        return self.sums is None

    def add(self, part: Part, stamp: int, is_kept: bool = True) -> None:
        """One more part of round `stamp`. Tags of a part that is not kept are not to be discarded."""
        if self.sums is not None and not is_kept:
            self.sums.add(*part, stamp)
            return
        self.parts.append(part)
        self.count += part[1]
        algebra = self.algebra
        if self.is_certain:
            return
        if isinstance(algebra, SemiringTags) and TagAccumulator.is_ready(self.count, algebra.typed):
            self.sums = self.sums or TagAccumulator(self.table, algebra.typed, self.any_order)
            self.sum_up(stamp)

    def sum_up(self, stamp: int) -> None:
        """Add the columns that wait to the sums."""
        assert self.sums is not None
        for columns, count, tags in self.parts:
            keep = np.flatnonzero(~self.algebra.is_zero(tags))
            if len(keep) < count:
                columns, count, tags = [c[keep] for c in columns], len(keep), tags[keep]
            self.sums.add(columns, count, tags, stamp)
        self.parts = []

    def merge(self, stamp: int) -> int:
        """The end of round `stamp`: candidates are entered. Returns how many rows are new."""
        self._enter(stamp)
        before, self.size = self.size, self.table.size
        return self.size - before

    def _enter(self, stamp: int) -> None:
        """Add up equal candidates, then enter them; what is new or not saturated becomes recent in round `stamp`."""
        table, algebra = self.table, self.algebra
        if self.sums is not None:
            self.sum_up(stamp)
            self.sums.merge(stamp)
            return
        parts, self.parts = [p for p in self.parts if p[1]], []
        table.recent = np.empty(0, dtype=np.int64)
        if not parts:
            return
        if self.is_certain:
            self.merge_certain(parts, stamp)
            return
        if self.fold is not None:
            self.fold.merge(parts, stamp)
            return
        if len(parts) == 1:
            columns, _, tags = parts[0]
        else:
            tags = algebra.concatenate([t for _, _, t in parts])
            columns = [np.concatenate([c[i] for c, _, _ in parts]) for i in range(len(table.types))]
        keep = ~algebra.is_zero(tags)
        if not keep.all():
            tags = tags[keep]
            columns = [c[keep] for c in columns]
        if not len(tags):
            return
        old_size = table.size
        ids = table.insert(columns, len(tags))
        assert table.tags is not None
        if table.size - old_size == len(tags):
            # All are new, and no two are equal.
            table.tags[ids] = tags
            table.recent = np.arange(old_size, table.size)
            table.become_recent(slice(old_size, table.size), stamp)
            return
        order = np.argsort(ids, kind="stable")
        ids, tags = ids[order], tags[order]
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        rows = ids[starts]
        if len(rows) < len(ids):
            offsets = np.concatenate([starts, [len(ids)]])
            tags = fold(algebra, tags, offsets) if isinstance(algebra, SemiringTags) else algebra.reduce(tags, offsets)
        is_old = rows < old_size
        table.tags[rows[~is_old]] = tags[~is_old]
        recent = rows[~is_old]
        if is_old.any():
            old_rows = rows[is_old]
            before = table.tags[old_rows]
            after = algebra.plus(before, tags[is_old])
            table.tags[old_rows] = after
            changed = old_rows[~algebra.saturated(before, after)]
            recent = np.concatenate([changed, recent])
        table.recent = recent
        table.become_recent(recent, stamp)

    def merge_certain(self, parts: list[Part], stamp: int) -> None:
        table, before = self.table, self.table.size
        for columns, count, _ in parts:
            table.insert(columns, count)
        assert table.tags is not None
        table.recent = np.arange(before, table.size)
        table.tags[table.recent] = self.algebra.one(table.size - before)
        table.become_recent(table.recent, stamp)
