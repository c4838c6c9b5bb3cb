"""Clauses as tables over discrete variables, for variable elimination.

Variables of which exactly one is true, by a clause and one for each pair of them, are the values of one discrete
variable; others have two values. A variable that is defined as the conjunction of some literals and occurs nowhere
else, as the numbers of a Bayesian network do in clauses, is no discrete variable at all: it labels entries of a table.
What is left of the clauses are tables of what is allowed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from derivable.circuit.compilation.blocks import eliminated
from derivable.circuit.compilation.eliminate import Elimination, ones_of, timed
from derivable.circuit.compilation.orders import Order, best_order
from derivable.circuit.compilation.tables import Space, Table
from derivable.circuit.formulas.cnf import Cnf
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.core.and_or import FALSE, TRUE
from derivable.core.graph import offsets_of, ranges
from derivable.core.progress import NEVER, Deadline

# Variables and entries of the table of one clause, entries of a piece of one that has more, and of a labelled table.
MOST_PARTS, MOST_ALLOWED, PIECE, MOST_LABELLED = 6, 1 << 16, 1 << 6, 1 << 22
# Pairs of variables that are looked up at once.
MOST_PAIRS = 1 << 20


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
        memory_limit: int | None = None,
    ) -> Circuit:
        """The circuit by elimination in this order; origin "decision". Raises TooLarge, OutOfMemory.

        most_nodes  of the circuit, which is made at once then
        """
        space = Space.of(order.order, self.cardinalities, most_nodes, deadline)
        builder = CircuitBuilder()
        made: list[Table] = []
        of_variables = ones_of(builder, self.variables)
        for discrete, (nodes, none) in enumerate(of_variables):
            if len(nodes):
                nodes = nodes if len(nodes) > 1 else np.array([none, nodes[0]], np.int32)
                made.append(space.table([discrete], nodes))
        allowed = dict(self.allowed)
        of_labels = ones_of(builder, [labels.literals for labels in self.labels])
        for labels, (nodes, none) in zip(self.labels, of_labels):
            shape = [self.cardinalities[variable] for variable in labels.scope]
            entries = np.full(math.prod(shape), none, np.int32)
            entries[labels.cells] = nodes[labels.which]
            if labels.scope in allowed:
                entries[~allowed.pop(labels.scope)] = FALSE
            made.append(space.table(labels.scope, entries.reshape(shape)))
        for scope, entries in allowed.items():
            shape = [self.cardinalities[variable] for variable in scope]
            made.append(space.table(scope, np.where(entries, TRUE, FALSE).reshape(shape)))
        if most_nodes is None:
            return eliminated(builder, made, space, order, num_variables, memory_limit=memory_limit)
        root = Elimination(builder, made, space, order, deadline, most_nodes).root()
        return builder.build([root], num_variables, origin="decision")


@dataclass(frozen=True, eq=False)
class _Definitions:
    """Variables that are true, or false, exactly where a condition holds.

    variables   [definition]
    signs       [definition] 1 or -1
    offsets     [definition + 1] of the literals of its condition, of which it is the conjunction
    conditions  [literal]
    """

    variables: np.ndarray
    signs: np.ndarray
    offsets: np.ndarray
    conditions: np.ndarray

    def taken(self, which: np.ndarray) -> _Definitions:
        """which  [definition] bool"""
        sizes = np.diff(self.offsets)
        conditions = self.conditions[np.repeat(which, sizes)]
        return _Definitions(self.variables[which], self.signs[which], offsets_of(sizes[which]), conditions)


class _Reading:
    """Which discrete variables there are, and what each clause says about them; in arrays, whatever has many clauses.

    lengths   [clause]
    clause    [literal] the clause that each literal of the formula is in
    discrete  [variable of the formula] the discrete variable that it is a value of, -1 for none; from 1
    value     [variable of the formula] which value it is
    """

    def __init__(self, cnf: Cnf, deadline: Deadline):
        self.deadline, self.num_variables = deadline, cnf.num_variables
        self.offsets, self.literals = cnf.offsets, cnf.literals.astype(np.int64)
        self.lengths = np.diff(cnf.offsets)
        self.clause = np.repeat(np.arange(cnf.num_clauses), self.lengths)
        self.mentioned = np.abs(self.literals)
        self.is_read = np.zeros(cnf.num_clauses, bool)
        self.variables: list[list[int]] = []
        self.cardinalities: list[int] = []
        self.discrete = np.full(cnf.num_variables + 1, -1, np.int64)
        self.value = np.zeros(cnf.num_variables + 1, np.int64)

    def tables(self) -> ClauseTables:
        for group in self._groups():
            self._add(group.tolist(), len(group))
        definitions = self._definitions()
        is_other = np.bincount(self.mentioned, minlength=self.num_variables + 1) > 0
        is_other[definitions.variables] = False
        for variable in np.flatnonzero(is_other & (self.discrete < 0)).tolist():
            self._add([variable], 2)
        labels = self._labels(definitions)
        # Definitions are no variables of tables, and nothing else mentions them.
        self.is_read[self.clause[self.discrete[self.mentioned] < 0]] = True
        self.labelled = {one.scope for one in labels}
        self.allowed: dict[tuple[int, ...], np.ndarray] = {}
        self._forbid_cells()
        for number in np.flatnonzero(~self.is_read).tolist():
            self.deadline.remaining()
            literals = self.literals[self.offsets[number] : self.offsets[number + 1]]
            self._forbid(self._merged(literals, is_any=True))
        return ClauseTables(self.variables, self.cardinalities, self.allowed, labels)

    def _add(self, values: list[int], cardinality: int) -> int:
        number = len(self.variables)
        self.variables.append(values)
        self.cardinalities.append(cardinality)
        self.discrete[values] = number
        self.value[values] = 1 if len(values) == 1 else range(len(values))
        return number

    def _groups(self) -> list[np.ndarray]:
        """Sets of variables of which exactly one is true, the largest first, each variable in one at most."""
        num_negative = np.add.reduceat((self.literals < 0).astype(np.int64), self.offsets[:-1])
        first = self.offsets[:-1][(self.lengths == 2) & (num_negative == 2)]
        low, high, radix = self.mentioned[first], self.mentioned[first + 1], self.num_variables + 1
        pairs = np.sort(low * radix + high)
        partners = np.bincount(low, minlength=radix) + np.bincount(high, minlength=radix)
        is_possible = (num_negative == 0) & (self.lengths > 1)
        is_possible[self.clause[partners[self.mentioned] < self.lengths[self.clause] - 1]] = False
        exclusive: list[tuple[np.ndarray, np.ndarray]] = []
        for length in np.unique(self.lengths[is_possible])[::-1].tolist():
            numbers = np.flatnonzero(is_possible & (self.lengths == length))
            members = self.mentioned[self.offsets[numbers, None] + np.arange(length)]
            one, other = np.triu_indices(length, 1)
            step = max(1, MOST_PAIRS // len(one))
            for start in range(0, len(numbers), step):
                self.deadline.remaining()
                part = members[start : start + step]
                keys = part[:, one] * radix + part[:, other]
                positions = np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)
                is_group = (pairs[positions] == keys).all(axis=1)
                exclusive.append((numbers[start : start + step][is_group], part[is_group]))
        taken: set[int] = set()
        groups = []
        for numbers, members in exclusive:
            for number, row, variables in zip(numbers.tolist(), members, members.tolist()):
                if taken.isdisjoint(variables):
                    taken.update(variables)
                    groups.append(row)
                    self.is_read[number] = True
        return groups

    def _definitions(self) -> _Definitions:
        """Variables that are nothing but defined: a clause says that the condition implies the definition, and one for
        each literal of the condition that the definition implies it."""
        at = np.flatnonzero(self.discrete[self.mentioned] < 0)
        clause = self.clause[at]
        variable, length, start = self.mentioned[at], self.lengths[clause], self.offsets[clause]
        last = start + length - 1
        # Of a clause of two literals the other one.
        other = np.where(length == 2, self.literals[start] + self.literals[last] - self.literals[at], 0)
        # The longest clause of each variable, then others by their other variable.
        order = np.lexsort((np.abs(other), -length, variable))
        at, variable, clause, length, other = (one[order] for one in (at, variable, clause, length, other))
        firsts = np.flatnonzero(np.diff(variable, prepend=0))
        counts = np.diff(firsts, append=len(variable))
        firsts = firsts[(counts == length[firsts]) & (counts > 1)]
        sizes = length[firsts] - 1
        rest = ranges(firsts + 1, sizes)
        whole = ranges(self.offsets[clause[firsts]], sizes + 1)
        whole = whole[self.mentioned[whole] != np.repeat(variable[firsts], sizes + 1)]
        sign = np.sign(self.literals[at[firsts]])
        condition = -self.literals[whole]
        fits = (
            (length[rest] == 2)
            & (other[rest] == condition)
            & (np.sign(self.literals[at[rest]]) == -np.repeat(sign, sizes))
        )
        is_one = np.logical_and.reduceat(fits, offsets_of(sizes)[:-1]) if len(sizes) else np.zeros(0, bool)
        candidates = _Definitions(variable[firsts], sign, offsets_of(sizes), condition).taken(is_one)
        return candidates.taken(self._independent(candidates))

    def _independent(self, definitions: _Definitions) -> np.ndarray:
        """[definition] bool: some of which none is in the condition of another, as many as come in order."""
        number = np.full(self.num_variables + 1, -1)
        number[definitions.variables] = np.arange(len(definitions.variables))
        inner = number[np.abs(definitions.conditions)]
        owner = np.repeat(np.arange(len(definitions.variables)), np.diff(definitions.offsets))
        near: dict[int, list[int]] = {}
        for one, two in zip(owner[inner >= 0].tolist(), inner[inner >= 0].tolist()):
            near.setdefault(one, []).append(two)
            near.setdefault(two, []).append(one)
        stays = np.ones(len(definitions.variables), bool)
        stays[list(near)] = False
        for one in sorted(near):
            stays[one] = not stays[near[one]].any()
        return stays

    def _exact(self, literals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What literals say: the discrete variable, its value, and whether the literal is true for just this value."""
        variables = np.abs(literals)
        discrete, value = self.discrete[variables], self.value[variables]
        is_two = np.array(self.cardinalities, np.int64)[discrete] == 2
        return discrete, np.where(literals > 0, value, 1 - value), (literals > 0) | is_two

    def _cells(self, discrete: np.ndarray, value: np.ndarray) -> list[tuple[tuple[int, ...], float, slice, np.ndarray]]:
        """Values of discrete variables as entries of tables: for each run of rows of one scope the scope, the size of
        its table, the rows, and their entries.

        discrete, value  [row, column] the discrete variables in ascending order
        """
        radix = np.array(self.cardinalities, np.int64)[discrete]
        is_other = (discrete[1:] != discrete[:-1]).any(axis=1)
        starts = np.concatenate([[0], np.flatnonzero(is_other) + 1])
        stops = np.append(starts[1:], len(discrete))
        cells = np.zeros(len(discrete), np.int64)
        for column in range(discrete.shape[1]):
            cells = cells * radix[:, column] + value[:, column]
        sizes = radix[starts].prod(axis=1, dtype=np.float64).tolist()
        rows = [slice(start, stop) for start, stop in zip(starts.tolist(), stops.tolist())]
        scopes = map(tuple, discrete[starts].tolist())
        return [(scope, size, row, cells[row]) for scope, size, row in zip(scopes, sizes, rows)]

    def _forbid_cells(self) -> None:
        """Forbid what clauses forbid that say of each discrete variable just which value it has not."""
        at = np.flatnonzero(~self.is_read[self.clause])
        discrete, value, is_exact = self._exact(-self.literals[at])
        order = np.lexsort((discrete, self.clause[at]))
        clause, discrete, value, is_exact = (one[order] for one in (self.clause[at], discrete, value, is_exact))
        is_again = (clause[1:] == clause[:-1]) & (discrete[1:] == discrete[:-1])
        # Two values of one variable are never true together.
        is_true = is_again & (value[1:] != value[:-1]) & is_exact[1:] & is_exact[:-1]
        self.is_read[clause[1:][is_true]] = True
        is_cell = ~self.is_read
        is_cell[clause[~is_exact]] = False
        is_cell[clause[1:][is_again]] = False
        for length in np.unique(self.lengths[is_cell]).tolist():
            self.deadline.remaining()
            numbers = np.flatnonzero(is_cell & (self.lengths == length))
            rows = np.searchsorted(clause, numbers)[:, None] + np.arange(length)
            runs = self._cells(discrete[rows], value[rows])
            count: Counter[tuple[int, ...]] = Counter()
            for scope, _, _, cells in runs:
                count[scope] += len(cells)
            for scope, size, part, cells in runs:
                is_short = length <= MOST_PARTS and size <= MOST_ALLOWED
                # Pieces of that many clauses would have as many entries together.
                is_dense = size <= min(PIECE * count[scope], MOST_LABELLED)
                if is_short or is_dense or scope in self.labelled:
                    self._entries(scope)[cells] = False
                    self.is_read[numbers[part]] = True

    def _entries(self, scope: tuple[int, ...]) -> np.ndarray:
        """Which entries of a scope are allowed [entry], to be written."""
        if scope not in self.allowed:
            self.allowed[scope] = np.ones(math.prod(self.cardinalities[discrete] for discrete in scope), bool)
        return self.allowed[scope]

    def _merged(self, literals: np.ndarray, is_any: bool) -> dict[int, np.ndarray]:
        """For each discrete variable of some literals the values [value] bool for which one, or each, is true."""
        merged: dict[int, np.ndarray] = {}
        for literal in literals.tolist():
            discrete, value = int(self.discrete[abs(literal)]), self.value[abs(literal)]
            holds = (np.arange(self.cardinalities[discrete]) == value) == (literal > 0)
            if discrete in merged:
                holds = merged[discrete] | holds if is_any else merged[discrete] & holds
            merged[discrete] = holds
        return merged

    def _forbid(self, clause: dict[int, np.ndarray]) -> None:
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
            self.allowed[(*first, made)] = entries.reshape(-1)
            rest = {variable: holds for variable, holds in clause.items() if variable not in first}
            self._forbid(rest | {made: np.array([False, True])})
            return
        shape = [self.cardinalities[variable] for variable in scope]
        entries = self._entries(scope).reshape(shape)
        entries[np.ix_(*(~clause[variable] for variable in scope))] = False

    def _labels(self, definitions: _Definitions) -> list[Labels]:
        """The definitions by scope, those of overlapping conditions in tables of their own."""
        sizes = np.diff(definitions.offsets)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        literals = definitions.signs * definitions.variables
        discrete, value, is_exact = self._exact(definitions.conditions)
        order = np.lexsort((discrete, owner))
        discrete, value = discrete[order], value[order]
        # Of each discrete variable one value: one entry.
        is_cell = np.ones(len(sizes), bool)
        is_cell[owner[~is_exact]] = False
        is_cell[owner[1:][(discrete[1:] == discrete[:-1]) & (owner[1:] == owner[:-1])]] = False
        single: dict[tuple[int, ...], list[tuple[np.ndarray, np.ndarray]]] = {}
        for length in np.unique(sizes[is_cell]).tolist():
            self.deadline.remaining()
            numbers = np.flatnonzero(is_cell & (sizes == length))
            rows = definitions.offsets[numbers, None] + np.arange(length)
            for scope, size, part, cells in self._cells(discrete[rows], value[rows]):
                if size <= MOST_LABELLED:
                    single.setdefault(scope, []).append((literals[numbers[part]], cells))
                else:
                    is_cell[numbers[part]] = False
        by_scope: dict[tuple[int, ...], list[tuple[int, np.ndarray]]] = {}
        for number in np.flatnonzero(~is_cell).tolist():
            self.deadline.remaining()
            start, stop = definitions.offsets[number : number + 2]
            holds = self._merged(definitions.conditions[start:stop], is_any=False)
            scope = tuple(sorted(holds))
            shape = [self.cardinalities[discrete] for discrete in scope]
            if math.prod(shape) > MOST_LABELLED:
                # Its clauses define it, as those of any other.
                self._add([int(definitions.variables[number])], 2)
                continue
            cells = np.ravel_multi_index(np.ix_(*(np.flatnonzero(holds[discrete]) for discrete in scope)), shape)
            by_scope.setdefault(scope, []).append((int(literals[number]), cells.reshape(-1)))
        labels: list[Labels] = []
        for scope, runs in single.items():
            names, cells = (np.concatenate(parts) for parts in zip(*runs))
            if scope not in by_scope and len(np.unique(cells)) == len(cells):
                labels.append(Labels(scope, names.tolist(), cells, np.arange(len(cells))))
            else:
                rows = zip(names.tolist(), cells.reshape(-1, 1))
                by_scope[scope] = [*rows, *by_scope.get(scope, [])]
        return labels + [one for scope, rows in by_scope.items() for one in self._apart(scope, rows)]

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
    with timed(order):
        return tables.compiled(order, cnf.num_variables, deadline, memory_limit=memory_limit)
