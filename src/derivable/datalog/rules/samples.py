"""A batch as one program: the sample is the first column of every relation that depends on facts of samples.

    path(x, y) :- edge(x, y)
    path(x, z) :- path(x, y), edge(y, z), not closed(z)
becomes, where `edge` differs from sample to sample and `closed` does not,
    path('sample, x, y) :- edge('sample, x, y)
    path('sample, x, z) :- path('sample, x, y), edge('sample, y, z), not closed(z)

The relation `#samples` has the numbers of the samples. A body that binds none, since it reads such relations in
negations alone, or relations of which others depend on the sample, reads it too, and so do the groups of aggregates,
which may be without rows in some of the samples.
Source: Biberstein et al. 2026, section 4.3. Deviation: relations that do not depend on the sample have no such column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.projection import PART
from derivable.datalog.rules.strata import dependents
from derivable.datalog.rules.transitive_rules import BASE
from derivable.datalog.values.values import U32

SAMPLES = "#samples"
_SAMPLE = r.Var("'sample", U32)


def is_counted(name: str) -> bool:
    """Whether tuples of a relation are counted: those of projections, bases and samples are none of the program's."""
    return not (name.startswith((PART, BASE)) or name.endswith(SAMPLES))


@dataclass(frozen=True)
class Sampled:
    """The rules of a batch, and the relations whose first column is the sample."""

    rules: r.Rules
    relations: frozenset[str]


def with_samples(program: r.Rules, varying: Iterable[str]) -> Sampled:
    """The program over a batch of samples, of which the `varying` relations have facts for each sample. It is the last
    pass over core rules."""
    varying_relations = frozenset(dependents(program, [name for name in varying if name in program.relations]))
    relations = {name: _widened(rel) if name in varying_relations else rel for name, rel in program.relations.items()}
    relations[SAMPLES] = r.Relation(SAMPLES, (U32,), is_hidden=True, is_certain=True)
    made = _Made(relations, varying_relations, [])
    rules = [made.clause(rule) if isinstance(rule, r.Clause) else made.aggregate(rule) for rule in program.rules]
    return Sampled(
        replace(program, relations=made.relations, rules=(*rules, *made.copies), facts=(), queries=()),
        varying_relations,
    )


def _widened(relation: r.Relation) -> r.Relation:
    names = relation.column_names and (None, *relation.column_names)
    return replace(relation, types=(U32, *relation.types), column_names=names, is_goal=False)


@dataclass
class _Made:
    """relations  those of the batch; copies  clauses that give static relations the sample"""

    relations: dict[str, r.Relation]
    dependent: frozenset[str]
    copies: list[r.Clause]

    def clause(self, rule: r.Clause) -> r.Clause:
        if rule.relation not in self.dependent:
            return rule
        atoms = (r.Atom, r.Negated)
        depends = any(isinstance(literal, atoms) and literal.relation in self.dependent for literal in rule.body)
        binds = any(isinstance(literal, r.Atom) and literal.relation in self.dependent for literal in rule.body)
        body: list[r.Literal] = []
        for literal in rule.body:
            if isinstance(literal, atoms) and literal.relation in self.dependent:
                literal = replace(literal, terms=(_SAMPLE, *literal.terms))
            elif isinstance(literal, r.RuleProbability) and depends:
                # Heads of one instance share its coin, and then all of them depend on the sample.
                literal = replace(literal, key=(_SAMPLE, *literal.key))
            body.append(literal)
        if not binds:
            body.insert(0, r.Atom(SAMPLES, (_SAMPLE,), rule.span))
        return replace(rule, terms=(_SAMPLE, *rule.terms), body=tuple(body))

    def aggregate(self, rule: r.AggregateRule) -> r.AggregateRule:
        if rule.relation not in self.dependent:
            return rule
        groups = rule.groups
        if groups is not None:
            groups = self.of_samples(groups)
        elif not rule.num_group:
            # Without a group column there is one group, a sample's, even if the body is empty.
            groups = SAMPLES
        return replace(
            rule, body=self.of_samples(rule.body), num_group=rule.num_group + 1, groups=groups, is_batched=True
        )

    def of_samples(self, name: str) -> str:
        """The relation with the sample as its first column; a copy of one that is the same for all samples."""
        if name in self.dependent:
            return name
        copy = f"{name}#samples" if name.startswith("#") else f"#{name}#samples"
        if copy not in self.relations:
            relation = self.relations[copy] = replace(_widened(self.relations[name]), name=copy, is_hidden=True)
            terms = tuple(r.Var(f"x{c}", t, relation.span) for c, t in enumerate(relation.types[1:]))
            body = r.Atom(SAMPLES, (_SAMPLE,), relation.span), r.Atom(name, terms, relation.span)
            self.copies.append(r.Clause(copy, (_SAMPLE, *terms), body, relation.span))
        return copy
