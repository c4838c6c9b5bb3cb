"""The language's functions and predicates of dates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

from derivable.datalog.foreign.function import ForeignFunction
from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.signature import signature


def _part(name: str, result: str, call: Callable[[dt.datetime], Any]) -> ForeignFunction:
    return ForeignFunction(f"datetime_{name}", signature(f"(moment: DateTime) -> {result}"), call)


def _ymd(moment: dt.datetime) -> Iterator[tuple[int, int, int]]:
    yield moment.year, moment.month, moment.day


FUNCTIONS = (
    _part("year", "i32", lambda moment: moment.year),
    _part("month", "u32", lambda moment: moment.month),
    _part("month0", "u32", lambda moment: moment.month - 1),
    _part("day", "u32", lambda moment: moment.day),
)
PREDICATES = (
    ForeignPredicate("datetime_ymd", signature("(moment: DateTime) -> (year: i32, month: u32, day: u32)"), _ymd),
)
