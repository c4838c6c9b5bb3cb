"""Arithmetic of the lanes: rounding shifts, and 2^x and log2(x) on numbers with 16 fractional bits, by tables.

The hardware has the same tables, and the same bits come out.
"""

from __future__ import annotations

import math

import numpy as np

ONE = 1 << 16
_INTERVALS = 256  # of the tables, between which lines are drawn
_LARGEST = (1 << 31) - 1

EXP2_TABLE = np.array([round(2 ** (k / _INTERVALS) * ONE) for k in range(_INTERVALS + 1)], np.int64)
LOG2_TABLE = np.array([round(math.log2(1 + k / _INTERVALS) * ONE) for k in range(_INTERVALS + 1)], np.int64)


def round_shift(x: np.ndarray, shift: int) -> np.ndarray:
    """x / 2^shift, rounded to the nearest, halves up; int64."""
    x = np.asarray(x, np.int64)
    return x if not shift else (x + (1 << (shift - 1))) >> shift


def _between(table: np.ndarray, fraction: np.ndarray) -> np.ndarray:
    """The table at 16 bits: the upper 8 name the interval, the lower 8 the place in it."""
    k, rest = fraction >> 8, fraction & 255
    return table[k] + ((table[k + 1] - table[k]) * rest + 128 >> 8)


def exp2(x: np.ndarray) -> np.ndarray:
    """2^x, both with 16 fractional bits: int32 -> int32, at most 2^31 - 1.

    With x = 65536 e + f the table gives the mantissa of f, 17 bits; it goes e to the left, or -e to the right, rounded.
    The relative error is below 2^-16, beside that of rounding to 16 fractional bits.
    """
    x = np.asarray(x, np.int64)
    exponent, mantissa = x >> 16, _between(EXP2_TABLE, x & (ONE - 1))
    right = np.clip(-exponent, 0, 40)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    small = (mantissa + half) >> right
    large = np.minimum(mantissa << np.clip(exponent, 0, 16), _LARGEST)
    return np.where(exponent < 0, small, large)


def log2(x: np.ndarray) -> np.ndarray:
    """log2(x), both with 16 fractional bits: int32 -> int32. What is not positive counts as the smallest number: -16.

    With x = 2^p (1 + f) the table gives log2(1 + f) of the first 16 bits of f. The error is below 2^-14.
    """
    x = np.maximum(np.asarray(x, np.int64), 1)
    power = np.frexp(x.astype(np.float64))[1].astype(np.int64) - 1
    fraction = ((x << 16) >> power) & (ONE - 1)
    return _between(LOG2_TABLE, fraction) + ((power - 16) << 16)
