"""What a generated accelerator computes, in whole numbers, operator by operator: `formats.py` in NumPy.

It knows nothing of memories, tiles or lanes, so it is much faster than a program on the golden machine, and
gives the same to the bit: what it says of a model's accuracy is that of the hardware.

    assign (formats.py) -> Emulation -> advance for each operator of the graph -> integers
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.accelerator.numbers import fixed
from derivable.accelerator.numbers.fixed import (
    GELU_CUBE,
    GELU_SLOPE,
    LN_2,
    LOG2_E,
    ONE,
    inverse_power,
    largest_power,
    nearest,
    round_shift,
)
from derivable.accelerator.numbers.formats import (
    MOST,
    WIDE,
    Format,
    Formats,
    layer_bias,
    rectified,
    scaling,
    zero_shift,
)
from derivable.accelerator.operators import products
from derivable.accelerator.operators.evaluation import Evaluation, Inputs
from derivable.accelerator.operators.operators import Operator, OperatorGraph
from derivable.core.diagnostics import DomainError
from derivable.core.lazy import optional_module

EXACT_FLOAT32 = 1 << 24  # whole numbers below are sums in float32, too


def evaluate(graph: OperatorGraph, formats: Formats, inputs: Inputs) -> tuple[np.ndarray, ...]:
    """The outputs of a prepared graph in their formats, int64: what a program of it stores."""
    return Emulation(graph, formats, inputs).outputs()


def losses(graph: OperatorGraph, formats: Formats, inputs: Inputs) -> dict[str, Counts]:
    """How many numbers of each tensor saturate and flush on some inputs, by the operator that gives it."""
    run = Emulation(graph, formats, inputs)
    run.outputs()
    return run.counts


def is_done(graph: OperatorGraph) -> bool:
    """Whether the hardware does all operators of a graph: others are refused where it is lowered."""
    for of in graph:
        if of.unit not in ("source", "view") and of.kind not in _COMPUTE:
            return False
        if of.kind in ("conv2d", "linear") and of.inputs[1] not in graph.constants:
            return False
    return True


@dataclass
class Counts:
    """How many numbers of a tensor lost what they were.

    numbers    that were rounded: the tensor's, once for each format in which it is given or read
    saturated  beyond the least or the largest number of the format
    flushed    not zero, and zero afterwards

    Negative numbers that only ReLUs read are neither: they are zero for every reader.
    """

    numbers: int = 0
    saturated: int = 0
    flushed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.numbers + other.numbers, self.saturated + other.saturated, self.flushed + other.flushed)


class Emulation(Evaluation):
    """A run under way. Weights of layers and what is added to their sums are read when their operator's turn comes.

    values  of operators that are still to be read, int64 in their formats
    counts  of each tensor that was rounded so far, by its operator's name; constants are not counted
    """

    def __init__(self, graph: OperatorGraph, formats: Formats, inputs: Inputs):
        super().__init__(graph, inputs)
        self.formats = formats
        self.counts: dict[str, Counts] = {}
        self.sums: np.ndarray | None = None  # of the product under way, before they are rounded
        self._converted: set[tuple[str, Format]] = set()
        self._rectified = rectified(graph)

    def count(self, name: str, exact: np.ndarray, found: np.ndarray, format: Format) -> np.ndarray:
        """Count what rounding made of numbers, and keep them within their format.

        exact  what they were, in any unit: only its signs count
        found  what they are, as steps, before they are kept
        """
        kept = _kept(found, format)
        saturated, flushed = kept != found, (exact != 0) & (found == format.zero)
        if name in self._rectified:  # negative numbers are zero for every reader
            saturated, flushed = saturated & (found > format.zero), flushed & (exact > 0)
        lost = Counts(found.size, int(saturated.sum()), int(flushed.sum()))
        self.counts[name] = self.counts.get(name, Counts()) + lost
        return kept

    def compute(self, of: Operator) -> np.ndarray:
        """What an operator gives; nothing is computed for a constant."""
        if of.kind == "constant":
            return np.zeros(0, np.int64)
        format = self.formats[of.name]
        if of.kind == "input":
            given = np.asarray(self.given[of.name], np.float64)
            steps = np.clip(np.rint(given / format.scale) + format.zero, -(2.0**62), 2.0**62)
            self.count(of.name, given, steps, format)
            return format.steps(given).astype(np.int64)
        if of.unit == "view" and of.kind != "concatenate":
            return of.row.evaluate([self.values[of.inputs[0]]], of.at)
        try:
            found = _COMPUTE[of.kind](self, of)
            # What a product flushes is counted where its sums are known.
            exact = self.sums if self.sums is not None and self.sums.shape == found.shape else found - format.zero
            self.sums = None
            return self.count(of.name, exact, found, format)
        except DomainError as error:
            hint = 'scale the numbers of the model down, or design with precision="int8"'
            raise DomainError(f"%{of.name}: {error.message}", source=of.source or None, hint=hint) from None

    def steps(self, name: str, format: Format) -> np.ndarray:
        """A value or a constant in a format."""
        if name in self.graph.constants:
            return format.steps(np.asarray(self.graph.constants[name], np.float64)).astype(np.int64)
        value, before = self.values[name], self.formats[name]
        if before == format:
            return value
        multiplier, shift = scaling(before.scale / format.scale)
        more = zero_shift(before, format, multiplier, shift)
        found = round_shift((value + more) * multiplier, shift)
        if (name, format) in self._converted:
            return _kept(found, format)
        self._converted.add((name, format))
        return self.count(name, value - before.zero, found, format)

    def wide(self, name: str) -> np.ndarray:
        return self.steps(name, WIDE)

    def narrow(self, of: Operator, place: int) -> np.ndarray:
        """A narrow operand, less its zero."""
        format = self.formats.operands[of.name, place]
        return self.steps(of.inputs[place], format) - format.zero

    def numbers(self, of: Operator, place: int) -> np.ndarray:
        """What a narrow operand means, float64."""
        return self.narrow(of, place) * self.formats.operands[of.name, place].scale

    def number(self, name: str) -> float | None:
        """The number that a constant is, if it is one."""
        array = self.graph.constants.get(name)
        return float(np.asarray(array).reshape(())) if array is not None and array.size == 1 else None

    def product_scale(self, of: Operator) -> float:
        """What one is of the sums of products of two narrow operands, in steps of the result."""
        a, b = (self.formats.operands[of.name, place].scale for place in (0, 1))
        return a * b / self.formats[of.name].scale


# Numbers


def _times(x: np.ndarray, real: float, bits: int = 15) -> np.ndarray:
    multiplier, shift = scaling(real, bits)
    return round_shift(x * multiplier, shift)


def _saturated(x: np.ndarray) -> np.ndarray:
    return np.clip(x, -MOST["i32"] - 1, MOST["i32"])


def _kept(x: np.ndarray, format: Format) -> np.ndarray:
    least, most = format.clamp or (-MOST["i32"] - 1, MOST["i32"])
    return np.clip(x, least, most)


def _inverse(x: np.ndarray, k: int) -> np.ndarray:
    """2^k / x, by logarithms."""
    return fixed.exp2(_saturated(k * ONE - fixed.log2(x)))


# Products


def _summed(product: Callable[[Any, Any], Any], x: np.ndarray, weight: np.ndarray, terms: int) -> np.ndarray:
    """A product of whole numbers, in the narrowest floating format in which its sums are exact."""
    most = int(np.abs(x).max(initial=0)) * int(np.abs(weight).max(initial=0)) * terms
    dtype = np.float32 if most < EXACT_FLOAT32 else np.float64
    return np.asarray(product(x.astype(dtype), weight.astype(dtype))).astype(np.int64)


def convolution(x: np.ndarray, weight: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    """`products.conv2d` without a bias, by torch, which is many times as fast; in the dtype of its operands."""
    torch = optional_module("torch", "torch", "torch")
    options = {name: attributes[name] for name in ("stride", "padding", "dilation", "groups")}
    given = (torch.from_numpy(np.ascontiguousarray(array)) for array in (x, weight))
    return torch.nn.functional.conv2d(*given, **options).numpy()


def circular(c: np.ndarray, a: np.ndarray, is_correlation: bool) -> np.ndarray:
    """`products.convolved` by way of frequencies, float64."""
    c_part, a_part = np.fft.rfft(c), np.fft.rfft(a)
    return np.fft.irfft(c_part * (a_part.conj() if is_correlation else a_part), c.shape[-1])


def _layer(e: Emulation, of: Operator) -> np.ndarray:
    formats, y = e.formats, e.formats[of.name]
    own, weight = formats.weights[of.name], formats.layer_steps(e.graph, of)
    terms, x = weight[0].size, e.narrow(of, 0)
    if of.kind == "conv2d":
        total = np.moveaxis(_summed(lambda a, b: convolution(a, b, of.at), x, weight, terms), 1, -1)
    else:
        total = _summed(lambda a, b: a @ b.T, x, weight, terms)
    scales = formats.operands[of.name, 0].scale * own
    shift = scaling(float(np.max(np.abs(scales / y.scale), initial=0)), 30)[1]
    multipliers = np.rint(scales / y.scale * 2.0**shift).astype(np.int64)
    added = layer_bias(e.graph, of, formats.added) / scales
    if y.zero:
        added = added + y.zero * 2.0**shift / multipliers
    sums = total + np.rint(added).astype(np.int64)
    found = round_shift(sums * multipliers, shift)
    e.sums = sums - np.rint(y.zero * 2.0**shift / multipliers).astype(np.int64) if y.zero else sums
    if of.kind == "conv2d":
        e.sums, found = np.moveaxis(e.sums, -1, 1), np.moveaxis(found, -1, 1)
    return found


def _matmul(e: Emulation, of: Operator) -> np.ndarray:
    if of.name in e.formats.weights:
        return _layer(e, of)
    a, b = e.narrow(of, 0), e.narrow(of, 1)
    is_streamed = of.inputs[0] in e.graph.constants and a.ndim == 2
    e.sums = _summed(np.matmul, a, b, a.shape[-1])
    return _times(e.sums, e.product_scale(of), 30 if is_streamed else 15)


def _bundle(e: Emulation, of: Operator) -> np.ndarray:
    items, weights = e.narrow(of, 0), e.narrow(of, 1)
    rank, count = of.at["rank"], weights.shape[-1]
    vector = items.shape[items.ndim - rank :]
    flat = items.reshape(*items.shape[: items.ndim - rank], math.prod(vector))
    if items.ndim == rank + 1:
        total = _summed(np.matmul, weights.reshape(-1, count), flat, count)
        total = total.reshape(*weights.shape[:-1], *vector)
    else:
        total = _summed(np.matmul, weights[..., None, :], flat, count)[..., 0, :]
        total = total.reshape(*total.shape[:-1], *vector)
    is_book = of.inputs[0] in e.graph.constants and items.ndim == rank + 1
    e.sums = total
    return _times(total, e.product_scale(of), 30 if is_book else 15)


def _convolved(e: Emulation, of: Operator) -> np.ndarray:
    found = circular(e.narrow(of, 0), e.narrow(of, 1), of.kind == "unbind")
    e.sums = np.rint(found).astype(np.int64)
    return _times(e.sums, e.product_scale(of))


def _match_probability(e: Emulation, of: Operator) -> np.ndarray:
    a, b = e.narrow(of, 0), e.narrow(of, 1)
    total = np.einsum("...kl,...kl->...", a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    e.sums = total
    return _times(total, e.product_scale(of) / a.shape[-2])


# Arithmetic


def _sum_of_two(e: Emulation, of: Operator) -> np.ndarray:
    a, b = (e.wide(name) for name in of.inputs)
    return a + b if of.kind == "add" else a - b


def _mul(e: Emulation, of: Operator) -> np.ndarray:
    left, right = of.inputs
    if e.number(right) is None and e.number(left) is not None:
        left, right = right, left
    number = e.number(right)
    return round_shift(e.wide(left) * e.wide(right), 16) if number is None else _times(e.wide(left), number)


def _div(e: Emulation, of: Operator) -> np.ndarray:
    left, right = of.inputs
    number = e.number(right)
    if number is not None:
        return _times(e.wide(left), 1 / number)
    b, b_sign = _size_and_sign(e, right)
    k = inverse_power(*e.formats.bounds(e.graph, right))
    if k is None:
        a, a_sign = _size_and_sign(e, left)
        return _quotient(a, b) * a_sign * b_sign
    return round_shift(e.wide(left) * _inverse(b, k) * b_sign, 16 + k)


def _size_and_sign(e: Emulation, name: str) -> tuple[np.ndarray, np.ndarray | int]:
    """A wide number that may be negative as its size and its sign, another as it is."""
    x = e.wide(name)
    return (np.maximum(x, _saturated(-x)), np.sign(x)) if e.formats.bounds(e.graph, name)[0] < 0 else (x, 1)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b by logarithms, of numbers that are not negative."""
    return fixed.exp2(_saturated(fixed.log2(a) - fixed.log2(np.maximum(b, 1))))


def _clamp(e: Emulation, of: Operator) -> np.ndarray:
    x = e.wide(of.inputs[0])
    low, high = of.at["low"], of.at["high"]
    x = x if low is None else np.maximum(x, nearest(low))
    return x if high is None else np.minimum(x, nearest(high))


def _exp(x: np.ndarray, times: float = LOG2_E) -> np.ndarray:
    return fixed.exp2(_saturated(_times(x, times)))


def _tanh(x: np.ndarray) -> np.ndarray:
    return ONE - fixed.exp2(ONE - fixed.log2(_saturated(_exp(x, 2 * LOG2_E) + ONE)))


def _gelu(x: np.ndarray) -> np.ndarray:
    cube = _saturated(round_shift(_saturated(round_shift(x * x, 16)) * x, 16))
    u = _saturated(x + _saturated(_times(cube, GELU_CUBE)))
    return round_shift(x * _inverse(_saturated(_exp(u, -2 * GELU_SLOPE * LOG2_E) + ONE), 0), 16)


def _softmax(e: Emulation, of: Operator) -> np.ndarray:
    x, axis = e.wide(of.inputs[0]), of.at["axis"]
    raised = _exp(x - x.max(axis, keepdims=True))
    k = largest_power(x.shape[axis])
    return round_shift(raised * _inverse(_saturated(raised.sum(axis, keepdims=True)), k), 16 + k)


def _to_mass(e: Emulation, of: Operator) -> np.ndarray:
    x = np.maximum(e.wide(of.inputs[0]), 0)
    total, length = _saturated(x.sum(-1, keepdims=True)), x.shape[-1]
    k = largest_power(length * max(e.formats.ranges[of.inputs[0]][1], 0))
    even = np.where(total > 0, 0, _times(np.array(-1), -ONE / length))
    return _saturated(round_shift(x * _inverse(total, k), 16 + k)) + even


def _normalise(e: Emulation, of: Operator) -> np.ndarray:
    x = e.wide(of.inputs[0])
    squares = (x * x).sum(tuple(range(-of.at["rank"], 0)), keepdims=True)
    total = _saturated(round_shift(squares, 16))
    return round_shift(x * fixed.exp2(_saturated(round_shift(-fixed.log2(total), 1))), 16)


def _prod(e: Emulation, of: Operator) -> np.ndarray:
    last = products.together(e.wide(of.inputs[0]), of.at["axes"])
    found = last[..., 0]
    for place in range(1, last.shape[-1]):
        found = _saturated(round_shift(found * last[..., place], 16))
    return found.reshape(of.shape)


def _max_pool(e: Emulation, of: Operator) -> np.ndarray:
    x = e.values[of.inputs[0]]
    met = (part for _, part in products.taps(x, of.at["kernel"], of.at, -MOST["i32"] - 1))
    return np.max(np.stack([*met]), 0)


def _avg_pool(e: Emulation, of: Operator) -> np.ndarray:
    high, wide = of.at["kernel"]
    met = np.stack([part for _, part in products.taps(e.wide(of.inputs[0]), (high, wide), of.at)])
    power = largest_power(wide) if high > 1 else 0
    rows = round_shift(met.reshape(high, wide, *met.shape[1:]).sum(1), power)
    return _times(rows.sum(0), (1 << power) / (high * wide))


def _mean(e: Emulation, of: Operator) -> np.ndarray:
    x, axes = e.wide(of.inputs[0]), of.at["axes"]
    return _times(x.sum(axes, keepdims=of.at["keepdims"]), 1 / math.prod(x.shape[axis] for axis in axes))


def _concatenate(e: Emulation, of: Operator) -> np.ndarray:
    return np.concatenate([e.steps(name, e.formats[of.name]) for name in of.inputs], of.at["axis"])


_Compute = Callable[[Emulation, Operator], np.ndarray]


def _of_wide(function: Callable[..., np.ndarray]) -> _Compute:
    return lambda e, of: function(*(e.wide(name) for name in of.inputs))


def _extremum(e: Emulation, of: Operator) -> np.ndarray:
    function = np.max if of.kind == "max" else np.min
    return function(e.values[of.inputs[0]], axis=of.at["axes"], keepdims=of.at["keepdims"])


_COMPUTE: dict[str, _Compute] = {
    "conv2d": _layer,
    "linear": _layer,
    "matmul": _matmul,
    "bundle": _bundle,
    "bind": _convolved,
    "unbind": _convolved,
    "match_probability": _match_probability,
    "relu": lambda e, of: np.maximum(e.values[of.inputs[0]], e.formats[of.name].zero),
    "max": _extremum,
    "min": _extremum,
    "max_pool2d": _max_pool,
    "concatenate": _concatenate,
    "add": _sum_of_two,
    "sub": _sum_of_two,
    "mul": _mul,
    "div": _div,
    "greater": _of_wide(lambda a, b: ONE * (a > b)),
    "equal": _of_wide(lambda a, b: ONE * (a == b)),
    "floor": _of_wide(lambda a: a >> 16 << 16),
    "sum": lambda e, of: e.wide(of.inputs[0]).sum(of.at["axes"], keepdims=of.at["keepdims"]),
    "mean": _mean,
    "prod": _prod,
    "clamp": _clamp,
    "maximum": _of_wide(np.maximum),
    "minimum": _of_wide(np.minimum),
    "abs": _of_wide(np.abs),
    "exp": _of_wide(_exp),
    "log": _of_wide(lambda a: _times(fixed.log2(np.maximum(a, 1)), LN_2)),
    "sqrt": _of_wide(lambda a: fixed.exp2(round_shift(fixed.log2(a), 1))),
    "tanh": _of_wide(_tanh),
    "gelu": _of_wide(_gelu),
    "softmax": _softmax,
    "to_mass": _to_mass,
    "normalise": _normalise,
    "avg_pool2d": _avg_pool,
}
