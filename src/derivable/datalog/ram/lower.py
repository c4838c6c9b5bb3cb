"""Lowering: strata of core rules to RAM."""

from __future__ import annotations

from derivable.datalog.ram import nodes as m
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.order import Define, order
from derivable.datalog.strata import Strata
from derivable.datalog.values import BOOL


def lower(strata: Strata) -> m.Ram:
    """RAM of a stratified program: join orders chosen, recursive rules split by the atom that changes."""
    program = strata.program
    lowered = []
    for stratum in strata.strata:
        once: list[m.Instruction] = []
        loop: list[m.Store] = []
        full: list[m.Instruction] = []
        own = set(stratum.relations)
        for rule in stratum.rules:
            if not isinstance(rule, r.Clause):
                once.append(rule)
                full.append(rule)
                continue
            recursive = [
                i for i, literal in enumerate(rule.body) if isinstance(literal, r.Atom) and literal.relation in own
            ]
            plain = _store(rule, program, None, {})
            full.append(plain)
            if not recursive:
                once.append(plain)
            for k, position in enumerate(recursive):
                # Earlier recursive atoms read what is stable, so that no combination is derived twice.
                parts: dict[int, m.Part] = dict.fromkeys(recursive[:k], "stable")
                parts[position] = "recent"
                loop.append(_store(rule, program, position, parts))
        lowered.append(m.Stratum(stratum.relations, stratum.is_recursive, tuple(once), tuple(loop), tuple(full)))
    return m.Ram(program.relations, program.facts, tuple(lowered), program.outputs, program.text, program.source)


def _store(rule: r.Clause, program: r.Rules, first: int | None, parts: dict[int, m.Part]) -> m.Store:
    position = {id(literal): i for i, literal in enumerate(rule.body)}
    query: m.Query = m.Unit()
    for step in order(rule, program, first):
        match step:
            case r.Atom(relation=name, terms=terms):
                scan = m.Scan(name, terms, parts.get(position[id(step)], "all"))
                query = scan if isinstance(query, m.Unit) else m.Join(query, scan)
            case r.Negated(relation=name, terms=terms):
                query = m.Difference(query, m.Scan(name, terms))
            case r.Filter(condition=condition):
                query = m.Select(query, condition)
            case Define(variable=v, expression=e):
                query = m.Extend(query, v, e)
            case r.Generate(variable=v, low=low, high=high, inclusive=inclusive):
                query = _range(query, v, low, high, inclusive)
    return m.Store(rule.relation, m.Project(query, rule.terms))


def _range(query: m.Query, v: r.Var, low: r.Expr, high: r.Expr, inclusive: bool) -> m.Query:
    if v.name not in m.columns(query):
        return m.Range(query, v, low, high, inclusive)
    below = r.Apply("<=" if inclusive else "<", (v, high), BOOL)
    return m.Select(query, r.Apply("&&", (r.Apply(">=", (v, low), BOOL), below), BOOL))
