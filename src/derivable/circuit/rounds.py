"""The fold in rounds over child positions, for array libraries that have no kernels here.

Round j of a level combines the partial results of all its nodes of one kind with their j-th children; nodes with
more children come first, so a round works on a prefix. It serves tensors on other devices and derivatives of
higher order; on the CPU the kernels are many times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.circuit.plan import Plan
from derivable.core.and_or import AND, LITERAL, OR, TRUE


@dataclass(frozen=True)
class Level:
    """Nodes of one kind and height: `rounds[j]` are the rows of the j-th children of the nodes that have one."""

    kind: int
    rounds: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Rounds:
    """Rows 0 and 1 are zero and one, then the literals, then the levels.

    positive   [literal] bool; variable [literal]: the column of the weights
    root_rows  [root]
    """

    variable: np.ndarray
    positive: np.ndarray
    levels: tuple[Level, ...]
    root_rows: np.ndarray


def rounds_of(plan: Plan) -> Rounds:
    """The rounds of a planned circuit."""
    kind, offsets, children = plan.kind, plan.offsets, plan.children
    arity = np.diff(offsets)
    height = np.zeros(len(kind), np.int64)
    # Nodes are numbered by height, so heights rise by at most one from node to node.
    for node in np.flatnonzero(arity):
        height[node] = height[children[offsets[node] : offsets[node + 1]]].max() + 1
    row = np.zeros(len(kind), np.int64)
    row[kind == TRUE] = 1
    literals = np.flatnonzero(kind == LITERAL)
    row[literals] = 2 + np.arange(len(literals))
    free = 2 + len(literals)
    levels = []
    for level in range(1, int(height.max(initial=0)) + 1):
        for which in (AND, OR):
            nodes = np.flatnonzero((height == level) & (kind == which))
            if len(nodes) == 0:
                continue
            nodes = nodes[np.argsort(-arity[nodes], kind="stable")]
            rounds = []
            for position in range(int(arity[nodes[0]])):
                having = nodes[: int((arity[nodes] > position).sum())]
                rounds.append(row[children[offsets[having] + position]])
            row[nodes] = free + np.arange(len(nodes))
            free += len(nodes)
            levels.append(Level(which, tuple(rounds)))
    variable = np.abs(plan.literal[literals]) - 1
    return Rounds(variable, plan.literal[literals] > 0, tuple(levels), row[plan.roots])


def fold_in_rounds(
    rounds: Rounds,
    leaves: Any,
    plus: Callable[[Any, Any], Any],
    times: Callable[[Any, Any], Any],
    take: Callable[[Any, np.ndarray], Any],
    join: Callable[[Sequence[Any]], Any],
) -> Any:
    """Values of the roots, [root, row].

    leaves      [2 + literal, row]: zero, one, the literals
    take, join  rows of an array by their numbers, and concatenation along the first axis
    """
    values = leaves
    for level in rounds.levels:
        operation = plus if level.kind == OR else times
        total = take(values, level.rounds[0])
        for positions in level.rounds[1:]:
            count = len(positions)
            changed = operation(total[:count], take(values, positions))
            total = changed if count == len(total) else join([changed, total[count:]])
        values = join([values, total])
    return take(values, rounds.root_rows)
