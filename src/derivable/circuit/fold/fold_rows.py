"""The fold of a planned graph in any semiring, over rows of weights: values of the roots, and their reverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit.fold.log_domain import LogFold
from derivable.circuit.fold.plan import Plan
from derivable.circuit.kernels.levels import (
    BY_WEIGHT,
    GRADIENT,
    VALUES,
    VALUES_AND_GRADIENT,
    LevelKernels,
    level_kernels,
)
from derivable.circuit.kernels.scaled import Scaled, scaled, scaled_numbers
from derivable.core.diagnostics import DomainError
from derivable.device.cpu.memory import LINE_BYTES, empty, zeros
from derivable.device.cpu.threads import run_chunks
from derivable.parallel.levels import fold_levels

__all__ = [
    "BY_WEIGHT",
    "GRADIENT",
    "VALUES",
    "VALUES_AND_GRADIENT",
    "check_complement",
    "fold",
    "fold_rows",
    "fold_vjp",
]

# A thread is worth its hand-over from about this many edges times rows.
_WORTH_A_THREAD = 60_000
_PRECISIONS = {"f": "float32", "d": "float64"}
Rows = np.ndarray | tuple[np.ndarray, ...]
Parts = Sequence[np.ndarray]


def fold(plan: Plan, ring: Semiring, parts: Parts, negatives: Parts | None = None) -> list[np.ndarray]:
    """Values of the roots, [row, root] for each scalar of an element; weights [row, variable] likewise.

    negatives  of the negative literals; None takes the complement
    """
    out = tuple(empty((len(part), plan.num_roots), part.dtype) for part in parts)
    fold_rows(plan, ring, VALUES, tuple(parts), None if negatives is None else tuple(negatives), out)
    return list(out)


def fold_vjp(
    plan: Plan, ring: Semiring, parts: Parts, negatives: Parts | None, seeds: Parts | None
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray] | None]:
    """The values, and the adjoints of the weights and of the negative weights, if those are given.

    seeds  [row, root] for each scalar; None for ones

    Scalars that are not floats have zeros.
    """
    out = tuple(empty((len(part), plan.num_roots), part.dtype) for part in parts)
    given = [parts] if negatives is None else [parts, negatives]
    found = [[(empty if part.dtype.kind == "f" else zeros)(part.shape, part.dtype) for part in rows] for rows in given]
    floats = [k for k, part in enumerate(parts) if part.dtype.kind == "f"]
    own_seeds = None if seeds is None else tuple(np.ascontiguousarray(seeds[k], parts[k].dtype) for k in floats)
    gradients = [tuple(arrays[k] for k in floats) for arrays in found]
    others = None if negatives is None else tuple(negatives)
    mode = VALUES_AND_GRADIENT if seeds is None else GRADIENT
    fold_rows(plan, ring, mode, tuple(parts), others, out, own_seeds, *gradients)
    return list(out), found[0], found[1] if negatives is not None else None


def fold_each_root(plan: Plan, ring: Semiring, weights: np.ndarray, negatives: np.ndarray) -> list[np.ndarray]:
    """Values [row, root] of a semiring on floats, and of each root the gradients [row, root, variable] for the weights
    and the negative weights."""
    items, roots, seeds = len(weights), plan.num_roots, None
    if roots != 1:
        # A row for each root, seeded there alone.
        weights, negatives = np.repeat(weights, roots, axis=0), np.repeat(negatives, roots, axis=0)
        seeds = (np.tile(np.eye(roots), (items, 1)),)
    (values,), *gradients = fold_vjp(plan, ring, (weights,), (negatives,), seeds)
    shape = items, roots, plan.num_variables
    of_roots = (found[0].reshape(shape) for found in gradients if found is not None)
    return [values[:: max(1, roots)].reshape(items, roots), *of_roots]


def fold_shares(plan: Plan, positive: Scaled, negative: Scaled) -> Scaled:
    """Values [row, root] as scaled numbers; the weights [row, variable] are m * 2**e for (m, e), of magnitude up to 1.

    Weights that are not negative are folded as floats; by the proof of decision 030 the values are right if none of
    them is too small.
    """
    if (positive[0] >= 0).all() and (negative[0] >= 0).all():
        with np.errstate(under="ignore"):
            (values,) = fold(plan, semirings.real, (np.ldexp(*positive),), (np.ldexp(*negative),))
        if (values >= 2.0**-plan.budget).all():
            return values, zeros(values.shape, np.int64)
    mantissa, exponent = fold(plan, scaled_numbers, scaled(*positive), scaled(*negative))
    return mantissa, exponent


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

    mode                       VALUES, VALUES_AND_GRADIENT or GRADIENT; `out` may be given with GRADIENT too. BY_WEIGHT
                               with one of the last two: gradients by exp(weight), of the log semiring with negatives
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
    # On small circuits finding the kernels takes as long as running them, so the next call like this one has them.
    kind = id(ring), mode, rows == 1, negatives is None, *[column.dtype.char for column in columns]
    known = plan.others.get(kind)
    if known is None:
        check_complement(plan, ring, negatives is not None)
        # With the semiring, whose number is no other's for as long as it is kept.
        known = plan.others.setdefault(kind, (ring, _tile_fold(plan, ring, mode, columns, rows == 1)))
    tiles: Any = known[1]
    if tiles is None:
        _fold_objects(plan, ring, *(part[0] if part else None for part in arrays[:3]))
        return
    lanes = tiles.lanes
    if rows <= lanes:
        fine = tiles(0, 1, arrays)
    else:
        smallest = max(1, _WORTH_A_THREAD // max(1, plan.operations * lanes))
        fine = all(run_chunks(tiles, -(-rows // lanes), smallest, arrays))
    if not fine:
        own, others = arrays[:2]
        raise_bad_weight(ring.name, own, others, plan.negative < plan.num_slots - 1)


def _precision(columns: tuple[np.ndarray, ...]) -> str:
    # A dtype's own name takes NumPy a microsecond.
    found = [_PRECISIONS[char] for char in (column.dtype.char for column in columns) if char in _PRECISIONS]
    return found[0] if found else "float64"


def _tile_fold(plan: Plan, ring: Semiring, mode: int, columns: tuple[np.ndarray, ...], is_one_row: bool) -> Any:
    """What folds tiles of rows, shared by all calls that run the same kernels; None for integers of any size."""
    if ring.is_scalar and ring.carrier == "integer":
        return None
    precision = _precision(columns)
    is_log = ring.name == "log" and ring == semirings.log and not plan.has_negation
    kernels = None if is_log else level_kernels(ring, precision, plan.has_negation)
    lanes = 1 if is_one_row else LINE_BYTES // 8 if kernels is None else kernels.lanes
    key = kernels or precision, mode, lanes
    known = plan.others.get(key)
    if known is None:
        if kernels is None:
            made: Any = LogFold(plan, precision, mode, lanes)
        else:
            own = plan if kernels.fold.is_plus_free else plan.in_order()
            made = _TileFold(kernels, own, mode != VALUES, lanes)
        known = plan.others.setdefault(key, made)
    return known


def check_complement(plan: Plan, ring: Semiring, has_negative: bool) -> None:
    """Raise DomainError if negative weights are needed and neither given nor known."""
    if ring.complement is None and not has_negative and bool((plan.graph.literal < 0).any()):
        raise DomainError(
            f"the semiring {ring.name!r} has no complement, and the circuit has negative literals",
            hint="give negative_weights",
        )


class _TileFold:
    """The kernel of one mode on one plan, with what all calls have in common.

    An array that is not given is an empty one of its type, so that every call takes the same compiled code.
    """

    def __init__(self, kernels: LevelKernels, plan: Plan, has_gradient: bool, lanes: int):
        fold, dtypes = kernels.fold, kernels.buffer_dtypes
        self.num_slots, self.lanes = plan.num_slots, lanes
        self.kernel = kernels.compiled(has_gradient, lanes == 1)
        self.has_gradient, self.several = has_gradient, len(dtypes)
        numbers = len(plan.runs), plan.num_variables, plan.num_roots
        self.program = plan.runs, plan.terms, *numbers, plan.positive, plan.negative, plan.root_slots
        self.none = tuple(np.zeros((0, 0), dtype) for dtype in fold.dtypes)
        self.no_floats = tuple(self.none[k] for k in fold.floats)
        buffers = [(plan.num_slots, dtype) for dtype in dtypes]
        if has_gradient:
            longest = plan.longest if fold.hands_on else max(plan.longest, plan.most_terms)
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
    graph = plan.graph
    leaf = np.zeros(graph.num_nodes, np.int64)
    leaf[node] = np.arange(len(node))
    if negatives is None:
        assert ring.complement is not None or bool(positive.all())
        complement: Any = np.frompyfunc(ring.complement or ring.times, 1, 1)
        negatives = complement(weights).astype(object) if not positive.all() else weights
    assert negatives is not None
    columns = np.where(positive[:, None], weights.T[variable], negatives.T[variable])
    values = fold_levels(columns, graph.kind, leaf, graph.offsets, graph.children, ring)
    out[...] = values[graph.roots].T


def raise_bad_weight(
    domain: str, weights: tuple[np.ndarray, ...], negatives: tuple[np.ndarray, ...], is_negated: Any = True
) -> None:
    """Raise DomainError for the first weight that `domain` does not accept; arrays of the components.

    is_negated  [variable] whether the graph has its negative literal
    """
    named = [("weights", array) for array in weights] + [("negative_weights", array) for array in negatives]
    for name, array in named:
        bad = np.isnan(array.astype(float))
        if domain == "log":
            bad |= array == np.inf
            if not negatives:
                bad |= (array > 0) & is_negated
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
