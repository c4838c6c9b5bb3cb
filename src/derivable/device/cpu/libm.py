"""The C library's functions of real numbers, on scalars and arrays of NumPy.

Compiled kernels call these. Those of NumPy round other numbers up, and those of Python raise where these give
infinity or NaN; so the interpreted tier calls these too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS"]


def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(None)
    except TypeError:
        # Windows has no handle of the whole process.
        return ctypes.CDLL("ucrtbase")


class Function:
    """A function of `arity` real numbers: of float32 where all operands are, else of float64."""

    def __init__(self, name: str, arity: int = 1):
        self.name, self.arity = name, arity

    def _of(self, name: str, kind: Any) -> Callable[..., float]:
        found = getattr(_library(), name)
        found.restype, found.argtypes = kind, [kind] * self.arity
        return found

    @cached_property
    def double(self) -> Callable[..., float]:
        return self._of(self.name, ctypes.c_double)

    @cached_property
    def single(self) -> Callable[..., float]:
        return self._of(f"{self.name}f", ctypes.c_float)

    @cached_property
    def on_arrays(self) -> tuple[Callable, Callable]:
        return np.frompyfunc(self.single, self.arity, 1), np.frompyfunc(self.double, self.arity, 1)

    def __call__(self, *operands: Any) -> Any:
        is_single = all(getattr(operand, "dtype", None) == np.float32 for operand in operands)
        if any(np.ndim(operand) for operand in operands):
            found = self.on_arrays[not is_single](*(np.asarray(operand) for operand in operands))
            return found.astype(np.float32 if is_single else np.float64)
        if is_single:
            return np.float32(self.single(*operands))
        return np.float64(self.double(*operands))


FUNCTIONS = {name: Function(name) for name in ("exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tanh")}
FUNCTIONS["pow"] = Function("pow", 2)
