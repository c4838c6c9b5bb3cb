"""Circuits of exact runs, saved with the program: runs over the same facts differ in probabilities alone.

Which tuples there may be, and how they follow from facts, depends on which facts there are and which of them are
random. So a run that finds both as an earlier one had them evaluates the circuit of that run, and grounds and compiles
nothing.
A layer (`dv.nn.Logic`) does the same from the start, because its inputs are declared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from derivable.circuit.graph.elimination_circuit import EliminationCircuit
from derivable.datalog.exact.evidence import Conditioned
from derivable.datalog.exact.exact import Compiled
from derivable.datalog.exact.networks import NetworkCircuit
from derivable.datalog.facts.store import FactStore
from derivable.datalog.foreign.standard import is_standard
from derivable.datalog.ram import nodes as m
from derivable.datalog.rules.nodes import Evidence
from derivable.datalog.run.limits import Limits
from derivable.datalog.scalars.nodes import applied
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.symbols import SymbolTable

_NONE = np.empty(0, np.int64)
# Facts of a run up to which it is saved; nodes of circuits or rows of outputs, and runs, that are saved with a program.
MOST_FACTS, MOST_NODES, MOST_SAVED = 1 << 22, 1 << 22, 16


@dataclass(frozen=True)
class SavedRun:
    """What runs over the same facts have in common.

    outputs   relation -> its table, which nobody writes to any more
    compiled  the circuit of the rows of all outputs, in order
    made      probabilities of the random facts that rules have made, behind those of the facts
    """

    outputs: Mapping[str, Table]
    symbols: SymbolTable
    compiled: Compiled | Conditioned | NetworkCircuit
    made: Sequence[float]

    @property
    def size(self) -> int:
        """What its circuit has, nodes or entries of tables, or rows of its outputs."""
        circuit = self.compiled.circuit
        size = circuit.program.num_values if isinstance(circuit, EliminationCircuit) else circuit.num_nodes
        return max(sum(table.size for table in self.outputs.values()), size)

    def under(self, items: tuple[Evidence, ...]) -> SavedRun:
        """The same under other observations of the same tuples, of a network of any tuples of its outputs."""
        is_plain = isinstance(self.compiled, Compiled)
        return self if is_plain else replace(self, compiled=replace(self.compiled, items=items))

    def shown(
        self, probabilities: Sequence[float]
    ) -> tuple[Iterator[tuple[str, Table, np.ndarray, np.ndarray]], float]:
        """Each output with its table, the probabilities [row] of its rows, from those of the facts, and whether
        they hold in some world; the logarithm of the probability of the evidence."""
        values, possible, log_evidence = self.compiled.shown([*probabilities, *self.made])
        return self._outputs(values, possible), log_evidence

    def _outputs(self, values: np.ndarray, possible: np.ndarray) -> Iterator[tuple[str, Table, np.ndarray, np.ndarray]]:
        ends = np.cumsum([0, *(table.size for table in self.outputs.values())]).tolist()
        for (name, table), (start, stop) in zip(self.outputs.items(), pairwise(ends)):
            yield name, table, values[start:stop], possible[start:stop]


def pattern_of(
    ram: m.Ram, facts: FactStore, limits: Limits, evidence: tuple[Evidence, ...] = ()
) -> tuple[Any, ...] | None:
    """What decides on the tuples and the circuit of a run, what was observed first; None where more than the facts
    does, or facts are many.

    A limit of rounds or tuples is one of grounding, so such a run grounds.
    """
    symbols, random = facts.symbols, facts.random
    if limits != Limits(time_limit=limits.time_limit, memory_limit=limits.memory_limit) or not _depends_on_facts(ram):
        return None
    count = sum(len(variables) for columns in facts.relations.values() for variables in columns.variables)
    types = [t for name in facts.relations if name in ram.relations for t in ram.relations[name].types]
    has_terms = any(t.family == "entity" for t in types)
    if count > MOST_FACTS or symbols.things or has_terms:
        return None
    texts = symbols.texts if symbols.arena is None else []
    arrays = [] if symbols.arena is None else [*symbols.arena.arrays]
    sizes = np.fromiter(map(len, random.groups), np.int64, len(random.groups))
    words = [sizes, np.concatenate([*random.groups, _NONE])]
    for name, part in facts.relations.items():
        # However many parts they came in.
        columns, variables = part.joined(len(ram.relations[name].types) if name in ram.relations else 0)
        words += variables, *columns
    arrays += np.array([*map(len, words)]), np.concatenate(words)
    # A program holds up to MOST_SAVED patterns, so a pattern has a digest of the facts and no copy of them.
    digest = hashlib.blake2b()
    for array in arrays:
        digest.update(f"{array.dtype} {len(array)} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return observed(evidence), len(random.probabilities), tuple(texts), tuple(facts.relations), digest.digest()


def observed(items: Sequence[Evidence]) -> tuple[Any, ...]:
    """The tuples that items are about, as the first part of a pattern."""
    return tuple((item.relation, item.row) for item in items)


def saved_of(ram: m.Ram) -> dict[Hashable, SavedRun]:
    """The saved runs of a program by their patterns."""
    return ram.plans.setdefault("saved runs", {})


def save(ram: m.Ram, pattern: Hashable, run: SavedRun) -> None:
    """Save a run, unless it is large; where a program runs over ever other facts, all are dropped now and then."""
    if run.size <= MOST_NODES:
        known = saved_of(ram)
        if len(known) >= MOST_SAVED or run.size + sum(other.size for other in known.values()) > MOST_NODES:
            known.clear()
        known[pattern] = run


def _depends_on_facts(ram: m.Ram) -> bool:
    """Whether nothing but the facts decides what rules find: no function of a user, and no aggregate.

    An aggregate may choose by probabilities or draw samples.
    """
    key = "depends on facts"
    depends = ram.plans.get(key)
    if depends is None:
        programs = [ram, *([] if ram.demand is None else [ram.demand])]
        rules = [rule for one in programs for stratum in one.strata for rule in (*stratum.full, *stratum.loop)]
        depends = ram.plans[key] = all(isinstance(rule, m.Store) and _is_standard(rule.query) for rule in rules)
    return depends


def _is_standard(query: m.Project) -> bool:
    nodes = (*query.terms, *query.operators)
    calls = [a.operator[1:] for node in nodes for a in applied(node) if a.operator.startswith("$")]
    calls += [node.predicate for node in query.operators if isinstance(node, m.Generate)]
    return all(map(is_standard, calls))
