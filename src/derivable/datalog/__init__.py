"""Floor 5: the Datalog engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.datalog.aggregates import aggregate
    from derivable.datalog.database import Database
    from derivable.datalog.fact_files import FactFile
    from derivable.datalog.foreign.own import function, predicate
    from derivable.datalog.inputs import InputMapping, categorical, independent
    from derivable.datalog.moments import Duration
    from derivable.datalog.program import Program
    from derivable.datalog.terms import Entity

__all__ = [
    "Database",
    "Duration",
    "Entity",
    "FactFile",
    "InputMapping",
    "Program",
    "aggregate",
    "categorical",
    "function",
    "independent",
    "predicate",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Database": "derivable.datalog.database",
        "Duration": "derivable.datalog.moments",
        "FactFile": "derivable.datalog.fact_files",
        "InputMapping": "derivable.datalog.inputs",
        "Entity": "derivable.datalog.terms",
        "Program": "derivable.datalog.program",
        "aggregate": "derivable.datalog.aggregates",
        "categorical": "derivable.datalog.inputs",
        "function": "derivable.datalog.foreign.own",
        "independent": "derivable.datalog.inputs",
        "predicate": "derivable.datalog.foreign.own",
    },
)
