"""Scans of one column of floats by sums, products and logarithms of sums, many rows at a time.

Row by row such a scan takes as long as its operator's answer takes to arrive. Here lanes hold consecutive rows: the
prefixes of a line of rows on their own, in as many steps as the number of lanes has bits, then all of them joined to
what came before. The reverse is the scan of the linear functions x -> weight * x + adjoint, in the same way.

Numbers are float64 in between, whatever the values are. In float32 neighbours near 1 multiplied would all be rounded
alike, so that ten million of them are off by 3 %, and sums stand still at 2^24 equal terms.

Lines whose numbers might leave the range of normal numbers where row by row they would not, or the other way round, are
computed row by row: a product of rows that overflows, say, though the prefix before it is small.

Sums: a line's results are finite. Products: its factors are 0 or between 2^-100 and 2^100, and its results normal.
Logarithms of sums: reference + log(sums) where `sums` is the sum of exp(value - reference). The reference is an earlier
prefix, so sums are at least 1; a line with a value far above it is computed row by row and gives a new reference. In
reverse the weights of a prefix a and a value b are 1 / (1 + exp(b - a)) and the rest.

Rows are counted in the direction of the scan: row i is at `begin + i`, or `begin - i` in reverse. The exclusive scan is
the inclusive one of all rows but the last, moved by one row.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from derivable.device.cpu.lane_rows import (
    backwards,
    first_lane,
    last_lane,
    load_line,
    moved_up,
    num_lanes,
    store_line,
    zero_line,
)
from derivable.device.cpu.lanes import (
    absolute,
    add,
    any_set,
    bit_and,
    bit_or,
    divide,
    equal,
    less,
    like,
    multiply,
    multiply_add,
    subtract,
)
from derivable.device.cpu.levels_exp import exp_and_complement, logarithm, minimum
from derivable.device.cpu.places import hidden, load, store

# A value may be so much above the reference, in nats, and the sums so large, before there is a new one.
FAR_ABOVE = 4.0
LARGE_SUM = 1024.0


@njit(cache=True, nogil=True)
def hidden_zero(dtype):
    """Zero in all lanes of a float dtype, unknown to the compiler.

    To move lanes up before zeros that it knows LLVM takes an instruction, vexpandpd, with which a scan of sums takes
    2.8 times as long.
    """
    return like(zero_line(dtype), hidden(0))


@njit(cache=True, nogil=True)
def rows_upward(array, begin, row, reverse, example):
    """Rows row, row + 1, ..."""
    if reverse:
        return backwards(load_line(array, begin - row - num_lanes(example) + 1, example))
    return load_line(array, begin + row, example)


@njit(cache=True, nogil=True)
def rows_downward(array, begin, row, reverse, example):
    """Rows row, row - 1, ..."""
    if reverse:
        return load_line(array, begin - row, example)
    return backwards(load_line(array, begin + row - num_lanes(example) + 1, example))


@njit(cache=True, nogil=True)
def store_upward(array, begin, row, reverse, x):
    if reverse:
        store_line(array, begin - row - num_lanes(x) + 1, backwards(x))
    else:
        store_line(array, begin + row, x)


@njit(cache=True, nogil=True)
def store_downward(array, begin, row, reverse, x):
    if reverse:
        store_line(array, begin - row, x)
    else:
        store_line(array, begin + row - num_lanes(x) + 1, backwards(x))


@njit(cache=True, nogil=True)
def place(begin, row, reverse):
    return begin - row if reverse else begin + row


@njit(cache=True, nogil=True)
def segment_rows(offsets, s, reverse, exclusive):
    """Where segment s begins, where its first result goes, and how many rows are folded; -1 if it is empty and the
    scan exclusive."""
    head, tail = load(offsets, s), load(offsets, s + 1)
    begin = tail - 1 if reverse else head
    if exclusive:
        return begin, place(begin, 1, reverse), tail - head - 1
    return begin, begin, tail - head


@njit(cache=True, nogil=True)
def multiplies_safely(x):
    """Mask of factors that are 0 or so near to 1 that the product of a line of them is normal."""
    size = absolute(x)
    inside = bit_and(less(size, like(x, 2.0**100)), less(like(x, 2.0**-100), size))
    return bit_or(inside, equal(x, like(x, 0.0)))


@njit(cache=True, nogil=True)
def is_finite(x, itemsize):
    """Mask of what is a finite number of that many bytes."""
    return less(absolute(x), like(x, 2.0**127 if itemsize == 4 else np.inf))


@njit(cache=True, nogil=True)
def _is_normal(x, itemsize):
    """Mask of what is a normal number of that many bytes."""
    least = 2.0**-126 if itemsize == 4 else 2.0**-1022
    return bit_and(is_finite(x, itemsize), less(like(x, least), absolute(x)))


@njit(cache=True, nogil=True)
def in_range(x, array):
    """x, or if it is no normal number in the array what it becomes there."""
    if 2.0**-126 < abs(x) < 2.0**127:
        return x
    return np.float64(array.dtype.type(x))


@njit(cache=True, nogil=True)
def all_set(mask):
    return not any_set(equal(mask, like(mask, 0)))


@njit(cache=True, nogil=True)
def _products(line):
    """The prefixes of one line."""
    one = like(line, 1.0)
    line = multiply(line, moved_up(line, 1, one))
    line = multiply(line, moved_up(line, 2, one))
    return multiply(line, moved_up(line, 4, one))


@njit(cache=True, nogil=True)
def _sums(line, zero):
    """The prefixes of one line."""
    line = add(line, moved_up(line, 1, zero))
    line = add(line, moved_up(line, 2, zero))
    return add(line, moved_up(line, 4, zero))


@njit(cache=True, nogil=True)
def linear_functions(factors, terms, zero):
    """(factors, terms) of what the functions x -> factor * x + term of a line compose to, up to each lane."""
    one = like(zero, 1.0)
    terms = multiply_add(factors, moved_up(terms, 1, zero), terms)
    factors = multiply(factors, moved_up(factors, 1, one))
    terms = multiply_add(factors, moved_up(terms, 2, zero), terms)
    factors = multiply(factors, moved_up(factors, 2, one))
    terms = multiply_add(factors, moved_up(terms, 4, zero), terms)
    factors = multiply(factors, moved_up(factors, 4, one))
    if num_lanes(terms) > 8:
        terms = multiply_add(factors, moved_up(terms, 8, zero), terms)
        factors = multiply(factors, moved_up(factors, 8, one))
    return factors, terms


@njit(cache=True, nogil=True)
def _linear(weights, adjoints, carry, zero):
    """r with r[i] = adjoints[i] + weights[i] * r[i - 1], where r[-1] is `carry`."""
    weights, adjoints = linear_functions(weights, adjoints, zero)
    return multiply_add(weights, carry, adjoints)


@njit(cache=True, nogil=True)
def scan_sums(start, stop, first, last, width, offsets, neutral, values, out, reverse, exclusive):
    zero = hidden_zero(np.float64)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, exclusive)
        if count >= 0 and exclusive:
            store(out, begin, neutral[0])
        if count <= 0:
            continue
        store(out, target, load(values, begin))
        # In all lanes: from lanes to a number and back takes longer than the sum.
        prefix = like(zero, load(values, begin))
        row = 1
        while row < count:
            if row + lanes <= count:
                results = add(prefix, _sums(rows_upward(values, begin, row, reverse, zero), zero))
                if all_set(is_finite(results, values.itemsize)):
                    store_upward(out, target, row, reverse, results)
                    prefix = last_lane(results)
                    row += lanes
                    continue
            one_row = first_lane(prefix)
            for k in range(row, min(row + lanes, count)):
                one_row = in_range(one_row + load(values, place(begin, k, reverse)), values)
                store(out, place(target, k, reverse), one_row)
            prefix = like(zero, one_row)
            row += lanes


@njit(cache=True, nogil=True)
def scan_sums_back(start, stop, first, last, width, offsets, adjoints, values, results, out, reverse, exclusive):
    """The sums of the adjoints from the other end."""
    zero = np.zeros(1, adjoints.dtype)
    scan_sums(start, stop, first, last, width, offsets, zero, adjoints, out, not reverse, exclusive)


@njit(cache=True, nogil=True)
def scan_products(start, stop, first, last, width, offsets, neutral, values, out, reverse, exclusive):
    zero = hidden_zero(np.float64)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, exclusive)
        if count >= 0 and exclusive:
            store(out, begin, neutral[0])
        if count <= 0:
            continue
        store(out, target, load(values, begin))
        # In all lanes: from lanes to a number and back takes as long as the product.
        prefix = like(zero, load(values, begin))
        row = 1
        while row < count:
            if row + lanes <= count:
                factors = rows_upward(values, begin, row, reverse, zero)
                within = _products(factors)
                results = multiply(prefix, within)
                vanish = bit_or(equal(within, zero), equal(prefix, zero))
                normal = bit_or(_is_normal(results, values.itemsize), vanish)
                if all_set(bit_and(multiplies_safely(factors), normal)):
                    store_upward(out, target, row, reverse, results)
                    prefix = last_lane(results)
                    row += lanes
                    continue
            one_row = first_lane(prefix)
            for k in range(row, min(row + lanes, count)):
                one_row = in_range(one_row * load(values, place(begin, k, reverse)), values)
                store(out, place(target, k, reverse), one_row)
            prefix = like(zero, one_row)
            row += lanes


@njit(cache=True, nogil=True)
def scan_products_back(start, stop, first, last, width, offsets, adjoints, values, results, out, reverse, exclusive):
    zero = hidden_zero(np.float64)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, exclusive)
        if count >= 0 and exclusive:
            store(out, place(begin, count, reverse), 0)
        if count <= 0:
            continue
        row = count - 1
        # The adjoint of the prefix that ends with `row`, in all lanes.
        adjoint = like(zero, load(adjoints, place(target, row, reverse)))
        while row > 0:
            if row >= lanes:
                factors = rows_downward(values, begin, row, reverse, zero)
                before = _linear(factors, rows_downward(adjoints, target, row - 1, reverse, zero), adjoint, zero)
                finite = less(absolute(before), like(zero, np.inf))
                if all_set(bit_and(multiplies_safely(factors), finite)):
                    prefixes = rows_downward(results, target, row - 1, reverse, zero)
                    store_downward(out, begin, row, reverse, multiply(prefixes, moved_up(before, 1, adjoint)))
                    adjoint = last_lane(before)
                    row -= lanes
                    continue
            one_row = first_lane(adjoint)
            for k in range(row, max(row - lanes, 0), -1):
                store(out, place(begin, k, reverse), load(results, place(target, k - 1, reverse)) * one_row)
                one_row = (
                    load(adjoints, place(target, k - 1, reverse)) + load(values, place(begin, k, reverse)) * one_row
                )
            adjoint = like(zero, one_row)
            row = max(row - lanes, 0)
        store(out, begin, first_lane(adjoint))


@njit(cache=True, nogil=True)
def log_sum(a, b):
    if a == b:
        return a + math.log(2.0)
    if a > b:
        return a + math.log1p(math.exp(b - a))
    if a < b:
        return b + math.log1p(math.exp(a - b))
    return a + b


@njit(cache=True, nogil=True)
def scan_log_sums(start, stop, first, last, width, offsets, neutral, values, out, reverse, exclusive):
    zero = hidden_zero(np.float64)
    one = like(zero, 1.0)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, exclusive)
        if count >= 0 and exclusive:
            store(out, begin, neutral[0])
        if count <= 0:
            continue
        store(out, target, load(values, begin))
        reference = np.float64(load(values, begin))
        sums = one
        row = 1
        while row < count:
            if row + lanes <= count and abs(reference) < np.inf:
                above = subtract(rows_upward(values, begin, row, reverse, zero), like(zero, reference))
                if all_set(less(above, like(zero, FAR_ABOVE))):
                    terms, _ = exp_and_complement(above)
                    line = add(sums, _sums(terms, zero))
                    results = add(like(zero, reference), logarithm(line))
                    store_upward(out, target, row, reverse, results)
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


@njit(cache=True, nogil=True, error_model="numpy")
def _shares(a, b):
    """The derivatives of log(exp(a) + exp(b)); 0 where both are -inf."""
    if a == b:
        return (0.0, 0.0) if a == -np.inf else (0.5, 0.5)
    return 1.0 / (1.0 + math.exp(b - a)), 1.0 / (1.0 + math.exp(a - b))


@njit(cache=True, nogil=True)
def scan_log_sums_back(start, stop, first, last, width, offsets, adjoints, values, results, out, reverse, exclusive):
    zero = hidden_zero(np.float64)
    one = like(zero, 1.0)
    infinity = like(zero, np.inf)
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
                carry = like(zero, adjoint)
                prefixes = rows_downward(results, target, row - 1, reverse, zero)
                above = subtract(rows_downward(values, begin, row, reverse, zero), prefixes)
                inside = bit_and(less(absolute(prefixes), infinity), less(above, infinity))
                ratios, _ = exp_and_complement(minimum(above, like(zero, 700.0)))
                weights = divide(one, add(one, ratios))
                before = _linear(weights, rows_downward(adjoints, target, row - 1, reverse, zero), carry, zero)
                if all_set(bit_and(inside, less(absolute(before), infinity))):
                    shares = multiply(ratios, weights)
                    store_downward(out, begin, row, reverse, multiply(shares, moved_up(before, 1, carry)))
                    adjoint = first_lane(last_lane(before))
                    row -= lanes
                    continue
            for k in range(row, max(row - lanes, 0), -1):
                prefix = np.float64(load(results, place(target, k - 1, reverse)))
                share, rest = _shares(np.float64(load(values, place(begin, k, reverse))), prefix)
                store(out, place(begin, k, reverse), adjoint * share)
                adjoint = load(adjoints, place(target, k - 1, reverse)) + adjoint * rest
            row = max(row - lanes, 0)
        store(out, begin, adjoint)
