"""The primitive "fold levels": what evaluating a circuit means.

    values[n] = plus over children, or times over children, from the left, in the order of the children

    reference        `fold_levels`, one node after the other on NumPy arrays, for every semiring
    shape rule       `fold_levels_shape`
    derivative rule  `fold_levels_vjp`
    kernels          `device.cpu.levels` (sums of products), `levels_log`, `levels_scaled` (the log semiring),
                     `levels_semiring` (any semiring)

Nodes are given by flat arrays as in `circuit.Circuit`: kind (0 zero, 1 one, 2 leaf, 3 times, 4 plus), leaf [node]
the row of `leaves` that a leaf takes, offsets and children. Children come before their parents.
"""

from __future__ import annotations

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import LayoutError, ShapeError, UnsupportedError

ZERO, ONE, LEAF, TIMES, PLUS = 0, 1, 2, 3, 4


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
    used = leaf[kind == LEAF]
    if len(used) and (used.min() < 0 or used.max() >= leaves_shape[0]):
        raise LayoutError(f"leaf rows {used.min()} to {used.max()} are outside the {leaves_shape[0]} leaves")
    return (count, *leaves_shape[1:])


def fold_levels(
    leaves: np.ndarray,
    kind: np.ndarray,
    leaf: np.ndarray,
    offsets: np.ndarray,
    children: np.ndarray,
    semiring: Semiring,
) -> np.ndarray:
    """Values of all nodes.

    leaves   [leaf, *batch] in the carrier of the semiring; dtype object for exact integers
    returns  [node, *batch]

    Law: with leaves that are zero or one, the result is zero or one, and says whether the formula holds.
    Source: Maene et al. 2025, Algorithm 1, without its chains of unary nodes.
    """
    values = np.empty(fold_levels_shape(leaves.shape, kind, leaf, offsets, children), leaves.dtype)
    plus, times = semiring.plus, semiring.times
    for node in range(len(kind)):
        if kind[node] == ZERO:
            values[node] = semiring.zero
        elif kind[node] == ONE:
            values[node] = semiring.one
        elif kind[node] == LEAF:
            values[node] = leaves[leaf[node]]
        else:
            operation = times if kind[node] == TIMES else plus
            first, *others = children[offsets[node] : offsets[node + 1]].tolist()
            total = values[first]
            for child in others:
                total = operation(total, values[child])
            values[node] = total
    return values


def fold_levels_vjp(
    leaves: np.ndarray,
    kind: np.ndarray,
    leaf: np.ndarray,
    offsets: np.ndarray,
    children: np.ndarray,
    semiring: Semiring,
    adjoints: np.ndarray,
) -> np.ndarray:
    """The adjoints of the leaves for those of the nodes.

    adjoints  [node, *batch]; returns [leaf, *batch]

    Reverse mode over the fold: the derivative rule of a fold from the left is that of its binary operation, applied
    to the partial results from the last to the first. A tie of a minimum or maximum gives its adjoint to the
    smallest index. Raises UnsupportedError if the semiring is not differentiable.
    """
    from derivable.algebra.compiled import expressions
    from derivable.algebra.expr.interpret import interpret

    rules = expressions(semiring, str(leaves.dtype)) if semiring.differentiable else None
    if rules is None or rules.plus_vjp is None or rules.times_vjp is None:
        raise UnsupportedError(f"the semiring {semiring.name!r} has no derivatives")
    values = fold_levels(leaves, kind, leaf, offsets, children, semiring)
    plus, times = semiring.plus, semiring.times
    adjoints = np.array(adjoints, leaves.dtype)
    result = np.zeros_like(leaves)
    for node in range(len(kind) - 1, -1, -1):
        if kind[node] == LEAF:
            result[leaf[node]] += adjoints[node]
        elif kind[node] >= TIMES:
            operation, rule = (times, rules.times_vjp) if kind[node] == TIMES else (plus, rules.plus_vjp)
            own = children[offsets[node] : offsets[node + 1]].tolist()
            partial = [values[own[0]]]
            for child in own[1:-1]:
                partial.append(operation(partial[-1], values[child]))
            adjoint = adjoints[node]
            for k in range(len(own) - 1, 0, -1):
                left, right = interpret(rule, [partial[k - 1], values[own[k]], adjoint])
                # No adjoint, no contribution: 0 * inf has no say.
                adjoints[own[k]] += np.where(adjoint != 0, right, 0)
                adjoint = np.where(adjoint != 0, left, 0)
            adjoints[own[0]] += adjoint
    return result
