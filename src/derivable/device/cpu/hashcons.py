"""Numba kernels that hash-cons circuit nodes: insertion, and extraction of the nodes below some roots.

State of a growing circuit (arrays longer than what is used; `counts` says how much is):

    kind      [capacity] uint8    FALSE, TRUE, LITERAL, AND, OR = 0..4
    literal   [capacity] int32    signed variable of a literal, else 0
    height    [capacity] int32    0 for leaves
    offsets   [capacity + 1] int64
    children  [edge capacity] int32, in order of first mention, no repeats within a node
    mark      [capacity] int32    the stamp of the insertion that last mentioned the node
    table     [2 * power of two] uint64, pairs of a key and a node id; key 0 is free; open addressing, linear probing
    counts    [3] int64           nodes, edges, stamp

Literals and nodes of two children have exact keys: the sign and the variable, or the kind and both ids in
ascending order. One look at the table decides whether such a node exists, and most nodes of circuits that come
from knowledge compilers are of this sort. The key of a wider node is a hash, marked by bit `WIDE`: the sum of the
mixed ids of its children, so it does not depend on their order (paper 000, equation 3, with the ids of already
merged children in place of their Merkle hashes). Unlike the paper, which assumes a perfect hash, a match of
hashes is followed by a comparison of the two sets of children: `mark` makes that linear in their number, without
sorting. All loops are iterative and the whole is linear, in expectation, in nodes plus edges.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from derivable.device.cpu.lanes import item, prefetch
from derivable.device.cpu.pointers import pointer

FALSE, TRUE, LITERAL, AND, OR = 0, 1, 2, 3, 4

# Return codes of `insert_nodes`.
OK, BAD_KIND, BAD_LITERAL, BAD_OFFSETS, BAD_CHILD = 0, 1, 2, 3, 4

# Ids and variables are below 2^31, so both halves of an exact key have their top bit free.
SECOND = np.uint64(1 << 63)  # or-nodes, negative literals
WIDE = np.uint64(1 << 31)  # the key is a hash
_LAST_STAMP = 2**31 - 1
_SHORT = 64  # nodes with more children are sorted another way
_AHEAD = 16  # elements between asking for a line of the table and looking at it


@njit(cache=True, nogil=True, inline="always")
def mix(value):
    """Disperse the bits of a uint64 (the finaliser of splitmix64)."""
    value = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True, nogil=True, inline="always")
def pair_key(this, x, y):
    """The key of an AND or OR of the two different nodes `x` and `y`, none of them a constant."""
    key = (np.uint64(min(x, y)) << np.uint64(32)) | np.uint64(max(x, y))
    return key | SECOND if this == OR else key


@njit(cache=True, nogil=True, inline="always")
def literal_key(number):
    key = np.uint64(abs(np.int64(number)))
    return key | SECOND if number < 0 else key


@njit(cache=True, nogil=True, inline="always")
def first_slot(key, last):
    """Where the probing for a key starts: the position of an entry in a table whose last position is `last`."""
    return (mix(key) << np.uint64(1)) & last


@njit(cache=True, nogil=True, inline="always")
def find(table, last, key):
    """The position of the entry of an exact key, or the free one where it belongs."""
    slot = first_slot(key, last)
    while table[slot] != key and table[slot] != 0:
        slot = (slot + np.uint64(2)) & last
    return slot


@njit(cache=True, nogil=True)
def move_table(old, table):
    """Enter the entries of a table in an empty, larger one; they are known to differ."""
    last = np.uint64(len(table) - 1)
    for entry in range(0, len(old), 2):
        if old[entry] != 0:
            slot = first_slot(old[entry], last)
            while table[slot] != 0:
                slot = (slot + np.uint64(2)) & last
            table[slot] = old[entry]
            table[slot + np.uint64(1)] = old[entry + 1]


@njit(cache=True, nogil=True, inline="always")
def simplified_pair(this, x, y):
    """What an AND or OR of two nodes is without a node of its own, or -1."""
    neutral = TRUE if this == AND else FALSE
    if x > TRUE and y > TRUE:
        return x if x == y else -1
    if x == TRUE - neutral or y == TRUE - neutral:
        return TRUE - neutral
    return y if x == neutral else x


@njit(cache=True, nogil=True, inline="always")
def pointers(kind, literal, height, offsets, children, mark, table):
    """The state as the functions below take it: pointers, and the last position in the table."""
    return (
        pointer(kind), pointer(literal), pointer(height), pointer(offsets), pointer(children), pointer(mark),
        pointer(table), np.uint64(len(table) - 1),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def add_node(this, number, top, node, end, slot, key, state):
    """Write a new node, whose last edge is before `end`, and its entry in the table."""
    kind, literal, height, offsets, _, mark, table, _ = state
    kind[node] = this
    literal[node] = number
    height[node] = top
    offsets[node + 1] = end
    mark[node] = 0
    table[slot] = key
    table[slot + np.uint64(1)] = node


@njit(cache=True, nogil=True)
def place_literal(number, node, end, state):
    """The id of a literal; `node` if it is new and has been added. `end`: the number of edges so far."""
    _, _, _, _, _, _, table, last = state
    key = literal_key(number)
    slot = find(table, last, key)
    if table[slot] != 0:
        return np.int64(table[slot + np.uint64(1)])
    add_node(LITERAL, number, 0, node, end, slot, key, state)
    return node


@njit(cache=True, nogil=True)
def place_pair(this, x, y, node, end, state):
    """The id of a node of the two different children `x` and `y`; `node` if it is new and has been added."""
    _, literal, height, _, children, _, table, last = state
    key = pair_key(this, x, y)
    slot = find(table, last, key)
    if table[slot] != 0:
        return np.int64(table[slot + np.uint64(1)])
    if this == AND and literal[x] != 0 and literal[x] == -literal[y]:
        return np.int64(FALSE)
    children[end] = x
    children[end + 1] = y
    add_node(this, 0, max(height[x], height[y]) + 1, node, end + 2, slot, key, state)
    return node


@njit(cache=True, nogil=True)
def place_wide(this, size, value, top, stamp, node, end, state):
    """The id of a node whose `size` children stand behind the other edges and carry `stamp`; `node` if it is new.

    value  the sum of the mixed ids of the children; top, their greatest height
    """
    kind, _, _, offsets, children, mark, table, last = state
    key = mix(value + np.uint64(this)) | WIDE
    slot = first_slot(key, last)
    while table[slot] != 0:
        if table[slot] == key:
            other = np.int64(table[slot + np.uint64(1)])
            same = kind[other] == this and offsets[other + 1] - offsets[other] == size
            edge = offsets[other]
            while same and edge < offsets[other + 1]:
                same = mark[children[edge]] == stamp
                edge += 1
            if same:
                return other
        slot = (slot + np.uint64(2)) & last
    add_node(this, 0, top + 1, node, end + size, slot, key, state)
    return node


@njit(cache=True, nogil=True)
def insert_nodes(
    new_kind, new_literal, new_offsets, new_children, absolute,
    kind, literal, height, offsets, children, mark, table, counts, ids,
):  # fmt: skip
    """Insert nodes in the given order; ids[i] is where node i ended up.

    new_kind [node] uint8, new_literal [node] int32, new_offsets [node + 1] int64, new_children [edge] int32
    absolute  children are ids of the growing circuit; otherwise positions in these same arrays, each
              smaller than its parent's
    ids       [node] int32, written

    The state has room for all new nodes and edges, and the table has free entries afterwards; it
    holds node 0 = FALSE and node 1 = TRUE. Returns (code, node, child): code is OK or says what is
    wrong with that node; nodes before it have been inserted.
    """
    num_nodes, num_edges, stamp = counts[0], counts[1], counts[2]
    state = pointers(kind, literal, height, offsets, children, mark, table)
    code, bad_node, bad_child = OK, 0, 0
    for node in range(len(new_kind)):
        this = new_kind[node]
        if this <= TRUE:
            ids[node] = this
            continue
        if this == LITERAL:
            number = new_literal[node]
            if number == 0:
                code, bad_node = BAD_LITERAL, node
                break
            found = place_literal(number, num_nodes, num_edges, state)
            num_nodes += found == num_nodes
            ids[node] = found
            continue
        if this > OR:
            code, bad_node = BAD_KIND, node
            break
        first, last = new_offsets[node], new_offsets[node + 1]
        if first < 0 or last < first or last > len(new_children):
            code, bad_node = BAD_OFFSETS, node
            break
        limit = num_nodes if absolute else node
        for edge in range(first, last):
            child = np.int64(new_children[edge])
            if child < 0 or child >= limit:
                code, bad_node, bad_child = BAD_CHILD, node, child
                break
        if code != OK:
            break
        size = last - first
        value, top = np.uint64(0), np.int32(0)
        x, y = np.int64(0), np.int64(0)
        found = np.int64(-1)
        if size == 2:
            x, y = np.int64(new_children[first]), np.int64(new_children[first + 1])
            if not absolute:
                x, y = np.int64(ids[x]), np.int64(ids[y])
            found = np.int64(simplified_pair(this, x, y))
        else:
            if stamp == _LAST_STAMP:
                for other in range(num_nodes):
                    mark[other] = 0
                stamp = 0
            stamp += 1
            neutral = TRUE if this == AND else FALSE
            size = 0
            for edge in range(first, last):
                child = np.int64(new_children[edge])
                if not absolute:
                    child = np.int64(ids[child])
                if child <= TRUE:
                    if child != neutral:
                        found = child
                elif mark[child] != stamp:
                    mark[child] = stamp
                    children[num_edges + size] = child
                    size += 1
                    value += mix(np.uint64(child))
                    top = max(top, height[child])
            if found < 0 and size < 2:
                found = np.int64(neutral if size == 0 else children[num_edges])
            if size == 2:
                x, y = np.int64(children[num_edges]), np.int64(children[num_edges + 1])
        if found < 0:
            if size == 2:
                found = place_pair(this, x, y, num_nodes, num_edges, state)
            else:
                found = place_wide(this, size, value, top, stamp, num_nodes, num_edges, state)
            if found == num_nodes:
                num_nodes += 1
                num_edges += size
        ids[node] = found
    counts[0], counts[1], counts[2] = num_nodes, num_edges, stamp
    return code, bad_node, bad_child


@njit(cache=True, nogil=True)
def insert_decompositions(
    letters, names, numbers, elements, line, first, node_of,
    kind, literal, height, offsets, children, mark, table, counts,
):  # fmt: skip
    """Insert the lines of an SDD file, as `text.parse_sdd` wrote them, in the order of their NNF.

    line, first  where to go on: a line and the position in `elements` of its first child
    node_of      [file id] int32, the node of each file id, -1 where no line has been inserted
    elements     overwritten
    returns      (line, first) where the table got too full; line is len(letters) if all is done

    The nodes are those that `insert_nodes` makes from an AND for each element and an OR for each
    decomposition, with the same ids. The state has room for all new nodes and edges.
    """
    num_nodes, num_edges, stamp = counts[0], counts[1], counts[2]
    state = pointers(kind, literal, height, offsets, children, mark, table)
    heights, edges, marks = pointer(height), pointer(children), pointer(mark)
    ids, parts = pointer(node_of), pointer(elements)
    last_slot = np.uint64(len(table) - 1)
    fullest = len(table) // 3
    while line < len(letters):
        this, number, name = item(letters, line), item(numbers, line), item(names, line)
        if num_nodes + (number if this == OR else 0) >= fullest:
            break
        if this <= TRUE:
            ids[name] = this
        elif this == LITERAL:
            found = place_literal(number, num_nodes, num_edges, state)
            num_nodes += found == num_nodes
            ids[name] = found
        else:
            for element in range(number):
                place = first + 2 * element
                ahead = min(place + 2 * _AHEAD, len(elements) - 2)
                x, y = np.int64(ids[parts[ahead]]), np.int64(ids[parts[ahead + 1]])
                if x > TRUE and y > TRUE:
                    prefetch(table, first_slot(pair_key(AND, x, y), last_slot))
                x, y = np.int64(ids[parts[place]]), np.int64(ids[parts[place + 1]])
                found = np.int64(simplified_pair(AND, x, y))
                if found < 0:
                    found = place_pair(AND, x, y, num_nodes, num_edges, state)
                    if found == num_nodes:
                        num_nodes += 1
                        num_edges += 2
                parts[first + element] = found
            if stamp == _LAST_STAMP:
                mark[:num_nodes] = 0
                stamp = 0
            stamp += 1
            size = 0
            value, top = np.uint64(0), np.int32(0)
            found = np.int64(-1)
            for element in range(first, first + number):
                part = np.int64(parts[element])
                if part <= TRUE:
                    if part == TRUE:
                        found = np.int64(TRUE)
                elif marks[part] != stamp:
                    marks[part] = stamp
                    edges[num_edges + size] = part
                    size += 1
                    value += mix(np.uint64(part))
                    top = max(top, heights[part])
            if found < 0:
                if size < 2:
                    found = np.int64(FALSE if size == 0 else edges[num_edges])
                elif size == 2:
                    x, y = np.int64(edges[num_edges]), np.int64(edges[num_edges + 1])
                    found = place_pair(OR, x, y, num_nodes, num_edges, state)
                else:
                    found = place_wide(OR, size, value, top, stamp, num_nodes, num_edges, state)
                if found == num_nodes:
                    num_nodes += 1
                    num_edges += size
            ids[name] = found
            first += 2 * number
        line += 1
    counts[0], counts[1], counts[2] = num_nodes, num_edges, stamp
    return line, first


@njit(cache=True, nogil=True)
def mark_reachable(kind, height, offsets, children, num_nodes, roots, position):
    """Set position[node] = 0 for the nodes below `roots`, -1 elsewhere; children have smaller ids than parents.

    returns  node_starts, edge_starts [bucket + 1] int64: where in the sorted circuit the nodes of each height and
             kind, and their edges, begin. Buckets 0 to 2 hold false, true and the literals; the and-nodes of
             height h are in bucket 2 h + 1, the or-nodes in 2 h + 2.
    """
    position[:num_nodes] = -1
    top = 0
    for root in roots:
        position[root] = 0
        top = max(top, height[root])
    node_starts = np.zeros(2 * top + 4, np.int64)
    edge_starts = np.zeros(2 * top + 4, np.int64)
    for node in range(num_nodes - 1, -1, -1):
        if position[node] == 0:
            bucket = bucket_of(kind[node], height[node])
            node_starts[bucket + 1] += 1
            edge_starts[bucket + 1] += offsets[node + 1] - offsets[node]
            for edge in range(offsets[node], offsets[node + 1]):
                position[children[edge]] = 0
    for bucket in range(1, len(node_starts)):
        node_starts[bucket] += node_starts[bucket - 1]
        edge_starts[bucket] += edge_starts[bucket - 1]
    return node_starts, edge_starts


@njit(cache=True, nogil=True, inline="always")
def bucket_of(this, height):
    return np.int64(this) if this <= LITERAL else 2 * np.int64(height) + np.int64(this) - 2


@njit(cache=True, nogil=True)
def reachable_literals(kind, num_nodes, position, leaves):
    """Write the literals that `mark_reachable` found to `leaves` [literal] int32."""
    count = 0
    for node in range(num_nodes):
        if kind[node] == LITERAL and position[node] >= 0:
            leaves[count] = node
            count += 1


@njit(cache=True, nogil=True)
def gather_nodes(
    kind, literal, height, offsets, children, num_nodes, position, node_starts, edge_starts,
    out_kind, out_literal, out_offsets, out_children,
):  # fmt: skip
    """Copy the reachable nodes by height, kind and insertion, children renumbered and ascending within a node.

    position                 [node] -1 for unreachable nodes, the new ids of literals; the other new ids are written
    node_starts, edge_starts of `mark_reachable`; used up
    """
    row = np.empty(_SHORT, np.int32)
    wide_edges = 0
    for node in range(num_nodes):
        if position[node] < 0:
            continue
        this = kind[node]
        if this == LITERAL:
            new = np.int64(position[node])
            out_kind[new] = LITERAL
            out_literal[new] = literal[node]
            out_offsets[new] = 0
            continue
        bucket = bucket_of(this, height[node])
        new = node_starts[bucket]
        node_starts[bucket] += 1
        position[node] = new
        edge = edge_starts[bucket]
        out_kind[new] = this
        out_literal[new] = 0
        out_offsets[new] = edge
        first = offsets[node]
        size = offsets[node + 1] - first
        edge_starts[bucket] += size
        if size == 2:
            x, y = position[item(children, first)], position[item(children, first + 1)]
            out_children[edge] = min(x, y)
            out_children[edge + 1] = max(x, y)
        elif size <= _SHORT:
            # Every child goes where as many children as are smaller leave it: no branch to mispredict.
            for i in range(size):
                row[i] = item(position, item(children, first + i))
            for i in range(size):
                rank = np.int32(0)
                for j in range(size):
                    rank += np.int32(row[j] < row[i])
                out_children[edge + rank] = row[i]
        else:
            wide_edges += size
            for i in range(size):
                out_children[edge + i] = item(position, item(children, first + i))
    count = len(out_kind)
    out_offsets[count] = len(out_children)
    if wide_edges == 0:
        return
    # Wide nodes: transpose their edges, then hand each child to its parents in ascending order: linear.
    starts = np.zeros(count + 1, np.int64)
    for new in range(count):
        if out_offsets[new + 1] - out_offsets[new] > _SHORT:
            for edge in range(out_offsets[new], out_offsets[new + 1]):
                starts[out_children[edge] + 1] += 1
    for new in range(count):
        starts[new + 1] += starts[new]
    parents = np.empty(wide_edges, np.int32)
    fill = starts.copy()
    for new in range(count):
        if out_offsets[new + 1] - out_offsets[new] > _SHORT:
            for edge in range(out_offsets[new], out_offsets[new + 1]):
                child = out_children[edge]
                parents[fill[child]] = new
                fill[child] += 1
    fill = out_offsets.copy()
    for child in range(count):
        for i in range(starts[child], starts[child + 1]):
            out_children[fill[parents[i]]] = child
            fill[parents[i]] += 1
