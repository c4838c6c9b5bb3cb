"""From the arrays of a circuit to the program that the kernels of `levels` run, in linear time.

A program is a list of runs. A run is a number of consecutive slots (rows of the value buffer) of one shape, so
that the kernels' inner loops have constant trip counts: either sums of `pairs` products of two slots and of
`singles` slots, or products of `factors` slots, or negations (-1 factors) of one slot each. And-nodes with two
children that only or-nodes use, at most `SHARED` times, get no slot: their product is formed again where it is used,
which costs fewer loads and no store.

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

from derivable.circuit.kernels.level_passes import COUNT, FACTORS, FIRST, PAIRS, SINGLES, START
from derivable.core.and_or import AND, LITERAL, NOT, OR
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.pages import empty_pages, zero_pages
from derivable.device.cpu.places import item
from derivable.device.cpu.threads import run_chunks

SHARED = 4
_SUMS = 32  # sums of fewer than this many pairs and singles are grouped by exact shape
_PRODUCTS = 256  # the same for products
_NEGATION = _SUMS * _SUMS  # no product has no factors
_SHAPES = _SUMS * _SUMS + _PRODUCTS + 1
_LEAF, _FUSED = -1, -2  # in place of a shape
_WORTH_A_THREAD = 200_000  # edges
_OTHER = 100  # what a use by a product or from outside counts, more than SHARED


def plan_program(kind, literal, offsets, children, roots, num_variables, in_order=False):
    """The program of a circuit.

    kind, literal, offsets, children, roots  as in `Circuit`
    in_order  whether the terms of every sum keep the order of its children; then no sum has pairs beside singles
    returns  runs [run, 6] int32, terms [operand] int32, positive [variable] int32 and negative [variable] int32:
             the slots of the literals; root_slots [root] int32, num_slots (the last one included),
             statistics [4] float64: degree (the largest number of literals in a product, counted with
             multiplicity), count (the largest number of products of literals that a node sums), number of
             operations, number of levels of slots
    """
    # The kernels read through `item`, which knows no strides.
    kind, literal, offsets, children = map(np.ascontiguousarray, (kind, literal, offsets, children))
    num_nodes = len(kind)
    statistics = np.empty(3, np.float64)
    uses = zero_pages(num_nodes, np.uint8)
    # Scratch comes from NumPy, which asks for large pages; allocations inside kernels do not.
    level = empty_pages(num_nodes, np.int32)
    shape = empty_pages(num_nodes, np.int16)
    operand = empty_pages(2 * num_nodes, np.int32).reshape(num_nodes, 2)
    positive, negative = np.empty(num_variables, np.int32), np.empty(num_variables, np.int32)
    arranged: list = []

    def arrange():
        _count_uses(kind, offsets, children, roots, uses)
        if in_order:
            _part_mixed(kind, offsets, children, uses)
        num_inner, num_levels = _shapes_of(kind, offsets, children, uses, level, shape)
        inner = empty_pages(num_inner, np.int32)
        _sort_inner(level, shape, num_levels, empty_pages(num_inner, np.int32), inner)
        num_slots = _assign_slots(kind, literal, offsets, children, shape, inner, operand, positive, negative)
        runs = empty_pages(6 * num_inner, np.int32).reshape(num_inner, 6)
        starts = empty_pages(num_inner + 1, np.int32)
        num_runs = _lay_out(kind, offsets, children, level, shape, inner, operand, starts, runs)
        arranged.extend((inner, starts, runs[:num_runs].copy(), num_slots, num_levels))

    def measure():
        _measure(kind, offsets, children, empty_pages(2 * num_nodes, np.float64).reshape(num_nodes, 2), statistics)

    def part(begin: int, end: int) -> None:
        for task in (arrange, measure)[begin:end]:
            task()

    run_chunks(part, 2, 1 if len(children) >= _WORTH_A_THREAD else 2)
    inner, starts, runs, num_slots, num_levels = arranged
    terms = empty_pages(int(starts[-1]), np.int32)
    first_slot = int(operand[inner[0], 0]) if len(inner) else 0
    run_chunks(
        _write_terms, len(children), _WORTH_A_THREAD, kind, offsets, children, shape, operand, first_slot, starts, terms
    )
    statistics = np.append(statistics, num_levels)
    return runs, terms, positive, negative, operand[roots, 0], num_slots, statistics


@kernel("uint8[] int64[] int32[] int64[] uint8[]", "uint8[] int64[] int64[] int64[] uint8[]")
def _count_uses(kind, offsets, children, roots, uses):
    """uses [node] uint8, zeros: uses by or-nodes, and `_OTHER` for each other one; not less than `_OTHER` is enough."""
    for root in roots:
        uses[root] = _OTHER
    for node in range(len(kind)):
        step = 1 if kind[node] == OR else _OTHER
        for edge in range(item(offsets, node), item(offsets, node + 1)):
            child = item(children, edge)
            uses[child] = min(item(uses, child) + step, _OTHER)


@kernel("uint8[] int64[] int32[] uint8[]", "uint8[] int64[] int64[] uint8[]")
def _part_mixed(kind, offsets, children, uses):
    """Count `_OTHER` for and-nodes that a sum with other children uses, so that they get slots of their own."""
    rounds, changed = 0, True
    while changed:
        changed = False
        for node in range(len(kind)):
            if kind[node] != OR:
                continue
            first, last = item(offsets, node), item(offsets, node + 1)
            fused = 0
            for edge in range(first, last):
                child = np.uint64(item(children, edge))
                arity = item(offsets, child + np.uint64(1)) - item(offsets, child)
                fused += kind[child] == AND and arity == 2 and uses[child] <= SHARED
            if 0 < fused < last - first:
                for edge in range(first, last):
                    uses[np.uint64(item(children, edge))] = _OTHER
                changed = True
        rounds += 1
        if rounds == 8:
            # What sums share hands on to the next sum; products that are used once end that.
            for node in range(len(kind)):
                if uses[node] > 1:
                    uses[node] = _OTHER
            changed = True


@kernel("uint8[] int64[] int32[] uint8[] int32[] int16[]", "uint8[] int64[] int64[] uint8[] int32[] int16[]")
def _shapes_of(kind, offsets, children, uses, level, shape):
    """Levels and shapes of slots.

    level  [node] int32, written
    shape  [node] int16, written: `_LEAF`, `_FUSED`, or a number that nodes share if they have equal shapes
    returns  inner slots, levels
    """
    num_inner, num_levels = 0, 1
    for node in range(len(kind)):
        this = kind[node]
        if this <= LITERAL:
            level[node] = 0
            shape[node] = _LEAF
            continue
        first, last = item(offsets, node), item(offsets, node + 1)
        arity = last - first
        highest = np.int64(0)
        if this == AND:
            for edge in range(first, last):
                highest = max(highest, item(level, np.uint64(item(children, edge))))
            if arity == 2 and uses[node] <= SHARED:
                level[node] = highest
                shape[node] = _FUSED
                continue
            shape[node] = _SUMS if arity == 2 else _SUMS * _SUMS + min(arity, _PRODUCTS)
        elif this == NOT:
            highest = np.int64(level[np.uint64(item(children, first))])
            shape[node] = _NEGATION
        else:
            pairs = 0
            for edge in range(first, last):
                child = np.uint64(item(children, edge))
                highest = max(highest, item(level, child))
                pairs += item(shape, child) == _FUSED
            singles = arity - pairs
            shape[node] = pairs * _SUMS + singles if pairs < _SUMS and singles < _SUMS else _SHAPES - 1
        level[node] = highest + 1
        num_levels = max(num_levels, highest + 2)
        num_inner += 1
    return num_inner, num_levels


@kernel("uint8[] int64[] int32[] float64[,] float64[]", "uint8[] int64[] int64[] float64[,] float64[]")
def _measure(kind, offsets, children, sizes, statistics):
    """Write the largest degree and count of a node, at least 1, and the number of operations to `statistics`.

    sizes  [node, 2] float64, written: degree and count of each node
    """
    max_degree, max_count, operations = 1.0, 1.0, 0.0
    for node in range(len(kind)):
        this = kind[node]
        if this <= LITERAL:
            sizes[node, 0] = 1.0 if this == LITERAL else 0.0
            sizes[node, 1] = 1.0
            continue
        first, last = item(offsets, node), item(offsets, node + 1)
        operations += last - first
        degree, count = 0.0, 1.0 if this == AND else 0.0
        if this == AND:
            for edge in range(first, last):
                child = np.uint64(item(children, edge))
                degree += sizes[child, 0]
                count *= sizes[child, 1]
        else:
            for edge in range(first, last):
                child = np.uint64(item(children, edge))
                degree = max(degree, sizes[child, 0])
                count += sizes[child, 1]
        sizes[node, 0], sizes[node, 1] = degree, count
        max_degree = max(max_degree, degree)
        max_count = max(max_count, count)
    statistics[0], statistics[1], statistics[2] = max_degree, max_count, operations


@kernel("int32[] int16[] int64 int32[] int32[]")
def _sort_inner(level, shape, num_levels, by_shape, inner):
    """inner [slot] int32: the nodes with slots of their own by level, shape, node; two stable counting sorts."""
    starts = np.zeros(_SHAPES + 1, np.int64)
    level_starts = np.zeros(num_levels + 1, np.int64)
    for node in range(len(shape)):
        if shape[node] >= 0:
            starts[shape[node] + 1] += 1
            level_starts[level[node] + 1] += 1
    for bucket in range(_SHAPES):
        starts[bucket + 1] += starts[bucket]
    for bucket in range(num_levels):
        level_starts[bucket + 1] += level_starts[bucket]
    for node in range(len(shape)):
        if shape[node] >= 0:
            by_shape[starts[shape[node]]] = node
            starts[shape[node]] += 1
    for node in by_shape:
        inner[level_starts[level[node]]] = node
        level_starts[level[node]] += 1


@kernel(
    "uint8[] int32[] int64[] int32[] int16[] int32[] int32[,] int32[] int32[]",
    "uint8[] int32[] int64[] int64[] int16[] int32[] int32[,] int32[] int32[]",
)
def _assign_slots(kind, literal, offsets, children, shape, inner, operand, positive, negative):
    """Write positive and negative [variable] and what a node is as an operand; returns the number of slots.

    operand  [node, 2] int32: the slot and -1, or the two slots of a fused product, which so is one access
    """
    positive[:] = -1
    negative[:] = -1
    next_slot = 2
    for node in range(len(kind)):
        if kind[node] > LITERAL:
            continue
        operand[node, 1] = -1
        operand[node, 0] = kind[node]
        if kind[node] == LITERAL:
            slots = positive if literal[node] > 0 else negative
            variable = abs(literal[node]) - 1
            if slots[variable] < 0:
                slots[variable] = next_slot
                next_slot += 1
            operand[node, 0] = slots[variable]
    for node in inner:
        operand[node, 0] = next_slot
        operand[node, 1] = -1
        next_slot += 1
    for variable in range(len(positive)):
        if negative[variable] >= 0 and positive[variable] < 0:
            positive[variable] = next_slot
            next_slot += 1
    for variable in range(len(positive)):
        if positive[variable] < 0:
            positive[variable] = next_slot
        if negative[variable] < 0:
            negative[variable] = next_slot
    # The factors of a fused product are used by a product, so they are not fused themselves.
    for node in range(len(kind)):
        if shape[node] == _FUSED:
            first = item(offsets, node)
            operand[node, 0] = operand[np.uint64(item(children, first)), 0]
            operand[node, 1] = operand[np.uint64(item(children, first + 1)), 0]
    return next_slot + 1


@kernel(
    "uint8[] int64[] int32[] int32[] int16[] int32[] int32[,] int32[] int32[,]",
    "uint8[] int64[] int64[] int32[] int16[] int32[] int32[,] int32[] int32[,]",
)
def _lay_out(kind, offsets, children, level, shape, inner, operand, starts, runs):
    """Write the runs, and where the operands of each inner slot start, starts [inner slot + 1] int32.

    returns  the number of runs
    """
    run, position = -1, 0
    previous_level, previous_shape = -1, -1
    for slot in range(len(inner)):
        node = np.uint64(inner[slot])
        this = shape[node]
        first, last = item(offsets, node), item(offsets, node + np.uint64(1))
        pairs, singles, factors = np.int64(0), np.int64(0), np.int64(0)
        if kind[node] == AND:
            if last - first == 2:
                pairs = np.int64(1)
            else:
                factors = last - first
        elif this == _NEGATION:
            factors = np.int64(-1)
        elif this < _SUMS * _SUMS:
            pairs, singles = np.int64(this // _SUMS), np.int64(this % _SUMS)
        else:
            for edge in range(first, last):
                pairs += operand[np.uint64(item(children, edge)), 1] >= 0
            singles = last - first - pairs
        starts[slot] = position
        width = 2 * pairs + singles + factors if factors >= 0 else np.int64(1)
        if level[node] != previous_level or this != previous_shape or this >= _SHAPES - 2:
            run += 1
            runs[run, FIRST] = operand[node, 0]
            runs[run, COUNT] = 0
            runs[run, PAIRS] = pairs
            runs[run, SINGLES] = singles
            runs[run, FACTORS] = factors
            runs[run, START] = position
        runs[run, COUNT] += 1
        position += width
        previous_level, previous_shape = level[node], this
    starts[len(inner)] = position
    return run + 1


@kernel(
    "int64 int64 uint8[] int64[] int32[] int16[] int32[,] int64 int32[] int32[]",
    "int64 int64 uint8[] int64[] int64[] int16[] int32[,] int64 int32[] int32[]",
)
def _write_terms(begin, end, kind, offsets, children, shape, operand, first_slot, starts, terms):
    """Write the terms of the inner slots of the nodes whose edges start at begin:end.

    first_slot  that of the first inner slot
    """
    # In the order of nodes, so that only operands are read from all over memory; nobody waits for what is written.
    for node in range(np.searchsorted(offsets, begin), np.searchsorted(offsets, end)):
        if item(shape, node) < 0:
            continue
        slot = np.int64(operand[np.uint64(node), 0]) - first_slot
        position = item(starts, slot)
        first, last = item(offsets, node), item(offsets, node + 1)
        if item(kind, node) != OR:
            for edge in range(first, last):
                terms[np.uint64(position)] = operand[np.uint64(item(children, edge)), 0]
                position += 1
            continue
        # A pair takes two places, a single one.
        pairs = item(starts, slot + 1) - position - (last - first)
        # Which operands are pairs is not predictable: positions are computed instead of branched on.
        single = position + 2 * pairs
        for edge in range(first, last):
            child = np.uint64(item(children, edge))
            operand_slot, second = operand[child, 0], operand[child, 1]
            is_pair = np.int64(second >= 0)
            place = np.uint64(position if is_pair else single)
            terms[place] = operand_slot
            terms[place + np.uint64(is_pair)] = second if is_pair else operand_slot
            position += 2 * is_pair
            single += 1 - is_pair
