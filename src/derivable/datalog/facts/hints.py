"""Types that facts from Python have, for relations that the program does not declare."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from derivable.datalog.facts.inputs import Columns, InputMapping, Texts
from derivable.datalog.values.terms import Entity
from derivable.datalog.values.values import DATETIME, DURATION, TENSOR, fits


def hints_from(facts: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Type families of the columns of facts (`inputs.taken`), for relations that the program does not declare."""
    hints: dict[str, tuple[str, ...]] = {}
    families = {"f": "float", "i": "integer", "u": "integer", "b": "bool", "M": "datetime", "m": "duration"}
    for name, given in facts.items():
        row: Any = None
        if isinstance(given, os.PathLike):
            continue
        if isinstance(given, Columns):
            hints[name] = tuple(
                "text" if isinstance(a, Texts) else families.get(a.dtype.kind) or (_family(a[0]) if len(a) else "any")
                for a in given.arrays
            )
        elif isinstance(given, np.ndarray):
            if given.ndim in (1, 2) and given.dtype.kind in families:
                hints[name] = (families[given.dtype.kind],) * (given.shape[1] if given.ndim == 2 else 1)
            elif given.ndim and len(given):
                row = given[0]
                row = tuple(row.tolist()) if isinstance(row, np.ndarray) else row
        elif isinstance(given, InputMapping):
            row = given.tuples[0] if given.tuples else None
        elif isinstance(given, Mapping):
            row = next(iter(given), None)
        else:
            row = next(iter(given), None)
            if isinstance(row, InputMapping):
                row = row.tuples[0] if row.tuples else None
            if isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], tuple):
                row = row[1]
        if row is not None:
            values = row if isinstance(row, (tuple, list)) else (row,)
            hints[name] = tuple(map(_family, values))
    return hints


def _family(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Entity):
        return "entity"
    for t in (DATETIME, DURATION, TENSOR):
        if fits(value, t):
            return t.family
    if isinstance(value, (float, np.floating)):
        return "float"
    return "integer" if isinstance(value, (int, np.integer)) else "any"
