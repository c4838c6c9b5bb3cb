"""What each operation of torch is in the operator graph: one function a row, called as torch's.

A function takes the `Translation` and the operation's own arguments. Tensors come as `Ref`s, everything else as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from derivable.accelerator.operators.kinds import Shape, size
from derivable.accelerator.operators.operators import Builder
from derivable.accelerator.trace.decompositions import Refused, axes_of, each_axis, edges, refuse


@dataclass(frozen=True)
class Ref:
    """A tensor in the graph, by the name of its operator."""

    name: str


class Translation:
    """The operator graph so far.

    result  the shape of what the operation at hand gives
    """

    def __init__(self, builder: Builder):
        self.builder, self.result = builder, ()
        self._arrays: dict[tuple[str, Shape, bytes], str] = {}
        self._named: dict[str, str] = {}  # of parameters and buffers, the operator of each

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> Ref:
        return Ref(self.builder.add(kind, *(self.ref(value).name for value in inputs), **attributes))

    def ref(self, value: Any) -> Ref:
        """The operator of a tensor; numbers become constants."""
        if isinstance(value, Ref):
            return value
        if not isinstance(value, (int, float)):
            raise Refused(f"an operand is {value!r}, neither a tensor nor a number")
        return Ref(self.builder.scalar(float(value)))

    def constant(self, array: np.ndarray, name: str | None = None) -> Ref:
        """A constant; equal ones without a name are one."""
        if name is not None:
            if name not in self._named:
                self._named[name] = self.builder.constant(self.builder.free(name), array)
            return Ref(self._named[name])
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._arrays:
            self._arrays[key] = self.builder.constant(self.builder.fresh("constant"), array)
        return Ref(self._arrays[key])

    def shape(self, x: Ref) -> Shape:
        return self.builder.shape(x.name)

    def rank(self, x: Ref) -> int:
        return len(self.shape(x))

    def dtype(self, x: Ref) -> str:
        return self.builder.operators[x.name].dtype

    def array(self, x: Ref) -> np.ndarray | None:
        """The numbers of a constant, None for what depends on inputs."""
        return self.builder.constants.get(x.name)

    def reshape(self, x: Ref, shape: Sequence[int]) -> Ref:
        before = self.builder.operators[x.name]
        if before.kind == "reshape":
            x = Ref(before.inputs[0])
        return x if self.shape(x) == tuple(shape) else self.add("reshape", x, shape=tuple(map(int, shape)))

    def permute(self, x: Ref, order: Sequence[int]) -> Ref:
        return x if list(order) == list(range(self.rank(x))) else self.add("permute", x, order=tuple(order))

    def without(self, x: Ref, axis: int) -> Ref:
        """An axis of one entry less."""
        shape = self.shape(x)
        return self.reshape(x, (*shape[:axis], *shape[axis + 1 :]))

    def axis(self, x: Ref, axis: int, more: int = 0) -> int:
        return axis % (self.rank(x) + more)

    def axes(self, x: Ref, dim: Any) -> tuple[int, ...]:
        """Axes as torch names them, None or none at all for all."""
        return axes_of(self.rank(x), dim)


ROWS: dict[Any, Callable[..., Any]] = {}


def row(*keys: Any) -> Callable:
    """Enter a function for operations of torch by their names, or for operations of `derivable.vsa`."""

    def enter(function: Callable) -> Callable:
        ROWS.update(dict.fromkeys(keys, function))
        return function

    return enter


# Entry by entry

for _name in ("relu", "tanh", "exp", "log", "sqrt", "abs", "sigmoid", "neg", "floor", "sin", "cos", "erf"):
    ROWS[_name] = lambda g, input, kind=_name, inplace=False: g.add(kind, input)
ROWS["absolute"], ROWS["negative"] = ROWS["abs"], ROWS["neg"]
for _name, _kind in {"mul": "mul", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}.items():
    ROWS[_name] = lambda g, input, other, kind=_kind: g.add(kind, input, other)
for _name, _kind in {"add": "add", "sub": "sub", "subtract": "sub"}.items():
    ROWS[_name] = lambda g, input, other, *, alpha=1, kind=_kind: g.add(
        kind, input, other if alpha == 1 else g.add("mul", other, alpha)
    )
ROWS |= {
    "gelu": lambda g, input, approximate="none": g.add("gelu", input, approximate=approximate),
    "where": lambda g, condition, input, other: g.add("where", condition, input, other),
    "linear": lambda g, input, weight, bias=None: g.add("linear", input, weight, *(() if bias is None else (bias,))),
    "embedding": lambda g, input, weight, padding_idx=None, *rest, **more: g.add("take", weight, input),
}


@row("div", "truediv", "divide", "true_divide")
def divide(g: Translation, input: Any, other: Any) -> Ref:
    if isinstance(other, (int, float)) and other:
        return g.add("mul", input, 1 / other)
    return g.add("div", input, other)


@row("pow", "float_power")
def _pow(g: Translation, input: Any, exponent: Any) -> Ref:
    """Products for whole exponents; others by the logarithm, of numbers above zero."""
    if isinstance(input, (int, float)):
        refuse(input <= 0, f"a power of {input}", "of numbers above zero")
        return g.add("exp", g.add("mul", exponent, math.log(input)))
    if exponent == 0.5:
        return g.add("sqrt", input)
    if isinstance(exponent, Ref) or exponent != int(exponent):
        return g.add("exp", g.add("mul", g.add("log", input), exponent))
    refuse(not 1 <= abs(exponent) <= 64, f"the power {exponent}", "whole exponents from 1 to 64, and their negatives")
    found = None
    for bit in bin(abs(int(exponent)))[2:]:  # squared for every digit, times the number for every 1
        found = found if found is None else g.add("mul", found, found)
        if bit == "1":
            found = input if found is None else g.add("mul", found, input)
    return g.add("div", 1.0, found) if exponent < 0 else g.ref(found)


@row("clamp", "clip")
def _clamp(g: Translation, input: Ref, min: Any = None, max: Any = None) -> Ref:
    if isinstance(min, Ref) or isinstance(max, Ref):
        raised = input if min is None else g.add("maximum", input, min)
        return raised if max is None else g.add("minimum", raised, max)
    return g.add("clamp", input, low=None if min is None else float(min), high=None if max is None else float(max))


@row("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
def _dropout(g: Translation, input: Ref, p: float = 0.5, training: bool = True, inplace: bool = False) -> Ref:
    refuse(training and p, "dropout in training", "call `model.eval()` first")
    return input


@row("contiguous", "clone", "detach", "cpu", "cuda", "requires_grad", "positive", "pos", "alias")
def _same(g: Translation, input: Ref, *rest: Any, **more: Any) -> Ref:
    return input


# Comparisons, which are 0 and 1, and what follows from them


def _not(g: Translation, input: Any) -> Ref:
    return g.add("equal", input, 0.0)


ROWS |= {
    "gt": lambda g, input, other: g.add("greater", input, other),
    "lt": lambda g, input, other: g.add("greater", other, input),
    "le": lambda g, input, other: _not(g, g.add("greater", input, other)),
    "ge": lambda g, input, other: _not(g, g.add("greater", other, input)),
    "eq": lambda g, input, other: g.add("equal", input, other),
    "ne": lambda g, input, other: _not(g, g.add("equal", input, other)),
}
ROWS["greater"], ROWS["greater_equal"] = ROWS["gt"], ROWS["ge"]
ROWS["less"], ROWS["less_equal"], ROWS["not_equal"] = ROWS["lt"], ROWS["le"], ROWS["ne"]


def _truth(g: Translation, x: Any) -> Ref:
    """What is not zero."""
    x = g.ref(x)
    return x if g.dtype(x) == "bool" else ROWS["ne"](g, x, 0.0)


def _of_bits(logical: Callable) -> Callable:
    def translate(g: Translation, *operands: Any) -> Ref:
        is_number = any(g.dtype(g.ref(x)) != "bool" for x in operands)
        refuse(is_number, "a bitwise operation on numbers", "truth values have them")
        return logical(g, *operands)

    return translate


for _name, _logical in {
    "and": lambda g, input, other: g.add("minimum", _truth(g, input), _truth(g, other)),
    "or": lambda g, input, other: g.add("maximum", _truth(g, input), _truth(g, other)),
    "xor": lambda g, input, other: ROWS["ne"](g, _truth(g, input), _truth(g, other)),
    "not": _not,
}.items():
    ROWS[f"logical_{_name}"] = _logical
    ROWS[f"bitwise_{_name}"] = ROWS["invert" if _name == "not" else _name] = _of_bits(_logical)


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

# Over axes


def _softmax(kind: str) -> Callable:
    def translate(g: Translation, input: Ref, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Ref:
        refuse(dim is None, f"{kind} without a dim", "name the axis")
        return g.add(kind, input, axis=g.axis(input, dim))

    return translate


def _reduction(kind: str) -> Callable:
    def translate(g: Translation, input: Ref, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Ref:
        return g.add(kind, input, axes=g.axes(input, dim), keepdims=keepdim)

    return translate


ROWS |= {kind: _softmax(kind) for kind in ("softmax", "log_softmax")}
for _name, _kind in {"mean": "mean", "prod": "prod", "amax": "max", "amin": "min"}.items():
    ROWS[_name] = _reduction(_kind)


@row("sum")
def _sum(g: Translation, input: Ref, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Ref:
    axes = g.axes(input, dim)
    input = g.add("mul", input, 1.0) if g.dtype(input) == "bool" else input  # truth values are counted
    return g.add("sum", input, axes=axes, keepdims=keepdim) if axes else input


def _extreme(kind: str, elementwise: str) -> Callable:
    def translate(g: Translation, input: Ref, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
        if isinstance(dim, Ref) or other is not None:
            return g.add(elementwise, input, dim if other is None else other)
        if dim is None:
            return g.add(kind, input, axes=g.axes(input, None))
        values = g.add(kind, input, axes=g.axes(input, dim), keepdims=keepdim)
        places = input if kind == "max" else g.add("neg", input)
        return values, g.add("argmax", places, axis=g.axis(input, dim), keepdims=keepdim)

    return translate


ROWS["max"], ROWS["min"] = _extreme("max", "maximum"), _extreme("min", "minimum")


@row("argmax")
def _argmax(g: Translation, input: Ref, dim: int | None = None, keepdim: bool = False) -> Ref:
    if dim is None:
        return g.add("argmax", g.reshape(input, (size(g.shape(input)),)), axis=0)
    return g.add("argmax", input, axis=g.axis(input, dim), keepdims=keepdim)


# Products of matrices


@row("conv2d")
def _conv2d(
    g: Translation,
    input: Ref,
    weight: Ref,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Ref:
    dilation = each_axis(dilation, 2)
    padding = edges(padding, g.shape(weight)[2:], dilation)
    is_single = g.rank(input) == 3
    x = g.reshape(input, (1, *g.shape(input))) if is_single else input
    operands = (x, weight) if bias is None else (x, weight, bias)
    found = g.add("conv2d", *operands, stride=each_axis(stride, 2), padding=padding, dilation=dilation, groups=groups)
    return g.without(found, 0) if is_single else found


@row("matmul", "mm", "bmm", "dot", "mv")
def _matmul(g: Translation, input: Ref, other: Ref) -> Ref:
    a, b = g.shape(input), g.shape(other)
    left = g.reshape(input, (1, *a)) if len(a) == 1 else input
    right = g.reshape(other, (*b, 1)) if len(b) == 1 else other
    found = g.add("matmul", left, right)
    found = g.without(found, g.rank(found) - 1) if len(b) == 1 else found
    return g.without(found, g.rank(found) - (1 if len(b) == 1 else 2)) if len(a) == 1 else found


@row("max_pool2d")
def _max_pool2d(
    g: Translation, input: Ref, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Ref:  # fmt: skip
    refuse(return_indices, "max_pool2d with return_indices")
    return _pool(g, "max_pool2d", input, kernel_size, stride, padding, dilation=each_axis(dilation, 2))


@row("avg_pool2d")
def _avg_pool2d(
    g: Translation, input: Ref, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **more: Any
) -> Ref:
    return _pool(g, "avg_pool2d", input, kernel_size, stride, padding)


def _pool(g: Translation, kind: str, x: Ref, kernel: Any, stride: Any, padding: Any, **more: Any) -> Ref:
    sizes = {"kernel": kernel, "stride": stride or kernel, "padding": padding}
    return g.add(kind, x, **{name: each_axis(value, 2) for name, value in sizes.items()}, **more)


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
