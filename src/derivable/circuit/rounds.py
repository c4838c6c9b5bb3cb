"""The fold in rounds over child positions, for array libraries that have no kernels here.

Round j of a level combines the partial results of all its nodes of one kind with their j-th children; nodes with
more children come first, so a round works on a prefix. It serves tensors on other devices and derivatives of
higher order; on the CPU the kernels are many times faster.

Every level is an array of its own. As soon as it is there, one gather takes all rows that later levels want, and they
are handed on; so all gathers and joins together, and their derivatives, are linear in the edges, however deep a circuit
is. With one buffer that grows, each level would cost as much as the whole circuit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.circuit.circuit import LITERAL, OR, TRUE
from derivable.circuit.plan import Plan


@dataclass(frozen=True)
class Send:
    """What an array hands on: rows [operand] of it, in pieces of these sizes for these rounds.

    rows  None for all of it, to one round
    """

    rows: np.ndarray | None
    sizes: tuple[int, ...]
    rounds: tuple[int, ...]


@dataclass(frozen=True)
class Level:
    """Nodes of one kind and height.

    kind    AND or OR
    rounds  numbers of rounds first:last of all levels
    """

    kind: int
    rounds: range
    send: Send


@dataclass(frozen=True)
class Rounds:
    """The leaves are zero, one, then the literals; the last round has the roots.

    variable   [literal] the column of the weights; positive [literal] bool
    leaves     what they hand on
    sizes      [round] operands
    places     [round] where the operands are among the rows that the round is handed, None for in their order
    """

    variable: np.ndarray
    positive: np.ndarray
    leaves: Send
    levels: tuple[Level, ...]
    sizes: tuple[int, ...]
    places: tuple[np.ndarray | None, ...]


def rounds_of(plan: Plan) -> Rounds:
    """The rounds of a planned circuit."""
    kind, offsets, children = plan.kind, plan.offsets, plan.children
    arity = np.diff(offsets)
    height = np.zeros(len(kind), np.int64)
    for node in np.flatnonzero(arity):
        height[node] = height[children[offsets[node] : offsets[node + 1]]].max() + 1
    # Each node's array, 0 for leaves, and row in it.
    array, row = np.zeros(len(kind), np.int64), np.zeros(len(kind), np.int64)
    row[kind == TRUE] = 1
    literals = np.flatnonzero(kind == LITERAL)
    row[literals] = 2 + np.arange(len(literals))
    inner = np.flatnonzero(arity)
    inner = inner[np.lexsort((-arity[inner], kind[inner], height[inner]))]
    starts = np.flatnonzero(np.diff(height[inner] * (OR + 1) + kind[inner], prepend=-1))
    groups = np.split(inner, starts[1:]) if len(inner) else []
    operands: list[np.ndarray] = []
    spans = []
    for number, nodes in enumerate(groups):
        array[nodes], row[nodes] = number + 1, np.arange(len(nodes))
        first = len(operands)
        counts = np.searchsorted(-arity[nodes], -np.arange(int(arity[nodes[0]])), side="left")
        operands += [children[offsets[nodes[:count]] + j] for j, count in enumerate(counts.tolist())]
        spans.append(range(first, len(operands)))
    operands.append(plan.roots)
    pieces: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(len(groups) + 1)]
    places: list[np.ndarray | None] = []
    for number, nodes in enumerate(operands):
        source = array[nodes]
        order = np.argsort(source, kind="stable")
        cuts = np.flatnonzero(np.diff(source[order])) + 1
        for piece in np.split(order, cuts) if len(order) else []:
            pieces[source[piece[0]]].append((number, row[nodes[piece]]))
        places.append(np.argsort(order) if len(cuts) else None)
    lengths = [2 + len(literals), *map(len, groups)]
    leaves, *sends = [_send(*pair) for pair in zip(pieces, lengths)]
    levels = tuple(Level(int(kind[nodes[0]]), span, send) for nodes, span, send in zip(groups, spans, sends))
    variable, positive = np.abs(plan.literal[literals]) - 1, plan.literal[literals] > 0
    return Rounds(variable, positive, leaves, levels, tuple(map(len, operands)), tuple(places))


def _send(pieces: Sequence[tuple[int, np.ndarray]], length: int) -> Send:
    rows = [rows for _, rows in pieces]
    is_whole = len(rows) == 1 and np.array_equal(rows[0], np.arange(length))
    every = None if is_whole else np.concatenate([np.zeros(0, np.int64), *rows])
    return Send(every, tuple(map(len, rows)), tuple(number for number, _ in pieces))


def fold_in_rounds(
    rounds: Rounds,
    leaves: Any,
    plus: Callable[[Any, Any], Any],
    times: Callable[[Any, Any], Any],
    take: Callable[[Any, np.ndarray], Any],
    join: Callable[[Sequence[Any]], Any],
    split: Callable[[Any, Sequence[int]], Sequence[Any]],
) -> Any:
    """Values of the roots, [root, row].

    leaves             [2 + literal, row]: zero, one, the literals
    take, join, split  rows of an array by their numbers, concatenation along the first axis, and pieces of these sizes
    """
    handed: list[list[Any]] = [[] for _ in rounds.sizes]

    def hand_on(values: Any, send: Send) -> None:
        rows = values if send.rows is None else take(values, send.rows)
        for number, piece in zip(send.rounds, split(rows, send.sizes) if len(send.sizes) > 1 else [rows]):
            handed[number].append(piece)

    def operands(number: int) -> Any:
        pieces, place = handed[number], rounds.places[number]
        handed[number] = []
        return pieces[0] if place is None else take(join(pieces), place)

    hand_on(leaves, rounds.leaves)
    for level in rounds.levels:
        operation = plus if level.kind == OR else times
        total, done = operands(level.rounds[0]), []
        for number in level.rounds[1:]:
            count = rounds.sizes[number]
            if count < len(total):
                total, finished = split(total, (count, len(total) - count))
                done.append(finished)
            total = operation(total, operands(number))
        hand_on(join([total, *reversed(done)]) if done else total, level.send)
    return operands(len(rounds.sizes) - 1) if rounds.sizes[-1] else take(leaves, np.zeros(0, np.int64))
