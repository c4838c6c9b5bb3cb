"""Arrays as the kernels take them: values as contiguous [row, column], keys as ordered unsigned integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError
from derivable.device.cpu.memory import empty
from derivable.parallel import layout


def flat(values: np.ndarray) -> np.ndarray:
    """Values [n, *batch] as contiguous [n, column]; a view where they are contiguous already."""
    if values.dtype.kind == "O":
        raise UnsupportedError(
            "exact Python integers have no kernel", hint="use the reference, derivable.parallel.reference"
        )
    values = np.ascontiguousarray(values)
    return values.reshape(len(values), int(np.prod(values.shape[1:], dtype=np.int64)))


def writable(out: np.ndarray) -> tuple[np.ndarray, bool]:
    """(`out` as [n, column] that shares its memory or a copy, whether it is a copy that must be written back)."""
    if out.flags.c_contiguous:
        return flat(out), False
    return flat(out.copy()), True


def encode(column: np.ndarray) -> np.ndarray:
    """A key column as uint64 [row] in the same order: NaN last, -0.0 as 0.0."""
    kind = column.dtype.kind
    if kind in "bu":
        return column.astype(np.uint64)
    if kind == "i":
        return column.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    wide = column.astype(np.float64) + 0.0
    wide[np.isnan(wide)] = np.nan  # one bit pattern, positive
    bits = wide.view(np.uint64)
    negative = (bits >> np.uint64(63)).astype(bool)
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


def encode_all(columns: tuple[np.ndarray, ...]) -> np.ndarray:
    """Key columns as one contiguous uint64 array [key column, row]."""
    keys = empty((len(columns), len(columns[0])), np.uint64)
    for position, column in enumerate(columns):
        keys[position] = encode(column)
    return keys


def result_of(out: np.ndarray | None, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """`out`, checked, or a new array. Raises ShapeError if `out` has another shape or dtype."""
    return layout.result(empty(shape, dtype) if out is None else out, shape, dtype)
