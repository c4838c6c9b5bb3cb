"""`string_join`: the texts of a group, one after the other, in order of the arguments, then of the texts.

`all=true` with arguments takes one text for each arguments, in all combinations: a sequence of uncertain symbols, of
which each position has several candidates. Its tag is that they are all there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.aggregates.record import Aggregate, Group, Parameter
from derivable.datalog.aggregates.worlds import Budget, merged, reached
from derivable.datalog.tag_columns import concatenate


def _order(groups: Groups) -> np.ndarray:
    return groups.sorted([groups.number, *groups.argument_keys, *groups.value_keys])


def _objects(values: Sequence[Any]) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _emit(groups: Groups, g: int, texts: Sequence[str], tags: Any) -> None:
    groups.emit(np.full(len(texts), g), [groups.symbols.intern_all(texts)], tags)


def _texts(groups: Groups, rows: np.ndarray) -> list[str]:
    return groups.symbols.lookup(groups.value_words[0][rows]).tolist()


def _certain_join(groups: Groups, chosen: np.ndarray) -> None:
    if groups.settings["all"] and groups.rule.num_arguments:
        for g in groups.existing(chosen).tolist():
            _combine(groups, g, _order(groups))
        return
    chosen = groups.existing(chosen)
    texts, separator = _texts(groups, _order(groups)), groups.settings["separator"]
    starts = groups.starts
    joined = [separator.join(texts[starts[g] : starts[g + 1]]) for g in chosen.tolist()]
    groups.emit(chosen, [groups.symbols.intern_all(joined)], None)


def _join(groups: Groups, chosen: np.ndarray) -> None:
    mode: Any = groups.mode
    order, separator = _order(groups), groups.settings["separator"]
    for g in chosen.tolist():
        rows = order[groups.starts[g] : groups.starts[g + 1]]
        if groups.settings["all"] and groups.rule.num_arguments:
            _combine(groups, g, order)
            continue
        texts = _texts(groups, rows)
        if groups.settings["all"]:
            tag = mode.one(1)
            for row in rows.tolist():
                tag = mode.times(tag, groups.row_tags[row : row + 1])
            _emit(groups, g, [separator.join(texts)], tag)
            continue

        def moved(states: list[np.ndarray], row: int, texts: list[str] = texts) -> list[np.ndarray]:
            longer = [text + separator + texts[row] for text in states[0][:-1].tolist()]
            # The last state is that before any row.
            return [_objects([*longer, texts[row]])]

        states, tags, empty = reached(groups, groups.row_tags[rows], [_objects([])], [""], moved, "texts")
        if groups.keeps_empty:
            _emit(groups, g, [""], empty)
        _emit(groups, g, states[0].tolist(), tags)


def _combine(groups: Groups, g: int, order: np.ndarray) -> None:
    mode: Any = groups.mode
    rows = order[groups.starts[g] : groups.starts[g + 1]]
    texts, separator = _texts(groups, rows), groups.settings["separator"]
    has_tags = groups.has_tags and not groups.rule.discrete
    differs = np.zeros(max(len(rows) - 1, 0), dtype=bool)
    for key in groups.argument_keys:
        differs |= key[rows[1:]] != key[rows[:-1]]
    budget = Budget(groups, len(rows), "texts")
    states: list[str] | None = None
    tags = mode.one(1) if has_tags else None
    for block in np.split(np.arange(len(rows)), np.flatnonzero(differs) + 1):
        options = [texts[i] for i in block.tolist()]
        before = [""] if states is None else states
        budget.spend(int(block[0]) if len(block) else 0, len(before) * len(options))
        if states is None:
            states = options
        else:
            states = [text + separator + option for option in options for text in states]
        if tags is not None:
            size = len(before)
            there = groups.row_tags[rows[block]]
            tags = mode.times(concatenate([tags] * len(options)), there[np.repeat(np.arange(len(options)), size)])
            (column,), tags = merged(mode, [_objects(states)], tags)
            states = column.tolist()
        else:
            states = list(dict.fromkeys(states))
    if not len(rows):
        states, tags = [""], (mode.one(1) if has_tags else None)
    _emit(groups, g, states or [], tags)


def _meaning(group: Group) -> Iterator[Any]:
    rows, separator = sorted(group.rows), group.settings["separator"]
    if group.settings["all"] and group.num_arguments:
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
        (Parameter("separator", "text", "", is_positional=True), Parameter("all", "bool", False)),
    ),
)
