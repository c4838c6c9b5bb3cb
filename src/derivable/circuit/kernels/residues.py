"""Numba kernel that counts the models of a circuit modulo many 31-bit primes at once."""

from __future__ import annotations

import numpy as np

from derivable.core.and_or import AND, LITERAL, OR, TRUE
from derivable.device.cpu.built_kernels import kernel

MASK = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


@kernel(inline="always")
def _reduce(t, prime, minus_inverse):
    """Montgomery reduction t / 2**32 mod prime, for t < prime**2 and prime < 2**31."""
    m = ((t & MASK) * minus_inverse) & MASK
    u = (t + m * prime) >> SHIFT
    return u - prime if u >= prime else u


@kernel(
    "uint8[] int64[] int32[] uint64[] uint64[] uint64[] uint64[] uint32[,]",
)
def fold_residues(kind, offsets, children, primes, minus_inverses, ones, literals, values):
    """Fold sum and product upwards modulo each prime.

    primes, minus_inverses (-1/prime mod 2**32), ones and literals (the values of 1 and of any literal in
    Montgomery form) are [prime] uint64; values [node, prime] uint32 is filled, in Montgomery form.
    """
    width = len(primes)
    row = np.empty(width, np.uint64)
    for n in range(len(kind)):
        k = kind[n]
        if k == LITERAL:
            for p in range(width):
                values[n, p] = literals[p]
        elif k == AND:
            for p in range(width):
                row[p] = ones[p]
            for i in range(offsets[n], offsets[n + 1]):
                c = children[i]
                for p in range(width):
                    row[p] = _reduce(row[p] * np.uint64(values[c, p]), primes[p], minus_inverses[p])
            for p in range(width):
                values[n, p] = row[p]
        elif k == OR:
            for p in range(width):
                row[p] = np.uint64(0)
            for i in range(offsets[n], offsets[n + 1]):
                c = children[i]
                for p in range(width):
                    total = row[p] + np.uint64(values[c, p])
                    row[p] = total - primes[p] if total >= primes[p] else total
            for p in range(width):
                values[n, p] = row[p]
        else:
            for p in range(width):
                values[n, p] = ones[p] if k == TRUE else np.uint64(0)
