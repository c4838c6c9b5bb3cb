"""Projected counting: over some variables, those that are shown, which assignments extend to a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from derivable.circuit.compilation.compilation import compile
from derivable.circuit.compilation.elimination import projection_vtree
from derivable.circuit.formulas.cnf import Cnf
from derivable.circuit.graph.circuit import Circuit
from derivable.core.diagnostics import DomainError


def compile_projection(cnf: Cnf, *, time_limit: float | None = None) -> Circuit:
    """The circuit of the assignments of `cnf.shown` that extend to a model; the other variables are free in it.

    So `model_count()` is the projected count times 2 to the number of the others. `circuit.weights` of the others are
    1/2, so that `weighted_count(*circuit.weights)` is the weighted projected count.

    Raises DomainError for a formula that shows no variable in particular, CompileTimeout.
    """
    if cnf.shown is None:
        raise DomainError("the formula does not say which variables are shown", hint="`c p show VARIABLE ... 0`")
    plain = replace(cnf, shown=None, weights=None)
    if not cnf.num_variables:
        return compile(plain, time_limit=time_limit)
    tree = projection_vtree(cnf.num_variables, cnf.clauses(), cnf.shown)
    circuit = compile(plain, vtree=tree, time_limit=time_limit)
    is_hidden = np.ones(cnf.num_variables, bool)
    is_hidden[np.array(cnf.shown, np.int64) - 1] = False
    hidden = (np.flatnonzero(is_hidden) + 1).tolist()
    if hidden:
        circuit = circuit.forget(hidden)
    if cnf.weights is None:
        return circuit
    positive, negative = (np.where(is_hidden, 0.5, weights) for weights in cnf.weights)
    return replace(circuit, weights=(positive, negative))
