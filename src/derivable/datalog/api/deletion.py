"""Deletion and rederivation: what a stratum loses when relations lose rows, or their tags get worse.

First goes whatever has a derivation from a row that goes, then comes back what has another one: the rules are read
without what went, for the rows that went, and the recursion goes on from there.

    #gone path(x, y) :- #gone path(x, z), edge(z, y)
    path(x, y) :- #gone path(x, y), path(x, z), edge(z, y)

Rows that a negated relation gets take away too: `#new q(x)` stands for `not q(x)` in a rule of what goes.

Tags say nothing of what goes, so those of what comes back are right where equal derivations add nothing to a sum.
Source: Gupta, Mumick, Subrahmanian, "Maintaining views incrementally", SIGMOD 1993.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from derivable.datalog.facts.columns import FactColumns, FactPart
from derivable.datalog.facts.store import FactStore
from derivable.datalog.policy.costs import policy, under
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.lower import store
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.literal_order import order
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.limits import PastBound
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.tags import Untagged
from derivable.datalog.values.values import BOOL

GONE, OLD, NEW = "#gone ", "#old ", "#new "


@dataclass(frozen=True)
class Rules:
    """What goes from a stratum, as a program of one stratum, and the rules of what comes back."""

    going: m.Ram
    back: tuple[m.Store, ...]


def rules_of(ram: m.Ram, number: int, lower: frozenset[str], negated: frozenset[str], is_tagged: bool) -> Rules | None:
    """The rules for a stratum, made once a program; None if it has instructions that this does not do.

    lower    the relations of other strata that lose rows; negated: those that get rows, and are negated here
    """
    key = "deletion", number, lower, negated, is_tagged
    if key not in ram.plans:
        ram.plans[key] = _rules_of(ram, number, lower, negated, is_tagged)
    return ram.plans[key]


def _rules_of(ram: m.Ram, number: int, lower: frozenset[str], negated: frozenset[str], is_tagged: bool) -> Rules | None:
    stratum = ram.strata[number]
    stratum_relations = set(stratum.relations)
    origins = [one.origin for one in stratum.full if isinstance(one, m.Store)]
    clauses = [origin.clause for origin in origins if origin is not None]
    if len(clauses) < len(stratum.full):
        return None
    made = with_relations(ram, {GONE: stratum_relations | lower, OLD: lower, NEW: negated})
    program: Any = made
    once, loop, back = [], [], []
    for clause in clauses:
        head, equations = _head(clause)
        for index in _read_positions(clause, stratum_relations | lower, negated):
            read = clause.body[index]
            assert isinstance(read, r.Atom | r.Negated)
            body = [_named(literal, OLD) if _reads(literal, lower) else literal for literal in clause.body]
            start = _named(read, GONE) if isinstance(read, r.Atom) else r.Atom(NEW + read.relation, read.terms)
            body[index] = start
            # What was so before may not be any more. Tags become less by what is left out, which may be nothing.
            body = [one for one in body if not _may_have_changed(one, negated, is_tagged)]
            going = r.Clause(GONE + clause.relation, clause.terms, tuple(body), clause.span)
            is_of_stratum = read.relation in stratum_relations
            index = body.index(start)
            parts: dict[int, m.Part] = {index: "recent"} if is_of_stratum else {}
            (loop if is_of_stratum else once).append(store(m.Origin(going, parts), order(going, program, (index,))))
        body = [r.Atom(GONE + clause.relation, head), *clause.body, *equations]
        coming = r.Clause(clause.relation, head, tuple(body), clause.span)
        back.append(store(m.Origin(coming), order(coming, program, (0,))))
    names = tuple(GONE + name for name in stratum.relations)
    going = m.Stratum(names, bool(loop), tuple(once), tuple(loop), ())
    return Rules(replace(made, strata=(going,), outputs=names, plans={}), tuple(back))


def with_relations(ram: m.Ram, names: Mapping[str, Collection[str]]) -> m.Ram:
    """The program with another relation for each of some: prefix -> their names."""
    relations = dict(ram.relations)
    for prefix, some in names.items():
        for name in some:
            relations[prefix + name] = r.Relation(prefix + name, ram.relations[name].types, is_hidden=True)
    return replace(ram, relations=relations, facts=(), demand=None, tagged=None, distributed=None, plans={})


def _head(clause: r.Clause) -> tuple[tuple[r.Var | r.Const, ...], list[r.Filter]]:
    """The terms of the head as those of an atom, and what is to hold of them."""
    terms, equations = [], []
    for column, term in enumerate(clause.terms):
        if not isinstance(term, (r.Var, r.Const)):
            variable = r.Var(f"'head{column}", term.type)
            equations.append(r.Filter(r.Apply("==", (variable, term), BOOL)))
            term = variable
        terms.append(term)
    return tuple(terms), equations


def _may_have_changed(literal: r.Literal, negated: frozenset[str], is_tagged: bool) -> bool:
    if isinstance(literal, r.Negated):
        return is_tagged or literal.relation in negated
    return is_tagged and isinstance(literal, r.RuleProbability)


def _reads(literal: r.Literal, names: set[str] | frozenset[str]) -> bool:
    return isinstance(literal, r.Atom) and literal.relation in names


def _read_positions(clause: r.Clause, names: set[str], negated: frozenset[str]) -> list[int]:
    return [
        index
        for index, literal in enumerate(clause.body)
        if _reads(literal, names) or (isinstance(literal, r.Negated) and literal.relation in negated)
    ]


def _named(literal: Any, prefix: str) -> Any:
    return replace(literal, relation=prefix + literal.relation)


@dataclass(frozen=True)
class Lost:
    """What a relation has lost: its table before, and the rows that are no longer there."""

    before: Table
    gone: Table


@dataclass(frozen=True)
class Going:
    """What goes from a stratum: relation -> rows, which the rules of what comes back read as `#gone` relations, and the
    facts among them that stay."""

    gone: dict[str, Table]
    facts: dict[str, FactColumns]
    back: tuple[m.Store, ...]


def going(
    executor: Executor,
    number: int,
    lost: Mapping[str, Lost],
    new: Mapping[str, Table],
    facts: FactStore,
    left: Mapping[str, FactColumns],
    has_news: bool,
) -> Going | None:
    """What goes from the relations of a stratum, whose tables are the executor's; None if it is better recomputed.

    Some of it may come back.

    lost   relation of another stratum -> what it has lost
    new    relation that is negated -> the rows that it has got
    facts  those that go, or whose tags do; left: the facts that stay
    has_news  whether there is more to derive than before, so that rows may be said to go that have not been there
    """
    is_tagged = not isinstance(executor.algebra, Untagged)
    rules = rules_of(executor.ram, number, frozenset(lost), frozenset(new), is_tagged)
    if rules is None:
        return None
    stratum = executor.ram.strata[number]
    tables = dict(executor.tables)
    for name, one in lost.items():
        tables[GONE + name], tables[OLD + name] = one.gone, one.before
    tables |= {NEW + name: table for name, table in new.items()}
    seeds = {GONE + name: facts.relations[name] for name in stratum.relations if name in facts.relations}
    most = policy().few + policy().recomputed_part * sum(tables[name].size for name in stratum.relations)
    try:
        made = _run(executor, rules.going, tables, seeds, most) if stratum.full else _facts(executor, stratum, seeds)
    except PastBound:
        return None
    if sum(map(len, made.values())) > most:
        return None
    gone = {name: made[GONE + name] for name in stratum.relations if any(table.size for table in made.values())}
    if has_news:
        gone = {name: _in(tables[name], table) for name, table in gone.items()}
    # Without tags only what rules derive may be a fact still.
    has_facts = is_tagged or stratum.full
    return Going(gone, {name: _of(gone[name], left[name]) for name in gone if has_facts and name in left}, rules.back)


def _in(table: Table, rows: Table) -> Table:
    """Those of some rows that a table has."""
    columns = rows.all_columns([np.int64] * len(rows.types))
    return rows.without(np.flatnonzero(table.find(columns, rows.size) < 0))


def _of(gone: Table, left: FactColumns) -> FactColumns:
    """The facts of these rows."""
    parts_of = []
    for part in left.parts:
        rows, _ = part.among(gone)
        columns, variables, _ = part.stored
        parts_of.append(FactPart([column[rows] for column in columns], variables[rows]))
    return FactColumns.of(parts_of)


def _facts(executor: Executor, stratum: m.Stratum, seeds: Mapping[str, FactColumns]) -> dict[str, Table]:
    """The `#gone` relations of a stratum without rules."""
    made = {}
    for name in stratum.relations:
        table = made[GONE + name] = _few_rows(GONE + name, executor.ram.relations[name].types)
        if GONE + name in seeds:
            columns, variables = seeds[GONE + name].joined(len(table.types))
            table.insert(columns, len(variables))
            table.visible_size = table.size
    return made


def _few_rows(name: str, types: Sequence[Any]) -> Table:
    """An empty table for few rows: sets by prefix are for many, and these have few of each."""
    made = Table(name, types)
    made.row_set.use_hash(made)
    return made


def _run(
    executor: Executor,
    ram: m.Ram,
    tables: dict[str, Table],
    facts: dict[str, FactColumns],
    most: float,
) -> dict[str, Table]:
    """The relations of a program of one stratum over these tables; raises PastBound for more rows than `most`."""
    (stratum,), all_facts = ram.strata, executor.facts
    made = {name: _few_rows(name, ram.relations[name].types) for name in stratum.relations}
    few, watch = FactStore(all_facts.symbols, all_facts.random, facts), executor.watch
    running = Executor(ram, few, Untagged(), watch, {**tables, **made})
    running.complete |= tables.keys()
    running.foreign, running.coins = executor.foreign, executor.coins
    try:
        watch.executor = running
        # Kernels have indexes of whole tables made, which few rows do without.
        few_rows = max(policy().few_rows, max(map(len, tables.values())) // policy().rows_a_pass)
        with watch.apart(most), running.placed(), under(few_rows=few_rows):
            # What spares work in a recursion over whole relations does not pay here.
            running.plain_stratum(0, running.instructions(0, "once"))
        for table in made.values():
            table.visible_size = table.size
    finally:
        watch.executor = executor
    return made
