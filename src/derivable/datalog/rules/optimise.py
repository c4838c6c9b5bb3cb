"""Optimisations of core rules, each of which keeps every result and tag: simpler clauses, shared auxiliary relations,
no rules that no output needs, and sorted rows as far as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from derivable.datalog.aggregates.record import AGGREGATES
from derivable.datalog.policy.costs import policy
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.join_keys import with_join_keys
from derivable.datalog.rules.new_terms import with_terms
from derivable.datalog.rules.share import share
from derivable.datalog.rules.simplify import simplify
from derivable.datalog.rules.strata import dependents, needed_for
from derivable.datalog.scalars.nodes import Apply, Const, Expr, Var


def optimise(program: r.Rules, narrow: bool = True) -> r.Rules:
    """The optimised program; `narrow` if only its outputs matter."""
    program = simplify(program)
    if policy().narrows_joins:
        program = with_join_keys(program)
    program = with_most_ranks(share(program))
    return reached(program) if narrow else program


def reached(program: r.Rules) -> r.Rules:
    """The program without the rules and auxiliary relations that no output depends on.

    Named relations stay, because a run may pass facts for them, and so do the facts: a random one that nothing reads
    still makes a program one with probabilities.
    """
    goals = [name for name, relation in program.relations.items() if relation.is_goal]
    # An output with a declared demand has the tuples that any rule demands of it.
    demanded = [name for name in program.outputs if "b" in (program.relations[name].demand or "")]
    # A pattern that they match may have its terms from any rule that makes some.
    needed = needed_for(with_terms(program), (*program.outputs, *goals, *dependents(program, demanded)))
    if all(rule.relation in needed for rule in program.rules):
        return program
    names_with_facts = {facts.relation for facts in program.facts}.union(
        c.relation for c in program.constructors.values()
    )
    return replace(
        program,
        rules=tuple(rule for rule in program.rules if rule.relation in needed),
        relations={
            name: relation
            for name, relation in program.relations.items()
            if name in needed or name in names_with_facts or not name.startswith("#")
        },
    )


# The first rows of a sort: `(p, x) := sort(x: r(x)), p < 3` reads three of them.


def with_most_ranks(program: r.Rules) -> r.Rules:
    """The program in which each aggregate that numbers rows has the number from which on no rule reads them."""
    # Relation -> the column of the number, and from which number on each of its readers reads none, None if it reads
    # all.
    columns = {
        rule.relation: rule.num_group
        for rule in program.rules
        if isinstance(rule, r.AggregateRule)
        and AGGREGATES[rule.operator].has_ranks
        and program.relations[rule.relation].is_hidden
    }
    if not columns:
        return program
    limits: dict[str, list[int | None]] = {name: [] for name in columns}
    for rule in program.rules:
        if isinstance(rule, r.AggregateRule):
            for name in columns.keys() & {rule.body, rule.groups}:
                limits[name].append(None)
            continue
        for literal in rule.body:
            if isinstance(literal, (r.Atom, r.Negated)) and literal.relation in columns:
                term = literal.terms[columns[literal.relation]] if isinstance(literal, r.Atom) else None
                limits[literal.relation].append(_limit(term, rule.body))
    return replace(program, rules=tuple(_limited(rule, limits) for rule in program.rules))


def _limited(rule: r.Rule, limits: dict[str, list[int | None]]) -> r.Rule:
    if not isinstance(rule, r.AggregateRule) or not limits.get(rule.relation):
        return rule
    known = [limit for limit in limits[rule.relation] if limit is not None]
    return replace(rule, most_ranks=max(known)) if len(known) == len(limits[rule.relation]) else rule


def _limit(number: Expr | None, body: tuple[r.Literal, ...]) -> int | None:
    """The limit from which on a body reads no number, which an atom of it has as this term."""
    if isinstance(number, Const):
        return int(number.value) + 1
    if not isinstance(number, Var):
        return None
    conditions = [literal.condition for literal in body if isinstance(literal, r.Filter)]
    return min((limit for condition in conditions for limit in _limits(number.name, condition)), default=None)


def _limits(variable: str, condition: Expr) -> Iterator[int]:
    match condition:
        case Apply(operator="&&", operands=operands):
            for operand in operands:
                yield from _limits(variable, operand)
        case Apply(operator="<", operands=(Var(name=name), Const(value=limit))) if name == variable:
            yield int(limit)
        case Apply(operator=">", operands=(Const(value=limit), Var(name=name))) if name == variable:
            yield int(limit)
        case Apply(operator="<=" | "==", operands=(Var(name=name), Const(value=limit))) if name == variable:
            yield int(limit) + 1
        case Apply(operator=">=" | "==", operands=(Const(value=limit), Var(name=name))) if name == variable:
            yield int(limit) + 1
