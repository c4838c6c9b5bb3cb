"""`sort`, `argsort` and `enumerate`: rows with their ranks, from 0; and `first_by_key`, the rows that a relation with
several choice-domains keeps, each one that agrees with no earlier one in a key.

In every world the rows that are there are numbered. The tag of (rank, row) is that of the worlds that hold the row and
exactly `rank` of the rows before it; which of them does not matter, so this is polynomial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.aggregates.record import ASC, DESC, Aggregate, Group, Parameter
from derivable.datalog.aggregates.worlds import by_size, most_steps, placed, refuse
from derivable.datalog.tables.tag_columns import concatenate, repeat, within
from derivable.parallel.order import order_of

# The aggregate of relations with several choice-domains.
CHOICE = "first_by_key"
# Groups of at most so many rows are done together.
_SMALL = 16


def _is_ascending(settings: Any) -> bool:
    return settings.get("asc", True)


def _order(groups: Groups) -> np.ndarray:
    """Rows of the body group by group, as asked for by value; equal values by their arguments."""
    if _is_ascending(groups.settings):
        return groups.order
    return groups.sorted([groups.number, *(~key for key in groups.value_keys), *groups.argument_keys])


def _first_rows(groups: Groups, chosen: np.ndarray) -> np.ndarray:
    """The same of the chosen groups, as far as a rule reads their ranks."""
    most = groups.rule.most_ranks
    if most is None:
        return groups.of_chosen(_order(groups), chosen)
    if len(chosen) == 1 and 0 < most < groups.sizes[chosen[0]] == groups.num_rows and groups.value_words:
        is_ascending = _is_ascending(groups.settings)
        # The rows up to the last value that is wanted are put in order.
        key, last = groups.sort_key(groups.value_words[0], groups.value_types[0]), most - 1 if is_ascending else -most
        limit = np.partition(key, last)[last]
        rows = np.flatnonzero(key <= limit if is_ascending else key >= limit)
        values = [groups.sort_key(words[rows], t) for words, t in zip(groups.value_words, groups.value_types)]
        arguments = [groups.sort_key(words[rows], t) for words, t in zip(groups.argument_words, groups.argument_types)]
        order = order_of([*(values if is_ascending else [~key for key in values]), *arguments])
        return rows[order][:most]
    sizes = np.minimum(groups.sizes[chosen], most)
    return _order(groups)[np.repeat(groups.starts[chosen], sizes) + within(sizes)]


def emit_ranks(groups: Groups, rows: np.ndarray) -> None:
    """Rows of the body, group by group, with their ranks, under their tags."""
    number = groups.number[rows]
    ranks = within(np.bincount(number, minlength=groups.num_groups + 1))
    groups.emit(number, [ranks, *groups.words_of(rows)], groups.tags_of(rows))


def _certain_sort(groups: Groups, chosen: np.ndarray) -> None:
    emit_ranks(groups, _first_rows(groups, chosen))


def _sort(groups: Groups, chosen: np.ndarray) -> None:
    order = _order(groups)
    is_small = groups.sizes[chosen] <= _SMALL
    tags = groups.row_tags[order]
    for part in by_size(chosen[is_small], groups.sizes):
        groups.context.deadline.remaining()
        first, count = groups.starts[part], len(part)
        for row, (step, _) in enumerate(placed(groups.mode, tags, first, int(groups.sizes[part[0]]))):
            rows = np.tile(order[first + row], row + 1)
            groups.emit(np.tile(part, row + 1), [np.repeat(np.arange(row + 1), count), *groups.words_of(rows)], step)
    for g in chosen[~is_small].tolist():
        _sort_group(groups, g, order[groups.starts[g] : groups.starts[g + 1]])


def _sort_group(groups: Groups, g: int, rows: np.ndarray) -> None:
    """The rows of one group; a certain one moves all ranks by one."""
    mode: Any = groups.mode
    tags, certain = groups.row_tags[rows], groups.is_certain[rows]
    words = groups.words_of(rows)
    size, most = int((~certain).sum()), most_steps(groups)
    if size * len(rows) // 2 > most:
        refuse(groups, size, size, len(rows), most, "ranks")
    # state[j]: low + j of the rows so far are there.
    state, low = mode.one(1), 0
    for row in range(len(rows)):
        groups.context.deadline.remaining()
        size = len(state)
        results = [np.arange(low, low + size), *(np.full(size, column[row]) for column in words)]
        present = repeat(tags[row : row + 1], size)
        step = mode.times(state, present)
        groups.emit(np.full(size, g), results, step)
        if certain[row]:
            low += 1
            continue
        stay, zero = mode.times(state, mode.negate(present)), mode.zero(1)
        state = mode.plus(concatenate([stay, zero]), concatenate([zero, step]))


def _meaning(returns_values: bool) -> Any:
    def meaning(group: Group) -> Iterator[Any]:
        rows = sorted(group.rows)
        rows.sort(key=group.values, reverse=not _is_ascending(group.settings))
        for rank, row in enumerate(rows):
            yield (rank, *(row if returns_values else group.arguments(row)))

    return meaning


def _record(name: str, *returns: str, **options: Any) -> Aggregate:
    meaning = _meaning("values" in returns)
    return Aggregate(name, None, ("usize", *returns), _certain_sort, _sort, meaning, has_ranks=True, **options)


def _keys(settings: Any) -> list[list[int]]:
    """The numbers of the columns of each key, of `0,1;2`."""
    return [[int(column) for column in key.split(",")] for key in settings["keys"].split(";")]


def _are_chosen(rows: Iterable[tuple], keys: list[list[int]]) -> Iterator[bool]:
    """Whether each row [row] is selected, one after the other."""
    seen: list[set[tuple]] = [set() for _ in keys]
    for row in rows:
        values = [tuple(row[column] for column in key) for key in keys]
        is_chosen = not any(value in known for value, known in zip(values, seen))
        if is_chosen:
            for value, known in zip(values, seen):
                known.add(value)
        yield is_chosen


def _chosen(groups: Groups, chosen: np.ndarray) -> None:
    rows = groups.of_chosen(groups.order, chosen)
    words = zip(*(column.tolist() for column in groups.words_of(rows)))
    groups.emit_rows(rows[np.fromiter(_are_chosen(words, _keys(groups.settings)), bool, len(rows))])


def _refused(groups: Groups, chosen: np.ndarray) -> None:
    message, hint = "a choice-domain is of certain rows", "run with provenance='unit'"
    groups.error(UnsupportedError, message, hint)


def _chosen_rows(group: Group) -> Iterator[Any]:
    rows = sorted(group.rows)
    return (row for row, is_chosen in zip(rows, _are_chosen(rows, _keys(group.settings))) if is_chosen)


RECORDS = (
    _record("sort", "arguments", "values", parameters=(ASC, DESC)),
    _record("argsort", "arguments", parameters=(ASC, DESC), arguments="some"),
    _record("enumerate", "values", arguments="none"),
    Aggregate(
        *(CHOICE, None, ("values",), _chosen, _refused, _chosen_rows),
        parameters=(Parameter("keys", "text"),),
        arguments="none",
    ),
)
