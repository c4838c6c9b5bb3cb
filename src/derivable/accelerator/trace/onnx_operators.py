"""What operators of ONNX are in functions of torch, by the names of the standard.

Source: ONNX Operator Schemas, https://onnx.ai/onnx/operators/ (versions 11 to 23 of the operators).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from derivable.accelerator.trace.decompositions import Refused, is_traced

# Numbers of `TensorProto.DataType`: those of integers, and of truth values. All others are floats.
_INTEGERS = {2, 3, 4, 5, 6, 7, 12, 13}
_BOOL = 9


@dataclass(frozen=True)
class Call:
    """A node with the values of its inputs: tensors, those of a trace too, and None for those that are left out.
    `version` is that of the standard's operators which the file is written for."""

    operator: str
    inputs: Sequence[Any]
    attributes: dict[str, Any]
    num_outputs: int = 1
    version: int = 23

    def x(self, k: int = 0) -> Any:
        """An input that has to be there."""
        value = self.optional(k)
        if value is None:
            raise Refused(f"input {k} is left out")
        return value

    def optional(self, k: int) -> Any:
        return self.inputs[k] if k < len(self.inputs) else None

    def static(self, k: int, name: str = "", default: Any = None) -> Any:
        """Numbers that no input of the model changes: an input of the node, its attribute `name`, or the default."""
        value = self.optional(k)
        if value is None:
            return self.attributes.get(name, default) if name else default
        if is_traced(value):
            raise Refused(
                f"its input {k} depends on the inputs of the model",
                hint="shapes, axes and bounds have to be known: export with shapes that are numbers",
            )
        return value.tolist() if isinstance(value, torch.Tensor) else value

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)


OPERATORS: dict[str, Callable[[Call], Any]] = {}


def operator(*names: str) -> Callable:
    def enter(function: Callable[[Call], Any]) -> Callable[[Call], Any]:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return enter


# Entry by entry

_ONE: dict[str, Callable[[Any], Any]] = {
    "Neg": lambda x: -x,
    "Abs": torch.abs,
    "Sqrt": torch.sqrt,
    "Exp": torch.exp,
    "Log": torch.log,
    "Reciprocal": lambda x: 1 / x,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Round": torch.round,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Tanh": torch.tanh,
    "Sigmoid": torch.sigmoid,
    "Relu": torch.relu,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Mish": F.mish,
    "HardSwish": F.hardswish,
    "Erf": torch.erf,
    "Not": torch.logical_not,
    "Identity": lambda x: x,
}
for _name, _function in _ONE.items():
    OPERATORS[_name] = lambda call, function=_function: function(call.x())


def _divided(x: Any, y: Any) -> Any:
    """Integers are divided towards zero."""
    if x.is_floating_point() or y.is_floating_point():
        return x / y
    return torch.div(x, y, rounding_mode="trunc")


_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": _divided,
    "Pow": lambda x, y: x ** (y.item() if isinstance(y, torch.Tensor) and y.numel() == 1 else y),
    "Equal": lambda x, y: x == y,
    "Greater": lambda x, y: x > y,
    "Less": lambda x, y: x < y,
    "GreaterOrEqual": lambda x, y: x >= y,
    "LessOrEqual": lambda x, y: x <= y,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "MatMul": torch.matmul,
}
for _name, _pair in _TWO.items():
    OPERATORS[_name] = lambda call, function=_pair: function(call.x(0), call.x(1))

for _name, _pair in {"Max": torch.maximum, "Min": torch.minimum, "Sum": torch.add}.items():

    def _folded(call: Call, function: Callable = _pair) -> Any:
        result = call.x(0)
        for other in call.inputs[1:]:
            result = function(result, other)
        return result

    OPERATORS[_name] = _folded

OPERATORS["Mean"] = lambda call: OPERATORS["Sum"](call) / len(call.inputs)
OPERATORS["Where"] = lambda call: torch.where(call.x(0), call.x(1), call.x(2))
OPERATORS["LeakyRelu"] = lambda call: F.leaky_relu(call.x(), call.get("alpha", 0.01))
OPERATORS["Elu"] = lambda call: F.elu(call.x(), call.get("alpha", 1.0))
OPERATORS["PRelu"] = lambda call: torch.where(call.x() > 0, call.x(), call.x() * call.x(1))
OPERATORS["HardSigmoid"] = lambda call: (call.x() * call.get("alpha", 0.2) + call.get("beta", 0.5)).clamp(0, 1)
OPERATORS["Gelu"] = lambda call: F.gelu(call.x(), approximate=call.get("approximate", "none"))
OPERATORS["Mod"] = lambda call: (torch.fmod if call.get("fmod") else torch.remainder)(call.x(0), call.x(1))


@operator("Dropout")
def _dropout(call: Call) -> Any:
    if call.static(2, default=False):
        raise Refused("entries that are dropped at random", hint="export the model in eval()")
    return call.x() if call.num_outputs == 1 else (call.x(), torch.ones(call.x().shape, dtype=torch.bool))


@operator("Selu")
def _selu(call: Call) -> Any:
    alpha, gamma = call.get("alpha", 1.67326319217681884765625), call.get("gamma", 1.05070102214813232421875)
    return gamma * F.elu(call.x(), alpha)


@operator("Celu")
def _celu(call: Call) -> Any:
    return F.celu(call.x(), call.get("alpha", 1.0))


@operator("ThresholdedRelu")
def _thresholded(call: Call) -> Any:
    return torch.where(call.x() > call.get("alpha", 1.0), call.x(), torch.zeros(()))


@operator("Clip")
def _clip(call: Call) -> Any:
    low, high = call.static(1, "min"), call.static(2, "max")
    return call.x().clamp(low, high) if low is not None or high is not None else call.x()


@operator("Cast")
def _cast(call: Call) -> Any:
    """Formats of floats are those of the design."""
    to = call.get("to")
    if to == _BOOL:
        return call.x() != 0
    if to in _INTEGERS:
        return call.x().to(torch.int64)
    return call.x() if call.x().is_floating_point() else call.x().to(torch.float64)


# Products


@operator("Gemm")
def _gemm(call: Call) -> Any:
    a = call.x(0).transpose(0, 1) if call.get("transA") else call.x(0)
    b = call.x(1).transpose(0, 1) if call.get("transB") else call.x(1)
    alpha, beta, c = call.get("alpha", 1.0), call.get("beta", 1.0), call.optional(2)
    if alpha == beta == 1 and call.get("transB") and (c is None or list(c.shape) == [b.shape[1]]):
        return F.linear(a, call.x(1), c)
    product = a @ b
    product = product if alpha == 1 else alpha * product
    return product if c is None else product + (c if beta == 1 else beta * c)


@operator("Conv", "ConvTranspose")
def _convolution(call: Call) -> Any:
    x, weight, rank = call.x(0), call.x(1), call.x(0).ndim - 2
    stride, dilation = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    is_transposed = call.operator == "ConvTranspose"
    names = ("conv_transpose" if is_transposed else "conv") + f"{rank}d"
    function = getattr(F, names, None)
    if function is None:
        raise Refused(f"a convolution of {rank} axes")
    kernel = list(weight.shape[2:])
    before, after = _padding(call, list(x.shape[2:]), kernel, stride, dilation)
    groups = call.get("group", 1)
    if is_transposed:
        more = call.get("output_padding", [0] * rank)
        if call.get("output_shape") is not None or call.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            raise Refused("output_shape and auto_pad of a transposed convolution", hint="export with pads")
        # What is cut behind more than before is cut from what comes out.
        result = function(x, weight, call.optional(2), stride, before, more, groups, dilation)
        for axis, (first, last) in enumerate(zip(before, after)):
            if last > first:
                result = result.narrow(2 + axis, 0, result.shape[2 + axis] - (last - first))
            elif last < first:
                raise Refused("pads of a transposed convolution with less at the end")
        return result
    if before != after:
        x, before = F.pad(x, torch_pads(before, after)), [0] * rank
    return function(x, weight, call.optional(2), stride, before, dilation, groups)


def _padding(
    call: Call, sizes: list[int], kernel: list[int], stride: list[int], dilation: list[int]
) -> tuple[list[int], list[int]]:
    """Zeros before and behind, along each axis."""
    kind = call.get("auto_pad", "NOTSET")
    rank = len(sizes)
    if kind in ("NOTSET", "VALID"):
        pads = call.get("pads", [0] * 2 * rank) if kind == "NOTSET" else [0] * 2 * rank
        return pads[:rank], pads[rank:]
    before, after = [], []
    for size, width, step, gap in zip(sizes, kernel, stride, dilation):
        total = max((math.ceil(size / step) - 1) * step + (width - 1) * gap + 1 - size, 0)
        less, more = total // 2, total - total // 2
        before.append(less if kind == "SAME_UPPER" else more)
        after.append(more if kind == "SAME_UPPER" else less)
    return before, after


def torch_pads(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """In torch's order: the last axis first."""
    return [pad for pair in reversed(list(zip(before, after))) for pad in pair]


@operator("Einsum")
def _einsum(call: Call) -> Any:
    return torch.einsum(call.get("equation"), *call.inputs)


# Steps one after the other

# Rows of the gates as torch has them, in the order of ONNX: (i, o, f, c) and (z, r, h).
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}


@operator("LSTM", "GRU", "RNN")
def _recurrent(call: Call) -> Any:
    """Layers of torch, whose gates stand in another order."""
    x, weights, recurrent, biases, lengths, before = (call.optional(k) for k in range(6))
    num_directions, size = recurrent.shape[0], recurrent.shape[2]
    direction, gates = call.get("direction", "forward"), _GATES[call.operator]
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[call.operator]
    others = [
        (lengths is not None, "lengths of sequences"),
        (call.get("layout", 0), "a batch in front"),
        (call.get("clip") is not None, "sums that are clipped"),
        (call.get("activations", usual * num_directions) != usual * num_directions, "other activations"),
        (direction == "reverse", "steps from the end"),
        (call.operator == "GRU" and not call.get("linear_before_reset"), "a reset before the product"),
        (call.optional(7) is not None, "peepholes"),
        (call.get("input_forget"), "gates that are one"),
    ]
    for is_so, what in others:
        if is_so:
            raise Refused(what, hint="export a layer of torch, of one direction or of both")

    def rows(matrix: Any) -> Any:
        parts = matrix.reshape(len(gates), size, *matrix.shape[1:])
        return parts[list(gates)].reshape(matrix.shape)

    parameters = []
    for k in range(num_directions):
        parameters += [rows(weights[k]), rows(recurrent[k])]
        if biases is not None:
            half = len(gates) * size
            parameters += [rows(biases[k, :half]), rows(biases[k, half:])]
    zero = torch.zeros(num_directions, x.shape[1], size)
    hidden = zero if before is None else before
    rest = (parameters, biases is not None, 1, 0.0, False, num_directions == 2, False)
    if call.operator == "LSTM":
        cell = call.optional(6)
        steps, hidden, cell = torch.lstm(x, (hidden, zero if cell is None else cell), *rest)
        last: tuple[Any, ...] = (hidden, cell)
    else:
        steps, hidden = (torch.gru if call.operator == "GRU" else torch.rnn_tanh)(x, hidden, *rest)
        last = (hidden,)
    steps = steps.reshape(x.shape[0], x.shape[1], num_directions, size).permute(0, 2, 1, 3)
    return steps if call.num_outputs == 1 else (steps, *last)[: call.num_outputs]


# Norms


@operator("BatchNormalization")
def _batch_norm(call: Call) -> Any:
    if call.get("training_mode"):
        raise Refused("statistics of the batch", hint="export the model in eval()")
    scale, shift, mean, variance = (call.x(k) for k in range(1, 5))
    return F.batch_norm(call.x(0), mean, variance, scale, shift, False, 0.0, call.get("epsilon", 1e-5))


@operator("InstanceNormalization")
def _instance_norm(call: Call) -> Any:
    return F.instance_norm(call.x(0), None, None, call.x(1), call.x(2), True, 0.0, call.get("epsilon", 1e-5))


@operator("LayerNormalization")
def _layer_norm(call: Call) -> Any:
    if call.num_outputs > 1:
        raise Refused("its mean and its deviation as outputs")
    shape = call.x(0).shape[call.get("axis", -1) % call.x(0).ndim :]
    scale, shift = (None if each is None else each.expand(shape) for each in (call.x(1), call.optional(2)))
    return F.layer_norm(call.x(0), list(shape), scale, shift, call.get("epsilon", 1e-5))


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_norm(call: Call) -> Any:
    axes = list(range(call.get("axis", -1) % call.x(0).ndim, call.x(0).ndim))
    x = call.x(0)
    return x / torch.sqrt((x * x).mean(axes, keepdim=True) + call.get("epsilon", 1e-5)) * call.x(1)


@operator("GroupNormalization")
def _group_norm(call: Call) -> Any:
    groups, channels = call.get("num_groups"), call.x(0).shape[1]
    # Until version 20, scales are of groups.
    scale, shift = (
        each if each.shape[0] == channels else each.repeat_interleave(channels // groups)
        for each in (call.x(1), call.x(2))
    )
    return F.group_norm(call.x(0), groups, scale, shift, call.get("epsilon", 1e-5))


@operator("Softmax", "LogSoftmax")
def _softmax(call: Call) -> Any:
    x, function = call.x(), torch.softmax if call.operator == "Softmax" else torch.log_softmax
    if call.version >= 13:
        return function(x, call.get("axis", -1))
    # Before, all axes from this one on were one.
    axis = call.get("axis", 1) % x.ndim
    return function(x.reshape(*x.shape[:axis], -1), -1).reshape(x.shape)


# Pools and sums


@operator("MaxPool", "AveragePool")
def _pool(call: Call) -> Any:
    x, kernel = call.x(), call.get("kernel_shape")
    rank = len(kernel)
    stride, dilation = call.get("strides", [1] * rank), call.get("dilations", [1] * rank)
    before, after = _padding(call, list(x.shape[2:]), kernel, stride, dilation)
    is_ceil, is_max = bool(call.get("ceil_mode", 0)), call.operator == "MaxPool"
    if call.num_outputs > 1:
        raise Refused("the places of the largest as an output")
    function = getattr(F, f"{'max' if is_max else 'avg'}_pool{rank}d", None)
    if function is None or (not is_max and dilation != [1] * rank):
        raise Refused(f"a pool of {rank} axes with dilation {dilation}")
    if before != after or any(2 * pad > width for pad, width in zip(before, kernel)):
        if not is_max and not call.get("count_include_pad", 0):
            raise Refused("means over uneven borders that do not count", hint="export with count_include_pad=1")
        x = F.pad(x, torch_pads(before, after), value=float("-inf") if is_max else 0.0)
        before = [0] * rank
    if is_max:
        return function(x, kernel, stride, before, dilation, is_ceil)
    return function(x, kernel, stride, before, is_ceil, bool(call.get("count_include_pad", 0)))


@operator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(call: Call) -> Any:
    axes = list(range(2, call.x().ndim))
    return call.x().mean(axes, keepdim=True) if "Average" in call.operator else call.x().amax(axes, keepdim=True)


_REDUCED: dict[str, Callable[[Any, list[int], bool], Any]] = {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt(),
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: x.logsumexp(axes, keepdim=keep),
}


@operator(*_REDUCED, "ReduceProd")
def _reduced(call: Call) -> Any:
    x, axes, keep = call.x(), call.static(1, "axes"), bool(call.get("keepdims", 1))
    if not axes:
        if call.get("noop_with_empty_axes"):
            return x
        axes = list(range(x.ndim))
    if call.operator == "ReduceProd":
        for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
            x = x.prod(axis, keepdim=keep)
        return x
    return _REDUCED[call.operator](x, axes, keep)


@operator("ArgMax", "ArgMin")
def _index_of_extreme(call: Call) -> Any:
    if call.get("select_last_index"):
        raise Refused("the last of equal ones")
    function = torch.argmax if call.operator == "ArgMax" else torch.argmin
    return function(call.x(), call.get("axis", 0), bool(call.get("keepdims", 1)))


@operator("TopK")
def _top(call: Call) -> Any:
    count, largest = call.static(1), bool(call.get("largest", 1))
    count = count[0] if isinstance(count, list) else count
    top = torch.topk(call.x(), count, call.get("axis", -1), largest, bool(call.get("sorted", 1)))
    return top[0], top[1]


@operator("CumSum")
def _cumulative(call: Call) -> Any:
    if call.get("exclusive") or call.get("reverse"):
        raise Refused("a cumulative sum that is exclusive or from the end")
    axis = call.static(1)
    return call.x().cumsum(axis[0] if isinstance(axis, list) else axis)
