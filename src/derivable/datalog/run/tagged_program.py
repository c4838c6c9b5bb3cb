"""Small runs with tags as one call: what `whole_program` does, where tags are columns of fixed width.

Those are the scalars of any semiring, and the numbers of sets of proofs. Kernels of stores write candidates with their
tags, and at the end of a round the driver (`machine/driver.py`) inserts them and adds them up. Literals are
numbered in the order of strata, so a run of proofs stops before each stratum that negates, for what that denies.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.lazy import later
from derivable.datalog.facts.store import FactStore
from derivable.datalog.fused.fused import Running
from derivable.datalog.fused.kernel_plan import Fused
from derivable.datalog.machine import words as w
from derivable.datalog.machine.merges import Candidates, Proofs, Sums
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.assumed import Assumed
from derivable.datalog.ram.join_order import LEAST_ROWS, planned, sized_relations
from derivable.datalog.ram.statistics import Statistics
from derivable.datalog.run.execute import PLAN_AGAIN, Begun, Executor
from derivable.datalog.run.whole_program import NUMBERED, ROWS_A_STORE, Row, WholeProgram, profile_of
from derivable.datalog.tables import row_set
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import column_of, parts_of
from derivable.datalog.tags.tags import SemiringTags
from derivable.datalog.values.values import word_of

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert, emit_tags
    from derivable.datalog.kernels import row_sets
    from derivable.datalog.machine import proof_driver
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")
    emit_tags = later("derivable.datalog.fused.emit_tags")
    row_sets = later("derivable.datalog.kernels.row_sets")
    proof_driver = later("derivable.datalog.machine.proof_driver")

# Candidates of a table that there is room for at first, and at most.
GIVEN, MOST_GIVEN = 1 << 6, 1 << 16
# Rounds of all runs of a memory, whose numbers have 32 bits.
MOST_ROUNDS = 1 << 30


class TaggedProgram(WholeProgram):
    """All stores of a program in the memory of the driver, for one run with tags after the other.

    stops    the strata before which a run stops: those that negate proofs, and the end
    negated  stratum -> numbers of the tables that it negates, of proofs
    """

    def __init__(
        self,
        executor: Executor,
        onces: Sequence[Sequence[m.Store]],
        loops: Sequence[Sequence[m.Store]],
        rows: Sequence[tuple[str, Row]],
    ):
        super().__init__(executor, onces, loops, rows)
        self.blocks = [None] * len(self.stores)
        algebra, ram, number_of_tables = executor.algebra, executor.ram, len(self.tables)
        in_recursion = {name for stratum in ram.strata if stratum.loop for name in stratum.relations}
        if isinstance(algebra, SemiringTags):
            candidates = [Candidates(table.width, algebra.typed.dtypes, GIVEN) for table in self.tables]
            self.merge: Sums | Proofs = Sums(self, algebra.typed, True, candidates)
        else:
            counts = [sum(scan is not None for scan in map(m.scan_of, store.query.operators)) for store in self.stores]
            is_certain = [name in ram.relations and ram.relations[name].is_certain for name in self.names]
            keeps_news = [
                name in in_recursion and table.stamps is None and not certain
                for name, table, certain in zip(self.names, self.tables, is_certain)
            ]
            self.merge = Proofs(self, max(2, *counts, 0), keeps_news, GIVEN)
        self.is_proofs = isinstance(self.merge, Proofs)
        self.negated: dict[int, list[int]] = {}
        for stratum, store in zip(self.stratum_of, self.stores) if self.is_proofs else ():
            for node in store.query.operators:
                if isinstance(node, m.Difference):
                    self.negated.setdefault(stratum, []).append(self.number[node.right.relation])
        self.stops = [*sorted(self.negated), self.number_of_strata]
        self.tables_of = [[self.number[name] for name in stratum.relations] for stratum in ram.strata]
        is_sized = w.ONCE_IS_SIZED, w.LOOP_IS_SIZED
        for number, stores in enumerate(zip(onces, loops)):
            self.strata[number, list(is_sized)] = [bool(sized_relations(some)) for some in stores]
        self.most_rows = row_set.SET_ROWS + ROWS_A_STORE * len(self.stores)
        # Candidates may be rows that there are already.
        self.most_of_table = [self.most_rows + MOST_GIVEN] * number_of_tables
        self.fresh[w.ROWS_LEFT] = self.most_rows
        self.fresh[w.DOUBT] = self.most_rows - LEAST_ROWS
        self.fresh[w.TIMES] = PLAN_AGAIN
        self.rows_of_table: dict[int, Row] = dict(self.rows)

    # Kernels

    def driver(self) -> tuple[Any, Sequence[str]]:
        return (proof_driver.run_proofs, proof_driver.TYPES) if self.is_proofs else super().driver()

    def compiled(self, plan: emit.Plan, form: row_sets.SetForm | None, table: Table) -> emit.RuleKernel:
        return emit.compiled(emit_insert.CandidateEmitter, plan)

    def other_kernels(self) -> list[Any]:
        """Packed kernels that the driver calls besides those of stores."""
        if isinstance(self.merge, Proofs):
            return []
        pairs = [self.merge.kernels_for(self, number) for number in range(len(self.tables))]
        return [*dict.fromkeys(one for add_up, end_round in pairs for one in (add_up.function, end_round))]

    def running_stores(self) -> list[Running]:
        found = super(WholeProgram, self).running_stores()
        for running in found:
            running.has_candidates = True
        return found

    def has_been_bound(self, work: int) -> bool:
        kernels = []
        for stratum, running in zip(self.stratum_of, self.running):
            running.plan()
            if running.fused is None or running.fused.kept.prefix is not None:
                self.first_other = min(self.first_other, stratum)
                return False
            kernels.append(self.compiled(running.fused.plan, None, running.tables[0]).function)
        if not self.has_begun(work, [*kernels, *self.other_kernels()]):
            return False
        for number, (stratum, running) in enumerate(zip(self.stratum_of, self.running)):
            self.bind(number, must=True)
            assert running.fused is not None
            for _, index in running.fused.reads.values():
                if index is not None:
                    self.first_use.setdefault(index, stratum)
            self.find_constants(running.fused, self.blocks[number].tolist())
        self.end_binding()
        return True

    def find_constants(self, found: Fused, block: list[int]) -> None:
        """Find where the memory has the constants of a store that are numbered in each run."""
        kept = found.kept
        for (what, _, part), place in zip(kept.enters[None].parameters, block, strict=True):
            word = kept.words[part] if what == "word" else 0
            if not isinstance(word, int) and (word.type.is_wide or word.type.family in NUMBERED):
                self.constants.append((place, word))

    # Memory

    def growing(self, read: tuple[Table, Index | None], scan: m.Scan, what: str, part: int = 0) -> list[int]:
        match what:
            case "tags" if scan.part == "recent" and self.is_proofs:
                what = "news"
            case "float_log":
                what = "log"
            case "negated" | "news":
                pass
            case _:
                return super().growing(read, scan, what, part)
        return self.part_of(self.number[scan.relation], what)

    def write_table(self, number: int) -> None:
        super().write_table(number)
        self.merge.write_table(self, number)

    def has_room_for(self, number: int, least: int) -> bool:
        """Make room for that number of candidates of a table; false if they are more than a small run has."""
        if least > self.merge.candidates[number].room:
            if least > MOST_GIVEN:
                return False
            self.merge.grow_candidates(self, number, 2 * least)
        return True

    # Running

    def has_facts(self, given: FactStore, first: int, stop: int, algebra: Any) -> bool:
        """Write the facts of strata as candidates; false if they are too many."""
        found, parts_of_facts = [], []
        for number in (number for own in self.tables_of[first:stop] for number in own):
            facts, row = given.relations.get(self.names[number]), self.rows_of_table.get(number)
            if facts is None and row is None:
                continue
            table = self.tables[number]
            columns, variables = ([], _NO_FACTS) if facts is None else facts.given(len(table.types))
            count = len(variables) + (row is not None)
            if not self.has_room_for(number, count):
                return False
            if not self.is_proofs and count >= len(table.log) and not self.has_room(number, count + 1):
                return False
            words = self.merge.candidates[number].rows(count)
            for c, column in enumerate(columns):
                words[: len(variables), c] = column
            if not columns:
                words[:] = 0
            if row is not None:
                words[-1] = [word_of(term.value, term.type, given.symbols) for term in row] or [0]
                variables = np.append(variables, -1)
            found.append((number, count))
            parts_of_facts.append(variables)
        if not found:
            return True
        variables = np.concatenate(parts_of_facts)
        is_random = variables >= 0
        tags = algebra.one(len(variables))
        if is_random.any():
            if self.is_proofs:
                tags[is_random] = algebra.store.singles_of(parts_of_facts)
            else:
                tags[is_random] = algebra.fact_tags(variables[is_random])
        is_kept = ~algebra.is_zero(tags)
        keeps_all, start = bool(is_kept.all()), 0
        for number, count in found:
            candidates, kept = self.merge.candidates[number], slice(start, start + count)
            part, start = tags[kept], start + count
            if not keeps_all and not self.merge.is_certain[number]:
                rows = np.flatnonzero(is_kept[kept])
                words = candidates.rows(count)
                words[: len(rows)] = words[rows]
                part, count = part[rows], len(rows)
            candidates.write_tags(part)
            if isinstance(self.merge, Proofs):
                self.merge.arrays[number]["candidate_rows"][:count] = -1
            self.memory[self.places_of_tables[number] + w.NUM_CANDIDATES] = count
        return True

    def call_with(self, algebra: Any) -> int:
        """Have the driver go on; returns why it comes back."""
        return self.merge.call(self, algebra.store) if isinstance(self.merge, Proofs) else self.call()

    def is_as_planned(self, given: FactStore, ram: m.Ram) -> bool:
        """Whether the stores that are next would join in their order in any run."""
        number = int(self.control[w.STRATUM])
        part = "once" if self.control[w.ROUND] == 0 else "loop"
        for table in range(len(self.tables)):
            self.read_table(table)
        stores, tables = getattr(ram.strata[number], part), dict(zip(self.names, self.tables))
        known = Assumed(Statistics(tables, given.symbols), ram.strata[number], {})
        return all(map(operator.is_, planned(ram, (number, part), stores, known, False), stores))

    def goes_to_end(self, given: FactStore, ram: m.Ram, algebra: Any, until: int) -> bool:
        """Run the strata before one; false if this is no small run."""
        control = self.control
        control[w.UNTIL] = until
        while (reason := self.call_with(algebra)) != w.ENDED:
            if reason == w.PROOFS_FULL:
                algebra.store.make_wanted_room()
            elif reason == w.LIMITS:
                algebra.store.deadline.remaining()
            elif reason == w.PLAN_AGAIN:
                if not self.is_as_planned(given, ram):
                    return False
            elif reason == row_sets.LOG_FULL and control[w.GOES_ON]:
                target = int(self.words[control[w.AT], w.TARGET])
                if self.is_proofs and not self.has_room_for(target, self.merge.candidates[target].room + 1):
                    return False
                if not self.is_proofs and not self.has_room(target, 2 * len(self.tables[target].log)):
                    return False
            elif reason == row_sets.LOG_FULL:
                number = int(control[w.ENDING])
                at = self.places_of_tables[number]
                if not self.has_room(number, int(self.memory[at + w.SIZE] + self.memory[at + w.NUM_CANDIDATES]) + 1):
                    return False
            else:
                return False
        # Where dropped proofs may come back, another run offers all rows again.
        return not algebra.has_dropped()

    def run(self, given: FactStore, ram: m.Ram, algebra: Any) -> Begun | None:
        began = perf_counter()
        if sum(sum(map(len, facts.variables)) for facts in given.relations.values()) > self.most_facts:
            return None
        self.control[:], self.activity[:] = self.fresh, 0
        self.memory[w.LEFT] = self.most_candidates
        self.memory[self.bases + w.NUM_CANDIDATES] = 0
        if self.memory[w.NEXT_ROUND] > MOST_ROUNDS and isinstance(self.merge, Sums):
            self.merge.forget_rounds(self)
        if isinstance(self.merge, Proofs):
            self.merge.keep_proofs(self, algebra.store.k)
        for place, constant in self.constants:
            self.memory[place] = word_of(constant.value, constant.type, given.symbols)
        first = 0
        for stop in self.stops:
            # A stratum that negates has its facts before.
            if not self.has_facts(given, first, stop + 1, algebra) or not self.goes_to_end(given, ram, algebra, stop):
                if isinstance(self.merge, Proofs):
                    self.merge.forget()
                return None
            first = stop + 1
            if stop in self.negated:
                algebra.may_deny(given.may_be_denied(ram, stop))
            for number in self.negated.get(stop, ()):
                size = int(self.memory[self.places_of_tables[number] + w.SIZE])
                assert isinstance(self.merge, Proofs)
                self.merge.arrays[number]["negated"][:size] = algebra.negate(self.tables[number].tags[:size])
        outputs = {}
        for name in self.outputs:
            number = self.number[name]
            size = int(self.memory[self.places_of_tables[number] + w.SIZE])
            table = outputs[name] = self.tables[number].first_rows(size)
            table.tags, table.stamps = column_of([part[:size].copy() for part in parts_of(table.tags)]), None
        what = self.words.copy(), self.strata[:-1, w.NUM_ROUNDS].copy(), perf_counter() - began
        return Begun(self.number_of_strata, outputs, partial(profile_of, ram, self.stores, self.stratum_of, *what))


_NO_FACTS = np.zeros(0, np.int64)
