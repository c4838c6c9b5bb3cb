"""Tables of circuit nodes over discrete variables, without their zeros; how they are joined and summed.

A table says for some assignments of its variables which node it has there; everywhere else it is false. An assignment
is one number, its key: digits of mixed radix, the variable that is eliminated first being the last digit. So a sum over
that variable is a run of keys.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.and_or import AND, FALSE, OR
from derivable.core.diagnostics import LimitError
from derivable.core.graph import offsets_of
from derivable.core.progress import NEVER, Deadline

# A table with at least one in this many of its entries is put in order through an array of all entries.
SPARSE = 8
# Tables that have together at most one in this many entries of the whole product are joined before.
FEW = 8
# Gates that are made between two looks at the clock.
PIECE = 1 << 20
# Entries of an array of positions that is made however few rows look into it.
SMALL = 1 << 16


@dataclass(frozen=True, eq=False)
class Table:
    """scope [digit] variables, the most significant first; keys [row] int64, distinct; nodes [row] int32, not false."""

    scope: tuple[int, ...]
    keys: np.ndarray
    nodes: np.ndarray

    @property
    def num_rows(self) -> int:
        return len(self.keys)


class TooLarge(LimitError):
    """Elimination makes more rows or nodes than it may."""


@dataclass(frozen=True, eq=False)
class Space:
    """Variables in an order, with their cardinalities.

    position       [variable] when it is eliminated
    cardinalities  [variable] int64
    most_rows      of a joined table; then TooLarge is raised
    deadline       looked at between parts of large tables
    """

    position: np.ndarray
    cardinalities: np.ndarray
    most_rows: int | None = None
    deadline: Deadline = NEVER

    @staticmethod
    def of(
        order: Sequence[int], cardinalities: Sequence[int], most_rows: int | None = None, deadline: Deadline = NEVER
    ) -> Space:
        """order  all variables, the first to go first"""
        position = np.empty(len(order), np.int64)
        position[list(order)] = np.arange(len(order))
        return Space(position, np.array(cardinalities, np.int64), most_rows, deadline)

    @cached_property
    def _turns(self) -> list[int]:
        return (-self.position).tolist()

    @cached_property
    def _sizes(self) -> list[int]:
        return self.cardinalities.tolist()

    def scope(self, variables: Collection[int]) -> tuple[int, ...]:
        """The variables as a scope: those that go last come first."""
        return tuple(sorted(variables, key=self._turns.__getitem__))

    def strides(self, scope: Sequence[int]) -> dict[int, int]:
        """What one more of each variable adds to a key."""
        strides, stride = {}, 1
        for variable in reversed(scope):
            strides[variable] = stride
            stride *= self._sizes[variable]
        return strides

    def size(self, scope: Collection[int]) -> int:
        return math.prod(map(self._sizes.__getitem__, scope))

    def table(self, variables: Sequence[int], nodes: np.ndarray) -> Table:
        """The table of an array of nodes with an axis for each variable."""
        scope = self.scope(variables)
        dense = nodes.transpose([list(variables).index(variable) for variable in scope]).reshape(-1)
        keys = np.flatnonzero(dense)
        return Table(scope, keys, dense[keys].astype(np.int32))

    def moved(self, keys: np.ndarray, scope: Sequence[int], wanted: Sequence[int], target: Sequence[int]) -> np.ndarray:
        """The digits of the wanted variables [row], as part of keys of another scope that has them.

        Digits that are neighbours in both scopes move together.
        """
        if scope == target == wanted:
            return keys
        source, goal = self.strides(scope), self.strides(target)
        result = np.zeros(len(keys), np.int64)
        wanted_set, run = set(wanted), list[int]()
        for place, variable in enumerate(scope):
            if variable not in wanted_set:
                continue
            run.append(variable)
            after = scope[place + 1] if place + 1 < len(scope) else None
            radix = 1 if after is None else self._sizes[after]
            if after in wanted_set and after is not None and goal[variable] == goal[after] * radix:
                continue
            size = self.size(run)
            digits = keys if source[variable] == 1 else keys // source[variable]
            if run[0] != scope[0]:
                digits = digits % size
            result += digits if goal[variable] == 1 else digits * goal[variable]
            run = []
        return result

    def joined(self, first: Table, second: Table) -> tuple[tuple[int, ...], np.ndarray, np.ndarray | slice, np.ndarray]:
        """The natural join: scope, keys [row], and the row of each table [row]; a slice where all stay as they are."""
        scope = self.scope({*first.scope, *second.scope})
        rest = tuple(variable for variable in second.scope if variable not in first.scope)
        common = tuple(variable for variable in second.scope if variable in first.scope)
        size = self.size(common)
        of_first = self.moved(first.keys, first.scope, common, common)
        of_second = self.moved(second.keys, second.scope, common, common)
        base = self.moved(first.keys, first.scope, first.scope, scope)
        is_small = size <= max(SMALL, 4 * (first.num_rows + second.num_rows))
        if not rest and is_small:
            row = np.full(size, -1, np.int64)
            row[of_second] = np.arange(second.num_rows)
            right = row[of_first]
            if (right >= 0).all():
                return scope, base, slice(None), right
            left = np.flatnonzero(right >= 0)
            return scope, base[left], left, right[left]
        order = np.argsort(of_second, kind="stable") if rest or len(of_second) > 1 else np.arange(len(of_second))
        sorted_keys = of_second[order]
        if is_small:
            ends = np.cumsum(np.bincount(sorted_keys, minlength=size))
            stops = ends[of_first]
            starts = np.where(of_first > 0, ends[of_first - 1], 0)
        else:
            starts = np.searchsorted(sorted_keys, of_first, "left")
            stops = np.searchsorted(sorted_keys, of_first, "right")
        counts = stops - starts
        if not rest:
            left = np.flatnonzero(counts)
            right = order[starts[left]]
            return scope, base[left], left, right
        runs = offsets_of(counts)
        if self.most_rows is not None and runs[-1] > self.most_rows:
            raise TooLarge(f"elimination would make a table of {runs[-1]:,} rows")
        left = np.repeat(np.arange(first.num_rows), counts)
        right = order[np.arange(runs[-1]) + np.repeat(starts - runs[:-1], counts)]
        more = self.moved(second.keys, second.scope, rest, scope)
        return scope, base[left] + more[right], left, right


def product(space: Space, builder: CircuitBuilder, tables: Sequence[Table]) -> Table:
    """The table of conjunctions. Small tables are joined first, so that the rows of the large one have few children."""
    size = space.size({variable for table in tables for variable in table.scope})
    waiting = sorted(tables, key=lambda table: table.num_rows, reverse=True)
    while len(waiting) > 2 and space.size({*waiting[-1].scope, *waiting[-2].scope}) * FEW <= size:
        made = _joined(space, builder, [waiting.pop(), waiting.pop()])
        insort(waiting, made, key=lambda table: -table.num_rows)
    return _joined(space, builder, sorted(waiting, key=lambda table: (-len(table.scope), table.num_rows)))


def _joined(space: Space, builder: CircuitBuilder, tables: Sequence[Table]) -> Table:
    scope, keys, columns = tables[0].scope, tables[0].keys, [tables[0].nodes]
    for table in tables[1:]:
        joined_scope, joined_keys, left, right = space.joined(Table(scope, keys, columns[0]), table)
        if len(columns) > 1 and len(joined_keys) > 2 * len(keys):
            columns = [conjoined(space, builder, columns)]
        scope, keys = joined_scope, joined_keys
        columns = [*(column[left] for column in columns), table.nodes[right]]
    return Table(scope, keys, conjoined(space, builder, columns))


def conjoined(space: Space, builder: CircuitBuilder, columns: Sequence[np.ndarray]) -> np.ndarray:
    """The conjunctions [row] of columns of nodes."""
    if len(columns) == 1:
        return columns[0]
    rows = np.stack(columns, axis=1)
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * len(columns)
    return _gates(space, builder, AND, offsets, rows.reshape(-1))


def _gates(space: Space, builder: CircuitBuilder, kind: int, offsets: np.ndarray, children: np.ndarray) -> np.ndarray:
    """`builder.add_gates`, in parts between which the deadline is looked at."""
    if len(offsets) <= PIECE:
        return builder.add_gates(kind, offsets, children)
    made = np.empty(len(offsets) - 1, np.int32)
    for first in range(0, len(made), PIECE):
        space.deadline.remaining()
        of_part = offsets[first : first + PIECE + 1]
        part = children[of_part[0] : of_part[-1]]
        made[first : first + PIECE] = builder.add_gates(kind, of_part - of_part[0], part)
    return made


def summed(space: Space, builder: CircuitBuilder, table: Table, stays: Sequence[int]) -> Table:
    """The table over the variables that stay, a scope: disjunctions over the others."""
    scope, keys = table.scope, table.keys
    rest = tuple(variable for variable in scope if variable not in stays)
    if scope != (*stays, *rest):
        scope = (*stays, *rest)
        keys = space.moved(keys, table.scope, scope, scope)
    keys, nodes = _in_order(keys, table.nodes, space.size(scope))
    gone = space.size(rest)
    shorter = keys // gone if gone > 1 else keys
    if len(shorter) == 0:
        return Table(tuple(stays), shorter, nodes)
    is_first = np.ones(len(shorter), bool)
    np.not_equal(shorter[1:], shorter[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    if len(starts) == len(shorter):
        return Table(tuple(stays), shorter, nodes)
    offsets = np.append(starts, len(shorter)).astype(np.int64)
    return Table(tuple(stays), shorter[starts], _gates(space, builder, OR, offsets, nodes))


def _in_order(keys: np.ndarray, nodes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys ascending, and their nodes."""
    if len(keys) * SPARSE >= size:
        dense = np.full(size, FALSE, np.int32)
        dense[keys] = nodes
        keys = np.flatnonzero(dense)
        return keys, dense[keys]
    order = np.argsort(keys, kind="stable")
    return keys[order], nodes[order]
