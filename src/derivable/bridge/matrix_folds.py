"""Folds of products of large matrices, in the operations of each library: level by level, of all pairs at once.

    scan(x0 .. x4)       p = scan(x0 x1, x2 x3), and then x0, p0, p0 x2, p1, p1 x4
    a segment's product  its last prefix, of a scan in which the first matrix of a segment forgets those before it

A product goes over the inner axis, one sum of all entries after the other, so that nothing is larger than the matrices;
of real numbers it is the library's own. Derivatives are those of the operations.

Source: Blelloch, Prefix sums and their applications, 1990.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from derivable.algebra.expr import interpreter
from derivable.algebra.expr.emit_arrays import compile_jnp, compile_torch
from derivable.algebra.expr.functions import lift
from derivable.algebra.expr.nodes import Argument
from derivable.algebra.expr.types import FLOATS
from derivable.algebra.monoids import MatrixProduct
from derivable.algebra.semiring import Semiring
from derivable.bridge.arrays import check_shapes, checked_dtype, checked_offsets, common_library, groups_of
from derivable.bridge.fold import KERNEL_DTYPES

_Product = Callable[[Any, Any], Any]


def reduce(op: MatrixProduct, values: Any) -> Any:
    """The product of all matrices: [n, *batch, k, k] to [*batch, k, k]."""
    return _called(_reduced, op, values)


def scan(op: MatrixProduct, values: Any, offsets: Any, exclusive: bool, reverse: bool) -> Any:
    """All prefixes, of each segment if there are offsets."""
    return _called(partial(_scanned, exclusive=exclusive, reverse=reverse), op, values, offsets)


def segment_reduce(op: MatrixProduct, values: Any, offsets: Any) -> Any:
    """The product of each segment: [n, *batch, k, k] to [segment, *batch, k, k]."""
    return _called(_segments, op, values, offsets)


def _called(function: Callable[..., Any], op: MatrixProduct, values: Any, offsets: Any = None) -> Any:
    """`function` of arrays of the type that is computed with."""
    torch: Any = sys.modules.get("torch")
    # Another thread may be importing torch.
    if hasattr(torch, "compiler") and torch.compiler.is_compiling():
        from derivable.bridge.compiled import one_node

        return one_node(_on_tensors, [values] if offsets is None else [values, offsets], function, op)
    return _checked(function, op, values, offsets)


def _on_tensors(tensors: Sequence[Any], function: Callable[..., Any], op: MatrixProduct) -> Any:
    return _checked(function, op, *tensors)


def _checked(function: Callable[..., Any], op: MatrixProduct, values: Any, offsets: Any = None) -> Any:
    ((what, leaves),) = groups_of(op, (("values", values),))
    ((name, leaf),) = leaves
    library = common_library([(name, leaf), *([] if offsets is None else [("offsets", offsets)])])
    leaf = library.as_leaf(leaf, name)
    check_shapes(op, [(what, [(name, leaf)])])
    checked_dtype(library, what, leaf)
    if offsets is not None:
        offsets = checked_offsets(library, offsets, leaf.shape[0])
    return _run(function, op, _arrays_of(library), leaf, offsets)


def _run(function: Callable[..., Any], op: MatrixProduct, arrays: ModuleType, leaf: Any, offsets: Any = None) -> Any:
    kind = str(leaf.dtype).removeprefix("torch.")
    wide = _as_type(arrays, leaf, KERNEL_DTYPES[kind])
    neutral = _constant(arrays, op.neutral, wide)
    product = _product(op.ring, arrays.__name__, str(wide.dtype).removeprefix("torch."))
    with np.errstate(all="ignore"):
        return _as_type(arrays, function(arrays, product, neutral, wide, offsets), kind)


def _arrays_of(library: ModuleType) -> ModuleType:
    if library.__name__.endswith(".numpy"):
        return np
    return sys.modules["torch" if library.__name__.endswith(".torch") else "jax.numpy"]


def _as_type(arrays: ModuleType, of: Any, kind: str) -> Any:
    if arrays.__name__ == "torch":
        return of.to(getattr(arrays, kind))
    # JAX has 32 bits where its mode says so.
    return of if str(of.dtype) == kind else of.astype(kind)


def _constant(arrays: ModuleType, value: np.ndarray, like: Any) -> Any:
    if arrays.__name__ == "torch":
        return arrays.as_tensor(value, dtype=like.dtype, device=like.device)
    return arrays.asarray(value, like.dtype)


def _reduced(arrays: ModuleType, product: _Product, neutral: Any, values: Any, _: Any) -> Any:
    if not len(values):
        return arrays.broadcast_to(neutral, tuple(values.shape[1:]))
    while len(values) > 1:
        pairs = product(values[:-1:2], values[1::2])
        values = arrays.concatenate([pairs, values[-1:]]) if len(values) % 2 else pairs
    return values[0]


def _segments(arrays: ModuleType, product: _Product, neutral: Any, values: Any, offsets: Any) -> Any:
    shape = (len(offsets) - 1, *values.shape[1:])
    if not len(values):
        return arrays.broadcast_to(neutral, shape)
    prefixes = _scanned(arrays, product, neutral, values, offsets, False, False)
    is_some = (offsets[1:] > offsets[:-1]).reshape(-1, *[1] * (len(shape) - 1))
    last = arrays.clip(offsets[1:] - 1, 0, None)
    return arrays.where(is_some, prefixes[last], neutral)


def _scanned(
    arrays: ModuleType, product: _Product, neutral: Any, values: Any, offsets: Any, exclusive: bool, reverse: bool
) -> Any:
    count = len(values)
    if not count:
        return values
    begins = 0 if offsets is None else (count - offsets[1:]) if reverse else offsets[:-1]
    # [n] whether a segment begins there.
    starts = _marked(arrays.zeros_like(values.reshape(count, -1)[:, 0]) != 0, begins)
    values = arrays.flip(values, (0,)) if reverse else values
    along = starts.reshape(-1, *[1] * (len(values.shape) - 1))
    found = (_prefixes if offsets is None else _segment_prefixes)(arrays, product, values, along)
    if exclusive:
        found = arrays.where(along, neutral, arrays.concatenate([found[:1], found[:-1]]))
    return arrays.flip(found, (0,)) if reverse else found


def _marked(flags: Any, places: Any) -> Any:
    if hasattr(flags, "at"):
        return flags.at[places].set(True, mode="drop")
    # Of empty segments behind the last row.
    places = places if isinstance(places, int) else places[places < len(flags)]
    flags[places] = True
    return flags


def _prefixes(arrays: ModuleType, product: _Product, values: Any, _: Any) -> Any:
    return _levels(arrays, lambda left, right: [product(left[0], right[0])], [values])[0]


def _segment_prefixes(arrays: ModuleType, product: _Product, values: Any, starts: Any) -> Any:
    def combined(left: list[Any], right: list[Any]) -> list[Any]:
        return [arrays.where(right[1], right[0], product(left[0], right[0])), left[1] | right[1]]

    return _levels(arrays, combined, [values, starts])[0]


def _levels(arrays: ModuleType, combined: Callable[[list[Any], list[Any]], list[Any]], parts: list[Any]) -> list[Any]:
    count = len(parts[0])
    if count < 2:
        return parts
    odd = _levels(arrays, combined, combined([x[: count - 1 : 2] for x in parts], [x[1::2] for x in parts]))
    rest = combined([x[: (count - 1) // 2] for x in odd], [x[2::2] for x in parts])
    found = []
    for first, y, z in zip(parts, odd, rest):
        even, half = arrays.concatenate([first[:1], z]), count // 2
        pairs = arrays.stack([even[:half], y], 1).reshape(2 * half, *first.shape[1:])
        found.append(arrays.concatenate([pairs, even[half:]]) if count % 2 else pairs)
    return found


@lru_cache(64)
def _product(ring: Semiring, library: str, dtype: str) -> _Product:
    """The products of matrices [*, k, k] of a type."""
    if ring.name == "real" and dtype in FLOATS:
        return lambda left, right: left @ right
    x, y, total = (Argument(number, dtype, name) for number, name in enumerate(("x", "y", "total")))  # type: ignore[arg-type]
    first, more = lift(ring.times(x, y)), lift(ring.plus(total, ring.times(x, y)))
    if library == "numpy":
        starting, stepping = interpreter(first), interpreter(more)
        start, step = (lambda *of: starting(of)), (lambda *of: stepping(of))
    else:
        made = compile_torch if library == "torch" else compile_jnp
        start, step = made(first, (x, y)), made(more, (x, y, total))
    return partial(_jax_product if library.startswith("jax") else _eager_product, start, step)


def _eager_product(start: Callable[..., Any], step: Callable[..., Any], left: Any, right: Any) -> Any:
    shape = left.shape

    def factors(k: int) -> tuple[Any, Any]:
        x, y = left[..., :, k, None], right[..., None, k, :]
        if isinstance(left, np.ndarray):
            return np.broadcast_to(x, shape), np.broadcast_to(y, shape)
        return x.expand(shape), y.expand(shape)

    found = start(*factors(0))
    for k in range(1, shape[-1]):
        found = step(*factors(k), found)
    return found


def _jax_product(start: Callable[..., Any], step: Callable[..., Any], left: Any, right: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def factors(x: Any, y: Any) -> tuple[Any, Any]:
        return jnp.broadcast_to(x[..., :, None], left.shape), jnp.broadcast_to(y[..., None, :], left.shape)

    columns, rows = jnp.moveaxis(left, -1, 0), jnp.moveaxis(right, -2, 0)
    found = start(*factors(columns[0], rows[0]))
    return jax.lax.scan(lambda total, of: (step(*factors(*of), total), None), found, (columns[1:], rows[1:]))[0]
