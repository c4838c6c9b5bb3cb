"""The laws of semirings and the meaning of their declared properties, as checks on values.

Float carriers hold the laws up to rounding: both sides may differ by a few units in the last place of
the largest term. `first_violation` tries a few values; `tests/laws` tries many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.algebra.element import components, element_of
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import DerivableError

RELATIVE = 1e-9


@dataclass(frozen=True)
class Law:
    """An equation over `arity` values: `sides(semiring, *values)` gives the two sides.

    property  the declared property that promises it; "" for the laws that make a semiring
    """

    name: str
    arity: int
    sides: Callable[..., tuple[Any, Any]]
    property: str = ""

    def applies(self, semiring: Semiring) -> bool:
        if self.property == "complement_negates" and semiring.complement is None:
            return False
        return not self.property or bool(getattr(semiring, self.property))


def _selected(s: Semiring, a: Any, b: Any) -> tuple[Any, Any]:
    total = s.plus(a, b)
    return total, (a if _near(total, a, 0) else b)


def _inverted(s: Semiring, a: Any) -> tuple[Any, Any]:
    if _near(a, s.zero, 0):
        return s.one, s.one
    return s.times(a, s.inverse(a) if s.inverse is not None else s.one), s.one


def _saturated(s: Semiring, a: Any) -> tuple[Any, Any]:
    return bool(s.saturated(a, a)) if s.saturated is not None else True, True


def _discarded(s: Semiring, a: Any) -> bool:
    return bool(s.discard(a)) if s.discard is not None else _near(a, s.zero, 0)


LAWS = (
    Law("plus is commutative", 2, lambda s, a, b: (s.plus(a, b), s.plus(b, a))),
    Law("plus is associative", 3, lambda s, a, b, c: (s.plus(s.plus(a, b), c), s.plus(a, s.plus(b, c)))),
    Law("zero is neutral for plus", 1, lambda s, a: (s.plus(s.zero, a), a)),
    Law("times is associative", 3, lambda s, a, b, c: (s.times(s.times(a, b), c), s.times(a, s.times(b, c)))),
    Law("one is neutral for times on the left", 1, lambda s, a: (s.times(s.one, a), a)),
    Law("one is neutral for times on the right", 1, lambda s, a: (s.times(a, s.one), a)),
    Law("zero absorbs in times on the left", 1, lambda s, a: (s.times(s.zero, a), s.zero)),
    Law("zero absorbs in times on the right", 1, lambda s, a: (s.times(a, s.zero), s.zero)),
    Law(
        "times distributes over plus from the left",
        3,
        lambda s, a, b, c: (s.times(a, s.plus(b, c)), s.plus(s.times(a, b), s.times(a, c))),
        "distributive",
    ),
    Law(
        "times distributes over plus from the right",
        3,
        lambda s, a, b, c: (s.times(s.plus(a, b), c), s.plus(s.times(a, c), s.times(b, c))),
        "distributive",
    ),
    Law("times is commutative", 2, lambda s, a, b: (s.times(a, b), s.times(b, a)), "commutative"),
    Law("plus is idempotent", 1, lambda s, a: (s.plus(a, a), a), "idempotent_plus"),
    Law("times is idempotent", 1, lambda s, a: (s.times(a, a), a), "idempotent_times"),
    Law("plus selects one of its operands", 2, _selected, "selective_plus"),
    Law("one absorbs in plus", 1, lambda s, a: (s.plus(s.one, a), s.one), "absorptive"),
    Law("every nonzero value has an inverse", 1, _inverted, "invertible_times"),
    Law("the complement of zero is one", 0, lambda s: (s.complement(s.zero), s.one), "complement_negates"),
    Law("the complement of one is zero", 0, lambda s: (s.complement(s.one), s.zero), "complement_negates"),
    Law("a value that does not change is saturated", 1, _saturated),
    Law("zero is discarded", 0, lambda s: (_discarded(s, s.zero), True)),
    Law("one is not discarded", 0, lambda s: (_discarded(s, s.one), False)),
)


def holds(law: Law, semiring: Semiring, values: tuple) -> bool:
    """Whether the law's two sides are equal at `values`, up to rounding for floats."""
    left, right = law.sides(semiring, *values)
    floats = [x for value in (*values, left, right) for x in _scalars(value) if isinstance(x, (float, np.floating))]
    finite = [float(abs(x)) for x in floats if math.isfinite(x)]
    return _near(left, right, max([1.0, *finite]) if "float" in semiring.carriers else 0.0, law.arity)


def _scalars(value: Any) -> tuple[Any, ...]:
    return components(element_of(value), value, "a value")


def _near(left: Any, right: Any, scale: float, degree: int = 1) -> bool:
    left, right = _scalars(left), _scalars(right)
    return len(left) == len(right) and all(_near_scalar(x, y, scale, degree) for x, y in zip(left, right))


def _near_scalar(left: Any, right: Any, scale: float, degree: int) -> bool:
    if left == right:
        return True
    is_float = isinstance(left, (float, np.floating)) or isinstance(right, (float, np.floating))
    if not is_float or not scale or not (math.isfinite(left) and math.isfinite(right)):
        return False
    # Terms may be products of `degree` values that cancel in the result.
    return bool(abs(left - right) <= RELATIVE * scale**degree)


def sample_values(semiring: Semiring) -> tuple[Any, ...]:
    """A few values of the carrier: zero, one, and ordinary ones inside the domain.

    Those of a nest whose domain is not given are made from random facts, if it says what they are.
    """
    if semiring.is_scalar:
        inside = _ordinary(semiring.carrier, *semiring.domain) + [2**70] * (semiring.carrier == "integer")
        return tuple(dict.fromkeys([semiring.zero, semiring.one, *inside]))
    samples = [semiring.zero, semiring.one]
    if semiring.fact is not None:
        facts = [semiring.fact(p, number) for number, p in enumerate((0.5, 0.25, 0.75))]
        samples += [*facts, semiring.times(facts[0], facts[1]), semiring.plus(facts[0], facts[2])]
    if semiring.fact is None or not all(math.isinf(end) for pair in semiring.domains for end in pair):
        columns = [
            [x for x in _ordinary(kind, *pair) if x != 2**70] for kind, pair in zip(semiring.carriers, semiring.domains)
        ]
        for row in range(4):
            scalars = [column[(row * (k + 2) + k) % len(column)] for k, column in enumerate(columns)]
            samples.append(semiring.nest(scalars))
    return tuple(samples)


def _ordinary(carrier: str, low: float, high: float) -> list[Any]:
    if carrier == "bool":
        return [False, True]
    if carrier == "integer":
        ordinary: tuple[Any, ...] = (-3, -1, 2, 3, 70)
    else:
        ordinary = (-2.5, -1.0, -0.25, 0.0, 0.125, 0.3, 0.5, 0.9, 1.0, 1.75, 3.0)
    return [value for value in ordinary if low <= value <= high]


def violations(semiring: Semiring, values: tuple) -> Iterator[str]:
    """A sentence for every law or declared property that fails on some combination of `values`."""
    for law in LAWS:
        if not law.applies(semiring):
            continue
        for combination in itertools.product(values, repeat=law.arity):
            try:
                fine = holds(law, semiring, combination)
            except DerivableError:
                raise
            except Exception as error:
                yield f"{law.name}: fails on {_shown(combination)} with {type(error).__name__}: {error}"
                break
            if not fine:
                left, right = law.sides(semiring, *combination)
                promise = f" (declared {law.property})" if law.property else ""
                yield f"{law.name}{promise}: for {_shown(combination)} one side is {left!r}, the other {right!r}"
                break


def first_violation(semiring: Semiring) -> str | None:
    """The first broken law on a few values of the carrier, or None. A test, not a proof."""
    return next(violations(semiring, sample_values(semiring)), None)


def _shown(values: tuple) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in zip("abc", values)) or "its constants"
