"""Deletion and rederivation: what a stratum without tags loses when relations lose rows.

First goes whatever has a derivation from a row that goes, then comes back what has another one: each row that went is
looked up in the heads of its rules, whose bodies are read without what went.

    #gone path(x, y) :- #gone path(x, z), edge(z, y)
    #back path(x, y) :- #gone path(x, y), path(x, z), not #gone path(x, z), edge(z, y)
    #back path(x, y) :- #gone path(x, y), #back path(x, z), edge(z, y)

Source: Gupta, Mumick, Subrahmanian, "Maintaining views incrementally", SIGMOD 1993.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from derivable.datalog.facts.columns import FactColumns, certain
from derivable.datalog.facts.store import FactStore
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.lower import recursive_stores, store
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import order
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.limits import PastBound
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.values import BOOL

GONE, BACK, OLD = "#gone ", "#back ", "#old "
# Atoms of the recursion in one rule: there is a rule of what comes back for each set of them.
MOST_OWN = 3
# Nanoseconds on one core: a row that goes and may come back (600 where 74 thousand of a million pairs of a closure go,
# 400 where 160 thousand do), and a row of a stratum that is computed again (17 to 100 in closures).
GONE_ROW, NEW_ROW = 500, 30
# Rows that go in about the time in which a small stratum begins.
FEW = 1 << 10


@dataclass(frozen=True)
class Programs:
    """What goes from a stratum, and what comes back, as programs of one stratum each."""

    going: m.Ram
    back: m.Ram


def programs(ram: m.Ram, number: int, lower: frozenset[str]) -> Programs | None:
    """The programs for a stratum of which `lower` are relations of other strata that lose rows; made once a program.
    None for a stratum with instructions that this does not do."""
    key = "deletion", number, lower
    if key not in ram.plans:
        ram.plans[key] = _programs(ram, number, lower)
    return ram.plans[key]


def _programs(ram: m.Ram, number: int, lower: frozenset[str]) -> Programs | None:
    stratum = ram.strata[number]
    own = set(stratum.relations)
    origins = [one.origin for one in stratum.full if isinstance(one, m.Store)]
    clauses = [origin.clause for origin in origins if origin is not None]
    if len(clauses) < len(stratum.full) or any(len(_places(clause, own)) > MOST_OWN for clause in clauses):
        return None
    relations = dict(ram.relations)
    for prefix, names in ((GONE, own | lower), (BACK, own), (OLD, lower)):
        for name in names:
            relations[prefix + name] = r.Relation(prefix + name, ram.relations[name].types, is_hidden=True)
    made = replace(ram, relations=relations, facts=(), demand=None, tagged=None, distributed=None, plans={})
    program: Any = made
    once, loop = [], []
    for clause in clauses:
        for place in _places(clause, own | lower):
            body = [_named(literal, OLD) if _reads(literal, lower) else literal for literal in clause.body]
            atom = clause.body[place]
            assert isinstance(atom, r.Atom)
            body[place] = _named(atom, GONE)
            going = r.Clause(GONE + clause.relation, clause.terms, tuple(body), clause.span)
            is_own = atom.relation in own
            parts: dict[int, m.Part] = {place: "recent"} if is_own else {}
            (loop if is_own else once).append(store(m.Origin(going, parts), order(going, program, (place,))))
    going = _of_stratum(made, tuple(GONE + name for name in stratum.relations), once, loop)
    once, loop, names = [], [], tuple(BACK + name for name in stratum.relations)
    for clause in clauses:
        for back in _back(clause, own, ram.relations):
            stores = recursive_stores(back, names)
            if stores is None:
                return None
            loop += stores
            if not stores:
                once.append(store(m.Origin(back), order(back, program, (0,))))
    return Programs(going, _of_stratum(made, names, once, loop))


def _of_stratum(made: m.Ram, relations: tuple[str, ...], once: list[m.Store], loop: list[m.Store]) -> m.Ram:
    stratum = m.Stratum(relations, bool(loop), tuple(once), tuple(loop), ())
    return replace(made, strata=(stratum,), outputs=relations, plans={})


def _reads(literal: r.Literal, names: set[str] | frozenset[str]) -> bool:
    return isinstance(literal, r.Atom) and literal.relation in names


def _places(clause: r.Clause, names: set[str]) -> list[int]:
    return [place for place, literal in enumerate(clause.body) if _reads(literal, names)]


def _named(literal: Any, prefix: str) -> Any:
    return replace(literal, relation=prefix + literal.relation)


def _back(clause: r.Clause, own: set[str], relations: Mapping[str, r.Relation]) -> Iterator[r.Clause]:
    """The clauses of what comes back, one for each set of the atoms of the recursion that come back themselves."""
    terms, equations = [], []
    for column, term in enumerate(clause.terms):
        if not isinstance(term, (r.Var, r.Const)):
            variable = r.Var(f"'head{column}", term.type)
            equations.append(r.Filter(r.Apply("==", (variable, term), BOOL)))
            term = variable
        terms.append(term)
    places = _places(clause, own)
    for count in range(len(places) + 1):
        for back in combinations(places, count):
            body: list[r.Literal] = [r.Atom(GONE + clause.relation, tuple(terms))]
            for place, literal in enumerate(clause.body):
                if place in back:
                    body.append(_named(literal, BACK))
                elif place in places:
                    assert isinstance(literal, r.Atom)
                    bound = tuple(
                        r.Var(f"'wild{place}_{column}", type_) if term is None else term
                        for column, (term, type_) in enumerate(zip(literal.terms, relations[literal.relation].types))
                    )
                    body += [replace(literal, terms=bound), r.Negated(GONE + literal.relation, bound)]
                else:
                    body.append(literal)
            yield r.Clause(BACK + clause.relation, tuple(terms), (*body, *equations), clause.span)


@dataclass(frozen=True)
class Lost:
    """What a relation has lost: its table before, and the rows that are no longer there."""

    before: Table
    gone: Table


def deleted(
    executor: Executor, number: int, lost: Mapping[str, Lost], facts: FactStore, left: Mapping[str, FactColumns]
) -> dict[str, Lost] | None:
    """What the relations of a stratum lose, whose tables are the executor's; None if it is better recomputed.

    lost   relation of another stratum -> what it has lost
    facts  those that go; left: the facts that stay
    """
    made = programs(executor.ram, number, frozenset(lost))
    if made is None:
        return None
    own = executor.ram.strata[number].relations
    tables = dict(executor.tables)
    for name, one in lost.items():
        tables[GONE + name], tables[OLD + name] = one.gone, one.before
    seeds = {GONE + name: facts.relations[name] for name in own if name in facts.relations}
    most = FEW + sum(tables[name].size for name in own) * NEW_ROW / GONE_ROW
    try:
        going = _run(executor, made.going, tables, seeds, most)
    except PastBound:
        return None
    # What went as a fact is none any more; what rules derive may be.
    seeds = {}
    for name in own if executor.ram.strata[number].full else ():
        for part in left.get(name, FactColumns()).parts:
            rows, _ = part.among(going[GONE + name])
            if len(rows):
                columns = [column[rows] for column in part.stored[0]]
                seeds.setdefault(BACK + name, FactColumns()).append(columns, certain(len(rows)))
    back = _run(executor, made.back, {**tables, **going}, seeds)
    return {name: Lost(tables[name], _minus(going[GONE + name], back[BACK + name])) for name in own}


def _run(
    executor: Executor,
    ram: m.Ram,
    tables: dict[str, Table],
    facts: dict[str, FactColumns],
    most: float = math.inf,
) -> dict[str, Table]:
    """The relations of a program of one stratum over these tables; raises PastBound for more rows than `most`."""
    (stratum,), given = ram.strata, executor.facts
    made = {name: Table(name, ram.relations[name].types) for name in stratum.relations}
    for table in made.values():
        # Sets by prefix are for many rows: these have few of each.
        table.leave_sets()
    store, watch = FactStore(given.symbols, given.random, facts), executor.watch
    running = Executor(ram, store, executor.algebra, watch, {**tables, **made})
    running.complete |= tables.keys()
    running.foreign, running.coins = executor.foreign, executor.coins
    try:
        watch.executor = running
        with watch.apart(most), running.placed():
            # What spares work in a recursion over whole relations does not pay here.
            running.plain_stratum(0, running.instructions(0, "once"))
        for table in made.values():
            table.visible_size = table.size
    finally:
        watch.executor = executor
    return made


def _minus(table: Table, other: Table) -> Table:
    """The rows of one table that are not in another."""
    if not other.size or not table.size:
        return table
    return table.without(table.rows_in(other))
