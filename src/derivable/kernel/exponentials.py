"""exp, 1 - exp and log of float64 as expressions of sums, products and bits, which are vector code on lines.

exp(x) = 2^k (1 + q), k = round(x / ln 2), q = exp(r) - 1 with |r| <= ln(2) / 2 by its Taylor polynomial of degree
13 (truncation error below 5e-18). 2^k q + (2^k - 1) is exp(x) - 1 without cancellation, from the same polynomial.

log(x) = k ln 2 + log(m), x = 2^k m with m from sqrt(1/2) to sqrt(2); log(m) = 2 artanh(s), s = (m - 1) / (m + 1), by
its series up to s^21 (|s| < 0.172: truncation error below 2e-19).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from derivable.algebra.expr.functions import bitcast, cast, floor, left_shift, less, right_shift, where
from derivable.algebra.expr.nodes import Expr

LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
# The coefficients of the two polynomials, that of the highest degree first.
_EXP = tuple(1.0 / math.factorial(degree) for degree in range(13, 1, -1))
_LOG = tuple(2.0 / degree for degree in range(21, 1, -2))
SMALLEST = -708.0  # exp of anything below is taken as zero


def larger(a: Expr, b: Expr | float) -> Expr:
    """The larger one; b at NaN."""
    return where(less(b, a), a, b)


def smaller(a: Expr, b: Expr | float) -> Expr:
    """The smaller one; b at NaN."""
    return where(less(a, b), a, b)


def reduced_exp(x: Expr) -> tuple[Expr, Expr]:
    """(k, q) with exp(x) = 2^k (1 + q), k an integer as a float."""
    k = floor(x * math.log2(math.e) + 0.5)
    r = k * -LN2_LOW + (k * -LN2_HIGH + x)
    return k, r * r * _polynomial(_EXP, r) + r


def power_of_two(k: Expr) -> Expr:
    """2^k for int64 -1022 <= k <= 1023."""
    return bitcast(left_shift(k + 1023, 52), "float64")


def exp_and_complement(x: Expr) -> tuple[Expr, Expr]:
    """(exp(x), 1 - exp(x)) for x <= 709; exp is 0 below `SMALLEST`, the complement then 1."""
    k, q = reduced_exp(larger(x, SMALLEST))
    scale = power_of_two(cast(k, "int64"))
    is_tiny = less(x, SMALLEST)
    value = where(is_tiny, 0.0, scale * q + scale)
    return value, where(is_tiny, 1.0, (1 - scale) - scale * q)


def logarithm(x: Expr) -> Expr:
    """log(x) of positive normal numbers."""
    bits = bitcast(x, "int64")
    # The exponent of x / sqrt(1/2), so that m lies on both sides of 1.
    k = right_shift(bits - _SQRT_HALF_BITS, 52)
    m = bitcast(bits - left_shift(k, 52), "float64")
    s = (m - 1) / (m + 1)
    t = s * s
    power = cast(k, "float64")
    tail = _polynomial(_LOG, t) * t * s + power * LN2_LOW
    return power * LN2_HIGH + ((s + s) + tail)


def _polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    found = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        found = found * x + coefficient
    return found
