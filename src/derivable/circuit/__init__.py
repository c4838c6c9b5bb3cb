"""Floor 4: arithmetic circuits (paper: KLay, Maene, Derkinderen and Zuidberg Dos Martires, 2025)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derivable.circuit.builder import CircuitBuilder
    from derivable.circuit.circuit import Circuit
    from derivable.circuit.compile import compile
    from derivable.circuit.formula import Formula, at_least_one, exactly_one, implies, variables
    from derivable.circuit.probabilistic import ProbabilisticCircuit
    from derivable.circuit.read import from_sdd, load

_NAMES = {
    "Circuit": "circuit",
    "CircuitBuilder": "builder",
    "Formula": "formula",
    "ProbabilisticCircuit": "probabilistic",
    "at_least_one": "formula",
    "compile": "compile",
    "exactly_one": "formula",
    "from_sdd": "read",
    "implies": "formula",
    "load": "read",
    "variables": "formula",
}

__all__ = [
    "Circuit",
    "CircuitBuilder",
    "Formula",
    "ProbabilisticCircuit",
    "at_least_one",
    "compile",
    "exactly_one",
    "from_sdd",
    "implies",
    "load",
    "variables",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(f"derivable.circuit.{_NAMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'derivable.circuit' has no attribute {name!r}")
