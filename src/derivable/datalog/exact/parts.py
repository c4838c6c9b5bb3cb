"""The derivations of each sample of a batch by themselves: graphs with nodes and random facts of their own numbers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from derivable.circuit.graph.and_or_graph import AndOrGraph
from derivable.circuit.kernels.and_or import parts_below
from derivable.core.and_or import LITERAL
from derivable.core.graph import offsets_of
from derivable.datalog.tables.tag_columns import within


@dataclass(frozen=True, eq=False)
class Parts:
    """Graphs one after the other.

    graph             of all parts: nodes and children have numbers within their part, literals are those of variables
                      within their part (from 1), roots are nodes within their part
    starts            [part + 1] where the nodes of each begin
    root_offsets      [part + 1] where its roots begin
    variables         [slot] the random fact of each variable of each part
    variable_offsets  [part + 1] where its variables begin
    groups            [slot] the number of its group in the part, -1 if it is independent
    """

    graph: AndOrGraph
    starts: np.ndarray
    root_offsets: np.ndarray
    variables: np.ndarray
    variable_offsets: np.ndarray
    groups: np.ndarray

    @staticmethod
    def of(graph: AndOrGraph, root_offsets: np.ndarray, group_of: np.ndarray, whole: bool) -> Parts:
        """The parts of an ordered graph without signed nodes, one for each run of its roots.

        group_of  [variable] the group of each random fact, -1 if it is independent
        whole     whether a part has all random facts of a group of which it mentions one
        """
        nodes, starts = parts_below(graph.offsets, graph.children, graph.roots, root_offsets)
        number = len(starts) - 1
        part = np.repeat(np.arange(number), np.diff(starts))
        size = graph.num_nodes
        keys = part * size + nodes
        position, children = graph.children_of(nodes)
        local = np.searchsorted(keys, part[position] * size + children) - starts[part[position]]
        root_part = np.repeat(np.arange(number), np.diff(root_offsets))
        roots = np.searchsorted(keys, root_part * size + graph.roots) - starts[root_part]
        kind, literal = graph.kind[nodes], graph.literal[nodes].astype(np.int64)
        leaf = np.flatnonzero(kind == LITERAL)
        count = len(group_of)
        pairs = part[leaf] * count + np.abs(literal[leaf]) - 1
        slots = np.unique(pairs)
        if whole and (group_of >= 0).any():
            slots = np.unique(np.concatenate([slots, _mates(slots, group_of)]))
        slot_part, variables = slots // max(count, 1), slots % max(count, 1)
        variable_offsets = np.searchsorted(slot_part, np.arange(number + 1))
        numbers = np.searchsorted(slots, pairs) - variable_offsets[part[leaf]] + 1
        numbered = np.zeros(len(nodes), np.int32)
        numbered[leaf] = np.where(literal[leaf] < 0, -numbers, numbers)
        groups = numbered_groups(slot_part, group_of[variables])
        made = AndOrGraph(kind, numbered, offsets_of(graph.sizes[nodes]), local.astype(np.int64), roots)
        return Parts(made, starts, root_offsets, variables, variable_offsets, groups)

    def part(self, number: int) -> tuple[AndOrGraph, np.ndarray]:
        """The graph of a part, and the group [variable] of each of its variables."""
        graph = self.graph
        first, last = self.starts[number : number + 2]
        edges = graph.offsets[first : last + 1]
        one = AndOrGraph(
            graph.kind[first:last],
            graph.literal[first:last],
            edges - edges[0],
            graph.children[edges[0] : edges[-1]],
            graph.roots[self.root_offsets[number] : self.root_offsets[number + 1]],
        )
        return one, self.groups[self.variable_offsets[number] : self.variable_offsets[number + 1]]

    def key(self, number: int) -> Hashable:
        """What parts of the same structure have in common."""
        graph, groups = self.part(number)
        return tuple(array.tobytes() for array in (*graph.arrays, groups))


def _mates(slots: np.ndarray, group_of: np.ndarray) -> np.ndarray:
    """The random facts, with their parts as in `slots`, of the groups of which there is one."""
    count = len(group_of)
    order = np.argsort(group_of, kind="stable")
    group = group_of[slots % count]
    chosen = np.unique(np.stack([slots // count, group], axis=1)[group >= 0], axis=0)
    starts = np.searchsorted(group_of[order], chosen[:, 1])
    sizes = np.searchsorted(group_of[order], chosen[:, 1], "right") - starts
    return np.repeat(chosen[:, 0], sizes) * count + order[np.repeat(starts, sizes) + within(sizes)]


def numbered_groups(part: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[slot] groups by numbers within their parts, which ascend; -1 stays."""
    numbers = np.full(len(group), -1, np.int64)
    some = np.flatnonzero(group >= 0)
    if len(some):
        distinct, where = np.unique(np.stack([part[some], group[some]], axis=1), axis=0, return_inverse=True)
        numbers[some] = where.reshape(-1) - np.searchsorted(distinct[:, 0], part[some])
    return numbers
