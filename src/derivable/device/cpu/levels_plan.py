"""From the arrays of a circuit to the program that the kernels of `levels` run, in linear time.

A program is a list of runs. A run is a number of consecutive slots (rows of the value buffer) of one shape, so
that the kernels' inner loops have constant trip counts: either sums of `pairs` products of two slots and of
`singles` slots, or products of `factors` slots. And-nodes with two children that only or-nodes use, at most
`SHARED` times, get no slot: their product is formed again where it is used, which costs fewer loads and no store.

    slot 0, 1         the constants zero and one
    slots 2 ...       the leaves of the circuit, in its order
    then              inner nodes by level, within a level by shape
    then              positive literals that do not occur, of variables whose negative literal does: only written
    last slot         written for variables that the circuit does not mention, read by nobody

Rows of `runs`: FIRST slot, COUNT of slots, PAIRS, SINGLES, FACTORS, START in `terms`. The operands of a slot
follow each other in `terms`: pairs first (two slots each), then singles; or the factors.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SHARED = 4
FIRST, COUNT, PAIRS, SINGLES, FACTORS, START = range(6)
_SUMS = 32  # sums of fewer than this many pairs and singles are grouped by exact shape
_PRODUCTS = 256  # the same for products
_SHAPES = _SUMS * _SUMS + _PRODUCTS + 1

_FALSE, _TRUE, _LITERAL, _AND, _OR = 0, 1, 2, 3, 4


@njit(cache=True, nogil=True)
def plan_program(kind, literal, offsets, children, roots, num_variables):
    """The program of a circuit.

    kind, literal, offsets, children, roots  as in `Circuit`
    returns  runs [run, 6] int32, terms [operand] int32, positive [variable] int32 and negative [variable] int32:
             the slots of the literals; root_slots [root] int32, num_slots (the last one included),
             statistics [4] float64: degree (the largest number of literals in a product, counted with
             multiplicity), count (the largest number of products of literals that a node sums), number of
             operations, number of levels of slots
    """
    num_nodes = kind.size
    or_parents = np.zeros(num_nodes, np.int32)
    other_parents = np.zeros(num_nodes, np.int32)
    for node in range(num_nodes):
        into = or_parents if kind[node] == _OR else other_parents
        for edge in range(offsets[node], offsets[node + 1]):
            into[children[edge]] += 1
    for root in roots:
        other_parents[root] += 1

    fused = np.zeros(num_nodes, np.bool_)
    level = np.zeros(num_nodes, np.int32)
    shape = np.zeros(num_nodes, np.int32)
    degree = np.zeros(num_nodes, np.float64)
    count = np.ones(num_nodes, np.float64)
    max_degree, max_count, operations = 1.0, 1.0, 0.0
    num_inner, num_terms, num_levels, num_leaves = 0, 0, 1, 0
    for node in range(num_nodes):
        first, last = offsets[node], offsets[node + 1]
        if kind[node] <= _LITERAL:
            num_leaves += 1
            degree[node] = 1.0 if kind[node] == _LITERAL else 0.0
            continue
        highest = 0
        if kind[node] == _AND:
            arity = last - first
            fused[node] = arity == 2 and other_parents[node] == 0 and or_parents[node] <= SHARED
            for edge in range(first, last):
                child = children[edge]
                highest = max(highest, level[child])
                degree[node] += degree[child]
                count[node] *= count[child]
            operations += arity
            if fused[node]:
                level[node] = highest
                continue
            if arity == 2:
                shape[node] = _SUMS
            else:
                shape[node] = _SUMS * _SUMS + min(arity, _PRODUCTS)
            num_terms += arity
        else:
            pairs, singles = 0, 0
            count[node] = 0.0
            for edge in range(first, last):
                child = children[edge]
                highest = max(highest, level[child])
                degree[node] = max(degree[node], degree[child])
                count[node] += count[child]
                if fused[child]:
                    pairs += 1
                else:
                    singles += 1
            operations += last - first
            if pairs < _SUMS and singles < _SUMS:
                shape[node] = pairs * _SUMS + singles
            else:
                shape[node] = _SHAPES - 1
            num_terms += 2 * pairs + singles
        level[node] = highest + 1
        num_levels = max(num_levels, highest + 2)
        max_degree = max(max_degree, degree[node])
        max_count = max(max_count, count[node])
        num_inner += 1

    # Slots by (level, shape, node): two stable counting sorts.
    inner = np.empty(num_inner, np.int32)
    by_shape = np.empty(num_inner, np.int32)
    starts = np.zeros(_SHAPES + 1, np.int64)
    for node in range(num_nodes):
        if kind[node] >= _AND and not fused[node]:
            starts[shape[node] + 1] += 1
    for bucket in range(_SHAPES):
        starts[bucket + 1] += starts[bucket]
    for node in range(num_nodes):
        if kind[node] >= _AND and not fused[node]:
            by_shape[starts[shape[node]]] = node
            starts[shape[node]] += 1
    starts = np.zeros(num_levels + 1, np.int64)
    for node in by_shape:
        starts[level[node] + 1] += 1
    for bucket in range(num_levels):
        starts[bucket + 1] += starts[bucket]
    for node in by_shape:
        inner[starts[level[node]]] = node
        starts[level[node]] += 1

    slot = np.zeros(num_nodes, np.int32)
    positive = np.full(num_variables, -1, np.int32)
    negative = np.full(num_variables, -1, np.int32)
    next_slot = 2
    for node in range(num_nodes):
        if kind[node] == _LITERAL:
            slot[node] = next_slot
            if literal[node] > 0:
                positive[literal[node] - 1] = next_slot
            else:
                negative[-literal[node] - 1] = next_slot
            next_slot += 1
        elif kind[node] <= _TRUE:
            slot[node] = kind[node]
            next_slot += 1
    for node in inner:
        slot[node] = next_slot
        next_slot += 1
    for variable in range(num_variables):
        if negative[variable] >= 0 and positive[variable] < 0:
            positive[variable] = next_slot
            next_slot += 1
    num_slots = next_slot + 1
    for variable in range(num_variables):
        if positive[variable] < 0:
            positive[variable] = next_slot
        if negative[variable] < 0:
            negative[variable] = next_slot

    terms = np.empty(num_terms, np.int32)
    num_runs = 0
    previous_level, previous_shape = -1, -1
    for node in inner:
        if level[node] != previous_level or shape[node] != previous_shape or shape[node] >= _SHAPES - 2:
            num_runs += 1
        previous_level, previous_shape = level[node], shape[node]
    runs = np.empty((num_runs, 6), np.int32)
    run, position = -1, 0
    previous_level, previous_shape = -1, -1
    for node in inner:
        start = position
        pairs, singles, factors = 0, 0, 0
        first, last = offsets[node], offsets[node + 1]
        if kind[node] == _AND:
            if last - first == 2:
                pairs = 1
            else:
                factors = last - first
            for edge in range(first, last):
                terms[position] = slot[children[edge]]
                position += 1
        else:
            for edge in range(first, last):
                child = children[edge]
                if fused[child]:
                    pairs += 1
                    terms[position] = slot[children[offsets[child]]]
                    terms[position + 1] = slot[children[offsets[child] + 1]]
                    position += 2
            for edge in range(first, last):
                child = children[edge]
                if not fused[child]:
                    singles += 1
                    terms[position] = slot[child]
                    position += 1
        if level[node] != previous_level or shape[node] != previous_shape or shape[node] >= _SHAPES - 2:
            run += 1
            runs[run, FIRST] = slot[node]
            runs[run, COUNT] = 0
            runs[run, PAIRS] = pairs
            runs[run, SINGLES] = singles
            runs[run, FACTORS] = factors
            runs[run, START] = start
        runs[run, COUNT] += 1
        previous_level, previous_shape = level[node], shape[node]

    root_slots = np.empty(roots.size, np.int32)
    for index in range(roots.size):
        root_slots[index] = slot[roots[index]]
    statistics = np.array([max_degree, max_count, operations, float(num_levels)])
    return runs, terms, positive, negative, root_slots, num_slots, statistics
