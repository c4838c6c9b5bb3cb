"""Strata that are computed one time after the other (`rules.timed`), whatever the tags.

Each step is a separate run over the rows of earlier steps, which are complete, so that negation and aggregates read
what does not change any more.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from derivable.core.diagnostics import StratificationError
from derivable.datalog.facts.columns import FactColumns, certain
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.timed import LATE, NOW, TIMES, before
from derivable.datalog.run.execute import Executor
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import ColumnTags
from derivable.datalog.values.values import ValueType, show_column


def run_timed(executor: Executor, number: int) -> None:
    """Compute the relations of a stratum, those before it being complete."""
    timed = executor.ram.strata[number].timed
    assert timed is not None
    algebra = executor.algebra
    if isinstance(algebra, ColumnTags):
        algebra.may_deny(executor.facts.may_be_denied(executor.ram, number))
    facts = {name: executor.fact_columns(name) for name in timed.columns}
    earlier = {before(name): executor.tables[name] for name in timed.columns}
    effort, finished = executor.stratum_effort[number], executor.finished
    for word in _times(executor, timed, facts):
        effort.rounds += 1
        now = {name: _facts_at(word, timed.columns[name], *facts[name]) for name in timed.columns}
        now[NOW] = FactColumns([[np.array([word])]], [certain(1)])
        tables = _run(executor, timed.step, now, earlier, finished)
        for name in timed.columns:
            table, new = executor.tables[name], tables[name]
            rows = table.insert_from(new)
            if new.tags is not None:
                table.tags[rows] = new.tags[: new.size]
            table.visible_size = table.size
            effort.rows += new.size
            finished += new.size


def _run(
    executor: Executor,
    ram: m.Ram,
    facts: Mapping[str, FactColumns],
    earlier: Mapping[str, Table],
    finished: int,
) -> dict[str, Table]:
    """The tables of a program over those of a run, and over these facts and earlier rows."""
    watch, number = executor.watch, executor.number
    made = Executor(ram, executor.facts, executor.algebra, watch)
    strata = [k for k, one in enumerate(ram.strata) if one.full or not facts.keys().isdisjoint(one.relations)]
    relations = {name for k in strata for name in ram.strata[k].relations}
    complete = {name: table for name in ram.relations if name not in relations and (table := executor.tables.get(name))}
    made.tables |= complete
    made.tables |= earlier
    made.complete |= complete.keys()
    made.initial_facts = lambda name: facts.get(name, FactColumns())
    made.foreign, made.coins, made.finished = executor.foreign, executor.coins, finished
    watch.executor = made
    for k in strata:
        made.run_stratum(k)
    watch.executor, watch.stratum, watch.round = executor, number, executor.stratum_effort[number].rounds
    # Indexes know their tables: cycles, which would keep these until Python looks for such.
    for name in relations:
        made.tables[name].indexes.clear()
    made.store_states.clear()
    return made.tables


def _times(executor: Executor, timed: m.Timed, facts: Mapping[str, tuple[list[np.ndarray], np.ndarray]]) -> list[int]:
    """The words of all times that rows may have, earlier ones first. Raises StratificationError for a rule that reads
    a time that is not earlier."""
    tables = _run(executor, timed.times, {}, {}, executor.finished)
    (time,) = timed.step.relations[NOW].types
    if tables[LATE].size:
        _refuse(executor, timed, tables[LATE], time)
    parts = [columns[timed.columns[name]] for name, (columns, variables) in facts.items() if len(variables)]
    words = np.concatenate([*parts, tables[TIMES].column(0)])
    words = np.unique(words)
    return (words[np.argsort(words.view(np.uint64))] if time.family == "unsigned" else words).tolist()


def _refuse(executor: Executor, timed: m.Timed, late: Table, time: ValueType) -> None:
    reading = timed.readings[int(late.column(0)[0])]
    head, body = (show_column(late.column(c)[:1], time, executor.symbols).tolist()[0] for c in (1, 2))
    low, high = time.limits
    condition = f"t > {low}" if head < high // 2 else f"t < {high}"
    raise StratificationError(
        f"the rows of `{reading.relation}` at {body} are read at {head}, when they are not complete: sums and "
        f"differences stop at the limits of {time}",
        hint=f"leave such times out by a condition of the rule, such as `{condition}`",
        source=executor.ram.source,
        text=executor.ram.text,
        span=reading.span,
    )


def _facts_at(word: int, column: int, columns: list[np.ndarray], variables: np.ndarray) -> FactColumns:
    """The facts of a time."""
    if not len(variables):
        return FactColumns()
    some = columns[column] == word
    return FactColumns([[part[some] for part in columns]], [variables[some]])
