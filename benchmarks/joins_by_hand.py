"""Counts of patterns in a graph by rows of bits, as one writes them by hand: a variable and 64 nodes at a time."""

from __future__ import annotations

import numba
import numpy as np

ONE = np.uint64(1)


def rows_of_bits(edges: np.ndarray) -> np.ndarray:
    """[node, word] uint64 of edges [edge, 2] int64."""
    return _filled(edges, int(edges.max()) + 1)


@numba.njit(cache=True)
def _filled(edges, nodes):
    bits = np.zeros((nodes, (nodes + 63) // 64), np.uint64)
    for i in range(len(edges)):
        bits[edges[i, 0], edges[i, 1] >> 6] |= ONE << np.uint64(edges[i, 1] & 63)
    return bits


@numba.njit(cache=True)
def _count(x):
    x = x - ((x >> ONE) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True)
def _nodes(row, found):
    """The nodes of a row, in `found`; returns how many."""
    count = 0
    for word in range(len(row)):
        left = row[word]
        while left:
            found[count] = word * 64 + _count((left & (~left + ONE)) - ONE)
            left &= left - ONE
            count += 1
    return count


@numba.njit(cache=True)
def _common(a, b):
    count = 0
    for word in range(len(a)):
        count += _count(a[word] & b[word])
    return count


@numba.njit(cache=True)
def triangles(bits):
    count, some = 0, np.empty(len(bits), np.int64)
    for a in range(len(bits)):
        for b in some[: _nodes(bits[a], some)]:
            count += _common(bits[a], bits[b])
    return count


@numba.njit(cache=True)
def four_cliques(bits):
    count, some, others = 0, np.empty(len(bits), np.int64), np.empty(len(bits), np.int64)
    for a in range(len(bits)):
        for b in some[: _nodes(bits[a], some)]:
            both = bits[a] & bits[b]
            for c in others[: _nodes(both, others)]:
                count += _common(both, bits[c])
    return count


@numba.njit(cache=True)
def five_cliques(bits):
    count, some, others = 0, np.empty(len(bits), np.int64), np.empty(len(bits), np.int64)
    more = np.empty(len(bits), np.int64)
    for a in range(len(bits)):
        for b in some[: _nodes(bits[a], some)]:
            both = bits[a] & bits[b]
            for c in others[: _nodes(both, others)]:
                all_three = both & bits[c]
                for d in more[: _nodes(all_three, more)]:
                    count += _common(all_three, bits[d])
    return count


@numba.njit(cache=True)
def four_cycles(bits):
    """Pairs of paths a, b, c and a, d, c."""
    count, some = 0, np.empty(len(bits), np.int64)
    paths = np.zeros(len(bits), np.int64)
    others = np.empty(len(bits), np.int64)
    for a in range(len(bits)):
        paths[:] = 0
        for b in some[: _nodes(bits[a], some)]:
            for c in others[: _nodes(bits[b], others)]:
                paths[c] += 1
        count += (paths * paths).sum()
    return count


@numba.njit(cache=True)
def bowties(bits):
    """Pairs of triangles with one first node."""
    count, some = 0, np.empty(len(bits), np.int64)
    for a in range(len(bits)):
        here = 0
        for b in some[: _nodes(bits[a], some)]:
            here += _common(bits[a], bits[b])
        count += here * here
    return count


@numba.njit(cache=True)
def list_triangles(bits):
    found, count = np.empty((1 << 16, 3), np.int32), 0
    some, others = np.empty(len(bits), np.int64), np.empty(len(bits), np.int64)
    for a in range(len(bits)):
        for b in some[: _nodes(bits[a], some)]:
            for c in others[: _nodes(bits[a] & bits[b], others)]:
                if count == len(found):
                    longer = np.empty((2 * count, 3), np.int32)
                    longer[:count] = found
                    found = longer
                found[count, 0], found[count, 1], found[count, 2] = a, b, c
                count += 1
    return count


@numba.njit(cache=True)
def list_four_cliques(bits):
    found, count = np.empty((1 << 16, 4), np.int32), 0
    some, others = np.empty(len(bits), np.int64), np.empty(len(bits), np.int64)
    more = np.empty(len(bits), np.int64)
    for a in range(len(bits)):
        for b in some[: _nodes(bits[a], some)]:
            both = bits[a] & bits[b]
            for c in others[: _nodes(both, others)]:
                for d in more[: _nodes(both & bits[c], more)]:
                    if count == len(found):
                        longer = np.empty((2 * count, 4), np.int32)
                        longer[:count] = found
                        found = longer
                    found[count, 0], found[count, 1], found[count, 2], found[count, 3] = a, b, c, d
                    count += 1
    return count
