"""Equalities between expressions of atoms that nothing else connects are keys of their join.

    near(x, y) :- r(x), s(y, _), ((x / 10) == (y / 7))
becomes
    near(x, y) :- r(x), #key_s_1(y, _, k), (k == (x / 10))
    #key_s_1(y, z, k) :- s(y, z), (k == (y / 7))

so that `s` is looked up by the key, and not gone through for each row of `r`. A row of `s` has one in the new relation,
with the same tag. Equations that can be solved for a variable are keys as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import cycles
from derivable.datalog.values.values import BOOL

KEY = "#key_"


def with_join_keys(program: r.Rules) -> r.Rules:
    """The program with relations that have such keys; itself if no rule has need of them."""
    if not any(_candidates(rule) for rule in program.rules if isinstance(rule, r.Clause)):
        return program
    component = cycles(program.relations, program.rules).component_of
    relations, made = dict(program.relations), []

    def keyed(clause: r.Clause) -> r.Clause:
        made_clause = _keyed(clause, program.relations, component, len(made) + 1)
        if made_clause is None:
            return clause
        clause, key = made_clause
        types = tuple(term.type for term in key.terms)
        relations[key.relation] = r.Relation(key.relation, types, is_hidden=True, span=key.span)
        made.append(key)
        return clause

    rules = tuple(keyed(rule) if isinstance(rule, r.Clause) else rule for rule in program.rules)
    return replace(program, relations=relations, rules=(*rules, *made)) if made else program


def _candidates(clause: r.Clause) -> list[tuple[int, r.Expr, r.Expr]]:
    """(number of the literal, side, other side) of equations between computed values of one type whose words are equal
    if they are."""
    return [
        (number, a, b)
        for number, literal in enumerate(clause.body)
        for a, b in r.sides(literal)
        if isinstance(a, r.Apply) and isinstance(b, r.Apply) and a.type == b.type and a.type.family != "float"
    ]


def _keyed(
    clause: r.Clause, relations: Mapping[str, r.Relation], component: Mapping[str, int], number: int
) -> tuple[r.Clause, r.Clause] | None:
    """The clause with a key for one of its atoms, and the clause of that; None if it has no need of one."""
    connected = _connected(clause)
    for index, a, b in _candidates(clause):
        mine, others = r.names(a), r.names(b)
        if not mine or not others or connected[min(mine)] == connected[min(others)]:
            continue
        for at, atom in enumerate(clause.body):
            if not isinstance(atom, r.Atom) or not others <= r.names(atom):
                continue
            relation = relations[atom.relation]
            is_plain = relation.lattice is None and relation.keys is None and relation.demand is None
            if component[atom.relation] == component[clause.relation] or not is_plain or relation.is_certain:
                # One more round until a recursion has it would change what a limit of rounds means.
                continue
            name = f"{KEY}{atom.relation.removeprefix('#')}_{number}"
            key = r.Var(f"{name}'k", b.type, clause.body[index].span)
            columns = [
                r.Var(f"{name}'{c}", relation.types[c]) if term is None else term for c, term in enumerate(atom.terms)
            ]
            terms = [term for term in columns if isinstance(term, r.Var)]
            inner = r.Atom(atom.relation, tuple(columns), atom.span)
            equation = r.Filter(r.Apply("==", (key, b), BOOL), clause.body[index].span)
            made = r.Clause(name, (*terms, key), (inner, equation), atom.span)
            read = tuple(None if term not in atom.terms else term for term in terms)
            body = list(clause.body)
            body[at] = r.Atom(name, (*read, key), atom.span)
            body[index] = r.Filter(r.Apply("==", (key, a), BOOL), clause.body[index].span)
            return replace(clause, body=tuple(body)), made
    return None


def _connected(clause: r.Clause) -> dict[str, str]:
    """name -> one of those that atoms, predicates and equations that can be solved connect it with."""
    parents = {name: name for node in (*clause.terms, *clause.body) for name in r.names(node)}
    for literal in clause.body:
        is_solved = any(isinstance(side, r.Var) for side, _ in r.sides(literal))
        if not isinstance(literal, (r.Atom, r.Generate)) and not is_solved:
            continue
        firsts = {parents[name] for name in r.names(literal)}
        for name, first in parents.items():
            if first in firsts:
                parents[name] = min(firsts)
    return parents
