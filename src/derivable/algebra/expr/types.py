"""The scalar types of expressions and how they mix.

bool < integers < floats: mixed operands take the smallest type above all of them, so int64 with float32 gives float32
as in torch and JAX (NumPy gives float64), uint8 with int8 gives int16, float16 with bfloat16 float32, and uint64 with
signed integers, which no integer type holds, float64. Python numbers are weak: `x + 0.5` has the type of `x` if that is
a float type, `x + 1` if it is a number type.

float16 and bfloat16 are computed in float32; NumPy has bfloat16 from the package `ml_dtypes`.
"""

from __future__ import annotations

import importlib
import numbers
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import numpy as np

from derivable.core.diagnostics import MissingDependencyError, TypeMismatchError

Dtype = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]
SIGNED: tuple[Dtype, ...] = ("int8", "int16", "int32", "int64")
UNSIGNED: tuple[Dtype, ...] = ("uint8", "uint16", "uint32", "uint64")
INTEGERS: tuple[Dtype, ...] = (*SIGNED, *UNSIGNED)
HALVES: tuple[Dtype, ...] = ("float16", "bfloat16")
FLOATS: tuple[Dtype, ...] = (*HALVES, "float32", "float64")
DTYPES: tuple[Dtype, ...] = ("bool", *INTEGERS, *FLOATS)
# Type -> (smallest, largest) integer.
LIMITS: dict[str, tuple[int, int]] = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in INTEGERS}
# Type -> its bits.
WIDTHS: dict[str, int] = {name: np.iinfo(name).bits for name in INTEGERS}


def check_dtype(dtype: Any) -> Dtype:
    """The scalar type named by a string, a NumPy dtype or a Python type. Raises TypeMismatchError."""
    # NumPy takes microseconds to name a type.
    if type(dtype) is str and dtype in DTYPES:
        return dtype  # type: ignore[return-value]
    if dtype in (bool, int, float):
        dtype = {bool: "bool", int: "int64", float: "float64"}[dtype]
    try:
        name = str(np.dtype(dtype))
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        raise TypeMismatchError(f"{name!r} is not a scalar type", hint=f"use one of {', '.join(DTYPES)}")
    return name  # type: ignore[return-value]


@cache
def numpy_dtype(dtype: Dtype) -> np.dtype:
    """The NumPy dtype of a scalar type. Raises MissingDependencyError for bfloat16 without `ml_dtypes`."""
    if dtype != "bfloat16":
        return np.dtype(dtype)
    try:
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        raise MissingDependencyError("NumPy has no bfloat16 of its own", hint="pip install ml_dtypes") from None


def computed_in(dtype: Dtype) -> Dtype:
    """The type that arithmetic on `dtype` uses: float32 for the two half precisions."""
    return "float32" if dtype in HALVES else dtype


def _join(a: Dtype, b: Dtype) -> Dtype:
    if a == b or b == "bool":
        return a
    if a == "bool":
        return b
    if (a in FLOATS) != (b in FLOATS):
        return a if a in FLOATS else b
    if a in FLOATS:
        return "float32" if {a, b} == set(HALVES) else FLOATS[max(FLOATS.index(a), FLOATS.index(b))]
    if (a in SIGNED) == (b in SIGNED):
        return INTEGERS[max(INTEGERS.index(a), INTEGERS.index(b))]
    # The smallest signed type that holds both.
    signed, unsigned = (a, b) if a in SIGNED else (b, a)
    rank = max(SIGNED.index(signed), UNSIGNED.index(unsigned) + 1)
    return SIGNED[rank] if rank < len(SIGNED) else "float64"


_JOINS: dict[tuple[Dtype, Dtype], Dtype] = {(a, b): _join(a, b) for a in DTYPES for b in DTYPES}


def promote(dtypes: Iterable[Dtype]) -> Dtype:
    """The smallest type above all of `dtypes`."""
    # Floats go first: the join of uint64 with int64 is a float, which then must not decide against float32.
    common, *others = sorted(dtypes, key=DTYPES.index, reverse=True)
    for dtype in others:
        common = _JOINS[common, dtype]
    return common


def is_number(value: Any) -> bool:
    """Whether `value` is a Python or NumPy scalar (bool, int, float), which may become a constant."""
    return isinstance(value, (bool, np.bool_, numbers.Integral)) or (
        isinstance(value, numbers.Real) and hasattr(value, "__float__")
    )


def weak_dtype(value: Any, beside: Iterable[Dtype]) -> Dtype:
    """The type a Python number takes beside operands of the types `beside`."""
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    known: list[Dtype] = [dtype for dtype in beside if dtype != "bool"]
    if any(dtype in FLOATS for dtype in known):
        return promote(known)
    if not isinstance(value, numbers.Integral):
        return "float64"
    return promote(known) if known else "int64"
