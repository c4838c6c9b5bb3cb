"""A kernel that finds a greedy elimination order of a graph.

The neighbours of each variable are a row of a pool; a row that gets too long moves to the end. The scores of all
variables are leaves of a tree of minima, so a changed score costs the logarithm of their number.
"""

from __future__ import annotations

import numpy as np

from derivable.circuit.kernels.hashcons import mix
from derivable.device.cpu.built_kernels import kernel

# Neighbours of a variable up to which the edges that it would add are counted.
MOST_FILLED = 64
# Logarithms of the sizes of tables are cut here: a float holds them.
_LARGEST = 1000.0


@kernel(inline="always")
def _update(variable, is_gone, tree, major, minor):
    """Have the tree of minima know of a new score, or that a variable is gone."""
    node = len(tree) // 2 + variable
    tree[node] = -1 if is_gone else variable
    node //= 2
    while node > 0:
        one, other = tree[2 * node], tree[2 * node + 1]
        if one < 0 or (
            other >= 0 and (major[other] < major[one] or (major[other] == major[one] and minor[other] < minor[one]))
        ):
            one = other
        tree[node] = one
        node //= 2


@kernel
def _score(variable, by_fill, draw, starts, lengths, pool, mark, stamp, logs, sizes, major, minor):
    """Write the score of a variable; returns how many neighbours were looked at."""
    start, count, work = starts[variable], lengths[variable], np.int64(1)
    tie = np.float64(mix(np.uint64(draw)) >> np.uint64(11)) / 2.0**53
    if by_fill and count <= MOST_FILLED:
        for position in range(start, start + count):
            mark[pool[position]] = stamp
        present = np.int64(0)
        for position in range(start, start + count):
            other = pool[position]
            work += lengths[other]
            for edge in range(starts[other], starts[other] + lengths[other]):
                present += mark[pool[edge]] == stamp
        major[variable] = (count * (count - 1) - present) / 2
        minor[variable] = logs[variable] + 1e-3 * tie
    else:
        major[variable] = logs[variable] - sizes[variable] + (MOST_FILLED**2 if by_fill else 0)
        minor[variable] = tie
    return work


@kernel("int64[] int32[] float64[] bool int64 float64 int64 int32[]")
def greedy_order(offsets, targets, sizes, by_fill, seed, bound, most_looks, order):
    """Eliminate the variable of the least score again and again.

    offsets, targets  the neighbours of each variable, as `core.graph` has graphs
    sizes             [variable] logarithms to base 2 of the numbers of values
    by_fill           whether scores are the edges that are added, else the sizes of the tables without the variable
    seed              of the numbers that break ties
    bound, most_looks of the cost, and of the neighbours looked at; there the search ends
    order             [variable], written
    returns           (how many variables are in the order, cost, width, neighbours looked at): see `orders.Order`

    The fill also changes for those who see a new edge; their old scores stay.
    """
    count = len(sizes)
    starts, lengths, rooms = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    pool, end = np.empty(2 * len(targets) + 64, np.int32), len(targets)
    for edge in range(end):
        pool[edge] = targets[edge]
    mark, stamp = np.zeros(count, np.int64), np.int64(0)
    logs, major, minor = np.empty(count), np.empty(count), np.empty(count)
    leaves = 1
    while leaves < count:
        leaves *= 2
    tree = np.full(2 * leaves, -1, np.int64)
    for variable in range(count):
        starts[variable] = offsets[variable]
        lengths[variable] = rooms[variable] = offsets[variable + 1] - offsets[variable]
        logs[variable] = sizes[variable]
        for edge in range(offsets[variable], offsets[variable + 1]):
            logs[variable] += sizes[targets[edge]]
    cost, width, work, draw = 0.0, np.int64(0), np.int64(0), np.int64(seed) << 32
    for variable in range(count):
        stamp += 1
        draw += 1
        work += _score(variable, by_fill, draw, starts, lengths, pool, mark, stamp, logs, sizes, major, minor)
        _update(variable, False, tree, major, minor)
    done = 0
    while done < count:
        gone = tree[1]
        order[done] = gone
        done += 1
        cost += 2.0 ** min(logs[gone], _LARGEST)
        width = max(width, lengths[gone])
        _update(gone, True, tree, major, minor)
        if cost >= bound or work >= most_looks:
            break
        first, size = starts[gone], lengths[gone]
        for position in range(first, first + size):
            other = np.int64(pool[position])
            start, length = starts[other], lengths[other]
            stamp += 1
            mark[other] = mark[gone] = stamp
            for edge in range(start, start + length):
                mark[pool[edge]] = stamp
                if pool[edge] == gone:
                    pool[edge] = pool[start + length - 1]
                    # The last one has come here, and is marked too.
                    mark[pool[edge]] = stamp
            length -= 1
            work += length + size
            if length + size > rooms[other]:
                rooms[other] = 2 * (length + size)
                if end + rooms[other] > len(pool):
                    longer = np.empty(2 * len(pool) + rooms[other], np.int32)
                    for edge in range(end):
                        longer[edge] = pool[edge]
                    pool = longer
                for edge in range(length):
                    pool[end + edge] = pool[start + edge]
                start = starts[other] = end
                end += rooms[other]
            logs[other] -= sizes[gone]
            for edge in range(first, first + size):
                new = pool[edge]
                if mark[new] != stamp:
                    pool[start + length] = new
                    length += 1
                    logs[other] += sizes[new]
            lengths[other] = length
        for position in range(first, first + size):
            other = np.int64(pool[position])
            stamp += 1
            draw += 1
            work += _score(other, by_fill, draw, starts, lengths, pool, mark, stamp, logs, sizes, major, minor)
            _update(other, False, tree, major, minor)
    return done, cost, width, work
