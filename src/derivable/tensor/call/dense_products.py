"""Einstein sums of one or two dense arrays by their own library: NumPy, torch or JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.bridge.products import exact_product
from derivable.core.diagnostics import DomainError
from derivable.tensor.call.tracked import refuse_complex
from derivable.tensor.values.values import as_torch, dense_array, has_torch, has_traced

Axes = tuple[int, ...]


def dense_einsum(operands: list[tuple[Any, Axes]], result: Axes, backend: str | None) -> Any:
    """The Einstein sum of dense arrays, each with its axes: by torch if it is the backend or has one of them, by JAX if
    it has one, else by NumPy.

    Raises DomainError for tensors on several devices and for complex numbers.
    """
    arrays = [array for array, _ in operands]
    axes = [of for _, of in operands]
    if (backend == "torch" or has_torch(arrays)) and has_traced(arrays):
        # Tensors of torch are constants there.
        arrays = [dense_array(array) if has_torch([array]) else array for array in arrays]
    elif backend == "torch" or has_torch(arrays):
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

    devices = {array.device for array in arrays if isinstance(array, torch.Tensor)}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise DomainError(f"the operands are on {names}", hint='move them to one device: `x.to("cpu")`')
    tensors = [as_torch(array, next(iter(devices), None)) for array in arrays]
    for x in tensors:
        refuse_complex(x.dtype, x.is_complex())
    types = {x.dtype for x in arrays if isinstance(x, torch.Tensor)} or {x.dtype for x in tensors}
    dtype = torch.float32 if types == {torch.float32} else torch.float64
    tensors = [x.to(dtype) for x in tensors]
    if len(tensors) == 2:
        from derivable.bridge.torch_products import product

        return product(*tensors, axes=(axes[0], axes[1], result))
    return torch.einsum(tensors[0], list(axes[0]), list(result))


def _by_jax(arrays: list[Any], axes: list[Axes], result: Axes) -> Any:
    import jax
    import jax.numpy as jnp

    dtype = jnp.result_type(*(array for array in arrays if isinstance(array, jax.Array)))
    refuse_complex(dtype, dtype.kind == "c")
    arrays = [jnp.asarray(array, dtype if jnp.issubdtype(dtype, jnp.floating) else float) for array in arrays]
    if len(arrays) < 2:
        return jnp.einsum(*_interleaved(arrays, axes), result)
    from derivable.bridge.jax_products import product

    return product(*arrays, axes=(axes[0], axes[1], result))


def _interleaved(arrays: Any, axes: Any) -> list[Any]:
    return [part for pair in zip(arrays, axes) for part in pair]
