"""What is known of the relations of a recursion while it runs, where most of their rows are still to come.

The order of a join is chosen before the rows are there that it is for. A relation is taken to have at least as many as
the largest relation that its rules read, and values as different as those that they take them from.
"""

from __future__ import annotations

import math

import numpy as np

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.statistics import BUCKETS, ColumnSummary, Statistics
from derivable.datalog.rules.nodes import Atom, Clause
from derivable.datalog.scalars.nodes import Const

# From this part of the rows that a relation is taken to have its columns say what the others will be like.
BEGUN = 1 / 16


class Assumed:
    """Statistics of a run (`estimate.Known`), and assumptions for the relations that a recursion writes."""

    def __init__(self, statistics: Statistics, stratum: m.Stratum):
        self.statistics = statistics
        self._clauses: dict[str, list[Clause]] = {}
        for instruction in (*stratum.loop, *(stratum.once if stratum.loop else ())):
            origin = getattr(instruction, "origin", None)
            clauses = self._clauses.setdefault(instruction.relation, [])
            if origin is not None and not any(origin.clause is known for known in clauses):
                clauses.append(origin.clause)

    def rows(self, relation: str) -> int:
        return max(self.statistics.rows(relation), self._expected(relation))

    def column(self, relation: str, column: int) -> ColumnSummary:
        return self._column(relation, column, frozenset())

    def combinations(self, relation: str, columns: tuple[int, ...]) -> float:
        rows = self._expected(relation)
        if rows <= self.statistics.rows(relation):
            return self.statistics.combinations(relation, columns)
        return min(rows, math.prod(self.column(relation, column).distinct for column in columns))

    def word(self, constant: Const) -> int | None:
        return self.statistics.word(constant)

    def is_complete(self, relation: str) -> bool:
        return relation not in self._clauses

    def _column(self, relation: str, column: int, seen: frozenset[str]) -> ColumnSummary:
        """The summary of a column; of `seen` relations nothing is to be assumed."""
        there, rows = self.statistics.rows(relation), self._expected(relation)
        if rows <= there or relation in seen:
            return self.statistics.column(relation, column)
        sources = [self._source(clause, column, seen | {relation}) for clause in self._clauses[relation]]
        known = [one for one in sources if one is not None and one.rows]
        if not known or len(known) < len(sources):
            if there >= BEGUN * rows:
                summary = self.statistics.column(relation, column)
                return ColumnSummary(rows, summary.distinct, summary.buckets * (rows / max(1, summary.rows)))
            # Halfway between one value and one a row.
            return ColumnSummary(rows, math.sqrt(rows), np.full(BUCKETS, rows / BUCKETS))
        best = max(known, key=lambda one: one.distinct)
        return ColumnSummary(rows, min(rows, max(1.0, best.distinct)), best.buckets * (rows / best.rows))

    def _expected(self, relation: str, seen: frozenset[str] = frozenset()) -> int:
        """Rows that a relation of the recursion is taken to have at least; 0 of others."""
        if self.is_complete(relation) or relation in seen:
            return 0
        read = {atom.relation for clause in self._clauses[relation] for atom in clause.body if isinstance(atom, Atom)}
        complete = [self.statistics.rows(name) for name in read if self.is_complete(name)]
        # What reads no complete relation, as a projection, has the rows of those that it reads.
        return max(complete or [self._expected(name, seen | {relation}) for name in read], default=0)

    def _source(self, clause: Clause, column: int, seen: frozenset[str]) -> ColumnSummary | None:
        """The column of a complete relation that a clause takes the values of this column from, or of the only one
        that it reads."""
        term, atoms = clause.terms[column], [literal for literal in clause.body if isinstance(literal, Atom)]
        for atom in atoms:
            if (self.is_complete(atom.relation) or len(atoms) == 1) and term in atom.terms:
                return self._column(atom.relation, atom.terms.index(term), seen)
        return None
