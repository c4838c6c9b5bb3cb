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
        return not self.property or bool(getattr(semiring, self.property))


def _selected(s: Semiring, a: Any, b: Any) -> tuple[Any, Any]:
    total = s.plus(a, b)
    return total, (a if _near(total, a, 0) else b)


def _inverted(s: Semiring, a: Any) -> tuple[Any, Any]:
    if _near(a, s.zero, 0):
        return s.one, s.one
    return s.times(a, s.inverse(a) if s.inverse is not None else s.one), s.one


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
    ),
    Law(
        "times distributes over plus from the right",
        3,
        lambda s, a, b, c: (s.times(s.plus(a, b), c), s.plus(s.times(a, c), s.times(b, c))),
    ),
    Law("times is commutative", 2, lambda s, a, b: (s.times(a, b), s.times(b, a)), "commutative"),
    Law("plus is idempotent", 1, lambda s, a: (s.plus(a, a), a), "idempotent_plus"),
    Law("times is idempotent", 1, lambda s, a: (s.times(a, a), a), "idempotent_times"),
    Law("plus selects one of its operands", 2, _selected, "selective_plus"),
    Law("one absorbs in plus", 1, lambda s, a: (s.plus(s.one, a), s.one), "absorptive"),
    Law("every nonzero value has an inverse", 1, _inverted, "invertible_times"),
)


def holds(law: Law, semiring: Semiring, values: tuple) -> bool:
    """Whether the law's two sides are equal at `values`, up to rounding for floats."""
    left, right = law.sides(semiring, *values)
    finite = [abs(value) for value in (*values, left, right) if isinstance(value, float) and math.isfinite(value)]
    return _near(left, right, max([1.0, *finite]) if semiring.carrier == "float" else 0.0, law.arity)


def _near(left: Any, right: Any, scale: float, degree: int = 1) -> bool:
    if left == right:
        return True
    if not scale or not (math.isfinite(left) and math.isfinite(right)):
        return False
    # Terms may be products of `degree` values that cancel in the result.
    return abs(left - right) <= RELATIVE * scale**degree


def sample_values(semiring: Semiring) -> tuple[Any, ...]:
    """A few values of the carrier: zero, one, and ordinary ones inside the domain."""
    if semiring.carrier == "bool":
        return (False, True)
    if semiring.carrier == "integer":
        ordinary: tuple[Any, ...] = (-3, -1, 2, 3, 2**70)
    else:
        ordinary = (-2.5, -1.0, -0.25, 0.0, 0.125, 0.3, 0.5, 0.9, 1.0, 1.75, 3.0)
    low, high = semiring.domain
    inside = [value for value in ordinary if low <= value <= high]
    return tuple(dict.fromkeys([semiring.zero, semiring.one, *inside]))


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
    return ", ".join(f"{name} = {value!r}" for name, value in zip("abc", values))
