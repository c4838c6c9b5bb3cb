"""What proofs are searched in: the rules as they are written, the rows of their relations, and the facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from derivable.core.and_or import TRUE
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.facts.store import FactStore
from derivable.datalog.foreign.standard import predicate_of
from derivable.datalog.reasons.rows import Row, Rows
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.sideways import Patterns
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.random_facts import CHANCE
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import word_of

# What begins the name of a relation that has the facts of another one alone.
FACTS = "facts of "
# A row of outputs of a predicate, None where nobody reads one, and its probability, None if it is certain.
Answer = tuple[Sequence[int | None], float | None]


class Model:
    """The relations after a run, their rules and facts.

    tables      relation -> its rows, of those that rules derive; tags, if there are some, are nodes of a ground
                derivation graph, so that a row may be one of some worlds only
    is_boolean  whether tags of facts count nothing
    patterns    the columns that relations are demanded with; of the others the tables have all rows
    """

    def __init__(
        self,
        rules: r.Rules,
        tables: Mapping[str, Table],
        facts: FactStore,
        is_boolean: bool,
        patterns: Patterns | None = None,
    ):
        self.rules, self.tables, self.facts, self.is_boolean = rules, tables, facts, is_boolean
        self.patterns: Patterns = patterns or {}
        self.symbols: SymbolTable = facts.symbols
        self.clauses: dict[str, list[r.Clause]] = {}
        self.aggregates: dict[str, AggregateRule] = {}
        for rule in rules.rules:
            if isinstance(rule, r.Clause):
                self.clauses.setdefault(rule.relation, []).append(rule)
            else:
                self.aggregates[rule.relation] = rule
        self.keys = rules.key_relations
        self._rows: dict[str, Rows] = {}
        self._facts: dict[str, tuple[Rows, np.ndarray]] = {}

    def words_of(self, relation: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """The words of the values of a row, None for those that are not known."""
        typed = zip(values, self.rules.relations[relation].types)
        return tuple(None if value is None else word_of(value, t, self.symbols) for value, t in typed)

    @cached_property
    def constructors(self) -> frozenset[str]:
        return frozenset(constructor.relation for constructor in self.rules.constructors.values())

    def width(self, relation: str) -> int:
        return len(self.rules.relations[relation].types)

    def rows(self, relation: str) -> Rows:
        rows = self._rows.get(relation)
        if rows is None:
            table = self.tables.get(relation)
            if table is None:
                rows = self.facts_of(relation)[0]
            else:
                rows = Rows(table.words(), table.size)
            self._rows[relation] = rows
        return rows

    def facts_of(self, relation: str) -> tuple[Rows, np.ndarray]:
        """The facts of a relation and the variable [row] of each, -1 for one that is certain."""
        relation = relation.removeprefix(FACTS)
        facts = self._facts.get(relation)
        if facts is None:
            source = self.facts.relations.get(relation)
            width = self.width(relation)
            if source is None:
                facts = Rows.none(width), np.empty(0, np.int64)
            else:
                columns, variables = source.joined(width)
                if not self.is_boolean and len(self.facts.random.probabilities) and (variables >= 0).any():
                    stays = self._may_be_true(variables)
                    columns, variables = [column[stays] for column in columns], variables[stays]
                facts = Rows(columns, len(variables)), variables
            self._facts[relation] = facts
        return facts

    def _may_be_true(self, variables: np.ndarray) -> np.ndarray:
        random = self.facts.random
        if random.carrier is not None and not random.carrier.has_probabilities:
            return np.ones(len(variables), bool)
        chances = np.asarray(random.probabilities, np.float64)
        return (variables < 0) | (chances[np.maximum(variables, 0)] > 0.0)

    def variables(self, relation: str, row: Row) -> list[int]:
        """The variables of the facts that a row is, -1 for one that is certain; none if it is no fact."""
        rows, variables = self.facts_of(relation)
        return [int(variables[number]) for number in rows.find(row)] if rows.size else []

    def is_flat(self, relation: str) -> bool:
        """Whether the rows of a relation are certain facts, so that each is as good as another."""
        if relation in self.clauses or relation in self.aggregates:
            return False
        _, variables = self.facts_of(relation)
        return variables.strides == (0,) or bool((variables < 0).all())

    def is_certain(self, relation: str, row: Row) -> bool:
        """Whether a row is there in every world."""
        numbers = self.rows(relation).find(row)
        if not numbers or self.is_boolean:
            return bool(numbers)
        table = self.tables.get(relation)
        if table is None or table.tags is None:
            return any(variable < 0 for variable in self.variables(relation, row))
        return any(int(table.tags[number]) == TRUE for number in numbers)

    def answers(self, step: r.Generate, inputs: Sequence[int]) -> Iterator[Answer]:
        """The rows of outputs of a foreign predicate for one row of inputs."""
        if step.relation is not None:
            from derivable.datalog.reasons.groups import keyed_rows

            yield from ((row, None) for row in keyed_rows(self, step.relation, inputs))
            return
        record = predicate_of(step.predicate)
        types = [t if record.is_tagged or output is not None else None for output, t in zip(step.outputs, step.types)]
        columns = [np.array([word], np.int64) for word in inputs]
        for answer in record.answers([e.type for e in step.inputs], types, self.symbols, columns, 1):
            shown = [None if column is None else column.tolist() for column in answer.columns]
            for row in range(int(answer.offsets[-1])):
                chance = None if answer.probabilities is None else float(answer.probabilities[row])
                if chance == 0.0:
                    continue
                chance = None if chance is None or np.isnan(chance) else chance
                yield [None if column is None else column[row] for column in shown], chance

    def chance(self, variable: int) -> float:
        """The number of a random fact."""
        return 1.0 if variable < 0 else float(self.facts.random.probabilities[variable])

    def is_given(self, variable: int) -> bool:
        """Whether somebody has written the number."""
        return variable >= 0 and self.facts.random.kinds[variable] != CHANCE
