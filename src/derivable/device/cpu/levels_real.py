"""Tiles of a batch in the real semiring: read weights, fold the levels, write roots and gradients."""

from __future__ import annotations

import numpy as np
from numba import njit

from derivable.device.cpu.lanes import (
    add,
    any_set,
    bit_and,
    equal,
    like,
    load,
    store,
    subtract,
    zero_of,
)
from derivable.device.cpu.levels import read_column, write_column
from derivable.device.cpu.levels_team import clear_adjoints, fold_backward, fold_forward

# What a call computes: the roots; the roots and the gradient of the only root; the gradient for given adjoints.
VALUES, VALUES_AND_GRADIENT, GRADIENT = 0, 1, 2


@njit(cache=True, nogil=True)
def real_rows(
    start,
    stop,
    mode,
    weights,
    negative_weights,
    has_negative,
    positive,
    negative,
    runs,
    terms,
    root_slots,
    values,
    adjoints,
    prefix,
    out,
    seeds,
    gradient,
    negative_gradient,
):
    """Rows start:stop of a batch; returns -1, or the first row of a tile with a NaN weight.

    weights, negative_weights  [row, variable]; the second is read if `has_negative`, else it is one minus the first
    values, adjoints, prefix   scratch, [slot] or [slot, lane]; values[0] = 0 and values[1] = 1
    out        [row, root]     written in the modes VALUES and VALUES_AND_GRADIENT
    seeds      [row, root]     read in mode GRADIENT: adjoints of the roots
    gradient   [row, variable] with respect to the weights, and `negative_gradient` to the negative weights if given
    """
    num_variables = positive.size
    num_roots = root_slots.size
    lanes = 1 if values.ndim == 1 else values.shape[1]
    zero = zero_of(values)
    one = like(zero, 1.0)
    scratch = values.shape[0] - 1
    store(values, 0, zero)
    store(values, 1, one)
    row = start
    while row < stop:
        rows = min(np.int64(lanes), stop - row)
        valid = equal(zero, zero)
        for variable in range(num_variables):
            slot = np.int64(positive[variable])
            other = np.int64(negative[variable])
            read_column(weights, row, rows, variable, values, slot)
            x = load(values, slot)
            valid = bit_and(valid, equal(x, x))
            if has_negative:
                read_column(negative_weights, row, rows, variable, values, other)
                x = load(values, other)
                valid = bit_and(valid, equal(x, x))
            else:
                store(values, other, subtract(one, x))
        if any_set(equal(valid, like(valid, 0))):
            return row
        fold_forward(values, runs, terms)
        if mode != GRADIENT:
            for root in range(num_roots):
                write_column(out, row, rows, root, values, np.int64(root_slots[root]))
        if mode != VALUES:
            clear_adjoints(adjoints, runs)
            for root in range(num_roots):
                slot = np.int64(root_slots[root])
                if mode == GRADIENT:
                    read_column(seeds, row, rows, root, adjoints, scratch)
                    store(adjoints, slot, add(load(adjoints, slot), load(adjoints, scratch)))
                else:
                    store(adjoints, slot, one)
            store(adjoints, scratch, zero)
            fold_backward(values, adjoints, runs, terms, prefix)
            for variable in range(num_variables):
                slot = np.int64(positive[variable])
                other = np.int64(negative[variable])
                if has_negative:
                    write_column(gradient, row, rows, variable, adjoints, slot)
                    write_column(negative_gradient, row, rows, variable, adjoints, other)
                else:
                    store(prefix, 0, subtract(load(adjoints, slot), load(adjoints, other)))
                    write_column(gradient, row, rows, variable, prefix, 0)
        row += lanes
    return np.int64(-1)
