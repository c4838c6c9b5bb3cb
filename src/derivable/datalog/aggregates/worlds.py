"""Dynamic programmes over uncertain rows: the states that some of the rows make, each with its tag.

The tag of a state is that of the worlds in which exactly such rows are there as make it. Rows are taken one after the
other: a row is there, and changes the state, or it is not. So states that several sets of rows make are kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.tag_columns import concatenate, repeat
from derivable.datalog.tags import GraphTags

States = list[np.ndarray]

# Steps, one for each state and row, that a group may take. In the derivation graph each is three nodes.
MOST_STEPS = 1 << 24
MOST_GRAPH_STEPS = 1 << 20


class Budget:
    """How many steps a group may take; `spend` refuses what is too much."""

    def __init__(self, groups: Groups, num_rows: int, what: str = "values"):
        self.groups, self.num_rows, self.what = groups, num_rows, what
        self.most = MOST_GRAPH_STEPS if isinstance(groups.mode, GraphTags) else MOST_STEPS
        self.left = self.most

    def spend(self, row: int, states: int) -> None:
        """Before row `row` (from 0), with that many states."""
        self.left -= states
        if self.left < 0:
            name = self.groups.rule.operator
            self.groups.error(
                UnsupportedError,
                f"`{name}` over {self.num_rows} uncertain rows of one group has too many possible {self.what}: "
                f"{states:,} after {row} rows, and {self.most:,} steps do not suffice",
                f"ignore the tags with `{name}!`, make the groups smaller or the values coarser, or keep fewer rows, "
                "for instance with `top<k>`",
            )


def reached(
    groups: Groups,
    tags: Any,
    states: States,
    neutral: Sequence[Any],
    moved: Callable[[States, int], Sequence[np.ndarray]],
    what: str = "values",
) -> tuple[States, Any, Any]:
    """The states that some of the uncertain rows make, with their tags, and the tag of the worlds without any row.

    tags    of the rows of one group
    states  no states, a column for each of their scalars; `neutral` has the scalars before any row
    moved   (states, row) -> the states with that row, which counts from the first of the group
    """
    mode: Any = groups.mode
    budget = Budget(groups, len(tags), what)
    # The worlds without any row so far stand apart: there the group may not exist.
    empty, found = mode.one(1), mode.one(0)
    for row in range(len(tags)):
        budget.spend(row, len(found) + 1)
        present = repeat(tags[row : row + 1], len(found) + 1)
        absent = mode.negate(present)
        after = moved([_with_last(column, value) for column, value in zip(states, neutral)], row)
        stepped = mode.times(concatenate([found, empty]), present)
        stayed = mode.times(found, absent[:-1])
        columns = [np.concatenate([old, new]) for old, new in zip(states, after)]
        states, found = merged(mode, columns, concatenate([stayed, stepped]))
        empty = mode.times(empty, absent[-1:])
        keep = ~mode.is_zero(found)
        if not keep.all():
            states, found = [column[keep] for column in states], found[keep]
    return states, found, empty


def _with_last(column: np.ndarray, value: Any) -> np.ndarray:
    longer = np.empty(len(column) + 1, column.dtype)
    longer[:-1], longer[-1] = column, value
    return longer


def merged(mode: Any, states: States, tags: Any) -> tuple[States, Any]:
    """The distinct states, a column for each of their scalars, and for each the sum of its tags."""
    if len(states) == 1:
        _, first, where = np.unique(states[0], return_index=True, return_inverse=True)
    else:
        numbers = np.stack([np.unique(column, return_inverse=True)[1].reshape(-1) for column in states], axis=1)
        _, first, where = np.unique(numbers, axis=0, return_index=True, return_inverse=True)
    where = where.reshape(-1)
    order = np.argsort(where, kind="stable")
    offsets = np.searchsorted(where[order], np.arange(len(first) + 1))
    return [column[first] for column in states], mode.reduce(tags[order], offsets)


def by_size(groups: Groups, chosen: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """The chosen groups in parts that have the same number [group] of rows that matter, to be done together."""
    order = np.argsort(counts[chosen], kind="stable")
    chosen = chosen[order]
    return np.split(chosen, np.flatnonzero(np.diff(counts[chosen])) + 1) if len(chosen) else []
