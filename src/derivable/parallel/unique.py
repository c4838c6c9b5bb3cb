"""Unique: groups of equal rows."""

from __future__ import annotations

import numpy as np

from derivable.core.diagnostics import LayoutError
from derivable.parallel import layout
from derivable.parallel.primitive import Primitive


def unique(columns):
    """The distinct rows of sorted key columns, and where the rows of each begin.

    columns  tuple of arrays [row], sorted as by `sort`; NaN equals NaN as a key
    returns  (columns of distinct rows [group], offsets [group + 1] int64: group g is rows offsets[g]:offsets[g + 1])

    Raises LayoutError with the first row that is smaller than the one before.
    Law: repeating each distinct row by the length of its group gives the input.
    Derivative: the groups are locally constant; a distinct row is its group's first row, which gets the adjoint.
    """
    columns = layout.check_columns(columns)
    num_rows = len(columns[0])
    equal = np.ones(max(0, num_rows - 1), bool)
    falls = np.zeros_like(equal)
    for column in columns:
        before, after = column[:-1], column[1:]
        smaller = after < before
        if column.dtype.kind == "f":
            smaller |= (before != before) & (after == after)
        falls |= equal & smaller
        equal &= layout.same_key(before, after)
    if falls.any():
        raise unsorted(int(np.flatnonzero(falls)[0]) + 1)
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, num_rows), bool), ~equal]))
    return tuple(column[starts] for column in columns), np.append(starts, num_rows).astype(np.int64)


def unsorted(row):
    """The error for a row that is smaller than the one before."""
    return LayoutError(f"the rows are not sorted: row {row} is smaller than row {row - 1}", hint="apply `sort` first")


def unique_shape(*columns):
    """[row], ... -> ([group], ...), [group + 1]: both lengths depend on the data"""
    return tuple((None,) for _ in columns), (None,)


def unique_vjp(adjoints, offsets):
    """Adjoints of the columns from those of the distinct rows (None stays None)."""
    results = []
    for adjoint in adjoints:
        if adjoint is None:
            results.append(None)
            continue
        adjoint = np.asarray(adjoint)
        result = np.zeros(int(offsets[-1]), adjoint.dtype)
        result[offsets[:-1]] = adjoint
        results.append(result)
    return tuple(results)


def unique_jvp(tangents, offsets):
    """Tangents of the distinct rows from those of the columns (None stays None)."""
    return tuple(None if tangent is None else np.asarray(tangent)[offsets[:-1]] for tangent in tangents)


PRIMITIVE = Primitive(
    "unique", unique, unique_shape, unique_vjp, unique_jvp, "float columns; the groups are locally constant"
)
