"""Sort: rows of key columns in lexicographic order."""

from __future__ import annotations

import numpy as np

from derivable.parallel import layout
from derivable.parallel.primitive import Primitive


def sort(columns):
    """Rows in ascending lexicographic order, the first column counting most; stable.

    columns  tuple of arrays [row] of bool, integer or float dtype; NaN comes last, -0.0 equals 0.0
    returns  (the sorted columns, order [row] int64: sorted[i] = columns[order[i]])

    Raises ShapeError for no columns or columns of different lengths.
    Law: sorting sorted rows changes nothing, and the order is then 0, 1, 2, ...
    Derivative: the order is locally constant, so adjoints of sorted columns go back along it.
    """
    columns = layout.check_columns(columns)
    # -0.0 and 0.0 are one key: lexsort compares them as equal, so equal rows keep their order.
    order = np.lexsort(columns[::-1]).astype(np.int64)
    return tuple(column[order] for column in columns), order


def sort_shape(*columns):
    """[row], ... -> ([row], ...), [row]"""
    return columns, columns[0]


def sort_vjp(adjoints, order):
    """Adjoints of the columns from those of the sorted columns (None stays None)."""
    return tuple(None if adjoint is None else _scatter(adjoint, order) for adjoint in adjoints)


def sort_jvp(tangents, order):
    """Tangents of the sorted columns from those of the columns (None stays None)."""
    return tuple(None if tangent is None else np.asarray(tangent)[order] for tangent in tangents)


def _scatter(adjoint, order):
    adjoint = np.asarray(adjoint)
    result = np.empty_like(adjoint)
    result[order] = adjoint
    return result


PRIMITIVE = Primitive("sort", sort, sort_shape, sort_vjp, sort_jvp, "float columns; the order is locally constant")
