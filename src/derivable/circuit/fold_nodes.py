"""Folds of a graph's nodes as they stand, in any semiring: values of the roots, and their reverse.

Values are given by their scalars: a semiring on nests has one array [row, variable] for each. Scalars run in a
generated kernel; nests take the reference of `parallel.levels`, all rows of a batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.circuit.plan import LINE_BYTES
from derivable.core.and_or import LITERAL
from derivable.core.diagnostics import DomainError
from derivable.device.cpu.levels_semiring import semiring_rows
from derivable.device.cpu.memory import empty
from derivable.device.cpu.threads import run_chunks
from derivable.parallel.levels import fold_levels, fold_levels_vjp, typed_for

VALUES, GRADIENT = 0, 2
# A thread is worth its hand-over from about this many edges times rows.
WORTH_A_THREAD = 60_000
Parts = Sequence[np.ndarray]


class Nodes(NamedTuple):
    """Nodes in topological order: kind [node] as in `parallel.levels`, literal [node] signed from 1,
    offsets [node + 1], children [edge], roots [root]."""

    kind: np.ndarray
    literal: np.ndarray
    offsets: np.ndarray
    children: np.ndarray
    roots: np.ndarray


def fold(nodes: Nodes, ring: Semiring, parts: Parts, negatives: Parts | None = None) -> list[np.ndarray]:
    """Values of the roots, [row, root] each, for weights [row, variable]; negatives None takes the complement."""
    if ring.is_scalar:
        out = empty((len(parts[0]), len(nodes.roots)), parts[0].dtype)
        _run(nodes, ring, VALUES, parts, negatives, out=out)
        return [out]
    leaves, rows = _leaves(nodes, ring, parts, negatives)
    values = fold_levels(leaves, nodes.kind, rows, nodes.offsets, nodes.children, ring)
    return [part[nodes.roots].T for part in values]


def fold_vjp(
    nodes: Nodes, ring: Semiring, parts: Parts, negatives: Parts | None, seeds: Parts
) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """Adjoints of the weights and of the negative weights, if those are given, for those of the roots [row, root].

    Scalars that are not floats have zeros.
    """
    if ring.is_scalar:
        gradient = empty(parts[0].shape, parts[0].dtype)
        negative = None if negatives is None else empty(parts[0].shape, parts[0].dtype)
        _run(nodes, ring, GRADIENT, parts, negatives, seeds=seeds[0], gradient=gradient, negative_gradient=negative)
        return [gradient], None if negative is None else [negative]
    leaves, rows = _leaves(nodes, ring, parts, negatives)
    adjoints = [np.zeros((len(nodes.kind), len(part)), part.dtype) for part in parts]
    for below, seed in zip(adjoints, seeds):
        np.add.at(below, nodes.roots, seed.T)
    found = fold_levels_vjp(leaves, nodes.kind, rows, nodes.offsets, nodes.children, ring, adjoints)
    count = parts[0].shape[1]
    gradient, negative = [part[:count].T.copy() for part in found], [part[count:].T.copy() for part in found]
    if negatives is not None or not negative[0].size:
        return gradient, negative if negatives is not None else None
    complement = typed_for(ring, parts).complement
    assert complement is not None
    (pulled,) = complement.apply_vjp(negative, parts)
    for part, more in zip(gradient, pulled):
        if part.dtype.kind == "f":
            part += more
    return gradient, None


def _leaves(nodes: Nodes, ring: Semiring, parts: Parts, negatives: Parts | None) -> tuple[list[np.ndarray], np.ndarray]:
    """[leaf, row] of each scalar, positive literals before negative ones, and the leaf of each node."""
    is_leaf = nodes.kind == LITERAL
    has_negative = bool((nodes.literal[is_leaf] < 0).any())
    if has_negative and negatives is None:
        complement = typed_for(ring, parts).complement
        if complement is None:
            raise DomainError(
                f"the semiring {ring.name!r} has no complement, and there are negative literals",
                hint="give negative_weights",
            )
        negatives = complement.apply(parts)
    variable = np.abs(nodes.literal).astype(np.int64) - 1
    rows = np.where(is_leaf, np.where(nodes.literal < 0, variable + parts[0].shape[1], variable), 0)
    if negatives is None:
        return [part.T for part in parts], rows
    return [np.concatenate([part.T, other.T]) for part, other in zip(parts, negatives)], rows


def _run(nodes: Nodes, ring: Semiring, mode: int, parts: Parts, negatives: Parts | None, **results: Any) -> None:
    (weights,) = parts
    if not len(weights):
        return
    none = np.zeros((0, 0), weights.dtype)
    wanted = [results.get(name) for name in ("out", "seeds", "gradient", "negative_gradient")]
    given = [none if array is None else array for array in wanted]
    arrays = (weights, none if negatives is None else negatives[0], negatives is not None)
    lanes = 1 if len(weights) == 1 else LINE_BYTES // max(4, weights.dtype.itemsize)
    smallest = max(1, WORTH_A_THREAD // max(1, len(nodes.children) * lanes))
    run_chunks(_checked_tiles, -(-len(weights) // lanes), smallest, nodes, ring, lanes, mode, arrays, tuple(given))


def _checked_tiles(start: int, stop: int, *arguments: Any) -> None:
    if not run_tiles(start, stop, *arguments):
        raise DomainError("a weight is NaN", hint="look for 0 / 0, inf - inf or log of a negative number")


def run_tiles(
    start: int, stop: int, nodes: Nodes, ring: Semiring, lanes: int, mode: int, arrays: tuple, results: tuple
) -> bool:
    """The kernel on some tiles of `lanes` rows; False if a weight is NaN. See `levels_semiring` for the arrays."""
    weights = arrays[0]
    widest = int(np.diff(nodes.offsets).max(initial=1))
    scratch = [empty((count, lanes), weights.dtype) for count in (len(nodes.kind), len(nodes.kind), widest)]
    first, last = start * lanes, min(stop * lanes, len(weights))
    zero, one = weights.dtype.type(ring.zero), weights.dtype.type(ring.one)
    kernel = semiring_rows(ring, weights.dtype.name)
    return kernel(first, last, mode, *arrays, *nodes, *scratch, *results, zero, one) < 0
