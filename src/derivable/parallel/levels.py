"""The primitive "fold levels": what evaluating a circuit means.

    values[n] = plus over children, or times over children, from the left, in the order of the children

    reference        `fold_levels`, one node after the other on NumPy arrays, for every semiring
    shape rule       `fold_levels_shape`
    kernels          `circuit.kernels.level_fold` generates them for any semiring, with the derivative rule: reverse
                     mode over the fold, which gives the adjoint of a tied minimum or maximum to the smallest index;
                     `levels_log` and `levels_scaled` serve the log semiring

Nodes are given by flat arrays as in `circuit.Circuit`: kind as in `core.and_or` (a conjunction is a product, a
disjunction a sum, NOT the negation of its one child), leaf [node] the row of `leaves` that a literal takes, offsets and
children. Children come before their parents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.and_or import AND, FALSE, LITERAL, NOT, OR, TRUE
from derivable.core.diagnostics import LayoutError, ShapeError


def fold_levels_shape(
    leaves_shape: tuple[int, ...], kind: np.ndarray, leaf: np.ndarray, offsets: np.ndarray, children: np.ndarray
) -> tuple[int, ...]:
    """Shape of the result, (node, *batch); LayoutError if the arrays do not describe nodes in topological order."""
    if len(leaves_shape) == 0:
        raise ShapeError("leaves is a single number, it has no axis for the leaves")
    count = len(kind)
    if len(offsets) != count + 1 or len(leaf) != count:
        raise LayoutError(f"{count} nodes need {count + 1} offsets and {count} leaf rows", hint="not these sizes")
    if offsets[0] != 0 or offsets[-1] != len(children) or (np.diff(offsets) < 0).any():
        raise LayoutError(f"offsets do not rise from 0 to {len(children)}, the number of children")
    parent = np.repeat(np.arange(count), np.diff(offsets))
    wrong = np.flatnonzero((children < 0) | (children >= parent))
    if len(wrong):
        raise LayoutError(f"child {children[wrong[0]]} of node {parent[wrong[0]]} does not come before it")
    used = leaf[kind == LITERAL]
    if len(used) and (used.min() < 0 or used.max() >= leaves_shape[0]):
        raise LayoutError(f"leaf rows {used.min()} to {used.max()} are outside the {leaves_shape[0]} leaves")
    return (count, *leaves_shape[1:])


def fold_levels(
    leaves: Any,
    kind: np.ndarray,
    leaf: np.ndarray,
    offsets: np.ndarray,
    children: np.ndarray,
    semiring: Semiring,
) -> Any:
    """Values of all nodes.

    leaves   [leaf, *batch] in the carrier of the semiring; dtype object for exact integers. Of a semiring on nests a
             sequence of such arrays, one per scalar
    returns  [node, *batch], or a tuple of such

    Law: with leaves that are zero or one, the result is zero or one, and says whether the formula holds.
    Source: Maene et al. 2025, Algorithm 1, without its chains of unary nodes.
    """
    given = (leaves,) if semiring.is_scalar else tuple(leaves)
    shape = fold_levels_shape(given[0].shape, kind, leaf, offsets, children)
    values = tuple(np.empty(shape, part.dtype) for part in given)
    constants = {FALSE: (semiring.zero,), TRUE: (semiring.one,)}
    typed: Any = None
    if given[0].dtype == object:
        operations: dict[int, Callable] = {
            AND: lambda a, b: (semiring.times(a[0], b[0]),),
            OR: lambda a, b: (semiring.plus(a[0], b[0]),),
        }
    else:
        floats = [part.dtype.name for part in given if part.dtype.kind == "f"]
        typed = semiring.typed(floats[0] if floats else "float64")
        constants = {FALSE: typed.zero, TRUE: typed.one}
        operations = {AND: typed.times.apply, OR: typed.plus.apply}
    for node in range(len(kind)):
        own = children[offsets[node] : offsets[node + 1]].tolist()
        if kind[node] in constants:
            total = constants[kind[node]]
        elif kind[node] == LITERAL:
            total = [part[leaf[node]] for part in given]
        elif kind[node] == NOT:
            total = typed.negation.apply([part[own[0]] for part in values])
        else:
            total = [part[own[0]] for part in values]
            for child in own[1:]:
                total = operations[kind[node]](total, [part[child] for part in values])
        for part, value in zip(values, total):
            part[node] = value
    return values[0] if semiring.is_scalar else values
