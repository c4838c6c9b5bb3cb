"""Numba kernels that look for proofs and counterexamples of determinism."""

from __future__ import annotations

import numpy as np
from numba import njit

from derivable.core.and_or import AND, LITERAL, OR, TRUE
from derivable.device.cpu.tiers import kernel

NOT_OR, DECISION, PROVED, OPEN, UNTRIED = 0, 1, 2, 3, 4


@kernel
def variable_signatures(kind, literal, offsets, children, signature):
    """A 64-bit Bloom filter of the variables below each node; disjoint filters mean disjoint variables."""
    for n in range(len(kind)):
        signature[n] = 0
        if kind[n] == LITERAL:
            bit = (np.uint64(abs(literal[n])) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58)
            signature[n] = np.uint64(1) << bit
        else:
            for i in range(offsets[n], offsets[n + 1]):
                signature[n] |= signature[children[i]]


@njit(cache=True, nogil=True, inline="always")
def _slot(table, key):
    mask = len(table) - 1
    place = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(24)) & mask
    while table[place] != 0 and table[place] != key:
        place = (place + 1) & mask
    return place


@kernel
def _quick(kind, literal, signature, table, answers, a, b):
    """1 if a and b are known to exclude each other, 0 if no proof is to be had, -1 if it must be tried."""
    if a == b:
        return 0
    if kind[a] == LITERAL and kind[b] == LITERAL:
        return 1 if literal[a] == -literal[b] else 0
    if signature[a] & signature[b] == 0:
        return 0
    key = (min(a, b) << 32) | max(a, b)
    place = _slot(table, key)
    return answers[place] if table[place] == key else -1


@kernel
def _prove(kind, literal, offsets, children, signature, table, answers, used, a, b, stack, budget):
    """Whether nodes a and b provably have no model in common, by structure; -1 if the budget ran out.

    An or-node excludes b if all its children do; two and-nodes exclude each other if a child of one
    excludes a child of the other. Sound for any circuit; complete where children are split alike, as in
    an SDD. `stack` [depth, 3] holds (a, b, next pair); used[0] counts pairs kept in the table.
    """
    answer = _quick(kind, literal, signature, table, answers, a, b)
    if answer >= 0:
        return answer
    stack[0, 0], stack[0, 1], stack[0, 2] = a, b, 0
    top = 1
    answer = -1
    while top > 0:
        a, b, i = stack[top - 1, 0], stack[top - 1, 1], stack[top - 1, 2]
        # The or-node (the higher of two) comes first, else the and-node.
        if (kind[b] == OR and (kind[a] != OR or b > a)) or (kind[a] == LITERAL and kind[b] == AND):
            a, b = b, a
        every = kind[a] == OR
        width = 1 if every or kind[b] == LITERAL else offsets[b + 1] - offsets[b]
        total = (offsets[a + 1] - offsets[a]) * width
        done = -1
        if answer == (0 if every else 1):
            done = answer
        elif i == total:
            done = 1 if every else 0
        if done >= 0:
            key = (min(a, b) << 32) | max(a, b)
            place = _slot(table, key)
            table[place] = key
            answers[place] = done
            used[0] += 1
            answer = done
            top -= 1
            continue
        used[1] += 1
        if used[1] > budget or 2 * used[0] > len(table) or top == len(stack):
            return -1
        stack[top - 1, 2] = i + 1
        c = np.int64(children[offsets[a] + i // width])
        d = b if width == 1 and (every or kind[b] == LITERAL) else np.int64(children[offsets[b] + i % width])
        answer = _quick(kind, literal, signature, table, answers, c, d)
        if answer < 0:
            stack[top, 0], stack[top, 1], stack[top, 2] = c, d, 0
            top += 1
    return answer


@kernel
def _decided(kind, literal, offsets, children, n, mark, used, budget):
    """Whether every two children of or-node n hold opposite literals directly. `mark` [variable] is scratch, 0."""
    first, last = offsets[n], offsets[n + 1]
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
                    used[1] += 1
                    if kind[children[y]] != LITERAL:
                        continue
                    v = literal[children[y]]
                    if mark[abs(v) - 1] == (-1 if v > 0 else 1):
                        excluded = True
                        break
            if not excluded or used[1] > budget:
                excluded = False
                break
        for x in range(low, high):
            if kind[children[x]] == LITERAL:
                mark[abs(literal[children[x]]) - 1] = 0
        if not excluded:
            return False
    return True


@kernel
def prove_exclusive(kind, literal, offsets, children, signature, mark, table, answers, stack, budget, status):
    """Try to prove for every or-node that its children exclude each other; fills status [node].

    DECISION: opposite literals directly in every two children; PROVED: by structure; OPEN: no proof;
    UNTRIED: the budget of elementary steps ran out. Returns the steps taken.
    """
    used = np.zeros(2, np.int64)
    for n in range(len(kind)):
        status[n] = NOT_OR
        if kind[n] != OR:
            continue
        # Linear in the circuit for two children, so it is always tried; wide nodes have their own share.
        allowance = used[1]
        if _decided(kind, literal, offsets, children, n, mark, used, allowance + budget):
            status[n] = DECISION
            used[1] = allowance
            continue
        used[1] = allowance
        status[n] = PROVED
        for i in range(offsets[n], offsets[n + 1] - 1):
            for j in range(i + 1, offsets[n + 1]):
                a, b = np.int64(children[i]), np.int64(children[j])
                if used[1] >= budget:
                    status[n] = UNTRIED
                    break
                used[1] += 1
                answer = _prove(kind, literal, offsets, children, signature, table, answers, used, a, b, stack, budget)
                if answer != 1:
                    status[n] = OPEN if answer == 0 else UNTRIED
                    break
            if status[n] != PROVED:
                break
    return used[1]


@kernel
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
