"""The primitive "fold levels" for sums of products of floats: forward and reverse pass over a program.

A program (see `levels_plan`) runs over a buffer of slots, [slot] for one row of the batch or [slot, lane] for one
cache line of rows. `forward` computes the slots in order; `backward` adds up the adjoints in reverse order,
without division, so zeros need no care: for n = sum p_j * s_j with adjoint a, p_j gets a * s_j and s_j gets a * p_j.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from derivable.device.cpu.lanes import add, item, like, load, multiply, multiply_add, store, zero_of


@njit(cache=True, nogil=True)
def forward(values, runs, terms):
    """Compute all inner slots of `values` ([slot] or [slot, lane]) from constants and leaves."""
    for run in range(runs.shape[0]):
        first, count = np.int64(runs[run, 0]), np.int64(runs[run, 1])
        pairs, singles, factors = np.int64(runs[run, 2]), np.int64(runs[run, 3]), np.int64(runs[run, 4])
        at = np.int64(runs[run, 5])
        if factors > 0:
            for slot in range(first, first + count):
                total = load(values, item(terms, at))
                for k in range(1, factors):
                    total = multiply(total, load(values, item(terms, at + k)))
                at += factors
                store(values, slot, total)
        elif pairs == 1 and singles == 0:
            for slot in range(first, first + count):
                store(values, slot, multiply(load(values, item(terms, at)), load(values, item(terms, at + 1))))
                at += 2
        elif pairs == 2 and singles == 0:
            for slot in range(first, first + count):
                total = multiply(load(values, item(terms, at)), load(values, item(terms, at + 1)))
                total = multiply_add(load(values, item(terms, at + 2)), load(values, item(terms, at + 3)), total)
                at += 4
                store(values, slot, total)
        else:
            for slot in range(first, first + count):
                total = zero_of(values)
                for _ in range(pairs):
                    total = multiply_add(load(values, item(terms, at)), load(values, item(terms, at + 1)), total)
                    at += 2
                for _ in range(singles):
                    total = add(total, load(values, item(terms, at)))
                    at += 1
                store(values, slot, total)


@njit(cache=True, nogil=True)
def backward(values, adjoints, runs, terms, prefix):
    """Add to `adjoints` what each slot's adjoint gives its operands; slots in reverse order.

    values, adjoints  [slot] or [slot, lane]; the adjoints of the roots are set, all others zero
    prefix            scratch of the same kind, with at least as many rows as the longest product has factors
    """
    # All operands in exactly the reverse of the forward pass's order: what that touched last is still in the cache.
    for run in range(runs.shape[0] - 1, -1, -1):
        first, count = np.int64(runs[run, 0]), np.int64(runs[run, 1])
        pairs, singles, factors = np.int64(runs[run, 2]), np.int64(runs[run, 3]), np.int64(runs[run, 4])
        at = np.int64(runs[run, 5]) + count * (2 * pairs + singles + factors)
        if factors == 3:
            for slot in range(first + count - 1, first - 1, -1):
                at -= 3
                a = load(adjoints, slot)
                i, j, k = item(terms, at), item(terms, at + 1), item(terms, at + 2)
                x, y, z = load(values, i), load(values, j), load(values, k)
                ax = multiply(a, x)
                ayz = multiply(multiply(a, y), z)
                store(adjoints, i, add(load(adjoints, i), ayz))
                store(adjoints, j, multiply_add(ax, z, load(adjoints, j)))
                store(adjoints, k, multiply_add(ax, y, load(adjoints, k)))
        elif factors > 0:
            for slot in range(first + count - 1, first - 1, -1):
                at -= factors
                # prefix[k] is the adjoint times the factors before k; `after` the product of those behind.
                product = load(adjoints, slot)
                for k in range(factors):
                    store(prefix, k, product)
                    product = multiply(product, load(values, item(terms, at + k)))
                after = like(product, 1.0)
                for k in range(factors - 1, -1, -1):
                    operand = item(terms, at + k)
                    store(adjoints, operand, multiply_add(load(prefix, k), after, load(adjoints, operand)))
                    after = multiply(after, load(values, operand))
        else:
            for slot in range(first + count - 1, first - 1, -1):
                a = load(adjoints, slot)
                for _ in range(singles):
                    at -= 1
                    i = item(terms, at)
                    store(adjoints, i, add(load(adjoints, i), a))
                for _ in range(pairs):
                    at -= 2
                    i, j = item(terms, at), item(terms, at + 1)
                    x, y = load(values, i), load(values, j)
                    store(adjoints, i, multiply_add(a, y, load(adjoints, i)))
                    store(adjoints, j, multiply_add(a, x, load(adjoints, j)))


@njit(cache=True, nogil=True)
def read_column(weights, row, rows, variable, values, slot):
    """values[slot] = weights[row : row + rows, variable]; lanes past `rows` repeat the last row."""
    if values.ndim == 1:
        values[slot] = weights[row, variable]
    else:
        for lane in range(rows):
            values[slot, lane] = weights[row + lane, variable]
        for lane in range(rows, values.shape[1]):
            values[slot, lane] = values[slot, rows - 1]


@njit(cache=True, nogil=True)
def write_column(out, row, rows, column, values, slot):
    """out[row : row + rows, column] = values[slot]."""
    if values.ndim == 1:
        out[row, column] = values[slot]
    else:
        for lane in range(rows):
            out[row + lane, column] = values[slot, lane]


@njit(cache=True, nogil=True)
def clear(buffer):
    """Set all slots to zero."""
    zero = zero_of(buffer)
    for slot in range(buffer.shape[0]):
        store(buffer, slot, zero)
