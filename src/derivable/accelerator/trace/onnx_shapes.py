"""What operators of ONNX that move entries, and those that no input changes, are in functions of torch.

Source: ONNX Operator Schemas, https://onnx.ai/onnx/operators/ (versions 11 to 23 of the operators).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from derivable.accelerator.trace.decompositions import Refused, is_traced
from derivable.accelerator.trace.onnx_operators import Call, operator, torch_pads


@operator("Reshape")
def _reshape(call: Call) -> Any:
    x, wanted = call.x(), list(call.static(1, "shape"))
    if not call.get("allowzero"):
        wanted = [x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    return x.reshape(wanted)


@operator("Flatten")
def _flatten(call: Call) -> Any:
    axis, shape = call.get("axis", 1), list(call.x().shape)
    first = math.prod(shape[:axis])
    return call.x().reshape(first, math.prod(shape) // first)


@operator("Transpose")
def _transpose(call: Call) -> Any:
    return call.x().permute(call.get("perm") or list(reversed(range(call.x().ndim))))


@operator("Squeeze")
def _squeeze(call: Call) -> Any:
    x, axes = call.x(), call.static(1, "axes")
    axes = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in axes or size != 1])


@operator("Unsqueeze")
def _unsqueeze(call: Call) -> Any:
    x, axes = call.x(), call.static(1, "axes")
    for axis in sorted(axis % (x.ndim + len(axes)) for axis in axes):
        x = x.unsqueeze(axis)
    return x


@operator("Concat")
def _concatenated(call: Call) -> Any:
    return torch.cat(list(call.inputs), call.get("axis"))


@operator("Split")
def _split(call: Call) -> Any:
    axis, sizes = call.get("axis", 0), call.static(1, "split")
    if sizes is None:
        length, count = call.x().shape[axis], call.get("num_outputs", call.num_outputs)
        sizes = [min(math.ceil(length / count), length - k * math.ceil(length / count)) for k in range(count)]
    pieces = tuple(call.x().split(sizes, axis))
    return pieces if call.num_outputs > 1 else pieces[0]


@operator("Slice")
def _sliced(call: Call) -> Any:
    x, starts, ends = call.x(), call.static(1, "starts"), call.static(2, "ends")
    axes = call.static(3, "axes") or list(range(len(starts)))
    for axis, start, end, step in zip(axes, starts, ends, call.static(4) or [1] * len(starts)):
        size = x.shape[axis]
        if step > 0:
            x = x[(slice(None),) * (axis % x.ndim) + (slice(start, end, step),)]
            continue
        indices = list(range(size))[slice(start, None if end < -size else end, step)]
        x = x.flip(axis) if indices == list(reversed(range(size))) else x.index_select(axis, torch.tensor(indices))
    return x


@operator("Gather")
def _gathered(call: Call) -> Any:
    x, index, axis = call.x(0), call.x(1), call.get("axis", 0) % call.x(0).ndim
    if is_traced(index):
        if axis == 0 and not is_traced(x) and x.ndim == 2:
            return F.embedding(index, x)
        raise Refused("places that depend on the inputs", hint="a table with two axes is read along its first")
    index = torch.where(index < 0, index + x.shape[axis], index)
    if index.ndim == 0:
        return x.select(axis, int(index))
    slices = x.index_select(axis, index.reshape(-1))
    return slices.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def _gathered_entries(call: Call) -> Any:
    axis, index = call.get("axis", 0), call.x(1)
    if not is_traced(index):
        index = torch.where(index < 0, index + call.x(0).shape[axis], index)
    return torch.gather(call.x(0), axis, index)


@operator("Expand")
def _expanded(call: Call) -> Any:
    x, wanted = call.x(), call.static(1)
    shape = [1] * (len(wanted) - x.ndim) + list(x.shape)
    wanted = [1] * (len(shape) - len(wanted)) + list(wanted)
    return x.expand([max(one, other) for one, other in zip(shape, wanted)])


@operator("Tile")
def _tiled(call: Call) -> Any:
    return call.x().repeat(call.static(1))


@operator("Pad")
def _padded(call: Call) -> Any:
    x, pads = call.x(), list(call.static(1, "pads"))
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "circular"}[
        call.get("mode", "constant")
    ]
    axes = call.static(3) or list(range(len(pads) // 2))
    before, after = [0] * x.ndim, [0] * x.ndim
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[len(axes) + k]
    for axis in range(x.ndim):
        if before[axis] < 0 or after[axis] < 0:
            begin, end = max(-before[axis], 0), max(-after[axis], 0)
            x = x.narrow(axis, begin, x.shape[axis] - begin - end)
            before[axis], after[axis] = max(before[axis], 0), max(after[axis], 0)
    first = next((axis for axis in range(x.ndim) if before[axis] or after[axis]), x.ndim)
    if mode != "constant":
        # Torch pads up to the last three axes so, of a tensor with a batch and channels.
        return F.pad(x, torch_pads(before[max(first, 2) :], after[max(first, 2) :]), mode=mode)
    return F.pad(x, torch_pads(before[first:], after[first:]), value=call.static(2, "value", 0.0))


@operator("Resize", "Upsample")
def _resized(call: Call) -> Any:
    """What torch's interpolate does of pictures; it has scales by sizes, so that both have to be exact."""
    x = call.x()
    scales, sizes = (call.static(2), call.static(3)) if call.operator == "Resize" else (call.static(1, "scales"), None)
    mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[call.get("mode", "nearest")]
    where = call.get("coordinate_transformation_mode", "half_pixel" if call.operator == "Resize" else "asymmetric")
    rounding = call.get("nearest_mode", "round_prefer_floor" if call.operator == "Resize" else "floor")
    scales = scales or [wanted / size for wanted, size in zip(sizes or x.shape, x.shape)]
    whole = [round(size * scale) for size, scale in zip(x.shape, scales)]
    is_half = where == "half_pixel" or (where == "pytorch_half_pixel" and min(whole[2:]) > 1)
    knows = (where, rounding) == ("asymmetric", "floor") if mode == "nearest" else is_half or where == "align_corners"
    if mode == "nearest" and not knows and all(scale == int(scale) for scale in scales):
        # Each entry of the result lies in the one that is repeated.
        knows = where in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round")
    is_exact = all(abs(size * scale - rounded) < 1e-6 for size, scale, rounded in zip(x.shape, scales, whole))
    is_odd = call.get("antialias") or call.get("exclude_outside") or call.get("cubic_coeff_a", -0.75) != -0.75
    is_odd = is_odd or call.get("axes") or call.get("keep_aspect_ratio_policy", "stretch") != "stretch"
    if x.ndim != 4 or whole[:2] != list(x.shape[:2]) or is_odd or not knows or not is_exact:
        raise Refused(f"resizing {list(x.shape)} by {scales}, {where!r}", hint="export torch's interpolate of pictures")
    options = {} if mode == "nearest" else {"align_corners": where == "align_corners"}
    return F.interpolate(x, whole[2:], mode=mode, **options)


@operator("DepthToSpace", "SpaceToDepth")
def _blocks(call: Call) -> Any:
    x, size = call.x(), call.get("blocksize")
    batch, channels, height, width = x.shape
    if call.operator == "SpaceToDepth":
        if call.get("mode", "DCR") != "DCR":
            raise Refused(f"blocks in the order {call.get('mode')}")
        x = x.reshape(batch, channels, height // size, size, width // size, size).permute(0, 3, 5, 1, 2, 4)
        return x.reshape(batch, channels * size * size, height // size, width // size)
    if call.get("mode", "DCR") == "DCR":
        x = x.reshape(batch, size, size, channels // size**2, height, width).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(batch, channels // size**2, size, size, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(batch, channels // size**2, height * size, width * size)


@operator("Trilu")
def _triangle(call: Call) -> Any:
    offset = call.static(1, default=0)
    return (torch.triu if call.get("upper", 1) else torch.tril)(call.x(), int(offset))


# What no input changes


@operator("Constant")
def _constant(call: Call) -> Any:
    for name, value in call.attributes.items():
        return value if name == "value" else torch.tensor(value)
    raise Refused("a constant without a value")


@operator("ConstantOfShape")
def _filled(call: Call) -> Any:
    value = call.get("value")
    value = torch.zeros(1) if value is None else value
    return value.reshape(()).expand([int(size) for size in call.static(0)]).clone()


@operator("Shape")
def _shape(call: Call) -> Any:
    return torch.tensor(list(call.x().shape)[call.get("start", 0) : call.get("end")], dtype=torch.int64)


@operator("Size")
def _size(call: Call) -> Any:
    return torch.tensor(math.prod(call.x().shape))


@operator("Range")
def _range(call: Call) -> Any:
    return torch.arange(call.static(0), call.static(1), call.static(2))


@operator("OneHot")
def _one_hot(call: Call) -> Any:
    depth, (off, on) = call.static(1), call.static(2)
    depth = int(depth[0] if isinstance(depth, list) else depth)
    index = call.x().to(torch.int64).unsqueeze(-1)
    index = torch.where(index < 0, index + depth, index)
    encoded = torch.where(index == torch.arange(depth), on, off)
    axis = call.get("axis", -1)
    return encoded if axis == -1 else encoded.movedim(-1, axis)
