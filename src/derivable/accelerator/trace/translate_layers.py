"""What activations, choices and norms are in the operator graph; `translate` says how rows are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from derivable.accelerator.operators.kinds import size
from derivable.accelerator.trace.translate import ROWS, Ref, Translation, refuse, row

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
def _masked_fill(g: Translation, input: Ref, mask: Any, value: Any) -> Ref:
    array = g.array(mask) if isinstance(mask, Ref) else None
    if array is None or isinstance(value, Ref):
        return g.add("where", mask, value, input)
    if np.isinf(value):  # products with zero would be none
        return g.add("add", input, g.constant(np.where(array, float(value), 0.0)))
    kept = g.add("mul", input, g.constant(np.where(array, 0.0, 1.0)))
    return g.add("add", kept, g.constant(np.where(array, float(value), 0.0)))


# Comparisons, which are 0 and 1, and what follows from them

for _name, _kind, _is_turned, _is_other in (
    ("gt", "greater", False, False),
    ("lt", "greater", True, False),
    ("le", "greater", False, True),
    ("ge", "greater", True, True),
    ("eq", "equal", False, False),
    ("ne", "equal", False, True),
):

    def _compare(
        g: Translation,
        input: Any,
        other: Any,
        kind: str = _kind,
        is_turned: bool = _is_turned,
        is_other: bool = _is_other,
    ) -> Ref:
        found = g.add(kind, *((other, input) if is_turned else (input, other)))
        return g.add("equal", found, 0.0) if is_other else found

    ROWS[_name] = _compare
for _name, _long in {
    "gt": "greater",
    "lt": "less",
    "ge": "greater_equal",
    "le": "less_equal",
    "ne": "not_equal",
}.items():
    ROWS[_long] = ROWS[_name]


def _truth(g: Translation, x: Any) -> Ref:
    """What is not zero."""
    x = g.ref(x)
    return x if g.dtype(x) == "bool" else ROWS["ne"](g, x, 0.0)


def _bits(g: Translation, *operands: Any) -> None:
    refuse(
        any(g.dtype(g.ref(x)) != "bool" for x in operands), "a bitwise operation on numbers", "truth values have them"
    )


@row("logical_and")
def _logical_and(g: Translation, input: Any, other: Any) -> Ref:
    return g.add("minimum", _truth(g, input), _truth(g, other))


@row("logical_or")
def _logical_or(g: Translation, input: Any, other: Any) -> Ref:
    return g.add("maximum", _truth(g, input), _truth(g, other))


@row("logical_xor")
def _logical_xor(g: Translation, input: Any, other: Any) -> Ref:
    return ROWS["ne"](g, _truth(g, input), _truth(g, other))


@row("logical_not")
def _logical_not(g: Translation, input: Any) -> Ref:
    return g.add("equal", input, 0.0)


def _of_bits(logical: Callable) -> Callable:
    def translate(g: Translation, *operands: Any) -> Ref:
        _bits(g, *operands)
        return logical(g, *operands)

    return translate


for _names, _logical in {
    ("and", "bitwise_and"): _logical_and,
    ("or", "bitwise_or"): _logical_or,
    ("xor", "bitwise_xor"): _logical_xor,
    ("invert", "bitwise_not"): _logical_not,
}.items():
    ROWS.update(dict.fromkeys(_names, _of_bits(_logical)))


@row("where")
def _where(g: Translation, condition: Any, input: Any, other: Any) -> Ref:
    return g.add("where", condition, input, other)


@row("to", "type", "type_as")
def _to(g: Translation, input: Ref, *rest: Any, **more: Any) -> Ref:
    for value in (*rest, *more.values()):
        wanted = g.dtype(value) if isinstance(value, Ref) else value
        if isinstance(wanted, torch.dtype):
            wanted = str(wanted).removeprefix("torch.")
        if isinstance(wanted, str) and wanted not in ("cpu",) and not wanted.startswith("cuda"):
            return _converted(g, input, wanted)
    return input


def _converted(g: Translation, x: Ref, wanted: str) -> Ref:
    """Numbers of another sort: what is cut off, and what is not zero."""
    is_float = g.dtype(x).startswith(("float", "bfloat"))
    if wanted == "bool":
        return _truth(g, x)
    if wanted.startswith(("float", "bfloat")):
        return x if is_float else g.add("mul", x, 1.0)
    refuse(not wanted.startswith(("int", "uint", "long")), f"a conversion to {wanted}")
    if not is_float or g.builder.operators[x.name].kind == "floor":
        return x
    above, below = (g.add("floor", g.add("relu", part)) for part in (x, g.add("neg", x)))
    return g.add("sub", above, below)


for _wanted, _names in {
    "float": ("float", "double", "half", "bfloat16"),
    "int": ("long", "int", "short"),
    "bool": ("bool",),
}.items():
    ROWS.update(dict.fromkeys(_names, lambda g, input, *rest, wanted=_wanted, **more: _converted(g, input, wanted)))

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
