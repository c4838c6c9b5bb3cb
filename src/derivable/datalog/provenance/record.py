"""The record that every provenance is, and what random facts look like to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class RandomFacts:
    """The random input facts of a run, as variables 0, 1, ...

    probabilities  of each variable
    groups         arrays of variables of which exactly one is true; the others are independent
    """

    probabilities: list[float] = field(default_factory=list)
    groups: list[np.ndarray] = field(default_factory=list)

    def add(self, probabilities: np.ndarray) -> np.ndarray:
        """Numbers of new independent variables."""
        start = len(self.probabilities)
        self.probabilities.extend(float(p) for p in probabilities)
        return np.arange(start, len(self.probabilities), dtype=np.int64)

    def add_choice(self, probabilities: np.ndarray, is_complete: bool = False) -> np.ndarray:
        """Numbers of new variables of which at most one is true.

        Unless they add up to one (or `is_complete`), one more variable stands for "none of them".
        """
        variables = self.add(probabilities)
        rest = 1.0 - float(np.sum(probabilities))
        group = variables
        if not is_complete and rest > 1e-12:
            group = np.concatenate([variables, self.add(np.array([rest]))])
        self.groups.append(group)
        return variables

    def group_of(self) -> np.ndarray:
        """Group number [variable] int64, -1 for independent variables."""
        owner = np.full(len(self.probabilities), -1, dtype=np.int64)
        for i, group in enumerate(self.groups):
            owner[group] = i
        return owner


Column = np.ndarray


@dataclass(frozen=True)
class Provenance:
    """A semiring over tag columns, with what recursion and negation need.

    dtype      of a tag column
    zero, one  tags as scalars of that dtype
    plus       (tags, tags) -> tags: two derivations of one tuple
    times      (tags, tags) -> tags: a join
    negate     tags -> tags, or None if a negated tuple cannot be tagged (then negation is set difference)
    saturated  (old, new) -> mask: the new tag tells nothing new, the tuple is not propagated again
    discard    tags -> mask of the tuples to drop
    fact_tags  variables [fact] -> tags of random facts
    show       tags -> what the user sees, as a column

    Laws (tests/datalog/test_provenance.py, for every registered provenance): plus and times are associative and
    commutative with zero and one neutral; times distributes over plus where `distributes`;
    zero is discarded, one not.
    """

    name: str
    dtype: Any
    zero: Any
    one: Any
    plus: Callable[[Column, Column], Column]
    times: Callable[[Column, Column], Column]
    negate: Callable[[Column], Column] | None
    saturated: Callable[[Column, Column], Column]
    discard: Callable[[Column], Column]
    fact_tags: Callable[[Column], Column]
    show: Callable[[Column], Column]
    distributes: bool = True
    is_exact: bool = False
    description: str = ""

    def reduce(self, tags: Column, offsets: Column) -> Column:
        """Fold each segment [segment] of a tag column with plus; segments are not empty.

        Neighbours are added in pairs until every segment has one tag: log(longest segment) column operations.
        """
        lengths = np.diff(offsets)
        while len(tags) > len(lengths):
            position = np.arange(len(tags)) - np.repeat(offsets[:-1], lengths)
            length = np.repeat(lengths, lengths)
            left = np.flatnonzero((position % 2 == 0) & (position + 1 < length))
            kept = np.flatnonzero(position % 2 == 0)
            folded = tags[kept].copy()
            paired = (position + 1 < length)[kept]
            folded[paired] = self.plus(tags[left], tags[left + 1])
            tags = folded
            lengths = (lengths + 1) // 2
            offsets = np.concatenate([[0], np.cumsum(lengths)])
        return tags
