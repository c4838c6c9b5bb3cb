"""Segment-reduce: a fold of each segment of consecutive elements."""

from __future__ import annotations

import numpy as np

from derivable.algebra.monoids import resolve
from derivable.parallel import layout
from derivable.parallel.primitive import Primitive


def segment_reduce(values, offsets, operator, *, out=None):
    """Fold each segment of `values` with an operator, from left to right.

    values    [edge, *batch] of a dtype that the operator takes (logaddexp: nats)
    offsets   [segment + 1] integers, non-decreasing, from 0 to edge
    operator  a name ("add", "mul", "min", "max", "logaddexp", "or", "and") or a Semiring, for its plus
    returns   [segment, *batch]; an empty segment gives the neutral element (a semiring's zero)

    Raises LayoutError if offsets are not monotone, with the first bad index; UnsupportedError for an
    operator that does not take the dtype.
    Law: reducing a concatenation is concatenating the reductions.
    Source: Maene et al. 2025, Algorithm 1; any operator, not only add and logaddexp.
    Derivative: one reverse pass with the exclusive prefix of each element; zero-safe for mul, ties of min
    and max to the smallest index, never NaN for logaddexp at -inf.
    """
    values = layout.check_values(values)
    operator = resolve(operator, values.dtype)
    offsets = layout.check_offsets(offsets, len(values))
    result = layout.result(out, segment_reduce_shape(values.shape, offsets.shape), values.dtype)
    result[...] = operator.neutral_for(values.dtype)
    for step, segments, elements in _steps(offsets):
        result[segments] = values[elements] if step == 0 else operator(result[segments], values[elements])
    return result


def segment_reduce_shape(values, offsets):
    """[edge, *batch], [segment + 1] -> [segment, *batch]"""
    return (offsets[0] - 1, *values[1:])


def segment_reduce_vjp(adjoint, values, offsets, operator, *, out=None):
    """Adjoint of `values` [edge, *batch] from that of the result [segment, *batch].

    The chain rule in reverse, with the exclusive prefix of each element saved.
    Raises UnsupportedError for dtypes without derivative.
    """
    values, operator, offsets = differentiable_segments(values, operator, offsets)
    adjoint = layout.check_same("adjoint", adjoint, segment_reduce_shape(values.shape, offsets.shape))
    steps = list(_steps(offsets))
    prefixes, prefix = [], np.empty(adjoint.shape, values.dtype)
    for step, segments, elements in steps:
        prefixes.append(prefix[segments].copy())
        prefix[segments] = values[elements] if step == 0 else operator(prefix[segments], values[elements])
    running = adjoint.astype(values.dtype)
    result = layout.result(out, values.shape, values.dtype)
    for (step, segments, elements), before in zip(reversed(steps), reversed(prefixes)):
        if step == 0:
            result[elements] = running[segments]
        else:
            running[segments], result[elements] = operator.vjp(before, values[elements], running[segments])
    return result


def segment_reduce_jvp(tangent, values, offsets, operator, *, out=None):
    """Tangent of the result [segment, *batch] from that of `values` [edge, *batch]; 0 for empty segments."""
    values, operator, offsets = differentiable_segments(values, operator, offsets)
    tangent = layout.check_same("tangent", tangent, values.shape).astype(values.dtype)
    result = layout.result(out, segment_reduce_shape(values.shape, offsets.shape), values.dtype)
    result[...] = 0
    prefix = np.empty_like(result)
    for step, segments, elements in _steps(offsets):
        if step == 0:
            prefix[segments], result[segments] = values[elements], tangent[elements]
            continue
        slope, own = operator.vjp(prefix[segments], values[elements], np.ones((), values.dtype))
        result[segments] = slope * result[segments] + own * tangent[elements]
        prefix[segments] = operator(prefix[segments], values[elements])
    return result


def _steps(offsets):
    """For k = 0, 1, ...: (k, the segments longer than k, the k-th element of each)."""
    lengths = np.diff(offsets)
    segments = np.flatnonzero(lengths)
    step = 0
    while len(segments):
        yield step, segments, offsets[segments] + step
        step += 1
        segments = segments[lengths[segments] > step]


def differentiable_segments(values, operator, offsets):
    """Checked arrays and an Monoid that has a derivative for them."""
    values, operator = layout.resolve_differentiable(values, operator)
    return values, operator, layout.check_offsets(offsets, len(values))


PRIMITIVE = Primitive(
    "segment_reduce",
    segment_reduce,
    segment_reduce_shape,
    segment_reduce_vjp,
    segment_reduce_jvp,
    "float values; offsets are not differentiable, bool and integer values have no derivative",
)
