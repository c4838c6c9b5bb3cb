"""Sine, cosine and the error function by what the SIMD unit has: products, sums, a floor, and powers of two.

Polynomials are near to 1e-6, a fifteenth of the step of wide numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Of sin(x) / x by x^2, with the least largest error up to pi / 2.
_SINE = (0.99999661588, -0.16664828374, 0.00830632516, -0.00018363652)
# A turn in two parts: whole numbers of turns times the first are exact in fixed point, and the second is small.
_TURN = (6.28125, 2 * math.pi - 6.28125)
# Abramowitz and Stegun, 7.1.26.
_RATE, _ERROR = 0.3275911, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)

error_function = np.vectorize(math.erf, otypes=[np.float64])


def _polynomial(graph: Any, x: str, coefficients: Sequence[float]) -> str:
    found = graph.scalar(coefficients[-1])
    for number in reversed(coefficients[:-1]):
        found = graph.add("add", graph.add("mul", found, x), graph.scalar(number))
    return found


def wave(shift: float) -> Callable[[Any, Sequence[str], Any], str]:
    """cos(x - shift): x is turned back to half a turn around zero, and the rest is the sine of pi / 2 - |x|."""

    def composite(graph: Any, inputs: Sequence[str], attributes: Any) -> str:
        x = graph.add("sub", inputs[0], graph.scalar(shift)) if shift else inputs[0]
        turns = graph.add("mul", x, graph.scalar(1 / (2 * math.pi)))
        turns = graph.add("floor", graph.add("add", turns, graph.scalar(0.5)))
        for part in _TURN:
            x = graph.add("sub", x, graph.add("mul", turns, graph.scalar(part)))
        angle = graph.add("sub", graph.scalar(math.pi / 2), graph.add("abs", x))
        return graph.add("mul", angle, _polynomial(graph, graph.add("mul", angle, angle), _SINE))

    return composite


def erf_composite(graph: Any, inputs: Sequence[str], attributes: Any) -> str:
    (x,) = inputs
    size = graph.add("abs", x)
    near = graph.add("add", graph.add("mul", size, graph.scalar(_RATE)), graph.scalar(1.0))
    t = graph.add("div", graph.scalar(1.0), near)
    falling = graph.add("exp", graph.add("mul", graph.add("mul", x, x), graph.scalar(-1.0)))
    rest = graph.add("mul", graph.add("mul", _polynomial(graph, t, _ERROR), t), falling)
    is_above = graph.add("greater", x, graph.scalar(0.0))
    sign = graph.add("sub", graph.add("mul", is_above, graph.scalar(2.0)), graph.scalar(1.0))
    return graph.add("mul", graph.add("sub", graph.scalar(1.0), rest), sign)
