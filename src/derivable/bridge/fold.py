"""One fold as an engine, on NumPy arrays as users have them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from types import ModuleType
from typing import Any, Literal

import numpy as np

from derivable.algebra.typed import TypedMonoid
from derivable.bridge.protocol import Adjoints, Arrays, Engine, Functions, Shape
from derivable.device.cpu.memory import contiguous
from derivable.parallel import layout

KERNEL_DTYPES = {
    "bool": "bool",
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), "int64"),
    **dict.fromkeys(("float16", "bfloat16", "float32"), "float32"),
    "float64": "float64",
}


_INDICES = np.dtype(np.int64), np.dtype(np.int32)
_ELSEWHERE = {"JAX": "derivable.bridge.jnp_folds", "torch": "derivable.bridge.torch_folds"}
# Plans that a fold keeps.
_PLANS = 64


@cache
def _kernels() -> tuple[ModuleType, ModuleType]:
    # The first fold imports them; an import statement takes a microsecond at every later one.
    from derivable.parallel import element_by_index, element_folds

    return element_folds, element_by_index


@dataclass(frozen=True)
class Fold(Engine):
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

    batch_axis = 1

    @cached_property
    def groups(self) -> int:  # type: ignore[override]
        return 2 if self.kind == "reduce_by_index" else 1

    @cached_property
    def leaves(self) -> int:  # type: ignore[override]
        return len(self.operator.leaf_sizes)

    @cached_property
    def reads_results(self) -> bool:  # type: ignore[override]
        # Those of segments have other shapes than any operand, which takes their place.
        return self.kind == "segment_reduce" or not _kernels()[1].only_spreads(self.operator)

    @cached_property
    def sums_by_index(self) -> bool:  # type: ignore[override]
        return self.kind == "reduce_by_index" and self.operator.special == "add"

    @cached_property
    def float_leaves(self) -> tuple[int, ...]:
        return self.operator.float_leaves

    @cached_property
    def dual(self) -> Fold:
        return Fold(self.kind, self.operator.dual, self.exclusive, self.reverse)

    @cached_property
    def key(self) -> str:
        op = self.operator
        return f"{self}, neutral {op.neutral}, {op.leaf_sizes}: {op}"

    def elsewhere(self, library: str) -> Functions:
        folds = importlib.import_module(_ELSEWHERE[library])
        return partial(folds.apply, self), partial(folds.pull, self)

    def checked(self, structure: np.ndarray, operands: Sequence[Any]) -> np.ndarray:
        """Raises LayoutError unless offsets go from 0 to the number of elements without decreasing."""
        if self.kind == "reduce_by_index":
            # The kernels read indices of both types where they are.
            return contiguous(structure, None if structure.dtype in _INDICES else np.int64)
        return layout.check_offsets(contiguous(structure, np.int64), operands[0].shape[0])

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        shapes = shapes[: self.leaves]
        if self.kind == "segment_reduce":
            assert structure_shape is not None
            return [(structure_shape[0] - 1, *shape[1:]) for shape in shapes]
        return list(shapes)

    def apply(self, structure: np.ndarray | None, operands: Arrays) -> list[np.ndarray]:
        """The results [leaf], in the types and with the batch and element axes of the operands."""
        plan = self._plan(structure, operands)
        return self._run(structure, operands, keep=False)[0] if plan is None else plan.apply(operands, structure)

    def apply_keeping(self, structure: Any, operands: Arrays, *, whole: bool = False) -> tuple[list, list]:
        """Keeps those of `element_by_index.reduce_by_index_keeping`, with the batch and element axes of the operands;
        nothing for other folds and where it would not help."""
        plan = self._plan(structure, operands)
        if plan is None or whole:
            return self._run(structure, operands, True, whole)
        return plan.apply_keeping(operands, structure) if self.groups == 2 else (plan.apply(operands, structure), [])

    def kept_whole(self, shapes: Sequence[Shape], dtype: Any) -> list[tuple[Shape, str]]:
        _, element_by_index = _kernels()
        found = element_by_index.kept_whole(self.operator, shapes[self.leaves][0])
        return [(shapes[leaf + self.leaves * of_values], dtype) for leaf, of_values, dtype in found]

    def keeps_whole(self, shapes: Sequence[Shape]) -> bool:
        _, element_by_index = _kernels()
        if self.kind != "reduce_by_index":
            return False
        rows, width = shapes[self.leaves][0], math.prod(shapes[0][1:]) // self.operator.leaf_sizes[0]
        return element_by_index.keeps_whole(self.operator, rows, width, shapes[0][0])

    def _run(self, structure: Any, operands: Arrays, keep: bool, whole: bool = False) -> tuple[list, list]:
        element_folds, element_by_index = _kernels()
        leaves = self.leaves
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

    def pull(self, structure: Any, adjoints: Adjoints, operands: Arrays, results: Arrays, kept: Arrays = ()) -> list:
        results = results or operands[: self.leaves]
        plan = self._plan(structure, operands)
        if plan is not None and self.float_leaves:
            if self.kind == "scan":
                return plan.pull(adjoints, operands, results, structure)
            if plan.pulls and bool(kept) == plan.keeps:
                return plan.pull(adjoints, operands, structure, kept)
        element_folds, element_by_index = _kernels()
        leaves = self.leaves
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
            groups = (element_folds.segment_reduce_vjp(self.operator, tuple(seeds), tuple(flat), structure, made),)
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

    def _plan(self, structure: Any, operands: Sequence[np.ndarray]) -> Any:
        """The plan of a scan, or of a reduce-by-index that one thread does, in its operator's types; kept by shapes,
        because the steps of a loop have the same."""
        key: list[Any] = [] if structure is None else [structure.dtype]
        for operand in operands:
            key += operand.shape, operand.dtype
        plans, key_of_call = self._plans, tuple(key)
        plan = plans.get(key_of_call, plans)
        if plan is plans:
            if len(plans) >= _PLANS:
                plans.clear()
            plan = plans[key_of_call] = self._plan_of(structure, operands)
        return plan

    @cached_property
    def _plans(self) -> dict:
        return {}

    def _plan_of(self, structure: Any, operands: Sequence[np.ndarray]) -> Any:
        if self.kind == "segment_reduce" or [x.dtype for x in operands] != [*self._dtypes * self.groups]:
            return None
        element_folds, element_by_index = _kernels()
        shapes = tuple([operand.shape for operand in operands])
        if self.kind == "scan":
            return element_folds.ScanPlan(self.operator, shapes, self.exclusive, self.reverse)
        plan = element_by_index.IndexPlan(self.operator, shapes, structure.dtype)
        return plan if plan.is_whole else None

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

    def _native(self, leaf: int, flat: np.ndarray, shape: Shape, dtype: np.dtype) -> np.ndarray:
        array = flat.reshape(shape)
        if array.dtype == dtype:
            return array
        if dtype.kind in "iu" and self.operator.special in ("min", "max"):
            # The neutral element of min is the largest int64, which here means the largest of the smaller type.
            limits = np.iinfo(dtype)
            array = np.clip(array, limits.min, min(limits.max, np.iinfo(np.int64).max))
        return array.astype(dtype)
