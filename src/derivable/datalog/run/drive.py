"""Stores whose kernels insert what they find, one after the other or round after round; with tags see `tagged_drive`.

A round that goes through Python costs as much as some thousand rows. So the driver of `kernels.strata` calls the
kernels of all stores of a stratum, round after round while these are small, and comes back for room, for a look at the
limits, for a store that has no kernel, and for other join orders, which larger rounds need.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.lazy import later
from derivable.datalog.fused import fused
from derivable.datalog.fused.fused import Running
from derivable.datalog.fused.kernel_plan import Fused
from derivable.datalog.kernels import strata
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.compile_ahead import has_small_rounds
from derivable.datalog.run.profile import Effort
from derivable.datalog.tables import storage
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.storage import Table
from derivable.device.cpu.tiers import has_numba

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert, partition
    from derivable.datalog.kernels import row_sets
    from derivable.datalog.run.execute import Executor
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")
    partition = later("derivable.datalog.fused.partition")
    row_sets = later("derivable.datalog.kernels.row_sets")

# Rows and candidates between two looks at the limits.
PAUSE = 1 << 18
# Rows of a round from which its stores cost far more than calls of them from Python.
LARGE = 1 << 14
# As good as no limit.
ENDLESS = 1 << 62
# Rows of a log that grows to four times as many; seconds between looks at the limits where tables get room.
FEW, LOOKS = 1 << 10, 0.01


def is_there(
    work: int, compiled: Any = None, types: Sequence[str] = (), may_import: bool = False, is_urgent: bool = True
) -> bool:
    """Whether the driver, or something else that is compiled, is to be had by now, for the rows that it would have
    saved so far.

    may_import  whether this run alone is worth importing what loads it
    is_urgent   whether nothing else serves well meanwhile
    """
    if compiled is None:
        compiled, types = strata.drive, strata.TYPES
    if os.environ.get("DERIVABLE_TIER") == "interpreted":
        return False
    if work < fused.MANY_ROWS and not has_numba():
        may_link = may_import or "llvmlite" in sys.modules or work >= fused.LINKED_ROWS
        return (may_link and compiled.is_linkable(types)) or (may_import and compiled.is_cached)
    if work < fused.MANY_ROWS:
        return compiled.is_cached
    return compiled.is_ready(types, is_urgent, waits=is_urgent and work >= fused.PATIENT_ROWS)


class Drive:
    """Stores of one stratum in the memory of the driver, for one run.

    names    the relations that the stores write to or that grow meanwhile; `tables` are theirs
    bases    [table] where its words begin in the memory
    layouts  [table] what kernels were bound to
    bound    the stores whose kernels are at hand
    """

    def __init__(self, executor: Executor, stores: Sequence[m.Store], relations: Sequence[str]):
        self.executor, self.stores = executor, stores
        self.names = list(dict.fromkeys([*relations, *(store.relation for store in stores)]))
        self.number = {name: number for number, name in enumerate(self.names)}
        self.tables = [executor.tables[name] for name in self.names]
        self.running = self.begun()
        self.bases = strata.FIRST_FREE + strata.TABLE_WORDS * np.arange(len(self.tables))
        self.places_of_tables: list[int] = self.bases.tolist()
        # Rows of a part of a rule are none of the program.
        self.places_of_sizes = self.bases[[name in executor.ram.relations for name in self.names]] + strata.SIZE
        self.addresses: list[tuple[tuple, list[int]]] = [((), []) for _ in self.tables]
        self.used = strata.FIRST_FREE + strata.TABLE_WORDS * len(self.tables)
        self.memory = np.zeros(self.used + 64 * len(stores), np.int64)
        self.layouts = [_layout(table) for table in self.tables]
        self.words = np.zeros((len(stores), strata.STORE_WORDS), np.int64)
        self.blocks: list[Any] = [None] * len(stores)
        self.arrays: list[Any] = [None] * len(stores)
        self.bound: set[int] = set()
        self.fused: Fused | None = None
        self.indexes: dict[Index, int] = {}
        self.index_bases = np.zeros(0, np.int64)
        self.control = np.zeros(strata.CONTROL_WORDS, np.int64)
        self.queue = np.zeros(2 * len(self.tables), np.int64)
        readers: list[list[int]] = [[] for _ in self.tables]
        targets, drivers = [self.number[store.relation] for store in stores], [-1] * len(stores)
        for number, store in enumerate(stores):
            driver = store.query.operators[0]
            if isinstance(driver, m.Scan) and driver.relation in self.number:
                place = drivers[number] = self.number[driver.relation]
                if driver.part == "recent":
                    readers[place].append(number)
        self.words[:, strata.TARGET], self.words[:, strata.DRIVER] = targets, drivers
        self.readers = np.array([number for some in readers for number in some], np.int64)
        self.first_reader = np.cumsum([0, *map(len, readers)])

    def begun(self) -> list[Running]:
        """[store] what the run knows of it."""
        return [self.executor.running_of(store) for store in self.stores]

    # The memory

    def allocate(self, count: int) -> int:
        """Where words begin that nobody has."""
        at, self.used = self.used, self.used + count
        if self.used > len(self.memory):
            longer = np.zeros(2 * self.used, np.int64)
            longer[: len(self.memory)] = self.memory
            self.memory = longer
        return at

    def address(self, array: np.ndarray) -> int:
        return array.__array_interface__["data"][0]

    def write_table(self, number: int) -> None:
        """What kernels read of a table, as it is now."""
        table, at = self.tables[number], self.places_of_tables[number]
        if table.sets is None and table.may_have_sets and table.size >= storage.SET_ROWS:
            table.enter_sets()
        sets, log = table.sets, table.log
        if sets is None:
            arrays = log, table.table
            words = [min(len(log), len(table.table) // 4), len(table.table) // 2]
        else:
            part, found = sets.slices[0], sets.find_arguments
            arrays = log, sets.count, part.state, *found[2:5], *found[6:]
            words = [len(log), part.end, *found[:2], *found[5:6]]
        # To look up addresses takes longer than all the rest, and few arrays are new.
        known = self.addresses[number]
        if len(known[0]) != len(arrays) or not all(map(operator.is_, known[0], arrays)):
            known = self.addresses[number] = arrays, [self.address(array) for array in arrays]
        log_at, *rest = known[1]
        if sets is None:
            words = [log_at, words[0], *rest, words[1]]
        else:
            room, end, firsts, domain, *slots = words
            count, state, base, set_slots, arena, *more = rest
            words = [log_at, room, 0, 0, end, count, state, firsts, domain, base, set_slots, arena, *slots, *more]
        memory = self.memory
        memory[at + strata.LOG : at + strata.LOG + len(words)] = words
        memory[at + strata.SIZE] = table.size

    def write_rows(self, number: int) -> None:
        """Which rows of a table are recent, stable and visible."""
        table, at = self.tables[number], self.places_of_tables[number]
        recent = _rows(table.recent)
        words = recent.start, recent.stop, table.size, table.stable_size, table.visible_size, 0, table.width
        self.memory[at : at + strata.LOG] = words

    def write_index(self, index: Index) -> None:
        """An index that grows with its table."""
        index.update()
        at, table, address = self.indexes[index], index.table, self.address
        self.memory[at : at + strata.INDEX_WORDS] = [
            *(self.bases[self.number[table.name]], address(index.key_columns), len(index.key_columns)),
            *(address(index.heads), len(index.heads), address(index.following)),
            *(min(len(index.following), len(index.heads)), index.rows_inserted),
            *(table.word_type == np.int32, table.width),
        ]

    def update_index(self, index: Index) -> None:
        """Insert the rows of its table into an index. Those that the driver has inserted are not inserted again, which
        would make their chain a circle, and it knows those that are inserted here."""
        at = self.indexes.get(index)
        if at is None:
            index.update()
            return
        index.rows_inserted = max(index.rows_inserted, int(self.memory[at + strata.ENTERED]))
        if index.table.size >= index.rows_inserted:
            self.write_index(index)

    def read_table(self, number: int) -> None:
        """Have a table, and its indexes, know the rows that it has now."""
        table, at = self.tables[number], self.places_of_tables[number]
        table.size = int(self.memory[at + strata.SIZE])
        for index, at in self.indexes.items():
            if index.table is table:
                index.rows_inserted = int(self.memory[at + strata.ENTERED])

    def changed(self, number: int) -> None:
        """Write a table that something was done to, and bind kernels again if it has another layout."""
        self.write_table(number)
        table = self.tables[number]
        for index in self.indexes:
            if index.table is table:
                self.write_index(index)
        if (layout := _layout(table)) != self.layouts[number]:
            self.layouts[number] = layout
            for other in sorted(self.bound):
                if self.words[other, strata.TARGET] == number or table in self.running[other].tables:
                    self.bind(other, must=True)

    # Kernels

    def bind(self, number: int, must: bool = False) -> bool:
        """Have the kernel of a store for the layouts that tables have now; whether there is one.

        must  whether it is compiled although it has not been worth that yet
        """
        running, words = self.running[number], self.words[number]
        if not must and not self.may_plan(number):
            return False
        stale = [table for table in running.tables if table.set_is_stale]
        table, kernel, found = self.tables[words[strata.TARGET]], self.kernel(number), running.fused
        words[strata.ENTRY] = 0
        if kernel is None or found is None or not (must or self.is_worth(number, kernel)):
            return False
        if not words[strata.OWN]:
            words[strata.OWN] = self.allocate(emit_insert.OWN + kernel.num_positions + table.width)
        for _, index in found.reads.values():
            if index is not None:
                self.update_index(index)
        block = self.blocks[number] = np.array(self.places(number, found, kernel), np.int64)
        words[strata.BLOCK], words[strata.POSITIONS] = self.address(block), kernel.num_positions
        words[strata.ENTRY] = kernel.function.address
        self.bound.add(number)
        entered = [table for table in stale if not table.set_is_stale]
        for other in sorted(self.bound - {number}) if entered else ():
            # Their logs may be of another type now.
            if any(table in entered for table in self.running[other].tables):
                self.bind(other, must=True)
        return True

    def may_plan(self, number: int) -> bool:
        """Whether a store goes through so many rows that all tables may have one log, which a kernel reads."""
        running = self.running[number]
        start, stop = running.driven()
        return all(running.seen + stop - start >= table.rows_worth_kernels for table in running.tables)

    def kernel(self, number: int) -> emit.RuleKernel | None:
        """The kernel of a store for the layouts that tables have now, if there may be one."""
        running, table = self.running[number], self.tables[self.words[number, strata.TARGET]]
        running.plan()
        found = running.fused
        if found is None or found.kept.prefix is not None:
            return None
        form = None if table.sets is None else table.sets.form
        kernel = found.kept.enters.get(form)
        if kernel is None:
            kernel = found.kept.enters[form] = self.compiled(found.plan, form, table)
        return kernel

    def prepare(self) -> None:
        """Begin to compile the kernels of all stores, which are of no use without each other and the driver."""
        for number in range(len(self.stores)):
            kernel = self.kernel(number)
            if kernel is not None:
                kernel.is_ready(is_urgent=True)
                self.tables[self.words[number, strata.TARGET]].stays = True

    def compiled(self, plan: emit.Plan, form: row_sets.SetForm | None, table: Table) -> emit.RuleKernel:
        """The kernel of a plan that writes to a table."""
        return emit.compiled(emit_insert.InsertEmitter, plan, form)

    def is_worth(self, number: int, kernel: emit.RuleKernel) -> bool:
        """Whether a kernel is to be had by now, for what it would have saved: it is compiled for many rows alone."""
        function: Any = kernel.function
        if "address" in vars(function):
            return True
        running = self.running[number]
        function.wanted += running.seen - running.counted
        running.counted = running.seen
        start, stop = running.driven()
        wanted = function.wanted + stop - start
        if wanted < fused.MANY_ROWS:
            return wanted >= fused.FEW_ROWS and function.is_cached
        # Where rounds are large, a kernel that writes what it finds to columns serves as well.
        is_urgent = has_small_rounds(self.executor.effort(self.stores[number]))
        return kernel.is_ready(is_urgent, waits=is_urgent and wanted >= fused.PATIENT_ROWS)

    def places(self, number: int, found: Fused, kernel: emit.RuleKernel) -> list[int]:
        """Where the memory has the arguments of a kernel."""
        words = self.words[number]
        own, target = int(words[strata.OWN]), int(words[strata.TARGET])
        bounds = {step: self.executor.bounds_of(scan) for step, scan in found.kept.scans.items()}
        places: list[int] = []
        values: list[int] = []
        kept = self.arrays[number] = []
        for what, step, part in kernel.parameters:
            scan = found.kept.scans.get(step)
            if what == "own":
                places.append(own + part)
            elif what in ("left", "next"):
                places.append(strata.LEFT if what == "left" else strata.NEXT_ROUND)
            elif what.startswith("target "):
                places += self.part_of(target, what.removeprefix("target "), part)
            elif what != "word" and scan is not None and scan.relation in self.number:
                places += self.growing(found.reads[step], scan, what, part)
            else:
                for value in fused.argument_of(found, bounds, None, what, step, part):
                    if isinstance(value, np.ndarray):
                        kept.append(value)
                    places.append(-1 - len(values))
                    values.append(self.address(value) if isinstance(value, np.ndarray) else int(value))
        at = self.allocate(len(values))
        self.memory[at : at + len(values)] = values
        return [place if place >= 0 else at - 1 - place for place in places]

    def part_of(self, number: int, what: str, part: int = 0) -> list[int]:
        """Where the memory has a part of a table."""
        at, sets = self.places_of_tables[number], self.tables[number].sets
        if what == "sets":
            assert sets is not None
            return list(range(at + strata.SETS, at + strata.SETS + len(sets.find_arguments)))
        return [at + getattr(strata, what.upper())]

    def growing(self, read: tuple[Table, Index | None], scan: m.Scan, what: str, part: int) -> list[int]:
        """The same of a step that reads a relation that grows."""
        index, number = read[1], self.number[scan.relation]
        match what:
            case "log" | "sets" | "list" | "tags" | "stamps":
                return self.part_of(number, what, part)
            case "bound":
                return [strata.BOUND]
            case "limit":
                is_stable = scan.part == "stable" and read[0].tags is None
                return self.part_of(number, "stable" if is_stable else "visible")
            case "table":
                return self.part_of(number, "hash")
            case "table_size":
                return self.part_of(number, "hash_slots")
        assert index is not None
        place = {"heads": strata.HEADS, "heads_size": strata.NUM_HEADS, "following": strata.FOLLOWING}[what]
        return [self.place_of_index(index) + place]

    def place_of_index(self, index: Index) -> int:
        """Where the memory has the words of an index that grows."""
        place = self.indexes.get(index)
        if place is None:
            place = self.indexes[index] = self.allocate(strata.INDEX_WORDS)
            self.index_bases = np.append(self.index_bases, place)
            self.write_index(index)
        return place

    # Running

    def begin(self) -> None:
        """Write what is known of tables and indexes that grow."""
        self.control[:] = 0
        self.control[strata.ONLY] = -1
        self.memory[strata.LEFT] = PAUSE
        for number, table in enumerate(self.tables):
            table.update_set()
            self.write_rows(number)
        for number in range(len(self.tables)):
            self.changed(number)
        self.sizes = self.sizes_now()

    def call(self) -> int:
        """Have the driver go on; returns why it comes back."""
        arguments = self.words, self.bases, self.index_bases, self.first_reader, self.readers, self.queue, self.control
        return strata.drive.compiled(self.address(self.memory), self.memory, *arguments)

    def make_room(self, code: int) -> None:
        """Make room for what a store, or an index, has none; a table may leave its sets for that."""
        at = int(self.control[strata.AT])
        if code == strata.INDEX_FULL:
            index = list(self.indexes)[at]
            self.read_table(self.number[index.table.name])
            self.write_index(index)
            return
        number = int(self.words[at, strata.TARGET])
        table = self.tables[number]
        self.read_table(number)
        # Else a log that grows now would stay beside its successor.
        self.addresses[number] = (), []
        sets = table.sets
        if code == row_sets.LOG_FULL:
            length = len(table.log)
            if table.size == length:
                # Many small tables would come back for each doubling.
                table.grow_log(4 * length if length < FEW else length + 1)
            may_enter = sets is None and table.may_have_sets and table.size >= storage.SET_ROWS
            if sets is None and not (may_enter and table.enter_sets()):
                table.grow_hash(table.size + 1)
        else:
            assert sets is not None
            own = self.words[at, strata.OWN] + emit_insert.OWN + self.words[at, strata.POSITIONS]
            row = [self.memory[own + c : own + c + 1] for c in range(table.width)]
            if not sets.make_room(table, sets.slices[0], code, row):
                table.leave_sets()
        self.changed(number)

    def insert(self, effort: Effort) -> bool:
        """Insert what the only store finds in the rows that it is to go through now; false if it has no kernel yet."""
        (running,), (words,) = self.running, self.words
        start, stop = running.driven()
        self.begin()
        # Of a recursion what grows is in the memory, and the kernel is bound once.
        running.plan()
        if running.fused is not self.fused or not words[strata.ENTRY]:
            if not self.bind(0):
                return False
            self.fused = running.fused if running.is_recursive else None
        running.driven_rows += stop - start
        own = words[strata.OWN]
        self.memory[own : own + emit_insert.OWN] = start, stop
        target = int(words[strata.TARGET])
        self.control[strata.ONLY] = 0
        while (code := self.call()) != row_sets.DONE:
            if code == emit_insert.PAUSED:
                self.read_table(target)
                self.memory[strata.LEFT] = PAUSE
            else:
                self.make_room(code)
            self.executor.watch.remaining()
        self.read_table(target)
        effort.candidates += int(words[strata.CANDIDATES])
        running.found += int(words[strata.CANDIDATES])
        words[strata.RUNS :] = 0
        return True

    def run(self, most: float = ENDLESS) -> None:
        """Run the round that has begun, and those that follow while they are small.

        most  rows after which it comes back
        """
        control, watch = self.control, self.executor.watch
        self.began, self.first_round, self.ended = perf_counter(), watch.round, 0
        self.begin()
        starts, stops = (self.memory[self.bases + place] for place in (strata.START, strata.STOP))
        news = np.flatnonzero(stops > starts)
        self.queue[: len(news)] = news
        control[strata.NUM_NEWS] = len(news)
        control[strata.MOST] = most_rows(self.running)
        control[strata.ROUNDS], control[strata.ROWS_LEFT] = self.limits(most)
        while (code := self.call()) not in (strata.ENDED, strata.STOPPED):
            if code == strata.WANTED:
                self.wanted(int(control[strata.AT]))
                continue
            if code == emit_insert.PAUSED:
                self.memory[strata.LEFT] = PAUSE
                self.look()
                continue
            self.make_room(code)
            if watch.limits.tuple_limit is not None or perf_counter() - self.began > LOOKS:
                self.look()
        # The last round is left to who called.
        control[strata.ROUND] -= 1
        self.account()
        for number in range(len(self.tables)):
            self.read_table(number)
            self.end_round(number)

    def end_round(self, number: int) -> None:
        """Have a table know which rows are recent, as one whose last round has ended."""
        self.read_rows(number)

    def read_rows(self, number: int) -> None:
        """Have a table know which rows are recent, stable and visible."""
        at, table = self.places_of_tables[number], self.tables[number]
        start, stop, _, table.stable_size, table.visible_size = self.memory[at : at + strata.VISIBLE + 1].tolist()
        table.recent = slice(start, stop)

    def limits(self, most: float) -> tuple[int, int]:
        """(rounds that may end, rows that they may find)"""
        executor, limits = self.executor, self.executor.watch.limits
        stratum = executor.stratum_effort[executor.number]
        given = [n - stratum.rounds + 1 for n in (limits.iteration_limit, limits.round_limit) if n is not None]
        rows = min(executor.plan_again - stratum.rows, most)
        if limits.tuple_limit is not None:
            # The error names the round that passed the limit.
            rows = min(rows, limits.tuple_limit - executor.watch.num_tuples + 1)
        return min(given, default=ENDLESS), int(max(1, rows))

    def wanted(self, number: int) -> None:
        """Have the kernel of a store, or run it in this round over columns."""
        running = self.running[number]
        own = [self.number[table.name] for table in running.tables if table.name in self.number]
        target = int(self.words[number, strata.TARGET])
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
        added = self.tables[target].size - before
        self.sizes += self.sizes_now() - sizes
        at = self.bases[target]
        if (added or self.memory[at + strata.LISTED]) and not self.memory[at + strata.HAS_NEWS]:
            self.memory[at + strata.HAS_NEWS] = 1
            self.queue[len(self.tables) + self.control[strata.NUM_NEXT]] = target
            self.control[strata.NUM_NEXT] += 1
        self.control[strata.READER] += 1
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
        passed, watch = int(self.control[strata.ROUND]) - self.ended, self.executor.watch
        self.ended += passed
        watch.round += passed
        self.executor.stratum_effort[self.executor.number].rounds += passed

    def account(self) -> None:
        """Record in the profile and the watch what was done since; seconds are shared by rows."""
        self.pass_rounds()
        executor, now = self.executor, perf_counter()
        costs = [sum(did) for did in self.words[:, strata.RUNS : strata.ROWS].tolist()]
        second, self.began = (now - self.began) / max(1, sum(costs)), now
        for number, cost in enumerate(costs):
            if not cost:
                continue
            words = self.words[number]
            effort, running, row = executor.effort(self.stores[number]), self.running[number], words.tolist()
            effort.by("the driver of its stratum")
            effort.runs += row[strata.RUNS]
            effort.candidates += row[strata.CANDIDATES]
            effort.rows += row[strata.ROWS]
            effort.seconds += second * cost
            running.driven_rows += row[strata.DRIVEN]
            running.found += row[strata.CANDIDATES]
            for last in range(max(0, row[strata.NUM_LAST] - strata.KEPT), row[strata.NUM_LAST]):
                place = strata.LAST + 2 * (last % strata.KEPT)
                effort.grew(self.first_round + row[place], row[place + 1])
            words[strata.RUNS : strata.LATE] = 0
            words[strata.NUM_LAST] = 0
        sizes = self.sizes_now()
        added, self.sizes = sizes - self.sizes, sizes
        executor.watch.tuples += added
        executor.stratum_effort[executor.number].rows += added

    def look(self) -> None:
        """Look at the limits in the middle of a round."""
        self.account()
        watch, number = self.executor.watch, int(self.control[strata.AT])
        for place in range(len(self.tables)):
            self.read_table(place)
        if not self.control[strata.GOES_ON]:
            watch.remaining()
            return
        if self.executor.cuts is not None and self.executor.cuts.is_due():
            # At the end of this round.
            self.control[strata.ROWS_LEFT] = 0
        # An error counts what the store that runs has found as others do.
        late, table = int(self.words[number, strata.LATE]), self.tables[self.words[number, strata.TARGET]]
        effort = self.executor.effort(self.stores[number])
        watch.tuples -= late
        watch.table, watch.before, effort.is_running = table, table.size - late, True
        watch.remaining()
        effort.is_running = False
        watch.leave()


def most_rows(running: Sequence[Running]) -> int:
    """Rows of a round that may follow; several threads have more to share in a larger one."""
    if fused.num_shares() == 1:
        return LARGE
    driven = max(1, sum(one.driven_rows for one in running))
    return min(LARGE, driven * partition.FEW // max(driven, sum(one.found for one in running)))


def _rows(recent: slice | np.ndarray) -> slice:
    assert isinstance(recent, slice)
    return recent


def _layout(table: Table) -> tuple:
    """What kernels that write to a table, or read it, depend on."""
    return table.word_type.char, None if table.sets is None else table.sets.form
