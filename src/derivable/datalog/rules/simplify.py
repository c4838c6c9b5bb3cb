"""Simpler clauses with the same derivations: constants folded, equations put into atoms, what always holds left out.

    p(x, (y + (2 * 3))) :- e(x, y), (x == 1), (y < 10), true
becomes
    p(1, (y + 6)) :- e(1, y), (y < 10)

A clause with a condition that never holds is left out. Each derivation of a tuple stays one derivation with the same
tags, so tags are the same in every provenance, also where plus is not idempotent: equal atoms and equal rules stay.
What has no value, such as `1 / 0`, or leaves its type is not folded, nor are foreign functions: they belong to the run,
which warns of such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from derivable.datalog.rules import nodes as r
from derivable.datalog.scalars.arithmetic import value_of
from derivable.datalog.scalars.exact import EXACT, leaves_type
from derivable.datalog.scalars.nodes import mapped
from derivable.datalog.values.values import BOOL

Substitution = Mapping[str, r.Expr]

_FOLDED = frozenset(("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "^", "!", "neg", "cast"))
_PLAIN = frozenset(("signed", "unsigned", "float", "bool", "char", "text"))
_REFLEXIVE = {"==": True, "<=": True, ">=": True, "!=": False, "<": False, ">": False}
TRUE = r.Const(True, BOOL)


def simplify(program: r.Rules) -> r.Rules:
    """The program with simple clauses; auxiliary relations that nothing can be in are taken as empty."""
    rules = [simple for rule in program.rules if (simple := _simple_rule(rule)) is not None]
    if len(rules) < len(program.rules):
        rules = _without_empty(program, rules)
    return replace(program, rules=tuple(rules))


def _simple_rule(rule: r.Rule) -> r.Rule | None:
    return simple_clause(rule) if isinstance(rule, r.Clause) else rule


def simple_clause(clause: r.Clause) -> r.Clause | None:
    """The clause made simple, or None if it never fires."""
    is_plain = not any(isinstance(literal, (r.Filter, r.Generate, r.RuleProbability)) for literal in clause.body)
    if is_plain and not any(isinstance(term, r.Apply) for term in clause.terms):
        return clause
    terms, body = clause.terms, clause.body
    while True:
        terms = tuple(map(fold, terms))
        conditions = _conditions(body)
        if conditions is None:
            return None
        body = conditions
        equation = next((e for literal in body if (e := _equation(literal))), None)
        if equation is None:
            return replace(clause, terms=terms, body=tuple(body))
        literal, name, value = equation
        known = {name: value}
        terms = tuple(substitute(term, known) for term in terms)
        body = [substitute(other, known) for other in body if other is not literal]


def _conditions(body: Sequence[r.Literal]) -> list[r.Literal] | None:
    """The literals with their conditions folded, split at `&&` and each once; None if one never holds."""
    conditions: list[r.Literal] = []
    seen: set[r.Literal] = set()
    for literal in body:
        literal = mapped(literal, fold)
        if not isinstance(literal, r.Filter):
            conditions.append(literal)
            continue
        parts = [literal.condition]
        while parts:
            condition = parts.pop()
            if isinstance(condition, r.Apply) and condition.operator == "&&":
                parts += reversed(condition.operands)
                continue
            if isinstance(condition, r.Const):
                if not condition.value:
                    return None
                continue
            part = r.Filter(condition, literal.span)
            if part not in seen:
                seen.add(part)
                conditions.append(part)
    return conditions


def _equation(literal: r.Literal) -> tuple[r.Literal, str, r.Var | r.Const] | None:
    """A variable that a condition makes equal to a constant or another variable: the condition, its name, the other."""
    for variable, value in r.sides(literal):
        if isinstance(variable, r.Var) and isinstance(value, (r.Var, r.Const)) and variable.type == value.type:
            return literal, variable.name, value
    match literal:
        case r.Filter(condition=r.Var(name=name)):
            return literal, name, TRUE
        case r.Filter(condition=r.Apply(operator="!", operands=(r.Var(name=name),))):
            return literal, name, r.Const(False, BOOL)
    return None


def substitute(node: Any, known: Substitution) -> Any:
    """An expression, term or literal with variables replaced."""
    if isinstance(node, r.Var):
        return known.get(node.name, node)
    return mapped(node, lambda child: substitute(child, known))


def fold(e: r.Expr) -> r.Expr:
    """The expression with what constants determine computed, as a run would."""
    if not isinstance(e, r.Apply):
        return e
    e = mapped(e, fold)
    match e:
        case r.Apply(operator="if", operands=(r.Const(value=condition), a, b)):
            return a if condition else b
        case (
            r.Apply(operator="&&", operands=(r.Const(value=True), a))
            | r.Apply(operator="&&", operands=(a, r.Const(value=True)))
        ):
            return a
        case (
            r.Apply(operator="||", operands=(r.Const(value=False), a))
            | r.Apply(operator="||", operands=(a, r.Const(value=False)))
        ):
            return a
        case r.Apply(operator=operator, operands=(r.Var(name=a), r.Var(name=b))) if a == b and operator in _REFLEXIVE:
            return r.Const(_REFLEXIVE[operator], BOOL)
    is_plain = e.operator in _FOLDED and all(t.family in _PLAIN for t in (e.type, *(o.type for o in e.operands)))
    constants = [operand.value for operand in e.operands if isinstance(operand, r.Const)]
    if is_plain and len(constants) == len(e.operands):
        if e.type.is_integer and e.operator in EXACT and leaves_type(e, constants):
            return e
        value = value_of(e)
        return e if value is None else r.Const(value, e.type)
    return e


def _without_empty(program: r.Rules, rules: list[r.Rule]) -> list[r.Rule]:
    """The rules without those that read auxiliary relations that have become empty, and without their negations."""
    facts = {facts.relation for facts in program.facts}
    auxiliary = {rule.relation for rule in program.rules if rule.relation.startswith("#")} - facts
    while True:
        empty = auxiliary - {rule.relation for rule in rules}
        auxiliary -= empty
        if not empty:
            return rules
        rules = [simpler for rule in rules if (simpler := _without(rule, empty)) is not None]


def _without(rule: r.Rule, empty: set[str]) -> r.Rule | None:
    if not isinstance(rule, r.Clause):
        # An aggregate of nothing has a result.
        return rule
    if any(isinstance(literal, r.Atom) and literal.relation in empty for literal in rule.body):
        return None
    literals = tuple(a for a in rule.body if not (isinstance(a, r.Negated) and a.relation in empty))
    return rule if len(literals) == len(rule.body) else replace(rule, body=literals)
