"""`top`, `unique`, `rank`, `categorical`, `uniform`: rows are chosen or numbered by the weights of their tags.

They decide once, not in each world, and the rows keep their tags. Rows of equal weight, and so all rows of a run
without tags, are taken in ascending order. A sample depends on the seed of the run, the group and the row alone: its
random numbers are hashes of them, so neither the order of the rows nor further groups change it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from derivable.core import splitmix64
from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.aggregates.ordering import emit_ranks
from derivable.datalog.aggregates.record import ASC, DESC, Aggregate, Group, Parameter
from derivable.datalog.aggregates.worlds import MOST_GRAPH_STEPS
from derivable.datalog.tables.tag_columns import within
from derivable.datalog.tags.choice_facts import Derived
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType, show_column, word_of

_MASK = (1 << 64) - 1


def _by_weight(groups: Groups, chosen: np.ndarray, ascending: bool = False) -> np.ndarray:
    """Rows of the chosen groups, group by group, the weightiest first, equal ones by value."""
    # What is equal but for rounding is equal, so that ties do not depend on the order of additions.
    mantissas = (groups.weights_of(chosen).view(np.int64) + (1 << 15)) >> 16
    rows = groups.sorted([groups.number, mantissas if ascending else -mantissas, *groups.value_keys])
    return groups.of_chosen(rows, chosen)


def _top(groups: Groups, chosen: np.ndarray) -> None:
    k, later = groups.settings.get("k", 1), groups.derived(chosen)
    if later is not None:
        rows, offsets = groups.segments(chosen)
        is_chosen = _promised(groups, later, Derived("top", offsets, groups.row_tags[rows], np.empty(0, np.int64), k))
        groups.emit(groups.number[rows], groups.words_of(rows), groups.mode.times(groups.row_tags[rows], is_chosen))
        return
    rows = _by_weight(groups, chosen)
    ranks = within(np.bincount(groups.number[rows], minlength=1))
    groups.emit_rows(rows[ranks < k])


def _promised(groups: Groups, later: list[Derived], facts: Derived) -> np.ndarray:
    """Nodes [fact] of random facts whose probabilities will be 0 or 1."""
    count = len(facts.nodes)
    if facts.kind != "top":
        count = int((np.diff(facts.offsets) ** 2).sum())
        if count > MOST_GRAPH_STEPS:
            groups.error(
                UnsupportedError,
                f"`{groups.rule.operator}` in a layer needs a fact for each row and rank, here {count:,}",
                "make the groups smaller, or take `top<k>`",
            )
    variables = groups.context.random.add(np.zeros(count))
    later.append(replace(facts, variables=variables))
    return groups.mode.graph.literals_of(variables)


def _top_meaning(group: Group) -> Iterator[Any]:
    yield from sorted(group.rows)[: group.settings.get("k", 1)]


def _rank(groups: Groups, chosen: np.ndarray) -> None:
    ascending, later = groups.settings["asc"], groups.derived(chosen)
    if later is None:
        emit_ranks(groups, _by_weight(groups, chosen, ascending))
        return
    rows, offsets = groups.segments(chosen)
    kind = "rank_up" if ascending else "rank"
    is_there = _promised(groups, later, Derived(kind, offsets, groups.row_tags[rows], np.empty(0, np.int64)))
    sizes = np.diff(offsets)
    rows, ranks = np.repeat(rows, np.repeat(sizes, sizes)), within(np.repeat(sizes, sizes))
    tags = groups.mode.times(groups.row_tags[rows], is_there)
    groups.emit(groups.number[rows], [ranks, *groups.words_of(rows)], tags)


def _rank_meaning(group: Group) -> Iterator[Any]:
    for rank, row in enumerate(sorted(group.rows)):
        yield (rank, *row)


# Samples


def _mixed(state: Any, words: Any) -> Any:
    """A hash of 64 bits of a hash and words, by splitmix64; on arrays of uint64, which wrap."""
    return splitmix64.finalized_words((state ^ words) + np.uint64(splitmix64.STEP))


# Values whose words are numbers in the order in which a run meets them.
_NUMBERED = ("text", "entity", "duration", "tensor")


def _text_word(text: str) -> int:
    import hashlib

    return struct.unpack("<Q", hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())[0]


def _hashed(groups: Groups) -> np.ndarray:
    """[row] hashes of the seed, the group's key and the row, without the sample: as in a run of it alone."""
    state = np.full(groups.num_rows, groups.context.random.seed & _MASK, np.uint64)
    types = groups.body.types
    for c in range(int(groups.rule.is_batched), len(types)):
        words = groups.body.column(c).view(np.uint64)
        if types[c].family in _NUMBERED or types[c].is_wide:
            ids, where = np.unique(words, return_inverse=True)
            shown = show_column(ids.astype(np.int64), types[c], groups.symbols).tolist()
            words = np.array([_text_word(str(value)) for value in shown], np.uint64)[where]
        state = _mixed(state, words)
    return state


def _drawn(hashes: np.ndarray, draw: int) -> np.ndarray:
    """[row] uniform in (0, 1): of the hash of each row and the draw."""
    return ((_mixed(hashes, np.uint64(draw)) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _uniform(groups: Groups, chosen: np.ndarray) -> None:
    numbers = _drawn(_hashed(groups), 0)
    rows = groups.of_chosen(groups.sorted([groups.number, numbers, *groups.value_keys]), chosen)
    ranks = within(np.bincount(groups.number[rows], minlength=1))
    groups.emit_rows(rows[ranks < groups.settings["k"]])


def _categorical(groups: Groups, chosen: np.ndarray) -> None:
    weights = groups.weights_of(chosen)
    drawn = np.zeros(groups.num_rows, dtype=bool)
    rows = groups.of_chosen(np.flatnonzero(weights > 0), chosen)
    number, hashes = groups.number[rows], _hashed(groups)[rows]
    for draw in range(groups.settings["k"]):
        # Of independent waiting times with these rates, the first is each row's with its share of the weight.
        waits = -np.log(_drawn(hashes, draw)) / weights[rows]
        first = np.full(groups.num_groups + 1, math.inf)
        np.minimum.at(first, number, waits)
        drawn[rows[waits == first[number]]] = True
    groups.emit_rows(np.flatnonzero(drawn))


def _random(group: Group, row: tuple, draw: int) -> float:
    """What `_drawn` gives of `_hashed`, number by number."""
    types: Sequence[ValueType] = group.types
    state, symbols = group.seed & _MASK, SymbolTable()
    for value, t in zip((*group.key, *row), types):
        is_numbered = t.family in _NUMBERED or t.is_wide
        word = _text_word(str(value)) if is_numbered else word_of(value, t, symbols) & _MASK
        state = _mixed_word(state, word)
    return ((_mixed_word(state, draw) >> 11) + 0.5) * 2.0**-53


def _mixed_word(state: int, word: int) -> int:
    return splitmix64.finalized((state ^ word) + splitmix64.STEP)


def _uniform_meaning(group: Group) -> Iterator[Any]:
    yield from sorted(group.rows, key=lambda row: _random(group, row, 0))[: group.settings["k"]]


def _categorical_meaning(group: Group) -> Iterator[Any]:
    drawn = set()
    for draw in range(group.settings["k"] if group.rows else 0):
        drawn.add(min(group.rows, key=lambda row: -math.log(_random(group, row, draw))))
    yield from drawn


def _size(default: int | None) -> Parameter:
    return Parameter("k", "integer", default, is_positional=True)


def _record(name: str, chosen: Any, meaning: Any, *parameters: Parameter) -> Aggregate:
    return Aggregate(name, None, ("values",), chosen, chosen, meaning, parameters, "none", by_weight="rows")


RECORDS = (
    _record("top", _top, _top_meaning, _size(1)),
    _record("unique", _top, _top_meaning),
    _record("categorical", _categorical, _categorical_meaning, _size(None)),
    _record("uniform", _uniform, _uniform_meaning, _size(None)),
    Aggregate("rank", None, ("usize", "values"), _rank, _rank, _rank_meaning, (ASC, DESC), "none", by_weight="values"),
)
