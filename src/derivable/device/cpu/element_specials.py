"""Reverse rules of reduce-by-index for products and extrema, which need no prefixes.

Extrema: all of a bucket's adjoint goes to its first element that has the result; the destination comes before all.
The forward pass tells which row that is.

Products: an element's derivative is the product of the others, so the bucket's product divided by the element, as long
as no product of some of a bucket's elements leaves the range of normal numbers. That holds if the product of all
factors larger than 1, and that of all smaller ones, do not leave it. Other buckets (with zeros, for one) are left to
the generic rule, which divides by nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from derivable.device.cpu.lanes import prefetch, prefetch_to_write
from derivable.device.cpu.places import load, store

# How many elements ahead a far bucket is asked for, and a far row to write to.
AHEAD = 40


@njit(cache=True, nogil=True)
def give(start, stop, width, adjoints, winners, firsts, out):
    """The adjoints [item] to the rows that won: to row `winners` [item] of `out`, or to `firsts` [item] if negative."""
    zero = adjoints.dtype.type(0)
    column, column_ahead = start % width, (start + AHEAD) % width
    for m in range(start, stop):
        adjoint, row = load(adjoints, m), np.int64(load(winners, m))
        prefetch_to_write(out, np.int64(load(winners, min(m + AHEAD, stop - 1))) * width + column_ahead)
        store(firsts, m, adjoint if row < 0 else zero)
        if row >= 0:
            store(out, row * width + column, adjoint)
        column = column + 1 if column + 1 < width else 0
        column_ahead = column_ahead + 1 if column_ahead + 1 < width else 0


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
