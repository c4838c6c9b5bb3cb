"""The ground derivation graph: which tuple follows from which others, as a signed AND/OR graph.

Nodes are numbered as they come; node 0 is false, node 1 true. A child is a node number, or `~number` for its
negation. A tuple is an OR of its derivations, a derivation an AND of the tuples it uses; in a recursive stratum the
graph has cycles, never through a negation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.kernels.and_or import certain_nodes
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.graph import offsets_of


def negate(ids: np.ndarray) -> np.ndarray:
    """Signed nodes of the negations; constants swap, double negation cancels."""
    return np.where((ids == FALSE) | (ids == TRUE), 1 - ids, ~ids)


class GroundGraph:
    """A growing graph; every method works on whole columns of nodes.

    semiring   whose laws may simplify: idempotent_times (a and a = a), idempotent_plus (a or a = a) and absorptive
               (true or a = true) hold for formulas, and not where derivations are counted
    recursive  the tuples of each recursive stratum, in order
    """

    def __init__(self, semiring: Semiring = boolean):
        self.semiring = semiring
        self.recursive: list[np.ndarray] = []
        self.size = 2
        self.kinds: list[np.ndarray] = [np.array([FALSE, TRUE], dtype=np.uint8)]
        self.literals: list[np.ndarray] = [np.zeros(2, dtype=np.int32)]
        self.edges: list[tuple[np.ndarray, np.ndarray]] = []
        self.literal_nodes = np.empty(0, dtype=np.int64)
        self.made_true: list[np.ndarray] = []

    def fork(self) -> GroundGraph:
        """The same graph, which grows separately."""
        made = GroundGraph(self.semiring)
        made.size, made.literal_nodes = self.size, self.literal_nodes.copy()
        made.kinds, made.literals, made.edges = [*self.kinds], [*self.literals], [*self.edges]
        made.recursive, made.made_true = [*self.recursive], [*self.made_true]
        return made

    def new_nodes(self, kind: int, count: int, literal: np.ndarray | None = None) -> np.ndarray:
        """Numbers of `count` new nodes."""
        self.kinds.append(np.full(count, kind, dtype=np.uint8))
        self.literals.append(np.zeros(count, dtype=np.int32) if literal is None else literal.astype(np.int32))
        self.size += count
        return np.arange(self.size - count, self.size, dtype=np.int64)

    def literals_of(self, variables: np.ndarray) -> np.ndarray:
        """Nodes [fact] of variables [fact] (0-based); -1 gives the true node."""
        top = int(variables.max(initial=-1)) + 1
        if top > len(self.literal_nodes):
            grown = np.full(top, -1, dtype=np.int64)
            grown[: len(self.literal_nodes)] = self.literal_nodes
            self.literal_nodes = grown
        wanted = np.unique(variables[variables >= 0])
        fresh = wanted[self.literal_nodes[wanted] < 0]
        self.literal_nodes[fresh] = self.new_nodes(LITERAL, len(fresh), fresh + 1)
        nodes = np.full(len(variables), TRUE, dtype=np.int64)
        random = variables >= 0
        nodes[random] = self.literal_nodes[variables[random]]
        return nodes

    def conjunction(self, factors: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Nodes [row] of the conjunction of factor columns; constants disappear, a single factor stays itself."""
        if not factors:
            return np.full(count, TRUE, dtype=np.int64)
        if len(factors) == 1:
            return factors[0]
        matrix = np.stack(factors, axis=1)
        matrix.sort(axis=1)
        used = matrix != TRUE
        if self.semiring.idempotent_times:
            used[:, 1:] &= matrix[:, 1:] != matrix[:, :-1]
        false = (matrix == FALSE).any(axis=1)
        number = used.sum(axis=1)
        first = used.argmax(axis=1)
        nodes = np.where(number == 0, TRUE, matrix[np.arange(count), first])
        nodes[false] = FALSE
        many = (number > 1) & ~false
        new = self.new_nodes(AND, int(many.sum()))
        nodes[many] = new
        chosen = used[many]
        self.edges.append((np.repeat(new, number[many]), matrix[many][chosen]))
        return nodes

    def disjunction_by(self, segments: np.ndarray, nodes: np.ndarray, count: int) -> np.ndarray:
        """Nodes [segment] of the disjunctions of the nodes that belong to each segment 0..count-1; none gives false."""
        return self.gates_by(OR, segments, nodes, count)

    def gates_by(
        self, kind: int, segments: np.ndarray, nodes: np.ndarray, count: int, known: dict | None = None
    ) -> np.ndarray:
        """Nodes [segment] of the AND or OR of the nodes that belong to each segment 0..count-1, simplified.

        known  the nodes that were made with it before, which are used again
        """
        neutral, absorbing = (TRUE, FALSE) if kind == AND else (FALSE, TRUE)
        laws = self.semiring
        order = np.lexsort((nodes, segments))
        segments, nodes = segments[order], nodes[order]
        keep = nodes != neutral
        if laws.idempotent_times if kind == AND else laws.idempotent_plus:
            keep[1:] &= (segments[1:] != segments[:-1]) | (nodes[1:] != nodes[:-1])
        segments, nodes = segments[keep], nodes[keep]
        number = np.bincount(segments, minlength=count)
        starts = offsets_of(number)
        result = np.full(count, neutral, dtype=np.int64)
        some = number > 0
        result[some] = nodes[starts[:-1][some]]
        absorbed = np.zeros(count, dtype=bool)
        if kind == AND or laws.absorptive:
            absorbed[segments[nodes == absorbing]] = True
        result[absorbed] = absorbing
        many = (number > 1) & ~absorbed
        if known is not None:
            fresh: list[int] = []
            for i in np.flatnonzero(many).tolist():
                key = kind, nodes[starts[i] : starts[i + 1]].tobytes()
                result[i] = known.setdefault(key, self.size + len(fresh))
                if result[i] == self.size + len(fresh):
                    fresh.append(i)
            many[:] = False
            many[fresh] = True
        result[many] = self.new_nodes(kind, int(many.sum()))
        chosen = many[segments]
        self.edges.append((result[segments[chosen]], nodes[chosen]))
        return result

    def close_cycles(self, tuples: np.ndarray, segments: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Give the OR nodes `tuples` their derivations: node j is one of tuple segments[j]. Returns the certain ones.

        The derivations may use the tuples themselves. A tuple is certain if it follows from certain ones alone.
        """
        self.edges.append((tuples[segments], nodes))
        self.recursive.append(tuples)
        if not (self.semiring.absorptive and self.semiring.idempotent_plus):
            return np.zeros(len(tuples), dtype=bool)
        graph = self.finish()
        mask = certain_nodes(graph.kind, graph.offsets, graph.children)[tuples]
        self.made_true.append(tuples[mask])
        return mask

    def finish(self) -> AndOrGraph:
        """The graph so far, without roots. Children come before parents where no cycle was closed."""
        kind, literal = np.concatenate(self.kinds), np.concatenate(self.literals)
        none = np.empty(0, np.int64)
        parents, children = map(np.concatenate, zip((none, none), *self.edges))
        if self.made_true:
            kind[np.concatenate(self.made_true)] = TRUE
            keep = kind[parents] != TRUE
            parents, children = parents[keep], children[keep]
        self.kinds, self.literals = [kind], [literal]
        offsets = offsets_of(np.bincount(parents, minlength=self.size))
        return AndOrGraph(kind, literal, offsets, children[np.argsort(parents, kind="stable")], none)
