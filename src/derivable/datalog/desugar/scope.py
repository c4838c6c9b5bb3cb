"""Expressions and the terms of atoms, in the scope of one conjunctive body."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import BindingError, Span, UnsupportedError
from derivable.datalog.desugar.terms import Terms
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.values import BOOL, ValueType

if TYPE_CHECKING:
    from derivable.datalog.desugar.program import Desugaring

Environment = Mapping[str, ValueType]


class Scope(Terms, ABC):
    """One conjunctive body under construction: the environment of variable types and the equations it collects."""

    def __init__(self, owner: Desugaring, item: Any, environment: Environment):
        self.owner = owner
        self.item = item
        self.environment = dict(environment)
        self.extra: list[r.Literal] = []
        self.binders: list[s.Atom | s.Case | s.InRange | s.Binary] = []

    def fresh_variable(self, t: ValueType, span: Span) -> r.Var:
        name = self.owner.fresh("'")
        self.environment[name] = t
        return r.Var(name, t, span)

    def atom_terms(self, relation: str, arguments: tuple[Any, ...], keep_wildcards: bool = True) -> tuple:
        return self.terms(arguments, self.owner.typed.relations[relation].types, keep_wildcards)

    def terms(self, arguments: tuple[Any, ...], types: tuple[ValueType, ...], keep_wildcards: bool = True) -> tuple:
        found: list[r.Var | r.Const | None] = []
        for argument, t in zip(arguments, types):
            if isinstance(argument, s.Wildcard):
                found.append(None if keep_wildcards else self.fresh_variable(t, argument.span))
                continue
            found.append(self.term(argument, t))
        return tuple(found)

    def term(self, argument: Any, t: ValueType) -> r.Var | r.Const:
        """A variable or constant for an expression; any other becomes an equation."""
        is_open = self.is_pattern(argument) and self.ground(argument, t) is None
        value = self.match(argument) if is_open else self.expression(argument)
        if isinstance(value, r.Apply):
            fresh = self.fresh_variable(t, argument.span)
            self.extra.append(r.Filter(r.Apply("==", (fresh, value), BOOL), argument.span))
            value = fresh
        return value

    def expression(self, node: Any) -> r.Expr:
        match node:
            case s.Constant(value=value):
                t = self.owner.typed.of(node)
                return r.Const(float(value) if t.family == "float" else value, t)
            case s.Variable(name=name):
                if name in self.environment:
                    return r.Var(name, self.environment[name], node.span)
                if name in self.owner.typed.constants:
                    return r.Const(*self.owner.typed.constants[name])
                self.owner.error(BindingError, f"variable `{name}` is not bound", node.span)
            case r.Const() | r.Var() | r.Apply():
                return node
            case s.Atom() | s.New() if self.is_term(node):
                return self.construct(node)
            case s.Wildcard():
                self.owner.error(BindingError, "a wildcard cannot stand in an expression", node.span)
            case s.Unary(operator=operator, operand=a):
                value = self.expression(a)
                return r.Apply("neg" if operator == "-" else operator, (value,), value.type)
            case s.Binary(operator=operator, left=a, right=b):
                return r.Apply(operator, (self.expression(a), self.expression(b)), self.owner.typed.of(node), node.span)
            case s.Conditional(condition=c, then=a, otherwise=b):
                parts = tuple(map(self.expression, (c, a, b)))
                return r.Apply("if", parts, parts[1].type)
            case s.Call(name=name, arguments=arguments):
                t = self.owner.typed.of(node)
                return r.Apply(f"${name}", tuple(map(self.expression, arguments)), t, node.span)
            case s.Cast(operand=a):
                return r.Apply("cast", (self.expression(a),), self.owner.typed.of(node))
        return self.owner.error(UnsupportedError, f"`{expression_text(node)}` cannot stand in an expression", node.span)
