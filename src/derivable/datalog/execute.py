"""The RAM machine: strata in order, semi-naive rounds, any tags.

A query is a stream of batches of columns, at most a chunk of rows each, so that a join's candidates stay in cache.
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
from derivable.datalog import arithmetic
from derivable.datalog.facts import FactStore
from derivable.datalog.fused import MANY_ROWS, Running
from derivable.datalog.ground_graph import GroundGraph, negate
from derivable.datalog.grouping import aggregate
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import AggregateRule, BernoulliRule, Const, Var, names
from derivable.datalog.storage import CHUNK, Table
from derivable.datalog.sums import Sums
from derivable.datalog.tags import Algebra, ColumnTags, GraphTags, SemiringTags, Untagged
from derivable.datalog.values import F64, from_words, word_of

Columns = list[np.ndarray]


@dataclass
class Batch:
    """Rows of a query: column name -> words [row], and their tags."""

    count: int
    columns: dict[str, np.ndarray]
    tags: Any

    def only(self, algebra: Algebra, rows: np.ndarray) -> Batch:
        """The rows of a mask or of row numbers."""
        if rows.dtype == bool:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Batch(len(rows), columns, algebra.take(self.tags, rows))


@dataclass
class Pending:
    """Tagged candidates of one table in a round: columns, or once they are many, added up."""

    parts: list[tuple[Columns, int, Any]]
    count: int = 0
    sums: Sums | None = None


def run_deadline(time_limit: float | None) -> Deadline:
    """The deadline of a run that begins now."""
    from derivable.circuit.compile_process import checked_time_limit

    hint = "raise time_limit, ask for fewer outputs, or approximate with provenance='topkproofs'"
    return Deadline(checked_time_limit(time_limit), "the run", hint)


class Executor:
    """One run of a RAM program over its facts. After `run`, `tables` has every relation."""

    def __init__(
        self,
        ram: m.Ram,
        facts: FactStore,
        algebra: Algebra,
        iteration_limit: int | None = None,
        deadline: Deadline = NEVER,
    ):
        self.ram = ram
        self.facts = facts
        self.algebra = algebra
        self.symbols = facts.symbols
        self.iteration_limit = iteration_limit
        self.deadline = deadline
        self.graph: GroundGraph | None = algebra.graph if isinstance(algebra, GraphTags) else None
        new_tags = None if isinstance(algebra, Untagged) else algebra.empty
        self.tables = {name: Table(name, r.types, new_tags) for name, r in ram.relations.items()}
        self.complete: set[str] = set()
        # The tag algebra of queries: a support run of a graph stratum reads no tags although its tables have them.
        self.mode: Any = algebra
        self.running: dict[int, Running] = {}
        # Rows that queries over columns have gone through.
        self.work = 0
        # A query that a kernel computes, and its batches.
        self.computed: tuple[m.Query | None, Iterator[Batch]] = None, iter(())

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
        # These know the executor: a cycle, which would keep the tables until Python looks for such.
        self.running.clear()
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
            return len(table.recent) > 0  # type: ignore[arg-type]

        for instructions, active in self.rounds(stratum, has_news):
            stamp += 1
            for instruction in instructions:
                self.collect(instruction, pending[instruction.relation], stamp)
            for name in active:
                self.merge(self.tables[name], pending[name], algebra, stamp)

    def collect(self, instruction: m.Instruction, pending: Pending, stamp: int) -> None:
        parts = self.stored(instruction) if isinstance(instruction, m.Store) else iter([self.special(instruction)])
        table, mode = self.tables[instruction.relation], self.algebra
        for part in parts:
            running = self.running.get(id(instruction))
            if pending.sums is not None and running is not None and running.kernel is not None:
                pending.sums.add(*part, stamp)
                continue
            pending.parts.append(part)
            pending.count += part[1]
            if pending.count >= MANY_ROWS and isinstance(mode, SemiringTags):
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
        pending.parts, pending.count = [], 0

    def merge(self, table: Table, pending: Pending, algebra: ColumnTags, stamp: int) -> None:
        """Add up equal candidates, then enter them; what is new or not saturated becomes recent in round `stamp`."""
        if pending.sums is not None:
            self.sum_up(pending, algebra, stamp)
            pending.sums.merge(stamp)
            return
        pending.count = 0
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
        table.stamps[recent] = stamp

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
                if parts:
                    count = sum(n for _, n, _ in parts)
                    columns = [np.concatenate([c[i] for c, _, _ in parts]) for i in range(len(table.types))]
                    factors = algebra.concatenate([t for _, _, t in parts])
                    nodes = algebra.graph.conjunction(factors, count)
                    found[instruction.relation].append((table.insert(columns, count), nodes))
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
        stored = self.facts.relations.get(name)
        if stored is None:
            return [np.empty(0, dtype=np.int64) for _ in types], np.empty(0, dtype=np.int64)
        return stored.joined(len(types))

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

    # Queries

    def stored(self, instruction: m.Store, keep: bool = True) -> Iterator[tuple[Columns, int, Any]]:
        """Columns, count and tags of the rows to store, batch by batch, by a kernel once they are many.

        keep  whether the columns of a batch are needed after the next one is asked for
        """
        running = self.running.get(id(instruction))
        if running is None:
            running = self.running[id(instruction)] = Running(self, instruction)
        if not running.is_ready():
            before = self.work
            yield from self.by_columns(instruction)
            running.seen += self.work - before
            return
        fused = running.fused
        assert fused is not None
        if fused.prefix is None:
            yield from running.run(keep)
            return
        batches = (Batch(count, dict(zip(fused.names, columns)), tags) for columns, count, tags in running.run(keep))
        self.computed = fused.prefix, batches
        yield from self.by_columns(instruction)
        self.computed = None, iter(())

    def by_columns(self, instruction: m.Store) -> Iterator[tuple[Columns, int, Any]]:
        terms = instruction.query.terms
        needed = frozenset(n for t in terms for n in names(t))
        for batch in self.stream(instruction.query.source, needed):
            self.deadline.remaining()
            columns: Columns = []
            valid = None
            for term in terms:
                words, fine = arithmetic.evaluate(term, batch.columns, batch.count, self.symbols)
                columns.append(words)
                if fine is not None:
                    valid = fine if valid is None else valid & fine
            count, tags = batch.count, batch.tags
            if valid is not None and not valid.all():
                columns = [c[valid] for c in columns]
                tags = self.mode.take(tags, np.flatnonzero(valid))
                count = int(valid.sum())
            if count:
                yield columns, count, tags

    def stream(self, query: m.Query, needed: frozenset[str]) -> Iterator[Batch]:
        """Batches with at least the needed columns."""
        if query is self.computed[0]:
            yield from self.computed[1]
            return
        match query:
            case m.Unit():
                yield Batch(1, {}, self.mode.start(1))
            case m.Scan():
                yield from self.scan(query, needed)
            case m.Join():
                yield from self.join(query, needed)
            case m.Difference(left=left, right=right):
                wanted = needed | {t.name for t in right.terms if isinstance(t, Var)}
                for batch in self.stream(left, wanted):
                    yield from self.difference(batch, right)
            case m.Select(source=source, condition=condition):
                for batch in self.stream(source, needed | names(condition)):
                    mask = arithmetic.condition(condition, batch.columns, batch.count, self.symbols)
                    batch = batch.only(self.mode, mask)
                    if batch.count:
                        yield batch
            case m.Extend(source=source, variable=v, expression=e):
                for batch in self.stream(source, (needed - {v.name}) | names(e)):
                    words, valid = arithmetic.evaluate(e, batch.columns, batch.count, self.symbols)
                    batch.columns[v.name] = words
                    if valid is not None:
                        batch = batch.only(self.mode, valid)
                    if batch.count:
                        yield batch
            case m.Range():
                wanted = (needed - {query.variable.name}) | names(query.low) | names(query.high)
                for batch in self.stream(query.source, wanted):
                    yield from self.range(batch, query)

    def rows_of(self, scan: m.Scan) -> slice | np.ndarray:
        """The rows of a driver: a slice of the log, or row numbers."""
        table = self.tables[scan.relation]
        if scan.part == "all":
            return slice(0, table.visible_size)
        if scan.part == "recent":
            return table.recent
        if isinstance(self.mode, Untagged):
            return slice(0, table.stable_size)
        return np.flatnonzero(table.stamps[: table.visible_size] < table.round)

    def bounds_of(self, scan: m.Scan) -> tuple[int, int]:
        """What rows of a scan are below, and the last round in which a stable one has become recent."""
        table = self.tables[scan.relation]
        is_stable = scan.part == "stable" and isinstance(self.mode, Untagged)
        return table.stable_size if is_stable else table.visible_size, table.round - 1

    def scan(self, query: m.Scan, needed: frozenset[str]) -> Iterator[Batch]:
        table, rows = self.tables[query.relation], self.rows_of(query)
        start, stop = (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))
        first: dict[str, int] = {}
        constants, repeats = [], []
        for c, term in enumerate(query.terms):
            if isinstance(term, Const):
                constants.append((c, word_of(term.value, term.type, self.symbols)))
            elif isinstance(term, Var):
                if term.name in first:
                    repeats.append((first[term.name], c))
                else:
                    first[term.name] = c
        for low in range(start, stop, CHUNK):
            high = min(low + CHUNK, stop)
            self.work += high - low
            part = slice(low, high) if isinstance(rows, slice) else rows[low:high]
            count = high - low
            if constants or repeats:
                mask = np.ones(count, dtype=bool)
                for c, word in constants:
                    mask &= table.column(c, part) == word
                for a, b in repeats:
                    mask &= table.column(a, part) == table.column(b, part)
                part = np.flatnonzero(mask) + low if isinstance(part, slice) else part[mask]
                count = len(part)
                if not count:
                    continue
            columns = {name: table.column(c, part) for name, c in first.items() if name in needed}
            yield Batch(count, columns, self.mode.load(table, part))

    def join(self, query: m.Join, needed: frozenset[str]) -> Iterator[Batch]:
        left_names = set(m.columns(query.left))
        right = query.right
        table = self.tables[right.relation]
        keys: list[tuple[int, Var | Const]] = []
        fresh: dict[str, int] = {}
        repeats: list[tuple[int, int]] = []
        for c, term in enumerate(right.terms):
            if isinstance(term, Const) or (isinstance(term, Var) and term.name in left_names):
                keys.append((c, term))
            elif isinstance(term, Var):
                if term.name in fresh:
                    repeats.append((fresh[term.name], c))
                else:
                    fresh[term.name] = c
        taken = {name: c for name, c in fresh.items() if name in needed}
        plain = isinstance(self.mode, Untagged)
        limit, bound = self.bounds_of(right)
        stamps = table.stamps if right.part == "stable" and not plain else np.empty(0, dtype=np.int32)
        wanted = (needed & left_names) | {t.name for _, t in keys if isinstance(t, Var)}
        kept = [name for name in left_names if name in needed]
        is_static = right.relation in self.complete
        for batch in self.stream(query.left, wanted):
            words = [self.key_column(term, batch) for _, term in keys]
            if len(keys) == len(right.terms) and keys:
                ids = table.find(words, batch.count)
                fine = (ids >= 0) & (ids < limit)
                if len(stamps):
                    fine &= stamps[ids] <= bound
                batch = batch.only(self.mode, fine)
                if batch.count:
                    tags = self.mode.combine(batch.tags, self.mode.load(table, ids[fine]))
                    yield Batch(batch.count, {n: batch.columns[n] for n in kept}, tags)
                continue
            probes = np.empty((batch.count, len(words)), dtype=np.int64)
            for k, column in enumerate(words):
                probes[:, k] = column
            index = table.index(tuple(c for c, _ in keys), is_static)
            exists = np.zeros(batch.count, dtype=bool) if plain and not taken and not repeats else None
            for left, rows in index.matches(probes, limit, stamps, bound):
                self.work += len(left)
                if exists is not None:
                    exists[left] = True
                    continue
                for a, b in repeats:
                    same = table.column(a, rows) == table.column(b, rows)
                    left, rows = left[same], rows[same]
                columns = {n: batch.columns[n].take(left) for n in kept}
                for name, c in taken.items():
                    columns[name] = table.column(c, rows)
                tags = self.mode.combine(self.mode.take(batch.tags, left), self.mode.load(table, rows))
                if len(left):
                    yield Batch(len(left), columns, tags)
            if exists is not None and exists.any():
                found = batch.only(self.mode, exists)
                yield Batch(found.count, {n: found.columns[n] for n in kept}, found.tags)

    def key_column(self, term: Var | Const, batch: Batch) -> np.ndarray:
        if isinstance(term, Var):
            return batch.columns[term.name]
        return np.full(batch.count, word_of(term.value, term.type, self.symbols), dtype=np.int64)

    def difference(self, batch: Batch, right: m.Scan) -> Iterator[Batch]:
        table = self.tables[right.relation]
        words = [self.key_column(t, batch) for t in right.terms if t is not None]
        ids = table.find(words, batch.count)
        absent = ids < 0
        if isinstance(self.mode, Untagged):
            # In a support run a row that is only possible does not block.
            if table.tags is not None:
                absent |= table.tags[: table.size][ids] != TRUE if table.size else absent
            batch = batch.only(self.mode, absent)
            if batch.count:
                yield batch
            return
        assert table.tags is not None
        if isinstance(self.mode, GraphTags):
            blocked = self.mode.one(batch.count)
            found = ~absent
            blocked[found] = negate(table.tags[ids[found]])
            keep = blocked != 0
            batch = batch.only(self.mode, keep)
            if batch.count:
                yield Batch(batch.count, batch.columns, [*batch.tags, blocked[keep]])
            return
        if not absent.all():
            found = ~absent
            factor = self.mode.one(batch.count)
            factor[found] = self.mode.negate(table.tags[ids[found]])
            tags = self.mode.times(batch.tags, factor)
            batch = Batch(batch.count, batch.columns, tags).only(self.mode, ~self.mode.is_zero(tags))
        if batch.count:
            yield batch

    def range(self, batch: Batch, query: m.Range) -> Iterator[Batch]:
        t = query.variable.type
        low_words, low_valid = arithmetic.evaluate(query.low, batch.columns, batch.count, self.symbols)
        high_words, high_valid = arithmetic.evaluate(query.high, batch.columns, batch.count, self.symbols)
        low, high = from_words(low_words, t), from_words(high_words, t)
        counts = np.where(high > low, (high - low).astype(np.int64), 0)
        if query.inclusive:
            counts = np.where(high >= low, counts + 1, 0)
        for valid in (low_valid, high_valid):
            if valid is not None:
                counts = np.where(valid, counts, 0)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, CHUNK):
            position = np.arange(start, min(start + CHUNK, total))
            row = np.searchsorted(ends, position, side="right")
            value = low_words[row] + (position - (ends[row] - counts[row]))
            chosen = batch.only(self.mode, row)
            chosen.columns[query.variable.name] = value
            yield chosen
