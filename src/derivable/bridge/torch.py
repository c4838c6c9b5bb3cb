"""Engines on torch tensors: kernels read and write those on the CPU in place, autograd takes the rules of `protocol`.

Autograd, double backward, forward mode, `torch.func` (vmap, grad, jacrev, jvp) and `torch.compile` (`compiled`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from derivable.bridge import numpy as numpy_arrays
from derivable.bridge.protocol import Engine
from derivable.core.arguments import check_on_cpu
from derivable.core.diagnostics import DomainError, OutOfMemory, UnsupportedError
from derivable.device.cpu.memory import contiguous

_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_HALF = (torch.float16, torch.bfloat16)


def dtype_name(tensor: torch.Tensor) -> str:
    return _NAMES[tensor.dtype]


def as_leaf(value: Any, what: str) -> torch.Tensor:
    """A dense tensor on the CPU, or with CUDA. Raises UnsupportedError for others."""
    if value.layout != torch.strided:
        raise UnsupportedError(f"{what} has the layout {value.layout}", hint="convert it: `x.to_dense()`")
    if not (value.is_cpu or value.is_cuda):
        raise UnsupportedError(
            f"{what} is on {value.device}, and folds run on the CPU and with CUDA",
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
    numpy_arrays.check_integers(tuple(tensor.shape), dtype_name(tensor), is_integer, what)
    return as_leaf(tensor, what)


def check_offsets(offsets: torch.Tensor, rows: int) -> None:
    """Offsets are checked when the engine runs: inside torch.func's transformations tensors hold no data before."""


def run(engine: Engine, structure: torch.Tensor | None, operands: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The results; half-precision floats are computed in float32."""
    for operand in operands:
        if operand.dtype in _HALF:
            break
    else:
        return call(engine, structure, operands)
    wide = [operand.float() if operand.dtype in _HALF else operand for operand in operands]
    return [
        result.to(operand.dtype) if operand.dtype in _HALF else result
        for result, operand in zip(call(engine, structure, wide), operands)
    ]


def call(engine: Engine, structure: torch.Tensor | None, operands: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The results of an engine for operands of its types, with all derivatives."""
    if torch.compiler.is_compiling():
        from derivable.bridge import compiled

        return compiled.call(engine, structure, operands)
    keep = torch.is_grad_enabled() and _any_requires_grad(operands)
    if is_transformed():
        return _Apply.apply(engine, keep, structure, *operands)[: engine.num_results]
    if keep:
        found = _eager(engine, structure, *operands)
        return found if type(found) is tuple else (found,)
    return applied(engine, structure, operands, False)[0]


def _any_requires_grad(operands: Sequence[torch.Tensor]) -> bool:
    # Not `any` of a generator, which takes half a microsecond: small circuits take ten.
    for operand in operands:  # noqa: SIM110
        if operand.requires_grad:
            return True
    return False


def is_transformed() -> bool:
    """Whether torch.func or forward mode look at what is computed, and not only reverse mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def physical(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers that are there, all copies of them, for checks inside torch.func's transformations."""
    functorch: Any = torch._C._functorch  # type: ignore[attr-defined]
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor.detach()


def has_nan(tensor: torch.Tensor) -> bool:
    """Whether a NaN is among the numbers, all copies of them; a tensor without numbers has none."""
    return not tensor.is_meta and bool(physical(tensor).isnan().any())


@contextmanager
def within_memory(what: Any, operands: Sequence[torch.Tensor]) -> Iterator[None]:
    """Raises OutOfMemory where torch finds that a device has no memory left for what is computed from operands."""
    try:
        yield
    except RuntimeError as error:
        if torch.compiler.is_compiling() or not lacks_memory(error):
            raise
        shapes = ", ".join(str(list(operand.shape)) for operand in operands)
        hint = "give smaller batches"
        raise no_memory(error, f"{what} of operands {shapes}", operands[0].device, hint) from None


def lacks_memory(error: RuntimeError) -> bool:
    """Whether torch had no memory for a tensor; its allocator of the CPU has no type of error of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def no_memory(error: RuntimeError, what: str, device: Any, hint: str) -> OutOfMemory:
    """Our error in the place of torch's, with the size that was wanted."""
    wanted = re.search(r"[Tt]ried to allocate ([\d.]+ \w+)", str(error))
    size = f"{wanted[1]} more" if wanted else "it"
    return OutOfMemory(f"{what}: {device} has no memory left for {size}", hint=f"{hint}, or compute on the CPU")


def applied(engine: Engine, structure, operands, keep: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results as tensors, and what `Engine.apply_keeping` keeps, without derivatives."""
    if not operands[0].is_cpu:
        with within_memory(engine, operands):
            return engine.apply_on_device(structure, operands, keep)
    given = None if structure is None else engine.checked(_array(structure), operands)
    arrays = [_array(operand) for operand in operands]
    found, kept = engine.apply_keeping(given, arrays) if keep else (engine.apply(given, arrays), [])
    return [torch.from_numpy(result) for result in found], [torch.from_numpy(array) for array in kept]


def pulled(engine: Engine, structure, seeds, operands, made) -> list[torch.Tensor]:
    """The vjp as tensors, without derivatives; made are the results and what was kept beside them."""
    count = engine.num_results
    if not operands[0].is_cpu:
        with within_memory(engine, operands):
            return engine.elsewhere("torch")[1](structure, seeds, operands, made[:count])
    arrays = [_array(tensor) for tensor in made]
    results, kept = arrays[:count], arrays[count:]
    given = [_array(operand) for operand in operands]
    found = engine.pull(_optional(structure), [_optional(seed) for seed in seeds], given, results, kept)
    return [torch.from_numpy(adjoint) for adjoint in found]


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as a NumPy array; other layouts are copied. Raises UnsupportedError on other devices."""
    if not tensor.is_cpu:
        check_on_cpu(tensor, "one of the operands", "have all operands on that device")
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


class _Eager(torch.autograd.Function):
    """(engine, structure, *operands) to the results, in reverse mode alone: the short way for small calls."""

    @staticmethod
    def forward(ctx, engine: Engine, structure, *operands):
        found, kept = applied(engine, structure, operands, True)
        ctx.engine = engine
        if kept and engine.keeps_factors:
            # They are kept as they are: saving and reading tensors costs more than a small circuit.
            ctx.factors = kept
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(structure, *operands)
        else:
            ctx.factors = ()
            _prepare(ctx, engine, structure, operands, found, kept)
        return tuple(found) if len(found) > 1 else found[0]

    @staticmethod
    def backward(ctx, *adjoints):
        if not ctx.factors or torch.is_grad_enabled() or is_transformed():
            return None, None, *_backward(ctx, adjoints, ctx.needs_input_grad[2:])
        (seed,) = adjoints
        # torch asks for the adjoints of zero with no seed at all.
        return None, None, *[None if seed is None else seed * factor for factor in ctx.factors]


# Not `_Eager.apply`: what torch does before it, such as asking for transformations once more, takes a microsecond.
_eager: Any = super(torch.autograd.Function, _Eager).apply  # type: ignore[misc]


class _Apply(_Function):
    """(engine, keep, structure, *operands) to the results and, if `keep`, to what they leave for `_Pull`: arrays that
    count as constants, no matter what they depend on, since the rules take `_Pull` as a function of the operands."""

    @staticmethod
    def forward(engine: Engine, keep: bool, structure, *operands):
        found, kept = applied(engine, structure, operands, keep)
        return (*found, *kept)

    @staticmethod
    def setup_context(ctx, inputs, output):
        engine, _, structure, *operands = inputs
        ctx.engine, ctx.outputs = engine, len(output)
        _prepare(ctx, engine, structure, operands, output)
        ctx.save_for_forward(structure, *operands)

    @staticmethod
    def backward(ctx, *adjoints):
        return None, None, None, *_backward(ctx, adjoints, ctx.needs_input_grad[3:])

    @staticmethod
    def jvp(ctx, _engine, _keep, _structure, *tangents):
        engine = ctx.engine
        structure, operands, _ = _saved(engine, ctx.saved_tensors)
        by_leaf: dict[int, torch.Tensor] = {}
        if engine.float_operands:
            floats = [operands[k] for k in engine.float_operands]
            along = _zeros_for_none([tangents[k] for k in engine.float_operands], floats)
            found = engine.tangents_of(call(engine.dual, structure, engine.dual_operands(operands, along)))
            by_leaf = dict(zip(engine.float_results, found))
        return tuple(by_leaf.get(output) for output in range(ctx.outputs))

    @staticmethod
    def vmap(info, in_dims, engine: Engine, keep: bool, structure, *operands):
        return _mapped(info, in_dims[2:], engine, (structure, *operands), 0, _Apply, (engine, keep))


def _prepare(ctx, engine: Engine, structure, operands, output, kept=()) -> None:
    ctx.set_materialize_grads(False)
    if len(output) > len(engine.float_results):
        ctx.mark_non_differentiable(*(r for leaf, r in enumerate(output) if leaf not in engine.float_results))
    ctx.save_for_backward(structure, *operands, *output, *kept)


def _backward(ctx, adjoints, needed) -> list[torch.Tensor | None]:
    """Adjoints of the operands."""
    engine = ctx.engine
    structure, operands, made = _saved(engine, ctx.saved_tensors)
    seeds = [adjoints[leaf] for leaf in engine.float_results]
    gradients: list[torch.Tensor | None] = [None] * len(operands)
    if any(seed is not None for seed in seeds):
        if torch.is_grad_enabled() or is_transformed():
            found = _Pull.apply(engine, structure, *seeds, *operands, *made)
        else:
            found = pulled(engine, structure, seeds, operands, made)
        for operand, adjoint in zip(engine.float_operands, found):
            gradients[operand] = adjoint if needed[operand] else None
    return gradients


class _Pull(_Function):
    """(engine, structure, *adjoints [float result], *operands, *outputs of `_Apply`) to adjoints [float operand].

    The outputs are given to save computing them: the derivatives take them as functions of the operands.
    """

    @staticmethod
    def forward(engine: Engine, structure, *tensors):
        seeds, operands, made = _split(engine, tensors)
        return tuple(pulled(engine, structure, seeds, operands, made))

    @staticmethod
    def setup_context(ctx, inputs, output):
        engine, structure, *tensors = inputs
        seeds, operands, made = _split(engine, tensors)
        ctx.engine, ctx.made = engine, len(made)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(structure, *seeds, *operands)
        ctx.save_for_forward(structure, *seeds, *operands)

    @staticmethod
    def backward(ctx, *cotangents):
        engine = ctx.engine
        structure, *tensors = ctx.saved_tensors
        seeds, operands, _ = _split(engine, tensors)
        along = _zeros_for_none(cotangents, [operands[k] for k in engine.float_operands])
        duals = engine.dual_operands(operands, along)
        made = _Apply.apply(engine.dual, True, structure, *duals)
        adjoints = engine.dual_adjoints([None] * len(seeds), seeds)
        by_operand = engine.primal_adjoints(_Pull.apply(engine.dual, structure, *adjoints, *duals, *made))
        by_seed = engine.tangents_of(made[: engine.dual.num_results])
        gradients: list[torch.Tensor | None] = [None] * len(operands)
        for operand, adjoint in zip(engine.float_operands, by_operand):
            gradients[operand] = adjoint
        by_seed = [None if seed is None else adjoint for seed, adjoint in zip(seeds, by_seed)]
        return None, None, *by_seed, *gradients, *[None] * ctx.made

    @staticmethod
    def jvp(ctx, _engine, _structure, *tangents):
        engine = ctx.engine
        structure, *tensors = ctx.saved_tensors
        seeds, operands, _ = _split(engine, tensors)
        seed_tangents, operand_tangents, _ = _split(engine, tangents)
        along = _zeros_for_none(
            [operand_tangents[k] for k in engine.float_operands], [operands[k] for k in engine.float_operands]
        )
        duals = engine.dual_operands(operands, along)
        made = _Apply.apply(engine.dual, True, structure, *duals)
        adjoints = engine.dual_adjoints(seed_tangents, seeds)
        return tuple(engine.primal_adjoints(_Pull.apply(engine.dual, structure, *adjoints, *duals, *made)))

    @staticmethod
    def vmap(info, in_dims, engine: Engine, structure, *tensors):
        first = len(engine.float_results)
        return _mapped(info, in_dims[1:], engine, (structure, *tensors), first, _Pull, (engine,))


def _saved(engine: Engine, saved):
    structure, *tensors = saved
    return structure, tensors[: engine.num_operands], tensors[engine.num_operands :]


def _split(engine: Engine, tensors):
    """Adjoints [float result], operands, what `_Apply` made of them."""
    seeds = len(engine.float_results)
    return tensors[:seeds], tensors[seeds : seeds + engine.num_operands], tensors[seeds + engine.num_operands :]


def _mapped(info, in_dims, engine: Engine, given, first_operand: int, function, leading):
    """Under vmap the mapped axis becomes the batch axis of the engine; under mapped indices or offsets, the rows of all
    copies one long array; without a batch axis, there is one call for each copy."""
    size, (structure, *tensors) = info.batch_size, given
    if engine.batch_axis is None:
        copies = [
            function.apply(*leading, *(t if d is None else t.select(d, k) for t, d in zip(given, in_dims)))
            for k in range(size)
        ]
        return tuple(torch.stack(parts) for parts in zip(*copies)), (0,) * len(copies[0])
    by_copy = in_dims[0] is not None
    moved: list[Any] = []
    for tensor, axis in zip(tensors, in_dims[1:]):
        if tensor is None:
            moved.append(None)
            continue
        copies = tensor.expand(size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
        moved.append(copies.flatten(0, 1) if by_copy else copies.movedim(0, engine.batch_axis))
    if not by_copy:
        results = function.apply(*leading, structure, *moved)
        return results, (engine.batch_axis,) * len(results)
    joined = _joined(engine, structure.movedim(in_dims[0], 0), moved[first_operand].shape[0] // size)
    results = function.apply(*leading, joined, *moved)
    # Not -1 for the rows: there may be none.
    return tuple(r.reshape(size, r.shape[0] // size, *r.shape[1:]) for r in results), (0,) * len(results)


def _joined(engine: Any, structures: torch.Tensor, rows: int) -> torch.Tensor:
    """Indices or offsets [copy, ...] of copies that are laid out one after the other.

    rows  of each copy: the buckets, or the elements that offsets cut
    """
    structures = structures.long()
    firsts = rows * torch.arange(structures.shape[0], device=structures.device)[:, None]
    if engine.kind == "reduce_by_index":
        inside = (structures >= 0) & (structures < rows)
        return torch.where(inside, structures + firsts, -1).flatten()
    try:
        copies = _array(structures)
    except RuntimeError:
        copies = []  # inside another transformation they hold no data yet
    for copy in copies:
        numpy_arrays.check_offsets(copy, rows)
    # What one copy leaves out at its ends would fall to its neighbours, so it is made to be refused.
    whole = (structures[:, :1] == 0) & (structures[:, -1:] == rows)
    starts = torch.where(whole, structures[:, :-1] + firsts, -1).flatten()
    return torch.cat([starts, starts.new_full((1,), rows * structures.shape[0])])
