"""Equations of a clause, `X = f(Y)`, substituted for their variables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from derivable.datalog.problog import goals as g
from derivable.datalog.problog.terms import Compound, Number, Term, Var, variables
from derivable.datalog.scalars.nodes import Tree, mapped


def solved(clause: g.Clause) -> g.Clause:
    """The clause without the equations of its top conjunction that say what a variable is."""
    heads, body = clause.heads, clause.body
    parts = list(body.goals) if isinstance(body, g.And) else [body]
    i = 0
    while i < len(parts):
        part = parts[i]
        pairs = unified(part.left, part.right) if isinstance(part, g.Unify) else None
        if isinstance(part, g.And):
            parts[i : i + 1] = part.goals
        elif pairs is None and isinstance(part, g.Unify):
            parts[i] = g.Or((), span=part.span)
        elif pairs is None:
            i += 1
        elif not pairs:
            del parts[i]
        else:
            (var, term), rest = pairs[0], pairs[1:]
            if var.name in variables(term):
                # No term is a part of itself.
                parts[i] = g.Or((), span=part.span)
                continue
            parts[i : i + 1] = [g.Unify(a, b, span=part.span) for a, b in rest]
            parts = [put(other, var.name, term) for other in parts]
            heads = tuple(
                (None if p is None else put(p, var.name, term), put(head, var.name, term)) for p, head in heads
            )
    return replace(clause, heads=heads, body=g.And(tuple(parts), span=body.span))


def unified(a: Term, b: Term) -> list[tuple[Var, Term]] | None:
    """The equations of variables that two terms are equal by; None if they cannot be."""
    pairs: list[tuple[Var, Term]] = []
    waiting = [(a, b)]
    while waiting:
        a, b = waiting.pop()
        if isinstance(a, Var) and isinstance(b, Var) and a.name == b.name:
            continue
        # A name of the clause stays where the other one is of no use to anybody.
        if isinstance(a, Var) and not (isinstance(b, Var) and b.is_anonymous):
            pairs.append((a, b))
        elif isinstance(b, Var):
            pairs.append((b, a))
        elif isinstance(a, Compound) and isinstance(b, Compound):
            if a.key != b.key:
                return None
            waiting += zip(a.arguments, b.arguments)
        elif not _are_same(a, b):
            return None
    return pairs


def _are_same(a: Term, b: Term) -> bool:
    """Whether two constants are equal; no integer is equal to a float."""
    if isinstance(a, Number) and isinstance(b, Number):
        return type(a.value) is type(b.value) and a.value == b.value
    return type(a) is type(b) and a == b


def put(node: Tree, name: str, value: Term) -> Tree:
    """A term or a goal with a value substituted for a variable."""
    if isinstance(node, Var):
        return cast(Any, value if node.name == name else node)
    if isinstance(node, Compound):
        # Without `mapped`, whose frames count: a list is as deep as it is long.
        is_in = name in variables(node)
        return replace(node, arguments=tuple([put(a, name, value) for a in node.arguments])) if is_in else node
    return mapped(node, lambda part: put(part, name, value))
