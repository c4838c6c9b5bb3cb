"""Ranges that are known without a sample: of softmax, tanh, sigmoid, similarities, and of what is made of them.

Intervals go through the graph from its inputs, which may be anything, to its outputs. Two more facts go with them,
since intervals alone say too little of products: what the entries of the last axis add up to where none is negative
(masses, such as block codes), and over how many of the last axes the squares add up to at most one (directions, whose
products are cosines, by the inequality of Cauchy and Schwarz).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from derivable.accelerator.operators.kinds import size
from derivable.accelerator.operators.operators import Operator, OperatorGraph, wide

Range = tuple[float, float]

_ROUNDING = 1e-6  # by which constants may be longer than one: they are rounded floats of 32 bits
_SAME = ("reshape", "permute", "slice", "index", "expand", "roll", "max", "min", "max_pool2d", "mean")


@dataclass(frozen=True)
class _Fact:
    """What is known of a value.

    low, high  of every entry
    mass       the largest sum along the last axis where no entry is negative, else infinite
    directed   over how many of the last axes squares add up to at most one; 0 for none
    """

    low: float = -math.inf
    high: float = math.inf
    mass: float = math.inf
    directed: int = 0

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def within(self, low: float, high: float) -> _Fact:
        return replace(self, low=max(self.low, low), high=min(self.high, high))


_ANY = _Fact()
_Facts = Mapping[str, _Fact]


def ranges(graph: OperatorGraph) -> dict[str, Range]:
    """The least and the largest number that a value can have, of the values of which both are known."""
    facts: dict[str, _Fact] = {}
    for operator in graph:
        facts[operator.name] = _fact(graph, operator, facts)
    return {name: (fact.low, fact.high) for name, fact in facts.items() if fact.is_known}


def _fact(graph: OperatorGraph, of: Operator, facts: dict[str, _Fact]) -> _Fact:
    if of.kind == "constant":
        return _of_constant(wide(graph.constants[of.name]).astype(np.float64))
    given = [facts[name] for name in of.inputs]
    if of.kind in _SAME:
        return _viewed(graph, of, given[0])
    if of.kind in _RULES:
        return _RULES[of.kind](graph, of, given, facts)
    return _Fact(0.0, 1.0) if of.dtype == "bool" else _ANY


def _of_constant(array: np.ndarray) -> _Fact:
    if not array.size or not np.isfinite(array).all():
        return _ANY
    directed = 0
    while directed < array.ndim:
        squares = (array * array).sum(tuple(range(array.ndim - directed - 1, array.ndim)))
        if squares.max() > 1 + _ROUNDING:
            break
        directed += 1
    mass = float(array.sum(-1).max()) if array.ndim and array.min() >= 0 else math.inf
    return _Fact(float(array.min()), float(array.max()), mass, directed)


def _viewed(graph: OperatorGraph, of: Operator, given: _Fact) -> _Fact:
    """Entries of what is given, or what lies between them; what is known of rows holds where rows are whole."""
    before, after = graph[of.inputs[0]].shape, of.shape
    apart = replace(given, mass=math.inf, directed=0)
    if not before or not after:
        return apart
    if of.kind == "reshape":
        is_whole = after[-1] % before[-1] == 0 or before[-1] % after[-1] == 0
        mass = given.mass * max(after[-1] // before[-1], 1) if is_whole else math.inf
        row = size(before[len(before) - given.directed :])
        found = [n for n in range(1, len(after) + 1) if given.directed and row % size(after[len(after) - n :]) == 0]
        return replace(given, mass=mass, directed=max(found, default=0))
    if of.kind == "permute":
        order, rank = of.at["order"], len(before)
        last = rank - given.directed
        is_whole = set(order[last:]) == set(range(last, rank))
        return replace(
            given,
            mass=given.mass if order[-1] == rank - 1 else math.inf,
            directed=given.directed if is_whole else 0,
        )
    if of.kind in ("slice", "index", "roll"):
        return given if of.kind != "index" or of.at["axis"] < len(before) - max(given.directed, 1) else apart
    if of.kind == "expand":
        last = max(given.directed, 1)
        return given if after[len(after) - last :] == before[len(before) - last :] else apart
    return apart


def _interval(numbers: list[float]) -> _Fact:
    """The least interval around some numbers; nothing is known where infinities meet zeros."""
    return _ANY if any(map(math.isnan, numbers)) else _Fact(min(numbers), max(numbers))


def _product(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    a, b = given
    found = _interval([x * y for x in (a.low, a.high) for y in (b.low, b.high)])
    return found.within(0.0, math.inf) if of.inputs[0] == of.inputs[1] else found


def _quotient(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    """What is divided by its own length is a direction."""
    axes = _axes_of_length(graph, *of.inputs)
    rank = len(of.shape)
    if not axes or set(axes) != set(range(rank - len(axes), rank)):
        return _Fact(-1.0, 1.0) if axes else _ANY
    return _Fact(-1.0, 1.0, directed=len(axes))


def _axes_of_length(graph: OperatorGraph, name: str, length: str) -> tuple[int, ...]:
    """The axes along which `length` is at least the root of the sum of the squares of a value; none if it is not."""
    of = graph[length]
    while of.kind in ("clamp", "maximum", "expand"):
        if of.kind == "clamp" and of.at["high"] is not None:
            return ()
        of = graph[next((each for each in of.inputs if graph[each].kind != "constant"), of.inputs[0])]
    if of.kind != "sqrt" or graph[of.inputs[0]].kind != "sum" or not graph[of.inputs[0]].at["keepdims"]:
        return ()
    total = graph[of.inputs[0]]
    squares = graph[total.inputs[0]]
    return tuple(total.at["axes"]) if squares.kind == "mul" and set(squares.inputs) == {name} else ()


def _added(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    """A value and a constant; two values that depend on one another seldom come near the ends of their sum."""
    if all(graph[name].kind != "constant" for name in of.inputs):
        return _ANY
    a, b = given
    if of.kind == "sub":
        return _Fact(a.low - b.high, a.high - b.low)
    return _Fact(a.low + b.low, a.high + b.high)


def _total(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    """Of masses and of cosines; of others the ends are far from what sums are."""
    x, axes, before = given[0], set(of.at["axes"]), graph[of.inputs[0]]
    found = _ANY
    if axes == {len(before.shape) - 1} and math.isfinite(x.mass):
        found = _Fact(0.0, x.mass)
    return found.within(-1.0, 1.0) if before.kind == "mul" and _is_cosine(graph, before, axes, facts) else found


def _is_cosine(graph: OperatorGraph, product: Operator, axes: set[int], facts: _Facts) -> bool:
    """Whether products of two directions are added up along the axes of both."""
    rank, count = len(product.shape), len(axes)
    if not count or axes != set(range(rank - count, rank)):
        return False
    return all(
        facts[name].directed >= count and graph[name].shape[-count:] == product.shape[-count:]
        for name in product.inputs
    )


def _matmul(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    """Means of rows by masses, and cosines."""
    a, b = given
    found = _ANY
    if math.isfinite(a.mass) and b.is_known:
        found = _Fact(a.mass * min(b.low, 0.0), a.mass * max(b.high, 0.0))
    return found.within(-1.0, 1.0) if a.directed and _has_directed_columns(graph, of.inputs[1], facts) else found


def _has_directed_columns(graph: OperatorGraph, name: str, facts: _Facts) -> bool:
    of = graph[name]
    if of.kind == "constant" and len(of.shape) > 1:
        return bool((wide(graph.constants[name]).astype(np.float64) ** 2).sum(-2).max(initial=0) <= 1 + _ROUNDING)
    rank = len(of.shape)
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return of.kind == "permute" and of.at["order"] == swapped and facts[of.inputs[0]].directed > 0


def _bound(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    """A circular convolution of masses is a mass: sums are multiplied."""
    mass = given[0].mass * given[1].mass
    return _Fact(0.0, mass, mass) if math.isfinite(mass) else _ANY


def _match(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    (a, b), most = given, math.inf
    if math.isfinite(a.mass) and math.isfinite(b.mass):
        most = min(a.mass * b.high, b.mass * a.high)
    return _Fact(0.0, most) if math.isfinite(most) else _ANY


def _clamped(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    low, high = of.at["low"], of.at["high"]
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    return _Fact(min(max(given[0].low, low), high), min(max(given[0].high, low), high))


def _averaged(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    """A window may lie on the border, which is zero."""
    return _Fact(min(given[0].low, 0.0), max(given[0].high, 0.0))


def _softmax(graph: OperatorGraph, of: Operator, given: list[_Fact], facts: _Facts) -> _Fact:
    return _Fact(0.0, 1.0, 1.0 if of.at["axis"] == len(of.shape) - 1 else math.inf)


def _magnitude(low: float, high: float) -> _Fact:
    return _Fact(0.0 if low <= 0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high)))


_Rule = Callable[[OperatorGraph, Operator, list[_Fact], _Facts], _Fact]
_RULES: dict[str, _Rule] = {
    "softmax": _softmax,
    "to_mass": lambda graph, of, given, facts: _Fact(0.0, 1.0, 1.0),
    "normalise": lambda graph, of, given, facts: _Fact(-1.0, 1.0, directed=of.at["rank"]),
    "tanh": lambda graph, of, given, facts: _Fact(-1.0, 1.0),
    "relu": lambda graph, of, given, facts: _Fact(max(given[0].low, 0.0), max(given[0].high, 0.0)),
    "abs": lambda graph, of, given, facts: _magnitude(given[0].low, given[0].high),
    "clamp": _clamped,
    "add": _added,
    "sub": _added,
    "mul": _product,
    "div": _quotient,
    "maximum": lambda graph, of, given, facts: _Fact(max(x.low for x in given), max(x.high for x in given)),
    "minimum": lambda graph, of, given, facts: _Fact(min(x.low for x in given), min(x.high for x in given)),
    "greater": lambda graph, of, given, facts: _Fact(0.0, 1.0),
    "equal": lambda graph, of, given, facts: _Fact(0.0, 1.0),
    "sum": _total,
    "matmul": _matmul,
    "bind": _bound,
    "unbind": _bound,
    "match_probability": _match,
    "avg_pool2d": _averaged,
    "concatenate": lambda graph, of, given, facts: _Fact(min(x.low for x in given), max(x.high for x in given)),
}
