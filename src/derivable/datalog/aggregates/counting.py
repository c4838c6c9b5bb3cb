"""`count`, `exists` and `forall`."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.core.and_or import AND
from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.aggregates.record import Aggregate
from derivable.datalog.aggregates.worlds import MOST_GRAPH_STEPS, by_size, placed, reached, refuse
from derivable.datalog.tables.tag_columns import reduce_segments
from derivable.datalog.tags.tags import GraphTags, SemiringTags

# From so many rows on, a group's counts are those of its best rows where tags are ordered.
_MANY = 32
# Steps are cheap here: a state is a position in an array.
_MOST_STEPS = 1 << 28
_ACCUMULATE = {"mul": np.multiply, "min": np.minimum, "add": np.add}


def _certain_count(groups: Groups, chosen: np.ndarray) -> None:
    chosen = groups.existing(chosen)
    groups.emit(chosen, [groups.sizes if chosen is groups.everything else groups.sizes[chosen]], None)


def _count(groups: Groups, chosen: np.ndarray) -> None:
    if not groups.mode.sums_distribute:
        _count_worlds(groups, chosen)
        return
    uncertain_rows = groups.order[~groups.is_certain[groups.order]]
    rows, offsets = groups.by_group(uncertain_rows)
    numbers = np.diff(offsets)
    certain = groups.sizes - numbers
    tags = groups.row_tags[rows]
    for part in by_size(chosen, numbers):
        size, count = int(numbers[part[0]]), len(part)
        first = offsets[part]
        special = _best_subsets(groups.mode, tags[first[0] : first[0] + size]) if count == 1 and size >= _MANY else None
        state = _counted(groups, tags, first, size) if special is None else special
        group = np.tile(part, size + 1)
        number = np.repeat(np.arange(size + 1), count) + certain[group]
        keep = ~groups.mode.is_zero(state)
        if not groups.keeps_empty:
            keep &= number > 0
        groups.emit(group[keep], [number[keep]], state[keep])


def _count_worlds(groups: Groups, chosen: np.ndarray) -> None:
    neutral = [np.zeros(1, np.int64)]
    for reached_now in reached(groups, chosen, groups.order, neutral, lambda states, _: [states[0] + 1], "counts"):
        if groups.keeps_empty:
            groups.emit(reached_now.chosen, [np.zeros(len(reached_now.chosen), np.int64)], reached_now.empty)
        groups.emit(reached_now.owner, reached_now.states, reached_now.tags)


def _counted(groups: Groups, tags: Any, first: np.ndarray, size: int) -> Any:
    """Tags [number of rows, group] of how many of the rows first..first + size - 1 of each group are there."""
    most = MOST_GRAPH_STEPS if isinstance(groups.mode, GraphTags) else _MOST_STEPS
    if size * size // 2 > most:
        refuse(groups, size, size, size, most, "counts")
    state = groups.mode.one(len(first))
    for row in placed(groups.mode, tags, first, size):
        groups.context.deadline.remaining()
        state = row[1]
    return state


def _best_subsets(mode: Any, tags: Any) -> Any:
    """The counts' tags where plus takes the better of two: of so many rows, the best are there and the others not.

    If a is better than b, and not b better than not a, exchanging a for b makes no set better. None if tags are not
    ordered in that way. Time n log n, as Scallop has for minmaxprob.
    """
    if not isinstance(mode, SemiringTags) or not mode.semiring.selective_plus or not mode.semiring.distributive:
        return None
    accumulate = _ACCUMULATE.get(mode.semiring.typed().times.special or "")
    if not isinstance(tags, np.ndarray) or accumulate is None:
        return None
    order = np.argsort(tags, kind="stable")
    for direction in (order[::-1], order):
        best = tags[direction]
        absent = mode.negate(best)
        if (mode.plus(best[:-1], best[1:]) == best[:-1]).all() and (
            mode.plus(absent[1:], absent[:-1]) == absent[1:]
        ).all():
            one = mode.one(1)
            chosen = accumulate.accumulate(np.concatenate([one, best]))
            others = accumulate.accumulate(np.concatenate([one, absent[::-1]]))[::-1]
            return mode.times(chosen, others)
    return None


def _certain_exists(groups: Groups, chosen: np.ndarray) -> None:
    chosen = groups.existing(chosen)
    groups.emit(chosen, [((groups.sizes[chosen] > 0) == (groups.rule.operator == "exists")).astype(np.int64)], None)


def _exists(groups: Groups, chosen: np.ndarray) -> None:
    mode: Any = groups.mode
    word = int(groups.rule.operator == "exists")
    rows, offsets = groups.by_group(np.arange(groups.num_rows)[groups.rows_of(chosen)])
    tags = groups.row_tags[rows]
    starts = np.concatenate([offsets[chosen], [len(rows)]])
    groups.emit(chosen, [np.full(len(chosen), word)], mode.reduce(tags, starts))
    if groups.keeps_empty:
        groups.emit(chosen, [np.full(len(chosen), 1 - word)], product(mode, mode.negate(tags), starts))


def product(mode: Any, tags: Any, offsets: np.ndarray) -> Any:
    """The product of each segment [segment] of tags; segments are not empty."""
    if isinstance(mode, GraphTags):
        segments = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return mode.graph.gates_by(AND, segments, tags, len(offsets) - 1)
    return reduce_segments(tags, offsets, mode.times)


def _count_meaning(group):
    yield len(group.rows)


def _exists_meaning(group):
    yield bool(group.rows)


def _forall_meaning(group):
    yield not group.rows


RECORDS = (
    Aggregate("count", None, ("usize",), _certain_count, _count, _count_meaning, arguments="none"),
    Aggregate("exists", None, ("bool",), _certain_exists, _exists, _exists_meaning, arguments="none"),
    Aggregate("forall", None, ("bool",), _certain_exists, _exists, _forall_meaning, arguments="none"),
)
