"""Numba kernels for circuits with a weight on every or-edge: likelihoods, expected counts, samples, best completions.

Rows of data are int8 [row, variable]: 1 true, 0 false, -1 missing (both literals get the value one).
Values are scaled pairs as in `device.cpu.scaled`. Kernels work on rows start:stop and release the GIL.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from derivable.circuit.kernels.queries import GOLDEN, mix
from derivable.circuit.kernels.scaled import LOG_UNIT, plus, product, settle, share_of
from derivable.core.and_or import AND, LITERAL, OR, TRUE


@njit(cache=True, nogil=True, inline="always")
def _agrees(literal, value):
    return value < 0 or (literal > 0) == (value == 1)


@njit(cache=True, nogil=True)
def weigh_row(kind, literal, offsets, children, theta, row, mantissa, exponent):
    """Fold upwards: an or-node is the sum of its children times theta [edge]."""
    for n in range(len(kind)):
        k = kind[n]
        if k == LITERAL:
            v = literal[n]
            mantissa[n], exponent[n] = (1.0 if _agrees(v, row[abs(v) - 1]) else 0.0), 0
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
                # A weight as small as a denormal number may leave the range of mantissas: settle first.
                term, shift = settle(theta[i] * mantissa[c], exponent[c])
                m, e = plus(m, e, term, shift)
            mantissa[n], exponent[n] = settle(m, e)
        else:
            mantissa[n], exponent[n] = (1.0 if k == TRUE else 0.0), 0


@njit(cache=True, nogil=True)
def log_likelihoods(start, stop, kind, literal, offsets, children, root, theta, data, out):
    """out [row], nats; -inf for an impossible row."""
    mantissa, exponent = np.empty(len(kind)), np.empty(len(kind), np.int64)
    for r in range(start, stop):
        weigh_row(kind, literal, offsets, children, theta, data[r], mantissa, exponent)
        if mantissa[root] == 0.0:
            out[r] = -np.inf
        else:
            out[r] = math.log(mantissa[root]) + LOG_UNIT * exponent[root]


@njit(cache=True, nogil=True)
def expected_counts(start, stop, kind, literal, offsets, children, root, theta, data, scale, counts, marginal):
    """Add scale[row] times the probability that the row's derivation uses each or-edge to counts [edge].

    This is also the derivative of sum(scale * log likelihood) by log theta. Impossible rows add nothing.
    Where `marginal` [row, variable] is not empty it is filled with P(variable | row).
    """
    mantissa, exponent = np.empty(len(kind)), np.empty(len(kind), np.int64)
    flow = np.empty(len(kind))
    for r in range(start, stop):
        weigh_row(kind, literal, offsets, children, theta, data[r], mantissa, exponent)
        if len(marginal):
            marginal[r] = 0.0
        if mantissa[root] == 0.0:
            continue
        flow[: root + 1] = 0.0
        flow[root] = 1.0
        for n in range(root, -1, -1):
            f = flow[n]
            if f == 0.0:
                continue
            k = kind[n]
            if k == AND:
                for i in range(offsets[n], offsets[n + 1]):
                    flow[children[i]] += f
            elif k == OR:
                for i in range(offsets[n], offsets[n + 1]):
                    c = children[i]
                    term, shift = settle(theta[i] * mantissa[c], exponent[c])
                    used = f * share_of(term, shift, mantissa[n], exponent[n])
                    flow[c] += used
                    counts[i] += scale[r] * used
            elif len(marginal) and k == LITERAL and literal[n] > 0:
                marginal[r, literal[n] - 1] += f


@njit(cache=True, nogil=True)
def draw_rows(start, stop, kind, literal, offsets, children, root, theta, data, seed, samples):
    """samples [row, sample, variable] int8: draws given each row's observed values; -1 everywhere if impossible."""
    mantissa, exponent = np.empty(len(kind)), np.empty(len(kind), np.int64)
    stack = np.empty(len(kind) + 1, np.int64)
    for r in range(start, stop):
        weigh_row(kind, literal, offsets, children, theta, data[r], mantissa, exponent)
        samples[r] = -1
        if mantissa[root] == 0.0:
            continue
        for s in range(samples.shape[1]):
            state = mix(np.uint64(seed) + GOLDEN * np.uint64(r + 1))
            state = mix(state + GOLDEN * np.uint64(s + 1))
            stack[0] = root
            top = 1
            while top > 0:
                top -= 1
                n = stack[top]
                k = kind[n]
                if k == LITERAL:
                    v = literal[n]
                    samples[r, s, abs(v) - 1] = 1 if v > 0 else 0
                elif k == AND:
                    for i in range(offsets[n], offsets[n + 1]):
                        stack[top] = children[i]
                        top += 1
                elif k == OR:
                    state += GOLDEN
                    u = float(mix(state) >> np.uint64(11)) * 2.0**-53
                    picked = -1
                    below = 0.0
                    for i in range(offsets[n], offsets[n + 1]):
                        c = children[i]
                        term, shift = settle(theta[i] * mantissa[c], exponent[c])
                        share = share_of(term, shift, mantissa[n], exponent[n])
                        if share == 0.0:
                            continue
                        picked = c
                        below += share
                        if u < below:
                            break
                    stack[top] = picked
                    top += 1


@njit(cache=True, nogil=True)
def best_rows(start, stop, kind, literal, offsets, children, root, log_theta, data, best, log_weight):
    """The most probable completion of each row into best [row, variable] int8, with its log probability [row]."""
    log_best = np.empty(len(kind))
    choice = np.empty(len(kind), np.int64)
    used = np.empty(len(kind), np.bool_)
    for r in range(start, stop):
        for n in range(len(kind)):
            k = kind[n]
            if k == LITERAL:
                v = literal[n]
                log_best[n] = 0.0 if _agrees(v, data[r, abs(v) - 1]) else -np.inf
            elif k == AND:
                total = 0.0
                for i in range(offsets[n], offsets[n + 1]):
                    total += log_best[children[i]]
                log_best[n] = total
            elif k == OR:
                top = -np.inf
                choice[n] = offsets[n]
                for i in range(offsets[n], offsets[n + 1]):
                    candidate = log_theta[i] + log_best[children[i]]
                    if candidate > top:
                        top = candidate
                        choice[n] = i
                log_best[n] = top
            else:
                log_best[n] = 0.0 if k == TRUE else -np.inf
        log_weight[r] = log_best[root]
        best[r] = -1
        if log_best[root] == -np.inf:
            continue
        used[: root + 1] = False
        used[root] = True
        for n in range(root, -1, -1):
            if not used[n]:
                continue
            k = kind[n]
            if k == LITERAL:
                best[r, abs(literal[n]) - 1] = 1 if literal[n] > 0 else 0
            elif k == AND:
                for i in range(offsets[n], offsets[n + 1]):
                    used[children[i]] = True
            elif k == OR:
                used[children[choice[n]]] = True
