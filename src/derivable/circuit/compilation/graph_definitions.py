"""What tables of a graph are made of: choices, definitions of variables, and the nodes of their entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from derivable.circuit.compilation.tables import Space, Table
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.and_or import FALSE, TRUE


@dataclass(frozen=True, eq=False)
class Choices:
    """The random choices of a graph.

    choice_of  [variable from 1] the choice
    value_of   [variable from 1] the value of it that the variable stands for
    literals   [choice] the literals that stand for its values: (-v, v) of an independent variable
    """

    choice_of: list[int]
    value_of: list[int]
    literals: list[list[int]]

    @staticmethod
    def of(num_variables: int, groups: Iterable[Sequence[int] | np.ndarray]) -> Choices:
        choice_of, value_of, literals = [-1] * (num_variables + 1), [1] * (num_variables + 1), list[list[int]]()
        for group in groups:
            for value, variable in enumerate(group):
                choice_of[int(variable)], value_of[int(variable)] = len(literals), value
            literals.append([int(variable) for variable in group])
        for variable in range(1, num_variables + 1):
            if choice_of[variable] < 0:
                choice_of[variable] = len(literals)
                literals.append([-variable, variable])
        return Choices(choice_of, value_of, literals)

    def holds(self, literal: int) -> tuple[int, np.ndarray]:
        """The choice of a literal, and the values under which it is true."""
        choice = self.choice_of[abs(literal)]
        values = np.zeros(len(self.literals[choice]), bool)
        values[self.value_of[abs(literal)]] = True
        return choice, values if literal > 0 else ~values


@dataclass(eq=False)
class Entry:
    """What makes formulas true in one entry of a table: (formula, choice or -1 for nothing more, values)."""

    reasons: list[tuple[int, int, np.ndarray]] = field(default_factory=list)

    @property
    def formulas(self) -> set[int]:
        return {formula for formula, _, _ in self.reasons}

    def excludes(self) -> bool:
        """Whether no two formulas hold in it together."""
        if len(self.formulas) <= 1:
            return True
        choices = {choice for _, choice, _ in self.reasons}
        if len(choices) > 1 or -1 in choices:
            return False
        total = np.sum([self.holds(formula) for formula in self.formulas], axis=0)
        return bool((total <= 1).all())

    def holds(self, formula: int) -> np.ndarray:
        """The values of the only choice under which a formula holds."""
        return np.logical_or.reduce([values for one, _, values in self.reasons if one == formula])

    def can_fail(self) -> bool:
        """Whether none of the formulas may hold."""
        if any(choice < 0 for _, choice, _ in self.reasons):
            return False
        if not self.reasons:
            return True
        choices = {choice for _, choice, _ in self.reasons}
        return all(
            not np.logical_or.reduce([values for _, one, values in self.reasons if one == choice]).all()
            for choice in choices
        )


@dataclass(frozen=True, eq=False)
class Definition:
    """A table that defines a variable: scope, entries by number where any formula may hold, and values of formulas.

    scope     the other variables
    entries   entry of the scope, in C order -> what may hold there
    formulas  how many formulas are values; value 0 is that none holds, if that can be
    """

    scope: tuple[int, ...]
    variable: int
    entries: dict[int, Entry]
    formulas: int
    has_none: bool


@dataclass(frozen=True, eq=False)
class Rows:
    """A table that defines a variable, row by row.

    digits  [row, variable of the scope, then the one defined] values
    labels  [row] TRUE, or HOLDS or FAILS of a choice
    choice, values  the choice and its values under which it holds, (-1, none) where no label is of one
    """

    scope: tuple[int, ...]
    variable: int
    digits: np.ndarray
    labels: np.ndarray
    choice: int = -1
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))


HOLDS, FAILS = 2, 3


class Nodes:
    """The nodes of entries of tables."""

    def __init__(self, builder: CircuitBuilder, choices: Choices):
        self.builder, self.choices = builder, choices
        self.made: dict[tuple, int] = {}

    def table(self, definition: Definition, shape: Sequence[int]) -> np.ndarray:
        found = np.full(shape, FALSE, np.int32).reshape(-1, shape[-1])
        if definition.has_none:
            found[:, 0] = TRUE
        for cell, entry in definition.entries.items():
            if definition.has_none:
                found[cell, 0] = self._none(entry)
            for formula in entry.formulas:
                found[cell, formula + definition.has_none] = self._one(entry, formula)
        return found.reshape(shape)

    def rows(self, definition: Rows, space: Space) -> Table:
        variables = (*definition.scope, definition.variable)
        scope = space.scope(variables)
        strides = space.strides(scope)
        keys = definition.digits @ np.array([strides[variable] for variable in variables], np.int64)
        nodes = np.array([FALSE, TRUE, 0, 0], np.int32)
        if definition.choice >= 0:
            nodes[HOLDS] = self._values(definition.choice, definition.values)
            nodes[FAILS] = self._values(definition.choice, ~definition.values)
        return Table(scope, keys, nodes[definition.labels])

    def _values(self, choice: int, values: np.ndarray) -> int:
        """That a choice has one of some values."""
        key = (choice, values.tobytes())
        if key not in self.made:
            literals = [literal for literal, holds in zip(self.choices.literals[choice], values.tolist()) if holds]
            self.made[key] = self.builder.disjunction([self.builder.literal(literal) for literal in literals])
        return self.made[key]

    def _by_choice(self, entry: Entry) -> dict[int, np.ndarray]:
        found: dict[int, np.ndarray] = {}
        for _, choice, values in entry.reasons:
            found[choice] = found.get(choice, False) | values
        return found

    def _none(self, entry: Entry) -> int:
        by_choice = self._by_choice(entry)
        if -1 in by_choice:
            return FALSE
        return self.builder.conjunction([self._values(choice, ~values) for choice, values in by_choice.items()])

    def _one(self, entry: Entry, formula: int) -> int:
        """That a formula holds: the first of its choices makes it, or that does not and the next one does."""
        if len(entry.formulas) > 1:
            return self._values(entry.reasons[0][1], entry.holds(formula))
        by_choice = self._by_choice(entry)
        if -1 in by_choice:
            return TRUE
        node = FALSE
        for choice, values in reversed(by_choice.items()):
            holds, fails = self._values(choice, values), self._values(choice, ~values)
            node = self.builder.disjunction([holds, self.builder.conjunction([fails, node])])
        return node
