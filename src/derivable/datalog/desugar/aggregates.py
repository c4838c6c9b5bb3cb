"""Aggregates and quantifiers of a body become auxiliary relations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from derivable.core.diagnostics import BindingError
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.desugar.scope import Scope
from derivable.datalog.desugar.variables import bound_in, variables_of
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values import BOOL


class Aggregates(Scope, ABC):
    """The aggregates of one conjunctive body."""

    @abstractmethod
    def body(self, leaves: list[tuple[Any, bool]], outer: set[str]) -> list[r.Literal]: ...

    def quantifier(self, leaf: s.Aggregate, positive: bool, elsewhere: set[str]) -> r.Literal:
        if leaf.group_body is not None:
            return self.aggregate(leaf, (r.Const(positive, BOOL),), elsewhere)
        body = leaf.body
        if leaf.operator == "forall":
            body, positive = s.Not(body, span=body.span), not positive
        local = {*leaf.bindings, *leaf.arguments}
        group = self.group_variables(body, elsewhere - local)
        # A group variable that the body does not bind is bound by the atoms next to the quantifier.
        bound = set.intersection(*(bound_in(d, self.owner.typed.relations) for d in self.owner.normal_form(body, True)))
        missing = set(group) - bound
        binders = tuple(atom for atom in self.binders if missing & set(variables_of(atom)))
        if binders:
            body = s.Conjunction((*binders, body), span=body.span)
            group = self.group_variables(body, elsewhere - local)
        name = self.body_relation(leaf, body, group, ())
        terms = tuple(r.Var(n, self.environment[n], leaf.span) for n in group)
        return r.Atom(name, terms, leaf.span) if positive else r.Negated(name, terms, leaf.span)

    def group_variables(self, body: Any, elsewhere: set[str]) -> list[str]:
        """Variables of a body that are used elsewhere, in order of writing; named constants are none."""
        return [n for n in dict.fromkeys(variables_of(body)) if n in elsewhere and n in self.environment]

    def body_relation(self, node: s.Aggregate, body: Any, group: list[str], values: tuple[str, ...]) -> str:
        """An auxiliary relation with columns [group..., values...] defined by the body of an aggregate."""
        environment = {**self.environment, **self.owner.typed.variables(node)}
        columns = [*group, *values]
        name = self.owner.new_relation(f"{node.operator}_body", tuple(environment[n] for n in columns))
        for disjunct in self.owner.normal_form(body, True):
            clause = type(self)(self.owner, self.item, environment)
            literals = clause.body(disjunct, set(columns))
            terms = tuple(r.Var(n, environment[n], node.span) for n in columns)
            self.owner.rules.append(r.Clause(name, terms, tuple(literals), node.span))
        return name

    def aggregate(self, node: s.Aggregate, outputs: tuple[Any, ...], elsewhere: set[str]) -> r.Atom:
        owner = self.owner
        operator, body = node.operator, node.body
        if operator == "forall":
            body = s.Not(body, span=body.span)
        local = {*node.bindings, *node.arguments}
        in_body = self.group_variables(body, elsewhere - local)
        groups = None
        if node.group_body is None:
            group = in_body
        else:
            in_group = self.group_variables(node.group_body, elsewhere)
            group = list(dict.fromkeys((*node.group, *in_group)))
            stray = [n for n in in_body if n not in group]
            if stray:
                owner.error(
                    BindingError,
                    f"variable `{stray[0]}` is used outside the aggregate, but is not a group variable",
                    node.span,
                    f"add it after `where`: `where {', '.join([*node.group, stray[0]])}: ...`",
                )
            groups = self.body_relation(node, node.group_body, group, ())
            bound = set.intersection(*(bound_in(d, owner.typed.relations) for d in owner.normal_form(body, True)))
            if not bound.issuperset(group):
                body = s.Conjunction((node.group_body, body), span=body.span)
        source = self.body_relation(node, body, group, (*node.arguments, *node.bindings))
        group_types = tuple(self.environment[n] for n in group)
        column_types = owner.relations[source].types[len(group) :]
        argument_types, value_types = column_types[: len(node.arguments)], column_types[len(node.arguments) :]
        result = tuple(AGGREGATES[operator].result_types(argument_types, value_types))
        name = owner.new_relation(operator, group_types + result)
        owner.rules.append(
            r.AggregateRule(
                name,
                operator,
                source,
                len(group),
                len(argument_types),
                len(value_types),
                groups,
                node.discrete,
                node.span,
                node.parameters,
            )
        )
        terms: list[r.Var | r.Const | None] = [r.Var(n, self.environment[n], node.span) for n in group]
        for output in outputs:
            value = None if isinstance(output, s.Wildcard) else self.expression(output)
            assert not isinstance(value, r.Apply)
            terms.append(value)
        return r.Atom(name, tuple(terms), node.span)
