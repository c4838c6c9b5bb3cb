"""The RAM machine: strata in order, semi-naive rounds, any tags; `stores` is how one store of a round runs.

What happens when: `run` calls `run_stratum` for each stratum, that one of `plain_stratum`, `tagged_stratum` and
`grounding.ground_stratum`, and these `insert` or `collect` for each instruction. The loops of rounds are `plain_rounds`
and `tagged_rounds`: `begin_round` comes before each round, which goes through these instructions or is left, with those
behind it, to the driver (`machine.recursion`); before the first round and after each a shortcut may solve the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from derivable.datalog.facts.columns import FactColumns, any_random
from derivable.datalog.facts.store import FactStore
from derivable.datalog.foreign.function import ForeignError
from derivable.datalog.fused.state import Columns
from derivable.datalog.machine.machine import are_compiled
from derivable.datalog.machine.merges import merge_of
from derivable.datalog.machine.recursion import Recursion
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.samples import is_counted
from derivable.datalog.run import cuts
from derivable.datalog.run.grounding import ground_stratum
from derivable.datalog.run.limits import Limits, Watch
from derivable.datalog.run.overflow import warn_of_overflow
from derivable.datalog.run.profile import COLUMNS, Profile, Route
from derivable.datalog.run.rounds import Rounds
from derivable.datalog.run.stores import Stores
from derivable.datalog.shortcuts import Shortcut, shortcuts
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.ground_graph import GroundGraph
from derivable.datalog.tags.random_facts import VALUE
from derivable.datalog.tags.tags import Algebra, ColumnTags, GraphTags, SemiringTags, Untagged

if TYPE_CHECKING:
    from derivable.datalog.run.pending import Pending


class FinishedStrata(NamedTuple):
    """The results of the first strata of a run: the tables that others read, and what says what they have spent."""

    number_of_strata: int
    tables: dict[str, Table]
    profile: Callable[[], Profile]


class Executor(Stores):
    """One run of a RAM program over its facts. After `run`, `tables` has every relation, of the strata of `begun` their
    outputs alone.
    """

    def __init__(
        self,
        ram: m.Ram,
        facts: FactStore,
        algebra: Algebra,
        watch: Watch | None = None,
        tables: dict[str, Table] | None = None,
        goal: str | None = None,
        begun: FinishedStrata | None = None,
    ):
        watch = watch or Watch(Limits())
        new_tags = None if isinstance(algebra, Untagged) else algebra.empty
        stable = m.stable_relations(ram) if isinstance(algebra, ColumnTags) else set()
        if tables is None:
            relations, tables = dict(ram.relations), {}
            if begun is not None:
                for name in (name for stratum in ram.strata[: begun.number_of_strata] for name in stratum.relations):
                    del relations[name]
                tables |= begun.tables
            tables |= {name: Table(name, r.types, new_tags, name in stable) for name, r in relations.items()}
        super().__init__(ram, facts, algebra, watch, tables)
        self.goal = goal
        # Of the stratum with tags that runs.
        self.pending: dict[str, Pending] = {}
        # The relations of keys, and those that have rows for these, that this run writes to.
        self.keyed: set[str] = set()
        self.finished = 0
        self.begun = begun
        if begun is not None:
            self.complete |= begun.tables.keys()
            self.finished = sum(map(len, begun.tables.values()))
        self.graph: GroundGraph | None = algebra.graph if isinstance(algebra, GraphTags) else None
        # Whether the facts that a stratum is offered are all that it has, not only those that are added.
        self.is_anew = False

    def run(self) -> dict[str, Table]:
        self.watch.executor = self
        first = 0 if self.begun is None else self.begun.number_of_strata
        for number in range(first, len(self.ram.strata)):
            self.run_stratum(number)
            if self.has_goal():
                break
        # These know the executor and the tables: cycles, which would keep the tables until Python looks for such.
        self.watch.executor = None
        self.give_reasons()
        self.store_states.clear()
        for table in self.tables.values():
            table.indexes.clear()
        return self.tables

    def give_reasons(self) -> None:
        """Record why no kernel has computed a store."""
        for key, store_state in self.store_states.items():
            effort = self.efforts.get(key)
            if effort and effort.route.name == COLUMNS:
                effort.route = Route(COLUMNS, *store_state.why_columns())

    def run_stratum(self, number: int) -> None:
        """Compute the relations of one stratum, those before it being complete."""
        began, self.number = perf_counter(), number
        self.watch.stratum, self.watch.round = number, 0
        with self.placed():
            if any(self.ram.relations[name].lattice is not None for name in self.ram.strata[number].relations):
                from derivable.datalog.run.lattices import run_lattices

                run_lattices(self, number)
            elif self.ram.strata[number].timed is not None:
                from derivable.datalog.run.timed import run_timed

                run_timed(self, number)
            elif isinstance(self.algebra, GraphTags):
                ground_stratum(self, number, self.algebra)
            elif isinstance(self.algebra, ColumnTags):
                self.tagged_stratum(number, self.algebra)
            else:
                self.plain_stratum(number)
        for name in self.ram.strata[number].relations:
            table = self.tables[name]
            table.visible_size = table.size
            self.complete.add(name)
            if is_counted(name):
                self.finished += table.size
                self.stratum_effort[number].size += table.size
        with self.placed():
            warn_of_overflow(self.ram, number, self.tables, self.mode, self.symbols, self.watch)
        self.watch.tuples = self.finished
        self.watch.remaining()
        self.stratum_effort[number].seconds += perf_counter() - began

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Errors of foreign functions say where in the program they are."""
        try:
            yield
        except ForeignError as error:
            raise error.placed(self.ram.source, self.ram.text) from error.__cause__

    def has_goal(self) -> bool:
        """Whether the run may end, because it has the tuple that it is for."""
        return self.goal is not None and self.tables[self.goal].size > 0

    def rounds(self, number: int, loop: tuple[m.Store, ...] | None = None) -> Rounds:
        """The rounds of a stratum whose relations have what they begin with, `loop` being repeated instead of its
        instructions."""
        relations = self.stratum(number).relations
        if loop is not None:
            self.plan_again = math.inf
            return Rounds(relations, loop)
        self.plan_again = policy().far_off * max(policy().far_off, sum(self.tables[name].size for name in relations))
        return Rounds(relations, self.instructions(number, "loop"))

    def counts_rounds(self) -> bool:
        """Whether a limit counts rounds: then they are those of the rules as they stand."""
        limits = self.watch.limits
        return limits.iteration_limit is not None or limits.round_limit is not None

    def matched(self, number: int, loop: tuple[m.Store, ...], of: str) -> list[Shortcut]:
        """The shortcuts of the form of a recursion, in which `loop` is repeated; `of` what it has, see `Shortcut`."""
        fitting = (one.matches(self, number, loop) for one in shortcuts() if one.of == of)
        return [one for one in fitting if one is not None]

    def solved(self, matched: list[Shortcut]) -> bool:
        """Whether a shortcut ends the recursion, between two rounds."""
        return any(one.pays() and one.solve() for one in matched) if not self.has_goal() else False

    def begin_round(self, number: int, rounds: Rounds) -> bool:
        """Before each round of a recursive stratum; false ends its recursion."""
        effort = self.stratum_effort[number]
        if self.has_goal() or effort.rounds == self.watch.limits.iteration_limit:
            return False
        self.watch.begin_round(number, effort.rounds)
        self.look_for_orders(number, rounds)
        effort.rounds += 1
        return True

    def look_for_orders(self, number: int, rounds: Rounds) -> bool:
        """Choose the orders of a recursion again, if it has grown enough; whether they are others."""
        rows = self.stratum_effort[number].rows
        if rows < self.plan_again:
            return False
        self.plan_again = policy().far_off * max(1, rows)
        loop = self.instructions(number, "loop")
        if loop == rounds.loop:
            return False
        for instruction, before in zip(loop, rounds.loop, strict=True):
            if instruction != before and id(instruction) not in self.efforts:
                self.effort(instruction).since = self.stratum_effort[number].rounds + 1, rows
        rounds.change(loop)
        return True

    def profile(self) -> Profile:
        """What the run has spent so far."""
        strata, efforts = self.stratum_effort, list(self.efforts.values())
        if self.begun is not None:
            before = self.begun.profile()
            strata, efforts = [*before.strata, *strata[len(before.strata) :]], [*before.rules, *efforts]
        return Profile(self.ram, strata, efforts, self.counts)

    # Untagged

    def plain_stratum(self, number: int, first: tuple[m.Instruction, ...] | None = None) -> None:
        """Run a stratum: facts, what comes first (`once` by default), and the recursion."""
        stratum = self.ram.strata[number]
        for name in stratum.relations:
            columns, variables = self.initial_facts(name).as_stored(len(self.ram.relations[name].types))
            if isinstance(self.algebra, Untagged) and any_random(variables):
                # Tags count nothing here, but an entry of a tensor that is zero is none.
                random = self.facts.random
                is_zero = (np.asarray(random.probabilities) == 0) & (random.kinds_of(slice(None)) == VALUE)
                there = (variables < 0) | ~is_zero[variables]
                if not there.all():
                    columns, variables = [column[there] for column in columns], variables[there]
            self.watch.begin_instruction(self.tables[name])
            self.tables[name].insert(columns, len(variables), self.watch.remaining)
            self.watch.end_instruction()
        parts: list[str] = []
        for instruction in self.instructions(number, "once", True) if first is None else first:
            part = self.part(instruction)
            self.insert(instruction)
            if part is not None:
                part.visible_size = part.size
                self.complete.add(part.name)
                parts.append(part.name)
        for name in parts:
            del self.tables[name]
            self.complete.remove(name)
        if stratum.loop:
            self.plain_loop(number, is_first=first is None)

    def plain_loop(self, number: int, is_first: bool, loop: tuple[m.Store, ...] | None = None) -> None:
        """Run the recursion of a stratum to its end.

        is_first  whether nothing is combined yet
        loop      what is repeated instead of its instructions
        """
        rounds = self.rounds(number, loop)
        is_free = is_first and not self.counts_rounds()
        has_values = any(self.tables[name].joins_values for name in rounds.relations)
        matched = self.matched(number, rounds.loop, "values" if has_values else "rows") if is_free else []
        if self.solved(matched):
            return
        may_cut = is_free and not has_values and isinstance(self.algebra, Untagged)
        may_cut = may_cut and loop is None and self.goal is None and self.watch.limits.tuple_limit is None
        if may_cut and any(map(m.joins_many, rounds.loop)):
            self.cuts = cuts.Cuts(self, number)
            if self.cuts.begin():
                rounds = self.rounds(number)
                matched = self.matched(number, rounds.loop, "rows")
        self.plain_rounds(number, rounds, matched)
        if self.cuts is not None:
            self.cuts.end()
            self.cuts = None

    def plain_rounds(self, number: int, rounds: Rounds, matched: list[Shortcut]) -> None:
        recursion: Recursion | None = None
        in_pieces = not self.counts_rounds() and m.reads_news_alone(rounds.loop, rounds.relations)
        begins = partial(self.begin_round, number, rounds)
        for instructions, _ in rounds.run(lambda name: self.tables[name].take_news(), begins):
            if self.may_drive(number, instructions, rounds.rows):
                if recursion is None or recursion.stores is not rounds.loop:
                    recursion = Recursion(self, rounds.loop, rounds.relations, in_pieces)
                goes_on = recursion.run(min((one.rows_left for one in matched), default=math.inf))
                while goes_on and self.watch.room != 0 and not self.look_for_orders(number, rounds):
                    if self.solved(matched):
                        return
                    goes_on = recursion.go_on(min((one.rows_left for one in matched), default=math.inf))
                rounds.look_at_all()
            else:
                for instruction in instructions:
                    self.insert(instruction)
            if self.solved(matched):
                return

    def may_drive(self, number: int, instructions: list[m.Store], rows: int) -> bool:
        """Whether the driver runs a round of so many recent rows, and those behind it: it has to be worth its loading.

        What a stratum has cost so far counts with the runs of the program before this one.
        """
        if self.counts is not None or self.goal is not None:
            return False
        key = "work", number
        work = self.plans[key] = self.plans.get(key, 0) + rows + len(instructions) * policy().call_rows
        if work < policy().few_rows:
            return False
        relations = self.stratum(number).relations
        for name in relations:
            table = self.tables[name]
            if table.joins_values or self.stratum_effort[number].rows < table.rows_worth_kernels:
                return False
        # Below `many_rows` few of its stores have kernels, and the driver costs more than it saves.
        return rows <= policy().few_rows or work >= policy().many_rows

    # Tag columns

    def tagged_stratum(self, number: int, algebra: ColumnTags, first: tuple[m.Instruction, ...] | None = None) -> None:
        """As `plain_stratum`."""
        from derivable.datalog.run.pending import Pending

        stratum = self.ram.strata[number]
        stamp = 1 + max(self.tables[name].round for name in stratum.relations)
        any_order = self.watch.limits.iteration_limit is None
        pending = {
            name: Pending(
                self.tables[name], algebra, self.ram.relations[name].is_certain, any_order, bool(stratum.loop)
            )
            for name in stratum.relations
        }
        self.pending = pending
        effort = self.stratum_effort[number]
        instructions = self.instructions(number, "once") if first is None else first
        while True:
            for name in stratum.relations:
                columns, variables = self.fact_columns(name)
                if len(variables):
                    tags = algebra.one(len(variables))
                    random = variables >= 0
                    tags[random] = algebra.fact_tags(variables[random])
                    pending[name].parts.append((columns, len(variables), tags))
                    pending[name].efforts.append(None)
            algebra.may_deny(self.facts.may_be_denied(self.ram, number))
            for instruction in instructions:
                self.collect(instruction, pending[instruction.relation], stamp)
            for waiting in pending.values():
                effort.rows += self.merge(waiting, stamp)
            if stratum.loop:
                stamp = self.tagged_rounds(number, pending, stamp)
            if not algebra.has_dropped() or effort.rounds == self.watch.limits.iteration_limit:
                return
            # Rows have room for what they had none for in an earlier round: all is offered again.
            stamp, instructions, self.is_anew = stamp + 1, self.instructions(number, "full"), True

    def tagged_rounds(self, number: int, pending: dict[str, Pending], stamp: int) -> int:
        """Go on with a recursion from what is recent in round `stamp`; returns the last round."""

        def take_news(name: str) -> int:
            return self.tables[name].take_tagged_news(stamp)

        stratum, effort, rounds = self.ram.strata[number], self.stratum_effort[number], self.rounds(number)
        any_order = self.watch.limits.iteration_limit is None
        matched = self.matched(number, rounds.loop, "tags") if any_order else []
        if self.solved(matched):
            return stamp
        recursion: Recursion | None = None
        # Of larger rounds rows wait for better tags, where these have an order.
        most = policy().many if any(one.has_order for one in pending.values()) else math.inf
        for instructions, active in rounds.run(take_news, partial(self.begin_round, number, rounds)):
            stamp, rows = stamp + 1, rounds.rows
            if rows <= most and self.may_drive_tags(instructions, list(pending.values()), rows, bool(matched)):
                if recursion is None or recursion.stores is not rounds.loop:
                    recursion = Recursion(self, rounds.loop, stratum.relations)
                before = [self.store_state(store).candidates for store in rounds.loop]
                looks_again = bool(matched) and pending[stratum.relations[0]].may_have_order
                recursion.run(stamp=stamp, looks_again=looks_again, most_of_round=most)
                stamp = recursion.stamp
                for store, count in zip(rounds.loop, before):
                    pending[store.relation].count += self.store_state(store).candidates - count
                rounds.look_at_all()
            else:
                for instruction in instructions:
                    self.collect(instruction, pending[instruction.relation], stamp)
                for name in active:
                    effort.rows += self.merge(pending[name], stamp)
            if self.solved(matched):
                break
        return stamp

    def may_drive_tags(
        self, instructions: list[m.Store], pending: Sequence[Pending], rows: int, may_be_best_first: bool
    ) -> bool:
        """The same of a round with tags.

        It has the tags of a semiring, while no row waits for better ones to be propagated, or is to. Stores run in
        their order, as over columns, on which the bits of sums depend.
        """
        if not isinstance(self.algebra, SemiringTags):
            return False
        if may_be_best_first and pending[0].may_have_order and pending[0].is_many:
            return False
        if any(one.has_waiting_rows for one in pending) or not self.may_drive(self.number, instructions, rows):
            return False
        merge = merge_of(self)
        return are_compiled(kernel for one in pending for kernel in merge.kernels_of(one.table))

    def merge(self, pending: Pending, stamp: int) -> int:
        """The end of round `stamp` for a table; returns how many rows are new."""
        self.watch.begin_instruction(pending.table)
        pending.merge(stamp)
        self.watch.end_instruction()
        added, pending.rows = pending.rows, 0
        return added

    # Facts

    def initial_facts(self, name: str) -> FactColumns:
        """The facts that a relation is to begin with."""
        return self.facts.relations.get(name, FactColumns())

    def fact_columns(self, name: str) -> tuple[Columns, np.ndarray]:
        """(columns [row] int64, variables) of these."""
        return self.initial_facts(name).joined(len(self.ram.relations[name].types))
