"""Sums of products of torch tensors, as in `products`, with derivatives of any order, also under `torch.func`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from derivable.bridge import contraction_steps as steps
from derivable.bridge.products import AllAxes, adjoint_product, exact_sum, interleaved, replaced, with_batch
from derivable.bridge.torch import has_nan, is_captured
from derivable.bridge.torch_parts import is_legacy_copies, is_transformed, physical


def is_recorded(operands: Sequence[torch.Tensor]) -> bool:
    """Whether derivatives of what is computed of these may be asked for."""
    return is_transformed() or (torch.is_grad_enabled() and any(x.requires_grad for x in operands))


def product(operands: Sequence[torch.Tensor], axes: AllAxes) -> torch.Tensor:
    """The sum of products of two tensors or more, of one type of floats and on one device, computed in that type."""
    if is_captured() or any(map(is_legacy_copies, operands)):
        from derivable.bridge import operators

        return operators.product(operands, axes)
    if not is_recorded(operands):
        return computed(operands, axes)
    return (_Product if is_transformed() else _InSteps).apply(axes, *operands)


def exact_times(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The products of two tensors of one shape, likewise."""
    every = tuple(range(left.ndim))
    return product((left, right), (every, every, every))


def computed(operands: Sequence[torch.Tensor], axes: AllAxes) -> torch.Tensor:
    return _computed(operands, axes)[-1]


def _computed(operands: Sequence[torch.Tensor], axes: AllAxes) -> list[torch.Tensor]:
    """The operands, and behind them what each step gives."""
    if len(operands) == 2 and axes[0] == axes[1] == axes[2]:
        left, right = operands
        return [left, right, torch.where((left == 0) | (right == 0), 0.0, left * right)]
    of = steps.steps_of(operands, axes)
    with _in_its_type(operands[0]):
        values = steps.forward(_einsum, operands, of)
        if has_nan(values[-1]):
            values[-1] = exact_sum(torch, lambda lists: [_sum(x, of) for x in lists], operands, _has_any)
    return values


def _einsum(tensors: Sequence[torch.Tensor], axes: AllAxes) -> torch.Tensor:
    return torch.einsum(*interleaved(tensors, axes))


def _sum(operands: Sequence[torch.Tensor], of: Sequence[steps.Step]) -> torch.Tensor:
    return steps.forward(_einsum, operands, of)[-1]


def _has_any(part: torch.Tensor) -> bool:
    return bool(physical(part).any())


def _in_its_type(like: torch.Tensor) -> Any:
    # Matrix products would be in fewer bits than their operands have.
    is_cast = like.device.type != "meta" and torch.is_autocast_enabled(like.device.type)
    return torch.autocast(like.device.type, enabled=False) if is_cast else nullcontext()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(axes: AllAxes, *operands: torch.Tensor) -> torch.Tensor:
        return computed(operands, axes)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.axes, *operands = inputs
        ctx.save_for_backward(*operands)
        ctx.save_for_forward(*operands)

    @staticmethod
    def backward(ctx: Any, *adjoints: torch.Tensor) -> Any:  # type: ignore[override]
        return None, *adjoints_of(ctx.saved_tensors, ctx.axes, adjoints[0], ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx: Any, _axes: Any, *tangents: Any) -> Any:
        return tangent_of(ctx.saved_tensors, ctx.axes, tangents)

    @staticmethod
    def vmap(info: Any, in_dims: Any, axes: AllAxes, *operands: torch.Tensor) -> Any:
        return product(*mapped(in_dims[1:], axes, operands)), 0


class _InSteps(torch.autograd.Function):
    """The same for reverse mode alone: the derivatives by all operands share their steps."""

    @staticmethod
    def forward(ctx: Any, axes: AllAxes, *operands: torch.Tensor) -> torch.Tensor:
        *values, total = _computed(operands, axes)
        ctx.axes = axes
        ctx.save_for_backward(*values)
        return total

    @staticmethod
    def backward(ctx: Any, *adjoints: torch.Tensor) -> Any:  # type: ignore[override]
        values, axes, (seed,), needed = ctx.saved_tensors, ctx.axes, adjoints, ctx.needs_input_grad[1:]
        operands = values[: len(needed)]
        if is_transformed() or is_captured() or is_legacy_copies(seed) or torch.is_grad_enabled():
            return None, *adjoints_of(operands, axes, seed, needed)
        of = steps.steps_of(operands, axes)
        with _in_its_type(seed):
            pulled = steps.pull(torch, _einsum, values, of, seed, needed)
        is_wrong = [x is not None and has_nan(_once(x)) for x in pulled]
        if any(is_wrong):
            exact = adjoints_of(operands, axes, seed, is_wrong)
            pulled = [y if wrong else x for x, y, wrong in zip(pulled, exact, is_wrong)]
        return None, *pulled


def _once(tensor: torch.Tensor) -> torch.Tensor:
    """What is repeated in a tensor, once."""
    return tensor[tuple([slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride()])]


def mapped(in_dims: Sequence[Any], axes: AllAxes, operands: Sequence[torch.Tensor]) -> tuple[list[Any], AllAxes]:
    """(operands, axes) of the sums of many operands at once, along those of their axes: along the result's first."""
    moved = [x if axis is None else x.movedim(axis, 0) for x, axis in zip(operands, in_dims)]
    return moved, with_batch(axes, [axis is not None for axis in in_dims])


def adjoints_of(operands: Sequence[Any], axes: AllAxes, adjoint: torch.Tensor, needed: Sequence[bool]) -> list[Any]:
    """The adjoints of the operands, None for one that needs none: each a sum of products."""
    return [
        product(*adjoint_product(operands, axes, position, adjoint, operands[position].new_ones)) if is_needed else None
        for position, is_needed in enumerate(needed)
    ]


def tangent_of(operands: Sequence[Any], axes: AllAxes, tangents: Sequence[Any]) -> torch.Tensor:
    """The tangent of the sum, along those of the operands, of which some may be None."""
    parts = [
        product(replaced(operands, position, tangent), axes)
        for position, tangent in enumerate(tangents)
        if tangent is not None
    ]
    return sum(parts[1:], parts[0])
