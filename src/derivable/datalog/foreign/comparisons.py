"""The language's comparisons by predicates: `float_eq`, and soft ones, which hold with a probability.

With the logistic function s: `soft_gt` holds with s(a - b), `soft_lt` with s(b - a), `soft_eq` with sech((a - b) / 2),
which is 1 for equal numbers, and `soft_neq` with the rest. The hyperbolic secant at half the difference is the square
root of 4 s'(a - b): the slope of the logistic function, on the scale where its top is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from derivable.datalog.foreign.predicate import ForeignPredicate
from derivable.datalog.foreign.signature import signature

_NEAR = 0.001


def _logistic(x: float) -> float:
    # The exponential of a negative number does not overflow.
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _secant(x: float) -> float:
    """sech(x / 2), by the exponential of a negative number."""
    decay = math.exp(-abs(x))
    return 2 * math.sqrt(decay) / (1 + decay)


def _soft(name: str, chance: Callable[[float], float]) -> ForeignPredicate:
    def call(a: float, b: float) -> Iterator[tuple[float, tuple[()]]]:
        difference = 0.0 if a == b else float(a - b)
        yield chance(difference), ()

    return ForeignPredicate(name, signature("<T: Number>(a: T, b: T) -> ()"), call, is_tagged=True, kind="chance")


def _near(a: float, b: float) -> Iterator[tuple[()]]:
    if a == b or abs(a - b) < _NEAR:
        yield ()


FUNCTIONS = ()
PREDICATES = (
    _soft("soft_gt", _logistic),
    _soft("soft_lt", lambda x: _logistic(-x)),
    _soft("soft_eq", _secant),
    _soft("soft_neq", lambda x: 1 - _secant(x)),
    # In Scallop, what gives each row of a tagged rule a separate fact; a tag does so here without it.
    ForeignPredicate("new_tag_variable", signature("() -> ()"), lambda: [()]),
    ForeignPredicate("float_eq", signature("<T: Float>(a: T, b: T) -> ()"), _near),
)
