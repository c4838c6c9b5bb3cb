"""The fold by child passes: array operations of NumPy, torch or jax.numpy, in any algebra.

Pass j of a level combines the partial results of all its nodes of one kind with their j-th children; nodes with
more children come first, so a pass works on a prefix. It serves tensors on other devices, and dual numbers in
derivatives of higher order; on the CPU the kernels are many times faster.

All values have one buffer of their final size, and so have all adjoints. Each level writes its rows, so the work is
linear in the edges, however deep a graph is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from derivable.algebra.expr.emit_arrays import compile_jnp, compile_torch
from derivable.algebra.monoid import TypedFunction, TypedMonoid, evaluate
from derivable.bridge.protocol import Engine, Functions, Shape
from derivable.core.and_or import LITERAL, NOT, OR, TRUE


@dataclass(frozen=True)
class Level:
    """Nodes of one kind and height: `passes[j]` are the rows of the j-th children of the nodes that have one."""

    kind: int
    passes: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Passes:
    """Rows 0 and 1 are zero and one, then the literals, then the levels.

    positive   [literal] bool; variable [literal]: the column of the weights
    root_rows  [root]
    """

    variable: np.ndarray
    positive: np.ndarray
    levels: tuple[Level, ...]
    root_rows: np.ndarray

    @cached_property
    def positive_column(self) -> np.ndarray:
        return self.positive[:, None]

    @cached_property
    def by_sign(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """(rows of literals, columns of their variables) of the positive and of the negative ones."""
        chosen = [np.flatnonzero(self.positive == sign) for sign in (True, False)]
        return tuple((rows, self.variable[rows]) for rows in chosen)


def passes_of(graph: Any) -> Passes:
    """The passes of a graph (a plan, a circuit, derivations) whose children come before their parents."""
    kind, offsets, children = graph.kind, graph.offsets, graph.children
    arity = np.diff(offsets)
    height = np.zeros(len(kind), np.int64)
    for node in np.flatnonzero(arity):
        height[node] = height[children[offsets[node] : offsets[node + 1]]].max() + 1
    row = np.zeros(len(kind), np.int64)
    row[kind == TRUE] = 1
    literals = np.flatnonzero(kind == LITERAL)
    row[literals] = 2 + np.arange(len(literals))
    free = 2 + len(literals)
    levels = []
    inner = np.flatnonzero(arity)
    inner = inner[np.lexsort((-arity[inner], kind[inner], height[inner]))]
    first = np.flatnonzero(np.diff(height[inner] * (NOT + 1) + kind[inner], prepend=-1))
    for nodes in np.split(inner, first[1:]) if len(inner) else []:
        passes = []
        for position in range(int(arity[nodes[0]])):
            having = nodes[: int((arity[nodes] > position).sum())]
            passes.append(row[children[offsets[having] + position]])
        row[nodes] = free + np.arange(len(nodes))
        free += len(nodes)
        levels.append(Level(int(kind[nodes[0]]), tuple(passes)))
    variable = np.abs(graph.literal[literals]) - 1
    return Passes(variable, graph.literal[literals] > 0, tuple(levels), row[graph.roots])


class ChildPasses(Engine):
    """Weights [*batch, variable] of each component, and in a second group the negative weights, to values
    [*batch, root] of each component; without a second group negative literals weigh the complement."""

    def __init__(
        self,
        passes: Passes,
        plus: TypedMonoid,
        times: TypedMonoid,
        complement: TypedFunction | None,
        negation: TypedFunction | None,
        groups: int,
        differentiable: bool,
    ):
        self.passes, self.plus, self.times = passes, plus, times
        self.complement = None if groups == 2 or bool(passes.positive.all()) else complement
        self.negation = negation if any(level.kind == NOT for level in passes.levels) else None
        self.groups, self.leaves = groups, plus.size
        self.float_leaves = plus.float_components if differentiable else ()

    def __str__(self) -> str:
        operations = self.plus, self.times, self.complement, self.negation
        return "the fold by child passes of\n" + "\n".join(map(str, operations)) + f"\n{self.groups} groups"

    @cached_property
    def dual(self) -> Engine:  # type: ignore[override]
        complement, negation = (None if one is None else one.dual for one in (self.complement, self.negation))
        return ChildPasses(self.passes, self.plus.dual, self.times.dual, complement, negation, self.groups, True)

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [(*shape[:-1], len(self.passes.root_rows)) for shape in shapes[: self.leaves]]

    def apply(self, structure: Any, operands: Sequence[Any], arrays: Any = None) -> list[Any]:
        arrays = arrays or _NumPy(np)
        batch = operands[0].shape[:-1]
        _, values, _ = self._values(arrays, operands)
        roots = self.passes.root_rows
        return [arrays.take(x, roots).T.reshape(*batch, len(roots)) for x in values]

    def pull(
        self,
        structure: Any,
        adjoints: Sequence[Any],
        operands: Sequence[Any],
        results: Sequence[Any],
        kept: Sequence[Any] = (),
        arrays: Any = None,
    ) -> list[Any]:
        passes, floats, arrays = self.passes, self.float_leaves, arrays or _NumPy(np)
        leaves, values, totals = self._values(arrays, operands)
        below: list[Any] = [arrays.zeros(x.shape, x) for x in values]
        for k, seed in zip(floats, adjoints):
            if seed is not None:
                by_root = seed.reshape(-1, len(passes.root_rows)).T
                below[k] = arrays.add_at(below[k], passes.root_rows, by_root)
        end = len(values[0])
        for level, partials in zip(reversed(passes.levels), reversed(totals)):
            start, monoid = end - len(level.passes[0]), self.plus if level.kind == OR else self.times
            adjoint = [x[start:end] for x in below]
            for positions, before in zip(reversed(level.passes[1:]), reversed(partials)):
                count = len(positions)
                given = [x[:count] for x in before], [arrays.take(x, positions) for x in values]
                left, right = self._pulled(arrays, monoid, *given, [x[:count] for x in adjoint])
                for k in floats:
                    rest = adjoint[k][count:]
                    adjoint[k] = arrays.join([left[k], rest]) if len(rest) else left[k]
                    below[k] = arrays.add_at(below[k], positions, right[k])
            if level.kind == NOT:
                adjoint = self._negated_back(arrays, [arrays.take(x, level.passes[0]) for x in values], adjoint)
            for k in floats:
                below[k] = arrays.add_at(below[k], level.passes[0], adjoint[k])
            end = start
        return self._of_operands(arrays, operands, leaves, [x[2:end] for x in below])

    @cached_property
    def _torch(self) -> _Arrays:
        import torch

        return _Torch(torch)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_torch"}

    def elsewhere(self, library: str) -> Functions:
        if library == "torch":
            arrays: _Arrays = self._torch
        else:
            import jax.numpy as jnp

            arrays = _Jnp(jnp)
        return partial(self.apply, arrays=arrays), partial(self.pull, arrays=arrays)

    def _values(self, arrays: Any, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[list[Any]]]:
        """([component] columns [variable, row] of each group in turn, [component] values [2 + literal and node, row],
        [level][pass] the partial results before it)."""
        passes, size = self.passes, self.leaves
        columns = [x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).T for x in operands]
        literals = [arrays.take(x, passes.variable) for x in columns[:size]]
        if self.complement is not None:
            columns += arrays.function(self.complement.values, self.complement.operands[0])(*columns)
        if len(columns) > size:
            positive = arrays.constant(passes.positive_column, columns[0])
            others = [arrays.take(x, passes.variable) for x in columns[size:]]
            literals = [arrays.where(positive, x, other) for x, other in zip(literals, others)]
        end = 2 + len(passes.variable)
        values, rows = [], end + sum(len(level.passes[0]) for level in passes.levels)
        for x, zero, one in zip(literals, self.plus.neutral, self.times.neutral):
            leaves = [arrays.full((1, x.shape[1]), constant, x) for constant in (zero, one)]
            values.append(arrays.put(arrays.zeros((rows, x.shape[1]), x), 0, arrays.join([*leaves, x])))
        totals = []
        for level in passes.levels:
            monoid = self.plus if level.kind == OR else self.times
            total = [arrays.take(x, level.passes[0]) for x in values]
            if level.kind == NOT:
                assert self.negation is not None
                total = arrays.function(self.negation.values, self.negation.operands[0])(*total)
            operation = arrays.function(monoid.values, (*monoid.left, *monoid.right))
            partials = []
            for positions in level.passes[1:]:
                count = len(positions)
                partials.append(total)
                made = operation(*(x[:count] for x in total), *(arrays.take(x, positions) for x in values))
                total = [new if count == len(x) else arrays.join([new, x[count:]]) for new, x in zip(made, total)]
            totals.append(partials)
            values = [arrays.put(x, end, more) for x, more in zip(values, total)]
            end += len(total[0])
        return columns, values, totals

    def _pulled(self, arrays: Any, monoid: TypedMonoid, a: list, b: list, adjoints: list) -> tuple[Any, Any]:
        """[component] adjoints of a and of b. No adjoint, no contribution: 0 * inf has no say."""
        rule = monoid.adjoints
        found = arrays.function((*rule.left, *rule.right), (*monoid.left, *monoid.right, *rule.arguments))
        dead: Any = True
        for k in self.float_leaves:
            dead = (adjoints[k] == 0) & dead
        parts = [arrays.where(dead, arrays.zeros(x.shape, x), x) for x in found(*a, *b, *adjoints)]
        return parts[: self.leaves], parts[self.leaves :]

    def _negated_back(self, arrays: Any, given: list, adjoints: list) -> list[Any]:
        """[component] adjoints of what is negated; zeros for those that are no floats."""
        assert self.negation is not None
        arguments, (pulled,) = self.negation.adjoints
        return arrays.function(pulled, (*self.negation.operands[0], *arguments))(*given, *adjoints)

    def _of_operands(self, arrays: Any, operands: Sequence[Any], columns: list, below: list) -> list[Any]:
        """Adjoints of the float operands from those of the literals [component][literal, row]."""
        passes, size, found = self.passes, self.leaves, []
        by_group: list[list[Any]] = []
        for chosen, places in passes.by_sign[: len(columns) // size]:
            by_group.append(
                [arrays.add_at(arrays.zeros(columns[0].shape, x), places, arrays.take(x, chosen)) for x in below]
            )
        if self.complement is not None:
            arguments, (pulled,) = self.complement.adjoints
            rule = arrays.function(pulled, (*self.complement.operands[0], *arguments))
            more = rule(*columns[:size], *by_group[1])
            by_group = [[x + y if k in self.float_leaves else x for k, (x, y) in enumerate(zip(by_group[0], more))]]
        for group in by_group:
            found += [group[k].T.reshape(operands[k].shape) for k in self.float_leaves]
        return found


class _Arrays(ABC):
    """What passes need of an array library: rows by their numbers, sums into them, and functions of expressions.

    functions  the module that has the library's functions
    """

    def __init__(self, functions: Any):
        self.functions, self.where, self.join = functions, functions.where, functions.concatenate

    def take(self, values: Any, rows: np.ndarray) -> Any:
        return values[rows]

    @abstractmethod
    def add_at(self, values: Any, rows: np.ndarray, more: Any) -> Any:
        """Values with `more` added to these rows, a row that stands twice getting both; may be `values`."""

    def put(self, values: Any, start: int, rows: Any) -> Any:
        values[start : start + len(rows)] = rows
        return values

    def zeros(self, shape: Shape, like: Any) -> Any:
        return self.functions.zeros(shape, dtype=like.dtype)

    def full(self, shape: Shape, value: Any, like: Any) -> Any:
        return self.functions.full(shape, value, dtype=like.dtype)

    def constant(self, array: np.ndarray, like: Any) -> Any:
        return self.functions.asarray(array)

    @abstractmethod
    def function(self, exprs: Sequence[Any], arguments: Sequence[Any]) -> Callable:
        """The expressions as a function of arrays for the arguments, each result as large as the first array."""


class _NumPy(_Arrays):
    def add_at(self, values: np.ndarray, rows: np.ndarray, more: np.ndarray) -> np.ndarray:
        np.add.at(values, rows, more)
        return values

    def function(self, exprs: Sequence[Any], arguments: Sequence[Any]) -> Callable:
        def compute(*arrays: np.ndarray) -> list[np.ndarray]:
            with np.errstate(all="ignore"):
                return list(evaluate(exprs, dict(zip(arguments, arrays))))

        return compute


class _Torch(_Arrays):
    """On the device of the tensors, where the numbers of rows stay: to send them there takes longer than a pass."""

    def __init__(self, functions: Any):
        super().__init__(functions)
        # Arrays are kept with their tensors: the identity of an array that is gone may become another one's.
        self.sent: dict[tuple[int, Any], tuple[np.ndarray, Any]] = {}
        self.compiled: dict[tuple[int, ...], tuple[Sequence[Any], Callable]] = {}

    def take(self, values: Any, rows: np.ndarray) -> Any:
        return values.index_select(0, self.constant(rows, values))

    def add_at(self, values: Any, rows: np.ndarray, more: Any) -> Any:
        return values.index_add_(0, self.constant(rows, values), more)

    def zeros(self, shape: Shape, like: Any) -> Any:
        return like.new_zeros(shape)

    def full(self, shape: Shape, value: Any, like: Any) -> Any:
        return like.new_full(shape, value.item())

    def constant(self, array: np.ndarray, like: Any) -> Any:
        key = id(array), like.device
        if like.device.type == "cpu":
            return self.functions.as_tensor(array)
        if key not in self.sent:
            self.sent[key] = array, self.functions.as_tensor(array, device=like.device)
        return self.sent[key][1]

    def function(self, exprs: Sequence[Any], arguments: Sequence[Any]) -> Callable:
        # An engine's expressions are the same objects in each call.
        parts = (*exprs, *arguments)
        key = tuple(map(id, parts))
        if key not in self.compiled:
            self.compiled[key] = parts, compile_torch(tuple(exprs), tuple(arguments))
        compute = self.compiled[key][1]
        return lambda *tensors: [x.expand(tensors[0].shape).to(tensors[0].device) for x in compute(*tensors)]


class _Jnp(_Arrays):
    def add_at(self, values: Any, rows: np.ndarray, more: Any) -> Any:
        return values.at[rows].add(more)

    def put(self, values: Any, start: int, rows: Any) -> Any:
        return values.at[start : start + len(rows)].set(rows)

    def function(self, exprs: Sequence[Any], arguments: Sequence[Any]) -> Callable:
        compute = compile_jnp(tuple(exprs), tuple(arguments))
        return lambda *arrays: [self.functions.broadcast_to(x, arrays[0].shape) for x in compute(*arrays)]
