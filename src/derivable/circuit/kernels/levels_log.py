"""Tiles of a batch in the log semiring, computed in the linear domain where that is provably exact enough.

The literals are exponentiated once, sums and products run in float64, and only the roots' logarithms are taken;
the gradient of log f with respect to log weights w is exp(w) * df/dexp(w) / f. Whether a tile may be computed so
is decided from its largest and smallest weights and its roots (`docs/decisions/030-log-semiring.md` has the
proof); `log_rows` marks the tiles that may not, and `levels_scaled` computes those.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from derivable.algebra import semirings
from derivable.algebra.expr.emit_numba import DECORATOR
from derivable.algebra.expr.generated import load_generated
from derivable.circuit.kernels.levels import GRADIENT, VALUES, level_kernels
from derivable.device.cpu.lines import (
    add,
    any_set,
    bit_and,
    divide,
    equal,
    exp_and_complement,
    less,
    like,
    load,
    load_rows,
    maximum,
    minimum,
    multiply,
    select,
    store,
    store_rows,
    subtract,
    zero_of,
)
from derivable.device.cpu.tiers import kernel
from derivable.kernel.emit_numba import emit_numba

# Numbers of bits; see the proof.
ZERO_BITS = 800.0
LOG2_E = math.log2(math.e)
LARGEST_SEED = 2.0**100
# What `log_rows` returns beside the number of tiles left to the scaled kernel.
BAD_WEIGHT = -1
# Sums and products are the generated ones of the real semiring; see `compiled_log_rows`.
forward: Any = None
backward: Any = None


@kernel(is_inner=True)
def lane_max(values, slot):
    """The largest lane of one slot."""
    if values.ndim == 1:
        return values[slot]
    best = values[slot, 0]
    for lane in range(1, values.shape[1]):
        best = max(best, values[slot, lane])
    return best


def log_rows(
    start,
    stop,
    mode,
    weights,
    negative_weights,
    has_negative,
    by_weight,
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
    budget,
    degree,
    left_over,
):
    """Rows start:stop of a batch; returns what is said below.

    mode       what is computed, see `levels`; all other arguments as in `kernel.level_fold`, and:

    by_weight  whether the gradients are by exp of the weights, where both are given
    values, adjoints, prefix  float64, whatever the dtype of the weights
    budget     bits by which a root may be below one if no weight is above one
    degree     the largest number of literals in a product
    left_over  [tile] bool: set for tiles (of as many rows as there are lanes, counted from row 0) that the scaled
               kernel has to compute
    returns    the number of tiles left over, or BAD_WEIGHT if a weight is NaN or +inf, or above zero and needs a
               complement
    """
    num_variables = positive.size
    num_roots = root_slots.size
    lanes = 1 if values.ndim == 1 else values.shape[1]
    zero = zero_of(values)
    one = like(zero, 1.0)
    infinity = like(zero, np.inf)
    scratch = values.shape[0] - 1
    upper = infinity if has_negative else like(zero, 2.0**-1022)
    store(values, 0, zero)
    store(values, 1, one)
    num_left = 0
    row = start
    while row < stop:
        rows = min(np.int64(lanes), stop - row)
        valid = equal(zero, zero)
        highest = zero
        lowest = zero
        smallest = one
        for variable in range(num_variables):
            slot = np.int64(positive[variable])
            other = np.int64(negative[variable])
            x = load_rows(weights, row * num_variables + variable, num_variables, rows, zero)
            # What no node reads needs no complement.
            valid = bit_and(valid, less(x, infinity if other == scratch else upper))
            highest = maximum(x, highest)
            lowest = minimum(select(less(like(x, -np.inf), x), x, zero), lowest)
            u, complement = exp_and_complement(x)
            if has_negative:
                y = load_rows(negative_weights, row * num_variables + variable, num_variables, rows, zero)
                valid = bit_and(valid, less(y, upper))
                highest = maximum(y, highest)
                lowest = minimum(select(less(like(y, -np.inf), y), y, zero), lowest)
                complement, _ = exp_and_complement(y)
            else:
                smallest = minimum(select(less(zero, complement), complement, one), smallest)
            store(values, slot, u)
            store(values, other, complement)
        if any_set(equal(valid, like(valid, 0))):
            return np.int64(BAD_WEIGHT)
        # The bits that the weights allow; then the bits that the roots need.
        store(values, scratch, highest)
        allowed = budget - degree * lane_max(values, scratch) * LOG2_E
        store(values, scratch, subtract(zero, lowest))
        zero_bits = lane_max(values, scratch) * LOG2_E
        store(values, scratch, divide(one, smallest))
        zero_bits = degree * max(zero_bits, math.log2(lane_max(values, scratch)))
        fits = allowed >= 0.0
        if fits:
            forward(values, runs, terms, runs.shape[0])
            threshold = like(zero, 2.0 ** -min(allowed, 1000.0))
            for root in range(num_roots):
                f = load(values, np.int64(root_slots[root]))
                low = less(f, threshold)
                if any_set(low):
                    vanished = equal(f, zero)
                    if any_set(subtract(low, vanished)) or zero_bits > ZERO_BITS:
                        fits = False
                        break
        if fits and mode == GRADIENT:
            for root in range(num_roots):
                for k in range(row, row + rows):
                    fits = fits and not abs(seeds[k, root]) > LARGEST_SEED
        if not fits:
            left_over[row // lanes] = True
            num_left += 1
            row += lanes
            continue
        if out.size > 0:
            for root in range(num_roots):
                slot = np.int64(root_slots[root])
                if values.ndim == 1:
                    f = values[slot]
                    out[row, root] = math.log(f) if f > 0.0 else -np.inf
                else:
                    for lane in range(rows):
                        f = values[slot, lane]
                        out[row + lane, root] = math.log(f) if f > 0.0 else -np.inf
        if mode != VALUES:
            for slot in range(adjoints.shape[0]):
                store(adjoints, slot, zero)
            for root in range(num_roots):
                slot = np.int64(root_slots[root])
                f = load(values, slot)
                seed = divide(one, f)
                if mode == GRADIENT:
                    seed = divide(load_rows(seeds, row * num_roots + root, num_roots, rows, zero), f)
                seed = select(equal(f, zero), zero, seed)
                store(adjoints, slot, add(load(adjoints, slot), seed))
            backward(values, adjoints, prefix, runs, terms, runs.shape[0])
            # The last slot was overwritten, but its adjoint is zero.
            store(values, scratch, zero)
            for variable in range(num_variables):
                slot = np.int64(positive[variable])
                other = np.int64(negative[variable])
                a = load(adjoints, slot)
                b = load(adjoints, other)
                at = row * num_variables + variable
                if not by_weight:
                    # With u = exp(w), both du/dw = u and d(1 - u)/dw = -u.
                    a = multiply(load(values, slot), a if has_negative else subtract(a, b))
                    b = multiply(load(values, other), b)
                if has_negative:
                    store_rows(negative_gradient, at, num_variables, rows, b)
                store_rows(gradient, at, num_variables, rows, a)
        row += lanes
    return np.int64(num_left)


@cache
def compiled_log_rows() -> Callable[..., int]:
    """`log_rows`, jitted.

    Its text goes into one module with that of the sums and products, so that compiled code on disk is not taken for
    other ones: Numba looks at the file of the function alone.
    """
    compiling = "derivable.device.cpu.compiling"
    fold = level_kernels(semirings.real, "float64").fold
    own = (name for name in log_rows.__code__.co_names if name not in ("forward", "backward", "math", "np"))
    names = ", ".join(sorted(name for name in own if name in globals()))
    header = f"from {__name__} import {names}\nfrom {compiling} import njit\n\n\n{DECORATOR}\n"
    text = f"{emit_numba(fold.forward, fold.backward)}\n\n{header}{inspect.getsource(log_rows)}"
    return load_generated(text, "log_levels").log_rows
