"""Einstein sums of dense arrays by their own library: NumPy, torch or JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.bridge import contraction_steps as steps
from derivable.bridge.products import AllAxes, exact_sum, interleaved
from derivable.core.diagnostics import DomainError
from derivable.tensor.call.tracked import refuse_complex
from derivable.tensor.values.values import as_torch, dense_array, has_torch, has_traced

Axes = tuple[int, ...]


def dense_einsum(operands: list[tuple[Any, Axes]], result: Axes, backend: str | None) -> Any:
    """The Einstein sum of dense arrays, each with its axes: by torch if it is the backend or has one of them, by JAX if
    it has one, else by NumPy. No axis is twice in one of several arrays.

    Raises DomainError for tensors on several devices and for complex numbers.
    """
    arrays = [array for array, _ in operands]
    axes = [of for _, of in operands]
    if backend == "torch" or has_torch(arrays):
        if not has_traced(arrays):
            return _by_torch(arrays, axes, result)
        # Tensors of torch are constants of what JAX traces.
        arrays = [dense_array(array) if has_torch([array]) else array for array in arrays]
    if all(isinstance(array, np.ndarray) for array in arrays):
        return _by_numpy(arrays, axes, result)
    return _by_jax(arrays, axes, result)


@np.errstate(invalid="ignore")
def _by_numpy(arrays: list[Any], axes: list[Axes], result: Axes) -> np.ndarray:
    if len(arrays) == 1:
        return _einsum(arrays, (*axes, result))
    of = steps.steps_of(arrays, (*axes, result))
    total = steps.forward(_einsum, arrays, of)[-1]
    if total.dtype.kind == "f" and np.isnan(total).any():

        def sums(lists: list[list[Any]]) -> list[np.ndarray]:
            return [steps.forward(_einsum, each, of)[-1] for each in lists]

        total = exact_sum(np, sums, arrays, np.any).astype(total.dtype, copy=False)
    return total


def _einsum(arrays: Any, axes: AllAxes) -> np.ndarray:
    return np.asarray(np.einsum(*interleaved(arrays, axes), optimize=True))


def _by_torch(arrays: list[Any], axes: list[Axes], result: Axes) -> Any:
    import torch

    devices = {array.device for array in arrays if isinstance(array, torch.Tensor)}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise DomainError(f"the operands are on {names}", hint='move them to one device: `x.to("cpu")`')
    tensors = [as_torch(array, next(iter(devices), None)) for array in arrays]
    for x in tensors:
        refuse_complex(x.dtype)
    types = {x.dtype for x in arrays if isinstance(x, torch.Tensor)} or {x.dtype for x in tensors}
    dtype = torch.float32 if types == {torch.float32} else torch.float64
    tensors = [x.to(dtype) for x in tensors]
    if len(tensors) > 1:
        from derivable.bridge.torch_products import product

        return product(tensors, (*axes, result))
    return torch.einsum(tensors[0], list(axes[0]), list(result))


def _by_jax(arrays: list[Any], axes: list[Axes], result: Axes) -> Any:
    import jax
    import jax.numpy as jnp

    dtype = jnp.result_type(*(array for array in arrays if isinstance(array, jax.Array)))
    refuse_complex(dtype)
    arrays = [jnp.asarray(array, dtype if jnp.issubdtype(dtype, jnp.floating) else float) for array in arrays]
    if len(arrays) < 2:
        return jnp.einsum(*interleaved(arrays, (*axes, result)))
    from derivable.bridge.jax_products import product

    return product(arrays, (*axes, result))
