"""Floor 4: arithmetic circuits (paper: KLay, Maene, Derkinderen and Zuidberg Dos Martires, 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Circuit": "derivable.circuit.circuit",
        "CircuitBuilder": "derivable.circuit.builder",
        "Cnf": "derivable.circuit.dimacs",
        "Formula": "derivable.circuit.formula",
        "ProbabilisticCircuit": "derivable.circuit.probabilistic",
        "at_least_k": "derivable.circuit.formula",
        "at_least_one": "derivable.circuit.formula",
        "at_most_k": "derivable.circuit.formula",
        "at_most_one": "derivable.circuit.formula",
        "compile": "derivable.circuit.compilation",
        "conjunction": "derivable.circuit.formula",
        "disjunction": "derivable.circuit.formula",
        "equivalent": "derivable.circuit.formula",
        "exactly_k": "derivable.circuit.formula",
        "exactly_one": "derivable.circuit.formula",
        "from_sdd": "derivable.circuit.read",
        "implies": "derivable.circuit.formula",
        "load": "derivable.circuit.read",
        "read_dimacs": "derivable.circuit.dimacs",
        "variables": "derivable.circuit.formula",
        "write_dimacs": "derivable.circuit.dimacs",
    },
    ("builder", "formula"),
)
