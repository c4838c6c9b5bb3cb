"""What the executor does with tags: nothing, columns of a semiring's values, or nodes of the ground derivation graph.

One interface for the three: `load` the tags of rows, `combine` those of two sides of a join, `take` some rows, and for
aggregates `one`, `zero`, `plus`, `times`, `negate`, `reduce`. A tag column is an array [row]; of a semiring on nests it
is a structure of arrays, one per scalar (`tag_columns.Columns`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from derivable.algebra.element import records
from derivable.algebra.expr.functions import equal, less, where
from derivable.algebra.expr.nodes import in_order
from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import addmultprob
from derivable.core.and_or import FALSE, TRUE
from derivable.core.diagnostics import UnsupportedError
from derivable.core.progress import Deadline
from derivable.datalog.tables.tag_columns import column_of, concatenate, fold_in_order, parts_of, reduce_segments
from derivable.datalog.tags.carrier import fact_values, tag_values
from derivable.datalog.tags.choice_facts import Derived
from derivable.datalog.tags.ground_graph import GroundGraph, negate
from derivable.datalog.tags.random_facts import KINDS, Kind, RandomFacts
from derivable.device.cpu.memory import empty

SMALLEST = math.ulp(0.0)


class Untagged:
    """No tags: a row is there or not. In a support run (`graph` tables below) an uncertain row does not block."""

    is_tagged = False

    def load(self, table, rows) -> Any:
        return None

    load_recent = load

    def combine(self, a: Any, b: Any) -> Any:
        return None

    def take(self, tags: Any, rows) -> Any:
        return None

    def start(self, count: int) -> Any:
        return None

    def concatenate(self, parts: Sequence[Any]) -> Any:
        return None


class ScalarColumns:
    """Columns that are one array, in which equal tags have equal entries."""

    def __init__(self, dtype: Any, zero: Any, one: Any):
        self.dtype, self._zero, self._one = dtype, zero, one

    def empty(self, count: int) -> Any:
        return empty(count, self.dtype)

    def one(self, count: int) -> Any:
        return np.full(count, self._one, self.dtype)

    def zero(self, count: int) -> Any:
        return np.full(count, self._zero, self.dtype)

    def is_one(self, a: Any) -> Any:
        return (a == self._one).astype(bool)

    def is_zero(self, a: Any) -> Any:
        return (a == self._zero).astype(bool)

    def saturated(self, old: Any, new: Any) -> Any:
        return old == new


class ColumnTags(ScalarColumns, ABC):
    """Tag columns; what a provenance must say about them.

    plus, times  (tags, tags) -> tags: two derivations of one tuple, and a join
    negate       tags -> tags of negated tuples
    saturated    (old, new) -> mask: the new tag tells nothing new, the tuple is not propagated again
    is_zero      tags -> mask of the tuples to drop
    fact_tags    variables [fact] -> tags of random facts
    show         tags -> what the user sees, an array [row]
    weights      tags -> how much each counts, float64 [row]
    """

    is_tagged = True
    # Whether times distributes over the sums of worlds, which exclude each other.
    sums_distribute = True
    # What the kernels of a whole program depend on, see `run.small_runs`; None where there are none for these tags.
    form: Hashable = None

    @abstractmethod
    def plus(self, a: Any, b: Any) -> Any: ...

    @abstractmethod
    def times(self, a: Any, b: Any) -> Any: ...

    @abstractmethod
    def negate(self, a: Any) -> Any: ...

    @abstractmethod
    def fact_tags(self, variables: np.ndarray) -> Any: ...

    @abstractmethod
    def show(self, tags: Any) -> np.ndarray: ...

    def anonymous(self, numbers: np.ndarray, kind: Kind) -> Any:
        """Tags of random facts of these numbers; None where a tag depends on which random fact it is of."""
        return None

    def weights(self, tags: Any) -> np.ndarray:
        """Raises UnsupportedError where the provenance does not say it."""
        return np.asarray(self.show(tags), dtype=np.float64)

    def is_shown(self, tags: Any, shown: np.ndarray) -> np.ndarray:
        """[row] whether users see the tuple, whose tag shows as that."""
        return ~self.is_zero(tags)

    def copy(self, facts: RandomFacts) -> ColumnTags:
        """The same tags, for random facts that are a copy of theirs and get more facts."""
        return self

    def anew(self, facts: RandomFacts) -> ColumnTags:
        """Tags of the same provenance for other random facts."""
        return self.copy(facts)

    def aggregate(self, operator: str) -> Callable[[Any], Any] | None:
        """A replacement for an aggregate, or None for the default; see `custom.CustomTags.aggregate`."""
        return None

    def watch(self, deadline: Deadline) -> None:
        """State what long operations look at from now on; those on columns are never long."""

    def load(self, table, rows) -> Any:
        return table.tags[: table.size][rows]

    def load_recent(self, table, rows) -> Any:
        """What is new of the tags of recent rows, or their tags."""
        return self.load(table, rows)

    def combine(self, a: Any, b: Any) -> Any:
        return self.times(a, b)

    def fold(self, table, is_recursive: bool) -> Any:
        """What inserts candidates at the end of a round, see `topkproofs.ProofFold`; None where they are added up as
        columns."""

    def may_deny(self, variables: np.ndarray) -> None:
        """State of which random facts tags are negated from now on, besides others."""

    def has_dropped(self) -> bool:
        """Whether rows may have dropped, in earlier rounds, what they would keep now, since the last call."""
        return False

    def take(self, tags: Any, rows) -> Any:
        return tags[rows]

    def start(self, count: int) -> Any:
        return self.one(count)

    def concatenate(self, parts: Sequence[Any]) -> Any:
        return concatenate(parts)

    def reduce(self, tags: Any, offsets: np.ndarray) -> Any:
        """Fold each segment [segment] of a tag column with plus; segments are not empty."""
        return reduce_segments(tags, offsets, self.plus)


def distributes_over_worlds(semiring: Semiring) -> bool:
    """Whether times distributes over the sums of worlds, of which all together are one: addmultprob cuts none."""
    return semiring.distributive or semiring.plus is addmultprob.plus


# What NumPy folds segments of scalars with itself.
_UFUNCS = {"min": np.minimum, "max": np.maximum, "logaddexp": np.logaddexp}


def _product(a: Any, b: Any) -> Any:
    product = a * b
    by_sign = where(less(a, 0.0), where(less(b, 0.0), SMALLEST, -SMALLEST), where(less(b, 0.0), -SMALLEST, SMALLEST))
    least = where(equal(a, 0.0), product, where(equal(b, 0.0), product, by_sign))
    return where(equal(product, 0.0), least, product)


@lru_cache
def without_underflow(semiring: Semiring) -> Semiring:
    """The semiring for tags whose zero says that a tuple is not there: a product of others is never zero, but a number
    of the smallest size where it would underflow."""
    is_number = semiring.is_scalar and semiring.carrier == "float" and semiring.zero == 0
    if not is_number or semiring.typed().times.special != "mul" or semiring.discard is not None:
        return semiring
    return replace(semiring, times=_product)


class SemiringTags(ColumnTags):
    """Tag columns of a semiring, in double precision."""

    def __init__(self, semiring: Semiring, facts: RandomFacts):
        self.semiring, self.facts = semiring, facts
        self.form = self.typed = without_underflow(semiring).typed("float64")
        self.sums_distribute = distributes_over_worlds(semiring)

    def copy(self, facts: RandomFacts) -> SemiringTags:
        return SemiringTags(self.semiring, facts)

    def empty(self, count: int) -> Any:
        return column_of([empty(count, dtype) for dtype in self.typed.dtypes])

    def _full(self, count: int, scalars: Sequence[Any]) -> Any:
        return column_of([np.full(count, scalar, dtype) for scalar, dtype in zip(scalars, self.typed.dtypes)])

    def one(self, count: int) -> Any:
        return self._full(count, self.typed.one)

    def zero(self, count: int) -> Any:
        return self._full(count, self.typed.zero)

    def plus(self, a: Any, b: Any) -> Any:
        return column_of(self.typed.plus.apply(parts_of(a), parts_of(b)))

    def times(self, a: Any, b: Any) -> Any:
        return column_of(self.typed.times.apply(parts_of(a), parts_of(b)))

    def reduce(self, tags: Any, offsets: np.ndarray) -> Any:
        """Fold from the first row of a segment to its last, as kernels do (`fused.tag_accumulator`): the same bits."""
        special = self.typed.plus.special
        if len(offsets) < 2 or (special is None and self.semiring.selective_plus):
            return super().reduce(tags, offsets)
        if special == "add":
            # `reduceat` adds the first row to the sum of the others.
            return np.bincount(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), tags)
        if special in _UFUNCS:
            return _UFUNCS[special].reduceat(tags, offsets[:-1])
        return fold_in_order(tags, offsets, self.plus)

    def negate(self, a: Any) -> Any:
        return column_of(self.typed.negation.apply(parts_of(a)))

    def saturated(self, old: Any, new: Any) -> np.ndarray:
        return self.typed.saturated.apply(parts_of(old), parts_of(new))[0]

    def is_zero(self, a: Any) -> np.ndarray:
        return self.typed.discard.apply(parts_of(a))[0]

    def is_one(self, a: Any) -> np.ndarray:
        return np.logical_and.reduce([part == one for part, one in zip(parts_of(a), self.typed.one)])

    def fact_tags(self, variables: np.ndarray) -> Any:
        """Raises UnsupportedError if the semiring does not say what a fact is."""
        return fact_values(self.semiring, self.facts, variables)

    def anonymous(self, numbers: np.ndarray, kind: Kind) -> Any:
        if not self._is_anonymous:
            return None
        count = len(numbers)
        return tag_values(self.semiring, numbers, np.full(count, KINDS[kind], np.uint8), np.full(count, -1))

    @cached_property
    def _is_anonymous(self) -> bool:
        fact = self.typed.require_fact()
        return not any(node in fact.operands[1] for node in in_order(fact.values))

    def weights(self, tags: Any) -> np.ndarray:
        (weights,) = self.typed.require_weight().apply(parts_of(tags))
        return np.asarray(weights, dtype=np.float64)

    def show(self, tags: Any) -> np.ndarray:
        """[row]; of a nest an array with fields, see `algebra.element.records`."""
        if self.semiring.show is None:
            return records(self.typed.shown, parts_of(tags))
        return self.typed.rows_of_shown(*parts_of(tags))


class IntegerTags(ColumnTags):
    """Tag columns of exact Python integers, as arrays of objects."""

    def __init__(self, semiring: Semiring, facts: RandomFacts):
        super().__init__(object, semiring.zero, semiring.one)
        self.semiring, self.facts = semiring, facts
        self.sums_distribute = distributes_over_worlds(semiring)

    def copy(self, facts: RandomFacts) -> IntegerTags:
        return IntegerTags(self.semiring, facts)

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._each(self.semiring.plus, a, b)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._each(self.semiring.times, a, b)

    def negate(self, a: np.ndarray) -> np.ndarray:
        record = self.semiring
        if record.complement is not None and record.complement_negates:
            return self._each(record.complement, a)
        return np.where(self.is_zero(a), self.one(len(a)), self.zero(len(a)))

    def saturated(self, old: np.ndarray, new: np.ndarray) -> np.ndarray:
        return self._mask(self.semiring.saturated, old == new, old, new)

    def is_zero(self, a: np.ndarray) -> np.ndarray:
        return self._mask(self.semiring.discard, a == self.semiring.zero, a)

    def fact_tags(self, variables: np.ndarray) -> np.ndarray:
        return fact_values(self.semiring, self.facts, variables)

    def show(self, tags: np.ndarray) -> np.ndarray:
        return tags if self.semiring.show is None else self._each(self.semiring.show, tags)

    def _each(self, function: Any, *columns: np.ndarray) -> np.ndarray:
        return np.frompyfunc(function, len(columns), 1)(*columns)

    def _mask(self, function: Any, default: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        return (default if function is None else self._each(function, *columns)).astype(bool)


class GraphTags(ScalarColumns):
    """Nodes of the ground derivation graph. While a query runs, tags are the list of factor columns.

    weigh    nodes [row] -> how much each counts; None where probabilities are known only later, as in a layer
    derived  random facts whose probabilities will follow from those of nodes, in order; None where there can be none
    """

    is_tagged = True

    def __init__(self, graph: GroundGraph, weigh: Callable[[np.ndarray], np.ndarray] | None = None):
        super().__init__(np.int64, FALSE, TRUE)
        self.graph = graph
        self.sums_distribute = distributes_over_worlds(graph.semiring)
        self.weigh = weigh
        self.derived: list[Derived] | None = None

    def weights(self, nodes: np.ndarray) -> np.ndarray:
        """[row] float64. Raises UnsupportedError where they are not known."""
        if self.weigh is None:
            raise UnsupportedError(
                "those depend on probabilities that are given only later",
                hint='provenance="exact" has `top`, `rank`, `normalize` and `softmax` in layers; else choose in Python',
            )
        return self.weigh(nodes)

    def load(self, table, rows) -> list[np.ndarray]:
        return [table.tags[: table.size][rows]]

    load_recent = load

    def combine(self, a: list[np.ndarray], b: list[np.ndarray]) -> list[np.ndarray]:
        return a + b

    def take(self, tags: list[np.ndarray], rows) -> list[np.ndarray]:
        return [t[rows] for t in tags]

    def start(self, count: int) -> list[np.ndarray]:
        return []

    def concatenate(self, parts: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
        return [np.concatenate(columns) for columns in zip(*parts)]

    # Aggregates

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        count = len(a)
        segments = np.arange(count, dtype=np.int64)
        return self.graph.disjunction_by(np.concatenate([segments, segments]), np.concatenate([a, b]), count)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.graph.conjunction([a, b], len(a))

    def negate(self, a: np.ndarray) -> np.ndarray:
        return negate(a)

    def reduce(self, tags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        segments = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return self.graph.disjunction_by(segments, tags, len(offsets) - 1)


Algebra = Untagged | ColumnTags | GraphTags
