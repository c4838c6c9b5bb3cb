"""Segment-reduce, reduce-by-index and scan on the CPU, of one number per element: `element_folds` in another form."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.algebra.monoid import refusal
from derivable.algebra.monoids import resolve
from derivable.device.cpu import columns, element_by_index, element_folds
from derivable.device.cpu.memory import empty_like, full
from derivable.device.cpu.memory import result as result_of
from derivable.parallel import layout
from derivable.parallel.index_folds import check_arguments, reduce_by_index_shape
from derivable.parallel.scans import check_differentiable
from derivable.parallel.segment_folds import differentiable_segments, segment_reduce_shape


def segment_reduce(values, offsets, operator, *, out=None):
    values = layout.check_values(values)
    operator = resolve(operator, values.dtype)
    offsets = layout.check_offsets(offsets, len(values))
    result = result_of(out, segment_reduce_shape(values.shape, offsets.shape), values.dtype)
    target = _leaf(result)
    element_folds.segment_reduce(operator.typed((values.dtype,)), (_leaf(values),), offsets, out=(target,))
    return _returned(result, target)


def segment_reduce_vjp(adjoint, values, offsets, operator, *, out=None):
    values, operator, offsets = differentiable_segments(values, operator, offsets)
    adjoint = layout.check_same("adjoint", adjoint, segment_reduce_shape(values.shape, offsets.shape))
    result = result_of(out, values.shape, values.dtype)
    target, adjoint = _leaf(result), _leaf(adjoint.astype(values.dtype, copy=False))
    op = operator.typed((values.dtype,))
    element_folds.segment_reduce_vjp(op, (adjoint,), (_leaf(values),), offsets, out=(target,))
    return _returned(result, target)


def segment_reduce_jvp(tangent, values, offsets, operator, *, out=None):
    values, operator, offsets = differentiable_segments(values, operator, offsets)
    tangent = layout.check_same("tangent", tangent, values.shape)
    result = result_of(out, segment_reduce_shape(values.shape, offsets.shape), values.dtype)
    target, tangent = _leaf(result), _leaf(tangent.astype(values.dtype, copy=False))
    op = operator.typed((values.dtype,)).dual
    element_folds.segment_reduce(op, (_leaf(values), tangent), offsets, out=(empty_like(target), target))
    return _returned(result, target)


def reduce_by_index(values, indices, num_buckets, operator, *, destination=None, out=None):
    values, indices, operator, destination = check_arguments(values, indices, num_buckets, operator, destination)
    result = result_of(out, reduce_by_index_shape(values.shape, indices.shape, num_buckets), values.dtype)
    target = _leaf(result)
    # The kernels start from what is in their result.
    if destination is None:
        target[...] = operator.neutral_for(values.dtype)
    else:
        target[...] = _leaf(destination)
    element_by_index.reduce_by_index(
        operator.typed((values.dtype,)), (target,), indices, (_leaf(values),), out=(target,)
    )
    return _returned(result, target)


def reduce_by_index_vjp(adjoint, values, indices, num_buckets, operator, *, destination=None, out=None):
    values, indices, operator, destination = check_arguments(values, indices, num_buckets, operator, destination)
    if not operator.is_differentiable(values.dtype):
        raise refusal(operator, values.dtype)
    shape = reduce_by_index_shape(values.shape, indices.shape, num_buckets)
    adjoint = _leaf(layout.check_same("adjoint", adjoint, shape).astype(values.dtype, copy=False))
    result = result_of(out, values.shape, values.dtype)
    target, op, elements = _leaf(result), operator.typed((values.dtype,)), _leaf(values)
    if destination is not None:
        made = element_by_index.reduce_by_index_vjp(
            op, (adjoint,), (_leaf(destination),), indices, (elements,), out=(target,)
        )
        firsts: Any = made[0][0]
        return _returned(result, target), (firsts.copy() if np.may_share_memory(firsts, adjoint) else firsts).reshape(
            shape
        )
    start, kept, rows = _neutral(operator, adjoint), None, None
    if op.special in ("min", "max"):
        _, kept = element_by_index.reduce_by_index_keeping(op, (start,), indices, (elements,), whole=True)
        assert kept is not None
        _give_to_neutral(kept[0], indices)
    elif op.special not in ("add", "mul"):
        # The first element of a bucket is its destination, as in a segment.
        rows = _first_rows(indices, num_buckets)
        buckets = indices[rows]
        start[buckets] = elements[rows]
        indices = indices.copy()
        indices[rows] = -1
    made = element_by_index.reduce_by_index_vjp(
        op, (adjoint,), (start,), indices, (elements,), kept=kept, out=(target,)
    )
    if rows is not None:
        firsts = made[0][0]
        target[rows] = firsts[buckets]
    return _returned(result, target), None


def reduce_by_index_jvp(
    tangent, values, indices, num_buckets, operator, *, destination=None, destination_tangent=None, out=None
):
    values, indices, operator, destination = check_arguments(values, indices, num_buckets, operator, destination)
    if not operator.is_differentiable(values.dtype):
        raise refusal(operator, values.dtype)
    layout.check_same("tangent", np.asarray(tangent), values.shape)
    # The derivative by each element is the vjp of ones; every element belongs to one result, so they add up.
    shape = reduce_by_index_shape(values.shape, indices.shape, num_buckets)
    slopes, first = reduce_by_index_vjp(
        full(shape, 1, values.dtype), values, indices, num_buckets, operator, destination=destination
    )
    slopes *= tangent
    start = None
    if destination is not None and destination_tangent is not None:
        start = first * destination_tangent
    return reduce_by_index(slopes, indices, num_buckets, "add", destination=start, out=out)


def scan(values, operator, *, exclusive=False, out=None):
    values = layout.check_values(values)
    operator = resolve(operator, values.dtype)
    result = result_of(out, values.shape, values.dtype)
    target = _leaf(result)
    element_folds.scan(operator.typed((values.dtype,)), (_leaf(values),), exclusive=exclusive, out=(target,))
    return _returned(result, target)


def scan_vjp(adjoint, values, operator, *, exclusive=False, result=None, out=None):
    values, operator, result = check_differentiable(values, operator, exclusive, result, scan)
    adjoint = layout.check_same("adjoint", adjoint, values.shape)
    answer = result_of(out, values.shape, values.dtype)
    target, adjoint = _leaf(answer), _leaf(adjoint.astype(values.dtype, copy=False))
    op = operator.typed((values.dtype,))
    element_folds.scan_vjp(op, (adjoint,), (_leaf(values),), (_leaf(result),), exclusive=exclusive, out=(target,))
    return _returned(answer, target)


def scan_jvp(tangent, values, operator, *, exclusive=False, result=None, out=None):
    values, operator = layout.resolve_differentiable(values, operator)
    tangent = layout.check_same("tangent", tangent, values.shape)
    answer = result_of(out, values.shape, values.dtype)
    target, tangent = _leaf(answer), _leaf(tangent.astype(values.dtype, copy=False))
    op = operator.typed((values.dtype,)).dual
    element_folds.scan(op, (_leaf(values), tangent), exclusive=exclusive, out=(empty_like(target), target))
    return _returned(answer, target)


def _leaf(values: np.ndarray) -> np.ndarray:
    """[n, *batch] as [n, column, 1]."""
    return columns.flat(values)[:, :, None]


def _returned(out: np.ndarray, target: np.ndarray) -> np.ndarray:
    """`out`, which `target` is a leaf of, or a copy of it where it is not contiguous."""
    if not out.flags.c_contiguous:
        out[...] = target.reshape(out.shape)
    return out


def _first_rows(indices: np.ndarray, num_buckets: int) -> np.ndarray:
    """The first row of each bucket that has rows."""
    first = np.full(num_buckets, -1)
    rows = np.flatnonzero((indices >= 0) & (indices < num_buckets))[::-1]
    first[indices[rows]] = rows  # of several rows the last one assigned stays
    return first[first >= 0]


def _give_to_neutral(winners: np.ndarray, indices: np.ndarray) -> None:
    """Elements that equal the neutral one come before a destination that is not there: the first of a bucket wins."""
    if (winners < 0).any():
        rows = _first_rows(indices, len(winners))
        of_buckets = winners[indices[rows]]
        winners[indices[rows]] = np.where(of_buckets < 0, rows[:, None, None], of_buckets)


def _neutral(operator, like: np.ndarray) -> np.ndarray:
    return full(like.shape, operator.neutral_for(like.dtype), like.dtype)
