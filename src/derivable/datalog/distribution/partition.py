"""The rules that each partition runs for one output, and what facts it needs for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from derivable.datalog.distribution.pivot import Pivots, Version
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import cycles
from derivable.datalog.rules.transitive_rules import transitive
from derivable.datalog.scalars.nodes import Var

# The facts of a relation that has rules too, and what a transitive relation was before its recursion.
FACTS, BASE = "@facts", "@base"


@dataclass(frozen=True)
class Partition:
    """A partition's program for one output.

    target      what has its rows in the rules of a partition
    is_scattered  whether rows may follow in several partitions, each derivation in one: they are merged
    rules       these rules
    whole       the inputs of which each partition has all facts
    split       relation -> the input whose facts it has by a column, each partition those of its values
    owners      relation -> the input of whose column it has the values that a partition owns
    pivots      recursive relation -> its column
    repeated    the relations with rules that each partition computes as a whole
    reason      why there is one partition alone, which has all facts; empty if there are several
    """

    target: Version
    is_scattered: bool
    rules: r.Rules
    whole: tuple[str, ...]
    split: Mapping[str, Version]
    owners: Mapping[str, Version]
    pivots: Mapping[str, int]
    repeated: tuple[str, ...]
    reason: str = ""


def prepared(rules: r.Rules, inputs: Collection[str], is_linear: bool) -> r.Rules:
    """The rules in a form whose relations have either rules or facts.

    inputs     the relations whose facts come from outside
    is_linear  whether sums of products do not depend on how products are nested, and nothing is added twice: then a
               transitive rule is run as a linear one, which has a pivot
    """
    heads = {rule.relation for rule in rules.rules}
    both = heads.intersection({*inputs, *(facts.relation for facts in rules.facts)})
    rules = _with_sources(rules, both, FACTS)
    facts = tuple(replace(f, relation=f.relation + FACTS) if f.relation in both else f for f in rules.facts)
    rules = replace(rules, facts=facts)
    return _linear(rules) if is_linear else rules


def _with_sources(rules: r.Rules, names: Iterable[str], ending: str) -> r.Rules:
    """The program in which some relations have a rule more, `path(x, y) :- path@facts(x, y)`."""
    relations, clauses = dict(rules.relations), list(rules.rules)
    for name in sorted(names):
        relation = rules.relations[name]
        source = replace(relation, name=name + ending, lattice=None, keys=None, is_hidden=True, demand=None)
        relations[source.name] = source
        terms = tuple(Var(f"x{c}", t) for c, t in enumerate(relation.types))
        clauses.append(r.Clause(name, terms, (r.Atom(source.name, terms),), relation.span))
    return replace(rules, relations=relations, rules=tuple(clauses))


def _linear(rules: r.Rules) -> r.Rules:
    """The program whose transitive recursions, `p(x, z) :- p(x, y), p(y, z)`, read what was there before them."""
    component = cycles(rules.relations, rules.rules).component_of
    rule_of: dict[str, r.Clause] = {}
    recursive: dict[str, int] = {}
    for rule in rules.rules:
        read = [x.relation for x in rule.body if isinstance(x, r.Atom)] if isinstance(rule, r.Clause) else []
        if any(component[name] == component[rule.relation] for name in read):
            recursive[rule.relation] = recursive.get(rule.relation, 0) + 1
            if isinstance(rule, r.Clause) and transitive(rule) is not None:
                rule_of[rule.relation] = rule
    names = [
        name
        for name in rule_of
        if recursive[name] == 1
        and rules.relations[name].lattice is None
        and sum(component[other] == component[name] for other in component) == 1
    ]
    made = _with_sources(rules, names, BASE)
    clauses: list[r.Rule] = []
    for rule in made.rules[: len(rules.rules)]:
        if rule.relation not in names:
            clauses.append(rule)
        elif rule is rule_of[rule.relation]:
            first, second = rule_of[rule.relation].body
            assert isinstance(second, r.Atom)
            clauses.append(replace(rule, body=(first, replace(second, relation=rule.relation + BASE))))
        else:
            clauses.append(replace(rule, relation=rule.relation + BASE))
    return replace(made, rules=(*clauses, *made.rules[len(rules.rules) :]))


def partition(rules: r.Rules, pivots: Pivots, output: str, frames: Mapping[str, int | None]) -> Partition | str:
    """What each partition runs for an output, with as little as possible that all of them need; else why there is no
    such thing.

    rules   as `prepared` makes them, whose pivots these are
    frames  the inputs that the engine has, by which it may partition them, with their bytes, None for unknown ones; of
            others each partition has all facts
    """
    candidates: list[tuple[tuple, dict[Version, _Read], bool]] = []
    for column in range(len(rules.relations[output].types)):
        if not isinstance(pivots.by(output, column), str):
            reads = _needed(pivots, Version(output, column))
            candidates.append((_cost(pivots, reads, frames), reads, False))
    if not candidates:
        scattered = pivots.scattered(output)
        if isinstance(scattered, str):
            return pivots.obstacle(output) if pivots.is_recursive(output) or not pivots.rules_of(output) else scattered
        start: _Read = list(scattered.items())
        candidates.append(((), _needed(pivots, Version(output), start), True))
    _, reads, is_scattered = min(candidates, key=lambda one: one[0])
    return _partition(rules, pivots, reads, is_scattered, frames)


def alone(rules: r.Rules, pivots: Pivots, output: str, reason: str) -> Partition:
    """One partition for an output, which has all facts."""
    whole = _partition(rules, pivots, _needed(pivots, Version(output)), False, {})
    return replace(whole, repeated=(), reason=reason)


# The numbers of the rules of a version, and what each of them reads.
_Read = list[tuple[int, tuple[Version, ...]]]


def _needed(pivots: Pivots, start: Version, scattered: _Read | None = None) -> dict[Version, _Read]:
    """The versions that one needs, it first, with their rules."""
    needed: dict[Version, _Read] = {}
    waiting = [start]
    while waiting:
        version = waiting.pop()
        if version in needed:
            continue
        if version is start and scattered is not None:
            needed[version] = scattered
        elif version.column is None:
            numbers = pivots.rules_of(version.relation)
            needed[version] = [(n, tuple(Version(name) for name, _ in pivots.read(n))) for n in numbers]
            keyed = [rule for n in numbers for rule in [pivots.rules.rules[n]] if isinstance(rule, r.Clause)]
            waiting += [
                Version(x.relation) for rule in keyed for x in rule.body if isinstance(x, r.Generate) and x.relation
            ]
        else:
            by = pivots.by(version.relation, version.column)
            assert not isinstance(by, str)
            needed[version] = [(n, by.reads[n]) for n in pivots.rules_of(version.relation)]
        waiting += [read for _, reads in needed[version] for read in reads]
    return needed


def _cost(pivots: Pivots, reads: Mapping[Version, _Read], frames: Mapping[str, int | None]) -> tuple:
    """Recursions and other relations that are computed in each partition, and the bytes and inputs that all need."""
    whole = [version.relation for version in reads if version.column is None]
    derived = [name for name in whole if pivots.rules_of(name)]
    inputs = [name for name in whole if name in frames]
    return (
        sum(map(pivots.is_recursive, derived)),
        len(derived),
        sum(frames[name] or 0 for name in inputs),
        len(inputs),
    )


def _partition(
    rules: r.Rules,
    pivots: Pivots,
    reads: Mapping[Version, _Read],
    is_scattered: bool,
    frames: Mapping[str, int | None],
) -> Partition:
    start = next(iter(reads))
    relations: dict[str, r.Relation] = {}
    clauses: list[r.Rule] = []
    whole: list[str] = []
    split: dict[str, Version] = {}
    owners: dict[str, Version] = {}
    versions: dict[str, list[Version]] = {}
    for version in reads:
        versions.setdefault(version.relation, []).append(version)
        relations[version.name] = _plain(rules.relations[version.relation], version.name)
        clauses += [_renamed(rules.rules[number], version, named) for number, named in reads[version]]
    for name, of in versions.items():
        if pivots.rules_of(name):
            continue
        if name in frames and len(of) == 1:
            # An engine has no facts by two columns that are the same random facts.
            if of[0].column is None:
                whole.append(name)
            else:
                split[of[0].name] = of[0]
            continue
        whole.append(name)
        relations[name] = _plain(rules.relations[name], name)
        for version in of:
            if version.column is not None:
                # Names that begin so are no facts of proofs.
                keys = f"#{version.name}@keys"
                owners[keys] = version
                clauses.append(_owned(relations[version.name], version, keys))
                relations[keys] = _keys(relations[version.name], version, keys)
    facts = tuple(f for f in rules.facts if f.relation in whole)
    made = replace(rules, relations=relations, rules=tuple(clauses), facts=facts, outputs=(start.name,), queries=())
    repeated = [version.relation for version in reads if version.column is None and version != start]
    return Partition(
        start,
        is_scattered,
        made,
        tuple(whole),
        split,
        owners,
        {v.relation: v.column for v in reads if v.column is not None and pivots.is_recursive(v.relation)},
        tuple(name for name in repeated if pivots.rules_of(name)),
    )


def _plain(relation: r.Relation, name: str) -> r.Relation:
    """A relation of a partition, whose facts have its name, and which has no demand."""
    return replace(relation, name=name, is_input=False, is_goal=False, demand=None, attributes=())


def _keys(relation: r.Relation, version: Version, name: str) -> r.Relation:
    assert version.column is not None
    t = relation.types[version.column]
    return r.Relation(name, (t,), is_hidden=True, span=relation.span, is_certain=True)


def _owned(relation: r.Relation, version: Version, keys: str) -> r.Clause:
    """`edge@0(x0, x1) :- edge(x0, x1), #edge@0@keys(x0)`"""
    assert version.column is not None
    terms = tuple(Var(f"x{c}", t) for c, t in enumerate(relation.types))
    body = r.Atom(version.relation, terms), r.Atom(keys, (terms[version.column],))
    return r.Clause(version.name, terms, body, relation.span)


def _renamed(rule: r.Rule, head: Version, reads: tuple[Version, ...]) -> r.Rule:
    """A rule of a version, which reads these."""
    if isinstance(rule, r.AggregateRule):
        body, *groups = (version.name for version in reads)
        return replace(rule, relation=head.name, body=body, groups=groups[0] if groups else None)
    names = iter(reads)
    body = tuple(replace(x, relation=next(names).name) if isinstance(x, (r.Atom, r.Negated)) else x for x in rule.body)
    return replace(rule, relation=head.name, body=body)
