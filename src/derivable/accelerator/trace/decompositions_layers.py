"""Layers that are made of others, written in torch: norms, attention, recurrent networks, transposed convolutions,
resizing, padding and pooling; `decompositions` says how rows are called."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from operator import floordiv
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from derivable.accelerator.operators.runtime import ceil_div
from derivable.accelerator.trace.decompositions import DECOMPOSITIONS, each_axis, refuse, row

# Norms


@row("rms_norm")
def _rms_norm(input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    axes = tuple(range(-len(normalized_shape), 0))
    smallest = torch.finfo(input.dtype).eps if eps is None else eps
    found = input * torch.rsqrt((input * input).mean(axes, keepdim=True) + smallest)
    return found if weight is None else found * weight


def _affine(x: Any, weight: Any, bias: Any, shape: Sequence[int]) -> Any:
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


@row("layer_norm")
def _layer_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    axes = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(axes, keepdim=True)
    variance = (centred * centred).mean(axes, keepdim=True)
    return _affine(centred / torch.sqrt(variance + eps), weight, bias, tuple(normalized_shape))


@row("group_norm")
def _group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    apart = input.reshape(input.shape[0], num_groups, -1)
    found = F.layer_norm(apart, apart.shape[-1:], eps=eps).reshape(input.shape)
    return _affine(found, weight, bias, (-1, *(1,) * (input.dim() - 2)))


@row("instance_norm")
def _instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5, *rest: Any,
) -> Any:  # fmt: skip
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    found = F.layer_norm(input, input.shape[2:], eps=eps)
    return _affine(found, weight, bias, (-1, *(1,) * (input.dim() - 2)))


@row("normalize")
def _normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:
    return input / torch.clamp(torch.norm(input, p, dim, True), min=eps)


# Attention


def _attended(query: Any, key: Any, mask: Any, scale: float) -> Any:
    found = (query @ key.transpose(-2, -1)) * scale
    if mask is not None and mask.dtype == torch.bool:
        found = found.masked_fill(torch.logical_not(mask), -math.inf)
    elif mask is not None:
        found = found + mask
    return found.softmax(-1)


@row("scaled_dot_product_attention")
def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    refuse(dropout_p, "attention with dropout", "call `model.eval()` first, and give dropout_p=0")
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2]).tril().bool()
    weights = _attended(query, key, attn_mask, 1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    return weights @ value


@row("multi_head_attention_forward")
def _multi_head_attention(
    query: Any, key: Any, value: Any, embed_dim_to_check: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
    bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any, out_proj_bias: Any,
    training: bool = True, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Any = None, k_proj_weight: Any = None,
    v_proj_weight: Any = None, static_k: Any = None, static_v: Any = None, average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:  # fmt: skip
    """What nn.MultiheadAttention is: [position, image, channel], or without images."""
    refuse(training and dropout_p, "attention with dropout in training", "call `model.eval()` first")
    others = (bias_k, bias_v, static_k, static_v)
    refuse(add_zero_attn or any(x is not None for x in others), "attention with further keys")
    refuse(is_causal and attn_mask is None, "attention that is causal without a mask", "give attn_mask")
    size, is_single = embed_dim_to_check, query.dim() == 2
    images = 1 if is_single else query.shape[1]
    weights: Sequence[Any] = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights = weights if use_separate_proj_weight else in_proj_weight.split(size)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.split(size)
    heads = [
        F.linear(x, weight, bias).reshape(x.shape[0], images, num_heads, size // num_heads).permute(1, 2, 0, 3)
        for x, weight, bias in zip((query, key, value), weights, biases)
    ]
    masks = []
    for mask, shape in (
        (attn_mask, None if attn_mask is None or attn_mask.dim() == 2 else (images, num_heads, *attn_mask.shape[1:])),
        (key_padding_mask, (images, 1, 1, key.shape[0])),
    ):
        if mask is not None:  # truth values are of what to leave out
            mask = torch.logical_not(mask) if mask.dtype == torch.bool else mask
            masks.append(mask if shape is None else mask.reshape(shape))
    if len(masks) == 2:
        refuse(masks[0].dtype != masks[1].dtype, "attention with masks of two dtypes", "give both as numbers")
        masks = [masks[0] & masks[1] if masks[0].dtype == torch.bool else masks[0] + masks[1]]
    attended = _attended(heads[0], heads[1], masks[0] if masks else None, 1 / math.sqrt(size // num_heads))
    mixed = (attended @ heads[2]).permute(2, 0, 1, 3)
    found = F.linear(mixed.reshape(query.shape), out_proj_weight, out_proj_bias)
    if not need_weights:
        return found, None
    attended = attended.mean(1) if average_attn_weights else attended
    return found, attended.squeeze(0) if is_single else attended


# Recurrent networks, step by step


def _lstm_step(x: Any, state: tuple[Any, Any], weights: Sequence[Any]) -> tuple[Any, Any]:
    """Gates of the products with what is new, and the weights of what was."""
    h, c = state
    gates = x + F.linear(h, *weights)
    new, forget, candidate, out = gates.chunk(4, -1)
    c = torch.sigmoid(forget) * c + torch.sigmoid(new) * torch.tanh(candidate)
    return torch.sigmoid(out) * torch.tanh(c), c


def _gru_step(x: Any, state: tuple[Any], weights: Sequence[Any]) -> tuple[Any]:
    (h,) = state
    (of_reset, of_update, of_new), before = x.chunk(3, -1), F.linear(h, *weights).chunk(3, -1)
    reset, update = torch.sigmoid(of_reset + before[0]), torch.sigmoid(of_update + before[1])
    new = torch.tanh(of_new + reset * before[2])
    return (new + update * (h - new),)


def _rnn_step(activation: Callable) -> Callable:
    return lambda x, state, weights: (activation(x + F.linear(state[0], *weights)),)


_STEPS = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": _rnn_step(torch.tanh),
    "rnn_relu": _rnn_step(torch.relu),
}


def _cell(step: Callable) -> Callable:
    def compose(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        state = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        found = step(F.linear(input, w_ih, b_ih), state, (w_hh, b_hh))
        return found if len(found) > 1 else found[0]

    return compose


def _recurrent(step: Callable, count: int) -> Callable:
    """All layers and directions over [step, batch, feature], the products with the inputs of all steps at once."""

    def compose(
        input: Any, hx: Any, params: Any, has_biases: bool = True, num_layers: int = 1, dropout: float = 0.0,
        train: bool = False, bidirectional: bool = False, batch_first: bool = False, *rest: Any,
    ) -> Any:  # fmt: skip
        refuse(rest or not isinstance(has_biases, bool), "a recurrent network of packed sequences", "pad them")
        refuse(train and dropout, "dropout in training", "call `model.eval()` first")
        states = tuple(hx) if count > 1 else (hx,)
        x = input.transpose(0, 1) if batch_first else input
        each, ends = 4 if has_biases else 2, []
        for layer in range(num_layers):
            directions = []
            for back in range(1 + bidirectional):
                number = layer * (1 + bidirectional) + back
                given = params[number * each : number * each + each]
                w_ih, w_hh, *biases = given
                b_ih, b_hh = biases or (None, None)
                products_of_inputs = F.linear(x, w_ih, b_ih)
                state = tuple(part[number] for part in states)
                found = []
                for at in reversed(range(x.shape[0])) if back else range(x.shape[0]):
                    state = step(products_of_inputs[at], state, (w_hh, b_hh))
                    found.append(state[0])
                directions.append(torch.stack(found[::-1] if back else found))
                ends.append(state)
            x = directions[0] if len(directions) == 1 else torch.cat(directions, -1)
        last = tuple(torch.stack([end[k] for end in ends]) for k in range(count))
        return (x.transpose(0, 1) if batch_first else x, *last)

    return compose


for _name, _step in _STEPS.items():
    DECOMPOSITIONS[f"{_name}_cell"] = _cell(_step)
    DECOMPOSITIONS[_name] = _recurrent(_step, 2 if _name == "lstm" else 1)


# Convolutions


@row("conv1d")
def _conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    step, apart = (each_axis(of, 1) for of in (stride, dilation))
    edge = padding if isinstance(padding, str) else (0, *each_axis(padding, 1))
    found = F.conv2d(input.unsqueeze(-2), weight.unsqueeze(-2), bias, (1, *step), edge, (1, *apart), groups)
    return found.squeeze(-2)


def _transposed(count: int) -> Callable:
    """A transposed convolution of stride s gives s places along each axis from the same window: one convolution with s
    times as many channels along each axis, which are put between each other."""

    def compose(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, dilation: Any = 1,
    ) -> Any:  # fmt: skip
        steps, pads, extra, spread = (each_axis(v, count) for v in (stride, padding, output_padding, dilation))
        is_single = input.dim() == count + 1
        x = input.unsqueeze(0) if is_single else input
        refuse(not isinstance(weight, Tensor), "a transposed convolution with computed weights")
        for axis, apart in enumerate(spread, 2):
            reach = apart * (weight.shape[axis] - 1) + 1
            wide = weight.new_zeros(*weight.shape[:axis], reach, *weight.shape[axis + 1 :])
            wide[(slice(None),) * axis + (slice(None, None, apart),)] = weight
            weight = wide
        inputs, outputs = weight.shape[0] // groups, weight.shape[1]
        lengths = [
            step * (n - 1) - 2 * pad + taps + more
            for step, n, pad, taps, more in zip(steps, x.shape[2:], pads, weight.shape[2:], extra)
        ]
        # Tap j * s + r meets the place r beside the input that is j before.
        counts = [ceil_div(taps + more, step) for taps, more, step in zip(weight.shape[2:], extra, steps)]
        for axis, (n, step) in enumerate(zip(counts, steps), 2):
            missing = weight.new_zeros(*weight.shape[:axis], n * step - weight.shape[axis], *weight.shape[axis + 1 :])
            weight = torch.cat([weight, missing], axis)
        apart = weight.reshape(groups, inputs, outputs, *itertools.chain(*zip(counts, steps)))
        taps, residues = [3 + 2 * k for k in range(count)], [4 + 2 * k for k in range(count)]
        kernel = apart.permute(0, 2, *residues, 1, *taps).reshape(-1, inputs, *counts).flip(*range(2, 2 + count))
        convolve = (F.conv1d, F.conv2d, F.conv3d)[count - 1]
        every = None if bias is None else bias.repeat_interleave(math.prod(steps))
        found = convolve(x, kernel, every, 1, tuple(n - 1 for n in counts), 1, groups)
        places = found.shape[2:]
        found = found.reshape(x.shape[0], groups * outputs, *steps, *places)
        order = itertools.chain(*((2 + count + k, 2 + k) for k in range(count)))
        found = found.permute(0, 1, *order).reshape(*found.shape[:2], *(n * s for n, s in zip(places, steps)))
        for axis, (pad, length) in enumerate(zip(pads, lengths), 2):
            found = found.narrow(axis, pad, length)
        return found.squeeze(0) if is_single else found

    return compose


DECOMPOSITIONS |= {f"conv_transpose{count}d": _transposed(count) for count in (1, 2, 3)}


@row("pixel_shuffle")
def _pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    *batch, channels, rows, columns = input.shape
    r, n = upscale_factor, len(batch)
    apart = input.reshape(*batch, channels // (r * r), r, r, rows, columns)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return apart.permute(order).reshape(*batch, channels // (r * r), rows * r, columns * r)


@row("pixel_unshuffle")
def _pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    *batch, channels, rows, columns = input.shape
    r, n = downscale_factor, len(batch)
    apart = input.reshape(*batch, channels, rows // r, r, columns // r, r)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return apart.permute(order).reshape(*batch, channels * r * r, rows // r, columns // r)


@row("channel_shuffle")
def _channel_shuffle(input: Any, groups: int) -> Any:
    return input.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)


# Sizes of pictures


def _along(x: Any, axis: int, matrix: Tensor) -> Any:
    """x with an axis [from] times a matrix [from, to]."""
    if axis in (-1, x.dim() - 1):
        return x @ matrix
    return (x.transpose(axis, -1) @ matrix).transpose(axis, -1)


@row("interpolate", "upsample")
def _interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Any:  # fmt: skip
    """Every axis by itself: places of it, or its product with what each place gives to the others."""
    count = input.dim() - 2
    sizes, factors = each_axis(size, count), each_axis(scale_factor, count)
    modes = {"linear": "bilinear", "trilinear": "bilinear"}
    for axis, (n, wanted, factor) in enumerate(zip(input.shape[2:], sizes, factors), 2):
        given: dict[str, Any] = {"mode": modes.get(mode, mode), "antialias": antialias}
        given |= {"size": (1, wanted)} if factor is None else {"scale_factor": (1.0, factor)}
        given |= {"recompute_scale_factor": recompute_scale_factor}
        if mode.startswith("nearest"):
            places = F.interpolate(torch.arange(n).double().reshape(1, 1, 1, n), **given).flatten().long()
            input = input if places.tolist() == list(range(n)) else input.index_select(axis, places)
            continue
        if mode != "area":
            given["align_corners"] = align_corners
        matrix = F.interpolate(torch.eye(n)[None, :, None], **given)[0, :, 0]
        input = input if torch.equal(matrix, torch.eye(n)) else _along(input, axis, matrix)
    return input


@row("pad")
def _pad(input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Entries or a number added at both ends of an axis; a negative width removes entries."""
    for number, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        axis = input.dim() - 1 - number
        n, shape = input.shape[axis], input.shape
        if mode != "constant" and (before or after):
            places = F.pad(torch.arange(n).double()[None, None], (before, after), mode).flatten().long()
            input = input.index_select(axis, places)
        elif before or after:
            x = input.narrow(axis, max(0, -before), n + min(before, 0) + min(after, 0))
            filled = [torch.full((*shape[:axis], max(k, 0), *shape[axis + 1 :]), value or 0.0) for k in (before, after)]
            parts = [part for part in (filled[0], x, filled[1]) if part.shape[axis]]
            input = torch.cat(parts, axis) if len(parts) > 1 else x
    return input


# Pooling


def _around(input: Any, output: Any, kernel_size: Any, stride: Any, padding: Any) -> tuple[int, ...]:
    """What lies around pictures in the windows of an output, as `F.pad` takes it."""
    settings = zip(*(each_axis(value, 2) for value in (kernel_size, stride, padding)))
    sizes = zip(settings, input.shape[-2:], output.shape[-2:])
    pads = [(pad, max(0, (out - 1) * step + kernel - n - pad)) for (kernel, step, pad), n, out in sizes]
    return (*pads[1], *pads[0])


@row("max_pool2d")
def _max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Windows beyond the end have the last entry, whose copies change no maximum."""
    if not ceil_mode or return_indices:
        return NotImplemented
    refuse(any(n != 1 for n in each_axis(dilation, 2)), "max_pool2d with ceil_mode and dilation")
    output = F.max_pool2d(torch.zeros(1, 1, *input.shape[-2:]), kernel_size, stride, padding, 1, True)
    around = _around(input, output, kernel_size, stride or kernel_size, padding)
    return F.max_pool2d(F.pad(input, around, "replicate"), kernel_size, stride)


@row("avg_pool2d")
def _avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Averages over whole windows, times what each of them is to be divided by instead."""
    is_padded = any(each_axis(padding, 2))
    if not ceil_mode and divisor_override is None and (count_include_pad or not is_padded):
        return NotImplemented
    ones = torch.ones(1, 1, *input.shape[-2:])
    wanted = F.avg_pool2d(ones, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)[0, 0]
    around = _around(input, wanted, kernel_size, stride or kernel_size, padding)
    factor = wanted / F.avg_pool2d(F.pad(ones, around), kernel_size, stride)[0, 0]
    return F.avg_pool2d(F.pad(input, around), kernel_size, stride) * factor


def _of_rows(pool: Callable, names: Sequence[str]) -> Callable:
    """The pool over windows of one axis by that over windows of two, for settings of these names."""

    def compose(input: Any, *rest: Any, **named: Any) -> Any:
        given = dict(zip(names, rest)) | named
        for name, other in {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}.items():
            if given.get(name) not in (None, ()):
                given[name] = (other, *each_axis(given[name], 1))
        return pool(input.unsqueeze(-2), **given).squeeze(-2)

    return compose


_SETTINGS = ("kernel_size", "stride", "padding")
DECOMPOSITIONS |= {
    "max_pool1d": _of_rows(F.max_pool2d, (*_SETTINGS, "dilation", "ceil_mode", "return_indices")),
    "avg_pool1d": _of_rows(F.avg_pool2d, (*_SETTINGS, "ceil_mode", "count_include_pad")),
}


def _adaptive(whole: Callable, pool: Callable, axes: int) -> Callable:
    """`whole` is over all of some axes; `pool` serves pictures of which each cell has as many places."""

    def compose(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        refuse(return_indices, "adaptive pooling with return_indices")
        shape = input.shape[-axes:]
        wanted = [n if count is None else count for count, n in zip(each_axis(output_size, axes), shape)]
        if axes == 2 and all(n % count == 0 for n, count in zip(shape, wanted)):
            return whole(input, (-2, -1), True) if wanted == [1, 1] else pool(input, [*map(floordiv, shape, wanted)])
        for axis, (n, count) in enumerate(zip(shape, wanted), input.dim() - axes):
            cells = [(k * n // count, ceil_div((k + 1) * n, count)) for k in range(count)]
            if count == n:
                continue
            if n % count == 0:
                input = whole(input.unflatten(axis, (count, n // count)), axis + 1)
            elif whole is torch.mean:
                matrix = torch.stack([torch.ones(b - a) @ torch.eye(n)[a:b] / (b - a) for a, b in cells], 1)
                input = _along(input, axis, matrix)
            else:
                input = torch.stack([whole(input.narrow(axis, a, b - a), axis) for a, b in cells], axis)
        return input

    return compose


for _axes in (1, 2, 3):
    DECOMPOSITIONS[f"adaptive_avg_pool{_axes}d"] = _adaptive(torch.mean, F.avg_pool2d, _axes)
    DECOMPOSITIONS[f"adaptive_max_pool{_axes}d"] = _adaptive(torch.amax, F.max_pool2d, _axes)
