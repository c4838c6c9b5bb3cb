"""The most probable proofs of the nodes of a ground derivation graph, for a batch of fact probabilities.

A graph is kind [node], variable [node] (0-based, of a literal), offsets [node + 1] and children [edge],
children before parents. Kinds are those of `core.and_or`; a NOT has one child. Every kernel handles
the rows start..stop-1 of the batch, so that threads can share it.
"""

from __future__ import annotations

import numpy as np

from derivable.core.and_or import AND, FALSE, LITERAL, NOT, TRUE
from derivable.device.cpu.compiling import njit


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
