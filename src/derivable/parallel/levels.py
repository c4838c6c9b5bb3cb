"""The primitive "fold levels": what evaluating a circuit means.

    values[n] = plus over children, or times over children, from the left, in the order of the children

    reference        `fold_levels`, one node after the other on NumPy arrays, for every semiring
    kernels          `circuit.kernels.level_fold` generates them for any semiring, with the derivative rule: reverse
                     mode over the fold, which gives the adjoint of a tied minimum or maximum to the smallest index;
                     `levels_log` and `levels_scaled` serve the log semiring

Nodes are given by flat arrays as in `circuit.Circuit`: kind as in `core.and_or` (a conjunction is a product, a
disjunction a sum, NOT the negation of its one child), leaf [node] the row of `leaves` that a literal takes, offsets and
children. Children come before their parents; `Circuit.check` says whether they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.and_or import AND, FALSE, LITERAL, NOT, OR, TRUE


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
    values = tuple(np.empty((len(kind), *part.shape[1:]), part.dtype) for part in given)
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
