"""The demand of a run: the keys for which its relations are queried, computed first.

The demand relations are certain. Where facts have probabilities, the demand is what is queried in some world: it is
computed with three truth values, absent, possible and certain, which are the Gödel semiring on 0, 1/2 and 1. So a
negation of what is only possible keeps nothing out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from derivable.algebra.semirings import godel
from derivable.datalog.facts.store import FactStore, add_terms
from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.ram.nodes import Generate, Instruction, Operator, Ram, RuleProbability, Store
from derivable.datalog.run.limits import Watch
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.carrier import Carrier
from derivable.datalog.tags.random_facts import TAG, VALUE, Kind, RandomFacts
from derivable.datalog.tags.tags import Algebra, SemiringTags, Untagged

POSSIBLE = 0.5


class _Possible(SemiringTags):
    """What may be there has the tag POSSIBLE, of whatever carrier the number of a rule is."""

    def anonymous(self, numbers: np.ndarray, kind: Kind) -> np.ndarray:
        is_possible = numbers > 0.0
        if kind != "chance":
            is_possible |= _is_there(numbers, self.facts.carrier)
        return np.where(is_possible, POSSIBLE, 0.0)


def _is_there(tags: np.ndarray, carrier: Carrier | None) -> np.ndarray:
    """[tag] bool: whether it may be another value than zero; a tag may be 0 and yet not be the zero of its semiring."""
    return (tags != 0.0) | (carrier is None or not carrier.drops_zero)


def demanded(
    ram: Ram, facts: FactStore, watch: Watch | None = None, known: Mapping[str, Table] | None = None
) -> FactStore:
    """The facts of the demand relations of a RAM program, without those that are in the tables `known`."""
    from derivable.datalog.run.execute import Executor
    from derivable.datalog.run.small_runs import run_whole

    demand = FactStore(facts.symbols, facts.random)
    first = ram.demand
    if first is None:
        return demand
    chances, kinds = np.asarray(facts.random.probabilities, np.float64), facts.random.kinds_of(slice(None))
    carrier = facts.random.carrier
    is_possible = (chances > 0.0) | (kinds == VALUE) | ((kinds == TAG) & _is_there(chances, carrier))
    numbers, groups = np.where(is_possible, POSSIBLE, 0.0).tolist(), list(facts.random.groups)
    random = RandomFacts(numbers, groups, facts.random.seed, carrier=carrier)
    is_certain = not len(chances) and not any(map(_is_random, _nodes(first)))
    algebra: Algebra = Untagged() if is_certain else _Possible(godel, random)
    certain_facts = replace(facts, random=random)
    begun = None if watch is None else run_whole(first, certain_facts, watch, algebra)
    tables = Executor(first, certain_facts, algebra, watch, begun=begun).run()
    for name in first.outputs:
        table = tables[name]
        columns, count = [table.column(c).copy() for c in range(len(table.types))], table.size
        if known is not None:
            new = np.flatnonzero(known[name].find(columns, count) < 0)
            columns, count = [column[new] for column in columns], len(new)
        demand.add(name, columns, np.full(count, -1, np.int64))
    add_terms(ram, demand)
    return demand


def _is_random(node: Instruction | Operator) -> bool:
    if isinstance(node, Generate):
        return predicate_of(node.predicate).is_tagged
    return isinstance(node, RuleProbability)


def _nodes(ram: Ram) -> Iterator[Instruction | Operator]:
    """The instructions of a program and the operators of their queries."""
    for instruction in (i for stratum in ram.strata for i in stratum.full):
        yield instruction
        if isinstance(instruction, Store):
            yield from instruction.query.operators
