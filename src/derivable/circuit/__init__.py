"""Floor 4: arithmetic circuits (paper: KLay, Maene, Derkinderen and Zuidberg Dos Martires, 2025)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derivable.circuit.builder import CircuitBuilder
    from derivable.circuit.circuit import Circuit
    from derivable.circuit.compilation import compile
    from derivable.circuit.dimacs import Cnf, read_dimacs, write_dimacs
    from derivable.circuit.formula import (
        Formula,
        at_least_k,
        at_least_one,
        at_most_k,
        at_most_one,
        conjunction,
        disjunction,
        equivalent,
        exactly_k,
        exactly_one,
        implies,
        variables,
    )
    from derivable.circuit.probabilistic import ProbabilisticCircuit
    from derivable.circuit.read import from_sdd, load

_NAMES = {
    "Circuit": "circuit",
    "CircuitBuilder": "builder",
    "Cnf": "dimacs",
    "Formula": "formula",
    "ProbabilisticCircuit": "probabilistic",
    "at_least_k": "formula",
    "at_least_one": "formula",
    "at_most_k": "formula",
    "at_most_one": "formula",
    "compile": "compilation",
    "conjunction": "formula",
    "disjunction": "formula",
    "equivalent": "formula",
    "exactly_k": "formula",
    "exactly_one": "formula",
    "from_sdd": "read",
    "implies": "formula",
    "load": "read",
    "read_dimacs": "dimacs",
    "variables": "formula",
    "write_dimacs": "dimacs",
}

__all__ = [
    "Circuit",
    "CircuitBuilder",
    "Cnf",
    "Formula",
    "ProbabilisticCircuit",
    "at_least_k",
    "at_least_one",
    "at_most_k",
    "at_most_one",
    "compile",
    "conjunction",
    "disjunction",
    "equivalent",
    "exactly_k",
    "exactly_one",
    "from_sdd",
    "implies",
    "load",
    "read_dimacs",
    "variables",
    "write_dimacs",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(f"derivable.circuit.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'derivable.circuit' has no attribute {name!r}")
