"""The facts of one relation as columns of words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from derivable.datalog.policy.costs import policy
from derivable.datalog.tables import scan
from derivable.device.cpu.memory import contiguous, empty

if TYPE_CHECKING:
    from derivable.datalog.tables.storage import Table

CERTAIN = np.int64(-1)
# Holes are closed when they are more than one in this number of the facts that are stored: then few are merged.
MOST_HOLES = 8
_NONE = np.empty(0, np.int64)
# To broadcast takes longer than the facts of a small run do.
_FEW_CERTAIN = np.broadcast_to(CERTAIN, 1 << 10)


class FactPart:
    """Facts that came together: word columns [column][row] and the variable of each fact, -1 if it is certain.

    Columns of a caller's arrays stay what they are: words are then of a smaller integer type, and may have gaps.
    Facts that go leave holes, which are closed when somebody reads all of them.
    """

    def __init__(self, columns: list[np.ndarray], variables: np.ndarray, holes: np.ndarray = _NONE):
        """holes  the rows, in order, that are no facts any more"""
        # One attribute: databases that share a part may close its holes in several threads.
        self.stored = columns, variables, holes

    def __len__(self) -> int:
        _, variables, holes = self.stored
        return len(variables) - len(holes)

    def without(self, rows: np.ndarray) -> FactPart:
        """The part without some more of the rows that are stored."""
        if not len(rows):
            return self
        columns, variables, holes = self.stored
        made = FactPart(columns, variables, np.sort(np.concatenate([holes, rows]), kind="stable"))
        if MOST_HOLES * len(made.stored[2]) > len(variables):
            made.dense()
        return made

    def among(self, tuples: Table) -> tuple[np.ndarray, np.ndarray]:
        """(rows that are stored, their numbers there) of the facts whose tuples a table, with few, has."""
        columns, variables, holes = self.stored
        rows, numbers = scan.among(tuples, columns, len(variables))
        stays = ~np.isin(rows, holes)
        return rows[stays], numbers[stays]

    def among_distinct(self, tuples: Table) -> tuple[np.ndarray, np.ndarray] | None:
        """`among` of facts of which none comes twice, by bisection, as if they were in the order of a column; None if
        that misses some. What it meets is there, in whatever order facts are.
        """
        columns, variables, holes = self.stored
        for position, column in enumerate(columns):
            starts, stops = _bisected(column, len(variables), tuples.column(position))
            counts = np.maximum(stops - starts, 0)
            if counts.sum() > policy().rows_a_pass * tuples.size:
                continue
            rows = np.unique(np.arange(counts.sum()) + (starts - np.cumsum(counts) + counts).repeat(counts))
            numbers = tuples.find([np.asarray(other[rows], np.int64) for other in columns], len(rows))
            stays = (numbers >= 0) & ~np.isin(rows, holes)
            if np.count_nonzero(stays) == tuples.size:
                return rows[stays], numbers[stays]
        return None

    def dense(self) -> tuple[list[np.ndarray], np.ndarray]:
        """(columns, variables) of all facts."""
        columns, variables, holes = self.stored
        if len(holes):
            count = len(variables) - len(holes)
            columns = [np.delete(column, holes) for column in columns]
            variables = certain(count) if variables.strides == (0,) else np.delete(variables, holes)
            self.stored = columns, variables, _NONE
        return columns, variables


def _bisected(column: np.ndarray, count: int, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the words of a column, if they are in order, are those that are wanted: (begins, ends)."""
    is_end, wanted = np.arange(2 * len(wanted)) >= len(wanted), np.tile(wanted, 2)
    low, high = np.zeros(len(wanted), np.int64), np.full(len(wanted), count)
    for _ in range(count.bit_length()):
        middle = (low + high) >> 1
        words = column[np.minimum(middle, count - 1)]
        is_below = ((words < wanted) | (is_end & (words == wanted))) & (middle < high)
        low, high = np.where(is_below, middle + 1, low), np.where(is_below, high, middle)
    starts, stops = low.reshape(2, -1)
    return starts, stops


class FactColumns:
    """The facts of one relation, in parts."""

    def __init__(self, columns: Sequence[list[np.ndarray]] = (), variables: Sequence[np.ndarray] = ()):
        self.parts = [FactPart(*part) for part in zip(columns, variables, strict=True)]

    @staticmethod
    def of(parts: Iterable[FactPart]) -> FactColumns:
        made = FactColumns()
        made.parts = list(parts)
        return made

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def columns(self) -> list[list[np.ndarray]]:
        """[part][column] words [row]."""
        return [part.dense()[0] for part in self.parts]

    @property
    def variables(self) -> list[np.ndarray]:
        """[part] the variables [row]."""
        return [part.dense()[1] for part in self.parts]

    def append(self, columns: list[np.ndarray], variables: np.ndarray) -> None:
        self.parts.append(FactPart(columns, variables))

    def joined(self, width: int) -> tuple[list[np.ndarray], np.ndarray]:
        """(columns [row] int64, variables) of all facts."""
        columns, variables = self.as_stored(width)
        return [contiguous(column, np.int64) for column in columns], variables

    def as_stored(self, width: int) -> tuple[list[np.ndarray], np.ndarray]:
        """The same, with columns as they are."""
        if not self.parts:
            return [np.empty(0, dtype=np.int64) for _ in range(width)], np.empty(0, dtype=np.int64)
        if len(self.parts) == 1:
            return self.parts[0].dense()
        parts, variables = self.columns, self.variables
        columns = [concatenated([part[c] for part in parts]) for c in range(width)]
        if all(part.strides == (0,) for part in variables):
            return columns, certain(len(self))
        return columns, np.concatenate(variables)


def certain(count: int) -> np.ndarray:
    """[fact] the variables of facts that are certain, all on one word of memory."""
    return _FEW_CERTAIN[:count] if count <= len(_FEW_CERTAIN) else np.broadcast_to(CERTAIN, count)


def any_random(variables: np.ndarray) -> bool:
    """Whether one of these variables of facts is that of a random one."""
    # To reduce an array that is all on one word takes 1 ns for each fact.
    variables = variables[:1] if variables.strides == (0,) else variables
    return bool(variables.max(initial=CERTAIN) >= 0)


def concatenated(parts: list[np.ndarray]) -> np.ndarray:
    """[row] one column of these, of a type that holds the words of all."""
    whole = empty(sum(map(len, parts)), np.result_type(*parts))
    return np.concatenate(parts, out=whole)
