"""Numba kernels of a program of blocks: sums of products of dense tables, as variable elimination makes them.

A block multiplies some tables entry by entry and sums the products over one variable. All tables are parts of one
array, and the axes of each are in the order in which variables are eliminated. So the last axis of a block, its run,
has the stride one or zero in each of its tables, and the loop over it is vector code.

    blocks   [block, 8] int64, see the constants
    shape    [axis of a block but the last] int64
    first    [input] int64, where each table begins; those of a block whose stride along the run is zero come first
    along    [input] int64, its stride along the variable that is summed
    strides  [input, axis of its block but the last], one row after the other, int64
"""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import pointer

# Columns of `blocks`: the first of its axes in `shape` and their number, the length of its run, the values of the
# variable that is summed, its first input, how many there are with stride zero and with stride one along the run, where
# its result begins. The strides of its inputs follow those of the block before.
AXIS, AXES, RUN, TERMS, INPUT, FIXED, MOVING, OUT = range(8)

# Results whose largest number leaves 2**-32 to 2**32 are scaled by a power of two, so that products of many are floats.
UNIT = 64
UP, DOWN, LOW, HIGH = 2.0**UNIT, 2.0**-UNIT, 2.0 ** -(UNIT // 2), 2.0 ** (UNIT // 2)
MOST = 2.0**960


@kernel(inline="always")
def _begun(at, shape, first, inputs, begin, axis, axes):
    """Move the positions of a block's tables to its first run; returns how many runs it has."""
    for one in range(inputs):
        at[one] = first[begin + one]
    runs = np.int64(1)
    for digit in range(axes):
        at[inputs + digit] = 0
        runs *= shape[axis + digit]
    return runs


@kernel(inline="always")
def _stepped(at, shape, strides, inputs, axis, axes, stride):
    """Move the positions of a block's tables, behind which its counters are, to the next run."""
    digit = axes - 1
    while digit >= 0:
        at[inputs + digit] += 1
        is_done = at[inputs + digit] < shape[axis + digit]
        back = 0 if is_done else shape[axis + digit]
        for one in range(inputs):
            at[one] += strides[stride + one * axes + digit] * (1 - back)
        if is_done:
            return
        at[inputs + digit] = 0
        digit -= 1


@kernel("int64[,] int64[] int64[] int64[] int64[] float64[] float64[] float64[] int64[] bool")
def fold_blocks(blocks, shape, first, along, strides, values, scales, room, positions, is_boolean):
    """Write the results of all blocks into `values`, whose first part has the tables of the problem.

    scales      [block] float64, written: what its results were multiplied by
    room        [longest run] float64, overwritten
    positions   [most inputs + most axes] int64, overwritten
    is_boolean  values are zeros and ones, and any sum of ones is one
    returns     (how many products of entries are not zero, if `is_boolean`; the power of two that the last result is to
                be multiplied by)
    """
    v, tmp, at = pointer(values), pointer(room), pointer(positions)
    stride, alive, power = np.int64(0), np.int64(0), np.int64(0)
    for block in range(len(blocks)):
        axis, axes = blocks[block, AXIS], blocks[block, AXES]
        run, terms = blocks[block, RUN], blocks[block, TERMS]
        begin, fixed, moving = blocks[block, INPUT], blocks[block, FIXED], blocks[block, MOVING]
        out = blocks[block, OUT]
        inputs = fixed + moving
        for _ in range(_begun(at, shape, first, inputs, begin, axis, axes)):
            for entry in range(run):
                v[out + entry] = 0.0
            for term in range(terms):
                factor = 1.0
                for one in range(fixed):
                    factor *= v[at[one] + term * along[begin + one]]
                if factor == 0.0:
                    continue
                if moving == 0:
                    for entry in range(run):
                        v[out + entry] += factor
                    alive += run
                    continue
                a = at[fixed] + term * along[begin + fixed]
                if moving == 1:
                    for entry in range(run):
                        tmp[entry] = factor * v[a + entry]
                else:
                    b = at[fixed + 1] + term * along[begin + fixed + 1]
                    for entry in range(run):
                        tmp[entry] = factor * v[a + entry] * v[b + entry]
                    for one in range(fixed + 2, inputs):
                        a = at[one] + term * along[begin + one]
                        for entry in range(run):
                            tmp[entry] *= v[a + entry]
                for entry in range(run):
                    v[out + entry] += tmp[entry]
                if is_boolean:
                    for entry in range(run):
                        alive += tmp[entry] > 0.0
            if is_boolean:
                for entry in range(run):
                    v[out + entry] = min(v[out + entry], 1.0)
            out += run
            _stepped(at, shape, strides, inputs, axis, axes, stride)
        stride += inputs * axes
        begin, largest, scale = blocks[block, OUT], 0.0, 1.0
        for entry in range(begin, out):
            largest = max(largest, abs(v[entry]))
        if 0.0 < largest < np.inf:
            # What is below all normal floats is scaled as far as there are powers.
            while largest * scale < LOW and scale < MOST:
                scale *= UP
                power -= UNIT
            while largest * scale > HIGH:
                scale *= DOWN
                power += UNIT
            if scale != 1.0:
                for entry in range(begin, out):
                    v[entry] *= scale
        scales[block] = scale
    return alive, power


@kernel("int64[,] int64[] int64[] int64[] int64[] float64[] float64[] float64[] float64[] int64[] bool")
def pull_blocks(blocks, shape, first, along, strides, values, scales, adjoints, room, positions, is_boolean):
    """Add up the derivatives of the last block's results for all tables in `adjoints`, laid out as `values`.

    adjoints    has the seeds of the last block, and zeros
    room        [(most inputs + 2) * longest run] float64, overwritten
    is_boolean  as in `fold_blocks`; an adjoint is positive where the derivative is not zero
    """
    v, d, tmp, at = pointer(values), pointer(adjoints), pointer(room), pointer(positions)
    stride = np.int64(len(strides))
    for block in range(len(blocks) - 1, -1, -1):
        axis, axes = blocks[block, AXIS], blocks[block, AXES]
        run, terms = blocks[block, RUN], blocks[block, TERMS]
        begin, fixed, moving = blocks[block, INPUT], blocks[block, FIXED], blocks[block, MOVING]
        out = blocks[block, OUT]
        inputs = fixed + moving
        stride -= inputs * axes
        for _ in range(_begun(at, shape, first, inputs, begin, axis, axes)):
            if is_boolean:
                for entry in range(run):
                    d[out + entry] = min(d[out + entry], 1.0)
            elif scales[block] != 1.0:
                for entry in range(run):
                    d[out + entry] *= scales[block]
            for term in range(terms):
                factor = 1.0
                for one in range(fixed):
                    factor *= v[at[one] + term * along[begin + one]]
                total = 0.0
                if moving == 0:
                    for entry in range(run):
                        total += d[out + entry]
                elif moving == 1:
                    a = at[fixed] + term * along[begin + fixed]
                    for entry in range(run):
                        total += d[out + entry] * v[a + entry]
                    for entry in range(run):
                        d[a + entry] += factor * d[out + entry]
                elif moving == 2:
                    a = at[fixed] + term * along[begin + fixed]
                    b = at[fixed + 1] + term * along[begin + fixed + 1]
                    for entry in range(run):
                        total += d[out + entry] * v[a + entry] * v[b + entry]
                    for entry in range(run):
                        d[a + entry] += factor * d[out + entry] * v[b + entry]
                    for entry in range(run):
                        d[b + entry] += factor * d[out + entry] * v[a + entry]
                else:
                    # Row k: the adjoint of the result times the tables before k; then from behind times those after.
                    for entry in range(run):
                        tmp[entry] = d[out + entry]
                    for one in range(moving):
                        a, here = at[fixed + one] + term * along[begin + fixed + one], one * run
                        for entry in range(run):
                            tmp[here + run + entry] = tmp[here + entry] * v[a + entry]
                    behind = (moving + 1) * run
                    for entry in range(run):
                        total += tmp[behind - run + entry]
                    for entry in range(run):
                        tmp[behind + entry] = factor
                    for one in range(moving - 1, -1, -1):
                        a, here = at[fixed + one] + term * along[begin + fixed + one], one * run
                        for entry in range(run):
                            d[a + entry] += tmp[here + entry] * tmp[behind + entry]
                        for entry in range(run):
                            tmp[behind + entry] *= v[a + entry]
                if fixed == 1:
                    d[at[0] + term * along[begin]] += total
                elif fixed == 2:
                    a, b = at[0] + term * along[begin], at[1] + term * along[begin + 1]
                    d[a] += total * v[b]
                    d[b] += total * v[a]
                elif fixed > 2:
                    tmp[0] = total
                    for one in range(fixed):
                        tmp[one + 1] = tmp[one] * v[at[one] + term * along[begin + one]]
                    after = 1.0
                    for one in range(fixed - 1, -1, -1):
                        a = at[one] + term * along[begin + one]
                        d[a] += tmp[one] * after
                        after *= v[a]
            out += run
            _stepped(at, shape, strides, inputs, axis, axes, stride)
