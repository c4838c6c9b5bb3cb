"""What the executor does with tags: nothing, columns of a provenance, or nodes of the ground derivation graph.

One interface for the three: `load` the tags of rows, `combine` those of two sides of a join, `take` some rows,
`unmatched`/`matched` sides of a difference, and for aggregates `one`, `zero`, `plus`, `times`, `negate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.datalog.ground_graph import FALSE, TRUE, GroundGraph, negate
from derivable.datalog.provenance.record import Provenance


class Untagged:
    """No tags: a row is there or not. In a support run (`graph` tables below) an uncertain row does not block."""

    is_tagged = False

    def load(self, table, rows) -> Any:
        return None

    def combine(self, a: Any, b: Any) -> Any:
        return None

    def take(self, tags: Any, rows) -> Any:
        return None

    def start(self, count: int) -> Any:
        return None

    def concatenate(self, parts: Sequence[Any]) -> Any:
        return None


class ColumnTags:
    """Tag columns of a provenance."""

    is_tagged = True

    def __init__(self, provenance: Provenance):
        self.provenance = provenance

    def load(self, table, rows) -> np.ndarray:
        return table.tags[: table.size][rows]

    def combine(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.provenance.times(a, b)

    def take(self, tags: np.ndarray, rows) -> np.ndarray:
        return tags[rows]

    def start(self, count: int) -> np.ndarray:
        return self.one(count)

    def concatenate(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts)

    # Aggregates

    def one(self, count: int) -> np.ndarray:
        return np.full(count, self.provenance.one, dtype=self.provenance.dtype)

    def zero(self, count: int) -> np.ndarray:
        return np.full(count, self.provenance.zero, dtype=self.provenance.dtype)

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.provenance.plus(a, b)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.provenance.times(a, b)

    def negate(self, a: np.ndarray) -> np.ndarray:
        assert self.provenance.negate is not None
        return self.provenance.negate(a)

    def is_one(self, a: np.ndarray) -> np.ndarray:
        return a == self.provenance.one

    def is_zero(self, a: np.ndarray) -> np.ndarray:
        return self.provenance.discard(a)

    def reduce(self, tags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return self.provenance.reduce(tags, offsets)


class GraphTags:
    """Nodes of the ground derivation graph. While a query runs, tags are the list of factor columns."""

    is_tagged = True

    def __init__(self, graph: GroundGraph):
        self.graph = graph

    def load(self, table, rows) -> list[np.ndarray]:
        return [table.tags[: table.size][rows]]

    def combine(self, a: list[np.ndarray], b: list[np.ndarray]) -> list[np.ndarray]:
        return a + b

    def take(self, tags: list[np.ndarray], rows) -> list[np.ndarray]:
        return [t[rows] for t in tags]

    def start(self, count: int) -> list[np.ndarray]:
        return []

    def concatenate(self, parts: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
        return [np.concatenate(columns) for columns in zip(*parts)]

    # Aggregates

    def one(self, count: int) -> np.ndarray:
        return np.full(count, TRUE, dtype=np.int64)

    def zero(self, count: int) -> np.ndarray:
        return np.full(count, FALSE, dtype=np.int64)

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        count = len(a)
        segments = np.arange(count, dtype=np.int64)
        return self.graph.disjunction_by(np.concatenate([segments, segments]), np.concatenate([a, b]), count)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.graph.conjunction([a, b], len(a))

    def negate(self, a: np.ndarray) -> np.ndarray:
        return negate(a)

    def is_one(self, a: np.ndarray) -> np.ndarray:
        return a == TRUE

    def is_zero(self, a: np.ndarray) -> np.ndarray:
        return a == FALSE

    def reduce(self, tags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        segments = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return self.graph.disjunction_by(segments, tags, len(offsets) - 1)


Algebra = Untagged | ColumnTags | GraphTags
