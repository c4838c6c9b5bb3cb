"""What folds of arrays of one number an element mean: NumPy, slow and obvious, of exact Python integers too.

The arguments are those of `derivable.parallel.scan` and its kin, which take any elements, run on kernels, and have
derivatives of any order.
"""

from __future__ import annotations

import numpy as np

from derivable.algebra.monoids import resolve
from derivable.core.diagnostics import ShapeError
from derivable.parallel import layout

__all__ = ["reduce_by_index", "scan", "segment_reduce"]


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
