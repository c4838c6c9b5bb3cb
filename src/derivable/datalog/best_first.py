"""A recursion of one rule under ordered tags, told best first by one kernel, a few prefixes at a time.

Where a rule changes the last column alone, what follows from rows of one prefix has that prefix: prefixes are
recursions of their own, and a few at a time stay in cache with their sets, tags and queue. Otherwise, and while rows
are few, the rounds of `execute` and the levels of `frontier` do it. The fixpoint is the same, whatever is told first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.core.lazy import later
from derivable.datalog import fused
from derivable.datalog.frontier import Frontier
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import Var
from derivable.datalog.storage import Table
from derivable.datalog.tag_columns import parts_of

if TYPE_CHECKING:
    from derivable.datalog.kernels import row_sets
    from derivable.datalog.queries import Queries
    from derivable.datalog.ram import emit_best
else:
    row_sets, emit_best = later("derivable.datalog.kernels.row_sets"), later("derivable.datalog.ram.emit_best")

# Levels of a queue, powers of two: of one for the rows of some prefixes, which is to stay in cache, and of one for all
# rows, which are told again where many of them share a level.
LEVELS, ALL_LEVELS = 1 << 10, 1 << 14
# Rows that a queue begins with room for; rows told between looks at the clock; rows that the prefixes told at once are
# to have in the end, which stay in cache.
QUEUE_ROWS, TOLD_ROWS, BLOCK_ROWS = 1 << 12, 1 << 16, 1 << 13
# Tags in a sample for each level.
_SAMPLE = 4
# So many times the rows there are, rows are told before rounds go on: where tags of many rows share a level, they may
# get better again and again.
MOST_TIMES = 8


def only_rule(stratum: m.Stratum) -> m.Store | None:
    """The loop of a stratum if it is one rule that keeps all columns of its recursive atom but the last."""
    if len(stratum.loop) != 1 or len(stratum.relations) != 1 or not m.reads_news_alone(stratum):
        return None
    (store,) = stratum.loop
    driver, terms = m.steps(store.query)[0], store.query.terms
    assert isinstance(driver, m.Scan)
    kept = len(terms) > 0 and driver.relation == store.relation and driver.terms[:-1] == terms[:-1]
    return store if kept and all(isinstance(term, Var) for term in terms[:-1]) else None


class BestFirst:
    """The rest of a recursion, from the rows of its table that were not told."""

    def __init__(self, queries: Queries, store: m.Store, table: Table, frontier: Frontier):
        self.queries, self.table, self.sign = queries, table, frontier.sign
        self.in_order = frontier.in_order
        self.levels = LEVELS if table.width > 1 else ALL_LEVELS
        self.lows = np.empty(self.levels)
        self.lasts = np.empty(self.levels, np.int64)
        self.made = self.told = 0
        self.frontier = frontier
        self.grow_queue(QUEUE_ROWS)
        self.fused = fused.plan(queries, store)

    def grow_queue(self, room: int) -> None:
        """A queue of so many entries, the first of which are those there are."""
        old = (self.following, self.queued, self.keys) if hasattr(self, "keys") else ()
        self.following, self.queued, self.keys = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
        for there, made in zip(old, (self.following, self.queued, self.keys)):
            made[: len(there)] = there

    def is_possible(self) -> bool:
        """Whether a kernel has the whole rule, and no tag is better than one, so that no product is better either."""
        found = self.fused
        if found is None or found.prefix is not None or not isinstance(found.plan.tags, TypedSemiring):
            return False
        one = self.sign * float(found.plan.tags.one[0])
        tables = [self.table, *(table for table, _ in found.reads.values())]
        tags = [parts_of(table.tags)[0][: table.size] for table in tables if table.tags is not None]
        return all(not len(part) or float((self.sign * part).max()) <= one for part in tags)

    def tell(self, rows: np.ndarray) -> np.ndarray:
        """Tell these rows and all that follows from them; returns rows that wait for rounds."""
        assert self.fused is not None
        for _, index in self.fused.reads.values():
            if index is not None:
                index.update()
        rows = self.in_order(rows)
        self.rank(self.sign * self.table.tags[rows])
        firsts = self.table.column(0, rows)
        # Without columns before the last, all rows follow from one another.
        changes = firsts[1:] != firsts[:-1] if self.table.width > 1 else firsts[:0]
        ends = np.append(np.flatnonzero(changes) + 1, len(rows))
        at, start, number = 0, 0, 1
        while start < len(rows):
            before, at = self.table.size, min(at + number, len(ends))
            stop = int(ends[at - 1])
            left = self.tell_block(rows[start:stop])
            if len(left):
                return np.unique(np.concatenate([left, rows[stop:]]))
            found = self.table.size - before + stop - start
            number = max(1, min(2 * number, BLOCK_ROWS * number // max(found, 1)))
            start = stop
        return rows[:0]

    def rank(self, keys: np.ndarray) -> None:
        """Levels for rows whose tags, times the direction, are these, and as many for worse ones to come."""
        finite = keys[np.isfinite(keys)]
        finite = finite if len(finite) else np.zeros(1)
        sample = np.sort(finite[:: max(1, len(finite) // (_SAMPLE * self.levels))])
        worst, half = float(finite.min()), self.levels // 2
        span = float(sample[-1]) - worst or max(abs(worst), 1.0)
        self.lows[:half] = worst - span * (np.arange(half, 0, -1) / half)
        self.lows[half:] = sample[(np.arange(half) * len(sample)) // half]
        self.lows[half], self.lows[0] = worst, -np.inf
        if np.isneginf(keys).any():
            self.lows[1] = -np.inf

    def fill(self, rows: np.ndarray) -> int:
        """Make these rows the entries of the queue, each in its level; returns the best level."""
        tags = self.table.tags[rows]
        levels = np.searchsorted(self.lows, self.sign * tags, side="right") - 1
        order = np.argsort(levels, kind="stable")
        rows, tags, levels, count = rows[order], tags[order], levels[order], len(rows)
        if count > len(self.keys):
            self.grow_queue(2 * count)
        self.queued[:count], self.keys[:count] = rows, tags
        first = np.append(True, levels[1:] != levels[:-1])[:count]
        self.following[:count] = np.arange(1, count + 1)
        self.following[np.append(np.flatnonzero(first)[1:], count) - 1] = np.flatnonzero(first)
        self.lasts.fill(-1)
        self.lasts[levels] = np.arange(count)
        return int(levels[-1])

    def tell_block(self, rows: np.ndarray) -> np.ndarray:
        """As `tell`, for the rows of some prefixes."""
        while len(rows):
            level, used = self.fill(rows), len(rows)
            if not level:
                self.rank(self.sign * self.table.tags[rows])
                continue
            is_done, used = self.run(level, used)
            waiting = np.flatnonzero(self.queued[:used] >= 0)
            rows, keys = self.queued[waiting], self.keys[waiting]
            rows = rows[self.table.tags[rows] == keys]
            if not is_done:
                return rows
        return rows

    def run(self, level: int, used: int) -> tuple[bool, int]:
        """Run the kernel on the queue; returns whether it has told all levels but the first, and entries used."""
        table, found, queries = self.table, self.fused, self.queries
        assert found is not None
        assert table.sets is not None
        sets, supply = table.sets, table.sets.supplies[0]
        kernel = emit_best.compiled_best(found.plan, sets.form, self.sign)
        positions: list[Any] = [-1] * kernel.num_positions
        bounds = {step: queries.bounds_of(scan) for step, scan in found.scans.items()}
        entry, size, free, left = -1, table.size, -1, TOLD_ROWS
        while True:
            arguments: list[Any] = []
            for what, step, part in kernel.parameters:
                arguments += fused.argument_of(found, bounds, None, what, step, part)
            code, entry, level, size, used, free, left, made, *positions = kernel.function(
                *(entry, level, size, used, free, left, 0),
                *(len(table.log), supply.end, len(self.keys), self.levels),
                *positions,
                *sets.find_arguments,
                *(sets.count, supply.state, self.lows, self.lasts, self.following, self.queued, self.keys),
                *arguments,
            )
            table.size = size
            self.made += made
            # Else a log that grows now would stay beside its successor.
            del arguments
            if code == row_sets.DONE:
                return True, used
            if code == row_sets.OUT_OF_REACH:
                return False, used
            if code == row_sets.LOG_FULL:
                table.grow_log(len(table.log) + 1)
            elif code == row_sets.ARENA_FULL:
                sets.make_room(table, supply, code, [])
            elif code == emit_best.QUEUE_FULL:
                self.grow_queue(2 * len(self.keys))
            else:
                left, self.told = TOLD_ROWS, self.told + TOLD_ROWS
                if self.told > MOST_TIMES * max(size, TOLD_ROWS):
                    self.frontier.gave_up = True
                    return False, used
            queries.deadline.remaining()


def waiting_rows(table: Table, frontier: Frontier) -> np.ndarray:
    """The rows of a table that were not told."""
    recent = table.recent
    rows = np.arange(recent.start, recent.stop) if isinstance(recent, slice) else recent
    return np.concatenate([rows, frontier.all_rows()])
