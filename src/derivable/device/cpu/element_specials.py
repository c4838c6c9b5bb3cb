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

from derivable.device.cpu.places import load, prefetch, store

# How many elements ahead a far bucket is asked for.
AHEAD = 24


@njit(cache=True, nogil=True)
def _same(a, b):
    return (a == b) | ((a != a) & (b != b))


@njit(cache=True, nogil=True)
def claim(start, stop, first, last, width, buckets, indices, values, pairs, out):
    """pairs [bucket, 2, column]: result, and the adjoint, which the first row that has the result takes away."""
    limit = np.uint64(buckets)
    zero = values.dtype.type(0)
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        if np.uint64(k) < limit:
            for j in range(first, last):
                q = 2 * k * width + j
                adjoint = load(pairs, q + width)
                mine = _same(load(values, e * width + j), load(pairs, q))
                store(out, e * width + j, adjoint if mine else zero)
                store(pairs, q + width, zero if mine else adjoint)
        else:
            for j in range(first, last):
                store(out, e * width + j, 0)


@njit(cache=True, nogil=True)
def claim_near(start, stop, first, last, width, buckets, indices, values, pairs, out):
    """`claim` for a single column and few buckets: most rows get nothing, and nothing waits for a store."""
    limit = np.uint64(buckets)
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        store(out, e, 0)
        if np.uint64(k) < limit and _same(load(values, e), load(pairs, 2 * k)):
            store(out, e, load(pairs, 2 * k + 1))
            store(pairs, 2 * k + 1, 0)


@njit(cache=True, nogil=True)
def claim_far(start, stop, first, last, width, buckets, indices, values, pairs, out):
    """`claim` for a single column and many buckets: no branch waits for memory."""
    limit = np.uint64(buckets)
    zero = values.dtype.type(0)
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        prefetch(pairs, 2 * np.int64(load(indices, min(e + AHEAD, stop - 1))))
        taken = zero
        if np.uint64(k) < limit:
            adjoint = load(pairs, 2 * k + 1)
            mine = _same(load(values, e), load(pairs, 2 * k))
            taken = adjoint if mine else zero
            store(pairs, 2 * k + 1, zero if mine else adjoint)
        store(out, e, taken)


@njit(cache=True, nogil=True)
def offer(start, stop, width, destination, results, adjoints, firsts, left, pairs):
    """What the destination takes of items start..stop, what it leaves, and the pairs [part, bucket, 2, column]."""
    for m in range(start, stop):
        own = _same(destination[m], results[m])
        firsts[m] = adjoints[m] if own else 0
        left[m] = 0 if own else adjoints[m]
        q = 2 * (m - m % width) + m % width
        for c in range(len(pairs)):
            pairs[c, q] = results[m]
            pairs[c, q + width] = left[m]


@njit(cache=True, nogil=True)
def withdraw(start, stop, first, last, width, buckets, indices, values, pairs, blocked, out):
    """Take back what rows got that an earlier part had claimed: `blocked` [bucket * width]."""
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        if 0 <= k < buckets:
            for j in range(first, last):
                if load(blocked, k * width + j):
                    store(out, e * width + j, 0)


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
