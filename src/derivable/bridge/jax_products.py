"""Sums of products of two JAX arrays, as in `products`: a primitive that is linear in each operand."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from derivable.bridge.products import Axes, by_left, by_right, exact_product, interleaved, with_batch

_product = Primitive("derivable_product")


def product(left: jax.Array, right: jax.Array, axes: Axes) -> jax.Array:
    """The sum of products of two arrays of one type of floats, with derivatives of any order in every mode."""
    return _product.bind(left, right, axes=axes)


def _computed(left: jax.Array, right: jax.Array, *, axes: Axes) -> jax.Array:
    def einsum(*arrays: Any) -> jax.Array:
        return jnp.einsum(*interleaved(arrays, axes))

    found = einsum(left, right)
    return jax.lax.cond(jnp.isnan(found).any(), partial(exact_product, jnp, einsum), lambda *_: found, left, right)


def _shape(left: Any, right: Any, *, axes: Axes) -> ShapedArray:
    sizes = dict(zip((*axes[0], *axes[1]), (*left.shape, *right.shape)))
    return ShapedArray(tuple(sizes[axis] for axis in axes[2]), left.dtype)


def _batched(operands: Any, mapped: Any, *, axes: Axes) -> tuple[Any, int]:
    left, right = (x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(operands, mapped))
    return product(left, right, with_batch(axes, [axis is not None for axis in mapped])), 0


_product.def_impl(jax.jit(_computed, static_argnames="axes"))
_product.def_abstract_eval(_shape)
mlir.register_lowering(_product, mlir.lower_fun(_computed, multiple_results=False))
batching.primitive_batchers[_product] = _batched
ad.defbilinear(
    _product,
    lambda adjoint, _left, right, axes: product(adjoint, right, by_left(axes)),
    lambda adjoint, left, _right, axes: product(left, adjoint, by_right(axes)),
)
