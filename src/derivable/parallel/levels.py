"""The primitive "fold levels": what evaluating a circuit means.

    values[n] = plus over children, or times over children, from the left, in the order of the children

    reference        `fold_levels`, one node after the other on NumPy arrays, for every semiring
    shape rule       `fold_levels_shape`
    derivative rule  `fold_levels_vjp`
    kernels          `kernel.level_fold` generates them for any semiring; `device.cpu.levels_log`, `levels_scaled` and
                     `levels_unbounded` serve the log semiring

Nodes are given by flat arrays as in `circuit.Circuit`: kind as in `core.and_or` (a conjunction is a product, a
disjunction a sum, NOT the negation of its one child), leaf [node] the row of `leaves` that a literal takes, offsets and
children. Children come before their parents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.core.and_or import AND, FALSE, LITERAL, NOT, OR, TRUE
from derivable.core.diagnostics import LayoutError, ShapeError, UnsupportedError


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
        typed = typed_for(semiring, given)
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


def fold_levels_vjp(
    leaves: Any,
    kind: np.ndarray,
    leaf: np.ndarray,
    offsets: np.ndarray,
    children: np.ndarray,
    semiring: Semiring,
    adjoints: Any,
) -> Any:
    """The adjoints of the leaves for those of the nodes.

    adjoints  [node, *batch]; returns [leaf, *batch]; of a semiring on nests one per scalar, zeros for those that are
              not floats

    Reverse mode over the fold: the derivative rule of a fold from the left is that of its binary operation, applied
    to the partial results from the last to the first. A tie of a minimum or maximum gives its adjoint to the
    smallest index. Raises UnsupportedError if the semiring is not differentiable.
    """
    given = (leaves,) if semiring.is_scalar else tuple(leaves)
    if not semiring.differentiable or not any(part.dtype.kind == "f" for part in given):
        raise UnsupportedError(f"the semiring {semiring.name!r} has no derivatives")
    typed = typed_for(semiring, given)
    values = fold_levels(leaves, kind, leaf, offsets, children, semiring)
    values = (values,) if semiring.is_scalar else values
    seeds = (adjoints,) if semiring.is_scalar else adjoints
    below = [np.array(seed, part.dtype) for seed, part in zip(seeds, given)]
    result = [np.zeros_like(part) for part in given]

    def add(target: list[np.ndarray], row: int, adjoint: Sequence[Any], dead: Any) -> None:
        # Without an adjoint there is no contribution: 0 * inf is NaN.
        for part, term in zip(target, adjoint):
            if part.dtype.kind == "f":
                part[row] += np.where(dead, 0, term)

    for node in range(len(kind) - 1, -1, -1):
        adjoint = [part[node] for part in below]
        dead = _all_zero(adjoint, given)
        own = children[offsets[node] : offsets[node + 1]].tolist()
        if kind[node] == LITERAL:
            add(result, leaf[node], adjoint, dead)
        elif kind[node] == NOT:
            (pulled,) = typed.negation.apply_vjp(adjoint, [part[own[0]] for part in values])
            add(below, own[0], pulled, dead)
        elif kind[node] >= AND:
            monoid = typed.times if kind[node] == AND else typed.plus
            partial: list[Sequence[Any]] = [[part[own[0]] for part in values]]
            for child in own[1:-1]:
                partial.append(monoid.apply(partial[-1], [part[child] for part in values]))
            for k in range(len(own) - 1, 0, -1):
                left, right = monoid.apply_vjp(partial[k - 1], [part[own[k]] for part in values], adjoint)
                add(below, own[k], right, dead)
                adjoint = [np.where(dead, 0, part) for part in left]
                dead = np.logical_and.reduce(
                    [part == 0 for part, like in zip(adjoint, given) if like.dtype.kind == "f"]
                )
            add(below, own[0], adjoint, dead)
    return result[0] if semiring.is_scalar else tuple(result)


def _all_zero(adjoint: Sequence[Any], like: Sequence[np.ndarray]) -> Any:
    return np.logical_and.reduce([part == 0 for part, values in zip(adjoint, like) if values.dtype.kind == "f"])


def typed_for(semiring: Semiring, parts: Sequence[np.ndarray]) -> TypedSemiring:
    """The semiring's operations for columns of its scalars, whose floats have one precision."""
    return semiring.typed(next((part.dtype.name for part in parts if part.dtype.kind == "f"), "float64"))
