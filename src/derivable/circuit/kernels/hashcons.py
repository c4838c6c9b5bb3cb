"""Numba kernels that hash-cons circuit nodes: insertion, and extraction of the nodes below some roots.

State of a growing circuit (arrays longer than what is used; `counts` says how much is):

    kind      [capacity] uint8    as in `core.and_or`, without NOT
    literal   [capacity] int32    signed variable of a literal, else 0
    info      [2 * capacity] int32, for each node its height (0 for leaves) and its mark: the stamp of the insertion
              that last mentioned it. They are read together, so they are on one cache line
    offsets   [capacity + 1] int64
    children  [edge capacity] int32, in order of first mention, no repeats within a node
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

from derivable.core import splitmix64
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import count_less, item, pointer, prefetch, scratch

# Return codes of `insert_nodes`.
OK, BAD_KIND, BAD_LITERAL, BAD_OFFSETS, BAD_CHILD = 0, 1, 2, 3, 4

# Ids and variables are below 2^31, so both halves of an exact key have their top bit free.
SECOND = np.uint64(1 << 63)  # or-nodes, negative literals
WIDE = np.uint64(1 << 31)  # the key is a hash
_LAST_STAMP = 2**31 - 1
SHORT = 256  # children of nodes with more are sorted by `CircuitBuilder.build`
_ROW = SHORT + 16  # numbers of a row that is read sixteen at a time
_AHEAD = 16  # elements between asking for a line of the table and looking at it
GOLDEN, MIX_A, MIX_B = (np.uint64(x) for x in (splitmix64.STEP, *(factor for _, factor in splitmix64.ROUNDS)))
_LATER = 8  # or-nodes that wait for their lines of the table


@kernel(inline="always")
def finalized(value):
    """As `splitmix64.finalized`, of a uint64."""
    value = (value ^ (value >> np.uint64(30))) * MIX_A
    value = (value ^ (value >> np.uint64(27))) * MIX_B
    return value ^ (value >> np.uint64(31))


@kernel(inline="always")
def mix(value):
    """Disperse the bits of a uint64."""
    return finalized(np.uint64(value) + GOLDEN)


@kernel(inline="always")
def pair_key(this, x, y):
    """The key of an AND or OR of the two different nodes `x` and `y`, none of them a constant."""
    key = (np.uint64(min(x, y)) << np.uint64(32)) | np.uint64(max(x, y))
    return key | SECOND if this == OR else key


@kernel(inline="always")
def wide_key(this, value):
    """The key of an AND or OR of more than two nodes; `value` is the sum of their mixed ids."""
    return mix(value + np.uint64(this)) | WIDE


@kernel(inline="always")
def literal_key(number):
    key = np.uint64(abs(np.int64(number)))
    return key | SECOND if number < 0 else key


@kernel(inline="always")
def first_slot(key, last):
    """Where the probing for a key starts: the position of an entry in a table whose last position is `last`."""
    value = (key ^ (key >> np.uint64(32))) * GOLDEN
    return ((value ^ (value >> np.uint64(32))) << np.uint64(1)) & last


@kernel(inline="always")
def find(table, last, key):
    """The position of the entry of an exact key, or the free one where it belongs."""
    slot = first_slot(key, last)
    while table[slot] != key and table[slot] != 0:
        slot = (slot + np.uint64(2)) & last
    return slot


@kernel(inline="always")
def enter(key, node, table, last):
    """Enter a node that is known to be new."""
    slot = first_slot(key, last)
    while table[slot] != 0:
        slot = (slot + np.uint64(2)) & last
    table[slot] = key
    table[slot + np.uint64(1)] = node


@kernel("uint64[] uint64[]")
def move_table(old, table):
    """Enter the entries of a table in an empty, larger one; they are known to differ."""
    last = np.uint64(len(table) - 1)
    for entry in range(0, len(old), 2):
        ahead = min(entry + 2 * _AHEAD, len(old) - 2)
        prefetch(table, first_slot(old[ahead], last))
        if old[entry] != 0:
            enter(old[entry], old[entry + 1], table, last)


@kernel(inline="always")
def simplified_pair(this, x, y):
    """What an AND or OR of two nodes is without a node of its own, or -1."""
    neutral = TRUE if this == AND else FALSE
    if x > TRUE and y > TRUE:
        return x if x == y else -1
    if x == TRUE - neutral or y == TRUE - neutral:
        return TRUE - neutral
    return y if x == neutral else x


@kernel(inline="always")
def pointers(kind, literal, info, offsets, children, table):
    """The state as the functions below take it: pointers, and the last position in the table."""
    return (
        pointer(kind), pointer(literal), pointer(info), pointer(offsets), pointer(children), pointer(table),
        np.uint64(len(table) - 1),
    )  # fmt: skip


@kernel
def write_node(this, number, top, node, end, state):
    """Write a new node, whose last edge is before `end`."""
    kind, literal, info, offsets, _, _, _ = state
    kind[node] = this
    literal[node] = number
    info[2 * node] = top
    info[2 * node + 1] = 0
    offsets[node + 1] = end


@kernel(inline="always")
def add_node(this, number, top, node, end, slot, key, state):
    """Write a new node, whose last edge is before `end`, and its entry in the table."""
    _, _, _, _, _, table, _ = state
    write_node(this, number, top, node, end, state)
    table[slot] = key
    table[slot + np.uint64(1)] = node


@kernel
def place_literal(number, node, end, state):
    """The id of a literal; `node` if it is new and has been added. `end`: the number of edges so far."""
    _, _, _, _, _, table, last = state
    key = literal_key(number)
    slot = find(table, last, key)
    if table[slot] != 0:
        return np.int64(table[slot + np.uint64(1)])
    add_node(LITERAL, number, 0, node, end, slot, key, state)
    return node


@kernel
def place_pair(this, x, y, node, end, state):
    """The id of a node of the two different children `x` and `y`; `node` if it is new and has been added."""
    _, literal, info, _, children, table, last = state
    key = pair_key(this, x, y)
    slot = find(table, last, key)
    if table[slot] != 0:
        return np.int64(table[slot + np.uint64(1)])
    top = max(info[2 * x], info[2 * y])
    if this == AND and top == 0 and literal[x] == -literal[y]:
        return np.int64(FALSE)
    children[end] = x
    children[end + 1] = y
    add_node(this, 0, top + 1, node, end + 2, slot, key, state)
    return node


@kernel
def place_wide(this, size, value, top, stamp, node, end, state):
    """The id of a node whose `size` children stand behind the other edges and carry `stamp`; `node` if it is new.

    value  the sum of the mixed ids of the children; top, their greatest height
    """
    kind, _, info, offsets, children, table, last = state
    key = wide_key(this, value)
    slot = first_slot(key, last)
    while table[slot] != 0:
        if table[slot] == key:
            other = np.int64(table[slot + np.uint64(1)])
            same = kind[other] == this and offsets[other + 1] - offsets[other] == size
            edge = offsets[other]
            while same and edge < offsets[other + 1]:
                same = info[2 * np.int64(children[edge]) + 1] == stamp
                edge += 1
            if same:
                return other
        slot = (slot + np.uint64(2)) & last
    add_node(this, 0, top + 1, node, end + size, slot, key, state)
    return node


@kernel(inline="always")
def place_node(this, size, value, top, stamp, node, end, state):
    """The id of a node as `distinct` found it; `node` if it is new and has been added."""
    _, _, _, _, children, _, _ = state
    if size == 2:
        return place_pair(this, np.int64(children[end]), np.int64(children[end + 1]), node, end, state)
    return place_wide(this, size, value, top, stamp, node, end, state)


@kernel(inline="always")
def next_stamp(stamp, info, count):
    """A stamp that none of the `count` nodes carries."""
    if stamp == _LAST_STAMP:
        info[1 : 2 * count : 2] = 0
        stamp = 0
    return stamp + 1


@kernel(inline="always")
def distinct(this, parts, first, last, stamp, end, state):
    """Stamp the different children parts[first:last] of an AND or OR and write them behind the other edges.

    returns  (what the node is without a node of its own, or -1; the number of different children, the sum of their
             mixed ids, and their greatest height)
    """
    _, _, info, _, children, _, _ = state
    neutral = TRUE if this == AND else FALSE
    found, size = np.int64(-1), np.int64(0)
    value, top = np.uint64(0), np.int32(0)
    for place in range(first, last):
        child = np.int64(parts[place])
        if child <= TRUE:
            if child != neutral:
                found = child
        elif info[2 * child + 1] != stamp:
            info[2 * child + 1] = stamp
            children[end + size] = child
            size += 1
            value += mix(np.uint64(child))
            top = max(top, info[2 * child])
    if found < 0 and size < 2:
        found = np.int64(neutral if size == 0 else children[end])
    return found, size, value, top


@kernel("uint8[] int32[] int64[] int32[] bool uint8[] int32[] int32[] int64[] int32[] uint64[] int64[] int32[]")
def insert_nodes(
    new_kind, new_literal, new_offsets, new_children, absolute,
    kind, literal, info, offsets, children, table, counts, ids,
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
    state = pointers(kind, literal, info, offsets, children, table)
    code, bad_node, bad_child = OK, 0, 0
    _, _, _, _, _, _, last_slot = state
    for node in range(len(new_kind)):
        ahead = min(node + _AHEAD, len(new_kind) - 1)
        place = new_offsets[ahead]
        if absolute and new_offsets[ahead + 1] - place == 2 and 0 <= place < len(new_children) - 1:
            x, y = np.int64(new_children[place]), np.int64(new_children[place + 1])
            prefetch(table, first_slot(pair_key(new_kind[ahead], x, y), last_slot))
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
        size = last - first
        for place in range(size):
            child = np.int64(new_children[first + place])
            if child < 0 or child >= limit:
                code, bad_node, bad_child = BAD_CHILD, node, child
                break
            children[num_edges + place] = child if absolute else ids[child]
        if code != OK:
            break
        value, top = np.uint64(0), np.int32(0)
        if size == 2:
            found = np.int64(simplified_pair(this, np.int64(children[num_edges]), np.int64(children[num_edges + 1])))
        else:
            stamp = next_stamp(stamp, info, num_nodes)
            found, size, value, top = distinct(this, children, num_edges, num_edges + size, stamp, num_edges, state)
        if found < 0:
            found = place_node(this, size, value, top, stamp, num_nodes, num_edges, state)
            if found == num_nodes:
                num_nodes += 1
                num_edges += size
        ids[node] = found
    counts[0], counts[1], counts[2] = num_nodes, num_edges, stamp
    return code, bad_node, bad_child


@kernel(
    "uint8[] int32[] int32[] int32[] int64 int64 int32[] uint8[] int32[] int32[] int64[] int32[] uint64[] int64[]",
)
def insert_decompositions(
    letters, names, numbers, elements, line, first, node_of,
    kind, literal, info, offsets, children, table, counts,
):  # fmt: skip
    """Insert the lines of an SDD file, as `parse_bytes.parse_lines` wrote them, in the order of their NNF.

    line, first  where to go on: a line and the position in `elements` of its first child
    node_of      [file id] int32, the node of each file id, -1 where no line has been inserted
    elements     overwritten
    returns      (line, first) where the table got too full; line is len(letters) if all is done

    The nodes are those that `insert_nodes` makes from an AND for each element and an OR for each
    decomposition, with the same ids. The state has room for all new nodes and edges.

    An or-node with a child that is new is new itself: nobody need look whether it is in the table. It gets its id at
    once and is entered a few decompositions later, when the line of the table has come from memory.
    """
    num_nodes, num_edges, stamp = counts[0], counts[1], counts[2]
    state = pointers(kind, literal, info, offsets, children, table)
    edges, slots = pointer(children), pointer(table)
    ids, parts = pointer(node_of), pointer(elements)
    keys, nodes = scratch(np.uint64, _LATER), scratch(np.int64, _LATER)
    late = 0
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
            before = num_nodes
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
            stamp = next_stamp(stamp, info, num_nodes)
            found, size, value, top = distinct(OR, parts, first, first + number, stamp, num_edges, state)
            if found < 0:
                x, y = np.int64(edges[num_edges]), np.int64(edges[num_edges + 1])
                key = pair_key(OR, x, y) if size == 2 else wide_key(OR, value)
                if num_nodes > before:
                    if late == _LATER:
                        late = enter_late(keys, nodes, late, slots, last_slot)
                    prefetch(table, first_slot(key, last_slot))
                    keys[late], nodes[late] = key, num_nodes
                    late += 1
                    found = num_nodes
                    write_node(OR, 0, top + 1, found, num_edges + size, state)
                else:
                    if has_key(keys, late, key):
                        late = enter_late(keys, nodes, late, slots, last_slot)
                    found = place_node(OR, size, value, top, stamp, num_nodes, num_edges, state)
                if found == num_nodes:
                    num_nodes += 1
                    num_edges += size
            ids[name] = found
            first += 2 * number
        line += 1
    enter_late(keys, nodes, late, slots, last_slot)
    counts[0], counts[1], counts[2] = num_nodes, num_edges, stamp
    return line, first


@kernel(inline="always")
def has_key(keys, count, key):
    found = False
    for i in range(count):
        found |= keys[i] == key
    return found


@kernel(inline="always")
def enter_late(keys, nodes, count, table, last):
    """Enter the nodes that wait; returns how many wait afterwards."""
    for i in range(count):
        enter(keys[i], nodes[i], table, last)
    return 0


@kernel("uint8[] int32[] int64[] int32[] int64[] int64[] int64 uint8[]")
def mark_reachable(kind, info, offsets, children, cuts, roots, top, reached):
    """Find the nodes below `roots`, and where in the sorted circuit those of each height and kind will be.

    cuts      [chunk + 1] int64, from 0 to the number of nodes: ranges of nodes that can be moved independently
    top       the greatest height of a root
    reached   [node] uint8, zeros; written: 1 for nodes below `roots`
    returns   node_starts, edge_starts [bucket + 1, chunk] int64: where the nodes of the chunk in the bucket, and their
              edges, begin; in the last row, where all end. Buckets 0 to 2 hold false, true and the literals; the
              and-nodes of height h are in bucket 2 h + 1, the or-nodes in 2 h + 2.
    """
    found = pointer(reached)
    for root in roots:
        found[root] = 1
    buckets, chunks = 2 * top + 3, len(cuts) - 1
    node_starts = np.zeros((buckets + 1, chunks), np.int64)
    edge_starts = np.zeros((buckets + 1, chunks), np.int64)
    # Children have smaller ids than parents.
    for chunk in range(chunks - 1, -1, -1):
        for node in range(cuts[chunk + 1] - 1, cuts[chunk] - 1, -1):
            if found[node] != 0:
                bucket = bucket_of(item(kind, node), item(info, 2 * node))
                first, last = item(offsets, node), item(offsets, node + 1)
                node_starts[bucket, chunk] += 1
                edge_starts[bucket, chunk] += last - first
                for edge in range(first, last):
                    found[item(children, edge)] = 1
    for starts in (node_starts, edge_starts):
        before = np.int64(0)
        for bucket in range(buckets + 1):
            for chunk in range(chunks):
                count = starts[bucket, chunk]
                starts[bucket, chunk] = before
                before += count
    return node_starts, edge_starts


@kernel(inline="always")
def bucket_of(this, height):
    return np.int64(this) if this <= LITERAL else 2 * np.int64(height) + np.int64(this) - 2


@kernel(
    "int64 int64 int64[] uint8[] int32[] int32[] int64[] uint8[] int64[,] int64[,] int32[] uint8[] int32[] int64[]",
)
def number_nodes(
    begin, end, cuts, kind, literal, info, offsets, reached, node_starts, edge_starts, position,
    out_kind, out_literal, out_offsets,
):  # fmt: skip
    """Number the nodes of the chunks begin:end by height, kind and insertion, and write all of them but their children.

    node_starts, edge_starts  of `mark_reachable`; used up
    position                  [node] int32, the new ids of literals; those of the other reachable nodes are written
    """
    for chunk in range(begin, end):
        for node in range(cuts[chunk], cuts[chunk + 1]):
            if reached[node] == 0:
                continue
            this = kind[node]
            if this == LITERAL:
                new = np.int64(position[node])
                out_literal[new] = literal[node]
                out_offsets[new] = 0
            else:
                bucket = bucket_of(this, item(info, 2 * node))
                new = node_starts[bucket, chunk]
                node_starts[bucket, chunk] += 1
                position[node] = new
                out_literal[new] = 0
                out_offsets[new] = edge_starts[bucket, chunk]
                edge_starts[bucket, chunk] += item(offsets, node + 1) - item(offsets, node)
            out_kind[new] = this


@kernel("int64 int64 int64[] int64[] int32[] uint8[] int32[] int64[] int32[]")
def move_children(begin, end, cuts, offsets, children, reached, position, out_offsets, out_children):
    """Copy the children of the nodes of the chunks begin:end, renumbered, ascending in nodes of at most `SHORT`."""
    row, places, out = scratch(np.int32, _ROW), pointer(position), pointer(out_children)
    for node in range(cuts[begin], cuts[end]):
        first = item(offsets, node)
        size = item(offsets, node + 1) - first
        if size == 0 or item(reached, node) == 0:
            continue
        edge = item(out_offsets, item(position, node))
        if size == 2:
            x, y = places[item(children, first)], places[item(children, first + 1)]
            out[edge] = min(x, y)
            out[edge + 1] = max(x, y)
        elif size <= SHORT:
            # Every child goes where as many children as are smaller leave it: no branch to mispredict.
            for i in range(size):
                row[i] = places[item(children, first + i)]
            for i in range(size, (size + 15) & ~15):
                row[i] = np.int32(_LAST_STAMP)
            for i in range(size):
                rank = np.int64(0)
                for block in range(0, size, 16):
                    rank += count_less(row, block, row[i])
                out[edge + rank] = row[i]
        else:
            for i in range(size):
                out[edge + i] = places[item(children, first + i)]
