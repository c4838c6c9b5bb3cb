"""Kernels of binary relations over small non-negative integers: one set of second values per first value.

The set of one row is an open-addressing hash of 32-bit values that becomes a bitmap when the bitmap is no larger, so
the working set of a transitive closure is the row at hand, not the whole relation. All sets live in one arena.

base  [first] int64    where the row's block begins in the arena
slots [first] int32    size of its hash (a power of two), 0 if there is none yet, -1 for a bitmap
count [first] int32    values in the hash
arena [word] uint32    blocks; a hash holds value + 1, 0 if empty
state [40] int64       0: first unused word of the arena; 1: words of a bitmap; 8 + k: first free block of 2^k words

Results: 0 done, 1 the arena is too small, 2 the log is too small. Nothing here allocates.
"""

from __future__ import annotations

import numpy as np
from numba import njit

DONE, ARENA_FULL, LOG_FULL = 0, 1, 2
FIRST_SLOTS = 8


@njit(cache=True, nogil=True, inline="always")
def _spread(value, mask):
    h = np.uint32(value) * np.uint32(2654435769)
    return np.int64((h ^ (h >> np.uint32(15))) & np.uint32(mask))


@njit(cache=True, nogil=True)
def _take_block(words, level, arena, state):
    """A block of 2^level zero words, -1 if the arena is too small."""
    head = state[8 + level]
    if head > 0:
        position = head - 1
        state[8 + level] = np.int64(arena[position]) | (np.int64(arena[position + 1]) << 32)
        for i in range(position, position + words):
            arena[i] = 0
        return position
    position = state[0]
    if position + words > len(arena):
        return np.int64(-1)
    state[0] = position + words
    return position


@njit(cache=True, nogil=True)
def _grow(x, base, slots, count, arena, state):
    """Give row x a larger block; False if the arena is too small."""
    old = np.int64(slots[x])
    new = np.int64(FIRST_SLOTS) if old == 0 else 2 * old
    start = base[x]
    if new >= state[1]:
        position = state[0]
        if position + state[1] > len(arena):
            return False
        state[0] = position + state[1]
        for i in range(start, start + old):
            value = np.int64(arena[i]) - 1
            if value >= 0:
                arena[position + (value >> 5)] |= np.uint32(1) << np.uint32(value & 31)
        slots[x] = -1
    else:
        level = 3
        while (1 << level) < new:
            level += 1
        position = _take_block(new, level, arena, state)
        if position < 0:
            return False
        mask = new - 1
        for i in range(start, start + old):
            entry = arena[i]
            if entry != 0:
                slot = _spread(entry, mask)
                while arena[position + slot] != 0:
                    slot = (slot + 1) & mask
                arena[position + slot] = entry
        slots[x] = new
    if old > 0:
        level = 3
        while (1 << level) < old:
            level += 1
        free = state[8 + level]
        arena[start] = np.uint32(free & 0xFFFFFFFF)
        arena[start + 1] = np.uint32(free >> 32)
        state[8 + level] = start + 1
    base[x] = position
    return True


@njit(cache=True, nogil=True)
def insert_pairs(xs, ys, i, append, log, size, base, slots, count, arena, state):
    """Enter pairs from number `i` on, and append the new ones to the log [row, 2] if `append`.

    Returns (result, next pair, size). The loop calls nothing on its way, since passing an array to a function, even an
    inlined one, costs atomic reference counting: 54 ns a pair were measured, against 6 without.
    """
    while i < len(xs):
        if size == len(log):
            return LOG_FULL, i, size
        x = np.int64(xs[i])
        y = np.int64(ys[i])
        slot_count = np.int64(slots[x])
        start = base[x]
        if slot_count < 0:
            word = start + (y >> 5)
            bit = np.uint32(1) << np.uint32(y & 31)
            entry = arena[word]
            i += 1
            if entry & bit:
                continue
            arena[word] = entry | bit
        else:
            wanted = np.uint32(y + 1)
            mask = slot_count - 1
            slot = np.int64(0)
            found = False
            if slot_count > 0:
                h = wanted * np.uint32(2654435769)
                slot = np.int64(h ^ (h >> np.uint32(15))) & mask
                entry = arena[start + slot]
                while entry != 0:
                    if entry == wanted:
                        found = True
                        break
                    slot = (slot + 1) & mask
                    entry = arena[start + slot]
            if found:
                i += 1
                continue
            used = np.int64(count[x]) + 1
            if 4 * used > 3 * slot_count:
                # Room first; the pair is looked at again, in the new block.
                if not _grow(x, base, slots, count, arena, state):
                    return ARENA_FULL, i, size
                continue
            arena[start + slot] = wanted
            count[x] = used
            i += 1
        if append:
            log[size, 0] = x
            log[size, 1] = y
            size += 1
    return DONE, i, size


@njit(cache=True, nogil=True)
def join_pairs(left, i, stop, position, key, first, second, offsets, low, values, xs, ys):
    """Candidates (first, second) of rows i..stop of `left` [row, 2] joined with a dense index, until xs, ys are full.

    key            column of `left` that is joined
    first, second  0 or 1: that column of `left`; 2: the index's value
    offsets, values  values of key k are values[offsets[k - low]:offsets[k - low + 1]]
    Returns (candidates, next row, next position in its values or -1).
    """
    top = len(offsets) - 1
    room = len(xs)
    written = 0
    while i < stop:
        k = np.int64(left[i, key]) - low
        if 0 <= k < top:
            if position < 0:
                position = offsets[k]
            end = offsets[k + 1]
            a = left[i, 0]
            b = left[i, 1]
            while position < end:
                if written == room:
                    return written, i, position
                value = values[position]
                xs[written] = value if first == 2 else (a if first == 0 else b)
                ys[written] = value if second == 2 else (a if second == 0 else b)
                written += 1
                position += 1
        position = np.int64(-1)
        i += 1
    return written, i, np.int64(-1)


@njit(cache=True, nogil=True)
def find_pairs(xs, ys, base, slots, arena, domain, ids):
    """ids [pair] = 0 if the pair is there, -1 if not."""
    for i in range(len(xs)):
        x, y = xs[i], ys[i]
        ids[i] = -1
        if x < 0 or x >= len(slots) or y < 0 or y >= domain:
            continue
        size = np.int64(slots[x])
        start = base[x]
        if size < 0:
            if (arena[start + (y >> 5)] >> np.uint32(y & 31)) & np.uint32(1):
                ids[i] = 0
        elif size > 0:
            slot = _spread(y + 1, size - 1)
            while arena[start + slot] != 0:
                if arena[start + slot] == np.uint32(y + 1):
                    ids[i] = 0
                    break
                slot = (slot + 1) & (size - 1)
