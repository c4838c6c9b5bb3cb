"""Model counts of large circuits, without the library's own evaluation.

Exact counts are compared modulo four primes near 2**31 (a wrong count passes with probability 2**-120).
"""

import numpy as np
from numba import njit

PRIMES = (2147483647, 2147483629, 2147483587, 2147483579)


@njit
def _count_modulo(kind, offsets, children, roots, prime, half):
    values = np.zeros(len(kind), np.uint64)
    for node in range(len(kind)):
        if kind[node] == 1:
            values[node] = 1
        elif kind[node] == 2:
            values[node] = half
        elif kind[node] == 3:
            value = np.uint64(1)
            for e in range(offsets[node], offsets[node + 1]):
                value = value * values[children[e]] % np.uint64(prime)
            values[node] = value
        elif kind[node] == 4:
            value = np.uint64(0)
            for e in range(offsets[node], offsets[node + 1]):
                value += values[children[e]]
            values[node] = value % np.uint64(prime)
    return values[roots[0]]


@njit
def _log_weight(kind, literal, offsets, children, roots, log_positive, log_negative):
    values = np.zeros(len(kind))
    for node in range(len(kind)):
        if kind[node] == 0:
            values[node] = -np.inf
        elif kind[node] == 2:
            v = abs(literal[node]) - 1
            values[node] = log_positive[v] if literal[node] > 0 else log_negative[v]
        elif kind[node] == 3:
            for e in range(offsets[node], offsets[node + 1]):
                values[node] += values[children[e]]
        elif kind[node] == 4:
            top = -np.inf
            for e in range(offsets[node], offsets[node + 1]):
                top = max(top, values[children[e]])
            if top == -np.inf:
                values[node] = top
                continue
            total = 0.0
            for e in range(offsets[node], offsets[node + 1]):
                total += np.exp(values[children[e]] - top)
            values[node] = top + np.log(total)
    return values[roots[0]]


def has_count(circuit, expected: int) -> bool:
    """Whether a deterministic, decomposable circuit has that many models over all its variables."""
    for prime in PRIMES:
        half = pow(2, -1, prime)
        value = int(_count_modulo(circuit.kind, circuit.offsets, circuit.children, circuit.roots, prime, half))
        if value * pow(2, circuit.num_variables, prime) % prime != expected % prime:
            return False
    return True


def log10_weight(circuit) -> float:
    """log10 of the weighted count, with the weights in the circuit or one for every literal."""
    ones = np.ones(circuit.num_variables)
    positive, negative = circuit.weights or (ones, ones)
    total = positive + negative
    with np.errstate(divide="ignore"):
        logs = np.log(positive / total), np.log(negative / total)
    value = _log_weight(circuit.kind, circuit.literal, circuit.offsets, circuit.children, circuit.roots, *logs)
    return float((value + np.log(total).sum()) / np.log(10))
