"""The language's comparisons by predicates: `float_eq`, and soft ones, which hold with a probability.

With the logistic function s, of slope 1 at the unit scale: `soft_gt` holds with s(a - b), `soft_lt` with s(b - a),
`soft_eq` with s'(a - b), which is at most 1/4, and `soft_neq` with 1 - s'(a - b).
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


def _slope(x: float) -> float:
    return _logistic(x) * _logistic(-x)


def _soft(name: str, chance: Callable[[float], float]) -> ForeignPredicate:
    def call(a: float, b: float) -> Iterator[tuple[float, tuple[()]]]:
        difference = 0.0 if a == b else float(a - b)
        yield chance(difference), ()

    return ForeignPredicate(name, signature("<T: Number>(a: T, b: T) -> ()"), call, is_tagged=True)


def _near(a: float, b: float) -> Iterator[tuple[()]]:
    if a == b or abs(a - b) < _NEAR:
        yield ()


FUNCTIONS = ()
PREDICATES = (
    _soft("soft_gt", _logistic),
    _soft("soft_lt", lambda x: _logistic(-x)),
    _soft("soft_eq", _slope),
    _soft("soft_neq", lambda x: 1 - _slope(x)),
    # In Scallop, what gives each row of a tagged rule a fact of its own; a tag does so here without it.
    ForeignPredicate("new_tag_variable", signature("() -> ()"), lambda: [()]),
    ForeignPredicate("float_eq", signature("<T: Float>(a: T, b: T) -> ()"), _near),
)
