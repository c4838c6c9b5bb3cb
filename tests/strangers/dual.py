"""A semiring as a user writes it: numbers with their derivative by the probability of fact 0 (dual numbers)."""

from typing import NamedTuple

import derivable as dv
from derivable.algebra import Semiring


class Dual(NamedTuple):
    value: float
    slope: float


dual = Semiring(
    "dual",
    plus=lambda a, b: Dual(a.value + b.value, a.slope + b.slope),
    times=lambda a, b: Dual(a.value * b.value, a.value * b.slope + a.slope * b.value),
    zero=Dual(0.0, 0.0),
    one=Dual(1.0, 0.0),
    complement=lambda a: Dual(1 - a.value, -a.slope),
    fact=lambda p, variable: Dual(p, dv.where(variable == 0, 1.0, 0.0)),
)
