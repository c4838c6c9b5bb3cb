"""What random facts look like to a provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from derivable.core.diagnostics import DomainError


@dataclass
class RandomFacts:
    """The random input facts of a run, as variables 0, 1, ...

    probabilities  of each variable
    valued         (start, stop) of variables whose probability is any number, the value of the fact itself
    groups         arrays of variables of which exactly one is true; the others are independent
    seed           of samples that aggregates draw
    """

    probabilities: list[float] = field(default_factory=list)
    groups: list[np.ndarray] = field(default_factory=list)
    seed: int = 0
    valued: list[tuple[int, int]] = field(default_factory=list)

    def copy(self) -> RandomFacts:
        return replace(self, probabilities=[*self.probabilities], groups=[*self.groups], valued=[*self.valued])

    def add(self, probabilities: np.ndarray, has_values: bool = False) -> np.ndarray:
        """Numbers of new independent variables.

        has_values  whether these are the values of facts, elements of the semiring that the program runs in
        """
        start = len(self.probabilities)
        self.probabilities.extend(np.asarray(probabilities, np.float64).tolist())
        if has_values and len(probabilities):
            self.valued.append((start, len(self.probabilities)))
        return np.arange(start, len(self.probabilities), dtype=np.int64)

    def add_choice(self, probabilities: np.ndarray, is_complete: bool = False) -> np.ndarray:
        """Numbers of new variables of which at most one is true.

        Unless they add up to one (or `is_complete`), one more variable stands for "none of them".
        """
        variables = self.add(probabilities)
        rest = 1.0 - float(np.sum(probabilities))
        group = variables
        if not is_complete and rest > 1e-12:
            group = np.concatenate([variables, self.add(np.array([rest]))])
        self.groups.append(group)
        return variables

    def is_valued(self, variables: np.ndarray) -> np.ndarray:
        """[variable] bool: whether its probability is the value of the fact."""
        found = np.zeros(len(variables), bool)
        for start, stop in self.valued:
            found |= (variables >= start) & (variables < stop)
        return found

    def check_probabilities(self, provenance: str) -> None:
        """Raises DomainError for values of facts that are no probabilities, where these are needed."""
        for start, stop in self.valued:
            values = np.asarray(self.probabilities[start:stop], np.float64)
            wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
            if len(wrong):
                raise DomainError(
                    f"the value {values[wrong[0]]:g} of a fact is no probability, which {provenance!r} needs",
                    hint='name a semiring of such values: `provenance="real"`, "min_plus", ...',
                )

    def fixed(self, variables: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(number [fixed] int64, probability [fixed]) of what no input names: the facts written in the program."""
        inputs = np.concatenate([*variables.values(), np.empty(0, dtype=np.int64)])
        numbers = np.setdiff1d(np.arange(len(self.probabilities)), inputs)
        return numbers, np.asarray(self.probabilities, dtype=np.float64)[numbers]

    def group_of(self) -> np.ndarray:
        """Group number [variable] int64, -1 for independent variables."""
        owner = np.full(len(self.probabilities), -1, dtype=np.int64)
        for i, group in enumerate(self.groups):
            owner[group] = i
        return owner
