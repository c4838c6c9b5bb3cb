"""Stores: which way one runs, over columns, by its kernel, or by the machine, and what that costs.

Untagged rows go straight into their table; tagged ones wait for the end of the round in a `Pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from derivable.datalog.aggregates.groups import Context, run_aggregate
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.facts.store import FactStore
from derivable.datalog.fused.state import Columns
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.guard import Guard
from derivable.datalog.run.limits import Watch
from derivable.datalog.run.orders import Orders
from derivable.datalog.run.profile import COLUMNS, KERNEL, Effort, Route, StratumEffort
from derivable.datalog.run.queries import Found
from derivable.datalog.tables.bulk_load import BulkLoad
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Algebra

if TYPE_CHECKING:
    from derivable.datalog.fused.fused import Running
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

    def effort(self, instruction: m.Instruction) -> Effort:
        """What an instruction has cost so far."""
        found = self.efforts.get(id(instruction))
        if found is None:
            found = self.efforts[id(instruction)] = Effort(instruction, self.number)
            if self.counts is not None and isinstance(instruction, m.Store):
                found.estimates = [estimate.rows for estimate in self.estimates(instruction)]
        return found

    def credit(self, effort: Effort, rows: int) -> None:
        """An instruction has found that number of new rows; those of a part of a rule are none of the program."""
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
        table, guard = self.tables[instruction.relation], None
        if isinstance(instruction, m.Store):
            self.warn_of_product(instruction)
        with self.effort(instruction) as effort:
            self.watch.enter(table)
            if not isinstance(instruction, m.Store):
                columns, count, _ = self.special(instruction, effort)
                table.insert(columns, count)
            elif not table.size and table.row_set.may_be_sorted:
                guard = self.guard_of(self.running_of(instruction))
                self.insert_first(instruction, table, effort, guard)
            else:
                running = self.running_of(instruction)
                if running.is_ready():
                    effort.by(KERNEL)
                    parts = self.by_kernel(running, keep=False)
                else:
                    effort.by(COLUMNS)
                    guard = self.guard_of(running)
                    parts = self.by_columns(running, guard)
                for columns, count, _ in parts:
                    effort.candidates += count
                    table.insert(columns, count)
            added = self.watch.leave()
            if added:
                self.credit(effort, added)
                effort.grew(self.watch.round, added)
        if (other := self.in_another_order(instruction, guard)) is not None:
            self.insert(other)

    def insert_first(self, store: m.Store, table: Table, effort: Effort, guard: Guard | None) -> None:
        """Insert the rows of a store, which may be many, in a table that has none yet."""
        running = self.running_of(store)
        only_number = self.only_outputs and self.watch.room is None and store.relation in self.ram.counted
        kernel = running.distinct_kernel(only_number)
        if kernel is not None:
            effort.by(KERNEL)
            for count in running.written(table, kernel):
                self.watch.remaining()
                effort.candidates = count
            return
        by_kernel = not running.is_distinct and running.is_ready()
        effort.by(KERNEL if by_kernel else COLUMNS)
        gathered = BulkLoad(table, self.watch.remaining, self.watch.room)
        for columns, count, _ in self.by_kernel(running, False) if by_kernel else self.by_columns(running, guard):
            effort.candidates += count
            gathered.add(columns, count)
        gathered.flush()

    # With tags

    def collect(self, instruction: m.Instruction, pending: Pending, stamp: int) -> None:
        """Run an instruction; what it finds waits for the end of round `stamp`."""
        if isinstance(instruction, m.Store):
            self.warn_of_product(instruction)
        with self.effort(instruction) as effort:
            before = effort.candidates
            self.watch.enter(pending.table)
            guard = self._collect(instruction, pending, stamp, effort)
            self.watch.leave()
            if effort.candidates > before:
                effort.grew(self.watch.round, effort.candidates - before)
        if (other := self.in_another_order(instruction, guard)) is not None:
            self.collect(other, pending, stamp)

    def _collect(self, instruction: m.Instruction, pending: Pending, stamp: int, effort: Effort) -> Guard | None:
        is_kept = pending.keeps_columns
        if not isinstance(instruction, m.Store):
            pending.add(self.special(instruction, effort), stamp, effort)
            return None
        running = self.running_of(instruction)
        by_kernel = running.is_ready()
        effort.by(KERNEL if by_kernel else COLUMNS)
        guard = None if by_kernel else self.guard_of(running)
        for part in self.by_kernel(running, is_kept) if by_kernel else self.whole_by_columns(running, guard):
            effort.candidates += part[1]
            pending.add(part, stamp, effort, is_kept or not by_kernel)
            pending.look(self.watch)
        return guard

    def whole_by_columns(self, running: Running, guard: Guard | None) -> Iterator[Found]:
        """As `by_columns`, but nothing of a store that ends early: tags are not to be added twice."""
        parts, count = [], 0
        for part in self.by_columns(running, guard):
            parts.append(part)
            count += part[1]
            if guard is not None:
                guard.is_open &= count < policy().most_waiting and (self.watch.room is None or count <= self.watch.room)
            if guard is None or not guard.is_open:
                yield from parts
                parts = []
        if guard is None or guard.surprise is None:
            yield from parts

    def offer(self, store: m.Store, add: Callable[[Columns, int, Any], None]) -> None:
        """Run a store with tags over columns, or by a kernel that writes these; `add` is offered what it finds."""
        with self.effort(store) as effort:
            self.watch.enter(self.tables[store.relation])
            effort.by(KERNEL if self.running_of(store).is_ready() else COLUMNS)
            for columns, count, tags in self.stored(store):
                effort.candidates += count
                add(columns, count, tags)
            self.credit(effort, self.watch.leave())

    def special(self, rule: AggregateRule, effort: Effort) -> tuple[Columns, int, Any]:
        """Columns, count and tags of an aggregate."""
        effort.route = Route(COLUMNS, "aggregates work on columns")
        table = self.tables[rule.relation]
        body = self.tables[rule.body]
        groups = None if rule.groups is None else self.tables[rule.groups]
        written = self.ram.source, self.ram.text, self.ram.plans.setdefault("said", set())
        context = Context(self.mode, self.symbols, self.facts.random, self.watch, *written)
        found = run_aggregate(rule, table.types, body, groups, context)
        effort.candidates += found[1]
        return found
