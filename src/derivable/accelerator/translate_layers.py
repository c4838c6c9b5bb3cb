"""What the layers that are made of others are in the operator graph: activations, norms and attention; `translate` says
how rows are called."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from derivable.accelerator.kinds import size
from derivable.accelerator.translate import Ref, Refused, Translation, linear, refuse, row

# Activations


@row("silu")
def _silu(g: Translation, input: Ref, inplace: bool = False) -> Ref:
    return g.add("mul", input, g.add("sigmoid", input))


@row("leaky_relu")
def _leaky_relu(g: Translation, input: Ref, negative_slope: float = 0.01, inplace: bool = False) -> Ref:
    refuse(not 0 <= negative_slope <= 1, f"the slope {negative_slope}", "from 0 to 1")
    return g.add("maximum", input, g.add("mul", input, negative_slope))


@row("prelu")
def _prelu(g: Translation, input: Ref, weight: Ref) -> Ref:
    slopes = g.reshape(weight, (*g.shape(weight), *(1,) * (g.rank(input) - 2))) if g.rank(input) > 2 else weight
    below = g.add("mul", g.add("minimum", input, 0.0), slopes)
    return g.add("add", g.add("relu", input), below)


@row("elu")
def _elu(g: Translation, input: Ref, alpha: float = 1.0, inplace: bool = False) -> Ref:
    below = g.add("sub", g.add("exp", g.add("minimum", input, 0.0)), 1.0)
    return g.add("add", g.add("relu", input), below if alpha == 1 else g.add("mul", below, alpha))


@row("softplus")
def _softplus(g: Translation, input: Ref, beta: float = 1.0, threshold: float = 20.0) -> Ref:
    # Beyond the threshold torch gives its input, and this gives it but for exp(-threshold).
    scaled = input if beta == 1 else g.add("mul", input, beta)
    rest = g.add("log", g.add("add", g.add("exp", g.add("neg", g.add("abs", scaled))), 1.0))
    found = g.add("add", g.add("relu", scaled), rest)
    return found if beta == 1 else g.add("mul", found, 1 / beta)


@row("mish")
def _mish(g: Translation, input: Ref, inplace: bool = False) -> Ref:
    return g.add("mul", input, g.add("tanh", _softplus(g, input)))


@row("softsign")
def _softsign(g: Translation, input: Ref) -> Ref:
    return g.add("div", input, g.add("add", g.add("abs", input), 1.0))


@row("hardsigmoid")
def _hardsigmoid(g: Translation, input: Ref, inplace: bool = False) -> Ref:
    return g.add("mul", g.add("clamp", g.add("add", input, 3.0), low=0.0, high=6.0), 1 / 6)


@row("hardswish")
def _hardswish(g: Translation, input: Ref, inplace: bool = False) -> Ref:
    return g.add("mul", input, _hardsigmoid(g, input))


@row("gelu")
def _gelu(g: Translation, input: Ref, approximate: str = "none") -> Ref:
    return g.add("gelu", input, approximate=approximate)


@row("masked_fill")
def _masked_fill(g: Translation, input: Ref, mask: Ref, value: Any) -> Ref:
    array = g.array(mask) if isinstance(mask, Ref) else None
    if array is None or isinstance(value, Ref):
        raise Refused("masked_fill by what depends on the inputs has no operator", hint="masks are constants")
    if np.isinf(value):  # products with zero would be none
        return g.add("add", input, g.constant(np.where(array, float(value), 0.0)))
    kept = g.add("mul", input, g.constant(np.where(array, 0.0, 1.0)))
    return g.add("add", kept, g.constant(np.where(array, float(value), 0.0)))


# Norms


@row("layer_norm")
def _layer_norm(
    g: Translation, input: Ref, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Ref:
    axes = tuple(range(g.rank(input) - len(tuple(normalized_shape)), g.rank(input)))
    centred = g.add("sub", input, g.add("mean", input, axes=axes, keepdims=True))
    variance = g.add("mean", g.add("mul", centred, centred), axes=axes, keepdims=True)
    found = g.add("div", centred, g.add("sqrt", g.add("add", variance, eps)))
    found = found if weight is None else g.add("mul", found, weight)
    return found if bias is None else g.add("add", found, bias)


@row("group_norm")
def _group_norm(
    g: Translation, input: Ref, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Ref:
    shape = g.shape(input)
    apart = g.reshape(input, (shape[0], num_groups, size(shape[1:]) // num_groups))
    found = g.reshape(_layer_norm(g, apart, (g.shape(apart)[-1],), eps=eps), shape)
    channels = (shape[1], *(1,) * (len(shape) - 2))
    found = found if weight is None else g.add("mul", found, g.reshape(weight, channels))
    return found if bias is None else g.add("add", found, g.reshape(bias, channels))


@row("normalize")
def _normalize(g: Translation, input: Ref, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Ref:
    refuse(p != 2 or out is not None, f"normalize with p={p}", "p=2")
    squared = g.add("sum", g.add("mul", input, input), axes=g.axes(input, dim), keepdims=True)
    return g.add("div", input, g.add("maximum", g.add("sqrt", squared), eps))


@row("batch_norm")
def _batch_norm(
    g: Translation,
    input: Ref,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Ref:
    refuse(
        training or running_mean is None,
        "batch norm by the statistics of its batch",
        "call `model.eval()` first; layers need track_running_stats=True",
    )
    channels = g.shape(input)[1]
    weight = g.constant(np.ones(channels)) if weight is None else weight
    bias = g.constant(np.zeros(channels)) if bias is None else bias
    return g.add("batch_norm", input, weight, bias, running_mean, running_var, eps=eps)


# Attention


@row("scaled_dot_product_attention")
def _attention(
    g: Translation,
    query: Ref,
    key: Ref,
    value: Ref,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Ref:
    refuse(dropout_p or is_causal or enable_gqa, "attention with dropout, causal, or in groups")
    return g.add("matmul", _attention_weights(g, query, key, attn_mask, scale), value)


def _attention_weights(g: Translation, query: Ref, key: Ref, mask: Any = None, scale: float | None = None) -> Ref:
    rank = g.rank(key)
    turned = g.permute(key, [*range(rank - 2), rank - 1, rank - 2])
    found = g.add("mul", g.add("matmul", query, turned), scale or 1 / math.sqrt(g.shape(query)[-1]))
    found = found if mask is None else g.add("add", found, mask)
    return g.add("softmax", found, axis=g.rank(found) - 1)


@row("multi_head_attention_forward")
def _multi_head_attention(
    g: Translation,
    query: Ref,
    key: Ref,
    value: Ref,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Ref,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """What nn.MultiheadAttention is: [position, image, channel], or without images."""
    refuse(training and dropout_p, "attention with dropout in training", "call `model.eval()` first")
    others = (bias_k, bias_v, key_padding_mask, static_k, static_v)
    refuse(add_zero_attn or any(x is not None for x in others), "attention with padding masks or further keys")
    refuse(is_causal and attn_mask is None, "attention that is causal without a mask", "give attn_mask")
    size, rank = embed_dim_to_check, g.rank(query)
    if use_separate_proj_weight:
        weights = [q_proj_weight, k_proj_weight, v_proj_weight]
    else:
        weights = [g.cut(in_proj_weight, 0, k * size, size) for k in range(3)]
    heads = []
    for k, (x, weight) in enumerate(zip((query, key, value), weights)):
        projected = linear(g, x, weight, None if in_proj_bias is None else g.cut(in_proj_bias, 0, k * size, size))
        length, images = g.shape(x)[0], g.shape(x)[1] if rank == 3 else 1
        apart = g.reshape(projected, (length, images, num_heads, size // num_heads))
        heads.append(g.permute(apart, (1, 2, 0, 3)))
    mask = attn_mask
    if mask is not None and g.rank(mask) == 3:
        mask = g.reshape(mask, (1 if rank == 2 else g.shape(query)[1], num_heads, *g.shape(mask)[1:]))
    attended = _attention_weights(g, heads[0], heads[1], mask)
    mixed = g.permute(g.add("matmul", attended, heads[2]), (2, 0, 1, 3))
    found = linear(g, g.reshape(mixed, g.shape(query)), out_proj_weight, out_proj_bias)
    if not need_weights:
        return found, None
    attended = g.add("mean", attended, axes=(1,)) if average_attn_weights else attended
    return found, attended if rank == 3 else g.without(attended, 0)
