"""Segment-reduce, reduce-by-index and scan on the CPU."""

from __future__ import annotations

import numpy as np
from numba import njit

from derivable.device.cpu import columns
from derivable.device.cpu.fold_kernels import is_additive, kernels
from derivable.device.cpu.threads import chunk_bounds, run_chunks
from derivable.parallel import layout
from derivable.parallel.index_folds import check_arguments, reduce_by_index_shape
from derivable.parallel.operators import refusal, resolve
from derivable.parallel.scans import check_differentiable
from derivable.parallel.segment_folds import segment_reduce_shape

# A chunk of fewer numbers than this is not worth a thread.
MIN_CHUNK = 1 << 15


@njit(cache=True, nogil=True)
def _spread_segments(start, stop, offsets, adjoint, out):
    width = out.shape[1]
    for s in range(start, stop):
        for e in range(offsets[s], offsets[s + 1]):
            for j in range(width):
                out[e, j] = adjoint[s, j]


@njit(cache=True, nogil=True)
def _spread_by_index(start, stop, indices, adjoint, out):
    buckets, width = adjoint.shape
    for e in range(start, stop):
        k = indices[e]
        inside = k >= 0 and k < buckets
        for j in range(width):
            out[e, j] = adjoint[k, j] if inside else 0


def _chunk(num_items: int, num_numbers: int) -> int:
    """The smallest chunk of items, when all items together hold `num_numbers` numbers."""
    return max(1, MIN_CHUNK * num_items // max(1, num_numbers))


def segment_reduce(values, offsets, operator, *, out=None):
    values = layout.check_values(values)
    operator = resolve(operator, values.dtype)
    offsets = layout.check_offsets(offsets, len(values))
    result = layout.result(out, segment_reduce_shape(values.shape, offsets.shape), values.dtype)
    flat = columns.flat(values)
    target, copied = columns.writable(result)
    kernel = kernels(operator, values.dtype, flat.shape[1]).segment_forward
    segments = len(offsets) - 1
    neutral = operator.neutral_for(values.dtype)
    # Each segment is folded by one thread from left to right, so any number of threads gives the same bits.
    run_chunks(kernel, segments, _chunk(segments, flat.size), flat, offsets, neutral, target)
    if copied:
        result[...] = target.reshape(result.shape)
    return result


def segment_reduce_vjp(adjoint, values, offsets, operator, *, out=None):
    values, operator, offsets = _differentiable(values, operator, offsets)
    adjoint = layout.check_same("adjoint", adjoint, segment_reduce_shape(values.shape, offsets.shape))
    result = layout.result(out, values.shape, values.dtype)
    flat = columns.flat(values)
    target, copied = columns.writable(result)
    segments = len(offsets) - 1
    adjoint = columns.flat(adjoint.astype(values.dtype, copy=False))
    if is_additive(operator, values.dtype):
        run_chunks(_spread_segments, segments, _chunk(segments, flat.size), offsets, adjoint, target)
    else:
        kernel = kernels(operator, values.dtype, flat.shape[1]).segment_backward
        run_chunks(kernel, segments, _chunk(segments, flat.size), flat, offsets, adjoint, target)
    if copied:
        result[...] = target.reshape(result.shape)
    return result


def segment_reduce_jvp(tangent, values, offsets, operator, *, out=None):
    values, operator, offsets = _differentiable(values, operator, offsets)
    tangent = layout.check_same("tangent", tangent, values.shape)
    result = layout.result(out, segment_reduce_shape(values.shape, offsets.shape), values.dtype)
    flat = columns.flat(values)
    target, copied = columns.writable(result)
    kernel = kernels(operator, values.dtype, flat.shape[1]).segment_tangent
    segments = len(offsets) - 1
    tangent = columns.flat(tangent.astype(values.dtype, copy=False))
    scratch = np.empty_like(target)
    run_chunks(kernel, segments, _chunk(segments, flat.size), flat, offsets, tangent, scratch, target)
    if copied:
        result[...] = target.reshape(result.shape)
    return result


def reduce_by_index(values, indices, num_buckets, operator, *, destination=None, out=None):
    values, indices, operator, destination = check_arguments(values, indices, num_buckets, operator, destination)
    result = layout.result(out, reduce_by_index_shape(values.shape, indices.shape, num_buckets), values.dtype)
    flat = columns.flat(values)
    module = kernels(operator, values.dtype, flat.shape[1])
    target, copied = columns.writable(result)
    target[...] = operator.neutral_for(values.dtype)
    bounds, counts, partial = _private(flat, num_buckets, destination)
    if len(counts) == 1:
        # One chunk: fold straight into the result.
        if destination is not None:
            target[...] = columns.flat(destination)
        module.index_forward(0, len(flat), flat, indices, counts[0], target)
    else:
        _run_private(module.index_forward, bounds, flat, indices, counts, partial)
        run_chunks(module.merge_forward, num_buckets, _chunk(num_buckets, partial.size), counts, partial, target)
    if copied:
        result[...] = target.reshape(result.shape)
    return result


def reduce_by_index_vjp(adjoint, values, indices, num_buckets, operator, *, destination=None, out=None):
    values, indices, operator, destination = check_arguments(values, indices, num_buckets, operator, destination)
    if not operator.is_differentiable(values.dtype):
        raise refusal(operator, values.dtype)
    shape = reduce_by_index_shape(values.shape, indices.shape, num_buckets)
    adjoint = columns.flat(layout.check_same("adjoint", adjoint, shape).astype(values.dtype, copy=False))
    result = layout.result(out, values.shape, values.dtype)
    flat = columns.flat(values)
    target, copied = columns.writable(result)
    if is_additive(operator, values.dtype):
        run_chunks(_spread_by_index, len(flat), _chunk(len(flat), flat.size), indices, adjoint, target)
        if copied:
            result[...] = target.reshape(result.shape)
        return result, None if destination is None else adjoint.reshape(shape).copy()
    module = kernels(operator, values.dtype, flat.shape[1])
    bounds, counts, partial = _private(flat, num_buckets, destination)
    _run_private(module.index_prefixes, bounds, flat, indices, counts, partial, target)
    if len(counts) == 1:
        partial[0] = adjoint
    else:
        scratch = np.empty_like(partial)
        limit = _chunk(num_buckets, partial.size)
        run_chunks(module.merge_backward, num_buckets, limit, counts, partial, scratch, adjoint)
    _run_private(module.index_backward, bounds, flat, indices, counts, partial, target)
    if copied:
        result[...] = target.reshape(result.shape)
    if destination is None:
        return result, None
    # What is left in the first part belongs to the destination: see `_private`.
    return result, partial[0].reshape(shape).copy()


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
        np.ones(shape, values.dtype), values, indices, num_buckets, operator, destination=destination
    )
    slopes *= tangent
    start = None
    if destination is not None and destination_tangent is not None:
        start = first * destination_tangent
    return reduce_by_index(slopes, indices, num_buckets, "add", destination=start, out=out)


def _private(flat, num_buckets, destination):
    """(bounds of the chunks, counts [part, bucket], partial results [part, bucket, column]).

    One chunk starts from the destination. Of several, each has its own part, and a destination is one more
    part before them; there are no more chunks than keep the parts smaller than the values.
    """
    bounds = chunk_bounds(len(flat), max(_chunk(len(flat), flat.size), 2 * num_buckets))
    if len(bounds) < 2:
        bounds = [0, 0]
    chunks = len(bounds) - 1
    parts = 1 if chunks == 1 else chunks + (destination is not None)
    counts = np.zeros((parts, num_buckets), np.int64)
    partial = np.empty((parts, num_buckets, flat.shape[1]), flat.dtype)
    if destination is not None:
        counts[0] = 1
        partial[0] = columns.flat(destination)
    return bounds, counts, partial


def _run_private(kernel, bounds, flat, indices, counts, partial, *rest):
    chunks = len(bounds) - 1
    shift = len(counts) - chunks

    def run(first, last):
        for chunk in range(first, last):
            part = chunk + shift
            kernel(bounds[chunk], bounds[chunk + 1], flat, indices, counts[part], partial[part], *rest)

    run_chunks(run, chunks, 1)


def scan(values, operator, *, exclusive=False, out=None):
    values = layout.check_values(values)
    operator = resolve(operator, values.dtype)
    result = layout.result(out, values.shape, values.dtype)
    flat = columns.flat(values)
    target, copied = columns.writable(result)
    rest = target
    if exclusive and len(values):
        target[0] = operator.neutral_for(values.dtype)
        flat, rest = flat[:-1], target[1:]
    if len(flat):
        kernel = kernels(operator, values.dtype, flat.shape[1]).scan_forward
        run_chunks(kernel, flat.shape[1], max(8, _chunk(flat.shape[1], flat.size)), flat, rest)
    if copied:
        result[...] = target.reshape(result.shape)
    return result


def scan_vjp(adjoint, values, operator, *, exclusive=False, result=None, out=None):
    values, operator, result = check_differentiable(values, operator, exclusive, result, scan)
    adjoint = layout.check_same("adjoint", adjoint, values.shape)
    answer = layout.result(out, values.shape, values.dtype)
    flat, prefix = columns.flat(values), columns.flat(result)
    adjoint = columns.flat(adjoint.astype(values.dtype, copy=False))
    target, copied = columns.writable(answer)
    rest = target
    if exclusive:
        target[-1:] = 0
        flat, prefix, adjoint, rest = flat[:-1], prefix[1:], adjoint[1:], target[:-1]
    if len(flat):
        kernel = kernels(operator, values.dtype, flat.shape[1]).scan_backward
        run_chunks(kernel, flat.shape[1], max(8, _chunk(flat.shape[1], flat.size)), flat, prefix, adjoint, rest)
    if copied:
        answer[...] = target.reshape(answer.shape)
    return answer


def scan_jvp(tangent, values, operator, *, exclusive=False, result=None, out=None):
    values, operator, result = check_differentiable(values, operator, exclusive, result, scan)
    tangent = layout.check_same("tangent", tangent, values.shape)
    answer = layout.result(out, values.shape, values.dtype)
    flat, prefix = columns.flat(values), columns.flat(result)
    tangent = columns.flat(tangent.astype(values.dtype, copy=False))
    target, copied = columns.writable(answer)
    rest = target
    if exclusive:
        target[:1] = 0
        flat, prefix, tangent, rest = flat[:-1], prefix[1:], tangent[:-1], target[1:]
    if len(flat):
        kernel = kernels(operator, values.dtype, flat.shape[1]).scan_tangent
        run_chunks(kernel, flat.shape[1], max(8, _chunk(flat.shape[1], flat.size)), flat, prefix, tangent, rest)
    if copied:
        answer[...] = target.reshape(answer.shape)
    return answer


def _differentiable(values, operator, offsets):
    values = layout.check_values(values)
    operator = resolve(operator, values.dtype)
    if not operator.is_differentiable(values.dtype):
        raise refusal(operator, values.dtype)
    return values, operator, layout.check_offsets(offsets, len(values))
