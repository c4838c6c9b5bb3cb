"""The first literals of rules, which `absence` looks for one after the other, as questions of a run with demand.

A rule demands the rows of a literal for what all literals that are evaluated before it leave, and these may be any of
its body. So a table has none of the rows of `q(x)` in `p(x) = q(x), e(x, y)` where `e` has no rows, and does not say
whether `q(x)` holds. Where demand restricts tables, each beginning of a body is therefore a question of its own, and
the tables have all rows that it joins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import bound_terms
from derivable.datalog.rules.sideways import Columns, Patterns
from derivable.datalog.values.values import BOOL


def ordered(
    clause: r.Clause, columns: Columns, patterns: Patterns, keys: Collection[str]
) -> tuple[r.Clause, list[r.Literal]]:
    """A clause with a variable for what its head computes in the bound columns, and its literals, the equations of
    these variables too, in the order in which they are looked for: that of writing, as far as it binds what they read.

    patterns  relation -> the columns that it is demanded with: its atoms come once these are bound
    keys      relations that say nothing of what is true
    """
    terms, equations = bound_terms(clause, columns)
    heads = list(clause.terms)
    for column, term in zip(columns, terms):
        heads[column] = term
    clause = replace(clause, terms=tuple(heads))
    waiting = [
        node
        for node in (*clause.body, *equations)
        if not isinstance(node, r.RuleProbability) and not (isinstance(node, r.Atom) and node.relation in keys)
    ]
    literals: list[r.Literal] = []
    while waiting:
        bound = bound_names(clause, columns, literals)
        literal = next((node for node in waiting if _is_evaluable(node, bound, patterns)), None)
        literal = literal or next((node for node in waiting if isinstance(node, r.Atom)), waiting[0])
        literals.append(literal)
        waiting.remove(literal)
    return clause, literals


def bound_names(clause: r.Clause, columns: Columns, held: Sequence[r.Literal]) -> set[str]:
    """The variables that have values once some literals hold."""
    names = {v.name for c in columns for v in r.variables(clause.terms[c])}
    for literal in held:
        if not isinstance(literal, r.Negated):
            names |= r.names(literal)
    return names


def _is_evaluable(literal: r.Literal, bound: set[str], patterns: Patterns) -> bool:
    if isinstance(literal, r.Filter) and any(isinstance(a, r.Var) and r.names(b) <= bound for a, b in r.sides(literal)):
        return True
    if isinstance(literal, (r.Filter, r.Negated)):
        return r.names(literal) <= bound
    if isinstance(literal, r.Atom):
        return all(r.names(literal.terms[column]) <= bound for column in patterns.get(literal.relation, ()))
    return r.inputs(literal) <= bound


def with_prefixes(rules: r.Rules, relation: str, known: dict[int, r.Const], patterns: Patterns) -> r.Rules:
    """The rules with an output more for each beginning of each body of a relation.

    known  column -> the value that the head has there
    """
    columns, values = tuple(known), tuple(known.values())
    relations, added, outputs = dict(rules.relations), [], []
    types = tuple(value.type for value in values)
    clauses = [rule for rule in rules.rules if isinstance(rule, r.Clause) and rule.relation == relation]
    for number, clause in enumerate(clauses):
        clause, literals = ordered(clause, columns, patterns, rules.key_relations)
        heads = tuple(clause.terms[column] for column in columns)
        # The values of the head, also where nothing demands the part.
        equations = [
            r.Filter(r.Apply("==", (term, value), BOOL))
            for term, value in zip(heads, values)
            if isinstance(term, r.Var)
        ]
        for count, body in enumerate(_beginnings(clause, columns, literals, patterns)):
            part, output = f"#{relation}_{number}_{count}", f"{relation}(…)_{number}_{count}"
            relations[part], relations[output] = r.Relation(part, types), r.Relation(output, ())
            added.append(r.Clause(part, heads, (*equations, *body)))
            added.append(r.Clause(output, (), (r.Atom(part, values),)))
            outputs.append(output)
    return replace(rules, relations=relations, rules=(*rules.rules, *added), outputs=(*rules.outputs, *outputs))


def _beginnings(
    clause: r.Clause, columns: Columns, literals: list[r.Literal], patterns: Patterns
) -> Iterator[tuple[r.Literal, ...]]:
    for count, literal in enumerate(literals):
        bound = bound_names(clause, columns, literals[:count])
        if not isinstance(literal, r.Atom) and not _is_evaluable(literal, bound, patterns):
            return
        yield tuple(literals[: count + 1])
