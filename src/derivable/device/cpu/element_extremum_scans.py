"""Scans of minima and maxima of one column of floats, many rows at a time, as in `element_scans`.

Numbers keep their type: nothing is rounded. A line with what is not a number is left to a row-by-row loop. The reverse
is a linear recurrence whose weights are 0 where a row is better than the prefix before it, and takes all, else 1:
within a line in the arrays' type, from line to line in float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from derivable.device.cpu.element_scans import (
    all_set,
    hidden_zero,
    linear_functions,
    place,
    rows_downward,
    rows_upward,
    segment_rows,
    store_downward,
    store_upward,
)
from derivable.device.cpu.lane_rows import first_lane, last_lane, moved_up, num_lanes, zero_line
from derivable.device.cpu.lanes import absolute, bit_and, equal, less, like, multiply_add, select
from derivable.device.cpu.places import load, store


@njit(cache=True, nogil=True)
def _better(a, b, largest):
    """Mask where b takes the place of a, for numbers."""
    return less(a, b) if largest else less(b, a)


@njit(cache=True, nogil=True)
def _best(a, b, largest):
    return select(_better(a, b, largest), b, a)


@njit(cache=True, nogil=True)
def _takes(a, b, largest):
    """Whether b takes the place of a, what is not a number included."""
    return not ((a >= b if largest else a <= b) or a != a)


@njit(cache=True, nogil=True)
def _prefixes(line, worst, largest):
    """The prefixes of one line."""
    line = _best(moved_up(line, 1, worst), line, largest)
    line = _best(moved_up(line, 2, worst), line, largest)
    line = _best(moved_up(line, 4, worst), line, largest)
    return _best(moved_up(line, 8, worst), line, largest) if num_lanes(line) > 8 else line


@njit(cache=True, nogil=True)
def _scan(start, stop, offsets, neutral, values, out, reverse, exclusive, largest):
    worst = like(zero_line(values.dtype), neutral[0])
    lanes = num_lanes(worst)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, exclusive)
        if count >= 0 and exclusive:
            store(out, begin, neutral[0])
        if count <= 0:
            continue
        store(out, target, load(values, begin))
        prefix = like(worst, load(values, begin))
        row = 1
        while row < count:
            if row + lanes <= count:
                line = rows_upward(values, begin, row, reverse, worst)
                if all_set(bit_and(equal(line, line), equal(prefix, prefix))):
                    results = _best(prefix, _prefixes(line, worst, largest), largest)
                    store_upward(out, target, row, reverse, results)
                    prefix = last_lane(results)
                    row += lanes
                    continue
            best = first_lane(prefix)
            for k in range(row, min(row + lanes, count)):
                value = load(values, place(begin, k, reverse))
                best = value if _takes(best, value, largest) else best
                store(out, place(target, k, reverse), best)
            prefix = like(worst, best)
            row += lanes


@njit(cache=True, nogil=True)
def _scan_back(start, stop, offsets, adjoints, values, results, out, reverse, exclusive, largest):
    zero = hidden_zero(adjoints.dtype)
    one = like(zero, 1.0)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, exclusive)
        if count >= 0 and exclusive:
            store(out, place(begin, count, reverse), 0)
        if count <= 0:
            continue
        row = count - 1
        # The adjoint of the prefix that ends with `row`.
        adjoint = np.float64(load(adjoints, place(target, row, reverse)))
        while row > 0:
            if row >= lanes:
                line = rows_downward(values, begin, row, reverse, zero)
                prefixes = rows_downward(results, target, row - 1, reverse, zero)
                taken = _better(prefixes, line, largest)
                weights, terms = select(taken, zero, one), rows_downward(adjoints, target, row - 1, reverse, zero)
                weights, terms = linear_functions(weights, terms, zero)
                carry = like(zero, adjoint)
                before = multiply_add(weights, carry, terms)
                numbers = bit_and(equal(line, line), equal(prefixes, prefixes))
                if all_set(bit_and(numbers, less(absolute(before), like(zero, np.inf)))):
                    store_downward(out, begin, row, reverse, select(taken, moved_up(before, 1, carry), zero))
                    adjoint = first_lane(last_lane(terms)) + first_lane(last_lane(weights)) * adjoint
                    row -= lanes
                    continue
            for k in range(row, max(row - lanes, 0), -1):
                here, before_here = place(begin, k, reverse), place(target, k - 1, reverse)
                takes = _takes(load(results, before_here), load(values, here), largest)
                store(out, here, adjoint if takes else 0.0)
                adjoint = load(adjoints, before_here) + (0.0 if takes else adjoint)
            row = max(row - lanes, 0)
        store(out, begin, adjoint)


@njit(cache=True, nogil=True)
def scan_maxima(start, stop, first, last, width, offsets, neutral, values, out, reverse, exclusive):
    _scan(start, stop, offsets, neutral, values, out, reverse, exclusive, True)


@njit(cache=True, nogil=True)
def scan_minima(start, stop, first, last, width, offsets, neutral, values, out, reverse, exclusive):
    _scan(start, stop, offsets, neutral, values, out, reverse, exclusive, False)


@njit(cache=True, nogil=True)
def scan_maxima_back(start, stop, first, last, width, offsets, adjoints, values, results, out, reverse, exclusive):
    _scan_back(start, stop, offsets, adjoints, values, results, out, reverse, exclusive, True)


@njit(cache=True, nogil=True)
def scan_minima_back(start, stop, first, last, width, offsets, adjoints, values, results, out, reverse, exclusive):
    _scan_back(start, stop, offsets, adjoints, values, results, out, reverse, exclusive, False)
