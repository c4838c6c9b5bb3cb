"""Common sub-plans: auxiliary relations with the same definition are one relation.

Desugaring makes a relation for each `not`, `exists`, `forall` and aggregate that is written. Two are the same if their
rules are, but for the names of variables; then they have the same tuples with the same tags, and are computed once.
Rules with probabilities stay apart: each has separate coins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.simplify import substitute


def share(program: r.Rules) -> r.Rules:
    """The program in which the first of equal auxiliary relations stands for all."""
    defining: dict[str, list[r.Rule]] = {}
    for rule in program.rules:
        if rule.relation.startswith("#"):
            defining.setdefault(rule.relation, []).append(rule)
    apart = {facts.relation for facts in program.facts}
    apart.update(program.outputs)
    shared = {name: rules for name, rules in defining.items() if name not in apart}
    if len(shared) < 2:
        return program
    same: dict[str, str] = {}
    while True:
        first: dict[tuple[Any, ...], str] = {}
        new: dict[str, str] = {}
        for name, rules in shared.items():
            key = program.relations[name].types, *(_canonical(rule, same) for rule in rules)
            first_name = first.setdefault(key, name)
            if first_name != name:
                new[name] = first_name
        if not new:
            break
        same.update(new)
        shared = {name: rules for name, rules in shared.items() if name not in new}
    if not same:
        return program
    # A relation that stands for others may itself be equal to a later one.
    for name in same:
        while same[name] in same:
            same[name] = same[same[name]]
    rules = [_renamed(rule, same) for rule in program.rules if rule.relation not in same]
    relations = {name: relation for name, relation in program.relations.items() if name not in same}
    return replace(program, rules=tuple(rules), relations=relations)


def _canonical(rule: r.Rule, same: dict[str, str]) -> Any:
    """The rule without the name of its head, those of its variables, and those of relations that are known to be
    others."""
    rule = _renamed(rule, same)
    if not isinstance(rule, r.Clause):
        return replace(rule, relation="")
    names: dict[str, r.Var] = {}
    for node in (*rule.terms, *rule.body):
        for v in r.variables(node):
            names.setdefault(v.name, r.Var(f"x{len(names)}", v.type))
    terms = tuple(substitute(term, names) for term in rule.terms)
    return terms, tuple(substitute(literal, names) for literal in rule.body)


def _renamed(rule: r.Rule, same: dict[str, str]) -> r.Rule:
    """The rule with the relations that stand for those it reads."""
    if not same:
        return rule
    if isinstance(rule, r.AggregateRule):
        groups = None if rule.groups is None else same.get(rule.groups, rule.groups)
        return replace(rule, body=same.get(rule.body, rule.body), groups=groups)
    return renamed(rule, same)


def renamed(clause: r.Clause, names: Mapping[str, str]) -> r.Clause:
    """The clause that reads other relations instead of some."""
    body = tuple(
        replace(a, relation=names[a.relation]) if isinstance(a, (r.Atom, r.Negated)) and a.relation in names else a
        for a in clause.body
    )
    return clause if body == clause.body else replace(clause, body=body)
