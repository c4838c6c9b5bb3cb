"""Where taking terms apart by a join would make a cycle through a negation or an aggregate, expressions do it.

The relation of a constructor depends on all rules that make its terms. A rule below these, which only takes apart terms
that it gets from elsewhere, would depend on them too:

    small(t) :- tree(t), #is_Node(t, x, _), (x < 3)
becomes
    small(t) :- tree(t), (t is Node), (x == Node.0(t)), (x < 3)

This has the same rows, because a term that stands in a tuple is there. It is done only in cycles that are refused
otherwise: the joins are part of kernels, and look terms up by their fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from derivable.core.diagnostics import Span
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.sideways import evaluable
from derivable.datalog.rules.strata import cycles
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.values import BOOL


def without_cycles(program: r.Rules) -> r.Rules:
    """The program with terms taken apart by expressions in the rules of cycles through negations and aggregates."""
    cyclic = cycles(program.relations, program.rules)
    component, broken = cyclic.component_of, cyclic.broken
    if not broken:
        return program
    constructors = {c.relation: c for c in program.constructors.values()}
    rules = []
    for rule in program.rules:
        if isinstance(rule, r.Clause) and component[rule.relation] in broken and rule.relation not in constructors:
            recursive_constructors = {
                name: c for name, c in constructors.items() if component[name] == component[rule.relation]
            }
            rule = _by_expressions(rule, recursive_constructors)
        rules.append(rule)
    return replace(program, rules=tuple(rules))


def _by_expressions(rule: r.Clause, constructors: Mapping[str, Constructor]) -> r.Clause:
    """The clause without the atoms of these relations whose term something else binds."""
    waiting = [a for a in rule.body if isinstance(a, r.Atom) and a.relation in constructors]
    apart: dict[int, list[r.Literal]] = {}
    while True:
        left = [a for a in waiting if id(a) not in apart]
        others: list[r.Literal] = []
        for literal in rule.body:
            if not any(literal is a for a in left):
                others += apart.get(id(literal), [literal])
        bound = evaluable(others)[1]
        chosen = next((a for a in left if _is_bound(a.terms[0], bound)), None)
        if chosen is None:
            break
        term, *fields = chosen.terms
        assert term is not None
        apart[id(chosen)] = taken_apart(term, fields, constructors[chosen.relation], chosen.span)
    if not apart:
        return rule
    body = [part for literal in rule.body for part in apart.get(id(literal), [literal])]
    return replace(rule, body=tuple(body))


def _is_bound(term: r.Var | r.Const | None, bound: set[str]) -> bool:
    """A wildcard is not: only the join says whether there is a term."""
    return isinstance(term, r.Const) or (isinstance(term, r.Var) and term.name in bound)


def taken_apart(
    term: r.Var | r.Const, fields: Sequence[r.Var | r.Const | None], constructor: Constructor, span: Span
) -> list[r.Literal]:
    """The conditions that a term is one of the constructor's and has these fields; None is any field."""
    literals: list[r.Literal] = [r.Filter(r.Apply(f"is {constructor.name}", (term,), BOOL), span)]
    for i, (field, t) in enumerate(zip(fields, constructor.fields)):
        if field is not None:
            value = r.Apply(f"{constructor.name}.{i}", (term,), t)
            literals.append(r.Filter(r.Apply("==", (field, value), BOOL), span))
    return literals
