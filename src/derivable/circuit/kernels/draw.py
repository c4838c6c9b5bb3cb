"""Numba kernels that draw models of a circuit, given each child's share of the value of its or-node."""

from __future__ import annotations

import numpy as np

from derivable.circuit.kernels.hashcons import GOLDEN, finalized
from derivable.circuit.kernels.scaled import DOWN, UP
from derivable.core.and_or import AND, LITERAL, OR
from derivable.device.cpu.built_kernels import kernel


@kernel(inline="always")
def uniform(state):
    """The number in [0, 1), of 53 bits, of a SplitMix64 stream in this state."""
    return float(finalized(state) >> np.uint64(11)) * 2.0**-53


@kernel(
    "uint8[] int64[] int32[] float64[] int64[] float64[]",
)
def choice_shares(kind, offsets, children, mantissa, exponent, shares):
    """shares [edge]: for the edges of an or-node that has mass, each child's part of its value; else 0.

    mantissa, exponent  [node] the values as scaled numbers

    The part of the last child that has mass is set to 2, so that rounding leaves no draw without a child.
    """
    for n in range(len(kind)):
        last = -1
        for i in range(offsets[n], offsets[n + 1]):
            shares[i] = 0.0
            if kind[n] == OR and mantissa[n] != 0.0:
                c = children[i]
                down = exponent[n] - exponent[c]
                # A quotient of mantissas is at most 2**256: what lies further down is zero.
                if down > 4 or mantissa[c] == 0.0:
                    continue
                shares[i] = mantissa[c] / mantissa[n] * (UP if down < 0 else 1.0)
                for _ in range(down):
                    shares[i] *= DOWN
                if shares[i] > 0.0:
                    last = i
        if last >= 0:
            shares[last] = 2.0


@kernel(
    "uint8[] int32[] int64[] int32[] int64 float64[] float64[] uint64 int64 int64[] int8[,]",
)
def draw_models(kind, literal, offsets, children, root, shares, positive_share, seed, first, stack, samples):
    """Draw models of `root` in proportion to their weight, into samples [sample, variable] int8 (0 or 1).

    Each sample walks down with an explicit stack, choosing one child of each or-node it meets by the shares
    of `choice_shares`; the root must have mass, so no or-node without mass is met. A variable
    it never meets is drawn from positive_share [variable]. Sample i uses its own SplitMix64 stream, seeded
    by (seed, first + i), so the result does not depend on how samples are divided among calls.
    """
    for s in range(len(samples)):
        samples[s] = -1
        state = finalized(np.uint64(seed) + GOLDEN * np.uint64(first + s + 1))
        state = finalized(state ^ np.uint64(seed))
        stack[0] = root
        top = 1
        while top > 0:
            top -= 1
            n = stack[top]
            k = kind[n]
            if k == LITERAL:
                v = literal[n]
                samples[s, abs(v) - 1] = 1 if v > 0 else 0
            elif k == AND:
                for i in range(offsets[n], offsets[n + 1]):
                    stack[top] = children[i]
                    top += 1
            elif k == OR:
                state += GOLDEN
                u = uniform(state)
                i = offsets[n]
                u -= shares[i]
                while u >= 0.0:
                    i += 1
                    u -= shares[i]
                stack[top] = children[i]
                top += 1
        for v in range(samples.shape[1]):
            if samples[s, v] < 0:
                state += GOLDEN
                u = uniform(state)
                samples[s, v] = 1 if u < positive_share[v] else 0
