"""Kernels of texts in UTF-8: a hash set of those that lie behind each other in one array.

Text `k` of `data` [byte] uint8 is data[offsets[k]:offsets[k + 1]]. Nothing here allocates.
"""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import (
    eight_bytes,
    hash_word,
    load,
    mix_word,
    pointer,
    prefetch,
    slot_in,
    store,
    tag_of,
)

# Looks into the table that are on their way while one is made: each waits for memory.
AHEAD = 12


@kernel
def _hash_text(data, start, stop, mask):
    """The hash of bytes start..stop behind a pointer, of which `mask` leaves some bits."""
    h = hash_word(stop - start)
    at = start
    while at + 8 <= stop:
        h = mix_word(h, np.int64(eight_bytes(data, at)))
        at += 8
    word = np.int64(0)
    while at < stop:
        word = word << 8 | np.int64(load(data, at))
        at += 1
    return mix_word(h, word) & mask


@kernel
def _is_same_text(data, start, other, at, length):
    """Whether `length` bytes of `data` from `start` on and of `other` from `at` on are the same; both are pointers."""
    k = np.int64(0)
    while k + 8 <= length:
        if eight_bytes(data, start + k) != eight_bytes(other, at + k):
            return False
        k += 8
    while k < length:
        if load(data, start + k) != load(other, at + k):
            return False
        k += 1
    return True


@kernel("uint8[] int64[] int64[] int64 int64[]")
def hash_texts(data, starts, stops, mask, hashes):
    """The hashes [text] of the texts data[starts[i]:stops[i]]; `mask`: the bits that count."""
    for i in range(len(starts)):
        hashes[i] = _hash_text(pointer(data), starts[i], stops[i], mask)


@kernel("uint8[] int64[] int64 uint32[] uint8[] int64[] int64[] int64[] int64[] bool")
def intern_texts(data, offsets, size, table, source, starts, stops, hashes, numbers, appends):
    """Find the texts source[starts[i]:stops[i]]; writes their numbers to `numbers` and returns the new number of texts.

    table    [2 * slots] uint32, slots a power of two: a text's number + 1, 0 if empty, and 32 bits of its hash
    appends  whether texts that are not there are appended; else their number is -1
    The caller has made room for what is appended, and the table stays at most half full.
    """
    slots = len(table) // 2
    for i in range(len(starts)):
        if i + AHEAD < len(starts):
            prefetch(table, 2 * slot_in(hashes[i + AHEAD], slots))
        start, stop, h = starts[i], stops[i], hashes[i]
        length = stop - start
        tag = tag_of(h)
        slot = slot_in(h, slots)
        while True:
            number = np.int64(table[2 * slot]) - 1
            if number < 0:
                numbers[i] = -1
                if appends:
                    end = offsets[size]
                    for k in range(length):
                        store(data, end + k, load(source, start + k))
                    table[2 * slot] = size + 1
                    table[2 * slot + 1] = tag
                    numbers[i] = size
                    size += 1
                    offsets[size] = end + length
                break
            if np.int64(table[2 * slot + 1]) == tag:
                begin = offsets[number]
                if offsets[number + 1] - begin == length and _is_same_text(
                    pointer(data), begin, pointer(source), start, length
                ):
                    numbers[i] = number
                    break
            slot = slot_in(slot + 1, slots)
    return size


@kernel("uint8[] int64[] int64[,] uint8[] int64[]")
def join_texts(data, offsets, rows, joined, ends):
    """Write the texts of the numbers rows[i] [row, column] behind each other to `joined`; text `i` ends at ends[i]."""
    end = np.int64(0)
    for i in range(len(rows)):
        for c in range(rows.shape[1]):
            for at in range(offsets[rows[i, c]], offsets[rows[i, c] + 1]):
                store(joined, end, load(data, at))
                end += 1
        ends[i] = end


@kernel("uint8[] int64[] int64 uint32[] int64")
def rehash_texts(data, offsets, size, table, mask):
    """Fill an empty table with the first `size` texts, which are distinct; `mask`: the bits of hashes that count."""
    slots = len(table) // 2
    for i in range(size):
        h = _hash_text(pointer(data), offsets[i], offsets[i + 1], mask)
        slot = slot_in(h, slots)
        while table[2 * slot] != 0:
            slot = slot_in(slot + 1, slots)
        table[2 * slot] = i + 1
        table[2 * slot + 1] = tag_of(h)
