"""What operations of torch that only move numbers are in the operator graph; `translate` says how rows are called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from derivable.accelerator.operators.kinds import Shape, size
from derivable.accelerator.operators.runtime import ceil_div
from derivable.accelerator.trace.translate import Ref, Translation, refuse, row


def _sizes(given: Sequence[Any]) -> tuple[Any, ...]:
    """What `x.reshape(2, 3)` and `x.reshape((2, 3))` both mean."""
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else tuple(given)


def _completed(shape: Sequence[int], count: int) -> tuple[int, ...]:
    """The shape with what -1 stands for."""
    known = math.prod(n for n in shape if n != -1)
    return tuple(count // known if n == -1 else int(n) for n in shape)


@row("reshape", "view")
def _reshape(g: Translation, input: Ref, *sizes: Any, shape: Any = None) -> Ref:
    refuse(bool(sizes) and isinstance(sizes[0], torch.dtype), "a view as another dtype")
    return g.reshape(input, _completed(_sizes(sizes) if shape is None else shape, size(g.shape(input))))


@row("view_as", "reshape_as")
def _view_as(g: Translation, input: Ref, other: Ref) -> Ref:
    return g.reshape(input, g.shape(other))


@row("flatten")
def _flatten(g: Translation, input: Ref, start_dim: int = 0, end_dim: int = -1) -> Ref:
    shape, rank = g.shape(input), max(g.rank(input), 1)
    start, end = start_dim % rank, end_dim % rank
    return g.reshape(input, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@row("unflatten")
def _unflatten(g: Translation, input: Ref, dim: int, sizes: Any) -> Ref:
    axis, shape = g.axis(input, dim), g.shape(input)
    return g.reshape(input, (*shape[:axis], *_completed(_sizes((sizes,)), shape[axis]), *shape[axis + 1 :]))


@row("unsqueeze")
def _unsqueeze(g: Translation, input: Ref, dim: int) -> Ref:
    axis, shape = g.axis(input, dim, 1), g.shape(input)
    return g.reshape(input, (*shape[:axis], 1, *shape[axis:]))


@row("squeeze")
def _squeeze(g: Translation, input: Ref, dim: Any = None) -> Ref:
    axes = g.axes(input, dim)
    return g.reshape(input, [n for axis, n in enumerate(g.shape(input)) if n != 1 or axis not in axes])


@row("permute")
def _permute(g: Translation, input: Ref, *dims: Any) -> Ref:
    return g.permute(input, [g.axis(input, axis) for axis in _sizes(dims)])


@row("transpose", "swapaxes", "swapdims")
def _transpose(g: Translation, input: Ref, dim0: int, dim1: int) -> Ref:
    order = list(range(g.rank(input)))
    a, b = g.axis(input, dim0), g.axis(input, dim1)
    order[a], order[b] = b, a
    return g.permute(input, order)


@row("t")
def _t(g: Translation, input: Ref) -> Ref:
    return _transpose(g, input, 0, 1) if g.rank(input) == 2 else input


@row("movedim", "moveaxis")
def _movedim(g: Translation, input: Ref, source: Any, destination: Any) -> Ref:
    moved, places = g.axes(input, source), g.axes(input, destination)
    order = [axis for axis in range(g.rank(input)) if axis not in moved]
    for place, axis in sorted(zip(places, moved)):
        order.insert(place, axis)
    return g.permute(input, order)


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
    consumed = sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis in [part for part in parts if not isinstance(part, Ref)]:
        at = next(k for k, part in enumerate(parts) if part is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (g.rank(input) - consumed)
    chosen = [k for k, part in enumerate(parts) if isinstance(part, (Ref, list))]
    if len(chosen) > 1:
        input, parts = _joined(g, input, parts, chosen)
    x, axis = input, 0
    for part in parts:
        if part is None:
            x, axis = _unsqueeze(g, x, axis), axis + 1
        elif isinstance(part, slice):
            start, stop, step = part.indices(g.shape(x)[axis])
            refuse(step < 0, "a slice with a negative step")
            x, axis = g.cut(x, axis, start, len(range(start, stop, step)), step), axis + 1
        elif isinstance(part, int) and not isinstance(part, bool):
            x = g.without(g.cut(x, axis, part % g.shape(x)[axis], 1), axis)
        else:
            x, axis = _chosen(g, x, axis, part)
    return x


def _joined(g: Translation, x: Ref, parts: list[Any], chosen: Sequence[int]) -> tuple[Ref, list[Any]]:
    """Axes side by side that constant numbers index together as one axis, and the numbers along it."""
    arrays = [g.array(parts[k]) if isinstance(parts[k], Ref) else np.asarray(parts[k]) for k in chosen]
    first = sum(part is not None for part in parts[: chosen[0]])
    refuse(
        list(chosen) != list(range(chosen[0], chosen[0] + len(chosen)))
        or any(array is None or array.dtype.kind not in "iu" for array in arrays),
        "indexing by several tensors at once",
        "constant numbers along axes side by side, or one axis at a time",
    )
    shape, count = g.shape(x), len(chosen)
    lengths = shape[first : first + count]
    numbers = np.broadcast_arrays(*(np.asarray(array) % n for array, n in zip(arrays, lengths)))
    flat = np.ravel_multi_index(numbers, lengths)
    x = g.reshape(x, (*shape[:first], math.prod(lengths), *shape[first + count :]))
    return x, [*parts[: chosen[0]], g.constant(flat), *parts[chosen[0] + count :]]


def _chosen(g: Translation, x: Ref, axis: int, part: Any) -> tuple[Ref, int]:
    """`x[part]` along an axis, for constant numbers or truth values; with the axis that comes next."""
    array = g.array(part) if isinstance(part, Ref) else np.asarray(part)
    refuse(array is None, "indexing by numbers that depend on the inputs", "only whole rows: x[indices]")
    assert array is not None
    if array.dtype == bool:
        refuse(array.ndim != 1, "a mask of several axes")
        array = np.flatnonzero(array)
    refuse(array.dtype.kind not in "iu", f"an index of {array.dtype}")
    shape = g.shape(x)
    found = g.add("index", x, axis=axis, places=tuple((array.reshape(-1) % shape[axis]).tolist()))
    return g.reshape(found, (*shape[:axis], *array.shape, *shape[axis + 1 :])), axis + array.ndim


@row("index_select")
def _index_select(g: Translation, input: Ref, dim: int, index: Ref) -> Ref:
    return _chosen(g, input, g.axis(input, dim), index)[0]


@row("embedding")
def _embedding(g: Translation, input: Ref, weight: Ref, padding_idx: Any = None, *rest: Any, **more: Any) -> Ref:
    return g.add("take", weight, input)


@row("select")
def _select(g: Translation, input: Ref, dim: int, index: int) -> Ref:
    axis = g.axis(input, dim)
    return g.without(g.cut(input, axis, index % g.shape(input)[axis], 1), axis)


@row("narrow")
def _narrow(g: Translation, input: Ref, dim: int, start: int, length: int) -> Ref:
    axis = g.axis(input, dim)
    return g.cut(input, axis, start % g.shape(input)[axis] if start < 0 else start, length)


@row("split", "split_with_sizes")
def _split(g: Translation, input: Ref, split_size_or_sections: Any = None, dim: int = 0, **named: Any) -> Any:
    axis = g.axis(input, dim)
    wanted = next(iter(named.values())) if split_size_or_sections is None else split_size_or_sections
    length = g.shape(input)[axis]
    if isinstance(wanted, int):
        wanted = [min(wanted, length - start) for start in range(0, length, wanted)]
    starts = itertools.accumulate(wanted, initial=0)
    return tuple(g.cut(input, axis, start, count) for start, count in zip(starts, wanted))


@row("chunk")
def _chunk(g: Translation, input: Ref, chunks: int, dim: int = 0) -> Any:
    return _split(g, input, ceil_div(g.shape(input)[g.axis(input, dim)], chunks), dim)


@row("unbind")
def unbind(g: Translation, input: Ref, dim: int = 0) -> Any:
    return tuple(_select(g, input, dim, k) for k in range(g.shape(input)[g.axis(input, dim)]))


@row("cat", "concat", "concatenate")
def _cat(g: Translation, tensors: Any, dim: int = 0, axis: int | None = None) -> Ref:
    tensors = [x for x in tensors if g.shape(x) != (0,)]
    return g.add("concatenate", *tensors, axis=g.axis(tensors[0], dim if axis is None else axis))


@row("stack")
def stack(g: Translation, tensors: Any, dim: int = 0) -> Ref:
    axis = g.axis(tensors[0], dim, 1)
    return g.add("concatenate", *(_unsqueeze(g, x, axis) for x in tensors), axis=axis)


@row("expand", "broadcast_to")
def expand(g: Translation, input: Ref, *sizes: Any, **named: Any) -> Ref:
    wanted = _sizes(sizes) if sizes else tuple(next(iter(named.values())))
    own = (1,) * (len(wanted) - g.rank(input)) + g.shape(input)
    shape = tuple(have if want == -1 else want for have, want in zip(own, wanted))
    return input if shape == g.shape(input) else g.add("expand", input, shape=shape)


@row("expand_as")
def _expand_as(g: Translation, input: Ref, other: Ref) -> Ref:
    return expand(g, input, g.shape(other))


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
    places = tuple(place for place in range(g.shape(input)[axis]) for _ in range(repeats))
    return g.add("index", input, axis=axis, places=places)


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
        input = g.add("index", input, axis=axis, places=tuple(reversed(range(g.shape(input)[axis]))))
    return input


@row("pad")
def _pad(g: Translation, input: Ref, pad: Any, mode: str = "constant", value: float | None = None) -> Ref:
    for k, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        axis = g.rank(input) - 1 - k
        shape = g.shape(input)

        def filled(count: int, axis: int = axis, shape: Shape = shape) -> list[Ref]:
            array = np.full((*shape[:axis], count, *shape[axis + 1 :]), value or 0.0)
            return [g.constant(array)] if count else []

        if before or after:
            input = g.add("concatenate", *filled(before), input, *filled(after), axis=axis)
    return input
