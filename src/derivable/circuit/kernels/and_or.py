"""Kernels of and-or graphs: certain nodes, components, reachability, heights, nodes of one child.

Graphs are kind [node], offsets [node + 1], children [edge] with `~n` for the negation of node n.
"""

from __future__ import annotations

import numpy as np

from derivable.core.and_or import AND, OR, TRUE
from derivable.core.graph import number_components
from derivable.device.cpu.built_kernels import kernel


@kernel("int32[] int64[] int32[]", "int64[] int64[] int32[]")
def _group(keys, starts, order):
    for key in keys:
        starts[key + 1] += 1
    for key in range(1, len(starts)):
        starts[key] += starts[key - 1]
    fill = starts.copy()
    for i in range(len(keys)):
        order[fill[keys[i]]] = i
        fill[keys[i]] += 1


def grouped(keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts [key + 1], order): the positions in `keys` (below `count`) of key k are order[starts[k]:starts[k + 1]],
    ascending."""
    starts, order = np.zeros(count + 1, np.int64), np.empty(len(keys), np.int32)
    _group(keys, starts, order)
    return starts, order


@kernel(
    "uint8[] int64[] int64[] int32[] int64[] int64[] bool[]",
    "uint8[] int64[] int64[] int64[] int64[] int64[] bool[]",
)
def _certain(kind, offsets, parent_offsets, parents, waiting, queue, certain):
    count = 0
    for n in range(len(kind)):
        waiting[n] = offsets[n + 1] - offsets[n]
        if kind[n] == TRUE or (kind[n] == AND and waiting[n] == 0):
            certain[n] = True
            queue[count] = n
            count += 1
    done = 0
    while done < count:
        n = queue[done]
        done += 1
        for e in range(parent_offsets[n], parent_offsets[n + 1]):
            p = parents[e]
            if certain[p]:
                continue
            waiting[p] -= 1
            if kind[p] == OR or waiting[p] == 0:
                certain[p] = True
                queue[count] = p
                count += 1
    return count


def children_first(offsets: np.ndarray, parent_offsets: np.ndarray, parents: np.ndarray) -> tuple:
    """(nodes with children before parents, mask [node] of these): all but what has a cycle below (Kahn's algorithm)."""
    size = len(offsets) - 1
    found, scratch = np.zeros(size, dtype=np.bool_), np.empty((2, size), dtype=np.int64)
    conjunctions = np.full(size, AND, np.uint8)  # certain once all of their children are
    count = _certain(conjunctions, offsets, parent_offsets, parents, scratch[0], scratch[1], found)
    return scratch[1, :count], found


def certain_nodes(kind: np.ndarray, offsets: np.ndarray, children: np.ndarray) -> np.ndarray:
    """Mask [node]: true in every world, as far as unit propagation shows (linear time)."""
    size = len(kind)
    owner = np.repeat(np.arange(size, dtype=np.int64), np.diff(offsets))
    positive = children >= 0
    parent_offsets, order = grouped(children[positive], size)
    parents = owner[positive][order]
    certain = np.zeros(size, dtype=np.bool_)
    scratch = np.empty((2, size), dtype=np.int64)
    _certain(kind, offsets, parent_offsets, parents, scratch[0], scratch[1], certain)
    return certain


@kernel("int64[] int32[] int64[] int64 bool[]", "int64[] int64[] int64[] int64 bool[]")
def _reach(offsets, children, stack, count, seen):
    while count > 0:
        count -= 1
        n = stack[count]
        for e in range(offsets[n], offsets[n + 1]):
            c = children[e]
            if c < 0:
                c = ~c
            if not seen[c]:
                seen[c] = True
                stack[count] = c
                count += 1


def reachable(offsets: np.ndarray, children: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Mask [node] of the nodes reachable from signed roots."""
    size = len(offsets) - 1
    seen = np.zeros(size, dtype=np.bool_)
    seen[np.where(roots < 0, ~roots, roots)] = True
    starts = np.flatnonzero(seen)
    stack = np.empty(size + 1, dtype=np.int64)
    stack[: len(starts)] = starts
    _reach(offsets, children, stack, len(starts), seen)
    return seen


@kernel("int64[] int64[] int64[] int64[] int64[] int64[] int64[] int64[]")
def _reach_parts(offsets, children, roots, root_offsets, mark, stack, found, starts):
    """Fills starts [part + 1], and, if it is long enough, found: the nodes that the roots of each part are made of.

    mark  [node] the last part that has come to a node, -1
    """
    total = 0
    for part in range(len(root_offsets) - 1):
        count = 0
        for place in range(root_offsets[part], root_offsets[part + 1]):
            n = roots[place]
            if mark[n] != part:
                mark[n] = part
                stack[count] = n
                count += 1
        while count > 0:
            count -= 1
            n = stack[count]
            if len(found) > 0:
                found[total] = n
            total += 1
            for e in range(offsets[n], offsets[n + 1]):
                c = children[e]
                if mark[c] != part:
                    mark[c] = part
                    stack[count] = c
                    count += 1
        starts[part + 1] = total


def parts_below(
    offsets: np.ndarray, children: np.ndarray, roots: np.ndarray, root_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(nodes, starts [part + 1]): for each run of roots the nodes that they are made of, ascending; a node may be in
    several. Children and roots have no negations."""
    size, starts = len(offsets) - 1, np.zeros(len(root_offsets), np.int64)
    mark, stack = np.full(size, -1, np.int64), np.empty(size + 1, np.int64)
    _reach_parts(offsets, children, roots, root_offsets, mark, stack, np.empty(0, np.int64), starts)
    found = np.empty(starts[-1], np.int64)
    mark[:] = -1
    _reach_parts(offsets, children, roots, root_offsets, mark, stack, found, starts)
    part = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return found[np.lexsort((found, part))], starts


_numbered = kernel(number_components)


@kernel("int64[] int64[] int64[] int64[] int64[] int64[] int64[] int64[]")
def numbered_components(offsets, nodes, index, low, component, stack, path, next_edge):
    return _numbered(offsets, nodes, index, low, component, stack, path, next_edge)


def components(offsets: np.ndarray, children: np.ndarray) -> tuple[np.ndarray, int]:
    """(component [node], number of them): strongly connected components, children's components first."""
    size = len(offsets) - 1
    index, low, component, stack, path, next_edge = np.full((6, size), -1, np.int64)
    nodes = np.where(children < 0, ~children, children)
    return component, int(numbered_components(offsets, nodes, index, low, component, stack, path, next_edge))


@kernel("int64[] int32[] int32[]", "int64[] int64[] int64[]")
def heights(offsets, children, height):
    """Fills height [node] of an ordered graph; a negation is a step of its own."""
    for n in range(len(height)):
        best = -1
        for e in range(offsets[n], offsets[n + 1]):
            c = children[e]
            best = max(best, height[c] if c >= 0 else height[~c] + 1)
        height[n] = best + 1


@kernel("uint8[] int64[] int64[] int64[] int64[] int64[]")
def representatives(kind, offsets, children, uses, alias, merged):
    """alias [node]: the child a node with one child stands for; merged [node]: the conjunction that takes it up."""
    size = len(kind)
    for n in range(size):
        alias[n] = n
        if kind[n] >= AND and offsets[n + 1] - offsets[n] == 1:
            alias[n] = alias[children[offsets[n]]]
    for n in range(size):
        merged[n] = n
        if alias[n] == n:
            for e in range(offsets[n], offsets[n + 1]):
                uses[alias[children[e]]] += 1
    for n in range(size - 1, -1, -1):
        if kind[n] == AND and alias[n] == n:
            for e in range(offsets[n], offsets[n + 1]):
                c = alias[children[e]]
                if kind[c] == AND and uses[c] == 1:
                    merged[c] = merged[n]
