"""Expressions and the terms of atoms, in the scope of one conjunctive body."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from derivable.core.diagnostics import BindingError, Span, UnsupportedError
from derivable.datalog.desugar.terms import Terms
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.types.conversion import Conversion
from derivable.datalog.values.values import BOOL, ValueType

if TYPE_CHECKING:
    from derivable.datalog.desugar.program import Desugaring

Environment = Mapping[str, ValueType]


def exact(e: r.Expr) -> r.Expr:
    """The sums and differences of an equation that can be solved, so that one beyond its type has no value.

    Where they stop at a limit, as they do where they are only computed, several numbers would solve the equation, and
    which of them are found would depend on what is bound first.
    """
    if not isinstance(e, r.Apply) or not e.type.is_integer:
        return e
    match e:
        case r.Apply(operator="+" | "-", operands=(a, b)):
            return replace(e, operator=f"{e.operator}!", operands=(exact(a), exact(b)))
        case r.Apply(operator="neg", operands=(a,)):
            return replace(e, operator="-!", operands=(r.Const(0, e.type), exact(a)))
    return e


class Scope(Conversion, Terms, ABC):
    """One conjunctive body under construction: the environment of variable types and the equations it collects."""

    def __init__(self, owner: Desugaring, item: Any, environment: Environment):
        typed = owner.typed
        super().__init__(typed.types, typed.constants, typed.real, typed.definitions)
        self.owner = owner
        self.item = item
        self.environment = dict(environment)
        self.extra: list[r.Literal] = []
        self.binders: list[s.Atom | s.Case | s.InRange | s.Binary] = []
        # The variables that are used outside this body: those of the head, or of the aggregate around it.
        self.outer: set[str] = set()

    def fresh_variable(self, t: ValueType, span: Span) -> r.Var:
        name = self.owner.fresh("'")
        self.environment[name] = t
        return r.Var(name, t, span)

    def atom_terms(
        self, relation: str, arguments: tuple[Any, ...], keep_wildcards: bool = True, is_positive: bool = True
    ) -> tuple:
        return self.terms(arguments, self.owner.typed.relations[relation].types, keep_wildcards, is_positive)

    def terms(
        self,
        arguments: tuple[Any, ...],
        types: tuple[ValueType, ...],
        keep_wildcards: bool = True,
        is_positive: bool = True,
    ) -> tuple:
        found: list[r.Var | r.Const | None] = []
        for argument, t in zip(arguments, types):
            if isinstance(argument, s.Wildcard):
                found.append(None if keep_wildcards else self.fresh_variable(t, argument.span))
                continue
            found.append(self.term(argument, t, is_positive))
        return tuple(found)

    def term(self, argument: Any, t: ValueType, is_positive: bool = True) -> r.Var | r.Const:
        """A variable or constant for an expression; any other becomes an equation.

        is_positive  whether the equation may be solved for its variables: `s(b - 1)` says which b there are, and has no
                     solution beyond the limits of the type; `not s(b - 1)` is about the value of the difference
        """
        is_open = self.is_pattern(argument) and self.ground(argument, t) is None
        value = self.match(argument) if is_open else self.expression(argument)
        if isinstance(value, r.Apply):
            if is_positive and r.names(value):
                value = exact(value)
            fresh = self.fresh_variable(t, argument.span)
            self.extra.append(r.Filter(r.Apply("==", (fresh, value), BOOL), argument.span))
            value = fresh
        return value

    def expression(self, node: Any) -> r.Expr:
        if isinstance(node, s.Variable) and node.name in self.environment:
            return r.Var(node.name, self.environment[node.name], node.span)
        return super().expression(node)

    def other(self, node: Any) -> r.Expr:
        match node:
            case r.Const() | r.Var() | r.Apply():
                return node
            case s.Atom() | s.New() if self.is_term(node):
                return self.construct(node)
            case s.Variable(name=name):
                self.owner.error(BindingError, f"variable `{name}` is not bound", node.span)
            case s.Wildcard():
                self.owner.error(BindingError, "a wildcard cannot stand in an expression", node.span)
        return self.owner.error(UnsupportedError, f"`{expression_text(node)}` cannot stand in an expression", node.span)
