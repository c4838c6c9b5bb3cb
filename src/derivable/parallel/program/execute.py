"""Runs column programs: one walk over the nodes, and the operations of an array library.

The interpreter, which says what programs mean, is in `numpy_columns`; the tensors of torch, on any device, are in
`bridge.torch_columns`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from derivable.algebra.typed import TypedMonoid
from derivable.parallel.program import nodes as n
from derivable.parallel.program.pieces import in_pieces

# (a loop or what stands for one, rounds until now, rows of the state) -> whether it may go on.
Watch = Callable[[n.Loop | n.Otherwise, int, int], bool]


@dataclass
class Room:
    """How many rows something that grows had room for at the end of the last run, and with how many it began.

    A run that begins with about as many has that room at once: nothing grows, and the blocks that an allocator
    keeps are those that it needs.
    """

    begin: int = 0
    rows: int = 0

    def wanted(self, begin: int) -> int:
        """The room to begin with."""
        if not self.begin <= 2 * begin <= 4 * self.begin:
            self.rows = 0
        self.begin = begin
        return self.rows


class Arrays(ABC):
    """The operations of a library that nodes are run by. Columns are arrays [row] or [row, lane].

    may_cut  whether rows that have too many pairs may be cut
    """

    may_cut = False

    @abstractmethod
    def constant(self, values: Any, dtype: str, count: int | None) -> Any: ...

    def constant_of(self, node: n.Constant, count: int | None) -> Any:
        """The column of a constant, which a library may keep for the next run."""
        return self.constant(node.values, node.type.dtype, count)

    @abstractmethod
    def gather(self, of: Any, rows: Any, otherwise: Any) -> Any: ...

    @abstractmethod
    def fold(self, of: list[Any], rows: Any, count: int, monoid: TypedMonoid | None, is_sorted: bool) -> list[Any]: ...

    @abstractmethod
    def fold_lanes(self, of: Any) -> Any: ...

    @abstractmethod
    def apply(self, function: n.Function | str, operands: list[Any], count: int | None, lanes: int | None) -> list: ...

    @abstractmethod
    def bits(self, of: Any) -> Any: ...

    @abstractmethod
    def concatenate(self, parts: list[Any]) -> Any: ...

    def split(self, of: Any, sizes: Sequence[int]) -> Sequence[Any]:
        return [of[end - size : end] for size, end in zip(sizes, accumulate(sizes))]

    @abstractmethod
    def zeros(self, shape: Sequence[int], like: Any) -> Any:
        """Zeros of the type, and on the device, of an array."""

    def buffer(self, shape: Sequence[int], like: Any) -> Any:
        """An array to `put` rows into, or None if rows are not to be put in place now."""
        return self.zeros(shape, like)

    def put(self, buffer: Any, start: int, end: int, rows: Any) -> Any:
        """A buffer with these rows from `start` to `end`; may be the buffer itself."""
        buffer[start:end] = rows
        return buffer

    @abstractmethod
    def add_at(self, of: Any, rows: Any, more: Any) -> Any:
        """A column with more added to these rows, all of it to a row that stands more than once; may be the column
        itself."""

    def reshape(self, of: Any, count: int | None, lanes: int | None) -> Any:
        """A column as rows of lanes; None where there is no such axis."""
        return of.reshape(tuple(x for x in (count, lanes) if x is not None))

    @abstractmethod
    def compact(self, mask: Any) -> Any: ...

    @abstractmethod
    def build(self, columns: list[Any], types: list[n.Type], count: int, is_sorted: bool) -> Any: ...

    @abstractmethod
    def join(self, probes: list[Any], index: Any, count: int) -> tuple[Any, Any]: ...

    @abstractmethod
    def find(self, probes: list[Any], index: Any, count: int) -> Any: ...

    @abstractmethod
    def sort(self, columns: list[Any], types: list[n.Type], count: int) -> Any: ...

    @abstractmethod
    def unique(self, columns: list[Any], count: int) -> tuple[Any, Any]: ...

    @abstractmethod
    def insert(self, columns: list[Any], types: list[n.Type], known: Any, room: Room) -> Sequence[Any]:
        """The set with these rows, and the columns of those that it had not; `known` is None for a set without rows.

        room  how many rows the set of the last run had room for, if `known` is None; gets those of this one
        """

    @abstractmethod
    def elements(self, known: Any, is_earlier: bool) -> Sequence[Any]: ...

    def build_of(self, known: Any, positions: Sequence[int], types: list[n.Type], is_earlier: bool) -> Any:
        """An index of the elements of a set by some columns."""
        columns = self.elements(known, is_earlier)
        return self.build([columns[position] for position in positions], types, len(columns[0]), False)

    @abstractmethod
    def locate(self, columns: list[Any], types: list[n.Type], known: Any) -> Any: ...

    def is_new(self, rows: Any, known: Any) -> Any:
        return rows >= known.before

    @abstractmethod
    def put_at(self, of: Any, rows: Any, values: Any, is_own: bool) -> Any:
        """A column with other values in these rows; `is_own` says that it may be the column itself."""

    def is_late(self, column: Any) -> bool:
        """Whether a column is none yet, but what `whole` makes it of; gathers, concatenations and sets take such."""
        return False

    def whole(self, column: Any) -> Any:
        """A column that is late, or a result that need not be an array yet, as an array."""
        return column

    @abstractmethod
    def to_host(self, column: Any, dtype: Any = None) -> np.ndarray:
        """A column on the host; integers as those of another dtype, which holds all of them up to their sign."""

    def rows_to_host(self, columns: list[Any]) -> tuple[np.ndarray, list[int]]:
        """Columns of integers as rows [row, column], int32 if no value is negative or larger than that, else int64; and
        the largest value of each column, 0 of an empty one.
        """
        rows = np.stack([self.to_host(column) for column in columns], 1)
        tops = [int(top) for top in rows.max(0, initial=0)]
        fits = not rows.size or (rows.min() >= 0 and max(tops) <= np.iinfo(np.int32).max)
        return (rows.astype(np.int32) if fits else rows), tops

    def call(self, function: Callable, operands: list[Any], count: int, dtypes: list[str]) -> list[Any]:
        """The columns that a function of the host gives."""
        found = function([self.to_host(column) for column in operands], count)
        return [self.constant(np.asarray(x, dtype), dtype, len(x)) for x, dtype in zip(found, dtypes)]


def execute(
    results: Sequence[n.Column],
    given: Mapping[str, Sequence[Any]],
    arrays: Arrays,
    watch: Watch | None = None,
    counts: Counter | None = None,
) -> list[Any]:
    """The columns that a program computes.

    given   name -> the columns [row] of that input, arrays of the library
    watch   (loop, rounds until now, rows of the state) -> whether the loop may go on; called before each round
    counts  gets how often each kind of node was run
    """
    return Prepared(results)(given, arrays, watch, counts)


class Prepared:
    """A program whose order of nodes is found once, for those who run it often; called as `execute` is.

    Concatenations that only add rows to one another share a buffer, so a chain of them takes linear time.
    """

    def __init__(self, results: Sequence[n.Column]):
        nodes = n.nodes_of(results)
        self.results, self.steps, self.capacities = list(results), _steps(nodes, results), _capacities(nodes)
        # By concatenations and insertions.
        self.rooms: defaultdict[n.Node, Room] = defaultdict(Room)

    def __call__(
        self,
        given: Mapping[str, Sequence[Any]],
        arrays: Arrays,
        watch: Watch | None = None,
        counts: Counter | None = None,
    ) -> list[Any]:
        run = Run(given, arrays, watch, counts, self.capacities, None, self.rooms)
        run.run(self.steps)
        run.settle(self.results)
        return run.many(self.results)

    def in_batches(self, given: Mapping[str, Sequence[Any]], arrays: Arrays, items: int, keep: bool = False) -> Run:
        """A run whose columns of values have one more axis, of as many items; for programs without lanes.

        keep  whether the values of all nodes are kept
        """
        run = Run(given, arrays, None, None, self.capacities, items, self.rooms)
        run.run(self.steps, keep)
        return run


@dataclass(frozen=True)
class Step:
    """A node, the sizes that it finds, the nodes whose values go, as it is the last to read them (columns of a large
    relation are most of the memory), the steps of a loop's body, and whether other nodes read it."""

    node: n.Node
    finds: tuple[n.Found, ...]
    drops: tuple[n.Node, ...]
    body: tuple[Step, ...]
    is_read: bool


def _steps(nodes: Sequence[n.Node], kept: Iterable[n.Column]) -> list[Step]:
    last: dict[n.Node, n.Node | None] = {operand.node: node for node in nodes for operand in node.operands}
    read = set(last)
    last.update((column.node, None) for column in kept)
    drops: dict[n.Node | None, list[n.Node]] = {}
    for node in nodes:
        drops.setdefault(last.get(node), []).append(node)
    return [Step(node, _finds(node), tuple(drops.get(node, ())), _body(node), node in read) for node in nodes]


def _body(node: n.Node) -> tuple[Step, ...]:
    match node:
        case n.Loop():
            moving = [inner for inner in n.nodes_of(node.body) if inner in node.moving and type(inner) is not n.Given]
            # Joins of known rows come first, so that their numbers of pairs are read together, and what is put into a
            # column last, after those who read it.
            early = _early(moving)
            moving.sort(key=lambda x: 2 if isinstance(x, n.Put) and x in node.growing else x not in early)
            return tuple(_steps(moving, node.body))
        case n.Pieces():
            return _inside(node, node.body)
        case n.Otherwise():
            return tuple(_steps([inner for inner in n.nodes_of(node.others) if inner in node.inside], node.others))
    return ()


def _early(nodes: Sequence[n.Node]) -> set[n.Node]:
    """Those of a body's nodes that run before the host knows how many pairs joins in it have."""
    late: set[n.Node] = set()
    others: set[n.Node] = set()
    for node in nodes:
        is_late = any(need in late for need in node.needs)
        if isinstance(node, n.Gather) and node.otherwise is None and node.of.node not in late:
            may_run = True
        else:
            may_run = not is_late and isinstance(node, n.Gather | n.Join | n.Build | n.BuildOf | n.Elements)
        if not may_run or not others.isdisjoint(node.needs):
            others.add(node)
        elif is_late or isinstance(node, n.Join):
            late.add(node)
    return set(nodes) - others


def _inside(node: n.Pieces, results: Sequence[n.Column]) -> tuple[Step, ...]:
    given = node.rows[0].node
    return tuple(_steps([x for x in n.nodes_of(results) if x in node.inside and x is not given], results))


def _capacities(nodes: Sequence[n.Node]) -> dict[n.Node, int]:
    """The rows at the end of the chain of concatenations of static sizes that each is a part of, if it is one."""
    found: dict[n.Node, int] = {}
    for node in reversed(nodes):
        before = node.of[0].node if isinstance(node, n.Concatenate) else None
        size = node.types[0].size
        if isinstance(before, n.Concatenate) and isinstance(size, int):
            found[before] = max(found.setdefault(node, size), found.get(before, 0))
    return found


def _finds(node: n.Node) -> tuple[n.Found, ...]:
    sizes = dict.fromkeys(of.size for of in node.types)
    return tuple(size for size in sizes if isinstance(size, n.Found) and size.node is node)


class Run:
    def __init__(
        self,
        given: Mapping[str, Sequence[Any]],
        arrays: Arrays,
        watch: Watch | None,
        counts: Counter | None,
        capacities: Mapping[n.Node, int],
        items: int | None,
        rooms: defaultdict[n.Node, Room],
    ):
        self.given, self.arrays, self.watch, self.counts = given, arrays, watch, counts
        self.capacities, self.items, self.rooms = capacities, items, rooms
        self.values: dict[n.Node, Sequence[Any]] = {}
        # A buffer with the node that has filled it so far.
        self.buffers: dict[n.Node, Any] = {}
        # Of a round: the nodes of `Loop.growing`, and the buffers of concatenations among them, from the rounds before.
        self.growing: frozenset[n.Node] = frozenset()
        self.grown: dict[n.Node, Any] = {}
        # Numbers of rows, or late columns that have them.
        self.found: dict[n.Found, Any] = {}

    def value(self, column: n.Column) -> Any:
        return self.values[column.node][column.number]

    def many(self, columns: Iterable[n.Column]) -> list[Any]:
        return [self.value(column) for column in columns]

    def settle(self, columns: Iterable[n.Column]) -> None:
        """Have arrays for columns that are late."""
        for column in columns:
            values = self.values[column.node]
            if self.arrays.is_late(values[column.number]):
                whole = [*values]
                whole[column.number] = self.arrays.whole(values[column.number])
                self.values[column.node] = whole

    def size(self, size: n.Size | None) -> Any:
        """The number that a size stands for now; None for one number without rows."""
        if size is None or isinstance(size, int):
            return size
        if isinstance(size, n.Sum):
            return sum(map(self.size, size.parts))
        found = self.found[size]
        return found if isinstance(found, int) else len(found)

    def run(self, steps: Iterable[Step], keep: bool = False) -> None:
        for step in steps:
            if self.counts is not None:
                self.counts[type(step.node)] += 1
            match step.node:
                case n.Loop():
                    values = self.loop(step.node, step.body)
                case n.Otherwise():
                    values = self.otherwise(step.node, step.body)
                    if step.is_read:
                        values = [self.arrays.whole(column) for column in values]
                case n.Pieces():
                    values = in_pieces(self, step.node, step.body, _inside(step.node, step.node.folded))
                case _:
                    values = self.node(step.node)
            self.keep(step.node, values, step.finds)
            for node in () if keep else step.drops:
                del self.values[node]

    def keep(self, node: n.Node, values: Sequence[Any], finds: Iterable[n.Found]) -> None:
        self.values[node] = values
        for size in finds:
            value = values[size.number]
            self.found[size] = value if self.arrays.is_late(value) else len(value)

    def node(self, node: n.Node) -> Sequence[Any]:
        arrays, many = self.arrays, self.many
        if isinstance(node, n.Gather) and node.otherwise is None:
            self.settle([node.of])
        elif not isinstance(node, n.Concatenate | n.Insert):
            self.settle(node.operands)
        match node:
            case n.Given():
                return self.given[node.name]
            case n.Constant():
                return (arrays.constant_of(node, self.size(node.type.size)),)
            case n.Gather():
                otherwise = None if node.otherwise is None else self.value(node.otherwise)
                return (arrays.gather(self.value(node.of), self.value(node.rows), otherwise),)
            case n.Fold():
                rows = self.value(node.rows)
                return arrays.fold(many(node.of), rows, self.size(node.size), node.monoid, node.is_sorted)
            case n.FoldLanes():
                return (arrays.fold_lanes(self.value(node.of)),)
            case n.Apply():
                lanes = self.items if node.lanes is None else node.lanes
                return arrays.apply(node.function, many(node.inputs), self.size(node.size), lanes)
            case n.Bits():
                return (arrays.bits(self.value(node.of)),)
            case n.Concatenate():
                return (self.concatenated(node),)
            case n.Split():
                return arrays.split(self.value(node.of), node.sizes)
            case n.Reshape():
                return (arrays.reshape(self.value(node.of), self.size(node.size), node.lanes),)
            case n.Compact():
                return (arrays.compact(self.value(node.mask)),)
            case n.Build():
                columns, types = many(node.columns), _types(node.columns)
                return (arrays.build(columns, types, self.size(node.size), node.is_sorted),)
            case n.Join():
                return arrays.join(many(node.probes), self.value(node.index), self.size(node.size))
            case n.Find():
                return (arrays.find(many(node.probes), self.value(node.index), self.size(node.size)),)
            case n.Sort():
                return (arrays.sort(many(node.columns), _types(node.columns), self.size(node.size)),)
            case n.Unique():
                return arrays.unique(many(node.columns), self.size(node.size))
            case n.Insert():
                known = None if node.into is None else self.value(node.into)
                return arrays.insert(many(node.columns), _types(node.columns), known, self.rooms[node])
            case n.BuildOf():
                types = _types(node.columns)
                return (arrays.build_of(self.value(node.of), node.positions, types, node.elements.is_earlier),)
            case n.Locate():
                return (arrays.locate(many(node.columns), _types(node.columns), self.value(node.among)),)
            case n.IsNew():
                return (arrays.is_new(self.value(node.rows), self.value(node.among)),)
            case n.Put():
                is_own = node in self.growing and node.into.node in self.grown
                return (arrays.put_at(self.value(node.into), self.value(node.rows), self.value(node.values), is_own),)
            case n.Elements():
                return arrays.elements(self.value(node.of), node.is_earlier)
            case n.Call():
                dtypes = [of.dtype for of in node.result]
                return arrays.call(node.function, many(node.of), self.size(node.size), dtypes)
            case n.Custom():
                return node.function(arrays, many(node.of), self.size(node.size))
        raise TypeError(f"not a node: {node!r}")

    def grow(self, node: n.Concatenate) -> Any:
        """A column of a loop's state with more rows, in a buffer that rounds share, which at least doubles."""
        self.settle(node.of)
        parts, start, end = self.many(node.of), self.size(node.of[0].size), self.size(node.types[0].size)
        room, known = self.grown.get(node), self.rooms[node]
        if room is None or len(room) < end:
            known.rows = max(2 * end, known.wanted(start) if room is None else 0)
            room = self.arrays.buffer((known.rows, *parts[0].shape[1:]), parts[0])
            if room is None:
                return self.arrays.concatenate(parts)
            room = self.arrays.put(room, 0, start, parts[0])
        for part in parts[1:]:
            room = self.arrays.put(room, start, start + len(part), part)
            start += len(part)
        self.grown[node] = room
        return room[:end]

    def concatenated(self, node: n.Concatenate) -> Any:
        if node in self.growing:
            return self.grow(node)
        parts, capacity, start = self.many(node.of), self.capacities.get(node), 0
        buffer = self.buffers.pop(node.of[0].node, None)
        if buffer is not None:
            parts, start = parts[1:], self.size(node.of[0].size)
        elif capacity is not None:
            buffer = self.arrays.buffer((capacity, *parts[0].shape[1:]), parts[0])
        if buffer is None:
            return self.arrays.concatenate(parts)
        for part, column in zip(parts, node.of[-len(parts) :]):
            end = start + self.size(column.size)
            buffer = self.arrays.put(buffer, start, end, part)
            start = end
        self.buffers[node] = buffer
        return buffer[:start]

    def otherwise(self, node: n.Otherwise, body: Sequence[Step]) -> Sequence[Any]:
        def watch(rows: int) -> None:
            if self.watch is not None:
                self.watch(node, 0, rows)

        self.settle(node.operands)
        found = node.function(self.arrays, self.many(node.reads), watch)
        if found is not None:
            return found
        return self.inside((), (), node.operands, body, node.others, True)

    def inner(self, values: dict[n.Node, Sequence[Any]]) -> Run:
        """A run of a body that reads these values."""
        found = Run(self.given, self.arrays, self.watch, self.counts, {}, None, self.rooms)
        found.values, found.found = values, dict(self.found)
        return found

    def inside(
        self,
        rows: Sequence[n.Column],
        values: Sequence[Any],
        operands: Sequence[n.Column],
        steps: Iterable[Step],
        results: Sequence[n.Column],
        is_whole: bool,
    ) -> list[Any]:
        """The results of steps that read operands of this run, and values that stand for `rows`, those of one node."""
        inner = self.inner({c.node: self.values[c.node] for c in operands})
        for node in {column.node for column in rows}:
            inner.keep(node, values, _finds(node))
        inner.run(steps)
        if is_whole:
            inner.settle(results)
        return inner.many(results)

    def loop(self, loop: n.Loop, body: Sequence[Step]) -> Sequence[Any]:
        self.settle([*loop.begin, *loop.static])
        state = self.many(loop.begin)
        fixed = {column.node: self.values[column.node] for column in loop.static}
        rounds, grown = 0, {}
        while any(len(state[k]) for k in loop.going):
            if self.watch is not None and not self.watch(loop, rounds, sum(len(state[k]) for k in loop.going)):
                break
            state = self.round(loop, body, fixed, state, grown)
            rounds += 1
        return state

    def round(
        self,
        loop: n.Loop,
        body: Sequence[Step],
        fixed: Mapping[n.Node, Sequence[Any]],
        state: list[Any],
        grown: dict[n.Node, Any],
    ) -> list[Any]:
        """The state after a round; `grown` are the buffers that rounds share."""
        inner = self.inner(dict(fixed))
        inner.growing, inner.grown = loop.growing, grown
        parts: dict[n.Node, list[Any]] = {}
        # The state before the round goes as soon as the body has read it.
        for column in loop.state:
            parts.setdefault(column.node, []).append(state.pop(0))
        for node in list(parts):
            inner.keep(node, parts.pop(node), _finds(node))
        inner.run(body)
        inner.settle(loop.body)
        return inner.many(loop.body)


def _types(columns: Sequence[n.Column]) -> list[n.Type]:
    return [column.type for column in columns]
