"""Kernels that look for decisions, and for counterexamples of determinism; `kernels.choice` finds other proofs."""

from __future__ import annotations

import numpy as np

from derivable.core.and_or import AND, LITERAL, OR, TRUE
from derivable.device.cpu.built_kernels import kernel


@kernel
def _decided(kind, literal, offsets, children, n, mark, budget):
    """Whether every two children of or-node n hold opposite literals directly. `mark` [variable] is scratch, 0."""
    first, last = offsets[n], offsets[n + 1]
    steps = 0
    for i in range(first, last - 1):
        a = children[i]
        low, high = (i, i + 1) if kind[a] == LITERAL else (offsets[a], offsets[a + 1])
        if kind[a] == OR:
            return False
        for x in range(low, high):
            if kind[children[x]] == LITERAL:
                v = literal[children[x]]
                mark[abs(v) - 1] = 1 if v > 0 else -1
        excluded = True
        for j in range(i + 1, last):
            b = children[j]
            low_b, high_b = (j, j + 1) if kind[b] == LITERAL else (offsets[b], offsets[b + 1])
            excluded = False
            if kind[b] != OR:
                for y in range(low_b, high_b):
                    steps += 1
                    if kind[children[y]] != LITERAL:
                        continue
                    v = literal[children[y]]
                    if mark[abs(v) - 1] == (-1 if v > 0 else 1):
                        excluded = True
                        break
            if not excluded or steps > budget:
                excluded = False
                break
        for x in range(low, high):
            if kind[children[x]] == LITERAL:
                mark[abs(literal[children[x]]) - 1] = 0
        if not excluded:
            return False
    return True


@kernel("uint8[] int32[] int64[] int32[] int8[] int64 bool[]")
def decisions(kind, literal, offsets, children, mark, budget, decided):
    """Fills decided [node]: false for or-nodes with two children that hold no opposite literals directly.

    mark    [variable] int8, zeros
    budget  steps for a node, after which it counts as not decided
    """
    for n in range(len(kind)):
        decided[n] = kind[n] != OR or _decided(kind, literal, offsets, children, n, mark, budget)


@kernel("uint8[] int32[] int64[] int32[] int64[] int64[] uint64[,] uint64[,] bool[]")
def find_overlap(kind, literal, offsets, children, nodes, place, worlds, tables, watched):
    """Evaluate 64 worlds in a word; look for a watched or-node with two true children in one world.

    nodes    [k] ascending node ids, closed under children; place [node] their positions in `nodes`
    worlds   [variable, word] uint64: bit j of word w is the variable's value in world 64 w + j
    tables   [k, word] uint64, filled with the nodes' values
    watched  [node] bool
    returns  (node, world) or (-1, -1)
    """
    width = worlds.shape[1]
    for p in range(len(nodes)):
        n = nodes[p]
        k = kind[n]
        for w in range(width):
            if k == LITERAL:
                v = literal[n]
                tables[p, w] = worlds[v - 1, w] if v > 0 else ~worlds[-v - 1, w]
            elif k in (TRUE, AND):
                tables[p, w] = ~np.uint64(0)
            else:
                tables[p, w] = 0
        for i in range(offsets[n], offsets[n + 1]):
            c = place[children[i]]
            for w in range(width):
                if k == AND:
                    tables[p, w] &= tables[c, w]
                else:
                    both = tables[p, w] & tables[c, w]
                    if both != 0 and watched[n]:
                        bit = 0
                        while (both >> np.uint64(bit)) & np.uint64(1) == 0:
                            bit += 1
                        return n, 64 * w + bit
                    tables[p, w] |= tables[c, w]
    return -1, -1
