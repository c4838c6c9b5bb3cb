"""Kernels that split the worlds of an and-or graph into cubes, in each of which it holds, fails, or is open.

A cube is what some random facts are. In three values, all other facts being unknown, the graph may be certain to hold
in it, or certain to fail; where it is neither, the cube is split by a fact of the best proof that is left (Dotson and
Gobien 1979). Cubes are disjoint, so their masses add up: those that hold are a lower bound, those that fail leave an
upper one.

What the kernels take, as tuples:

    graph    kind [node], literal [node], offsets [node + 1], children [edge], parts [component + 1]: the nodes of a
             component are side by side, those of its children's components before them; children may be negated (`~n`),
             but not in cycles
    facts    weights [variable]; rest [group], the probability of members that the graph does not mention;
             group_of [variable], its group or -1; group_offsets [group + 1] and members: the variables of each
    cubes    parents [cube], literals [cube], masses [cube], branches [cube], heap [cube]: what a cube is a part of, by
             which literal (0 for all worlds), its mass, the variable by which it is to be split; the open ones, a heap
    scratch  assigned [variable] int8, 0 for what is open; certain [node] uint8; best [node], the value of the best
             proof, 0 for what is certain to fail; proof [node], of a disjunction the edge to what its proof is of
"""

from __future__ import annotations

import numpy as np

from derivable.circuit.kernels.draw import uniform
from derivable.circuit.kernels.hashcons import GOLDEN, finalized
from derivable.core.and_or import AND, LITERAL, OR, TRUE
from derivable.device.cpu.built_kernels import kernel

# Stands for a mass or the value of a proof whose facts have a product too small for a float.
TINY = 1e-290


@kernel
def _signed(child, certain, best):
    """(whether a signed node is certain to hold, the value of its best proof)"""
    if child >= 0:
        return certain[child], best[child]
    if certain[~child] != 0:
        return np.uint8(0), 0.0
    if best[~child] == 0.0:
        return np.uint8(1), 1.0
    return np.uint8(0), max(1.0 - best[~child], TINY)


@kernel
def _value(n, graph, facts, scratch):
    """Set what is certain of a node, and its best proof; whether that is news. Better proofs alone replace others, so
    that they form no cycles."""
    kind, literal, offsets, children, _ = graph
    weights = facts[0]
    assigned, certain, best, proof = scratch
    before, value = certain[n], best[n]
    if kind[n] == LITERAL:
        variable = abs(literal[n]) - 1
        if assigned[variable] != 0:
            is_true = (assigned[variable] > 0) == (literal[n] > 0)
            certain[n] = np.uint8(1 if is_true else 0)
            best[n] = 1.0 if is_true else 0.0
        else:
            p = weights[variable] if literal[n] > 0 else 1.0 - weights[variable]
            best[n] = max(p, TINY)
    elif kind[n] == OR:
        for e in range(offsets[n], offsets[n + 1]):
            holds, p = _signed(children[e], certain, best)
            if holds != 0:
                certain[n] = np.uint8(1)
            if p > best[n]:
                best[n] = p
                proof[n] = e
    elif kind[n] == AND:
        all_hold, product = np.uint8(1), 1.0
        for e in range(offsets[n], offsets[n + 1]):
            holds, p = _signed(children[e], certain, best)
            if holds == 0:
                all_hold = np.uint8(0)
            product = max(product * p, TINY) if product > 0.0 and p > 0.0 else 0.0
        certain[n], best[n] = all_hold, product
    elif kind[n] == TRUE:
        certain[n], best[n] = np.uint8(1), 1.0
    return certain[n] != before or best[n] != value


@kernel
def _evaluate(graph, facts, scratch):
    """Set what is certain of all nodes, and their best proofs: least fixpoints of the components, in order."""
    parts = graph[4]
    _, certain, best, proof = scratch
    for part in range(len(parts) - 1):
        first, last = parts[part], parts[part + 1]
        for n in range(first, last):
            certain[n], best[n], proof[n] = np.uint8(0), 0.0, -1
        is_new = True
        while is_new:
            is_new = False
            for n in range(first, last):
                if _value(n, graph, facts, scratch):
                    is_new = last - first > 1


@kernel
def _state(root, scratch):
    """1 for what is certain to hold, -1 for what is certain to fail, 0 for neither."""
    holds, p = _signed(root, scratch[1], scratch[2])
    return 1 if holds != 0 else (-1 if p == 0.0 else 0)


@kernel
def _branch(root, graph, scratch):
    """A random fact of the best proof of a signed node that is open: of a conjunction the least probable part."""
    kind, literal, offsets, children, _ = graph
    assigned, certain, best, proof = scratch
    n = root if root >= 0 else ~root
    for _ in range(len(kind)):
        if kind[n] == LITERAL:
            return abs(literal[n]) - 1
        e = proof[n]
        if kind[n] == AND:
            lowest = 2.0
            for i in range(offsets[n], offsets[n + 1]):
                holds, p = _signed(children[i], certain, best)
                if holds == 0 and p < lowest:
                    lowest, e = p, i
        if e < 0:
            break
        n = children[e] if children[e] >= 0 else ~children[e]
    for variable in range(len(assigned)):
        if assigned[variable] == 0:
            return variable
    return -1


@kernel
def _assign(variable, is_true, facts, assigned):
    """Have a random fact hold or fail; where one of a choice holds the others fail."""
    group_of, group_offsets, members = facts[2], facts[3], facts[4]
    group = group_of[variable]
    if is_true and group >= 0:
        for i in range(group_offsets[group], group_offsets[group + 1]):
            assigned[members[i]] = -1
    assigned[variable] = 1 if is_true else -1


@kernel
def _restrict(cube, cubes, facts, assigned):
    """Have the facts be what they are in a cube, and all others open."""
    parents, literals = cubes[0], cubes[1]
    assigned[:] = 0
    # From the inside out: what an outer split says of the other facts of a choice has been said by inner ones.
    while cube >= 0:
        if literals[cube] != 0:
            _assign(abs(literals[cube]) - 1, literals[cube] > 0, facts, assigned)
        cube = parents[cube]


@kernel
def _chance(variable, facts, assigned):
    """The probability of a fact that is open, in a cube."""
    weights, rest, group_of, group_offsets, members = facts
    group = group_of[variable]
    if group < 0:
        return weights[variable]
    total = rest[group]
    for i in range(group_offsets[group], group_offsets[group + 1]):
        if assigned[members[i]] == 0:
            total += weights[members[i]]
    return weights[variable] / total if total > 0.0 else 0.0


@kernel
def _push(heap, size, masses, cube):
    i = size
    while i > 0:
        above = (i - 1) >> 1
        if masses[heap[above]] >= masses[cube]:
            break
        heap[i] = heap[above]
        i = above
    heap[i] = cube


@kernel
def _pop(heap, size, masses):
    """The cube of largest mass of a heap of that size, which has one less then."""
    top, last, i = heap[0], heap[size - 1], 0
    while True:
        below = 2 * i + 1
        if below >= size - 1:
            break
        if below + 1 < size - 1 and masses[heap[below + 1]] > masses[heap[below]]:
            below += 1
        if masses[heap[below]] <= masses[last]:
            break
        heap[i] = heap[below]
        i = below
    heap[i] = last
    return top


@kernel
def _add_cube(parent, literal, mass, roots, graph, facts, cubes, sizes, sums, scratch):
    """Add a cube, whose facts are assigned: its mass to the sum that it belongs to, and an open one to the heap."""
    parents, literals, masses, branches, heap = cubes
    _evaluate(graph, facts, scratch)
    condition, query = _state(roots[0], scratch), _state(roots[1], scratch)
    if condition < 0:
        return
    if condition > 0 and query != 0:
        sums[0 if query > 0 else 1] += mass
        return
    cube = sizes[0]
    sizes[0] += 1
    parents[cube], literals[cube], masses[cube] = parent, literal, mass
    branches[cube] = _branch(roots[0] if condition == 0 else roots[1], graph, scratch)
    sums[2] += mass
    _push(heap, sizes[1], masses, cube)
    sizes[1] += 1


@kernel(
    "int64[] (uint8[] int32[] int64[] int64[] int64[]) (float64[] float64[] int64[] int64[] int64[]) "
    "(int64[] int32[] float64[] int32[] int64[]) int64[] float64[] (int8[] uint8[] float64[] int64[]) int64",
)
def split_cubes(roots, graph, facts, cubes, sizes, sums, scratch, steps):
    """Split open cubes, those of largest mass first, at most `steps` of them; returns how many were.

    roots  the signed nodes of the condition and of the query
    sizes  how many cubes there are, 0 at first, and open ones
    sums   the masses of cubes in which both hold, of those in which the condition alone does, and of open ones
    """
    masses, branches, heap = cubes[2], cubes[3], cubes[4]
    assigned = scratch[0]
    if sizes[0] == 0:
        assigned[:] = 0
        _add_cube(-1, 0, 1.0, roots, graph, facts, cubes, sizes, sums, scratch)
        sizes[0] = 1
    done = 0
    while done < steps and sizes[1] > 0 and sizes[0] + 2 <= len(masses):
        cube = _pop(heap, sizes[1], masses)
        sizes[1] -= 1
        sums[2] -= masses[cube]
        variable = branches[cube]
        for side in range(2):
            _restrict(cube, cubes, facts, assigned)
            p = _chance(variable, facts, assigned)
            part = p if side == 0 else 1.0 - p
            if part > 0.0:
                mass = max(masses[cube] * part, TINY)
                _assign(variable, side == 0, facts, assigned)
                literal = variable + 1 if side == 0 else -variable - 1
                _add_cube(cube, literal, mass, roots, graph, facts, cubes, sizes, sums, scratch)
        done += 1
    return done


@kernel(inline="always")
def _worlds_of(child, holds):
    """In which of 64 worlds a signed node holds."""
    return holds[child] if child >= 0 else ~holds[~child]


@kernel
def _evaluate_worlds(graph, assigned, holds):
    """Set in which of 64 worlds each node holds, a bit for each; assigned [variable] as bits, too."""
    kind, literal, offsets, children, parts = graph
    none, every = np.uint64(0), ~np.uint64(0)
    for part in range(len(parts) - 1):
        first, last = parts[part], parts[part + 1]
        holds[first:last] = none
        is_new = True
        while is_new:
            is_new = False
            for n in range(first, last):
                bits = every if kind[n] == AND or kind[n] == TRUE else none
                if kind[n] == LITERAL:
                    bits = assigned[abs(literal[n]) - 1]
                    if literal[n] < 0:
                        bits = ~bits
                elif kind[n] == AND:
                    for e in range(offsets[n], offsets[n + 1]):
                        bits &= _worlds_of(children[e], holds)
                elif kind[n] == OR:
                    for e in range(offsets[n], offsets[n + 1]):
                        bits |= _worlds_of(children[e], holds)
                if bits != holds[n]:
                    holds[n] = bits
                    is_new = last - first > 1


@kernel
def _number_of_bits(bits):
    number = 0
    while bits != 0:
        bits &= bits - np.uint64(1)
        number += 1
    return number


@kernel(
    "int64[] (uint8[] int32[] int64[] int64[] int64[]) (float64[] float64[] int64[] int64[] int64[]) "
    "(int64[] int32[] float64[] int32[] int64[]) float64[] int64[,] (int8[] uint64[] uint64[]) uint64 int64 int64",
)
def sample_cubes(roots, graph, facts, cubes, ends, counts, scratch, seed, first, count):
    """Draw worlds of open cubes, and add to counts [query] in how many it and the condition hold, and the condition
    alone.

    roots    the signed nodes of the condition and of the queries
    ends     [open cube] running sums of the masses of those in the heap
    scratch  assigned [variable] int8; the same as bits; in which worlds a node holds [node], as bits
    Sample i has numbers of its own, from the seed and first + i.
    """
    heap = cubes[4]
    assigned, bits_of, holds = scratch
    for start in range(first, first + count, 64):
        stop = min(start + 64, first + count)
        bits_of[:] = np.uint64(0)
        for s in range(start, stop):
            bit = np.uint64(1) << np.uint64(s - start)
            state = finalized(np.uint64(seed) + GOLDEN * np.uint64(s + 1))
            u = uniform(state) * ends[len(ends) - 1]
            low, high = 0, len(ends) - 1
            while low < high:
                middle = (low + high) >> 1
                if ends[middle] > u:
                    high = middle
                else:
                    low = middle + 1
            _restrict(heap[low], cubes, facts, assigned)
            for variable in range(len(assigned)):
                if assigned[variable] == 0:
                    state += GOLDEN
                    _assign(variable, uniform(state) < _chance(variable, facts, assigned), facts, assigned)
                if assigned[variable] > 0:
                    bits_of[variable] |= bit
        _evaluate_worlds(graph, bits_of, holds)
        condition = _worlds_of(roots[0], holds) & (~np.uint64(0) >> np.uint64(64 - (stop - start)))
        for i in range(1, len(roots)):
            query = _worlds_of(roots[i], holds)
            counts[i - 1, 0] += _number_of_bits(condition & query)
            counts[i - 1, 1] += _number_of_bits(condition & ~query)
