"""exp2 and log2 in fixed point, as lanes of the SIMD unit compute them: a table and a line between its entries.

Numbers have 16 bits behind the point (Q16). `exp2` and `log2` are the meaning, bit for bit, of `rtl/exp2.sv` and
`rtl/log2.sv`, whose tables `verilog` prints; both are within 2^-15 of the exact value, relative for `exp2`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

ENTRIES = 256
FRACTION = 24  # bits behind the point in the tables
LOWEST = -(2**31)
HIGHEST = 2**31 - 1
ONE = 1 << 16
# By which numbers are multiplied where functions are written with powers of two.
LOG2_E, LN_2 = math.log2(math.e), math.log(2)
GELU_SLOPE, GELU_CUBE = math.sqrt(2 / math.pi), 0.044715

EXP2 = np.rint(2.0 ** (np.arange(ENTRIES + 1) / ENTRIES + FRACTION)).astype(np.int64)
LOG2 = np.rint(np.log2(1 + np.arange(ENTRIES + 1) / ENTRIES) * 2.0**FRACTION).astype(np.int64)


def exp2(x: NDArray[np.integer]) -> NDArray[np.int64]:
    """2 to the power of x, int32 in Q16 both; at most 2^31 - 1, which is what 2^15 and more become."""
    x = np.asarray(x, np.int64)
    whole, entry, rest = x >> 16, (x >> 8) & 255, x & 255
    value = EXP2[entry] + (((EXP2[entry + 1] - EXP2[entry]) * rest) >> 8)
    # Below 2^-17 nothing is left of 25 bits; the bound keeps the shift inside a word.
    right = np.clip(8 - whole, 1, 31)
    small = (value + (np.int64(1) << (right - 1))) >> right
    large = value << np.clip(whole - 8, 0, 6)
    return np.where(whole >= 15, HIGHEST, np.where(whole >= 8, large, small))


def log2(x: NDArray[np.integer]) -> NDArray[np.int64]:
    """The logarithm to base 2 of x, int32 in Q16 both; -2^31 for x <= 0."""
    x = np.asarray(x, np.int64)
    positive = np.maximum(x, 1)
    bits = np.frexp(positive.astype(np.float64))[1].astype(np.int64) - 1  # of the leading one: exact below 2^53
    mantissa = positive << (31 - bits)
    entry, rest = (mantissa >> 23) & 255, (mantissa >> 7) & 65535
    value = LOG2[entry] + (((LOG2[entry + 1] - LOG2[entry]) * rest) >> 16)
    return np.where(x > 0, ((bits - 16) << 16) + ((value + 128) >> 8), LOWEST)


def nearest(number: float) -> int:
    """A number with 16 bits behind the point; beyond what there is, the last one."""
    return round(min(max(number * ONE, LOWEST), HIGHEST))


def round_shift(x: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """x / 2^shift, rounded to the nearest, halves up."""
    return x if not shift else (x + (1 << (shift - 1))) >> shift


def largest_power(number: float) -> int:
    """The least k >= 0 with 2^k >= number."""
    return max(0, math.ceil(math.log2(number))) if number > 0 else 0


def inverse_power(least: float, most: float) -> int | None:
    """The k by which inverses of numbers from `least` to `most` are kept as 2^k / |x|; None where they are logarithms.

    An inverse of 2^15 and more is not a number. So k serves where `least` is far enough from zero, and where what is
    too small for it has less than 32 steps anyway.
    """
    k = largest_power(max(-least, most))
    nearest_zero = max(least, -most, 0)
    return k if k <= 4 or nearest_zero >= 2.0 ** (k - 15) else None


def verilog(name: str, table: NDArray[np.int64]) -> str:
    """A SystemVerilog module with a table's entries and the differences to the next ones, without a register."""
    rows = "\n".join(
        f"      8'd{entry}: {{value, step}} = {{25'd{table[entry]}, 17'd{table[entry + 1] - table[entry]}}};"
        for entry in range(ENTRIES)
    )
    return f"""// Generated: the table of {name}, {FRACTION} bits behind the point; `step`: how far the next is above.
module {name}_table (
    input  logic [ 7:0] entry,
    output logic [24:0] value,
    output logic [16:0] step
);
  always_comb begin
    case (entry)
{rows}
    endcase
  end
endmodule
"""
