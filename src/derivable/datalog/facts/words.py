"""Columns of facts as words, and the errors of values that do not fit their column."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.core.diagnostics import TypeMismatchError, warn
from derivable.datalog.facts.inputs import EXACT_DIGITS, MISSING_HINT, Texts
from derivable.datalog.rules.nodes import Relation
from derivable.datalog.values.datetimes import parse_datetime
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.terms import show_value
from derivable.datalog.values.values import FINER_UNITS, TYPES, Unfit, ValueType, column_words, fits

_LARGEST_SHORT = np.iinfo(np.int32).max
# What helps with arrays of a kind that no column holds.
_OTHERS = {
    "c": "give the real and the imaginary parts, each as a column",
    "S": "`array.astype(str)` has texts",
    "V": "give each of its fields as a column",
}


def checked_words(relation: Relation, columns: Sequence[Any], symbols: SymbolTable) -> list[np.ndarray]:
    """Words [row] of each column of Python values, or of an array, or of texts; every value is checked."""
    words = []
    for c, (values, t) in enumerate(zip(columns, relation.types)):
        _warn_of_digits(f"facts for `{relation.name}`, {_column(relation, c)}", values, t)
    for c, (values, t) in enumerate(zip(columns, relation.types)):
        try:
            if isinstance(values, Texts):
                column = column_words(values.texts, t, symbols)
                if values.positions is not None and int(column.max(initial=0)) <= _LARGEST_SHORT:
                    # Half the memory that is written for the first time.
                    column = column.astype(np.int32)
                words.append(column if values.positions is None else column[values.positions])
            else:
                words.append(column_words(values, t, symbols))
        except Unfit as unfit:
            raise _unfit(relation, c, t, unfit) from None
    return words


def _warn_of_digits(what: str, values: Any, t: ValueType) -> None:
    """Warns of values that have more digits than their column holds, which its type does not say."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        is_fine = np.datetime_data(values.dtype)[0] in FINER_UNITS
        cut = values.astype(f"{values.dtype.kind}8[us]") if is_fine else values
        loses = is_fine and bool(((values != cut) & ~np.isnat(values)).any())
    elif isinstance(values, (list, np.ndarray)) and len(values) and t.family in ("datetime", "float"):
        # Whole columns are of one kind.
        if t.family == "datetime":
            loses = hasattr(values[0], "nanosecond") and any(getattr(value, "nanosecond", 0) > 0 for value in values)
        else:
            loses = type(values[0]).__name__ == "Decimal" and any(map(_has_many_digits, values))
    else:
        return
    if loses and t.family == "float":
        hint = "give whole numbers, scaled by a power of ten, which i64 and i128 hold as they are"
        warn(f"{what}: some decimals have more digits than {t}", hint=hint)
    elif loses:
        hint = "give whole nanoseconds, which i64 holds"
        warn(f"{what}: {t} holds microseconds, and some values have parts of them, which are dropped", hint=hint)


def _has_many_digits(value: Any) -> bool:
    """Whether a decimal is none of those that a number of 64 bits is written as."""
    if type(value).__name__ != "Decimal" or len(value.as_tuple().digits) <= EXACT_DIGITS:
        return False
    return value != type(value)(repr(float(value)))


def _is_missing(value: Any) -> bool:
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if type(value).__name__ == "Decimal":
        # A signalling NaN is not even compared.
        return value.is_nan()
    return isinstance(value, (float, np.generic)) and bool(value != value)


def _column(relation: Relation, c: int) -> str:
    """A column for messages, with its name if it has one."""
    name = relation.column_names[c] if relation.column_names else None
    return f"column {c} ({name})" if name else f"column {c}"


def _unfit(relation: Relation, c: int, t: ValueType, unfit: Unfit) -> TypeMismatchError:
    """The error of a value, or of an array, that a column does not hold."""
    row, value = "" if unfit.row is None else f", row {unfit.row}", unfit.value
    if unfit.reason is not None:
        message = f"facts for `{relation.name}`{row}, column {c}: {unfit.reason.message}"
        return TypeMismatchError(message, hint=unfit.reason.hint)
    what = f"facts for `{relation.name}`{row}, {_column(relation, c)}"
    if unfit.row is None:
        message = f"{what}: expected {t}, found an array of dtype {value}"
        return TypeMismatchError(message, hint=_conversion(value.kind, t))
    if _is_missing(value):
        return TypeMismatchError(f"{what}: the value is missing ({value})", hint=MISSING_HINT)
    shown = show_value(value) if isinstance(value, (str, bool, int, float)) else repr(value)
    hint = None
    if t.is_integer and isinstance(value, int) and not isinstance(value, bool):
        hint = t.range_text()
        wider = next((name for name in ("i64", "i128") if fits(value, TYPES[name])), None)
        if relation.is_input and t.limits[0] < 0 and wider is not None:
            hint += f"; declare a wider type: `type {relation.name}(...)` with {wider}"
    elif isinstance(value, str) and t.family == "datetime":
        hint = _date_hint(value)
    elif isinstance(value, (dt.date, dt.timedelta, np.datetime64, np.timedelta64)):
        hint = "dates are of the years 1 to 9999, durations of less than 2**63 microseconds or 2**31 months"
    elif t.family == "float" and isinstance(value, (int, float)):
        hint = f"{t} holds numbers up to {np.finfo(t.dtype).max:.2g}"
        hint += "; declare the column as f64" if t.bits == 32 else ""
    elif isinstance(value, (str, float)) and relation.is_input:
        hint = f"declare the column types: `type {relation.name}(...)`"
    elif isinstance(value, str) and t.is_number:
        hint = "convert the texts to numbers first (`pandas.to_numeric(column)`), or declare the column as String"
    elif not isinstance(value, (str, bool, int, float)):
        hint = "columns hold numbers, texts, truth values, dates, durations, terms and tensors of numbers"
    return TypeMismatchError(f"{what}: expected {t}, found {shown} ({type(value).__name__})", hint=hint)


def _date_hint(text: str) -> str:
    """What is wrong with a text that is no date, and how one is written."""
    try:
        parse_datetime(text)
    except ValueError as error:
        return f"{error}; dates are written `2026-03-05` or `2026-03-05T12:00:00Z`"
    return "dates are of the years 1 to 9999"


def _conversion(kind: str, t: ValueType) -> str | None:
    """How an array of this kind of dtype becomes one of a type, for a hint."""
    if kind in _OTHERS:
        return _OTHERS[kind]
    if kind in "Mm":
        return f"declare the column as {'DateTime' if kind == 'M' else 'Duration'}"
    if kind == "f" and t.is_integer:
        return f"declare the column as f64, or convert it: `array.astype(np.{t.dtype})`"
    return f"convert it: `array.astype(np.{t.dtype})`" if t.is_number else None
