"""The demand of a run: what its relations are asked for, found before them.

The demand relations are certain. Where facts have probabilities, the demand is what is asked in some world: it is found
with three truth values, absent, possible and certain, which are the Gödel semiring on 0, 1/2 and 1. So a negation of
what is only possible keeps nothing out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from derivable.algebra.semirings import godel
from derivable.datalog.facts import FactStore, add_terms
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.limits import Watch
from derivable.datalog.ram.nodes import Generate, Instruction, Query, Ram, Store, steps
from derivable.datalog.random_facts import RandomFacts
from derivable.datalog.rules.nodes import BernoulliRule
from derivable.datalog.storage import Table
from derivable.datalog.tags import Algebra, SemiringTags, Untagged

POSSIBLE = 0.5


def demanded(
    ram: Ram, facts: FactStore, watch: Watch | None = None, known: Mapping[str, Table] | None = None
) -> FactStore:
    """The facts of the demand relations of a RAM program, without those that are in the tables `known`."""
    from derivable.datalog.execute import Executor

    found = FactStore(facts.symbols, facts.random)
    first = ram.demand
    if first is None:
        return found
    chances = np.asarray(facts.random.probabilities, np.float64)
    # A value may be 0 and yet not be the zero of its semiring.
    is_possible = (chances > 0.0) | facts.random.is_valued(np.arange(len(chances)))
    random = RandomFacts(np.where(is_possible, POSSIBLE, 0.0).tolist(), list(facts.random.groups), facts.random.seed)
    is_certain = not len(chances) and not any(map(_is_random, _nodes(first)))
    algebra: Algebra = Untagged() if is_certain else SemiringTags(godel, random)
    tables = Executor(first, replace(facts, random=random), algebra, watch).run()
    for name in first.outputs:
        table = tables[name]
        columns, count = [table.column(c).copy() for c in range(len(table.types))], table.size
        if known is not None:
            new = np.flatnonzero(known[name].find(columns, count) < 0)
            columns, count = [column[new] for column in columns], len(new)
        found.add(name, columns, np.full(count, -1, np.int64))
    add_terms(ram, found)
    return found


def _is_random(node: Instruction | Query) -> bool:
    if isinstance(node, Generate):
        return PREDICATES[node.predicate].is_tagged
    return isinstance(node, BernoulliRule)


def _nodes(ram: Ram) -> Iterator[Instruction | Query]:
    """The instructions of a program and the operators of their queries."""
    for instruction in (i for stratum in ram.strata for i in stratum.full):
        yield instruction
        if isinstance(instruction, Store):
            yield from steps(instruction.query)
