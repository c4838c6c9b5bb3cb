"""The rows that a relation with several choice-domains keeps: each one that agrees with no earlier one in a key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from derivable.core.diagnostics import UnsupportedError
from derivable.datalog.aggregates.groups import Groups
from derivable.datalog.aggregates.record import Aggregate, Group, Parameter

CHOICE = "first_by_key"


def _keys(settings: Any) -> list[list[int]]:
    """The places of the columns of each key, of `0,1;2`."""
    return [[int(place) for place in key.split(",")] for key in settings["keys"].split(";")]


def _kept(rows: Iterable[tuple], keys: list[list[int]]) -> Iterator[bool]:
    """Whether each row [row] is kept, one after the other."""
    seen: list[set[tuple]] = [set() for _ in keys]
    for row in rows:
        found = [tuple(row[place] for place in key) for key in keys]
        is_kept = not any(key in known for key, known in zip(found, seen))
        if is_kept:
            for key, known in zip(found, seen):
                known.add(key)
        yield is_kept


def _certain(groups: Groups, chosen: np.ndarray) -> None:
    rows = groups.of_chosen(groups.order, chosen)
    words = zip(*(column.tolist() for column in groups.words_of(rows)))
    groups.emit_rows(rows[np.fromiter(_kept(words, _keys(groups.settings)), bool, len(rows))])


def _uncertain(groups: Groups, chosen: np.ndarray) -> None:
    message, hint = "a choice-domain is of certain rows", "run with provenance='unit'"
    groups.error(UnsupportedError, message, hint)


def _meaning(group: Group) -> Iterator[Any]:
    rows = sorted(group.rows)
    return (row for row, is_kept in zip(rows, _kept(rows, _keys(group.settings))) if is_kept)


RECORDS = (
    Aggregate(
        *(CHOICE, None, ("values",), _certain, _uncertain, _meaning),
        parameters=(Parameter("keys", "text"),),
        arguments="none",
    ),
)
