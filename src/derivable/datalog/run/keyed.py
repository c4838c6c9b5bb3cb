"""Relations that have their rows for the keys that a recursion queries; see `rules.keyed`.

A run of the strata that depend on keys has those that are new, and no others, and separate tables. What it derives for
them is final, since all else that these strata read is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from derivable.core.and_or import TRUE
from derivable.datalog.fused.state import Batch
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.keyed import keyed_strata, row_of
from derivable.datalog.run.execute import Executor
from derivable.datalog.scalars import arithmetic
from derivable.datalog.scalars.nodes import Const, Var
from derivable.datalog.tables.tag_columns import longer_tags, parts_of
from derivable.datalog.tags.tags import ColumnTags, GraphTags


def queried(executor: Executor, node: m.Generate) -> Callable[[Batch], Iterator[Batch]]:
    """What makes batches of one by the rows of its keys."""
    relation = node.relation
    assert relation is not None
    terms = tuple(term if isinstance(term, (Var, Const)) else None for term in row_of(executor.ram, node))
    join = m.Join(m.Scan(relation, terms))
    outputs = {term.name for term in terms if isinstance(term, Var)}

    def joined(batch: Batch) -> Iterator[Batch]:
        words = []
        for e in node.inputs:
            column, _ = arithmetic.evaluate(e, batch.columns, batch.count, executor.symbols)
            words.append(column)
        complete(executor, relation, words, batch.count)
        there = frozenset(batch.columns)
        yield from executor.join(join, m.Step.of(join, there | outputs, there))(batch)

    return joined


def complete(executor: Executor, relation: str, words: list[np.ndarray], count: int) -> None:
    """Have the rows of a relation for these keys [key], some of which may be equal, or known already."""
    ram = executor.ram
    keys = ram.relations[relation].keys
    assert keys is not None
    numbers = keyed_strata(ram, relation)
    # Facts that are added later reach all of these from what they have.
    names = [*(name for number in numbers for name in ram.strata[number].relations), keys[0]]
    for name in names:
        _make_writable(executor, name)
    known = executor.tables[keys[0]]
    new = known.find(words, count) < 0
    if not new.any():
        return
    fresh = known.like()
    fresh.insert([column[new] for column in words], int(new.sum()))
    fresh.visible_size = fresh.size
    if isinstance(executor.algebra, GraphTags):
        fresh.tags[: fresh.size] = TRUE
    elif isinstance(executor.algebra, ColumnTags):
        for part, one in zip(parts_of(fresh.tags), parts_of(executor.algebra.one(fresh.size))):
            part[: fresh.size] = one
    tables = {name: executor.tables[name].like() for name in names[:-1]}
    watch = executor.watch
    before = watch.stratum, watch.round, watch.tuples, watch.table, watch.before
    made = Executor(ram, executor.facts, executor.algebra, watch, {**executor.tables, **tables, fresh.name: fresh})
    made.foreign, made.coins, made.counts = executor.foreign, executor.coins, executor.counts
    made.efforts, made.stratum_effort = executor.efforts, executor.stratum_effort
    made.complete = {*executor.complete, fresh.name}.difference(tables)
    for number in numbers:
        made.run_stratum(number)
    made.give_reasons()
    watch.stratum, watch.round, watch.tuples, watch.table, watch.before = before
    # The keys are known when their rows are there.
    for name in names:
        table, source = executor.tables[name], made.tables[name]
        ids = table.insert_from(source)
        if table.tags is not None:
            for part, other in zip(parts_of(table.tags), parts_of(source.tags)):
                part[ids] = other[: source.size]
        table.visible_size = table.size


def _make_writable(executor: Executor, name: str) -> None:
    """Have a table that this run alone writes to, and that is not complete."""
    if name in executor.keyed:
        return
    executor.keyed.add(name)
    executor.complete.discard(name)
    table = executor.tables[name]
    table.indexes.clear()
    if table.size:
        made = executor.tables[name] = table.fork(with_set=True)
        if made.tags is not None:
            made.tags = longer_tags(table.tags, len(made.log), table.size)
