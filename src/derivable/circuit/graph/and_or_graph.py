"""The and-or graph in flat arrays: ground derivations, formulas, what compilers take and give, and circuits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from derivable.core.and_or import AND, KIND_NAMES, LITERAL, OR, TRUE
from derivable.core.graph import offsets_of, ranges, strongly_connected_components


def plain(signed: np.ndarray) -> np.ndarray:
    """The nodes of signed nodes."""
    return np.maximum(signed, ~signed)


def renumbered(signed: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Signed nodes by other numbers, `new` [node]."""
    # All bits of the mark of a negation are one.
    mark = signed >> (8 * signed.dtype.itemsize - 1)
    return new[signed ^ mark] ^ mark


class NodeLists:
    """Nodes of a graph under construction, children before parents: kinds, literals and children of each."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.literals: list[int] = []
        self.rows: list[Sequence[int]] = []

    def add(self, kind: int, row: Sequence[int] = (), literal: int = 0) -> int:
        """The number of a new node."""
        self.kinds.append(kind)
        self.literals.append(literal)
        self.rows.append(row)
        return len(self.kinds) - 1

    def graph(self, roots: Sequence[int] = ()) -> AndOrGraph:
        return AndOrGraph.of(self.kinds, self.literals, self.rows, roots)


@dataclass(frozen=True, eq=False)
class AndOrGraph:
    """Nodes of the kinds in `core.and_or`, in any order, with cycles, repeats and nodes of one child allowed.

    kind      [node] uint8
    literal   [node] int32: the signed variable of a literal (DIMACS), 0 elsewhere
    offsets   [node + 1] int64: node n's children are children[offsets[n]:offsets[n + 1]]
    children  [edge] int64 or int32: nodes; ~n is the negation of node n
    roots     [root] int64, signed as children are

    A cycle means the least fixpoint, so no negation may be in it. Printed form, one row per node:

        0 = x1
        1 = and 0 ~2  root 0
        2 = or 1 0
    """

    kind: np.ndarray
    literal: np.ndarray
    offsets: np.ndarray
    children: np.ndarray
    roots: np.ndarray

    @staticmethod
    def of(
        kind: Sequence[int], literal: Sequence[int], rows: Sequence[Sequence[int]], roots: Sequence[int]
    ) -> AndOrGraph:
        """The graph of lists with an entry for each node; rows [node] are its children."""
        children = np.array([child for row in rows for child in row], np.int64)
        offsets = offsets_of([len(row) for row in rows])
        return AndOrGraph(
            np.array(kind, np.uint8), np.array(literal, np.int32), offsets, children, np.array(roots, np.int64)
        )

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(kind, literal, offsets, children, roots)"""
        return self.kind, self.literal, self.offsets, self.children, self.roots

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, leaves included."""
        return len(self.kind)

    @property
    def num_edges(self) -> int:
        """How many children all nodes have together."""
        return len(self.children)

    @property
    def num_roots(self) -> int:
        """How many roots there are."""
        return len(self.roots)

    @property
    def sizes(self) -> np.ndarray:
        """[node] int64: how many children a node has"""
        return np.diff(self.offsets)

    @property
    def parents(self) -> np.ndarray:
        """[edge] int64: the node whose child it is"""
        return np.repeat(np.arange(self.num_nodes), self.sizes)

    @property
    def is_ordered(self) -> bool:
        """Whether all children come before their parents."""
        return bool((plain(self.children) < self.parents).all())

    def children_of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in `nodes` [edge], signed child [edge])"""
        sizes = self.offsets[nodes + 1] - self.offsets[nodes]
        edges = ranges(self.offsets[nodes], sizes)
        return np.repeat(np.arange(len(nodes)), sizes), self.children[edges]

    def with_roots(self, roots: np.ndarray) -> AndOrGraph:
        return AndOrGraph(*self.arrays[:4], np.asarray(roots, np.int64))

    def needed(self) -> np.ndarray:
        """[node] bool: what the roots are made of, themselves included"""
        from derivable.circuit.kernels.and_or import reachable

        return reachable(self.offsets, self.children, self.roots)

    def trimmed(self) -> AndOrGraph:
        """What the roots need. Nodes 0 and 1 stay the constants."""
        needed = self.needed()
        needed[:2] = True
        return self.taken(np.flatnonzero(needed))

    def taken(self, nodes: np.ndarray) -> AndOrGraph:
        """Only these nodes, in this order; the children of all of them and the roots are among them."""
        new = np.full(self.num_nodes, -1, np.int64)
        new[nodes] = np.arange(len(nodes))
        _, children = self.children_of(nodes)
        offsets = offsets_of(self.sizes[nodes])
        kind, literal = self.kind[nodes], self.literal[nodes]
        return AndOrGraph(kind, literal, offsets, renumbered(children, new), renumbered(self.roots, new))

    def with_kinds(self, kind: np.ndarray) -> AndOrGraph:
        """With other kinds [node]: constants in place of some nodes, whose children do not matter any more."""
        literal = np.where(kind == LITERAL, self.literal, 0)
        return AndOrGraph(kind.astype(np.uint8), literal, self.offsets, self.children, self.roots)

    def kept(self, edges: np.ndarray) -> AndOrGraph:
        """Without the edges that are not marked, [edge] bool."""
        sizes = np.bincount(self.parents[edges], minlength=self.num_nodes)
        return AndOrGraph(self.kind, self.literal, offsets_of(sizes), self.children[edges], self.roots)

    def ordered(self) -> AndOrGraph:
        """The same acyclic graph with children before parents."""
        from derivable.circuit.kernels.and_or import components

        if self.is_ordered:
            return self
        return self.taken(np.argsort(components(self.offsets, self.children)[0], kind="stable"))

    def substituted(self, nodes: np.ndarray, by: np.ndarray, parts: Sequence[AndOrGraph]) -> AndOrGraph:
        """The nodes of all `parts`, then this graph's, where each of `nodes` (ascending) stands for one of the former.

        by  [replaced node]: a node of the parts, numbered as in the result. There are no negations.
        """
        start = sum(part.num_nodes for part in parts)
        stays = np.ones(self.num_nodes, bool)
        stays[nodes] = False
        sizes = np.where(stays, self.sizes, 0)
        children = self.children[stays[self.parents]].astype(np.int64) + start
        children = np.insert(children, offsets_of(sizes)[nodes], by)
        sizes[nodes] = 1
        bases = offsets_of([part.num_nodes for part in parts])
        return AndOrGraph(
            np.concatenate([*(part.kind for part in parts), np.where(stays, self.kind, OR)]).astype(np.uint8),
            np.concatenate([*(part.literal for part in parts), np.where(stays, self.literal, 0)]),
            offsets_of(np.concatenate([*(part.sizes for part in parts), sizes])),
            np.concatenate([*(part.children.astype(np.int64) + base for part, base in zip(parts, bases)), children]),
            self.roots + start,
        )

    def rows(self, names: Sequence[str] | None = None, shown: Sequence[int] | None = None) -> list[str]:
        """Rows of the printed form: of all nodes, or of those that are shown."""
        roots: dict[int, list[str]] = {}
        for position, root in enumerate(self.roots.tolist()):
            sign = "~" if root < 0 else ""
            roots.setdefault(max(root, ~root), []).append(f"  {sign}root {position}")
        rows = []
        for node in range(self.num_nodes) if shown is None else shown:
            kind, number = int(self.kind[node]), int(self.literal[node])
            text = KIND_NAMES[kind]
            if kind == LITERAL:
                text = ("" if number > 0 else "~") + (names[abs(number) - 1] if names else f"x{abs(number)}")
            for child in self.children[self.offsets[node] : self.offsets[node + 1]].tolist():
                text += f" {child}" if child >= 0 else f" ~{~child}"
            rows.append(f"{node} = {text}{''.join(roots.get(node, []))}")
        return rows

    def text(self) -> str:
        """The printed form, a line for each node."""
        return "\n".join(self.rows())

    def check(self) -> None:
        """Raise LayoutError at the first array that does not fit; the validator run between passes in tests."""
        from derivable.circuit.graph.validate import validate_graph

        validate_graph(self)

    def truth(self, worlds: Any) -> np.ndarray:
        """Values of the roots [root, world] in worlds [world, variable] bool: slow, obvious, what a graph means."""
        worlds = np.asarray(worlds, bool)
        component, count = strongly_connected_components(self.offsets, plain(self.children))
        values = np.zeros((self.num_nodes, len(worlds)), bool)
        for number in range(count - 1, -1, -1):
            members = np.flatnonzero(component == number)
            for node in np.tile(members, len(members)):
                row = self.children[self.offsets[node] : self.offsets[node + 1]]
                parts = values[plain(row)] ^ (row < 0)[:, None]
                kind, literal = self.kind[node], self.literal[node]
                if kind == LITERAL:
                    values[node] = worlds[:, abs(literal) - 1] == (literal > 0)
                else:
                    values[node] = parts.all(0) if kind == AND else parts.any(0) if kind == OR else kind == TRUE
        return values[plain(self.roots)] ^ (self.roots < 0)[:, None]
