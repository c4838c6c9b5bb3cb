"""Evaluation of a circuit in a semiring on nests, such as (probability, witness): arrays for each scalar."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from derivable.algebra.element import flatten, rebuild
from derivable.algebra.semiring import Semiring
from derivable.circuit.circuit import Circuit
from derivable.circuit.fold_rows import fold, fold_vjp
from derivable.circuit.plan import plan_of
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError


def evaluate_nests(circuit: Circuit, weights: Any, negative_weights: Any, ring: Semiring) -> Any:
    """As `circuit.evaluate`."""
    parts, negatives, batch = _parts(circuit, weights, negative_weights, ring)
    return _nest(ring, fold(plan_of(circuit), ring, parts, negatives), batch)


def nest_value_and_gradient(
    circuit: Circuit, weights: Any, negative_weights: Any, ring: Semiring, adjoints: Any = None
) -> tuple[Any, Any, Any]:
    """As `circuit.value_and_gradient`; without adjoints, of the sum of all floats of all roots."""
    parts, negatives, batch = _parts(circuit, weights, negative_weights, ring)
    plan, seeds = plan_of(circuit), None
    if adjoints is not None:
        shape = (*batch, plan.num_roots)
        given = _columns(ring, adjoints, "adjoints")
        seeds = [np.broadcast_to(array, shape).reshape(-1, plan.num_roots) for array in given]
    values, gradient, negative = fold_vjp(plan, ring, parts, negatives, seeds)
    return (
        _nest(ring, values, batch),
        _nest(ring, gradient, batch),
        None if negative is None else _nest(ring, negative, batch),
    )


def refuse_nests(ring: Semiring, what: str) -> None:
    """Raise UnsupportedError for a semiring on nests."""
    if not ring.is_scalar:
        raise UnsupportedError(
            f"{what} takes semirings on scalars, and the values of {ring.name!r} are {ring.element}",
            hint="use `circuit.evaluate` and `circuit.value_and_gradient`, with NumPy arrays",
        )


def _columns(ring: Semiring, value: Any, what: str) -> list[np.ndarray]:
    """The scalars of a nest of arrays, [...] each."""
    found = []
    for leaf, shape in zip(flatten(ring.element, value, what), ring.element.leaf_shapes):
        array = np.asarray(leaf)
        if array.ndim < len(shape) or array.shape[array.ndim - len(shape) :] != shape:
            raise ShapeError(f"an array of {what} has shape {array.shape}, which does not end with {shape}")
        found += [array[(..., *place)] for place in np.ndindex(shape)]
    return found


def _parts(circuit: Circuit, weights: Any, negative_weights: Any, ring: Semiring) -> tuple[list, list | None, tuple]:
    """Arrays [row, variable] of the scalars of the weights and of the negative ones, and the batch shape."""
    given = _columns(ring, weights, "weights")
    count = len(given)
    if negative_weights is not None:
        given += _columns(ring, negative_weights, "negative_weights")
    for array in given:
        if array.ndim == 0 or array.shape[-1] != circuit.num_variables:
            raise ShapeError(
                f"an array of the weights has shape {array.shape}, the circuit has {circuit.num_variables} variables",
                hint=f"give arrays [*batch, variable] with {circuit.num_variables} entries in the last axis",
            )
    try:
        shape = np.broadcast_shapes(*(array.shape for array in given))
    except ValueError:
        raise ShapeError(f"the arrays of the weights do not broadcast: {[array.shape for array in given]}") from None
    floats = [array.dtype for array in given if array.dtype.kind == "f"]
    single = bool(floats) and all(dtype == np.float32 for dtype in floats)
    leaf_types = ring.dtypes("float32" if single else "float64")
    dtypes = [t for t, size in zip(leaf_types, ring.element.leaf_sizes) for _ in range(size)]
    rows = math.prod(shape[:-1])
    parts = []
    for array, dtype in zip(given, dtypes * 2):
        if array.dtype.kind not in {"b": "b", "i": "biu", "f": "biuf"}[np.dtype(dtype).kind]:
            raise DomainError(f"weights of dtype {array.dtype} where the semiring {ring.name!r} has {dtype}")
        part = np.ascontiguousarray(np.broadcast_to(array, shape).reshape(rows, shape[-1]), dtype)
        parts.append(part)
    return parts[:count], parts[count:] or None, shape[:-1]


def _nest(ring: Semiring, parts: list[np.ndarray], batch: tuple[int, ...]) -> Any:
    leaves, position = [], 0
    for shape, size in zip(ring.element.leaf_shapes, ring.element.leaf_sizes):
        scalars = [part.reshape(*batch, part.shape[-1]) for part in parts[position : position + size]]
        leaves.append(np.stack(scalars, axis=-1).reshape(*scalars[0].shape, *shape) if shape else scalars[0])
        position += size
    return rebuild(ring.element, ring.zero, leaves)
