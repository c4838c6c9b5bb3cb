"""Rules in which one atom at most has proofs of several rules: the others are written as what they follow from.

    path(x, z) :- path(x, y), path(y, z)        path(x, y) :- edge(x, y)
becomes
    path(x, z) :- edge(x, y), path(y, z)

A relation has fewer proofs by such rules, which are searched through where those of all rules are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, product

from derivable.datalog.reasons.model import FACTS, Model
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.simplify import substitute

# Ways to write one clause: each of its atoms may follow by several.
MOST_FORMS = 64


@dataclass(frozen=True)
class Unfolded:
    """A clause that was made of another one.

    terms   the terms of the atoms that were replaced, all of which have names, by their positions there
    origin  the position there of each positive atom; -1 for what stands for another
    """

    clause: r.Clause
    terms: dict[int, tuple[r.Var | r.Const, ...]]
    origin: tuple[int, ...]


def unfolded(model: Model, clause: r.Clause, one_step: Callable[[str], list[r.Clause] | None]) -> Iterator[Unfolded]:
    """The forms of a clause.

    one_step  the clauses of a relation that read facts alone; None if it has no others
    """
    literals = _certain(clause)
    recursive = [
        (position, literal, clauses)
        for position, literal in enumerate(literals)
        if isinstance(literal, r.Atom) and (clauses := one_step(literal.relation)) is not None
    ]
    names = {name for literal in literals for name in r.names(literal)}
    forms_at: dict[int, list[list[r.Literal]]] = {}
    terms_at: dict[int, tuple[r.Var | r.Const, ...]] = {}
    for position, atom, clauses in recursive[:-1]:
        types = model.rules.relations[atom.relation].types
        terms = terms_at[position] = tuple(
            r.Var(f"{position}'{column}", t) if term is None else term
            for column, (term, t) in enumerate(zip(atom.terms, types))
        )
        forms_at[position] = [
            [substitute(literal, known) for literal in _certain(one)]
            for k, one in enumerate(clauses)
            if (known := _names(one, terms, f"{position}'{k}'")) is not None
        ]
        if model.facts_of(atom.relation)[0].size:
            forms_at[position].append([r.Atom(FACTS + atom.relation, terms)])
    for chosen in islice(product(*forms_at.values()), MOST_FORMS):
        at = dict(zip(forms_at, chosen))
        parts = [
            (-1 if position in at else position, one)
            for position, literal in enumerate(literals)
            for one in at.get(position, [literal])
        ]
        if names <= {name for _, one in parts for name in r.names(one)}:
            body = tuple(one for _, one in parts)
            origin = tuple(position for position, one in parts if isinstance(one, r.Atom))
            yield Unfolded(replace(clause, body=body), terms_at, origin)


def _certain(clause: r.Clause) -> list[r.Literal]:
    return [literal for literal in clause.body if not isinstance(literal, r.RuleProbability)]


def _names(clause: r.Clause, terms: tuple[r.Var | r.Const, ...], prefix: str) -> dict[str, r.Var | r.Const] | None:
    """What the variables of a clause are where its head has these terms; None where that says more than names."""
    heads = [term.name for term in clause.terms if isinstance(term, r.Var)]
    if len(set(heads)) < len(clause.terms):
        return None
    inner_variables = {v.name: v for literal in clause.body for v in r.variables(literal)}
    return {name: r.Var(prefix + name, v.type) for name, v in inner_variables.items()} | dict(zip(heads, terms))
