"""Two semirings at once: values are pairs, and every operation is that of each half."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from derivable.algebra.expr.functions import equal, logical_and, logical_or
from derivable.algebra.semiring import Semiring, fact_of
from derivable.algebra.semirings import get
from derivable.core.diagnostics import UnsupportedError

_FLAGS = (
    "commutative",
    "idempotent_plus",
    "idempotent_times",
    "absorptive",
    "differentiable",
    "distributive",
    "complement_negates",
)


def _both(first: Callable, second: Callable, *pairs: Any) -> tuple[Any, Any]:
    return first(*[pair[0] for pair in pairs]), second(*[pair[1] for pair in pairs])


def _fact(first: Callable, second: Callable, tag: Any, variable: Any) -> tuple[Any, Any]:
    return first(tag, variable), second(tag, variable)


def _all(first: Callable, second: Callable, *pairs: Any) -> Any:
    return logical_and(*_both(first, second, *pairs))


def _any(first: Callable, second: Callable, pair: Any) -> Any:
    return logical_or(*_both(first, second, pair))


def _is(zero: Any, value: Any) -> Any:
    return equal(value, zero)


def dual(first: str | Semiring, second: str | Semiring) -> Semiring:
    """The pairs of values of two semirings, which is a semiring, and so a provenance, as Scallop's Dual.

    A fact has the value of its tag in each; a tuple is saturated if both of its values are, and discarded if one is.
    Gradients are those of the formulas, whatever `plus_rule` a half has.

    Raises UnsupportedError for exact integers, which have no columns, and for values that are nests themselves.
    """
    return _dual(get(first), get(second))


@lru_cache(64)
def _dual(first: Semiring, second: Semiring) -> Semiring:
    halves = first, second
    for half in halves:
        if half.is_exact or not half.is_scalar:
            what = "exact Python integers" if half.is_exact else "nests as values"
            raise UnsupportedError(
                f"the semiring {half.name!r} has {what}, and a dual is made of single numbers",
                hint='"real" adds up derivations as floats' if half.is_exact else "write the record of the whole nest",
            )

    def made(combine: Callable, functions: Any) -> Any:
        one, other = functions
        return None if one is None or other is None else partial(combine, one, other)

    flags: dict[str, Any] = {flag: all(getattr(half, flag) for half in halves) for flag in _FLAGS}
    return Semiring(
        f"dual_{first.name}_{second.name}",
        partial(_both, first.plus, second.plus),
        partial(_both, first.times, second.times),
        zero=(first.zero, second.zero),
        one=(first.one, second.one),
        complement=made(_both, [half.complement for half in halves]),
        fact=made(_fact, [fact_of(half) for half in halves]),
        saturated=partial(_all, *[half.saturated or equal for half in halves]),
        discard=partial(_any, *[half.discard or partial(_is, half.zero) for half in halves]),
        show=made(_both, [half.show or _same for half in halves]),
        domain=tuple(half.domain if half.carrier != "bool" else (0.0, 1.0) for half in halves),
        description=f"the values of {first.name} and of {second.name}",
        **flags,
    )


def _same(value: Any) -> Any:
    return value
