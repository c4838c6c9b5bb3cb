"""Clauses of very many literals, which compilers take the square of their length for, in pieces.

A clause that shares no variable with another needs no compiler: "the first half has a true literal, or it has none and
the second half has one" is deterministic (see `alternatives`). Others become trees of short disjunctions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.circuit.compilation.alternatives import decided
from derivable.circuit.formulas.cnf import Cnf, cnf_from_clauses
from derivable.circuit.graph.and_or_graph import AndOrGraph, NodeLists
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import AND, LITERAL, OR
from derivable.core.graph import offsets_of

# Literals: at this length both compilers take some tenths of a second, and four times as long for twice as many.
LONG = 128


def cnf_graph(cnf: Cnf) -> AndOrGraph:
    """A CNF as a graph: literals, then one or-node a clause, then the and-node."""
    codes, where = np.unique(cnf.literals, return_inverse=True)
    lits, clauses = len(codes), cnf.num_clauses
    kind = np.repeat(np.array([LITERAL, OR, AND], np.uint8), [lits, clauses, 1])
    literal = np.concatenate([codes, np.zeros(clauses + 1, np.int32)])
    offsets = offsets_of(np.concatenate([np.zeros(lits, np.int64), np.diff(cnf.offsets), [clauses]]))
    children = np.concatenate([where, lits + np.arange(clauses)])
    return AndOrGraph(kind, literal, offsets, children, np.array([lits + clauses]))


def long_clauses_alone(cnf: Cnf) -> np.ndarray:
    """[clause] bool: long ones that have no variable in common with another clause; no clause is empty."""
    is_long = np.diff(cnf.offsets) > LONG
    if not is_long.any():
        return is_long
    variables = np.abs(cnf.literals)
    occurrences = np.unique(variables, return_inverse=True, return_counts=True)[1:]
    shared = np.maximum.reduceat(occurrences[1][occurrences[0]], cnf.offsets[:-1])
    return is_long & (shared == 1)


def decided_clauses(clauses: Sequence[Sequence[int]], others: Sequence[Circuit], num_variables: int) -> Circuit:
    """The conjunction of clauses, which share no variables, and of circuits over other variables."""
    graph = cnf_graph(cnf_from_clauses(clauses, num_variables))
    disjunctions = np.flatnonzero(graph.kind == OR)
    parts = [decided(graph, disjunctions)[0], *others]
    builder = CircuitBuilder()
    roots = [int(builder.add_nodes(*part.arrays[:4])[part.roots[0]]) for part in parts]
    return builder.build([builder.conjunction(roots)], num_variables, origin="decision")


def with_short_clauses(cnf: Cnf) -> Cnf:
    """A CNF with each long clause over further variables, each equivalent to the disjunction of two below it.

    A model of the formula extends to exactly one model of this one, so leaving the variables out of a d-DNNF of it
    (`without_definitions`) keeps it deterministic.
    """
    if np.diff(cnf.offsets).max(initial=0) <= LONG:
        return cnf
    clauses, fresh = [], cnf.num_variables
    for clause in cnf.clauses():
        while len(clause) > LONG:
            pairs = list(zip(clause[::2], clause[1::2]))
            named = range(fresh + 1, fresh + 1 + len(pairs))
            for name, (left, right) in zip(named, pairs):
                clauses += [[name, -left], [name, -right], [-name, left, right]]
            fresh, clause = fresh + len(pairs), [*named, *clause[2 * len(pairs) :]]
        clauses.append(clause)
    return cnf_from_clauses(clauses, fresh)


def narrowed(graph: AndOrGraph) -> AndOrGraph:
    """The graph with long disjunctions as balanced trees of disjunctions of two."""
    if not ((graph.kind == OR) & (graph.sizes > LONG)).any():
        return graph
    made, name = NodeLists(), list[int]()
    for node, (kind, literal) in enumerate(zip(graph.kind.tolist(), graph.literal.tolist())):
        row = [name[child] for child in graph.children[graph.offsets[node] : graph.offsets[node + 1]].tolist()]
        while kind == OR and len(row) > LONG:
            pairs = [made.add(OR, pair) for pair in zip(row[::2], row[1::2])]
            row = [*pairs, *row[2 * len(pairs) :]]
        name.append(made.add(kind, row, literal))
    return made.graph([name[root] for root in graph.roots.tolist()])
