"""The operators on dates, durations and tensors, over columns.

What is outside the limits of its type has no value: a date before the year 1 or after 9999, a duration of more than
2**63 microseconds. Tensors whose shapes do not go together are an error.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from derivable.datalog.foreign.function import ForeignFunction, result_words
from derivable.datalog.foreign.signature import Signature
from derivable.datalog.values import tensors
from derivable.datalog.values.datetimes import Duration, shifted
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType

Computed = tuple[np.ndarray, np.ndarray | None]


def special_operator(sign: str, types: tuple[ValueType, ...], result: ValueType) -> Callable[..., Computed] | None:
    """(symbols, *columns of words) -> (words [row], valid [row]) of an operator; None if scalars have it."""
    families = {t.family for t in types}
    if families == {"duration"} and sign in ("<", "<="):
        return partial(_ordered, sign == "<=")
    if families.isdisjoint(("datetime", "duration", "tensor")) or sign not in _TENSORS:
        return None
    if "tensor" in families:
        record = ForeignFunction(sign, _NONE, lambda a, b: tensors.as_tensor(_TENSORS[sign](a, b)))
    else:
        record = ForeignFunction(sign, _NONE, _MOMENTS[sign], drops=(ValueError, OverflowError))
    return partial(record.words, types, result)


def _plus(a: Any, b: Any) -> Any:
    if isinstance(b, dt.datetime):
        a, b = b, a
    return shifted(a, _duration(b)) if isinstance(a, dt.datetime) else _duration(a) + _duration(b)


def _minus(a: Any, b: Any) -> Any:
    if isinstance(a, dt.datetime):
        return a - b if isinstance(b, dt.datetime) else shifted(a, -_duration(b))
    return _duration(a) - _duration(b)


def _times(a: Any, b: Any) -> Duration:
    return _duration(b) * a if isinstance(a, int) else _duration(a) * b


def _through(a: Any, b: int) -> Duration | None:
    return _duration(a) // b if b else None


def _duration(value: Any) -> Duration:
    duration = Duration.of(value)
    assert duration is not None
    return duration


_NONE = Signature((), ())
_MOMENTS: dict[str, Callable[[Any, Any], Any]] = {"+": _plus, "-": _minus, "*": _times, "/": _through}
_TENSORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def _ordered(or_equal: bool, symbols: SymbolTable, a: np.ndarray, b: np.ndarray) -> Computed:
    ranks = symbols.duration_ranks(np.concatenate([a, b]))
    result = ranks[: len(a)] <= ranks[len(a) :] if or_equal else ranks[: len(a)] < ranks[len(a) :]
    return result.astype(np.int64), None


def number_of_tensor(target: ValueType, symbols: SymbolTable, a: np.ndarray) -> Computed:
    """The floats in tensors of one element; others have no value."""
    return result_words("", "", [tensors.item(thing) for thing in symbols.things_of(a)], target, symbols)
