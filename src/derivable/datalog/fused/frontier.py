"""Rows whose better tags wait to propagate, best tag first.

Where a sum of tags is the better of the two and a product is never better than its factors, a row that is best among
all that wait keeps its tag (Dijkstra 1959; Knuth 1977 for rules). To tell the best rows first spares most of the times
that a row would come back with a better tag. The rows that wait lie in levels, which are split when their turn comes.
One row after the other would take as many rounds as there are rows, so a level propagates as a whole.

Any order leads to the same tags. Once a tag is better than one, products may be better than their factors; then rows no
longer wait, because best first could take exponentially long.
"""

from __future__ import annotations

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.memory import longer, next_length, zeros
from derivable.parallel.order import order_of


def direction(typed: TypedSemiring) -> int:
    """1 if larger tags are better, -1 if smaller ones are, 0 if tags have no such order."""
    record = typed.semiring
    if not (record.selective_plus and record.distributive and record.saturated is None):
        return 0
    if tuple(typed.dtypes) != ("float64",):
        return 0
    return {"max": 1, "min": -1}.get(typed.plus.extreme or "", 0)


class Frontier:
    """The rows of a table that wait.

    level  [row] the number of the level in which a row waits, 0 if it does not
    lows   for each level, the worst first, a bound that its tags, times the direction, reach; the last is that of what
           propagates at once
    rows   for each level its number and row numbers in parts; rows with another level have left it
    """

    def __init__(self, table: Table, sign: int, one: float):
        """one  what no tag may be better than, times the direction, for rows to wait"""
        self.table, self.sign, self.one = table, sign, one
        self.level = zeros(0, np.int32)
        self.lows: list[float] = [-np.inf]
        self.rows: list[tuple[int, list[np.ndarray]]] = []
        self.last, self.most = 0, 16 * policy().levels
        # Whether rows came back too often when they were propagated one by one.
        self.gave_up = False

    def to_propagate(self, rows: slice | np.ndarray) -> slice | np.ndarray:
        """The rows to propagate next, of `rows`, which have news, and those that wait; none if none waits."""
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        if not self.rows and count <= policy().many:
            return rows
        all_rows, rows = rows, np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        if len(self.level) < self.table.size:
            length = next_length(len(self.level), self.table.size)
            self.level = longer(self.level, length, len(self.level), cleared=True)
        parts = [self.best_of(rows)]
        number = len(parts[0])
        if number == count and not self.rows:
            return all_rows
        while self.rows and (number < max(1, policy().many) or not self.most):
            rows_of_level = self.best_of(self.next_level())
            parts.append(rows_of_level)
            number += len(rows_of_level)
        return self.in_order(np.concatenate(parts))

    def best_of(self, rows: np.ndarray) -> np.ndarray:
        """The rows that propagate at once; the others go to their levels."""
        # As floats, also where tags are integers: bounds are floats.
        tags = self.table.tags[rows] * float(self.sign)
        if len(rows) and tags.max() > self.one:
            self.one, self.most = -np.inf, 0
        if len(rows) > policy().many:
            self.split(tags)
        is_best = ~(tags < self.lows[-1])
        best = rows[is_best]
        self.level[best] = 0
        if len(best) < len(rows):
            rows, tags = rows[~is_best], tags[~is_best]
            level = np.searchsorted(self.lows, tags, side="right") - 1
            numbers = np.array([number for number, _ in self.rows])[level].astype(np.int32)
            is_new = self.level[rows] != numbers
            rows, level, numbers = rows[is_new], level[is_new], numbers[is_new]
            self.level[rows] = numbers
            order = np.argsort(level.astype(np.uint16), kind="stable")
            ends = np.cumsum(np.bincount(level, minlength=len(self.rows)))
            ordered, start = rows[order], 0
            for (_, parts), end in zip(self.rows, ends.tolist()):
                if end > start:
                    parts.append(ordered[start:end])
                start = end
        return best

    def split(self, tags: np.ndarray) -> None:
        """Make levels for the tags between the last bound and what is above all."""
        sample = np.sort(tags[:: max(1, len(tags) // (16 * policy().levels))])
        cuts = sample[(np.arange(1, policy().levels) * len(sample)) // policy().levels]
        for low in np.unique(cuts).tolist():
            if low > self.lows[-1] and len(self.lows) < self.most:
                self.last += 1
                self.rows.append((self.last, []))
                self.lows.append(low)

    def next_level(self) -> np.ndarray:
        """The rows of the best level, which is no more."""
        number, parts = self.rows.pop()
        self.lows.pop()
        rows = np.concatenate(parts) if parts else np.empty(0, np.int64)
        rows = rows[self.level[rows] == number]
        self.level[rows] = 0
        return rows

    def all_rows(self) -> np.ndarray:
        """All rows that wait, which wait no more."""
        parts = [self.next_level() for _ in range(len(self.rows))]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def in_order(self, rows: np.ndarray) -> np.ndarray:
        """The rows, prefix after prefix, so that what they join with, and the sets of the results, stay in cache."""
        return rows[order_of([self.table.column(0, rows), rows])]
