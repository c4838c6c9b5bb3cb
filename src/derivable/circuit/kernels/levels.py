"""The compiled kernels of level folds, one set for each semiring and precision; see `kernel.level_fold`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np

from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.circuit.kernels.level_fold import LevelFold
from derivable.device.cpu.llvm_code import compile_kernel

# What a call computes: the roots; the roots and the gradient of their sum; the gradient for given adjoints.
VALUES, VALUES_AND_GRADIENT, GRADIENT = 0, 1, 2
# Beside one of the last two, in the log semiring: the gradient by the weights, and not by their logarithms.
BY_WEIGHT = 4


class LevelKernels:
    """The kernels of one level fold, each compiled when it is used first.

    fold  what was emitted, with the text of the kernels' arguments
    """

    def __init__(self, typed: TypedSemiring, has_negation: bool):
        self.fold = LevelFold(typed, has_negation)
        self._compiled: dict[tuple[bool, bool], Callable[..., int]] = {}

    def compiled(self, has_gradient: bool, by_row: bool) -> Callable[..., int]:
        """`fold_gradient` or `fold_values`. by_row  whether buffers are [slot], and not [slot, lane]"""
        key = has_gradient, by_row
        if key not in self._compiled:
            kernel = self.fold.fold_gradient if has_gradient else self.fold.fold_values
            # Two semirings of the same operations have the same text, and so the same compiled code.
            self._compiled[key] = compile_kernel(kernel, by_row)
        return self._compiled[key]

    @cached_property
    def lanes(self) -> int:
        """Rows of a line; 1 where the kernels go row by row."""
        return self.fold.schedule.lanes

    @cached_property
    def buffer_dtypes(self) -> tuple[type, ...]:
        """[component] the types of buffers [slot] or [slot, lane]: masks for bool, where a kernel is for lines."""
        mask = {1: np.bool_, 8: np.int64, 16: np.int32}[self.lanes]
        return tuple(mask if dtype == "bool" else np.dtype(dtype).type for dtype in self.fold.dtypes)


@lru_cache(256)
def level_kernels(semiring: Semiring, precision: str, has_negation: bool = False) -> LevelKernels:
    """The kernels of a semiring, with negations if programs have them. Raises as `Semiring.typed` does."""
    return LevelKernels(semiring.typed(precision), has_negation)
