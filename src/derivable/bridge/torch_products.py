"""Sums of products of two torch tensors, as in `products`, with derivatives of any order, also under `torch.func`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from derivable.bridge.products import Axes, by_left, by_right, exact_product, interleaved, with_batch
from derivable.bridge.torch import has_nan, is_captured
from derivable.bridge.torch_parts import is_legacy_copies, is_transformed


def is_recorded(operands: Sequence[torch.Tensor]) -> bool:
    """Whether derivatives of what is computed of these may be asked for."""
    return is_transformed() or (torch.is_grad_enabled() and any(x.requires_grad for x in operands))


def product(left: torch.Tensor, right: torch.Tensor, axes: Axes) -> torch.Tensor:
    """The sum of products of two tensors of one type of floats, on one device, computed in that type."""
    if is_captured() or is_legacy_copies(left) or is_legacy_copies(right):
        from derivable.bridge import operators

        return operators.product(left, right, axes)
    return (_Product.apply if is_recorded((left, right)) else computed)(left, right, axes)


def exact_times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The products of two tensors of one shape, likewise."""
    every = tuple(range(left.ndim))
    return product(left, right, (every, every, every))


def computed(left: torch.Tensor, right: torch.Tensor, axes: Axes) -> torch.Tensor:
    if axes[0] == axes[1] == axes[2]:
        return torch.where((left == 0) | (right == 0), 0.0, left * right)

    def einsum(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.einsum(*interleaved(tensors, axes))

    # Matrix products would be in fewer bits than their operands have.
    is_cast = left.device.type != "meta" and torch.is_autocast_enabled(left.device.type)
    with torch.autocast(left.device.type, enabled=False) if is_cast else nullcontext():
        found = einsum(left, right)
        return exact_product(torch, einsum, left, right) if has_nan(found) else found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(left: torch.Tensor, right: torch.Tensor, axes: Axes) -> torch.Tensor:
        return computed(left, right, axes)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *operands, ctx.axes = inputs
        ctx.save_for_backward(*operands)
        ctx.save_for_forward(*operands)

    @staticmethod
    def backward(ctx: Any, *adjoints: torch.Tensor) -> Any:  # type: ignore[override]
        return *adjoints_of(ctx.saved_tensors, ctx.axes, adjoints[0], ctx.needs_input_grad), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tangent_of(ctx.saved_tensors, ctx.axes, tangents)

    @staticmethod
    def vmap(info: Any, in_dims: Any, left: torch.Tensor, right: torch.Tensor, axes: Axes) -> Any:
        left, right = (x if axis is None else x.movedim(axis, 0) for x, axis in zip((left, right), in_dims))
        return product(left, right, with_batch(axes, [axis is not None for axis in in_dims[:2]])), 0


def adjoints_of(operands: Sequence[Any], axes: Axes, adjoint: torch.Tensor, needed: Sequence[bool]) -> tuple[Any, Any]:
    """The adjoints of the two operands, None for one that needs none."""
    left, right = operands
    return (
        product(adjoint, right, by_left(axes)) if needed[0] else None,
        product(left, adjoint, by_right(axes)) if needed[1] else None,
    )


def tangent_of(operands: Sequence[Any], axes: Axes, tangents: Sequence[Any]) -> torch.Tensor:
    """The tangent of the sum, along those of the operands, of which one may be None."""
    left, right = operands
    parts = [
        None if tangents[0] is None else product(tangents[0], right, axes),
        None if tangents[1] is None else product(left, tangents[1], axes),
    ]
    alive = [part for part in parts if part is not None]
    return sum(alive[1:], alive[0])
