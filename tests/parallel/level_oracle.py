"""The derivative rule of a fold of levels, one node after the other: what the kernels are tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.and_or import AND, LITERAL, NOT
from derivable.core.diagnostics import UnsupportedError
from derivable.parallel.levels import fold_levels


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
    floats = [part.dtype.name for part in given if part.dtype.kind == "f"]
    typed = semiring.typed(floats[0])
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
