"""The fold of an and-or graph as a column program: level by level, in any algebra.

A level gathers the children of all its nodes at once. Those of a node are padded with the neutral element to a power of
two, and laid so that the first half and the second half of the rows are what a round combines: the children of even and
of odd places. After as many rounds as the logarithm of the children all nodes of a level have their values.

It serves arrays on other devices, and dual numbers in derivatives of higher order; on the CPU the kernels are many
times faster. The columns of values share one buffer, so the work is linear in the edges, however deep a graph is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra.typed import TypedFunction, TypedMonoid
from derivable.bridge.columns import OPERANDS, ColumnEngine
from derivable.bridge.protocol import Engine, Shape
from derivable.core.and_or import AND, LITERAL, NOT, OR, TRUE
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Prepared
from derivable.parallel.program.graph import Graph

Columns = tuple[n.Column, ...]


@dataclass(frozen=True)
class Level:
    """Nodes of one height.

    rows   of the children, in the order of `_halved`, kind by kind
    kinds  (kind, the numbers of nodes with up to 1, 2, 4, 8, ... children)
    """

    rows: np.ndarray
    kinds: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Levels:
    """Rows 0 and 1 are zero and one, then the positive and the negative literals, then the levels.

    positive, negative  [literal] columns of the weights
    root_rows           [root]
    """

    positive: np.ndarray
    negative: np.ndarray
    levels: tuple[Level, ...]
    root_rows: np.ndarray

    @cached_property
    def has_negation(self) -> bool:
        return any(kind == NOT for level in self.levels for kind, _ in level.kinds)


def levels_of(graph: Any) -> Levels:
    """The levels of a graph (a plan, a circuit, derivations) whose children come before their parents."""
    kind, offsets, children = graph.kind, graph.offsets, graph.children
    arity = np.diff(offsets)
    height = np.zeros(len(kind), np.int64)
    for node in np.flatnonzero(arity):
        height[node] = height[children[offsets[node] : offsets[node + 1]]].max() + 1
    row = np.zeros(len(kind), np.int64)
    row[kind == TRUE] = 1
    literals = np.flatnonzero(kind == LITERAL)
    literals = literals[np.argsort(graph.literal[literals] < 0, kind="stable")]
    row[literals] = 2 + np.arange(len(literals))
    free = 2 + len(literals)
    rounds = np.ceil(np.log2(np.maximum(arity, 1))).astype(np.int64)
    inner = np.flatnonzero(arity)
    inner = inner[np.lexsort((rounds[inner], kind[inner], height[inner]))]
    levels = []
    for nodes in _runs(inner, height[inner]):
        found, kinds = [], []
        for alike in _runs(nodes, kind[nodes]):
            counts = np.bincount(rounds[alike])
            neutral, matrices, end = int(kind[alike[0]] == AND), [], 0
            for number, count in enumerate(counts):
                start, end = end, end + count
                chosen, place = alike[start:end], np.arange(1 << number)[:, None]
                edges = np.minimum(offsets[chosen] + place, len(children) - 1)
                matrices.append(np.where(place < arity[chosen], row[children[edges]], neutral))
            found.append(_halved(matrices))
            kinds.append((int(kind[alike[0]]), tuple(counts.tolist())))
        row[nodes] = free + np.arange(len(nodes))
        free += len(nodes)
        levels.append(Level(np.concatenate(found), tuple(kinds)))
    variable = np.abs(graph.literal[literals]) - 1
    is_negative = graph.literal[literals] < 0
    return Levels(variable[~is_negative], variable[is_negative], tuple(levels), row[graph.roots])


def _runs(nodes: np.ndarray, keys: np.ndarray) -> list[np.ndarray]:
    """The nodes [node] in groups of equal keys, which stand next to each other."""
    return np.split(nodes, 1 + np.flatnonzero(np.diff(keys))) if len(nodes) else []


def _halved(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """Rows [2**k, node] of the nodes with as many children: those of even places, those of odd places, both laid as the
    next round takes its results, then those of the nodes with one child."""
    single, *others = matrices
    if not others:
        return single[0]
    return np.concatenate([*(_halved([m[start::2] for m in others]) for start in (0, 1)), single[0]])


class LevelColumns(ColumnEngine):
    """Weights [*batch, variable] of each component, and in a second group the negative weights, to values
    [*batch, root] of each component; without a second group negative literals weigh the complement."""

    def __init__(
        self,
        levels: Levels,
        plus: TypedMonoid,
        times: TypedMonoid,
        complement: TypedFunction | None,
        negation: TypedFunction | None,
        groups: int,
        differentiable: bool,
    ):
        self.levels, self.plus, self.times = levels, plus, times
        self.complement = complement if groups == 1 and len(levels.negative) else None
        self.negation = negation if levels.has_negation else None
        self.groups, self.leaves = groups, plus.size
        self.float_leaves = plus.float_components if differentiable else ()

    def __str__(self) -> str:
        operations = self.plus, self.times, self.complement, self.negation
        return "the fold by levels of\n" + "\n".join(map(str, operations)) + f"\n{self.groups} groups"

    @cached_property
    def key(self) -> str:
        digest, levels = hashlib.sha256(), self.levels
        rows = levels.positive, levels.negative, levels.root_rows, *(level.rows for level in levels.levels)
        for array in rows:
            digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
        kinds = [level.kinds for level in levels.levels]
        return f"{self} {self.float_leaves} {kinds} {digest.hexdigest()}"

    @cached_property
    def dual(self) -> Engine:  # type: ignore[override]
        complement, negation = (None if one is None else one.dual for one in (self.complement, self.negation))
        return LevelColumns(self.levels, self.plus.dual, self.times.dual, complement, negation, self.groups, True)

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [(*shape[:-1], len(self.levels.root_rows)) for shape in shapes[: self.leaves]]

    @cached_property
    def program(self) -> Prepared:  # type: ignore[override]
        return Prepared(_Program(self).results())


class _Program:
    def __init__(self, engine: LevelColumns):
        self.engine, self.levels, self.graph = engine, engine.levels, Graph()
        operations = {OR: engine.plus, AND: engine.times, NOT: engine.negation}
        self.functions = {kind: n.Function.of(str(of.name), of) for kind, of in operations.items() if of is not None}

    def results(self) -> Columns:
        values = self.leaves()
        for level in self.levels.levels:
            rows = self.rows(level.rows)
            children = tuple(self.graph.one(n.Gather, x, rows) for x in values)
            parts = self.split(children, [size for _, counts in level.kinds for size in _sizes(counts)])
            made: list[Columns] = []
            for kind, counts in level.kinds:
                made += self.folded(kind, counts, [parts.pop(0) for _ in range(3)])
            values = self.joined([values, *made])
        roots = self.rows(self.levels.root_rows)
        return tuple(self.graph.one(n.Gather, x, roots) for x in values)

    def leaves(self) -> Columns:
        engine, levels = self.engine, self.levels
        types = tuple(n.Type(dtype) for dtype in engine.plus.dtypes)
        given = self.graph(n.Given, OPERANDS, types * engine.groups)
        constants = []
        for pair, argument in zip(zip(engine.plus.neutral, engine.times.neutral), engine.plus.left):
            values = self.graph.one(n.Constant, np.array(pair), n.Type(argument.dtype, 2))
            # What is applied has the items of the run.
            constants.append(self.graph.one(n.Apply, n.Function("copy", (argument,), (argument,)), (values,), 2))
        found: list[Columns] = [tuple(constants)]
        for group, variables in ((given[: engine.leaves], levels.positive), (given[-engine.leaves :], levels.negative)):
            if len(variables):
                rows = self.rows(variables)
                found.append(tuple(self.graph.one(n.Gather, x, rows) for x in group))
        if engine.complement is not None:
            found[-1] = self.applied(n.Function.of("complement", engine.complement), found[-1])
        return self.joined(found)

    def folded(self, kind: int, counts: Sequence[int], parts: Sequence[Columns]) -> list[Columns]:
        """The values of nodes of a kind, those with fewer children first."""
        left, right, single = parts
        if kind == NOT:
            return [self.applied(self.functions[kind], single)]
        found = [single] if counts[0] else []
        while len(counts) > 1:
            counts = counts[1:]
            both = self.applied(self.functions[kind], (*left, *right))
            left, right, single = self.split(both, _sizes(counts))
            found += [single] if counts[0] else []
        return found

    def applied(self, function: n.Function, operands: Columns) -> Columns:
        return self.graph(n.Apply, function, operands, operands[0].size)

    def split(self, columns: Columns, sizes: Sequence[int]) -> list[Columns]:
        """Parts of these sizes, () for one of 0."""
        some = tuple(size for size in sizes if size)
        parts = [columns] if len(some) == 1 else list(zip(*(self.graph(n.Split, x, some) for x in columns)))
        return [parts.pop(0) if size else () for size in sizes]

    def joined(self, parts: Sequence[Columns]) -> Columns:
        return tuple(self.graph.one(n.Concatenate, whole) for whole in zip(*parts))

    def rows(self, rows: np.ndarray) -> n.Column:
        return self.graph.one(n.Constant, rows, n.Type("int64", len(rows)))


def _sizes(counts: Sequence[int]) -> tuple[int, int, int]:
    """(rows of even places, rows of odd places, nodes with one row)."""
    pairs = sum(count << k for k, count in enumerate(counts[1:]))
    return pairs, pairs, counts[0]
