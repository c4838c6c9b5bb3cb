"""Join: pairs of rows with equal keys."""

from __future__ import annotations

import numpy as np

from derivable.core.diagnostics import ShapeError
from derivable.parallel import layout
from derivable.parallel.primitive import Primitive


def join(left, right):
    """All pairs of a left and a right row whose keys are equal.

    left, right  tuples of as many key columns, [row] each, both sorted as by `sort`; columns that
                 are matched have one dtype; NaN equals NaN
    returns      (left rows [pair] int64, right rows [pair] int64), ascending by left, then by right row

    Raises ShapeError if the columns do not match.
    Law: the result has sum over keys of (left rows with the key) * (right rows with the key) pairs.
    Derivative: none of its own: its results are row numbers, locally constant; values go through `gather`.
    """
    left, right = check_sides(left, right)
    pairs = []
    groups: dict[tuple, list[int]] = {}
    for row, key in enumerate(_keys(right)):
        groups.setdefault(key, []).append(row)
    for row, key in enumerate(_keys(left)):
        pairs += [(row, other) for other in groups.get(key, ())]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def check_sides(left, right):
    """Both sides' columns. Raises as `join` does."""
    left, right = layout.check_columns(left, "left"), layout.check_columns(right, "right")
    if len(left) != len(right):
        raise ShapeError(f"the left side has {len(left)} key columns, the right side {len(right)}")
    for position, (a, b) in enumerate(zip(left, right)):
        if a.dtype != b.dtype:
            raise ShapeError(f"key column {position} is {a.dtype} on the left and {b.dtype} on the right")
    return left, right


def _keys(columns):
    # NaN is no equal of itself in Python, so it gets a stand-in.
    return zip(*(["nan" if value != value else value for value in column.tolist()] for column in columns))


def join_shape(left, right):
    """([row], ...), ([row], ...) -> [pair], [pair]: the number of pairs depends on the data"""
    return (None,), (None,)


PRIMITIVE = Primitive(
    "join", join, join_shape, None, None, "nothing: row numbers are locally constant; values go through gather"
)
