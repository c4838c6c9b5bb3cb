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

from derivable.datalog.rules.nodes import AggregateRule
from derivable.datalog.storage import Table
from derivable.datalog.tags import ColumnTags, GraphTags, Untagged, concatenate, repeat
from derivable.datalog.values import SymbolTable, ValueType, from_words, ranks, to_words, wrap

# Sums of magnitudes below this are exact in 64 bits, rounding in the estimate included.
_EXACT = 2.0**62

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
    return _Aggregation(rule, types, body, groups, mode, symbols).run()


class _Aggregation:
    def __init__(self, rule, types, body: Table, groups: Table | None, mode, symbols: SymbolTable):
        self.rule, self.types, self.body, self.groups, self.mode, self.symbols = (
            rule,
            types,
            body,
            groups,
            mode,
            symbols,
        )
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
        order = np.lexsort((*reversed([self.sort_key(v, t) for v, t in values]), group))
        self.group = group[order]
        self.values = [v[order] for v, _ in values]
        self.value_types = [t for _, t in values]
        self.arguments = [self.body.column(rule.num_group + i)[order] for i in range(rule.num_arguments)]
        self.tags = None if tags is None else tags[order]
        certain = certain[order]
        self.starts = np.searchsorted(self.group, np.arange(self.num_groups + 1))
        all_certain = np.ones(self.num_groups + 1, dtype=bool)
        all_certain[self.group[~certain]] = False
        all_certain = all_certain[:-1]
        self.rows: list[tuple[np.ndarray, list[np.ndarray], Any]] = []
        self.fold_certain(np.flatnonzero(all_certain))
        for g in np.flatnonzero(~all_certain).tolist():
            self.fold_uncertain(g, slice(int(self.starts[g]), int(self.starts[g + 1])))
        return self.finish()

    # Groups and columns

    def group_numbers(self) -> np.ndarray:
        """Group number [row] of the body's rows; sets the groups' key columns, their number and tags."""
        rule, body = self.rule, self.body
        keys = [body.column(c) for c in range(rule.num_group)]
        self.group_tags = None
        if self.groups is not None:
            self.groups.leave_pairs()
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
        seen = Table("groups", body.types[: rule.num_group])
        seen.leave_pairs()
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

    # Certain groups, all at once

    def fold_certain(self, chosen: np.ndarray) -> None:
        operator = self.rule.operator
        starts, stops = self.starts[chosen], self.starts[chosen + 1]
        counts = stops - starts
        if operator in ("count", "sum", "prod", "exists", "forall"):
            if not self.keeps_empty:
                chosen, starts, stops, counts = (a[counts > 0] for a in (chosen, starts, stops, counts))
            if operator == "count":
                result = counts.astype(np.uint64)
            elif operator in ("exists", "forall"):
                result = (counts > 0) == (operator == "exists")
            else:
                result = self.fold_numbers(starts, stops)
                if result.dtype.kind == "f":
                    is_number = ~np.isnan(result)
                    chosen, result = chosen[is_number], result[is_number]
            self.emit(chosen, [to_words(result, self.types[-1])], None)
            return
        chosen, starts, stops = (a[counts > 0] for a in (chosen, starts, stops))
        ends = starts if operator in ("min", "argmin") else stops - 1
        # All rows that tie with the best one.
        lengths = stops - starts
        row = np.repeat(starts, lengths) + _within(lengths)
        best = np.repeat(ends, lengths)
        ties = np.ones(len(row), dtype=bool)
        for column in self.values:
            ties &= column[row] == column[best]
        row = row[ties]
        self.emit(np.repeat(chosen, lengths)[ties], self.result_of(row), None)

    def fold_numbers(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        t = self.value_types[0]
        values = self.values[0]
        is_sum = self.rule.operator == "sum"
        result = np.full(len(starts), 0 if is_sum else 1, dtype=values.dtype)
        some = stops > starts
        if not some.any():
            return result
        # Pairs of (start, stop) make every other segment one that is not wanted.
        bounds = np.stack([starts[some], stops[some]], axis=1).reshape(-1)
        padded = np.concatenate([values, values[:1]])
        with np.errstate(all="ignore"):
            result[some] = (np.add if is_sum else np.multiply).reduceat(padded, bounds)[::2]
        if not t.is_integer:
            return result
        if not is_sum:
            return wrap(result, t)
        low, high = t.limits
        sizes = np.add.reduceat(np.abs(padded.astype(np.float64)), bounds)[::2]
        for place in np.flatnonzero(some)[sizes >= _EXACT].tolist():
            result[place] = min(max(sum(values[starts[place] : stops[place]].tolist()), low), high)
        return np.clip(result, low, high) if t.bits < 64 else result

    def result_of(self, row: np.ndarray) -> list[np.ndarray]:
        """Result words of rows for min, max (arguments, then values) and argmin, argmax (arguments)."""
        found = [a[row] for a in self.arguments]
        if self.rule.operator in ("min", "max"):
            found += [to_words(v[row], t) for v, t in zip(self.values, self.value_types)]
        return found

    # Uncertain groups, one at a time

    def fold_uncertain(self, g: int, part: slice) -> None:
        operator = self.rule.operator
        tags = self.tags[part]  # type: ignore[index]
        if operator in ("exists", "forall"):
            self.fold_exists(g, tags, operator == "exists")
        elif operator == "count":
            self.fold_count(g, tags)
        elif operator in ("sum", "prod"):
            self.fold_sum(g, part, tags)
        else:
            self.fold_extreme(g, part, tags)

    def fold_exists(self, g: int, tags: np.ndarray, is_exists: bool) -> None:
        mode: Any = self.mode
        some = mode.reduce(tags, np.array([0, len(tags)]))
        words = np.array([int(is_exists)])
        self.emit(np.array([g]), [words], some)
        if self.keeps_empty:
            none = mode.one(1)
            absent = mode.negate(tags)
            for row in range(len(tags)):
                none = mode.times(none, absent[row : row + 1])
            self.emit(np.array([g]), [1 - words], none)

    def fold_count(self, g: int, tags: np.ndarray) -> None:
        mode: Any = self.mode
        # state[j]: exactly j of the rows so far are there.
        state = mode.one(1)
        for row in range(len(tags)):
            present = repeat(tags[row : row + 1], len(state))
            stay = mode.times(state, mode.negate(present))
            step = mode.times(state, present)
            zero = mode.zero(1)
            state = mode.plus(concatenate([stay, zero]), concatenate([zero, step]))
        numbers = np.arange(len(state))
        keep = ~mode.is_zero(state)
        if not self.keeps_empty:
            keep[0] = False
        self.emit(np.full(int(keep.sum()), g), [numbers[keep]], state[keep])

    def fold_sum(self, g: int, part: slice, tags: np.ndarray) -> None:
        mode: Any = self.mode
        values, t = self.values[0][part], self.value_types[0]
        is_sum = self.rule.operator == "sum"
        if is_sum and t.is_integer and np.abs(values.astype(np.float64)).sum() >= _EXACT:
            values = values.astype(object)
        identity = np.array([0 if is_sum else 1], dtype=values.dtype)
        empty = mode.one(1)
        sums, state = values[:0], mode.one(0)
        for row, value in enumerate(values):
            present = repeat(tags[row : row + 1], len(state) + 1)
            absent = mode.negate(present)
            before = np.concatenate([sums, identity])
            with np.errstate(all="ignore"):
                moved = before + value if is_sum else before * value
            if t.is_integer and not is_sum:
                moved = wrap(moved, t)
            stepped = mode.times(concatenate([state, empty]), present)
            stayed = mode.times(state, absent[:-1])
            sums, state = self.merged(np.concatenate([sums, moved]), concatenate([stayed, stepped]))
            empty = mode.times(empty, absent[-1:])
        if is_sum and t.is_integer:
            low, high = t.limits
            sums, state = self.merged(
                np.array([min(max(v, low), high) for v in sums.tolist()], self.values[0].dtype), state
            )
        if self.keeps_empty:
            self.emit(np.array([g]), [to_words(identity, t)], empty)
        keep = ~mode.is_zero(state)
        if t.family == "float":
            keep &= ~np.isnan(sums)
        self.emit(np.full(int(keep.sum()), g), [to_words(sums[keep], t)], state[keep])

    def merged(self, values: np.ndarray, tags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The distinct values and for each the sum of its tags."""
        mode: Any = self.mode
        distinct, where = np.unique(values, return_inverse=True)
        order = np.argsort(where, kind="stable")
        offsets = np.searchsorted(where[order], np.arange(len(distinct) + 1))
        return distinct, mode.reduce(tags[order], offsets)

    def fold_extreme(self, g: int, part: slice, tags: np.ndarray) -> None:
        mode: Any = self.mode
        rows = np.arange(part.start, part.stop)
        changes = np.zeros(max(len(rows) - 1, 0), dtype=bool)
        for column in self.values:
            changes |= column[rows[1:]] != column[rows[:-1]]
        blocks = np.split(np.arange(len(rows)), np.flatnonzero(changes) + 1)
        if self.rule.operator in ("max", "argmax"):
            blocks.reverse()
        no_better = mode.one(1)
        for block in blocks:
            there = tags[block]
            self.emit(
                np.full(len(block), g),
                self.result_of(rows[block]),
                mode.times(repeat(no_better, len(block)), there),
            )
            absent = mode.negate(there)
            for row in range(len(block)):
                no_better = mode.times(no_better, absent[row : row + 1])
            if mode.is_zero(no_better).all():
                break

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


def _within(lengths: np.ndarray) -> np.ndarray:
    """0..n-1 for each length n, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
