"""The language's functions and predicates of numbers.

Those that the table of scalar operations has are scalar expressions, which are fused into kernels; the other functions
of floats are NumPy's, over columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from derivable.algebra.expr import Constant, Optional, optional
from derivable.algebra.expr.types import FLOATS, UNSIGNED, Dtype
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


def _of_operation(name: str) -> Callable[..., Optional]:
    return lambda dtype, *operands: optional(name, *operands)


def _extremum(name: str) -> Callable[..., Optional]:
    return lambda dtype, *operands: reduce(lambda a, b: optional(name, a, b), operands)


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

FUNCTIONS = (
    _scalar("abs", _NUMBER, _absolute, np.abs),
    _scalar("sign", _NUMBER, _of_operation("sign"), np.sign),
    _scalar("floor", _NUMBER, _rounded("floor"), np.floor),
    _scalar("ceil", _NUMBER, _rounded("ceil"), np.ceil),
    _scalar("min", "<T: Number>(T, T...) -> T", _extremum("minimum"), np.minimum),
    _scalar("max", "<T: Number>(T, T...) -> T", _extremum("maximum"), np.maximum),
    _scalar("exp", _FLOAT, _of_operation("exp"), np.exp),
    _scalar("log", _FLOAT, _of_operation("log"), np.log),
    _scalar("sin", _FLOAT, _of_operation("sin"), np.sin),
    _scalar("cos", _FLOAT, _of_operation("cos"), np.cos),
    _scalar("powf", "<T: Float>(x: T, y: T) -> T", _of_operation("power"), np.power),
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
