"""Numbers of any size with a sign, as a semiring: a mantissa and an exponent, of which no product under- or overflows.

(m, e) means m * 2**(256 * e), m being 0 (then e is `NOTHING`) or, after a product, of magnitude from 2**-128 to 2**128.
Sums leave that range by a few bits, which the next product has room for. Scaling by powers of two rounds nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.algebra.expr.functions import abs as magnitude
from derivable.algebra.expr.functions import equal, less, maximum, where
from derivable.algebra.semiring import Semiring

UNIT = 256
UP, DOWN = 2.0**UNIT, 2.0**-UNIT
LOW, HIGH = 2.0 ** -(UNIT // 2), 2.0 ** (UNIT // 2)
# Less than all exponents of numbers that are not zero.
NOTHING = -(2**61)

Scaled = tuple[np.ndarray, np.ndarray]


def _settled(m: Any, e: Any) -> Any:
    small, large = less(magnitude(m), LOW), less(HIGH, magnitude(m))
    exponent = where(equal(m, 0.0), NOTHING, where(small, e - 1, where(large, e + 1, e)))
    return where(small, m * UP, where(large, m * DOWN, m)), exponent


def _at(number: Any, exponent: Any) -> Any:
    """The mantissa for an exponent of at least its own; what is 2**-256 of the smallest other or less is zero."""
    m, e = number
    return where(equal(e, exponent), m, where(equal(e, exponent - 1), m * DOWN, 0.0))


def _plus(a: Any, b: Any) -> Any:
    top = maximum(a[1], b[1])
    m = _at(a, top) + _at(b, top)
    return m, where(equal(m, 0.0), NOTHING, top)


def _times(a: Any, b: Any) -> Any:
    return _settled(a[0] * b[0], a[1] + b[1])


scaled_numbers = Semiring("scaled", plus=_plus, times=_times, zero=(0.0, NOTHING), one=(1.0, 0), differentiable=False)


def scaled(values: np.ndarray, binary_exponents: np.ndarray | int = 0) -> Scaled:
    """values * 2**binary_exponents, elementwise, unrounded."""
    mantissa, binary = np.frexp(values)
    binary = binary.astype(np.int64) + binary_exponents
    exponent = (binary + UNIT // 2) // UNIT
    mantissa = np.ldexp(mantissa, (binary - UNIT * exponent).astype(np.int32))
    return mantissa, np.where(mantissa == 0, NOTHING, exponent)


def to_floats(mantissa: np.ndarray, exponent: np.ndarray, binary: np.ndarray | int = 0) -> np.ndarray:
    """Scaled numbers times 2**binary as float64; 0 or inf beyond its range."""
    with np.errstate(over="ignore", under="ignore"):
        # What the bounds change is 0 or inf in any case.
        power = np.maximum(exponent, -(2**40)) * UNIT + binary
        return np.ldexp(mantissa, np.minimum(np.maximum(power, -4096), 4096).astype(np.int32))
