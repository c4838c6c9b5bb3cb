"""Gather: rows of an array by index."""

from __future__ import annotations

import numpy as np

from derivable.parallel import layout
from derivable.parallel.primitive import Primitive


def gather(values, indices, *, out=None):
    """The rows of `values` at `indices`.

    values   [row, *batch] of any dtype
    indices  [k] integers in range(row), repeats allowed
    returns  [k, *batch]; k = 0 gives an empty array

    Raises LayoutError with the first index outside range(row).
    Law: gathering by i, then by j, is gathering by i[j].
    Derivative: the transpose of a gather is `reduce_by_index` with add.
    """
    values = layout.check_values(values)
    indices = layout.check_indices(indices, len(values))
    result = layout.result(out, gather_shape(values.shape, indices.shape), values.dtype)
    result[...] = values[indices]
    return result


def gather_shape(values, indices):
    """[row, *batch], [k] -> [k, *batch]"""
    return (*indices, *values[1:])


def gather_vjp(adjoint, indices, num_rows, *, out=None):
    """Adjoint of `values` [num_rows, *batch] from that of the result [k, *batch]: adds up per row."""
    indices = layout.check_indices(indices, num_rows)
    adjoint = layout.check_values(adjoint, "adjoint")
    result = layout.result(out, (num_rows, *adjoint.shape[1:]), adjoint.dtype)
    result[...] = 0
    np.add.at(result, indices, adjoint)
    return result


def gather_jvp(tangent, indices, *, out=None):
    """Tangent of the result from that of `values`: gather is linear."""
    return gather(tangent, indices, out=out)


PRIMITIVE = Primitive("gather", gather, gather_shape, gather_vjp, gather_jvp, "values; indices are not differentiable")
