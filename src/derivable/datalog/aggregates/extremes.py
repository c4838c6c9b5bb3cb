"""`min`, `max`, `argmin` and `argmax`: the best rows, all that tie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from derivable.algebra.semirings import boolean
from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.aggregates.record import Aggregate, Group
from derivable.datalog.aggregates.worlds import refuse
from derivable.datalog.tags.tags import GraphTags

# A value depends on all better rows, and an exact circuit knows for each which.
_MOST_STEPS = 1 << 26


def _is_max(name: str) -> bool:
    return name.endswith("max")


def _certain_extreme(groups: Groups, chosen: np.ndarray) -> None:
    rows = groups.rows_of(chosen)
    best_of = np.maximum if _is_max(groups.rule.operator) else np.minimum
    limits = np.iinfo(np.int64)
    for key in groups.value_keys:
        keys, number = key[rows], groups.number[rows]
        best = np.full(groups.num_groups + 1, limits.min if best_of is np.maximum else limits.max)
        if not groups.keys and len(keys):
            best[0] = best_of.reduce(keys)
        else:
            best_of.at(best, number, keys)
        ties = np.flatnonzero(keys == best[number])
        rows = ties if isinstance(rows, slice) else rows[ties]
    groups.emit(groups.number[rows], groups.words_of(rows), None)


def _extreme(groups: Groups, chosen: np.ndarray) -> None:
    """A value is the best in the worlds where one of its rows is there and no better one."""
    mode: Any = groups.mode
    order, first, sizes = groups.order, groups.starts[chosen], groups.sizes[chosen]
    step = -1 if _is_max(groups.rule.operator) else 1
    at = first if step == 1 else first + sizes - 1
    # No better row than those of this value, and none so far with those of this value, is there.
    better, so_far = mode.one(len(chosen)), mode.one(len(chosen))
    open_groups = np.arange(len(chosen))
    is_compiled = isinstance(mode, GraphTags) and mode.graph.semiring is boolean
    for position in range(int(sizes.max(initial=0))):
        groups.context.deadline.remaining()
        open_groups = open_groups[(sizes[open_groups] > position) & ~mode.is_zero(better[open_groups])]
        if not len(open_groups):
            break
        if is_compiled and position * position // 2 > _MOST_STEPS:
            refuse(groups, int(sizes.max()), position, position, _MOST_STEPS, "values")
        rows = order[at[open_groups] + step * position]
        if position:
            previous = order[at[open_groups] + step * (position - 1)]
            differs = np.zeros(len(rows), dtype=bool)
            for key in groups.value_keys:
                differs |= key[rows] != key[previous]
            changed = open_groups[differs]
            better[changed] = so_far[changed]
        there = groups.row_tags[rows]
        groups.emit(chosen[open_groups], groups.words_of(rows), mode.times(better[open_groups], there))
        so_far[open_groups] = mode.times(so_far[open_groups], mode.negate(there))


def _meaning(name: str) -> Any:
    best, returns_values = (max if _is_max(name) else min), not name.startswith("arg")

    def meaning(group: Group) -> Iterator[Any]:
        top = best(map(group.values, group.rows), default=None)
        for row in group.rows:
            if group.values(row) == top:
                yield row if returns_values else group.arguments(row)

    return meaning


RECORDS = tuple(
    Aggregate(name, None, ("arguments", "values"), _certain_extreme, _extreme, _meaning(name))
    for name in ("min", "max")
) + tuple(
    Aggregate(name, None, ("arguments",), _certain_extreme, _extreme, _meaning(name), arguments="some")
    for name in ("argmin", "argmax")
)
