"""Sort and join on the CPU, and the transpose of a gather."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from derivable.algebra.monoids import NAMED
from derivable.core.lazy import later
from derivable.device.cpu.memory import empty, zeros
from derivable.device.cpu.threads import run_chunks
from derivable.device.cpu.tiers import kernel
from derivable.parallel import layout
from derivable.parallel.order import order_of
from derivable.parallel.reference import check_sides, gather, gather_jvp, sort_jvp, sort_vjp, unsorted

if TYPE_CHECKING:
    from derivable.parallel import element_by_index
else:
    element_by_index = later("derivable.parallel.element_by_index")

__all__ = ["gather", "gather_jvp", "gather_vjp", "join", "sort", "sort_jvp", "sort_vjp"]
MIN_CHUNK = 1 << 15
DIGIT_BITS = 11


def gather_vjp(adjoint, indices, num_rows, *, out=None):
    indices = layout.check_indices(indices, num_rows)
    adjoint = layout.check_values(adjoint, "adjoint")
    result = layout.result(out, (num_rows, *adjoint.shape[1:]), adjoint.dtype)
    leaf = np.ascontiguousarray(adjoint).reshape(len(adjoint), math.prod(adjoint.shape[1:]), 1)
    sums = zeros((num_rows, *leaf.shape[1:]), adjoint.dtype)
    element_by_index.reduce_by_index(NAMED["add"].typed((adjoint.dtype,)), (sums,), indices, (leaf,), out=(sums,))
    result[...] = sums.reshape(result.shape)
    return result


def _encode(column: np.ndarray) -> np.ndarray:
    """A key column as uint64 [row] in the same order: NaN last, -0.0 as 0.0."""
    kind = column.dtype.kind
    if kind in "bu":
        return column.astype(np.uint64)
    if kind == "i":
        return column.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    wide = column.astype(np.float64) + 0.0
    wide[np.isnan(wide)] = np.nan  # one bit pattern, positive
    bits = wide.view(np.uint64)
    negative = (bits >> np.uint64(63)).astype(bool)
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


def _encode_all(columns: tuple[np.ndarray, ...]) -> np.ndarray:
    """Key columns as one contiguous uint64 array [key column, row]."""
    keys = empty((len(columns), len(columns[0])), np.uint64)
    for position, column in enumerate(columns):
        keys[position] = _encode(column)
    return keys


@kernel
def _is_sorted(keys):
    """The first row that is smaller than the one before, or -1."""
    for i in range(1, keys.shape[1]):
        for k in range(len(keys)):
            if keys[k, i - 1] != keys[k, i]:
                if keys[k, i - 1] > keys[k, i]:
                    return i
                break
    return -1


@kernel
def _radix_pass(key, order, shift, mask, histogram, out):
    """Stable counting sort of `order` by one digit of `key`; False if all digits are equal (`out` is untouched)."""
    n = len(order)
    for d in range(len(histogram)):
        histogram[d] = 0
    for i in range(n):
        histogram[(key[i] >> shift) & mask] += 1
    if n and histogram[(key[0] >> shift) & mask] == n:
        return False
    total = 0
    for d in range(len(histogram)):
        count = histogram[d]
        histogram[d] = total
        total += count
    for i in range(n):
        row = order[i]
        digit = (key[row] >> shift) & mask
        out[histogram[digit]] = row
        histogram[digit] += 1
    return True


def order_by_digits(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Row numbers [row] that bring rows of columns of numbers in order, the first column first; stable."""
    num_rows = len(columns[0])
    order, other = np.arange(num_rows, dtype=np.int64), empty(num_rows, np.int64)
    histogram = empty(1 << DIGIT_BITS, np.int64)
    mask = np.uint64((1 << DIGIT_BITS) - 1)
    for column in reversed(columns):
        key = _encode(column)
        # Only the digits in which the smallest and the largest key differ can order anything.
        low = key.min()
        spread = int(key.max() - low).bit_length()
        key -= low
        for shift in range(0, spread, DIGIT_BITS):
            if _radix_pass(key, order, np.uint64(shift), mask, histogram, other):
                order, other = other, order
    return order


def sort(columns):
    columns = layout.check_columns(columns)
    order = order_of(columns)
    order = np.arange(len(columns[0])) if isinstance(order, slice) else order
    return tuple(column[order] for column in columns), order


@kernel
def _compare(left, i, right, j):
    for k in range(len(left)):
        if left[k, i] < right[k, j]:
            return -1
        if left[k, i] > right[k, j]:
            return 1
    return 0


@kernel
def _match(start, stop, left, right, first, count):
    """For left rows in a range: the first equal right row and how many there are."""
    num_right = right.shape[1]
    low, high = 0, num_right
    if start < stop:
        while low < high:
            middle = (low + high) // 2
            if _compare(right, middle, left, start) < 0:
                low = middle + 1
            else:
                high = middle
    j = low
    for i in range(start, stop):
        if i > start and _compare(left, i - 1, left, i) == 0:
            first[i] = first[i - 1]
            count[i] = count[i - 1]
            continue
        while j < num_right and _compare(right, j, left, i) < 0:
            j += 1
        first[i] = j
        while j < num_right and _compare(right, j, left, i) == 0:
            j += 1
        count[i] = j - first[i]


@kernel
def _pairs(start, stop, first, ends, left_rows, right_rows):
    for i in range(start, stop):
        begin = ends[i - 1] if i else 0
        for p in range(begin, ends[i]):
            left_rows[p] = i
            right_rows[p] = first[i] + p - begin


def join(left, right):
    left, right = check_sides(left, right)
    left_keys, right_keys = _encode_all(left), _encode_all(right)
    for keys in (left_keys, right_keys):
        row = _is_sorted(keys)
        if row >= 0:
            raise unsorted(row)
    num_left = left_keys.shape[1]
    first, count = empty(num_left, np.int64), empty(num_left, np.int64)
    run_chunks(_match, num_left, MIN_CHUNK, left_keys, right_keys, first, count)
    ends = np.cumsum(count)
    total = int(ends[-1]) if num_left else 0
    left_rows, right_rows = empty(total, np.int64), empty(total, np.int64)
    run_chunks(_pairs, num_left, MIN_CHUNK, first, ends, left_rows, right_rows)
    return left_rows, right_rows
