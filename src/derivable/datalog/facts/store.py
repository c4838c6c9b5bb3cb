"""All facts of a run: those of the program, those that Python gives, and the random facts among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from derivable.datalog.facts.columns import FactColumns, FactPart, certain, concatenated
from derivable.datalog.ram.nodes import Ram
from derivable.datalog.rules.nodes import Rules
from derivable.datalog.syntax.terms import parse_term
from derivable.datalog.tables.entities import EntityStore
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.values.constructors import Constructor
from derivable.datalog.values.symbols import SymbolTable


@dataclass
class FactStore:
    """All facts of a run.

    inputs  the variables of each Python fact, in their order (compile_exact)
    look    checks the limits of the run while there are many to load; of files its argument is their number of rows
    elsewhere  relation -> parts of certain facts whose columns of words [row] are tensors on a device
    """

    symbols: SymbolTable = field(default_factory=lambda: _new_symbols({}))
    random: RandomFacts = field(default_factory=RandomFacts)
    relations: dict[str, FactColumns] = field(default_factory=dict)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    look: Callable[..., Any] | None = None
    elsewhere: dict[str, list[list[Any]]] = field(default_factory=dict)

    def bring(self) -> None:
        """Have all facts on the host."""
        for name, parts in self.elsewhere.items():
            for columns in parts:
                self.add(name, [column.cpu().numpy() for column in columns])
        self.elsewhere = {}

    def variables_of(self, names: Iterable[str]) -> np.ndarray:
        """The random facts of some relations."""
        parts = [part for name in names if name in self.relations for part in self.relations[name].variables]
        variables = np.concatenate([np.empty(0, np.int64), *parts])
        return variables[variables >= 0]

    def may_be_denied(self, ram: Ram, number: int) -> np.ndarray:
        """The random facts that a proof may deny because of a stratum, as far as there are such by now: those of
        relations that it negates or aggregates, and those that rules have made."""
        if not ram.denied[number]:
            return np.empty(0, np.int64)
        is_of_relation = np.zeros(len(self.random.probabilities), bool)
        is_of_relation[self.variables_of(self.relations)] = True
        return np.concatenate([self.variables_of(ram.denied[number]), np.flatnonzero(~is_of_relation)])

    def copy_parts(self) -> None:
        """Copy what may be arrays of the caller, who may write to them later."""
        for facts in self.relations.values():
            facts.parts = [
                FactPart([concatenated([column]) for column in columns], variables)
                for columns, variables in zip(facts.columns, facts.variables)
            ]

    def fork(self) -> FactStore:
        """The same facts; more of them are added to one of the two alone. Texts have the same numbers in both."""
        return FactStore(self.symbols, self.random, dict(self.relations), dict(self.inputs))

    def more(self, others: FactStore) -> dict[str, FactColumns]:
        """The facts of each relation here and there."""
        relations = dict(self.relations)
        for name, facts in others.relations.items():
            known = relations.get(name, FactColumns())
            relations[name] = FactColumns.of([*known.parts, *facts.parts])
        return relations

    def add(self, name: str, columns: list[np.ndarray], variables: np.ndarray | None = None, count: int = 1) -> None:
        """Add facts of a relation; without variables they are certain, and `count` of them if they have no columns."""
        if variables is None:
            count, carrier = len(columns[0]) if columns else count, self.random.carrier
            if carrier is not None and carrier.numbers_all and not name.startswith("#"):
                variables = self.random.add(np.ones(count))
            else:
                variables = certain(count)
        self.relations.setdefault(name, FactColumns()).append(columns, variables)


def new_store(ram: Ram | Rules, random: RandomFacts | None = None) -> FactStore:
    """No facts yet, for a program."""
    return FactStore(_new_symbols(ram.constructors), random or RandomFacts())


def _new_symbols(constructors: Mapping[str, Constructor]) -> SymbolTable:
    symbols = SymbolTable()
    symbols.entities = EntityStore(constructors, symbols, parse_term)
    return symbols


def add_terms(ram: Ram | Rules, store: FactStore) -> None:
    """Insert the terms in the facts so far, and the terms in them, into their constructors' relations."""
    entities = store.symbols.entities
    if not isinstance(entities, EntityStore) or not entities.size:
        return
    term_relations = {c.relation for c in ram.constructors.values()}
    words = [np.empty(0, np.int64)]
    for name, facts in store.relations.items():
        entity_columns = [c for c, t in enumerate(ram.relations[name].types) if t.family == "entity"]
        words += [part[c] for part in facts.columns for c in entity_columns if name not in term_relations or c == 0]
    terms = entities.parts(np.concatenate(words))
    for name, constructor in ram.constructors.items():
        columns = entities.rows_of(name, terms)
        if len(columns[0]):
            store.add(constructor.relation, columns, certain(len(columns[0])))
