"""Stores: which way one runs, over columns, by its kernel, or by the machine, and what that costs.

Untagged rows go straight into their table; tagged ones wait for the end of the round in a `Pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.datalog.aggregates.groups import Context, run_aggregate
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.facts.store import FactStore
from derivable.datalog.fused.state import Columns
from derivable.datalog.fused.store_state import StoreState
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.limits import Watch
from derivable.datalog.run.orders import Orders
from derivable.datalog.run.profile import COLUMNS, KERNEL, Effort, Route, StratumEffort
from derivable.datalog.run.queries import Chunk
from derivable.datalog.tables.bulk_load import BulkLoad
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Algebra
from derivable.datalog.values.values import TYPES
from derivable.device.cpu.memory import empty, longer, next_length

if TYPE_CHECKING:
    from derivable.datalog.run.pending import Pending


class Stores(Orders):
    """The stores of a run, one at a time.

    efforts         what each instruction has cost, by its identity
    stratum_effort  what each stratum has cost
    """

    def __init__(self, ram: m.Ram, facts: FactStore, algebra: Algebra, watch: Watch, tables: dict[str, Table]):
        super().__init__(ram, facts, algebra, watch, tables)
        self.facts, self.watch = facts, watch
        self.efforts: dict[int, Effort] = {}
        self.stratum_effort = [StratumEffort() for _ in ram.strata]
        # Whether relations that are no outputs need not be there at the end.
        self.only_outputs = False
        # The relations that have the numbers of rows of groups instead of their rows.
        self.numbers: set[str] = set()

    def effort(self, instruction: m.Instruction) -> Effort:
        """What an instruction has cost so far."""
        effort = self.efforts.get(id(instruction))
        if effort is None:
            effort = self.efforts[id(instruction)] = Effort(instruction, self.number)
            if self.counts is not None and isinstance(instruction, m.Store):
                effort.estimates = [estimate.rows for estimate in self.estimator().store(instruction)]
        return effort

    def credit(self, effort: Effort, rows: int) -> None:
        """An instruction has derived that number of new rows; those of a part of a rule are none of the program."""
        effort.rows += rows
        if effort.instruction.relation in self.ram.relations:
            self.stratum_effort[self.number].rows += rows

    def part(self, instruction: m.Instruction) -> Table | None:
        """The new table of an instruction that makes a part of what another one needs; None for all others."""
        if instruction.relation in self.tables:
            return None
        assert isinstance(instruction, m.Store)
        types = tuple(term.type for term in instruction.query.terms)
        made = self.tables[instruction.relation] = Table(instruction.relation, types)
        return made

    # Untagged

    def insert(self, instruction: m.Instruction) -> None:
        """Run an instruction and insert its rows."""
        table = self.tables[instruction.relation]
        with self.effort(instruction) as effort:
            self.watch.begin_instruction(table)
            if not isinstance(instruction, m.Store):
                columns, count, _ = self.special(instruction, effort)
                table.insert(columns, count)
            elif not table.size and table.row_set.may_be_sorted:
                self.insert_first(instruction, table, effort)
            else:
                self.warn_of_product(instruction)
                for columns, count, _ in self.stored(instruction, effort):
                    table.insert(columns, count)
            added = self.watch.end_instruction()
            if added:
                self.credit(effort, added)
                effort.grew(self.watch.round, added)

    def insert_first(self, store: m.Store, table: Table, effort: Effort) -> None:
        """Insert the rows of a store, which may be many, in a table that has none yet."""
        store_state, counted = self.store_state(store), None
        if self.only_outputs and self.watch.room is None:
            counted = self.ram.counted.get(store.relation)
        if counted is not None and self.count_rows(store_state, table, counted, effort):
            return
        self.warn_of_product(store)
        kernel = store_state.distinct_kernel(None)
        if kernel is not None:
            effort.by(KERNEL)
            for count in store_state.written(table, kernel):
                self.watch.remaining()
                effort.candidates = count
            return
        if self.only_outputs and self.watch.room is None and store.relation in self.ram.repeatable:
            self.store_repeated(store, table, effort)
            return
        gathered = BulkLoad(table, self.watch.remaining, self.watch.room)
        for columns, count, _ in self.stored(store, effort, may_compile=not store_state.is_distinct):
            gathered.add(columns, count)
        gathered.flush()

    def count_rows(self, store_state: StoreState, table: Table, counted: int, effort: Effort) -> bool:
        """Have the number of the rows of a store instead of the rows, if there is a kernel for that: a table without
        its log, or for each group, of `counted` columns, rows (group..., number) that are to be added up."""
        eliminates, kernel = store_state.elimination(counted), None
        if eliminates is None and (kernel := store_state.distinct_kernel(counted)) is None:
            return False
        if counted:
            table = Table(table.name, (*table.types[:counted], TYPES["usize"]))
            self.tables[table.name] = table
            self.numbers.add(table.name)
        effort.by(KERNEL)
        if eliminates is not None:
            numbers = store_state.eliminated(table, *eliminates)
        else:
            assert kernel is not None
            numbers = store_state.written(table, kernel)
        for count in numbers:
            self.watch.remaining()
            effort.candidates = count
        return True

    def store_repeated(self, store: m.Store, table: Table, effort: Effort) -> None:
        """Have the rows that a store derives in a table that has none, as often as they are derived."""
        log, count = empty((0, table.width), np.int64), 0
        for columns, number, _ in self.stored(store, effort):
            if count + number > len(log):
                log = longer(log, next_length(len(log), count + number), count)
            for c, column in enumerate(columns):
                log[count : count + number, c] = column[:number]
            table.row_set.gathered = count = count + number
            self.watch.remaining()
        table.row_set.gathered = 0
        table.assign_distinct(log, count)

    def stored(
        self, store: m.Store, effort: Effort | None = None, keep: bool = False, may_compile: bool = True
    ) -> Iterator[Chunk]:
        """Columns, count and tags of what a store finds, batch by batch, over columns or by a kernel that writes these.

        keep  whether the columns of a batch are needed after the next one is asked for
        """
        store_state = self.store_state(store)
        by_kernel = may_compile and store_state.is_ready()
        if effort is not None:
            effort.by(KERNEL if by_kernel else COLUMNS)
        before = self.work
        # A kernel that inserts what it finds would save the call.
        store_state.seen += policy().call_rows
        for batch in store_state.run(keep) if by_kernel else self.projected(store.query, store.query.steps):
            if effort is not None:
                effort.candidates += batch[1]
            yield batch
        store_state.seen += self.work - before

    # With tags

    def collect(self, instruction: m.Instruction, pending: Pending, stamp: int) -> None:
        """Run an instruction; what it finds waits for the end of round `stamp`."""
        if isinstance(instruction, m.Store):
            self.warn_of_product(instruction)
        with self.effort(instruction) as effort:
            before = effort.candidates
            self.watch.begin_instruction(pending.table)
            if isinstance(instruction, m.Store):
                keeps_columns = pending.keeps_columns
                for part in self.stored(instruction, effort, keeps_columns):
                    pending.add(part, stamp, effort, keeps_columns or effort.route.name == COLUMNS)
                    pending.look(self.watch)
            else:
                pending.add(self.special(instruction, effort), stamp, effort)
            self.watch.end_instruction()
            if effort.candidates > before:
                effort.grew(self.watch.round, effort.candidates - before)

    def offer(self, store: m.Store, add: Callable[[Columns, int, Any], None]) -> None:
        """Run a store with tags, and offer what it finds to `add`."""
        with self.effort(store) as effort:
            self.watch.begin_instruction(self.tables[store.relation])
            for columns, count, tags in self.stored(store, effort):
                add(columns, count, tags)
            self.credit(effort, self.watch.end_instruction())

    def special(self, rule: AggregateRule, effort: Effort) -> tuple[Columns, int, Any]:
        """Columns, count and tags of an aggregate."""
        effort.route = Route(COLUMNS, "aggregates work on columns")
        if rule.body in self.numbers:
            rule = replace(rule, operator="sum", num_values=1)
        result = self.aggregated(
            rule, self.tables[rule.body], None if rule.groups is None else self.tables[rule.groups]
        )
        effort.candidates += result[1]
        return result

    def aggregated(self, rule: AggregateRule, body: Table, groups: Table | None = None) -> tuple[Columns, int, Any]:
        """The same of these rows and groups."""
        written = self.ram.source, self.ram.text, self.ram.plans.setdefault("said", set())
        context = Context(self.mode, self.symbols, self.facts.random, self.watch, *written)
        return run_aggregate(rule, self.tables[rule.relation].types, body, groups, context)
