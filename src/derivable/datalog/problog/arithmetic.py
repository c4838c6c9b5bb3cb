"""Arithmetic of Prolog as expressions of this library's language, typed by what is known of the variables.

Quotients, remainders and powers are those of ProbLog: `/` gives a float, `//` and `div` round down, `mod` and `rem`
have the sign of the divisor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from derivable.core.diagnostics import Span, TypeMismatchError, UnsupportedError
from derivable.datalog.problog.terms import Compound, Number, Term, Text, Var
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.quotients import floor_quotient, modulo, quotient

# Functions of floats -> the name here.
_FLOAT_FUNCTIONS = {name: name for name in ("exp", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan")}
_CONSTANTS = {"pi": 3.141592653589793, "e": 2.718281828459045, "inf": float("inf"), "infinite": float("inf")}
Refuse = Callable[..., NoReturn]


class Arithmetic:
    """Expressions in one clause.

    values  variable -> its expression and kind, "integer" or "float"
    """

    def __init__(self, values: Callable[[Var], tuple[s.Expression, str]], error: Refuse):
        self.values = values
        self.error = error

    def number(self, term: Term) -> tuple[s.Expression, str]:
        """The expression and its kind. Raises TypeMismatchError and UnsupportedError with the span."""
        span = term.span
        match term:
            case Number(value=value):
                kind = "integer" if isinstance(value, int) else "float"
                return s.Constant(value, kind, span=span), kind
            case Var():
                return self.values(term)
            case Text():
                self.error(TypeMismatchError, "a text is no number", span)
            case Compound(functor=name, arguments=()) if name in _CONSTANTS:
                return s.Constant(_CONSTANTS[name], "float", span=span), "float"
            case Compound(functor=name, arguments=(a,)):
                return self.unary(name, *self.number(a), span)
            case Compound(functor=name, arguments=(a, b)):
                return self.binary(name, self.number(a), self.number(b), span)
            case Compound(functor=name, arguments=()):
                self.error(TypeMismatchError, f"the atom `{name}` is no number", span)
        assert isinstance(term, Compound)
        return self.error(UnsupportedError, f"`{term.indicator}` is no function of numbers", span)

    def as_float(self, term: Term) -> s.Expression:
        return as_float(*self.number(term))

    def unary(self, name: str, e: s.Expression, kind: str, span: Span) -> tuple[s.Expression, str]:
        match name:
            case "+":
                return e, kind
            case "-":
                return s.Unary("-", e, span=span), kind
            case "abs":
                return s.Call("abs", (e,), span=span), kind
            case "sign":
                return integer(s.Call("sign", (e,), span=span)), "integer"
            case "float":
                return as_float(e, kind), "float"
            case "integer" | "round" if kind == "float":
                return self.rounded(e, span), "integer"
            case "truncate" if kind == "float":
                return integer(e), "integer"
            case "floor" | "ceiling" if kind == "float":
                return integer(s.Call("floor" if name == "floor" else "ceil", (e,), span=span)), "integer"
            case "integer" | "round" | "truncate" | "floor" | "ceiling":
                return e, kind
            case "sqrt":
                return s.Call("powf", (as_float(e, kind), s.Constant(0.5, "float")), span=span), "float"
            case "\\" if kind == "integer":
                return s.Call("bit_not", (e,), span=span), kind
        if name in _FLOAT_FUNCTIONS:
            return s.Call(_FLOAT_FUNCTIONS[name], (as_float(e, kind),), span=span), "float"
        return self.error(UnsupportedError, f"`{name}/1` is no function of numbers", span)

    @staticmethod
    def rounded(e: s.Expression, span: Span) -> s.Expression:
        """To the nearest integer; one half goes to the even one."""
        below = s.Call("floor", (s.Binary("+", e, s.Constant(0.5, "float"), span=span),), span=span)
        is_half = s.Binary("==", s.Binary("-", below, e), s.Constant(0.5, "float"))
        is_odd = s.Binary("!=", s.Binary("%", below, s.Constant(2.0, "float")), s.Constant(0.0, "float"))
        lower = s.Binary("-", below, s.Constant(1.0, "float"))
        return integer(s.Conditional(s.Binary("&&", is_half, is_odd), lower, below, span=span))

    def binary(
        self, name: str, left: tuple[s.Expression, str], right: tuple[s.Expression, str], span: Span
    ) -> tuple[s.Expression, str]:
        (a, kind_a), (b, kind_b) = left, right
        are_integers = kind_a == kind_b == "integer"
        if not are_integers and name not in ("min", "max"):
            a, b = as_float(a, kind_a), as_float(b, kind_b)
        kind = "integer" if are_integers else "float"
        match name:
            case "+" | "-" | "*":
                return s.Binary(name, a, b, span=span), kind
            case "/":
                return quotient(as_float(a, kind), as_float(b, kind), span), "float"
            case "mod" | "rem":
                return modulo(a, b, span), kind
            case "//" | "div":
                if are_integers:
                    return floor_quotient(a, b, span), kind
                return s.Call("floor", (quotient(a, b, span),), span=span), kind
            case "min" | "max" if kind_a == kind_b:
                return s.Call(name, (a, b), span=span), kind
            case "**" | "^":
                if are_integers:
                    return s.Call("pow", (a, s.Cast(b, "u32")), span=span), kind
                return s.Call("powf", (a, b), span=span), kind
            case "/\\" | "\\/" | "xor" if are_integers:
                named = {"/\\": "bit_and", "\\/": "bit_or", "xor": "bit_xor"}[name]
                return s.Call(named, (a, b), span=span), kind
            case "<<" | ">>" if are_integers:
                named = "bit_shift_left" if name == "<<" else "bit_shift_right"
                return s.Call(named, (a, s.Cast(b, "u32")), span=span), kind
            case "atan2":
                return s.Call("atan2", (as_float(a, kind), as_float(b, kind)), span=span), "float"
        message = f"`{name}/2` is no function of numbers of kinds {kind_a} and {kind_b}"
        return self.error(UnsupportedError, message, span)


def as_float(e: s.Expression, kind: str) -> s.Expression:
    if kind == "float":
        return e
    if isinstance(e, s.Constant):
        return s.Constant(float(e.value), "float", span=e.span)
    return s.Cast(e, "f64", span=e.span)


def integer(e: s.Expression) -> s.Expression:
    return s.Cast(e, "i64", span=e.span)
