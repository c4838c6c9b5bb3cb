"""`string_join`: the texts of a group, one after the other, in order of the arguments, then of the texts.

`all=true` with arguments takes one text for each arguments, in all combinations: a sequence of uncertain symbols, of
which each position has several candidates. Its tag is that they are all there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from derivable.datalog.aggregates.counting import product
from derivable.datalog.aggregates.groups import Groups, differs
from derivable.datalog.aggregates.record import Aggregate, Group, Parameter
from derivable.datalog.aggregates.worlds import merged, most_steps, reached, refuse
from derivable.datalog.tables.tag_columns import concatenate


def _order(groups: Groups) -> np.ndarray:
    return groups.sorted([groups.number, *groups.argument_keys, *groups.value_keys])


def _objects(values: Sequence[Any]) -> np.ndarray:
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


def _emit(groups: Groups, owner: np.ndarray, texts: Sequence[str], tags: Any) -> None:
    groups.emit(owner, [groups.symbols.intern_all(texts)], tags)


def _texts(groups: Groups, rows: np.ndarray) -> list[str]:
    return groups.symbols.lookup(groups.value_words[0][rows]).tolist()


def _certain_join(groups: Groups, chosen: np.ndarray) -> None:
    chosen, order = groups.existing(chosen), _order(groups)
    if groups.settings["all"] and groups.rule.num_arguments and not groups.rule.discrete:
        for g in chosen.tolist():
            _combine(groups, g, order)
        return
    texts, separator = _texts(groups, order), groups.settings["separator"]
    starts = groups.starts
    joined = [separator.join(texts[starts[g] : starts[g + 1]]) for g in chosen.tolist()]
    groups.emit(chosen, [groups.symbols.intern_all(joined)], None)


def _join(groups: Groups, chosen: np.ndarray) -> None:
    mode: Any = groups.mode
    order, separator = _order(groups), groups.settings["separator"]
    if groups.settings["all"]:
        for g in chosen.tolist():
            if groups.rule.num_arguments:
                _combine(groups, g, order)
                continue
            rows = order[groups.starts[g] : groups.starts[g + 1]]
            tag = product(mode, groups.row_tags[rows], np.array([0, len(rows)]))
            _emit(groups, np.array([g]), [separator.join(_texts(groups, rows))], tag)
        return
    texts = _texts(groups, order)

    def moved(states: list[np.ndarray], positions: np.ndarray) -> list[np.ndarray]:
        pairs = zip(states[0].tolist(), positions.tolist())
        return [_objects([texts[p] if state is None else state + separator + texts[p] for state, p in pairs])]

    for reached_now in reached(groups, chosen, order, [_objects([None])], moved, "texts"):
        if groups.keeps_empty:
            _emit(groups, reached_now.chosen, [""] * len(reached_now.chosen), reached_now.empty)
        _emit(groups, reached_now.owner, reached_now.states[0].tolist(), reached_now.tags)


def _combine(groups: Groups, g: int, order: np.ndarray) -> None:
    """One text of each arguments, in all combinations."""
    mode: Any = groups.mode
    rows = order[groups.starts[g] : groups.starts[g + 1]]
    texts, separator = _texts(groups, rows), groups.settings["separator"]
    states: list[str] = [""]
    tags = mode.one(1) if groups.has_tags else None
    for number, block in enumerate(
        np.split(np.arange(len(rows)), np.flatnonzero(differs(groups.argument_keys, rows)) + 1) if len(rows) else []
    ):
        options, size = [texts[i] for i in block.tolist()], len(states)
        if size * len(options) > most_steps(groups) // 16:
            refuse(groups, len(rows), size * len(options), int(block[-1]) + 1, most_steps(groups) // 16, "texts")
        states = [text + separator + option if number else option for option in options for text in states]
        if tags is None:
            states = list(dict.fromkeys(states))
            continue
        there = groups.row_tags[rows[block]]
        tags = mode.times(concatenate([tags] * len(options)), there[np.repeat(np.arange(len(options)), size)])
        _, (column,), tags = merged(mode, np.zeros(len(states), np.int64), [_objects(states)], tags)
        states = column.tolist()
    _emit(groups, np.full(len(states), g), states, tags)


def _meaning(group: Group) -> Iterator[Any]:
    rows, separator = sorted(group.rows), group.settings["separator"]
    if group.settings["all"] and group.num_arguments and not group.discrete:
        blocks = [list(block) for _, block in itertools.groupby(rows, key=group.arguments)]
        for texts in itertools.product(*([row[-1] for row in block] for block in blocks)):
            yield separator.join(texts)
    else:
        yield separator.join(row[-1] for row in rows)


RECORDS = (
    Aggregate(
        "string_join",
        ("text",),
        ("values",),
        _certain_join,
        _join,
        _meaning,
        (Parameter("separator", "text", "", is_positional=True), Parameter("all", "bool", False, is_positional=True)),
    ),
)
