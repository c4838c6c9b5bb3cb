"""A semiring as a record with declared properties."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Carrier = Literal["float", "bool", "integer"]


@dataclass(frozen=True)
class Semiring:
    """(carrier, plus, times, zero, one) with plus commutative and associative, times associative,
    zero neutral for plus and absorbing for times, one neutral for times, times distributing over plus.

    plus, times  Python functions of two scalars, written so that they can be traced to `algebra.expr`
    zero, one    Python scalars of the carrier
    carrier      "float" (float32 and float64 arrays), "bool", or "integer" (exact Python integers)
    domain       the smallest and the largest value of a float or integer carrier; the laws hold between
                 them (an infinite end belongs to the domain only if it is `zero` or `one`)
    complement   the weight of a negative literal from that of its positive one, as a traceable
                 function; None means that negative weights must be given

    The properties below are declarations; `tests/laws` tests them for every registered semiring.

    commutative      times is commutative
    idempotent_plus  plus(a, a) = a
    idempotent_times times(a, a) = a
    selective_plus   plus(a, b) is a or b (so there is a best term: arg max, Viterbi)
    absorptive       plus(one, a) = one (so recursion converges)
    invertible_times every nonzero a has b with times(a, b) = one; `inverse` computes it
    differentiable   plus and times have derivatives almost everywhere
    """

    name: str
    plus: Callable[[Any, Any], Any]
    times: Callable[[Any, Any], Any]
    zero: Any
    one: Any
    carrier: Carrier = "float"
    complement: Callable[[Any], Any] | None = None
    commutative: bool = True
    idempotent_plus: bool = False
    selective_plus: bool = False
    absorptive: bool = False
    invertible_times: bool = False
    differentiable: bool = True
    description: str = ""
    domain: tuple[float, float] = (-math.inf, math.inf)
    idempotent_times: bool = False
    inverse: Callable[[Any], Any] | None = None
