"""exp, 1 - exp and log on lanes.

exp(x) = 2^k (1 + q), k = round(x / ln 2), q = exp(r) - 1 with |r| <= ln(2) / 2 by its Taylor polynomial of degree
13 (truncation error below 5e-18). 2^k q + (2^k - 1) is exp(x) - 1 without cancellation, from the same polynomial.

log(x) = k ln 2 + log(m), x = 2^k m with m from sqrt(1/2) to sqrt(2); log(m) = 2 artanh(s), s = (m - 1) / (m + 1), by
its series up to s^21 (|s| < 0.172: truncation error below 2e-19).
"""

from __future__ import annotations

import math

from derivable.device.cpu.compiling import njit
from derivable.device.cpu.lanes import (
    add,
    bits_of,
    divide,
    float_of_bits,
    less,
    like,
    multiply,
    multiply_add,
    round_to_even,
    select,
    shift_left,
    shift_right,
    subtract,
    to_float,
    to_integer,
)

LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
# The coefficients of the two polynomials, that of the highest degree first.
EXP = tuple(1.0 / math.factorial(degree) for degree in range(13, 1, -1))
LOG = tuple(2.0 / degree for degree in range(21, 1, -2))
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
    p = like(x, EXP[0])
    for coefficient in EXP[1:]:
        p = multiply_add(p, r, like(x, coefficient))
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


@njit(cache=True, nogil=True)
def logarithm(x):
    """log(x) of positive normal numbers."""
    bits = bits_of(x)
    # The exponent of x / sqrt(1/2), so that m lies on both sides of 1.
    k = shift_right(subtract(bits, like(bits, SQRT_HALF_BITS)), like(bits, 52))
    m = float_of_bits(subtract(bits, shift_left(k, like(bits, 52))))
    one = like(x, 1.0)
    s = divide(subtract(m, one), add(m, one))
    t = multiply(s, s)
    p = like(x, LOG[0])
    for coefficient in LOG[1:]:
        p = multiply_add(p, t, like(x, coefficient))
    tail = multiply_add(multiply(p, t), s, multiply(to_float(k), like(x, LN2_LOW)))
    return add(multiply(to_float(k), like(x, LN2_HIGH)), add(add(s, s), tail))
