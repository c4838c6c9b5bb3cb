"""What the primitives mean, and their derivative rules: NumPy, slow and obvious.

Of the folds these are the ones on arrays of one number an element. The arguments are those of `derivable.parallel.scan`
and its kin, which take any elements, run on kernels, and have derivatives of any order. These take exact Python
integers (dtype object) as well.
"""

from __future__ import annotations

import numpy as np

from derivable.algebra.monoids import resolve
from derivable.core.diagnostics import LayoutError, ShapeError
from derivable.parallel import layout
from derivable.parallel.levels import fold_levels as fold_levels

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
    result[...] = 0
    np.add.at(result, indices, adjoint)
    return result


def gather_jvp(tangent, indices, *, out=None):
    """Tangent of the result from that of `values`: gather is linear."""
    return gather(tangent, indices, out=out)


def scan(op, values, *, exclusive=False, reverse=False):
    """The folds of all prefixes along the first axis.

    op         a name, an operator, or a Semiring (its plus)
    values     [n, *batch] of a dtype that the operator takes
    exclusive  False: result[i] folds values[:i + 1]; True: values[:i], so result[0] is the neutral element
    reverse    of the flipped rows, flipped back
    returns    [n, *batch]

    Raises UnsupportedError for an operator that does not take the dtype.
    Law: the last inclusive prefix is the fold of everything.
    Derivative: the chain rule in one pass from right to left, without Jacobians (so zero-safe).
    """
    values = layout.check_values(values)
    operator = resolve(op, values.dtype)
    result = np.empty_like(values)
    rows, into = (values[::-1], result[::-1]) if reverse else (values, result)
    if exclusive and len(rows):
        into[0] = operator.neutral_for(values.dtype)
        rows, into = rows[:-1], into[1:]
    for i in range(len(rows)):
        into[i] = rows[i] if i == 0 else operator(into[i - 1], rows[i])
    return result


def segment_reduce(op, values, offsets):
    """Fold each segment of `values` with an operator, from left to right.

    op       a name ("add", "mul", "min", "max", "logaddexp", "or", "and", "xor"), an operator, or a Semiring
    values   [edge, *batch] of a dtype that the operator takes (logaddexp: nats)
    offsets  [segment + 1] integers, non-decreasing, from 0 to edge
    returns  [segment, *batch]; an empty segment gives the neutral element (a semiring's zero)

    Raises LayoutError if offsets are not monotone, with the first bad index; UnsupportedError for an
    operator that does not take the dtype.
    Law: reducing a concatenation is concatenating the reductions.
    Source: Maene et al. 2025, Algorithm 1; any operator, not only add and logaddexp.
    Derivative: one reverse pass with the exclusive prefix of each element; zero-safe for mul, ties of min
    and max to the smallest index, never NaN for logaddexp at -inf.
    """
    values = layout.check_values(values)
    operator = resolve(op, values.dtype)
    offsets = layout.check_offsets(offsets, len(values))
    result = np.empty((len(offsets) - 1, *values.shape[1:]), values.dtype)
    result[...] = operator.neutral_for(values.dtype)
    lengths = np.diff(offsets)
    segments, step = np.flatnonzero(lengths), 0
    while len(segments):
        rows = values[offsets[segments] + step]
        result[segments] = rows if step == 0 else operator(result[segments], rows)
        step += 1
        segments = segments[lengths[segments] > step]
    return result


def reduce_by_index(destination, op, indices, values):
    """Fold the elements of each bucket with an operator, in the order of the elements: a generalised histogram.

    destination  [bucket, *batch], folded in as the first element of each bucket; is not changed
    op           a name, an operator, or a Semiring (its plus); commutative, since devices may fold in another order
    indices      [n] integers: the bucket of each element; outside range(bucket) the element is ignored
    values       [n, *batch] of a dtype that the operator takes
    returns      [bucket, *batch]; an empty bucket gives its destination

    Raises ShapeError if lengths differ; UnsupportedError for an operator that does not take the dtype.
    Law: the result of a concatenation is the result of its second part with that of the first as destination.
    Derivative: one vjp of the operator per element, with its exclusive prefix; adjoints of ignored elements are 0.
    """
    values, destination = layout.check_values(values), layout.check_values(destination, "destination")
    indices = layout.integers(indices, "indices")
    if len(indices) != len(values):
        raise ShapeError(f"there are {len(indices)} indices for {len(values)} values")
    count = len(destination)
    rows = np.concatenate([destination.astype(values.dtype, copy=False), values])
    indices = np.concatenate([np.arange(count), indices])
    inside = np.flatnonzero((indices >= 0) & (indices < count))
    order = inside[np.argsort(indices[inside], kind="stable")]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(indices[inside], minlength=count), out=offsets[1:])
    return segment_reduce(op, rows[order], offsets)


def sort(columns):
    """Rows in ascending lexicographic order, the first column counting most; stable.

    columns  tuple of arrays [row] of bool, integer or float dtype; NaN comes last, -0.0 equals 0.0
    returns  (the sorted columns, order [row] int64: sorted[i] = columns[order[i]])

    Raises ShapeError for no columns or columns of different lengths.
    Law: sorting sorted rows changes nothing, and the order is then 0, 1, 2, ...
    Derivative: the order is locally constant, so adjoints of sorted columns go back along it.
    """
    columns = layout.check_columns(columns)
    # -0.0 and 0.0 are one key: lexsort compares them as equal, so equal rows keep their order.
    order = np.lexsort(columns[::-1]).astype(np.int64)
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
        raise unsorted(int(np.flatnonzero(falls)[0]) + 1)
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, num_rows), bool), ~equal]))
    return tuple(column[starts] for column in columns), np.append(starts, num_rows).astype(np.int64)


def unsorted(row):
    """The error for a row that is smaller than the one before."""
    return LayoutError(f"the rows are not sorted: row {row} is smaller than row {row - 1}", hint="apply `sort` first")


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
    left, right = check_sides(left, right)
    pairs = []
    groups: dict[tuple, list[int]] = {}
    for row, key in enumerate(_keys(right)):
        groups.setdefault(key, []).append(row)
    for row, key in enumerate(_keys(left)):
        pairs += [(row, other) for other in groups.get(key, ())]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def check_sides(left, right):
    """Both sides' columns. Raises as `join` does."""
    left, right = layout.check_columns(left, "left"), layout.check_columns(right, "right")
    if len(left) != len(right):
        raise ShapeError(f"the left side has {len(left)} key columns, the right side {len(right)}")
    for position, (a, b) in enumerate(zip(left, right)):
        if a.dtype != b.dtype:
            raise ShapeError(f"key column {position} is {a.dtype} on the left and {b.dtype} on the right")
    return left, right


def _keys(columns):
    # NaN is no equal of itself in Python, so it gets a stand-in.
    return zip(*(["nan" if value != value else value for value in column.tolist()] for column in columns))
