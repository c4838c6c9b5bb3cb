"""A circuit that is known as sums of products of tables, and whose nodes are made when something looks at them.

Variable elimination makes a node for each entry of each table that it joins: millions, where a pass over the tables
themselves takes a hundredth of a second. So what only needs values and derivatives of floats folds the tables, and
everything else finds the nodes, which are made once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from derivable.circuit.graph.circuit import Circuit
from derivable.core.locks import OwnLock

_ARRAYS = ("kind", "literal", "offsets", "children", "roots", "level_offsets")


@dataclass(frozen=True, eq=False)
class Blocks:
    """Sums of products of dense tables over the roots of a circuit; see `kernels.dense_blocks` for the arrays.

    leaves      the circuit of the entries of the tables
    cells       [entry of all tables] int32: the root of `leaves` that it is
    starts      [table] the first of its entries
    num_values  entries of the tables and of the results of all blocks, the value of all being the last one
    num_room, num_positions  numbers of the buffers of the kernels
    entries     of all joined tables: what one pass looks at
    alive       how many of them are not zero whatever the weights are
    """

    leaves: Circuit
    cells: np.ndarray
    starts: np.ndarray
    blocks: np.ndarray
    shape: np.ndarray
    first: np.ndarray
    along: np.ndarray
    strides: np.ndarray
    num_values: int
    num_room: int
    num_positions: int
    entries: int
    alive: int
    # Buffers of passes that are over.
    scratch: list[tuple[np.ndarray, ...]] = field(default_factory=list, repr=False)


class EliminationCircuit(Circuit):
    """A circuit of one root whose nodes are made on first use.

    program       what it computes
    mentions_all  whether each model has a literal of each variable that the tables mention
    make          makes the circuit with its nodes
    passes        under "excess" the nanoseconds by which passes over the tables have cost more than passes over nodes;
                  copies with other names or weights share it
    """

    program: Blocks
    mentions_all: bool
    make: Callable[[], Circuit]
    passes: dict[str, float]

    def __new__(cls, *arrays: Any, **others: Any) -> Circuit:  # type: ignore[misc]
        """A circuit with other arrays, as `dataclasses.replace` makes it, is no product of tables."""
        return Circuit(*arrays, **others)

    @staticmethod
    def of(
        program: Blocks,
        mentions_all: bool,
        make: Callable[[], Circuit],
        num_variables: int,
        weights: tuple[np.ndarray, np.ndarray] | None = None,
        origin: str = "",
    ) -> EliminationCircuit:
        circuit = object.__new__(EliminationCircuit)
        attributes = {"program": program, "mentions_all": mentions_all, "make": make, "passes": {}, "_lock": OwnLock()}
        attributes |= {"num_variables": num_variables, "weights": weights, "origin": origin}
        attributes |= {"names": None, "vtree": None, "compilation": None}
        for name, value in attributes.items():
            object.__setattr__(circuit, name, value)
        return circuit

    def __getattr__(self, name: str) -> Any:
        # Called for what has not been set.
        if name not in _ARRAYS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._lock:
            if name not in self.__dict__:
                made = self.make()
                for array in _ARRAYS:
                    object.__setattr__(self, array, getattr(made, array))
        return self.__dict__[name]

    @property
    def has_nodes(self) -> bool:
        """Whether the nodes have been made."""
        return "kind" in self.__dict__

    @cached_property
    def mentioned(self) -> np.ndarray:
        """The columns of weights of the variables that the tables mention."""
        numbers = np.unique(np.abs(self.program.leaves.literal))
        return numbers[numbers > 0] - 1

    @property
    def num_roots(self) -> int:
        return 1

    def __repr__(self) -> str:
        if self.has_nodes:
            return super().__repr__()
        return f"Circuit(tables of {self.program.entries:,} entries, {self.num_variables} variables, 1 roots)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Circuit, tuple(getattr(self, one.name) for one in fields(Circuit))


def described(circuit: Circuit, **changes: Any) -> Circuit:
    """`dataclasses.replace` of what is no array, for which no nodes are made."""
    if not isinstance(circuit, EliminationCircuit):
        return replace(circuit, **changes)
    made = object.__new__(EliminationCircuit)
    for name, value in {**circuit.__dict__, **changes}.items():
        object.__setattr__(made, name, value)
    return made
