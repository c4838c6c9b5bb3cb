"""Types that facts from Python and files have, for relations that the program does not declare.

Columns that know their types keep them: i64, u64 and f64 where an array, a frame or a file has 64 bits. What Python
writes, and narrower numbers, are as literals of a program are, i32 and f32.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from derivable.datalog.facts.column_names import TAG_NAMES
from derivable.datalog.facts.inputs import Columns, Elsewhere, InputMapping, Texts
from derivable.datalog.rules.nodes import Relation
from derivable.datalog.values.terms import Entity
from derivable.datalog.values.values import DATETIME, DURATION, TENSOR, fits

_KINDS = {"f": "float", "i": "integer", "u": "integer", "b": "bool", "M": "datetime", "m": "duration"}
# The difference of two u32 may be below zero.
_TORCH = {
    "torch.int64": "i64",
    "torch.uint64": "u64",
    "torch.uint32": "i64",
    "torch.float64": "f64",
    "torch.bool": "bool",
}
_WIDE = {"i8": "i64", "u8": "u64", "u4": "i64", "f8": "f64", "f16": "f64"}


def hints_from(facts: Mapping[str, Any], relations: Mapping[str, Relation]) -> dict[str, tuple[str, ...]]:
    """Types, or families of types, of the columns of facts (`inputs.taken`), for relations that the program uses and
    does not declare. Facts of another number of columns say nothing: what is wrong with them is said when they load."""
    hints: dict[str, tuple[str, ...]] = {}
    for name, facts_of_name in facts.items():
        kinds = _of_facts(facts_of_name, relations[name])
        # What is written `rel s = {}` has as many columns as its facts.
        if kinds is not None and (len(kinds) == len(relations[name].types) or relations[name].is_emptied):
            hints[name] = kinds
    return hints


def _of_facts(facts: Any, relation: Relation) -> tuple[str, ...] | None:
    if isinstance(facts, os.PathLike):
        from derivable.datalog.facts.fact_files import types_in

        return types_in(facts, relation.name, relation.types)
    if isinstance(facts, Columns):
        hints = [(str(label), _of_column(array)) for label, array in zip(facts.names, facts.arrays)]
        if len(hints) == len(relation.types) + 1:
            tagged = [i for i, (label, _) in enumerate(hints) if label in TAG_NAMES]
            del hints[tagged[-1] if tagged else -1]
        return tuple(hint for _, hint in hints)
    if isinstance(facts, Elsewhere):
        width = facts.tensor.shape[1] if facts.tensor.ndim == 2 else 1
        return (
            _TORCH.get(str(facts.tensor.dtype), "float" if facts.tensor.is_floating_point() else "integer"),
        ) * width
    if isinstance(facts, np.ndarray):
        columns = facts[:, None] if facts.ndim == 1 else facts
        if columns.ndim != 2:
            return None
        return tuple(_of_column(columns[:, c]) for c in range(columns.shape[1]))
    if isinstance(facts, InputMapping) and facts.columns is not None:
        return tuple(map(_of_column, facts.columns.arrays))
    rows: Iterable[Any] = facts.tuples if isinstance(facts, InputMapping) else facts
    row = next(iter(rows), None)
    if isinstance(row, InputMapping):
        return _of_facts(row, relation)
    if isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], tuple):
        row = row[1]
    if row is None:
        return None
    return tuple(map(_of_value, row if isinstance(row, (tuple, list)) else (row,)))


def _of_column(array: np.ndarray | Texts) -> str:
    if isinstance(array, Texts):
        return "text"
    if array.dtype.kind in _KINDS:
        return _of_dtype(array.dtype)
    first = next((value for value in array.flat if value is not None), None)
    if type(first) is int and any(type(value) is int and abs(value) >> 63 for value in array.flat):
        # What a decimal of Arrow may have.
        return "i128"
    return "any" if first is None else _of_value(first)


def _of_dtype(dtype: np.dtype) -> str:
    return _WIDE.get(f"{dtype.kind}{dtype.itemsize}") or _KINDS.get(dtype.kind, "any")


def _of_value(value: Any) -> str:
    if isinstance(value, np.generic) and value.dtype.kind in _KINDS:
        return _of_dtype(value.dtype)
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Entity):
        return "entity"
    # Those that are too far away for their type too.
    for kinds, t in ((dt.date, DATETIME), (dt.timedelta, DURATION), ((), TENSOR)):
        if isinstance(value, kinds) or fits(value, t):
            return t.family
    if isinstance(value, float):
        return "float"
    return "integer" if isinstance(value, int) else "f64" if type(value).__name__ == "Decimal" else "any"
