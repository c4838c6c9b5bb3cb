"""The compiled kernels of level folds, one set for each semiring and precision; see `kernel.level_fold`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from derivable.algebra.expr.generated import load_generated
from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.circuit.kernels.level_fold import LevelFold
from derivable.kernel.emit_numba import emit_numba

# What a call computes: the roots; the roots and the gradient of their sum; the gradient for given adjoints.
VALUES, VALUES_AND_GRADIENT, GRADIENT = 0, 1, 2
# Beside one of the last two, in the log semiring: the gradient by the weights, and not by their logarithms.
BY_WEIGHT = 4


class LevelKernels:
    """The kernels of one level fold, each compiled on its first call, for one row or for lines as its buffers are.

    fold  what was emitted, with the text of the kernels' arguments
    """

    def __init__(self, typed: TypedSemiring, has_negation: bool):
        self.fold = LevelFold(typed, has_negation)

    @cached_property
    def _module(self) -> Any:
        # Two semirings of the same operations have the same text, and so the same compiled code.
        fold = self.fold
        kernels = (fold.fold_values, fold.fold_gradient) if fold.has_gradient else (fold.fold_values,)
        return load_generated(emit_numba(*kernels), "levels")

    @cached_property
    def values(self) -> Callable[..., int]:
        return self._module.fold_values

    @cached_property
    def gradient(self) -> Callable[..., int]:
        return self._module.fold_gradient

    @cached_property
    def lanes(self) -> int:
        """Rows of a line; 1 where the kernels go row by row."""
        return self.fold.schedule.lanes

    def buffer_dtypes(self, lanes: int) -> tuple[type, ...]:
        """[component] the types of buffers [slot] or [slot, lane]: masks for bool, where a kernel is for lines."""
        mask = np.bool_ if self.lanes == 1 else np.int32 if lanes == 16 else np.int64
        return tuple(mask if dtype == "bool" else np.dtype(dtype).type for dtype in self.fold.dtypes)


@lru_cache(256)
def level_kernels(semiring: Semiring, precision: str, has_negation: bool = False) -> LevelKernels:
    """The kernels of a semiring, with negations if programs have them. Raises as `Semiring.typed` does."""
    return LevelKernels(semiring.typed(precision), has_negation)
