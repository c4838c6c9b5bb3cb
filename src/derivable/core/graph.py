"""Graph algorithms on flat arrays: strongly connected components, topological levels, cycles.

A graph is `offsets` [node + 1] and `targets` [edge]: the edges of node n go to
targets[offsets[n]:offsets[n + 1]]. Everything here is iterative, so a path of a million nodes is fine,
and takes time linear in nodes and edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from derivable.core.diagnostics import LayoutError


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
    order = np.argsort(sources, kind="stable")
    offsets = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(sources, minlength=num_nodes), out=offsets[1:])
    return offsets, targets[order]


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


def number_components(starts, edges, index, low, component, stack, path, next_edge) -> int:
    """Tarjan's algorithm: fills component [node] with numbers in which targets come first; returns how many.

    All but `starts` and `edges` are [node] scratch; index and component start as -1. Runs on lists here and
    is compiled for arrays in `device.cpu.derivations`.
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


def topological_levels(offsets: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The height of every node, [node] int64: 0 without edges, else one more than its highest target.

    Raises LayoutError naming a cycle, if there is one.
    """
    starts, edges = np.asarray(offsets).tolist(), np.asarray(targets).tolist()
    num_nodes = len(starts) - 1
    reverse_offsets, users = from_edges(num_nodes, edges, np.repeat(np.arange(num_nodes), np.diff(offsets)))
    back, users = reverse_offsets.tolist(), users.tolist()
    waiting = [starts[node + 1] - starts[node] for node in range(num_nodes)]
    height = [0] * num_nodes
    ready = [node for node in range(num_nodes) if not waiting[node]]
    for node in ready:  # grows while it is walked
        above = height[node] + 1
        for user in users[back[node] : back[node + 1]]:
            if height[user] < above:
                height[user] = above
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(ready) < num_nodes:
        cycle = find_cycle(offsets, targets) or []
        shown = cycle if len(cycle) <= 12 else [*cycle[:10], "...", cycle[-1]]
        raise LayoutError(
            f"the graph has a cycle of {len(cycle)} nodes: {' -> '.join(map(str, [*shown, cycle[0]]))}",
            hint="remove one of these edges",
        )
    return np.array(height, np.int64).reshape(num_nodes)


def find_cycle(offsets: np.ndarray, targets: np.ndarray) -> list[int] | None:
    """The nodes of some cycle in order (the last has an edge to the first), or None."""
    starts, edges = np.asarray(offsets).tolist(), np.asarray(targets).tolist()
    num_nodes = len(starts) - 1
    state = [0] * num_nodes  # 0 new, 1 on the path, 2 done
    next_edge = starts[:num_nodes]
    for root in range(num_nodes):
        if state[root]:
            continue
        path = [root]
        state[root] = 1
        while path:
            node = path[-1]
            edge = next_edge[node]
            if edge == starts[node + 1]:
                state[node] = 2
                path.pop()
                continue
            next_edge[node] = edge + 1
            target = edges[edge]
            if state[target] == 1:
                return path[path.index(target) :]
            if not state[target]:
                state[target] = 1
                path.append(target)
    return None


def reachable(offsets: np.ndarray, targets: np.ndarray, roots: Iterable[int]) -> np.ndarray:
    """Whether each node can be reached from `roots`, [node] bool; roots reach themselves."""
    starts, edges = np.asarray(offsets).tolist(), np.asarray(targets).tolist()
    seen = [False] * (len(starts) - 1)
    stack = []
    for root in roots:
        if not 0 <= root < len(seen):
            raise LayoutError(f"the root {root} is not one of {len(seen)} nodes")
        if not seen[root]:
            seen[root] = True
            stack.append(root)
    while stack:
        node = stack.pop()
        for target in edges[starts[node] : starts[node + 1]]:
            if not seen[target]:
                seen[target] = True
                stack.append(target)
    return np.array(seen, bool).reshape(-1)
