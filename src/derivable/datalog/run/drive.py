"""Recursions in the machine: the round of a stratum that has begun, and those behind it while they are small.

A round that goes through Python costs as much as some thousand rows. The machine comes back for room, for a look at
the limits, for a store that has no kernel, and for other join orders, which larger rounds need. A store alone, over
rows that are at hand, is the same machine with one store as its bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from derivable.core.lazy import later
from derivable.datalog.fused.kernel_plan import Fused
from derivable.datalog.machine import words as w
from derivable.datalog.machine.machine import ENDLESS, Machine
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.compile_ahead import has_small_rounds
from derivable.datalog.run.profile import MACHINE, Effort

if TYPE_CHECKING:
    from derivable.datalog.fused import emit_insert
    from derivable.datalog.run.execute import Executor
else:
    emit_insert = later("derivable.datalog.fused.emit_insert")

# Rows and candidates between two looks at the limits.
PAUSE = 1 << 18
# Rows of a round from which its stores cost far more than calls of them from Python.
LARGE = 1 << 14
# Seconds between looks at the limits where tables get room.
LOOKS = 0.01


class Drive(Machine):
    """The recursion of a stratum, or one store, for one run.

    loop       its stores
    fused      what the only store was bound to, if it is one of a recursion
    in_pieces  whether rows become recent in pieces, the last ones first, and not round after round: no rule reads other
               rows of these relations
    """

    executor: Executor

    def __init__(
        self, executor: Executor, stores: Sequence[m.Store], relations: Sequence[str], in_pieces: bool = False
    ):
        self.loop, self.in_pieces = stores, in_pieces
        names = dict.fromkeys([*relations, *(store.relation for store in stores)])
        super().__init__(executor, [[*names]], [((), stores)])
        self.fused: Fused | None = None
        # Rows of a part of a rule are none of the program.
        self.places_of_sizes = self.bases[[name in executor.ram.relations for name in self.names]] + w.SIZE
        for at in self.places_of_tables if in_pieces else ():
            self.memory[at + w.WAITING] = self.allocate(2 * w.MOST_WAITING)

    def is_urgent(self, number: int) -> bool:
        # Where rounds are large, a kernel that writes what it finds to columns serves as well.
        return has_small_rounds(self.executor.effort(self.stores[number]))

    def insert(self, effort: Effort) -> bool:
        """Insert what the only store finds in the rows that it is to go through now; false if it has no kernel yet."""
        (running,), (words,) = self.running, self.words
        start, stop = running.driven()
        self.begin()
        # Of a recursion what grows is in the memory, and the kernel is bound once.
        running.plan()
        if running.fused is not self.fused or not words[w.ENTRY]:
            if not self.bind(0):
                return False
            self.fused = running.fused if running.is_recursive else None
        running.driven_rows += stop - start
        own = words[w.OWN]
        self.memory[own : own + emit_insert.OWN] = start, stop
        target = int(words[w.TARGET])
        self.control[w.ONLY] = 0
        while (code := self.call()) != w.ENDED:
            if code == emit_insert.PAUSED:
                self.read_table(target)
                self.memory[w.LEFT] = PAUSE
            else:
                self.make_room(code)
            self.executor.watch.remaining()
        self.read_table(target)
        effort.candidates += int(words[w.CANDIDATES])
        running.found += int(words[w.CANDIDATES])
        words[w.RUNS :] = 0
        return True

    def run(self, most: float = inf) -> bool:
        """Run the round that has begun, and those that follow while they are small, or pieces.

        most  rows after which it comes back
        Returns whether there are pieces to go on with.
        """
        control = self.control
        self.began, self.first_round, self.ended = perf_counter(), self.executor.watch.round - 1, 1
        self.begin()
        control[w.ROUND] = control[w.UNTIL] = 1
        self.activity[:, 0] = self.memory[self.bases + w.STOP] > self.memory[self.bases + w.START]
        self.activity[:, 1] = 0
        control[w.STORES_STOP], control[w.TABLES_STOP] = len(self.stores), len(self.tables)
        control[w.MOST] = LARGE
        return self.go_on(most)

    def go_on(self, most: float = inf) -> bool:
        """As `run`, from where that came back with pieces."""
        control, watch = self.control, self.executor.watch
        control[w.ROUNDS], control[w.ROWS_LEFT] = self.limits(most)
        while (reason := self.call()) not in (w.ENDED, w.STOPPED):
            if reason == w.NEEDS_KERNEL:
                self.bind_or_run_over_columns(int(control[w.AT]))
                continue
            if reason == emit_insert.PAUSED:
                self.memory[w.LEFT] = PAUSE
                self.look()
                continue
            self.make_room(reason)
            if watch.limits.tuple_limit is not None or perf_counter() - self.began > LOOKS:
                self.look()
        # The last round is left to who called.
        rounds = control[w.ROUND]
        control[w.ROUND] = self.strata[0, w.NUM_ROUNDS] if reason == w.ENDED else rounds - 1
        self.account()
        for number in range(len(self.tables)):
            self.read_table(number)
            self.end_round(number)
        control[w.ROUND] = rounds
        return self.in_pieces and reason == w.STOPPED

    def begin(self) -> None:
        super().begin()
        self.memory[w.LEFT], self.sizes = PAUSE, self.sizes_now()

    def end_round(self, number: int) -> None:
        """Have a table know which rows are recent, as one whose last round has ended."""
        self.read_rows(number)

    def limits(self, most: float) -> tuple[int, int]:
        """(rounds that may end, rows that they may find)"""
        executor, limits = self.executor, self.executor.watch.limits
        stratum = executor.stratum_effort[executor.number]
        given = [n - stratum.rounds + 2 for n in (limits.iteration_limit, limits.round_limit) if n is not None]
        rows = min(executor.plan_again - stratum.rows, most, ENDLESS)
        if limits.tuple_limit is not None:
            # The error names the round that passed the limit.
            rows = min(rows, limits.tuple_limit - executor.watch.num_tuples + 1)
        return min(given, default=ENDLESS), int(max(1, rows))

    def bind_or_run_over_columns(self, number: int) -> None:
        """Have the kernel of a store, or run it in this round over columns."""
        running = self.running[number]
        own = [self.number[table.name] for table in running.tables if table.name in self.number]
        target = int(self.words[number, w.TARGET])
        own = list(dict.fromkeys([*own, target]))
        for place in own:
            self.read_table(place)
            self.read_rows(place)
        if self.bind(number):
            return
        kernel = self.kernel(number) if self.may_plan(number) else None
        if kernel is not None:
            self.executor.ahead.wait(self.executor, kernel)
        began, before, sizes = perf_counter(), self.tables[target].size, self.sizes_now()
        self.pass_rounds()
        self.insert_by_columns(number)
        for place in own:
            self.changed(place)
        self.sizes += self.sizes_now() - sizes
        at = self.places_of_tables[target]
        if self.tables[target].size > before or self.memory[at + w.LISTED]:
            self.activity[target, 1] = 1
            control = self.control
            control[w.TABLES_START] = min(control[w.TABLES_START], target)
            control[w.TABLES_STOP] = max(control[w.TABLES_STOP], target + 1)
        self.control[w.NEXT] += 1
        self.began += perf_counter() - began

    def insert_by_columns(self, number: int) -> None:
        """Run a store that has no kernel."""
        self.executor.insert(self.stores[number], has_kernel=False)

    # What a run records

    def sizes_now(self) -> int:
        """Rows of the relations of the program."""
        return int(self.memory[self.places_of_sizes].sum())

    def pass_rounds(self) -> None:
        """Rounds have ended since."""
        passed, watch = int(self.control[w.ROUND]) - self.ended, self.executor.watch
        self.ended += passed
        watch.round += passed
        self.executor.stratum_effort[self.executor.number].rounds += passed

    def account(self) -> None:
        """Record in the profile and the watch what was done since; seconds are shared by rows."""
        self.pass_rounds()
        executor, now = self.executor, perf_counter()
        costs = [sum(did) for did in self.words[:, w.RUNS : w.ROWS].tolist()]
        second, self.began = (now - self.began) / max(1, sum(costs)), now
        for number, cost in enumerate(costs):
            if not cost:
                continue
            words = self.words[number]
            effort, running, row = executor.effort(self.stores[number]), self.running[number], words.tolist()
            effort.by(MACHINE)
            effort.runs += row[w.RUNS]
            effort.candidates += row[w.CANDIDATES]
            effort.rows += row[w.ROWS]
            effort.seconds += second * cost
            running.driven_rows += row[w.DRIVEN]
            running.found += row[w.CANDIDATES]
            for last in range(max(0, row[w.NUM_NOTED] - w.MOST_NOTES), row[w.NUM_NOTED]):
                place = w.NOTES + 2 * (last % w.MOST_NOTES)
                effort.grew(self.first_round + row[place], row[place + 1])
            words[w.RUNS : w.ROWS_THIS_ROUND] = 0
            words[w.NUM_NOTED] = 0
        sizes = self.sizes_now()
        added, self.sizes = sizes - self.sizes, sizes
        executor.watch.tuples += added
        executor.stratum_effort[executor.number].rows += added

    def look(self) -> None:
        """Look at the limits in the middle of a round."""
        self.account()
        watch, number = self.executor.watch, int(self.control[w.AT])
        for place in range(len(self.tables)):
            self.read_table(place)
        if not self.control[w.GOES_ON]:
            watch.remaining()
            return
        # An error counts what the store that runs has found as others do.
        new, table = int(self.words[number, w.ROWS_THIS_ROUND]), self.tables[self.words[number, w.TARGET]]
        effort = self.executor.effort(self.stores[number])
        watch.tuples -= new
        watch.table, watch.before, effort.is_running = table, table.size - new, True
        watch.remaining()
        effort.is_running = False
        watch.leave()
