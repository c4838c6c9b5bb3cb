"""The driver of a stratum: semi-naive rounds over stores whose kernels insert what they find, without Python between.

All that kernels and driver know of a stratum is in one array of words, the memory: what each table is now, what each
index that grows is, and the words of each store of its own. The driver goes on until there is no news, a round is
large, a limit is to be looked at, or something has no room; it says which, and is called again where it left.

memory   [word] int64; see the numbers of words below
stores   [store, STORE_WORDS] int64
tables   [table] int64, indexes [index] int64: where their words begin
readers  [reader] the stores that read recent rows of each table, those of table t from first_reader[t] on
queue    [2 * table] int64: the tables whose recent rows are propagated in this round, and behind them those that get
         new rows
control  [CONTROL_WORDS] int64
"""

from __future__ import annotations

import numpy as np

from derivable.device.cpu.places import call_at, hash_word, load, mix_word, pointer_at, slot_in, store
from derivable.device.cpu.tiers import kernel

# Why the driver came back, besides the codes of `row_sets` and of `emit_insert`.
INDEX_FULL, WANTED, ENDED, STOPPED = 20, 21, 22, 23

# The words of the memory before all others: candidates and rows of drivers before a pause.
LEFT, FIRST_FREE = 0, 1
# The words of a table. Rows from START to STOP are recent, those below VISIBLE and STABLE are read as that, and those
# from FIRST on are propagated; all count from the first row in the log, before which EVICTED rows were.
START, STOP, SIZE, STABLE, VISIBLE, FIRST, EVICTED, HAS_NEWS, MAY_EVICT, ROW_WIDTH = range(10)
# What a kernel reads of it: addresses and sizes. ROOM is the number of rows that the log and the hash may have.
LOG, ROOM, HASH, HASH_SLOTS, ARENA_ROOM, COUNT, STATE = range(10, 17)
# The first of those of `row_sets.SetParameters`.
SETS, TABLE_WORDS = 17, 25
# The words of an index in chains: its table, what `storage.Index` has, and the rows there is room for.
OF, KEYS, NUM_KEYS, HEADS, NUM_HEADS, FOLLOWING, INDEX_ROOM, ENTERED, IS_SHORT, WIDTH, INDEX_WORDS = range(11)
# The words of a store: the address of its kernel, 0 if it has none, and that of its block; the tables that it writes to
# and whose recent rows it reads; where its own words begin; the positions of loops that it has; and then what it did.
ENTRY, BLOCK, TARGET, DRIVER, OWN, POSITIONS, RUNS, CANDIDATES, DRIVEN, ROWS, LATE, NUM_LAST = range(12)
# (round, rows) of the last rounds in which it found something.
LAST, KEPT = 12, 5
STORE_WORDS = LAST + 2 * KEPT
# The words of the control: the place in the queue and among the readers, how long the queue and the one behind it are,
# rounds that have ended and may end, rows of a round that may follow, rows that all may find, the store or index at
# hand, whether that goes on where it left, whether indexes are ready for the round, the only store to run, or -1, and
# rows that a log keeps behind the first that is propagated, 0 if larger rounds and evicting are left to who calls.
PLACE, READER, NUM_NEWS, NUM_NEXT, ROUND, ROUNDS, MOST, ROWS_LEFT, AT, GOES_ON, IS_INDEXED, ONLY, PROPAGATED = range(13)
CONTROL_WORDS = 13


# The types of its parameters.
TYPES = ("int64", "int64[]", "int64[,]", *["int64[]"] * 6)


@kernel
def drive(address, memory, stores, tables, indexes, first_reader, readers, queue, control):
    """Go on, from the beginning of a round or from where the last call left; returns why it came back."""
    if control[ONLY] >= 0:
        return _run(address, memory, stores, queue, tables, control, control[ONLY])
    while True:
        if control[IS_INDEXED] == 0:
            for x in range(len(indexes)):
                if not _has_entered(memory, indexes[x]):
                    control[AT] = x
                    return INDEX_FULL
            control[IS_INDEXED] = 1
            control[READER] = first_reader[queue[control[PLACE]]]
        while control[PLACE] < control[NUM_NEWS]:
            table = queue[control[PLACE]]
            while control[READER] < first_reader[table + 1]:
                code = _run(address, memory, stores, queue, tables, control, readers[control[READER]])
                if code != 0:
                    return code
                control[READER] += 1
            control[PLACE] += 1
            if control[PLACE] < control[NUM_NEWS]:
                control[READER] = first_reader[queue[control[PLACE]]]
        control[ROUND] += 1
        found = 0
        for k in range(control[NUM_NEXT]):
            at = tables[queue[len(tables) + k]]
            found += memory[at + SIZE] - memory[at + STOP]
        control[ROWS_LEFT] -= found
        if control[PROPAGATED] == 0 and found == 0:
            return ENDED
        is_large = control[PROPAGATED] == 0 and found > control[MOST]
        if is_large or control[ROWS_LEFT] <= 0 or control[ROUND] >= control[ROUNDS]:
            return STOPPED
        # Tables that had recent rows and those that get some, each once; the ones with new rows say so.
        number = 0
        for k in range(control[NUM_NEWS]):
            table = queue[k]
            if memory[tables[table] + HAS_NEWS] == 0 and _advance(memory, tables[table], control):
                queue[number] = table
                number += 1
        for k in range(control[NUM_NEXT]):
            table = queue[len(tables) + k]
            memory[tables[table] + HAS_NEWS] = 0
            if _advance(memory, tables[table], control):
                queue[number] = table
                number += 1
        control[NUM_NEWS] = number
        control[NUM_NEXT] = control[PLACE] = control[IS_INDEXED] = 0
        if number == 0:
            return ENDED


@kernel
def _advance(memory, at, control):
    """Make new rows of a table the recent ones, see `storage.Table.advance`; false if there are none."""
    first, stop, size, visible = memory[at + FIRST], memory[at + STOP], memory[at + SIZE], memory[at + VISIBLE]
    most, new = control[MOST], size - stop
    propagated = control[PROPAGATED] if memory[at + MAY_EVICT] != 0 else 0
    if propagated == 0 or (0 < new <= most and stop - first < propagated):
        # Those of a piece have rows before them that wait.
        if first <= visible:
            memory[at + VISIBLE] = size
        memory[at + START] = memory[at + STABLE] = stop
        memory[at + STOP] = size
        return new > 0
    if first <= visible:
        visible = stop
    else:
        size = _evict(memory, at, first, stop, size)
    waiting = size - visible
    if visible >= most or (waiting == 0 and memory[at + EVICTED] > 0):
        size = _evict(memory, at, 0, visible, size)
        visible = 0
    if waiting > most:
        first = size - most
        memory[at + VISIBLE] = visible
    else:
        first = visible
        memory[at + VISIBLE] = size
    memory[at + FIRST] = memory[at + START] = memory[at + STABLE] = first
    memory[at + STOP] = memory[at + SIZE] = size
    return waiting > 0


@kernel
def _evict(memory, at, start, stop, size):
    """Have rows `start` to `stop` in the sets alone; returns how many the log has then."""
    width, log = memory[at + ROW_WIDTH], pointer_at(memory[at + LOG], np.int32)
    for k in range((size - stop) * width):
        store(log, start * width + k, load(log, stop * width + k))
    memory[at + EVICTED] += stop - start
    return size - (stop - start)


@kernel
def _run(address, memory, stores, queue, tables, control, number):
    """Run one store, or go on with it; 0 if it is done with its rows."""
    own, target = stores[number, OWN], tables[stores[number, TARGET]]
    if control[GOES_ON] == 0:
        if stores[number, ENTRY] == 0:
            control[AT] = number
            return WANTED
        if control[ONLY] < 0:
            driver = tables[stores[number, DRIVER]]
            memory[own] = memory[driver + START]
            memory[own + 1] = memory[driver + STOP]
        for k in range(stores[number, POSITIONS]):
            memory[own + 2 + k] = -1
        stores[number, RUNS] += 1
    first, size, left = memory[own], memory[target + SIZE], memory[LEFT]
    code = call_at(stores[number, ENTRY], address, stores[number, BLOCK])
    driven, added = memory[own] - first, memory[target + SIZE] - size
    stores[number, DRIVEN] += driven
    stores[number, CANDIDATES] += left - memory[LEFT] - driven
    stores[number, LATE] += added
    if added > 0 and memory[target + HAS_NEWS] == 0:
        memory[target + HAS_NEWS] = 1
        queue[len(tables) + control[NUM_NEXT]] = stores[number, TARGET]
        control[NUM_NEXT] += 1
    if code != 0:
        control[GOES_ON] = 1
        control[AT] = number
        return code
    control[GOES_ON] = 0
    rows = stores[number, LATE]
    if rows > 0:
        place = LAST + 2 * (stores[number, NUM_LAST] % KEPT)
        stores[number, place] = control[ROUND]
        stores[number, place + 1] = rows
        stores[number, NUM_LAST] += 1
        stores[number, ROWS] += rows
        stores[number, LATE] = 0
    return 0


@kernel
def _has_entered(memory, at):
    """Enter the rows of a table that are visible into a chained index, see `relations.chain_append`."""
    stop = memory[memory[at + OF] + VISIBLE]
    if stop > memory[at + INDEX_ROOM]:
        return False
    if memory[at + ENTERED] >= stop:
        return True
    keys, heads = pointer_at(memory[at + KEYS], np.int64), pointer_at(memory[at + HEADS], np.int64)
    following = pointer_at(memory[at + FOLLOWING], np.int64)
    width, log = memory[at + WIDTH], memory[memory[at + OF] + LOG]
    for i in range(memory[at + ENTERED], stop):
        h = np.int64(0)
        for k in range(memory[at + NUM_KEYS]):
            place = i * width + load(keys, k)
            if memory[at + IS_SHORT] != 0:
                word = np.int64(load(pointer_at(log, np.int32), place))
            else:
                word = load(pointer_at(log, np.int64), place)
            h = hash_word(word) if k == 0 else mix_word(h, word)
        slot = slot_in(h, memory[at + NUM_HEADS])
        store(following, i, load(heads, slot))
        store(heads, slot, i)
    memory[at + ENTERED] = stop
    return True
