"""Rows of a batch in the log semiring for log weights of any finite size: exponents are Python's integers.

A number (m, n) is m * e^n; m is 0, not finite, or kept between 1e-100 and 1e100 in magnitude. A log weight w is
(exp(w - n), n) with n the integer nearest to w, and w - n is exact. So the exponents of products are exact, and the
shares of terms in a sum are right however large the weights are. This is a hundred times slower than the kernels; it
serves the rows that `levels_scaled` leaves over, whose values depend on weights of more than about 2^39 nats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce

import numpy as np

from derivable.circuit.kernels.levels import GRADIENT, VALUES

Number = tuple[float, int]
ZERO, ONE = (0.0, 0), (1.0, 0)
# exp of this or less is 0.0.
_NOTHING = -1000


def _settled(m: float, n: int) -> Number:
    if 1e-100 < abs(m) < 1e100 or m == 0.0 or not math.isfinite(m):
        return m, n
    shift = round(math.log(abs(m)))
    # In two steps, because exp(-shift) overflows for the smallest floats.
    half = shift // 2
    return m * math.exp(-half) * math.exp(half - shift), n + shift


def _product(a: Number, b: Number) -> Number:
    return _settled(a[0] * b[0], a[1] + b[1])


def _sum(terms: Iterable[Number]) -> Number:
    terms = [term for term in terms if term[0] != 0.0]
    top = max((n for _, n in terms), default=0)
    return _settled(sum(m * math.exp(max(n - top, _NOTHING)) for m, n in terms), top)


def _exp(w: float) -> Number:
    if w == -math.inf:
        return ZERO
    n = round(w)
    return math.exp(w - n), n


def _complement(w: float) -> Number:
    """1 - exp(w); of weights above 0 there is none, and none is read."""
    return _settled(-math.expm1(w), 0) if w <= 0.0 else ZERO


def _log(m: float, n: int) -> float:
    if m == 0.0:
        return -math.inf
    shift = round(math.log(m))
    try:
        return (n + shift) + math.log(m * math.exp(-shift))
    except OverflowError:
        # The integer lies beyond all floats.
        return math.inf if n > 0 else -math.inf


def _float(m: float, n: int) -> float:
    half = max(min(n, 1400), -1400) / 2
    return m * math.exp(half) * math.exp(half)


def _others(values: list[Number], adjoint: Number) -> list[Number]:
    """For each factor of a product, the adjoint times the other factors."""
    found = []
    for value in values:
        found.append(adjoint)
        adjoint = _product(adjoint, value)
    after = ONE
    for k in range(len(values) - 1, -1, -1):
        found[k] = _product(found[k], after)
        after = _product(after, values[k])
    return found


def _nodes(runs: np.ndarray, terms: np.ndarray) -> list[tuple[int, list[list[int]]]]:
    """Inner slots in order, each with the products of slots that it sums."""
    nodes = []
    operands = terms.tolist()
    for first, count, pairs, singles, factors, at in runs.tolist():
        for slot in range(first, first + count):
            lengths = [factors] if factors else [2] * pairs + [1] * singles
            summands = []
            for length in lengths:
                summands.append(operands[at : at + length])
                at += length
            nodes.append((slot, summands))
    return nodes


def log_rows_unbounded(
    rows: Iterable[int],
    num_slots: int,
    mode: int,
    weights: np.ndarray,
    negative_weights: np.ndarray,
    has_negative: bool,
    by_weight: bool,
    positive: np.ndarray,
    negative: np.ndarray,
    runs: np.ndarray,
    terms: np.ndarray,
    root_slots: np.ndarray,
    out: np.ndarray,
    seeds: np.ndarray,
    gradient: np.ndarray,
    negative_gradient: np.ndarray,
) -> None:
    """Some rows of a batch, whose weights are in order; the other arguments as in `levels_log.log_rows`."""
    nodes, roots = _nodes(runs, terms), root_slots.tolist()
    literals = list(zip(positive.tolist(), negative.tolist()))
    for row in rows:
        values = [ZERO, ONE, *[ZERO] * (num_slots - 2)]
        for variable, (slot, other) in enumerate(literals):
            w = float(weights[row, variable])
            values[other] = _exp(float(negative_weights[row, variable])) if has_negative else _complement(w)
            values[slot] = _exp(w)
        for slot, summands in nodes:
            values[slot] = _sum(reduce(_product, (values[child] for child in summand)) for summand in summands)
        with np.errstate(over="ignore", under="ignore"):
            if out.size > 0:
                out[row] = [_log(*values[root]) for root in roots]
            if mode == VALUES:
                continue
            adjoints: list[Number] = [ZERO] * num_slots
            for place, root in enumerate(roots):
                m, n = values[root]
                if m != 0.0:
                    seed = _settled(float(seeds[row, place]), 0) if mode == GRADIENT else ONE
                    adjoints[root] = _sum((adjoints[root], _product(seed, (1.0 / m, -n))))
            for slot, summands in reversed(nodes):
                for summand in summands if adjoints[slot][0] != 0.0 else ():
                    for child, adjoint in zip(summand, _others([values[child] for child in summand], adjoints[slot])):
                        adjoints[child] = _sum((adjoints[child], adjoint))
            for variable, (slot, other) in enumerate(literals):
                adjoint, negation = adjoints[slot], adjoints[other]
                if not has_negative:
                    # With u = exp(w), both du/dw = u and d(1 - u)/dw = -u.
                    adjoint = _sum((adjoint, (-negation[0], negation[1])))
                if not by_weight:
                    adjoint, negation = _product(adjoint, values[slot]), _product(negation, values[other])
                if has_negative:
                    negative_gradient[row, variable] = _float(negation[0], negation[1])
                gradient[row, variable] = _float(adjoint[0], adjoint[1])
