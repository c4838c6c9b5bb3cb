"""Which variables of a circuit are random choices of their own, and which are values of one choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from derivable.core.diagnostics import DomainError


@dataclass(frozen=True, eq=False)
class CategoricalVariables:
    """Which random choices the variables 1..num_variables stand for.

    A variable in no group is independent: a choice of two values. A group of n variables is one
    choice of n values: exactly one of its variables is true.

    group_of    [2 * variable + 2] int64: by literal code (2 v for v, 2 v + 1 for its negation), the choice; -1 for
                the negation of a categorical variable, which is no single value
    value_of    [2 * variable + 2] int64: the value
    group_size  [choice] int64: number of values
    groups      the categorical groups, each an array of variables
    """

    num_variables: int
    group_of: np.ndarray
    value_of: np.ndarray
    group_size: np.ndarray
    groups: tuple[np.ndarray, ...]

    @staticmethod
    def of(num_variables: int, groups: Iterable[Sequence[int] | np.ndarray]) -> CategoricalVariables:
        """Raises DomainError for an empty group, a variable out of range, or one in two groups."""
        given = tuple(np.asarray(group, dtype=np.int64).reshape(-1) for group in groups)
        owner = np.full(num_variables + 1, -1, dtype=np.int64)
        for number, group in enumerate(given):
            if len(group) == 0:
                raise DomainError(f"group {number} is empty", hint="exactly one of its variables would have to be true")
            if group.min() < 1 or group.max() > num_variables:
                raise DomainError(f"group {number} has a variable outside 1..{num_variables}")
            if (owner[group] >= 0).any() or len(np.unique(group)) < len(group):
                raise DomainError(f"group {number} has a variable that is in a group already")
            owner[group] = number
        group_of = np.full(2 * num_variables + 2, -1, dtype=np.int64)
        value_of = np.zeros(2 * num_variables + 2, dtype=np.int64)
        for number, group in enumerate(given):
            group_of[2 * group] = number
            value_of[2 * group] = np.arange(len(group))
        free = np.flatnonzero(owner[1:] < 0) + 1
        group_of[2 * free] = group_of[2 * free + 1] = len(given) + np.arange(len(free))
        value_of[2 * free + 1] = 1
        sizes = np.concatenate([[len(group) for group in given], np.full(len(free), 2)]).astype(np.int64)
        return CategoricalVariables(num_variables, group_of, value_of, sizes, given)

    @property
    def is_categorical(self) -> np.ndarray:
        """[variable] bool: in a group, so that its negative literal weighs one."""
        return self.group_of[3::2] < 0
