"""Relations that one rule defines and one rule reads are written into that rule, for runs without tags.

    pair(x, y) :- natural(x), natural(y)
    answer(y) :- pair(7, y), (y < 9)
becomes
    answer(y) :- natural(7), natural(y), (y < 9)
    answer(y) :- pair(7, y), (y < 9)

where `pair` has only the facts that a run may pass in. The reader's constants then restrict which rows are
derived; before, all of them were. It is done for products, and where the reader asks with constants. All variables of a
body must be in its head, and the reader must stand outside of recursions: so no row is derived more often than it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.simplify import simple_clause, substitute
from derivable.datalog.rules.strata import cycles

# A rule grows up to so many atoms: join orders are compared for few.
MOST_ATOMS = 6


def inline(program: r.Rules) -> tuple[r.Rules, tuple[str, ...]]:
    """The program, and a note on each relation that was written into its reader."""
    notes: list[str] = []
    while (pair := _inlinable(program)) is not None:
        rule, reader = pair
        made = _written_into(reader, rule)
        rules = [other for other in program.rules if other is not rule and other is not reader]
        # Runs pass facts only to relations that have names.
        rules += [made] if rule.relation.startswith("#") else [made, reader]
        program = replace(program, rules=tuple(rules))
        notes.append(f"inline {rule.relation}: one rule defines it, and one reads it")
    return program, tuple(notes)


def _inlinable(program: r.Rules) -> tuple[r.Clause, r.Clause] | None:
    """A rule that can be written into its reader, and that."""
    defined = Counter(rule.relation for rule in program.rules)
    used = Counter(
        literal.relation
        for rule in program.rules
        if isinstance(rule, r.Clause)
        for literal in rule.body
        if isinstance(literal, (r.Atom, r.Negated))
    )
    used.update(t for rule in program.rules if not isinstance(rule, r.Clause) for t, _ in rule.dependencies)
    candidates = {
        rule.relation: rule
        for rule in program.rules
        if isinstance(rule, r.Clause)
        and defined[rule.relation] == used[rule.relation] == 1
        and _may_be_inlined(program, rule)
    }
    if not candidates:
        return None
    cyclic = cycles(program.relations, program.rules)
    sizes = Counter(cyclic.component_of.values())
    for reader in program.rules:
        if not isinstance(reader, r.Clause) or reader.relation in cyclic.edges[reader.relation]:
            continue
        if sizes[cyclic.component_of[reader.relation]] > 1:
            continue
        for literal in reader.body:
            if not isinstance(literal, r.Atom) or literal.relation not in candidates:
                continue
            rule = candidates[literal.relation]
            pays = _is_product(rule) or any(isinstance(term, r.Const) for term in literal.terms)
            if pays and _num_atoms(rule) + _num_atoms(reader) <= MOST_ATOMS + 1:
                return rule, reader
    return None


def _num_atoms(clause: r.Clause) -> int:
    return sum(isinstance(literal, r.Atom) for literal in clause.body)


def _is_product(rule: r.Clause) -> bool:
    """Whether some atoms of a rule share no variable with the others, not even through what else it says."""
    parts = [r.names(literal) for literal in rule.body]
    joined, rest = parts[0], parts[1:]
    while near := [names for names in rest if names & joined]:
        joined = joined.union(*near)
        rest = [names for names in rest if not names & joined]
    return bool(rest)


def _may_be_inlined(program: r.Rules, rule: r.Clause) -> bool:
    relation = program.relations[rule.relation]
    if rule.relation in program.outputs or relation.is_goal or relation.is_certain or relation.lattice is not None:
        return False
    if any(facts.relation == rule.relation for facts in program.facts):
        return False
    head = [term.name for term in rule.terms if isinstance(term, r.Var)]
    if len(head) < len(rule.terms) or len(set(head)) < len(head) or not _num_atoms(rule):
        return False
    # `#demand` guards and terms that are taken apart stay where they are.
    read_relations = {literal.relation for literal in rule.body if isinstance(literal, (r.Atom, r.Negated))}
    if rule.relation in read_relations or any(program.relations[name].is_certain for name in read_relations):
        return False
    return not any(
        isinstance(literal, r.RuleProbability) or not r.names(literal) <= set(head) or _has_wildcard(literal)
        for literal in rule.body
    )


def _has_wildcard(literal: r.Literal) -> bool:
    return isinstance(literal, r.Atom) and None in literal.terms


def _written_into(reader: r.Clause, rule: r.Clause) -> r.Clause:
    names = {name for node in (*reader.terms, *reader.body) for name in r.names(node)}
    body: list[r.Literal] = []
    for literal in reader.body:
        if not isinstance(literal, r.Atom) or literal.relation != rule.relation:
            body.append(literal)
            continue
        known: dict[str, r.Expr] = {}
        for variable, term in zip(rule.terms, literal.terms):
            assert isinstance(variable, r.Var)
            fresh = f"{rule.relation}'{variable.name}"
            while fresh in names:
                fresh += "'"
            known[variable.name] = r.Var(fresh, variable.type, variable.span) if term is None else term
        body += [substitute(other, known) for other in rule.body]
    made = replace(reader, body=tuple(body))
    return simple_clause(made) or made
