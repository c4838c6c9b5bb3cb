"""The probability of proofs as a polynomial of those of facts."""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.built_kernels import kernel


@kernel
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


@kernel(
    "uint64[,,] int64[] int64[] int64[] int64 int64[] int64[] int64[] int64[] int64[] int64[] int64[]",
)
def proof_terms(
    proofs, counts, low_of, group_of, num_groups, sizes, roots, signs, starts, factors, sum_starts, members
):
    """The probability of the proofs of each root as a polynomial: inclusion and exclusion over the sets of proofs that
    do not contradict themselves.

    proofs, counts  [root, k, 2 * words] and [root], bits of the slots of a part, and how many proofs there are; none
                    contains another one, as the store of proofs has them
    low_of          [root] the first slot of its part
    sizes           out: how many terms, factors, sums and members of sums there are
    roots, signs    [term] out
    starts          [term + 1] out: where the factors of a term begin
    factors         [factor] out: slot s for its probability, S + s for one less it, where S is the number of slots,
                    and 2 S + i for one less sum i
    sum_starts      [sum + 1] out, members [member] out: slots of one group, none of which holds

    Where the arrays after `sizes` are empty, only sizes are computed.
    """
    k, words, slots = proofs.shape[1], proofs.shape[2] // 2, len(group_of)
    unions = np.zeros((k + 1, 2 * words), np.uint64)
    following = np.zeros(k + 1, np.int64)
    chosen, seen = np.zeros(max(num_groups, 1), np.int64), np.zeros(max(num_groups, 1), np.int64)
    is_filling = len(starts) > 0
    terms, used, sums, inside = 0, 0, 0, 0
    for root in range(len(proofs)):
        low, depth = low_of[root], 0
        following[0] = 0
        while depth >= 0:
            one = following[depth]
            if one >= counts[root]:
                depth -= 1
                continue
            following[depth] = one + 1
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
