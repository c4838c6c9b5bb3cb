"""Einstein sums of one or two dense arrays by their own library: NumPy, torch or JAX.

A library gives NaN for zero times an infinity, which is zero here as in every format. So where a result has a NaN, it
is computed once more, the finite products apart from those that are not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from derivable.core.diagnostics import DomainError
from derivable.tensor.call.tracked import refuse_complex
from derivable.tensor.values.values import as_torch, has_torch

Axes = tuple[int, ...]
Einsum = Callable[..., Any]


def dense_einsum(operands: list[tuple[Any, Axes]], result: Axes, backend: str | None) -> Any:
    """The Einstein sum of dense arrays, each with its axes: by torch if it is the backend or has one of them, by JAX if
    it has one, else by NumPy.

    Raises DomainError for tensors on several devices and for complex numbers.
    """
    arrays = [array for array, _ in operands]
    axes = [of for _, of in operands]
    if backend == "torch" or has_torch(arrays):
        return _by_torch(arrays, axes, result)
    if all(isinstance(array, np.ndarray) for array in arrays):
        return _by_numpy(arrays, axes, result)
    return _by_jax(arrays, axes, result)


def _by_numpy(arrays: list[Any], axes: list[Axes], result: Axes) -> np.ndarray:
    def einsum(*arrays: Any) -> Any:
        return np.asarray(np.einsum(*_interleaved(arrays, axes), result, optimize=True))

    with np.errstate(invalid="ignore"):
        found = einsum(*arrays)
        if len(arrays) == 2 and found.dtype.kind == "f" and np.isnan(found).any():
            found = exact_product(np, einsum, *arrays).astype(found.dtype, copy=False)
    return found


def _by_torch(arrays: list[Any], axes: list[Axes], result: Axes) -> Any:
    import torch

    from derivable.bridge.torch import has_nan

    devices = {array.device for array in arrays if isinstance(array, torch.Tensor)}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise DomainError(f"the operands are on {names}", hint='move them to one device: `x.to("cpu")`')
    tensors = [as_torch(array, next(iter(devices), None)) for array in arrays]
    for x in tensors:
        refuse_complex(x.dtype, x.is_complex())
    dtype = torch.float32 if all(x.dtype == torch.float32 for x in tensors) else torch.float64

    def einsum(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.einsum(*_interleaved(tensors, [list(of) for of in axes]), list(result))

    tensors = [x.to(dtype) for x in tensors]
    found = einsum(*tensors)
    if len(tensors) == 2 and has_nan(found):
        return exact_product(torch, einsum, *tensors)
    return found


def _by_jax(arrays: list[Any], axes: list[Axes], result: Axes) -> Any:
    import jax
    import jax.numpy as jnp

    def einsum(*arrays: Any) -> Any:
        return jnp.einsum(*_interleaved(arrays, axes), result)

    found = einsum(*arrays)
    if len(arrays) < 2 or not jnp.issubdtype(found.dtype, jnp.floating):
        return found
    arrays = [jnp.asarray(array, found.dtype) for array in arrays]
    is_nan = jnp.isnan(found).any()
    try:
        return exact_product(jnp, einsum, *arrays) if is_nan else found
    except jax.errors.TracerBoolConversionError:
        return jax.lax.cond(is_nan, lambda: exact_product(jnp, einsum, *arrays), lambda: found)


def _interleaved(arrays: Any, axes: Any) -> list[Any]:
    return [part for pair in zip(arrays, axes) for part in pair]


def exact_product(library: Any, einsum: Einsum, left: Any, right: Any) -> Any:
    """The sum of products of two arrays, where zero times an infinity or NaN is zero.

    library  of the arrays: `numpy`, `torch` or `jax.numpy`
    einsum   (left, right) -> the sum, in which that would be NaN
    """
    where, isnan, isinf = library.where, library.isnan, library.isinf
    is_finite = library.isfinite(left), library.isfinite(right)
    finite = tuple(where(known, x, 0.0) for known, x in zip(is_finite, (left, right)))
    signs = tuple(where(isnan(x), 0.0, library.sign(x)) for x in (left, right))
    infinite = tuple(where(isinf(x), sign, 0.0) for x, sign in zip((left, right), signs))
    # Of products that are infinite: those with an infinite left factor, and those with an infinite right one alone.
    pairs = ((infinite[0], signs[1]), (where(is_finite[0], signs[0], 0.0), infinite[1]))
    balance = reduce(library.add, [einsum(*pair) for pair in pairs])
    number = reduce(library.add, [einsum(*(library.abs(x) for x in pair)) for pair in pairs])
    unknown = einsum(1.0 * isnan(left), 1.0 * (right != 0)) + einsum(1.0 * (left != 0), 1.0 * isnan(right))
    found = einsum(*finite)
    found = found + where(number + balance > 0, float("inf"), 0.0)
    found = found - where(number - balance > 0, float("inf"), 0.0)
    return found + where(unknown > 0, float("nan"), 0.0)
