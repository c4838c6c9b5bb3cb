"""Clauses as tables over discrete variables, for variable elimination.

Variables of which exactly one is true, by a clause and one for each pair of them, are the values of one discrete
variable; others have two values. A variable that is defined as the conjunction of some literals and occurs nowhere
else, as the numbers of a Bayesian network do in clauses, is no discrete variable at all: it labels entries of a table.
What is left of the clauses are tables of what is allowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from derivable.circuit.compilation.eliminate import Elimination, ones_of, require_room, timed
from derivable.circuit.compilation.orders import Order, best_order
from derivable.circuit.compilation.tables import Space, Table
from derivable.circuit.formulas.dimacs import Cnf
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import FALSE, TRUE
from derivable.core.progress import NEVER, Deadline

# Variables and entries of the table of one clause, entries of a piece of one that has more, and of a labelled table.
MOST_PARTS, MOST_ALLOWED, PIECE, MOST_LABELLED = 6, 1 << 16, 1 << 6, 1 << 22

Literal = tuple[int, np.ndarray]


@dataclass(frozen=True, eq=False)
class Labels:
    """Definitions over the same variables whose conditions exclude each other.

    scope     discrete variables
    literals  [definition] signed variables of the formula
    cells     [entry] entries of the table in which one is true; in all others of the table all are false
    which     [entry] the definition that is true there
    """

    scope: tuple[int, ...]
    literals: list[int]
    cells: np.ndarray
    which: np.ndarray

    @staticmethod
    def of(scope: tuple[int, ...], rows: Sequence[tuple[int, np.ndarray]]) -> Labels:
        """rows  (literal, its entries) of each definition"""
        which = np.repeat(np.arange(len(rows)), [len(cells) for _, cells in rows])
        return Labels(scope, [literal for literal, _ in rows], np.concatenate([cells for _, cells in rows]), which)


@dataclass(frozen=True, eq=False)
class ClauseTables:
    """A formula as tables over discrete variables.

    variables      [discrete variable] the variables of the formula that are its values; one stands for (false, true),
                   none for a variable that is made here
    cardinalities  [discrete variable]
    allowed        scope -> which entries are allowed [entry of the scope, in C order] bool
    labels         definitions that label entries
    """

    variables: list[list[int]]
    cardinalities: list[int]
    allowed: dict[tuple[int, ...], np.ndarray]
    labels: list[Labels]

    @staticmethod
    def of(cnf: Cnf, deadline: Deadline = NEVER) -> ClauseTables:
        """cnf  without repeats, tautologies and empty clauses"""
        return _Reading(cnf, deadline).tables()

    def order(self, deadline: Deadline = NEVER) -> Order:
        scopes: Iterable[Sequence[int]] = [*self.allowed, *(labels.scope for labels in self.labels)]
        return best_order(scopes, self.cardinalities, deadline)

    def compiled(
        self,
        order: Order,
        num_variables: int,
        deadline: Deadline = NEVER,
        most_nodes: int | None = None,
    ) -> Circuit:
        """The circuit by elimination in this order; origin "decision". Raises TooLarge."""
        space = Space.of(order.order, self.cardinalities, most_nodes, deadline)
        builder = CircuitBuilder()
        made: list[Table] = []
        of_variables = ones_of(builder, self.variables)
        for discrete, (nodes, none) in enumerate(of_variables):
            if len(nodes):
                nodes = nodes if len(nodes) > 1 else np.array([none, nodes[0]], np.int32)
                made.append(space.table([discrete], nodes))
        for scope, entries in self.allowed.items():
            shape = [self.cardinalities[variable] for variable in scope]
            made.append(space.table(scope, np.where(entries, TRUE, FALSE).reshape(shape)))
        of_labels = ones_of(builder, [labels.literals for labels in self.labels])
        for labels, (nodes, none) in zip(self.labels, of_labels):
            shape = [self.cardinalities[variable] for variable in labels.scope]
            entries = np.full(int(np.prod(shape)), none, np.int32)
            entries[labels.cells] = nodes[labels.which]
            made.append(space.table(labels.scope, entries.reshape(shape)))
        root = Elimination(builder, made, space, order, deadline, most_nodes).root()
        return builder.build([root], num_variables, origin="decision")


class _Reading:
    """Which discrete variables there are, and what each clause says about them."""

    def __init__(self, cnf: Cnf, deadline: Deadline):
        self.clauses, self.deadline = list(map(tuple, cnf.clauses())), deadline
        self.occurrences: dict[int, list[int]] = {}
        for number, clause in enumerate(self.clauses):
            for literal in clause:
                self.occurrences.setdefault(abs(literal), []).append(number)
        self.variables: list[list[int]] = []
        self.cardinalities: list[int] = []
        # variable of the formula -> discrete variable, and the value that it is
        self.value: dict[int, tuple[int, int]] = {}
        for group in self._groups():
            self._add(group, len(group))
        definitions = self._definitions()
        for variable in sorted(self.occurrences):
            if variable not in self.value and variable not in definitions:
                self._add([variable], 2)
        self.definitions = definitions

    def _add(self, values: list[int], cardinality: int) -> int:
        number = len(self.variables)
        self.variables.append(values)
        self.cardinalities.append(cardinality)
        if len(values) == 1:
            self.value[values[0]] = (number, 1)
        else:
            self.value |= {variable: (number, place) for place, variable in enumerate(values)}
        return number

    def _groups(self) -> list[list[int]]:
        """Sets of variables of which exactly one is true, the largest first, each variable in one at most."""
        pairs = {clause for clause in self.clauses if len(clause) == 2 and clause[0] < 0 and clause[1] < 0}
        taken: set[int] = set()
        groups = []
        for clause in sorted((c for c in self.clauses if len(c) > 1 and min(c) > 0), key=len, reverse=True):
            if taken.isdisjoint(clause) and all(
                (-a, -b) in pairs or (-b, -a) in pairs for a, b in itertools.combinations(clause, 2)
            ):
                groups.append(list(clause))
                taken.update(clause)
        return groups

    def _definitions(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        """Variables that are nothing but defined: variable -> its sign, and literals whose conjunction that is."""
        found: dict[int, tuple[int, tuple[int, ...]]] = {}
        used: set[int] = set()
        for variable, numbers in self.occurrences.items():
            if variable in self.value or variable in used or len(numbers) < 2:
                continue
            whole = max((self.clauses[number] for number in numbers), key=len)
            sign = 1 if variable in whole else -1
            condition = tuple(-literal for literal in whole if abs(literal) != variable)
            others = {self.clauses[number] for number in numbers} - {whole}
            parts = {tuple(sorted((-sign * variable, literal), key=abs)) for literal in condition}
            if others == parts and not any(abs(literal) in found for literal in condition):
                found[variable] = sign, condition
                used.update(map(abs, condition))
        return found

    def _literal(self, literal: int) -> Literal:
        """The discrete variable that a literal is about, and the values [value] bool under which it is true."""
        variable, value = self.value[abs(literal)]
        holds = np.zeros(self.cardinalities[variable], bool)
        holds[value] = True
        return variable, holds if literal > 0 else ~holds

    def tables(self) -> ClauseTables:
        labels = self._labels()
        self.labelled = {one.scope for one in labels}
        defining = {number for variable in self.definitions for number in self.occurrences[variable]}
        allowed: dict[tuple[int, ...], np.ndarray] = {}
        cells: dict[tuple[int, ...], list[int]] = {}
        for number, clause in enumerate(self.clauses):
            if number % 1024 == 0:
                self.deadline.remaining()
            if number not in defining and not self._is_cell(clause, cells):
                self._forbid(self._merged(clause), allowed)
        for scope, forbidden in cells.items():
            size = int(np.prod([self.cardinalities[discrete] for discrete in scope]))
            allowed.setdefault(scope, np.ones(size, bool))[forbidden] = False
        return ClauseTables(self.variables, self.cardinalities, allowed, labels)

    def _is_cell(self, clause: Sequence[int], cells: dict[tuple[int, ...], list[int]]) -> bool:
        """Whether a clause forbids one entry of a small table, which is noted, or none."""
        if max(clause) > 0:
            return False
        chosen = dict(self.value[-literal] for literal in clause)
        if len(chosen) < len(clause):
            # Two values of one variable are never true together.
            return True
        scope, cell, size = self._entry(chosen)
        if len(scope) > MOST_PARTS or size > MOST_ALLOWED:
            return False
        cells.setdefault(scope, []).append(cell)
        return True

    def _entry(self, chosen: Mapping[int, int]) -> tuple[tuple[int, ...], int, int]:
        """The scope of discrete variables of which each has one value, their entry in its table, and its size."""
        scope, cell, size = tuple(sorted(chosen)), 0, 1
        for discrete in scope:
            cell = cell * self.cardinalities[discrete] + chosen[discrete]
            size *= self.cardinalities[discrete]
        return scope, cell, size

    def _merged(self, clause: Sequence[int]) -> dict[int, np.ndarray]:
        """For each discrete variable of a clause the values under which it is satisfied."""
        found: dict[int, np.ndarray] = {}
        for variable, holds in map(self._literal, clause):
            found[variable] = found.get(variable, False) | holds
        return found

    def _forbid(self, clause: dict[int, np.ndarray], allowed: dict[tuple[int, ...], np.ndarray]) -> None:
        """Forbid the entries in which no part of a clause holds; a long one is cut by variables that are made."""
        if any(holds.all() for holds in clause.values()):
            return
        scope = tuple(sorted(clause))
        size = np.prod([len(holds) for holds in clause.values()], dtype=np.float64)
        is_long = len(clause) > MOST_PARTS or size > MOST_ALLOWED
        if is_long and len(clause) > 2 and scope not in self.labelled:
            first, size = list[int](), 1
            for variable in scope[:-1]:
                size *= len(clause[variable])
                if len(first) >= 2 and size > PIECE:
                    break
                first.append(variable)
            made = self._add([], 2)
            # The variable that is made is true exactly where one of the first parts holds.
            fails = np.ix_(*(~clause[variable] for variable in first))
            entries = np.zeros([*(len(clause[variable]) for variable in first), 2], bool)
            entries[..., 1] = True
            entries[(*fails, 1)] = False
            entries[(*fails, 0)] = True
            allowed[(*first, made)] = entries.reshape(-1)
            rest = {variable: holds for variable, holds in clause.items() if variable not in first}
            self._forbid(rest | {made: np.array([False, True])}, allowed)
            return
        shape = [self.cardinalities[variable] for variable in scope]
        entries = allowed.setdefault(scope, np.ones(int(np.prod(shape)), bool)).reshape(shape)
        entries[np.ix_(*(~clause[variable] for variable in scope))] = False

    def _labels(self) -> list[Labels]:
        """The definitions by scope, those of overlapping conditions in tables of their own."""
        by_scope: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = {}
        single: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
        for variable, (sign, condition) in self.definitions.items():
            chosen = dict(map(self.value.__getitem__, condition)) if min(condition) > 0 else {}
            if len(chosen) == len(condition):
                # Of each discrete variable one value: one entry.
                scope, cell, size = self._entry(chosen)
                if size <= MOST_LABELLED:
                    literals, cells = single.setdefault(scope, ([], []))
                    literals.append(sign * variable)
                    cells.append(cell)
                    continue
            holds: dict[int, np.ndarray] = {}
            for discrete, values in map(self._literal, condition):
                holds[discrete] = holds[discrete] & values if discrete in holds else values
            scope = tuple(sorted(holds))
            shape = [self.cardinalities[discrete] for discrete in scope]
            if float(np.prod(shape, dtype=np.float64)) > MOST_LABELLED:
                self._add([variable], 2)
                continue
            cells = np.ravel_multi_index(np.ix_(*(np.flatnonzero(holds[discrete]) for discrete in scope)), shape)
            by_scope.setdefault(scope, []).append((sign * variable, cells.reshape(-1)))
        # Those that became discrete variables are defined by their clauses again.
        for variable in [v for v in self.definitions if v in self.value]:
            del self.definitions[variable]
        found: list[Labels] = []
        for scope, (literals, cells) in single.items():
            if scope not in by_scope and len(set(cells)) == len(cells):
                found.append(Labels(scope, literals, np.array(cells), np.arange(len(cells))))
            else:
                rows = zip(literals, np.array(cells).reshape(-1, 1))
                by_scope[scope] = [*rows, *by_scope.get(scope, [])]
        return found + [labels for scope, rows in by_scope.items() for labels in self._apart(scope, rows)]

    def _apart(self, scope: tuple[int, ...], rows: Sequence[tuple[int, np.ndarray]]) -> list[Labels]:
        """Definitions (literal, entries) over one scope, such that those of one table exclude each other."""
        self.deadline.remaining()
        size = int(np.prod([self.cardinalities[discrete] for discrete in scope]))
        batches: list[tuple[np.ndarray, list[tuple[int, np.ndarray]]]] = []
        for literal, cells in rows:
            taken, batch = next((one for one in batches if not one[0][cells].any()), (None, []))
            if taken is None:
                taken = np.zeros(size, bool)
                batches.append((taken, batch))
            taken[cells] = True
            batch.append((literal, cells))
        return [Labels.of(scope, batch) for _, batch in batches]


def compile_elimination(cnf: Cnf, deadline: Deadline = NEVER, memory_limit: int | None = None) -> Circuit:
    """A CNF, without repeats and empty clauses, by variable elimination; origin "decision".

    Raises CompileTimeout, OutOfMemory with the width and the size of the best order.
    """
    tables = ClauseTables.of(cnf, deadline)
    order = tables.order(deadline)
    require_room(order.cost, order.width, memory_limit)
    with timed(order):
        return tables.compiled(order, cnf.num_variables, deadline)
