"""Quotients and remainders as Python and Prolog have them, unlike the operators of the language."""

from __future__ import annotations

from derivable.core.diagnostics import Span
from derivable.datalog.syntax import nodes as s

_ZERO = s.Constant(0.0, "float")


def quotient(a: s.Expression, b: s.Expression, span: Span) -> s.Expression:
    """Of floats; by zero it has no value, where the language's is infinite."""
    nothing = s.Binary("/", _ZERO, _ZERO)
    return s.Conditional(s.Binary("==", b, _ZERO), nothing, s.Binary("/", a, b, span=span), span=span)


def modulo(a: s.Expression, b: s.Expression, span: Span) -> s.Expression:
    """The remainder that has the sign of the divisor; the language's has that of the dividend."""
    rest = s.Binary("%", a, b, span=span)
    return s.Binary("%", s.Binary("+", rest, b, span=span), b, span=span)


def floor_quotient(a: s.Expression, b: s.Expression, span: Span) -> s.Expression:
    """The quotient of integers that is rounded down."""
    return s.Binary("/", s.Binary("-", a, modulo(a, b, span)), b, span=span)
