"""Aggregates and quantifiers of a body become auxiliary relations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import BindingError
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.desugar.scope import Scope
from derivable.datalog.desugar.variables import bound_in, variables_of
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.values.values import BOOL


class Aggregates(Scope, ABC):
    """The aggregates of one conjunctive body."""

    @abstractmethod
    def body(self, leaves: list[tuple[Any, bool]], outer: set[str]) -> list[r.Literal]: ...

    @abstractmethod
    def negated(self, atom: r.Atom, before: int, local: set[str]) -> r.Negated: ...

    def quantifier(self, leaf: s.Aggregate, positive: bool, elsewhere: set[str]) -> r.Literal:
        if leaf.group_body is not None:
            return self.aggregate(leaf, (r.Const(positive, BOOL),), elsewhere)
        body = leaf.body
        if leaf.operator == "forall":
            body, positive = s.Not(body, span=body.span), not positive
        local = {*leaf.bindings, *leaf.arguments}
        self.check_bound(leaf, body, local)
        if leaf.discrete:
            # Without tags, so not the formula itself: what there is of rows in some world.
            atom = self.aggregate(leaf, (r.Const(True, BOOL),), elsewhere, body)
            return atom if positive else self.negated(atom, len(self.extra), set())
        body = self.with_binders(body, elsewhere - local, local)
        group = self.group_variables(body, elsewhere - local)
        name = self.body_relation(leaf, body, group, ())
        terms = tuple(r.Var(n, self.environment[n], leaf.span) for n in group)
        return r.Atom(name, terms, leaf.span) if positive else r.Negated(name, terms, leaf.span)

    def check_bound(self, leaf: s.Aggregate, body: Any, local: set[str]) -> None:
        """A variable of a quantifier must not occur under negations alone, where it would be any value."""
        for disjunct in self.owner.normal_form(body, True):
            used = [
                {n for part, sign in disjunct if sign is wanted for n in variables_of(part)} for wanted in (True, False)
            ]
            for name in sorted((used[1] - used[0]) & local):
                hint = f"use `{name}` in a positive atom of the body"
                if leaf.operator == "forall":
                    hint = f"write what `{name}` is before `implies`: `forall({name}: p({name}) implies q({name}))`"
                message = f"variable `{name}` of `{leaf.operator}` is not bound by its body"
                self.owner.error(BindingError, message, leaf.span, hint)

    def with_binders(self, body: Any, elsewhere: set[str], local: set[str]) -> Any:
        """The body, with what binds group variables next to it where it does not bind them itself."""
        disjuncts = self.owner.normal_form(body, True)
        bound = set.intersection(*(bound_in(d, self.owner.typed.relations) for d in disjuncts))
        missing = set(self.group_variables(body, elsewhere)) - bound
        waiting = [leaf for leaf in (_without(leaf, local) for leaf in self.binders) if leaf is not None]
        bound_names: list[Any] = []
        while missing:
            chosen = [leaf for leaf in waiting if missing & set(variables_of(leaf))]
            waiting = [leaf for leaf in waiting if leaf not in chosen]
            bound_names += chosen
            bound |= missing | bound_in([(leaf, True) for leaf in chosen], self.owner.typed.relations)
            missing = {n for leaf in chosen for n in variables_of(leaf) if n in self.environment} - bound
        return s.Conjunction((*bound_names, body), span=body.span) if bound_names else body

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

    def aggregate(self, node: s.Aggregate, outputs: tuple[Any, ...], elsewhere: set[str], exists: Any = None) -> r.Atom:
        """The relation of an aggregate; with `exists`, of whether there are rows of that body."""
        owner = self.owner
        operator, body = node.operator, node.body
        if exists is not None:
            operator, body = "exists", exists
        elif operator == "forall":
            body = s.Not(body, span=body.span)
        local = {*node.bindings, *node.arguments}
        if node.group_body is None:
            body = self.with_binders(body, elsewhere - local, local)
        in_body = self.group_variables(body, elsewhere - local)
        if operator == "forall" and node.group_body is None and in_body:
            return self.forall_of_groups(node, body, in_body, outputs, elsewhere)
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
        return self.result(node, name, group, outputs)

    def result(self, node: s.Aggregate, name: str, group: list[str], outputs: tuple[Any, ...]) -> r.Atom:
        """The atom of an aggregate's relation, whose columns are [group..., result...]."""
        terms: list[r.Var | r.Const | None] = [r.Var(n, self.environment[n], node.span) for n in group]
        for output in outputs:
            value = None if isinstance(output, s.Wildcard) else self.expression(output)
            assert not isinstance(value, r.Apply)
            terms.append(value)
        return r.Atom(name, tuple(terms), node.span)

    def forall_of_groups(
        self, node: s.Aggregate, body: Any, group: list[str], outputs: tuple[Any, ...], elsewhere: set[str]
    ) -> r.Atom:
        """`n := forall(v: p(g, v) implies q(v))`: a group has a row where p does, and none that breaks the rule if n.

        body  the rows that break it, behind what binds group variables
        """
        owner = self.owner
        parts: tuple[Any, ...] = body.operands if isinstance(body, s.Conjunction) else (body,)
        *binders, broken = parts
        rows = s.Conjunction((*binders, broken.operand.condition), span=node.span)
        terms = tuple(r.Var(n, self.environment[n], node.span) for n in group)
        if node.discrete:
            holds = (r.Const(True, BOOL),)
            breaking, there = (self.aggregate(node, holds, elsewhere, part) for part in (body, rows))
        else:
            breaking, there = (r.Atom(self.body_relation(node, p, group, ()), terms, node.span) for p in (body, rows))
        name = owner.new_relation("forall", (*(t.type for t in terms), BOOL))
        missing = r.Negated(breaking.relation, tuple(t for t in breaking.terms if t is not None), node.span)
        for value, literals in ((False, (breaking,)), (True, (there, missing))):
            owner.rules.append(r.Clause(name, (*terms, r.Const(value, BOOL)), literals, node.span))
        return self.result(node, name, group, outputs)


def _without(leaf: Any, local: set[str]) -> Any:
    """What binds variables next to an aggregate, without those local to the aggregate; None if it needs
    them."""
    if isinstance(leaf, s.Atom):
        is_local = [isinstance(a, s.Variable) and a.name in local for a in leaf.arguments]
        arguments = tuple(s.Wildcard(span=a.span) if o else a for o, a in zip(is_local, leaf.arguments))
        leaf = replace(leaf, arguments=arguments)
    return None if local & set(variables_of(leaf)) else leaf
