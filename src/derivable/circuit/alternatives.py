"""Disjunctions of many independent alternatives, as decisions.

"One of a thousand facts holds" is not deterministic, and its SDD takes seconds to compile. But where the alternatives
are literals, or conjunctions of them, that share no variable, deciding their literals one after the other gives the
same function as a chain of the same size: an alternative whose literals are all true ends it, and at the first false
one the rest of the alternatives decides.
"""

from __future__ import annotations

import numpy as np

from derivable.circuit.and_or_graph import AndOrGraph
from derivable.core.and_or import AND, LITERAL, OR

WIDE = 16
# Elements of the sets of variables that the parts of all chains depend on; the prover keeps these sets.
MOST_ELEMENTS = 1 << 25


def decided(graph: AndOrGraph, is_independent: np.ndarray) -> AndOrGraph:
    """The graph with chains of decisions in place of wide disjunctions of independent alternatives.

    graph           children before parents, without negations
    is_independent  [variable] bool: variable v + 1 depends on no other
    """
    kind, offsets = graph.kind, graph.offsets
    wide = np.flatnonzero((kind == OR) & (graph.sizes >= WIDE))
    chains = _Chains()
    places: list[int] = []
    by: list[int] = []
    left = MOST_ELEMENTS
    for node in wide.tolist():
        alternatives = _alternatives(graph, graph.children[offsets[node] : offsets[node + 1]], is_independent)
        if alternatives is None:
            continue
        size = sum(map(len, alternatives))
        left -= size * size // 2
        if left < 0:
            break
        places.append(node)
        by.append(chains.add(alternatives))
    if not places:
        return graph
    return graph.substituted(np.array(places), np.array(by), [chains.graph()])


def _alternatives(graph: AndOrGraph, children: np.ndarray, is_independent: np.ndarray) -> list[list[int]] | None:
    """The literals of each alternative; None if they are anything else, or share a variable."""
    kinds = graph.kind[children]
    if not ((kinds == LITERAL) | (kinds == AND)).all():
        return None
    found = []
    for child, kind in zip(children.tolist(), kinds.tolist()):
        parts = [child] if kind == LITERAL else graph.children[graph.offsets[child] : graph.offsets[child + 1]]
        if (graph.kind[parts] != LITERAL).any():
            return None
        found.append(graph.literal[parts].tolist())
    variables = np.abs(np.array([literal for row in found for literal in row], np.int64))
    if len(np.unique(variables)) < len(variables) or not is_independent[variables - 1].all():
        return None
    return found


class _Chains:
    """Nodes under construction."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.literals: list[int] = []
        self.rows: list[list[int]] = []
        self.known: dict[int, int] = {}

    def node(self, kind: int, children: list[int], literal: int = 0) -> int:
        self.kinds.append(kind)
        self.literals.append(literal)
        self.rows.append(children)
        return len(self.kinds) - 1

    def literal(self, literal: int) -> int:
        if literal not in self.known:
            self.known[literal] = self.node(LITERAL, [], literal)
        return self.known[literal]

    def add(self, alternatives: list[list[int]]) -> int:
        """The node of their disjunction."""
        rest: int | None = None
        for literals in reversed(alternatives):
            here: int | None = None
            for literal in reversed(literals):
                holds = self.literal(literal)
                if here is not None:
                    holds = self.node(AND, [holds, here])
                here = holds
                if rest is not None:
                    here = self.node(OR, [holds, self.node(AND, [self.literal(-literal), rest])])
            assert here is not None
            rest = here
        assert rest is not None
        return rest

    def graph(self) -> AndOrGraph:
        return AndOrGraph.of(self.kinds, self.literals, self.rows, [])
