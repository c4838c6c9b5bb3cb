"""The four scalar types of expressions and how they mix.

bool < int64 < float32 < float64: mixed operands take the larger type, so int64 with float32 gives
float32 as in torch and JAX (NumPy gives float64). Python numbers are weak: `x + 0.5` has the type
of `x` if that is a float type.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from derivable.core.diagnostics import TypeMismatchError

Dtype = Literal["bool", "int64", "float32", "float64"]
DTYPES: tuple[Dtype, ...] = ("bool", "int64", "float32", "float64")
FLOATS: tuple[Dtype, ...] = ("float32", "float64")


def check_dtype(dtype: Any) -> Dtype:
    """The scalar type named by a string, a NumPy dtype or a Python type. Raises TypeMismatchError."""
    if dtype in (bool, int, float):
        dtype = {bool: "bool", int: "int64", float: "float64"}[dtype]
    try:
        name = str(np.dtype(dtype))
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        raise TypeMismatchError(f"{name!r} is not a scalar type", hint=f"use one of {', '.join(DTYPES)}")
    return name  # type: ignore[return-value]


def promote(dtypes: Iterable[Dtype]) -> Dtype:
    """The smallest type that all of `dtypes` fit, in the order bool, int64, float32, float64."""
    return DTYPES[max(DTYPES.index(dtype) for dtype in dtypes)]


def is_number(value: Any) -> bool:
    """Whether `value` is a Python or NumPy scalar (bool, int, float), which may become a constant."""
    return isinstance(value, (bool, np.bool_, numbers.Integral)) or (
        isinstance(value, numbers.Real) and hasattr(value, "__float__")
    )


def weak_dtype(value: Any, beside: Iterable[Dtype]) -> Dtype:
    """The type a Python number takes beside operands of the types `beside`."""
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    floats: list[Dtype] = [dtype for dtype in beside if dtype in FLOATS]
    if floats:
        return promote(floats)
    return "int64" if isinstance(value, numbers.Integral) else "float64"
