"""What random facts look like to a provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass
class RandomFacts:
    """The random input facts of a run, as variables 0, 1, ...

    probabilities  of each variable
    groups         arrays of variables of which exactly one is true; the others are independent
    seed           of samples that aggregates draw
    """

    probabilities: list[float] = field(default_factory=list)
    groups: list[np.ndarray] = field(default_factory=list)
    seed: int = 0

    def copy(self) -> RandomFacts:
        return replace(self, probabilities=[*self.probabilities], groups=[*self.groups])

    def add(self, probabilities: np.ndarray) -> np.ndarray:
        """Numbers of new independent variables."""
        start = len(self.probabilities)
        self.probabilities.extend(float(p) for p in probabilities)
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
