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

from derivable.device.cpu.compiling import njit
from derivable.device.cpu.lanes import prefetch, prefetch_to_write
from derivable.device.cpu.places import load, magnitude_bits, of_bits, store
from derivable.parallel.element_kernels import AHEAD, WIDE_AHEAD


@njit(cache=True, nogil=True)
def keep_of_destination(start, stop, adjoints, winners, firsts):
    """The adjoints [item] that stay with the destination."""
    zero = adjoints.dtype.type(0)
    for m in range(start, stop):
        store(firsts, m, load(adjoints, m) if load(winners, m) < 0 else zero)


@njit(cache=True, nogil=True)
def give(start, stop, width, adjoints, winners, out):
    """The adjoints [item] to the rows of `out` that won, for few items; all others are zero before."""
    column, column_ahead = start % width, (start + AHEAD) % width
    for m in range(start, stop):
        prefetch_to_write(out, np.int64(load(winners, min(m + AHEAD, stop - 1))) * width + column_ahead)
        row = np.int64(load(winners, m))
        if row >= 0:
            store(out, row * width + column, load(adjoints, m))
        column = column + 1 if column + 1 < width else 0
        column_ahead = column_ahead + 1 if column_ahead + 1 < width else 0


@njit(cache=True, nogil=True)
def take(start, stop, first, last, width, buckets, indices, adjoints, winners, out):
    """`give`, asked by the rows, for few rows of many columns for each bucket: vector code."""
    limit = np.uint64(buckets)
    zero = adjoints.dtype.type(0)
    for e in range(start, stop):
        ahead = np.int64(load(indices, min(e + WIDE_AHEAD, stop - 1))) * width
        for j in range(first, last, 64 // adjoints.itemsize):
            prefetch(adjoints, ahead + j)
            prefetch(winners, ahead + j)
        k, row = np.int64(load(indices, e)), winners.dtype.type(e)
        if np.uint64(k) < limit:
            for j in range(first, last):
                adjoint, won = load(adjoints, k * width + j), load(winners, k * width + j) == row
                store(out, e * width + j, adjoint if won else zero)
        else:
            for j in range(first, last):
                store(out, e * width + j, 0)


@njit(cache=True, nogil=True, error_model="numpy")
def divide(start, stop, first, last, width, buckets, indices, values, scaled, bounds, out):
    """Of several columns. `scaled` [bucket, column]: product times adjoint.

    bounds  [bucket, column], multiplied at the first column by the largest magnitude of a row if that is more than 1:
            no product of the columns' factors larger than 1 is above it
    """
    limit = np.uint64(buckets)
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        if np.uint64(k) < limit:
            largest = magnitude_bits(values.dtype.type(1))
            for j in range(first, last):
                value = load(values, e * width + j)
                store(out, e * width + j, load(scaled, k * width + j) / value)
                # Maxima of integers are vector code; those of floats, with what is not a number, are not.
                bits = magnitude_bits(value)
                largest = bits if bits > largest else largest
            store(bounds, k * width + first, load(bounds, k * width + first) * of_bits(largest))
        else:
            for j in range(first, last):
                store(out, e * width + j, 0)


@njit(cache=True, nogil=True, error_model="numpy")
def divide_single(start, stop, first, last, width, buckets, indices, values, far, pairs, out):
    """Of a single column. pairs [bucket, 2]: product times adjoint, and the product of the factors larger than 1."""
    limit = np.uint64(buckets)
    one = values.dtype.type(1)
    for e in range(start, stop):
        k = np.int64(load(indices, e))
        if far:
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


def parts_outside_range(products: np.ndarray, destination: np.ndarray, large: np.ndarray) -> np.ndarray:
    """Where the product of a bucket's factors larger than 1, or of those smaller, is not a normal number.

    large  [item] the product of the rows' factors larger than 1, or more
    """
    bounds: Any = np.finfo(products.dtype)
    large = large * np.maximum(np.abs(destination), 1)
    return ~((large <= bounds.max) & (np.abs(products) / large >= 4 * bounds.tiny))
