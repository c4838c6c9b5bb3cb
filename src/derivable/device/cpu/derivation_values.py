"""Kernels that evaluate a ground derivation graph for a batch of fact probabilities, under three provenances.

A graph is kind [node], variable [node] (0-based, of a literal), offsets [node + 1] and children [edge],
children before parents. Kinds are false, true, literal, and, or, not = 0..5; a not has one child. Every
kernel handles the rows start..stop-1 of the batch, so that threads can share it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

FALSE, TRUE, LITERAL, AND, OR, NOT = 0, 1, 2, 3, 4, 5


@njit(cache=True, nogil=True)
def minmax_forward(
    start, stop, kind, variable, offsets, children, probabilities, values, critical, roots, root_critical
):
    """For each root the one literal whose probability is its value: variable + 1, negative for 1 - p, 0 for none.

    values, critical  [thread row, node] scratch, one row for each batch row
    A tie goes to the child with the smallest index.
    """
    for row in range(start, stop):
        value, key = values[row], critical[row]
        for n in range(len(kind)):
            k = kind[n]
            key[n] = 0
            if k == FALSE:
                value[n] = 0.0
            elif k == TRUE:
                value[n] = 1.0
            elif k == LITERAL:
                value[n] = probabilities[row, variable[n]]
                key[n] = variable[n] + 1
            elif k == NOT:
                c = children[offsets[n]]
                value[n] = 1.0 - value[c]
                key[n] = -key[c]
            else:
                best, best_key, first = 0.0, 0, True
                for e in range(offsets[n], offsets[n + 1]):
                    c = children[e]
                    v = value[c]
                    if first or (k == AND and v < best) or (k == OR and v > best):
                        best, best_key, first = v, key[c], False
                if first:
                    best = 1.0 if k == AND else 0.0
                value[n] = best
                key[n] = best_key
        for r in range(len(roots)):
            root_critical[row, r] = key[roots[r]]


@njit(cache=True, nogil=True)
def addmult_forward(start, stop, kind, variable, offsets, children, probabilities, values):
    """Node values [row, node]: a product for and, a sum cut at 1 for or, 1 - v for a negation."""
    for row in range(start, stop):
        value = values[row]
        for n in range(len(kind)):
            k = kind[n]
            if k == FALSE:
                value[n] = 0.0
            elif k == TRUE:
                value[n] = 1.0
            elif k == LITERAL:
                value[n] = probabilities[row, variable[n]]
            elif k == NOT:
                value[n] = 1.0 - value[children[offsets[n]]]
            elif k == AND:
                total = 1.0
                for e in range(offsets[n], offsets[n + 1]):
                    total *= value[children[e]]
                value[n] = total
            else:
                total = 0.0
                for e in range(offsets[n], offsets[n + 1]):
                    total += value[children[e]]
                value[n] = min(1.0, total)


@njit(cache=True, nogil=True)
def addmult_backward(start, stop, kind, variable, offsets, children, values, adjoints, result):
    """Adds to result [row, variable] what adjoints [row, node], set at the roots, give by the chain rule.

    The cut at 1 lets the adjoint pass. A product's derivative is taken without division: with one zero
    factor only that factor has one, with two none has.
    """
    for row in range(start, stop):
        value, adjoint = values[row], adjoints[row]
        for n in range(len(kind) - 1, -1, -1):
            g = adjoint[n]
            k = kind[n]
            if g == 0.0 or k <= TRUE:
                continue
            if k == LITERAL:
                result[row, variable[n]] += g
                continue
            if k == NOT:
                adjoint[children[offsets[n]]] -= g
                continue
            if k == OR:
                for e in range(offsets[n], offsets[n + 1]):
                    adjoint[children[e]] += g
                continue
            product, zeros, zero_at = 1.0, 0, -1
            for e in range(offsets[n], offsets[n + 1]):
                v = value[children[e]]
                if v == 0.0:
                    zeros += 1
                    zero_at = e
                else:
                    product *= v
            if zeros > 1:
                continue
            if zeros == 1:
                adjoint[children[zero_at]] += g * product
                continue
            for e in range(offsets[n], offsets[n + 1]):
                adjoint[children[e]] += g * product / value[children[e]]


@njit(cache=True, nogil=True)
def _proof_probability(proof, words, probability, group_of, groups):
    """The probability of one proof (positive words, then negative words); -1 if it contradicts itself.

    groups  [group] scratch: the variable that a choice is fixed to, + 1
    """
    groups[:] = 0
    result = 1.0
    for w in range(words):
        positive, negative = proof[w], proof[words + w]
        if positive & negative:
            return -1.0
        both = positive | negative
        v = 64 * w
        while both:
            if both & np.uint64(1):
                if positive & np.uint64(1):
                    g = group_of[v]
                    if g >= 0:
                        if groups[g]:
                            return -1.0
                        groups[g] = v + 1
                    result *= probability[v]
                else:
                    result *= 1.0 - probability[v]
            both >>= np.uint64(1)
            positive >>= np.uint64(1)
            negative >>= np.uint64(1)
            v += 1
    return result


@njit(cache=True, nogil=True)
def _insert(proof, p, width, k, proofs, weights, count):
    """Keep `proof` in the list of the k most probable, most probable first, without repeats; the new count.

    Among equals the one that came first stays first.
    """
    place = count
    while place > 0 and weights[place - 1] < p:
        place -= 1
    if place >= k:
        return count
    for i in range(count):
        same = True
        for w in range(width):
            if proofs[i, w] != proof[w]:
                same = False
                break
        if same:
            return count
    last = min(count, k - 1)
    for i in range(last, place, -1):
        weights[i] = weights[i - 1]
        for w in range(width):
            proofs[i, w] = proofs[i - 1, w]
    weights[place] = p
    for w in range(width):
        proofs[place, w] = proof[w]
    return min(count + 1, k)


@njit(cache=True, nogil=True)
def _join(left, left_count, right, right_count, words, k, probability, group_of, groups, proof, out, weights):
    """The k most probable conjunctions of a proof of `left` and one of `right`; how many there are."""
    count = 0
    for i in range(left_count):
        for j in range(right_count):
            for w in range(2 * words):
                proof[w] = left[i, w] | right[j, w]
            p = _proof_probability(proof, words, probability, group_of, groups)
            if p >= 0.0:
                count = _insert(proof, p, 2 * words, k, out, weights, count)
    return count


@njit(cache=True, nogil=True)
def _negated(proofs, count, words, k, probability, group_of, groups, proof, one, first, second, weights):
    """The k most probable proofs of the negation of a disjunction of proofs, in `first`; how many there are."""
    first[0, :] = np.uint64(0)
    known = 1
    for i in range(count):
        total = 0
        for w in range(words):
            for sign in range(2):
                bits = proofs[i, sign * words + w]
                b = 0
                while bits:
                    if bits & np.uint64(1):
                        one[:] = np.uint64(0)
                        one[(1 - sign) * words + w] = np.uint64(1) << np.uint64(b)
                        for j in range(known):
                            for x in range(2 * words):
                                proof[x] = first[j, x] | one[x]
                            p = _proof_probability(proof, words, probability, group_of, groups)
                            if p >= 0.0:
                                total = _insert(proof, p, 2 * words, k, second, weights, total)
                    bits >>= np.uint64(1)
                    b += 1
        for j in range(total):
            first[j] = second[j]
        known = total
        if known == 0:
            break
    return known


@njit(cache=True, nogil=True)
def top_proofs(
    start,
    stop,
    kind,
    variable,
    offsets,
    children,
    roots,
    probabilities,
    group_of,
    num_groups,
    k,
    root_proofs,
    root_counts,
):
    """The k most probable proofs of each root, for each row.

    group_of     [variable] the choice a variable belongs to, -1 if it is independent
    root_proofs  [row, root, k, 2 * words] uint64 out: bit sets of the facts used and of those denied
    root_counts  [row, root] out: how many proofs there are

    A proof that denies and uses one fact, or uses two values of one choice, is none. Ties keep the order of
    the derivations.
    """
    nodes = len(kind)
    words = root_proofs.shape[3] // 2
    width = 2 * words
    proofs = np.zeros((nodes, k, width), np.uint64)
    counts = np.zeros(nodes, np.int64)
    weights = np.empty(k, np.float64)
    groups = np.empty(max(num_groups, 1), np.int64)
    proof = np.empty(width, np.uint64)
    one = np.empty(width, np.uint64)
    first, second = np.empty((k, width), np.uint64), np.empty((k, width), np.uint64)
    for row in range(start, stop):
        probability = probabilities[row]
        for n in range(nodes):
            kd = kind[n]
            if kd == FALSE:
                counts[n] = 0
            elif kd == TRUE:
                counts[n] = 1
                proofs[n, 0] = np.uint64(0)
            elif kd == LITERAL:
                counts[n] = 1
                proofs[n, 0] = np.uint64(0)
                v = variable[n]
                proofs[n, 0, v // 64] = np.uint64(1) << np.uint64(v % 64)
            elif kd == NOT:
                c = children[offsets[n]]
                count = _negated(
                    proofs[c], counts[c], words, k, probability, group_of, groups, proof, one, first, second, weights
                )
                counts[n] = count
                proofs[n, :count] = first[:count]
            elif kd == AND:
                first[0] = np.uint64(0)
                count = 1
                for e in range(offsets[n], offsets[n + 1]):
                    c = children[e]
                    count = _join(
                        first,
                        count,
                        proofs[c],
                        counts[c],
                        words,
                        k,
                        probability,
                        group_of,
                        groups,
                        proof,
                        second,
                        weights,
                    )
                    first[:count] = second[:count]
                counts[n] = count
                proofs[n, :count] = first[:count]
            else:
                count = 0
                for e in range(offsets[n], offsets[n + 1]):
                    c = children[e]
                    for j in range(counts[c]):
                        p = _proof_probability(proofs[c, j], words, probability, group_of, groups)
                        count = _insert(proofs[c, j], p, width, k, proofs[n], weights, count)
                counts[n] = count
        for r in range(len(roots)):
            n = roots[r]
            root_counts[row, r] = counts[n]
            root_proofs[row, r, : counts[n]] = proofs[n, : counts[n]]
