"""The RAM machine: strata in order, semi-naive rounds, any tags.

Untagged rows go straight into their table; tagged ones wait for the end of the round, where equal rows are added up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.and_or import OR, TRUE
from derivable.core.diagnostics import DomainError
from derivable.core.progress import NEVER, Deadline
from derivable.datalog.facts import FactColumns, FactStore
from derivable.datalog.ground_graph import GroundGraph
from derivable.datalog.grouping import aggregate
from derivable.datalog.queries import Columns, Queries
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import AggregateRule, BernoulliRule
from derivable.datalog.storage import Table
from derivable.datalog.sums import Sums
from derivable.datalog.tags import Algebra, ColumnTags, GraphTags, SemiringTags, Untagged
from derivable.datalog.values import F64, from_words


@dataclass
class Pending:
    """Tagged candidates of one table in a round: columns, or once they have been many, added up.

    count  of all rounds
    """

    parts: list[tuple[Columns, int, Any]]
    count: int = 0
    sums: Sums | None = None


def run_deadline(time_limit: float | None) -> Deadline:
    """The deadline of a run that begins now."""
    from derivable.circuit.compile_process import checked_time_limit

    hint = "raise time_limit, ask for fewer outputs, or approximate with provenance='topkproofs'"
    return Deadline(checked_time_limit(time_limit), "the run", hint)


class Executor(Queries):
    """One run of a RAM program over its facts. After `run`, `tables` has every relation."""

    def __init__(
        self,
        ram: m.Ram,
        facts: FactStore,
        algebra: Algebra,
        iteration_limit: int | None = None,
        deadline: Deadline = NEVER,
    ):
        new_tags = None if isinstance(algebra, Untagged) else algebra.empty
        stable = m.stable_relations(ram) if isinstance(algebra, ColumnTags) else set()
        tables = {name: Table(name, r.types, new_tags, name in stable) for name, r in ram.relations.items()}
        super().__init__(tables, algebra, facts.symbols, deadline)
        self.ram = ram
        self.facts = facts
        self.algebra = algebra
        self.iteration_limit = iteration_limit
        self.graph: GroundGraph | None = algebra.graph if isinstance(algebra, GraphTags) else None

    def run(self) -> dict[str, Table]:
        for stratum in self.ram.strata:
            if isinstance(self.algebra, GraphTags):
                self.graph_stratum(stratum, self.algebra)
            elif isinstance(self.algebra, ColumnTags):
                self.tagged_stratum(stratum, self.algebra)
            else:
                self.plain_stratum(stratum)
            for name in stratum.relations:
                table = self.tables[name]
                table.visible_size = table.size
                self.complete.add(name)
        # These know the executor and the tables: cycles, which would keep the tables until Python looks for such.
        self.running.clear()
        for table in self.tables.values():
            table.indexes.clear()
        return self.tables

    # Untagged

    def plain_stratum(self, stratum: m.Stratum) -> None:
        for name in stratum.relations:
            columns, variables = self.fact_columns(name)
            if isinstance(self.algebra, Untagged) and (variables >= 0).any():
                # As in any semiring, a fact of probability 0 is not there.
                chances = np.asarray(self.facts.random.probabilities)
                there = (variables < 0) | (chances[variables] > 0)
                columns, variables = [column[there] for column in columns], variables[there]
            self.tables[name].insert(columns, len(variables))
        for instruction in stratum.once:
            self.insert_plain(instruction)
        if stratum.loop:
            self.plain_loop(stratum)

    def plain_loop(self, stratum: m.Stratum) -> None:
        for name in stratum.relations:
            self.tables[name].stable_size = self.tables[name].visible_size = 0

        def has_news(name: str) -> bool:
            table = self.tables[name]
            table.stable_size, table.visible_size = table.visible_size, table.size
            table.recent = slice(table.stable_size, table.visible_size)
            return table.visible_size > table.stable_size

        for instructions, _ in self.rounds(stratum, has_news):
            for instruction in instructions:
                self.insert_plain(instruction)

    def rounds(
        self, stratum: m.Stratum, has_news: Callable[[str], bool]
    ) -> Iterator[tuple[list[m.Store], Iterable[str]]]:
        """For each round the instructions that read recent rows, and the relations to look at next.

        `has_news(relation)` makes the rows that the last round found the recent ones, and says whether there are any.
        A relation is looked at again after a round that wrote to it or read its recent rows: looking at all, and
        running all instructions, would cost the square of the rules where news goes through them one by one.
        """
        readers: dict[str, list[int]] = {}
        for place, instruction in enumerate(stratum.loop):
            readers.setdefault(m.recent_relation(instruction.query), []).append(place)
        active: Iterable[str] = stratum.relations
        for _ in itertools.count() if self.iteration_limit is None else range(self.iteration_limit):
            self.deadline.remaining()
            news = [name for name in active if has_news(name)]
            if not news:
                return
            places = sorted(place for name in news for place in readers.get(name, ()))
            instructions = [stratum.loop[place] for place in places]
            active = dict.fromkeys([*news, *(instruction.relation for instruction in instructions)])
            yield instructions, active

    def insert_plain(self, instruction: m.Instruction) -> None:
        table = self.tables[instruction.relation]
        if isinstance(instruction, m.Store):
            for columns, count, _ in self.stored(instruction, keep=False):
                table.insert(columns, count)
        else:
            columns, count, _ = self.special(instruction)
            table.insert(columns, count)

    # Tag columns

    def tagged_stratum(self, stratum: m.Stratum, algebra: ColumnTags) -> None:
        pending = {name: Pending([]) for name in stratum.relations}
        for name in stratum.relations:
            columns, variables = self.fact_columns(name)
            if len(variables):
                tags = algebra.one(len(variables))
                random = variables >= 0
                tags[random] = algebra.fact_tags(variables[random])
                pending[name].parts.append((columns, len(variables), tags))
        for instruction in stratum.once:
            self.collect(instruction, pending[instruction.relation], 1)
        for name in stratum.relations:
            self.merge(self.tables[name], pending[name], algebra, 1)
        if not stratum.loop:
            return
        stamp = 1

        def has_news(name: str) -> bool:
            table = self.tables[name]
            table.visible_size = table.size
            table.round = stamp
            rows = table.recent
            return (rows.stop - rows.start if isinstance(rows, slice) else len(rows)) > 0

        for instructions, active in self.rounds(stratum, has_news):
            stamp += 1
            for instruction in instructions:
                self.collect(instruction, pending[instruction.relation], stamp)
            for name in active:
                self.merge(self.tables[name], pending[name], algebra, stamp)

    def collect(self, instruction: m.Instruction, pending: Pending, stamp: int) -> None:
        is_kept = pending.sums is None
        stores = isinstance(instruction, m.Store)
        parts = self.stored(instruction, is_kept) if stores else iter([self.special(instruction)])
        table, mode = self.tables[instruction.relation], self.algebra
        for part in parts:
            running = self.running.get(id(instruction))
            if not is_kept and pending.sums and running is not None and running.kernel is not None:
                pending.sums.add(*part, stamp)
                continue
            pending.parts.append(part)
            pending.count += part[1]
            if isinstance(mode, SemiringTags) and Sums.is_ready(pending.count, mode.typed):
                pending.sums = pending.sums or Sums(table, mode.typed)
                self.sum_up(pending, mode, stamp)

    def sum_up(self, pending: Pending, algebra: ColumnTags, stamp: int) -> None:
        """Add the columns that wait to the sums."""
        assert pending.sums is not None
        for columns, count, tags in pending.parts:
            keep = np.flatnonzero(~algebra.is_zero(tags))
            if len(keep) < count:
                columns, count, tags = [c[keep] for c in columns], len(keep), tags[keep]
            pending.sums.add(columns, count, tags, stamp)
        pending.parts = []

    def merge(self, table: Table, pending: Pending, algebra: ColumnTags, stamp: int) -> None:
        """Add up equal candidates, then enter them; what is new or not saturated becomes recent in round `stamp`."""
        if pending.sums is not None:
            self.sum_up(pending, algebra, stamp)
            pending.sums.merge(stamp)
            return
        parts, pending.parts = [p for p in pending.parts if p[1]], []
        table.recent = np.empty(0, dtype=np.int64)
        if not parts:
            return
        tags = algebra.concatenate([t for _, _, t in parts])
        columns = [np.concatenate([c[i] for c, _, _ in parts]) for i in range(len(table.types))]
        keep = ~algebra.is_zero(tags)
        if not keep.all():
            tags = tags[keep]
            columns = [c[keep] for c in columns]
        if not len(tags):
            return
        old_size = table.size
        ids = table.insert(columns, len(tags))
        assert table.tags is not None
        order = np.argsort(ids, kind="stable")
        ids, tags = ids[order], tags[order]
        starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        rows = ids[starts]
        if len(rows) < len(ids):
            tags = algebra.reduce(tags, np.concatenate([starts, [len(ids)]]))
        is_old = rows < old_size
        table.tags[rows[~is_old]] = tags[~is_old]
        recent = rows[~is_old]
        if is_old.any():
            old_rows = rows[is_old]
            before = table.tags[old_rows]
            after = algebra.plus(before, tags[is_old])
            table.tags[old_rows] = after
            changed = old_rows[~algebra.saturated(before, after)]
            recent = np.concatenate([changed, recent])
        table.recent = recent
        table.become_recent(recent, stamp)

    # The ground derivation graph

    def graph_stratum(self, stratum: m.Stratum, algebra: GraphTags) -> None:
        if stratum.is_recursive:
            # First which tuples are possible at all, then every derivation of each.
            self.mode = Untagged()
            self.plain_stratum(stratum)
            self.mode = algebra
            for name in stratum.relations:
                table = self.tables[name]
                table.visible_size = table.size
                assert table.tags is not None
                table.tags[: table.size] = algebra.graph.new_nodes(OR, table.size)
        found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for name in stratum.relations:
            table = self.tables[name]
            derivations = found[name] = []
            columns, variables = self.fact_columns(name)
            if len(variables):
                derivations.append((table.insert(columns, len(variables)), algebra.graph.literals_of(variables)))
        for instruction in stratum.full:
            table = self.tables[instruction.relation]
            if isinstance(instruction, m.Store):
                parts = list(self.stored(instruction))
                count = sum(n for _, n, _ in parts)
                if count:
                    columns = [np.concatenate([c[i] for c, _, _ in parts]) for i in range(len(table.types))]
                    factors = algebra.concatenate([t for _, _, t in parts])
                    nodes = algebra.graph.conjunction(factors, count)
            else:
                columns, count, nodes = self.special(instruction)
            if count:
                found[instruction.relation].append((table.insert(columns, count), nodes))
        if stratum.is_recursive:
            self.close_graph_stratum(stratum, found, algebra.graph)
            return
        for name in stratum.relations:
            table = self.tables[name]
            if found[name]:
                ids = np.concatenate([i for i, _ in found[name]])
                nodes = np.concatenate([n for _, n in found[name]])
                assert table.tags is not None
                table.tags[: table.size] = algebra.graph.disjunction_by(ids, nodes, table.size)

    def close_graph_stratum(self, stratum: m.Stratum, found: dict, graph: GroundGraph) -> None:
        tuples, segments, nodes, start = [], [], [], 0
        for name in stratum.relations:
            table = self.tables[name]
            assert table.tags is not None
            tuples.append(table.tags[: table.size].copy())
            for ids, derivation in found[name]:
                segments.append(ids + start)
                nodes.append(derivation)
            start += table.size
        if not segments:
            return
        all_tuples = np.concatenate(tuples)
        certain = graph.close_cycles(all_tuples, np.concatenate(segments), np.concatenate(nodes))
        start = 0
        for name in stratum.relations:
            table = self.tables[name]
            assert table.tags is not None
            table.tags[: table.size][certain[start : start + table.size]] = TRUE
            start += table.size

    # Facts and special instructions

    def fact_columns(self, name: str) -> tuple[Columns, np.ndarray]:
        types = self.ram.relations[name].types
        return self.facts.relations.get(name, FactColumns()).joined(len(types))

    def special(self, instruction: AggregateRule | BernoulliRule) -> tuple[Columns, int, Any]:
        """Columns, count and tags of an aggregate or a choice."""
        if isinstance(instruction, AggregateRule):
            table = self.tables[instruction.relation]
            body = self.tables[instruction.body]
            groups = None if instruction.groups is None else self.tables[instruction.groups]
            return aggregate(instruction, table.types, body, groups, self.mode, self.symbols)
        body = self.tables[instruction.body]
        columns = [body.column(c) for c in range(len(body.types))]
        probabilities = from_words(columns.pop(), F64)
        bad = np.flatnonzero(~((probabilities >= 0.0) & (probabilities <= 1.0)))
        if len(bad):
            raise DomainError(
                f"the tag {probabilities[bad[0]]:g} of a rule is not a probability",
                hint="tags are in [0, 1]",
                source=self.ram.source,
                text=self.ram.text,
                span=instruction.span,
            )
        if isinstance(self.mode, Untagged):
            keep = probabilities > 0.0
            return [c[keep] for c in columns], int(keep.sum()), None
        variables = self.facts.random.add(probabilities)
        if isinstance(self.mode, GraphTags):
            return columns, len(variables), self.mode.graph.literals_of(variables)
        return columns, len(variables), self.mode.fact_tags(variables)
