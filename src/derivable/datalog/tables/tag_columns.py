"""Columns of tags: arrays [row], or of nests a structure of arrays, one per scalar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.device.cpu.memory import longer


class Columns:
    """Tags of several scalars each, as a structure of arrays [row], indexed like one array."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[np.ndarray]):
        self.parts = tuple(parts)

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, rows: Any) -> Columns:
        return Columns([part[rows] for part in self.parts])

    def __setitem__(self, rows: Any, values: Columns) -> None:
        for part, value in zip(self.parts, values.parts):
            part[rows] = value


Tags = np.ndarray | Columns


def parts_of(tags: Tags) -> tuple[np.ndarray, ...]:
    return tags.parts if isinstance(tags, Columns) else (tags,)


def column_of(parts: Sequence[np.ndarray]) -> Tags:
    return parts[0] if len(parts) == 1 else Columns(parts)


def concatenate(columns: Sequence[Tags]) -> Any:
    """One tag column after the other."""
    return column_of([np.concatenate(parts) for parts in zip(*map(parts_of, columns))])


def longer_tags(tags: Tags, count: int, start: int) -> Any:
    """A column of `count` rows that begins with the first `start`; see `device.cpu.memory.longer`."""
    return column_of([longer(part, count, start) for part in parts_of(tags)])


def repeat(tags: Tags, count: int) -> Any:
    """Each row `count` times."""
    return column_of([np.repeat(part, count) for part in parts_of(tags)])


def within(lengths: np.ndarray) -> np.ndarray:
    """0..n-1 for each length n, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def reduce_segments(column: Any, offsets: np.ndarray, plus: Callable[[Any, Any], Any]) -> Any:
    """Fold each segment [segment] of a column; segments are not empty.

    Neighbours are added in pairs until every segment has one row: log(longest segment) column operations.
    """
    lengths = np.diff(offsets)
    while len(column) > len(lengths):
        position = within(lengths)
        has_next = position + 1 < np.repeat(lengths, lengths)
        left = np.flatnonzero((position % 2 == 0) & has_next)
        even = np.flatnonzero(position % 2 == 0)
        folded = column[even]
        folded[has_next[even]] = plus(column[left], column[left + 1])
        column = folded
        lengths = (lengths + 1) // 2
    return column


def fold_in_order(column: Any, offsets: np.ndarray, plus: Callable[[Any, Any], Any]) -> Any:
    """Fold each segment [segment] of a column from its first row to its last; segments are not empty.

    One column operation for each position of the longest segment.
    """
    lengths = np.diff(offsets)
    # The segments that reach a position are the first ones.
    order = np.argsort(-lengths, kind="stable")
    starts, ends = offsets[:-1][order], -lengths[order]
    folded = column[starts]
    for position in range(1, int(lengths.max(initial=0))):
        count = int(np.searchsorted(ends, -position))
        folded[:count] = plus(folded[:count], column[starts[:count] + position])
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return folded[ranks]
