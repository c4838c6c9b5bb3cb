"""The rows of queries: over columns, a chunk at a time, or by a kernel once they are many.

A query is a stream of batches of columns, at most a chunk of rows each, so that a join's candidates stay in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from derivable.core.and_or import TRUE
from derivable.core.progress import Deadline
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.fused.fused import CALL_ROWS, Running
from derivable.datalog.fused.state import Batch, Columns, State
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.generate import ForeignFacts, generate
from derivable.datalog.run.throw import thrown
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Const, Expr
from derivable.datalog.tables.storage import CHUNK, Table
from derivable.datalog.tags.ground_graph import negate
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import Algebra, GraphTags, Untagged
from derivable.datalog.values.values import SymbolTable, word_of


class Queries(State):
    """Queries over the tables of a run."""

    def __init__(
        self,
        tables: dict[str, Table],
        algebra: Algebra,
        symbols: SymbolTable,
        random: RandomFacts,
        deadline: Deadline,
    ):
        super().__init__(tables, algebra, symbols, random, deadline)
        self.foreign = ForeignFacts(random)
        self.running: dict[int, Running] = {}
        # Rows that queries over columns have gone through.
        self.work = 0
        # A query that a kernel computes, and its batches.
        self.computed: tuple[m.Query | None, Iterator[Batch]] = None, iter(())

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
            running.seen += self.work - before + CALL_ROWS
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
        for batch in self.stream(instruction.query.source, frozenset(m.reads(instruction.query))):
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
        operators: list[Callable[[Batch], Iterator[Batch]]] = []
        nodes = m.steps(query)
        # The operator that binds a name first.
        binder: dict[str, int] = {}
        for number, node in enumerate(nodes):
            for name in m.binds(node):
                binder.setdefault(name, number)
        while query is not self.computed[0] and (source := m.source(query)) is not None:
            nodes.pop()
            of_interest = needed | m.reads(query)
            there = frozenset(name for name in of_interest if binder.get(name, len(nodes)) < len(nodes))
            operators.append(self.counted(query, self.operator(query, needed, there)))
            needed, query = there, source
        operators.reverse()
        # The batches that are open at each operator: generators within generators would be as deep as rules are long.
        opened = [self.computed[1] if query is self.computed[0] else self.counted(query, self.first)(query, needed)]
        while opened:
            batch = next(opened[-1], None)
            if batch is None:
                opened.pop()
            elif len(opened) > len(operators):
                yield batch
            else:
                opened.append(operators[len(opened) - 1](batch))

    def counted(self, query: m.Query, operator: Callable[..., Iterator[Batch]]) -> Callable[..., Iterator[Batch]]:
        """An operator whose rows are counted, if they are to be."""
        if self.counts is None:
            return operator

        def counting(*given: Any) -> Iterator[Batch]:
            for batch in operator(*given):
                self.count(query, batch.count)
                yield batch

        return counting

    def first(self, query: m.Query, needed: frozenset[str]) -> Iterator[Batch]:
        """The batches that a query begins with."""
        if isinstance(query, m.Scan):
            return self.scan(query, needed)
        return iter([Batch(1, {}, self.mode.start(1))])

    def operator(
        self, query: m.Query, needed: frozenset[str], there: frozenset[str]
    ) -> Callable[[Batch], Iterator[Batch]]:
        """What makes batches with the needed columns of one with the columns `there`."""
        match query:
            case m.Join():
                return self.join(query, needed, there)
            case m.Difference(right=right):
                return lambda batch: self.difference(batch, right)
            case m.Select(condition=condition):
                return lambda batch: self.selected(batch, condition)
            case m.Extend(variable=v, expression=e):
                return lambda batch: self.extended(batch, v.name, e)
            case m.Generate():
                return lambda batch: generate(self, batch, query, PREDICATES[query.predicate], self.foreign)
            case m.Coin():
                return lambda batch: thrown(self, batch, query)
        raise AssertionError(query)

    def selected(self, batch: Batch, condition: Expr) -> Iterator[Batch]:
        mask = arithmetic.condition(condition, batch.columns, batch.count, self.symbols)
        batch = batch.only(self.mode, mask)
        if batch.count:
            yield batch

    def extended(self, batch: Batch, name: str, expression: Expr) -> Iterator[Batch]:
        words, valid = arithmetic.evaluate(expression, batch.columns, batch.count, self.symbols)
        batch.columns[name] = words
        if valid is not None:
            batch = batch.only(self.mode, valid)
        if batch.count:
            yield batch

    def scan(self, query: m.Scan, needed: frozenset[str]) -> Iterator[Batch]:
        table, rows = self.tables[query.relation], self.rows_of(query)
        start, stop = (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))
        found = m.bindings(query)
        constants = [(c, word_of(t.value, t.type, self.symbols)) for c, t in found.keys if isinstance(t, Const)]
        for low in range(start, stop, CHUNK):
            high = min(low + CHUNK, stop)
            self.work += high - low
            part = slice(low, high) if isinstance(rows, slice) else rows[low:high]
            count = high - low
            if constants or found.repeats:
                mask = np.ones(count, dtype=bool)
                for c, word in constants:
                    mask &= table.column(c, part) == word
                for a, b in found.repeats:
                    mask &= table.column(a, part) == table.column(b, part)
                part = np.flatnonzero(mask) + low if isinstance(part, slice) else part[mask]
                count = len(part)
                if not count:
                    continue
            columns = {name: table.column(c, part) for name, c in found.fresh.items() if name in needed}
            yield Batch(count, columns, self.mode.load(table, part))

    def join(self, query: m.Join, needed: frozenset[str], there: frozenset[str]) -> Callable[[Batch], Iterator[Batch]]:
        right = query.right
        table = self.tables[right.relation]
        found = m.bindings(right, there)
        keys, repeats = found.keys, found.repeats
        taken = {name: c for name, c in found.fresh.items() if name in needed}
        plain = isinstance(self.mode, Untagged)
        limit, bound = self.bounds_of(right)
        stamps = table.stamps if right.part == "stable" and not plain else None
        stamps = np.empty(0, np.int32) if stamps is None else stamps
        kept = needed & there
        is_static = right.relation in self.complete

        def joined(batch: Batch) -> Iterator[Batch]:
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
                return
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
                batch = batch.only(self.mode, exists)
                yield Batch(batch.count, {n: batch.columns[n] for n in kept}, batch.tags)

        return joined

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
