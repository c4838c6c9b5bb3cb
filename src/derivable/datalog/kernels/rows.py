"""What kernels do with one row of a log [row * column]: find it in the hash of rows, and insert it into an index."""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import hash_word, load, mix_word, slot_in, store, tag_of


@kernel
def find_row(log, slots, num_slots, words, at, width):
    """(number, slot, tag) of the row whose words begin at `at`; the number is -1 if it is not there.

    slots  [2 * num_slots] uint32, a power of two: row number + 1, 0 if empty, and the tag, 32 bits of the row's hash
    """
    h = hash_word(load(words, at))
    for c in range(1, width):
        h = mix_word(h, load(words, at + c))
    tag, slot = tag_of(h), slot_in(h, num_slots)
    while load(slots, 2 * slot) != 0:
        if np.int64(load(slots, 2 * slot + 1)) == tag:
            row = np.int64(load(slots, 2 * slot)) - 1
            c = 0
            while c < width and load(log, row * width + c) == load(words, at + c):
                c += 1
            if c == width:
                return row, slot, tag
        slot = slot_in(slot + 1, num_slots)
    return np.int64(-1), slot, tag


@kernel
def fill_slot(slots, slot, row, tag):
    """Write a row to the free slot that `find_row` has returned."""
    store(slots, 2 * slot, np.uint32(row + 1))
    store(slots, 2 * slot + 1, np.uint32(tag))


@kernel
def chain_row(log, width, keys, num_keys, heads, num_heads, following, row):
    """Insert a row into a chained hash index over some columns, at least one."""
    h = hash_word(np.int64(load(log, row * width + load(keys, 0))))
    for k in range(1, num_keys):
        h = mix_word(h, np.int64(load(log, row * width + load(keys, k))))
    slot = slot_in(h, num_heads)
    store(following, row, load(heads, slot))
    store(heads, slot, np.int32(row))
