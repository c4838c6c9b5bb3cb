"""Weights and values of semirings whose elements are nests of scalars, as one array [row, column] per scalar."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.algebra.element import flatten, rebuild
from derivable.algebra.semiring import Semiring
from derivable.algebra.typed import TypedFunction
from derivable.circuit.fold.fold_rows import fold, fold_vjp
from derivable.circuit.fold.plan import Plan
from derivable.core.arrays import as_array
from derivable.core.diagnostics import DomainError, ShapeError
from derivable.device.cpu.memory import contiguous

Columns = tuple[np.ndarray, ...]


def is_nest(weights: Any) -> bool:
    """Whether weights are given as elements, a nest of arrays, and not as probabilities, one array."""
    return isinstance(weights, tuple) or (dataclasses.is_dataclass(weights) and not isinstance(weights, type))


def to_columns(ring: Semiring, weights: Any, num_columns: int, name: str, dtype: Any = None) -> tuple[Columns, tuple]:
    """(one array [row, column] per component, batch shape).

    weights  a nest of arrays [*batch, column, *shape of the leaf], or probabilities [*batch, column], from which the
             semiring's `fact` makes elements
    dtype    of the floats; None for that of the weights

    Raises ShapeError for sizes that do not fit, DomainError for types that are not the semiring's or if it has no
    `fact`.
    """
    if not is_nest(weights):
        weights = _facts(ring, as_array(weights, name), name)
    parts = parts_of(ring, weights, num_columns, name, lambda leaf: as_array(leaf, name))
    floats = [part.dtype for part in parts if part.dtype.kind == "f"]
    precision = np.dtype(dtype or (np.result_type(*floats) if floats else np.float64))
    wanted = _types(ring, "float32" if precision.itemsize < 8 else "float64")
    for part, kind in zip(parts, wanted):
        if not np.can_cast(part.dtype, kind, "same_kind"):
            raise DomainError(f"a leaf of {name} has dtype {part.dtype} where the semiring has {kind}")
    shape = np.broadcast_shapes(*(part.shape for part in parts))
    rows = math.prod(shape[:-1]), num_columns
    columns = (np.broadcast_to(part.astype(kind), shape) for part, kind in zip(parts, wanted))
    return tuple(contiguous(column).reshape(rows) for column in columns), shape[:-1]


def _types(ring: Semiring, precision: str) -> list[str]:
    """[component] the types of an element."""
    kinds = zip(ring.dtypes(precision), ring.element.leaf_sizes)
    return [kind for kind, size in kinds for _ in range(size)]


def fact_of(ring: Semiring, precision: str, name: str) -> TypedFunction:
    """What makes an element of a probability. Raises DomainError if the semiring has no `fact`."""
    fact = ring.typed(precision).fact
    if fact is None:
        raise DomainError(
            f"{name} of the semiring {ring.name!r} are not nested like its elements, {ring.element}",
            hint="give a nest of arrays, or a semiring with `fact`, which makes elements of probabilities",
        )
    return fact


def _facts(ring: Semiring, probabilities: np.ndarray, name: str) -> Any:
    dtype = np.dtype(np.float32 if probabilities.dtype in (np.float32, np.float16) else np.float64)
    fact = fact_of(ring, dtype.name, name)
    if probabilities.dtype.kind not in "biuf":
        raise DomainError(f"{name} are of type {probabilities.dtype}, and probabilities are real numbers")
    probabilities = probabilities.astype(dtype)
    variable = np.arange(probabilities.shape[-1] if probabilities.ndim else 0)
    parts = fact.apply((probabilities,), (variable,))
    return composed(ring, [np.broadcast_to(part, probabilities.shape) for part in parts])


def pull_facts(ring: Semiring, probabilities: Any, gradient: Columns) -> np.ndarray:
    """The adjoints of probabilities [*batch, column] from those of the float components of the facts' elements."""
    probabilities = np.asarray(probabilities)
    typed = ring.typed(gradient[0].dtype.name)
    assert typed.fact is not None
    parts = iter(gradient)
    adjoints = [
        next(parts).reshape(probabilities.shape) if dtype.startswith("float") else np.int64(0) for dtype in typed.dtypes
    ]
    given = (probabilities.astype(gradient[0].dtype),), (np.arange(probabilities.shape[-1]),)
    (found,), _ = typed.fact.apply_vjp(adjoints, *given)
    return np.broadcast_to(found, probabilities.shape).astype(gradient[0].dtype)


def parts_of(
    ring: Semiring, nest: Any, num_columns: int, name: str, as_array: Callable[[Any], Any] = lambda leaf: leaf
) -> list[Any]:
    """The components of elements in arrays of any library: of leaves [*batch, column, *shape of the leaf], one array
    [*batch, column] per scalar.

    Raises ShapeError for another nesting, and for leaves of other sizes.
    """
    found = []
    for leaf, shape in zip(map(as_array, flatten(ring.element, nest, name)), ring.element.leaf_shapes):
        own = tuple(getattr(leaf, "shape", ()))
        cut = len(own) - len(shape)
        if cut < 1 or own[cut:] != shape or own[cut - 1] != num_columns:
            raise ShapeError(
                f"a leaf of {name} has shape {own}, not [*batch, {', '.join(map(str, (num_columns, *shape)))}]",
                hint=f"elements are {ring.element}: give one array for each leaf",
            )
        flat = leaf.reshape(*own[:cut], -1)
        found += [flat[..., k] for k in range(flat.shape[-1])]
    return found


def composed(ring: Semiring, parts: Sequence[Any], stack: Callable[[list[Any], int], Any] = np.stack) -> Any:
    """The nest of arrays [*batch, column, *shape of the leaf] from one array [*batch, column] per scalar, and None
    from None.

    stack  of the library: (arrays, axis) -> array
    """
    remaining, leaves = iter(parts), []
    for shape, size in zip(ring.element.leaf_shapes, ring.element.leaf_sizes):
        scalars = [next(remaining) for _ in range(size)]
        leaves.append(
            stack(scalars, -1).reshape(*scalars[0].shape, *shape) if shape and scalars[0] is not None else scalars[0]
        )
    return rebuild(ring.element, ring.zero, leaves)


def fold_nests(plan: Plan, ring: Semiring, weights: Any, negative_weights: Any, adjoints: Any, has_gradient: bool):
    """(values, gradient, gradient for the negative weights) as nests; what is not asked for is None.

    adjoints  a nest [*batch, root] of which only floats count; None for ones
    """
    given = [("weights", weights)] + [("negative_weights", negative_weights)] * (negative_weights is not None)
    read = [to_columns(ring, nest, plan.num_variables, name) for name, nest in given]
    is_single = all(a.dtype != np.float64 for arrays, _ in read for a in arrays)
    types = _types(ring, "float32" if is_single else "float64")
    batch = np.broadcast_shapes(*(batch for _, batch in read))
    rows = math.prod(batch)

    def spread(arrays: Columns, own: tuple) -> Columns:
        shaped = (np.broadcast_to(a.reshape(*own, -1), (*batch, a.shape[1])) for a in arrays)
        return tuple(contiguous(a, kind).reshape(rows, -1) for a, kind in zip(shaped, types))

    columns, *others = (spread(*pair) for pair in read)
    negatives = others[0] if others else None

    def shaped(parts: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
        return [a.reshape(*batch, count) for a in parts]

    if not has_gradient:
        return composed(ring, shaped(fold(plan, ring, columns, negatives), plan.num_roots)), None, None
    floats = [k for k, kind in enumerate(types) if kind.startswith("float")]
    seeds = None
    if adjoints is not None:
        seeds = spread(*to_columns(ring, adjoints, plan.num_roots, "adjoints", types[floats[0]]))
    out, *gradients = fold_vjp(plan, ring, columns, negatives, seeds)
    nests = []
    for (_, nest), parts in zip(given, gradients):
        assert parts is not None
        found = shaped(parts, plan.num_variables)
        if is_nest(nest):
            nests.append(composed(ring, [part if k in floats else None for k, part in enumerate(found)]))
        else:
            own = tuple(found[k] for k in floats)
            nests.append(pull_facts(ring, np.broadcast_to(np.asarray(nest), own[0].shape), own))
    return composed(ring, shaped(out, plan.num_roots)), nests[0], nests[1] if len(nests) > 1 else None
