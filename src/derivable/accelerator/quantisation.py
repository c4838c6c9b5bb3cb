"""Post-training quantisation: which numbers of a model become few bits, what a step of them is worth, what is lost.

The array multiplies few bits and sums 32, so what is rounded are the operands of layers and of circular convolutions,
each in the format of its operator's part. Weights of layers have a scale for each output channel, all else has one for
the whole tensor; scales are those with the least squared error on calibration data. What the SIMD unit computes stays
wide: 32 bits whose binary point is the tensor's own, or 16-bit floats beside float formats.

    samples -> calibrate(graph, samples, precision) -> Quantised -> evaluate(quantised, inputs)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from derivable.accelerator.operators import Inputs, Operator, OperatorGraph, checked_inputs, wide
from derivable.accelerator.precision import PRECISIONS, Precision, bytes_of
from derivable.core.diagnostics import DomainError
from derivable.core.lazy import optional_module

PARTS = ("neural", "symbolic")
WIDE_BITS = 32
LARGEST_FP8 = 448.0
KEPT_VALUES = 1 << 14  # of each tensor in each calibration batch
CLIPS = np.linspace(0.25, 1, 46)

Place = tuple[str, int]  # an operator, and which of its inputs


@dataclass(frozen=True)
class Quantised:
    """A graph with the formats of its numbers.

    precision  name of the format of each part, "neural" and "symbolic"
    scales     of the rounded operands: what a step is worth, [] or [channel] along the first axis; for fp8 what 1 is
    points     of what stays wide beside integers: bits behind the binary point, by operator
    """

    graph: OperatorGraph
    precision: Mapping[str, str]
    scales: Mapping[Place, np.ndarray] = field(repr=False)
    points: Mapping[str, int] = field(repr=False)

    def format(self, operator: Operator) -> Precision:
        return PRECISIONS[self.precision[operator.part]]

    def rounded(self, operator: Operator, place: int, value: np.ndarray) -> np.ndarray:
        """The operand as the array sees it, as a float."""
        scale = self.scales.get((operator.name, place))
        return value if scale is None else _rounded(value, self.format(operator), _along(scale, value.ndim))

    def integers(self, operator: Operator, place: int, value: np.ndarray) -> np.ndarray:
        """The operand in steps, int8. Raises DomainError for a format of floats or an operand that stays wide."""
        scale, precision = self.scales.get((operator.name, place)), self.format(operator)
        if scale is None or precision.is_float:
            raise DomainError(f"operand {place} of %{operator.name} is not quantised to integers")
        return _steps(value, precision, _along(scale, value.ndim)).astype(np.int8)

    def constant_bytes(self) -> int:
        """Bytes of the constants: rounded ones packed in the widest format that an operator reads them in, all others
        in 32 bits (16 beside floats)."""
        bits: dict[str, int] = {}
        for operator in self.graph:
            precision = self.format(operator)
            for place, name in enumerate(operator.inputs):
                if self.graph[name].kind != "constant":
                    continue
                width = 16 if precision.is_float else WIDE_BITS
                if (operator.name, place) in self.scales:
                    width = precision.bits
                bits[name] = max(bits.get(name, 0), width)
        return sum(bytes_of(self.graph.constants[name].size, width) for name, width in bits.items())


def calibrate(graph: OperatorGraph, samples: Iterable[Inputs], precision: Mapping[str, str]) -> Quantised:
    """Scales for a graph, from what its tensors hold on samples.

    samples    inputs as `evaluate` takes them, a few batches of what the model will see
    precision  the format of each part: {"neural": "int8", "symbolic": "int4"}

    Raises DomainError without a sample, for unknown parts or formats, and for numbers that are not finite.
    """
    precision = checked_precision(precision)
    quantised = Quantised(graph, precision, {}, {})
    seen: dict[Place, list[np.ndarray]] = {}
    largest: dict[str, float] = {}
    places = dict(_rounded_places(graph))
    count = 0
    for sample in samples:
        count += 1
        for operator, operands, value in _results(graph, sample, lambda operator, place, value: value):
            for place in places.get(operator.name, ()):
                if graph[operator.inputs[place]].kind != "constant":
                    seen.setdefault((operator.name, place), []).append(_some(operands[place], operator))
            if value.dtype.kind == "f" and value.size:
                largest[operator.name] = max(largest.get(operator.name, 0.0), float(np.abs(value).max()))
    if not count:
        raise DomainError("no sample is given to calibrate with", hint="pass a few batches of inputs")
    scales: dict[Place, np.ndarray] = {}
    for operator in graph:
        chosen = PRECISIONS[precision[operator.part]]
        for place in places.get(operator.name, ()):
            name = operator.inputs[place]
            if graph[name].kind == "constant":
                array = wide(graph.constants[name]).astype(np.float64)
                is_weight = operator.kind in ("conv2d", "linear")
                rows = array.reshape(len(array), -1) if is_weight else array.reshape(1, -1)
                found = _best_scales(rows, chosen)
                scales[operator.name, place] = found if is_weight else found[0]
            else:
                rows = np.concatenate(seen[operator.name, place])[None]
                scales[operator.name, place] = _best_scales(rows, chosen)[0]
    points = {name: WIDE_BITS - 2 - int(np.ceil(np.log2(max(size, 2.0**-20)))) for name, size in largest.items()}
    return Quantised(quantised.graph, precision, scales, points)


def checked_precision(precision: Mapping[str, str]) -> dict[str, str]:
    """The formats of both parts. Raises DomainError for unknown parts and formats, and for a part without one."""
    unknown = [part for part in precision if part not in PARTS]
    if unknown or len(precision) < len(PARTS):
        raise DomainError(
            f"the precision is of {sorted(precision)}", hint='{"neural": "int8", "symbolic": "int4"} has both parts'
        )
    return {part: PRECISIONS[precision[part]].name for part in PARTS}


def evaluate(quantised: Quantised, inputs: Inputs) -> tuple[np.ndarray, ...]:
    """The outputs of the model with its operands rounded, as floats: what quantisation costs in accuracy."""
    graph = quantised.graph
    found: dict[str, np.ndarray] = {}
    for operator, _, value in _results(graph, inputs, quantised.rounded, quantised):
        if operator.name in graph.outputs:
            found[operator.name] = value
    return tuple(found[name] for name in graph.outputs)


# What is computed


def _rounded_places(graph: OperatorGraph) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Operators of the array, each with its operands; a bias is added to the wide sum."""
    for operator in graph:
        if operator.unit in ("gemm", "vector"):
            yield operator.name, (0, 1)


def _results(
    graph: OperatorGraph,
    inputs: Inputs,
    rounded: Callable[[Operator, int, np.ndarray], np.ndarray],
    quantised: Quantised | None = None,
) -> Iterator[tuple[Operator, list[np.ndarray], np.ndarray]]:
    """Each operator with its operands and its result; with `quantised` results stay as wide as its formats say."""
    given = checked_inputs(graph, inputs)
    last = {name: index for index, operator in enumerate(graph) for name in operator.inputs}
    found: dict[str, np.ndarray] = {}
    for index, operator in enumerate(graph):
        operands: list[np.ndarray] = []
        if operator.kind == "input":
            value = given[operator.name]
        elif operator.kind == "constant":
            value = wide(graph.constants[operator.name])
        else:
            operands = [rounded(operator, place, found[name]) for place, name in enumerate(operator.inputs)]
            compute: Callable[[list[np.ndarray], dict[str, Any]], Any] = _QUICK.get(
                operator.kind, operator.row.evaluate
            )
            value = np.asarray(compute(operands, operator.at))
            if quantised is not None and value.dtype.kind == "f" and operator.unit != "view":
                value = _held(value, quantised, operator)
        found[operator.name] = value
        yield operator, operands, value
        for name in set(operator.inputs):
            if last[name] == index:
                del found[name]


def _held(value: np.ndarray, quantised: Quantised, operator: Operator) -> np.ndarray:
    """The result in the bits that it is kept in."""
    if quantised.format(operator).is_float:
        return _half(value)
    point = quantised.points.get(operator.name, 16)
    most = 2.0 ** (WIDE_BITS - 1) - 1
    return np.clip(np.rint(np.ldexp(value, point)), -most - 1, most) * 2.0**-point


def _convolution(operands: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    """As the sum over taps, by torch, which is many times as fast."""
    torch = optional_module("torch", "torch", "torch")
    x, weight, *bias = [torch.from_numpy(np.ascontiguousarray(operand, np.float64)) for operand in operands]
    options = {name: attributes[name] for name in ("stride", "padding", "dilation", "groups")}
    return torch.nn.functional.conv2d(x, weight, *bias, **options).numpy()


def _bound(is_correlation: bool) -> Callable[[list[np.ndarray], dict[str, Any]], np.ndarray]:
    def bound(operands: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
        c, a = (np.fft.rfft(operand) for operand in operands)
        return np.fft.irfft(c * (a.conj() if is_correlation else a), operands[0].shape[-1])

    return bound


# What gives the same as the meaning up to rounding in float64, much sooner.
_QUICK = {"conv2d": _convolution, "bind": _bound(False), "unbind": _bound(True)}


# Numbers


def _along(scale: np.ndarray, rank: int) -> np.ndarray:
    return scale.reshape(-1, *(1,) * (rank - 1)) if scale.ndim else scale


def _steps(value: np.ndarray, precision: Precision, scale: Any) -> np.ndarray:
    most = 2 ** (precision.bits - 1) - 1
    return np.clip(np.rint(value / scale), -most, most)


def _rounded(value: np.ndarray, precision: Precision, scale: Any) -> np.ndarray:
    if precision.name == "fp16":
        return _half(value)
    if precision.is_float:
        return _eighth(value / scale) * scale
    return _steps(value, precision, scale) * scale


def _half(value: np.ndarray) -> np.ndarray:
    """The nearest numbers of 16 bits; those beyond are the largest."""
    most = float(np.finfo(np.float16).max)
    return np.clip(value, -most, most).astype(np.float16).astype(np.float64)


def _eighth(value: np.ndarray) -> np.ndarray:
    """The nearest numbers of 8 bits with four for the exponent and three for the fraction (E4M3), ties to even."""
    _, exponent = np.frexp(value)  # |value| is in [0.5, 1) times two to the exponent
    step = np.ldexp(1.0, np.maximum(exponent - 1, -6) - 3)
    return np.clip(np.rint(value / step) * step, -LARGEST_FP8, LARGEST_FP8)


def _some(value: np.ndarray, operator: Operator) -> np.ndarray:
    """At most so many values as are kept, evenly from all, and the largest."""
    flat = np.asarray(value, np.float64).reshape(-1)
    if not np.isfinite(flat).all():
        raise DomainError(f"an operand of %{operator.name} is not finite on the samples", hint=operator.source or None)
    kept = flat[:: -(-len(flat) // KEPT_VALUES) or 1]
    return np.append(kept, flat[np.abs(flat).argmax()]) if len(flat) else flat


def _best_scales(rows: np.ndarray, precision: Precision) -> np.ndarray:
    """For each row the scale with the least squared error; 1 for rows of zeros."""
    largest = np.abs(rows).max(1, initial=0.0)
    largest[largest == 0] = 1.0
    if precision.name == "fp16":
        return np.ones(len(rows))
    if precision.is_float:
        return largest / LARGEST_FP8
    best, error = np.ones(len(rows)), np.full(len(rows), np.inf)
    for clip in CLIPS:
        scale = clip * largest / (2 ** (precision.bits - 1) - 1)
        found = ((rows - _rounded(rows, precision, scale[:, None])) ** 2).sum(1)
        better = found <= error
        best[better], error[better] = scale[better], found[better]
    return best
