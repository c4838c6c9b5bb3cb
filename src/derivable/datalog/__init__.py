"""The Datalog engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.datalog.aggregates import aggregate
    from derivable.datalog.aggregates.lattices import lattice
    from derivable.datalog.api.database import Database
    from derivable.datalog.api.program import Program
    from derivable.datalog.facts.file_forms import FactFile
    from derivable.datalog.facts.inputs import InputMapping, categorical, independent
    from derivable.datalog.foreign.user_functions import function, predicate
    from derivable.datalog.tags.custom import Provenance
    from derivable.datalog.values.datetimes import Duration
    from derivable.datalog.values.terms import Entity

__all__ = [
    "Database",
    "Duration",
    "Entity",
    "FactFile",
    "InputMapping",
    "Program",
    "Provenance",
    "aggregate",
    "categorical",
    "function",
    "independent",
    "lattice",
    "predicate",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Database": "derivable.datalog.api.database",
        "Duration": "derivable.datalog.values.datetimes",
        "FactFile": "derivable.datalog.facts.file_forms",
        "InputMapping": "derivable.datalog.facts.inputs",
        "Entity": "derivable.datalog.values.terms",
        "Program": "derivable.datalog.api.program",
        "Provenance": "derivable.datalog.tags.custom",
        "aggregate": "derivable.datalog.aggregates",
        "categorical": "derivable.datalog.facts.inputs",
        "function": "derivable.datalog.foreign.user_functions",
        "independent": "derivable.datalog.facts.inputs",
        "lattice": "derivable.datalog.aggregates.lattices",
        "predicate": "derivable.datalog.foreign.user_functions",
    },
)
