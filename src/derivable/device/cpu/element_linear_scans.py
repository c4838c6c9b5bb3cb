"""Scans of linear functions, x -> factor * x + term, of one column of floats, many rows at a time.

As in `element_scans`: lanes hold consecutive rows, numbers are float64 in between, and lines whose numbers might leave
their range are computed row by row. Such lines have a factor that is neither 0 nor between 2^-100 and 2^100, or a
result that is no finite number of the arrays' type. That factors multiply to 0 in the end harms nothing.

The reverse has the adjoints of the factors' products and of the terms run back by the same factors, since both
recurrences multiply by the row's factor:

    r[i] = adjoint[i] + factor[i + 1] * r[i + 1], for either
    adjoint of term i    the second r[i]
    adjoint of factor i  r[i] of both, times both prefixes before row i
"""

from __future__ import annotations

import numpy as np
from numba import njit

from derivable.device.cpu.element_scans import (
    all_set,
    hidden_zero,
    in_range,
    is_finite,
    linear_functions,
    multiplies_safely,
    place,
    rows_downward,
    rows_upward,
    segment_rows,
    store_downward,
    store_upward,
)
from derivable.device.cpu.lane_rows import first_lane, last_lane, moved_up, num_lanes
from derivable.device.cpu.lanes import absolute, bit_and, less, like, multiply, multiply_add
from derivable.device.cpu.places import load, store


@njit(cache=True, nogil=True)
def scan_linear(
    start, stop, first, last, width, offsets, no_factor, no_term, factors, terms, products, sums, reverse, exclusive
):
    """no_factor, no_term  [1] the neutral element; products, sums: the results"""
    zero = hidden_zero(np.float64)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, exclusive)
        if count >= 0 and exclusive:
            store(products, begin, no_factor[0])
            store(sums, begin, no_term[0])
        if count <= 0:
            continue
        store(products, target, load(factors, begin))
        store(sums, target, load(terms, begin))
        # In all lanes: from lanes to a number and back takes as long as the sum.
        product, total = like(zero, load(factors, begin)), like(zero, load(terms, begin))
        row = 1
        while row < count:
            if row + lanes <= count:
                line = rows_upward(factors, begin, row, reverse, zero)
                line_terms = rows_upward(terms, begin, row, reverse, zero)
                product_of_line, sum_of_line = linear_functions(line, line_terms, zero)
                new_product = multiply(product, product_of_line)
                new_total = multiply_add(total, product_of_line, sum_of_line)
                finite = bit_and(is_finite(new_product, factors.itemsize), is_finite(new_total, factors.itemsize))
                if all_set(bit_and(multiplies_safely(line), finite)):
                    store_upward(products, target, row, reverse, new_product)
                    store_upward(sums, target, row, reverse, new_total)
                    product, total = last_lane(new_product), last_lane(new_total)
                    row += lanes
                    continue
            one_product, one_total = first_lane(product), first_lane(total)
            for k in range(row, min(row + lanes, count)):
                factor = load(factors, place(begin, k, reverse))
                one_product = in_range(one_product * factor, factors)
                one_total = in_range(one_total * factor + load(terms, place(begin, k, reverse)), terms)
                store(products, place(target, k, reverse), one_product)
                store(sums, place(target, k, reverse), one_total)
            product, total = like(zero, one_product), like(zero, one_total)
            row += lanes


@njit(cache=True, nogil=True)
def scan_linear_back(
    start, stop, first, last, width, offsets, to_products, to_sums, factors, terms, products, sums, to_factors,
    to_terms, reverse, exclusive,
):  # fmt: skip
    """to_...: the adjoints, those of the results given."""
    zero = hidden_zero(np.float64)
    infinity = like(zero, np.inf)
    lanes = num_lanes(zero)
    for s in range(start, stop):
        begin, target, count = segment_rows(offsets, s, reverse, exclusive)
        if count >= 0 and exclusive:
            store(to_factors, place(begin, count, reverse), 0)
            store(to_terms, place(begin, count, reverse), 0)
        if count <= 0:
            continue
        row = count - 1
        # The adjoints of the prefix that ends with `row`, in all lanes.
        product = like(zero, load(to_products, place(target, row, reverse)))
        total = like(zero, load(to_sums, place(target, row, reverse)))
        while row > 0:
            if row >= lanes:
                line = rows_downward(factors, begin, row, reverse, zero)
                run, products_before = linear_functions(
                    line, rows_downward(to_products, target, row - 1, reverse, zero), zero
                )
                _, totals_before = linear_functions(line, rows_downward(to_sums, target, row - 1, reverse, zero), zero)
                products_before = multiply_add(product, run, products_before)
                totals_before = multiply_add(total, run, totals_before)
                finite = bit_and(less(absolute(products_before), infinity), less(absolute(totals_before), infinity))
                if all_set(bit_and(multiplies_safely(line), finite)):
                    ended = moved_up(totals_before, 1, total)
                    found = multiply(ended, rows_downward(sums, target, row - 1, reverse, zero))
                    prefixes = rows_downward(products, target, row - 1, reverse, zero)
                    found = multiply_add(moved_up(products_before, 1, product), prefixes, found)
                    store_downward(to_factors, begin, row, reverse, found)
                    store_downward(to_terms, begin, row, reverse, ended)
                    product, total = last_lane(products_before), last_lane(totals_before)
                    row -= lanes
                    continue
            one_product, one_total = first_lane(product), first_lane(total)
            for k in range(row, max(row - lanes, 0), -1):
                before = place(target, k - 1, reverse)
                found = one_product * load(products, before) + one_total * load(sums, before)
                store(to_factors, place(begin, k, reverse), found)
                store(to_terms, place(begin, k, reverse), one_total)
                factor = load(factors, place(begin, k, reverse))
                one_product = load(to_products, before) + factor * one_product
                one_total = load(to_sums, before) + factor * one_total
            product, total = like(zero, one_product), like(zero, one_total)
            row = max(row - lanes, 0)
        store(to_factors, begin, first_lane(product))
        store(to_terms, begin, first_lane(total))
