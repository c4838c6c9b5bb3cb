"""Engines on NumPy arrays: the kernels as they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from derivable.bridge.protocol import Engine
from derivable.core.arrays import as_array
from derivable.core.diagnostics import DomainError, ShapeError, TypeMismatchError
from derivable.parallel import layout


@cache
def _name(dtype: np.dtype) -> str:
    # NumPy computes names anew each time, which takes as long as a small fold.
    return dtype.name


def dtype_name(array: np.ndarray) -> str:
    return _name(array.dtype)


def as_leaf(value: Any, what: str) -> np.ndarray:
    """An array of at least one axis. Raises ShapeError or TypeMismatchError."""
    if type(value) is np.ndarray and value.dtype.kind in "bf":
        return value
    try:
        array = as_array(value, what)
    except ValueError:
        raise ShapeError(f"{what} is no array: its rows have different lengths") from None
    if array.dtype.kind == "O":
        raise TypeMismatchError(
            f"{what} has dtype object", hint="give numbers: bool, integers, and floats of 16, 32 or 64 bits"
        )
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DomainError(
            f"{what} holds {int(array.max())}, more than the kernels' int64 does",
            hint="use float64, or smaller numbers",
        )
    return array


def as_integers(value: Any, what: str) -> np.ndarray:
    """[n] int64. Raises ShapeError for other shapes, TypeMismatchError for other types."""
    return np.ascontiguousarray(_checked(value, what), np.int64)


def as_indices(value: Any) -> np.ndarray:
    """[n] int32 as they are, others as int64; converting would take as long as many a fold. Raises as `as_integers`."""
    array = _checked(value, "indices")
    return np.ascontiguousarray(array, np.int32 if array.dtype == np.int32 else np.int64)


def _checked(value: Any, what: str) -> np.ndarray:
    array = as_leaf(value, what)
    check_integers(array.shape, dtype_name(array), array.dtype.kind in "iu" or array.shape == (0,), what)
    return array


def check_integers(shape: tuple[int, ...], dtype: str, is_integer: bool, what: str) -> None:
    """The checks of indices and offsets that every library shares."""
    if not is_integer:
        raise TypeMismatchError(f"{what} have dtype {dtype}, not an integer type", hint="convert them to int64")
    if len(shape) != 1:
        raise ShapeError(f"{what} have shape {tuple(shape)}, not one axis", hint="give an array [n]")


def check_offsets(offsets: np.ndarray, rows: int) -> None:
    """Raises LayoutError unless offsets go from 0 to `rows` without decreasing."""
    layout.check_offsets(offsets, rows)


def run(engine: Engine, structure: np.ndarray | None, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    return engine.apply(structure, operands)
