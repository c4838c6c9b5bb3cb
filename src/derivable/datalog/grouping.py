"""Aggregates over certain and uncertain rows.

Meaning: in every world, the aggregate of the rows that are there. Rows that are certain are folded directly. With
uncertain rows, count, sum and prod run a dynamic programme over the rows (state: the value so far), which is
polynomial in the number of distinct values, where going over the subsets is exponential; min and max go through the
values in order, a value holding if one of its rows does and no better one. The same code works on tag columns and on
nodes of the ground derivation graph, where it builds a decision structure.

A group without a `where` clause exists only in the worlds in which it has a row; without group columns there is one
group always. (Scallop gives a group's count of 0 a tag even if the group is then not there.)

As in expressions, a sum of integers saturates, a product wraps, and where a sum or a product is NaN there is no tuple.
What saturates is the exact sum, so that the order of the rows does not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.packing import is_in_order, order_of
from derivable.datalog.rules.nodes import AggregateRule
from derivable.datalog.storage import Table
from derivable.datalog.tag_columns import concatenate
from derivable.datalog.tags import ColumnTags, GraphTags, Untagged
from derivable.datalog.values import SymbolTable, ValueType, from_words, ranks

Result = tuple[list[np.ndarray], int, Any]


def aggregate(
    rule: AggregateRule,
    types: tuple[ValueType, ...],
    body: Table,
    groups: Table | None,
    mode: Untagged | ColumnTags | GraphTags,
    symbols: SymbolTable,
) -> Result:
    """Columns [group..., result...], number and tags of the aggregate's rows; `types` are those of its relation."""
    return Groups(rule, types, body, groups, mode, symbols).run()


class Groups:
    """The rows of an aggregate, group by group, and what was found for them."""

    def __init__(self, rule, types, body: Table, groups: Table | None, mode, symbols: SymbolTable):
        self.rule, self.types, self.body, self.groups = rule, types, body, groups
        self.mode: Any = mode
        self.symbols = symbols
        self.has_tags = not isinstance(mode, Untagged)

    def run(self) -> Result:
        rule, mode = self.rule, self.mode
        group = self.group_numbers()
        size = self.body.size
        tags = mode.load(self.body, slice(0, size)) if self.has_tags else None
        if isinstance(mode, GraphTags) and tags is not None:
            tags = tags[0]
        if tags is None:
            certain = np.ones(size, dtype=bool)
        elif rule.discrete:
            certain = np.ones(size, dtype=bool)
            tags = mode.one(size)  # type: ignore[union-attr]
        else:
            certain = mode.is_one(tags)  # type: ignore[union-attr]
        values = self.value_columns()
        # Group by group, values in order within each: the order in which min and max look at them.
        order = order_of([group, *(self.sort_key(v, t) for v, t in values)])
        self.group = group[order]
        self.values = [v[order] for v, _ in values]
        self.value_types = [t for _, t in values]
        self.arguments = [self.body.column(rule.num_group + i)[order] for i in range(rule.num_arguments)]
        self.tags: Any = None if tags is None else tags[order]
        certain = certain[order]
        lengths = np.bincount(self.group, minlength=self.num_groups + 1)[: self.num_groups]
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        all_certain = np.ones(self.num_groups + 1, dtype=bool)
        all_certain[self.group[~certain]] = False
        all_certain = all_certain[:-1]
        self.rows: list[tuple[np.ndarray, list[np.ndarray], Any]] = []
        record = AGGREGATES[rule.operator]
        record.certain(self, np.flatnonzero(all_certain))
        for g in np.flatnonzero(~all_certain).tolist():
            record.uncertain(self, g, slice(int(self.starts[g]), int(self.starts[g + 1])))
        return self.finish()

    # Groups and columns

    def group_numbers(self) -> np.ndarray:
        """Group number [row] of the body's rows; sets the groups' key columns, their number and tags."""
        rule, body = self.rule, self.body
        keys = [body.column(c) for c in range(rule.num_group)]
        self.group_tags = None
        if self.groups is not None:
            self.groups.leave_sets()
            count = self.groups.size
            self.keys = [self.groups.column(c) for c in range(rule.num_group)]
            self.num_groups = count
            if self.has_tags:
                loaded = self.mode.load(self.groups, slice(0, count))
                self.group_tags = loaded[0] if isinstance(self.mode, GraphTags) else loaded
            numbers = self.groups.find(keys, body.size)
            # Rows whose group is not asked for go to a group that is cut off.
            return np.where(numbers < 0, count, numbers)
        if not rule.num_group:
            self.keys, self.num_groups = [], 1
            return np.zeros(body.size, dtype=np.int64)
        if body.size and is_in_order(keys):
            is_new = np.zeros(body.size, dtype=bool)
            is_new[0] = True
            for key in keys:
                is_new[1:] |= key[1:] != key[:-1]
            self.keys = [key[is_new] for key in keys]
            self.num_groups = len(self.keys[0])
            return np.cumsum(is_new) - 1
        seen = Table("groups", body.types[: rule.num_group])
        seen.leave_sets()
        numbers = seen.insert(keys, body.size)
        self.keys = [seen.column(c) for c in range(rule.num_group)]
        self.num_groups = seen.size
        return numbers

    @property
    def keeps_empty(self) -> bool:
        return self.groups is not None or self.rule.num_group == 0

    def value_columns(self) -> list[tuple[np.ndarray, ValueType]]:
        first = self.rule.num_group + self.rule.num_arguments
        types = self.body.types[first:]
        return [(from_words(self.body.column(first + i), t), t) for i, t in enumerate(types)]

    def sort_key(self, values: np.ndarray, t: ValueType) -> np.ndarray:
        """What orders the values: texts by their characters, the rest by itself."""
        if t.family != "text":
            return values
        ids, where = np.unique(values, return_inverse=True)
        return ranks(self.symbols.lookup(ids))[where]

    def bounds(self, chosen: np.ndarray, with_empty: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(groups, their first rows, the rows behind their last) of those of the chosen groups that exist."""
        starts, stops = self.starts[chosen], self.starts[chosen + 1]
        if with_empty and self.keeps_empty:
            return chosen, starts, stops
        some = stops > starts
        return chosen[some], starts[some], stops[some]

    # Result

    def emit(self, group: np.ndarray, results: list[np.ndarray], tags: Any) -> None:
        if len(group):
            self.rows.append((group, results, tags))

    def finish(self) -> Result:
        mode: Any = self.mode
        if not self.rows:
            empty = [np.empty(0, dtype=np.int64) for _ in self.types]
            return empty, 0, (mode.one(0) if self.has_tags else None)
        group = np.concatenate([g for g, _, _ in self.rows])
        columns = [key[group] for key in self.keys]
        for i in range(len(self.rows[0][1])):
            columns.append(np.concatenate([results[i] for _, results, _ in self.rows]).astype(np.int64))
        tags = None
        if self.has_tags:
            tags = concatenate([mode.one(len(g)) if t is None else t for g, _, t in self.rows])
            if self.group_tags is not None:
                tags = mode.times(tags, self.group_tags[group])
            keep = ~mode.is_zero(tags)
            columns, group, tags = [c[keep] for c in columns], group[keep], tags[keep]
        return columns, len(group), tags
