"""Evaluation of a circuit in a semiring, with exact reverse-mode gradients, for NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit.circuit import Circuit
from derivable.circuit.plan import LINE_BYTES, Plan, plan_of
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.device.cpu.levels_log import BAD_WEIGHT, log_rows
from derivable.device.cpu.levels_real import GRADIENT, VALUES, VALUES_AND_GRADIENT, real_rows
from derivable.device.cpu.levels_scaled import log_rows_scaled
from derivable.device.cpu.threads import run_chunks

__all__ = ["GRADIENT", "VALUES", "VALUES_AND_GRADIENT", "evaluate", "fold_rows", "value_and_gradient"]

# A thread is worth its hand-over from about this many edges times rows.
_WORTH_A_THREAD = 60_000
# Type checkers take the number of arguments from a tuple they cannot know.
_log_rows: Any = log_rows
_log_rows_scaled: Any = log_rows_scaled
_real_rows: Any = real_rows
_NONE64 = np.zeros((0, 0), np.float64)
_NONE32 = np.zeros((0, 0), np.float32)


def evaluate(circuit: Circuit, weights, negative_weights=None, semiring: str | Semiring = "real") -> np.ndarray:
    """Values of the roots.

    weights           [*batch, variable] float32 or float64, in the carrier of the semiring (log: nats)
    negative_weights  the same for negative literals; None takes the semiring's complement (real 1 - w,
                      log log(1 - exp(w))); DomainError if it has none
    returns           [*batch, root] in the dtype of the weights; an empty batch gives an empty array

    Raises ShapeError if the last axis is not num_variables long or the arrays do not broadcast, DomainError for NaN
    weights, naming row and variable. Source: Maene et al. 2025, Algorithm 1, on fused sums of products.
    """
    ring = semirings.get(semiring)
    plan = plan_of(circuit)
    weights, negatives, batch = rows_of(weights, negative_weights, plan.num_variables)
    if ring.name not in ("real", "log"):
        raise UnsupportedError(f"the semiring {ring.name!r} has no kernels yet")
    out = np.empty((weights.shape[0], plan.num_roots), weights.dtype)
    fold_rows(plan, ring.name, VALUES, weights, negatives, out)
    return out.reshape(*batch, plan.num_roots)


def value_and_gradient(
    circuit: Circuit, weights, negative_weights=None, semiring: str | Semiring = "real", adjoints=None
):
    """Values of the roots and the gradient of their sum, or of their sum weighted by `adjoints`.

    weights, negative_weights  as in `evaluate`
    adjoints                   [*batch, root], None for ones
    returns  (values [*batch, root], gradient [*batch, variable], gradient for the negative weights or None)

    In the log semiring a root of -inf gives no gradient.
    """
    ring = semirings.get(semiring)
    plan = plan_of(circuit)
    weights, negatives, batch = rows_of(weights, negative_weights, plan.num_variables)
    out = np.empty((weights.shape[0], plan.num_roots), weights.dtype)
    gradient = np.empty(weights.shape, weights.dtype)
    negative_gradient = None if negatives is None else np.empty(weights.shape, weights.dtype)
    if adjoints is None and plan.num_roots == 1:
        fold_rows(plan, ring.name, VALUES_AND_GRADIENT, weights, negatives, out, None, gradient, negative_gradient)
    else:
        if adjoints is None:
            seeds = np.ones(out.shape, out.dtype)
        else:
            seeds = np.broadcast_to(np.asarray(adjoints, out.dtype), (*batch, plan.num_roots)).reshape(out.shape)
        fold_rows(plan, ring.name, VALUES, weights, negatives, out)
        fold_rows(plan, ring.name, GRADIENT, weights, negatives, None, seeds, gradient, negative_gradient)
    shape = (*batch, plan.num_variables)
    return (
        out.reshape(*batch, plan.num_roots),
        gradient.reshape(shape),
        None if negative_gradient is None else negative_gradient.reshape(shape),
    )


def rows_of(weights, negative_weights, num_variables: int):
    """(weights [row, variable], negative weights or None, batch shape), contiguous and of one float dtype."""
    weights = np.asarray(weights)
    dtype = weights.dtype
    if negative_weights is not None:
        negative_weights = np.asarray(negative_weights)
        dtype = np.result_type(dtype, negative_weights.dtype)
    if dtype not in (np.float32, np.float64):
        if dtype.kind not in "fiub":
            raise DomainError(f"weights of dtype {dtype} are no real numbers", hint="use float32 or float64")
        dtype = np.dtype(np.float32 if dtype == np.float16 else np.float64)
    check_size(weights.shape, num_variables, "weights")
    if negative_weights is not None:
        check_size(negative_weights.shape, num_variables, "negative_weights")
        if negative_weights.shape != weights.shape:
            try:
                weights, negative_weights = np.broadcast_arrays(weights, negative_weights)
            except ValueError:
                raise ShapeError(
                    f"weights {weights.shape} and negative_weights {negative_weights.shape} do not broadcast"
                ) from None
    batch = weights.shape[:-1]
    rows = math.prod(batch)
    weights = np.ascontiguousarray(weights, dtype).reshape(rows, num_variables)
    if negative_weights is not None:
        negative_weights = np.ascontiguousarray(negative_weights, dtype).reshape(rows, num_variables)
    return weights, negative_weights, batch


def check_size(shape, num_variables: int, name: str) -> None:
    if len(shape) == 0 or shape[-1] != num_variables:
        found = "is a single number" if len(shape) == 0 else f"has {shape[-1]} entries in its last axis"
        raise ShapeError(
            f"{name} of shape {tuple(shape)} {found}, the circuit has {num_variables} variables",
            hint=f"give {name}[..., variable] with {num_variables} entries in the last axis",
        )


def fold_rows(
    plan: Plan,
    domain: str,
    mode: int,
    weights: np.ndarray,
    negatives: np.ndarray | None,
    out: np.ndarray | None,
    seeds: np.ndarray | None = None,
    gradient: np.ndarray | None = None,
    negative_gradient: np.ndarray | None = None,
) -> None:
    """Run the kernels of the "real" or "log" domain over contiguous rows; the arrays are those of `real_rows`."""
    rows = weights.shape[0]
    if rows == 0:
        return
    none = _NONE64 if weights.dtype == np.float64 else _NONE32
    arguments = (
        mode,
        weights,
        none if negatives is None else negatives,
        negatives is not None,
        plan.positive,
        plan.negative,
        plan.runs,
        plan.terms,
        plan.root_slots,
    )
    results = (
        none if out is None else out,
        none if seeds is None else seeds,
        none if gradient is None else gradient,
        none if negative_gradient is None else negative_gradient,
    )
    dtype = np.float64 if domain == "log" else weights.dtype.type
    lanes = 1 if rows == 1 else LINE_BYTES // np.dtype(dtype).itemsize
    run = _log_tiles if domain == "log" else _real_tiles
    if rows <= lanes:
        run(0, 1, plan, dtype, lanes, arguments, results)
        return
    tiles = -(-rows // lanes)
    smallest = max(1, _WORTH_A_THREAD // max(1, plan.operations * lanes))
    run_chunks(run, tiles, smallest, plan, dtype, lanes, arguments, results)


def _real_tiles(start: int, stop: int, plan: Plan, dtype: type, lanes: int, arguments: tuple, results: tuple) -> None:
    weights = arguments[1]
    scratch = plan.take(dtype, lanes)
    bad = _real_rows(start * lanes, min(stop * lanes, weights.shape[0]), *arguments, *scratch, *results)
    plan.put_back(scratch, dtype, lanes)
    if bad >= 0:
        raise_bad_weight("real", weights, arguments[2] if arguments[3] else None)


def _log_tiles(start: int, stop: int, plan: Plan, dtype: type, lanes: int, arguments: tuple, results: tuple) -> None:
    weights = arguments[1]
    first, last = start * lanes, min(stop * lanes, weights.shape[0])
    left_over = np.zeros(-(-weights.shape[0] // lanes), np.bool_)
    scratch = plan.take(dtype, lanes)
    left = _log_rows(first, last, *arguments, *scratch, *results, plan.budget, plan.degree, left_over)
    plan.put_back(scratch, dtype, lanes)
    if left > 0:
        scratch = plan.take(dtype, lanes, scaled=True)
        left = _log_rows_scaled(first, last, *arguments, *scratch[:3], *results, *scratch[3:], left_over)
        plan.put_back(scratch, dtype, lanes, scaled=True)
    if left == BAD_WEIGHT:
        raise_bad_weight("log", weights, arguments[2] if arguments[3] else None)


def raise_bad_weight(domain: str, weights: np.ndarray, negatives: np.ndarray | None) -> None:
    """Raise DomainError for the first weight that `domain` does not accept."""
    for name, array in (("weights", weights), ("negative_weights", negatives)):
        if array is None:
            continue
        bad = np.isnan(array)
        if domain == "log":
            bad |= array == np.inf
            if negatives is None:
                bad |= array > 0
        places = np.argwhere(bad)
        if len(places) == 0:
            continue
        row, variable = places[0].tolist()
        value = float(array[row, variable])
        where = f"variable {variable + 1}" + (f" in row {row} of the batch" if len(array) > 1 else "")
        if math.isnan(value):
            raise DomainError(f"{name} is NaN at {where}", hint="look for 0 / 0, inf - inf or log of a negative number")
        if value == math.inf:
            raise DomainError(f"{name} is inf at {where}, log weights are below inf")
        raise DomainError(
            f"{name} is {value:g} at {where}: a log weight above 0 has no complement log(1 - exp(w))",
            hint="give log probabilities (at most 0), or negative_weights",
        )
    raise AssertionError("a kernel refused weights that are in order")


def explain_kernels(circuit: Circuit) -> str:
    """What evaluates the circuit, and why; the text of `circuit.explain("kernels")`."""
    from derivable.circuit.plan import describe_plan

    return describe_plan(circuit)
