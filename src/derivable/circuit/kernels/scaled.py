"""Arithmetic of scaled floats, inlined into the kernels that fold circuits of any depth.

A value is a pair (mantissa, exponent) meaning mantissa * 2**(256 * exponent), the mantissa 0 or of
magnitude in [2**-128, 2**128): no product of a circuit underflows or overflows, signs are kept, and
scaling by powers of two rounds nothing.
"""

from __future__ import annotations

import math

from numba import njit

EXPONENT_UNIT = 256
UP, DOWN = 2.0**EXPONENT_UNIT, 2.0**-EXPONENT_UNIT
LOW, HIGH = 2.0 ** -(EXPONENT_UNIT // 2), 2.0 ** (EXPONENT_UNIT // 2)
LOG_UNIT = EXPONENT_UNIT * math.log(2.0)


@njit(cache=True, nogil=True, inline="always")
def product(mantissa_a, exponent_a, mantissa_b, exponent_b):
    mantissa, exponent = mantissa_a * mantissa_b, exponent_a + exponent_b
    if mantissa == 0.0:
        return 0.0, 0
    if abs(mantissa) < LOW:
        return mantissa * UP, exponent - 1
    if abs(mantissa) >= HIGH:
        return mantissa * DOWN, exponent + 1
    return mantissa, exponent


@njit(cache=True, nogil=True, inline="always")
def plus(mantissa, exponent, term, shift):
    """A running sum and one more value; `settle` it at the end. What is 2**-256 of the other or less adds nothing."""
    if term == 0.0:
        return mantissa, exponent
    if mantissa == 0.0:
        return term, shift
    if shift == exponent:
        return mantissa + term, exponent
    if shift == exponent - 1:
        return mantissa + term * DOWN, exponent
    if shift > exponent:
        return term + (mantissa * DOWN if shift == exponent + 1 else 0.0), shift
    return mantissa, exponent


@njit(cache=True, nogil=True, inline="always")
def settle(mantissa, exponent):
    """The pair of the same value whose mantissa is in range."""
    if mantissa == 0.0:
        return 0.0, 0
    while abs(mantissa) < LOW:
        mantissa *= UP
        exponent -= 1
    while abs(mantissa) >= HIGH:
        mantissa *= DOWN
        exponent += 1
    return mantissa, exponent


@njit(cache=True, nogil=True, inline="always")
def share_of(mantissa, exponent, whole_mantissa, whole_exponent):
    """The quotient of two non-negative values as a float, part at most whole, whole not zero."""
    down = whole_exponent - exponent
    if mantissa == 0.0 or down > 4:
        return 0.0
    quotient = mantissa / whole_mantissa
    while down > 0:
        quotient *= DOWN
        down -= 1
    while down < 0:
        quotient *= UP
        down += 1
    return quotient
