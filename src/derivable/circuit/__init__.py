"""Arithmetic circuits (paper: KLay, Maene, Derkinderen and Zuidberg Dos Martires, 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derivable.core.lazy import lazy

if TYPE_CHECKING:
    from derivable.circuit.compilation.compilation import compile
    from derivable.circuit.compilation.factors import from_factors
    from derivable.circuit.compilation.load import from_sdd, load
    from derivable.circuit.formulas.cnf import Cnf
    from derivable.circuit.formulas.dimacs import read_dimacs, write_dimacs
    from derivable.circuit.formulas.formula import (
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
    from derivable.circuit.graph.builder import CircuitBuilder
    from derivable.circuit.graph.circuit import Circuit
    from derivable.circuit.learn.probabilistic import ProbabilisticCircuit
    from derivable.circuit.queries.network import Network, from_bif, from_uai, load_network

__all__ = [
    "Circuit",
    "CircuitBuilder",
    "Cnf",
    "Formula",
    "Network",
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
    "from_bif",
    "from_factors",
    "from_sdd",
    "from_uai",
    "implies",
    "load",
    "load_network",
    "read_dimacs",
    "variables",
    "write_dimacs",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Circuit": "derivable.circuit.graph.circuit",
        "CircuitBuilder": "derivable.circuit.graph.builder",
        "Cnf": "derivable.circuit.formulas.cnf",
        "Formula": "derivable.circuit.formulas.formula",
        "Network": "derivable.circuit.queries.network",
        "ProbabilisticCircuit": "derivable.circuit.learn.probabilistic",
        "at_least_k": "derivable.circuit.formulas.formula",
        "at_least_one": "derivable.circuit.formulas.formula",
        "at_most_k": "derivable.circuit.formulas.formula",
        "at_most_one": "derivable.circuit.formulas.formula",
        "compile": "derivable.circuit.compilation.compilation",
        "conjunction": "derivable.circuit.formulas.formula",
        "disjunction": "derivable.circuit.formulas.formula",
        "equivalent": "derivable.circuit.formulas.formula",
        "exactly_k": "derivable.circuit.formulas.formula",
        "exactly_one": "derivable.circuit.formulas.formula",
        "from_bif": "derivable.circuit.queries.network",
        "from_factors": "derivable.circuit.compilation.factors",
        "from_sdd": "derivable.circuit.compilation.load",
        "from_uai": "derivable.circuit.queries.network",
        "implies": "derivable.circuit.formulas.formula",
        "load": "derivable.circuit.compilation.load",
        "load_network": "derivable.circuit.queries.network",
        "read_dimacs": "derivable.circuit.formulas.dimacs",
        "variables": "derivable.circuit.formulas.formula",
        "write_dimacs": "derivable.circuit.formulas.dimacs",
    },
    ("graph.builder", "formulas.formula"),
)
