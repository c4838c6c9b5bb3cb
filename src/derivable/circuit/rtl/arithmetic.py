"""The two kinds of numbers of circuits in hardware: their sums and products on codes, exactly, and their errors.

"real"  a code is the number in units of 2^-bits; products are rounded to nearest, halves up
"log"   a code is how far log2 of the number lies below `bias`, in units of 2^-bits; the largest code is zero. A product
        adds codes; a sum is the smaller code less an entry of a table at their difference, log2(1 + 2^-difference)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Bits of log codes before the point: numbers from 2^-255 on are not zero.
RANGE = 8
# Cycles of the modules in `modules/`.
CYCLES = {"real": {"product": 2, "sum": 1}, "log": {"product": 2, "sum": 4}}


@dataclass(frozen=True)
class Bounds:
    """What is known of a value.

    most   the largest code that it can have, for "real"
    value  the largest exact number
    error  of the code to the exact one, in units; of log2 for "log"
    lost   how much of the exact number codes of zero may leave out, for "log"
    """

    most: int
    value: float
    error: float
    lost: float = 0.0


class Real:
    """Fixed-point numbers."""

    name = "real"
    bias = 0

    def __init__(self, bits: int):
        self.bits, self.one, self.zero = bits, 1 << bits, 0

    def literal(self) -> Bounds:
        return Bounds(self.one, 1.0, 0.5)

    def constant(self, is_true: bool) -> Bounds:
        return Bounds(self.one if is_true else 0, float(is_true), 0.0)

    def product_bounds(self, a: Bounds, b: Bounds) -> Bounds:
        half = 1 << (self.bits - 1)
        error = a.value * b.error + b.value * a.error + a.error * b.error / self.one + 0.5
        return Bounds((a.most * b.most + half) >> self.bits, a.value * b.value, error)

    def sum_bounds(self, a: Bounds, b: Bounds) -> Bounds:
        return Bounds(a.most + b.most, a.value + b.value, a.error + b.error)

    def at_most_one(self, of: Bounds, roundings: int) -> Bounds:
        """Bounds of a probability, the value of a decomposable and deterministic part with this number of roundings.

        Such a value is a polynomial in what is rounded, all of whose mixed derivatives are probabilities: those of what
        they are multiplied with, in alternatives that exclude each other. So with d = 2^-bits / 2 and n roundings it is
        at most (1 + d)^n - 1 off: the first rounding changes it by d times a derivative, which the others change
        likewise.
        """
        error = min(of.error, self.one * math.expm1(roundings * math.log1p(0.5 / self.one)) * (1 + 1e-9))
        return Bounds(min(of.most, self.one + math.ceil(error)), min(of.value, 1.0), error)

    def product(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        return (a * b + (1 << (self.bits - 1))) >> self.bits

    def sum(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        return a + b

    def encode(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.floor(numbers * self.one + 0.5).astype(np.int64)

    def decode(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        return codes / self.one


class Log:
    """Logarithms; numbers are natural logarithms outside."""

    name = "log"

    def __init__(self, bits: int, bias: int = 0):
        self.bits, self.bias = bits, bias << bits
        self.width = bits + RANGE + bias.bit_length()
        self.zero, self.one = (1 << self.width) - 1, self.bias
        # Entries behind the last one are below half a unit.
        size = math.ceil((bits + 2) * 2.0**bits)
        differences = np.arange(size) / (1 << bits)
        table = np.floor(np.log2(1 + np.exp2(-differences)) * (1 << bits) + 0.5).astype(np.int64)
        self.table = table[: int(np.flatnonzero(table)[-1]) + 1]

    def literal(self) -> Bounds:
        return Bounds(self.zero, 1.0, 0.5, 2.0**-RANGE_LEAST)

    def constant(self, is_true: bool) -> Bounds:
        return Bounds(self.zero, float(is_true), 0.0)

    def product_bounds(self, a: Bounds, b: Bounds) -> Bounds:
        error = a.error + b.error
        lost = a.value * b.lost + b.value * a.lost + 2.0 ** (error / (1 << self.bits) - RANGE_LEAST)
        return Bounds(self.zero, a.value * b.value, error, lost)

    def sum_bounds(self, a: Bounds, b: Bounds) -> Bounds:
        return Bounds(self.zero, a.value + b.value, max(a.error, b.error) + 0.5, a.lost + b.lost)

    def at_most_one(self, of: Bounds, roundings: int) -> Bounds:
        return of if of.value <= 1 else Bounds(of.most, 1.0, of.error, of.lost)

    def product(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        codes = np.clip(a + b - self.bias, 0, self.zero)
        return np.where((a == self.zero) | (b == self.zero), self.zero, codes)

    def sum(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        near, difference = np.minimum(a, b), np.abs(a - b)
        is_near = (difference < len(self.table)) & (a != self.zero) & (b != self.zero)
        added = np.where(is_near, self.table[np.minimum(difference, len(self.table) - 1)], 0)
        return np.maximum(near - added, 0)

    def encode(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        units = np.floor(-numbers / math.log(2) * (1 << self.bits) + 0.5) + self.bias
        return np.minimum(units, self.zero).astype(np.int64)

    def decode(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        nats = (self.bias - codes) * (math.log(2) / (1 << self.bits))
        return np.where(codes == self.zero, -np.inf, nats)


# Numbers from 2^-RANGE_LEAST on have codes, with half a unit of rounding.
RANGE_LEAST = (1 << RANGE) - 2
Arithmetic = Real | Log
