"""Aggregates inside of a recursion that aggregate what is complete before it.

`level(k + 1, n) = level(k, _), n := count(z: score(z) and z > k)` desugars to

    #count_body(k, z) :- level(k, _), score(z), z > k
    #count :- count over #count_body
    level(k + 1, n) :- level(k, _), #count(k, n)

where `level` depends on itself through an aggregate. But `level` only says for which `k` there is a group, and the last
rule says that again: what a group has depends on `k` and on `score`. So the body has the keys from a relation without
rules,

    #count_keys(k)
    #count_body(k, z) :- #count_keys(k), score(z), z > k

and the last rule looks up the rows of its keys, `#count(k; n)`, like those of a predicate: a run finds them for the
keys that come, each once (`run/keyed.py`). Where the body binds its groups without the recursion, it is left without
that. A reader that takes all groups of a `where`, `deg(x, n) = n := count(z: edge(x, z) where x: reach(x))` beside
`reach(y) = deg(x, _), edge(x, y)`, says itself which these are: `deg(x, n) :- #count_groups(x), #count(x; n)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from derivable.datalog.foreign.standard import KEYED
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import cycles
from derivable.datalog.scalars.nodes import Var


def with_keys(rules: r.Rules) -> r.Rules:
    """The program whose recursions query the groups of such aggregates; others stay, and are no strata."""
    aggregates = [rule for rule in rules.rules if not isinstance(rule, r.Clause)]
    if not aggregates:
        return rules
    component_of = cycles(rules.relations, rules.rules).component_of
    for rule in aggregates:
        if component_of[rule.relation] in {component_of[name] for name in (rule.body, rule.groups) if name is not None}:
            component_relations = {
                name for name, number in component_of.items() if number == component_of[rule.relation]
            }
            made = _Keys(rules, rule, component_relations).rewritten()
            # One that does not fit leaves the cycle, and the error says so of the rules as they were.
            rules = rules if made is None else made
    return rules


class _Keys:
    """An aggregate of a recursion, with the relations of that recursion."""

    def __init__(self, rules: r.Rules, rule: r.AggregateRule, component_relations: set[str]):
        self.rules, self.rule, self.recursive = rules, rule, component_relations
        clauses = [clause for clause in rules.rules if isinstance(clause, r.Clause)]
        self.bodies = [clause for clause in clauses if clause.relation == rule.body]
        self.groups = [clause for clause in clauses if clause.relation == rule.groups]
        self.readers = [clause for clause in clauses if any(self.is_result(literal) for literal in clause.body)]

    def is_result(self, literal: r.Literal) -> bool:
        return isinstance(literal, (r.Atom, r.Negated)) and literal.relation == self.rule.relation

    def is_recursive(self, literal: r.Literal) -> bool:
        return isinstance(literal, (r.Atom, r.Negated)) and literal.relation in self.recursive

    def rewritten(self) -> r.Rules | None:
        """The program that looks up the keys; None if the recursion says more than which groups there are."""
        rule, rules = self.rule, self.rules
        binders = [self.binders(clause) for clause in self.bodies]
        if not self.bodies or any(one is None for one in binders):
            return None
        # Columns that the body does not bind itself, but the recursion; all where there may be groups without rows.
        needed = {c for clause in self.bodies for c in self.unbound(clause)}
        wanted = self.groups_of_keys()
        columns = tuple(sorted(needed)) if rule.groups is None else tuple(range(rule.num_group))
        said: dict[int, list[r.Literal]] = {}
        for reader in self.readers:
            others = [literal for literal in reader.body if not self.is_result(literal)]
            for literal in filter(self.is_result, reader.body):
                if not isinstance(literal, r.Atom) or any(literal.terms[c] is None for c in columns):
                    return None
                group_terms = literal.terms[: rule.num_group]
                follows = [
                    self.follows(clause, atoms, group_terms, others)
                    for clause, atoms in zip(self.bodies, binders)
                    if atoms
                ]
                if not all(follows):
                    return None
                if self.groups and not any(self.follows(*one, group_terms, others) for one in wanted):
                    # The reader takes all groups, so it says which there are.
                    assert rule.groups is not None
                    said.setdefault(id(reader), []).append(r.Atom(rule.groups, group_terms, literal.span))
        if said:
            more = (
                replace(clause, body=(*said[id(clause)], *clause.body))  # type: ignore[call-overload]
                if id(clause) in said
                else clause
                for clause in rules.rules
            )
            rules = replace(rules, rules=tuple(more))
        if not columns:
            return replace(rules, rules=tuple(map(self.apart, rules.rules)))
        name = self.free_name(f"{rule.relation}_keys")
        relation = rules.relations[rule.relation]
        types = tuple(relation.types[c] for c in columns)
        relations = {
            **rules.relations,
            rule.relation: replace(relation, keys=(name, columns)),
            name: r.Relation(name, types, is_input=True, is_emptied=True, is_hidden=True, span=rule.span),
        }
        made = [self.changed(clause, name, columns) for clause in rules.rules]
        return replace(rules, relations=relations, rules=tuple(made))

    def free_name(self, name: str) -> str:
        return name if name not in self.rules.relations else self.free_name(f"{name}_")

    def binders(self, clause: r.Clause) -> list[r.Atom] | None:
        """The atoms of the recursion in a body, which must say of its groups alone; None if they say more."""
        atoms = [literal for literal in clause.body if self.is_recursive(literal)]
        if not all(isinstance(atom, r.Atom) for atom in atoms) or not _are_distinct(self.head(clause)):
            return None
        group = {v.name for v in self.head(clause)}
        rest = [literal for literal in clause.body if not self.is_recursive(literal)]
        elsewhere = {name for node in (*rest, *clause.terms) for name in r.names(node)}
        shared = {name for atom in atoms for name in r.names(atom)} & elsewhere
        return [atom for atom in atoms if isinstance(atom, r.Atom)] if shared <= group else None

    def head(self, clause: r.Clause) -> list[Var]:
        return [term for term in clause.terms[: self.rule.num_group] if isinstance(term, Var)]

    def unbound(self, clause: r.Clause) -> list[int]:
        """The columns of the group that no literal outside of the recursion binds."""
        there: set[str] = set()
        for literal in clause.body:
            if isinstance(literal, r.Atom) and not self.is_recursive(literal):
                there |= r.names(literal)
            elif isinstance(literal, r.Generate) and not literal.negated:
                there |= {term.name for term in literal.outputs if isinstance(term, Var)}
        return [c for c, term in enumerate(self.head(clause)) if term.name not in there]

    def groups_of_keys(self) -> list[tuple[r.Clause, list[r.Atom]]]:
        """The clauses that say which groups there are by atoms of the recursion alone."""
        groups = []
        for clause in self.groups:
            atoms = [literal for literal in clause.body if isinstance(literal, r.Atom) and self.is_recursive(literal)]
            if len(atoms) == len(clause.body) and _are_distinct(self.head(clause)):
                groups.append((clause, atoms))
        return groups

    def follows(
        self,
        clause: r.Clause,
        atoms: Sequence[r.Atom],
        group_terms: Sequence[r.Expr | None],
        others: Iterable[r.Literal],
    ) -> bool:
        """Whether a reader that has the terms `group_terms` for the group says itself what these atoms of a clause
        say."""
        terms = {v.name: term for v, term in zip(self.head(clause), group_terms)}
        uses = [name for atom in atoms for term in atom.terms if isinstance(term, Var) for name in (term.name,)]

        def is_same(term: r.Expr | None, other: r.Expr | None) -> bool:
            if isinstance(term, Var) and term.name in terms:
                return terms[term.name] == other
            # A variable that stands nowhere else says nothing.
            return term is None or (isinstance(term, Var) and uses.count(term.name) == 1) or term == other

        def says(atom: r.Atom) -> bool:
            return any(
                isinstance(literal, r.Atom)
                and literal.relation == atom.relation
                and all(map(is_same, atom.terms, literal.terms))
                for literal in others
            )

        return all(map(says, atoms))

    def apart(self, clause: r.Rule) -> r.Rule:
        """A rule of the program whose body binds all groups without the recursion."""
        if not isinstance(clause, r.Clause) or clause.relation != self.rule.body:
            return clause
        return replace(clause, body=tuple(literal for literal in clause.body if not self.is_recursive(literal)))

    def changed(self, clause: r.Rule, keys: str, columns: tuple[int, ...]) -> r.Rule:
        """A rule of the program with the keys."""
        rule = self.rule
        if clause is rule:
            return rule if rule.groups is None else replace(rule, groups=keys)
        if not isinstance(clause, r.Clause):
            return clause
        if clause.relation == rule.body:
            queried = r.Atom(keys, tuple(self.head(clause)[c] for c in columns), clause.span)
            return replace(clause, body=(queried, *self.apart(clause).body))  # type: ignore[union-attr]
        if not any(map(self.is_result, clause.body)):
            return clause
        return replace(clause, body=tuple(self.looked_up(literal, columns) for literal in clause.body))

    def looked_up(self, literal: r.Literal, columns: tuple[int, ...]) -> r.Literal:
        if not self.is_result(literal):
            return literal
        assert isinstance(literal, r.Atom)
        types = self.rules.relations[literal.relation].types
        inputs = tuple(term for c in columns if (term := literal.terms[c]) is not None)
        others = [c for c in range(len(types)) if c not in columns]
        outputs = tuple(literal.terms[c] for c in others)
        return r.Generate(
            KEYED, inputs, outputs, tuple(types[c] for c in others), False, literal.span, literal.relation
        )


def _are_distinct(terms: Sequence[Var]) -> bool:
    return len({term.name for term in terms}) == len(terms)
