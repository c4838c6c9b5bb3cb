"""Leaves of elements, arrays [row, column, size], as kernels take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra.typed import TypedMonoid
from derivable.device.cpu.memory import empty, empty_like, zeros
from derivable.parallel.fold_kernels import needs

Leaves = tuple[np.ndarray, ...]
Adjoints = tuple[np.ndarray | None, ...]


def flat(leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [leaf.reshape(-1) for leaf in leaves]


def neutral_leaves(op: TypedMonoid) -> list[np.ndarray]:
    """[leaf] arrays [size], the same at every call: nobody writes to them."""
    found = op.__dict__.get("neutral_leaves")
    if found is None:
        bounds = zip(op.leaf_dtypes, op.starts, op.starts[1:])
        found = op.__dict__["neutral_leaves"] = [np.array(op.neutral[i:j], dtype) for dtype, i, j in bounds]
    return found


def pulled_with(op: TypedMonoid, last: Sequence[np.ndarray] | None) -> TypedMonoid:
    """The operator for the derivative of a fold: one that skips adjoints of 0 where they may meet what is not finite.

    last  [leaf] the results behind which no elements come; None if they are not known
    """
    safe = op.skipping_zeros
    if safe is op:
        return op
    if last is None or not op.shows_infinities:
        return safe
    for leaf in op.float_leaves:
        array = last[leaf]
        # NumPy takes microseconds for what Python does with one number in a tenth of one.
        if not (math.isfinite(array.item()) if array.size == 1 else np.isfinite(array).all()):
            return safe
    return op


def adjoint_outputs(op: TypedMonoid, like: Sequence[np.ndarray]) -> Any:
    return tuple(empty_like(array) if leaf in op.float_leaves else None for leaf, array in enumerate(like))


def incoming_adjoints(
    op: TypedMonoid, adjoints: Sequence[np.ndarray | None], like: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Flat adjoints of the float leaves."""
    found = []
    for leaf in op.float_leaves:
        adjoint = adjoints[leaf]
        found.append(zeros(like[leaf].size, like[leaf].dtype) if adjoint is None else adjoint.reshape(-1))
    return found


def outgoing_adjoints(answers: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    return [answer.reshape(-1) for answer in answers if answer is not None]


def prefix_arrays(op: TypedMonoid, values: Sequence[np.ndarray], answers: Sequence[np.ndarray | None]) -> list:
    """[leaf whose prefixes the vjp reads] where they are kept: float ones in the memory of the adjoints."""
    kept = []
    for leaf in needs(op).prefix_leaves(op):
        answer = answers[leaf]
        kept.append(empty(values[leaf].size, values[leaf].dtype) if answer is None else answer.reshape(-1))
    return kept
