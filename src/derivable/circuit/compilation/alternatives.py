"""Disjunctions of independent alternatives, as decisions.

"One of a thousand facts holds" is not deterministic, and its SDD takes seconds to compile. But where no variable is in
two of the alternatives, and none is twice in one of them, "a first half of them has one that holds, or it has none and
the second half has one" says the same, and the two exclude each other. What "none holds" is follows from De Morgan's
laws, and mentions no variable twice either. So such formulas, read-once ones, become circuits of the same size, whose
height is its logarithm.
"""

from __future__ import annotations

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph, NodeLists
from derivable.core.and_or import AND, LITERAL, OR

# Disjunctions of so many alternatives become decisions also where an SDD is compiled of what is above them.
WIDE = 16
_HOLDS, _FAILS = 1, 2


def read_once(graph: AndOrGraph, nodes: np.ndarray, sizes: np.ndarray, is_independent: np.ndarray) -> np.ndarray:
    """Which of these nodes mention no variable twice, and no dependent one: [node of the graph] bool.

    nodes           ascending, and all that is below them
    sizes           [node] how many choices it depends on, -1 if that is not known
    is_independent  [variable] bool: variable v + 1 depends on no other
    """
    found = np.zeros(graph.num_nodes, bool)
    literals = nodes[graph.kind[nodes] == LITERAL]
    found[literals] = is_independent[np.abs(graph.literal[literals].astype(np.int64)) - 1]
    inner = nodes[graph.kind[nodes] >= AND]
    position, children = graph.children_of(inner)
    # The sets of the children are disjoint if their sizes add up to that of their union.
    apart = np.bincount(position, weights=sizes[children], minlength=len(inner)) == sizes[inner]
    for node in inner[apart].tolist():
        found[node] = found[graph.children[graph.offsets[node] : graph.offsets[node + 1]]].all()
    return found


def decided(graph: AndOrGraph, chosen: np.ndarray) -> tuple[AndOrGraph, np.ndarray]:
    """The graph with decisions in place of some disjunctions, and the disjunctions in it that are made.

    graph   children before parents, without negations
    chosen  read-once disjunctions, ascending
    """
    nodes = np.flatnonzero(graph.with_roots(chosen).needed())
    kinds, literals = graph.kind[nodes].tolist(), graph.literal[nodes].tolist()
    place = np.full(graph.num_nodes, -1, np.int64)
    place[nodes] = np.arange(len(nodes))
    rows = [place[graph.children[graph.offsets[n] : graph.offsets[n + 1]]].tolist() for n in nodes.tolist()]
    wanted = [0] * len(nodes)
    for node in place[chosen].tolist():
        wanted[node] = _HOLDS
    for node in reversed(range(len(nodes))):
        # Of all children but the last it matters both ways whether they hold, or fail.
        both = _HOLDS if kinds[node] == OR else _FAILS
        for child in rows[node]:
            wanted[child] |= wanted[node]
        if wanted[node] & both:
            for child in rows[node][:-1]:
                wanted[child] |= _HOLDS | _FAILS
    made = _Made()
    holds, fails = [-1] * len(nodes), [-1] * len(nodes)
    for node, (kind, literal, row) in enumerate(zip(kinds, literals, rows)):
        if kind == LITERAL:
            holds[node], fails[node] = made.add(LITERAL, [], literal), made.add(LITERAL, [], -literal)
            continue
        # A disjunction holds, and a conjunction fails, as soon as one of the children does.
        way, some, every = (_HOLDS, holds, fails) if kind == OR else (_FAILS, fails, holds)
        if wanted[node] & way:
            some[node] = made.one_of([(some[child], every[child]) for child in row])
        if wanted[node] & ~way:
            every[node] = made.add(AND, [every[child] for child in row])
    by = np.array([holds[node] for node in place[chosen].tolist()], np.int64)
    return graph.substituted(chosen, by, [made.graph()]), np.array(made.decisions, np.int64)


class _Made(NodeLists):
    """`decisions` are the disjunctions that `one_of` made."""

    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[int] = []

    def one_of(self, parts: list[tuple[int, int]]) -> int:
        """The disjunction of independent parts, each given as (it holds, it fails); the last may have no second."""
        while len(parts) > 1:
            halves = []
            for (first, none), (second, neither) in zip(parts[::2], parts[1::2]):
                either = self.add(OR, [first, self.add(AND, [none, second])])
                self.decisions.append(either)
                halves.append((either, neither if neither < 0 else self.add(AND, [none, neither])))
            parts = halves + parts[len(parts) - len(parts) % 2 :]
        return parts[0][0]
