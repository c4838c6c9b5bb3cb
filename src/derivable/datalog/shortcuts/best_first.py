"""A recursion of one rule under ordered tags, propagated best first by one kernel, prefix after prefix.

A column with a lattice whose joins are the smaller or the larger value is such a tag of the other columns.

Where a rule changes the last column alone, what follows from rows of one prefix has that prefix: prefixes are
separate recursions, whose tags lie in an array by the last column meanwhile. No set is queried; one is made when
somebody asks it later. Otherwise, and while rows are few, the rounds of `execute` and the levels of `frontier` do it.
The fixpoint is the same, whatever is propagated first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.datalog.fused import kernel_plan, kernel_steps
from derivable.datalog.fused.store_state import arguments_of
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.scalars.nodes import Var
from derivable.datalog.shortcuts.shortcut import Run, Shortcut, count_round
from derivable.datalog.tables.ordered_index import is_moved
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import parts_of
from derivable.datalog.values.values import ValueType
from derivable.device.cpu.memory import full
from derivable.parallel.order import order_of

if TYPE_CHECKING:
    from derivable.datalog.fused.frontier import Frontier
    from derivable.datalog.fused.lattice_table import LatticeTable


def only_rule(stratum: m.Stratum, number: int = 1) -> m.Store | None:
    """The loop of a stratum if it is one rule that keeps all columns of its recursive atom but the last ones."""
    if len(stratum.loop) != 1 or len(stratum.relations) != 1 or not stratum.reads_news_alone:
        return None
    (store,) = stratum.loop
    driver, terms = store.query.steps[0].node, store.query.terms
    assert isinstance(driver, m.Scan)

    same_relation = len(terms) >= number and driver.relation == store.relation
    keeps_columns = same_relation and driver.terms[:-number] == terms[:-number]
    return store if keeps_columns and all(isinstance(term, Var) for term in terms[:-number]) else None


class BestFirst(Shortcut):
    """A recursion of one rule with tags."""

    name, of = "best first", "tags"

    def __init__(self, run: Run, number: int, relation: str):
        self.run, self.number, self.relation = run, number, relation
        self.propagation: Propagation | None = None

    @classmethod
    def matches(cls, run: Run, number: int, loop: tuple[m.Store, ...]) -> Self | None:
        only = only_rule(run.ram.strata[number])
        return None if only is None or run.counts is not None else cls(run, number, only.relation)

    def pays(self) -> bool:
        sums, table = self.run.pending[self.relation].sums, self.run.tables[self.relation]
        frontier = sums and sums.frontier
        if frontier is None or not frontier.most or frontier.gave_up or table.row_set.form is None:
            return False
        if not table.num_recent:
            return False
        # In the order that is best now.
        (store,) = self.run.instructions(self.number, "loop")
        self.propagation = Propagation(self.run, store, table, frontier)
        return self.propagation.is_possible()

    def solve(self) -> bool:
        assert self.propagation is not None
        count_round(self.run, self.number)
        table, frontier = self.propagation.table, self.propagation.frontier
        table.visible_size = table.size
        table.recent = self.propagation.run(waiting_rows(table, frontier))
        return not len(table.recent)


class BestValueFirst(Shortcut):
    """A recursion of one rule, whose last column has a lattice that takes the smaller or the larger value."""

    name, of = "best value first", "values"

    def __init__(self, run: Run, number: int, table: LatticeTable, frontier: Frontier):
        self.run, self.number, self.table, self.frontier = run, number, table, frontier
        self.propagation: Propagation | None = None

    @classmethod
    def matches(cls, run: Run, number: int, loop: tuple[m.Store, ...]) -> Self | None:
        only = only_rule(run.ram.strata[number], 2)
        table: Any = None if only is None or run.counts is not None else run.tables[only.relation]
        return None if table is None or table.frontier is None else cls(run, number, table, table.frontier)

    def pays(self) -> bool:
        table, others, frontier = self.table, self.table.joined_rows, self.frontier
        if table.seen + policy().call_rows * table.stamp < policy().few_rows or frontier.gave_up or not frontier.most:
            return False
        if not others.size or not others.row_set.use_prefixes(others):
            return False
        (store,) = self.run.instructions(self.number, "loop")
        self.propagation = Propagation(self.run, store, others, frontier, table.value_type)
        return self.propagation.is_possible()

    def solve(self) -> bool:
        assert self.propagation is not None
        left = self.propagation.run(self.table.all_waiting())
        self.table.wait(left)
        return not len(left)


class Propagation:
    """The rest of a recursion, from the rows of its table that were not propagated.

    made    candidates
    passed  rows that were propagated, by full pauses
    values  the type of a column that has a lattice, the tags of whose table are its values; None with tags
    """

    def __init__(self, state: Any, store: m.Store, table: Table, frontier: Frontier, values: ValueType | None = None):
        self.state, self.store, self.table, self.sign = state, store, table, frontier.sign
        self.levels = policy().levels if table.width > 1 else 64 * policy().levels
        self.cells = np.zeros(4 * self.levels, np.int32)
        self.lasts = np.full(self.levels, -1, np.int32)
        self.made = self.passed = 0
        self.frontier = frontier
        self.absent = -self.sign * np.inf
        planned = kernel_plan.plan(state, store)
        self.bound_plan = None if isinstance(planned, str) else planned
        self.values = None
        if values is not None:
            self.values = "float64" if values.family == "float" else "uint64" if is_moved(values) else "int64"
            if self.bound_plan is not None:
                # The driver is the table of the other columns.
                first, *others = self.bound_plan.plan.steps
                assert isinstance(first, kernel_steps.Rows)
                first = replace(first, layout=kernel_steps.Layout(table.width, str(table.word_type), None))
                self.bound_plan.plan = replace(self.bound_plan.plan, steps=(first, *others))
                self.bound_plan.reads[0] = table, None

    def grow_queue(self, room: int) -> None:
        """A queue of so many entries, the first of which are those there are."""
        old = (self.following, self.queued, self.keys) if hasattr(self, "keys") else ()
        self.following, self.queued, self.keys = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room)
        for there, made in zip(old, (self.following, self.queued, self.keys)):
            made[: len(there)] = there

    def is_possible(self) -> bool:
        """Whether a kernel has the whole rule, and no tag is better than one, so that no product is better either."""
        bound_plan, table = self.bound_plan, self.table
        if bound_plan is None or not bound_plan.store_plan.is_worth_columns:
            return False
        if self.values is None and not isinstance(bound_plan.plan.tags, TypedSemiring):
            return False
        sets = table.row_set.prefix_sets
        if sets is None or not self.may_spread(sets.domain):
            return False
        if table.size > policy().chunk and policy().far_off * number_waiting(table, self.frontier) < table.size:
            # All rows are put in order first.
            return False
        if self.values is not None:
            from derivable.datalog.shortcuts.emit_best import EXACT

            tags = table.tags[: table.size]
            low = 0 if self.values == "uint64" else -EXACT
            return self.values == "float64" or bool(((tags >= low) & (tags <= EXACT)).all())
        assert isinstance(bound_plan.plan.tags, TypedSemiring)
        one = self.sign * float(bound_plan.plan.tags.one[0])
        tables = [table, *(table for table, _ in bound_plan.reads.values())]
        tags = [parts_of(table.tags)[0][: table.size] for table in tables if table.tags is not None]
        return all(not len(part) or float((self.sign * part).max()) <= one for part in tags)

    def run(self, rows: np.ndarray) -> np.ndarray:
        """As `propagate`, recorded as what the rule has cost."""
        run, before = self.state, self.table.size
        run.watch.begin_instruction(self.table)
        with run.effort(self.store) as effort:
            effort.by((BestFirst if self.values is None else BestValueFirst).route())
            left = self.propagate(rows)
            effort.candidates += self.made
            run.credit(effort, self.table.size - before)
        run.watch.end_instruction()
        return left

    def propagate(self, rows: np.ndarray) -> np.ndarray:
        """Propagate these rows and all that follows from them; returns rows that wait for rounds."""
        assert self.bound_plan is not None
        self.bound_plan.update_indexes()
        table = self.table
        sets = table.row_set.prefix_sets
        assert sets is not None
        self.local = full(sets.domain, self.absent, np.float64)
        table.leave_set_behind()
        self.group(rows)
        self.rank(self.sign * table.tags[rows])
        left = self.run_kernel(0, len(self.starts) - 1)
        if left is None:
            return rows[:0]
        table.row_set.update(table)
        return left

    def may_spread(self, domain: int) -> bool:
        """Whether the tags of one prefix may take an array over so many values of the last column."""
        return 8 * domain <= max(policy().small_bytes, policy().bytes_a_pair * self.table.size)

    def group(self, rows: np.ndarray) -> None:
        """Put the rows that are there in order of their prefixes, of which those count that have one of these."""
        table = self.table
        there = np.zeros(table.size, bool)
        there[rows] = True
        prefixes = [table.column(c) for c in range(table.width - 1)]
        # Without columns before the last, all rows follow from one another.
        order = order_of(prefixes) if prefixes else slice(None)
        grouped = np.arange(table.size)[order]
        is_first = np.zeros(table.size, bool)
        is_first[:1] = True
        for column in prefixes:
            ordered = column[order]
            is_first[1:] |= ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(is_first)
        waits = there[grouped]
        has_waiting = np.logical_or.reduceat(waits, starts) if len(starts) else is_first
        sizes = np.diff(np.append(starts, table.size))
        chosen = np.repeat(has_waiting, sizes)
        self.old_rows, self.waits = grouped[chosen], waits[chosen]
        self.starts = np.append(0, np.cumsum(sizes[has_waiting]))
        self.grow_queue(policy().first_rows + int(sizes[has_waiting].max(initial=0)))

    def rank(self, keys: np.ndarray) -> None:
        """Levels for rows whose tags, times the direction, are these, and as many for worse ones to come."""
        finite = keys[np.isfinite(keys)]
        finite = finite if len(finite) else np.zeros(1)
        sample = finite[:: max(1, len(finite) // len(self.cells))]
        worst, half = float(finite.min()), self.levels // 2
        span = float(sample.max()) - worst or max(abs(worst), 1.0)
        number = len(self.cells)
        self.base, self.scale = worst - span, number / 2 / span
        # As many rows of the sample in each level of the upper half, as wide ones in the lower.
        there = np.bincount(np.maximum(self.cells_of(sample) - number // 2, 0), minlength=number // 2)
        before = np.cumsum(there) - there
        # Values of a lattice may get better than all of the sample.
        self.cells[number // 2 :] = half + np.minimum(before * half // len(sample), half - 1)
        self.cells[: number // 2] = np.arange(number // 2) * half // (number // 2)

    def cells_of(self, keys: np.ndarray) -> np.ndarray:
        """The cells of tags, times the direction, as the kernel finds them."""
        return np.clip((keys - self.base) * self.scale, 0.0, len(self.cells) - 1.0).astype(np.int64)

    def fill(self, values: np.ndarray, tags: np.ndarray) -> tuple[int, int]:
        """Make rows with these last columns and tags the entries of the queue; returns the best level and how many."""
        levels = self.cells[self.cells_of(self.sign * tags)]
        order = np.argsort(levels, kind="stable")
        values, tags, levels, count = values[order], tags[order], levels[order], len(values)
        self.queued[:count], self.keys[:count] = values, tags
        first = np.append(True, levels[1:] != levels[:-1])[:count]
        self.following[:count] = np.arange(1, count + 1)
        self.following[np.append(np.flatnonzero(first)[1:], count) - 1] = np.flatnonzero(first)
        self.lasts.fill(-1)
        self.lasts[levels] = np.arange(count)
        return int(levels[-1]), count

    def run_kernel(self, group: int, stop: int) -> np.ndarray | None:
        """Run the kernel on prefixes; None, or the rows that wait if it cannot go on."""
        from derivable.datalog.fused import emit
        from derivable.datalog.kernels import row_sets
        from derivable.datalog.shortcuts import emit_best

        table, bound_plan, state = self.table, self.bound_plan, self.state
        assert bound_plan is not None
        kernel = emit.compiled(emit_best.BestEmitter, bound_plan.plan, self.sign, self.values)
        positions: list[Any] = [-1] * kernel.num_positions
        first, entry, level, size, used, free, left, floor = -1, -1, 0, table.size, 0, -1, policy().look_rows, 0
        while True:
            arguments = arguments_of(state, bound_plan, kernel)
            code, group, first, entry, level, size, used, free, left, made, beyond, *positions = kernel.function(
                *(group, first, entry, level, size, used, free, left, 0, 0),
                *(stop, len(table.log), len(self.keys), len(self.local), floor),
                *(self.base, self.scale, len(self.cells) - 1.0),
                *(self.starts, self.old_rows, self.waits, self.local),
                *(self.cells, self.lasts, self.following, self.queued, self.keys),
                *positions,
                *arguments,
            )
            table.size = size
            self.made += made
            # Drop references first: growing must free the old log.
            del arguments
            if code == row_sets.DONE:
                return None
            if code == row_sets.LOG_FULL:
                table.grow_log(len(table.log) + 1)
            elif code == emit_best.QUEUE_FULL:
                self.grow_queue(2 * len(self.keys))
            elif code == row_sets.OUT_OF_REACH:
                if beyond < 0 or not self.may_spread(1 << beyond.bit_length()):
                    return self.waiting(group, first, used)
                spread = self.local
                self.local = full(1 << beyond.bit_length(), self.absent, np.float64)
                self.local[: len(spread)] = spread
            elif code == emit_best.LOWEST:
                entries = self.entries(used)
                if len(entries) < self.levels:
                    floor = -1
                else:
                    values, keys = self.queued[entries], self.keys[entries]
                    self.rank(self.sign * keys)
                    (level, used), free = self.fill(values, keys), -1
                    floor = -1 if not level else 0
            else:
                left, self.passed = policy().look_rows, self.passed + policy().look_rows
                if self.passed > policy().far_off * max(size, policy().look_rows):
                    return self.waiting(group, first, used)
            state.deadline.remaining()

    def entries(self, used: int) -> np.ndarray:
        """The entries of the queue that still say something."""
        entries = np.flatnonzero(self.queued[:used] >= 0)
        return entries[self.local[self.queued[entries]] == self.keys[entries]]

    def waiting(self, group: int, first: int, used: int) -> np.ndarray:
        """Write the tags of the prefix at hand; returns the rows that wait, of it and of those after it."""
        self.frontier.gave_up = True
        table, low, high = self.table, self.starts[group], self.starts[group + 1]
        rows = np.concatenate([self.old_rows[low:high], np.arange(first, table.size)])
        values = table.column(table.width - 1, rows)
        table.tags[rows] = self.local[values]
        is_queued = np.isin(values, self.queued[self.entries(used)])
        return np.unique(np.concatenate([rows[is_queued], self.old_rows[high:][self.waits[high:]]]))


def number_waiting(table: Table, frontier: Frontier) -> int:
    """About how many rows of a table were not propagated."""
    return table.num_recent + sum(len(part) for _, parts in frontier.rows for part in parts)


def waiting_rows(table: Table, frontier: Frontier) -> np.ndarray:
    """The rows of a table that were not propagated."""
    recent = table.recent
    rows = np.arange(recent.start, recent.stop) if isinstance(recent, slice) else recent
    return np.concatenate([rows, frontier.all_rows()])
