"""The language's functions and predicates of numbers.

Those that the table of scalar operations has are scalar expressions, which are fused into kernels; the other functions
of floats are NumPy's, over columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from derivable.algebra.expr import Constant, Optional, cast, optional
from derivable.algebra.expr.types import FLOATS, UNSIGNED, WIDTHS, Dtype
from derivable.datalog.foreign.function import ForeignFunction
from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.signature import signature


def _absolute(dtype: Dtype, x: Optional) -> Optional:
    """|x|; of the smallest integer the largest, as its negation is."""
    if dtype in FLOATS:
        return optional("abs", x)
    negative = optional("less", x, Optional(Constant(0, dtype)))
    return x if dtype in UNSIGNED else optional("where", negative, _negated(dtype, x), x)


def _negated(dtype: Dtype, x: Optional) -> Optional:
    return optional("saturating_subtract", Optional(Constant(0, dtype)), x)


def _rounded(name: str) -> Callable[..., Optional]:
    return lambda dtype, x: optional(name, x) if dtype in FLOATS else x


def of_operation(name: str) -> Callable[..., Optional]:
    return lambda dtype, *operands: optional(name, *operands)


def _extremum(name: str, of_bools: str) -> Callable[..., Optional]:
    def folded(dtype: Dtype, *operands: Optional) -> Optional:
        return reduce(lambda a, b: optional(of_bools if dtype == "bool" else name, a, b), operands)

    return folded


def _bit_xor(dtype: Dtype, a: Optional, b: Optional) -> Optional:
    return optional("subtract", optional("bitwise_or", a, b), optional("bitwise_and", a, b))


def _bit_not(dtype: Dtype, a: Optional) -> Optional:
    return optional("subtract", Optional(cast(Constant(-1, "int64"), dtype)), a)


def _shift(name: str) -> Callable[..., Optional]:
    def shifted(dtype: Dtype, x: Optional, count: Optional) -> Optional:
        few = optional("minimum", count, Optional(Constant(WIDTHS[dtype], count.value.dtype)))
        return optional(name, x, Optional(cast(few.value, dtype), few.valid))

    return shifted


def _shifted(shift: Callable[..., Any]) -> Callable[..., Any]:
    """Bits that move out are gone, all of them from the width of the type on; a sign fills up from the left."""

    def shifted(x: np.ndarray, counts: np.ndarray) -> np.ndarray:
        width = 8 * x.dtype.itemsize
        words = shift(x, np.minimum(counts, width - 1).astype(x.dtype))
        return words if shift is np.right_shift and x.dtype.kind == "i" else np.where(counts < width, words, 0)

    return shifted


def _scalar(name: str, text: str, of: Callable[..., Optional], call: Callable[..., Any]) -> ForeignFunction:
    return ForeignFunction(name, signature(text), call, "columns", of)


def _columns(name: str, text: str, call: Callable[..., Any]) -> ForeignFunction:
    def quiet(*operands: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return call(*operands)

    return ForeignFunction(name, signature(text), quiet, "columns")


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x to the y, wrapping around as the product does."""
    wide = np.uint64 if x.dtype.kind == "u" else np.int64
    return np.power(x.astype(wide), y.astype(wide)).astype(x.dtype)


_FLOAT, _NUMBER = "<T: Float>(x: T) -> T", "<T: Number>(x: T) -> T"
_SOME, _INTEGERS, _SHIFT = (
    "<T: Ordered>(T, T...) -> T",
    "<T: Integer>(x: T, y: T) -> T",
    "<T: Integer>(x: T, places: u32) -> T",
)

FUNCTIONS = (
    _scalar("abs", _NUMBER, _absolute, np.abs),
    _scalar("sign", _NUMBER, of_operation("sign"), np.sign),
    _scalar("floor", _NUMBER, _rounded("floor"), np.floor),
    _scalar("ceil", _NUMBER, _rounded("ceil"), np.ceil),
    _scalar("min", _SOME, _extremum("minimum", "logical_and"), lambda *columns: reduce(np.minimum, columns)),
    _scalar("max", _SOME, _extremum("maximum", "logical_or"), lambda *columns: reduce(np.maximum, columns)),
    _scalar("bit_and", _INTEGERS, of_operation("bitwise_and"), np.bitwise_and),
    _scalar("bit_or", _INTEGERS, of_operation("bitwise_or"), np.bitwise_or),
    _scalar("bit_xor", _INTEGERS, _bit_xor, np.bitwise_xor),
    _scalar("bit_not", "<T: Integer>(x: T) -> T", _bit_not, np.invert),
    _scalar("bit_shift_left", _SHIFT, _shift("left_shift"), _shifted(np.left_shift)),
    _scalar("bit_shift_right", _SHIFT, _shift("right_shift"), _shifted(np.right_shift)),
    _scalar("exp", _FLOAT, of_operation("exp"), np.exp),
    _scalar("log", _FLOAT, of_operation("log"), np.log),
    _scalar("sin", _FLOAT, of_operation("sin"), np.sin),
    _scalar("cos", _FLOAT, of_operation("cos"), np.cos),
    _scalar("powf", "<T: Float>(x: T, y: T) -> T", of_operation("power"), np.power),
    *(_columns(name, _FLOAT, getattr(np, name)) for name in ("exp2", "log2", "tan")),
    *(_columns(f"a{name}", _FLOAT, getattr(np, f"arc{name}")) for name in ("sin", "cos", "tan")),
    _columns("atan2", "<T: Float>(y: T, x: T) -> T", np.arctan2),
    _columns("pow", "<T: Integer>(x: T, y: u32) -> T", _power),
)

_RANGE = signature("<T: Integer>(low: T, high: T) -> (x: T)")

PREDICATES = (
    ForeignPredicate("range", _RANGE, range, closed=False),
    # What `x in low..=high` is; the language has no name for it.
    ForeignPredicate("range_inclusive", _RANGE, lambda low, high: range(low, high + 1), closed=True),
)
