"""Kernels of Datalog relations: hash sets of rows, hash indexes, expansion of joins.

Rows live in an append-only log [row, column]; sets and indexes hold row numbers. Nothing here allocates.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_SEED = np.uint64(0x9E3779B97F4A7C15)
_S30, _S27, _S31, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


@njit(cache=True, nogil=True, inline="always")
def _mix(h, word):
    h = h ^ np.uint64(word)
    h = (h ^ (h >> _S30)) * _M1
    h = (h ^ (h >> _S27)) * _M2
    return h ^ (h >> _S31)


@njit(cache=True, nogil=True)
def insert_rows(log, size, table, rows, ids):
    """Find or append each of `rows` [row, column]; writes its number in the log to `ids` and returns the new size.

    table  [slot] uint64, a power of two: hash tag in the high half, row number + 1 in the low half, 0 if empty
    The caller has made room: size + rows <= len(log), and the table stays at most half full.
    """
    mask = np.uint64(len(table) - 1)
    width = rows.shape[1]
    for i in range(rows.shape[0]):
        h = _SEED
        for c in range(width):
            h = _mix(h, rows[i, c])
        tag = h >> _S32
        slot = h & mask
        while True:
            entry = table[slot]
            if entry == 0:
                for c in range(width):
                    log[size, c] = rows[i, c]
                table[slot] = (tag << _S32) | np.uint64(size + 1)
                ids[i] = size
                size += 1
                break
            if entry >> _S32 == tag:
                found = np.int64(entry & _LOW) - 1
                same = True
                for c in range(width):
                    if log[found, c] != rows[i, c]:
                        same = False
                        break
                if same:
                    ids[i] = found
                    break
            slot = (slot + _ONE) & mask
    return size


@njit(cache=True, nogil=True)
def rehash_rows(log, size, table):
    """Fill an empty table with the first `size` rows of the log, which are distinct."""
    mask = np.uint64(len(table) - 1)
    for i in range(size):
        h = _SEED
        for c in range(log.shape[1]):
            h = _mix(h, log[i, c])
        slot = h & mask
        while table[slot] != 0:
            slot = (slot + _ONE) & mask
        table[slot] = ((h >> _S32) << _S32) | np.uint64(i + 1)


@njit(cache=True, nogil=True)
def find_rows(log, table, rows, ids):
    """Write the number of each of `rows` in the log to `ids`, -1 if it is not there."""
    mask = np.uint64(len(table) - 1)
    width = rows.shape[1]
    for i in range(rows.shape[0]):
        h = _SEED
        for c in range(width):
            h = _mix(h, rows[i, c])
        tag = h >> _S32
        slot = h & mask
        ids[i] = -1
        while True:
            entry = table[slot]
            if entry == 0:
                break
            if entry >> _S32 == tag:
                found = np.int64(entry & _LOW) - 1
                same = True
                for c in range(width):
                    if log[found, c] != rows[i, c]:
                        same = False
                        break
                if same:
                    ids[i] = found
                    break
            slot = (slot + _ONE) & mask


@njit(cache=True, nogil=True)
def chain_append(log, key_columns, heads, following, start, stop):
    """Enter rows start..stop of the log into a chained hash index over some of its columns."""
    mask = np.uint64(len(heads) - 1)
    for i in range(start, stop):
        h = _SEED
        for k in range(len(key_columns)):
            h = _mix(h, log[i, key_columns[k]])
        slot = h & mask
        following[i] = heads[slot]
        heads[slot] = i


@njit(cache=True, nogil=True)
def chain_expand(log, key_columns, heads, following, probes, limit, stamps, bound, left, right, i, row):
    """Matches of `probes` [probe, key] in a chained index, from probe `i` (chain position `row`, -1 for its start).

    Only rows below `limit`, and with stamps[row] <= bound if there are stamps, count. Writes pairs to `left` and
    `right` until they are full; returns (pairs, probe, row) to go on from.
    """
    mask = np.uint64(len(heads) - 1)
    stamped = len(stamps) > 0
    count = 0
    room = len(left)
    while i < probes.shape[0]:
        if row < 0:
            h = _SEED
            for k in range(len(key_columns)):
                h = _mix(h, probes[i, k])
            row = heads[h & mask]
        while row >= 0:
            if row < limit and not (stamped and stamps[row] > bound):
                same = True
                for k in range(len(key_columns)):
                    if log[row, key_columns[k]] != probes[i, k]:
                        same = False
                        break
                if same:
                    if count == room:
                        return count, i, row
                    left[count] = i
                    right[count] = row
                    count += 1
            row = following[row]
        i += 1
    return count, i, np.int64(-1)


@njit(cache=True, nogil=True)
def dense_index(keys, low, offsets, rows):
    """Counting sort of rows by key: rows of key k are rows[offsets[k - low]:offsets[k - low + 1]], ascending."""
    offsets[:] = 0
    for i in range(len(keys)):
        offsets[keys[i] - low + 1] += 1
    for k in range(1, len(offsets)):
        offsets[k] += offsets[k - 1]
    for i in range(len(keys) - 1, -1, -1):
        k = keys[i] - low + 1
        # Filled from the back, so that offsets end up where they started.
        offsets[k] -= 1
        rows[offsets[k]] = i
    for k in range(1, len(offsets) - 1):
        offsets[k] = offsets[k + 1]
    offsets[len(offsets) - 1] = len(keys)


@njit(cache=True, nogil=True)
def dense_expand(offsets, rows, low, keys, left, right, i, position):
    """Matches of keys [probe] in a dense index, from probe `i`; as `chain_expand`."""
    count = 0
    room = len(left)
    top = len(offsets) - 1
    while i < len(keys):
        k = keys[i] - low
        if 0 <= k < top:
            if position < 0:
                position = offsets[k]
            stop = offsets[k + 1]
            while position < stop:
                if count == room:
                    return count, i, position
                left[count] = i
                right[count] = rows[position]
                count += 1
                position += 1
        position = np.int64(-1)
        i += 1
    return count, i, np.int64(-1)
