"""Names of the columns of facts, and those that a relation declares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

# What the column of probabilities may be called, in frames and files.
TAG_NAMES = {"tag", "probability"}


def _spelling(name: Any) -> str:
    return re.sub(r"[\W_]+", "", str(name)).lower()


def are_like(names: Sequence[Any], declared: Sequence[str | None]) -> bool:
    """Whether some name is that of a declared column but for capitals, spaces and underscores."""
    known = {_spelling(name) for name in declared if name is not None}
    return any(_spelling(name) in known for name in names)


def positions_by_name(names: Sequence[Any], declared: Sequence[str | None]) -> list[int] | None:
    """The position of each declared column among columns of these names; None where names say nothing about positions.

    Raises ValueError if the names fit the declaration in part: to take columns in order could swap them.
    """
    for spelled in (str, _spelling):
        spellings = [spelled(name) for name in names]
        wanted = [spelled(name) for name in declared if name is not None]
        if spellings == wanted:
            return list(range(len(spellings)))
        if len(set(spellings)) == len(spellings) and sorted(spellings) == sorted(wanted):
            return [spellings.index(name) for name in wanted]
    if are_like(names, declared) and len(names) == len(declared):
        raise ValueError("the names fit the declaration in part")
    return None


def listed(names: Iterable[Any]) -> str:
    """Names of columns for messages; a column without a name is `_`."""
    return ", ".join("_" if name is None else str(name) for name in names)
