"""Going on from a finished run with more facts, or fewer: which strata they reach, and what becomes of these.

A stratum that reads no changed relation stays as it is. One that reads changed relations through atoms alone goes on
semi-naively: for each such atom its rules run once with the news of that atom, then its recursion goes on. Where equal
derivations add nothing, what loses facts loses what follows from them, and gets back what has another derivation
(`deletion`). Without tags, rows that a negated relation has lost are news, those that it has got take away, and an
aggregate is computed again for the groups whose rows have changed. All other strata are recomputed: with tags, what is
negated, aggregated or chosen from depends on all of it, and a sum of derivations would count some twice. So are those
that read what was recomputed and has changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.and_or import TRUE
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.api import deletion
from derivable.datalog.api.changes import NEGATION, Change, Step, change_stores, reads_of
from derivable.datalog.facts.columns import FactColumns
from derivable.datalog.facts.store import FactStore
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.overflow import warn_of_overflow
from derivable.datalog.shortcuts import shortcuts
from derivable.datalog.tables.overlay import OverlayTable, may_be_overlaid
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import parts_of
from derivable.datalog.tags.tags import Algebra, ColumnTags, GraphTags, Untagged

if TYPE_CHECKING:
    from derivable.datalog.api.evaluation import Evaluation
    from derivable.datalog.run.limits import Watch


NONE_GOING = deletion.Going({}, {}, ())


@dataclass(frozen=True)
class Before:
    """A table as it was before it was added to."""

    table: Table
    size: int
    tags: Any
    stamps: Any
    round: int

    def again(self) -> Table:
        """The table as it was."""
        table = self.table.fork(self.size)
        table.tags, table.stamps, table.round = self.tags, self.stamps, self.round
        return table


class Continuation(Executor):
    """A run that goes on from the tables of another one. Tables that are added to change in place.

    changes  relation -> whether it only got more tuples, or better tags
    causes   relation -> the relations with names of the program whose changes have reached it, for auxiliary ones
    reasons  relation -> why it was recomputed
    journal  relation -> its table before
    left     the facts from before that stay, gone: those that do not, lost: the relations that have fewer
    losses   relation -> what it has lost, if it is not recomputed; added: the relations that have new rows
    sizes    relation -> rows that it had before it got more; tags: the tags of these
    going    what goes from the stratum that is reached and may come back
    """

    def __init__(
        self,
        evaluation: Evaluation,
        added: FactStore,
        algebra: Algebra,
        watch: Watch,
        left: FactStore,
        gone: FactStore,
    ):
        tables = dict(evaluation.tables)
        super().__init__(evaluation.ram, added, algebra, watch, tables)
        self.evaluation = evaluation
        self.left, self.gone = left, gone
        self.losses: dict[str, deletion.Lost] = {}
        self.added: set[str] = set()
        self.sizes: dict[str, int] = {}
        self.tags: dict[str, Any] = {}
        self.going = NONE_GOING
        before, after = evaluation.facts.relations, left.relations
        self.lost = {name for name in before.keys() | after.keys() if before.get(name) is not after.get(name)}
        self.reads = reads_of(self.ram)
        self.complete = set(tables)
        self.changes: dict[str, bool] = {}
        self.causes: dict[str, tuple[str, ...]] = {}
        self.reasons: dict[str, str] = {}
        self.journal = evaluation.journal
        self.finished = watch.tuples = sum(table.size for table in tables.values())

    def go_on(self) -> Change:
        """Run what the added facts reach."""
        self.watch.executor = self
        changed = [name for name, facts in self.facts.relations.items() if len(facts)]
        waiting = sorted({self.reads.home[name] for name in {*changed, *self.lost}})
        seen, steps = set(waiting), []
        while waiting:
            number = heapq.heappop(waiting)
            steps.append(self.reach(number))
            for name in self.ram.strata[number].relations:
                for reader in self.reads.readers.get(name, ()) if name in self.changes else ():
                    if reader not in seen:
                        seen.add(reader)
                        heapq.heappush(waiting, reader)
        self.watch.executor = None
        self.store_states.clear()
        return Change(tuple(steps), len(self.ram.strata) - len(steps))

    def reach(self, number: int) -> Step:
        stratum = self.ram.strata[number]
        before = sum(self.tables[name].size for name in stratum.relations)
        news = frozenset(name for name in self.reads.uses[number] if name in self.changes)
        reason = self.reason(number, news)
        causes = {other for name in news for other in (self.causes[name] if name.startswith("#") else (name,))}
        for name in stratum.relations:
            self.causes[name] = tuple(sorted(causes))
        self.is_anew = False
        rule = self.groups_apart(number)
        if reason is None and not (self.regroup(rule, news) if rule else self.delete(number, news)):
            reason = "it may lose much"
        if reason is not None:
            self.is_anew = True
            self.recompute(number)
        elif rule is None:
            self.extend(number, news)
        self.going = NONE_GOING
        for name in stratum.relations:
            self.reasons[name] = reason or ""
        after = sum(self.tables[name].size for name in stratum.relations)
        return Step(number, stratum.relations, reason, after - before, self.stratum_effort[number].rounds)

    def reason(self, number: int, news: Collection[str]) -> str | None:
        """Why a stratum cannot go on."""
        stratum, algebra, record = self.ram.strata[number], self.algebra, self.evaluation.record
        is_untagged = isinstance(algebra, Untagged)
        is_idempotent = is_untagged or (
            isinstance(algebra, ColumnTags)
            and isinstance(record, Semiring)
            and record.idempotent_plus
            and record.saturated is None
            and record.distributive
        )
        for name in stratum.relations:
            if name in self.lost and not (is_idempotent and name in self.gone.relations):
                return "it has lost facts" if name.startswith("#") else f"`{name}` has lost facts"
            if self.ram.relations[name].lattice is not None:
                return f"`{name}` has a lattice"
        if stratum.timed is not None:
            return "it goes from one time to the next"
        for name in sorted(news):
            is_auxiliary = name.startswith("#")
            shown = " and ".join(f"`{other}`" for other in self.causes[name][:3]) if is_auxiliary else f"`{name}`"
            why = self.reads.uses[number][name]
            if why is not None and not (self.groups_apart(number) or (why == NEGATION and is_untagged)):
                return f"it reads {shown} through {why}"
            if not self.changes[name]:
                return self.reasons[name] if is_auxiliary else f"{shown} was recomputed"
        if self.evaluation.iteration_limit is not None and stratum.is_recursive:
            return "its rounds are limited"
        if any(isinstance(i, m.Store) and i.origin is None for i in stratum.full):
            return "its rules are not known"
        if isinstance(algebra, Untagged):
            return next(filter(None, (one.starts_over(self, number) for one in shortcuts())), None)
        if isinstance(algebra, GraphTags):
            return "its derivations are grounded again" if stratum.full else None
        if is_idempotent:
            return None
        if not stratum.full and (isinstance(record, Semiring) or self.all_are_new(stratum.relations)):
            return None
        return f"tags of {record.name!r} depend on the order of derivations"

    def all_are_new(self, relations: tuple[str, ...]) -> bool:
        """Whether none of the added facts is there already."""
        for name in relations:
            columns, variables = self.initial_columns(name)
            if len(variables) and (self.tables[name].find(columns, len(variables)) >= 0).any():
                return False
        return True

    def has_initial_facts(self, name: str) -> bool:
        """Whether facts are added to a relation."""
        return len(super().initial_facts(name)) > 0

    # Losing

    def delete(self, number: int, news: frozenset[str]) -> bool:
        """Have a stratum lose what follows from what is lost; false if it is better recomputed."""
        stratum_relations, uses = self.ram.strata[number].relations, self.reads.uses[number]
        lower = {name: self.losses[name] for name in news if name in self.losses}
        new = {name: self.added_rows(name) for name in news & self.added if uses[name] == NEGATION}
        if not lower and not new and self.lost.isdisjoint(stratum_relations):
            return True
        has_news = bool(news & self.added) or any(uses[name] == NEGATION for name in news)
        going = deletion.going(self, number, lower, new, self.gone, self.left.relations, has_news)
        if going is None:
            return False
        self.going = going
        for name, gone in going.gone.items():
            if gone.size:
                self.hide(name, gone)
        if (
            not self.ram.strata[number].full
            and isinstance(self.algebra, Untagged)
            and not any(map(self.has_initial_facts, stratum_relations))
        ):
            # Facts that go do not come back.
            self.changes |= dict.fromkeys(self.losses.keys() & set(stratum_relations), True)
            self.going = NONE_GOING
        return True

    def added_rows(self, name: str) -> Table:
        """The rows that a relation has got, in another table."""
        table = self.tables[name]
        made, rows = Table(name, table.types), table.recent
        if name in self.added:
            rows = rows if isinstance(rows, np.ndarray) else np.arange(rows.start, rows.stop)
            made.insert_from(table, rows)
            made.visible_size = made.size
        return made

    # Aggregates

    def groups_apart(self, number: int) -> AggregateRule | None:
        """The aggregate that a stratum is, if each of its groups may be computed apart."""
        full = self.ram.strata[number].full
        if len(full) == 1 and isinstance(full[0], AggregateRule) and isinstance(self.algebra, Untagged):
            return full[0] if full[0].num_group else None
        return None

    def regroup(self, rule: AggregateRule, news: Collection[str]) -> bool:
        """Compute the groups whose rows have changed; false if they are many."""
        name, columns = rule.relation, tuple(range(rule.num_group))
        table = self.tables[name]
        keys = Table(name, table.types[: rule.num_group])
        for read in news:
            some = [self.added_rows(read), *([self.losses[read].gone] if read in self.losses else [])]
            for changed in some:
                keys.insert([changed.column(c) for c in columns], changed.size)
        if keys.size > policy().few + policy().recomputed_part * max(table.size, self.tables[rule.body].size):
            return False
        read_again = [_rows_with(self.tables[of], keys) for of in (rule.body, *([rule.groups] if rule.groups else []))]
        words, count, _ = self.aggregated(rule, *read_again)
        old, new = _rows_with(table, keys), Table(name, table.types)
        new.insert(words, count)
        gone, more = old.without(old.rows_in(new)), new.without(new.rows_in(old))
        if gone.size:
            self.hide(name, gone)
        self.write_to(name)
        self.tables[name].insert_from(more)
        self.finish_relation(name)
        self.watch.tuples = self.finished
        self.watch.remaining()
        return True

    def hide(self, name: str, gone: Table) -> None:
        """Have a relation lose rows, all of which it has."""
        before = self.tables[name]
        self.losses[name] = deletion.Lost(before, gone)
        self.tables[name] = _losing(before, gone)
        self.finished -= gone.size

    def lose(self, name: str) -> None:
        """Leave what has not come back as it was of what a relation has lost."""
        lost, table = self.losses.pop(name), self.tables[name]
        if table.tags is None and table.size == self.sizes[name]:
            # Nothing has come back.
            self.losses[name], self.changes[name] = lost, True
            return
        columns = lost.gone.all_columns([np.int64] * len(table.types))
        rows = table.find(columns, lost.gone.size)
        has_come = rows >= 0
        if table.tags is not None:
            old = lost.before.find(columns, lost.gone.size)
            has_come &= _are_equal(table.tags, rows, lost.before.tags, old)
        # What is as it was is no news.
        recent = table.recent
        if isinstance(recent, np.ndarray):
            table.recent = np.setdiff1d(recent, rows[has_come])
        elif recent.stop - recent.start == np.count_nonzero(has_come):
            table.recent = slice(table.size, table.size)
        if not has_come.all():
            gone = lost.gone.without(np.flatnonzero(has_come))
            self.losses[name], self.changes[name] = deletion.Lost(lost.before, gone), True

    # Going on

    def extend(self, number: int, news: frozenset[str]) -> None:
        stratum, algebra, uses = self.ram.strata[number], self.algebra, self.reads.uses[number]
        more = news & self.added
        released = frozenset(name for name in news & self.losses.keys() if uses[name] == NEGATION)
        if not (self.going.gone or more or released or any(map(self.has_initial_facts, stratum.relations))):
            return
        self.number = number
        self.watch.stratum, self.watch.round = number, 0
        for name in stratum.relations:
            self.write_to(name)
            self.complete.discard(name)
        first = ()
        if more or released:
            first = change_stores(self.ram, number, more, released, isinstance(algebra, Untagged))
        gone_tables = {name: self.losses[name].gone for name in released} | self.going.gone
        for name, gone in gone_tables.items():
            if isinstance(algebra, ColumnTags):
                gone.new_tags, gone.tags = algebra.empty, algebra.one(len(gone.log))
            self.tables[deletion.GONE + name] = gone
            self.complete.add(deletion.GONE + name)
        first += self.going.back if self.going.gone else ()
        with self.placed():
            if isinstance(algebra, GraphTags):
                for name in stratum.relations:
                    self.extend_graph(name, algebra)
            elif isinstance(algebra, ColumnTags):
                self.tagged_stratum(number, algebra, first)
            else:
                self.plain_stratum(number, first)
        for name in gone_tables:
            del self.tables[deletion.GONE + name]
            self.complete.remove(deletion.GONE + name)
        for name in stratum.relations:
            self.finish_relation(name)
        with self.placed():
            warn_of_overflow(self.ram, number, self.tables, self.mode, self.symbols, self.watch)
        self.watch.tuples = self.finished
        self.watch.remaining()

    def write_to(self, name: str) -> None:
        """Make the table of a relation one that nobody else reads, and remember what it is."""
        table = self.tables[name]
        self.sizes[name] = table.size
        is_shared = self.evaluation.is_shared(name)
        is_unshared_layer = isinstance(table, OverlayTable) and not is_shared
        if name in self.losses:
            # Nobody else has it.
            pass
        elif may_be_overlaid(table) and not is_unshared_layer:
            table = self.tables[name] = OverlayTable.on(table)
        elif is_shared:
            table = self.tables[name] = table.fork(with_set=True)
        elif name not in self.journal:
            self.journal[name] = Before(table, table.size, table.tags, table.stamps, table.round)
        if table.tags is not None:
            # Tags change where they are, and others may hold them.
            assert table.new_tags is not None
            tags = table.new_tags(len(table.log))
            for part, old in zip(parts_of(tags), parts_of(table.tags)):
                part[: table.size] = old[: table.size]
            self.tags[name], table.tags = table.tags, tags
        # Those of rows that do not change.
        table.indexes = {key: index for key, index in table.indexes.items() if index.kind == "chain"}
        if table.stamps is not None:
            stamps = np.zeros(len(table.log), np.int32)
            stamps[: table.size] = table.stamps[: table.size]
            table.stamps = stamps

    def finish_relation(self, name: str) -> None:
        """What is new in a table is recent for the strata to come."""
        table, old = self.tables[name], self.sizes[name]
        table.visible_size = table.size
        table.recent = slice(old, table.size)
        if table.tags is not None:
            rows = slice(0, old)
            is_same = _are_equal(table.tags, rows, self.tags[name], rows)
            table.recent = np.concatenate([np.flatnonzero(~is_same), np.arange(old, table.size)])
        if name in self.losses:
            self.lose(name)
        recent = table.recent
        is_changed = len(recent) > 0 if isinstance(recent, np.ndarray) else recent.stop > recent.start
        self.finished += table.size - old
        self.complete.add(name)
        if is_changed:
            self.changes[name] = True
            self.added.add(name)

    def extend_graph(self, name: str, algebra: GraphTags) -> None:
        """More facts of a relation that has no rules, in the ground derivation graph."""
        table = self.tables[name]
        columns, variables = self.fact_columns(name)
        if not len(variables):
            return
        old = table.size
        if self.ram.relations[name].is_certain:
            table.insert(columns, len(variables))
            table.tags[old : table.size] = TRUE
            return
        ids, segments = np.unique(table.insert(columns, len(variables)), return_inverse=True)
        known = np.flatnonzero(ids < old)
        nodes = np.concatenate([algebra.graph.literals_of(variables), table.tags[ids[known]]])
        segments = np.concatenate([segments.reshape(-1), known])
        table.tags[ids] = algebra.graph.disjunction_by(segments, nodes, len(ids))

    # Anew

    def recompute(self, number: int) -> None:
        relations = self.ram.strata[number].relations
        old = {name: self.tables[name] for name in relations}
        for name, table in old.items():
            self.tables[name] = Table(name, table.types, table.new_tags, table.stamps is not None)
            self.complete.discard(name)
            self.finished -= table.size
        self.run_stratum(number)
        for name, table in old.items():
            if _same(table, self.tables[name]):
                self.tables[name] = table
            else:
                self.changes[name] = False

    # Facts

    def initial_columns(self, name: str) -> tuple[list[np.ndarray], np.ndarray]:
        """The facts that are added."""
        return super().initial_facts(name).joined(len(self.ram.relations[name].types))

    def initial_facts(self, name: str) -> FactColumns:
        if not self.is_anew:
            facts, staying = super().initial_facts(name), self.going.facts.get(name)
            return facts if staying is None else FactColumns.of([*facts.parts, *staying.parts])
        both = [store.relations.get(name, FactColumns()) for store in (self.left, self.facts)]
        return FactColumns.of([part for facts in both for part in facts.parts])


def _rows_with(table: Table, keys: Table) -> Table:
    """The rows whose first columns are those of a row of `keys`."""
    made, columns = Table(table.name, table.types), tuple(range(len(keys.types)))
    probes = np.stack([keys.column(c) for c in columns], 1)
    for _, rows in table.matches(columns, True, probes, table.size):
        made.insert_from(table, rows)
    return made


def _losing(table: Table, gone: Table) -> Table:
    """A table without the rows of another one, all of which it has."""
    if may_be_overlaid(table):
        return OverlayTable.on(table).losing(gone)
    return table.without(table.rows_in(gone))


def _same(old: Table, new: Table) -> bool:
    """Whether two tables have the same rows with the same tags."""
    if old.size != new.size:
        return False
    if not old.size:
        return True
    rows = old.find([new.column(c) for c in range(len(new.types))], new.size)
    if (rows < 0).any():
        return False
    if old.tags is None:
        return True
    return bool(_are_equal(old.tags, rows, new.tags, slice(0, new.size)).all())


def _are_equal(tags: Any, rows: np.ndarray | slice, others: Any, other_rows: np.ndarray | slice) -> np.ndarray:
    """[row] whether tags of some rows are those of others."""
    pairs = zip(parts_of(tags), parts_of(others))
    return np.logical_and.reduce([(a[rows] == b[other_rows]).astype(bool) for a, b in pairs])
