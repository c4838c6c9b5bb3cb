"""Post-training quantisation: which numbers of a model become few bits, what a step of them is worth, what is lost.

The array multiplies few bits and sums 32, so what is rounded are the operands of layers, of circular convolutions and
comparisons, each in the format of its operator's part; comparisons are sums of lanes, which take eight bits at least.
Weights of layers have a scale for each output channel, all else has one for the whole tensor, and readers of one tensor
share it; scales are those with the least squared error on calibration data. Where the range of a tensor is known
without data (`known.py`: softmax, similarities, tanh, sigmoid), its scale is that of the whole range, so that no input
saturates it, unless the steps are too coarse for the calibration data. Where more than a 2,048th of their energy would
be lost, the range is halved as long as it holds the data, as for directions of many dimensions, whose entries are far
below one. Where that does not suffice either, as in int4 with probabilities of many classes, the scale comes from the
data as others do. Zero is any step for
what streams through a layer, which costs nothing there: the array multiplies steps, and what zero adds to a channel's
sum is known before, so it goes into the bias (most of a layer's inputs come out of a ReLU and would leave half of the
steps unused). What rounding adds to a channel on average goes there too (Nagel et al., 2019). What the SIMD unit
computes stays wide: 32 bits of which 16 are behind the binary point, or 16-bit floats beside float formats.

    prepare(graph) (formats.py) -> calibrate(graph, samples, precision) -> Quantised -> evaluate(quantised, inputs)

The hardware computes with the same scales (`formats.assign`); `emulation.py` gives what it does, to the bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from derivable.accelerator.numbers import emulation, known
from derivable.accelerator.numbers.formats import WIDE, Formats, assign
from derivable.accelerator.numbers.layers import PARTS, is_layer
from derivable.accelerator.numbers.precision import PRECISIONS, CalibrationWarning, Precision, bytes_of, format_of
from derivable.accelerator.numbers.steps import OperandKey, Step
from derivable.accelerator.operators import products
from derivable.accelerator.operators.evaluation import Evaluation, Inputs
from derivable.accelerator.operators.operators import Operator, OperatorGraph, wide
from derivable.accelerator.operators.runtime import ceil_div
from derivable.core.diagnostics import DomainError

WIDE_BITS = 32
LARGEST_FP8 = 448.0
KEPT_VALUES = 1 << 14  # of each tensor in each calibration batch
PARTS_OF_RANGE = 60  # of numbers by their size, at whose ends clips are
CLIPS = np.arange(15, PARTS_OF_RANGE + 1) / PARTS_OF_RANGE
LEAST_TRIED, TRIED_NUMBERS = 4, 1 << 20  # clips of each row, and numbers that are rounded for more of them
MOST_LOST = 2.0**-11  # of the energy of calibration data, by a scale of a known range
FEW_LEVELS = 2.0**-7  # of the energy, from which on int8 is warned of: numbers of about three steps


@dataclass(frozen=True)
class Quantised:
    """A graph with the formats of its numbers.

    precision  name of the format of each part, "neural" and "symbolic", and of operators that have another one
    scales     of the rounded operands: what a step is worth, [] or, of weights, [channel]; for fp8 what 1 is
    zeros      of operands that stream through layers: the step that is zero, 0 where there is none
    biases     of conv2d and linear: what is added to each channel [channel] beside the graph's own bias
    ranges     of every operator but constants: the least and the largest number on the samples
    peaks      of prod, normalise and to_mass: the largest number on the samples on the way to the result
    """

    graph: OperatorGraph
    precision: Mapping[str, str]
    scales: Mapping[OperandKey, np.ndarray] = field(default_factory=dict, repr=False)
    zeros: Mapping[OperandKey, int] = field(default_factory=dict, repr=False)
    biases: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, repr=False)
    peaks: Mapping[str, float] = field(default_factory=dict, repr=False)

    @cached_property
    def formats(self) -> Formats:
        """What `assign` makes of it."""
        return assign(self)

    def format(self, operator: Operator) -> Precision:
        """The format of an operator's narrow operands."""
        return _format(operator, self.precision)

    def rounded(self, operator: Operator, place: int, value: np.ndarray) -> np.ndarray:
        """The operand as the array sees it, as a float."""
        scale = self.scales.get((operator.name, place))
        if scale is None:
            return value
        zero = self.zeros.get((operator.name, place), 0)
        return _rounded(value, self.format(operator), _along(operator, scale, value.ndim), zero)

    def integers(self, operator: Operator, place: int, value: np.ndarray) -> np.ndarray:
        """The operand in steps, int8: it is (steps - zero) * scale.

        Raises DomainError for a format of floats or an operand that stays wide.
        """
        scale, precision = self.scales.get((operator.name, place)), self.format(operator)
        if scale is None or precision.is_float:
            raise DomainError(f"operand {place} of %{operator.name} is not quantised to integers")
        zero = self.zeros.get((operator.name, place), 0)
        return _steps(value, precision, _along(operator, scale, value.ndim), zero).astype(np.int8)

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


def calibrate(
    graph: OperatorGraph,
    samples: Iterable[Inputs],
    precision: Mapping[str, str],
    steps: Mapping[OperandKey, Step] = MappingProxyType({}),
) -> Quantised:
    """Scales for a graph, from what its tensors hold on samples, or from what is known of their ranges.

    samples    inputs as `evaluate` takes them, a few batches of what the model will see
    precision  the format of each part, and of operators that have another one: see `layers.resolve`
    steps      of operands whose scales come from elsewhere, see `steps_of`; biases of their layers are not corrected

    Warns with CalibrationWarning of operands that int8 has too few steps for. Raises DomainError without a sample, for
    unknown parts or formats, and for numbers that are not finite.
    """
    precision, samples = checked_precision(precision, graph), list(samples)
    if not samples:
        raise DomainError("no sample is given to calibrate with", hint="give a few samples of inputs as calibration=")
    seen: dict[_Group, dict[tuple[int, str], np.ndarray]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    peaks: dict[str, float] = {}
    for number, sample in enumerate(samples):
        run = _Run(graph, sample)
        for operator in graph:
            for place in _streamed(graph, operator):
                if (operator.name, place) in steps:
                    continue
                rows = seen.setdefault(_group(graph, operator, place, precision), {})
                if (number, operator.inputs[place]) not in rows:
                    rows[number, operator.inputs[place]] = _some(run.numbers(operator, place), operator)
            if operator.kind in _PEAKS:
                peak = np.abs(_PEAKS[operator.kind](run.numbers(operator, 0), operator.at)).max(initial=0)
                peaks[operator.name] = max(peaks.get(operator.name, 0.0), float(peak))
            value = run.advance(operator)
            if operator.kind != "constant" and value.size:
                if not np.isfinite(value).all():
                    raise DomainError(
                        f"%{operator.name} is not finite on the samples",
                        source=operator.source or None,
                        hint="let masks be -1000 in the place of -inf, and scale down what overflows",
                    )
                low, high = ranges.get(operator.name, (np.inf, -np.inf))
                ranges[operator.name] = min(low, float(value.min())), max(high, float(value.max()))
    # An instruction of a loop has the same numbers in all iterations.
    ranges = _joined(graph, ranges, lambda one, other: (min(one[0], other[0]), max(one[1], other[1])))
    peaks = _joined(graph, peaks, max)
    limits = known.ranges(graph)
    best: dict[_Group, tuple[np.ndarray, int]] = {}
    for group, listed in seen.items():
        rows = np.concatenate([*listed.values()])
        best[group] = _best_of_group(group, rows, limits.get(group.root))
        _warn_of_few_levels(group, rows, best[group])
    scales: dict[OperandKey, np.ndarray] = {}
    zeros: dict[OperandKey, int] = {}
    for operator in graph:
        chosen = _format(operator, precision)
        streamed = _streamed(graph, operator)
        for place in _operands(operator):
            key = (operator.name, place)
            if key in steps:
                scales[key] = steps[key].scale
                if place == 0 and is_layer(graph, operator):
                    zeros[key] = steps[key].zero
                continue
            if place in streamed:
                group = _group(graph, operator, place, precision)
                scales[key], zero = best[group]
                if group.has_zero:
                    zeros[key] = zero
                continue
            array = wide(graph.constants[operator.inputs[place]]).astype(np.float64)
            if place == 1 and is_layer(graph, operator):
                rows = array.T if operator.kind == "matmul" else array
                scales[key] = _best_scales(rows.reshape(len(rows), -1), chosen)
            else:
                scales[key] = _best_scales(array.reshape(1, -1), chosen)[0]
    quantised = Quantised(graph, precision, scales, zeros, {}, ranges, peaks)
    return replace(quantised, biases=_mean_losses(quantised, samples, {name for name, _ in steps}))


_T = TypeVar("_T")


def _joined(graph: OperatorGraph, values: Mapping[str, _T], join: Callable[[_T, _T], _T]) -> dict[str, _T]:
    """The values of operators, of operators of loops those of all iterations joined."""
    joined: dict[str, _T] = {}
    for name, value in values.items():
        root = graph.alike.get(name, name)
        joined[root] = join(joined[root], value) if root in joined else value
    return {name: joined[graph.alike.get(name, name)] for name in values}


def _products(x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    return np.cumprod(products.together(x, attributes["axes"]), -1)


_PEAKS: dict[str, Callable[[np.ndarray, dict[str, Any]], np.ndarray]] = {
    "prod": _products,
    "normalise": lambda x, at: (x * x).sum(tuple(range(-at["rank"], 0))),
    "to_mass": lambda x, at: np.maximum(x, 0).sum(-1),
}


@dataclass(frozen=True)
class _Group:
    """Operands that share a scale: of one tensor, as views or maxima of it, in one format, with a zero or without."""

    root: str
    format: Precision
    has_zero: bool


def _group(graph: OperatorGraph, operator: Operator, place: int, precision: Mapping[str, str]) -> _Group:
    root = graph[operator.inputs[place]]
    while len(root.inputs) == 1 and (root.unit == "view" or root.kind in ("max", "max_pool2d")):
        root = graph[root.inputs[0]]
    of = _format(operator, precision)
    return _Group(
        graph.alike.get(root.name, root.name), of, place == 0 and not of.is_float and is_layer(graph, operator)
    )


def _best_of_group(group: _Group, rows: np.ndarray, limits: known.Range | None) -> tuple[np.ndarray, int]:
    """The scale and the step of zero: of the known range, halved until its steps are fine enough for the rows, where
    they are in it; else what the rows themselves have."""
    if group.has_zero:
        best = _best_scale_and_zero(rows, group.format)
    else:
        best = _best_scales(rows[None], group.format)[0], 0
    if limits is None or not any(limits):
        return best
    enough = max(_lost(rows, group.format, *best), MOST_LOST)
    low, high = limits
    while low <= rows.min(initial=0.0) and rows.max(initial=0.0) <= high:
        whole = _of_range((low, high), group)
        if _lost(rows, group.format, *whole) <= enough:
            return whole
        low, high = low / 2, high / 2
    return best


def _lost(rows: np.ndarray, precision: Precision, scale: np.ndarray, zero: int) -> float:
    """The part of the energy of numbers that rounding loses."""
    energy = float((rows**2).sum())
    return float(((rows - _rounded(rows, precision, scale, zero)) ** 2).sum()) / energy if energy else 0.0


def _warn_of_few_levels(group: _Group, rows: np.ndarray, best: tuple[np.ndarray, int]) -> None:
    lost = _lost(rows, group.format, *best)
    if group.format.name == "int8" and lost > FEW_LEVELS:
        used = np.abs(_steps(rows, group.format, *best) - best[1])
        warnings.warn(
            f"rounding %{group.root} to int8 loses {lost:.1%} of its energy on the samples: nine of ten of its numbers "
            f"are within {np.quantile(used, 0.9):.0f} of 127 steps, since a few are much larger; bound those, or scale "
            "what is small by itself",
            CalibrationWarning,
            stacklevel=3,
        )


def _of_range(limits: known.Range, group: _Group) -> tuple[np.ndarray, int]:
    """The scale and the step of zero with which all numbers of a range are steps, the ends of it among them."""
    low, high = min(limits[0], 0.0), max(limits[1], 0.0)
    bits = group.format.bits
    if group.has_zero and -low != high:
        scale = np.asarray((high - low) / (2**bits - 1))
        return scale, -(2 ** (bits - 1)) - int(np.rint(low / scale))
    return _best_scales(np.array([[max(-low, high)]]), group.format)[0], 0


def _format(operator: Operator, precision: Mapping[str, str]) -> Precision:
    found = format_of(operator.name, operator.part, precision)
    # Lanes take bytes.
    return PRECISIONS["int8"] if operator.kind == "match_probability" and found.name == "int4" else found


def _operands(operator: Operator) -> tuple[int, ...]:
    """Which operands of an operator are narrow; a bias is added to the wide sum."""
    return (0, 1) if operator.unit in ("gemm", "vector") or operator.kind == "match_probability" else ()


def _mean_losses(quantised: Quantised, samples: list[Inputs], left_out: Collection[str]) -> dict[str, np.ndarray]:
    """What the channels of each layer of integers lose on average, those before it corrected: [channel] each."""
    graph, found = quantised.graph, {}
    quantised = replace(quantised, biases=found)
    uncorrected = {*graph.alike, *left_out}
    exact = [_Run(graph, sample) for sample in samples]
    rounded: list[_Run] | list[emulation.Emulation]
    formats = _hardware(quantised)
    if formats is not None:
        rounded = [emulation.Emulation(graph, formats, sample) for sample in samples]
    else:
        rounded = [_Run(graph, sample, quantised) for sample in samples]
    for operator in graph:
        # A product of matrices keeps zeros: of a vector without entries, say. Iterations of a loop have one bias.
        is_corrected = operator.kind != "matmul" and operator.name not in uncorrected
        if is_corrected and is_layer(graph, operator) and not quantised.format(operator).is_float:
            weight = np.asarray(graph.constants[operator.inputs[1]], np.float64)
            given = np.mean([_mean_terms(operator, weight, run.numbers(operator, 0)) for run in exact], 0)
            seen = np.mean([_mean_terms(operator, weight, run.numbers(operator, 0)) for run in rounded], 0)
            steps = quantised.rounded(operator, 1, weight)
            found[operator.name] = _of_terms(weight, given) - _of_terms(steps, seen)
        for run in (*exact, *rounded):
            run.advance(operator)
    return found


def _mean_terms(operator: Operator, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The means of what each weight of a channel is multiplied by, [group, term]."""
    if operator.kind != "conv2d":
        return x.reshape(1, -1, x.shape[-1]).mean(1)
    means = [met.mean((0, 2, 3)) for _, met in products.taps(x, weight.shape[2:], operator.at)]
    return np.stack(means, -1).reshape(operator.at["groups"], -1)


def _of_terms(weight: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """What the channels of a layer, whose weights are [channel, ...], make of means [group, term]."""
    grouped = weight.reshape(len(terms), -1, terms.shape[1])
    return np.einsum("gok,gk->go", grouped, terms).reshape(-1)


def _along_channels(operator: Operator, row: np.ndarray) -> np.ndarray:
    return row[:, None, None] if operator.kind == "conv2d" else row


def checked_precision(precision: Mapping[str, str], graph: OperatorGraph) -> dict[str, str]:
    """The formats of both parts and of operators. Raises DomainError for unknown names and formats, for a part without
    one, and for iterations of a loop that differ."""
    names = {operator.name for operator in graph}
    names |= {name.partition(".")[0] for name in names}
    unknown = [name for name in precision if name not in PARTS and name not in names]
    if unknown or any(part not in precision for part in PARTS):
        raise DomainError(
            f"the precision is of {sorted(precision)}", hint='{"neural": "int8", "symbolic": "int4"} has both parts'
        )
    for name, root in graph.alike.items():
        one, other = (_format(graph[each], precision) for each in (name, root))
        if one != other:
            raise DomainError(
                f"%{name} is {one.name} and %{root} {other.name}, which are the same in two iterations of a loop",
                source=graph[name].source or None,
                hint="name the module, which is all iterations",
            )
    return {name: PRECISIONS[format].name for name, format in precision.items()}


def evaluate(quantised: Quantised, inputs: Inputs) -> tuple[np.ndarray, ...]:
    """The outputs of the model as it is quantised: what that costs in accuracy.

    With integers these are the outputs of the hardware, to the bit. With floats, and for models that it does not do,
    operands are rounded and the rest is float64.
    """
    graph, formats = quantised.graph, _hardware(quantised)
    if formats is not None:
        integers = emulation.evaluate(graph, formats, inputs)
        return tuple(formats.values_of(graph[name], found) for name, found in zip(graph.outputs, integers))
    return _Run(graph, inputs, quantised).outputs()


# What is computed


def _streamed(graph: OperatorGraph, operator: Operator) -> list[int]:
    """Which narrow operands of an operator are no constants."""
    return [place for place in _operands(operator) if graph[operator.inputs[place]].kind != "constant"]


def _hardware(quantised: Quantised) -> Formats | None:
    """The formats of the hardware for a model; None where there is none."""
    if any(PRECISIONS[name].is_float for name in quantised.precision.values()) or not emulation.is_done(
        quantised.graph
    ):
        return None
    try:
        return quantised.formats
    except DomainError:  # numbers beyond what it holds, which the lowering tells
        return None


class _Run(Evaluation):
    """A run under way in float64; with `quantised`, operands are rounded, and results are kept in as many bits."""

    def __init__(self, graph: OperatorGraph, inputs: Inputs, quantised: Quantised | None = None):
        super().__init__(graph, inputs)
        self.quantised = quantised

    def compute(self, of: Operator) -> np.ndarray:
        if of.unit == "source":
            return super().compute(of)
        operands = [self.numbers(of, place) for place in range(len(of.inputs))]
        quantised = self.quantised
        if quantised is not None and of.kind == "log" and not quantised.format(of).is_float:
            operands = [np.maximum(operands[0], WIDE.scale)]  # what the lanes take for zero
        compute: Callable[[list[np.ndarray], dict[str, Any]], Any] = _QUICK.get(of.kind, of.row.evaluate)
        value = np.asarray(compute(operands, of.at))
        if quantised is None or value.dtype.kind != "f" or of.unit == "view":
            return value
        if of.name in quantised.biases:
            value = value + _along_channels(of, quantised.biases[of.name])
        return _half(value) if quantised.format(of).is_float else WIDE.numbers(WIDE.steps(value))

    def numbers(self, of: Operator, place: int) -> np.ndarray:
        """An operand, as it is rounded."""
        value = self.values[of.inputs[place]]
        return value if self.quantised is None else self.quantised.rounded(of, place, value)


def _convolution(operands: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    x, weight, *bias = operands
    found = emulation.convolution(x.astype(np.float64), weight, attributes)
    return found + bias[0][:, None, None] if bias else found


# What gives the same as the meaning up to rounding in float64, much sooner.
_QUICK = {
    "conv2d": _convolution,
    "bind": lambda operands, attributes: emulation.circular(operands[0], operands[1], False),
    "unbind": lambda operands, attributes: emulation.circular(operands[0], operands[1], True),
}


# Numbers


def _along(operator: Operator, scale: np.ndarray, rank: int) -> np.ndarray:
    """The scale of weights along their channels, which are last in a product of matrices and else first."""
    return scale.reshape(-1, *(1,) * (rank - 1)) if scale.ndim and operator.kind != "matmul" else scale


def _steps(value: np.ndarray, precision: Precision, scale: Any, zero: int = 0) -> np.ndarray:
    """Where zero is 0, the lowest step is not used: steps are the same on both sides."""
    most = 2 ** (precision.bits - 1) - 1
    return np.clip(np.rint(value / scale) + zero, -most - (zero != 0), most)


def _rounded(value: np.ndarray, precision: Precision, scale: Any, zero: int = 0) -> np.ndarray:
    if precision.name == "fp16":
        return _half(value)
    if precision.is_float:
        return _eighth(value / scale) * scale
    return (_steps(value, precision, scale, zero) - zero) * scale


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
    kept = flat[:: ceil_div(len(flat), KEPT_VALUES) or 1]
    return np.append(kept, flat[np.abs(flat).argmax()]) if len(flat) else flat


def _best_scales(rows: np.ndarray, precision: Precision) -> np.ndarray:
    """For each row the scale with the least squared error; 1 for rows of zeros."""
    largest = np.abs(rows).max(1, initial=0.0)
    largest[largest == 0] = 1.0
    if precision.name == "fp16":
        return np.ones(len(rows))
    if precision.is_float:
        return largest / LARGEST_FP8
    most = 2 ** (precision.bits - 1) - 1
    # The likeliest first; of large tensors no others are tried, for each takes a rounding of all numbers.
    order = np.argsort(_expected_losses(rows, largest, most), 1, kind="stable")
    tried = max(LEAST_TRIED, TRIED_NUMBERS // max(rows.size, 1))
    best, error = np.ones(len(rows)), np.full(len(rows), np.inf)
    for place in order.T[:tried]:
        scale = CLIPS[place] * largest / most
        found = ((rows - _rounded(rows, precision, scale[:, None])) ** 2).sum(1)
        better = (found < error) | ((found == error) & (scale > best))
        best[better], error[better] = scale[better], found[better]
    return best


def _expected_losses(rows: np.ndarray, largest: np.ndarray, most: int) -> np.ndarray:
    """What rows lose with each of `CLIPS`, [row, clip]: exactly what is cut, and a twelfth of the square of a step for
    each other one but zeros. Without a rounding, from sums over parts of the range."""
    parts, first = PARTS_OF_RANGE, PARTS_OF_RANGE - len(CLIPS) + 1
    sums = np.zeros((3, len(rows), parts))
    for begin in range(0, len(rows), max(1, TRIED_NUMBERS // max(rows.shape[1], 1))):
        some = slice(begin, begin + max(1, TRIED_NUMBERS // max(rows.shape[1], 1)))
        sizes = np.abs(rows[some]) / largest[some, None]
        count = len(sizes)
        part = np.minimum(sizes * parts, parts - 1).astype(np.int64) + parts * np.arange(count)[:, None]
        for power in range(3):
            weights = (sizes**power).ravel()
            sums[power, some] = np.bincount(part.ravel(), weights, count * parts).reshape(count, parts)
    # Of all numbers above each clip; above the last are none.
    above = np.pad(sums[:, :, ::-1].cumsum(2)[:, :, ::-1], ((0, 0), (0, 0), (0, 1)))[:, :, first:]
    cut = above[2] - 2 * CLIPS * above[1] + CLIPS**2 * above[0]
    return cut + (np.count_nonzero(rows, 1)[:, None] - above[0]) * (CLIPS / most) ** 2 / 12


def _best_scale_and_zero(values: np.ndarray, precision: Precision) -> tuple[np.ndarray, int]:
    """The scale and the step of zero with the least squared error, where the values are more on one side of zero."""
    steps = 2**precision.bits - 1
    low, high = min(values.min(initial=0.0), 0.0), max(values.max(initial=0.0), 0.0)
    symmetric = _best_scales(values[None], precision)[0]
    best = ((values - _rounded(values, precision, symmetric)) ** 2).sum(), symmetric, 0
    for cut_low in CLIPS[::5] if low < 0 else (1.0,):
        for cut_high in CLIPS if high > 0 else (1.0,):
            span = high * cut_high - low * cut_low
            scale = np.asarray(span / steps)
            zero = -(2 ** (precision.bits - 1)) - int(np.rint(low * cut_low / scale)) if span else 0
            if zero:
                error = ((values - _rounded(values, precision, scale, zero)) ** 2).sum()
                best = min(best, (error, scale, zero), key=lambda found: found[0])
    return best[1], best[2]
