"""Variable trees (vtrees) for SDDs from an elimination order of the formula's interaction graph.

The tree puts variable v above the variables that v's elimination connected to it, as the buckets of
bucket elimination do; so an SDD that follows it is small when the treewidth is.
Source: the order is minimum degree (Rose 1970); SDDs bounded by treewidth: Darwiche 2011, section 6.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np

from derivable.circuit.graph.vtree import Vtree


class _Growing:
    """A vtree from the leaves up: children before parents, the root last."""

    def __init__(self) -> None:
        self.variable: list[int] = []
        self.left: list[int] = []
        self.right: list[int] = []
        self.size: list[int] = []

    def leaf(self, variable: int) -> int:
        return self._add(variable, -1, -1, 1)

    def inner(self, left: int, right: int) -> int:
        return self._add(0, left, right, self.size[left] + self.size[right])

    def _add(self, variable: int, left: int, right: int, size: int) -> int:
        self.variable.append(variable)
        self.left.append(left)
        self.right.append(right)
        self.size.append(size)
        return len(self.variable) - 1

    def join(self, trees: Iterable[int]) -> int:
        """One tree of several, the smallest joined first (Huffman), so that the depth stays near the optimum."""
        heap = [(self.size[tree], tree) for tree in trees]
        heapq.heapify(heap)
        while len(heap) > 1:
            (_, first), (_, second) = heapq.heappop(heap), heapq.heappop(heap)
            joined = self.inner(first, second)
            heapq.heappush(heap, (self.size[joined], joined))
        return heap[0][1]

    def chain(self, variables: Sequence[int]) -> int:
        """Right-linear over variables in this order."""
        tree = self.leaf(variables[-1])
        for variable in reversed(variables[:-1]):
            tree = self.inner(self.leaf(variable), tree)
        return tree

    def vtree(self) -> Vtree:
        left, right, variable = (np.array(column, np.int32) for column in (self.left, self.right, self.variable))
        return Vtree(left, right, variable, len(variable) - 1)


def elimination_tree(num_points: int, edges: Iterable[Iterable[int]]) -> tuple[list[int], list[int]]:
    """Eliminate points 0..num_points - 1 by minimum degree, ties by number.

    edges    hyperedges: points that occur together
    returns  the order, and for each point the first later one it was connected to when eliminated (-1: none)
    """
    near: list[set[int]] = [set() for _ in range(num_points)]
    for edge in edges:
        points = set(edge)
        for point in points:
            near[point] |= points
    for point in range(num_points):
        near[point].discard(point)
    heap = [(len(near[point]), point) for point in range(num_points)]
    heapq.heapify(heap)
    gone = [False] * num_points
    order: list[int] = []
    bags: list[set[int]] = [set()] * num_points
    while heap:
        degree, point = heapq.heappop(heap)
        if gone[point] or degree != len(near[point]):
            continue
        gone[point] = True
        order.append(point)
        bag = near[point]
        bags[point] = bag
        for other in bag:
            row = near[other]
            row |= bag
            row.discard(other)
            row.discard(point)
            heapq.heappush(heap, (len(row), other))
    position = [0] * num_points
    for rank, point in enumerate(order):
        position[point] = rank
    return order, [min(bags[point], key=position.__getitem__) if bags[point] else -1 for point in range(num_points)]


def elimination_vtree(blocks: Sequence[Sequence[int]], edges: Iterable[Iterable[int]], num_extra: int = 0) -> Vtree:
    """A vtree from a minimum-degree elimination of blocks of variables; children before parents, the root last.

    blocks     [block] the variables of each block, which stay adjacent; at least one block, none empty
    edges      hyperedges over blocks 0..len(blocks) - 1 and extra points len(blocks)..
    num_extra  extra points: they shape the elimination (gates of a formula, say) and have no leaf
    """
    order, above = elimination_tree(len(blocks) + num_extra, edges)
    growing = _Growing()
    below: list[list[int]] = [[] for _ in order]
    loose: list[int] = []
    for point in order:
        subtrees = below[point]
        tree = growing.join(subtrees) if subtrees else -1
        if point < len(blocks):
            if tree < 0:
                tree = growing.chain(blocks[point])
            else:
                for variable in reversed(blocks[point]):
                    tree = growing.inner(growing.leaf(variable), tree)
        if tree >= 0:
            (below[above[point]] if above[point] >= 0 else loose).append(tree)
    growing.join(loose)
    return growing.vtree()


def projection_vtree(num_variables: int, clauses: Iterable[Sequence[int]], shown: Iterable[int]) -> Vtree:
    """A vtree whose right spine has the shown variables, from 1, and below them all others, each in elimination order.

    What is below the shown variables only says whether there is a model, so an SDD stays deterministic without it.
    """
    wanted = set(shown)
    order, _ = elimination_tree(num_variables, ([abs(literal) - 1 for literal in clause] for clause in clauses))
    down = [point + 1 for point in reversed(order)]
    growing = _Growing()
    growing.chain([v for v in down if v in wanted] + [v for v in down if v not in wanted])
    return growing.vtree()


def balanced_vtree(order: Sequence[int]) -> Vtree:
    """A balanced vtree with the variables in this order from left to right; children before parents."""
    growing = _Growing()
    trees = [growing.leaf(variable) for variable in order]
    while len(trees) > 1:
        trees = [growing.inner(*trees[i : i + 2]) if i + 1 < len(trees) else trees[i] for i in range(0, len(trees), 2)]
    return growing.vtree()
