"""Integers of 128 bits in words of 64.

An integer below 2^62 in magnitude is itself the word. Each other one has a number k in the symbol table, and the word
2^62 + k. So equal integers have equal words, columns of small ones are computed as fast as those of `i64`, and the
others are Python's integers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from derivable.datalog.values.symbols import SymbolTable
    from derivable.datalog.values.values import ValueType

# From here on, and below its negative, integers have numbers.
BIG = 1 << 62
# Products of columns whose largest factors multiply to less than this are exact in 64 bits, rounding included.
_EXACT = 2.0**61

Computed = tuple[np.ndarray, np.ndarray | None]


def integers(words: np.ndarray, symbols: SymbolTable) -> np.ndarray:
    """The integers [row] that words [row] stand for: int64 if all are small, else objects."""
    big = np.flatnonzero(words >= BIG)
    if not len(big):
        return words
    objects = words.astype(object)
    objects[big] = symbols.things_of(words[big] - BIG)
    return objects


def word(number: int, t: ValueType, symbols: SymbolTable) -> int:
    """The word of an integer that fits the type."""
    return number if -BIG <= number < BIG else BIG + symbols.intern_thing(number, t)


def words(values: np.ndarray, t: ValueType, symbols: SymbolTable) -> np.ndarray:
    """Words [row] int64 of integers [row] that fit the type, an array of any integers or of objects."""
    if values.dtype.kind == "u":
        if values.dtype.itemsize < 8 or int(values.max(initial=0)) < BIG:
            return values.astype(np.int64)
        values = values.astype(object)
    elif values.dtype != object:
        values = values.astype(np.int64, copy=False)
        if is_small(values):
            return values
    return np.fromiter((word(number, t, symbols) for number in values.tolist()), np.int64, len(values))


def is_small(values: np.ndarray) -> bool:
    return int(values.min(initial=0)) >= -BIG and int(values.max(initial=0)) < BIG


def wrapped(values: np.ndarray, t: ValueType) -> np.ndarray:
    """Python's integers [row] modulo two to the number of the type's bits, in its range."""
    low, high = t.limits
    return (values - low) % (high - low + 1) + low


def _saturated(values: np.ndarray, t: ValueType) -> np.ndarray:
    low, high = t.limits
    if values.dtype != object:
        return values if low else np.maximum(values, 0)
    return np.minimum(np.maximum(values, low), high)


def _exact(computed: np.ndarray, t: ValueType) -> Computed:
    """What a sum or difference is, where the type has it."""
    low, high = t.limits
    there = ((computed >= low) & (computed <= high)).astype(bool)
    return np.where(there, computed, 0), there


def _times(a: np.ndarray, b: np.ndarray, t: ValueType) -> Computed:
    if a.dtype != object and float(np.abs(a).max(initial=0)) * float(np.abs(b).max(initial=0)) >= _EXACT:
        a = a.astype(object)
    product = a * b
    return (wrapped(product, t) if product.dtype == object else product), None


def _divided(a: np.ndarray, b: np.ndarray, t: ValueType) -> tuple[np.ndarray, np.ndarray]:
    """Towards zero; by zero, and of the smallest integer by -1, there is no value."""
    there = b != 0
    divisor = np.where(there, b, 1)
    quotient = np.abs(a) // np.abs(divisor)
    quotient = np.where((a < 0) != (divisor < 0), -quotient, quotient)
    there &= quotient <= t.limits[1]
    return np.where(there, quotient, 0), there


def _remainder(a: np.ndarray, b: np.ndarray, t: ValueType) -> Computed:
    quotient, there = _divided(a, b, t)
    return np.where(there, a - quotient * b, 0), there


def _power(a: np.ndarray, b: np.ndarray, t: ValueType) -> Computed:
    modulus = 1 << t.bits
    powers = [pow(x, y, modulus) for x, y in zip(a.tolist(), b.tolist())]
    return wrapped(np.array(powers, object), t), None


_OPERATIONS: dict[str, Callable[..., Computed]] = {
    "+": lambda a, b, t: (_saturated(a + b, t), None),
    "-": lambda a, b, t: (_saturated(a - b, t), None),
    "+!": lambda a, b, t: _exact(a + b, t),
    "-!": lambda a, b, t: _exact(a - b, t),
    "*": _times,
    "/": _divided,
    "%": _remainder,
    "neg": lambda a, t: (_saturated(-a, t), None),
    "<": lambda a, b, t: ((a < b).astype(np.int64), None),
    "<=": lambda a, b, t: ((a <= b).astype(np.int64), None),
    "$abs": lambda a, t: (_saturated(np.abs(a), t), None),
    "$sign": lambda a, t: ((a > 0).astype(np.int64) - (a < 0).astype(np.int64), None),
    "$floor": lambda a, t: (a, None),
    "$ceil": lambda a, t: (a, None),
    "$min": lambda *operands: (reduce(np.minimum, operands[:-1]), None),
    "$max": lambda *operands: (reduce(np.maximum, operands[:-1]), None),
    "$pow": _power,
}


def operation(operator: str, types: tuple[ValueType, ...], result: ValueType) -> Callable[..., Computed] | None:
    """(symbols, *columns of words) -> (words [row], valid [row]) of an operation on integers of 128 bits; None where
    words need no look at what they stand for, or the operation is of other types."""
    if not types or not types[0].is_wide or operator not in _OPERATIONS:
        return None
    return partial(_computed, _OPERATIONS[operator], types, result)


def _computed(
    call: Callable[..., Computed],
    types: tuple[ValueType, ...],
    result: ValueType,
    symbols: SymbolTable,
    *operands: np.ndarray,
) -> Computed:
    results, valid = call(*(integers(w, symbols) if t.is_wide else w for w, t in zip(operands, types)), types[0])
    return (words(results, result, symbols) if result.is_wide else results.astype(np.int64)), valid


def converted(source: ValueType, target: ValueType, symbols: SymbolTable, operand: np.ndarray) -> Computed:
    """A cast between integers of 128 bits and other numbers, bools and characters: integers wrap around, floats are cut
    towards zero and saturate, characters are digits or have no value."""
    if source.family == "char":
        digits = operand - ord("0")
        there = (digits >= 0) & (digits <= 9)
        return np.where(there, digits, 0), there
    if source.family == "float":
        low, high = target.limits
        numbers = np.ascontiguousarray(operand).view(np.float64).tolist()
        cut = [low if x <= low else high if x >= high else int(x) for x in numbers]
        return words(np.array(cut, object), target, symbols), None
    if source.is_wide:
        values = integers(operand, symbols)
    elif source.family == "unsigned" and source.bits == 64:
        values = operand.view(np.uint64)
    else:
        values = operand
    if target.family == "float":
        rounded = _to_float32 if target.bits == 32 else float
        return np.fromiter(map(rounded, values.tolist()), np.float64, len(values)).view(np.int64), None
    low, high = target.limits
    if len(values) and not (low <= int(values.min()) and int(values.max()) <= high):
        values = wrapped(values.astype(object), target)
    if target.is_wide:
        return words(values, target, symbols), None
    kind = np.uint64 if target.family == "unsigned" else np.int64
    return np.ascontiguousarray(values.astype(kind)).view(np.int64), None


def _to_float32(number: int) -> float:
    # Rounded once: the first 53 bits, of which the last says whether any bit that is lost is set, are exact on the way.
    lost = max(abs(number).bit_length() - 53, 0)
    magnitude = abs(number)
    rounded = magnitude >> lost | bool(magnitude & (1 << lost) - 1)
    with np.errstate(over="ignore"):
        return float(np.float32(float(rounded << lost if number >= 0 else -(rounded << lost))))
