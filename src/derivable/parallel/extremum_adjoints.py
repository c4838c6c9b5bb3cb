"""The reverse rule of reduce-by-index for minima and maxima.

All of a bucket's adjoint goes to its first element that has the result; the destination comes before all. The forward
pass finds which row that is, so no prefixes are read.
"""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import load, prefetch, prefetch_to_write, store
from derivable.parallel.element_kernels import AHEAD, WIDE_AHEAD

# The types of numbers, and of indices and the numbers of rows; rows, columns, the width and the number of buckets.
REALS, INTEGERS = ("float32", "float64"), ("int64", "int32")
RANGE = "int64 int64 int64 int64 int64 int64"


@kernel(
    *(f"int64 int64 {real}[] {row}[] {real}[]" for real in REALS for row in INTEGERS),
)
def keep_of_destination(start, stop, adjoints, winners, firsts):
    """The adjoints [item] that stay with the destination."""
    zero = adjoints.dtype.type(0)
    for m in range(start, stop):
        store(firsts, m, load(adjoints, m) if load(winners, m) < 0 else zero)


@kernel(
    *(f"{RANGE} {index}[] {row}[] {real}[]" for index in INTEGERS for real in REALS for row in INTEGERS),
)
def clear_won(start, stop, first, last, width, buckets, indices, winners, firsts):
    """Zero for the adjoints [item] that rows won, by rows, for far more buckets than rows."""
    limit = np.uint64(buckets)
    for e in range(start, stop):
        ahead = np.int64(load(indices, min(e + WIDE_AHEAD, stop - 1))) * width
        for j in range(first, last, 64 // firsts.itemsize):
            prefetch(winners, ahead + j)
            prefetch_to_write(firsts, ahead + j)
        k = np.int64(load(indices, e))
        if np.uint64(k) < limit:
            for j in range(first, last):
                if load(winners, k * width + j) >= 0:
                    store(firsts, k * width + j, 0)


@kernel(
    *(f"{RANGE} {index}[] {row}[]" for index in INTEGERS for row in INTEGERS),
)
def begin_winners(start, stop, first, last, width, buckets, indices, winners):
    """No winners yet [item] where rows go, by rows, for far more buckets than rows."""
    limit = np.uint64(buckets)
    for e in range(start, stop):
        ahead = np.int64(load(indices, min(e + WIDE_AHEAD, stop - 1))) * width
        for j in range(first, last, 64 // winners.itemsize):
            prefetch_to_write(winners, ahead + j)
        k = np.int64(load(indices, e))
        if np.uint64(k) < limit:
            for j in range(first, last):
                store(winners, k * width + j, -1)


@kernel(
    *(f"int64 int64 int64 {real}[] {row}[] {real}[]" for real in REALS for row in INTEGERS),
)
def scatter_adjoint(start, stop, width, adjoints, winners, out):
    """The adjoints [item] to the rows of `out` that won, for few items; all others are zero before."""
    column, column_ahead = start % width, (start + AHEAD) % width
    for m in range(start, stop):
        prefetch_to_write(out, np.int64(load(winners, min(m + AHEAD, stop - 1))) * width + column_ahead)
        row = np.int64(load(winners, m))
        if row >= 0:
            store(out, row * width + column, load(adjoints, m))
        column = column + 1 if column + 1 < width else 0
        column_ahead = column_ahead + 1 if column_ahead + 1 < width else 0


@kernel(
    *(f"{RANGE} {index}[] {real}[] {row}[] {real}[]" for index in INTEGERS for real in REALS for row in INTEGERS),
)
def gather_adjoint(start, stop, first, last, width, buckets, indices, adjoints, winners, out):
    """`scatter_adjoint` by rows, for few rows of many columns for each bucket: vector code."""
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
