"""The end of a round of proofs for rows whose proofs are runs of several blocks; see `kernels.proof_fold`."""

from __future__ import annotations

import numpy as np

from derivable.datalog.kernels.proofs import (
    IMPOSSIBLE,
    ONE,
    ZERO,
    contains,
    cost_of_word,
    is_simpler,
    resolve_choices,
    unite,
)
from derivable.device.cpu.built_kernels import kernel

# A cost that is never reached.
ENDLESS = IMPOSSIBLE << 12
# The words behind `used`: blocks of a slot, and slots, that were wanted where these came to their end.
WANTED_SPAN, WANTED_SLOTS = 5, 6
# Behind these: whether proofs that an earlier round has dropped may be among the best again.
LOST = 7


@kernel
def _cost_of_both(blocks, heads, a, b, costs):
    """The cost of the literals that two proofs have in common."""
    i, i_end, j, j_end = heads[a, 0], heads[a + 1, 0], heads[b, 0], heads[b + 1, 0]
    total, width = 0, blocks.shape[1] - 1
    while i < i_end and j < j_end:
        x, y = blocks[i, 0], blocks[j, 0]
        if x == y:
            for w in range(width):
                word = blocks[i, 1 + w] & blocks[j, 1 + w]
                if word:
                    total += cost_of_word(costs, 64 * (np.int64(x) * width + w), word)
        i += x <= y
        j += y <= x
    return total


@kernel
def _copy(blocks, heads, row, to_blocks, to_heads, to_row):
    """Copy a proof to a row that has its first block already."""
    at = to_heads[to_row, 0]
    for block in range(heads[row, 0], heads[row + 1, 0]):
        for w in range(blocks.shape[1]):
            to_blocks[at, w] = blocks[block, w]
        at += 1
    to_heads[to_row + 1, 0], to_heads[to_row, 1] = at, heads[row, 1]


@kernel
def _insert(slot, count, k, to_blocks, to_heads, order, is_truncated, was_full, used):
    """Insert a proof among the first `count` of `order`, behind which its slot is; returns (their number then, what it
    has changed): 0 nothing, 1 it is there, 2 nothing as it is too bad, 3 one that is too bad has left for it, and 4 if
    proofs that were dropped may matter again."""
    row, rank = 2 * slot, count
    cost, start = to_heads[row, 1], to_heads[row, 0]
    while rank > 0:
        other = 2 * order[rank - 1]
        if to_heads[other, 1] < cost:
            break
        if to_heads[other, 1] == cost and not is_simpler(to_blocks, to_heads, row, other):
            break
        rank -= 1
    if rank == k:
        return count, 2
    for j in range(rank):
        other = 2 * order[j]
        at = to_heads[other, 0]
        # Most have other literals in their first word.
        if to_blocks[start, 0] == to_blocks[at, 0] and to_blocks[at, 1] & ~to_blocks[start, 1]:
            continue
        if contains(to_blocks, to_heads, row, to_blocks, to_heads, other):
            return count, 0
    # Those that contain it go, and their slots are behind the others.
    remaining = rank
    for j in range(rank, count):
        other = order[j]
        at = to_heads[2 * other, 0]
        is_apart = to_blocks[start, 0] == to_blocks[at, 0] and to_blocks[start, 1] & ~to_blocks[at, 1]
        if is_apart or not contains(to_blocks, to_heads, 2 * other, to_blocks, to_heads, row):
            order[j], order[remaining] = order[remaining], other
            remaining += 1
    if count - remaining > 1:
        if is_truncated:
            return count, 4
        used[LOST] |= was_full
    # `order` has the slot behind all of these.
    order[count] = order[remaining]
    for j in range(remaining, rank, -1):
        order[j] = order[j - 1]
    order[rank] = slot
    if remaining == k:
        return k, 3
    return remaining + 1, 1


@kernel
def fold_multi_block(start, stop, candidates, limits, sets, slots, used, literals):
    """`proof_fold.fold_rows`, whatever proofs are; returns the position in the list where room has come to its end."""
    rows, last, following, a, b, old, tags, news, has_news, changed = candidates
    k, is_bounded, _ = limits
    blocks, heads, offsets = sets
    to_blocks, to_heads, order, is_new = slots
    costs = literals[0]
    for t in range(start, stop):
        row = rows[t]
        before = tags[row] if row < old else ZERO
        if before == ONE:
            changed[t], last[row] = False, 0
            continue
        first, number = offsets[before], offsets[before + 1] - offsets[before]
        if not number and not following[last[row] - 1]:
            x, y = a[last[row] - 1], b[last[row] - 1]
            if x in (ONE, y):
                x, y = y, ONE
            p, q = offsets[x], offsets[y]
            if y == ONE:
                tags[row], news[row], changed[t], last[row] = x, x, True, 0
                continue
            if offsets[x + 1] - p == 1 and offsets[y + 1] - q == 1:
                needed = heads[p + 1, 0] - heads[p, 0] + heads[q + 1, 0] - heads[q, 0]
                if used[0] + 1 >= len(offsets) or used[1] + 1 >= len(heads) or used[2] + needed > len(blocks):
                    used[3], used[4] = 1, needed
                    return t
                has_choices = unite(blocks, heads, p, q, blocks, heads, used[1], literals)
                if has_choices and not resolve_choices(blocks, heads, used[1], literals):
                    tags[row], changed[t], last[row] = ZERO, False, 0
                    continue
                tags[row] = news[row] = used[0]
                used[0], used[1], used[2] = used[0] + 1, used[1] + 1, heads[used[1] + 1, 0]
                offsets[used[0]], changed[t], last[row] = used[1], True, 0
                continue
        # That which is best if both have nothing in common comes first: more of the others are too bad then.
        best, least, i = last[row], ENDLESS, last[row]
        while i > 0:
            total = heads[offsets[a[i - 1]], 1] + heads[offsets[b[i - 1]], 1]
            if total < least:
                best, least = i, total
            i = following[i - 1]
        most, count, is_one, is_copied = k, 0, False, False
        while True:
            span, room, done = to_heads[2, 0], len(order), True
            if most + 2 > room:
                # More than any number of proofs that there are is not needed.
                needed, i = number + 2, last[row]
                while i > 0:
                    x, y = a[i - 1], b[i - 1]
                    needed += max(offsets[x + 1] - offsets[x], 1) * max(offsets[y + 1] - offsets[y], 1)
                    i = following[i - 1]
                if min(needed, most + 2) > room:
                    used[WANTED_SLOTS] = min(needed, most + 2)
                    return t
            count, is_one, is_copied, is_truncated = number, False, False, False
            limit = heads[first + number - 1, 1] if is_bounded and number >= most else ENDLESS
            i = best
            is_first = True
            while i > 0 and done and not is_one:
                x, y = a[i - 1], b[i - 1]
                i = last[row] if is_first else following[i - 1]
                is_first = False
                if i == best:
                    i = following[i - 1]
                if x in (ONE, y):
                    x, y = y, ONE
                if ZERO in (x, y):
                    continue
                is_one = x == ONE
                q_first, q_last = offsets[y], offsets[y + 1]
                for p in range(offsets[x], offsets[x + 1]):
                    if not done or is_one:
                        break
                    cost = heads[p, 1]
                    if cost > limit:
                        is_truncated = True
                        break
                    for q in range(q_first, q_last):
                        if y != ONE:
                            other = heads[q, 1]
                            if other > limit:
                                is_truncated = True
                                break
                            if (
                                cost + other > limit
                                and cost + other - _cost_of_both(blocks, heads, p, q, costs) > limit
                            ):
                                is_truncated = True
                                continue
                        if not is_copied:
                            # The proofs that there are, each in a separate slot; the others are free.
                            for j in range(number):
                                if heads[first + j + 1, 0] - heads[first + j, 0] > span:
                                    used[WANTED_SPAN] = heads[first + j + 1, 0] - heads[first + j, 0]
                                    return t
                                _copy(blocks, heads, first + j, to_blocks, to_heads, 2 * j)
                            for j in range(room):
                                order[j], is_new[j] = j, 1 if j >= number else 0
                            is_copied = True
                        slot = order[count]
                        needed = heads[p + 1, 0] - heads[p, 0] + heads[q + 1, 0] - heads[q, 0]
                        if needed > span:
                            used[WANTED_SPAN] = needed
                            return t
                        has_choices = False
                        if y == ONE:
                            _copy(blocks, heads, p, to_blocks, to_heads, 2 * slot)
                        else:
                            has_choices = unite(blocks, heads, p, q, to_blocks, to_heads, 2 * slot, literals)
                        if has_choices and not resolve_choices(to_blocks, to_heads, 2 * slot, literals):
                            continue
                        if to_heads[2 * slot, 0] == to_heads[2 * slot + 1, 0]:
                            is_one = True
                            break
                        is_new[slot] = 1
                        count, code = _insert(
                            slot, count, most, to_blocks, to_heads, order, is_truncated, number >= k, used
                        )
                        if code == 4:
                            done = False
                            break
                        is_truncated = is_truncated or code >= 2
                        if count == most and is_bounded:
                            limit = to_heads[2 * order[count - 1], 1]
                        elif code == 1:
                            limit = ENDLESS
            if done:
                break
            most = ENDLESS
        if is_one:
            tags[row], news[row], changed[t], last[row] = ONE, ONE, True, 0
            continue
        count = min(count, k)
        num_new, num_blocks = 0, 0
        for j in range(count if is_copied else 0):
            num_new += is_new[order[j]]
            num_blocks += to_heads[2 * order[j] + 1, 0] - to_heads[2 * order[j], 0]
        if not num_new:
            if row >= old:
                tags[row] = ZERO
            changed[t], last[row] = False, 0
            continue
        fits = used[0] + 2 < len(offsets) and used[1] + 2 * count < len(heads)
        if not fits or used[2] + 2 * num_blocks > len(blocks):
            used[3], used[4] = 2 * count, 2 * num_blocks
            return t
        for only_new in range(2 if has_news and num_new < count else 1):
            to_row = used[1]
            for j in range(count):
                if not only_new or is_new[order[j]]:
                    _copy(to_blocks, to_heads, 2 * order[j], blocks, heads, to_row)
                    to_row += 1
            if only_new:
                news[row] = used[0]
            else:
                tags[row] = news[row] = used[0]
            offsets[used[0] + 1] = to_row
            used[0], used[1], used[2] = used[0] + 1, to_row, heads[to_row, 0]
        changed[t], last[row] = True, 0
    return stop
