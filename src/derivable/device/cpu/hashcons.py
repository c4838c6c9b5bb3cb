"""Numba kernels that hash-cons circuit nodes: insertion, and extraction of the nodes below some roots.

State of a growing circuit (arrays longer than what is used; `counts` says how much is):

    kind      [capacity] uint8    FALSE, TRUE, LITERAL, AND, OR = 0..4
    literal   [capacity] int32    signed variable of a literal, else 0
    height    [capacity] int32    0 for leaves
    offsets   [capacity + 1] int64
    children  [edge capacity] int32, in order of first mention, no repeats within a node
    hashes    [capacity] uint64
    mark      [capacity] int32    the stamp of the insertion that last mentioned the node
    table     [power of two] int32, node id + 1, 0 is free; open addressing, linear probing
    counts    [3] int64           nodes, edges, stamp

A node's hash is the sum of the mixed ids of its children, so it does not depend on their order (paper
000, equation 3, with the ids of already merged children in place of their Merkle hashes). Unlike the
paper, which assumes a perfect hash, a match of hashes is followed by a comparison of the two sets of
children: `mark` makes that linear in their number, without sorting. All loops are iterative and the
whole is linear, in expectation, in nodes plus edges.
"""

from __future__ import annotations

import numpy as np
from numba import njit

FALSE, TRUE, LITERAL, AND, OR = 0, 1, 2, 3, 4

# Return codes of `insert_nodes`.
OK, BAD_KIND, BAD_LITERAL, BAD_OFFSETS, BAD_CHILD = 0, 1, 2, 3, 4


@njit(cache=True, nogil=True, inline="always")
def mix(value):
    """Disperse the bits of a uint64 (the finaliser of splitmix64)."""
    value = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True)
def fill_table(hashes, num_nodes, table):
    """Enter nodes 2..num_nodes - 1 in an empty, larger table; they are known to differ.

    Nodes 0 and 1 are the constants, which are recognised by id and never looked up.
    """
    mask = np.uint64(len(table) - 1)
    for node in range(2, num_nodes):
        slot = hashes[node] & mask
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = node + 1


@njit(cache=True, nogil=True)
def insert_nodes(
    new_kind, new_literal, new_offsets, new_children, absolute,
    kind, literal, height, offsets, children, hashes, mark, table, counts, ids,
):  # fmt: skip
    """Insert nodes in the given order; ids[i] is where node i ended up.

    new_kind [node] uint8, new_literal [node] int32, new_offsets [node + 1] int64, new_children [edge] int32
    absolute  children are ids of the growing circuit; otherwise positions in these same arrays, each
              smaller than its parent's
    ids       [node] int64, written

    The state has room for all new nodes and edges, and the table is at most half full afterwards; it
    holds node 0 = FALSE and node 1 = TRUE. Returns (code, node, child): code is OK or says what is
    wrong with that node; nodes before it have been inserted.
    """
    num_nodes, num_edges, stamp = counts[0], counts[1], counts[2]
    mask = np.uint64(len(table) - 1)
    code, bad_node, bad_child = OK, 0, 0
    for node in range(len(new_kind)):
        this = new_kind[node]
        start = num_edges
        value = np.uint64(0)
        number = np.int32(0)
        top = np.int32(-1)
        if this <= TRUE:
            ids[node] = this
            continue
        if this == LITERAL:
            number = new_literal[node]
            if number == 0:
                code, bad_node = BAD_LITERAL, node
                break
            value = mix(np.uint64(np.int64(number)))
        elif this in (AND, OR):
            first, last = new_offsets[node], new_offsets[node + 1]
            if first < 0 or last < first or last > len(new_children):
                code, bad_node = BAD_OFFSETS, node
                break
            if stamp == 2147483647:
                mark[:num_nodes] = 0
                stamp = 0
            stamp += 1
            neutral = TRUE if this == AND else FALSE
            absorbed = False
            limit = num_nodes if absolute else node
            for edge in range(first, last):
                child = np.int64(new_children[edge])
                if child < 0 or child >= limit:
                    code, bad_node, bad_child = BAD_CHILD, node, child
                    break
                if not absolute:
                    child = ids[child]
                if child <= TRUE:
                    absorbed |= child != neutral
                elif mark[child] != stamp:
                    mark[child] = stamp
                    children[num_edges] = child
                    num_edges += 1
                    value += mix(np.uint64(child))
                    top = max(top, height[child])
            if code != OK:
                num_edges = start
                break
            size = num_edges - start
            if (
                size == 2
                and literal[children[start]] != 0
                and literal[children[start]] == -literal[children[start + 1]]
                and this == AND
            ):
                absorbed = True
            if absorbed or size < 2:
                num_edges = start
                if absorbed:
                    ids[node] = TRUE - neutral
                else:
                    ids[node] = neutral if size == 0 else children[start]
                continue
            value = mix(value + np.uint64(this))
        else:
            code, bad_node = BAD_KIND, node
            break
        slot = value & mask
        found = -1
        while table[slot] != 0:
            other = table[slot] - 1
            if hashes[other] == value and kind[other] == this:
                if this == LITERAL:
                    same = literal[other] == number
                else:
                    same = offsets[other + 1] - offsets[other] == num_edges - start
                    if same:
                        for edge in range(offsets[other], offsets[other + 1]):
                            if mark[children[edge]] != stamp:
                                same = False
                                break
                if same:
                    found = other
                    break
            slot = (slot + np.uint64(1)) & mask
        if found >= 0:
            num_edges = start
            ids[node] = found
            continue
        table[slot] = num_nodes + 1
        kind[num_nodes] = this
        literal[num_nodes] = number
        height[num_nodes] = top + 1
        hashes[num_nodes] = value
        mark[num_nodes] = 0
        ids[node] = num_nodes
        num_nodes += 1
        offsets[num_nodes] = num_edges
    counts[0], counts[1], counts[2] = num_nodes, num_edges, stamp
    return code, bad_node, bad_child


@njit(cache=True, nogil=True)
def mark_reachable(offsets, children, num_nodes, roots, position):
    """Set position[node] = 0 for the nodes below `roots`, -1 elsewhere; children have smaller ids than parents.

    Returns how many nodes and edges are reachable.
    """
    position[:num_nodes] = -1
    for root in roots:
        position[root] = 0
    nodes, edges = 0, 0
    for node in range(num_nodes - 1, -1, -1):
        if position[node] == 0:
            nodes += 1
            edges += offsets[node + 1] - offsets[node]
            for edge in range(offsets[node], offsets[node + 1]):
                position[children[edge]] = 0
    return nodes, edges


@njit(cache=True, nogil=True)
def order_by_height(kind, height, num_nodes, position, order):
    """Sort the reachable nodes by (height, kind, insertion): a counting sort.

    position  [node]: -1 for unreachable nodes
    order     [reachable node]: written, the old id of each new one
    returns   [level + 1] int64 level offsets, and where the literals start and end in `order`
    """
    top = -1
    for node in range(num_nodes):
        if position[node] >= 0 and height[node] > top:
            top = height[node]
    starts = np.zeros(5 * max(top + 1, 1) + 1, np.int64)
    for node in range(num_nodes):
        if position[node] >= 0:
            starts[5 * height[node] + kind[node] + 1] += 1
    for bucket in range(1, len(starts)):
        starts[bucket] += starts[bucket - 1]
    level_offsets = starts[: 5 * (top + 1) + 1 : 5].copy()
    for node in range(num_nodes):
        if position[node] >= 0:
            bucket = 5 * height[node] + kind[node]
            order[starts[bucket]] = node
            starts[bucket] += 1
    return level_offsets, starts[TRUE], starts[LITERAL]


@njit(cache=True, nogil=True)
def gather_nodes(kind, literal, offsets, children, position, order, out_kind, out_literal, out_offsets, out_children):
    """Copy the nodes in their new order, children renumbered and ascending within a node; position is overwritten."""
    for new in range(len(order)):
        position[order[new]] = new
    short = 16
    edge = 0
    wide_edges = 0
    for new in range(len(order)):
        old = order[new]
        out_kind[new] = kind[old]
        out_literal[new] = literal[old]
        out_offsets[new] = edge
        start = edge
        size = offsets[old + 1] - offsets[old]
        if size > short:
            wide_edges += size
        for source in range(offsets[old], offsets[old + 1]):
            child = np.int32(position[children[source]])
            spot = edge
            if size <= short:
                while spot > start and out_children[spot - 1] > child:
                    out_children[spot] = out_children[spot - 1]
                    spot -= 1
            out_children[spot] = child
            edge += 1
    out_offsets[len(order)] = edge
    if wide_edges == 0:
        return
    # Wide nodes: transpose their edges, then hand each child to its parents in ascending order: linear.
    starts = np.zeros(len(order) + 1, np.int64)
    for new in range(len(order)):
        if out_offsets[new + 1] - out_offsets[new] > short:
            for edge in range(out_offsets[new], out_offsets[new + 1]):
                starts[out_children[edge] + 1] += 1
    for new in range(len(order)):
        starts[new + 1] += starts[new]
    parents = np.empty(wide_edges, np.int32)
    fill = starts.copy()
    for new in range(len(order)):
        if out_offsets[new + 1] - out_offsets[new] > short:
            for edge in range(out_offsets[new], out_offsets[new + 1]):
                child = out_children[edge]
                parents[fill[child]] = new
                fill[child] += 1
    fill = out_offsets.copy()
    for child in range(len(order)):
        for i in range(starts[child], starts[child + 1]):
            out_children[fill[parents[i]]] = child
            fill[parents[i]] += 1
