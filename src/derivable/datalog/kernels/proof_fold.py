"""The end of a round of proofs: what is derived of each row is added to its set, the products being made meanwhile.

Most products are worse than the k proofs that a row has: of these only costs are computed. Sets are as in
`kernels.proofs`. The proofs of a row at hand are in slots of `to_blocks`, all of the same length: proof s begins at
to_heads[2 s, 0] and ends before to_heads[2 s + 1, 0], and to_heads[2 s, 1] is its cost; `order` lists them best first,
and the free ones behind them.

What a row gets is a function of the set that it had and of what is derived, in whatever order that is: proofs are
dropped as soon as there are k better ones. Only where a proof is contained in several of these do dropped ones matter
again; then all are gone through once more, and none is dropped before the end. Those that an earlier round has dropped
are derived again, if used[LOST] says so.
"""

from __future__ import annotations

import numpy as np

from derivable.datalog.kernels.multi_block_fold import ENDLESS, LOST, WANTED_SPAN, fold_multi_block
from derivable.datalog.kernels.proofs import (
    LITERALS,
    ONE,
    SETS,
    ZERO,
    conflict,
    cost_of_word,
    is_simpler,
    resolve_choices,
    unite,
)
from derivable.device.cpu.built_kernels import kernel


@kernel("int64[] int64[] int64[] int64[]")
def chain(ids, last, following, touched):
    """Link the candidates [candidate] of each row; returns the number of rows, which `touched` lists.

    last       [row] one more than the last candidate, all zero before
    following  [candidate] one more than the candidate of the same row that was before it, 0 for none
    """
    number = 0
    for i in range(len(ids)):
        row = ids[i]
        following[i] = last[row]
        if not last[row]:
            touched[number] = row
            number += 1
        last[row] = i + 1
    return number


# The types of the room for the proofs of a row.
SLOTS = "(uint64[,] int64[,] int64[] int64[])"
# The types of `candidates` and `limits`, see `fold_rows`.
CANDIDATES = "(int64[] int64[] int64[] int64[] int64[] int64 int64[] int64[] bool bool[])"
LIMITS = "(int64 bool bool)"


@kernel(f"int64 int64 uint8[] {SETS} {LITERALS}")
def note_literals(start, stop, noted, sets, literals):
    """Fills noted [set]: 1 if a proof of the set has a literal of a choice, 3 if one of these is a trigger, else 0."""
    (blocks, heads, offsets), (_, tied, triggers) = sets, literals[:3]
    width, zero = blocks.shape[1] - 1, np.uint64(0)
    for number in range(start, stop):
        of_choices, of_triggers = zero, zero
        for block in range(heads[offsets[number], 0], heads[offsets[number + 1], 0]):
            first = np.int64(blocks[block, 0]) * width
            for w in range(width):
                of_choices |= blocks[block, 1 + w] & tied[first + w]
                of_triggers |= blocks[block, 1 + w] & triggers[first + w]
        noted[number] = 3 if of_triggers else 1 if of_choices else 0


@kernel(f"int64 int64 int64[] int64[] bool[] uint8[] {SETS} {SLOTS} int64[] {LITERALS}")
def are_possible(start, stop, a, b, possible, noted, sets, slots, used, literals):
    """Fills possible [pair]: whether the product of two sets has a proof; returns the pair where slots are too short.

    noted  [set] see `note_literals`
    """
    (blocks, heads, offsets), (to_blocks, to_heads, _, _) = sets, slots
    for i in range(start, stop):
        x, y = a[i], b[i]
        # Two that share nothing of choices, or of which neither has a trigger, never contradict each other.
        if ZERO in (x, y) or x == y or noted[x] * noted[y] < 3:
            possible[i] = ZERO not in (x, y)
            continue
        possible[i] = False
        for p in range(offsets[x], offsets[x + 1]):
            if possible[i]:
                break
            for q in range(offsets[y], offsets[y + 1]):
                code = conflict(blocks, heads, p, q, literals)
                if code == 0:
                    possible[i] = True
                    break
                if code == 1:
                    continue
                most = heads[p + 1, 0] - heads[p, 0] + heads[q + 1, 0] - heads[q, 0]
                if most > len(to_blocks):
                    used[WANTED_SPAN] = most
                    return i
                to_heads[0, 0] = 0
                has_choices = unite(blocks, heads, p, q, to_blocks, to_heads, 0, literals)
                if not has_choices or resolve_choices(to_blocks, to_heads, 0, literals):
                    possible[i] = True
                    break
    return stop


@kernel
def _fold_narrow(start, stop, candidates, limits, sets, slots, used, literals):
    """`fold_rows` of rows whose proofs are one block each, all with one block number: all that they need is done here.

    Returns the position in the list of the first row that it leaves to `fold_multi_block`.
    """
    rows, last, following, a, b, old, tags, news, has_news, changed = candidates
    k, is_bounded, has_triggers = limits
    blocks, heads, offsets = sets
    to_blocks, to_heads, order, is_new = slots
    costs, tied, triggers = literals[:3]
    width, span, zero = blocks.shape[1] - 1, to_heads[2, 0], np.uint64(0)
    for t in range(start, stop):
        row = rows[t]
        before = tags[row] if row < old else ZERO
        if before == ONE:
            changed[t], last[row] = False, 0
            continue
        first, number = offsets[before], offsets[before + 1] - offsets[before]
        best, is_alone = last[row], not following[last[row] - 1]
        if is_alone and not number:
            x, y = a[best - 1], b[best - 1]
            if x in (ONE, y):
                x, y = y, ONE
            if y == ONE:
                tags[row], news[row], changed[t], last[row] = x, x, True, 0
                continue
        if number >= len(order):
            return t
        # The proofs that there are, each in a separate slot.
        position, base, has_position = zero, 0, False
        for j in range(number):
            at = heads[first + j, 0]
            if heads[first + j + 1, 0] != at + 1 or (has_position and blocks[at, 0] != position):
                return t
            position, has_position = blocks[at, 0], True
            for w in range(width):
                to_blocks[span * j, 1 + w] = blocks[at, 1 + w]
            to_heads[2 * j, 1], order[j], is_new[j] = heads[first + j, 1], j, 0
        if not is_alone and k > 1:
            # That which is best if both have nothing in common comes first: more of the others are too bad then. With
            # one proof a row, to look for it costs more than that saves.
            least, i = ENDLESS, best
            while i > 0:
                total = heads[offsets[a[i - 1]], 1] + heads[offsets[b[i - 1]], 1]
                if total < least:
                    best, least = i, total
                i = following[i - 1]
        count, known, is_one, is_truncated = number, number, False, False
        limit = to_heads[2 * number - 2, 1] if is_bounded and number >= k else ENDLESS
        i, is_first = best, True
        while i > 0 and not is_one:
            x, y = a[i - 1], b[i - 1]
            i = last[row] if is_first else following[i - 1]
            is_first = False
            if i == best:
                i = following[i - 1]
            if x in (ONE, y):
                x, y = y, ONE
            if ZERO in (x, y):
                continue
            if x == ONE:
                is_one = True
                break
            q_first, q_last = offsets[y], offsets[y + 1]
            for p in range(offsets[x], offsets[x + 1]):
                low, p_at = heads[p, 1], heads[p, 0]
                if low > limit or is_one:
                    is_truncated = True
                    break
                if heads[p + 1, 0] != p_at + 1 or (has_position and blocks[p_at, 0] != position):
                    return t
                position, has_position = blocks[p_at, 0], True
                base = np.int64(position) * width
                for q in range(q_first, q_last):
                    if count == known:
                        if known == len(order):
                            return t
                        order[known] = known
                        known += 1
                    slot = order[count]
                    at, total = span * slot, low
                    if y == ONE:
                        for w in range(width):
                            to_blocks[at, 1 + w] = blocks[p_at, 1 + w]
                    else:
                        high, q_at = heads[q, 1], heads[q, 0]
                        if high > limit:
                            is_truncated = True
                            break
                        if heads[q + 1, 0] != q_at + 1 or blocks[q_at, 0] != position:
                            return t
                        total += high
                        choices, of_p, of_q, has_choices = zero, zero, zero, False
                        for w in range(width):
                            one, other = blocks[p_at, 1 + w], blocks[q_at, 1 + w]
                            to_blocks[at, 1 + w] = one | other
                            if one & other:
                                total -= cost_of_word(costs, 64 * (base + w), one & other)
                            if has_triggers:
                                choices |= (one | other) & triggers[base + w]
                                of_p |= one & tied[base + w]
                                of_q |= other & tied[base + w]
                        if total > limit:
                            is_truncated = True
                            continue
                        if choices and of_p and of_q:
                            code = conflict(blocks, heads, p, q, literals)
                            if code == 1:
                                continue
                            has_choices = code == 2
                        if has_choices:
                            to_blocks[at, 0], to_heads[2 * slot + 1, 0], to_heads[2 * slot, 1] = position, at + 1, total
                            if not resolve_choices(to_blocks, to_heads, 2 * slot, literals):
                                continue
                            total = to_heads[2 * slot, 1]
                            if to_heads[2 * slot + 1, 0] == at:
                                is_one = True
                                break
                    is_there = False
                    for j in range(count):
                        other_at, is_there = span * order[j], True
                        for w in range(1, 1 + width):
                            if to_blocks[other_at, w] & ~to_blocks[at, w]:
                                is_there = False
                                break
                        if is_there:
                            break
                    if is_there:
                        continue
                    to_blocks[at, 0], to_heads[2 * slot + 1, 0], to_heads[2 * slot, 1] = position, at + 1, total
                    spot = count
                    while spot > 0:
                        rival = 2 * order[spot - 1]
                        if to_heads[rival, 1] < total:
                            break
                        if to_heads[rival, 1] == total:
                            to_blocks[to_heads[rival, 0], 0], to_heads[rival + 1, 0] = position, to_heads[rival, 0] + 1
                            if not is_simpler(to_blocks, to_heads, 2 * slot, rival):
                                break
                        spot -= 1
                    if spot == k:
                        is_truncated = True
                        continue
                    # Those that contain it go, and their slots are behind the others.
                    remaining = spot
                    for j in range(spot, count):
                        rival = order[j]
                        for w in range(1, 1 + width):
                            if to_blocks[at, w] & ~to_blocks[span * rival, w]:
                                order[j], order[remaining] = order[remaining], rival
                                remaining += 1
                                break
                    if count - remaining > 1:
                        if is_truncated:
                            return t
                        used[LOST] |= number >= k
                    order[count] = order[remaining]
                    for j in range(remaining, spot, -1):
                        order[j] = order[j - 1]
                    order[spot], is_new[slot] = slot, 1
                    is_truncated = is_truncated or remaining == k
                    count = min(remaining + 1, k)
                    limit = to_heads[2 * order[count - 1], 1] if is_bounded and count == k else ENDLESS
        if is_one:
            tags[row], news[row], changed[t], last[row] = ONE, ONE, True, 0
            continue
        num_new = 0
        for j in range(count):
            num_new += is_new[order[j]]
        if not num_new:
            if row >= old:
                tags[row] = ZERO
            changed[t], last[row] = False, 0
            continue
        fits = used[0] + 2 < len(offsets) and used[1] + 2 * count < len(heads)
        if not fits or used[2] + 2 * count > len(blocks):
            return t
        for only_new in range(2 if has_news and num_new < count else 1):
            to, to_at = used[1], used[2]
            for j in range(count):
                slot = order[j]
                if not only_new or is_new[slot]:
                    blocks[to_at, 0] = position
                    for w in range(1, 1 + width):
                        blocks[to_at, w] = to_blocks[span * slot, w]
                    to, to_at = to + 1, to_at + 1
                    heads[to, 0], heads[to - 1, 1] = to_at, to_heads[2 * slot, 1]
            if only_new:
                news[row] = used[0]
            else:
                tags[row] = news[row] = used[0]
            offsets[used[0] + 1] = to
            used[0], used[1], used[2] = used[0] + 1, to, to_at
        changed[t], last[row] = True, 0
    return stop


@kernel
def fold_rows(start, stop, candidates, limits, sets, slots, used, literals):
    """Add the products of a[candidate] and b[candidate] to the sets of the rows [start:stop] that `chain` has listed.

    candidates  rows, last, following, a, b, old, tags, news, has_news, changed; limits: k, is_bounded, has_triggers
    old       rows from here on have no set yet
    news      [row] out: the set of the proofs that a row did not have, if `has_news`
    changed   [row of the list] out: whether the row has other proofs than before
    is_bounded  whether a product costs at least as much as each of its factors: a denied value of a choice costs
              something, and goes where another value is used

    Returns the position in the list where room has come to its end.
    """
    # Rows that are left for the one are mostly followed by others: it goes on with twice as many each time.
    many = 1
    while start < stop:
        reached = _fold_narrow(start, stop, candidates, limits, sets, slots, used, literals)
        if reached == stop:
            return stop
        many = 2 * many if reached == start else 1
        start = min(reached + many, stop)
        left = fold_multi_block(reached, start, candidates, limits, sets, slots, used, literals)
        if left < start:
            return left
    return stop


@kernel(f"int64 int64 {CANDIDATES} {LIMITS} {SETS} {SLOTS} int64[] {LITERALS}")
def fold(start, stop, candidates, limits, sets, slots, used, literals):
    """`fold_rows` for Python."""
    return fold_rows(start, stop, candidates, limits, sets, slots, used, literals)
