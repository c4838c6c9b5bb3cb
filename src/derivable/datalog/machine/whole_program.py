"""All stores of a program in one memory, which is used by one small run after the other.

To make tables and machines and to bind kernels costs a small run some hundred times what its rules cost. A run writes
its facts as candidates, has the driver go through all strata, and copies the outputs. Rows come in the order of other
runs. A run that is no small one leaves the rest to others: the strata before that have ended stay.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.collection import gc_paused
from derivable.core.lazy import later
from derivable.datalog.facts.store import FactStore
from derivable.datalog.fused.kernel_plan import BoundPlan
from derivable.datalog.kernels import row_sets
from derivable.datalog.machine import words as w
from derivable.datalog.machine.forms import Form
from derivable.datalog.machine.machine import Machine, are_compiled
from derivable.datalog.machine.merges import NO_LIMIT, Proofs, merge_of
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.assumed import Assumed
from derivable.datalog.ram.join_order import planned, sized_relations
from derivable.datalog.ram.statistics import Statistics
from derivable.datalog.scalars.nodes import Const
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import column_of, parts_of
from derivable.datalog.values.values import word_of

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")

# The families of values that are numbered as they come.
NUMBERED = "text", "duration", "tensor"
Row = tuple[Const, ...]


class WholeProgram:
    """All stores of a program in the memory of a machine, for one run after the other.

    constants    (where the memory has it, constant) of those whose words differ from run to run
    once         the stores that write to relations of no recursion
    facts_left   facts that the run at hand may have still
    rows         number of a table -> rows of constants, of rules that read nothing
    is_bound     whether all stores have their kernels
    first_other  the number of the first stratum that has a store without a kernel, as far as that is known
    stops        the strata before which a run stops: those that negate proofs, and the end
    negated      stratum -> numbers of the tables whose proofs it negates
    """

    def __init__(
        self,
        executor: Any,
        stores: Sequence[tuple[Sequence[m.Store], Sequence[m.Store]]],
        rows: Sequence[tuple[str, Row]],
        bases: Sequence[str],
        symmetric: Sequence[str],
    ):
        """stores     [stratum] what computes it before its recursion, and in it
        bases      [stratum] the relation with what its recursion reads of before it, "" without one
        symmetric  [stratum] a relation of pairs, a shortcut paying only if it has them in both directions, "" without
        """
        ram, relations = executor.ram, [stratum.relations for stratum in executor.ram.strata]
        all_stores = [store for once, loop in stores for store in (*once, *loop)]
        computed = {name for names in relations for name in names}
        for table in executor.tables.values():
            # Small ones never do, and all have the layout for which kernels are bound.
            table.row_set.may_have_prefixes = False
        merge, others = merge_of(executor, all_stores), [name for name in executor.tables if name not in computed]
        executor.has_candidates = merge.has_tags
        self.machine = machine = Machine(executor, relations, stores, merge, others, has_room=True)
        number, count, words = machine.number, len(all_stores), machine.strata
        self.is_bound, self.outputs = False, ram.outputs
        # The first stratum that reads an index.
        self.first_use: dict[Index, int] = {}
        self.rows: dict[int, list[Row]] = {}
        for name, row in rows:
            self.rows.setdefault(number[name], []).append(row)
        words[:-1, w.BASE] = [number.get(name, -1) for name in bases]
        words[:-1, w.SYMMETRIC] = [number.get(name, -1) for name in symmetric]
        self.bases_of = [(table, base) for table, base in words[:, [w.FIRST_TABLE, w.BASE]].tolist() if base >= 0]
        self.stratum_of = np.searchsorted(words[1:, w.FIRST_STORE], np.arange(count), "right").tolist()
        in_recursion = {name for stratum in ram.strata if stratum.loop for name in stratum.relations}
        self.once = np.array([k for k, store in enumerate(all_stores) if store.relation not in in_recursion], int)
        most_rows = policy().set_rows + policy().first_rows * count
        sized = [[bool(sized_relations(part)) for part in parts] for parts in stores]
        if merge.has_tags:
            words[:-1, [w.ONCE_IS_SIZED, w.LOOP_IS_SIZED]] = sized
            # Candidates may be rows that there are already.
            self.most_of_table = [most_rows + policy().chunk] * len(machine.tables)
        else:
            # In another order rows would come in another order too, and so they do where a recursion has sets of them.
            is_sized = any(map(any, sized))
            most_rows = policy().small_round if is_sized else most_rows
            is_small = [is_sized or name not in ram.relations or name in in_recursion for name in machine.names]
            self.most_of_table = [min(policy().set_rows if small else policy().chunk, most_rows) for small in is_small]
        self.most_facts = self.facts_left = policy().few + policy().call_rows * count
        self.most_candidates = policy().chunk + policy().small_round * count
        self.fresh = np.zeros_like(machine.control)
        self.fresh[[w.ONLY_TABLE, w.STRATUM]] = -1
        self.fresh[[w.MOST, w.ROUNDS]] = NO_LIMIT
        self.fresh[w.ROWS_LEFT], self.fresh[w.DOUBT] = most_rows, most_rows - policy().small_round
        self.fresh[w.TIMES] = policy().far_off
        self.constants: list[tuple[int, Const]] = []
        self.number_of_strata = self.first_other = len(ram.strata)
        self.negated: dict[int, list[int]] = {}
        for stratum, store in zip(self.stratum_of, all_stores) if isinstance(merge, Proofs) else ():
            for node in store.query.operators:
                if isinstance(node, m.Difference):
                    self.negated.setdefault(stratum, []).append(number[node.right.relation])
        self.stops = [*sorted(self.negated), self.number_of_strata]
        # [stratum] its first table, the number of tables for each behind the last.
        self.first_tables: list[int] = [*words[:, w.FIRST_TABLE].tolist(), int(words[-1, w.FIRST_TABLE])]

    # Kernels

    def bind(self) -> bool:
        """Whether all stores have their kernels; some of them are compiled for that."""
        if not self.is_bound:
            with gc_paused():
                self.is_bound = self._bind()
        return self.is_bound

    def _bind(self) -> bool:
        machine, merge, planned_forms = self.machine, self.machine.merge, []
        for numbers, forms in self.forms():
            store_state = machine.store_state(numbers[0])
            store_state.plan()
            if store_state.bound_plan is None:
                self.first_other = min(self.first_other, self.stratum_of[numbers[0]])
                return False
            planned_forms.append(
                (numbers, forms, store_state.bound_plan, merge.kernel(store_state.bound_plan.plan, None))
            )
        kernels = [kernel.function for *_, kernel in planned_forms]
        kernels += [kernel for table in machine.tables for kernel in merge.kernels_of(table)]
        if not are_compiled(kernels):
            return False
        for table in machine.tables:
            table.grow_log(policy().first_rows)
            table.row_set.grow(table, policy().first_rows)
        machine.begin()
        for numbers, forms, plan, kernel in planned_forms:
            self.bind_form(numbers, forms, plan, kernel)
        self.part_indexes()
        # What refers to one another would stay until Python looks for such.
        machine.executor.store_states.clear()
        for table in machine.tables:
            table.indexes.clear()
        return True

    def forms(self) -> list[tuple[list[int], list[Form]]]:
        """The numbers of the stores of each form, and these as such; a store that is no such is alone."""
        kinds: dict[tuple, int] = {}
        tables = self.machine.executor.tables.items()
        kind_of = {name: kinds.setdefault(table.types, len(kinds)) for name, table in tables}
        groups: dict[Any, tuple[list[int], list[Form]]] = {}
        for number, store in enumerate(self.machine.stores):
            form = Form.of(store, kind_of.__getitem__)
            numbers, forms = groups.setdefault((number, None) if form is None else (-1, form.key), ([], []))
            numbers.append(number)
            if form is None:
                form = Form((), tuple(scan for scan in map(m.scan_of, store.query.operators) if scan is not None), ())
            forms.append(form)
        return list(groups.values())

    def bind_form(self, numbers: list[int], forms: list[Form], first: BoundPlan, kernel: emit.RuleKernel) -> None:
        """Bind the stores of one form to their kernel, which is planned for the first of them."""
        machine, plan, parts = self.machine, first.store_plan, self.machine.parts(numbers[0], first, kernel)
        constants = [(at, plan.words[part]) for at, (what, _, part) in enumerate(parts) if what == "word"]
        # Those that are numbered are so in each run.
        numbered = [
            (at, word)
            for at, word in constants
            if isinstance(word, Const) and (word.type.is_wide or word.type.family in NUMBERED)
        ]
        for number, form in zip(numbers, forms):
            instead = form.instead_of(forms[0])
            bound = first if form is forms[0] else plan.bound(machine.executor, instead)
            for _, index in bound.reads.values():
                if index is not None:
                    stratum = self.stratum_of[number]
                    self.first_use[index] = min(stratum, self.first_use.get(index, stratum))
            addresses = machine.bind_to(number, bound, kernel, parts)
            self.constants += [(addresses[at], instead.get(id(word), word)) for at, word in numbered]

    def part_indexes(self) -> None:
        """Have those indexes apart that no store of their table's stratum reads."""
        machine, first = self.machine, self.machine.strata[1:, w.FIRST_TABLE]
        after: list[list[int]] = [[] for _ in machine.tables]
        growing = []
        for index, at in machine.indexes.items():
            table = machine.number[index.table.name]
            is_later = table >= first[-1] or self.first_use[index] > np.searchsorted(first, table, "right")
            (after[table] if is_later else growing).append(at)
        machine.index_bases = np.array(growing, np.int64)
        machine.indexes_after = np.full((len(after), max(map(len, after), default=0)), -1, np.int64)
        for table, indexes in enumerate(after):
            machine.indexes_after[table, : len(indexes)] = indexes

    # Room

    def has_room(self, number: int, least: int) -> bool:
        """Make room for that number of rows in a table; false if they are more than a small run has."""
        if least > self.most_of_table[number]:
            return False
        table = self.machine.tables[number]
        self.machine.read_table(number)
        table.grow_log(least)
        table.row_set.grow(table, len(table.log))
        self.machine.changed(number)
        return True

    def have_bases_room(self) -> bool:
        """Make room for what a recursion reads of what was before it."""
        tables = self.machine.tables
        sizes = [(base, len(tables[number].log)) for number, base in self.bases_of]
        return all(len(tables[base].log) >= size or self.has_room(base, size) for base, size in sizes)

    def make_room(self, reason: int) -> bool:
        machine, control = self.machine, self.machine.control
        target = int(machine.words[control[w.AT], w.TARGET]) if control[w.GOES_ON] else int(control[w.ENDING])
        at = machine.bases_of_tables[target]
        if not control[w.GOES_ON]:
            return self.has_room(target, int(machine.memory[at + w.SIZE] + machine.memory[at + w.NUM_CANDIDATES]) + 1)
        if isinstance(machine.merge, Proofs):
            room = machine.merge.candidates[target].room
            if room < policy().chunk:
                machine.merge.grow_candidates(machine, target, 2 * room)
            return room < policy().chunk
        # Of a recursion that goes on, the rows before it stay where they are.
        has_room = self.has_room(target, 2 * len(machine.tables[target].log))
        return has_room and (bool(control[w.ROUND] > 0) or self.have_bases_room())

    # Running

    def run(self, facts: FactStore, ram: m.Ram, algebra: Any) -> int:
        """Run the program over facts, as far as this is a small run; returns the number of strata that have ended."""
        machine, merge, control = self.machine, self.machine.merge, self.machine.control
        self.facts_left = self.most_facts
        control[:], machine.activity[:] = self.fresh, 0
        machine.memory[w.LEFT] = self.most_candidates
        merge.begin_run(machine, algebra)
        for address, constant in self.constants:
            machine.memory[address] = word_of(constant.value, constant.type, facts.symbols)
        handlers: dict[int, Callable[[int], bool]] = {
            row_sets.LOG_FULL: self.make_room,
            **dict.fromkeys((emit_insert.PAUSED, w.STOPPED), self.leave_as_large),
            w.SHORTCUT: self.has_no_shortcut,
            w.PLAN_AGAIN: partial(self.is_as_planned, facts, ram),
        }
        if isinstance(merge, Proofs):
            handlers[w.PROOFS_FULL] = lambda reason: algebra.store.make_wanted_room() is None
            handlers[w.LIMITS] = lambda reason: algebra.store.deadline.remaining() is None
        first, is_whole = 0, False
        for stop in self.stops:
            # A stratum that negates has its facts before.
            control[w.UNTIL] = stop
            is_whole = self.write_facts(facts, first, stop + 1, algebra) and machine.run(handlers) == w.ENDED
            if not is_whole:
                break
            first = stop + 1
            if stop in self.negated:
                algebra.may_deny(facts.may_be_denied(ram, stop))
            for number in self.negated.get(stop, ()):
                assert isinstance(merge, Proofs)
                size = int(machine.memory[machine.bases_of_tables[number] + w.SIZE])
                merge.arrays[number]["negated"][:size] = algebra.negate(machine.tables[number].tags[:size])
        merge.end_run(is_whole)
        if not is_whole:
            machine.memory[machine.bases + w.NUM_CANDIDATES] = 0
        if merge.has_tags:
            # Where dropped proofs may come back, another run offers all rows again.
            return 0 if algebra.has_dropped() else max(0, int(control[w.STRATUM]))
        number = max(0, int(control[w.STRATUM]))
        once = self.once
        if number < self.number_of_strata:
            once = once[once < machine.strata[number, w.FIRST_STORE]]
        # Many candidates would be sorted.
        return 0 if machine.words[once, w.CANDIDATES].max(initial=0) >= policy().set_rows else number

    def write_facts(self, facts: FactStore, first: int, stop: int, algebra: Any) -> bool:
        """Write the facts of strata as candidates; false if they are too many."""
        machine, merge, start, end = self.machine, self.machine.merge, self.first_tables[first], self.first_tables[stop]
        columns_of = {machine.number.get(name, end): columns for name, columns in facts.relations.items()}
        numbers = columns_of.keys() | self.rows.keys() if self.rows else columns_of
        counts, variables_of = [], []
        for number in sorted(number for number in numbers if start <= number < end):
            table, rows = machine.tables[number], self.rows.get(number, ())
            columns, variables = [], _NO_FACTS
            if number in columns_of:
                columns, variables = columns_of[number].as_stored(len(table.types))
            count, candidates = len(variables) + len(rows), merge.candidates[number]
            self.facts_left -= count
            if self.facts_left < 0:
                return False
            if count > candidates.room:
                merge.grow_candidates(machine, number, 2 * count)
            if count >= len(table.log) and not self.has_room(number, count + 1):
                return False
            words = candidates.rows(count, candidates.width)
            if not columns:
                words[:] = 0
            for c, column in enumerate(columns):
                words[: len(variables), c] = column
            for k, row in enumerate(rows, len(variables)):
                words[k] = [word_of(term.value, term.type, facts.symbols) for term in row] or [0]
            machine.memory[machine.bases_of_tables[number] + w.NUM_CANDIDATES] = count
            counts.append((number, count))
            variables_of.append(np.append(variables, [-1] * len(rows)) if rows else variables)
        if counts and merge.has_tags:
            self.write_tags(counts, variables_of, algebra)
        return merge.has_tags or self.have_bases_room()

    def write_tags(self, counts: list[tuple[int, int]], variables_of: list[np.ndarray], algebra: Any) -> None:
        """Write the tags of the facts of some tables; those that are to be discarded are left out."""
        machine, merge, start = self.machine, self.machine.merge, 0
        variables = np.concatenate(variables_of)
        is_random = variables >= 0
        tags = algebra.one(len(variables))
        if is_random.any():
            if isinstance(merge, Proofs):
                tags[is_random] = algebra.store.singles_of(variables_of)
            else:
                tags[is_random] = algebra.fact_tags(variables[is_random])
        is_possible = ~algebra.is_zero(tags)
        are_all_possible = bool(is_possible.all())
        for number, count in counts:
            candidates, rows = merge.candidates[number], slice(start, start + count)
            part, start = tags[rows], start + count
            if not are_all_possible and machine.names[number] not in merge.certain:
                possible = np.flatnonzero(is_possible[rows])
                words = candidates.rows(count, candidates.width)
                words[: len(possible)] = words[possible]
                part = part[possible]
                machine.memory[machine.bases_of_tables[number] + w.NUM_CANDIDATES] = len(possible)
            candidates.write_tags(part)
            if isinstance(merge, Proofs):
                merge.arrays[number]["candidate_rows"][:count] = -1

    def leave_as_large(self, reason: int) -> bool:
        """This is more than a small run, so that strata from here on are run one by one."""
        return False

    def has_no_shortcut(self, reason: int) -> bool:
        """Whether no shortcut pays for the recursion that begins."""
        machine, number = self.machine, int(self.machine.control[w.STRATUM])
        self.read_tables()
        matched = machine.executor.matched(number, machine.executor.ram.strata[number].loop, "rows")
        return not any(one.symmetric and one.pays() for one in matched)

    def read_tables(self) -> None:
        for table in range(len(self.machine.tables)):
            self.machine.read_table(table)

    def is_as_planned(self, facts: FactStore, ram: m.Ram, reason: int) -> bool:
        """Whether the stores that are next would join in their order in any run."""
        machine = self.machine
        number = int(machine.control[w.STRATUM])
        part = "once" if machine.control[w.ROUND] == 0 else "loop"
        self.read_tables()
        stores, tables = getattr(ram.strata[number], part), dict(zip(machine.names, machine.tables))
        known = Assumed(Statistics(tables, facts.symbols), ram.strata[number])
        return all(map(operator.is_, planned(ram, (number, part), stores, known, False), stores))

    # Outcome

    def rows_of(self, name: str) -> Table:
        """The rows of a relation, and their tags, which the next run does not change."""
        made = self.words_of(name)
        if self.machine.merge.has_tags:
            made.tags = column_of([part[: made.size].copy() for part in parts_of(made.tags)])
            made.stamps = None
        return made

    def words_of(self, name: str) -> Table:
        """The rows of a relation, with tags that the next run changes."""
        number = self.machine.number[name]
        return self.machine.tables[number].first_rows(
            int(self.machine.memory[self.machine.bases_of_tables[number] + w.SIZE])
        )

    def spent(self, until: int) -> tuple[list[m.Store], list[int], np.ndarray, np.ndarray]:
        """Of the first strata the stores, the stratum and (runs, candidates, rows gone through, new rows) of each, and
        how many rounds each stratum had."""
        machine, count = self.machine, int(self.machine.strata[until, w.FIRST_STORE])
        did, rounds = machine.words[:count, w.RUNS : w.ROWS + 1].copy(), machine.strata[:until, w.NUM_ROUNDS].copy()
        return machine.stores[:count], self.stratum_of[:count], did, rounds


_NO_FACTS = np.zeros(0, np.int64)
