"""Tiles of a batch in the log semiring for any range of weights: floats with an exponent of 64 bits.

A number is a mantissa m and an exponent e, m * 2^e: m is 0 (then e is `NOTHING`) or 1 <= |m| < 2. Sums and products
of such numbers take a few integer operations and no exp or log, and lose no precision. So zero is zero, and a root
of -inf is known to be one. Exponents stay within 64 bits because log weights are taken between bounds; a tile whose
values could depend on weights beyond them is left to `levels_unbounded`.
"""

from __future__ import annotations

import math

import numpy as np

from derivable.circuit.kernels.levels import GRADIENT, VALUES
from derivable.circuit.kernels.levels_log import lane_max
from derivable.device.cpu.lines import (
    add,
    any_set,
    bit_and,
    bits_of,
    divide,
    equal,
    exp_and_complement,
    float_of_bits,
    item,
    less,
    like,
    load,
    load_rows,
    maximum,
    minimum,
    multiply,
    power_of_two,
    reduce_exp,
    select,
    shift_left,
    shift_right,
    store,
    store_rows,
    subtract,
    to_integer,
    zero_of,
)
from derivable.device.cpu.tiers import kernel

NOTHING = -(2**61)
# A lower bound of this many nats outweighs any sum of terms that float64 can hold.
LEAST_BOUND = 2.0**14
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10


@kernel(is_inner=True)
def normalise(m, e):
    """The same number with 1 <= |m| < 2, or (0, NOTHING)."""
    bits = bits_of(m)
    shift = subtract(bit_and(shift_right(bits, like(bits, 52)), like(bits, 2047)), like(bits, 1023))
    vanished = equal(m, like(m, 0.0))
    nothing = like(e, NOTHING)
    scaled = float_of_bits(subtract(bits, shift_left(shift, like(shift, 52))))
    return select(vanished, m, scaled), select(vanished, nothing, maximum(add(e, shift), nothing))


@kernel(is_inner=True)
def scaled_add(m, e, m2, e2):
    """Their sum, not normalised: |result| is at most |m| + |m2|, at the larger exponent."""
    top = maximum(e, e2)
    low = like(e, -1022)
    return add(
        multiply(m, power_of_two(maximum(subtract(e, top), low))),
        multiply(m2, power_of_two(maximum(subtract(e2, top), low))),
    ), top


@kernel(is_inner=True)
def forward_scaled(mantissas, exponents, runs, terms):
    """`levels.forward` for scaled numbers."""
    for run in range(runs.shape[0]):
        first, count = np.int64(runs[run, 0]), np.int64(runs[run, 1])
        pairs, singles, factors = np.int64(runs[run, 2]), np.int64(runs[run, 3]), np.int64(runs[run, 4])
        at = np.int64(runs[run, 5])
        for slot in range(first, first + count):
            if factors > 0:
                i = item(terms, at)
                m, e = load(mantissas, i), load(exponents, i)
                for k in range(1, factors):
                    i = item(terms, at + k)
                    m, e = normalise(multiply(m, load(mantissas, i)), add(e, load(exponents, i)))
                at += factors
            else:
                m = zero_of(mantissas)
                e = like(zero_of(exponents), NOTHING)
                for _ in range(pairs):
                    i, j = item(terms, at), item(terms, at + 1)
                    at += 2
                    m, e = scaled_add(
                        m,
                        e,
                        multiply(load(mantissas, i), load(mantissas, j)),
                        add(load(exponents, i), load(exponents, j)),
                    )
                for _ in range(singles):
                    i = item(terms, at)
                    at += 1
                    m, e = scaled_add(m, e, load(mantissas, i), load(exponents, i))
            m, e = normalise(m, e)
            store(mantissas, slot, m)
            store(exponents, slot, e)


@kernel(is_inner=True)
def accumulate(mantissas, exponents, slot, m, e):
    """Add a scaled number to one slot."""
    m, e = scaled_add(load(mantissas, slot), load(exponents, slot), m, e)
    store(mantissas, slot, m)
    store(exponents, slot, e)


@kernel(is_inner=True)
def backward_scaled(mantissas, exponents, adjoints, powers, runs, terms, prefix, prefix_powers):
    """`levels.backward` for scaled numbers; the adjoints are `adjoints` times 2 to the `powers`."""
    for run in range(runs.shape[0] - 1, -1, -1):
        first, count = np.int64(runs[run, 0]), np.int64(runs[run, 1])
        pairs, singles, factors = np.int64(runs[run, 2]), np.int64(runs[run, 3]), np.int64(runs[run, 4])
        at = np.int64(runs[run, 5])
        for slot in range(first, first + count):
            m, e = normalise(load(adjoints, slot), load(powers, slot))
            if factors > 0:
                for k in range(factors):
                    store(prefix, k, m)
                    store(prefix_powers, k, e)
                    i = item(terms, at + k)
                    m, e = normalise(multiply(m, load(mantissas, i)), add(e, load(exponents, i)))
                m = like(m, 1.0)
                e = like(e, 0)
                for k in range(factors - 1, -1, -1):
                    i = item(terms, at + k)
                    accumulate(adjoints, powers, i, multiply(load(prefix, k), m), add(load(prefix_powers, k), e))
                    m, e = normalise(multiply(m, load(mantissas, i)), add(e, load(exponents, i)))
                at += factors
            else:
                for _ in range(pairs):
                    i, j = item(terms, at), item(terms, at + 1)
                    at += 2
                    mi, ei = load(mantissas, i), load(exponents, i)
                    mj, ej = load(mantissas, j), load(exponents, j)
                    accumulate(adjoints, powers, i, multiply(m, mj), add(e, ej))
                    accumulate(adjoints, powers, j, multiply(m, mi), add(e, ei))
                for _ in range(singles):
                    i = item(terms, at)
                    at += 1
                    accumulate(adjoints, powers, i, m, e)


@kernel(is_inner=True)
def scaled_exp(x, bound):
    """exp of log weights as scaled numbers; finite weights are taken between -bound and bound."""
    vanished = equal(x, like(x, -np.inf))
    k, q = reduce_exp(minimum(maximum(x, like(x, -bound)), like(x, bound)))
    m, e = normalise(add(q, like(q, 1.0)), to_integer(k))
    return select(vanished, like(m, 0.0), m), select(vanished, like(e, NOTHING), e)


@kernel(is_inner=True)
def log_of(m, e):
    """Natural logarithm of a scaled scalar."""
    return math.log(m) + (e * LN2_HIGH + e * LN2_LOW) if m > 0.0 else -np.inf


@kernel(is_inner=True)
def collapse(m, e):
    """The scaled scalar as a float64, which may be zero or infinite."""
    return math.ldexp(m, max(min(e, 5000), -5000)) if m != 0.0 else 0.0


@kernel(is_inner=True)
def collapse_slot(mantissas, exponents, slot):
    """Replace the scaled number of a slot by its float64 in `mantissas`."""
    if mantissas.ndim == 1:
        mantissas[slot] = collapse(mantissas[slot], exponents[slot])
    else:
        for lane in range(mantissas.shape[1]):
            mantissas[slot, lane] = collapse(mantissas[slot, lane], exponents[slot, lane])


# A tile has one row or a line of lanes, of weights of either width.
_SIGNATURES = [
    f"int64 int64 int64 {dtype}[,] {dtype}[,] bool bool int32[] int32[] int32[,] int32[] int32[] "
    f"float64[{axes}] float64[{axes}] float64[{axes}] {dtype}[,] {dtype}[,] {dtype}[,] {dtype}[,] "
    f"int64[{axes}] int64[{axes}] int64[{axes}] float64 bool[]"
    for dtype in ("float32", "float64")
    for axes in ("", ",")
]


@kernel(*_SIGNATURES, has_python=False)
def log_rows_scaled(
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
    exponents,
    powers,
    prefix_powers,
    bound,
    left_over,
):
    """The tiles marked in `left_over` among rows start:stop; arguments as in `log_rows`.

    values, adjoints, prefix  the mantissas; `exponents`, `powers`, `prefix_powers` (int64) their exponents
    bound      nats; finite log weights from -bound to bound are taken as they are
    left_over  stays set for tiles whose values could depend on weights beyond the bound
    returns    the number of tiles left over

    `log_rows` has looked at all weights, so they are in order here.
    """
    num_variables = positive.size
    num_roots = root_slots.size
    lanes = 1 if values.ndim == 1 else values.shape[1]
    zero = zero_of(values)
    one = like(zero, 1.0)
    unit = zero_of(exponents)
    nothing = like(unit, NOTHING)
    scratch = values.shape[0] - 1
    store(values, 0, zero)
    store(exponents, 0, nothing)
    store(values, 1, one)
    store(exponents, 1, unit)
    num_left = 0
    row = start
    while row < stop:
        rows = min(np.int64(lanes), stop - row)
        if not left_over[row // lanes]:
            row += lanes
            continue
        highest = zero
        lowest = zero
        fits = True
        for attempt in range(2):
            reach = bound * (1.0 + attempt)
            for variable in range(num_variables):
                slot = np.int64(positive[variable])
                other = np.int64(negative[variable])
                x = load_rows(weights, row * num_variables + variable, num_variables, rows, zero)
                highest = maximum(x, highest)
                lowest = minimum(select(less(like(x, -np.inf), x), x, zero), lowest)
                if has_negative:
                    y = load_rows(negative_weights, row * num_variables + variable, num_variables, rows, zero)
                    highest = maximum(y, highest)
                    lowest = minimum(select(less(like(y, -np.inf), y), y, zero), lowest)
                    m, e = scaled_exp(y, reach)
                else:
                    _, complement = exp_and_complement(x)
                    m, e = normalise(complement, unit)
                store(values, other, m)
                store(exponents, other, e)
                m, e = scaled_exp(x, reach)
                store(values, slot, m)
                store(exponents, slot, e)
            store(values, scratch, highest)
            fits = lane_max(values, scratch) <= bound
            store(values, scratch, subtract(zero, lowest))
            is_low = lane_max(values, scratch) > bound
            if not fits or (is_low and bound < LEAST_BOUND):
                fits = False
                break
            forward_scaled(values, exponents, runs, terms)
            if not is_low:
                break
            # A root that stays where it is when the lowest weights sink does not depend on them.
            for root in range(num_roots):
                slot = np.int64(root_slots[root])
                e = load(exponents, slot)
                if attempt == 0:
                    store(powers, slot, e)
                else:
                    moved = subtract(load(powers, slot), e)
                    fits = fits and not any_set(less(like(moved, 1), maximum(moved, subtract(unit, moved))))
        if not fits:
            num_left += 1
            row += lanes
            continue
        left_over[row // lanes] = False
        if out.size > 0:
            for root in range(num_roots):
                slot = np.int64(root_slots[root])
                if values.ndim == 1:
                    out[row, root] = log_of(values[slot], exponents[slot])
                else:
                    for lane in range(rows):
                        out[row + lane, root] = log_of(values[slot, lane], exponents[slot, lane])
        if mode != VALUES:
            for slot in range(powers.shape[0]):
                store(adjoints, slot, zero)
                store(powers, slot, nothing)
            for root in range(num_roots):
                slot = np.int64(root_slots[root])
                m, e = load(values, slot), load(exponents, slot)
                vanished = equal(m, zero)
                seed = one
                if mode == GRADIENT:
                    seed = load_rows(seeds, row * num_roots + root, num_roots, rows, zero)
                m, power = normalise(select(vanished, zero, divide(seed, select(vanished, one, m))), unit)
                accumulate(adjoints, powers, slot, m, subtract(power, select(vanished, unit, e)))
            backward_scaled(values, exponents, adjoints, powers, runs, terms, prefix, prefix_powers)
            store(adjoints, scratch, zero)
            store(powers, scratch, nothing)
            store(values, scratch, zero)
            store(exponents, scratch, nothing)
            for variable in range(num_variables):
                slot = np.int64(positive[variable])
                other = np.int64(negative[variable])
                at = row * num_variables + variable
                a, p = load(adjoints, slot), load(powers, slot)
                b, q = load(adjoints, other), load(powers, other)
                if has_negative:
                    if not by_weight:
                        b, q = multiply(b, load(values, other)), add(q, load(exponents, other))
                    b, q = normalise(b, q)
                    store(prefix, 0, b)
                    store(prefix_powers, 0, q)
                    collapse_slot(prefix, prefix_powers, 0)
                    store_rows(negative_gradient, at, num_variables, rows, load(prefix, 0))
                else:
                    a, p = scaled_add(a, p, subtract(zero, b), q)
                    a, p = normalise(a, p)
                if not by_weight:
                    a, p = multiply(a, load(values, slot)), add(p, load(exponents, slot))
                a, p = normalise(a, p)
                store(prefix, 0, a)
                store(prefix_powers, 0, p)
                collapse_slot(prefix, prefix_powers, 0)
                store_rows(gradient, at, num_variables, rows, load(prefix, 0))
        row += lanes
    return np.int64(num_left)
