"""Evaluation of a circuit in a semiring, with exact reverse-mode gradients, for NumPy arrays."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit.circuit import Circuit
from derivable.circuit.evaluate_nests import evaluate_nests, nest_value_and_gradient
from derivable.circuit.fold_nodes import Nodes, run_tiles
from derivable.circuit.literal_weights import in_columns
from derivable.circuit.plan import LINE_BYTES, Plan, plan_of
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.device.cpu.levels_log import BAD_WEIGHT, log_rows
from derivable.device.cpu.levels_real import GRADIENT, VALUES, VALUES_AND_GRADIENT, real_rows
from derivable.device.cpu.levels_scaled import log_rows_scaled
from derivable.device.cpu.levels_team import close, follow, new_state
from derivable.device.cpu.levels_unbounded import log_rows_unbounded
from derivable.device.cpu.memory import contiguous, empty, empty_like, full
from derivable.device.cpu.threads import Team, run_chunks, team_size
from derivable.parallel.levels import fold_levels

__all__ = ["GRADIENT", "VALUES", "VALUES_AND_GRADIENT", "evaluate", "fold_rows", "value_and_gradient"]

# A thread is worth its hand-over from about this many edges times rows.
_WORTH_A_THREAD = 60_000
# And the threads of a team, which meet after each level, from this many operands; an operand of a line of rows takes
# two to three times as long. More members would only add up each other's buffers.
_WORTH_A_TEAM = 200_000
_LINE = 2
_LARGEST_TEAM = 8
# Type checkers take the number of arguments from a tuple they cannot know.
_log_rows: Any = log_rows
_log_rows_scaled: Any = log_rows_scaled
_real_rows: Any = real_rows
_NONE = {np.dtype(dtype).char: np.zeros((0, 0), dtype) for dtype in (np.float32, np.float64, np.bool_)}


def evaluate(circuit: Circuit, weights, negative_weights=None, semiring: str | Semiring = "real") -> np.ndarray:
    """Values of the roots.

    weights           [*batch, variable] in the carrier of the semiring: float32 or float64 (log: nats), bool, or
                      integers of any size (dtype object) for the counting semiring; or a mapping from variables
                      (numbers, names, a formula's variables) to numbers or arrays [*batch]. Of a semiring on nests a
                      nest of such arrays, [*batch, variable, *shape] for small arrays in it
    negative_weights  the same for negative literals; None takes the semiring's complement (real 1 - w,
                      log log(1 - exp(w))); DomainError if it has none
    returns           [*batch, root] in the dtype of the weights, or a nest of such; an empty batch gives an empty
                      array

    Raises ShapeError if the last axis is not num_variables long or the arrays do not broadcast, DomainError for NaN
    weights, naming row and variable. Source: Maene et al. 2025, Algorithm 1, on fused sums of products.
    """
    ring = semirings.get(semiring)
    if not ring.is_scalar:
        return evaluate_nests(circuit, weights, negative_weights, ring)
    plan = plan_of(circuit)
    weights = in_columns(circuit, weights, "weights")
    negative_weights = in_columns(circuit, negative_weights, "negative_weights")
    weights, negatives, batch = rows_of(weights, negative_weights, plan.num_variables, ring)
    out = empty((weights.shape[0], plan.num_roots), weights.dtype)
    fold_rows(plan, ring, VALUES, weights, negatives, out)
    return out.reshape(*batch, plan.num_roots)


def value_and_gradient(
    circuit: Circuit, weights, negative_weights=None, semiring: str | Semiring = "real", adjoints=None
):
    """Values of the roots and the gradient of their sum, or of their sum weighted by `adjoints`.

    weights, negative_weights  as in `evaluate`
    adjoints                   [*batch, root], None for ones
    returns  (values [*batch, root], gradient [*batch, variable], gradient for the negative weights or None); of a
             semiring on nests nests of such arrays, with zeros for scalars that are not floats

    In the log semiring a root of -inf gives no gradient. Where a minimum or maximum is attained more than once, the
    child of the smallest index gets the adjoint. Raises as `evaluate` does, and UnsupportedError if the semiring is
    not differentiable.
    """
    ring = semirings.get(semiring)
    check_differentiable(ring)
    if not ring.is_scalar:
        return nest_value_and_gradient(circuit, weights, negative_weights, ring, adjoints)
    plan = plan_of(circuit)
    weights = in_columns(circuit, weights, "weights")
    negative_weights = in_columns(circuit, negative_weights, "negative_weights")
    weights, negatives, batch = rows_of(weights, negative_weights, plan.num_variables, ring)
    out = empty((weights.shape[0], plan.num_roots), weights.dtype)
    gradient = empty_like(weights)
    negative_gradient = None if negatives is None else empty_like(weights)
    if adjoints is None and plan.num_roots == 1:
        fold_rows(plan, ring, VALUES_AND_GRADIENT, weights, negatives, out, None, gradient, negative_gradient)
    else:
        if adjoints is None:
            seeds = full(out.shape, 1, out.dtype)
        else:
            seeds = np.broadcast_to(np.asarray(adjoints, out.dtype), (*batch, plan.num_roots)).reshape(out.shape)
        fold_rows(plan, ring, VALUES, weights, negatives, out)
        fold_rows(plan, ring, GRADIENT, weights, negatives, None, seeds, gradient, negative_gradient)
    shape = (*batch, plan.num_variables)
    return (
        out.reshape(*batch, plan.num_roots),
        gradient.reshape(shape),
        None if negative_gradient is None else negative_gradient.reshape(shape),
    )


def check_differentiable(ring: Semiring) -> None:
    if not ring.differentiable:
        raise UnsupportedError(
            f"the semiring {ring.name!r} is not differentiable", hint="its values have no gradient; use `evaluate`"
        )


def rows_of(weights, negative_weights, num_variables: int, ring: Semiring):
    """(weights [row, variable], negative weights or None, batch shape), contiguous and of one dtype of the carrier."""
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
        return np.asarray(values)
    except ValueError:
        raise ShapeError(f"{name} is ragged: its rows have different lengths") from None


def check_size(shape, num_variables: int, name: str) -> None:
    if len(shape) == 0 or shape[-1] != num_variables:
        found = "is a single number" if len(shape) == 0 else f"has {shape[-1]} entries in its last axis"
        raise ShapeError(
            f"{name} of shape {tuple(shape)} {found}, the circuit has {num_variables} variables",
            hint=f"give {name}[..., variable] with {num_variables} entries in the last axis",
        )


def fold_rows(
    plan: Plan,
    ring: Semiring,
    mode: int,
    weights: np.ndarray,
    negatives: np.ndarray | None,
    out: np.ndarray | None,
    seeds: np.ndarray | None = None,
    gradient: np.ndarray | None = None,
    negative_gradient: np.ndarray | None = None,
) -> None:
    """Run the kernels over contiguous rows; the arrays are those of `device.cpu.levels_real.real_rows`."""
    rows = weights.shape[0]
    if rows == 0:
        return
    if ring.complement is None:
        check_complement(plan, ring, negatives is not None)
    if ring.carrier == "integer":
        _fold_objects(plan, ring, weights, negatives, out)
        return
    dtype = weights.dtype.type
    none = _NONE[weights.dtype.char]
    results = (
        none if out is None else out,
        none if seeds is None else seeds,
        none if gradient is None else gradient,
        none if negative_gradient is None else negative_gradient,
    )
    arguments = (mode, weights, none if negatives is None else negatives, negatives is not None)
    if ring is semirings.log or ring == semirings.log:
        run: Any = _log_tiles
        dtype = np.float64
    elif ring is semirings.real or ring == semirings.real:
        run = _real_tiles
    else:
        run = partial(_semiring_tiles, ring)
    lanes = 1 if rows == 1 else LINE_BYTES // max(4, np.dtype(dtype).itemsize)
    tiles = -(-rows // lanes)
    if plan.operations * _LINE >= _WORTH_A_TEAM and run in (_log_tiles, _real_tiles):
        members = _members(plan, tiles, lanes)
        if members > 1:
            for tile in range(tiles):
                run(tile, tile + 1, plan, dtype, lanes, arguments, results, members)
            return
    if tiles == 1:
        run(0, 1, plan, dtype, lanes, arguments, results)
        return
    smallest = max(1, _WORTH_A_THREAD // max(1, plan.operations * lanes))
    run_chunks(run, tiles, smallest, plan, dtype, lanes, arguments, results)


def check_complement(plan: Plan, ring: Semiring, has_negative: bool) -> None:
    """Raise DomainError if negative weights are needed and neither given nor known."""
    if ring.complement is None and not has_negative and bool((plan.literal < 0).any()):
        raise DomainError(
            f"the semiring {ring.name!r} has no complement, and the circuit has negative literals",
            hint="give negative_weights",
        )


def _members(plan: Plan, tiles: int, lanes: int) -> int:
    """Threads that compute each tile together: 1 if tiles can be had by one thread each, or levels are too small."""
    members = team_size(_LARGEST_TEAM)
    if tiles >= members:
        return 1
    _, shared = plan.cut(members)
    return members if shared * (1 if lanes == 1 else _LINE) >= _WORTH_A_TEAM else 1


def _program(plan: Plan) -> tuple[np.ndarray, ...]:
    return plan.positive, plan.negative, plan.runs, plan.terms, plan.root_slots


def _run_team(
    kernel: Any, first: int, last: int, plan: Plan, dtype: type, lanes: int, members: int, arguments: tuple, rest: tuple
) -> int:
    """The kernel's result for rows first:last, by several threads."""
    scratch = plan.take_team(dtype, lanes, members)
    values, adjoints, prefix = scratch
    program, _ = plan.cut(members)
    state = new_state(program)
    team = (*program, adjoints, prefix, state)
    kernel_program = plan.positive, plan.negative, team, plan.terms, plan.root_slots
    pace = plan.pace(dtype, lanes, members, arguments[0])
    together = pace.with_team()
    begin = time.perf_counter()
    try:
        with Team(partial(follow, values, team, plan.terms), members if together else 1):
            result = kernel(first, last, *arguments, *kernel_program, values, adjoints[0], prefix[0], *rest)
    finally:
        all_out = close(state)
    pace.took(time.perf_counter() - begin, together)
    if all_out:
        plan.put_back_team(scratch, dtype, lanes, members)
    return result


def _real_tiles(
    start: int, stop: int, plan: Plan, dtype: type, lanes: int, arguments: tuple, results: tuple, members: int = 1
) -> None:
    weights = arguments[1]
    first, last = start * lanes, min(stop * lanes, weights.shape[0])
    if members > 1:
        bad = _run_team(_real_rows, first, last, plan, dtype, lanes, members, arguments, results)
    else:
        scratch = plan.take(dtype, lanes)
        bad = _real_rows(first, last, *arguments, *_program(plan), *scratch, *results)
        plan.put_back(scratch, dtype, lanes)
    if bad >= 0:
        raise_bad_weight("real", weights, arguments[2] if arguments[3] else None)


def _log_tiles(
    start: int, stop: int, plan: Plan, dtype: type, lanes: int, arguments: tuple, results: tuple, members: int = 1
) -> None:
    weights = arguments[1]
    first, last = start * lanes, min(stop * lanes, weights.shape[0])
    left_over = np.zeros(-(-weights.shape[0] // lanes), np.bool_)
    program = _program(plan)
    if members > 1:
        rest = (*results, plan.budget, plan.degree, left_over)
        left = _run_team(_log_rows, first, last, plan, dtype, lanes, members, arguments, rest)
    else:
        scratch = plan.take(dtype, lanes)
        left = _log_rows(first, last, *arguments, *program, *scratch, *results, plan.budget, plan.degree, left_over)
        plan.put_back(scratch, dtype, lanes)
    if left > 0:
        scratch = plan.take(dtype, lanes, scaled=True)
        rest = (*results, *scratch[3:], plan.bound, left_over)
        left = _log_rows_scaled(first, last, *arguments, *program, *scratch[:3], *rest)
        plan.put_back(scratch, dtype, lanes, scaled=True)
    if left > 0:
        rows = (row for row in range(first, last) if left_over[row // lanes])
        log_rows_unbounded(rows, plan.num_slots, *arguments, *program, *results)
    if left == BAD_WEIGHT:
        raise_bad_weight("log", weights, arguments[2] if arguments[3] else None)


def _semiring_tiles(
    ring: Semiring, start: int, stop: int, plan: Plan, dtype: type, lanes: int, arguments: tuple, results: tuple
) -> None:
    mode, *arrays = arguments
    nodes = Nodes(plan.kind, plan.literal, plan.offsets, plan.children, plan.roots)
    if not run_tiles(start, stop, nodes, ring, lanes, mode, tuple(arrays), results):
        raise_bad_weight(ring.name, arrays[0], arrays[1] if arrays[2] else None)


def _fold_objects(plan: Plan, ring: Semiring, weights: np.ndarray, negatives: np.ndarray | None, out) -> None:
    node, variable, positive = plan.leaves()
    leaf = np.zeros(len(plan.kind), np.int64)
    leaf[node] = np.arange(len(node))
    if negatives is None:
        assert ring.complement is not None or bool(positive.all())
        complement: Any = np.frompyfunc(ring.complement or ring.times, 1, 1)
        negatives = complement(weights).astype(object) if not positive.all() else weights
    assert negatives is not None
    columns = np.where(positive[:, None], weights.T[variable], negatives.T[variable])
    values = fold_levels(columns, plan.kind, leaf, plan.offsets, plan.children, ring)
    out[...] = values[plan.roots].T


def raise_bad_weight(domain: str, weights: np.ndarray, negatives: np.ndarray | None) -> None:
    """Raise DomainError for the first weight that `domain` does not accept."""
    for name, array in (("weights", weights), ("negative_weights", negatives)):
        if array is None:
            continue
        bad = np.isnan(array.astype(float))
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
