"""What folds of elements and their derivatives mean: NumPy, one row after the other, all columns of a row at once.

Leaves are flat: [row, column, size]. Adjoints that are None are zeros; leaves that are not floats get None. Forward
mode is the same fold of `op.dual`. Slow and obvious; kernels are tested against these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from derivable.algebra.typed import TypedMonoid

Leaves = tuple[np.ndarray, ...]
Adjoints = Sequence[np.ndarray | None]
# [row][component] arrays [column]
Rows = list[tuple[np.ndarray, ...]]


def scan(
    op: TypedMonoid,
    values: Sequence[np.ndarray],
    *,
    exclusive: bool = False,
    reverse: bool = False,
    offsets: np.ndarray | None = None,
) -> Leaves:
    """result[i] = values[0] op ... op values[i]; exclusive: up to i - 1, the neutral element first; reverse: of the
    flipped rows, flipped back; offsets [segment + 1]: each segment on its own."""
    rows = _rows(values)
    results: Rows = list(rows)
    for order in _segments(len(rows), reverse, offsets):
        done = _prefixes(op, [rows[i] for i in order])
        for i, result in zip(order, [_neutral(op, values), *done] if exclusive else done):
            results[i] = result
    return _leaves(op, results, values)


def scan_vjp(
    op: TypedMonoid,
    adjoints: Adjoints,
    values: Sequence[np.ndarray],
    *,
    exclusive: bool = False,
    reverse: bool = False,
    offsets: np.ndarray | None = None,
) -> tuple[np.ndarray | None, ...]:
    """Adjoints of the values of a scan from those of its results."""
    rows, given = _rows(values), _rows(zeros_for_none(adjoints, values))
    found = _zeros(op, values)
    for order in _segments(len(rows), reverse, offsets):
        if exclusive:
            # The first result is a constant, and the last value flows nowhere.
            pulled = _prefixes_vjp(op, [given[i] for i in order[1:]], [rows[i] for i in order[:-1]])
        else:
            pulled = _prefixes_vjp(op, [given[i] for i in order], [rows[i] for i in order])
        for i, adjoint in zip(order, pulled):
            found[i] = adjoint
    return only_floats(op, _leaves(op, found, values))


def reduce_by_index(
    op: TypedMonoid, destination: Sequence[np.ndarray], indices: np.ndarray, values: Sequence[np.ndarray]
) -> Leaves:
    """destination[k] op values[i] op values[j] ..., with i < j < ... the rows whose index is k; others are ignored."""
    buckets, rows = _rows(destination), _rows(values)
    for index, row in zip(indices, rows):
        if 0 <= index < len(buckets):
            buckets[index] = op.apply(buckets[index], row)
    return _leaves(op, buckets, destination)


def reduce_by_index_vjp(
    op: TypedMonoid,
    adjoints: Adjoints,
    destination: Sequence[np.ndarray],
    indices: np.ndarray,
    values: Sequence[np.ndarray],
) -> tuple[tuple[np.ndarray | None, ...], tuple[np.ndarray | None, ...]]:
    """(adjoints of the destination, of the values) from those of the results."""
    buckets, rows = _rows(destination), _rows(values)
    given = _rows(zeros_for_none(adjoints, destination))
    to_values = _zeros(op, values)
    for k in range(len(buckets)):
        members = [i for i, index in enumerate(indices) if index == k]
        steps = [buckets[k], *(rows[i] for i in members)]
        last_only = [*[_zero(op, destination)] * len(members), given[k]]
        given[k], *pulled = _prefixes_vjp(op, last_only, steps)
        for i, adjoint in zip(members, pulled):
            to_values[i] = adjoint
    return (
        only_floats(op, _leaves(op, given, destination)),
        only_floats(op, _leaves(op, to_values, values)),
    )


def segment_reduce(op: TypedMonoid, values: Sequence[np.ndarray], offsets: np.ndarray) -> Leaves:
    """[segment, column, size]: the fold of each segment's rows; the neutral element of an empty one."""
    rows = _rows(values)
    segments = [rows[start:stop] for start, stop in pairwise(offsets)]
    return _leaves(op, [_prefixes(op, part)[-1] if part else _neutral(op, values) for part in segments], values)


def segment_reduce_vjp(
    op: TypedMonoid, adjoints: Adjoints, values: Sequence[np.ndarray], offsets: np.ndarray
) -> tuple[np.ndarray | None, ...]:
    """Adjoints of the values from those of the segments' results."""
    rows, found = _rows(values), _zeros(op, values)
    like = tuple(np.zeros((len(offsets) - 1, *leaf.shape[1:]), leaf.dtype) for leaf in values)
    given = _rows(zeros_for_none(adjoints, like))
    for segment, (start, stop) in enumerate(pairwise(offsets)):
        if start < stop:
            last_only = [*[_zero(op, values)] * (stop - start - 1), given[segment]]
            found[start:stop] = _prefixes_vjp(op, last_only, rows[start:stop])
    return only_floats(op, _leaves(op, found, values))


def _prefixes(op: TypedMonoid, rows: Rows) -> Rows:
    results = rows[:1]
    for row in rows[1:]:
        results.append(op.apply(results[-1], row))
    return results


def _prefixes_vjp(op: TypedMonoid, adjoints: Rows, rows: Rows) -> Rows:
    """The chain rule, last step first: adjoints of all prefixes -> adjoints of the rows."""
    if not rows:
        return []
    results = _prefixes(op, rows)
    found = [adjoints[-1]]
    for i in range(len(rows) - 1, 0, -1):
        into_prefix, into_row = op.apply_vjp(results[i - 1], rows[i], found[0])
        total = tuple(mine + term for mine, term in zip(adjoints[i - 1], into_prefix))
        found[0:1] = [total, into_row]
    return found


def _rows(leaves: Sequence[np.ndarray]) -> Rows:
    components = to_components(leaves)
    return [tuple(component[i] for component in components) for i in range(len(leaves[0]))]


def _leaves(op: TypedMonoid, rows: Rows, like: Sequence[np.ndarray]) -> Leaves:
    columns = like[0].shape[1]
    components = [np.array([row[k] for row in rows]).reshape(len(rows), columns) for k in range(op.size)]
    return to_leaves(op, components)


def _segments(num_rows: int, reverse: bool, offsets: np.ndarray | None) -> list[list[int]]:
    """The rows of each segment in the order of the scan; segments that are empty left out."""
    bounds = [0, num_rows] if offsets is None else list(offsets)
    orders = [list(range(start, stop)) for start, stop in pairwise(bounds) if start < stop]
    return [order[::-1] for order in orders] if reverse else orders


def _neutral(op: TypedMonoid, like: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.full(like[0].shape[1], value) for value in op.neutral)


def _zero(op: TypedMonoid, like: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.zeros(like[0].shape[1], dtype) for dtype in op.dtypes)


def _zeros(op: TypedMonoid, like: Sequence[np.ndarray]) -> Rows:
    return [_zero(op, like)] * len(like[0])


def to_components(leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
    """[component] arrays [row, column]; views."""
    return [leaf[..., k] for leaf in leaves for k in range(leaf.shape[-1])]


def to_leaves(op: TypedMonoid, components: Sequence[np.ndarray]) -> Leaves:
    """The flat leaves of elements of `op` given component by component [row, column]."""
    return tuple(
        np.stack(np.broadcast_arrays(*components[start:stop]), axis=-1).astype(dtype)
        for start, stop, dtype in zip(op.starts, op.starts[1:], op.leaf_dtypes)
    )


def zeros_for_none(adjoints: Sequence[np.ndarray | None], like: Sequence[np.ndarray]) -> Leaves:
    """Adjoints with zeros for those that are not given."""
    return tuple(np.zeros_like(leaf) if adjoint is None else adjoint for adjoint, leaf in zip(adjoints, like))


def only_floats(op: TypedMonoid, leaves: Sequence[np.ndarray]) -> tuple[np.ndarray | None, ...]:
    """Adjoints as they are handed out: None for the leaves that are not floats."""
    return tuple(leaf if k in op.float_leaves else None for k, leaf in enumerate(leaves))
