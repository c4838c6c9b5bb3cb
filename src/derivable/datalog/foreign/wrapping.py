"""Functions and predicates of Soufflé's, which compute something else than the others: integers wrap around, positions
in texts may lie outside of them, and a number as a text has Soufflé's digits. Programs that are translated call them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from derivable.algebra.expr import Constant, Optional, cast, optional
from derivable.algebra.expr.types import WIDTHS, Dtype
from derivable.datalog.foreign.function import ForeignFunction
from derivable.datalog.foreign.numbers import of_operation
from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.signature import signature
from derivable.datalog.foreign.texts import encoded
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType

_TWO, _INTEGERS = "<T: Number>(x: T, y: T) -> T", "<T: Integer>(x: T, y: T) -> T"


def _negate(dtype: Dtype, x: Optional) -> Optional:
    return optional("subtract", Optional(Constant(0, dtype)), x)


def _truth(dtype: Dtype, x: Optional) -> Optional:
    return optional("not_equal", x, Optional(Constant(0, x.value.dtype)))


def _logical(name: str) -> Callable[..., Optional]:
    """The operator on numbers, of which 0 is false, and 1 the true one that it gives."""

    def computed(dtype: Dtype, *operands: Optional) -> Optional:
        return _wrapped(dtype, optional(name, *(_truth(dtype, operand) for operand in operands)))

    return computed


def _bits_moved(dtype: Dtype, count: Optional) -> Optional:
    """How many bits a shift moves: the last bits of the operand, as many as number those of a word."""
    return optional("bitwise_and", count, Optional(Constant(WIDTHS[dtype] - 1, dtype)))


def _shift(name: str) -> Callable[..., Optional]:
    return lambda dtype, x, count: optional(name, x, _bits_moved(dtype, count))


def _shift_unsigned(dtype: Dtype, x: Optional, count: Optional) -> Optional:
    plain = _wrapped("uint32" if WIDTHS[dtype] == 32 else "uint64", x)
    moved = _bits_moved(dtype, count)
    return _wrapped(dtype, optional("right_shift", plain, _wrapped(plain.value.dtype, moved)))


def _wrapped(dtype: Dtype, x: Optional) -> Optional:
    return Optional(cast(x.value, dtype), x.valid)


def _scalar(name: str, text: str, of: Callable[..., Optional]) -> ForeignFunction:
    return ForeignFunction(name, signature(text), None, scalar=of)


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x to the y; of integers the last bits, and 0 for a fraction."""
    if x.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.power(x, y)
    bits = 8 * x.dtype.itemsize
    powers = [_integer_power(a, b, bits) for a, b in zip(x.tolist(), y.tolist())]
    return np.array(powers, np.uint64).astype(x.dtype)


def _integer_power(x: int, y: int, bits: int) -> int:
    if y < 0:
        return (x if y % 2 else x * x) % (1 << bits) if abs(x) == 1 else 0
    return pow(x, y, 1 << bits)


def _part(text: str, start: int, length: int) -> str:
    """The bytes from a position; "" where the text has none there."""
    raw = encoded(text)
    if not 0 <= start <= len(raw):
        return ""
    return raw[start : start + length if length >= 0 else None].decode("utf-8", "replace")


_NUMBER = re.compile(r"\s*[+-]?(0b[01]+|0x[0-9a-fA-F]+|\d+)")


def number_in(text: str) -> int | None:
    """The number that a text begins with and ends with; None if it is none."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    digits = match[1]
    value = int(digits, 16 if digits.startswith("0x") else 2 if digits.startswith("0b") else 10)
    return -value if "-" in text.partition(digits)[0] else value


def _float_in(text: str) -> float | None:
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def float_text(value: float) -> str:
    """What `to_string` makes of a float: six digits behind the dot."""
    return f"{value:f}"


# Classes of POSIX, which stand in brackets.
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "d": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "s": r"\s",
    "w": r"\w",
    "xdigit": "0-9a-fA-F",
    "punct": r"!-/:-@\[-`{-~",
    "blank": " \t",
    "cntrl": r"\x00-\x1f\x7f",
    "print": " -~",
    "graph": "!-~",
}


@lru_cache(256)
def _pattern(pattern: str) -> re.Pattern | None:
    """A regular expression of ECMAScript, as C++ has it, as one of Python; None if it is none."""
    for name, signs in _CLASSES.items():
        pattern = pattern.replace(f"[:{name}:]", signs)
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None


def _matches(pattern: str, text: str) -> bool:
    expression = _pattern(pattern)
    return expression is not None and expression.fullmatch(text) is not None


def _ordinal(symbols: SymbolTable, types: tuple[ValueType, ...], words: np.ndarray) -> tuple[np.ndarray, None]:
    return words, None


def _values(name: str, text: str, call: Callable[..., Any]) -> ForeignFunction:
    return ForeignFunction(name, signature(text), call)


_TYPES = ("i32", "u32", "i64", "u64")

FUNCTIONS = (
    _scalar("wrapping_add", _TWO, of_operation("add")),
    _scalar("wrapping_subtract", _TWO, of_operation("subtract")),
    _scalar("wrapping_negate", "<T: Number>(x: T) -> T", _negate),
    ForeignFunction("wrapping_pow", signature(_TWO), _power, "columns"),
    *(_scalar(f"logical_{name}", _INTEGERS, _logical(f"logical_{name}")) for name in ("and", "or", "xor")),
    _scalar("logical_not", "<T: Integer>(x: T) -> T", _logical("logical_not")),
    _scalar("wrapping_shift_left", _INTEGERS, _shift("left_shift")),
    _scalar("wrapping_shift_right", _INTEGERS, _shift("right_shift")),
    _scalar("wrapping_shift_right_unsigned", _INTEGERS, _shift_unsigned),
    *(_scalar(f"wrapping_{t}", f"<T: Integer>(x: T) -> {t}", _wrapped) for t in _TYPES),
    _scalar("wrapping_count", "<T: Number>(n: usize) -> T", _wrapped),
    *(_scalar(f"literal_{t}", f"(x: {t}) -> {t}", _wrapped) for t in _TYPES),
    _values("byte_substring", "<T: Integer>(s: String, place: T, length: T) -> String", _part),
    *(_values(f"parse_{t}", f"(s: String) -> {t}", number_in) for t in _TYPES),
    *(_values(f"parse_{t}", f"(s: String) -> {t}", _float_in) for t in ("f32", "f64")),
    _values("decimal_text", "<T: Float>(x: T) -> String", float_text),
    _values("string_matches", "(pattern: String, text: String) -> bool", _matches),
    _values("string_contains", "(part: String, text: String) -> bool", lambda part, text: part in text),
    ForeignFunction("symbol_number", signature("(x: Any) -> i64"), _ordinal, "words"),
)


def _steps(low: Any, high: Any, step: Any) -> Iterator[Any]:
    if step == 0 and low != high:
        yield low
    while (step > 0 and low < high) or (step < 0 and low > high):
        yield low
        low += step


def _range(low: Any, high: Any) -> Iterator[Any]:
    return _steps(low, high, 1 if low <= high else -1)


PREDICATES = (
    ForeignPredicate("numbers_to", signature("<T: Number>(low: T, high: T) -> (x: T)"), _range),
    ForeignPredicate("numbers_by", signature("<T: Number>(low: T, high: T, step: T) -> (x: T)"), _steps),
)
