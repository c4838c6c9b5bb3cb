"""What operations of torch that only move numbers are in the operator graph; `translate` says how rows are called.

What views do follows from torch: the operation is applied to a tensor of the input's shape without numbers, and the
strides of what comes out say which part of the input it is, in which order of axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from derivable.accelerator.operators.kinds import size
from derivable.accelerator.trace.decompositions import refuse
from derivable.accelerator.trace.translate import ROWS, Ref, Translation, row


def _sizes(given: Sequence[Any]) -> tuple[Any, ...]:
    """What `x.repeat(2, 3)` and `x.repeat((2, 3))` both mean."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else tuple(given)


@row("reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "unsqueeze", "squeeze")
def _reshape(g: Translation, input: Ref, *rest: Any, **more: Any) -> Ref:
    refuse(bool(rest) and isinstance(rest[0], torch.dtype), "a view as another dtype")
    return g.reshape(input, g.result)


@row("expand", "expand_as", "broadcast_to")
def _expand(g: Translation, input: Ref, *rest: Any, **more: Any) -> Ref:
    return input if g.result == g.shape(input) else g.add("expand", input, shape=g.result)


def _permutation(method: Callable) -> Callable:
    def translate(g: Translation, input: Ref, *rest: Any, **more: Any) -> Ref:
        probe = torch.empty((2,) * g.rank(input), device="meta")  # whose strides are all different
        return g.permute(input, [probe.stride().index(stride) for stride in method(probe, *rest, **more).stride()])

    return translate


def _parts(method: Callable) -> Callable:
    def translate(g: Translation, input: Ref, *rest: Any, **more: Any) -> Any:
        found = method(torch.empty(g.shape(input), device="meta"), *rest, **more)
        return _part(g, input, found) if isinstance(found, torch.Tensor) else tuple(_part(g, input, x) for x in found)

    return translate


def _part(g: Translation, x: Ref, view: torch.Tensor) -> Ref:
    """The part of `x` that a view is of a tensor of its shape: places at equal distances along each axis."""
    shape = g.shape(x)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    offset = int(view.storage_offset()) if view.numel() else 0
    starts = [offset // stride % n for n, stride in zip(shape, strides)]
    lengths, steps = [1] * len(shape), [1] * len(shape)
    for n, stride in zip(view.shape, view.stride()):
        if n != 1:
            axis = next(k for k, inner in enumerate(strides) if inner <= stride < inner * shape[k])
            lengths[axis], steps[axis] = n, stride // strides[axis]
    if tuple(lengths) != shape:
        x = g.add("slice", x, starts=tuple(starts), lengths=tuple(lengths), steps=tuple(steps))
    return g.reshape(x, view.shape)


for _name in ("permute", "transpose", "swapaxes", "swapdims", "t", "movedim", "moveaxis"):
    ROWS[_name] = _permutation(getattr(torch.Tensor, _name))
for _name in ("select", "narrow", "split", "split_with_sizes", "chunk", "unbind"):
    ROWS[_name] = _parts(getattr(torch.Tensor, _name))


@row("getitem", "__getitem__")
def _getitem(g: Translation, input: Any, index: Any) -> Any:
    if not isinstance(input, Ref):
        return input[index]
    parts = list(index) if isinstance(index, tuple) else [index]
    if len(parts) == 1 and isinstance(parts[0], Ref) and g.array(parts[0]) is None:
        refuse(
            g.dtype(parts[0]) == "bool", "a selection by a mask that depends on the inputs", "torch.where keeps shapes"
        )
        return g.add("take", input, parts[0])
    if Ellipsis in [part for part in parts if not isinstance(part, Ref)]:
        at = next(k for k, part in enumerate(parts) if part is Ellipsis)
        consumed = sum(part is not None and part is not Ellipsis for part in parts)
        parts[at : at + 1] = [slice(None)] * (g.rank(input) - consumed)
    chosen = [k for k, part in enumerate(parts) if isinstance(part, (Ref, list))]
    plain = tuple(slice(None) if k in chosen else part for k, part in enumerate(parts))
    x = _part(g, input, torch.empty(g.shape(input), device="meta")[plain])
    if not chosen:
        return x
    arrays = [g.array(parts[k]) if isinstance(parts[k], Ref) else np.asarray(parts[k]) for k in chosen]
    axis = sum(not isinstance(part, (int, np.integer)) for part in parts[: chosen[0]])
    if len(chosen) == 1:
        return _chosen(g, x, axis, arrays[0])
    is_apart = list(chosen) != list(range(chosen[0], chosen[0] + len(chosen)))
    refuse(
        is_apart or any(array is None or array.dtype.kind not in "iu" for array in arrays),
        "indexing by several tensors at once",
        "constant numbers along axes side by side, or one axis at a time",
    )
    # Axes that constant numbers index together are one axis.
    shape, end = g.shape(x), axis + len(chosen)
    lengths = shape[axis:end]
    numbers = np.broadcast_arrays(*(np.asarray(array) % n for array, n in zip(arrays, lengths)))
    flat = g.reshape(x, (*shape[:axis], math.prod(lengths), *shape[end:]))
    return _chosen(g, flat, axis, np.ravel_multi_index(numbers, lengths))


def _chosen(g: Translation, x: Ref, axis: int, array: np.ndarray | None) -> Ref:
    """`x[array]` along an axis, for constant numbers or truth values."""
    refuse(array is None, "indexing by numbers that depend on the inputs", "only whole rows: x[indices]")
    assert array is not None
    if array.dtype == bool:
        refuse(array.ndim != 1, "a mask of several axes")
        array = np.flatnonzero(array)
    refuse(array.dtype.kind not in "iu", f"an index of {array.dtype}")
    shape = g.shape(x)
    found = g.add("index", x, axis=axis, places=tuple((array.reshape(-1) % shape[axis]).tolist()))
    return g.reshape(found, (*shape[:axis], *array.shape, *shape[axis + 1 :]))


@row("index_select")
def _index_select(g: Translation, input: Ref, dim: int, index: Ref) -> Ref:
    return _chosen(g, input, g.axis(input, dim), g.array(index))


@row("cat", "concat", "concatenate")
def _cat(g: Translation, tensors: Any, dim: int = 0, axis: int | None = None) -> Ref:
    tensors = [x for x in tensors if g.shape(x) != (0,)]
    return g.add("concatenate", *tensors, axis=g.axis(tensors[0], dim if axis is None else axis))


@row("repeat", "tile")
def _repeat(g: Translation, input: Ref, *repeats: Any, dims: Any = None) -> Ref:
    wanted = _sizes(repeats) if dims is None else tuple(dims)
    wanted = (1,) * (g.rank(input) - len(wanted)) + wanted
    x = g.reshape(input, (1,) * (len(wanted) - g.rank(input)) + g.shape(input))
    for axis, times in enumerate(wanted):
        if times > 1:
            x = g.add("concatenate", *([x] * times), axis=axis)
    return x


@row("repeat_interleave")
def _repeat_interleave(g: Translation, input: Ref, repeats: Any, dim: int | None = None, **more: Any) -> Ref:
    refuse(not isinstance(repeats, int) or dim is None, "repeat_interleave without one number and an axis")
    axis = g.axis(input, dim or 0)
    return _chosen(g, input, axis, np.arange(g.shape(input)[axis]).repeat(repeats))


@row("roll")
def _roll(g: Translation, input: Ref, shifts: Any, dims: Any = None) -> Ref:
    if dims is None or dims == ():
        flat = g.reshape(input, (size(g.shape(input)),))
        return g.reshape(_roll(g, flat, shifts, 0), g.shape(input))
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    return g.add("roll", input, axes=g.axes(input, dims), shifts=shifts)


@row("flip")
def _flip(g: Translation, input: Ref, *dims: Any) -> Ref:
    for axis in g.axes(input, _sizes(dims)):
        input = _chosen(g, input, axis, np.arange(g.shape(input)[axis])[::-1])
    return input
