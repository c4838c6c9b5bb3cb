"""Decimal digits of text, eight bytes at a time, for kernels that read numbers."""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import trailing_zeros

ZEROS = np.uint64(0x3030303030303030)
TOPS = np.uint64(0x8080808080808080)
_BELOW_TOP = np.uint64(0x7676767676767676)  # takes bytes above nine to 128 and more
_PAIRS = np.uint64(0x000000FF000000FF)
_HIGH = np.uint64(0x000F424000000064)  # 100 and 1,000,000
_LOW = np.uint64(0x0000271000000001)  # 1 and 10,000


@kernel(inline="always")
def bits_of_digits(digits):
    """The bits of the bytes below the first one that is no digit, 57 if all eight are digits.

    digits  uint64 of eight bytes of text, the first one the lowest, less `ZEROS`
    """
    # Bytes that are no digits get their top bit; a carry or borrow out of one reaches only bytes behind it.
    return trailing_zeros((digits | (digits + _BELOW_TOP)) & TOPS) - 7


@kernel(inline="always")
def number_of_digits(digits, bits):
    """The number (int64) that the first `bits` bits of digits stand for, 8 to 56 of them; see `bits_of_digits`."""
    # Digits to the end, zeros before them; then neighbours are joined: ones, and pairs with their weights.
    word = digits << np.uint64(64 - bits)
    word = word * np.uint64(10) + (word >> np.uint64(8))
    word = (word & _PAIRS) * _HIGH + ((word >> np.uint64(16)) & _PAIRS) * _LOW
    return np.int64(word >> np.uint64(32))
