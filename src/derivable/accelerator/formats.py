"""What the numbers of a generated accelerator mean, and what each operator does with them, to the bit.

Every value of an operator graph has one of two formats:

    narrow  int8 from -127 to 127, or int4 from -7 to 7, real = q * scale; what products of matrices and convolutions
            take, int4 where only a part of the model reads it whose precision is int4
    wide    int32, real = q / 65536; what all other arithmetic takes and gives

Inputs, products, convolutions, bundles and concatenations are narrow where such an operator reads them, through views,
relu and maxima too, and wide otherwise; also where other operators read wide numbers of which one is half or more, as
that is no factor of 16 bits. Where a value is not in the format that its reader takes, it is converted.

With rs(v, s) = (v + 2^(s-1)) >> s, or v for s = 0, with saturation to the result's type, and with (m, s) =
`scaling(real)`, the fixed-point form of a factor, operators are:

    convert                   rs(q * m, s), of from.scale / to.scale
    conv2d, linear, matmul    sum of narrow products, + round(bias / (sx * sw[n])); rs(sum * m[n], s), of
                              sx * sw[n] / sy; m[n] below 2^30, s by the largest. Constant weights have a scale for each
                              output channel, max |w| / 127 (7); other constants one
    bind, unbind, bundle,     sum of narrow products; rs(sum * m, s), of sa * sb / sy; over the number of blocks for
    match_probability         match_probability
    relu, max, min, max_pool2d, views    as they are, in the format of their input
    concatenate               each input converted
    add, sub                  of wide numbers
    mul, div by a number c    rs(q * m, s), of scale * c * 65536
    mul                       rs(a * b, 16) of wide numbers
    div                       b above zero: rs(a * r, 16 + k), r = exp2(k * 65536 - log2(b)), 2^k the least power that
                              is not below the largest calibrated b, and k at least 0
    sum                       exact; rs(sum * m, s), of scale * 65536
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
    avg_pool2d                sum; rs(sum * m, s), of scale * 65536 / windows
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from derivable.accelerator import operators
from derivable.accelerator.operators import Inputs, Operator, OperatorGraph
from derivable.core.diagnostics import DomainError

KEPT = ("match_probability", "bundle")  # composite kinds that are lowered as they are
_TAKES_NARROW = ("conv2d", "linear", "matmul", "bind", "unbind", "bundle", "match_probability")
_GIVES_EITHER = ("input", "conv2d", "linear", "matmul", "bind", "unbind", "bundle", "concatenate")
_PRESERVES = ("relu", "max", "min", "max_pool2d", "reshape", "permute", "slice", "index", "expand", "roll")


MOST = {"i4": 7, "i8": 127, "i32": (1 << 31) - 1}  # the largest number of a format
_TYPES = {"int8": "i8", "int4": "i4"}


@dataclass(frozen=True)
class Format:
    """int4, int8 or int32, and what one is: real = q * scale. Printed form: `i8 * 0.0125`"""

    type: str
    scale: float

    @property
    def most(self) -> int:
        return MOST[self.type]

    @property
    def stored(self) -> str:
        """The type in memory: int4 are bytes, but for convolutions of vectors."""
        return "i32" if self.type == "i32" else "i8"

    def __str__(self) -> str:
        return f"{self.type} * {self.scale:.6g}"


WIDE = Format("i32", 2.0**-16)
Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Formats:
    """The formats of a prepared graph.

    values     of every operator but constants
    read       of wide values that are read as narrow numbers: what they are converted to
    precision  the narrow type of each part: "i8" or "i4"
    """

    values: Mapping[str, Format]
    read: Mapping[str, Format]
    precision: Mapping[str, str]

    def __getitem__(self, name: str) -> Format:
        return self.values[name]

    def narrow(self, name: str) -> Format:
        """The format in which narrow numbers of a value are read."""
        return self.read.get(name, self.values[name])


def scaling(real: float, bits: int = 15) -> tuple[int, int]:
    """(m, s) with real = m / 2^s nearly, |m| < 2^bits, and s as large as that allows, 0 to 40."""
    shift = 40
    while shift and abs(round(real * 2.0**shift)) >= 1 << bits:
        shift -= 1
    if abs(round(real * 2.0**shift)) >= 1 << bits:
        raise DomainError(f"a factor is {real:.6g}, expected below {1 << bits}")
    return round(real * 2.0**shift), shift


def prepare(graph: OperatorGraph) -> OperatorGraph:
    """The graph that is lowered: constants folded, batch norms too, composite kinds written out but for `KEPT`."""
    graph = operators.fold_batch_norm(operators.fold_constants(graph))
    return operators.fold_constants(operators.expand(graph, KEPT))


def calibrate(graph: OperatorGraph, samples: Iterable[Inputs]) -> dict[str, tuple[float, float]]:
    """The least and the largest number that each operator gives on any of the samples."""
    found: dict[str, tuple[float, float]] = {}
    for sample in samples:
        for name, array in operators.values(graph, sample).items():
            low, high = found.get(name, (math.inf, -math.inf))
            found[name] = (min(low, float(np.min(array))), max(high, float(np.max(array))))
    return found


def assign(graph: OperatorGraph, ranges: Ranges, precision: Mapping[str, str] | None = None) -> Formats:
    """The formats of a prepared graph, from what is calibrated.

    precision  "int8" or "int4" of each part, int8 where it is not given

    Raises DomainError for another precision, and, with the operator, for numbers beyond what a wide format holds.
    """
    types = {part: _TYPES.get(name, "") for part, name in {**_ALL_INT8, **(precision or {})}.items()}
    if set(types) != set(_ALL_INT8) or "" in types.values():
        raise DomainError(f"the precision is {precision}", hint='"neural" and "symbolic" are "int8" or "int4"')
    read: dict[str, set[str]] = {}  # the narrow types in which each value is read
    widened: set[str] = set()  # values that are read as wide numbers
    for operator in reversed(graph.operators):
        found = read[operator.name] = set()
        for reader in (graph[name] for name in graph.users[operator.name]):
            if reader.kind in _TAKES_NARROW:
                found.add(types[reader.part])
                continue
            if reader.kind in (*_PRESERVES, "concatenate"):
                found |= read[reader.name]
                if reader.name not in widened:
                    continue
            widened.add(operator.name)
    values: dict[str, Format] = {}
    narrowed: dict[str, Format] = {}
    for operator in graph:
        if operator.kind == "constant":
            continue
        name, largest = operator.name, max(map(abs, ranges[operator.name]))
        type = max(read[name], key=lambda type: MOST[type], default="i32")
        if operator.kind in _PRESERVES and operator.inputs[0] in values:
            values[name] = values[operator.inputs[0]]
        elif operator.kind in _GIVES_EITHER and read[name] and (name not in widened or _widens(narrow(largest, type))):
            values[name] = narrow(largest, type)
        else:
            _check_wide(operator, ranges)
            values[name] = WIDE
        if values[name] == WIDE and read[name]:
            narrowed[name] = narrow(largest, type)
    return Formats(values, narrowed, types)


_ALL_INT8 = {"neural": "int8", "symbolic": "int8"}


def _widens(format: Format) -> bool:
    """Whether the factor from a narrow format to the wide one has 16 bits."""
    return format.scale / WIDE.scale < (1 << 15) - 1


def narrow(largest: float, type: str) -> Format:
    """The format that just holds numbers up to `largest`."""
    return Format(type, largest / MOST[type] if largest else 1.0)


def _check_wide(operator: Operator, ranges: Ranges) -> None:
    largest = max(map(abs, ranges[operator.name]))
    if largest >= 1 << 15:
        raise DomainError(
            f"%{operator.name} is up to {largest:.6g}, and numbers with 16 fractional bits are below 32768",
            source=operator.source or None,
            hint="scale what leads to it down",
        )
