"""Evaluation of a circuit in a semiring, with exact reverse-mode gradients, for NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit.circuit import Circuit
from derivable.circuit.literal_weights import in_columns
from derivable.circuit.plan import LINE_BYTES, Plan, plan_of
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.device.cpu.levels import GRADIENT, VALUES, VALUES_AND_GRADIENT, LevelKernels, level_kernels
from derivable.device.cpu.memory import contiguous, empty, empty_like, full
from derivable.device.cpu.threads import run_chunks
from derivable.parallel.levels import fold_levels

__all__ = ["GRADIENT", "VALUES", "VALUES_AND_GRADIENT", "evaluate", "fold_rows", "value_and_gradient"]

# A thread is worth its hand-over from about this many edges times rows.
_WORTH_A_THREAD = 60_000
_FLOATS = np.dtype(np.float64), np.dtype(np.float32)
_PRECISIONS = {"f": "float32", "d": "float64"}


Rows = np.ndarray | tuple[np.ndarray, ...]


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
    weights, naming row and variable. Source: Maene et al. 2025, Algorithm 1, on fused sums of products.
    """
    ring = semirings.get(semiring)
    plan = plan_of(circuit)
    weights = in_columns(circuit, weights, "weights")
    negative_weights = in_columns(circuit, negative_weights, "negative_weights")
    if not ring.is_scalar:
        from derivable.circuit.nested_weights import fold_nests

        return fold_nests(plan, ring, weights, negative_weights, None, has_gradient=False)[0]
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
    returns  (values [*batch, root], gradient [*batch, variable], gradient for the negative weights or None)

    With elements that are nests, adjoints and values are nests, and gradients are nested like the weights were, None in
    the place of leaves that are no floats; without adjoints it is the sum of all float components.

    In the log semiring a root of -inf gives no gradient. Where a minimum or maximum is attained more than once, the
    child of the smallest index gets the adjoint. Raises as `evaluate` does, and UnsupportedError if the semiring is
    not differentiable.
    """
    ring = semirings.get(semiring)
    check_differentiable(ring)
    plan = plan_of(circuit)
    weights = in_columns(circuit, weights, "weights")
    negative_weights = in_columns(circuit, negative_weights, "negative_weights")
    if not ring.is_scalar:
        from derivable.circuit.nested_weights import fold_nests

        return fold_nests(plan, ring, weights, negative_weights, adjoints, has_gradient=True)
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
        fold_rows(plan, ring, GRADIENT, weights, negatives, out, seeds, gradient, negative_gradient)
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
        and array.flags.c_contiguous
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
    weights: Rows,
    negatives: Rows | None,
    out: Rows | None,
    seeds: Rows | None = None,
    gradient: Rows | None = None,
    negative_gradient: Rows | None = None,
) -> None:
    """Run the kernels over contiguous rows: arrays, or a tuple of them with one for each scalar of an element.

    mode                       VALUES, VALUES_AND_GRADIENT or GRADIENT; `out` may be given with GRADIENT too
    weights, negatives         [row, variable]; without negatives they are the complement of the weights
    out, seeds                 [row, root]; the adjoints of the roots, ones if None
    gradient, negative_gradient  [row, variable]; these and seeds for the floats of an element only
    """
    given = weights, negatives, out, seeds, gradient, negative_gradient
    arrays: list[Any] = [() if x is None else x if type(x) is tuple else (x,) for x in given]
    columns = arrays[0]
    rows = len(columns[0])
    if rows == 0:
        return
    if ring.complement is None:
        check_complement(plan, ring, negatives is not None)
    if ring.is_scalar and ring.carrier == "integer":
        _fold_objects(plan, ring, *(part[0] if part else None for part in arrays[:3]))
        return
    is_log = ring is semirings.log or (ring.name == "log" and ring == semirings.log)
    kernels = None if is_log else level_kernels(ring, _precision(columns))
    lanes = 1 if rows == 1 else LINE_BYTES // 8 if kernels is None else kernels.lanes
    if kernels is not None and not kernels.fold.is_plus_free:
        plan = plan.in_order()
    key = kernels, mode, lanes
    fold = plan.others.get(key) or plan.others.setdefault(key, _tile_fold(kernels, plan, mode, lanes))
    tiles = -(-rows // lanes)
    if tiles == 1:
        fine = [fold(0, 1, arrays)]
    else:
        fine = run_chunks(fold, tiles, max(1, _WORTH_A_THREAD // max(1, plan.operations * lanes)), arrays)
    if not all(fine):
        raise_bad_weight(ring.name, *arrays[:2])


def _precision(columns: tuple[np.ndarray, ...]) -> str:
    # A dtype's own name takes NumPy a microsecond.
    found = [_PRECISIONS[char] for char in (column.dtype.char for column in columns) if char in _PRECISIONS]
    return found[0] if found else "float64"


def _tile_fold(kernels: LevelKernels | None, plan: Plan, mode: int, lanes: int) -> Any:
    if kernels is not None:
        return _TileFold(kernels, plan, mode != VALUES, lanes)
    # Its kernels are not loaded before somebody wants logarithms.
    from derivable.circuit.log_domain import LogFold

    return LogFold(plan, mode, lanes)


def check_complement(plan: Plan, ring: Semiring, has_negative: bool) -> None:
    """Raise DomainError if negative weights are needed and neither given nor known."""
    if ring.complement is None and not has_negative and bool((plan.literal < 0).any()):
        raise DomainError(
            f"the semiring {ring.name!r} has no complement, and the circuit has negative literals",
            hint="give negative_weights",
        )


class _TileFold:
    """The kernel of one mode on one plan, with what all calls have in common.

    An array that is not given is an empty one of its type, so that every call takes the same compiled code.
    """

    def __init__(self, kernels: LevelKernels, plan: Plan, has_gradient: bool, lanes: int):
        fold, dtypes = kernels.fold, kernels.buffer_dtypes(lanes)
        self.num_slots, self.lanes = plan.num_slots, lanes
        self.kernel = kernels.gradient if has_gradient else kernels.values
        self.has_gradient, self.several = has_gradient, len(dtypes)
        numbers = len(plan.runs), plan.num_variables, plan.num_roots
        self.program = plan.runs, plan.terms, *numbers, plan.positive, plan.negative, plan.root_slots
        self.none = tuple(np.zeros((0, 0), dtype) for dtype in fold.dtypes)
        self.no_floats = tuple(self.none[k] for k in fold.floats)
        buffers = [(plan.num_slots, dtype) for dtype in dtypes]
        if has_gradient:
            longest = max(plan.longest, plan.most_terms) if fold.partial_sums else plan.longest
            buffers += [(plan.num_slots, dtypes[k]) for k in fold.floats] + [(longest, dtype) for dtype in dtypes]
        self.scratch = plan.scratch_of(lanes, *buffers)

    def __call__(self, start: int, stop: int, arrays: Sequence[tuple[np.ndarray, ...]]) -> bool:
        """Tiles start:stop; the arrays of `fold_rows` by components, () for what is not given.

        returns  whether no weight is NaN
        """
        weights, negatives, out, seeds, gradient, negative_gradient = arrays
        none, no_floats, lanes = self.none, self.no_floats, self.lanes
        rows = start * lanes, min(stop * lanes, len(weights[0])), lanes, bool(negatives)
        given = *self.program, *weights, *(negatives or none)
        scratch = self.scratch.take()
        if self.has_gradient:
            values, others = scratch[: self.several], scratch[self.several :]
            results = *(seeds or no_floats), *gradient, *(negative_gradient or no_floats)
            flags = bool(out), bool(seeds)
            bad = self.kernel(*rows, *flags, *given, *values, *(out or none), self.num_slots, *others, *results)
        else:
            bad = self.kernel(*rows, *given, *scratch, *out)
        self.scratch.put_back(scratch)
        return bad < 0


def _fold_objects(plan: Plan, ring: Semiring, weights: Any, negatives: Any, out: Any) -> None:
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


def raise_bad_weight(domain: str, weights: tuple[np.ndarray, ...], negatives: tuple[np.ndarray, ...]) -> None:
    """Raise DomainError for the first weight that `domain` does not accept; arrays of the components."""
    named = [("weights", array) for array in weights] + [("negative_weights", array) for array in negatives]
    for name, array in named:
        bad = np.isnan(array.astype(float))
        if domain == "log":
            bad |= array == np.inf
            if not negatives:
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
