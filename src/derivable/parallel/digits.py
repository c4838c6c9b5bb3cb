"""Rows in order by the digits of their keys: a stable radix sort that skips digits which do not vary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.memory import empty

DIGIT_BITS = 11


def _encode(column: np.ndarray) -> np.ndarray:
    """A key column as uint64 [row] in the same order: NaN last, -0.0 as 0.0."""
    kind = column.dtype.kind
    if kind in "bu":
        return column.astype(np.uint64)
    if kind == "i":
        return column.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    wide = column.astype(np.float64) + 0.0
    wide[np.isnan(wide)] = np.nan  # one bit pattern, positive
    bits = wide.view(np.uint64)
    negative = (bits >> np.uint64(63)).astype(bool)
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


@kernel("uint64[] int64[] uint64 uint64 int64[] int64[]")
def _radix_pass(key, order, shift, mask, histogram, out):
    """Stable counting sort of `order` by one digit of `key`; False if all digits are equal (`out` is untouched)."""
    n = len(order)
    for d in range(len(histogram)):
        histogram[d] = 0
    for i in range(n):
        histogram[(key[i] >> shift) & mask] += 1
    if n and histogram[(key[0] >> shift) & mask] == n:
        return False
    total = 0
    for d in range(len(histogram)):
        count = histogram[d]
        histogram[d] = total
        total += count
    for i in range(n):
        row = order[i]
        digit = (key[row] >> shift) & mask
        out[histogram[digit]] = row
        histogram[digit] += 1
    return True


def order_by_digits(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Row numbers [row] that bring rows of columns of numbers in order, the first column first; stable."""
    num_rows = len(columns[0])
    order, other = np.arange(num_rows, dtype=np.int64), empty(num_rows, np.int64)
    histogram = empty(1 << DIGIT_BITS, np.int64)
    mask = np.uint64((1 << DIGIT_BITS) - 1)
    for column in reversed(columns):
        key = _encode(column)
        # Only the digits in which the smallest and the largest key differ can order anything.
        low = key.min()
        spread = int(key.max() - low).bit_length()
        key -= low
        for shift in range(0, spread, DIGIT_BITS):
            if _radix_pass(key, order, np.uint64(shift), mask, histogram, other):
                order, other = other, order
    return order
