"""Circuits, and other and-or graphs, in a semiring as engines: kernels, and column programs for everything else."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.bridge.protocol import Engine, Functions, Shape
from derivable.circuit.fold.fold_rows import GRADIENT, VALUES, VALUES_AND_GRADIENT, fold_rows
from derivable.circuit.fold.level_columns import LevelColumns, levels_of
from derivable.circuit.fold.plan import Plan, plan_of
from derivable.core.diagnostics import MissingDependencyError, UnsupportedError
from derivable.device.cpu.memory import contiguous, empty, empty_like
from derivable.device.cuda.compiler import refusal

if TYPE_CHECKING:
    from derivable.circuit.fold.tile_fold import TileFold


class GraphFold(Engine):
    """An and-or graph in a semiring: weights [*batch, variable], and if `has_negatives` the negative weights, to values
    [*batch, root]; one array for each scalar of an element.

    Where a graph has one root and an element one scalar, the gradient is computed with the value and kept.
    """

    keeps_factors = True

    def __init__(self, graph: Any, ring: Semiring, has_negatives: bool, precision: str):
        self.graph, self.ring, self.precision = graph, ring, precision
        self.groups, self.leaves = 2 if has_negatives else 1, len(ring.carriers)
        floats = [k for k, carrier in enumerate(ring.carriers) if carrier == "float"]
        self.float_leaves = tuple(floats) if ring.differentiable else ()
        self.num_roots = len(graph.roots)
        self.keeps = self.float_leaves == (0,) and self.leaves == self.num_roots == 1
        self.needs_negatives = not has_negatives and ring.complement is None and bool((graph.literal < 0).any())

    def __str__(self) -> str:
        return f"the fold of {len(self.graph.kind)} nodes in the semiring {self.ring.name!r}"

    @cached_property
    def plan(self) -> Plan:
        return plan_of(self.graph)

    @cached_property
    def columns(self) -> LevelColumns:
        """The same on any device, and of any order."""
        shared, typed = self.plan.others, self.ring.typed(self.precision)
        levels = shared.get("levels") or shared.setdefault("levels", levels_of(self.graph))
        operations = typed.plus, typed.times, typed.complement, typed.negation
        return LevelColumns(levels, *operations, self.groups, bool(self.float_leaves))

    @property
    def dual(self) -> Engine:
        return self.columns.dual

    @cached_property
    def _tiles(self) -> TileFold | str:
        """What folds CUDA tensors; or why nothing does, and the column program has to."""
        from derivable.circuit.fold.tile_fold import TileFold

        try:
            return TileFold(self.plan, self.ring, self.precision, self.groups == 2)
        except (MissingDependencyError, UnsupportedError) as error:
            return error.message

    def tiles_on(self, device: Any) -> TileFold | str:
        """The kernels for a CUDA device, or why it has none."""
        return refusal(device) or self._tiles

    def elsewhere(self, library: str) -> Functions:
        apply, pull = self.columns.elsewhere(library)
        if library != "torch":
            return apply, pull

        def apply_on(structure: Any, operands: Any) -> list:
            tiles = self.tiles_on(operands[0].device)
            return apply(structure, operands) if isinstance(tiles, str) else tiles.values(operands)

        def pull_on(structure: Any, adjoints: Any, operands: Any, results: Any) -> list:
            tiles = self.tiles_on(operands[0].device)
            if isinstance(tiles, str):
                return pull(structure, adjoints, operands, results)
            shape = *operands[0].shape[:-1], self.num_roots
            floats = [operands[k] for k in self.float_leaves]
            seeds = [x.new_zeros(shape) if seed is None else seed for x, seed in zip(floats, adjoints)]
            return tiles.values_and_gradient(operands, seeds)[1]

        return apply_on, pull_on

    def apply_on_device(self, structure: Any, operands: Sequence[Any], keep: bool) -> tuple[list, list]:
        if keep and self.keeps:
            tiles = self.tiles_on(operands[0].device)
            if not isinstance(tiles, str):
                return tiles.values_and_gradient(operands, None)
        return super().apply_on_device(structure, operands, keep)

    @cached_property
    def key(self) -> str:
        g = self.graph
        parts, columns = (g.kind, g.literal, g.offsets, g.children, g.roots), self.columns
        content = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
        return f"{content} {[len(part) for part in parts]} {self.ring.name} {columns.float_leaves} {columns}"

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [(*shape[:-1], self.num_roots) for shape in shapes[: self.leaves]]

    def apply(self, structure: np.ndarray | None, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        weights, negatives = self._rows(operands)
        out = tuple([empty((len(x), self.num_roots), x.dtype) for x in weights])
        fold_rows(self.plan, self.ring, VALUES, weights, negatives, out)
        return [x.reshape(*operands[0].shape[:-1], self.num_roots) for x in out]

    def apply_keeping(
        self, structure: np.ndarray | None, operands: Sequence[np.ndarray], *, whole: bool = False
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        if not self.keeps:
            return self.apply(structure, operands), []
        # An element has one scalar here, so operands are the weights and, if there are, the negative weights.
        shape, rows = operands[0].shape, [contiguous(operand) for operand in operands]
        if len(shape) != 2:
            rows = [row.reshape(math.prod(shape[:-1]), shape[-1]) for row in rows]
        values, gradients = empty((len(rows[0]), 1), rows[0].dtype), [empty_like(row) for row in rows]
        own, others = rows if self.groups == 2 else (rows[0], None)
        fold_rows(self.plan, self.ring, VALUES_AND_GRADIENT, own, others, values, None, *gradients)
        if len(shape) == 2:
            return [values], gradients
        return [values.reshape(*shape[:-1], 1)], [gradient.reshape(shape) for gradient in gradients]

    def keeps_whole(self, shapes: Sequence[Shape]) -> bool:
        return self.keeps

    def kept_whole(self, shapes: Sequence[Shape], dtype: Any) -> list[tuple[Shape, Any]]:
        return [(shape, dtype) for shape in shapes] if self.keeps else []

    def pull(
        self,
        structure: np.ndarray | None,
        adjoints: Sequence[np.ndarray | None],
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        kept: Sequence[np.ndarray] = (),
    ) -> list[np.ndarray]:
        if kept:
            seed: Any = adjoints[0]
            return [np.multiply(gradient, seed, out=empty_like(gradient)) for gradient in kept]
        weights, negatives = self._rows(operands)
        shape, rows = weights[0].shape, (len(weights[0]), self.num_roots)
        dtypes = [weights[k].dtype for k in self.float_leaves]
        seeds = [np.zeros(rows, dtype) if seed is None else seed for seed, dtype in zip(adjoints, dtypes)]
        found = [empty_like(operands[k]) for k in self.float_operands]
        by_row = [x.reshape(shape) for x in found]
        count = len(self.float_leaves)
        groups: Any = [tuple(by_row[k : k + count]) for k in range(0, len(found), count)]
        flat = tuple(contiguous(seed).reshape(rows) for seed in seeds)
        fold_rows(self.plan, self.ring, GRADIENT, weights, negatives, None, flat, *groups)
        return found

    def _rows(self, operands: Sequence[np.ndarray]) -> tuple[Any, Any]:
        """The weights, and the negative weights or None, as rows [row, variable]."""
        *batch, variables = operands[0].shape
        rows = tuple([contiguous(operand).reshape(math.prod(batch), variables) for operand in operands])
        return rows[: self.leaves], rows[self.leaves :] or None
