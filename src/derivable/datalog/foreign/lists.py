"""The language's functions of lists: terms whose constructor has two fields, an element and the rest."""

from __future__ import annotations

from typing import Any

from derivable.datalog.foreign.function import ForeignFunction
from derivable.datalog.foreign.signature import signature
from derivable.datalog.values.terms import Entity


def _contains(items: Entity, value: Any) -> bool:
    rest: Any = items
    while isinstance(rest, Entity) and len(rest.fields) == 2:
        if rest.fields[0] == value:
            return True
        rest = rest.fields[1]
    return False


FUNCTIONS = (ForeignFunction("list_contains", signature("<T>(items: Entity, value: T) -> bool"), _contains),)
PREDICATES = ()
