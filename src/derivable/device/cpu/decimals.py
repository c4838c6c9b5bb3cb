"""The float64 next to a decimal number, for kernels that read numbers.

Source: Lemire, Number parsing at a gigabyte per second, 2021 (https://arxiv.org/abs/2101.11408); that its products
always decide is shown by Mushtak and Lemire, Fast number parsing without fallback, 2023.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import magnitude_bits

# A uint64 times a power of ten outside of these exponents is no number, or less than any.
LEAST, MOST = -342, 308
# The least exponent whose 5**-q is in 64 bits.
_LEAST_QUOTIENT = -27
_HALF = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
# Bits of the product behind those of the fraction and of the rounding: if all are set, the lower word may change them.
_BEHIND = np.uint64(0x1FF)
# The bits of a float64 behind those of a float32, and them where it is halfway between two of these.
_BEHIND_SINGLE, _HALFWAY = (1 << 29) - 1, 1 << 28


@cache
def powers_of_five() -> np.ndarray:
    """uint64 [2 * exponent]: the 128 highest bits of 5**q for q from LEAST to MOST, the high word first.

    They are rounded down; up where 5**-q is in 64 bits, as a quotient by it may be exact.
    """
    words = np.empty(2 * (MOST - LEAST + 1), np.uint64)
    for q in range(LEAST, MOST + 1):
        power = 5 ** abs(q)
        spare = power.bit_length() - 128
        if q < 0:
            power = (1 << (power.bit_length() + 127)) // power + (q >= _LEAST_QUOTIENT)
        else:
            power = power >> spare if spare > 0 else power << -spare
        words[2 * (q - LEAST)], words[2 * (q - LEAST) + 1] = power >> 64, power & (2**64 - 1)
    return words


def are_rounded_once(doubles: np.ndarray) -> bool:
    """Whether float64 [number], each the one next to a decimal number, give the float32 next to that when they are
    rounded again; False for those that are between, or not normal, in float32."""
    is_between = doubles.view(np.int64) & _BEHIND_SINGLE == _HALFWAY
    is_small = (np.abs(doubles) < np.finfo(np.float32).tiny) & (doubles != 0)
    return not (is_between | is_small).any()


@kernel(inline="always")
def _product(a, b):
    """(high, low) word of the product of two uint64."""
    shift = np.uint64(32)
    low = (a & _HALF) * (b & _HALF)
    middle = (a >> shift) * (b & _HALF) + (low >> shift)
    other = (a & _HALF) * (b >> shift) + (middle & _HALF)
    return (a >> shift) * (b >> shift) + (middle >> shift) + (other >> shift), a * b


@kernel
def nearest_double(digits, exponent, powers) -> Any:
    """The bits (int64) of the float64 next to digits * 10**exponent, the even one of two; -1 if it is not normal.

    digits    uint64, not zero
    exponent  int64, from LEAST to MOST
    powers    pointer to `powers_of_five`
    """
    # Of two leading ones the second is cleared, so that the conversion does not round up to another power of two.
    leading = (magnitude_bits(np.float64(digits & ~(digits >> _ONE))) >> 52) - 1023
    digits = digits << np.uint64(63 - leading)
    at = 2 * (exponent - LEAST)
    high, low = _product(digits, powers[at])
    if high & _BEHIND == _BEHIND:
        more, _ = _product(digits, powers[at + 1])
        low += more
        if more > low:
            high += _ONE
    upper = high >> np.uint64(63)
    shift = upper + np.uint64(9)
    fraction = high >> shift
    # The bits of 5**q before its point are as many as those of 2**(217706 / 65536 * q) less q.
    power = ((217706 * exponent) >> 16) + np.int64(upper) + leading + 1023
    # For these exponents the product may be exact, and halfway between two numbers.
    if low <= _ONE and -4 <= exponent <= 23 and fraction & np.uint64(3) == _ONE and fraction << shift == high:
        fraction -= _ONE
    fraction = (fraction + (fraction & _ONE)) >> _ONE
    # The highest bit of the fraction adds one to the power, and a carry of the rounding one more.
    bits = ((power - 1) << 52) + np.int64(fraction)
    return bits if power > 0 and bits < np.int64(2047 << 52) else np.int64(-1)
