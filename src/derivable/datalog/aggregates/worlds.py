"""Dynamic programmes over uncertain rows: the states that some of the rows make, each with its tag.

The tag of a state is that of the worlds in which exactly such rows are there as make it. Rows are taken one after the
other: a row is there, and changes the state, or it is not. So states that several sets of rows make are merged, if
times distributes over the sums of their tags; else every world stays apart to the end. All groups are done together,
a row of each at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.tables.tag_columns import concatenate
from derivable.datalog.tags.tags import GraphTags

States = list[np.ndarray]

# Steps, one for each state and row, that a group may take. In the derivation graph each is three nodes.
MOST_STEPS = 1 << 24
MOST_GRAPH_STEPS = 1 << 20
# States that groups which are done together may have, as far as their sizes tell.
_TOGETHER = 1 << 18


@dataclass(frozen=True)
class Reached:
    """The states of some groups, and the worlds in which none of their rows is there.

    chosen  [chosen] numbers of groups
    owner   [state] the group of each state
    states  [scalar] columns [state]
    tags    [state]
    empty   tags [chosen]
    """

    chosen: np.ndarray
    owner: np.ndarray
    states: States
    tags: Any
    empty: Any


def refuse(groups: Groups, num_rows: int, states: int, rows: int, most: int, what: str) -> None:
    """Raise UnsupportedError: with `rows` of its rows, a group has that many states."""
    name = groups.rule.operator
    groups.error(
        UnsupportedError,
        f"`{name}` over {num_rows:,} uncertain rows of one group has too many possible {what}: "
        f"{states:,} after {rows:,} rows, and {most:,} steps do not suffice",
        f"ignore the tags with `{name}!`, make the groups smaller or the values coarser, or keep fewer rows, "
        "for instance with `top<k>`",
    )


def most_steps(groups: Groups) -> int:
    return MOST_GRAPH_STEPS if isinstance(groups.mode, GraphTags) else MOST_STEPS


def reached(
    groups: Groups,
    chosen: np.ndarray,
    order: np.ndarray,
    neutral: Sequence[np.ndarray],
    moved: Callable[[States, np.ndarray], Sequence[np.ndarray]],
    what: str = "values",
) -> Iterator[Reached]:
    """The states that some of the rows of each chosen group make; a part of the groups at a time.

    order    the rows of the body group by group, in the order in which they are taken
    neutral  [scalar] arrays of one element, the state before any row
    moved    (states, positions [state]) -> the states with one more row each, the one at that index of `order`
    """
    sizes = np.minimum(groups.sizes[chosen], 30)
    part = (np.cumsum(1 << sizes) - 1) // _TOGETHER
    for some in np.split(chosen, np.flatnonzero(np.diff(part)) + 1):
        yield _reached(groups, some, order, neutral, moved, what)


def _reached(groups: Groups, chosen: np.ndarray, order: np.ndarray, neutral: Any, moved: Any, what: str) -> Reached:
    mode: Any = groups.mode
    first, sizes = groups.starts[chosen], groups.sizes[chosen]
    spent, most = np.zeros(len(chosen), np.int64), most_steps(groups)
    # The worlds without any row so far stand apart: there the group may not exist.
    empty, tags_of_ends = mode.one(len(chosen)), mode.one(0)
    owner, states = np.empty(0, np.int64), [column[:0] for column in neutral]
    longest = int(sizes.max(initial=0))
    for position in range(longest):
        groups.context.deadline.remaining()
        counts = np.bincount(owner, minlength=len(chosen)) + 1
        spent += np.where(sizes > position, counts, 0)
        if spent.max() > most:
            worst = int(spent.argmax())
            refuse(groups, int(sizes[worst]), int(counts[worst]), position, most, what)
        going = np.flatnonzero(sizes > position)
        is_going = sizes[owner] > position
        done, open_states = np.flatnonzero(~is_going), np.flatnonzero(is_going)
        # The states before this row of the groups that have it, the empty one of each among them.
        owners = np.concatenate([owner[open_states], going])
        before = [np.concatenate([c[open_states], np.repeat(n, len(going))]) for c, n in zip(states, neutral)]
        tags = concatenate([tags_of_ends[open_states], empty[going]])
        positions = first[owners] + position
        present = groups.row_tags[order[positions]]
        absent = mode.times(tags, mode.negate(present))
        after = moved(before, positions)
        count = len(open_states)
        owner, *states = (
            np.concatenate([old[done], old_before, new])
            for old, old_before, new in zip(
                (owner, *states), (owners[:count], *(c[:count] for c in before)), (owners, *after)
            )
        )
        tags_of_ends = concatenate([tags_of_ends[done], absent[np.arange(count)], mode.times(tags, present)])
        empty[going] = absent[np.arange(count, len(owners))]
        if mode.sums_distribute or position + 1 == longest:
            owner, states, tags_of_ends = merged(mode, owner, states, tags_of_ends)
        else:
            possible = np.flatnonzero(~mode.is_zero(tags_of_ends))
            owner, states, tags_of_ends = (
                owner[possible],
                [column[possible] for column in states],
                tags_of_ends[possible],
            )
    return Reached(chosen, chosen[owner], states, tags_of_ends, empty)


def merged(mode: Any, owner: np.ndarray, states: States, tags: Any) -> tuple[np.ndarray, States, Any]:
    """The distinct states of each owner with the sums of their tags, without those that cannot be."""
    key = owner
    for column in states:
        distinct, where = np.unique(column, return_inverse=True)
        key = np.unique(key, return_inverse=True)[1].reshape(-1) * max(len(distinct), 1) + where.reshape(-1)
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    where = where.reshape(-1)
    if len(first) < len(key):
        order = np.argsort(where, kind="stable")
        tags = mode.reduce(tags[order], np.searchsorted(where[order], np.arange(len(first) + 1)))
    else:
        tags = tags[first]
    keep = np.flatnonzero(~mode.is_zero(tags))
    first = first[keep]
    return owner[first], [column[first] for column in states], tags[keep]


def placed(mode: Any, tags: Any, first: np.ndarray, size: int) -> Iterator[tuple[Any, Any]]:
    """For each of `size` rows of each group, the tags [rank, group] of the worlds that hold it and exactly `rank` of
    the rows before it, and the tags [number, group] of the worlds that hold exactly `number` of the rows up to it.

    tags   [row], those of a group from `first` [group] on
    """
    count = len(first)
    state = mode.one(count)
    for row in range(size):
        present = tags[first + row][np.tile(np.arange(count), row + 1)]
        step, zero = mode.times(state, present), mode.zero(count)
        stay = mode.times(state, mode.negate(present))
        state = mode.plus(concatenate([stay, zero]), concatenate([zero, step]))
        yield step, state


def by_size(chosen: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """The chosen groups in parts that have the same number [group] of rows that matter, to be done together."""
    order = np.argsort(counts[chosen], kind="stable")
    chosen = chosen[order]
    return np.split(chosen, np.flatnonzero(np.diff(counts[chosen])) + 1) if len(chosen) else []
