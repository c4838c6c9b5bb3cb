"""The semiring dictionary: keys with values in a semiring; what a relation and a sparse tensor both are.

Key columns are sorted lexicographically, every key occurs once, and an absent key has the semiring's
zero. So a relation is a dictionary in the boolean semiring (or in that of its tags), a sparse matrix one
with the keys row and column in the real semiring, a histogram one with a single key.

    >>> edge = SemiringDictionary.from_pairs({"x": [0, 0, 1], "y": [1, 2, 2]}, [4.0, 9.0, 3.0], "min_plus")
    >>> step = edge.rename({"x": "y", "y": "z"})
    >>> edge.join(step).project(["x", "z"]).to_dict()
    {(0, 2): 7.0}
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import LayoutError, ShapeError, TypeMismatchError
from derivable.parallel import layout, reference


@dataclass(frozen=True, eq=False)
class SemiringDictionary:
    """An immutable dictionary; all operations give new ones and share columns where they can.

    names       [key column] names of the key columns; none makes the dictionary a scalar (0 or 1 rows)
    columns     [key column] arrays [row] of bool, integer or float dtype; rows sorted and distinct
    values      [row, *batch] in the semiring's carrier (counting: dtype object)
    semiring    plus combines equal keys, times the values of joined keys
    primitives  what computes: `derivable.parallel.reference`, or a device's functions of the same names
                (`derivable.device.primitives`)

    Printed form: `{(0, 2): 7.0}`.
    """

    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]
    values: np.ndarray
    semiring: Semiring
    primitives: Any = reference

    def __reduce__(self):
        # Modules cannot be pickled, their names can.
        return _rebuilt, (self.names, self.columns, self.values, self.semiring, self.primitives.__name__)

    @staticmethod
    def from_pairs(
        columns: Mapping[str, Any],
        values: Any = None,
        semiring: str | Semiring = "real",
        *,
        primitives: Any = reference,
    ) -> SemiringDictionary:
        """A dictionary from rows in any order; values of equal keys are combined with plus, in the order given.

        columns  name -> array [row]; without columns `values` must be given
        values   [row, *batch]; None gives every row the semiring's one

        Raises ShapeError if lengths differ, TypeMismatchError for values outside the carrier's dtype.
        """
        record = semirings.get(semiring)
        if not isinstance(columns, Mapping):
            raise ShapeError(f"columns is {columns!r}, not a mapping", hint="give {'name': array [row], ...}")
        arrays = tuple(np.asarray(column) for column in columns.values())
        # An empty list has no type of its own; float64 would not match integer keys elsewhere.
        arrays = tuple(
            array.astype(np.int64) if array.size == 0 and array.dtype == np.float64 and not _typed(given) else array
            for array, given in zip(arrays, columns.values())
        )
        if arrays:
            layout.check_columns(arrays)
        if values is None:
            if not arrays:
                raise ShapeError("neither key columns nor values are given", hint="give values for a scalar")
            values = np.full(len(arrays[0]), record.one, _default_dtype(record))
        checked = _carrier_values(values, record)
        if arrays and len(arrays[0]) != len(checked):
            raise ShapeError(f"the key columns have {len(arrays[0])} rows, the values {len(checked)}")
        return _combined(tuple(columns), arrays, checked, record, primitives)

    @staticmethod
    def empty(
        columns: Mapping[str, Any],
        semiring: str | Semiring = "real",
        *,
        dtype: Any = None,
        batch: tuple[int, ...] = (),
        primitives: Any = reference,
    ) -> SemiringDictionary:
        """The dictionary without keys. columns: name -> dtype; dtype: of the values."""
        record = semirings.get(semiring)
        arrays = tuple(np.empty(0, kind) for kind in columns.values())
        values = np.empty((0, *batch), _default_dtype(record) if dtype is None else dtype)
        return SemiringDictionary(tuple(columns), arrays, _carrier_values(values, record), record, primitives)

    def check(self) -> None:
        """Raise LayoutError or ShapeError at the first broken invariant of this class."""
        if len(set(self.names)) != len(self.names) or len(self.names) != len(self.columns):
            raise ShapeError(f"{len(self.columns)} columns have the names {self.names}")
        _carrier_values(self.values, self.semiring)
        if not self.columns:
            if len(self) > 1:
                raise LayoutError(f"a dictionary without key columns has {len(self)} rows")
            return
        layout.check_columns(self.columns)
        if len(self.columns[0]) != len(self):
            raise ShapeError(f"the key columns have {len(self.columns[0])} rows, the values {len(self)}")
        _, offsets = reference.unique(self.columns)
        repeated = np.flatnonzero(np.diff(offsets) > 1)
        if len(repeated):
            raise LayoutError(f"row {offsets[repeated[0]] + 1} repeats the key of the row before")

    # Looking

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple]:
        """The keys, as tuples of Python scalars, ascending."""
        if not self.columns:
            return iter([()] * len(self))
        return zip(*(column.tolist() for column in self.columns))

    def items(self) -> Iterator[tuple[tuple, Any]]:
        """(key, value) pairs, ascending by key."""
        return zip(self, self.values.tolist() if self.values.ndim == 1 else self.values)

    def to_dict(self) -> dict[tuple, Any]:
        """A Python dict from key tuples to values."""
        return dict(self.items())

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}: {value}" for (key, value), _ in zip(self.items(), range(8)))
        more = f", ... {len(self) - 8} more" if len(self) > 8 else ""
        return f"SemiringDictionary[{self.semiring.name}]({', '.join(self.names)}; {{{shown}{more}}})"

    def __contains__(self, key: tuple) -> bool:
        return bool(len(self._rows_of(key)))

    def __getitem__(self, key: Any) -> Any:
        """The value of one key (a tuple, or a scalar for a single column), zero if it is absent."""
        rows = self._rows_of(key if isinstance(key, tuple) else (key,))
        if len(rows):
            return self.values[rows[0]]
        return self._zeros(1)[0]

    def lookup(self, columns: Mapping[str, Any]) -> np.ndarray:
        """The values [k, *batch] of k keys given as columns [k] under this dictionary's names; zero if absent."""
        if set(columns) != set(self.names):
            raise ShapeError(f"keys have the columns {sorted(columns)}, the dictionary {sorted(self.names)}")
        wanted = tuple(np.asarray(columns[name]).astype(own.dtype) for name, own in zip(self.names, self.columns))
        if not wanted:
            raise ShapeError("a dictionary without key columns has no keys to look up", hint="read `values`")
        wanted, order = self.primitives.sort(wanted)
        at, rows = self.primitives.join(wanted, self.columns)
        found = self._zeros(len(order))
        found[order[at]] = self.values[rows]
        return found

    # Combining

    def union(self, other: SemiringDictionary) -> SemiringDictionary:
        """All keys of both; the values of common keys are combined with plus (this one's first).

        Raises ShapeError if the columns differ, TypeMismatchError if the semirings do.
        """
        self._check_same_semiring(other)
        if set(self.names) != set(other.names):
            raise ShapeError(f"the columns {self.names} and {other.names} differ", hint="`project` or `rename` first")
        theirs = [other.columns[other.names.index(name)] for name in self.names]
        for name, mine, their in zip(self.names, self.columns, theirs):
            _check_dtypes(name, mine, their)
        columns = tuple(np.concatenate(pair) for pair in zip(self.columns, theirs))
        values = np.concatenate([self.values, other.values])
        return _combined(self.names, columns, values, self.semiring, self.primitives)

    def join(self, other: SemiringDictionary) -> SemiringDictionary:
        """The natural join: keys that agree on the columns of the same name, values combined with times.

        The result has this one's columns, then the other's own. Without common names it is the product of
        all keys; with all names common, the intersection.
        """
        self._check_same_semiring(other)
        left, right = self._matches(other)
        own = [position for position, name in enumerate(other.names) if name not in self.names]
        columns = (
            *(self.primitives.gather(column, left) for column in self.columns),
            *(self.primitives.gather(other.columns[position], right) for position in own),
        )
        names = (*self.names, *(other.names[position] for position in own))
        with np.errstate(all="ignore"):
            values = np.asarray(self.semiring.times(self.values[left], other.values[right]))
        # Keys are distinct, but they need sorting.
        return _combined(names, columns, _carrier_values(values, self.semiring), self.semiring, self.primitives)

    def project(self, names: Sequence[str]) -> SemiringDictionary:
        """Only the key columns `names`, in that order; values of keys that become equal are combined with plus."""
        columns = tuple(self.columns[self._position(name)] for name in names)
        if len(set(names)) != len(tuple(names)):
            raise ShapeError(f"a name repeats in {tuple(names)}")
        return _combined(tuple(names), columns, self.values, self.semiring, self.primitives)

    def rename(self, names: Mapping[str, str]) -> SemiringDictionary:
        """The same columns under other names (old -> new); the order of columns stays."""
        for name in names:
            self._position(name)
        renamed = tuple(names.get(name, name) for name in self.names)
        if len(set(renamed)) != len(renamed):
            raise ShapeError(f"renaming makes the names {renamed}, where one repeats")
        return SemiringDictionary(renamed, self.columns, self.values, self.semiring, self.primitives)

    # Selecting

    def filter(self, condition: Any) -> SemiringDictionary:
        """The rows where `condition` holds: a bool array [row], or a function of the key columns that gives one."""
        mask = np.asarray(condition(*self.columns) if callable(condition) else condition)
        if mask.shape != (len(self),) or mask.dtype != np.bool_:
            raise ShapeError(f"the condition is {mask.dtype} {mask.shape}, not bool ({len(self)},)")
        return self._rows(np.flatnonzero(mask))

    def restrict(self, other: SemiringDictionary, *, keep: bool = True) -> SemiringDictionary:
        """The rows whose common columns occur as a key of `other` (keep=False: do not occur); values stay."""
        found = np.zeros(len(self), bool)
        found[self._matches(other)[0]] = True
        return self._rows(np.flatnonzero(found == keep))

    def without_zeros(self) -> SemiringDictionary:
        """The rows whose value is not the semiring's zero everywhere in the batch: the same dictionary, smaller."""
        nonzero = np.asarray(self.values != self.semiring.zero).any(axis=tuple(range(1, self.values.ndim)))
        return self._rows(np.flatnonzero(nonzero))

    def map_values(self, function: Callable[[np.ndarray], Any]) -> SemiringDictionary:
        """The same keys with `function(values)`, an array with as many rows."""
        values = _carrier_values(function(self.values), self.semiring)
        if len(values) != len(self):
            raise ShapeError(f"the function gives {len(values)} values for {len(self)} keys")
        return SemiringDictionary(self.names, self.columns, values, self.semiring, self.primitives)

    def total(self) -> Any:
        """The plus of all values, [*batch]; zero for none."""
        offsets = np.array([0, len(self)], np.int64)
        return self.primitives.segment_reduce(self.values, offsets, self.semiring.addition)[0]

    # Inside

    def _zeros(self, count: int) -> np.ndarray:
        zeros = np.empty((count, *self.values.shape[1:]), self.values.dtype)
        zeros[...] = self.semiring.zero
        return zeros

    def _rows(self, rows: np.ndarray) -> SemiringDictionary:
        columns = tuple(self.primitives.gather(column, rows) for column in self.columns)
        values = self.primitives.gather(self.values, rows)
        return SemiringDictionary(self.names, columns, values, self.semiring, self.primitives)

    def _rows_of(self, key: tuple) -> np.ndarray:
        if len(key) != len(self.columns):
            raise ShapeError(f"the key {key!r} has {len(key)} parts, the dictionary {len(self.columns)} key columns")
        low, high = 0, len(self)
        # Columns are sorted one within the other, so each narrows the range of the one before.
        for column, part in zip(self.columns, key):
            part = np.asarray(part)
            if part.ndim != 0 or part.dtype.kind not in "biuf":
                raise TypeMismatchError(f"{part!r} is no part of a key", hint="keys are tuples of numbers")
            low, high = (
                low + int(np.searchsorted(column[low:high], part, "left")),
                low + int(np.searchsorted(column[low:high], part, "right")),
            )
        return np.arange(low, high)

    def _position(self, name: str) -> int:
        if name not in self.names:
            raise ShapeError(f"there is no key column {name!r}", hint=f"columns are {', '.join(self.names) or 'none'}")
        return self.names.index(name)

    def _check_same_semiring(self, other: SemiringDictionary) -> None:
        if self.semiring != other.semiring:
            raise TypeMismatchError(
                f"the semirings {self.semiring.name} and {other.semiring.name} differ",
                hint="convert the values of one of them",
            )

    def _matches(self, other: SemiringDictionary) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of rows that agree on the common columns."""
        common = [name for name in self.names if name in other.names]
        if not common:
            return np.repeat(np.arange(len(self)), len(other)), np.tile(np.arange(len(other)), len(self))
        sides, orders = [], []
        for side in (self, other):
            columns = tuple(side.columns[side._position(name)] for name in common)
            columns, order = self.primitives.sort(columns)
            sides.append(columns)
            orders.append(order)
        for name, mine, their in zip(common, *sides):
            _check_dtypes(name, mine, their)
        left, right = self.primitives.join(*sides)
        return orders[0][left], orders[1][right]


def _combined(
    names: tuple[str, ...], columns: tuple[np.ndarray, ...], values: np.ndarray, semiring: Semiring, primitives: Any
) -> SemiringDictionary:
    """Sort rows and fold the values of equal keys."""
    keys = columns if columns else (np.zeros(len(values), np.int64),)
    ordered, order = primitives.sort(keys)
    distinct, offsets = primitives.unique(ordered)
    values = primitives.gather(values, order)
    if len(offsets) - 1 < len(values):
        values = primitives.segment_reduce(values, offsets, semiring.addition)
    return SemiringDictionary(names, distinct if columns else (), values, semiring, primitives)


def _rebuilt(names, columns, values, semiring: Semiring, primitives: str) -> SemiringDictionary:
    return SemiringDictionary(names, columns, values, semiring, importlib.import_module(primitives))


def _typed(given: Any) -> bool:
    return isinstance(given, np.ndarray)


def _default_dtype(semiring: Semiring) -> Any:
    return {"float": np.float64, "bool": np.bool_, "integer": np.object_}[semiring.carrier]


def _carrier_values(values: Any, semiring: Semiring) -> np.ndarray:
    if not semiring.is_scalar:
        raise TypeMismatchError(
            f"a dictionary has scalar values, and those of {semiring.name!r} are {semiring.element}"
        )
    array = np.asarray(values)
    if array.ndim == 0:
        raise ShapeError("the values are a scalar, not an array [row, *batch]")
    if semiring.carrier == "integer":
        if array.dtype.kind in "iu":
            return array.astype(object)
        if array.dtype.kind == "O" or array.size == 0:
            return array.astype(object)
    elif semiring.carrier == "bool":
        if array.dtype.kind == "b" or array.size == 0:
            return array.astype(np.bool_)
    elif array.dtype in (np.float32, np.float64):
        return array
    elif array.dtype.kind in "iu":
        return array.astype(np.float64)
    raise TypeMismatchError(
        f"values of dtype {array.dtype} are not in the carrier of {semiring.name} ({semiring.carrier})",
        hint="convert them with `astype`",
    )


def _check_dtypes(name: str, mine: np.ndarray, their: np.ndarray) -> None:
    if mine.dtype != their.dtype:
        raise ShapeError(f"the key column {name!r} is {mine.dtype} here and {their.dtype} there")
