"""Einstein sums in semirings whose elements are nests of numbers: folds over all terms, of dense operands.

All terms are made in one step, the first operand's factor first, and added in the order of the places: so it is right
for semirings that do not commute or do not distribute, and takes memory for every term.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra.element import flatten, rebuild
from derivable.algebra.semiring import Semiring
from derivable.bridge.folds import reduce
from derivable.core.diagnostics import ShapeError, UnsupportedError
from derivable.tensor.values.libraries import imported
from derivable.tensor.values.values import as_torch, has_torch, is_dense

_TYPES = {"float": np.float64, "integer": np.int64, "bool": np.bool_}


def nests_of(operands: Sequence[Any], record: Semiring) -> tuple[list[list[Any]], list[tuple[int, ...]]]:
    """(by operand its leaves [*axes, *shape of the leaf], by operand the sizes of its axes), all of one library.

    Raises ShapeError for another nesting than that of elements, or leaves of different sizes, and UnsupportedError for
    sparse ones.
    """
    element = record.element
    found, shapes = [], []
    firsts = np.cumsum([0, *element.leaf_sizes])[:-1]
    kinds = [record.carriers[first] for first in firsts]
    nests = [flatten(element, operand, f"operand {place}") for place, operand in enumerate(operands)]
    every = [leaf for leaves in nests for leaf in leaves]
    for place, leaves in enumerate(nests):
        if not all(map(is_dense, leaves)):
            raise UnsupportedError(
                f"operand {place} has sparse parts, and elements of the semiring {record.name!r} are nests, of which "
                "Einstein sums take dense arrays",
                hint="give `x.toarray()`, with the semiring's zero where nothing is stored",
            )
        arrays = [_array(leaf, _TYPES[kind], every) for leaf, kind in zip(leaves, kinds)]
        sizes = []
        for array, shape in zip(arrays, element.leaf_shapes):
            order = array.ndim - len(shape)
            if order < 0 or tuple(array.shape[order:]) != shape:
                raise ShapeError(
                    f"operand {place} has a leaf of shape {list(array.shape)}, and the element {element} ends in "
                    f"{list(shape)}"
                )
            sizes.append(tuple(array.shape[:order]))
        if len(set(sizes)) > 1:
            raise ShapeError(f"the leaves of operand {place} are of different sizes: {', '.join(map(str, sizes))}")
        found.append(arrays)
        shapes.append(sizes[0])
    return found, shapes


def _array(leaf: Any, dtype: Any, every: Sequence[Any]) -> Any:
    """A leaf as an array of the library of all; floats keep their type."""
    if has_torch(every):
        made = as_torch(leaf if hasattr(leaf, "dtype") else np.asarray(leaf))
        return made if dtype == np.float64 and made.is_floating_point() else made.to(as_torch(np.empty(0, dtype)).dtype)
    jax = imported("jax")
    if jax is not None and any(isinstance(x, jax.Array) for x in every):
        made = jax.numpy.asarray(leaf)
        return made if dtype == np.float64 and made.dtype.kind == "f" else made.astype(dtype)
    made = np.asarray(leaf)
    return made if dtype == np.float64 and made.dtype in (np.float32, np.float64) else made.astype(dtype)


def einsum_of_nests(
    operands: Sequence[Any],
    found: Sequence[Sequence[Any]],
    inputs: Sequence[tuple[int, ...]],
    result: tuple[int, ...],
    sizes: dict[int, int],
    record: Semiring,
) -> Any:
    """The sum, a nest of arrays [*axes of the result, *shape of the leaf]; arguments as of `Subscripts.fitted`."""
    rest = [axis for axis in sizes if axis not in result]
    whole = [sizes[axis] for axis in (*rest, *result)]
    number = math.prod(sizes[axis] for axis in rest)
    grid = dict(zip((*rest, *result), np.indices(whole, sparse=True)))
    terms: list[list[Any]] = []
    for leaves, axes in zip(found, inputs):
        place = np.zeros([1] * len(whole), np.int64)
        for axis in axes:
            place = place * sizes[axis] + grid[axis]
        place = np.broadcast_to(place, whole).reshape(-1)
        count = math.prod(sizes[axis] for axis in axes)
        terms.append(
            [_taken(leaf.reshape((count, *shape)), place) for leaf, shape in zip(leaves, record.element.leaf_shapes)]
        )
    products = [_stacked(parts) for parts in zip(*terms)]
    like = operands[0]
    factor = reduce(record.multiplication, rebuild(record.element, like, products))
    target = [sizes[axis] for axis in result]
    places = math.prod(target)
    shapes = record.element.leaf_shapes
    rows = [
        leaf.reshape((number, places, *shape)) for leaf, shape in zip(flatten(record.element, factor, "terms"), shapes)
    ]
    total = reduce(record, rebuild(record.element, like, rows))
    leaves = [
        leaf.reshape((*target, *shape)) for leaf, shape in zip(flatten(record.element, total, "the result"), shapes)
    ]
    return rebuild(record.element, like, leaves)


def _taken(leaf: Any, place: np.ndarray) -> Any:
    return leaf[as_torch(place.copy(), leaf.device)] if has_torch([leaf]) else leaf[place]


def _stacked(parts: Sequence[Any]) -> Any:
    if has_torch(parts):
        import torch

        return torch.stack(list(parts))
    jax = imported("jax")
    if jax is not None and any(isinstance(x, jax.Array) for x in parts):
        return jax.numpy.stack(parts)
    return np.stack(parts)
