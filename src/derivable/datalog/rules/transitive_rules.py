"""Transitive rules among others, run as linear ones, for runs without tags.

    p(x, z) :- e(x, z)
    p(x, z) :- p(x, y), p(y, z)
    p(x, z) :- p(y, w), under(w, r, z), q(x, r, y)
    q(x, r, z) :- p(x, y), q(y, r, z)
becomes
    #base_p(x, z) :- e(x, z)
    #base_p(x, z) :- p(y, w), under(w, r, z), q(x, r, y), not p(x, z)
    p(x, z) :- #base_p(x, z)
    p(x, z) :- #base_p(x, y), p(y, z)
    q(x, r, z) :- #base_p(x, y), q(y, r, z)

The base has what all other rules derive, so `p` is its closure whatever these read: a step adds one pair of the base
where the transitive rule derives each pair once for each point between. A row that `p` has when it is derived again is
a path of base rows by then, of which the base has no need. A rule that takes steps of `p` from rows of its relation
to rows of that takes those of the base, one after the other.

A rule that only goes on from the rows of `p` on one side, `p(x, z) :- p(x, y), r(y, z)`, may stay as it is if the
closure goes on there too, `p(x, z) :- p(x, y), #base_p(y, z)`: what it derives ends no pair that others begin with.

A pair has other derivations then, so it is for tags that do not say how often or by what a row is derived. A relation
that has facts is left alone, and so is one whose transitive rule is the only recursive one (`ram.transitive_loop`).
Source: Naughton, Ramakrishnan, Sagiv, Ullman, "Efficient evaluation of right-, left-, and multi-linear rules", 1989,
for the single rule; that the base may grow in the recursion follows from the least fixpoint of both programs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import cycles

BASE = "#base_"


@dataclass(frozen=True)
class Transitive:
    """The columns of a rule `p(g, x, z) :- p(g, x, y), p(g, y, z)`: those of g, of x, and of z, which is where y goes
    on by position."""

    groups: tuple[int, ...]
    sources: tuple[int, ...]
    targets: tuple[int, ...]


def transitive(clause: r.Rule) -> Transitive | None:
    """The columns of a transitive rule, for any number of g, x and z in any order; None for another rule."""
    if not isinstance(clause, r.Clause) or len(clause.body) != 2:
        return None
    atoms = [literal for literal in clause.body if isinstance(literal, r.Atom) and literal.relation == clause.relation]
    rows = [clause.terms, *(atom.terms for atom in atoms)]
    if len(atoms) != 2 or not all(isinstance(term, r.Var) for terms in rows for term in terms):
        return None
    heads, lefts, rights = ([term.name for term in terms if isinstance(term, r.Var)] for terms in rows)
    numbered = list(enumerate(zip(heads, lefts, rights)))
    groups = tuple(c for c, (head, left, right) in numbered if head == left == right)
    # A column of sources has x, x, y; one of targets has z, y, z.
    sources = tuple(c for c, (head, left, right) in numbered if head == left != right)
    targets = tuple(c for c, (head, left, right) in numbered if head == right != left)
    if len(groups) + len(sources) + len(targets) != len(heads) or len(sources) != len(targets) or not sources:
        return None
    # Columns of sources and of targets belong together by position: a row (y, z) goes on where (x, y) has come.
    if [rights[c] for c in sources] != [lefts[c] for c in targets]:
        return None
    names = [*heads, *(rights[c] for c in sources)]
    return Transitive(groups, sources, targets) if len(set(names)) == len(names) else None


def transitive_relations(program: r.Rules) -> frozenset[str]:
    """The relations with one transitive rule and other recursive ones, which `linear` may rewrite."""
    rules: dict[str, list[r.Rule]] = {}
    for rule in program.rules:
        rules.setdefault(rule.relation, []).append(rule)
    candidates = {
        name
        for name, heads in rules.items()
        if sum(transitive(rule) is not None for rule in heads) == 1 and _is_plain(program.relations[name])
    }
    if not candidates:
        return frozenset()
    dependencies = cycles(program.relations, program.rules)
    component, broken = dependencies.component_of, dependencies.broken
    return frozenset(
        name
        for name in candidates
        if component[name] not in broken
        and not any(
            component[rule.relation] == component[name] and transitive(rule) is None and _reads_twice(rule, name)
            for rule in program.rules
        )
        and (
            sum(number == component[name] for number in component.values()) > 1
            or _has_other_steps([rule for rule in rules[name] if transitive(rule) is None])
        )
    )


def linear(program: r.Rules, names: Collection[str]) -> r.Rules:
    """The program in which the transitive rules of these relations, some of `transitive_relations`, are linear."""
    for name in sorted(names):
        program = _linear(program, name)
    return program


def _is_plain(relation: r.Relation) -> bool:
    return relation.lattice is None and relation.keys is None and relation.demand is None


def _reads_twice(rule: r.Rule, name: str) -> bool:
    """Whether a rule joins the rows of a relation with each other: linear recursions take more rounds, in each of which
    such a join has few rows and goes through the large relation again, which costs what the transitive rule saves."""
    return isinstance(rule, r.Clause) and sum(isinstance(one, r.Atom) and one.relation == name for one in rule.body) > 1


def _has_other_steps(rules: list[r.Rule]) -> bool:
    """Whether rules, of a relation that is recursive by itself, go on from its rows; not if one reads these alone, as
    those of an equivalence do."""
    bodies = [(rule.relation, rule.body) for rule in rules if isinstance(rule, r.Clause)]
    read = [
        {literal.relation if isinstance(literal, r.Atom) else "" for literal in body}
        for name, body in bodies
        if any(isinstance(literal, r.Atom) and literal.relation == name for literal in body)
    ]
    return bool(read) and all(len(relations) > 1 for relations in read)


def _linear(program: r.Rules, name: str) -> r.Rules:
    relation, base = program.relations[name], BASE + name
    (columns,) = (shape for rule in program.rules if rule.relation == name and (shape := transitive(rule)) is not None)
    mirrored = Transitive(columns.groups, columns.targets, columns.sources)
    heads = [rule for rule in program.rules if rule.relation == name and isinstance(rule, r.Clause)]
    numbers = cycles(program.relations, program.rules).component_of
    component = {other for other, number in numbers.items() if number == numbers[name]}
    # Which end of a row rules go on from: that of its targets, else of its sources.
    going_on = {id(rule) for rule in heads if _goes_on(rule, columns)}
    at_targets = bool(going_on)
    going_on = going_on or {id(rule) for rule in heads if _goes_on(rule, mirrored)}
    rules: list[r.Rule] = []
    for rule in program.rules:
        if isinstance(rule, r.Clause) and rule.relation == name and transitive(rule) is not None:
            first, second = rule.body
            assert isinstance(first, r.Atom)
            assert isinstance(second, r.Atom)
            terms = tuple(r.Var(f"x{c}", t) for c, t in enumerate(relation.types))
            rules.append(r.Clause(name, terms, (r.Atom(base, terms, rule.span),), rule.span))
            in_base = (first, replace(second, relation=base)) if at_targets else (replace(first, relation=base), second)
            rules.append(replace(rule, body=in_base))
        elif rule.relation == name:
            rules.append(rule if id(rule) in going_on else _of_base(rule, base, component))
        elif isinstance(rule, r.Clause) and not going_on and _is_plain(program.relations[rule.relation]):
            rules.append(_by_steps(rule, name, columns, base))
        else:
            rules.append(rule)
    made = r.Relation(base, relation.types, is_hidden=True, span=relation.span)
    return replace(program, relations={**program.relations, base: made}, rules=tuple(rules))


def _of_base(rule: r.Rule, base: str, component: Collection[str]) -> r.Rule:
    """A rule for the base, which in a recursion has no need of a row that the relation has by then."""
    if isinstance(rule, r.Clause) and any(
        isinstance(literal, r.Atom) and literal.relation in component for literal in rule.body
    ):
        terms = tuple(term for term in rule.terms if isinstance(term, (r.Var, r.Const)))
        if len(terms) == len(rule.terms):
            body = (*rule.body, r.Negated(rule.relation, terms, rule.span, leaves_out=True))
            return replace(rule, relation=base, body=body)
    return replace(rule, relation=base)


def _goes_on(clause: r.Clause, columns: Transitive) -> bool:
    """Whether a clause is `p(g, x, z) :- p(g, x, y), ...` in which nothing else reads x."""
    if transitive(clause) is not None:
        return False
    uses = clause.uses

    def stays(atom: r.Atom, column: int) -> bool:
        term = atom.terms[column]
        return isinstance(term, r.Var) and term == clause.terms[column]

    return any(
        isinstance(atom, r.Atom)
        and atom.relation == clause.relation
        and all(stays(atom, c) for c in (*columns.groups, *columns.sources))
        and all(uses[name] == 2 for c in columns.sources for name in r.names(atom.terms[c]))
        for atom in clause.body
    )


def _by_steps(clause: r.Clause, name: str, columns: Transitive, base: str) -> r.Clause:
    """A clause `q(x, w) :- p(x, y), q(y, w)`, x and y in the same columns of q, or with the sides of p turned, with the
    base of p; another one as it is."""
    body = [literal for literal in clause.body if isinstance(literal, r.Atom)]
    steps = [literal for literal in body if literal.relation == name]
    rows = [literal for literal in body if literal.relation == clause.relation]
    if columns.groups or len(clause.body) != 2 or len(steps) != 1 or len(rows) != 1:
        return clause
    (step,), (row,) = steps, rows
    terms = (*step.terms, *row.terms, *clause.terms)
    uses = clause.uses
    if not all(isinstance(term, r.Var) for term in terms) or len(r.names(step)) < len(step.terms):
        return clause
    if any(uses[n] != 2 for n in r.names(step)) or len(r.names(row)) < len(row.terms):
        return clause
    for begin, end in ((columns.sources, columns.targets), (columns.targets, columns.sources)):
        moved = {step.terms[e]: step.terms[b] for b, e in zip(begin, end)}
        if tuple(moved.get(term, term) for term in row.terms) == clause.terms and set(moved) <= set(row.terms):
            return replace(
                clause, body=tuple(replace(step, relation=base) if one is step else one for one in clause.body)
            )
    return clause
