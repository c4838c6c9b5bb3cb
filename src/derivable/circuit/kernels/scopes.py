"""Numba kernels on the variables below each node, 64 variables in a word and a few words at a time."""

from __future__ import annotations

import numpy as np

from derivable.core.and_or import AND, FALSE, LITERAL, OR
from derivable.device.cpu.built_kernels import kernel


@kernel("uint8[] int32[] int64[] int32[] int64[] uint64[,]")
def fold_scopes(kind, literal, offsets, children, position, scopes):
    """Which variables each node mentions, for the variables with a position in this pass.

    position  [variable] int64: the bit of a variable, or -1 for one that is not in this pass
    scopes    [node, word] uint64, filled
    returns   (first and-node with two children that share a variable or -1,
               first or-node whose children mention different variables or -1)
    """
    overlapping, uneven = -1, -1
    width = scopes.shape[1]
    for n in range(len(kind)):
        for w in range(width):
            scopes[n, w] = 0
        k = kind[n]
        if k == LITERAL:
            bit = position[abs(literal[n]) - 1]
            if bit >= 0:
                scopes[n, bit >> 6] = np.uint64(1) << np.uint64(bit & 63)
        elif k in (AND, OR):
            for i in range(offsets[n], offsets[n + 1]):
                c = children[i]
                for w in range(width):
                    if k == AND:
                        if overlapping < 0 and scopes[n, w] & scopes[c, w] != 0:
                            overlapping = n
                    elif uneven < 0 and i > offsets[n] and scopes[n, w] != scopes[c, w]:
                        uneven = n
                    scopes[n, w] |= scopes[c, w]
    return overlapping, uneven


@kernel("uint8[] int32[] int64[] int32[] uint64[,] uint64[,]")
def same_mentions(kind, literal, offsets, children, words, sums):
    """Whether all children of each or-node mention the same variables equally often, as sums of random words say.

    words    [variable, 2] uint64, drawn at random
    sums     [node, 2] uint64, filled: the sum of the words of what a node mentions, repeats included
    """
    for n in range(len(kind)):
        first, second = np.uint64(0), np.uint64(0)
        k = kind[n]
        if k == LITERAL:
            v = abs(literal[n]) - 1
            first, second = words[v, 0], words[v, 1]
        elif k == AND:
            for i in range(offsets[n], offsets[n + 1]):
                first += sums[children[i], 0]
                second += sums[children[i], 1]
        elif k == OR and offsets[n] < offsets[n + 1]:
            c = children[offsets[n]]
            first, second = sums[c, 0], sums[c, 1]
            for i in range(offsets[n] + 1, offsets[n + 1]):
                if sums[children[i], 0] != first or sums[children[i], 1] != second:
                    return False
        sums[n, 0] = first
        sums[n, 1] = second
    return True


@kernel("uint8[] int32[] int64[] int32[] int64 uint8[] uint8[]")
def repeats_variable(kind, literal, offsets, children, root, times, seen):
    """Whether the root mentions a variable twice, in a graph whose or-nodes have children that mention the same.

    times, seen  [node] and [variable], overwritten
    """
    times[: root + 1] = 0
    seen[:] = 0
    times[root] = 1
    for n in range(root, -1, -1):
        if times[n] == 0:
            continue
        if kind[n] == LITERAL:
            v = abs(literal[n]) - 1
            if times[n] > 1 or seen[v] > 0:
                return True
            seen[v] = 1
        elif kind[n] in (AND, OR):
            last = offsets[n + 1] if kind[n] == AND else min(offsets[n] + 1, offsets[n + 1])
            for i in range(offsets[n], last):
                c = children[i]
                times[c] = min(2, times[c] + times[n])
    return False


@kernel(inline="always")
def _emit(start, size, tree_size, parts, count):
    """Cut positions [start, start + size) into aligned blocks of powers of two, numbered as a heap."""
    stop = start + size
    while start < stop:
        block = start & -start if start > 0 else tree_size
        while block > stop - start:
            block >>= 1
        parts[count] = tree_size // block + start // block
        count += 1
        start += block
    return count


@kernel
def missing_blocks(scope, whole, tree_size, parts):
    """The positions in `whole` but not in `scope` (words) as aligned blocks; returns how many were put in `parts`.

    A block of 2**k positions is one node of a perfect binary tree over `tree_size` positions, numbered as
    a heap: 1 is the root, tree_size + p is position p.
    """
    count = 0
    start, size = 0, 0
    for w in range(len(scope)):
        missing = whole[w] & ~scope[w]
        if missing == 0:
            if size:
                count = _emit(start, size, tree_size, parts, count)
                size = 0
            continue
        for bit in range(64):
            if (missing >> np.uint64(bit)) & np.uint64(1):
                if size == 0:
                    start = 64 * w + bit
                size += 1
            elif size:
                count = _emit(start, size, tree_size, parts, count)
                size = 0
    if size:
        count = _emit(start, size, tree_size, parts, count)
    return count


@kernel("uint8[] int64[] int32[] int64[] uint64[,] uint64[] int64 int64[] int64[] int64[]")
def edge_gaps(kind, offsets, children, roots, scopes, required, tree_size, owners, blocks, parts):
    """For every or-edge and every root: the blocks of variables that are missing there.

    An edge's child lacks what the or-node mentions and the child does not; a root lacks what `required`
    [word] holds and it does not mention. Writes (owner, block) pairs, owner = edge, or len(children) + root
    index; `owners` may be empty to count only. Returns the number of pairs.
    """
    count = 0
    for n in range(len(kind)):
        if kind[n] != OR:
            continue
        for i in range(offsets[n], offsets[n + 1]):
            found = missing_blocks(scopes[children[i]], scopes[n], tree_size, parts)
            if len(owners):
                for j in range(found):
                    owners[count + j] = i
                    blocks[count + j] = parts[j]
            count += found
    for r in range(len(roots)):
        if kind[roots[r]] == FALSE:
            continue
        found = missing_blocks(scopes[roots[r]], required, tree_size, parts)
        if len(owners):
            for j in range(found):
                owners[count + j] = len(children) + r
                blocks[count + j] = parts[j]
        count += found
    return count


@kernel("uint8[] int32[] int64[] int32[] int64[] int64[]")
def order_of_appearance(kind, literal, offsets, children, roots, order):
    """Number the variables in the order in which a walk down from the roots meets them; the rest follow.

    Fills order [variable]: its place. In a circuit that follows a vtree this keeps the variables of one
    part together, so that gaps are few ranges. Iterative: each node's edges are walked once.
    """
    place = 0
    order[:] = -1
    seen = np.zeros(len(kind), np.bool_)
    stack = np.empty(len(kind) + 1, np.int64)
    edge = offsets[:-1].copy()
    for r in range(len(roots)):
        if seen[roots[r]]:
            continue
        seen[roots[r]] = True
        stack[0] = roots[r]
        top = 1
        while top > 0:
            n = stack[top - 1]
            if kind[n] == LITERAL:
                v = abs(literal[n]) - 1
                if order[v] < 0:
                    order[v] = place
                    place += 1
                top -= 1
            elif edge[n] == offsets[n + 1]:
                top -= 1
            else:
                c = children[edge[n]]
                edge[n] += 1
                if not seen[c]:
                    seen[c] = True
                    stack[top] = c
                    top += 1
    for v in range(len(order)):
        if order[v] < 0:
            order[v] = place
            place += 1
