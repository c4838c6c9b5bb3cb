"""Reduce-by-index: a generalised histogram."""

from __future__ import annotations

import numpy as np

from derivable.algebra.monoids import resolve
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import ShapeError
from derivable.parallel import layout
from derivable.parallel.primitive import Primitive
from derivable.parallel.segment_folds import segment_reduce, segment_reduce_jvp, segment_reduce_vjp


def reduce_by_index(values, indices, num_buckets, operator, *, destination=None, out=None):
    """Fold the elements of each bucket with an operator, in the order of the elements.

    values       [n, *batch] of a dtype that the operator takes
    indices      [n] integers: the bucket of each element; outside range(num_buckets) the element is ignored
    operator     a name or a Semiring (its plus); commutative, since devices may fold in another order
    destination  [num_buckets, *batch], folded in as the first element of each bucket
    returns      [num_buckets, *batch]; an empty bucket gives its destination, or the neutral element

    Raises ShapeError if lengths differ; UnsupportedError for an operator that does not take the dtype.
    Law: the result of a concatenation is the result of its second part with that of the first as destination.
    Derivative: one vjp of the operator per element, with its exclusive prefix; adjoints of ignored elements are 0.
    """
    values, order, offsets, operator = _as_segments(values, indices, num_buckets, operator, destination)
    return segment_reduce(values[order], offsets, operator, out=out)


def reduce_by_index_shape(values, indices, num_buckets):
    """[n, *batch], [n], num_buckets -> [num_buckets, *batch]"""
    return (num_buckets, *values[1:])


def reduce_by_index_vjp(adjoint, values, indices, num_buckets, operator, *, destination=None, out=None):
    """(adjoint of `values` [n, *batch], adjoint of `destination` or None) from that of the result."""
    n = len(layout.check_values(values))
    every, order, offsets, operator = _as_segments(values, indices, num_buckets, operator, destination)
    adjoints = np.zeros_like(every)
    adjoints[order] = segment_reduce_vjp(adjoint, every[order], offsets, operator)
    first = len(every) - n
    result = layout.result(out, every[first:].shape, every.dtype)
    result[...] = adjoints[first:]
    return result, None if destination is None else adjoints[:first]


def reduce_by_index_jvp(
    tangent, values, indices, num_buckets, operator, *, destination=None, destination_tangent=None, out=None
):
    """Tangent of the result from those of `values` and of `destination` (None: 0)."""
    every, order, offsets, operator = _as_segments(values, indices, num_buckets, operator, destination)
    tangents = np.zeros_like(every)
    first = len(every) - len(values)
    tangents[first:] = tangent
    if destination is not None and destination_tangent is not None:
        tangents[:first] = destination_tangent
    return segment_reduce_jvp(tangents[order], every[order], offsets, operator, out=out)


def check_arguments(values, indices, num_buckets, operator, destination):
    """The arguments as arrays and an Monoid. Raises as `reduce_by_index` does."""
    values = layout.check_values(values)
    operator = resolve(operator, values.dtype)
    indices = layout.integers(indices, "indices")
    if len(indices) != len(values):
        raise ShapeError(f"there are {len(values)} values and {len(indices)} indices")
    if not is_integer(num_buckets):
        raise ShapeError(f"the number of buckets is {num_buckets!r}", hint="give an integer")
    if num_buckets < 0:
        raise ShapeError(f"the number of buckets is {num_buckets}")
    if destination is not None:
        destination = layout.check_same("destination", destination, (num_buckets, *values.shape[1:]))
        destination = destination.astype(values.dtype, copy=False)
    return values, indices, operator, destination


def _as_segments(values, indices, num_buckets, operator, destination):
    """(destination and values, the order that makes buckets segments, offsets, operator)."""
    values, indices, operator, destination = check_arguments(values, indices, num_buckets, operator, destination)
    if destination is not None:
        values = np.concatenate([destination, values])
        indices = np.concatenate([np.arange(num_buckets), indices])
    inside = np.flatnonzero((indices >= 0) & (indices < num_buckets))
    order = inside[np.argsort(indices[inside], kind="stable")]
    offsets = np.zeros(num_buckets + 1, np.int64)
    np.cumsum(np.bincount(indices[inside], minlength=num_buckets), out=offsets[1:])
    return values, order, offsets, operator


PRIMITIVE = Primitive(
    "reduce_by_index",
    reduce_by_index,
    reduce_by_index_shape,
    reduce_by_index_vjp,
    reduce_by_index_jvp,
    "float values and destination; indices are not differentiable",
)
