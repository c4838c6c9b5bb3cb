"""Engines on torch tensors: kernels read and write those on the CPU in place, and reverse mode takes their vjp.

Here is the short way, for tensors that only reverse mode looks at. All else goes by `operators`: double backward,
forward mode, `torch.func`, and what makes graphs: `torch.compile`, `torch.export`, `torch.jit.trace`, `make_fx`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_not
from typing import Any

import numpy as np
import torch

from derivable.bridge import numpy as numpy_arrays
from derivable.bridge.protocol import Engine
from derivable.bridge.torch_parts import is_captured, is_legacy_copies, is_observed, physical
from derivable.core.arguments import check_on_cpu
from derivable.core.arrays import check_plain
from derivable.core.diagnostics import DomainError, OutOfMemory, UnsupportedError
from derivable.device.cpu.memory import contiguous

_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_HALF = (torch.float16, torch.bfloat16)
_INDICES = (torch.int64, torch.int32)
_is_tensor = partial(is_not, None)
_STRIDED = torch.strided
PLAIN = (torch.Tensor, torch.nn.Parameter)
_QUANTISED = ("torch.qint", "torch.quint")
_LOOKED_AT = {torch.uint64, *(dtype for dtype in _NAMES if str(dtype).startswith(_QUANTISED))}
_STORED = ("torch.float4", "torch.float8", "torch.uint16", "torch.uint32", "torch.uint64")
STORED_ONLY = {dtype for dtype in _NAMES if str(dtype).startswith(_STORED)}
"""Types that torch stores and does not compute with."""
# torch computes sums by index of up to this many numbers, in 0.5 of the time with 100 numbers and 0.7 to 0.8 with this
# many, with gradient 0.5 and 0.6; from 12,000 on kernels may be faster. Where rows went nowhere, which torch refuses
# after as long again, the next calls do not try.
_SMALL_SUM, _NEXT_CALLS = 1 << 12, 64
_SUMMED = (torch.float32, torch.float64, torch.int32, torch.int64)


def dtype_name(tensor: torch.Tensor) -> str:
    return _NAMES[tensor.dtype]


def check_has_numbers(tensor: torch.Tensor, what: str) -> None:
    """Raise as `check_plain`, and UnsupportedError for a fake tensor outside of what computes with shapes alone."""
    check_plain(tensor, what)
    if type(tensor).__name__ == "FakeTensor" and not is_captured():
        raise UnsupportedError(
            f"{what} is a fake tensor, which has a shape and no numbers, outside of its mode",
            hint="call this inside `with x.fake_mode:`",
        )


def check_computable(tensor: torch.Tensor, what: str) -> None:
    """Raise as `check_has_numbers`, and UnsupportedError for a type that torch stores and does not compute with."""
    check_has_numbers(tensor, what)
    if tensor.dtype in STORED_ONLY:
        raise UnsupportedError(
            f"{what} is of type {tensor.dtype}, which is for storage", hint="convert it: `x.float()`"
        )


def as_leaf(value: Any, what: str) -> torch.Tensor:
    """A dense tensor on the CPU, or with CUDA. Raises UnsupportedError for others."""
    is_plain = type(value) in PLAIN and value.is_cpu and value.layout is _STRIDED
    if is_plain and value.dtype not in _LOOKED_AT and not value.is_nested:
        return value
    check_has_numbers(value, what)
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


def repeated(number: torch.Tensor, dtype: str, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """A number [] as an array of `shape` in another type, beside `like`."""
    return number.to(like.device, getattr(torch, dtype)).expand(tuple(shape))


def as_integers(value: Any, what: str) -> torch.Tensor:
    """[n] int64. Raises ShapeError for other shapes, TypeMismatchError for other types."""
    return _checked(value, what).to(torch.int64)


def as_indices(value: Any) -> torch.Tensor:
    """[n] int32 as they are, others as int64. Raises as `as_integers` does."""
    if type(value) is torch.Tensor and value.dtype in _INDICES and value.dim() == 1:
        return as_leaf(value, "indices")
    tensor = _checked(value, "indices")
    return tensor if tensor.dtype == torch.int32 else tensor.to(torch.int64)


def _checked(value: Any, what: str) -> torch.Tensor:
    tensor = torch.as_tensor(value)
    is_integer = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    numpy_arrays.check_integers(tuple(tensor.shape), dtype_name(tensor), is_integer, what)
    return as_leaf(tensor, what)


def check_offsets(offsets: torch.Tensor, rows: int) -> None:
    """Offsets are checked when the engine runs: inside torch.func's transformations tensors hold no data before."""


def run(
    engine: Engine | int, structure: torch.Tensor | None, operands: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
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


def call(
    engine: Engine | int, structure: torch.Tensor | None, operands: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """The results of an engine for operands of its types, with all derivatives.

    engine  or its number in graphs, see `operators`
    """
    if is_observed() or isinstance(engine, int):
        from derivable.bridge import operators

        return operators.apply(engine, structure, operands)
    if engine.sums_by_index:
        total = _small_sum(structure, *operands)
        if total is not None:
            return (total,)
    if _any_requires_grad(operands) and torch.is_grad_enabled():
        found = _eager(engine, structure, *operands)
        return found if type(found) is tuple else (found,)
    return applied(engine, structure, operands, False)[0]


_calls_of_kernels = 0


def _small_sum(indices: Any, destination: torch.Tensor, values: torch.Tensor) -> torch.Tensor | None:
    """The sum by index that torch computes and differentiates, which means the same to the bit; None where kernels are
    faster, and where an index names no bucket, which torch refuses."""
    global _calls_of_kernels
    if not (values.is_cpu and 0 < values.numel() <= _SMALL_SUM >= destination.numel() > 0 and values.dtype in _SUMMED):
        return None
    if _calls_of_kernels:
        _calls_of_kernels -= 1
        return None
    try:
        return destination.index_add(0, indices, values)
    except (IndexError, RuntimeError):
        _calls_of_kernels = _NEXT_CALLS
        return None


def _any_requires_grad(operands: Sequence[torch.Tensor]) -> bool:
    # Not `any` of a generator, which takes half a microsecond: small circuits take ten.
    for operand in operands:  # noqa: SIM110
        if operand.requires_grad:
            return True
    return False


def refuse_capture(what: str) -> None:
    """Raise UnsupportedError inside of what makes graphs that calls with other numbers run: the graph would have the
    numbers of this call in it. Code that `torch.compile` reads is left to it: it computes outside of its graph."""
    if is_captured() and not torch.compiler.is_dynamo_compiling():
        raise UnsupportedError(
            f"{what} decides on numbers, so no graph can be made of it",
            hint="torch.compile without fullgraph=True computes it outside of the graph; torch.jit.trace, make_fx and "
            "torch.export take the modules before and behind it",
        )


def as_node(module: torch.nn.Module, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """A module's call as one node of the graph of `torch.fx.symbolic_trace`; None if nobody makes one.

    Raises UnsupportedError for a trace of the module itself, which would have no other node.
    """
    proxy = next((x for x in (*arguments, *options.values()) if isinstance(x, torch.fx.Proxy)), None)
    if proxy is None:
        return None
    tracer = proxy.tracer
    if getattr(tracer, "root", module) is module:
        raise UnsupportedError(
            f"torch.fx.symbolic_trace of a {type(module).__name__} itself would be of one node",
            hint="trace the network that it is in, or use torch.export",
        )
    path = tracer.path_of_module(module)  # type: ignore[attr-defined]
    return tracer.create_proxy("call_module", path, tuple(arguments), dict(options))


def has_nan(tensor: torch.Tensor) -> bool:
    """Whether a NaN is among the numbers, all copies of them; a tensor without numbers has none."""
    return not tensor.is_meta and bool(physical(tensor).isnan().any())


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether the sum of all numbers is finite; as if it were, where there are no numbers to look at."""
    has_none = is_observed() or tensor.is_meta or not tensor.is_cpu or is_legacy_copies(tensor)
    return has_none or bool(tensor.detach().sum().isfinite())


def where_not_finite(
    total: torch.Tensor,
    leaves: Mapping[Any, torch.Tensor],
    adjoint: Callable[[Any, torch.Tensor], torch.Tensor | None],
) -> None:
    """Let the adjoints of `leaves`, from which `total` is computed, be another function's where that of `total` is not
    finite.

    adjoint  (key of the leaf, adjoint of `total`) -> that of the leaf, None for what torch makes it
    """
    seeds: list[torch.Tensor] = []

    def reached(seed: torch.Tensor | None) -> None:
        # None stands for zeros.
        seeds[:] = [] if seed is None or is_finite(seed) else [seed]

    def mended(key: Any, _: torch.Tensor | None) -> torch.Tensor | None:
        return adjoint(key, seeds[0]) if seeds else None

    total.register_hook(reached)
    for key, leaf in leaves.items():
        leaf.register_hook(partial(mended, key))


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
    checked = None if structure is None else engine.checked(array_of(structure), operands)
    arrays = list(map(array_of, operands))
    results, kept = engine.apply_keeping(checked, arrays) if keep else (engine.apply(checked, arrays), [])
    return list(map(torch.from_numpy, results)), list(map(torch.from_numpy, kept)) if kept else []


def pulled(engine: Engine, structure, seeds, operands, made) -> list[torch.Tensor]:
    """The vjp as tensors, without derivatives; made are the results, if `pull` reads any, and what was kept."""
    count = engine.num_results
    if not operands[0].is_cpu:
        with within_memory(engine, operands):
            return engine.elsewhere("torch")[1](structure, seeds, operands, made[:count])
    arrays, inputs, adjoints = list(map(array_of, made)), list(map(array_of, operands)), list(map(_optional, seeds))
    gradients = engine.pull(_optional(structure), adjoints, inputs, arrays[:count], arrays[count:])
    return list(map(torch.from_numpy, gradients))


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's memory as a NumPy array; other layouts are copied. Raises UnsupportedError on other devices."""
    if not tensor.is_cpu:
        check_on_cpu(tensor, "one of the operands", "have all operands on that device")
    array = tensor.numpy(force=True)
    return array if array.flags.carray else contiguous(array)


def _optional(tensor: torch.Tensor | None) -> np.ndarray | None:
    return None if tensor is None else array_of(tensor)


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
            prepare(ctx, engine, structure, operands, found, kept)
        return tuple(found) if len(found) > 1 else found[0]

    @staticmethod
    def backward(ctx, *adjoints):
        # Also where they are not needed: torch frees them after a backward pass, and says of a second one that it wants
        # `retain_graph=True`.
        tensors = ctx.saved_tensors
        if not ctx.factors or torch.is_grad_enabled() or is_observed():
            return None, None, *backward(ctx.engine, tensors, adjoints, ctx.needs_input_grad[2:])
        (seed,) = adjoints
        # torch asks for the adjoints of zero with no seed at all.
        return None, None, *[None if seed is None else seed * factor for factor in ctx.factors]


# Not `_Eager.apply`: what torch does before it, such as asking for transformations once more, takes a microsecond.
_eager: Any = super(torch.autograd.Function, _Eager).apply  # type: ignore[misc]


def prepare(ctx: Any, engine: Engine, structure, operands, results, kept) -> None:
    """What `backward` reads later."""
    ctx.set_materialize_grads(False)
    if kept or len(results) > len(engine.float_results):
        constant = [result for leaf, result in enumerate(results) if leaf not in engine.float_results]
        ctx.mark_non_differentiable(*constant, *kept)
    made = (*results, *kept) if engine.reads_results else kept
    ctx.save_for_backward(structure, *operands, *made)


def backward(
    engine: Engine, tensors: Sequence[Any], adjoints: Sequence[torch.Tensor | None], needed: Sequence[bool]
) -> list[torch.Tensor | None]:
    """Adjoints of the operands that need one, of the tensors that `prepare` has saved."""
    structure, operands, made = saved(engine, tensors)
    seeds = list(map(adjoints.__getitem__, engine.float_results))
    gradients: list[torch.Tensor | None] = [None] * len(operands)
    if any(map(_is_tensor, seeds)):
        if torch.is_grad_enabled() or is_observed() or any(map(is_legacy_copies, seeds)):
            from derivable.bridge import operators

            found = operators.pull(engine, structure, seeds, operands, made)
        else:
            found = pulled(engine, structure, seeds, operands, made)
        for operand, adjoint in zip(engine.float_operands, found):
            gradients[operand] = adjoint if needed[operand] else None
    return gradients


def saved(engine: Engine, tensors: Sequence[Any]) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """(structure, operands, results if `pull` reads any and what was kept) of what `prepare` has saved."""
    last = 1 + engine.num_operands
    return tensors[0], tensors[1:last], tensors[last:]
