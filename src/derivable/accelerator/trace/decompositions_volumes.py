"""Convolutions and pools over volumes [image, channel, depth, row, column], by those over pictures; and norms over
channels. `decompositions` says how rows are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from derivable.accelerator.trace.decompositions import each_axis, edges, refuse, row


def _taps(x: Any, count: int, step: int, apart: int = 1) -> list[Any]:
    """For each tap of a window over the depths, what it meets at each place."""
    places = (x.shape[2] - apart * (count - 1) - 1) // step + 1
    return [x[:, :, tap * apart : tap * apart + (places - 1) * step + 1 : step] for tap in range(count)]


def _as_pictures(x: Any) -> Any:
    """Each depth as a picture of its own."""
    return x.transpose(1, 2).flatten(0, 1)


def _as_volumes(x: Any, images: int) -> Any:
    return x.unflatten(0, (images, -1)).transpose(1, 2)


@row("conv3d")
def _conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """Depths that a window meets are further channels of one convolution of pictures."""
    x = input.unsqueeze(0) if input.dim() == 4 else input
    steps, apart, kernel = each_axis(stride, 3), each_axis(dilation, 3), weight.shape[2:]
    pads = edges(padding, kernel, apart)
    x = F.pad(x, (0, 0, 0, 0, pads[0], pads[0])) if pads[0] else x
    taps = _taps(x, kernel[0], steps[0], apart[0])
    met = taps[0] if len(taps) == 1 else torch.stack(taps, 2).flatten(1, 2)
    found = F.conv2d(_as_pictures(met), weight.flatten(1, 2), bias, steps[1:], pads[1:], apart[1:], groups)
    found = _as_volumes(found, x.shape[0])
    return found.squeeze(0) if input.dim() == 4 else found


def _pool(input: Any, kernel_size: Any, stride: Any, padding: Any, is_max: bool) -> Any:
    kernel = each_axis(kernel_size, 3)
    steps, pads = each_axis(stride or kernel, 3), each_axis(padding, 3)
    x = input.unsqueeze(0) if input.dim() == 4 else input
    pool = F.max_pool2d if is_max else F.avg_pool2d
    found = _as_volumes(pool(_as_pictures(x), kernel[1:], steps[1:], pads[1:]), x.shape[0])
    if pads[0]:  # copies of the ends change no maximum
        around = (0, 0, 0, 0, pads[0], pads[0])
        found = F.pad(found, around, "replicate") if is_max else F.pad(found, around)
    if kernel[0] > 1 or steps[0] > 1:
        met = torch.stack(_taps(found, kernel[0], steps[0]), 0)
        found = torch.amax(met, 0) if is_max else met.mean(0)
    return found.squeeze(0) if input.dim() == 4 else found


@row("max_pool3d")
def _max_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    is_odd = return_indices or ceil_mode or each_axis(dilation, 3) != (1, 1, 1)
    refuse(is_odd, "max_pool3d with these options", "plain windows")
    return _pool(input, kernel_size, stride, padding, True)


@row("avg_pool3d")
def _avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    is_odd = ceil_mode or divisor_override is not None or (any(each_axis(padding, 3)) and not count_include_pad)
    refuse(is_odd, "avg_pool3d with these options", "plain windows")
    return _pool(input, kernel_size, stride, padding, False)


@row("local_response_norm")
def _local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    squared = input * input
    rest: Sequence[int] = (0, 0) * (input.dim() - 2)
    padded = F.pad(squared, (*rest, size // 2, (size - 1) // 2))
    total = sum(padded.narrow(1, tap, input.shape[1]) for tap in range(size))
    return input / (total * (alpha / size) + k) ** beta
