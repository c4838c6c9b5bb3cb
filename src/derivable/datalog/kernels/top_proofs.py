"""The most probable proofs of the nodes of a ground derivation graph, for a batch of fact probabilities.

A graph is kind [node], variable [node] (0-based, of a literal), offsets [node + 1] and children [edge],
children before parents. Kinds are those of `core.and_or`; a NOT has one child. The kernel handles
the rows start..stop-1 of the batch, so that threads can share it.

Where a function says so, `facts` are (probability [variable], group_of [variable]), and `scratch` is (groups [group],
proof [2 * words], one [2 * words], first [k, 2 * words], second [k, 2 * words], weights [k]).
"""

from __future__ import annotations

import numpy as np

from derivable.core.and_or import AND, FALSE, LITERAL, NOT, TRUE
from derivable.device.cpu.compiling import njit


@njit(cache=True, nogil=True)
def _proof_probability(proof, words, facts, groups):
    """The probability of one proof (positive words, then negative words); -1 if it contradicts itself.

    groups  [group] scratch: the variable that a choice is fixed to, + 1
    """
    probability, group_of = facts
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
def _join(known, proofs, count, words, k, facts, scratch):
    """The k most probable conjunctions of one of the `known` proofs in `first` and one of these; they are in `first`
    then. Returns how many there are."""
    groups, proof, _, first, second, weights = scratch
    total = 0
    for i in range(known):
        for j in range(count):
            for w in range(2 * words):
                proof[w] = first[i, w] | proofs[j, w]
            p = _proof_probability(proof, words, facts, groups)
            if p >= 0.0:
                total = _insert(proof, p, 2 * words, k, second, weights, total)
    first[:total] = second[:total]
    return total


@njit(cache=True, nogil=True)
def _negated(proofs, count, words, k, facts, scratch):
    """The k most probable proofs of the negation of a disjunction of proofs, in `first`; how many there are."""
    groups, proof, one, first, second, weights = scratch
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
                            p = _proof_probability(proof, words, facts, groups)
                            if p >= 0.0:
                                total = _insert(proof, p, 2 * words, k, second, weights, total)
                    bits >>= np.uint64(1)
                    b += 1
        first[:total] = second[:total]
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
    proof, one = np.empty(width, np.uint64), np.empty(width, np.uint64)
    first, second = np.empty((k, width), np.uint64), np.empty((k, width), np.uint64)
    scratch = groups, proof, one, first, second, weights
    for row in range(start, stop):
        facts = probabilities[row], group_of
        for n in range(nodes):
            kd = kind[n]
            edges = range(offsets[n], offsets[n + 1])
            count = 0
            if kd == TRUE:
                count = 1
                proofs[n, 0] = np.uint64(0)
            elif kd == LITERAL:
                count = 1
                proofs[n, 0] = np.uint64(0)
                v = variable[n]
                proofs[n, 0, v // 64] = np.uint64(1) << np.uint64(v % 64)
            elif kd == NOT:
                c = children[offsets[n]]
                count = _negated(proofs[c], counts[c], words, k, facts, scratch)
                proofs[n, :count] = first[:count]
            elif kd == AND:
                first[0] = np.uint64(0)
                count = 1
                for e in edges:
                    c = children[e]
                    count = _join(count, proofs[c], counts[c], words, k, facts, scratch)
                proofs[n, :count] = first[:count]
            elif kd != FALSE:
                for e in edges:
                    c = children[e]
                    for j in range(counts[c]):
                        p = _proof_probability(proofs[c, j], words, facts, groups)
                        count = _insert(proofs[c, j], p, width, k, proofs[n], weights, count)
            counts[n] = count
        for r in range(len(roots)):
            n = roots[r]
            root_counts[row, r] = counts[n]
            root_proofs[row, r, : counts[n]] = proofs[n, : counts[n]]


@njit(cache=True, nogil=True)
def _is_possible(proof, words, group_of, low, chosen):
    """Whether a set of literals does not contradict itself; chosen [group] then has the slot that holds, + 1."""
    chosen[:] = 0
    for w in range(words):
        bits = proof[w]
        if bits & proof[words + w]:
            return False
        slot = low + 64 * w
        while bits:
            if bits & np.uint64(1):
                g = group_of[slot]
                if g >= 0:
                    if chosen[g]:
                        return False
                    chosen[g] = slot + 1
            bits >>= np.uint64(1)
            slot += 1
    return True


@njit(cache=True, nogil=True)
def _is_least(proofs, one, count):
    """Whether a proof contains no other one; whatever holds with a proof that does holds with the other."""
    for other in range(count):
        if other != one:
            is_inside, is_equal = True, True
            for w in range(proofs.shape[1]):
                is_inside &= proofs[other, w] & ~proofs[one, w] == 0
                is_equal &= proofs[other, w] == proofs[one, w]
            if is_inside and (not is_equal or other < one):
                return False
    return True


@njit(cache=True, nogil=True)
def proof_terms(
    proofs, counts, low_of, group_of, num_groups, sizes, roots, signs, starts, factors, sum_starts, members
):
    """The probability of the proofs of each root as a polynomial: inclusion and exclusion over the sets of proofs that
    do not contradict themselves.

    proofs, counts  [root, k, 2 * words] and [root], bits of the slots of a part, and how many proofs there are
    low_of          [root] the first slot of its part
    sizes           out: how many terms, factors, sums and members of sums there are
    roots, signs    [term] out
    starts          [term + 1] out: where the factors of a term begin
    factors         [factor] out: slot s for its probability, S + s for one less it, where S is the number of slots,
                    and 2 S + i for one less sum i
    sum_starts      [sum + 1] out, members [member] out: slots of one group, none of which holds

    Where the arrays after `sizes` are empty, sizes alone are found.
    """
    k, words, slots = proofs.shape[1], proofs.shape[2] // 2, len(group_of)
    unions = np.zeros((k + 1, 2 * words), np.uint64)
    following, is_least = np.zeros(k + 1, np.int64), np.zeros(k, np.bool_)
    chosen, seen = np.zeros(max(num_groups, 1), np.int64), np.zeros(max(num_groups, 1), np.int64)
    is_filling = len(starts) > 0
    terms, used, sums, inside = 0, 0, 0, 0
    for root in range(len(proofs)):
        low, depth = low_of[root], 0
        for one in range(counts[root]):
            is_least[one] = _is_least(proofs[root], one, counts[root])
        following[0] = 0
        while depth >= 0:
            one = following[depth]
            if one >= counts[root]:
                depth -= 1
                continue
            following[depth] = one + 1
            if not is_least[one]:
                continue
            for w in range(2 * words):
                unions[depth + 1, w] = unions[depth, w] | proofs[root, one, w]
            union = unions[depth + 1]
            if not _is_possible(union, words, group_of, low, chosen):
                continue
            depth += 1
            following[depth] = one + 1
            seen[:] = 0
            for w in range(words):
                held, denied = union[w], union[words + w]
                slot = low + 64 * w
                while held or denied:
                    if held & np.uint64(1):
                        if is_filling:
                            factors[used] = slot
                        used += 1
                    elif denied & np.uint64(1):
                        g = group_of[slot]
                        if g < 0:
                            if is_filling:
                                factors[used] = slots + slot
                            used += 1
                        elif not chosen[g] and not seen[g]:
                            seen[g] = 1
                            if is_filling:
                                factors[used] = 2 * slots + sums
                            used += 1
                            # All facts of the group that are denied, of which this is the first.
                            for other in range(slot, low + 64 * words):
                                v = other - low
                                if union[words + v // 64] >> np.uint64(v % 64) & np.uint64(1) and group_of[other] == g:
                                    if is_filling:
                                        members[inside] = other
                                    inside += 1
                            sums += 1
                            if is_filling:
                                sum_starts[sums] = inside
                    held >>= np.uint64(1)
                    denied >>= np.uint64(1)
                    slot += 1
            if is_filling:
                roots[terms], signs[terms] = root, 1 if depth % 2 else -1
                starts[terms + 1] = used
            terms += 1
    sizes[0], sizes[1], sizes[2], sizes[3] = terms, used, sums, inside
