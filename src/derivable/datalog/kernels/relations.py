"""Kernels of Datalog relations: hash sets of rows, hash indexes, expansion of joins, sorting.

Rows live in an append-only log [row, column]; sets and indexes hold row numbers. Nothing here allocates.
"""

from __future__ import annotations

import numpy as np

from derivable.datalog.kernels.rows import chain_row, fill_slot, find_row
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import hash_word, mix_word, slot_in, tag_of

# Of a digit that words are sorted by: more of its values would be written to more addresses at once than stay in cache.
DIGIT_BITS = 10
# What a word is multiplied with for its hash, of 32 bits.
SPREAD = 0x9E3779B1


@kernel("int64[,] int64 uint32[] int64[,] int64[] bool")
def intern_rows(log, size, table, rows, ids, appends):
    """Find each of `rows` [row, column]; writes its number in the log to `ids` and returns the new size.

    table    [2 * slots] uint32, slots a power of two: row number + 1, 0 if empty, and 32 bits of the row's hash
    appends  whether rows that are not there are appended; else their number is -1
    The caller has made room for what is appended: size + rows <= len(log), and the table stays at most half full.
    """
    width = rows.shape[1]
    for i in range(rows.shape[0]):
        row, slot, tag = find_row(log, table, len(table) // 2, rows, i * width, width)
        if row < 0 and appends:
            for c in range(width):
                log[size, c] = rows[i, c]
            fill_slot(table, slot, size, tag)
            row = size
            size += 1
        ids[i] = row
    return size


@kernel("int32[,] int64 uint32[]", "int64[,] int64 uint32[]")
def rehash_rows(log, size, table):
    """Fill an empty table with the first `size` rows of the log, which are distinct."""
    slots = len(table) // 2
    for i in range(size):
        h = hash_word(log[i, 0])
        for c in range(1, log.shape[1]):
            h = mix_word(h, log[i, c])
        slot = slot_in(h, slots)
        while table[2 * slot] != 0:
            slot = slot_in(slot + 1, slots)
        table[2 * slot] = i + 1
        table[2 * slot + 1] = tag_of(h)


@kernel("int32[,] int64[] int32[] int32[] int64 int64", "int64[,] int64[] int32[] int32[] int64 int64")
def chain_append(log, key_columns, heads, following, start, stop):
    """Insert rows start..stop of the log into a chained hash index over some of its columns, at least one."""
    for i in range(start, stop):
        chain_row(log, log.shape[1], key_columns, len(key_columns), heads, len(heads), following, i)


@kernel(
    "int32[,] int64[] int32[] int32[] int64[,] int64 int32[] int64 int64[] int64[] int64 int64",
    "int64[,] int64[] int32[] int32[] int64[,] int64 int32[] int64 int64[] int64[] int64 int64",
)
def chain_expand(log, key_columns, heads, following, probes, limit, stamps, bound, left, right, i, row):
    """Matches of `probes` [probe, key] in a chained index, from probe `i` (chain position `row`, -1 for its start).

    Only rows below `limit`, and with stamps[row] <= bound if there are stamps, count. Writes pairs to `left` and
    `right` until they are full; returns (pairs, probe, row) to go on from.
    """
    stamped = len(stamps) > 0
    count = 0
    room = len(left)
    while i < probes.shape[0]:
        if row < 0:
            h = hash_word(probes[i, 0])
            for k in range(1, len(key_columns)):
                h = mix_word(h, probes[i, k])
            row = heads[slot_in(h, len(heads))]
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


@kernel("int64[] int64 int64[]")
def dense_offsets(keys, low, offsets):
    """Where the rows of each key begin in their order: those of k from offsets[k - low] to offsets[k - low + 1].

    Returns whether the keys are in order.
    """
    offsets[:] = 0
    ascends, before = True, low
    for i in range(len(keys)):
        ascends &= before <= keys[i]
        before = keys[i]
        offsets[keys[i] - low + 1] += 1
    for k in range(1, len(offsets)):
        offsets[k] += offsets[k - 1]
    return ascends


@kernel("int64[] int64 int64[] int64[] int64[]")
def dense_rows(keys, low, offsets, rows, values):
    """Counting sort of rows by key: rows of key k are rows[offsets[k - low]:offsets[k - low + 1]], ascending.

    offsets  as `dense_offsets` makes them
    values   [row] what is written of a row, its number if this is empty
    """
    has_values = len(values) > 0
    for i in range(len(keys) - 1, -1, -1):
        k = keys[i] - low + 1
        # Filled from the back, so that offsets end up where they started.
        offsets[k] -= 1
        rows[offsets[k]] = values[i] if has_values else i
    for k in range(1, len(offsets) - 1):
        offsets[k] = offsets[k + 1]
    offsets[len(offsets) - 1] = len(keys)


@kernel("int64[] int64[] int64 int64 int64 int64[] uint64[]")
def trie_bits(offsets, values, least, first_word, num_words, bit_rows, bits):
    """Set the bits of the values of lists of at least `least` of them, at least one.

    List k is values[offsets[k]:offsets[k + 1]].
    bit_rows  [list] the number of its row, -1 without one
    bits      [row * num_words] of zeros
    Returns whether all lists ascend.
    """
    count, ascends = np.int64(0), True
    for k in range(len(offsets) - 1):
        start, stop = offsets[k], offsets[k + 1]
        bit_rows[k] = -1
        if stop - start < least:
            for i in range(start + 1, stop):
                ascends &= values[i - 1] < values[i]
            continue
        bit_rows[k] = count
        base = count * num_words - first_word
        before = values[start] - 1
        for i in range(start, stop):
            value = values[i]
            ascends &= before < value
            before = value
            bits[base + (value >> 6)] |= np.uint64(1) << np.uint64(value & 63)
        count += 1
    return ascends


@kernel("int64[] int64[] int64 int64[] int64[] int64[] int64 int64")
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


@kernel(
    "int32[] int64 int64[] int64 int64 int64[] uint8[] int64 int64[]",
    "int64[] int64 int64[] int64 int64 int64[] uint8[] int64 int64[]",
)
def filter_words(words, step, blocks, rows, stop, wanted, is_there, bits, numbers):
    """Write those numbers below `stop` in some blocks to `numbers` whose word is wanted; returns how many.

    words     [step * number] the words; between them may lie others
    blocks    in order, of so many rows each; there is room for all their numbers
    wanted    in order, at least one; is_there: [2 ** bits] whether one of them has that hash, of its low 32 bits
    """
    count = 0
    for block in range(len(blocks)):
        first = blocks[block] * rows
        for i in range(first, min(first + rows, stop)):
            numbers[count] = i
            count += is_there[((np.int64(words[i * step]) * SPREAD) & 0xFFFFFFFF) >> (32 - bits)]
    count_wanted = 0
    for k in range(count):
        word = words[numbers[k] * step]
        low, high = 0, len(wanted) - 1
        while low < high:
            middle = (low + high) >> 1
            if wanted[middle] < word:
                low = middle + 1
            else:
                high = middle
        if wanted[low] == word:
            numbers[count_wanted] = numbers[k]
            count_wanted += 1
    return count_wanted


@kernel("int32[] int64 int64 int64 int32[,] int32[,] int32[,]", "int64[] int64 int64 int64 int64[,] int64[,] int64[,]")
def bound_blocks(words, first, stop, rows, lows, highs, lanes):
    """Write the least and the greatest word of each column of blocks `first` to `stop` to `lows` and `highs`.

    words        [row * width + column]; rows: of each block, some times as many as there are lanes
    lows, highs  [column, block]; lanes: [2, lane * width + column] space
    What several rows have is compared at once.
    """
    width, count = lows.shape[0], lanes.shape[1]
    low, high = lanes[0], lanes[1]
    for block in range(first, stop):
        start = block * rows * width
        for k in range(count):
            low[k] = high[k] = words[start + k]
        for at in range(start + count, start + rows * width, count):
            some = words[at : at + count]
            for k in range(count):
                low[k] = min(low[k], some[k])
            for k in range(count):
                high[k] = max(high[k], some[k])
        for c in range(width):
            least, most = low[c], high[c]
            for k in range(c, count, width):
                least, most = min(least, low[k]), max(most, high[k])
            lows[c, block], highs[c, block] = least, most


@kernel("int32[,] int64 int64[,] int64[] int64[]", "int64[,] int64 int64[,] int64[] int64[]")
def bisect_rows(log, size, probes, starts, stops):
    """Where those of the first `size` rows begin and end that have `probes` [probe, column] first; all are in order."""
    last = probes.shape[1] - 1
    for i in range(probes.shape[0]):
        low, high = np.int64(0), np.int64(size)
        while low < high:
            middle = (low + high) >> 1
            c = 0
            while c < last and log[middle, c] == probes[i, c]:
                c += 1
            if log[middle, c] < probes[i, c]:
                low = middle + 1
            else:
                high = middle
        starts[i] = low
        # To go through them costs less than to write them.
        while low < size:
            c = 0
            while c <= last and log[low, c] == probes[i, c]:
                c += 1
            if c <= last:
                break
            low += 1
        stops[i] = low


@kernel("int64[] int64[] int64[]")
def sort_by_digits(words, other, counts):
    """Sort `words`, as if they had no signs, by one digit after another of the bits that vary, the lowest first.

    words, other  [word] int64
    counts        [2 ** DIGIT_BITS] int64
    Both arrays are overwritten. Returns whether the words in order are those of `other`.
    """
    mask = np.int64(len(counts) - 1)
    varying = np.int64(0)
    for i in range(1, len(words)):
        varying |= words[i] ^ words[0]
    source, target, is_other = words, other, False
    shift = np.int64(0)
    while shift < 64 and varying >> shift != 0:
        if varying >> shift & 1 == 0:
            shift += 1
            continue
        counts[:] = 0
        for i in range(len(source)):
            counts[source[i] >> shift & mask] += 1
        total = np.int64(0)
        for digit in range(len(counts)):
            count = counts[digit]
            counts[digit] = total
            total += count
        for i in range(len(source)):
            # The shift copies the sign, which leaves digits with it above the others.
            digit = source[i] >> shift & mask
            target[counts[digit]] = source[i]
            counts[digit] += 1
        source, target, is_other = target, source, not is_other
        shift += DIGIT_BITS
    return is_other
