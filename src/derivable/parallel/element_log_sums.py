"""Logarithms of sums of one column of floats, scanned and by segments, many rows at a time, in float64 in between.

What `scan_kernels` emits would take an exponential and a logarithm for each of its steps. Here a line takes one of
each: a prefix is reference + log(sums) where `sums` is the sum of exp(value - reference). The reference is an earlier
prefix, so sums are at least 1; a line with a value far above it is computed row by row and gives a new reference. In
reverse the weights of a prefix a and a value b are 1 / (1 + exp(b - a)) and the rest, and the recurrence is that of
`scan_kernels`.

The kernels take what those of `scan_kernels` and `segment_kernels` take, after what is fixed beforehand.

Rows are counted in the direction of the scan: row i is at `begin + i`, or `begin - i` in reverse. The exclusive scan is
the inclusive one of all rows but the last, moved by one row.
"""

from __future__ import annotations

import math

import numpy as np

from derivable.device.cpu.lines import (
    absolute,
    add,
    all_set,
    backwards,
    bit_and,
    divide,
    exp_and_complement,
    first_lane,
    last_lane,
    less,
    like,
    load_line,
    logarithm,
    minimum,
    moved_up,
    multiply,
    multiply_add,
    num_lanes,
    store_line,
    subtract,
    zero_line,
)
from derivable.device.cpu.places import hidden, load, store
from derivable.device.cpu.tiers import kernel

# A value may be so much above the reference, in nats, and the sums so large, before there is a new one.
FAR_ABOVE = 4.0
LARGE_SUM = 1024.0


@kernel(is_inner=True)
def hidden_zero(dtype):
    """Zero in all lanes of a float dtype, unknown to the compiler.

    To move lanes up before zeros that it knows LLVM takes an instruction, vexpandpd, with which a scan of sums takes
    2.8 times as long.
    """
    return like(zero_line(dtype), hidden(0))


@kernel(is_inner=True)
def load_run(array, position, falling, example):
    """array[position], array[position + 1], ..., or downward."""
    if falling:
        return backwards(load_line(array, position - num_lanes(example) + 1, example))
    return load_line(array, position, example)


@kernel(is_inner=True)
def store_run(array, position, falling, x):
    if falling:
        store_line(array, position - num_lanes(x) + 1, backwards(x))
    else:
        store_line(array, position, x)


@kernel(is_inner=True)
def place(begin, row, reverse):
    return begin - row if reverse else begin + row


@kernel(is_inner=True)
def segment_rows(offsets, s, reverse, shift):
    """Where segment s begins, where its first result goes, and how many rows are folded; -1 if it is empty and the
    scan exclusive."""
    head, tail = load(offsets, s), load(offsets, s + 1)
    begin = tail - 1 if reverse else head
    return begin, place(begin, shift, reverse), tail - head - shift


@kernel(is_inner=True)
def _sums(line, zero):
    """The prefixes of one line."""
    line = add(line, moved_up(line, 1, zero))
    line = add(line, moved_up(line, 2, zero))
    return add(line, moved_up(line, 4, zero))


@kernel(is_inner=True)
def _linear(weights, adjoints, carry, zero):
    """r with r[i] = adjoints[i] + weights[i] * r[i - 1], where r[-1] is `carry`."""
    one = like(zero, 1.0)
    adjoints = multiply_add(weights, moved_up(adjoints, 1, zero), adjoints)
    weights = multiply(weights, moved_up(weights, 1, one))
    adjoints = multiply_add(weights, moved_up(adjoints, 2, zero), adjoints)
    weights = multiply(weights, moved_up(weights, 2, one))
    adjoints = multiply_add(weights, moved_up(adjoints, 4, zero), adjoints)
    weights = multiply(weights, moved_up(weights, 4, one))
    return multiply_add(weights, carry, adjoints)


@kernel(is_inner=True)
def log_sum(a, b):
    if a == b:
        return a + math.log(2.0)
    if a > b:
        return a + math.log1p(math.exp(b - a))
    if a < b:
        return b + math.log1p(math.exp(a - b))
    return a + b


@kernel(
    "float32[] bool int64 int64 int64 int64 int64 int64 int64[] float32[] float32[]",
    "float64[] bool int64 int64 int64 int64 int64 int64 int64[] float64[] float64[]",
    has_python=False,
)
def scan_log_sums(neutral, reverse, start, stop, first, last, width, shift, offsets, values, out):
    zero = hidden_zero(np.float64)
    one = like(zero, 1.0)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, shift)
        if count >= 0 and shift:
            store(out, begin, neutral[0])
        if count <= 0:
            continue
        store(out, target, load(values, begin))
        reference = np.float64(load(values, begin))
        sums = one
        row = 1
        while row < count:
            if row + lanes <= count and abs(reference) < np.inf:
                above = subtract(load_run(values, place(begin, row, reverse), reverse, zero), like(zero, reference))
                if all_set(less(above, like(zero, FAR_ABOVE))):
                    terms, _ = exp_and_complement(above)
                    line = add(sums, _sums(terms, zero))
                    results = add(like(zero, reference), logarithm(line))
                    store_run(out, place(target, row, reverse), reverse, results)
                    sums = last_lane(line)
                    if first_lane(sums) > LARGE_SUM:
                        # Not from `results`: as a selection that would make each line wait for the logarithm before.
                        reference += math.log(first_lane(sums))
                        sums = one
                    row += lanes
                    continue
            reference += math.log(first_lane(sums))
            sums = one
            end = min(row + lanes, count)
            for k in range(row, end):
                reference = log_sum(reference, np.float64(load(values, place(begin, k, reverse))))
                store(out, place(target, k, reverse), reference)
            row = end


@kernel(is_inner=True)
def _shares(a, b):
    """The derivatives of log(exp(a) + exp(b)); 0 where both are -inf."""
    if a == b:
        return (0.0, 0.0) if a == -np.inf else (0.5, 0.5)
    return 1.0 / (1.0 + math.exp(b - a)), 1.0 / (1.0 + math.exp(a - b))


@kernel(
    "bool int64 int64 int64 int64 int64 int64 int64[] float32[] float32[] float32[] float32[]",
    "bool int64 int64 int64 int64 int64 int64 int64[] float64[] float64[] float64[] float64[]",
    has_python=False,
)
def scan_log_sums_back(reverse, start, stop, first, last, width, shift, offsets, adjoints, values, results, out):
    zero = hidden_zero(np.float64)
    one = like(zero, 1.0)
    infinity = like(zero, np.inf)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, shift)
        if count >= 0 and shift:
            store(out, place(begin, count, reverse), 0)
        if count <= 0:
            continue
        row = count - 1
        # The adjoint of the prefix that ends with `row`.
        adjoint = np.float64(load(adjoints, place(target, row, reverse)))
        while row > 0:
            if row >= lanes:
                carry = like(zero, adjoint)
                here, earlier = place(begin, row, reverse), place(target, row - 1, reverse)
                prefixes = load_run(results, earlier, not reverse, zero)
                above = subtract(load_run(values, here, not reverse, zero), prefixes)
                inside = bit_and(less(absolute(prefixes), infinity), less(above, infinity))
                ratios, _ = exp_and_complement(minimum(above, like(zero, 700.0)))
                weights = divide(one, add(one, ratios))
                before = _linear(weights, load_run(adjoints, earlier, not reverse, zero), carry, zero)
                if all_set(bit_and(inside, less(absolute(before), infinity))):
                    shares = multiply(ratios, weights)
                    store_run(out, here, not reverse, multiply(shares, moved_up(before, 1, carry)))
                    adjoint = first_lane(last_lane(before))
                    row -= lanes
                    continue
            for k in range(row, max(row - lanes, 0), -1):
                if adjoint == 0:  # whatever the shares are
                    store(out, place(begin, k, reverse), 0)
                    adjoint = load(adjoints, place(target, k - 1, reverse))
                    continue
                prefix = np.float64(load(results, place(target, k - 1, reverse)))
                share, rest = _shares(np.float64(load(values, place(begin, k, reverse))), prefix)
                store(out, place(begin, k, reverse), adjoint * share)
                adjoint = load(adjoints, place(target, k - 1, reverse)) + adjoint * rest
            row = max(row - lanes, 0)
        store(out, begin, adjoint)


@kernel(is_inner=True)
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
        reference += math.log(total + first_lane(last_lane(_sums(sums, zero))))
        total, sums = 1.0, zero
        end = min(row + lanes, tail)
        for k in range(row, end):
            reference = log_sum(reference, np.float64(load(values, k)))
        row = end
    return reference, total + first_lane(last_lane(_sums(sums, zero)))


@kernel(
    "float32[] int64 int64 int64 int64 int64 int64[] float32[] float32[]",
    "float64[] int64 int64 int64 int64 int64 int64[] float64[] float64[]",
    has_python=False,
)
def segment_log_sums(neutral, start, stop, first, last, width, offsets, values, out):
    for s in range(start, stop):
        head, tail = load(offsets, s), load(offsets, s + 1)
        if head == tail:
            store(out, s, neutral[0])
        else:
            reference, total = _log_sum_of(values, head, tail)
            store(out, s, reference + math.log(total))


@kernel(
    "int64 int64 int64 int64 int64 int64[] float32[] float32[] float32[]",
    "int64 int64 int64 int64 int64 int64[] float64[] float64[] float64[]",
    has_python=False,
)
def segment_log_sums_back(start, stop, first, last, width, offsets, adjoints, values, out):
    """Adjoint times share. Values of +inf share alike; several of -inf with nothing else have no share."""
    zero = zero_line(np.float64)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        head, tail = load(offsets, s), load(offsets, s + 1)
        if head == tail:
            continue
        adjoint = np.float64(load(adjoints, s))
        if adjoint == 0 or tail - head == 1:
            for k in range(head, tail):
                store(out, k, adjoint)
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
