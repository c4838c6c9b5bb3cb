"""Programs as straight lines of operations on columns: gathers, sums by row, and scalar operations.

A column has a number for each row, or for each row and lane; without a length it is one number for all rows. Where rows
come from and go to is known before anything runs, from where the entries of the inputs are, so a list of operations is
for inputs whose entries stay where they are. It runs on NumPy, which says what it means, and on torch tensors on any
device (`columns_torch`), whose derivatives are those of gathers and sums.

Printed form:

    c0 = given X [3]
    c1 = take c0 [4]
    c2 = given A [4]
    c3 = times c2 c1 [4]
    c4 = fold c3 [2]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import LayoutError, ShapeError


@dataclass(frozen=True, eq=False)
class Column:
    """`length` rows, None for one number; `lanes` numbers in a row, None for one without an axis of its own."""

    length: int | None = field(kw_only=True)
    lanes: int | None = field(default=None, kw_only=True)

    @property
    def parts(self) -> tuple[Column, ...]:
        """The columns that it is made of."""
        found = [getattr(self, f.name) for f in fields(self)]
        return tuple(x for each in found for x in (each if isinstance(each, tuple) else (each,)) if is_column(x))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(x for x in (self.length, self.lanes) if x is not None)


@dataclass(frozen=True, eq=False)
class Given(Column):
    """`given A`: the values of an input, one after the other."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant(Column):
    """`constant 2.0`: the same whatever is given; `values` is a number or an array [row]."""

    values: Any


@dataclass(frozen=True, eq=False)
class Take(Column):
    """`take c0`: of each row of the result the row of another column."""

    of: Column
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class Fold(Column):
    """`fold c0`: the sum, in the semiring, of the rows that go to each row of the result; zero if none does."""

    of: Column
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class FoldLanes(Column):
    """`fold lanes c0`: the sum of each row, in the semiring."""

    of: Column


@dataclass(frozen=True, eq=False)
class Join(Column):
    """`join c0 c1`: one after the other."""

    of: tuple[Column, ...]


@dataclass(frozen=True, eq=False)
class Reshape(Column):
    """`reshape c0`: lanes as rows, or rows as lanes."""

    of: Column


@dataclass(frozen=True, eq=False)
class Apply(Column):
    """`exp c0`: an operation of `algebra.expr` on each row, or the product `times` of the semiring."""

    operation: str
    operands: tuple[Column, ...]


def is_column(value: Any) -> bool:
    return isinstance(value, Column)


def ordered(results: Iterable[Column]) -> list[Column]:
    """The columns that these need, and they themselves, each after what it is made of."""
    found: dict[int, Column] = {}
    stack = [(column, False) for column in results]
    while stack:
        column, is_ready = stack.pop()
        if id(column) in found:
            continue
        if is_ready:
            found[id(column)] = column
        else:
            stack.append((column, True))
            stack += [(part, False) for part in column.parts]
    return list(found.values())


def to_text(results: Sequence[Column]) -> str:
    """The printed form, a line for each column."""
    names: dict[int, str] = {}
    lines = []
    for number, column in enumerate(ordered(results)):
        names[id(column)] = f"c{number}"
        of = " ".join(names[id(part)] for part in column.parts)
        match column:
            case Given():
                what = f"given {column.name}"
            case Constant():
                what = "constant" if np.ndim(column.values) else f"constant {column.values}"
            case Apply():
                what = f"{column.operation} {of}"
            case FoldLanes():
                what = f"fold lanes {of}"
            case _:
                what = f"{type(column).__name__.lower()} {of}"
        shape = f" [{', '.join(map(str, column.shape))}]" if column.shape else ""
        lines.append(f"c{number} = {what}{shape}")
    return "\n".join(lines)


def check(results: Sequence[Column]) -> None:
    """The validator. Raises ShapeError for lengths that do not fit, LayoutError for rows that are not there."""
    for column in ordered(results):
        match column:
            case Take():
                _check_rows(column.rows, column.length, column.of.length)
            case Fold():
                _check_rows(column.rows, column.of.length, column.length)
            case Join():
                if sum(part.length or 0 for part in column.of) != column.length:
                    raise ShapeError(f"{column.length} rows are no {len(column.of)} parts")
            case Reshape():
                if np.prod(column.shape) != np.prod(column.of.shape):
                    raise ShapeError(f"{column.of.shape} is not reshaped to {column.shape}")
            case Apply():
                wrong = [x for x in column.operands if x.length not in (None, column.length)]
                wrong += [x for x in column.operands if x.lanes not in (None, column.lanes)]
                if wrong:
                    raise ShapeError(f"`{column.operation}` of {column.shape} is given {wrong[0].shape}")


def _check_rows(rows: np.ndarray, count: int | None, end: int | None) -> None:
    if len(rows) != count:
        raise ShapeError(f"{len(rows)} rows are told for {count}")
    if len(rows) and (rows.min() < 0 or end is None or rows.max() >= end):
        raise LayoutError(f"rows {rows.min()} to {rows.max()} of {end}")


def evaluate(results: Sequence[Column], given: Mapping[str, Any], semiring: Semiring) -> list[np.ndarray]:
    """What operations mean: columns [row, lane] by NumPy, slowly.

    given  {name: values [entry], or a number}
    """
    values: dict[int, Any] = {}
    for column in ordered(results):
        values[id(column)] = _value(column, [values[id(part)] for part in column.parts], given, semiring)
    return [np.asarray(values[id(column)]) for column in results]


def _value(column: Column, parts: list[Any], given: Mapping[str, Any], semiring: Semiring) -> Any:
    match column:
        case Given():
            return np.asarray(given[column.name])
        case Constant():
            return np.asarray(column.values)
        case Take():
            return parts[0][column.rows]
        case Fold():
            found = np.full(column.shape, semiring.zero)
            for row, value in zip(column.rows, parts[0]):
                found[row] = semiring.plus(found[row], value)
            return found
        case FoldLanes():
            found = np.full(column.shape, semiring.zero)
            for value in parts[0].T:
                found = semiring.plus(found, value)
            return found
        case Join():
            return np.concatenate(parts)
        case Reshape():
            return parts[0].reshape(column.shape)
        case Apply():
            aligned = [x[..., None] if x.ndim and x.ndim < len(column.shape) else x for x in parts]
            with np.errstate(all="ignore"):
                if column.operation == "times":
                    found = semiring.times(*aligned)
                else:
                    found = OPERATIONS[column.operation].meaning(*aligned)
            return np.broadcast_to(found, column.shape)
    raise AssertionError(column)
