"""Segments of one column of floats folded by sums and by logarithms of sums, many rows at a time, in float64.

See `element_scans`: each lane has a sum of its own, and the lanes are joined at the end of the segment.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from derivable.device.cpu.element_scans import FAR_ABOVE, all_set, log_sum
from derivable.device.cpu.lane_rows import first_lane, last_lane, load_line, moved_up, num_lanes, store_line, zero_line
from derivable.device.cpu.lanes import add, less, like, multiply, subtract
from derivable.device.cpu.levels_exp import exp_and_complement
from derivable.device.cpu.places import load, store


@njit(cache=True, nogil=True)
def _total(line):
    zero = like(line, 0.0)
    line = add(line, moved_up(line, 4, zero))
    line = add(line, moved_up(line, 2, zero))
    return first_lane(last_lane(add(line, moved_up(line, 1, zero))))


@njit(cache=True, nogil=True)
def segment_sums(start, stop, first, last, width, offsets, neutral, values, out):
    zero = zero_line(np.float64)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        row, tail = load(offsets, s), load(offsets, s + 1)
        total = 0.0
        if tail - row >= 2 * lanes:
            # Two sums in each lane: one would wait for itself.
            even = odd = zero
            while row + 2 * lanes <= tail:
                even = add(even, load_line(values, row, zero))
                odd = add(odd, load_line(values, row + lanes, zero))
                row += 2 * lanes
            total = _total(add(even, odd))
        for k in range(row, tail):
            total += load(values, k)
        store(out, s, total)


@njit(cache=True, nogil=True)
def _log_sum_of(values, row, tail):
    """(reference, sum of exp(value - reference)) of the rows, at least one."""
    zero = zero_line(np.float64)
    lanes = num_lanes(zero)
    reference = np.float64(load(values, row))
    total = 1.0
    sums = zero
    row += 1
    while row < tail:
        if row + lanes <= tail and abs(reference) < np.inf:
            above = subtract(load_line(values, row, zero), like(zero, reference))
            if all_set(less(above, like(zero, FAR_ABOVE))):
                terms, _ = exp_and_complement(above)
                sums = add(sums, terms)
                row += lanes
                continue
        reference += math.log(total + _total(sums))
        total, sums = 1.0, zero
        end = min(row + lanes, tail)
        for k in range(row, end):
            reference = log_sum(reference, np.float64(load(values, k)))
        row = end
    return reference, total + _total(sums)


@njit(cache=True, nogil=True)
def segment_log_sums(start, stop, first, last, width, offsets, neutral, values, out):
    for s in range(start, stop):
        head, tail = load(offsets, s), load(offsets, s + 1)
        if head == tail:
            store(out, s, neutral[0])
        else:
            reference, total = _log_sum_of(values, head, tail)
            store(out, s, reference + math.log(total))


@njit(cache=True, nogil=True)
def segment_log_sums_back(start, stop, first, last, width, offsets, adjoints, values, out):
    """Adjoint times share. Values of +inf share alike; several of -inf with nothing else have no share."""
    zero = zero_line(np.float64)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        head, tail = load(offsets, s), load(offsets, s + 1)
        if head == tail:
            continue
        adjoint = np.float64(load(adjoints, s))
        if tail - head == 1:
            store(out, head, adjoint)
            continue
        reference, total = _log_sum_of(values, head, tail)
        if abs(reference) == np.inf:
            many = 0
            for k in range(head, tail):
                many += load(values, k) == np.inf
            for k in range(head, tail):
                store(out, k, adjoint / many if load(values, k) == np.inf else 0.0)
            continue
        row = head
        scale = np.nan if reference != reference else adjoint / total
        while row + lanes <= tail:
            above = subtract(load_line(values, row, zero), like(zero, reference))
            shares, _ = exp_and_complement(above)
            store_line(out, row, multiply(like(zero, scale), shares))
            row += lanes
        for k in range(row, tail):
            store(out, k, scale * math.exp(np.float64(load(values, k)) - reference))


# By an operator's `special`; the arguments are those of the kernels "segment" and "segment_back", without scratch.
SEGMENTS = {"add": segment_sums, "logaddexp": segment_log_sums}
SEGMENTS_BACK = {"logaddexp": segment_log_sums_back}
