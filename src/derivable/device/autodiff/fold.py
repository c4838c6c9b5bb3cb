"""One fold, by itself and by its derivatives, on NumPy arrays as users have them.

Derivatives of any order need two functions only. Let F be the fold, D the same fold of dual numbers
(`TypedMonoid.dual`: elements x with tangents t), and P(x, c) the vjp of F at x for the adjoint c.

    tangent of F(x) along t        the tangent part of D(x, t)
    tangent of P(x, c) along t, u  the x part of the vjp of D at (x, t) for the adjoint (u, c)
    vjp of P(x, c) for s           by c: the tangent part of D(x, s);
                                   by x: the x part of the vjp of D at (x, s) for the adjoint (0, c)

The last two are the symmetry of second derivatives. All right sides are folds of D and vjps of them, so the rules
apply to their own results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType
from typing import Any, Literal

import numpy as np

from derivable.algebra.monoid import TypedMonoid
from derivable.device.cpu.memory import contiguous

KERNEL_DTYPES = {
    "bool": "bool",
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), "int64"),
    **dict.fromkeys(("float16", "bfloat16", "float32"), "float32"),
    "float64": "float64",
}


# Plans that a fold keeps.
_PLANS = 64


@cache
def _kernels() -> tuple[ModuleType, ModuleType]:
    # They load Numba, so the first fold imports them; an import statement takes a microsecond at every later one.
    from derivable.device.cpu import element_by_index, element_folds

    return element_folds, element_by_index


@dataclass(frozen=True)
class Fold:
    """A fold of typed elements. Its operands are arrays [n, *batch, *element], leaf by leaf: of the values, or for
    `reduce_by_index` of the destination [bucket, ...] and then of the values. Operands of the small types that kernels
    do not have are converted, and the results back.

    structure  of `apply` and `pull`: offsets [segment + 1] int64 or None (scan), offsets (segment_reduce),
               indices [n] int32 or int64 (reduce_by_index)

    Printed form: `reverse scan of <operator>`.
    """

    kind: Literal["scan", "reduce_by_index", "segment_reduce"]
    operator: TypedMonoid
    exclusive: bool = False
    reverse: bool = False

    def __str__(self) -> str:
        words = ["exclusive"] * self.exclusive + ["reverse"] * self.reverse + [self.kind]
        return f"{' '.join(words)} of {self.operator.name}"

    @property
    def groups(self) -> int:
        """How many elements' worth of operands it takes."""
        return 2 if self.kind == "reduce_by_index" else 1

    @cached_property
    def float_leaves(self) -> tuple[int, ...]:
        """The leaves that have derivatives."""
        return self.operator.float_leaves

    @cached_property
    def float_operands(self) -> tuple[int, ...]:
        """The operands that have derivatives."""
        leaves = len(self.operator.leaf_sizes)
        return tuple(group * leaves + leaf for group in range(self.groups) for leaf in self.float_leaves)

    @cached_property
    def dual(self) -> Fold:
        """The fold of elements with tangents."""
        return Fold(self.kind, self.operator.dual, self.exclusive, self.reverse)

    def dual_operands(self, operands: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """Operands of `dual` from those of this fold and tangents [float operand]."""
        leaves, floats = len(self.operator.leaf_sizes), len(self.float_leaves)
        found: list[Any] = []
        for group in range(self.groups):
            found += operands[group * leaves : (group + 1) * leaves]
            found += tangents[group * floats : (group + 1) * floats]
        return found

    def tangents_of(self, dual_results: Sequence[Any]) -> list[Any]:
        """[float leaf] the tangents among the results of `dual`."""
        return list(dual_results[len(self.operator.leaf_sizes) :])

    def dual_adjoints(self, adjoints: Sequence[Any], tangent_adjoints: Sequence[Any]) -> list[Any]:
        """Adjoints [float leaf of `dual`] of results and of their tangents, each [float leaf]."""
        return [*adjoints, *tangent_adjoints]

    def primal_adjoints(self, dual_adjoints: Sequence[Any]) -> list[Any]:
        """[float operand] of the adjoints of the dual operands, those that are not of tangents."""
        floats = len(self.float_leaves)
        return [
            adjoint
            for group in range(self.groups)
            for adjoint in dual_adjoints[2 * floats * group : 2 * floats * group + floats]
        ]

    def result_shapes(
        self, structure_shape: tuple[int, ...] | None, shapes: Sequence[tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        """Shapes of the results from those of the structure and of the operands."""
        shapes = shapes[: len(self.operator.leaf_sizes)]
        if self.kind == "segment_reduce":
            assert structure_shape is not None
            return [(structure_shape[0] - 1, *shape[1:]) for shape in shapes]
        return list(shapes)

    def apply(self, structure: np.ndarray | None, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results [leaf], in the types and with the batch and element axes of the operands."""
        return self._run(structure, operands, keep=False)[0]

    def apply_keeping(
        self, structure: np.ndarray | None, operands: Sequence[np.ndarray], *, whole: bool = False
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """(results, what `pull` can be handed to save it a walk): `apply` when a vjp will be asked for.

        The second are those of `element_by_index.reduce_by_index_keeping`, with the batch and element axes of the
        operands; none for other folds and where they would not help.

        whole  arrays as `kept_whole` says, for callers that must know before; `keeps_whole` says whether that is
               worth it
        """
        return self._run(structure, operands, keep=True, whole=whole)

    def kept_whole(self, shapes: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], str]]:
        """Shapes and dtypes of what `apply_keeping` keeps if `whole`, for `reduce_by_index` of operands of these
        shapes."""
        _, element_by_index = _kernels()
        leaves = len(self.operator.leaf_sizes)
        found = element_by_index.kept_whole(self.operator, shapes[leaves][0])
        return [(shapes[leaf + leaves * of_values], dtype) for leaf, of_values, dtype in found]

    def keeps_whole(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether to keep what `pull` can be handed, for operands of these shapes."""
        _, element_by_index = _kernels()
        if self.kind != "reduce_by_index":
            return False
        rows, width = shapes[len(self.operator.leaf_sizes)][0], math.prod(shapes[0][1:]) // self.operator.leaf_sizes[0]
        return element_by_index.keeps_whole(self.operator, rows, width, shapes[0][0])

    def _run(
        self, structure: np.ndarray | None, operands: Sequence[np.ndarray], keep: bool, whole: bool = False
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        plan = self._plan(structure, operands)
        if plan is not None:
            return plan.apply(operands), []
        element_folds, element_by_index = _kernels()
        leaves = len(self.operator.leaf_sizes)
        flat = [self._flat(k % leaves, operand) for k, operand in enumerate(operands)]
        kept = None
        if self.kind == "scan":
            found = element_folds.scan(
                self.operator, flat, exclusive=self.exclusive, reverse=self.reverse, offsets=structure
            )
        elif structure is None:
            raise AssertionError(f"{self} has offsets or indices")
        elif self.kind == "segment_reduce":
            found = element_folds.segment_reduce(self.operator, tuple(flat), structure)
        elif keep:
            found, kept = element_by_index.reduce_by_index_keeping(
                self.operator, tuple(flat[:leaves]), structure, tuple(flat[leaves:]), whole=whole
            )
        else:
            found = element_by_index.reduce_by_index(
                self.operator, tuple(flat[:leaves]), structure, tuple(flat[leaves:])
            )
        shapes = [operand.shape for operand in operands[:leaves]]
        if structure is not None:
            shapes = self.result_shapes(structure.shape, shapes)
        results = [
            self._native(leaf, result, shape, operand.dtype)
            for leaf, (result, shape, operand) in enumerate(zip(found, shapes, operands))
        ]
        if kept is None:
            return results, []
        like = element_by_index.kept_leaves(self.operator)
        return results, [array.reshape(-1, *operands[leaf].shape[1:]) for leaf, array in zip(like, kept)]

    def pull(
        self,
        structure: np.ndarray | None,
        adjoints: Sequence[np.ndarray | None],
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        kept: Sequence[np.ndarray] = (),
    ) -> list[np.ndarray]:
        """The vjp: adjoints [float operand] from those of the results [float leaf], None for zeros.

        kept  the second part of `apply_keeping`, if that was called; is not changed
        """
        plan = self._plan(structure, operands)
        if plan is not None and self.float_leaves:
            return plan.pull(adjoints, operands, results)
        element_folds, element_by_index = _kernels()
        leaves = len(self.operator.leaf_sizes)
        flat = [self._flat(k % leaves, operand) for k, operand in enumerate(operands)]
        made = tuple(self._flat(leaf, result) for leaf, result in enumerate(results))
        seeds: list[np.ndarray | None] = [None] * leaves
        for leaf, adjoint in zip(self.float_leaves, adjoints):
            seeds[leaf] = None if adjoint is None else self._flat(leaf, adjoint)
        if self.kind == "scan":
            groups = (
                element_folds.scan_vjp(
                    self.operator,
                    tuple(seeds),
                    tuple(flat),
                    made,
                    exclusive=self.exclusive,
                    reverse=self.reverse,
                    offsets=structure,
                ),
            )
        elif structure is None:
            raise AssertionError(f"{self} has offsets or indices")
        elif self.kind == "segment_reduce":
            groups = (element_folds.segment_reduce_vjp(self.operator, tuple(seeds), tuple(flat), structure),)
        else:
            like = element_by_index.kept_leaves(self.operator)
            groups = element_by_index.reduce_by_index_vjp(
                self.operator,
                tuple(seeds),
                tuple(flat[:leaves]),
                structure,
                tuple(flat[leaves:]),
                results=made,
                kept=[self._shaped(leaf, array) for leaf, array in zip(like, kept)] or None,
            )
        found: list[Any] = [adjoint for group in groups for adjoint in group]
        return [
            self._native(operand % leaves, found[operand], operands[operand].shape, operands[operand].dtype)
            for operand in self.float_operands
        ]

    def _plan(self, structure: np.ndarray | None, operands: Sequence[np.ndarray]) -> Any:
        """The plan of a scan, as there are such; kept by shapes, because the steps of a loop have the same."""
        if self.kind != "scan" or structure is not None:
            return None
        shapes = tuple([operand.shape for operand in operands])
        for operand, dtype in zip(operands, self._dtypes):
            if operand.dtype != dtype:
                return None
        plans = self._plans
        plan = plans.get(shapes, self)
        if plan is self:
            if len(plans) >= _PLANS:
                plans.clear()
            element_folds, _ = _kernels()
            plan = plans[shapes] = element_folds.scan_plan(self.operator, shapes, self.exclusive, self.reverse)
        return plan

    @cached_property
    def _plans(self) -> dict:
        return {}

    def _flat(self, leaf: int, array: np.ndarray) -> np.ndarray:
        """[row, column, size], contiguous, in the leaf's type; the array itself where it is that already."""
        return self._shaped(leaf, contiguous(array, self._dtypes[leaf]))

    def _shaped(self, leaf: int, array: np.ndarray) -> np.ndarray:
        rows, *rest = array.shape
        size = self.operator.leaf_sizes[leaf]
        return contiguous(array).reshape(rows, math.prod(rest) // size, size)

    @cached_property
    def _dtypes(self) -> tuple[np.dtype, ...]:
        """[leaf]; NumPy takes as long to compare an array's with a name as a small array to copy."""
        return tuple(np.dtype(name) for name in self.operator.leaf_dtypes)

    def _native(self, leaf: int, flat: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        array = flat.reshape(shape)
        if array.dtype == dtype:
            return array
        if dtype.kind in "iu" and self.operator.special in ("min", "max"):
            # The neutral element of min is the largest int64, which here means the largest of the smaller type.
            limits = np.iinfo(dtype)
            array = np.clip(array, limits.min, min(limits.max, np.iinfo(np.int64).max))
        return array.astype(dtype)
