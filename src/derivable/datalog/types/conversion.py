"""Typed expressions as expressions of the core rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from derivable.datalog.rules import nodes as r
from derivable.datalog.scalars.nodes import children
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types.mixed import ARITHMETIC
from derivable.datalog.types.unification import Type, final
from derivable.datalog.values.values import BOOL, F64, ValueType

if TYPE_CHECKING:
    from derivable.datalog.types.typed import Typed


class NotConstantError(Exception):
    """An expression uses what is not known, or not known yet."""


class Conversion:
    """What typed expressions are as core expressions: here those without variables.

    of           the types of nodes, by identity
    known        constant -> (value, type)
    real         the nodes, by identity, whose values are made real numbers
    definitions  constant -> its definition, of those whose types are not declared
    """

    def __init__(
        self,
        of: Mapping[int, Type],
        known: Mapping[str, tuple[Any, ValueType]],
        real: frozenset[int] = frozenset(),
        definitions: Mapping[str, Any] | None = None,
    ):
        self.of, self.known, self.real, self.definitions = of, known, real, definitions or {}

    def expression(self, node: Any) -> r.Expr:
        match node:
            case s.Constant(value=value):
                t = final(self.of[id(node)])
                return r.Const(float(value) if t.family == "float" else value, t)
            case s.Variable(name=name) if name in self.known:
                return r.Const(*self.known[name])
            case s.Unary(operator=operator) | s.Binary(operator=operator):
                name = "neg" if isinstance(node, s.Unary) and operator == "-" else operator
            case s.Conditional():
                name = "if"
            case s.Cast():
                name = "cast"
            case s.Call():
                name = f"${node.name}"
            case _:
                return self.other(node)
        return r.Apply(name, tuple(map(self.expression, children(node))), final(self.of[id(node)]), node.span)

    def other(self, node: Any) -> r.Expr:
        """The core expression of what is no constant and no operator."""
        raise NotConstantError

    def tag(self, node: Any) -> r.Expr:
        """A tag: real numbers, as `Expressions.tag` types them; a truth value stays one.

        A constant whose type is not declared is its definition: with `const P = 1 / 6` the tag P is no integer either.
        """
        match node:
            case s.Constant(value=value, kind="integer" | "float"):
                return r.Const(number_of_tag(value), F64)
            case s.Variable(name=name) if name in self.definitions:
                return self.tag(self.definitions[name])
            case s.Unary(operator="-", operand=a):
                return r.Apply("neg", (self.real_number(a),), F64)
            case s.Binary(operator=operator, left=a, right=b) if operator in ARITHMETIC:
                return r.Apply(operator, (self.real_number(a), self.real_number(b)), F64, node.span)
            case s.Conditional(condition=c, then=a, otherwise=b):
                return r.Apply("if", (self.expression(c), self.real_number(a), self.real_number(b)), F64)
            case s.Call(name=name, arguments=arguments) if id(node) in self.real and self.of[id(node)] is F64:
                operands = (self.real_number(a) if id(a) in self.real else self.expression(a) for a in arguments)
                return r.Apply(f"${name}", tuple(operands), F64, node.span)
        return self.expression(node)

    def real_number(self, node: Any) -> r.Expr:
        return as_real(self.tag(node))


def as_real(e: r.Expr) -> r.Expr:
    return e if e.type is F64 else r.Apply("cast", (e,), F64)


def core_expression(node: Any, of: Mapping[int, Type], known: Mapping[str, tuple[Any, ValueType]]) -> r.Expr | None:
    """The core expression of a typed one without variables, None if it uses what is not known (yet)."""
    try:
        return Conversion(of, known).expression(node)
    except NotConstantError:
        return None


def core_tag(node: Any, typed: Typed) -> r.Expr | None:
    """The core expression of a tag without variables, a real number or a truth value; None if it has some."""
    try:
        converted = Conversion(typed.types, typed.constants, typed.real, typed.definitions).tag(node)
    except NotConstantError:
        return None
    return converted if converted.type is BOOL else as_real(converted)


def number_of_tag(value: float | bool) -> float | bool:
    """A tag as a float; an integer beyond these is infinite, as `1e400` is."""
    try:
        return value if isinstance(value, bool) else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
