"""What the numbers of a generated accelerator mean, and what each operator does with them, to the bit.

Every value of an operator graph has one of two formats:

    narrow  int8 from -127 to 127, real = q * scale; what products of matrices and convolutions take
    wide    int32, real = q / 65536; what all other arithmetic takes and gives

Inputs, products, convolutions, bundles and concatenations are narrow where such an operator reads them, through views,
relu and maxima too, and wide otherwise. Where a value is not in the format that its reader takes, it is converted.

With rs(v, s) = (v + 2^(s-1)) >> s, or v for s = 0, with saturation to the result's type, and with (m, s) =
`scaling(real)`, the fixed-point form of a factor, operators are:

    convert                   rs(q * m, s), of from.scale / to.scale
    conv2d, linear, matmul    sum of products of int8, + round(bias / (sx * sw[n])); rs(sum * m[n], s), of
                              sx * sw[n] / sy; m[n] below 2^30, s by the largest. Constant weights have a scale for each
                              output channel, max |w| / 127; other constants one
    bind, unbind, bundle,     sum of products of int8; rs(sum * m, s), of sa * sb / sy; over the number of blocks for
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
    softmax                   t = exp2(rs((q - max) * m, s)), of log2(e); rs(t * r, 16 + k), r = exp2(k * 65536 -
                              log2(sum of t)), 2^k the least power that is not below the length of the axis
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


@dataclass(frozen=True)
class Format:
    """int8 or int32, and what one is: real = q * scale. Printed form: `i8 * 0.0125`"""

    type: str
    scale: float

    def __str__(self) -> str:
        return f"{self.type} * {self.scale:.6g}"


WIDE = Format("i32", 2.0**-16)
Ranges = Mapping[str, tuple[float, float]]


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


def assign(graph: OperatorGraph, ranges: Ranges) -> dict[str, Format]:
    """The format of every operator of a prepared graph but constants, from what is calibrated; and of "name:i8", which
    are the narrow numbers of a wide value where they are read.

    Raises DomainError, with the operator, where numbers are beyond what a wide format holds.
    """
    read_narrow: dict[str, bool] = {}
    for operator in reversed(graph.operators):
        readers = (graph[name] for name in graph.users[operator.name])
        read_narrow[operator.name] = any(
            reader.kind in _TAKES_NARROW or (reader.kind in (*_PRESERVES, "concatenate") and read_narrow[reader.name])
            for reader in readers
        )
    found: dict[str, Format] = {}
    for operator in graph:
        if operator.kind == "constant":
            continue
        if operator.kind in _PRESERVES and operator.inputs[0] in found:
            found[operator.name] = found[operator.inputs[0]]
        elif operator.kind in _GIVES_EITHER and read_narrow[operator.name]:
            found[operator.name] = narrow(max(map(abs, ranges[operator.name])))
        else:
            _check_wide(operator, ranges)
            found[operator.name] = WIDE
        if found[operator.name] == WIDE and read_narrow[operator.name]:
            found[f"{operator.name}:i8"] = narrow(max(map(abs, ranges[operator.name])))
    return found


def narrow(largest: float) -> Format:
    """The format that just holds numbers up to `largest`."""
    return Format("i8", largest / 127 if largest else 1.0)


def _check_wide(operator: Operator, ranges: Ranges) -> None:
    largest = max(map(abs, ranges[operator.name]))
    if largest >= 1 << 15:
        raise DomainError(
            f"%{operator.name} is up to {largest:.6g}, and numbers with 16 fractional bits are below 32768",
            source=operator.source or None,
            hint="scale what leads to it down",
        )
