"""Graphs in flat arrays, and their strongly connected components.

A graph is `offsets` [node + 1] and `targets` [edge]: the edges of node n go to
targets[offsets[n]:offsets[n + 1]]. Everything here is iterative, so a path of a million nodes is fine,
and takes time linear in nodes and edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from derivable.core.diagnostics import LayoutError


def offsets_of(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """[node + 1] int64: where the edges of each node start, for sizes [node]."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(np.asarray(sizes, np.int64), out=offsets[1:])
    return offsets


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers start..start + size of each range, one range after the other."""
    offsets = offsets_of(sizes)
    return np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])


def from_edges(num_nodes: int, sources: Sequence[int] | np.ndarray, targets: Sequence[int] | np.ndarray):
    """(offsets, targets) of a graph given as pairs; the order of a node's edges is that of the pairs.

    Raises LayoutError with the first edge whose end is not in range(num_nodes).
    """
    sources = np.asarray(sources, np.int64).reshape(-1)
    targets = np.asarray(targets, np.int64).reshape(-1)
    if len(sources) != len(targets):
        raise LayoutError(f"{len(sources)} sources and {len(targets)} targets of edges are given")
    bad = np.flatnonzero((sources < 0) | (sources >= num_nodes) | (targets < 0) | (targets >= num_nodes))
    if len(bad):
        edge = int(bad[0])
        raise LayoutError(f"edge {edge} ({sources[edge]} -> {targets[edge]}) leaves the graph of {num_nodes} nodes")
    return offsets_of(np.bincount(sources, minlength=num_nodes)), targets[np.argsort(sources, kind="stable")]


def strongly_connected_components(offsets: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """(component [node] int64, number of components), numbered topologically.

    An edge between different components goes from a lower to a higher number; so with edges from what is
    needed to what needs it, components in ascending order can be computed one after the other. Two
    nodes share a component if each reaches the other. Source: Tarjan 1972, with an explicit stack.
    """
    num_nodes = len(offsets) - 1
    index, low, component, stack, path, next_edge = ([-1] * num_nodes for _ in range(6))
    starts, edges = np.asarray(offsets).tolist(), np.asarray(targets).tolist()
    found = number_components(starts, edges, index, low, component, stack, path, next_edge)
    # Tarjan finishes the last components first.
    return found - 1 - np.array(component, np.int64).reshape(num_nodes), found


def connected_components(num_nodes: int, edges: Iterable[tuple[int, int]]) -> np.ndarray:
    """[node] int64: the least node that edges, taken in both directions, connect with it. By union-find."""
    least = list(range(num_nodes))

    def find(node: int) -> int:
        while least[node] != node:
            least[node] = node = least[least[node]]
        return node

    for source, target in edges:
        source, target = find(source), find(target)
        least[max(source, target)] = min(source, target)
    return np.array([find(node) for node in range(num_nodes)], np.int64)


def number_components(starts, edges, index, low, component, stack, path, next_edge) -> int:
    """Tarjan's algorithm: fills component [node] with numbers in which targets come first; returns how many.

    All but `starts` and `edges` are [node] scratch; index and component start as -1. Runs on lists here and
    is compiled for arrays in `device.cpu.and_or`.
    """
    counter = 0
    found = 0
    top = 0
    for root in range(len(starts) - 1):
        if index[root] >= 0:
            continue
        depth = 0
        path[0] = root
        index[root] = low[root] = counter
        counter += 1
        next_edge[root] = starts[root]
        stack[top] = root
        top += 1
        while depth >= 0:
            node = path[depth]
            edge = next_edge[node]
            if edge < starts[node + 1]:
                next_edge[node] = edge + 1
                target = edges[edge]
                if index[target] < 0:
                    index[target] = low[target] = counter
                    counter += 1
                    next_edge[target] = starts[target]
                    stack[top] = target
                    top += 1
                    depth += 1
                    path[depth] = target
                elif component[target] < 0 and index[target] < low[node]:
                    low[node] = index[target]
            else:
                depth -= 1
                if depth >= 0 and low[node] < low[path[depth]]:
                    low[path[depth]] = low[node]
                if low[node] == index[node]:
                    while True:
                        top -= 1
                        member = stack[top]
                        component[member] = found
                        if member == node:
                            break
                    found += 1
    return found
