"""What each operation of torch is in the operator graph: one function a row, called as torch's.

A function takes the `Translation` and the operation's own arguments. Tensors come as `Ref`s, everything else as it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.accelerator.operators.kinds import Shape, size
from derivable.accelerator.operators.operators import Builder
from derivable.core.diagnostics import UnsupportedError


@dataclass(frozen=True)
class Ref:
    """A tensor in the graph, by the name of its operator."""

    name: str


class Refused(UnsupportedError):
    """An operation that no operator is, or not with these arguments; the trace adds where it is."""


class Translation:
    """The operator graph so far."""

    def __init__(self, builder: Builder):
        self.builder = builder
        self._arrays: dict[tuple[str, Shape, bytes], str] = {}

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
        key = (str(array.dtype), array.shape, array.tobytes())
        if name is None and key not in self._arrays:
            self._arrays[key] = self.builder.constant(self.builder.fresh("constant"), array)
        return Ref(self._arrays[key] if name is None else self.builder.constant(name, array))

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

    def cut(self, x: Ref, axis: int, start: int, length: int, step: int = 1) -> Ref:
        """`length` entries of an axis from `start`."""
        shape = self.shape(x)
        if (start, length, step) == (0, shape[axis], 1):
            return x
        starts, lengths, steps = [0] * len(shape), list(shape), [1] * len(shape)
        starts[axis], lengths[axis], steps[axis] = start, length, step
        return self.add("slice", x, starts=tuple(starts), lengths=tuple(lengths), steps=tuple(steps))

    def without(self, x: Ref, axis: int) -> Ref:
        """An axis of one entry less."""
        shape = self.shape(x)
        return self.reshape(x, (*shape[:axis], *shape[axis + 1 :]))

    def axis(self, x: Ref, axis: int, more: int = 0) -> int:
        return axis % (self.rank(x) + more)

    def axes(self, x: Ref, dim: Any) -> tuple[int, ...]:
        """Axes as torch names them, None or none at all for all."""
        if dim is None or dim == () or dim == []:
            return tuple(range(self.rank(x)))
        return tuple(self.axis(x, axis) for axis in ((dim,) if isinstance(dim, int) else dim))


ROWS: dict[str, Callable[..., Any]] = {}


def row(*names: str) -> Callable:
    """Enter a function for operations of torch, by their names."""

    def enter(function: Callable) -> Callable:
        ROWS.update(dict.fromkeys(names, function))
        return function

    return enter


def _pair(value: Any) -> tuple[int, int]:
    first, second = (value, value) if isinstance(value, int) else (*value, *value)[:2]
    return int(first), int(second)


def refuse(condition: Any, message: str, hint: str | None = None) -> None:
    if condition:
        raise Refused(f"{message} has no operator", hint=hint)


# Entry by entry

for _name in ("relu", "tanh", "exp", "log", "sqrt", "abs", "sigmoid", "neg", "floor", "sin", "cos", "erf"):
    ROWS[_name] = lambda g, input, kind=_name, inplace=False: g.add(kind, input)
ROWS["absolute"], ROWS["negative"] = ROWS["abs"], ROWS["neg"]
for _name, _kind in {"mul": "mul", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}.items():
    ROWS[_name] = lambda g, input, other, kind=_kind: g.add(kind, input, other)


@row("add")
def _add(g: Translation, input: Any, other: Any, *, alpha: float = 1) -> Ref:
    return g.add("add", input, other if alpha == 1 else g.add("mul", other, alpha))


@row("sub", "subtract")
def _sub(g: Translation, input: Any, other: Any, *, alpha: float = 1) -> Ref:
    return g.add("sub", input, other if alpha == 1 else g.add("mul", other, alpha))


@row("rsub")
def _rsub(g: Translation, input: Any, other: Any) -> Ref:
    return g.add("sub", other, input)


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


@row("square")
def _square(g: Translation, input: Ref) -> Ref:
    return g.add("mul", input, input)


@row("reciprocal")
def _reciprocal(g: Translation, input: Ref) -> Ref:
    return g.add("div", 1.0, input)


@row("rsqrt")
def _rsqrt(g: Translation, input: Ref) -> Ref:
    return g.add("div", 1.0, g.add("sqrt", input))


@row("clamp", "clip", "hardtanh")
def _clamp(g: Translation, input: Ref, min: Any = None, max: Any = None, inplace: bool = False, **named: Any) -> Ref:
    low, high = named.get("min_val", min), named.get("max_val", max)
    if isinstance(low, Ref) or isinstance(high, Ref):
        raised = input if low is None else g.add("maximum", input, low)
        return raised if high is None else g.add("minimum", raised, high)
    return g.add("clamp", input, low=None if low is None else float(low), high=None if high is None else float(high))


@row("relu6")
def _relu6(g: Translation, input: Ref, inplace: bool = False) -> Ref:
    return g.add("clamp", input, low=0.0, high=6.0)


@row("clamp_min")
def _clamp_min(g: Translation, input: Ref, min: Any) -> Ref:
    return _clamp(g, input, min)


@row("clamp_max")
def _clamp_max(g: Translation, input: Ref, max: Any) -> Ref:
    return _clamp(g, input, None, max)


@row("softmax")
def _softmax(g: Translation, input: Ref, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Ref:
    refuse(dim is None, "softmax without a dim", "name the axis")
    return g.add("softmax", input, axis=g.axis(input, dim))


@row("log_softmax")
def _log_softmax(g: Translation, input: Ref, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Ref:
    refuse(dim is None, "log_softmax without a dim", "name the axis")
    return g.add("log_softmax", input, axis=g.axis(input, dim))


@row("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
def _dropout(g: Translation, input: Ref, p: float = 0.5, training: bool = True, inplace: bool = False) -> Ref:
    refuse(training and p, "dropout in training", "call `model.eval()` first")
    return input


@row("contiguous", "clone", "detach", "cpu", "cuda", "requires_grad", "positive", "pos", "alias")
def _same(g: Translation, input: Ref, *rest: Any, **more: Any) -> Ref:
    return input


# Over axes


@row("sum")
def _sum(g: Translation, input: Ref, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Ref:
    axes = g.axes(input, dim)
    input = g.add("mul", input, 1.0) if g.dtype(input) == "bool" else input  # truth values are counted
    return g.add("sum", input, axes=axes, keepdims=keepdim) if axes else input


@row("mean")
def _mean(g: Translation, input: Ref, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Ref:
    return g.add("mean", input, axes=g.axes(input, dim), keepdims=keepdim)


@row("prod")
def _prod(g: Translation, input: Ref, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Ref:
    return g.add("prod", input, axes=g.axes(input, dim), keepdims=keepdim)


@row("amax")
def _amax(g: Translation, input: Ref, dim: Any = (), keepdim: bool = False) -> Ref:
    return g.add("max", input, axes=g.axes(input, dim), keepdims=keepdim)


@row("amin")
def _amin(g: Translation, input: Ref, dim: Any = (), keepdim: bool = False) -> Ref:
    return g.add("min", input, axes=g.axes(input, dim), keepdims=keepdim)


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


@row("argmin")
def _argmin(g: Translation, input: Ref, dim: int | None = None, keepdim: bool = False) -> Ref:
    return _argmax(g, g.add("neg", input), dim, keepdim)


@row("logsumexp")
def _logsumexp(g: Translation, input: Ref, dim: Any, keepdim: bool = False) -> Ref:
    axes = g.axes(input, dim)
    largest = g.add("max", input, axes=axes, keepdims=True)
    total = g.add("sum", g.add("exp", g.add("sub", input, largest)), axes=axes, keepdims=True)
    found = g.add("add", g.add("log", total), largest)
    kept = tuple(length for axis, length in enumerate(g.shape(input)) if axis not in axes)
    return found if keepdim else g.reshape(found, kept)


# Products of matrices


@row("linear")
def linear(g: Translation, input: Ref, weight: Ref, bias: Any = None) -> Ref:
    return g.add("linear", input, weight, *(() if bias is None else (bias,)))


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
    dilation, kernel = _pair(dilation), g.shape(weight)[2:]
    if padding == "same":
        total = [spread * (taps - 1) for spread, taps in zip(dilation, kernel)]
        refuse(any(pad % 2 for pad in total), "padding='same' of an even kernel", "pad both sides alike")
        padding = [pad // 2 for pad in total]
    padding = (0, 0) if padding == "valid" else _pair(padding)
    is_single = g.rank(input) == 3
    x = g.reshape(input, (1, *g.shape(input))) if is_single else input
    operands = (x, weight) if bias is None else (x, weight, bias)
    found = g.add("conv2d", *operands, stride=_pair(stride), padding=padding, dilation=dilation, groups=groups)
    return g.without(found, 0) if is_single else found


@row("conv1d")
def _conv1d(
    g: Translation,
    input: Ref,
    weight: Ref,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Ref:
    *batch, channels, length = g.shape(input)
    output, inner, taps = g.shape(weight)
    step, spread = _pair(stride)[0], _pair(dilation)[0]
    edge = padding if isinstance(padding, str) else (0, _pair(padding)[0])
    found = _conv2d(
        g,
        g.reshape(input, (math.prod(batch), channels, 1, length)),
        g.reshape(weight, (output, inner, 1, taps)),
        *(bias, (1, step), edge, (1, spread), groups),
    )
    return g.reshape(found, (*batch, output, g.shape(found)[-1]))


@row("matmul", "mm", "bmm", "dot", "mv")
def _matmul(g: Translation, input: Ref, other: Ref) -> Ref:
    a, b = g.shape(input), g.shape(other)
    left = g.reshape(input, (1, *a)) if len(a) == 1 else input
    right = g.reshape(other, (*b, 1)) if len(b) == 1 else other
    found = g.add("matmul", left, right)
    found = g.without(found, g.rank(found) - 1) if len(b) == 1 else found
    return g.without(found, g.rank(found) - (1 if len(b) == 1 else 2)) if len(a) == 1 else found


@row("addmm", "baddbmm")
def _addmm(g: Translation, input: Ref, mat1: Ref, mat2: Ref, *, beta: float = 1, alpha: float = 1) -> Ref:
    found = g.add("matmul", mat1, mat2)
    found = found if alpha == 1 else g.add("mul", found, alpha)
    return g.add("add", found, input if beta == 1 else g.add("mul", input, beta))


@row("outer")
def _outer(g: Translation, input: Ref, vec2: Ref) -> Ref:
    return g.add("mul", g.reshape(input, (*g.shape(input), 1)), vec2)


@row("einsum")
def _einsum(g: Translation, equation: str, *operands: Any) -> Ref:
    """Two operands as one product of matrices, axes that only one has being summed before; one as sum and permute."""
    refs = operands[0] if operands and isinstance(operands[0], (list, tuple)) else operands
    left, arrow, result = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if not arrow:
        letters = left.replace(",", "")
        result = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    refuse(any(len(set(part)) < len(part) for part in names), f"einsum {equation!r}", "no diagonals")
    lengths = {a: n for part, x in zip(names, refs) for a, n in zip(part, g.shape(x))}
    parts = list(zip(refs, names))
    for k, (x, part) in enumerate(parts):
        others = result + "".join(names[:k] + names[k + 1 :])
        lonely = tuple(i for i, a in enumerate(part) if a not in others)
        if lonely:
            kept = "".join(a for a in part if a in others)
            parts[k] = (g.add("sum", x, axes=lonely), kept)
    if len(parts) == 1:
        x, part = parts[0]
        return g.permute(x, [part.index(a) for a in result])
    (x, a), (y, b) = parts
    batch = [c for c in a if c in b and c in result]
    inner = [c for c in a if c in b and c not in result]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]

    def matrix(x: Ref, part: str, groups: Sequence[Sequence[str]]) -> Ref:
        ordered = g.permute(x, [part.index(c) for c in (*batch, *itertools.chain(*groups))])
        flat = [math.prod(lengths[c] for c in group) for group in groups]
        return g.reshape(ordered, (*(lengths[c] for c in batch), *flat))

    found = g.add("matmul", matrix(x, a, (rows, inner)), matrix(y, b, (inner, columns)))
    order = [*batch, *rows, *columns]
    found = g.reshape(found, [lengths[c] for c in order])
    return g.permute(found, [order.index(c) for c in result])


# Over windows


@row("max_pool2d")
def _max_pool2d(
    g: Translation,
    input: Ref,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Ref:
    refuse(return_indices, "max_pool2d with return_indices")
    kernel = _pair(kernel_size)
    step = _pair(stride) if stride else kernel
    return g.add("max_pool2d", input, kernel=kernel, stride=step, padding=_pair(padding), dilation=_pair(dilation))


@row("avg_pool2d")
def _avg_pool2d(
    g: Translation,
    input: Ref,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Ref:
    kernel = _pair(kernel_size)
    at = {"kernel": kernel, "stride": _pair(stride) if stride else kernel, "padding": _pair(padding)}
    return g.add("avg_pool2d", input, **at)


def _of_rows(kind: str) -> Callable:
    """The operation on windows of one axis, by that on windows of two."""

    def translate(g: Translation, input: Ref, kernel_size: Any, stride: Any = None, *rest: Any, **named: Any) -> Ref:
        def pair(value: Any, other: int) -> Any:
            return (
                (other, _pair(value)[1]) if not isinstance(value, bool) and isinstance(value, (int, tuple)) else value
            )

        *before, length = g.shape(input)
        strides = pair(kernel_size if stride is None or stride == () else stride, 1)
        rest = tuple(pair(value, 0 if k == 0 else 1) for k, value in enumerate(rest))
        named = {name: pair(value, {"padding": 0, "dilation": 1}.get(name, 1)) for name, value in named.items()}
        found = ROWS[kind](g, g.reshape(input, (*before, 1, length)), pair(kernel_size, 1), strides, *rest, **named)
        return g.without(found, g.rank(found) - 2)

    return translate


ROWS["max_pool1d"], ROWS["avg_pool1d"] = _of_rows("max_pool2d"), _of_rows("avg_pool2d")


def _adaptive(kind: str, whole: str) -> Callable:
    def translate(g: Translation, input: Ref, output_size: Any, return_indices: bool = False) -> Ref:
        shape = g.shape(input)
        wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
        output = [shape[-2 + k] if n is None else n for k, n in enumerate(wanted)]
        if output == [1, 1]:
            return g.add(whole, input, axes=(len(shape) - 2, len(shape) - 1), keepdims=True)
        kernel = (shape[-2] // output[0], shape[-1] // output[1])
        return g.add(kind, input, kernel=kernel, stride=kernel)

    return translate


ROWS["adaptive_avg_pool2d"] = _adaptive("avg_pool2d", "mean")
ROWS["adaptive_max_pool2d"] = _adaptive("max_pool2d", "max")
