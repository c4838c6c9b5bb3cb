"""Rounds of loops as rows, and what stands in each row: numbers, tensors, entries.

A frame has a row for each round of a sum, in all rounds of the sums outside; what is computed once for several rows
stands in a frame further out, and is taken from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from derivable.parallel.program.nodes import Column
from derivable.tensor.language.types import Type
from derivable.tensor.lower.tree import Tree


@dataclass(frozen=True, eq=False)
class Frame:
    """All rounds of some sums.

    count   of rows
    parent  the frame of the sums outside, None for the outermost, which has one row
    rows    [row] the row of the parent; None if they are the same
    lanes   of each row, None for one
    """

    count: int
    parent: Frame | None = None
    rows: np.ndarray | None = None
    lanes: int | None = None
    depth: int = 0
    _known: dict = field(default_factory=dict, repr=False)

    def inside(self, rows: np.ndarray | None, lanes: int | None = None) -> Frame:
        count = self.count if rows is None else len(rows)
        return Frame(count, self, rows, lanes or self.lanes, self.depth + 1)

    def rows_of(self, outer: Frame) -> np.ndarray | None:
        """[row] the row of a frame outside; None if they are the same."""
        if self is outer:
            return None
        if id(outer) not in self._known:
            assert self.parent is not None
            above = self.parent.rows_of(outer)
            mine = self.rows
            self._known[id(outer)] = mine if above is None else above if mine is None else above[mine]
        return self._known[id(outer)]


@dataclass(frozen=True, eq=False)
class Scalar:
    """A number for each row.

    values  a column of reals or of truth values; an array [row] or a number of Python where it is known already
    exists  [row] bool: where it has a value; None if everywhere
    """

    values: Any
    exists: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class View:
    """A tensor for each row: what is below a node of a tree, -1 for nothing. Without a tree no row has an entry."""

    tree: Tree | None
    depth: int
    nodes: np.ndarray

    @property
    def order(self) -> int:
        return len(self.tree.levels) - self.depth if self.tree else 0


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of the tensors of a frame, in any order; those of the same row and indices add up.

    rows    [entry]
    keys    [axis][entry] indices
    lanes   how many there are of each: then the last axis has the indices from 0 on, one for each lane
    values  [entry] or [entry, lane]
    """

    rows: np.ndarray
    keys: tuple[np.ndarray, ...]
    values: Column
    lanes: int | None = None

    @property
    def order(self) -> int:
        return len(self.keys) + (self.lanes is not None)


class _Lane:
    """The index of a lane."""


LANE = _Lane()


@dataclass(frozen=True, eq=False)
class Bound:
    """What a name stands for in each row of the frame in which it is bound."""

    frame: Frame
    value: Scalar | View
    type: Type | None


Names = Mapping[str, Bound]


class NeedsRows(Exception):
    """What is done with an index needs a row of its own for it."""
