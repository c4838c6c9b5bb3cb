"""The graph of a column program while it is made: equal nodes are one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from derivable.parallel.program.nodes import Node
from derivable.parallel.program.types import Column


@dataclass
class Graph:
    """Makes nodes, equal ones once."""

    known: dict[tuple, Node] = field(default_factory=dict)

    def __call__(self, kind: type[Node], *parts: Any) -> tuple[Column, ...]:
        """The results of a node of that kind."""
        key = (kind, *map(_key, parts))
        node = self.known.get(key)
        if node is None:
            node = self.known[key] = kind(*parts)
        return tuple(Column(node, number) for number in range(len(node.types)))

    def one(self, kind: type[Node], *parts: Any) -> Column:
        """The result of a node that has one."""
        return self(kind, *parts)[0]


def _key(part: Any) -> Any:
    """What two parts of equal nodes share: 0.0 equals False and -0.0, and is neither."""
    if isinstance(part, np.ndarray):
        return id(part)
    return (type(part), repr(part)) if isinstance(part, int | float) else part
