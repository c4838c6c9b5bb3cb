"""Einstein sums of two dense arrays of torch or JAX in a semiring whose plus takes one of its terms, with derivatives.

    y[b, i, k] = max over j of x[b, i, j] * z[b, j, k]

The first j of those that attain it is constant wherever there is a derivative: a kernel finds it, or a loop of JAX, and
the result is the product of what stands there, a few operations of the library with derivatives of any order. Nothing
has the size of all terms.

Source: Danskin's theorem for minima and maxima.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from derivable.algebra.expr.emit_arrays import compile_jnp
from derivable.algebra.expr.functions import apply
from derivable.algebra.expr.nodes import Argument, Expr
from derivable.algebra.expr.types import Dtype
from derivable.algebra.semiring import Semiring
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.kernel import nodes as k
from derivable.kernel.build import Builder, as_type, substitute
from derivable.tensor.values.values import has_torch

Axes = tuple[int, ...]

# Whether a term is better than the best one before it.
_IS_BETTER = {"min": lambda term, best: apply("less", term, best), "max": lambda term, best: apply("less", best, term)}


def is_choice(operands: Sequence[Any], axes: Sequence[Axes], result: Axes, semiring: Semiring) -> bool:
    """Whether `chosen_einsum` takes such operands, dense arrays each with its axes: two of JAX, or of torch on the CPU
    which reverse mode alone looks at."""
    if len(operands) != 2 or semiring.carrier != "float" or semiring.typed("float64").plus.special not in _IS_BETTER:
        return False
    left, right = operands
    if has_torch([left]) != has_torch([right]) or left.dtype != right.dtype or 0 in (*left.shape, *right.shape):
        return False
    summed = {axis for of in axes for axis in of}.difference(result)
    if not all(len(set(of)) == len(of) and summed.issubset(of) for of in axes):
        return False
    if not has_torch([left]):
        return type(left).__module__ != "numpy" and type(right).__module__ != "numpy" and left.dtype.kind == "f"
    import torch

    from derivable.bridge.torch import is_observed

    is_recorded = torch.is_grad_enabled() and (left.requires_grad or right.requires_grad)
    is_plain = left.device.type == right.device.type == "cpu" and left.dtype in (torch.float32, torch.float64)
    return is_recorded and is_plain and not is_observed()


def chosen_einsum(left: Any, right: Any, axes: tuple[Axes, Axes], result: Axes, semiring: Semiring) -> Any:
    """The sum of products [*result] of operands with these axes; those that are summed are in both."""
    both = [axis for axis in result if axis in axes[0] and axis in axes[1]]
    summed = [axis for axis in axes[0] if axis not in result]
    rows, columns = ([axis for axis in of if axis not in both and axis not in summed] for of in axes)
    sizes = {axis: size for of, x in zip(axes, (left, right)) for axis, size in zip(of, x.shape)}
    b, i, j, k = (math.prod(sizes[axis] for axis in group) for group in (both, rows, summed, columns))
    x = _permuted(left, [axes[0].index(axis) for axis in (*both, *rows, *summed)]).reshape(b, i, j)
    z = _permuted(right, [axes[1].index(axis) for axis in (*both, *summed, *columns)]).reshape(b, j, k)
    made = (*both, *rows, *columns)
    found = (_by_torch if has_torch([left]) else _by_jax)(x, z, semiring).reshape([sizes[axis] for axis in made])
    return _permuted(found, [made.index(axis) for axis in result])


def _permuted(array: Any, order: Sequence[int]) -> Any:
    return array.permute(order) if hasattr(array, "permute") else array.transpose(order)


def _by_torch(x: Any, z: Any, semiring: Semiring) -> Any:
    from derivable.bridge.torch_columns import Torch

    taken = _taken(x.detach(), z.detach(), semiring)
    factors = [x.gather(2, taken).reshape(-1), z.gather(1, taken).reshape(-1)]
    return Torch("cpu", x.dtype, semiring, is_exact=True).apply("times", factors, taken.numel(), None)[0]


def _taken(x: Any, z: Any, semiring: Semiring) -> Any:
    """taken [b, i, k] int64: the first j whose product is the sum of all; one that is NaN comes before all."""
    import torch

    from derivable.bridge.torch import dtype_name

    (b, i, j), columns = x.shape, z.shape[2]
    dtype = dtype_name(x)
    best, taken = np.empty(columns, dtype), np.empty((b, i, columns), np.int64)
    run = _compiled(semiring, dtype)
    operands = [y.contiguous().numpy() for y in (x, z)]
    run(*(of.reshape(-1) for of in operands), best, taken.reshape(-1), b, i, j, columns)
    return torch.from_numpy(taken)


@lru_cache(64)
def _compiled(semiring: Semiring, dtype: Dtype) -> Callable:
    return compile_kernel(_kernel(semiring, dtype))


def _kernel(semiring: Semiring, dtype: Dtype) -> k.Kernel:
    build = Builder("chosen_terms")
    x, z, best = (build.array(name, dtype) for name in ("x", "z", "best"))
    taken = build.array("taken", "int64")
    b, i, j, k = (build.scalar(name) for name in ("num_batches", "num_rows", "num_terms", "num_columns"))

    with build.loop("batch", 0, b) as batch, build.loop("row", 0, i) as row:
        at = build.let("at", batch * i + row)
        with build.loop("term", 0, j) as number:
            left = build.load(x, at * j + number, "left")
            below = build.let("below", (batch * j + number) * k)
            with build.loop("column", 0, k) as column:
                right = build.load(z, below + column, "right")
                term = build.let("product", _product(semiring, left, right))
                known = build.load(best, column, "known")
                is_new = apply("logical_or", apply("equal", number, 0), _is_better(semiring, term, known))
                build.store(best, column, apply("where", is_new, term, known))
                before = build.load(taken, at * k + column, "before")
                build.store(taken, at * k + column, apply("where", is_new, number, before))
    return build.kernel()


def _product(semiring: Semiring, left: Expr, right: Expr) -> Expr:
    """The product, which with a zero is the zero."""
    times, zero = semiring.typed(left.dtype).times, as_type(semiring.zero, left.dtype)
    (term,) = substitute(times.values, {times.left[0]: left, times.right[0]: right})
    is_zero = apply("logical_or", apply("equal", left, zero), apply("equal", right, zero))
    return apply("where", apply("logical_and", apply("not_equal", term, term), is_zero), zero, term)


def _is_better(semiring: Semiring, term: Expr, best: Expr) -> Expr:
    """Whether a term comes before the best one of those before it."""
    is_less = _IS_BETTER[str(semiring.typed(term.dtype).plus.special)](term, best)
    is_nan = apply("logical_and", apply("not_equal", term, term), apply("equal", best, best))
    return apply("logical_or", is_less, is_nan)


def _by_jax(x: Any, z: Any, semiring: Semiring) -> Any:
    import jax
    import jax.numpy as jnp

    dtype = x.dtype.name
    taken = _jax_search(semiring, dtype)(jax.lax.stop_gradient(x), jax.lax.stop_gradient(z))
    left, right = jnp.take_along_axis(x, taken, 2), jnp.take_along_axis(z, taken, 1)
    times, zero, one = semiring.typed(dtype).times, semiring.zero, semiring.one
    if times.special == "mul" and zero == 0:
        from derivable.bridge.jax_products import product

        every = (0, 1, 2)
        return product((left, right), (every, every, every))
    multiplied = compile_jnp(times.values[0], (*times.left, *times.right))
    # Factors are replaced before they are multiplied: the derivative of what is left out would be NaN.
    is_nothing = jnp.isnan(multiplied(left, right)) & ((left == zero) | (right == zero))
    left, right = (jnp.where(is_nothing, one, factor) for factor in (left, right))
    return jnp.where(is_nothing, zero, multiplied(left, right))


@lru_cache(64)
def _jax_search(semiring: Semiring, dtype: Dtype) -> Callable:
    """What gives `taken` of x and z, as `_taken`."""
    import jax
    import jax.numpy as jnp

    pair = Argument(0, dtype, "first"), Argument(1, dtype, "second")
    multiplied = compile_jnp(_product(semiring, *pair), pair)
    is_better = compile_jnp(_is_better(semiring, *pair), pair)

    @jax.jit
    def search(x: Any, z: Any) -> Any:
        shape = *x.shape[:2], z.shape[2]

        def step(known: Any, of: Any) -> Any:
            best, taken = known
            left, right, number = of
            term = multiplied(*(jnp.broadcast_to(y, shape) for y in (left[:, :, None], right[:, None, :])))
            is_new = (number == 0) | is_better(term, best)
            return (jnp.where(is_new, term, best), jnp.where(is_new, number, taken)), None

        start = jnp.zeros(shape, x.dtype), jnp.zeros(shape, int)
        terms = jnp.moveaxis(x, 2, 0), jnp.moveaxis(z, 1, 0), jnp.arange(x.shape[2])
        return jax.lax.scan(step, start, terms)[0][1]

    return search
