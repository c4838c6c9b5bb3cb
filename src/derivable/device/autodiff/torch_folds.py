"""Folds of torch tensors: the CPU kernels read and write them in place, autograd takes the rules of `fold`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.device.autodiff import numpy_folds
from derivable.device.autodiff.fold import Fold
from derivable.device.cpu.memory import contiguous

_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_HALF = (torch.float16, torch.bfloat16)


def dtype_name(tensor: torch.Tensor) -> str:
    return _NAMES[tensor.dtype]


def as_leaf(value: Any, what: str) -> torch.Tensor:
    """A dense tensor on the CPU. Raises UnsupportedError for others."""
    if value.layout != torch.strided:
        raise UnsupportedError(f"{what} has the layout {value.layout}", hint="convert it: `x.to_dense()`")
    if not value.is_cpu:
        raise UnsupportedError(
            f"{what} is on {value.device}, and folds of your own operators run on the CPU only",
            hint="move it: `x.cpu()`; derivatives go through",
        )
    if value.dtype == torch.uint64 and value.numel() and bool((value.view(torch.int64) < 0).any()):
        raise DomainError(f"{what} holds more than the kernels' int64 does", hint="use float64, or smaller numbers")
    return value


def as_integers(value: Any, what: str) -> torch.Tensor:
    """[n] int64. Raises ShapeError for other shapes, TypeMismatchError for other types."""
    return _checked(value, what).to(torch.int64)


def as_indices(value: Any) -> torch.Tensor:
    """[n] int32 as they are, others as int64. Raises as `as_integers` does."""
    tensor = _checked(value, "indices")
    return tensor if tensor.dtype == torch.int32 else tensor.to(torch.int64)


def _checked(value: Any, what: str) -> torch.Tensor:
    tensor = torch.as_tensor(value)
    is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    numpy_folds.check_integers(tuple(tensor.shape), dtype_name(tensor), is_integer, what)
    return as_leaf(tensor, what)


def check_offsets(offsets: torch.Tensor, rows: int) -> None:
    """Offsets are checked in `_Apply.forward`: inside torch.func's transformations tensors hold no data before."""


def run(fold: Fold, structure: torch.Tensor | None, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results [leaf]; half-precision floats are computed in float32."""
    leaves = len(fold.operator.leaf_sizes)
    wide = [operand.float() if operand.dtype in _HALF else operand for operand in operands]
    keep = torch.is_grad_enabled() and any(operand.requires_grad for operand in wide)
    apply = _Apply.apply if keep or _is_transformed() else _Apply.forward
    found = apply(fold, keep, structure, *wide)
    if all(mine is given for mine, given in zip(wide, operands)):
        return list(found[:leaves])
    return [
        result.to(operand.dtype) if operand.dtype in _HALF else result
        for result, operand in zip(found, operands[:leaves])
    ]


def _is_transformed() -> bool:
    """Whether torch.func or forward mode look at what is computed, and not only reverse mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as a NumPy array; other layouts of it are copied."""
    return contiguous(tensor.numpy(force=True))


def _optional(tensor: torch.Tensor | None) -> np.ndarray | None:
    return None if tensor is None else _array(tensor)


def _zeros_for_none(tangents: Sequence[torch.Tensor | None], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.zeros_like(other) if t is None else t for t, other in zip(tangents, like, strict=True)]


class _Function(torch.autograd.Function):
    """`apply` itself: what torch does before it, such as reading a signature, takes longer than a small fold."""

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            return super().apply(*arguments)
        return super(torch.autograd.Function, cls).apply(*arguments)  # type: ignore[misc]


class _Apply(_Function):
    """(fold, keep, structure, *operands) to the results and, if `keep`, to what they leave for `_Pull`: arrays that
    count as constants, no matter what they depend on, since the rules take `_Pull` as a function of the operands."""

    @staticmethod
    def forward(fold: Fold, keep: bool, structure, *operands):
        if fold.kind != "reduce_by_index" and structure is not None:
            numpy_folds.check_offsets(_array(structure), operands[0].shape[0])
        arrays = _optional(structure), [_array(operand) for operand in operands]
        found, kept = fold.apply_keeping(*arrays) if keep else (fold.apply(*arrays), [])
        return tuple(torch.from_numpy(result) for result in (*found, *kept))

    @staticmethod
    def setup_context(ctx, inputs, output):
        fold, _, structure, *operands = inputs
        ctx.fold, ctx.outputs = fold, len(output)
        ctx.set_materialize_grads(False)
        if len(output) > len(fold.float_leaves):
            ctx.mark_non_differentiable(*(r for leaf, r in enumerate(output) if leaf not in fold.float_leaves))
        ctx.save_for_backward(structure, *operands, *output)
        if _is_transformed():
            ctx.save_for_forward(structure, *operands)

    @staticmethod
    def backward(ctx, *adjoints):
        fold = ctx.fold
        structure, operands, made = _saved(fold, ctx.saved_tensors)
        seeds = [adjoints[leaf] for leaf in fold.float_leaves]
        gradients: list[torch.Tensor | None] = [None] * len(operands)
        if any(seed is not None for seed in seeds):
            pull = _Pull.apply if torch.is_grad_enabled() or _is_transformed() else _Pull.forward
            found = pull(fold, structure, *seeds, *operands, *made)
            for operand, adjoint in zip(fold.float_operands, found):
                gradients[operand] = adjoint if ctx.needs_input_grad[3 + operand] else None
        return None, None, None, *gradients

    @staticmethod
    def jvp(ctx, _fold, _keep, _structure, *tangents):
        fold = ctx.fold
        structure, operands, _ = _saved(fold, ctx.saved_tensors)
        floats = [operands[k] for k in fold.float_operands]
        along = _zeros_for_none([tangents[k] for k in fold.float_operands], floats)
        found = fold.tangents_of(run(fold.dual, structure, fold.dual_operands(operands, along)))
        by_leaf: dict[int, torch.Tensor] = dict(zip(fold.float_leaves, found))
        return tuple(by_leaf.get(output) for output in range(ctx.outputs))

    @staticmethod
    def vmap(info, in_dims, fold: Fold, keep: bool, structure, *operands):
        structure, operands, restore = _batched(info, in_dims[2:], fold, structure, operands, 0)
        return restore(_Apply.apply(fold, keep, structure, *operands))


class _Pull(_Function):
    """(fold, structure, *adjoints [float leaf], *operands, *outputs of `_Apply`) to adjoints [float operand].

    The outputs are given to save computing them: the derivatives take them as functions of the operands.
    """

    @staticmethod
    def forward(fold: Fold, structure, *tensors):
        seeds, operands, made = _split(fold, tensors)
        arrays, leaves = [_array(tensor) for tensor in made], len(fold.operator.leaf_sizes)
        found = fold.pull(
            _optional(structure),
            [_optional(seed) for seed in seeds],
            [_array(operand) for operand in operands],
            arrays[:leaves],
            arrays[leaves:],
        )
        return tuple(torch.from_numpy(adjoint) for adjoint in found)

    @staticmethod
    def setup_context(ctx, inputs, output):
        fold, structure, *tensors = inputs
        seeds, operands, made = _split(fold, tensors)
        ctx.fold, ctx.made = fold, len(made)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(structure, *seeds, *operands)
        ctx.save_for_forward(structure, *seeds, *operands)

    @staticmethod
    def backward(ctx, *cotangents):
        fold = ctx.fold
        structure, *tensors = ctx.saved_tensors
        seeds, operands, _ = _split(fold, tensors)
        along = _zeros_for_none(cotangents, [operands[k] for k in fold.float_operands])
        by_seed, by_operand = _second(fold, structure, seeds, operands, along)
        gradients: list[torch.Tensor | None] = [None] * len(operands)
        for operand, adjoint in zip(fold.float_operands, by_operand):
            gradients[operand] = adjoint
        by_seed = [None if seed is None else adjoint for seed, adjoint in zip(seeds, by_seed)]
        return None, None, *by_seed, *gradients, *[None] * ctx.made

    @staticmethod
    def jvp(ctx, _fold, _structure, *tangents):
        fold = ctx.fold
        structure, *tensors = ctx.saved_tensors
        seeds, operands, _ = _split(fold, tensors)
        seed_tangents, operand_tangents, _ = _split(fold, tangents)
        along = _zeros_for_none(
            [operand_tangents[k] for k in fold.float_operands], [operands[k] for k in fold.float_operands]
        )
        duals = fold.dual_operands(operands, along)
        made = _Apply.apply(fold.dual, True, structure, *duals)
        adjoints = fold.dual_adjoints(seed_tangents, seeds)
        return tuple(fold.primal_adjoints(_Pull.apply(fold.dual, structure, *adjoints, *duals, *made)))

    @staticmethod
    def vmap(info, in_dims, fold: Fold, structure, *tensors):
        structure, tensors, restore = _batched(info, in_dims[1:], fold, structure, tensors, len(fold.float_leaves))
        return restore(_Pull.apply(fold, structure, *tensors))


def _second(fold: Fold, structure, seeds, operands, along):
    """The vjp of the vjp for the cotangents `along`: adjoints of the seeds, and of the float operands."""
    duals = fold.dual_operands(operands, along)
    made = _Apply.apply(fold.dual, True, structure, *duals)
    adjoints = fold.dual_adjoints([None] * len(seeds), seeds)
    pulled = _Pull.apply(fold.dual, structure, *adjoints, *duals, *made)
    return fold.tangents_of(made[: len(fold.dual.operator.leaf_sizes)]), fold.primal_adjoints(pulled)


def _saved(fold: Fold, saved):
    structure, *tensors = saved
    count = fold.groups * len(fold.operator.leaf_sizes)
    return structure, tensors[:count], tensors[count:]


def _split(fold: Fold, tensors):
    """Adjoints [float leaf], operands, what `_Apply` made of them."""
    seeds, count = len(fold.float_leaves), fold.groups * len(fold.operator.leaf_sizes)
    return tensors[:seeds], tensors[seeds : seeds + count], tensors[seeds + count :]


def _batched(info, in_dims, fold: Fold, structure, tensors, first_operand: int):
    """Under vmap the mapped axis becomes the first batch axis; under mapped indices or offsets, the rows of all copies
    one long array."""
    size = info.batch_size
    by_copy = in_dims[0] is not None
    moved = []
    for tensor, axis in zip(tensors, in_dims[1:]):
        if tensor is None:
            moved.append(None)
            continue
        copies = tensor.expand(size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
        moved.append(copies.flatten(0, 1) if by_copy else copies.transpose(0, 1))
    if not by_copy:
        return structure, moved, lambda results: (results, tuple(1 for _ in results))
    joined = _joined(fold, structure.movedim(in_dims[0], 0), moved[first_operand].shape[0] // size)

    def restore(results):
        # Not -1 for the rows: there may be none.
        return tuple(r.reshape(size, r.shape[0] // size, *r.shape[1:]) for r in results), tuple(0 for _ in results)

    return joined, moved, restore


def _joined(fold: Fold, structures: torch.Tensor, rows: int) -> torch.Tensor:
    """Indices or offsets [copy, ...] of copies that are laid out one after the other.

    rows  of each copy: the buckets, or the elements that offsets cut
    """
    structures = structures.long()
    firsts = rows * torch.arange(structures.shape[0])[:, None]
    if fold.kind == "reduce_by_index":
        inside = (structures >= 0) & (structures < rows)
        return torch.where(inside, structures + firsts, -1).flatten()
    try:
        copies = _array(structures)
    except RuntimeError:
        copies = []  # inside another transformation they hold no data yet
    for copy in copies:
        numpy_folds.check_offsets(copy, rows)
    # What one copy leaves out at its ends would fall to its neighbours, so it is made to be refused.
    whole = (structures[:, :1] == 0) & (structures[:, -1:] == rows)
    starts = torch.where(whole, structures[:, :-1] + firsts, -1).flatten()
    return torch.cat([starts, starts.new_full((1,), rows * structures.shape[0])])
