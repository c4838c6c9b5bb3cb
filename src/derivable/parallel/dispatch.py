"""The primitives over columns: those that move rows, which are NumPy, and the folds, each on its arrays' device."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from derivable.core.diagnostics import LayoutError, ShapeError
from derivable.core.graph import ranges
from derivable.parallel import layout, reference
from derivable.parallel.order import order_of
from derivable.parallel.table import choose

__all__ = [
    "gather",
    "gather_jvp",
    "gather_vjp",
    "join",
    "reduce_by_index",
    "scan",
    "segment_reduce",
    "sort",
    "sort_jvp",
    "sort_vjp",
    "unique",
    "unique_jvp",
    "unique_vjp",
]


def _fold(name: str) -> Any:
    @functools.wraps(getattr(reference, name))
    def call(*arguments: Any, **options: Any) -> Any:
        return choose(name, *arguments, *options.values()).function(*arguments, **options)

    return call


reduce_by_index, scan, segment_reduce = map(_fold, ("reduce_by_index", "scan", "segment_reduce"))


def __getattr__(name: str) -> Any:
    raise AttributeError(f"there is no primitive {name!r}")


def gather(values, indices, *, out=None):
    """The rows of `values` at `indices`.

    values   [row, *batch] of any dtype
    indices  [k] integers in range(row), repeats allowed
    returns  [k, *batch]; k = 0 gives an empty array

    Raises LayoutError with the first index outside range(row).
    Law: gathering by i, then by j, is gathering by i[j].
    Derivative: the transpose of a gather is `reduce_by_index` with add.
    """
    values = layout.check_values(values)
    indices = layout.check_indices(indices, len(values))
    result = layout.result(out, (len(indices), *values.shape[1:]), values.dtype)
    # Indices are in range, and any other mode than the default one writes to `out` at once.
    return np.take(values, indices, axis=0, out=result, mode="clip")


def gather_vjp(adjoint, indices, num_rows, *, out=None):
    """Adjoint of `values` [num_rows, *batch] from that of the result [k, *batch]: adds up per row."""
    indices = layout.check_indices(indices, num_rows)
    adjoint = layout.check_values(adjoint, "adjoint")
    result = layout.result(out, (num_rows, *adjoint.shape[1:]), adjoint.dtype)
    result[...] = reduce_by_index(np.zeros(result.shape, adjoint.dtype), "add", indices, adjoint)
    return result


def gather_jvp(tangent, indices, *, out=None):
    """Tangent of the result from that of `values`: gather is linear."""
    return gather(tangent, indices, out=out)


def sort(columns):
    """Rows in ascending lexicographic order, the first column counting most; stable.

    columns  tuple of arrays [row] of bool, integer or float dtype; NaN comes last, -0.0 equals 0.0
    returns  (the sorted columns, order [row] int64: sorted[i] = columns[order[i]])

    Raises ShapeError for no columns or columns of different lengths.
    Law: sorting sorted rows changes nothing, and the order is then 0, 1, 2, ...
    Derivative: the order is locally constant, so adjoints of sorted columns go back along it.
    """
    columns = layout.check_columns(columns)
    order = order_of(columns)
    order = np.arange(len(columns[0])) if isinstance(order, slice) else order
    return tuple(column[order] for column in columns), order


def sort_vjp(adjoints, order):
    """Adjoints of the columns from those of the sorted columns (None stays None)."""
    return tuple(None if adjoint is None else _scatter(adjoint, order) for adjoint in adjoints)


def sort_jvp(tangents, order):
    """Tangents of the sorted columns from those of the columns (None stays None)."""
    return tuple(None if tangent is None else np.asarray(tangent)[order] for tangent in tangents)


def _scatter(adjoint, order):
    adjoint = np.asarray(adjoint)
    result = np.empty_like(adjoint)
    result[order] = adjoint
    return result


def unique(columns):
    """The distinct rows of sorted key columns, and where the rows of each begin.

    columns  tuple of arrays [row], sorted as by `sort`; NaN equals NaN as a key
    returns  (columns of distinct rows [group], offsets [group + 1] int64: group g is rows offsets[g]:offsets[g + 1])

    Raises LayoutError with the first row that is smaller than the one before.
    Law: repeating each distinct row by the length of its group gives the input.
    Derivative: the groups are locally constant; a distinct row is its group's first row, which gets the adjoint.
    """
    columns = layout.check_columns(columns)
    num_rows = len(columns[0])
    equal = np.ones(max(0, num_rows - 1), bool)
    falls = np.zeros_like(equal)
    for column in columns:
        before, after = column[:-1], column[1:]
        smaller, same = after < before, after == before
        if column.dtype.kind == "f":
            smaller |= (before != before) & (after == after)
            same |= (before != before) & (after != after)
        falls |= equal & smaller
        equal &= same
    if falls.any():
        row = int(np.flatnonzero(falls)[0]) + 1
        raise LayoutError(
            f"the rows are not sorted: row {row} is smaller than row {row - 1}", hint="apply `sort` first"
        )
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, num_rows), bool), ~equal]))
    return tuple(column[starts] for column in columns), np.append(starts, num_rows).astype(np.int64)


def unique_vjp(adjoints, offsets):
    """Adjoints of the columns from those of the distinct rows (None stays None)."""
    results = []
    for adjoint in adjoints:
        if adjoint is None:
            results.append(None)
            continue
        adjoint = np.asarray(adjoint)
        result = np.zeros(int(offsets[-1]), adjoint.dtype)
        result[offsets[:-1]] = adjoint
        results.append(result)
    return tuple(results)


def unique_jvp(tangents, offsets):
    """Tangents of the distinct rows from those of the columns (None stays None)."""
    return tuple(None if tangent is None else np.asarray(tangent)[offsets[:-1]] for tangent in tangents)


def join(left, right):
    """All pairs of a left and a right row whose keys are equal.

    left, right  tuples of as many key columns, [row] each, both sorted as by `sort`; columns that
                 are matched have one dtype; NaN equals NaN
    returns      (left rows [pair] int64, right rows [pair] int64), ascending by left, then by right row

    Raises ShapeError if the columns do not match.
    Law: the result has sum over keys of (left rows with the key) * (right rows with the key) pairs.
    Derivative: none of its own: its results are row numbers, locally constant; values go through `gather`.
    """
    left, right = _check_sides(left, right)
    # Both sides' rows by the numbers of their keys, which ascend: `unique` refuses rows that are not in order.
    (keys, left_offsets), (others, right_offsets) = unique(left), unique(right)
    both = tuple(np.concatenate(pair) for pair in zip(keys, others))
    ordered, order = sort(both)
    _, offsets = unique(ordered)
    # A key that both sides have is two rows, the left one first.
    shared = offsets[:-1][np.diff(offsets) == 2]
    group, other = order[shared], order[shared + 1] - len(keys[0])
    left_sizes, right_sizes = np.diff(left_offsets)[group], np.diff(right_offsets)[other]
    # The left rows of shared keys, each once for each of the right rows.
    rows, begins = ranges(left_offsets[group], left_sizes), np.repeat(right_offsets[other], left_sizes)
    sizes = np.repeat(right_sizes, left_sizes)
    return np.repeat(rows, sizes), ranges(begins, sizes)


def _check_sides(left, right):
    """Both sides' columns. Raises as `join` does."""
    left, right = layout.check_columns(left, "left"), layout.check_columns(right, "right")
    if len(left) != len(right):
        raise ShapeError(f"the left side has {len(left)} key columns, the right side {len(right)}")
    for position, (a, b) in enumerate(zip(left, right)):
        if a.dtype != b.dtype:
            raise ShapeError(f"key column {position} is {a.dtype} on the left and {b.dtype} on the right")
    return left, right
