"""Rules that read the columns which they need, where whole rows would repeat a join: recursive ones, others with tags.

    r(n, m) :- r(n, _), r(m, _), (m < n)
becomes
    #part_r_0(n) :- r(n, _)
    r(n, m) :- #part_r_0(n), #part_r_0(m), (m < n)

The join would be made for each pair of whole rows, and for each that is new again. Relations that are complete are
projected where nothing connects them with the other atoms: what is connected is looked up row by row, and the planner
projects away what repeats (`ram.project`).

A tag of a projection is the sum of those of its rows. So the rules say the same for tags whose product distributes over
their sum, and it takes more rounds until they have said it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import cycles

PART = "#part_"


def projected(program: r.Rules, is_tagged: bool = False) -> r.Rules:
    """The program with relations for its projections; itself if no rule has need of them.

    is_tagged  whether it is for runs with tags, of which the planner projects nothing away: then other rules have
               projections too, of what nothing connects with their other atoms
    """
    if not any(isinstance(rule, r.Clause) and _reads_part(rule) for rule in program.rules):
        return program
    component = cycles(program.relations, program.rules).component_of
    made: dict[str, r.Clause] = {}
    rules = tuple(
        _projected(rule, program.relations, component, made, is_tagged) if isinstance(rule, r.Clause) else rule
        for rule in program.rules
    )
    if not made:
        return program
    relations = dict(program.relations)
    for name, clause in made.items():
        types = tuple(term.type for term in clause.terms)
        relations[name] = r.Relation(name, types, is_hidden=True, span=clause.span)
    return replace(program, relations=relations, rules=(*rules, *made.values()))


def _sources(clause: r.Clause) -> list[r.Atom | r.Generate]:
    """What binds variables in a body, each row of one with each of another."""
    return [one for one in clause.body if isinstance(one, r.Atom) or (isinstance(one, r.Generate) and not one.negated)]


def _reads_part(clause: r.Clause) -> bool:
    """Whether a clause joins and has columns that it does not read."""
    sources = _sources(clause)
    has_wildcards = any(None in one.terms for one in sources if isinstance(one, r.Atom))
    return len(sources) > 1 and (has_wildcards or 1 in clause.uses.values())


def _projected(
    clause: r.Clause,
    relations: Mapping[str, r.Relation],
    component: Mapping[str, int],
    made: dict[str, r.Clause],
    is_tagged: bool,
) -> r.Clause:
    """The clause with projections for atoms, whose rules are added to those made."""
    number_of_component = component[clause.relation]
    sources, uses = _sources(clause), clause.uses
    recursive = [one for one in sources if isinstance(one, r.Atom) and component[one.relation] == number_of_component]
    if not _reads_part(clause) or not (recursive or is_tagged):
        return clause
    sources_of = Counter(name for one in sources for name in r.names(one))
    body = list(clause.body)
    for index, literal in enumerate(body):
        if not isinstance(literal, r.Atom):
            continue
        relation = relations[literal.relation]
        if relation.lattice is not None or relation.keys is not None or relation.demand is not None:
            continue
        if relation.is_certain:
            # A term has one row, whatever is read of it.
            continue
        needed = [
            column
            for column, term in enumerate(literal.terms)
            if isinstance(term, r.Const) or (isinstance(term, r.Var) and uses[term.name] > 1)
        ]
        is_apart = not any(isinstance(term, r.Const) for term in literal.terms) and all(
            sources_of[name] == 1 for name in r.names(literal)
        )
        if len(needed) < len(literal.terms) and (literal in recursive or is_apart):
            body[index] = _part(literal, needed, relation, made)
    return clause if body == list(clause.body) else replace(clause, body=tuple(body))


def _part(atom: r.Atom, columns: list[int], relation: r.Relation, made: dict[str, r.Clause]) -> r.Atom:
    """The atom over these columns of its relation alone."""
    name = f"{PART}{relation.name.removeprefix('#')}_{'_'.join(map(str, columns))}"
    if name not in made:
        terms = tuple(r.Var(f"{name}'{column}", relation.types[column]) for column in columns)
        by_column = dict(zip(columns, terms))
        whole = tuple(by_column.get(column) for column in range(len(relation.types)))
        made[name] = r.Clause(name, terms, (r.Atom(relation.name, whole, atom.span),), atom.span)
    return r.Atom(name, tuple(atom.terms[column] for column in columns), atom.span)
