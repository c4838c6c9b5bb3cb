"""Evaluation of a circuit in a semiring, with exact reverse-mode gradients, for NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit.fold.block_fold import folds_tables, table_possible, table_values, table_vjp
from derivable.circuit.fold.fold_rows import GRADIENT, VALUES, VALUES_AND_GRADIENT, fold_rows
from derivable.circuit.fold.literal_weights import in_columns
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.core.arguments import is_integer
from derivable.core.arrays import as_array
from derivable.core.diagnostics import DomainError, ShapeError, TypeMismatchError, UnsupportedError, warn
from derivable.device.cpu.memory import contiguous, empty, empty_like

_BEST = ("max_product", "maxmultprob")  # whose plus of the two literals of a variable is not one
_FLOATS = np.dtype(np.float64), np.dtype(np.float32)


def evaluate(circuit: Circuit, weights, negative_weights=None, semiring: str | Semiring = "real") -> np.ndarray:
    """Values of the roots.

    weights           [*batch, variable] in the carrier of the semiring: float32 or float64 (log: nats), bool, or
                      integers of any size (dtype object) for the counting semiring; or a mapping from variables
                      (numbers, names, a formula's variables) to numbers or arrays [*batch]. For a semiring whose
                      elements are nests, a nest of arrays [*batch, variable, *shape of the leaf], or probabilities,
                      from which its `fact` makes elements
    negative_weights  the same for negative literals; None takes the semiring's complement (real 1 - w,
                      log log(1 - exp(w))); DomainError if it has none
    returns           [*batch, root] in the dtype of the weights; an empty batch gives an empty array. A nest of
                      arrays for elements that are nests

    Raises ShapeError if the last axis is not num_variables long or the arrays do not broadcast, DomainError for NaN
    weights, naming row and variable, UnsupportedError for tensors that require a gradient or are traced.
    Source: Maene et al. 2025, Algorithm 1, on fused sums of products.
    """
    ring = semirings.get(semiring)
    if ring.name in _BEST and not _mentions_all(circuit):
        warn(
            f"{ring.name!r} of a circuit that is not smooth: a variable counts as 1 in a branch without it",
            hint="circuit.smooth().evaluate(...) has the weight of the best model, circuit.most_probable(...) both",
        )
    weights = in_columns(circuit, weights, "weights")
    negative_weights = in_columns(circuit, negative_weights, "negative_weights")
    if not ring.is_scalar:
        from derivable.circuit.fold.pytree_weights import fold_nests

        return fold_nests(plan_of(circuit), ring, weights, negative_weights, None, has_gradient=False)[0]
    weights, negatives, batch = rows_of(weights, negative_weights, circuit.num_variables, ring)
    by_tables = table_values(circuit, ring, weights, negatives)
    if by_tables is not None:
        return by_tables.reshape(*batch, 1)
    plan = plan_of(circuit)
    out = empty((weights.shape[0], plan.num_roots), weights.dtype)
    fold_rows(plan, ring, VALUES, weights, negatives, out)
    return out.reshape(*batch, plan.num_roots)


def _mentions_all(circuit: Circuit) -> bool:
    """Whether every model is a choice of literals of all variables: the circuit is smooth, and so are its roots."""
    mentioned = np.zeros(circuit.num_variables + 1, bool)
    mentioned[np.abs(circuit.literal)] = True
    return circuit.is_smooth and bool(mentioned[1:].all())


def value_and_gradient(
    circuit: Circuit, weights, negative_weights=None, semiring: str | Semiring = "real", adjoints=None
):
    """Values of the roots and the gradient of their sum, or of their sum weighted by `adjoints`.

    weights, negative_weights  as in `evaluate`
    adjoints                   [*batch, root], None for ones
    returns  (values [*batch, root], gradient [*batch, variable], gradient for the negative weights or None)

    With elements that are nests, adjoints and values are nests, and gradients are nested like the weights were, None in
    the place of leaves that are no floats; without adjoints it is the sum of all float components.

    In the log semiring a root of -inf gives no gradient. Where a minimum or maximum is attained more than once, the
    child of the smallest index gets the adjoint. Raises as `evaluate` does, and UnsupportedError if the semiring is
    not differentiable.
    """
    ring = semirings.get(semiring)
    check_differentiable(ring)
    weights = in_columns(circuit, weights, "weights")
    negative_weights = in_columns(circuit, negative_weights, "negative_weights")
    if not ring.is_scalar:
        from derivable.circuit.fold.pytree_weights import fold_nests

        return fold_nests(plan_of(circuit), ring, weights, negative_weights, adjoints, has_gradient=True)
    weights, negatives, batch = rows_of(weights, negative_weights, circuit.num_variables, ring)
    out = empty((weights.shape[0], circuit.num_roots), weights.dtype)
    mode, seeds = VALUES_AND_GRADIENT, None
    if adjoints is not None:
        seeds, shape = np.asarray(adjoints, out.dtype), (*batch, circuit.num_roots)
        if seeds.shape != shape:
            seeds = np.broadcast_to(seeds, shape)
        seeds = contiguous(seeds).reshape(out.shape)
        mode = GRADIENT
    shape = (*batch, circuit.num_variables)
    by_tables = table_vjp(circuit, ring, weights, negatives, seeds)
    if by_tables is not None:
        out, gradient, negative_gradient = by_tables
    else:
        gradient = empty_like(weights)
        negative_gradient = None if negatives is None else empty_like(weights)
        fold_rows(plan_of(circuit), ring, mode, weights, negatives, out, seeds, gradient, negative_gradient)
    return (
        out.reshape(*batch, circuit.num_roots),
        gradient.reshape(shape),
        None if negative_gradient is None else negative_gradient.reshape(shape),
    )


def literals_possible(circuit: Circuit, can: np.ndarray, cannot: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[column] whether the root has a model with the positive literal of each of some variables.

    can, cannot  [variable] bool: which literals may be true
    columns      of variables of which each model has a literal
    """
    if folds_tables(circuit):
        return table_possible(circuit, can, cannot)[columns]
    others = np.tile(cannot, (len(columns), 1))
    others[np.arange(len(columns)), columns] = False
    return evaluate(circuit, np.tile(can, (len(columns), 1)), others, "boolean")[:, 0]


def check_differentiable(ring: Semiring) -> None:
    if not ring.differentiable:
        raise UnsupportedError(
            f"the semiring {ring.name!r} is not differentiable", hint="its values have no gradient; use `evaluate`"
        )


def rows_of(weights, negative_weights, num_variables: int, ring: Semiring):
    """(weights [row, variable], negative weights or None, batch shape), contiguous and of one dtype of the carrier."""
    if ring.carrier == "float" and _is_ready(weights, num_variables):
        if negative_weights is None:
            return weights, None, weights.shape[:1]
        same = _is_ready(negative_weights, num_variables) and negative_weights.dtype == weights.dtype
        if same and negative_weights.shape == weights.shape:
            return weights, negative_weights, weights.shape[:1]
    weights = _as_array(weights, "weights")
    given = [weights.dtype]
    check_size(weights.shape, num_variables, "weights")
    if negative_weights is not None:
        negative_weights = _as_array(negative_weights, "negative_weights")
        given.append(negative_weights.dtype)
        check_size(negative_weights.shape, num_variables, "negative_weights")
        if negative_weights.shape != weights.shape:
            try:
                weights, negative_weights = np.broadcast_arrays(weights, negative_weights)
            except ValueError:
                raise ShapeError(
                    f"weights {weights.shape} and negative_weights {negative_weights.shape} do not broadcast"
                ) from None
    dtype = _carrier_dtype(given, ring)
    batch = weights.shape[:-1]
    rows = math.prod(batch)
    weights = contiguous(weights, dtype).reshape(rows, num_variables)
    if negative_weights is not None:
        negative_weights = contiguous(negative_weights, dtype).reshape(rows, num_variables)
    return weights, negative_weights, batch


def _is_ready(array: Any, num_variables: int) -> bool:
    """Whether an array is rows of weights as the kernels take them; to find that out otherwise takes longer."""
    return (
        type(array) is np.ndarray
        and array.dtype in _FLOATS
        and array.ndim == 2
        and array.shape[1] == num_variables
        and (flags := array.flags).c_contiguous
        and flags.writeable
    )


def _carrier_dtype(given: list[np.dtype], ring: Semiring) -> np.dtype:
    kinds = {"float": "fiub", "integer": "iubO", "bool": "b"}[ring.carrier]
    for dtype in given:
        if dtype.kind not in kinds:
            wanted = {"float": "float32 or float64", "integer": "integers", "bool": "bool"}[ring.carrier]
            raise DomainError(
                f"weights of dtype {dtype} are not of the carrier of the semiring {ring.name!r}", hint=f"use {wanted}"
            )
    if ring.carrier == "integer":
        return np.dtype(object)
    dtype = np.result_type(*given)
    if ring.carrier == "float" and dtype not in (np.float32, np.float64):
        dtype = np.dtype(np.float32 if dtype == np.float16 else np.float64)
    return dtype


def _as_array(values, name: str) -> np.ndarray:
    try:
        array = as_array(values, name)
    except ValueError:
        raise ShapeError(f"{name} is ragged: its rows have different lengths") from None
    if array.dtype == object and not array.ndim and not is_integer(array.item()):
        raise TypeMismatchError(f"{name} is of type {type(values).__name__}, and no array of numbers")
    return array


def check_size(shape, num_variables: int, name: str) -> None:
    if len(shape) == 0 or shape[-1] != num_variables:
        found = "is a single number" if len(shape) == 0 else f"has {shape[-1]} entries in its last axis"
        raise ShapeError(
            f"{name} of shape {tuple(shape)} {found}, the circuit has {num_variables} variables",
            hint=f"give {name}[..., variable] with {num_variables} entries in the last axis",
        )
