"""Tagged candidates of a table in a round: they wait for its end, where equal rows are added up and inserted."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.datalog.fused.frontier import direction
from derivable.datalog.fused.tag_accumulator import TagAccumulator, fold
from derivable.datalog.run.limits import Watch
from derivable.datalog.run.profile import Effort
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import ColumnTags, SemiringTags

# Columns, their number and their tags.
Part = tuple[list[np.ndarray], int, Any]


class Pending:
    """Candidates as columns, or once they have been many, added up as they come.

    count       of all rounds
    efforts     [part] of whom they are; None for facts
    rows        new ones of this round that are no facts
    distinct    the rows that wait, where a limit has to know how many they are
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
        self.efforts: list[Effort | None] = []
        self.count = self.rows = 0
        self.sums: TagAccumulator | None = None
        self.distinct: Table | None = None
        self.fold = None if is_certain else algebra.fold(table, is_recursive)

    @property
    def keeps_columns(self) -> bool:
        """Whether the columns of a part are read after the next part is made."""
        return self.sums is None

    @property
    def is_many(self) -> bool:
        """Whether there have been so many candidates that they are added up as they come."""
        algebra = self.algebra
        return isinstance(algebra, SemiringTags) and TagAccumulator.is_ready(self.count, algebra.typed)

    @property
    def has_order(self) -> bool:
        """Whether its best tags may be propagated first."""
        algebra = self.algebra
        return self.any_order and isinstance(algebra, SemiringTags) and direction(algebra.typed) != 0

    @property
    def may_have_order(self) -> bool:
        """Whether its best tags may be propagated first, once there are many."""
        return self.sums is None and self.has_order

    @property
    def has_waiting_rows(self) -> bool:
        """Whether rows wait for better tags to be propagated."""
        return self.sums is not None and self.sums.frontier is not None and bool(self.sums.frontier.rows)

    def add(self, part: Part, stamp: int, effort: Effort | None, keeps_all: bool = True) -> None:
        """One more part of round `stamp`. Tags of a part with `keeps_all` False are not to be discarded."""
        if self.sums is not None and not keeps_all:
            before = self.table.size
            self.sums.add(*part, stamp)
            self.credit(effort, self.table.size - before)
            return
        self.parts.append(part)
        self.efforts.append(effort)
        self.count += part[1]
        algebra = self.algebra
        if self.is_certain:
            return
        if isinstance(algebra, SemiringTags) and self.is_many:
            self.sums = self.sums or TagAccumulator(self.table, algebra.typed, self.any_order)
            self.sum_up(stamp)

    def look(self, watch: Watch) -> None:
        """Raise LimitError if the rows that wait are more than there is room for."""
        room = watch.room
        if room is None or not self.parts:
            return
        if self.distinct is None:
            if sum(count for _, count, _ in self.parts) <= room:
                return
            self.distinct, parts = Table(self.table.name, self.table.types), self.parts
        else:
            parts = self.parts[-1:]
        for columns, count, tags in parts:
            new = np.flatnonzero((self.table.find(columns, count) < 0) & ~self.algebra.is_zero(tags))
            self.distinct.insert([column[new] for column in columns], len(new))
        self.table.row_set.gathered = self.distinct.size
        watch.remaining()

    def sum_up(self, stamp: int) -> None:
        """Add the columns that wait to the sums."""
        assert self.sums is not None
        for (columns, count, tags), effort in zip(self.parts, self.efforts):
            keep = np.flatnonzero(~self.algebra.is_zero(tags))
            if len(keep) < count:
                columns, count, tags = [c[keep] for c in columns], len(keep), tags[keep]
            before = self.table.size
            self.sums.add(columns, count, tags, stamp)
            self.credit(effort, self.table.size - before)
        self.parts, self.efforts = [], []

    def credit(self, effort: Effort | None, rows: int) -> None:
        """A part had that number of new rows."""
        if effort is not None:
            effort.rows += rows
            self.rows += rows

    def merge(self, stamp: int) -> None:
        """Add up equal candidates, then insert them; what is new or not saturated becomes recent in round `stamp`."""
        table, algebra = self.table, self.algebra
        table.row_set.gathered, self.distinct = 0, None
        if self.sums is not None:
            self.sum_up(stamp)
            self.sums.merge(stamp)
            return
        parts_with_rows = [(p, effort) for p, effort in zip(self.parts, self.efforts) if p[1]]
        parts, efforts = [p for p, _ in parts_with_rows], [effort for _, effort in parts_with_rows]
        self.parts, self.efforts = [], []
        table.recent = np.empty(0, dtype=np.int64)
        if not parts:
            return
        if self.is_certain or self.fold is not None:
            sizes = self.merge_certain(parts, stamp) if self.fold is None else self.fold.merge(parts, stamp)
            for effort, rows in zip(efforts, sizes, strict=True):
                self.credit(effort, rows)
            return
        ends = np.cumsum([count for _, count, _ in parts])
        if len(parts) == 1:
            columns, _, tags = parts[0]
        else:
            tags = algebra.concatenate([t for _, _, t in parts])
            columns = [np.concatenate([c[i] for c, _, _ in parts]) for i in range(len(table.types))]
        keep = ~algebra.is_zero(tags)
        if not keep.all():
            tags, ends = tags[keep], np.cumsum(keep)[ends - 1]
            columns = [c[keep] for c in columns]
        if not len(tags):
            return
        old_size = known = table.size
        ids = table.insert(columns, len(tags))
        # Rows have numbers as they come.
        for effort, start, end in zip(efforts, [0, *ends[:-1]], ends):
            top = table.size if end == len(ids) else int(ids[start:end].max(initial=-1)) + 1
            self.credit(effort, max(top - known, 0))
            known = max(top, known)
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

    def merge_certain(self, parts: list[Part], stamp: int) -> np.ndarray:
        """Returns how many rows of each part are new."""
        table, before = self.table, self.table.size
        sizes = [before]
        for columns, count, _ in parts:
            table.insert(columns, count)
            sizes.append(table.size)
        assert table.tags is not None
        table.recent = np.arange(before, table.size)
        table.tags[table.recent] = self.algebra.one(table.size - before)
        table.become_recent(table.recent, stamp)
        return np.diff(sizes)
