"""Expressions and the terms of atoms, in the scope of one conjunctive body.

A pattern becomes an atom of its constructor's relation, whose rows are a term and its fields. Where a pattern is
negated, the term is bound, and taking it apart is an expression: so negation asks no relation that a rule with `new`
may still add to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from derivable.core.diagnostics import BindingError, Span, UnsupportedError
from derivable.datalog.desugar.variables import is_made, variables_of
from derivable.datalog.rules import nodes as r
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.text import expression_text
from derivable.datalog.types.conversion import Conversion
from derivable.datalog.types.data_types import ground, is_term
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.terms import Entity
from derivable.datalog.values.values import BOOL, ValueType

if TYPE_CHECKING:
    from derivable.datalog.desugar.program import Desugaring

Environment = Mapping[str, ValueType]
NO = r.Const(False, BOOL)


def exact(e: r.Expr) -> r.Expr:
    """The sums and differences of an equation that can be solved, so that one beyond its type has no value.

    Where they stop at a limit, as they do where they are only computed, several numbers would solve the equation, and
    which of them are solutions would depend on what is bound first.
    """
    if not isinstance(e, r.Apply) or not e.type.is_integer:
        return e
    match e:
        case r.Apply(operator="+" | "-", operands=(a, b)):
            return replace(e, operator=f"{e.operator}!", operands=(exact(a), exact(b)))
        case r.Apply(operator="neg", operands=(a,)):
            return replace(e, operator="-!", operands=(r.Const(0, e.type), exact(a)))
    return e


class Scope(Conversion):
    """One conjunctive body under construction: the environment of variable types and the equations it collects."""

    def __init__(self, owner: Desugaring, item: Any, environment: Environment):
        typed = owner.typed
        super().__init__(typed.types, typed.constants, typed.real, typed.definitions)
        self.owner = owner
        self.item = item
        self.environment = dict(environment)
        self.extra: list[r.Literal] = []
        self.binders: list[s.Atom | s.Case | s.InRange | s.Binary] = []
        # The variables of terms that this body makes, which no relation may have yet.
        self.made: set[str] = set()
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
        terms: list[r.Var | r.Const | None] = []
        for argument, t in zip(arguments, types):
            if isinstance(argument, s.Wildcard):
                terms.append(None if keep_wildcards else self.fresh_variable(t, argument.span))
                continue
            terms.append(self.term(argument, t, is_positive))
        return tuple(terms)

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

    # Terms

    def is_term(self, node: Any) -> TypeGuard[s.Atom | s.New]:
        return is_term(node, self.owner.typed.constructors)

    def is_pattern(self, node: Any) -> TypeGuard[s.Atom]:
        return isinstance(node, s.Atom) and self.is_term(node)

    def constructor(self, node: s.Atom | s.New) -> Constructor:
        return self.owner.typed.constructors[node.constructor if isinstance(node, s.New) else node.relation]

    def ground(self, node: Any, t: ValueType) -> Entity | None:
        return ground(node, t, self.owner.typed.constructors, self.owner.typed.constants)

    def construct(self, node: s.Atom | s.New) -> r.Expr:
        """The term itself."""
        constructor = self.constructor(node)
        if isinstance(node, s.Atom):
            value = self.ground(node, constructor.type)
            if value is not None:
                return r.Const(value, constructor.type)
        fields = tuple(self.field(a, t) for a, t in zip(node.arguments, constructor.fields))
        return r.Apply(f"new {constructor.name}", fields, constructor.type)

    def field(self, node: Any, t: ValueType) -> r.Expr:
        value = self.expression(node)
        return r.Const(float(value.value), t) if isinstance(value, r.Const) and t.family == "float" else value

    def match(self, node: s.Atom) -> r.Var:
        """A variable for a term that is there and has this form; the atoms that say so are extra literals."""
        constructor = self.constructor(node)
        term = self.fresh_variable(constructor.type, node.span)
        fields = self.terms(node.arguments, constructor.fields)
        self.extra.append(r.Atom(constructor.relation, (term, *fields), node.span))
        return term

    def case(self, leaf: s.Case, positive: bool, elsewhere: set[str]) -> list[r.Literal]:
        constructor = self.constructor(leaf.pattern)
        if positive and is_made(leaf.subject, self.made):
            return self.taken_apart(self.expression(leaf.subject), leaf.pattern)
        if positive:
            arguments = (leaf.subject, *leaf.pattern.arguments)
            term_patterns = self.terms(arguments, (constructor.type, *constructor.fields))
            return [r.Atom(constructor.relation, term_patterns, leaf.span)]
        test = self.has_form(self.expression(leaf.subject), leaf.pattern, elsewhere, {})
        return [r.Filter(r.Apply("!", (test,), BOOL), leaf.span)]

    def taken_apart(self, term: r.Expr, pattern: s.Atom) -> list[r.Literal]:
        """That a term which this body makes has a form: no relation has the term yet, so its parts are computed."""
        constructor, span = self.constructor(pattern), pattern.span
        literals: list[r.Literal] = [r.Filter(r.Apply(f"is {constructor.name}", (term,), BOOL), span)]
        for i, (argument, t) in enumerate(zip(pattern.arguments, constructor.fields)):
            part = r.Apply(f"{constructor.name}.{i}", (term,), t)
            if self.is_pattern(argument):
                literals += self.taken_apart(part, argument)
            elif not isinstance(argument, s.Wildcard):
                literals.append(r.Filter(r.Apply("==", (self.field(argument, t), part), BOOL), argument.span))
        return literals

    def has_form(self, term: r.Expr, pattern: s.Atom, elsewhere: set[str], local: dict[str, r.Expr]) -> r.Expr:
        """Whether a term has a form: a bool that is always there.

        local  the variables that occur nowhere else, which are existential, with the part that they stand for
        """
        constructor = self.constructor(pattern)
        tests: list[r.Expr] = []
        for i, (argument, t) in enumerate(zip(pattern.arguments, constructor.fields)):
            part = r.Apply(f"{constructor.name}.{i}", (term,), t)
            if isinstance(argument, s.Wildcard):
                continue
            if self.is_pattern(argument):
                tests.append(self.has_form(part, argument, elsewhere, local))
                continue
            name = argument.name if isinstance(argument, s.Variable) else ""
            if name and name not in elsewhere and name not in self.owner.typed.constants and name not in local:
                local[name] = part
                continue
            other = local[name] if name in local else self.field(argument, t)
            tests.append(r.Apply("==", (part, other), BOOL))
        has_functor = r.Apply(f"is {constructor.name}", (term,), BOOL)
        if not tests:
            return has_functor
        condition = tests.pop()
        while tests:
            condition = r.Apply("if", (tests.pop(), condition, NO), BOOL)
        return r.Apply("if", (has_functor, condition, NO), BOOL)

    def is_open(self, pattern: s.Atom, elsewhere: set[str]) -> bool:
        """Whether a pattern has wildcards, or variables that occur nowhere else."""
        constants = self.owner.typed.constants
        has_new_variables = any(n not in elsewhere and n not in constants for n in variables_of(pattern))
        return has_new_variables or any(isinstance(node, s.Wildcard) for node in walk(pattern))
