"""Foreign functions: what expressions of a program call, `$name(x, y)`.

Where a result is None, NaN, or outside its type, the row has no value there and is dropped, as where a division by zero
is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, starmap
from typing import Any

import numpy as np

from derivable.algebra.expr import Optional
from derivable.core.diagnostics import DerivableError, DomainError
from derivable.datalog.foreign.signature import Signature
from derivable.datalog.values.datetimes import Duration
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.terms import Entity
from derivable.datalog.values.values import ValueType, fits, plain_array, show_column, words_of, words_of_numbers

Types = tuple[ValueType, ...]
# Rows of texts that are made first, and bytes of them between two looks at the memory.
FEW_ROWS, LOOK_BYTES = 16, 1 << 20


@dataclass(frozen=True)
class ForeignFunction:
    """One function, computed in one of four ways.

    call    of Python values, of one row: called once for each combination of operands that differs
    form    what `call` takes instead of that: "columns" of the operands, NumPy arrays [row], or "words" of them, the
            symbol table and types first, to give (words [row], valid [row])
    scalar  of the result's type and expressions of scalars (`algebra.expr`): it is part of the expression around it,
            and so of kernels
    drops   exceptions that mean that there is no value
    """

    name: str
    signature: Signature
    call: Callable[..., Any] | None
    form: str = "values"
    scalar: Callable[..., Optional] | None = field(default=None, compare=False)
    drops: tuple[type[Exception], ...] = ()

    def words(
        self, types: Types, result: ValueType, symbols: SymbolTable, *operands: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(words [row], valid [row]) of the results for words [row] of the operands."""
        assert self.call is not None
        if self.form == "words":
            return self._called((symbols, types, *operands))
        distinct_rows, inverse = distinct(operands)
        columns = [show_column(words, t, symbols) for words, t in zip(distinct_rows, types)]
        count = len(distinct_rows[0]) if distinct_rows else 1
        if self.form == "columns":
            results = self._called(columns)
            if np.shape(results) != (count,):
                message = f"the function ${self.name} gives shape {np.shape(results)} for {count} rows"
                raise ForeignError(message, f"${self.name}")
            values = np.asarray(results).tolist()
        else:
            look = symbols.expect if result.family == "text" else None
            values = self._values([column.tolist() for column in columns], count, look)
        words, valid = result_words(f"${self.name}", f"function ${self.name} gives", values, result, symbols)
        return (words, valid) if inverse is None else (words[inverse], valid[inverse])

    def _values(self, columns: Sequence[Sequence[Any]], count: int, look: Callable[[int], None] | None) -> list[Any]:
        """The values of operands [row], None where there is none.

        look  called after each MiB of texts or so with the number of bytes since, checks the memory limit
        """
        call, values = self.call, []
        assert call is not None
        rows = iter(zip(*columns) if columns else [()] * count)
        size, made, seen = FEW_ROWS if look is not None else count, 0, 0
        while len(values) < count:
            try:
                # What was appended before an exception stays, so that the row that failed is the next one.
                values.extend(starmap(call, islice(rows, size)))
                if look is not None:
                    some = sum(len(value) for value in values[seen:] if isinstance(value, str))
                    # As many rows at once as make a MiB or so.
                    size = max(1, min(2 * size, size * LOOK_BYTES // max(1, some)))
                    made, seen = made + some, len(values)
                    if made >= LOOK_BYTES:
                        look(LOOK_BYTES)
                        made = 0
            except self.drops:
                values.append(None)
            except DerivableError:
                raise
            except Exception as error:
                row = tuple(column[len(values)] for column in columns)
                raise failure(self._by, row, error) from error
        return values

    def _called(self, operands: Sequence[Any]) -> Any:
        """What comes of whole columns."""
        assert self.call is not None
        try:
            return self.call(*operands)
        except self.drops:
            return [None] * len(operands[0])
        except DerivableError:
            raise
        except Exception as error:
            raise failure(self._by, None, error) from error

    @property
    def _by(self) -> str:
        return f"${self.name}" if self.name.isidentifier() else self.name


class ForeignError(DomainError):
    """What went wrong in a foreign function or predicate; `by` is its operator in core rules, `$half` or `divisor`.

    Those who evaluate the expression set `span`, and the run makes a DomainError with the program's line of it.
    """

    def __init__(self, message: str, by: str, hint: str | None = None):
        super().__init__(message, hint=hint)
        self.by = by

    def placed(self, source: str, text: str) -> DomainError:
        """The error with its line."""
        return DomainError(self.message, hint=self.hint, source=source, text=text, span=self.span)


def failure(by: str, operands: Sequence[Any] | None, error: Exception) -> ForeignError:
    """The error that a Python function has failed for these operands, shortened."""
    what = f"{'function' if by.startswith('$') else 'predicate' if by.isidentifier() else 'operator'} {by}"
    operands_text = ""
    if operands is not None:
        shown = [repr(operand) for operand in operands]
        operands_text = " for " + ", ".join(text if len(text) <= 60 else f"{text[:57]}..." for text in shown)
    return ForeignError(f"the {what} failed{operands_text}: {type(error).__name__}: {str(error).strip()}", by)


def distinct(columns: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray | None]:
    """(columns [k] of the rows that differ, index [row] of each row among them), or the columns as they are and None.

    Few rows are not looked at.
    """
    count = len(columns[0]) if columns else 0
    if count <= 16:
        return list(columns), None
    numbers, number = np.zeros(count, np.int64), 1
    for column in columns:
        values, column_inverse = np.unique(column, return_inverse=True)
        if number == 1:
            numbers, number = column_inverse.astype(np.int64, copy=False), len(values)
        elif len(values) > 1:
            # Both are below the number of rows, so that the product fits.
            distinct_rows, numbers = np.unique(numbers * len(values) + column_inverse, return_inverse=True)
            number = len(distinct_rows)
    if number == count:
        return list(columns), None
    first = np.zeros(number, np.int64)
    first[numbers[::-1]] = np.arange(count - 1, -1, -1)
    return [column[first] for column in columns], numbers


def result_words(by: str, what: str, values: list, t: ValueType, symbols: SymbolTable) -> tuple[np.ndarray, np.ndarray]:
    """(words [row], valid [row]) of Python values, None where there is none.

    Raises DomainError for a value of another kind than the type's; one outside its limits is none, and so is a text
    that is no term.
    """
    if t.family == "text" and set(map(type, values)) == {str}:
        return symbols.intern_all(values), np.ones(len(values), bool)
    if t.family == "entity" and symbols.entities is not None and set(map(type, values)) <= {str, type(None)}:
        return symbols.entities.parsed([value or "" for value in values], t)
    if any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        values = [v.item() if isinstance(v, np.generic) and v.dtype.kind not in "mM" else v for v in values]
    if t.family == "float":
        values = [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]
    array = None if t.is_wide else plain_array(values, t)
    if array is not None:
        low, high = t.limits if t.is_integer else (array, array)
        valid = (array >= low) & (array <= high)
        words = np.zeros(len(values), np.int64)
        words[valid] = words_of_numbers(array[valid], t, symbols)
        return words, valid
    valid = np.array([v is not None and fits(v, t) for v in values], bool)
    if not valid.all():
        for value in values:
            if value is not None and not _is_of(value, t):
                raise ForeignError(
                    f"the {what} {value!r}, which is not of the type {t}",
                    by,
                    hint="annotate what it returns, as in `-> str`",
                )
    words = np.zeros(len(values), np.int64)
    words[valid] = words_of([value for value, fine in zip(values, valid.tolist()) if fine], t, symbols)
    return words, valid


def _is_of(value: Any, t: ValueType) -> bool:
    """Whether a Python value is of the kind of a type, inside its limits or not."""
    kinds = {"bool": bool, "char": str, "text": str, "float": float}
    if t.is_integer:
        return isinstance(value, int) and not isinstance(value, bool)
    if t.family == "entity":
        return isinstance(value, Entity)
    if t.family == "datetime":
        return isinstance(value, (dt.date, np.datetime64))
    if t.family == "duration":
        return isinstance(value, (dt.timedelta, np.timedelta64, Duration))
    return t.family in kinds and isinstance(value, kinds[t.family])
