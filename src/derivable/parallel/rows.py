"""Gather, sort, unique and join on the CPU."""

from __future__ import annotations

import numpy as np
from numba import njit

from derivable.algebra.monoids import NAMED
from derivable.core.diagnostics import LayoutError
from derivable.device.cpu.memory import empty, zeros
from derivable.device.cpu.threads import run_chunks
from derivable.parallel import layout
from derivable.parallel.columns import encode_all, flat, result_of, writable
from derivable.parallel.element_by_index import reduce_by_index
from derivable.parallel.gather import gather_shape
from derivable.parallel.join import check_sides
from derivable.parallel.sort import sort_jvp, sort_vjp
from derivable.parallel.unique import unique_jvp, unique_vjp, unsorted

__all__ = [
    "gather",
    "gather_jvp",
    "gather_vjp",
    "join",
    "sort",
    "sort_jvp",
    "sort_vjp",
    "unique",
    "unique_jvp",
    "unique_vjp",
]
MIN_CHUNK = 1 << 15
DIGIT_BITS = 11


@njit(cache=True, nogil=True)
def _gather(start, stop, values, indices, out):
    width = values.shape[1]
    for i in range(start, stop):
        row = indices[i]
        for j in range(width):
            out[i, j] = values[row, j]


@njit(cache=True, nogil=True)
def _first_outside(indices, num_rows):
    for i in range(len(indices)):
        if indices[i] < 0 or indices[i] >= num_rows:
            return i
    return -1


def gather(values, indices, *, out=None):
    values = layout.check_values(values)
    indices = layout.integers(indices, "indices")
    bad = _first_outside(indices, len(values))
    if bad >= 0:
        raise LayoutError(f"index {indices[bad]} at position {bad} is not a row of {len(values)}")
    result = result_of(out, gather_shape(values.shape, indices.shape), values.dtype)
    rows = flat(values)
    target, copied = writable(result)
    run_chunks(_gather, len(indices), max(1, MIN_CHUNK // max(1, rows.shape[1])), rows, indices, target)
    if copied:
        result[...] = target.reshape(result.shape)
    return result


def gather_vjp(adjoint, indices, num_rows, *, out=None):
    indices = layout.check_indices(indices, num_rows)
    adjoint = layout.check_values(adjoint, "adjoint")
    result = result_of(out, (num_rows, *adjoint.shape[1:]), adjoint.dtype)
    rows = flat(adjoint)[:, :, None]
    sums = zeros((num_rows, *rows.shape[1:]), adjoint.dtype)
    reduce_by_index(NAMED["add"].typed((adjoint.dtype,)), (sums,), indices, (rows,), out=(sums,))
    result[...] = sums.reshape(result.shape)
    return result


def gather_jvp(tangent, indices, *, out=None):
    return gather(tangent, indices, out=out)


@njit(cache=True, nogil=True)
def _is_sorted(keys):
    """The first row that is smaller than the one before, or -1."""
    for i in range(1, keys.shape[1]):
        for k in range(len(keys)):
            if keys[k, i - 1] != keys[k, i]:
                if keys[k, i - 1] > keys[k, i]:
                    return i
                break
    return -1


@njit(cache=True, nogil=True)
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


def _order(keys: np.ndarray) -> np.ndarray:
    num_rows = keys.shape[1]
    order, other = np.arange(num_rows, dtype=np.int64), empty(num_rows, np.int64)
    if _is_sorted(keys) < 0:
        return order
    histogram = empty(1 << DIGIT_BITS, np.int64)
    mask = np.uint64((1 << DIGIT_BITS) - 1)
    for key in keys[::-1]:
        # Only the digits in which the smallest and the largest key differ can order anything.
        spread = int(key.max() - key.min()).bit_length()
        moved = key - key.min()
        for shift in range(0, spread, DIGIT_BITS):
            if _radix_pass(moved, order, np.uint64(shift), mask, histogram, other):
                order, other = other, order
    return order


def sort(columns):
    columns = layout.check_columns(columns)
    order = _order(encode_all(columns))
    return tuple(column[order] for column in columns), order


@njit(cache=True, nogil=True)
def _starts(keys, starts):
    """Write the first row of each group of equal rows; returns how many."""
    count = 0
    for i in range(keys.shape[1]):
        new = i == 0
        for k in range(len(keys)):
            if new:
                break
            new = keys[k, i - 1] != keys[k, i]
        if new:
            starts[count] = i
            count += 1
    return count


def unique(columns):
    columns = layout.check_columns(columns)
    keys = encode_all(columns)
    row = _is_sorted(keys)
    if row >= 0:
        raise unsorted(row)
    num_rows = keys.shape[1]
    offsets = empty(num_rows + 1, np.int64)
    count = _starts(keys, offsets)
    offsets[count] = num_rows
    offsets = offsets[: count + 1].copy()
    return tuple(column[offsets[:-1]] for column in columns), offsets


@njit(cache=True, nogil=True)
def _compare(left, i, right, j):
    for k in range(len(left)):
        if left[k, i] < right[k, j]:
            return -1
        if left[k, i] > right[k, j]:
            return 1
    return 0


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _pairs(start, stop, first, ends, left_rows, right_rows):
    for i in range(start, stop):
        begin = ends[i - 1] if i else 0
        for p in range(begin, ends[i]):
            left_rows[p] = i
            right_rows[p] = first[i] + p - begin


def join(left, right):
    left, right = check_sides(left, right)
    left_keys, right_keys = encode_all(left), encode_all(right)
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
