"""Numba kernels for questions that are linear in a circuit: weigh, flow, best model, sample.

Values are scaled pairs as in `device.cpu.scaled`. Nodes are in topological order, so each kernel is a loop over
them, upwards or downwards, without recursion. Kind codes are those of `derivable.circuit.circuit`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from derivable.circuit.kernels.scaled import LOG_UNIT, plus, product, settle, share_of
from derivable.core.and_or import AND, LITERAL, OR, TRUE

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_A = np.uint64(0xBF58476D1CE4E5B9)
MIX_B = np.uint64(0x94D049BB133111EB)


@njit(cache=True, nogil=True)
def weigh(
    kind,
    literal,
    offsets,
    children,
    positive_mantissa,
    positive_exponent,
    negative_mantissa,
    negative_exponent,
    mantissa,
    exponent,
):
    """Fold sum and product upwards: fills `mantissa`, `exponent` [node] from literal values [variable]."""
    for n in range(len(kind)):
        k = kind[n]
        if k == LITERAL:
            v = literal[n]
            if v > 0:
                mantissa[n], exponent[n] = positive_mantissa[v - 1], positive_exponent[v - 1]
            else:
                mantissa[n], exponent[n] = negative_mantissa[-v - 1], negative_exponent[-v - 1]
        elif k == AND:
            m, e = 1.0, 0
            for i in range(offsets[n], offsets[n + 1]):
                c = children[i]
                m, e = product(m, e, mantissa[c], exponent[c])
            mantissa[n], exponent[n] = m, e
        elif k == OR:
            m, e = 0.0, 0
            for i in range(offsets[n], offsets[n + 1]):
                c = children[i]
                m, e = plus(m, e, mantissa[c], exponent[c])
            mantissa[n], exponent[n] = settle(m, e)
        else:
            mantissa[n], exponent[n] = (1.0 if k == TRUE else 0.0), 0


@njit(cache=True, nogil=True)
def weigh_items(
    kind,
    literal,
    offsets,
    children,
    roots,
    positive_mantissa,
    positive_exponent,
    negative_mantissa,
    negative_exponent,
    mantissa,
    exponent,
    root_mantissa,
    root_exponent,
):
    """`weigh` for each row of literal values [item, variable]; root values into [item, root]."""
    for b in range(len(positive_mantissa)):
        weigh(
            kind,
            literal,
            offsets,
            children,
            positive_mantissa[b],
            positive_exponent[b],
            negative_mantissa[b],
            negative_exponent[b],
            mantissa,
            exponent,
        )
        for r in range(len(roots)):
            root_mantissa[b, r], root_exponent[b, r] = mantissa[roots[r]], exponent[roots[r]]


@njit(cache=True, nogil=True)
def multiply_rows(mantissa, exponent, out_mantissa, out_exponent):
    """The product of each row of values [item, variable] into [item]."""
    for b in range(len(mantissa)):
        m, e = 1.0, 0
        for v in range(mantissa.shape[1]):
            m, e = product(m, e, mantissa[b, v], exponent[b, v])
        out_mantissa[b], out_exponent[b] = m, e


@njit(cache=True, nogil=True)
def flow_down(kind, literal, offsets, children, root, mantissa, exponent, flow, positive_flow, negative_flow):
    """The probability that a random model of `root` uses each node, downwards from 1 at the root.

    An or-node passes its flow on in proportion to its children's values, an and-node passes all of it to
    every child. Nothing is divided by zero: a node of value zero gets no flow. Fills flow [node] and
    positive_flow, negative_flow [variable], the flow into each variable's literals. Returns the sum over
    or-nodes of flow times the entropy of the choice there, in nats.
    """
    flow[: root + 1] = 0.0
    flow[root] = 1.0
    positive_flow[:] = 0.0
    negative_flow[:] = 0.0
    entropy = 0.0
    for n in range(root, -1, -1):
        f = flow[n]
        if f == 0.0:
            continue
        k = kind[n]
        if k == LITERAL:
            v = literal[n]
            if v > 0:
                positive_flow[v - 1] += f
            else:
                negative_flow[-v - 1] += f
        elif k == AND:
            for i in range(offsets[n], offsets[n + 1]):
                flow[children[i]] += f
        elif k == OR:
            local = 0.0
            for i in range(offsets[n], offsets[n + 1]):
                c = children[i]
                share = share_of(mantissa[c], exponent[c], mantissa[n], exponent[n])
                flow[c] += f * share
                if share > 0.0:
                    local -= share * math.log(share)
            entropy += f * local
    return entropy


@njit(cache=True, nogil=True)
def choice_divergence(kind, offsets, children, root, flow, mantissa, exponent, other_mantissa, other_exponent):
    """Sum over or-nodes of flow times KL(choice there || choice there under the other values), in nats.

    flow, mantissa, exponent belong to the first distribution; infinite where the second gives a used
    child no mass.
    """
    total = 0.0
    for n in range(root, -1, -1):
        if flow[n] == 0.0 or kind[n] != OR:
            continue
        if other_mantissa[n] == 0.0:
            return np.inf
        local = 0.0
        for i in range(offsets[n], offsets[n + 1]):
            c = children[i]
            if mantissa[c] == 0.0:
                continue
            if other_mantissa[c] == 0.0:
                return np.inf
            share = share_of(mantissa[c], exponent[c], mantissa[n], exponent[n])
            log_share = math.log(mantissa[c] / mantissa[n]) + LOG_UNIT * (exponent[c] - exponent[n])
            other_log_share = math.log(other_mantissa[c] / other_mantissa[n]) + LOG_UNIT * (
                other_exponent[c] - other_exponent[n]
            )
            local += share * (log_share - other_log_share)
        total += flow[n] * local
    return total


@njit(cache=True, nogil=True)
def weigh_best(kind, literal, offsets, children, log_positive, log_negative, log_best, choice):
    """Fold max and plus upwards: the largest log weight of a node's models, and which child of an or-node has it.

    Fills log_best [node] and choice [node] (an edge; of equal children the first; -1 where there is none).
    """
    for n in range(len(kind)):
        k = kind[n]
        choice[n] = -1
        if k == LITERAL:
            v = literal[n]
            log_best[n] = log_positive[v - 1] if v > 0 else log_negative[-v - 1]
        elif k == AND:
            total = 0.0
            for i in range(offsets[n], offsets[n + 1]):
                total += log_best[children[i]]
            log_best[n] = total
        elif k == OR:
            best = -np.inf
            for i in range(offsets[n], offsets[n + 1]):
                if log_best[children[i]] > best:
                    best = log_best[children[i]]
                    choice[n] = i
            log_best[n] = best
        else:
            log_best[n] = 0.0 if k == TRUE else -np.inf


@njit(cache=True, nogil=True)
def decode_best(kind, literal, offsets, children, root, choice, used, assignment):
    """Follow `choice` down from `root`; sets assignment[v] for the literals met, leaves the others as they are."""
    used[: root + 1] = False
    used[root] = True
    for n in range(root, -1, -1):
        if not used[n]:
            continue
        k = kind[n]
        if k == LITERAL:
            v = literal[n]
            assignment[abs(v) - 1] = v > 0
        elif k == AND:
            for i in range(offsets[n], offsets[n + 1]):
                used[children[i]] = True
        elif k == OR:
            used[children[choice[n]]] = True


@njit(cache=True, nogil=True, inline="always")
def mix(z):
    z = (z ^ (z >> np.uint64(30))) * MIX_A
    z = (z ^ (z >> np.uint64(27))) * MIX_B
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def choice_shares(kind, offsets, children, mantissa, exponent, shares):
    """shares [edge]: for the edges of an or-node that has mass, each child's part of its value; else 0.

    The part of the last child that has mass is set to 2, so that rounding leaves no draw without a child.
    """
    for n in range(len(kind)):
        last = -1
        for i in range(offsets[n], offsets[n + 1]):
            shares[i] = 0.0
            if kind[n] == OR and mantissa[n] != 0.0:
                c = children[i]
                shares[i] = share_of(mantissa[c], exponent[c], mantissa[n], exponent[n])
                if shares[i] > 0.0:
                    last = i
        if last >= 0:
            shares[last] = 2.0


@njit(cache=True, nogil=True)
def draw_models(kind, literal, offsets, children, root, shares, positive_share, seed, first, stack, samples):
    """Draw models of `root` in proportion to their weight, into samples [sample, variable] int8 (0 or 1).

    Each sample walks down with an explicit stack, choosing one child of each or-node it meets by the shares
    of `choice_shares`; the root must have mass, so no or-node without mass is met. A variable
    it never meets is drawn from positive_share [variable]. Sample i uses its own SplitMix64 stream, seeded
    by (seed, first + i), so the result does not depend on how samples are divided among calls.
    """
    for s in range(len(samples)):
        samples[s] = -1
        state = mix(np.uint64(seed) + GOLDEN * np.uint64(first + s + 1))
        state = mix(state ^ np.uint64(seed))
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
                u = float(mix(state) >> np.uint64(11)) * 2.0**-53
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
                u = float(mix(state) >> np.uint64(11)) * 2.0**-53
                samples[s, v] = 1 if u < positive_share[v] else 0
