"""Sums of products of JAX arrays, as in `products`, with derivatives of any order in every mode: three primitives.

    value    the sum
    tangent  of the sum, along tangents of some operands, in which it is linear
    pull     the adjoints of some operands, in steps that they share; it is linear in the adjoint

Each is linear in every operand, so the derivatives of the last two are sums of tangents of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from derivable.bridge import contraction_steps as steps
from derivable.bridge.products import AllAxes, adjoint_product, exact_sum, interleaved, replaced, shape_of, with_batch

_value = Primitive("derivable_product")
_tangent = Primitive("derivable_product_tangent")
_pull = Primitive("derivable_product_pull")
_pull.multiple_results = True


def product(operands: Sequence[jax.Array], axes: AllAxes) -> jax.Array:
    """The sum of products of two arrays or more, of one type of floats."""
    return _value.bind(*operands, axes=axes)


# Values. `tangent` takes the operands of the sum and then the tangents of those in `which`; `pull` takes the operands
# and then the adjoint.


def _einsum(arrays: Sequence[Any], axes: AllAxes) -> jax.Array:
    return jnp.einsum(*interleaved(arrays, axes))


def _exact(*operands: Any, axes: AllAxes) -> jax.Array:
    of = steps.steps_of(operands, axes)

    def sums(lists: list[list[Any]]) -> Any:
        whole = [jnp.stack(parts) for parts in zip(*lists)]
        return jax.vmap(lambda *arrays: steps.forward(_einsum, arrays, of)[-1])(*whole)

    return exact_sum(jnp, sums, operands, lambda part: True)


def _unless_nan(plain: jax.Array, exact: Callable[..., jax.Array], *operands: Any) -> jax.Array:
    return jax.lax.cond(jnp.isnan(plain).any(), exact, lambda *_: plain, *operands)


def _computed(*operands: Any, axes: AllAxes) -> jax.Array:
    plain = steps.forward(_einsum, operands, steps.steps_of(operands, axes))[-1]
    return _unless_nan(plain, partial(_exact, axes=axes), *operands)


def _computed_tangent(*arrays: Any, axes: AllAxes, which: tuple[int, ...]) -> jax.Array:
    operands, along = _parted(arrays, axes)
    of = steps.steps_of(operands, axes)
    tangents = [along[which.index(k)] if k in which else None for k in range(len(operands))]
    plain = steps.push(_einsum, steps.forward(_einsum, operands, of), of, tangents)

    def exact(*arrays: Any) -> jax.Array:
        operands, along = _parted(arrays, axes)
        parts = [_exact(*replaced(operands, k, x), axes=axes) for k, x in zip(which, along)]
        return sum(parts[1:], parts[0])

    return _unless_nan(plain, exact, *arrays)


def _computed_pull(*arrays: Any, axes: AllAxes, which: tuple[int, ...]) -> list[jax.Array]:
    operands, (adjoint,) = _parted(arrays, axes)
    of = steps.steps_of(operands, axes)
    is_wanted = [k in which for k in range(len(operands))]
    plain = steps.pull(jnp, _einsum, steps.forward(_einsum, operands, of), of, adjoint, is_wanted)

    def exact(k: int, *arrays: Any) -> jax.Array:
        operands, (adjoint,) = _parted(arrays, axes)
        factors, their = _adjoint_product(operands, axes, k, adjoint)
        return _exact(*factors, axes=their)

    return [_unless_nan(plain[k], partial(exact, k), *arrays) for k in which]


def _parted(arrays: Sequence[Any], axes: AllAxes) -> tuple[list[Any], list[Any]]:
    return list(arrays[: len(axes) - 1]), list(arrays[len(axes) - 1 :])


def _adjoint_product(operands: Sequence[Any], axes: AllAxes, k: int, adjoint: Any) -> tuple[list[Any], AllAxes]:
    return adjoint_product(operands, axes, k, adjoint, partial(jnp.ones, dtype=operands[k].dtype))


# Derivatives


def _along(operands: Sequence[Any], tangents: Sequence[Any], axes: AllAxes) -> Any:
    """The tangent of a sum, along tangents of which some are None; None if all are."""
    which = tuple([k for k, x in enumerate(tangents) if x is not None])
    return _tangent.bind(*operands, *[tangents[k] for k in which], axes=axes, which=which) if which else None


def _known(tangents: Sequence[Any]) -> list[Any]:
    return [None if type(x) is ad.Zero else x for x in tangents]


def _added(parts: Sequence[Any], like: Any) -> Any:
    alive = [part for part in parts if part is not None]
    return sum(alive[1:], alive[0]) if alive else ad.Zero(ShapedArray(like.shape, like.dtype))


def _jvp(operands: Any, tangents: Any, *, axes: AllAxes) -> Any:
    total = product(operands, axes)
    return total, _added([_along(operands, _known(tangents), axes)], total)


def _jvp_of_tangent(arrays: Any, tangents: Any, *, axes: AllAxes, which: tuple[int, ...]) -> Any:
    result = _tangent.bind(*arrays, axes=axes, which=which)
    (operands, along), (by_operands, by_along) = _parted(arrays, axes), _parted(_known(tangents), axes)
    parts = [_along(operands, [by_along[which.index(k)] if k in which else None for k in range(len(operands))], axes)]
    for k, x in zip(which, along):
        parts.append(_along(replaced(operands, k, x), replaced(by_operands, k, None), axes))
    return result, _added(parts, result)


def _jvp_of_pull(arrays: Any, tangents: Any, *, axes: AllAxes, which: tuple[int, ...]) -> Any:
    results = _pull.bind(*arrays, axes=axes, which=which)
    (operands, (adjoint,)), (by_operands, (by_adjoint,)) = _parted(arrays, axes), _parted(_known(tangents), axes)
    changes = []
    for k, result in zip(which, results):
        factors, their = _adjoint_product(operands, axes, k, adjoint)
        along = replaced(by_operands, k, by_adjoint) + [None] * (len(factors) - len(operands))
        changes.append(_added([_along(factors, along, their)], result))
    return results, changes


def _instantiated(x: Any) -> Any:
    return jnp.zeros(x.aval.shape, x.aval.dtype) if ad.is_undefined_primal(x) else x


def _transposed(adjoint: Any, *operands: Any, axes: AllAxes) -> list[Any]:
    which = tuple([k for k, x in enumerate(operands) if ad.is_undefined_primal(x)])
    return _pulled(adjoint, operands, axes, which, which)


def _transposed_tangent(adjoint: Any, *arrays: Any, axes: AllAxes, which: tuple[int, ...]) -> list[Any]:
    operands, along = _parted(arrays, axes)
    wanted = tuple([k for k, x in zip(which, along) if ad.is_undefined_primal(x)])
    return [None] * len(operands) + _pulled(adjoint, operands, axes, wanted, which)


def _pulled(adjoint: Any, operands: Any, axes: AllAxes, wanted: tuple[int, ...], of: tuple[int, ...]) -> list[Any]:
    """Of each operand in `of` its adjoint, None where it is not wanted."""
    if type(adjoint) is ad.Zero:
        return [None] * len(of)
    adjoints = _pull.bind(*map(_instantiated, operands), adjoint, axes=axes, which=wanted)
    by_operand = dict(zip(wanted, adjoints))
    return [by_operand.get(k) for k in of]


def _transposed_pull(adjoints: Any, *arrays: Any, axes: AllAxes, which: tuple[int, ...]) -> list[Any]:
    operands, _ = _parted(arrays, axes)
    along = dict(zip(which, _known(adjoints)))
    return [None] * len(operands) + [_along(operands, [along.get(k) for k in range(len(operands))], axes)]


ad.primitive_jvps[_value] = _jvp
ad.primitive_jvps[_tangent] = _jvp_of_tangent
ad.primitive_jvps[_pull] = _jvp_of_pull
ad.primitive_transposes[_value] = _transposed
ad.primitive_transposes[_tangent] = _transposed_tangent
ad.primitive_transposes[_pull] = _transposed_pull


# Many at once


def _moved(arrays: Sequence[Any], mapped: Sequence[Any], must_be: Sequence[bool]) -> list[Any]:
    """Arrays with the axis along which they are mapped in front; those that must have one, and have none, repeated."""
    size = next(x.shape[axis] for x, axis in zip(arrays, mapped) if axis is not None)

    def moved(x: Any, axis: Any, must: bool) -> Any:
        if axis is None:
            return jnp.broadcast_to(x, (size, *x.shape)) if must else x
        return jnp.moveaxis(x, axis, 0)

    return list(map(moved, arrays, mapped, must_be))


def _batched(operands: Any, mapped: Any, *, axes: AllAxes) -> tuple[Any, int]:
    is_mapped = [axis is not None for axis in mapped]
    return product(_moved(operands, mapped, is_mapped), with_batch(axes, is_mapped)), 0


def _batched_tangent(arrays: Any, mapped: Any, *, axes: AllAxes, which: tuple[int, ...]) -> tuple[Any, int]:
    is_mapped = [axis is not None for axis in mapped]
    operands, along = _parted(is_mapped, axes)
    for k, is_along in zip(which, along):
        operands[k] = operands[k] or is_along
    must = [*operands, *[operands[k] for k in which]]
    return _tangent.bind(*_moved(arrays, mapped, must), axes=with_batch(axes, operands), which=which), 0


def _batched_pull(arrays: Any, mapped: Any, *, axes: AllAxes, which: tuple[int, ...]) -> tuple[Any, Any]:
    operands, _ = _parted([axis is not None for axis in mapped], axes)
    operands = [is_mapped or k in which for k, is_mapped in enumerate(operands)]
    moved = _moved(arrays, mapped, [*operands, True])
    return _pull.bind(*moved, axes=with_batch(axes, operands), which=which), [0] * len(which)


batching.primitive_batchers[_value] = _batched
batching.primitive_batchers[_tangent] = _batched_tangent
batching.primitive_batchers[_pull] = _batched_pull


# Shapes, and code


def _shape(*operands: Any, axes: AllAxes) -> ShapedArray:
    return ShapedArray(shape_of([x.shape for x in operands], axes), operands[0].dtype)


def _shape_of_tangent(*arrays: Any, axes: AllAxes, which: tuple[int, ...]) -> ShapedArray:
    return _shape(*_parted(arrays, axes)[0], axes=axes)


def _shapes_of_pull(*arrays: Any, axes: AllAxes, which: tuple[int, ...]) -> list[ShapedArray]:
    return [ShapedArray(arrays[k].shape, arrays[k].dtype) for k in which]


for primitive, computed, shape in (
    (_value, _computed, _shape),
    (_tangent, _computed_tangent, _shape_of_tangent),
    (_pull, _computed_pull, _shapes_of_pull),
):
    primitive.def_impl(jax.jit(computed, static_argnames=("axes", "which") if primitive is not _value else "axes"))
    primitive.def_abstract_eval(shape)
    mlir.register_lowering(primitive, mlir.lower_fun(computed, multiple_results=primitive.multiple_results))
