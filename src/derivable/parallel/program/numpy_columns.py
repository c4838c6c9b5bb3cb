"""Column programs on NumPy arrays: the interpreter, which says what programs mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra.expr import interpreter
from derivable.algebra.expr.operations import OPERATIONS
from derivable.algebra.semiring import Semiring
from derivable.algebra.typed import TypedMonoid
from derivable.parallel import dispatch
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Arrays, Room


@dataclass(frozen=True, eq=False)
class Known:
    """A set of rows, as they came, of which the first `before` were there before the last insertion."""

    columns: list[np.ndarray]
    before: int

    def __len__(self) -> int:
        return len(self.columns[0])


class NumPy(Arrays):
    """Columns as NumPy arrays.

    semiring  of programs that say `times` and `plus`
    """

    def __init__(self, semiring: Semiring | None = None):
        self.semiring = semiring

    def constant(self, values: Any, dtype: str, count: int | None) -> np.ndarray:
        array = np.asarray(values) if dtype == n.VALUE else np.asarray(values, dtype)
        return array if count is None or array.ndim else np.full(count, array)

    def gather(self, of: np.ndarray, rows: np.ndarray, otherwise: Any) -> np.ndarray:
        if otherwise is None:
            return dispatch.gather(of, rows)
        chosen, there = otherwise.copy(), rows >= 0
        chosen[there] = of[rows[there]]
        return chosen

    def fold(
        self, of: list[Any], rows: np.ndarray, count: int, monoid: TypedMonoid | None, is_sorted: bool
    ) -> list[np.ndarray]:
        if monoid is None:
            assert self.semiring is not None
            zero = np.full((count, *of[0].shape[1:]), self.semiring.zero)
            plus = self.semiring.plus
            for row, value in zip(rows, of[0]):
                zero[row] = plus(zero[row], value)
            return [zero]
        order = slice(None) if is_sorted else np.argsort(rows, kind="stable")
        parts, rows = [part[order] for part in of], rows[order]
        lengths = np.bincount(rows, minlength=count)
        starts = np.cumsum(lengths) - lengths
        found = [np.full(count, neutral, part.dtype) for neutral, part in zip(monoid.neutral, parts)]
        groups, step = np.flatnonzero(lengths), 0
        while len(groups):
            more = [part[starts[groups] + step] for part in parts]
            if step:
                more = monoid.apply([x[groups] for x in found], more)
            for x, new in zip(found, more):
                x[groups] = new
            step += 1
            groups = groups[lengths[groups] > step]
        return found

    def fold_lanes(self, of: np.ndarray) -> np.ndarray:
        assert self.semiring is not None
        found = np.full(len(of), self.semiring.zero)
        for value in of.T:
            found = self.semiring.plus(found, value)
        return found

    def apply(
        self, function: n.Function | str, operands: list[Any], count: int | None, lanes: int | None
    ) -> list[np.ndarray]:
        shape = tuple(x for x in (count, lanes) if x is not None)
        aligned = [x[..., None] if np.ndim(x) and np.ndim(x) < len(shape) else x for x in operands]
        with np.errstate(all="ignore"):
            if not isinstance(function, str):
                found = interpreter(function.values)(function.by_index(aligned))
            elif function == "times":
                assert self.semiring is not None
                found = (self.semiring.times(*aligned),)
            else:
                found = (OPERATIONS[function].meaning(*aligned),)
        return [np.broadcast_to(x, shape) for x in found]

    def bits(self, of: np.ndarray) -> np.ndarray:
        if of.dtype == np.float64:
            return (of + 0.0).view(np.int64)
        return np.ascontiguousarray(of).view(np.float64)

    def concatenate(self, parts: list[Any]) -> np.ndarray:
        return np.concatenate(parts)

    def zeros(self, shape: Sequence[int], like: np.ndarray) -> np.ndarray:
        return np.zeros(shape, like.dtype)

    def add_at(self, of: np.ndarray, rows: np.ndarray, more: np.ndarray) -> np.ndarray:
        np.add.at(of, rows, more)
        return of

    def compact(self, mask: np.ndarray) -> np.ndarray:
        return np.flatnonzero(mask)

    def build(self, columns: list[Any], types: list[n.Type], count: int, is_sorted: bool) -> tuple[tuple, np.ndarray]:
        """An index: the columns in order, and where each row stood."""
        if not columns:
            return (np.zeros(count, np.int64),), np.arange(count)
        return dispatch.sort(tuple(columns))

    def join(self, probes: list[Any], index: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
        ordered, place = self.build(probes, [], count, False)
        left, right = dispatch.join(ordered, tuple(index[0]))
        left, right = place[left], index[1][right]
        order = np.lexsort((right, left))
        return left[order], right[order]

    def find(self, probes: list[Any], index: Any, count: int) -> np.ndarray:
        left, right = self.join(probes, index, count)
        rows = np.full(count, -1, np.int64)
        rows[left] = right
        return rows

    def sort(self, columns: list[Any], types: list[n.Type], count: int) -> np.ndarray:
        return dispatch.sort(tuple(columns))[1]

    def unique(self, columns: list[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
        _, offsets = dispatch.unique(tuple(columns))
        return offsets[:-1], np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))

    def insert(self, columns: list[Any], types: list[n.Type], known: Any, room: Room) -> Sequence[Any]:
        there, count = ([], 0) if known is None else (known.columns, len(known))
        both = [np.concatenate(pair) for pair in zip(there, columns)] if there else columns
        order = self.sort(both, types, len(both[0]))
        first, _ = self.unique([column[order] for column in both], len(order))
        rows = np.sort(order[first])
        fresh = [column[rows[count:]] for column in both]
        return Known([np.concatenate(pair) for pair in zip(there, fresh)] if there else fresh, count), *fresh

    def locate(self, columns: list[Any], types: list[n.Type], known: Known) -> np.ndarray:
        return self.find(columns, self.build(known.columns, types, len(known), False), len(columns[0]))

    def put_at(self, of: np.ndarray, rows: np.ndarray, values: np.ndarray, is_own: bool) -> np.ndarray:
        found = of if is_own else of.copy()
        found[rows] = values
        return found

    def elements(self, known: Known, is_earlier: bool) -> Sequence[Any]:
        return [column[: known.before] if is_earlier else column for column in known.columns]

    def to_host(self, column: Any, dtype: Any = None) -> np.ndarray:
        return column if dtype is None else column.astype(dtype)
