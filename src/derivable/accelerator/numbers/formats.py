"""What the numbers of a generated accelerator mean, and what each operator does with them, to the bit.

Every value of an operator graph has one of two formats:

    narrow  int8 or int4, real = (q - zero) * scale; what products of matrices and convolutions take, with the scales
            and zeros of the calibration (`quantisation.py`)
    wide    int32, real = q / 65536; what all other arithmetic takes and gives. A product that only outputs of
            the model are made of has a binary point of its own, by its calibrated range: real = q / 2^p

Inputs, products, convolutions, bundles and concatenations are narrow where all that reads them, through views, relu
and maxima too, takes narrow numbers of one format; and wide otherwise, so that nothing is rounded twice. Only inputs,
conv2d, linear and concatenations have a zero that is not 0. Where a value is not in the format that its reader takes,
it is converted.

With rs(v, s) = (v + 2^(s-1)) >> s, or v for s = 0, with saturation to the result's format, and with (m, s) =
`scaling(real)`, the fixed-point form of a factor, operators are:

    convert                   rs((q + z) * m, s), of from.scale / to.scale; z = round(to.zero * 2^s / m) - from.zero
    conv2d, linear, matmul by a constant matrix
                              sum of products of steps, + round((bias + added) / (sx * sw[n]) + y.zero * 2^s / m[n])
                              - x.zero * (sum of the steps of channel n's weights); rs(sum * m[n], s), of
                              sx * sw[n] / sy; m[n] below 2^30, s by the largest. Weights have a scale for each output
                              channel; a scale is made larger where what is added is beyond 2^29 steps of its sums, or
                              where it is below 2^-20 of the largest. Borders of paddings are x.zero
    matmul, bind, unbind, bundle, match_probability
                              sum of narrow products; rs(sum * m, s), of sa * sb / sy; over the number of blocks for
                              match_probability. With a constant, m below 2^30 for matmul and bundle
    relu                      max(q, zero)
    max, min, max_pool2d, views    as they are, in the format of their input
    concatenate               each input converted
    add, sub                  of wide numbers
    mul, div by a number c    rs(q * m, s), of c, of wide numbers
    mul                       rs(a * b, 16) of wide numbers
    div                       rs(a * r, 16 + k), r = exp2(k * 65536 - log2(b)), 2^k the least power that is not below
                              the largest calibrated |b|, and k at least 0. Where k is above 4 and b may be below
                              2^(k - 15), exp2(log2(a) - log2(max(b, 1))). What was negative in the calibration is taken
                              by its size, and the result is multiplied by its sign, which of 0 is 0
    greater, equal, floor     of wide numbers, exactly: 65536 or 0; q >> 16 << 16
    sum                       exact, of wide numbers
    mean                      rs(sum * m, s), of 1 / count, of the exact sum
    prod                      one after the other: rs(a * b, 16)
    clamp, maximum, minimum, abs    of wide numbers; bounds are rounded
    exp, log                  exp2(rs(q * m, s)), of log2(e); rs(log2(max(q, 1)) * m, s), of log(2)
    sqrt                      exp2(rs(log2(q), 1))
    tanh                      65536 - exp2(65536 - log2(exp2(rs(q * m, s)) + 65536)), of 2 log2(e)
    gelu, both forms          rs(q * r, 16), r = exp2(-log2(exp2(rs(u * m, s)) + 65536)), of -2 sqrt(2 / pi) log2(e),
                              u = q + rs(c * m, s), of 0.044715, c = rs(rs(q * q, 16) * q, 16)
    softmax                   t = exp2(rs((q - max) * m, s)), of log2(e); rs(t * r, 16 + k), r = exp2(k * 65536 -
                              log2(sum of t)), 2^k the least power that is not below the length of the axis
    to_mass                   p = max(q, 0); rs(p * r, 16 + k), r as for softmax, of the sum of p, 2^k not below the
                              largest calibrated one times the length; and, where the sum is zero, rs(-m, s), of
                              -65536 / length
    normalise                 rs(q * exp2(rs(-log2(rs(sum of q * q, 16)), 1)), 16)
    avg_pool2d                rs(sum of r * m, s), of 2^k / size of the window, over its rows: r = rs(sum of a row, k),
                              2^k the least power that is not below its length; k = 0 for a window of one row
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from derivable.accelerator.operators import operators
from derivable.accelerator.operators.kinds import PRESERVES
from derivable.accelerator.operators.operators import Operator, OperatorGraph
from derivable.core.diagnostics import DomainError

if TYPE_CHECKING:
    from derivable.accelerator.numbers.quantisation import OperandKey, Quantised

KEPT = ("match_probability", "bundle", "mean")  # composite kinds that are lowered as they are
_GIVES_EITHER = ("input", "conv2d", "linear", "matmul", "bind", "unbind", "bundle", "concatenate")
_PRODUCTS = ("conv2d", "linear", "matmul", "bind", "unbind", "bundle")
_VIEWS = ("reshape", "permute", "slice", "index", "expand", "roll")
_ADDS_ZERO = ("input", "conv2d", "linear", "concatenate")  # whose results may have a zero

MOST = {"i4": 7, "i8": 127, "i32": (1 << 31) - 1}  # the largest number of a format
_TYPES = {"int8": "i8", "int4": "i4"}
_LARGEST_ADDED = 1 << 29  # of what is added to sums, beside what zeros make of them
_LARGEST_RATIO = 1 << 20  # of the scales of a layer's channels


@dataclass(frozen=True)
class Format:
    """int4, int8 or int32, and what one is: real = (q - zero) * scale. Printed form: `i8 * 0.0125`, `i8 * 0.0125 - 3`

    Without a zero, the lowest number of int4 and int8 is not used.
    """

    type: str
    scale: float
    zero: int = 0

    @property
    def most(self) -> int:
        return MOST[self.type]

    @property
    def clamp(self) -> tuple[int, int] | None:
        """The least and the largest narrow number; None for wide ones, which are kept by their type."""
        return None if self.type == "i32" else (-self.most - (self.zero != 0), self.most)

    @property
    def stored(self) -> str:
        """The type in memory: int4 are bytes, but where the array takes two of them at a time."""
        return "i32" if self.type == "i32" else "i8"

    def steps(self, real: np.ndarray) -> np.ndarray:
        """Numbers in this format, as floats."""
        least, most = self.clamp or (-self.most, self.most)
        return np.clip(np.rint(real / self.scale) + self.zero, least, most)

    def numbers(self, steps: np.ndarray) -> np.ndarray:
        """What numbers of this format mean."""
        return (steps - self.zero) * self.scale

    def __str__(self) -> str:
        zero = f" {'+-'[self.zero > 0]} {abs(self.zero)}" if self.zero else ""
        return f"{self.type} * {self.scale:.6g}{zero}"


WIDE = Format("i32", 2.0**-16)


@dataclass(frozen=True)
class Formats:
    """The formats of a prepared graph, as they follow from its calibration.

    values    of every operator but constants
    operands  in which operators take narrow operands, but weights of layers
    weights   of layers: the scale of each output channel [channel]
    types     of layers: the narrow type of their weights
    added     of conv2d and linear: what is added to each channel [channel] beside the graph's own bias
    ranges    of every operator: the least and the largest number
    """

    values: Mapping[str, Format]
    operands: Mapping[OperandKey, Format] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, np.ndarray] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    _steps: dict[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, name: str) -> Format:
        return self.values[name]

    def layer_steps(self, graph: OperatorGraph, layer: Operator) -> np.ndarray:
        """The weights of a layer in steps, float64 [channel, ...]: rounded once, however often they are read."""
        found = self._steps.get(layer.name)
        if found is None:
            weight = np.asarray(graph.constants[layer.inputs[1]], np.float64)
            weight = weight.T if layer.kind == "matmul" else weight
            scales = self.weights[layer.name].reshape(-1, *(1,) * (weight.ndim - 1))
            found = Format(self.types[layer.name], 1.0).steps(weight / scales).astype(np.int8)
            self._steps[layer.name] = found
        return found.astype(np.float64)

    def bounds(self, graph: OperatorGraph, name: str) -> tuple[float, float]:
        """The least and the largest number of a value in the calibration, or of a constant."""
        array = graph.constants.get(name)
        return self.ranges[name] if array is None else (float(np.min(array)), float(np.max(array)))

    def values_of(self, operator: Operator, steps: np.ndarray) -> np.ndarray:
        """What steps of an operator's result are as numbers of the model: float64, int64 or truth values."""
        numbers, dtype = self.values[operator.name].numbers(steps), operator.dtype
        whole = {"b": bool, "i": np.int64, "u": np.int64}.get(dtype[0] if not dtype.startswith("bf") else "f")
        return numbers if whole is None else np.rint(numbers).astype(whole)


def scaling(real: float, bits: int = 15) -> tuple[int, int]:
    """(m, s) with real = m / 2^s nearly, |m| < 2^bits, and s as large as that allows, 0 to 40."""
    shift = 40
    while shift and abs(round(real * 2.0**shift)) >= 1 << bits:
        shift -= 1
    if abs(round(real * 2.0**shift)) >= 1 << bits:
        raise DomainError(
            f"a step of what it takes is {real:.6g} steps of its result, and at most {1 << bits} are possible"
        )
    return round(real * 2.0**shift), shift


def prepare(graph: OperatorGraph) -> OperatorGraph:
    """The graph that is calibrated and lowered: constants folded, batch norms too, composite kinds written out but for
    `KEPT`."""
    graph = operators.fold_batch_norm(operators.fold_constants(graph))
    return operators.fold_constants(operators.expand(graph, KEPT))


def assign(quantised: Quantised) -> Formats:
    """The formats of a prepared graph that is quantised to integers.

    Raises DomainError for another precision, and, with the operator, for numbers beyond what a wide format holds.
    """
    graph = quantised.graph
    if any(name not in _TYPES for name in quantised.precision.values()):
        raise DomainError(
            f"the precision is {dict(quantised.precision)}", hint='give precision="int8", "int4" or "int8/int4"'
        )
    operands, weights = {}, {}
    for place, scale in quantised.scales.items():
        type = _TYPES[quantised.format(graph[place[0]]).name]
        if scale.ndim:
            weights[place[0]] = scale
        else:
            operands[place] = Format(type, float(scale), quantised.zeros.get(place, 0))
    wanted = _wanted(graph, operands)
    results = _only_results(graph)
    values: dict[str, Format] = {}
    for operator in graph:
        name, only = operator.name, next(iter(wanted[operator.name]), WIDE)
        if operator.kind == "constant":
            continue
        if operator.kind in PRESERVES and operator.inputs[0] in values:
            values[name] = values[operator.inputs[0]]
        elif operator.kind in _PRODUCTS and name in results and operator.dtype.startswith(("float", "bfloat")):
            values[name] = _own_wide(quantised.ranges[name], _step_of_sums(operator, operands, weights))
        elif len(wanted[name]) == 1 and operator.kind in (_ADDS_ZERO if only.zero else _GIVES_EITHER):
            values[name] = only
        else:
            values[name] = WIDE
        if values[name] == WIDE:
            _check_wide(operator, quantised.ranges[name])
        if name in quantised.peaks:
            _check_wide(operator, (0, quantised.peaks[name]), "on the way to its result ")
    for name, scale in weights.items():
        bias = np.abs(layer_bias(graph, graph[name], quantised.biases)) / operands[name, 0].scale
        zero = abs(values[name].zero) * values[name].scale / operands[name, 0].scale
        # What is added has to fit into 32 bits, in steps of the channel's sums: coarser ones where its weights vanish
        # beside that.
        least = np.maximum((bias + zero) / _LARGEST_ADDED, scale.max() / _LARGEST_RATIO)
        weights[name] = np.maximum(scale, least)
    types = {name: _TYPES[quantised.format(graph[name]).name] for name in weights}
    return Formats(values, operands, weights, types, quantised.biases, quantised.ranges)


def _wanted(graph: OperatorGraph, operands: Mapping[OperandKey, Format]) -> dict[str, set[Format]]:
    """In which formats each value is read, through what preserves formats; of loops, in any iteration."""
    shared: dict[str, set[Format]] = {}  # of what has the format of a root, in all iterations together
    while True:
        wanted: dict[str, set[Format]] = {}
        for operator in reversed(graph.operators):
            formats = {WIDE} if operator.name in graph.outputs else set()
            for reader in (graph[name] for name in dict.fromkeys(graph.users[operator.name])):
                if reader.kind in (*PRESERVES, "concatenate"):
                    formats |= wanted[reader.name]
                    continue
                for number, name in enumerate(reader.inputs):
                    if name == operator.name:
                        formats.add(operands.get((reader.name, number), WIDE))
            wanted[operator.name] = formats | shared.get(graph.alike.get(operator.name, ""), set())
        merged: dict[str, set[Format]] = {}
        for name, root in graph.alike.items():
            merged[root] = merged.get(root, set()) | wanted[name]
        if merged == shared:
            return wanted
        shared = merged


def _only_results(graph: OperatorGraph) -> set[str]:
    """Values that are outputs of the model, or become some by views alone: nothing computes with them."""
    found: set[str] = set()
    for operator in reversed(graph.operators):
        readers = [graph[name] for name in graph.users[operator.name]]
        is_read = operator.name in graph.outputs or bool(readers)
        # In a loop, the next iteration may compute with it.
        is_last = is_read and operator.name not in graph.alike
        if is_last and all(each.name in found and each.kind in _VIEWS for each in readers):
            found.add(operator.name)
    return found


def rectified(graph: OperatorGraph) -> set[str]:
    """Values of which only positive numbers are read: all readers are ReLUs, or preserve what ReLUs read."""
    found: set[str] = set()
    for operator in reversed(graph.operators):
        readers = [graph[name] for name in graph.users[operator.name]]
        is_read = readers and operator.name not in graph.outputs
        if is_read and all(each.kind == "relu" or (each.kind in PRESERVES and each.name in found) for each in readers):
            found.add(operator.name)
    return found


def _own_wide(range: tuple[float, float], least: float) -> Format:
    """The wide format of a result: the largest number of the calibration has 20 to 21 bits of the 31, so that those of
    other inputs may be a thousand times as large, and those a million times as small are not zero.

    least  the smallest scale that the sums can be brought to
    """
    largest = max(map(abs, range))
    if not largest:
        return WIDE
    scale = 2.0 ** (math.floor(math.log2(largest)) - 20)
    return Format("i32", max(scale, 2.0 ** math.ceil(math.log2(least)), 2.0**-40))


def _step_of_sums(
    operator: Operator, operands: Mapping[OperandKey, Format], weights: Mapping[str, np.ndarray]
) -> float:
    """What a step of a product's result is at least, so that its factor is one of `scaling`."""
    if operator.name in weights:
        own, bits = operands[operator.name, 0].scale * float(np.max(weights[operator.name])), 29
    else:
        own, bits = operands[operator.name, 0].scale * operands[operator.name, 1].scale, 14
    return own / 2.0**bits


def layer_bias(graph: OperatorGraph, layer: Operator, added: Mapping[str, np.ndarray]) -> np.ndarray:
    """What is added to each channel of a layer, [channel]: its own bias, and that of its calibration."""
    own = np.asarray(graph.constants[layer.inputs[2]], np.float64) if len(layer.inputs) == 3 else 0.0
    return own + added.get(layer.name, np.zeros(layer.shape[1 if layer.kind == "conv2d" else -1]))


def zero_shift(before: Format, after: Format, multiplier: int, shift: int) -> int:
    """What is added to a number before it is multiplied and shifted from one format to another."""
    return (round(after.zero * 2**shift / multiplier) if after.zero else 0) - before.zero


def _check_wide(operator: Operator, range: tuple[float, float], where: str = "") -> None:
    largest = max(map(abs, range))
    if largest >= 1 << 15:
        raise DomainError(
            f"%{operator.name} is {where}up to {largest:.6g}, and numbers with 16 fractional bits are below 32768",
            source=operator.source or None,
            hint="scale what leads to it down",
        )
