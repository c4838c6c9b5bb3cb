"""The rows of queries: over columns, a chunk at a time, or by a kernel once they are many.

A query is a stream of batches of columns, at most a chunk of rows each, so that a join's candidates stay in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from derivable.core.and_or import TRUE
from derivable.core.progress import Deadline
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.fused.state import Batch, Columns, State
from derivable.datalog.fused.store_state import StoreState
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.draw import drawn
from derivable.datalog.run.foreign_join import ForeignFacts, generate
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Const, Expr, Var
from derivable.datalog.tables.ordered_index import ordered, ordered_index
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.ground_graph import negate
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import Algebra, GraphTags, Untagged
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import word_of

# (column, term): the columns of a join whose value is bound.
Keys = tuple[tuple[int, Var | Const], ...]
# Columns, their number and their tags.
Chunk = tuple[Columns, int, Any]
# Operators up to which iterators are made of iterators: each is a frame on the stack of C.
MOST_CHAINED = 64
_NO_STAMPS = np.empty(0, np.int32)


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
        self.store_states: dict[int, StoreState] = {}
        # Rows that queries over columns have gone through.
        self.work = 0

    def store_state(self, store: m.Store) -> StoreState:
        """What this run knows of a store."""
        known = self.store_states.get(id(store))
        if known is None:
            known = self.store_states[id(store)] = StoreState(self, store)
        return known

    def projected(
        self, project: m.Project, steps: tuple[m.Step, ...], batches: Iterable[Batch] | None = None
    ) -> Iterator[Chunk]:
        """The rows of a query, by steps that go on with the batches; without these, by all of its steps."""
        names = project.names
        for batch in self.stream(steps, batches):
            self.deadline.remaining()
            count, tags = batch.count, batch.tags
            if names is not None:
                columns: Columns = [batch.columns[name] for name in names]
            else:
                columns, valid = [], None
                for term in project.terms:
                    words, fine = arithmetic.evaluate(term, batch.columns, count, self.symbols)
                    columns.append(words)
                    if fine is not None:
                        valid = fine if valid is None else valid & fine
                if valid is not None and not valid.all():
                    columns = [c[valid] for c in columns]
                    tags = self.mode.take(tags, np.flatnonzero(valid))
                    count = int(valid.sum())
            start = 0
            while start < count:
                room = self.deadline.room
                stop = count if room is None else min(count, start + max(room + 1, policy().few))
                if stop - start == count:
                    yield columns, count, tags
                    break
                rows = np.arange(start, stop)
                yield [column[start:stop] for column in columns], stop - start, self.mode.take(tags, rows)
                self.deadline.remaining()
                start = stop

    def stream(self, steps: tuple[m.Step, ...], batches: Iterable[Batch] | None) -> Iterator[Batch]:
        """Batches with at least the columns that are needed behind these steps."""
        if batches is None:
            batches = self.counted(steps[0].node, self.first)(steps[0])
            steps = steps[1:]
        operators: list[Callable[..., Iterable[Batch]]]
        operators = [self.counted(step.node, self.operator(step)) for step in steps]
        if len(operators) > MOST_CHAINED:
            return _opened(iter(batches), operators)
        for operator in operators:
            batches = chain.from_iterable(map(operator, batches))
        return iter(batches)

    def counted(self, query: m.Operator, operator: Callable[..., Iterable[Batch]]) -> Callable[..., Iterable[Batch]]:
        """An operator whose rows are counted, if they are to be."""
        if self.counts is None:
            return operator

        def counting(argument: Any) -> Iterator[Batch]:
            for batch in operator(argument):
                self.count(query, batch.count)
                yield batch

        return counting

    def first(self, step: m.Step) -> Iterable[Batch]:
        """The batches that a query begins with."""
        if isinstance(step.node, m.Scan):
            return self.scan(step.node, step)
        return [Batch(1, {}, self.mode.start(1))]

    def operator(self, step: m.Step) -> Callable[[Batch], Iterable[Batch]]:
        """What makes batches of one."""
        match step.node:
            case m.Join():
                return self.join(step.node, step)
            case m.Difference(right=right):
                return lambda batch: self.difference(batch, right)
            case m.Select(condition=condition):
                return lambda batch: self.selected(batch, condition)
            case m.Extend(variable=v, expression=e):
                return lambda batch: self.extended(batch, v.name, e)
            case m.Generate(relation=str()) as node:
                from derivable.datalog.run.keyed import queried

                return queried(self, node)  # type: ignore[arg-type]
            case m.Generate() as node:
                return lambda batch: generate(self, batch, node, PREDICATES[node.predicate], self.foreign)
            case m.RuleProbability() as node:
                return lambda batch: drawn(self, batch, node)
        raise AssertionError(step.node)

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

    def scan(self, query: m.Scan, step: m.Step) -> Iterator[Batch]:
        table, rows, bindings = self.tables[query.relation], self.rows_of(query), step.bindings
        assert bindings is not None
        start, stop = (rows.start, rows.stop) if isinstance(rows, slice) else (0, len(rows))
        constants = [(c, word_of(t.value, t.type, self.symbols)) for c, t in bindings.keys if isinstance(t, Const)]
        for low in range(start, stop, policy().chunk):
            high = min(low + policy().chunk, stop)
            self.work += high - low
            part = slice(low, high) if isinstance(rows, slice) else rows[low:high]
            count = high - low
            if constants or bindings.repeats:
                mask = np.ones(count, dtype=bool)
                for c, word in constants:
                    mask &= table.column(c, part) == word
                for a, b in bindings.repeats:
                    mask &= table.column(a, part) == table.column(b, part)
                part = np.flatnonzero(mask) + low if isinstance(part, slice) else part[mask]
                count = len(part)
                if not count:
                    continue
            columns = {name: table.column(c, part) for name, c in step.takes}
            load = self.mode.load_recent if query.part == "recent" else self.mode.load
            yield Batch(count, columns, load(table, part))

    def join(self, node: m.Join, step: m.Step) -> Callable[[Batch], Iterator[Batch]]:
        right = node.right
        assert step.bindings is not None
        table, keys, repeats = self.tables[right.relation], step.bindings.keys, step.bindings.repeats
        takes, keeps = step.takes, step.keeps
        plain = isinstance(self.mode, Untagged)
        limit, bound = self.bounds_of(right)
        stamps = table.stamps if right.part == "stable" and not plain else None
        stamps = _NO_STAMPS if stamps is None else stamps

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
                    yield Batch(batch.count, {n: batch.columns[n] for n in keeps}, tags)
                return
            exists = np.zeros(batch.count, dtype=bool) if plain and not takes and not repeats else None
            for left, rows in self.matches(node, table, keys, words, batch, (limit, stamps, bound)):
                self.work += len(left)
                if exists is not None:
                    exists[left] = True
                    continue
                for a, b in repeats:
                    same = table.column(a, rows) == table.column(b, rows)
                    left, rows = left[same], rows[same]
                columns = {n: batch.columns[n].take(left) for n in keeps}
                for name, c in takes:
                    columns[name] = table.column(c, rows)
                tags = (
                    None if plain else self.mode.combine(self.mode.take(batch.tags, left), self.mode.load(table, rows))
                )
                if len(left):
                    yield Batch(len(left), columns, tags)
            if exists is not None and exists.any():
                batch = batch.only(self.mode, exists)
                yield Batch(batch.count, {n: batch.columns[n] for n in keeps}, batch.tags)

        return joined

    def matches(
        self, node: m.Join, table: Table, keys: Keys, words: Columns, batch: Batch, parts: tuple[int, np.ndarray, int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (rows of the batch, rows of the table) that a join looks at; `words` are those of its keys."""
        positions = tuple(c for c, _ in keys)
        if node.range is not None and isinstance(table, Table):
            bounds = []
            for bound in node.range.bounds:
                column, valid = arithmetic.evaluate(bound.value, batch.columns, batch.count, self.symbols)
                bounds.append((bound.operator, ordered(column, bound.value.type), valid))
            index = ordered_index(table, positions, node.range.column)
            return index.between(words, batch.count, bounds, *parts)
        if len(words) == 1:
            probes = np.ascontiguousarray(words[0], np.int64).reshape(-1, 1)
        else:
            probes = np.empty((batch.count, len(words)), dtype=np.int64)
            for k, column in enumerate(words):
                probes[:, k] = column
        return table.matches(positions, node.right.relation in self.complete, probes, *parts)

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
            is_present = ~absent
            blocked[is_present] = negate(table.tags[ids[is_present]])
            keep = blocked != 0
            batch = batch.only(self.mode, keep)
            if batch.count:
                yield Batch(batch.count, batch.columns, [*batch.tags, blocked[keep]])
            return
        if not absent.all():
            is_present = ~absent
            factor = self.mode.one(batch.count)
            factor[is_present] = self.mode.negate(table.tags[ids[is_present]])
            tags = self.mode.combine(batch.tags, factor)
            batch = Batch(batch.count, batch.columns, tags).only(self.mode, ~self.mode.is_zero(tags))
        if batch.count:
            yield batch


def _opened(first: Iterator[Batch], operators: list[Callable[[Batch], Iterable[Batch]]]) -> Iterator[Batch]:
    """The batches of the last operator."""
    opened = [first]
    while opened:
        batch = next(opened[-1], None)
        if batch is None:
            opened.pop()
        elif len(opened) > len(operators):
            yield batch
        else:
            opened.append(iter(operators[len(opened) - 1](batch)))
