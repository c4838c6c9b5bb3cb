"""Sparse arrays of JAX as coordinates whose values are arrays of JAX, with their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import UnsupportedError
from derivable.tensor.values.libraries import check_indices, named
from derivable.tensor.values.order import distinct
from derivable.tensor.values.values import Coordinates


def jax_entries(value: Any, record: Semiring, name: str = "") -> Coordinates:
    """A sparse array of JAX as coordinates whose values are a JAX array, with its derivatives; entries of the same
    indices are added up, by the plus of the semiring. Raises as `jax_parts`.
    """
    shape, places, data = jax_parts(value, name)
    found, into = distinct(list(places))
    if into is not None and len(found[0]) == len(into):
        data = data[np.argsort(into)]
    elif into is not None:
        import jax.numpy as jnp

        from derivable.bridge.folds import reduce_by_index

        data = data if data.dtype.kind == "f" else data.astype(float)
        data = reduce_by_index(jnp.full(len(found[0]), record.zero, data.dtype), record, into, data)
    return Coordinates(shape, np.stack(found), data)


def jax_parts(value: Any, name: str = "") -> tuple[tuple[int, ...], np.ndarray, Any]:
    """(shape, indices [axis, entry], values [entry]) of a BCOO, BCSR or another sparse array of JAX, in any order.

    Padding is left out; axes of a batch and of dense entries are axes like others. Raises UnsupportedError for indices
    that are traced, LayoutError for one that is negative.
    """
    import jax.numpy as jnp
    from jax.core import Tracer
    from jax.experimental import sparse

    matrix = value.to_bcoo() if hasattr(value, "to_bcoo") else value
    if not isinstance(matrix, sparse.BCOO):
        matrix = sparse.BCOO.fromdense(value.todense(), nse=value.nse)
    indices = matrix.indices
    if isinstance(indices, Tracer):
        raise UnsupportedError(
            f"the indices of the BCOO{named(name)} are traced, and where entries are must be known before they are "
            "computed with",
            hint="take the data alone as an argument, `jax.jit(lambda data: f(BCOO((data, A.indices), "
            "shape=A.shape)))`, or give `A.todense()`",
        )
    shape, batch = tuple(matrix.shape), matrix.n_batch
    whole = (*shape[:batch], matrix.nse, *shape[batch + matrix.n_sparse :])
    grid = np.indices(whole)
    stored = np.broadcast_to(np.asarray(indices, np.int64), (*whole[: batch + 1], matrix.n_sparse))
    within = [np.broadcast_to(stored[(..., k, *[None] * matrix.n_dense)], whole) for k in range(matrix.n_sparse)]
    places = np.stack([*grid[:batch], *within, *grid[batch + 1 :]]).reshape(len(shape), -1)
    data = jnp.broadcast_to(matrix.data, whole).reshape(-1)
    is_inside = (places < np.array(shape, np.int64)[:, None]).all(0)
    if not is_inside.all():
        # What fills an array up to its size.
        places, data = places[:, is_inside], data[np.flatnonzero(is_inside)]
    check_indices(places, shape, name)
    return shape, places, data
