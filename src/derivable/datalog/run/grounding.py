"""A stratum on the ground derivation graph: first which tuples there are, then every derivation of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from derivable.core.and_or import OR, TRUE
from derivable.datalog.ram import nodes as m
from derivable.datalog.tags.ground_graph import GroundGraph
from derivable.datalog.tags.tags import GraphTags, Untagged

if TYPE_CHECKING:
    from derivable.datalog.run.execute import Executor
    from derivable.datalog.run.profile import Effort

# Row numbers, and the node of a derivation of each.
Derivations = list[tuple[np.ndarray, np.ndarray]]


def ground_stratum(executor: Executor, number: int, algebra: GraphTags) -> None:
    """Give every tuple of a stratum the node that says when it holds."""
    stratum = executor.ram.strata[number]
    if stratum.is_recursive:
        executor.mode = Untagged()
        executor.plain_stratum(number)
        executor.mode = algebra
        for name in stratum.relations:
            table = executor.tables[name]
            table.visible_size = table.size
            assert table.tags is not None
            is_certain = executor.ram.relations[name].is_certain
            table.tags[: table.size] = TRUE if is_certain else algebra.graph.new_nodes(OR, table.size)
    derivations_of: dict[str, Derivations] = {}
    for name in stratum.relations:
        derivations = derivations_of[name] = []
        columns, variables = executor.fact_columns(name)
        if len(variables):
            ids = executor.tables[name].insert(columns, len(variables))
            derivations.append((ids, algebra.graph.literals_of(variables)))
    for instruction in executor.instructions(number, "full"):
        if executor.ram.relations[instruction.relation].is_certain:
            executor.insert(instruction)
            continue
        with executor.effort(instruction) as effort:
            _derive(executor, instruction, algebra, derivations_of[instruction.relation], effort, stratum.is_recursive)
    if stratum.is_recursive:
        _close(executor, stratum, derivations_of, algebra.graph)
        return
    for name in stratum.relations:
        table = executor.tables[name]
        if executor.ram.relations[name].is_certain:
            assert table.tags is not None
            table.tags[: table.size] = TRUE
        elif derivations_of[name]:
            ids = np.concatenate([i for i, _ in derivations_of[name]])
            nodes = np.concatenate([n for _, n in derivations_of[name]])
            assert table.tags is not None
            table.tags[: table.size] = algebra.graph.disjunction_by(ids, nodes, table.size)


def _derive(
    executor: Executor,
    instruction: m.Instruction,
    algebra: GraphTags,
    derivations: Derivations,
    effort: Effort,
    is_complete: bool,
) -> None:
    """Find the derivations of an instruction; `is_complete` if the table has all tuples that the run is to have."""
    table = executor.tables[instruction.relation]
    is_store = isinstance(instruction, m.Store)
    parts = executor.stored(instruction, effort) if is_store else [executor.special(instruction, effort)]
    executor.watch.begin_instruction(table)
    for columns, count, tags in parts:
        if not count:
            continue
        executor.watch.remaining()
        nodes = algebra.graph.conjunction(tags, count) if is_store else tags
        if is_complete:
            # Those of a round that the run has not come to are left out.
            ids = table.find(columns, count)
            there = np.flatnonzero(ids >= 0)
            derivations.append((ids[there], nodes[there]))
        else:
            before = table.size
            derivations.append((table.insert(columns, count), nodes))
            executor.credit(effort, table.size - before)
    executor.watch.end_instruction()


def _close(executor: Executor, stratum: m.Stratum, derivations_of: dict[str, Derivations], graph: GroundGraph) -> None:
    """Unfold the cycles among the tuples of a recursive stratum."""
    tuples, segments, nodes, start = [], [], [], 0
    uncertain = [name for name in stratum.relations if not executor.ram.relations[name].is_certain]
    for name in uncertain:
        table = executor.tables[name]
        assert table.tags is not None
        tuples.append(table.tags[: table.size].copy())
        for ids, derivation in derivations_of[name]:
            segments.append(ids + start)
            nodes.append(derivation)
        start += table.size
    if not segments:
        return
    all_tuples = np.concatenate(tuples)
    certain = graph.close_cycles(all_tuples, np.concatenate(segments), np.concatenate(nodes))
    start = 0
    for name in uncertain:
        table = executor.tables[name]
        assert table.tags is not None
        table.tags[: table.size][certain[start : start + table.size]] = TRUE
        start += table.size
