"""Where the entries of tensors are, as trees.

There is a level for each axis, whose nodes are the indices that occur below a node of the level before. The values are
a column, one for each node of the last level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from derivable.core.graph import offsets_of
from derivable.parallel.program.nodes import Column


class Level(ABC):
    """The nodes below those of the level before, numbered one after the other."""

    @abstractmethod
    def counts(self, nodes: np.ndarray) -> np.ndarray:
        """[node] how many are below each."""

    @abstractmethod
    def starts(self, nodes: np.ndarray) -> np.ndarray:
        """[node] the first of those below each."""

    @abstractmethod
    def keys(self, below: np.ndarray) -> np.ndarray:
        """[node of this level] its index."""

    @abstractmethod
    def find(self, nodes: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """[node] the one below each that has an index, -1 where there is none or where the node is -1."""


@dataclass(frozen=True)
class Dense(Level):
    """Every index from 0 to size - 1."""

    size: int

    def counts(self, nodes: np.ndarray) -> np.ndarray:
        return np.full(len(nodes), self.size)

    def starts(self, nodes: np.ndarray) -> np.ndarray:
        return nodes * self.size

    def keys(self, below: np.ndarray) -> np.ndarray:
        return below % self.size

    def find(self, nodes: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return np.where((nodes >= 0) & (keys >= 0) & (keys < self.size), nodes * self.size + keys, -1)


@dataclass(frozen=True, eq=False)
class Stored(Level):
    """offsets [node above + 1], held [node]: the indices below each, ascending."""

    offsets: np.ndarray
    held: np.ndarray

    def counts(self, nodes: np.ndarray) -> np.ndarray:
        return self.offsets[nodes + 1] - self.offsets[nodes]

    def starts(self, nodes: np.ndarray) -> np.ndarray:
        return self.offsets[nodes]

    def keys(self, below: np.ndarray) -> np.ndarray:
        return self.held[below]

    def find(self, nodes: np.ndarray, keys: np.ndarray) -> np.ndarray:
        if not len(self.held):
            return np.full(len(nodes), -1)
        low, span, codes = self._codes
        wanted = nodes * span + (keys - low)
        inside = (nodes >= 0) & (keys >= low) & (keys < low + span)
        found = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return np.where(inside & (codes[found] == wanted), found, -1)

    @cached_property
    def _codes(self) -> tuple[int, int, np.ndarray]:
        """(the least index, how many there may be, a number for each node that ascends)"""
        low = int(self.held.min())
        span = int(self.held.max()) - low + 1
        above = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return low, span, above * span + (self.held - low)


@dataclass(frozen=True, eq=False)
class Tree:
    levels: tuple[Level, ...]
    values: Column


def levels_of(count: int, rows: np.ndarray, keys: Sequence[np.ndarray]) -> list[Level]:
    """The levels of tensors, one for each of `count` rows, from entries in lexicographic order, each once."""
    levels: list[Level] = []
    above, is_new = None, np.zeros(len(rows), bool)
    is_new[:1] = True
    is_new[1:] = rows[1:] != rows[:-1]
    for key in keys:
        is_new[1:] |= key[1:] != key[:-1]
        starts = np.flatnonzero(is_new)
        if above is None:
            offsets = offsets_of(np.bincount(rows[starts], minlength=count))
        else:
            offsets = np.append(np.searchsorted(starts, above), len(starts))
        levels.append(Stored(offsets.astype(np.int64), key[starts]))
        above = starts
    return levels
