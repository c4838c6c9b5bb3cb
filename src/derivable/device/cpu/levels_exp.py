"""exp and 1 - exp on lanes.

exp(x) = 2^k (1 + q), k = round(x / ln 2), q = exp(r) - 1 with |r| <= ln(2) / 2 by its Taylor polynomial of degree
13 (truncation error below 5e-18). 2^k q + (2^k - 1) is exp(x) - 1 without cancellation, from the same polynomial.
"""

from __future__ import annotations

from numba import njit

from derivable.device.cpu.lanes import (
    add,
    float_of_bits,
    less,
    like,
    multiply,
    multiply_add,
    round_to_even,
    select,
    shift_left,
    subtract,
    to_integer,
)

LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
SMALLEST = -708.0  # exp of anything below is taken as zero


@njit(cache=True, nogil=True)
def maximum(a, b):
    """The larger one, lane by lane; b at NaN."""
    return select(less(b, a), a, b)


@njit(cache=True, nogil=True)
def minimum(a, b):
    """The smaller one, lane by lane; b at NaN."""
    return select(less(a, b), a, b)


@njit(cache=True, nogil=True)
def reduce_exp(x):
    """(k, q) with exp(x) = 2^k (1 + q), k an integer as a float."""
    k = round_to_even(multiply(x, like(x, LOG2_E)))
    r = multiply_add(k, like(x, -LN2_HIGH), x)
    r = multiply_add(k, like(x, -LN2_LOW), r)
    p = like(x, 1.0 / 6227020800.0)
    p = multiply_add(p, r, like(x, 1.0 / 479001600.0))
    p = multiply_add(p, r, like(x, 1.0 / 39916800.0))
    p = multiply_add(p, r, like(x, 1.0 / 3628800.0))
    p = multiply_add(p, r, like(x, 1.0 / 362880.0))
    p = multiply_add(p, r, like(x, 1.0 / 40320.0))
    p = multiply_add(p, r, like(x, 1.0 / 5040.0))
    p = multiply_add(p, r, like(x, 1.0 / 720.0))
    p = multiply_add(p, r, like(x, 1.0 / 120.0))
    p = multiply_add(p, r, like(x, 1.0 / 24.0))
    p = multiply_add(p, r, like(x, 1.0 / 6.0))
    p = multiply_add(p, r, like(x, 0.5))
    return k, multiply_add(multiply(r, r), p, r)


@njit(cache=True, nogil=True)
def power_of_two(k):
    """2^k for integers -1022 <= k <= 1023."""
    return float_of_bits(shift_left(add(k, like(k, 1023)), like(k, 52)))


@njit(cache=True, nogil=True)
def exp_and_complement(x):
    """(exp(x), 1 - exp(x)) for x <= 709; exp is 0 below `SMALLEST`, the complement then 1."""
    k, q = reduce_exp(maximum(x, like(x, SMALLEST)))
    scale = power_of_two(to_integer(k))
    one = like(x, 1.0)
    value = multiply_add(scale, q, scale)
    complement = subtract(subtract(one, scale), multiply(scale, q))
    zero = like(x, 0.0)
    tiny = less(x, like(x, SMALLEST))
    return select(tiny, zero, value), select(tiny, one, complement)
