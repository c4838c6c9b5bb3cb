"""The least heights of all rows of some relations, by one more run of their rules.

Each relation has one more column with a lattice, the least height, and each rule computes that of its head from those
of its atoms. What rules here negate, count or find in facts alone is read from the tables of the run before, and has
height 0.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from functools import reduce

import numpy as np

from derivable.core.diagnostics import CompileTimeout, OutOfMemory
from derivable.datalog.facts.columns import certain
from derivable.datalog.facts.store import FactStore
from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram.lower import lower
from derivable.datalog.reasons.model import FACTS, Model
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.strata import stratify
from derivable.datalog.run.execute import Executor
from derivable.datalog.run.foreign_join import ForeignFacts
from derivable.datalog.run.limits import PastBound, Watch
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import Untagged
from derivable.datalog.values.values import TYPES

_HEIGHT = TYPES["i64"]
# What begins the name of a relation with heights.
_WITH_HEIGHT = "heights of "


def heights(model: Model, names: Collection[str], most_derived: int, watch: Watch) -> dict[str, np.ndarray] | None:
    """Derived relation -> the least height [row] int32 of its proofs; None where not all rules can be run so, or derive
    more rows than `most_derived`, repeats included.

    names  the derived relations, with all of those behind them
    """
    if watch.limits.iteration_limit is not None or not all(_is_plain(model, name, names) for name in names):
        return None
    rules = [clause for name in names for clause in _clauses(model, name, names)]
    relations = {_WITH_HEIGHT + name: _relation(model, name) for name in names}
    facts = FactStore(model.symbols, RandomFacts())
    for name in dict.fromkeys(name for clause in rules for name, _ in clause.dependencies):
        if name not in relations:
            whole = name.removeprefix(FACTS)
            relations[name] = r.Relation(name, model.rules.relations[whole].types)
            rows = model.rows(name) if whole == name else model.facts_of(name)[0]
            facts.add(name, rows.columns, certain(rows.size))
    made = r.Rules(relations, (), tuple(rules), tuple(_WITH_HEIGHT + name for name in names))
    executor = Executor(lower(stratify(made)), facts, Untagged(), watch)
    executor.foreign = ForeignFacts(facts.random)
    # A row that gets a lesser height counts once more.
    most = policy().far_off * (sum(model.rows(name).size for name in names) + sum(map(len, facts.relations.values())))
    end = watch.end
    if end is not None:
        # A search without heights has the other half.
        watch.end = (end + time.monotonic()) / 2
    try:
        with watch.apart(most, most_derived):
            tables = executor.run()
    except (PastBound, CompileTimeout, OutOfMemory):
        return None
    finally:
        watch.end, watch.executor, watch.round = end, None, 0
    heights = {}
    for name in names:
        *columns, of = tables[_WITH_HEIGHT + name].all_columns([np.int64] * (model.width(name) + 1))
        at = model.rows(name).numbers_of(columns, len(of))
        if at is None:
            return None
        heights[name] = np.empty(len(of), np.int32)
        heights[name][at] = of
    return heights


def _is_plain(model: Model, name: str, names: Collection[str]) -> bool:
    """Whether a relation has no rules but such as compute rows from those of others, in all worlds alike."""
    if name in model.aggregates or name in model.keys or model.rules.relations[name].lattice is not None:
        return False
    for clause in model.clauses.get(name, ()):
        for literal in clause.body:
            match literal:
                case r.Atom(relation=relation):
                    if relation in model.constructors or relation in model.keys:
                        return False
                case r.Negated():
                    if not model.is_boolean:
                        return False
                case r.Generate(predicate=predicate, relation=relation):
                    if relation is not None or predicate_of(predicate).is_tagged:
                        return False
    return True


def _relation(model: Model, name: str) -> r.Relation:
    types = (*model.rules.relations[name].types, _HEIGHT)
    return r.Relation(_WITH_HEIGHT + name, types, lattice="min")


def _clauses(model: Model, name: str, names: Collection[str]) -> Iterable[r.Clause]:
    """The rules of a relation with a height."""
    step = int(not name.startswith("#"))
    if model.facts_of(name)[0].size:
        terms = tuple(r.Var(f"#{k}", t) for k, t in enumerate(model.rules.relations[name].types))
        yield r.Clause(_WITH_HEIGHT + name, (*terms, _number(0)), (r.Atom(FACTS + name, terms),))
    for clause in model.clauses.get(name, ()):
        body: list[r.Literal] = []
        below: list[r.Expr] = []
        for literal in clause.body:
            if isinstance(literal, r.Atom) and literal.relation in names:
                below.append(height := r.Var(f"#height {len(body)}", _HEIGHT))
                body.append(r.Atom(_WITH_HEIGHT + literal.relation, (*literal.terms, height)))
            elif not isinstance(literal, r.RuleProbability):
                body.append(literal)
        height = reduce(lambda a, b: r.Apply("$max", (a, b), _HEIGHT), below) if below else _number(0)
        if step:
            height = r.Apply("+", (height, _number(step)), _HEIGHT) if below else _number(step)
        yield r.Clause(_WITH_HEIGHT + name, (*clause.terms, height), tuple(body))


def _number(value: int) -> r.Const:
    return r.Const(value, _HEIGHT)
