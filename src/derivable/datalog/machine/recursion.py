"""Recursions in the machine: the round of a stratum that has begun, and those behind it.

A round that goes through Python costs as much as some thousand rows. The machine comes back for room, for a look at
the limits, for a store that has no kernel, and for other join orders, which more rows need.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.lazy import later
from derivable.datalog.kernels import row_sets
from derivable.datalog.machine import words as w
from derivable.datalog.machine.machine import ROUTE, Handlers, Machine
from derivable.datalog.machine.merges import NO_LIMIT, merge_of
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m

if TYPE_CHECKING:
    from derivable.datalog.fused import emit_insert
else:
    emit_insert = later("derivable.datalog.fused.emit_insert")


class Recursion:
    """The recursion of a stratum, for one run.

    in_pieces    whether rows become recent in pieces, the last ones first, and not round after round: no rule reads
                 other rows of these relations
    looks_again  whether who called is to see, after some candidates, if the recursion goes on best tag first
    """

    def __init__(self, executor: Any, stores: Sequence[m.Store], relations: Sequence[str], in_pieces: bool = False):
        names = dict.fromkeys([*relations, *(store.relation for store in stores)])
        self.executor, self.stores, self.in_pieces = executor, stores, in_pieces
        self.machine = machine = Machine(executor, [[*names]], [((), stores)], merge_of(executor))
        self.looks_again = False
        # Rows of a part of a rule are none of the program.
        self.sizes_at = machine.bases[[name in executor.ram.relations for name in machine.names]] + w.SIZE
        machine.memory[w.PIECE] = policy().piece_rows
        for at in machine.bases_of_tables if in_pieces else ():
            waiting = machine.allocate(2 * w.MOST_WAITING)
            machine.memory[at + w.WAITING] = waiting

    def handlers(self) -> Handlers:
        codes = row_sets.ARENA_FULL, row_sets.LOG_FULL, row_sets.OUT_OF_REACH, row_sets.PREFIXES_FULL, w.INDEX_FULL
        return {
            **dict.fromkeys(codes, self.make_room),
            emit_insert.PAUSED: self.pause,
            w.NEEDS_KERNEL: self.bind_or_run_over_columns,
            # Between two rounds who called looks at orders, shortcuts and limits, or lets rows wait for better tags.
            w.STOPPED: lambda reason: False,
        }

    # Rounds

    def run(
        self, most: float = inf, stamp: int | None = None, looks_again: bool = False, most_of_round: float = inf
    ) -> bool:
        """Run the round that has begun, and those that follow.

        most   rows after which it comes back
        stamp  the round in which rows with tags that the first round finds become recent
        most_of_round  rows of a round; it leaves larger ones to who called
        Returns whether there are pieces to go on with.
        """
        machine, control = self.machine, self.machine.control
        self.looks_again = looks_again
        self.began, self.first_round, self.ended = perf_counter(), self.executor.watch.round - 1, 1
        if stamp is not None:
            machine.memory[[w.NEXT_ROUND, w.BOUND]] = stamp, stamp - 2
        machine.begin()
        machine.memory[w.LEFT], self.sizes = policy().look_rows, self.sizes_now()
        control[w.ROUND] = control[w.UNTIL] = 1
        machine.activity[:, 0] = machine.memory[machine.bases + w.STOP] > machine.memory[machine.bases + w.START]
        machine.activity[:, 1] = 0
        control[w.STORES_STOP], control[w.TABLES_STOP] = len(self.stores), len(machine.tables)
        control[w.MOST] = min(most_of_round, NO_LIMIT)
        return self.go_on(most)

    def go_on(self, most: float = inf) -> bool:
        """As `run`, from where that came back with pieces."""
        machine, control = self.machine, self.machine.control
        control[w.ROUNDS], control[w.ROWS_LEFT] = self.limits(most)
        reason = machine.run(self.handlers())
        # The last round is left to who called.
        rounds = control[w.ROUND]
        control[w.ROUND] = machine.strata[0, w.NUM_ROUNDS] if reason == w.ENDED else rounds - 1
        self.account()
        for number in range(len(machine.tables)):
            machine.read_table(number)
            machine.merge.read_rows(machine, number, is_ended=True)
        control[w.ROUND] = rounds
        return self.in_pieces and reason == w.STOPPED

    @property
    def stamp(self) -> int:
        """The round in which rows with tags that the last round derived become recent."""
        return int(self.machine.memory[w.NEXT_ROUND])

    def limits(self, most: float) -> tuple[int, int]:
        """(rounds that may end, rows that they may find)"""
        executor, limits = self.executor, self.executor.watch.limits
        stratum = executor.stratum_effort[executor.number]
        rounds = [n - stratum.rounds + 2 for n in (limits.iteration_limit, limits.round_limit) if n is not None]
        rows = min(executor.plan_again - stratum.rows, most, NO_LIMIT)
        if limits.tuple_limit is not None:
            # The error names the round that passed the limit.
            rows = min(rows, limits.tuple_limit - executor.watch.num_tuples + 1)
        return min(rounds, default=NO_LIMIT), int(max(1, rows))

    # Handlers

    def make_room(self, reason: int) -> bool:
        machine, watch = self.machine, self.executor.watch
        machine.make_room(reason)
        if watch.limits.tuple_limit is not None or perf_counter() - self.began > policy().look_seconds:
            self.look()
        return True

    def pause(self, reason: int) -> bool:
        machine = self.machine
        machine.memory[w.LEFT] = policy().look_rows
        self.look()
        if self.looks_again:
            machine.control[w.ROWS_LEFT] = 0
        return True

    def bind_or_run_over_columns(self, reason: int) -> bool:
        """Have the kernel of a store, or run it in this round over columns."""
        machine, control, executor = self.machine, self.machine.control, self.executor
        number = int(control[w.AT])
        store_state, target = machine.store_state(number), int(machine.words[number, w.TARGET])
        tables = [machine.number[table.name] for table in store_state.tables if table.name in machine.number]
        tables = list(dict.fromkeys([*tables, target]))
        for table in tables:
            machine.read_table(table)
            machine.merge.read_rows(machine, table)
        if machine.bind(number):
            return True
        # An operator over columns costs the same for few rows as for some thousands.
        machine.memory[w.PIECE] = policy().chunk
        began, before, sizes = perf_counter(), machine.tables[target].size, self.sizes_now()
        self.pass_rounds()
        if machine.merge.has_tags:
            executor.offer(self.stores[number], partial(self.add, target))
        else:
            executor.insert(self.stores[number])
        for table in tables:
            machine.changed(table)
        self.sizes += self.sizes_now() - sizes
        if machine.tables[target].size > before or machine.memory[machine.bases_of_tables[target] + w.LISTED]:
            machine.activity[target, 1] = 1
            control[w.TABLES_START] = min(control[w.TABLES_START], target)
            control[w.TABLES_STOP] = max(control[w.TABLES_STOP], target + 1)
        control[w.NEXT] += 1
        self.began += perf_counter() - began
        return True

    def add(self, number: int, columns: list[np.ndarray], count: int, tags: Any) -> None:
        """Add candidates of a table over columns, as kernels do."""
        machine, candidates = self.machine, self.machine.merge.candidates[number]
        width = machine.tables[number].width
        rows = np.flatnonzero(~self.executor.algebra.is_zero(tags))
        if len(rows) < count:
            columns, count, tags = [column[rows] for column in columns], len(rows), tags[rows]
        machine.control[w.ONLY_TABLE] = number
        room = dict.fromkeys(self.handlers(), machine.make_room)
        for start in range(0, count, candidates.room):
            stop = min(count, start + candidates.room)
            words = candidates.rows(stop - start, width)
            # A nullary relation has one column of zeros.
            words[:] = 0
            for c, column in enumerate(columns):
                words[:, c] = column[start:stop]
            candidates.write_tags(tags[start:stop])
            machine.memory[machine.bases_of_tables[number] + w.NUM_CANDIDATES] = stop - start
            machine.run(room)
        machine.control[w.ONLY_TABLE] = -1
        machine.read_table(number)

    # What a run records

    def sizes_now(self) -> int:
        """Rows of the relations of the program."""
        return int(self.machine.memory[self.sizes_at].sum())

    def pass_rounds(self) -> None:
        """Rounds have ended since."""
        passed, watch = int(self.machine.control[w.ROUND]) - self.ended, self.executor.watch
        self.ended += passed
        watch.round += passed
        self.executor.stratum_effort[self.executor.number].rounds += passed

    def account(self) -> None:
        """Record in the profile and the watch what was done since; seconds are shared by rows."""
        self.pass_rounds()
        executor, all_words, now = self.executor, self.machine.words, perf_counter()
        # A store that was left while its candidates were added up has new rows alone after that.
        costs = [sum(did) for did in all_words[:, w.RUNS : w.ROWS_THIS_ROUND].tolist()]
        second, self.began = (now - self.began) / max(1, sum(costs)), now
        for number, cost in enumerate(costs):
            if not cost:
                continue
            words, store_state = all_words[number], self.machine.store_state(number)
            effort, row = executor.effort(self.stores[number]), words.tolist()
            effort.by(ROUTE)
            effort.runs += row[w.RUNS]
            effort.candidates += row[w.CANDIDATES]
            effort.rows += row[w.ROWS]
            effort.seconds += second * cost
            store_state.candidates += row[w.CANDIDATES]
            for last in range(max(0, row[w.NUM_NOTED] - w.MOST_NOTES), row[w.NUM_NOTED]):
                at = w.NOTES + 2 * (last % w.MOST_NOTES)
                effort.grew(self.first_round + row[at], row[at + 1])
            words[w.RUNS : w.ROWS_THIS_ROUND] = 0
            words[w.NUM_NOTED] = 0
        sizes = self.sizes_now()
        added, self.sizes = sizes - self.sizes, sizes
        executor.watch.tuples += added
        executor.stratum_effort[executor.number].rows += added

    def look(self) -> None:
        """Look at the limits in the middle of a round."""
        self.account()
        machine, watch, number = self.machine, self.executor.watch, int(self.machine.control[w.AT])
        for table in range(len(machine.tables)):
            machine.read_table(table)
        if not machine.control[w.GOES_ON]:
            watch.remaining()
            return
        # An error counts the rows of the store that runs like those of others.
        new = int(machine.words[number, w.ROWS_THIS_ROUND])
        target, effort = machine.tables[machine.words[number, w.TARGET]], self.executor.effort(self.stores[number])
        watch.tuples -= new
        watch.table, watch.before, effort.is_running = target, target.size - new, True
        watch.remaining()
        effort.is_running = False
        watch.end_instruction()
