"""Checks of flat structures that the primitives share: offsets, indices, key columns, results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.core.diagnostics import LayoutError, ShapeError, UnsupportedError
from derivable.device.cpu.memory import empty


def check_offsets(offsets: np.ndarray, num_elements: int) -> np.ndarray:
    """Offsets [segment + 1] as int64. Raises LayoutError, with the first bad index, unless they go from 0
    to `num_elements` without decreasing."""
    offsets = integers(offsets, "offsets")
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != num_elements:
        ends = f"from {offsets[0]} to {offsets[-1]}" if len(offsets) else "empty"
        raise LayoutError(f"offsets go {ends}, not from 0 to {num_elements}", hint="give [segment + 1] offsets")
    falling = offsets[1:] < offsets[:-1]
    if falling.any():
        at = int(falling.argmax())
        raise LayoutError(
            f"offsets decrease at index {at + 1}: {offsets[at]} is followed by {offsets[at + 1]}",
            hint="offsets are running totals of the lengths of segments, `np.append(0, np.cumsum(lengths))`",
        )
    return offsets


def check_indices(indices: np.ndarray, num_rows: int) -> np.ndarray:
    """Indices [k] as int64. Raises LayoutError, with the first one outside range(num_rows)."""
    indices = integers(indices, "indices")
    # One comparison, for those below zero too.
    outside = indices.view(np.uint64) >= num_rows
    if outside.any():
        at = int(outside.argmax())
        raise LayoutError(f"index {indices[at]} at position {at} is not a row of {num_rows}")
    return indices


def integers(values: np.ndarray, name: str) -> np.ndarray:
    """A one-dimensional integer array as int64. Raises ShapeError."""
    values = _as_array(values, name)
    if values.ndim != 1 or (values.dtype.kind not in "iu" and len(values)):
        raise ShapeError(f"{name} have shape {values.shape} and dtype {values.dtype}, not [n] integers")
    return np.ascontiguousarray(values, dtype=np.int64)


def check_values(values: np.ndarray, name: str = "values") -> np.ndarray:
    """Values [n, *batch]. Raises ShapeError for a scalar."""
    values = _as_array(values, name)
    if values.ndim == 0:
        raise ShapeError(f"{name} is a scalar, not an array [n, *batch]")
    return values


def _as_array(values: np.ndarray, name: str) -> np.ndarray:
    if getattr(getattr(values, "device", None), "type", "cpu") != "cpu":
        raise UnsupportedError(f"{name} of a primitive of NumPy are on {values.device}", hint="move them to the CPU")  # type: ignore[attr-defined]
    try:
        return np.asarray(values)
    except ValueError:
        raise ShapeError(f"{name} is ragged: its rows have different lengths") from None


def result(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """`out`, checked, or a new array. Raises ShapeError if `out` has another shape or dtype."""
    if out is None:
        return empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype:
        raise ShapeError(f"out is {out.dtype} {out.shape}, the result is {np.dtype(dtype)} {shape}")
    return out


def check_columns(columns: Sequence[np.ndarray], name: str = "columns") -> tuple[np.ndarray, ...]:
    """Key columns, each [row] of bool, integer or float dtype, all of one length, at least one. Raises ShapeError."""
    if isinstance(columns, np.ndarray):
        raise ShapeError(f"{name} is one array, not a sequence of columns", hint="give a tuple of arrays [row]")
    if not isinstance(columns, Sequence):
        raise ShapeError(f"{name} is {columns!r}, not a sequence of columns", hint="give a tuple of arrays [row]")
    arrays = tuple(_as_array(column, name) for column in columns)
    if not arrays:
        raise ShapeError(f"{name} is empty, so the number of rows is unknown", hint="give at least one column")
    for position, array in enumerate(arrays):
        if array.ndim != 1 or array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise ShapeError(f"column {position} of {name} has shape {array.shape} and dtype {array.dtype}, not [row]")
        if len(array) != len(arrays[0]):
            raise ShapeError(f"column {position} of {name} has {len(array)} rows, column 0 has {len(arrays[0])}")
    return arrays
