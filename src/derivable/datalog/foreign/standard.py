"""The functions and predicates that programs know: the language's, and those that users have added."""

from __future__ import annotations

from derivable.core.registry import Registry
from derivable.datalog.foreign import arrays, comparisons, dates, lists, numbers, texts, wrapping
from derivable.datalog.foreign.function import ForeignFunction
from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.signature import Signature

_PARTS = (numbers, texts, dates, lists, arrays, comparisons, wrapping)

FUNCTIONS: Registry[ForeignFunction] = Registry(
    "function",
    {record.name: record for part in _PARTS for record in part.FUNCTIONS},
    more="`derivable.datalog.function` adds one",
)
PREDICATES: Registry[ForeignPredicate] = Registry(
    "foreign predicate",
    {record.name: record for part in _PARTS for record in part.PREDICATES},
    more="`derivable.datalog.predicate` adds one",
)
_NAMES = {record.name for part in _PARTS for record in (*part.FUNCTIONS, *part.PREDICATES)}


# The predicate of relations that have their rows for the keys that are asked.
KEYED = "#keyed"
_KEYED = ForeignPredicate(KEYED, Signature((), ()), lambda *inputs: ())


def predicate_of(name: str) -> ForeignPredicate:
    """The predicate of a generator."""
    return _KEYED if name == KEYED else PREDICATES[name]


def is_standard(name: str) -> bool:
    """Whether the language has the function or predicate of that name; those that users have added may do anything."""
    return name in _NAMES
