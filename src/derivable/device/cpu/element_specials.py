"""Reverse rules of reduce-by-index for products and extrema, which need no prefixes.

Extrema: all of a bucket's adjoint goes to its first element that has the result; the destination comes before all.

Products: an element's derivative is the product of the others, so the bucket's product divided by the element, as long
as no product of some of a bucket's elements leaves the range of normal numbers. That holds if the product of all
factors larger than 1, and that of all smaller ones, do not leave it. Other buckets (with zeros, for one) are left to
the generic rule, which divides by nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from derivable.device.cpu.element_kernels import AHEAD
from derivable.device.cpu.lanes import prefetch
from derivable.device.cpu.places import load, store

# Rows that wait for their adjoint at a time.
QUEUE = 512


@njit(cache=True, nogil=True)
def _same(a, b):
    return (a == b) | ((a != a) & (b != b))


@njit(cache=True, nogil=True)
def _same_or_none(value, result):
    """Where a value is not a number, the result of its bucket is none either."""
    return (value == result) | (value != value)


@njit(cache=True, nogil=True)
def claim(start, stop, first, last, width, buckets, indices, values, results, left, queue, out):
    """The first row that has the result [bucket, column] takes away what is left of the adjoint [bucket, column]."""
    limit = np.uint64(buckets)
    zero = values.dtype.type(0)
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        if np.uint64(k) < limit:
            for j in range(first, last):
                adjoint = load(left, k * width + j)
                mine = _same(load(values, e * width + j), load(results, k * width + j))
                store(out, e * width + j, adjoint if mine else zero)
                store(left, k * width + j, zero if mine else adjoint)
        else:
            for j in range(first, last):
                store(out, e * width + j, 0)


@njit(cache=True, nogil=True)
def claim_near(start, stop, first, last, width, buckets, indices, values, results, left, queue, out):
    """`claim` for a single column and results in a near cache: a branch while few rows have a result, else a queue."""
    limit = np.uint64(buckets)
    many = False
    for begin in range(start, stop, QUEUE):
        end = min(stop, begin + QUEUE)
        for e in range(begin, end):
            store(out, e, 0)
        found = 0
        if many:
            for e in range(begin, end):
                k = np.int64(load(indices, e))
                mine = False
                if np.uint64(k) < limit:
                    mine = _same_or_none(load(values, e), load(results, k))
                store(queue, found, e)
                found += 1 if mine else 0
            _claim_queue(found, indices, left, queue, out)
        else:
            for e in range(begin, end):
                k = np.int64(load(indices, e))
                if np.uint64(k) < limit and _same_or_none(load(values, e), load(results, k)):
                    store(out, e, load(left, k))
                    store(left, k, 0)
                    found += 1
        many = found > QUEUE // 16


@njit(cache=True, nogil=True)
def claim_far(start, stop, first, last, width, buckets, indices, values, results, left, queue, out):
    """`claim` for a single column: rows with a result wait in a queue, so no guess of a branch waits for memory."""
    limit = np.uint64(buckets)
    waiting = 0
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        prefetch(results, np.int64(load(indices, min(e + AHEAD, stop - 1))))
        store(out, e, 0)
        mine = False
        if np.uint64(k) < limit:
            mine = _same(load(values, e), load(results, k))
        store(queue, waiting, e)
        waiting += 1 if mine else 0
        if waiting == len(queue):
            _claim_queue(waiting, indices, left, queue, out)
            waiting = 0
    _claim_queue(waiting, indices, left, queue, out)


@njit(cache=True, nogil=True)
def _claim_queue(waiting, indices, left, queue, out):
    for i in range(waiting):
        e = load(queue, i)
        k = np.int64(load(indices, e))
        store(out, e, load(left, k))
        store(left, k, 0)


@njit(cache=True, nogil=True)
def offer_whole(start, stop, destination, results, adjoints, firsts, left):
    """`offer` for a single part, whose folds are the results: vector code."""
    zero = adjoints.dtype.type(0)
    for m in range(start, stop):
        adjoint = load(adjoints, m)
        taken = _same(load(destination, m), load(results, m))
        store(firsts, m, adjoint if taken else zero)
        store(left, m, zero if taken else adjoint)


@njit(cache=True, nogil=True)
def offer(start, stop, destination, parts, results, adjoints, firsts, left):
    """What the destination takes of items start..stop, and what the first part with the result gets to give away.

    parts  [part, item] the folds of the parts
    left   [part, item], written
    """
    for m in range(start, stop):
        taken = _same(destination[m], results[m])
        firsts[m] = adjoints[m] if taken else 0
        for c in range(len(left)):
            mine = not taken and _same(parts[c, m], results[m])
            left[c, m] = adjoints[m] if mine else 0
            taken = taken or mine


@njit(cache=True, nogil=True, error_model="numpy")
def divide(start, stop, first, last, width, buckets, indices, values, one, pairs, out):
    """pairs [bucket, 2, column]: product times adjoint, and the product of the factors larger than 1."""
    limit = np.uint64(buckets)
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        if np.uint64(k) < limit:
            for j in range(first, last):
                q = 2 * k * width + j
                value, large = load(values, e * width + j), load(pairs, q + width)
                store(out, e * width + j, load(pairs, q) / value)
                size = abs(value)
                store(pairs, q + width, large * (size if size > one else one))
        else:
            for j in range(first, last):
                store(out, e * width + j, 0)


@njit(cache=True, nogil=True, error_model="numpy")
def divide_single(start, stop, first, last, width, buckets, indices, values, one, pairs, out):
    """`divide` of a single column."""
    limit = np.uint64(buckets)
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        prefetch(pairs, 2 * np.int64(load(indices, min(e + AHEAD, stop - 1))))
        if np.uint64(k) < limit:
            value, large = load(values, e), load(pairs, 2 * k + 1)
            store(out, e, load(pairs, 2 * k) / value)
            size = abs(value)
            store(pairs, 2 * k + 1, large * (size if size > one else one))
        else:
            store(out, e, 0)


def outside_range(products: np.ndarray, scaled: np.ndarray, adjoints: np.ndarray) -> np.ndarray:
    """Where a bucket's product, or that times its adjoint, is not a normal number. Arrays [item]."""
    bounds: Any = np.finfo(products.dtype)
    least = 4 * bounds.tiny
    outside = ~((np.abs(products) >= least) & (np.abs(products) <= bounds.max))
    return outside | ~(((np.abs(scaled) >= least) & (np.abs(scaled) <= bounds.max)) | (adjoints == 0))


def parts_outside_range(products: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Where the product of a bucket's factors larger than 1, or of those smaller, is not a normal number."""
    bounds: Any = np.finfo(products.dtype)
    return ~((large <= bounds.max) & (np.abs(products) / large >= 4 * bounds.tiny))
