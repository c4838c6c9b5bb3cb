"""The reverse rule of reduce-by-index for products, which reads no prefixes.

An element's derivative is the product of the others, so the bucket's product divided by the element, as long as no
product of some of a bucket's elements leaves the range of normal numbers. That holds if the product of all factors
larger than 1, and that of all smaller ones, do not leave it. Other buckets (with zeros, for one) are left to the
generic rule, which divides by nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import load, magnitude_bits, of_bits, prefetch, store
from derivable.parallel.element_kernels import AHEAD
from derivable.parallel.extremum_adjoints import INTEGERS, RANGE, REALS


@kernel(
    *(f"{RANGE} {index}[] {real}[] {real}[] {real}[] {real}[]" for index in INTEGERS for real in REALS),
)
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


@kernel(
    *(f"{RANGE} {index}[] {real}[] bool {real}[] {real}[]" for index in INTEGERS for real in REALS),
)
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
