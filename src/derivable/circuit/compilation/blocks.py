"""Variable elimination as a program over dense tables, for what needs its sums and no circuit of them.

The tables of a problem are arrays of all their entries, and so is what a bucket sends to the bucket above. The joined
table of a bucket is never made: `kernels.dense_blocks` multiplies and sums at once. A program has a few numbers for
each bucket, so it is made in the time of some hundred calls, however large the tables are.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from derivable.circuit.compilation.eliminate import Elimination, require_room
from derivable.circuit.compilation.orders import Order
from derivable.circuit.compilation.tables import FEW, Space, Table
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.graph.elimination_circuit import Blocks, EliminationCircuit
from derivable.circuit.kernels.dense_blocks import fold_blocks
from derivable.core.progress import NEVER

# Entries of a run at most, so that the buffers of a block stay in the cache.
LONGEST = 1024
# Bytes of an entry of a table or of a result, with its adjoint.
VALUE_BYTES = 16
# Joined tables of which less than one entry in this many can be anything but zero are made without their zeros.
PRUNED = 16


@dataclass(frozen=True)
class _Part:
    """A table, or the result of a block: where it begins, and its variables, those that are eliminated first first."""

    start: int
    scope: tuple[int, ...]


class BlockProgram:
    """The blocks that eliminate the variables of some tables in the order of a space.

    num_values, entries  as in `Blocks`
    """

    def __init__(self, space: Space, tables: Sequence[Table]):
        self.space, self.tables = space, tables
        self.sizes, self.turn = space.cardinalities.tolist(), space.position.tolist()
        self.num_values = self.entries = 0
        self.blocks: list[tuple[int, ...]] = []
        self.shape: list[int] = []
        self.first: list[int] = []
        self.along: list[int] = []
        self.strides: list[int] = []
        self.num_room = self.num_positions = 1
        self.free: list[_Part] = []
        self.buckets: list[list[_Part]] = [[] for _ in self.sizes]
        for table in tables:
            self._put(self._part(table.scope[::-1]))
        self.num_cells = self.num_values
        for bucket in self.buckets:
            parts = self._joined_first(bucket)
            scope = self._scope(parts)
            self._put(self._block(parts, scope[1:], scope[0]))
        self._block(self.free, (), None)

    def _part(self, scope: tuple[int, ...]) -> _Part:
        start = self.num_values
        self.num_values += self._size(scope)
        return _Part(start, scope)

    def _put(self, part: _Part) -> None:
        (self.buckets[self.turn[part.scope[0]]] if part.scope else self.free).append(part)

    def _size(self, scope: Sequence[int]) -> int:
        return math.prod([self.sizes[variable] for variable in scope])

    def _scope(self, parts: Sequence[_Part]) -> tuple[int, ...]:
        return tuple(sorted({variable for part in parts for variable in part.scope}, key=self.turn.__getitem__))

    def _joined_first(self, parts: list[_Part]) -> list[_Part]:
        """The parts of a block, small ones multiplied before, so that few are multiplied for each entry."""
        if len(parts) <= 2:
            return parts
        size = self._size(self._scope(parts))
        waiting = sorted(parts, key=lambda part: self._size(part.scope), reverse=True)
        while len(waiting) > 2:
            scope = self._scope(waiting[-2:])
            if self._size(scope) * FEW > size:
                break
            made = self._block([waiting.pop(), waiting.pop()], scope, None)
            insort(waiting, made, key=lambda part: -self._size(part.scope))
        return waiting

    def _block(self, parts: Sequence[_Part], scope: tuple[int, ...], summed: int | None) -> _Part:
        """The sum of the products of some parts over a variable, or the products."""
        terms = 1 if summed is None else self.sizes[summed]
        steps = [self._steps(part.scope) for part in parts]
        axes: list[int] = []
        columns: list[list[int]] = []
        for variable in scope:
            size, column = self.sizes[variable], [step.get(variable, 0) for step in steps]
            # Neighbours that are one axis in each part are one.
            is_next = columns and all(before == here * size for before, here in zip(columns[-1], column))
            if is_next and axes[-1] * size <= LONGEST:
                axes[-1], columns[-1] = axes[-1] * size, column
                continue
            axes.append(size)
            columns.append(column)
        run, last = (axes.pop(), columns.pop()) if axes else (1, [0] * len(parts))
        order = sorted(range(len(parts)), key=last.__getitem__)
        moving = sum(last)
        result = self._part(scope)
        self.blocks.append(
            (len(self.shape), len(axes), run, terms, len(self.first), len(parts) - moving, moving, result.start)
        )
        self.shape += axes
        for one in order:
            self.first.append(parts[one].start)
            self.along.append(0 if summed is None else steps[one].get(summed, 0))
            self.strides += [column[one] for column in columns]
        self.entries += run * math.prod(axes) * terms
        self.num_room = max(self.num_room, (moving + 2) * run, len(parts) + 1)
        self.num_positions = max(self.num_positions, len(parts) + len(axes))
        return result

    def _steps(self, scope: tuple[int, ...]) -> dict[int, int]:
        """What one more of each variable adds to a position."""
        steps, step = {}, 1
        for variable in reversed(scope):
            steps[variable] = step
            step *= self.sizes[variable]
        return steps

    def program(self, builder: CircuitBuilder, num_variables: int, alive: int) -> Blocks:
        """As arrays.

        builder  has the nodes of the tables
        alive    as in `Blocks`
        """
        nodes, starts = np.empty(self.num_cells, np.int32), [0]
        for table in self.tables:
            starts.append(self._spread(table, table.nodes, nodes, starts[-1]))
        is_used = np.zeros(builder.num_nodes, bool)
        is_used[nodes] = True
        roots = np.flatnonzero(is_used)
        number = np.zeros(builder.num_nodes, np.int32)
        number[roots] = np.arange(len(roots))
        return Blocks(
            builder.build(roots, num_variables),
            number[nodes],
            np.array(starts[:-1], np.int64),
            *self._arrays(),
            self.num_values,
            self.num_room,
            self.num_positions,
            self.entries,
            alive,
        )

    def alive(self) -> int:
        """Entries of joined tables that are not zero whatever the weights are."""
        values, start = np.empty(self.num_values), 0
        for table in self.tables:
            start = self._spread(table, np.ones(table.num_rows), values, start)
        buffers = (np.empty(size) for size in (len(self.blocks), self.num_room))
        positions = np.empty(self.num_positions, np.int64)
        return fold_blocks(*self._arrays(), values, *buffers, positions, True)[0]

    def _spread(self, table: Table, rows: np.ndarray, target: np.ndarray, start: int) -> int:
        """Write a table with a number for each of its rows as all its entries; returns where they end."""
        sizes = [self.sizes[variable] for variable in table.scope]
        dense = np.zeros(math.prod(sizes), target.dtype)
        dense[table.keys] = rows
        stop = start + len(dense)
        target[start:stop] = dense.reshape(sizes).transpose().reshape(-1)
        return stop

    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The program as the kernels take it."""
        lists = self.shape, self.first, self.along, self.strides
        shape, first, along, strides = (np.array(numbers, np.int64) for numbers in lists)
        return np.array(self.blocks, np.int64).reshape(-1, 8), shape, first, along, strides


def eliminated(
    builder: CircuitBuilder,
    tables: Sequence[Table],
    space: Space,
    order: Order,
    num_variables: int,
    weights: tuple[np.ndarray, np.ndarray] | None = None,
    origin: str = "decision",
    memory_limit: int | None = None,
    is_smooth: bool = True,
) -> Circuit:
    """The circuit of the sum over all assignments: tables that are folded as they are, whose nodes are made on first
    use, or its nodes, where most entries of the tables are zeros. Raises OutOfMemory.

    builder    has the nodes of the tables, of this circuit alone
    is_smooth  whether all entries of a table but zeros mention the same variables
    """

    def make(deadline=NEVER) -> Circuit:
        require_room(order.cost, order.width, memory_limit)
        root = Elimination(builder, tables, replace(space, deadline=deadline), order, deadline).root()
        return builder.build([root], num_variables, weights, origin)

    program = BlockProgram(space, tables)
    require_room(order.cost, order.width, memory_limit, VALUE_BYTES * program.num_values)
    is_full = sum(table.num_rows for table in tables) == program.num_cells
    alive = program.entries if is_full else program.alive()
    if alive * PRUNED < program.entries:
        return make(space.deadline)
    blocks = program.program(builder, num_variables, alive)
    return EliminationCircuit.of(blocks, is_smooth, make, num_variables, weights, origin)
