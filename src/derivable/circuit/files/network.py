"""Networks as files give them: discrete variables, and tables of numbers over some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from derivable.core.diagnostics import DomainError
from derivable.core.graph import from_edges, strongly_connected_components
from derivable.core.registry import suggestion

# How far the numbers of a distribution may be from adding up to one: files have few digits.
ROUNDING = 0.02


@dataclass(frozen=True, eq=False)
class NetworkTables:
    """A product of tables over discrete variables: the tables of a Bayesian network, or the factors of a Markov one.

    names      [variable]
    states     [variable] the names of its values
    factors    (variables, table): numbers of variables, and an array with an axis for each of them. Of a Bayesian
               network there is one for each variable, which comes last
    is_bayesian  whether each table is a distribution of its last variable
    evidence   variable -> the value that a file of evidence has for it
    source     the file, for messages
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    factors: tuple[tuple[tuple[int, ...], np.ndarray], ...]
    is_bayesian: bool = True
    evidence: Mapping[int, int] = field(default_factory=dict)
    source: str | None = None

    @property
    def cardinalities(self) -> list[int]:
        return [len(states) for states in self.states]

    def variable(self, name: str) -> int:
        """The number of a variable. Raises DomainError with the nearest name."""
        if name not in self.names:
            hint = suggestion(name, self.names, f"there are {len(self.names)} variables: {_some(self.names)}")
            raise DomainError(f"the network has no variable {name!r}", hint=hint, source=self.source)
        return self.names.index(name)

    def state(self, variable: int, name: object) -> int:
        """The number of a value of a variable, by its name or its number. Raises DomainError with the known ones."""
        states = self.states[variable]
        if isinstance(name, str) and name in states:
            return states.index(name)
        if isinstance(name, (int, np.integer)) and not isinstance(name, bool) and 0 <= name < len(states):
            return int(name)
        hint = suggestion(name, states, f"its values are {_some(states)}")
        raise DomainError(f"{self.names[variable]!r} has no value {name!r}", hint=hint, source=self.source)


def cyclic_variable(scopes: Sequence[Sequence[int]]) -> int | None:
    """The least variable that is an ancestor of itself, if any, for the scopes of the tables of a Bayesian network."""
    edges = [(parent, scope[-1]) for scope in scopes for parent in scope[:-1]]
    parents, children = np.array(edges, np.int64).reshape(-1, 2).T
    component, count = strongly_connected_components(*from_edges(len(scopes), parents, children))
    cyclic = np.flatnonzero(np.bincount(component, minlength=count)[component] > 1)
    return int(cyclic[0]) if len(cyclic) else None


def _some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
