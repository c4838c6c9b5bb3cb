"""Variable elimination as a compiler: the sums and products that it would compute, as a circuit.

Each variable in turn is eliminated: the tables that mention it are joined, and the joined table is summed over it. The
result depends on no weights, so the nodes are recorded, equal ones once, and zeros nowhere. Several roots come from a
second sweep, from the last variable to the first, as in a junction tree.
Source: Dechter 1999 (bucket elimination); Darwiche 2003 (its trace as an arithmetic circuit); Shafer and Shenoy 1990
(both sweeps).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from derivable.circuit.compilation.orders import Order
from derivable.circuit.compilation.tables import Space, Table, TooLarge, product, summed
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.and_or import AND, FALSE, LITERAL, TRUE
from derivable.core.diagnostics import CompileTimeout, OutOfMemory
from derivable.core.progress import NEVER, Deadline

# Bytes of a growing circuit for each node, its two edges and its entry in the table of nodes.
NODE_BYTES = 64
# Part of the entries of all tables from which on few rows of joined tables are missing.
DENSE = 0.75


@dataclass
class _Bucket:
    """What is joined to eliminate a variable.

    inputs  tables of the problem, then messages of the buckets below
    below   the buckets that these messages are of
    message the joined table without the variable, for the bucket above
    above   the bucket that takes the message, -1 if there is none: the message is a single node then
    """

    inputs: list[Table] = field(default_factory=list)
    below: list[int] = field(default_factory=list)
    message: Table | None = None
    above: int = -1


class _Outside:
    """For each of some tables the product of all others and of one more.

    It is made of products of pairs, of pairs of these, and so on, each of which is made once.
    """

    def __init__(self, product: Callable[[Sequence[Table]], Table], tables: Sequence[Table], more: Table):
        self.product, self.levels = product, [list(tables)]
        while len(self.levels[-1]) > 1:
            last = self.levels[-1]
            pairs = [last[first : first + 2] for first in range(0, len(last), 2)]
            self.levels.append([product(pair) if len(pair) == 2 else pair[0] for pair in pairs])
        self.known: dict[tuple[int, int], Table] = {(len(self.levels) - 1, 0): more}

    def of(self, number: int, level: int = 0) -> Table:
        if (level, number) not in self.known:
            outside, tables = self.of(number // 2, level + 1), self.levels[level]
            other = number ^ 1
            self.known[level, number] = self.product([tables[other], outside]) if other < len(tables) else outside
        return self.known[level, number]


class Elimination:
    """Tables whose variables are eliminated in an order, and the nodes that come of it.

    builder        has the nodes of the tables, and gets those that are made
    tables         no two of which mention a variable of the circuit, so that products are decomposable; for each value
                   of a discrete variable the node of one of them, or what it is derived from, is another
    most_nodes     of the builder; then TooLarge is raised
    """

    def __init__(
        self,
        builder: CircuitBuilder,
        tables: Sequence[Table],
        space: Space,
        order: Order,
        deadline: Deadline = NEVER,
        most_nodes: int | None = None,
    ):
        self.builder, self.space, self.order = builder, space, order
        self.deadline, self.most_nodes = deadline, most_nodes
        self.buckets = [_Bucket() for _ in order.order]
        self.free: list[int] = []
        for table in tables:
            self._put(table, -1)
        self._downs: dict[int, Table] = {}
        self._outsides: dict[int, _Outside] = {}
        entries, rows = (sum(numbers) for numbers in zip((0, 0), *((space.size(t.scope), t.num_rows) for t in tables)))
        if order.order and rows >= DENSE * entries and order.cost <= room_of(None) / (2 * NODE_BYTES):
            # A conjunction for each row, and a disjunction for those that differ in the variable that goes.
            expected = int(order.cost * (1 + (1 / space.cardinalities).mean()))
            builder.reserve(expected, 2 * expected)
        for number, bucket in enumerate(self.buckets):
            table = self._product(bucket.inputs)
            bucket.message = summed(space, builder, table, table.scope[:-1])
            bucket.above = self._put(bucket.message, number)

    def _put(self, table: Table, below: int) -> int:
        if not table.scope:
            self.free.append(int(table.nodes[0]) if table.num_rows else FALSE)
            return -1
        above = int(self.space.position[table.scope[-1]])
        self.buckets[above].inputs.append(table)
        if below >= 0:
            self.buckets[above].below.append(below)
        return above

    def _product(self, tables: Sequence[Table]) -> Table:
        self.deadline.remaining()
        made = product(self.space, self.builder, tables)
        if self.most_nodes is not None and self.builder.num_nodes > self.most_nodes:
            raise TooLarge(f"elimination made {self.builder.num_nodes:,} nodes and is not done")
        return made

    def root(self) -> int:
        """The node of the sum over all assignments."""
        return self.builder.conjunction(self.free)

    def roots(self, variable: int) -> np.ndarray:
        """The nodes [value] int64 of the sums over the assignments with each value of a variable."""
        number = int(self.space.position[variable])
        table = self._product([*self.buckets[number].inputs, self._down(number)])
        table = summed(self.space, self.builder, table, (variable,))
        nodes = np.full(int(self.space.cardinalities[variable]), FALSE, np.int64)
        nodes[table.keys] = table.nodes
        return nodes

    def _down(self, number: int) -> Table:
        """What the rest of the problem says to a bucket: a table over the scope of its message."""
        path = [number]
        while path[-1] not in self._downs and self.buckets[path[-1]].above >= 0:
            path.append(self.buckets[path[-1]].above)
        if path[-1] not in self._downs:
            self._downs[path[-1]] = self._others(path[-1])
        for below, above in zip(path[-2::-1], path[:0:-1]):
            bucket, message = self.buckets[above], self.buckets[below].message
            assert message is not None
            if above not in self._outsides:
                self._outsides[above] = _Outside(self._product, bucket.inputs, self._downs[above])
            number_of_message = next(k for k, table in enumerate(bucket.inputs) if table is message)
            joined = self._outsides[above].of(number_of_message)
            stays = tuple(variable for variable in message.scope if variable in joined.scope)
            self._downs[below] = summed(self.space, self.builder, joined, stays)
        return self._downs[number]

    def _others(self, last: int) -> Table:
        """The conjunction of the sums of the other components, each of which ends in a bucket without a message."""
        message = self.buckets[last].message
        assert message is not None
        this_sum = int(message.nodes[0]) if message.num_rows else FALSE
        others = list(self.free)
        others.remove(this_sum)
        node = self.builder.conjunction(others)
        return Table((), np.zeros(int(node != FALSE), np.int64), np.full(int(node != FALSE), node, np.int32))


def memory_of(cost: float) -> float:
    """Bytes that the circuit of an order of such a cost takes while it grows, at most."""
    return 2 * NODE_BYTES * cost


def cost_of(order: Order) -> str:
    """What an order costs, in words."""
    size = memory_of(order.cost)
    unit, power = ("GiB", 30) if size >= 1 << 30 else ("MiB", 20)
    shown = f"{order.cost:,.0f}" if order.cost < 1e12 else f"{order.cost:.1e}"
    return f"width {order.width}, tables of {shown} entries ({order.rule}), up to {size / 2**power:,.1f} {unit}"


@contextmanager
def timed(order: Order) -> Iterator[None]:
    """In this block have an error of time say what the order costs."""
    try:
        yield
    except CompileTimeout as error:
        hint = "raise time_limit, set the variables that evidence fixes, or try compiler='d4' on clauses"
        raise CompileTimeout(f"{error.message}; elimination: {cost_of(order)}", hint=hint) from None


def room_of(memory_limit: int | None) -> float:
    """Bytes that a compilation may take: the limit, or half of the machine's memory."""
    return memory_limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2


def require_room(cost: float, width: int, memory_limit: int | None, size: float | None = None) -> None:
    """Raise OutOfMemory where an order of such a cost does not fit the memory; size: bytes, if they are known."""
    room = room_of(memory_limit)
    size = memory_of(cost) if size is None else size
    if size > room:
        raise OutOfMemory(
            f"elimination would make tables of {cost:,.0f} entries (width {width}), which take up to "
            f"{size / 2**30:,.1f} GiB, and there are {room / 2**30:,.1f}",
            hint="set the variables that evidence fixes, raise memory_limit, or try compiler='d4' on clauses",
        )


def ones_of(builder: CircuitBuilder, groups: Sequence[Sequence[int]]) -> list[tuple[np.ndarray, int]]:
    """For each group of literals: for each literal the conjunction of it and of the negations of the others [literal]
    int32, and that of all negations; linear in their number, of logarithmic height."""
    made: list[tuple[np.ndarray, int]] = [(np.zeros(0, np.int32), TRUE)] * len(groups)
    # Groups whose trees of pairs are as high are made together.
    by_height: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        if len(group):
            by_height.setdefault((len(group) - 1).bit_length(), []).append(number)
    for height, numbers in by_height.items():
        sizes = np.array([len(groups[number]) for number in numbers])
        is_there = np.arange(1 << height) < sizes[:, None]
        literals = np.concatenate([np.asarray(groups[number], np.int32) for number in numbers])
        holds, fails = (np.full(is_there.shape, TRUE, np.int32) for _ in range(2))
        holds[is_there], fails[is_there] = literals_of(builder, literals), literals_of(builder, -literals)
        levels = [fails]
        for _ in range(height):
            levels.append(_both(builder, levels[-1][:, ::2], levels[-1][:, 1::2]))
        outside = np.full((len(numbers), 1), TRUE, np.int32)
        for level in reversed(levels[:-1]):
            # What is outside of one of two is what is outside of both, and the other.
            others = level.reshape(len(numbers), -1, 2)[:, :, ::-1].reshape(level.shape)
            outside = _both(builder, np.repeat(outside, 2, axis=1), others)
        nodes, none = _both(builder, holds, outside), levels[-1][:, 0].tolist()
        for row, number in enumerate(numbers):
            made[number] = nodes[row, : len(groups[number])], none[row]
    return made


def literals_of(builder: CircuitBuilder, literals: np.ndarray) -> np.ndarray:
    """The nodes [literal] int32 of signed variables."""
    offsets = np.zeros(len(literals) + 1, np.int64)
    kinds = np.full(len(literals), LITERAL, np.uint8)
    return builder.add_nodes(kinds, literals, offsets, np.zeros(0, np.int32)).astype(np.int32)


def _both(builder: CircuitBuilder, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The conjunctions of nodes of arrays of one shape."""
    rows = np.stack([first.reshape(-1), second.reshape(-1)], axis=1)
    made = builder.add_gates(AND, 2 * np.arange(len(rows) + 1, dtype=np.int64), rows.reshape(-1))
    return made.reshape(first.shape)
