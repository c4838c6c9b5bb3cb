"""What is known of the relations of a recursion while it runs, where most of their rows are still to come.

The order of a join is chosen before the rows are there that it is for. A relation that has few of them is taken to have
as many as the largest relation that its rules read, and values as different as those that they take them from. What a
join has given beyond its estimate is known better than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.estimate import Fan
from derivable.datalog.ram.statistics import BUCKETS, ColumnSummary, Statistics
from derivable.datalog.rules.nodes import Atom, Clause
from derivable.datalog.scalars.nodes import Const

# A relation that has less than this part of the rows that it is taken to have counts as one that has not begun.
BEGUN = 1 / 16


class Assumed:
    """Statistics of a run (`estimate.Known`), and assumptions for the relations that the recursion of a stratum writes.

    fans  what look-ups gave whose rows were far from their estimate
    """

    def __init__(self, statistics: Statistics, stratum: m.Stratum, fans: Mapping[Fan, float]):
        self.statistics, self.fans = statistics, fans
        self._clauses: dict[str, list[Clause]] = {}
        for instruction in (*stratum.loop, *(stratum.once if stratum.loop else ())):
            origin = getattr(instruction, "origin", None)
            clauses = self._clauses.setdefault(instruction.relation, [])
            if origin is not None and origin.clause not in clauses:
                clauses.append(origin.clause)

    @property
    def key(self) -> tuple:
        """What tells plans by these fans from others."""
        return tuple(sorted((name, *sorted(columns), math.frexp(fan)[1]) for (name, columns), fan in self.fans.items()))

    def rows(self, relation: str) -> int:
        there = self.statistics.rows(relation)
        return there if self.is_complete(relation) else max(there, self._expected(relation, there))

    def column(self, relation: str, column: int) -> ColumnSummary:
        there = self.statistics.rows(relation)
        rows = 0 if self.is_complete(relation) else self._expected(relation, there)
        if rows <= there:
            return self.statistics.column(relation, column)
        sources = [self._source(clause, column) for clause in self._clauses[relation]]
        known = [one for one in sources if one is not None]
        if not known or len(known) < len(sources):
            # Halfway between one value and one a row.
            return ColumnSummary(rows, math.sqrt(rows), np.full(BUCKETS, rows / BUCKETS))
        best = max(known, key=lambda one: one.distinct)
        return ColumnSummary(rows, min(rows, max(1.0, best.distinct)), best.buckets * (rows / max(1, best.rows)))

    def combinations(self, relation: str, columns: tuple[int, ...]) -> float:
        there = self.statistics.rows(relation)
        rows = 0 if self.is_complete(relation) else self._expected(relation, there)
        if rows <= there:
            return self.statistics.combinations(relation, columns)
        return min(rows, math.prod(self.column(relation, column).distinct for column in columns))

    def word(self, constant: Const) -> int | None:
        return self.statistics.word(constant)

    def is_complete(self, relation: str) -> bool:
        return relation not in self._clauses

    def fan(self, look: Fan) -> float | None:
        return self.fans.get(look)

    def _expected(self, relation: str, there: int) -> int:
        """Rows that a relation of the recursion is taken to have; 0 once it has begun."""
        read = {atom.relation for clause in self._clauses[relation] for atom in clause.body if isinstance(atom, Atom)}
        rows = max((self.statistics.rows(name) for name in read if self.is_complete(name)), default=0)
        return rows if there < BEGUN * rows else 0

    def _source(self, clause: Clause, column: int) -> ColumnSummary | None:
        """The column of a complete relation that a clause takes the values of this column from."""
        term = clause.terms[column]
        for atom in clause.body:
            if isinstance(atom, Atom) and self.is_complete(atom.relation) and term in atom.terms:
                return self.statistics.column(atom.relation, atom.terms.index(term))
        return None
