"""Strata of relations with lattices: rounds without tags, in which values get better.

In a run with tags what such a stratum reads must be certain, as its tuples are then: the best of uncertain values is
another one in every world.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from derivable.core.and_or import TRUE
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.aggregates.lattices import LATTICES
from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.fused.lattice_table import LatticeTable
from derivable.datalog.ram import nodes as m
from derivable.datalog.run.execute import Executor
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import ColumnTags, Untagged
from derivable.device.cpu.memory import zeros


def run_lattices(executor: Executor, number: int) -> None:
    """Compute the relations of a stratum, those before it being complete."""
    stratum = executor.ram.strata[number]
    is_plain = isinstance(executor.algebra, Untagged)
    runner = executor if is_plain else _without_tags(executor, number)
    lattices = {name: r.lattice for name in stratum.relations if (r := executor.ram.relations[name]).lattice}
    for name, lattice in lattices.items():
        types = executor.ram.relations[name].types
        keeps_log = not stratum.reads_news_alone
        runner.tables[name] = LatticeTable(name, types, LATTICES[lattice], executor.symbols, keeps_log)
    runner.plain_stratum(number)
    for name in stratum.relations:
        table = runner.tables[name]
        if is_plain and name not in lattices:
            continue
        columns, count = _rows_of(table)
        tags = None
        if not is_plain:
            algebra = executor.algebra
            tags = algebra.one(count) if isinstance(algebra, ColumnTags) else np.full(count, TRUE)
        executor.tables[name] = _table_of(executor.tables[name], columns, count, tags)
    # What was planned for the tables that are gone.
    runner.give_reasons()
    runner.store_states.clear()


def _table_of(like: Table, columns: list[np.ndarray], count: int, tags: Any) -> Table:
    """A table with these distinct rows."""
    made = like.like()
    if not count or not columns:
        made.insert(columns, count)
        if tags is not None:
            made.tags[:count] = tags
        return made
    made.assign_distinct(made.rows_of(columns, count), count)
    made.tags = tags
    if made.stamps is not None:
        made.stamps = zeros(count, np.int32)
    return made


def _rows_of(table: Table) -> tuple[list[np.ndarray], int]:
    if isinstance(table, LatticeTable):
        return table.all_rows()
    return [table.column(c) for c in range(len(table.types))], table.size


def _without_tags(executor: Executor, number: int) -> Executor:
    """An executor without tags of a stratum that reads nothing uncertain. Raises UnsupportedError for another one."""
    ram, algebra = executor.ram, executor.algebra
    stratum = ram.strata[number]
    for instruction in stratum.full:
        for node in instruction.query.operators if isinstance(instruction, m.Store) else ():
            if isinstance(node, m.RuleProbability):
                _refuse(executor, number, "a rule with a probability")
            if isinstance(node, m.Generate) and predicate_of(node.predicate).is_tagged:
                _refuse(executor, number, f"the answers of `{node.predicate}`, which have tags")
    tables = {}
    for name in stratum.reads:
        table = executor.tables[name]
        tags = table.tags[: table.size]
        fine = algebra.is_one(tags) if isinstance(algebra, ColumnTags) else tags == TRUE
        if not np.all(fine):
            _refuse(executor, number, f"tuples of `{name}`")
        tables[name] = table.fork()
        tables[name].tags = tables[name].new_tags = tables[name].stamps = None
    for name in stratum.relations:
        if (executor.fact_columns(name)[1] >= 0).any():
            _refuse(executor, number, f"facts of `{name}`")
        tables[name] = Table(name, ram.relations[name].types)
    made = Executor(ram, executor.facts, Untagged(), executor.watch, tables)
    made.initial_facts = executor.initial_facts
    made.efforts, made.stratum_effort, made.number = executor.efforts, executor.stratum_effort, number
    made.foreign, made.coins, made.counts = executor.foreign, executor.coins, executor.counts
    made.complete = set(tables).difference(stratum.relations)
    return made


def _refuse(executor: Executor, number: int, what: str) -> NoReturn:
    ram = executor.ram
    relation = next(r for name in ram.strata[number].relations if (r := ram.relations[name]).lattice is not None)
    raise UnsupportedError(
        f"the lattice of `{relation.name}` joins uncertain values: {what}",
        hint="give these without probabilities, run with provenance='unit', or have the values as tags of a semiring",
        source=ram.source,
        text=ram.text,
        span=relation.span,
    )
