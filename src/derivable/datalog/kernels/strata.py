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

from derivable.device.cpu.places import call_at, hash_word, load, mix_word, pointer_at, slot_in, store, tag_of
from derivable.device.cpu.tiers import kernel

# Why the driver came back, besides the codes of `row_sets` and of `emit_insert`.
INDEX_FULL, WANTED, ENDED, STOPPED, ELSEWHERE = 20, 21, 22, 23, 24

# The words of the memory before all others: candidates and rows of drivers before a pause; and of tables with tags the
# number of the next round, in which rows become recent, and of the last one in which stable ones have.
LEFT, NEXT_ROUND, BOUND, FIRST_FREE = range(4)
# The words of a table. Rows from START to STOP are recent, those below VISIBLE and STABLE are read as that.
START, STOP, SIZE, STABLE, VISIBLE, HAS_NEWS, ROW_WIDTH = range(7)
# What a kernel reads of it: addresses and sizes. ROOM is the number of rows that the log and the hash may have.
LOG, ROOM, HASH, HASH_SLOTS, ARENA_ROOM, COUNT, STATE = range(7, 14)
# The first of those of `row_sets.SetParameters`.
SETS = 14
# Of a table with tags: the kernel that ends its rounds, 0 for others, and its block; the numbers of the rows that are
# recent, from START to STOP of LIST, and of those that get other tags, LISTED of NEWS; and what kernels read of it.
SETTLE, SETTLE_BLOCK, LIST, LISTED, NEWS, TOUCHED, STAMPS, TABLE_WORDS = range(22, 30)
# The words of an index in chains: its table, what `index.Index` has, and the rows there is room for.
OF, KEYS, NUM_KEYS, HEADS, NUM_HEADS, FOLLOWING, INDEX_ROOM, ENTERED, IS_SHORT, WIDTH, INDEX_WORDS = range(11)
# The words of a store: the address of its kernel, 0 if it has none, and that of its block; the tables that it writes to
# and whose recent rows it reads; where its own words begin; the positions of loops that it has; and then what it did.
ENTRY, BLOCK, TARGET, DRIVER, OWN, POSITIONS, RUNS, CANDIDATES, DRIVEN, ROWS, LATE, NUM_LAST = range(12)
# (round, rows) of the last rounds in which it found something.
LAST, KEPT = 12, 5
STORE_WORDS = LAST + 2 * KEPT
# The words of the control: the place in the queue and among the readers, how long the queue and the one behind it are,
# rounds that have ended and may end, rows of a round that may follow, rows that all may find, the store or index at
# hand, whether that goes on where it left, whether indexes are ready for the round, and the only store to run, or -1.
PLACE, READER, NUM_NEWS, NUM_NEXT, ROUND, ROUNDS, MOST, ROWS_LEFT, AT, GOES_ON, IS_INDEXED, ONLY = range(12)
# Of a whole program: the stratum at hand, -1 before the first, and its next store that is not of the recursion.
STRATUM, NEXT, CONTROL_WORDS = 12, 13, 14
# The words of a stratum of a whole program: its tables and its stores, those of the next stratum following, the stores
# from LOOP on being its recursion; the table with what that reads of before it, -1 without one; the table that says
# whether it may be an equivalence, or -1; and the rounds that it has had.
FIRST_TABLE, FIRST_STORE, LOOP, BASE, DECIDES, NUM_ROUNDS, STRATUM_WORDS = range(7)


# The types of the parameters of `drive` and of `run_program`.
TYPES = ("int64", "int64[]", "int64[,]", *["int64[]"] * 6)
PROGRAM_TYPES = (*TYPES, "int64[,]", "int64[,]", "int64[]")


@kernel
def drive(address, memory, stores, tables, indexes, first_reader, readers, queue, control):
    """Go on, from the beginning of a round or from where the last call left; returns why it came back."""
    if control[ONLY] >= 0:
        return _run(address, memory, stores, queue, tables, control, control[ONLY])
    while True:
        if control[IS_INDEXED] == 0:
            if not have_entered(memory, indexes, control):
                return INDEX_FULL
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
        found = rows = 0
        for k in range(control[NUM_NEXT]):
            at = tables[queue[len(tables) + k]]
            if memory[at + SETTLE] != 0:
                rows += memory[at + SIZE] - memory[at + VISIBLE]
                call_at(memory[at + SETTLE], address, memory[at + SETTLE_BLOCK])
                found += memory[at + LISTED]
            else:
                rows += memory[at + SIZE] - memory[at + STOP]
                found += memory[at + SIZE] - memory[at + STOP]
        control[ROWS_LEFT] -= rows
        if found == 0:
            return ENDED
        if found > control[MOST] or control[ROWS_LEFT] <= 0 or control[ROUND] >= control[ROUNDS]:
            return STOPPED
        # Tables that had recent rows and those that get some, each once; the ones with new rows say so.
        memory[NEXT_ROUND] += 1
        memory[BOUND] += 1
        number = 0
        for k in range(control[NUM_NEWS]):
            table = queue[k]
            if memory[tables[table] + HAS_NEWS] == 0 and _advance(memory, tables[table]):
                queue[number] = table
                number += 1
        for k in range(control[NUM_NEXT]):
            table = queue[len(tables) + k]
            memory[tables[table] + HAS_NEWS] = 0
            if _advance(memory, tables[table]):
                queue[number] = table
                number += 1
        control[NUM_NEWS] = number
        control[NUM_NEXT] = control[PLACE] = control[IS_INDEXED] = 0
        if number == 0:
            return ENDED


@kernel(is_inner=True)
def _advance(memory, at):
    """Make new rows of a table the recent ones; false if there are none."""
    if memory[at + SETTLE] != 0:
        memory[at + LIST], memory[at + NEWS] = memory[at + NEWS], memory[at + LIST]
        memory[at + STOP], memory[at + LISTED] = memory[at + LISTED], 0
        memory[at + VISIBLE] = memory[at + SIZE]
        return memory[at + STOP] > 0
    stop, size = memory[at + STOP], memory[at + SIZE]
    memory[at + VISIBLE] = memory[at + STOP] = size
    memory[at + START] = memory[at + STABLE] = stop
    return size > stop


@kernel(is_inner=True)
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
    if (added > 0 or memory[target + LISTED] > 0) and memory[target + HAS_NEWS] == 0:
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


@kernel(is_inner=True)
def have_entered(memory, indexes, control):
    """Enter the rows that are visible into all indexes; false if one, which the control names, has no room."""
    for x in range(len(indexes)):
        if not _has_entered(memory, indexes[x]):
            control[AT] = x
            return False
    control[IS_INDEXED] = 1
    return True


@kernel(is_inner=True)
def _has_entered(memory, at):
    """Enter the rows of a table that are visible into a chained index, see `relations.chain_append`."""
    stop = memory[memory[at + OF] + VISIBLE]
    if stop > memory[at + INDEX_ROOM]:
        return False
    for i in range(memory[at + ENTERED], stop):
        _enter(memory, at, i)
    memory[at + ENTERED] = max(memory[at + ENTERED], stop)
    return True


@kernel(is_inner=True)
def _enter(memory, at, i):
    """Enter row `i` into a chained index."""
    keys, heads = pointer_at(memory[at + KEYS], np.int64), pointer_at(memory[at + HEADS], np.int32)
    following = pointer_at(memory[at + FOLLOWING], np.int32)
    width, log = memory[at + WIDTH], memory[memory[at + OF] + LOG]
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
    store(heads, slot, np.int32(i))


# All strata of a program, over small tables with one hash each


@kernel
def run_program(
    address, memory, stores, tables, indexes, first_reader, readers, queue, control, strata, indexes_after, facts
):
    """Run all strata from the facts on, or go on from where the last call left; returns why it came back.

    strata         [stratum + 1, STRATUM_WORDS] int64
    indexes_after  [table, index] int64: where the words of its indexes begin that are made when it is complete, or -1
    facts          [word] int64: how many relations have facts, and of each its table, its rows and these by columns
    ELSEWHERE is that this is no way to run the program on these facts.
    """
    if control[STRATUM] < 0:
        clear(memory, stores, tables, indexes, indexes_after)
        _load(memory, tables, facts)
        control[STRATUM], control[NEXT] = 0, strata[0, FIRST_STORE]
    while control[STRATUM] < len(strata) - 1:
        s = control[STRATUM]
        loop, stop = strata[s, LOOP], strata[s + 1, FIRST_STORE]
        while control[NEXT] < loop:
            if control[IS_INDEXED] == 0 and not have_entered(memory, indexes, control):
                return INDEX_FULL
            code = _run_once(address, memory, stores, queue, tables, control)
            if code != 0:
                return code
            control[NEXT] += 1
        if control[NEXT] == loop:
            for table in range(strata[s, FIRST_TABLE], strata[s + 1, FIRST_TABLE]):
                control[ROWS_LEFT] -= memory[tables[table] + SIZE]
            if control[ROWS_LEFT] <= 0:
                return ELSEWHERE
            if loop < stop and not _has_begun(memory, tables, indexes_after, queue, control, strata, s):
                return ELSEWHERE
            # Past the stores that are left: only the recursion goes on.
            control[NEXT] = stop + 1
        if control[NUM_NEWS] > 0:
            code = drive(address, memory, stores, tables, indexes, first_reader, readers, queue, control)
            if code != ENDED:
                return code
            strata[s, NUM_ROUNDS] = control[ROUND]
        for table in range(strata[s, FIRST_TABLE], strata[s + 1, FIRST_TABLE]):
            complete(memory, table, tables[table], indexes_after)
        control[STRATUM], control[NEXT] = s + 1, stop
        control[NUM_NEWS] = control[NUM_NEXT] = control[IS_INDEXED] = 0
    return ENDED


@kernel
def clear(memory, stores, tables, indexes, indexes_after):
    """Have no rows, and know of none that stores have found."""
    for table in range(len(tables)):
        at = tables[table]
        if memory[at + SIZE] > 0:
            slots = pointer_at(memory[at + HASH], np.uint32)
            for k in range(2 * memory[at + HASH_SLOTS]):
                store(slots, k, np.uint32(0))
        for word in range(ROW_WIDTH):
            memory[at + word] = 0
        for k in range(indexes_after.shape[1]):
            if indexes_after[table, k] >= 0:
                _empty(memory, indexes_after[table, k])
    for x in range(len(indexes)):
        _empty(memory, indexes[x])
    for number in range(len(stores)):
        for word in range(RUNS, STORE_WORDS):
            stores[number, word] = 0


@kernel(is_inner=True)
def _empty(memory, at):
    """Have no rows in an index."""
    if memory[at + ENTERED] > 0:
        heads = pointer_at(memory[at + HEADS], np.int32)
        for slot in range(memory[at + NUM_HEADS]):
            store(heads, slot, np.int32(-1))
        memory[at + ENTERED] = 0


@kernel(is_inner=True)
def _load(memory, tables, facts):
    """Insert the facts in their tables, which have room for them."""
    place = 1
    for _ in range(facts[0]):
        at, count = tables[facts[place]], facts[place + 1]
        width, place = memory[at + ROW_WIDTH], place + 2
        log = pointer_at(memory[at + LOG], np.int64)
        for i in range(count):
            for c in range(width):
                store(log, memory[at + SIZE] * width + c, facts[place + c * count + i])
            insert(memory, at)
        place += width * count


@kernel
def insert(memory, at):
    """Have the row that the log has behind those of a table, if that is a new one; returns its number.

    See `relations.place_rows`.
    """
    size, width, num_slots = memory[at + SIZE], memory[at + ROW_WIDTH], memory[at + HASH_SLOTS]
    log, slots = pointer_at(memory[at + LOG], np.int64), pointer_at(memory[at + HASH], np.uint32)
    h = hash_word(load(log, size * width))
    for c in range(1, width):
        h = mix_word(h, load(log, size * width + c))
    tag, slot = tag_of(h), slot_in(h, num_slots)
    while load(slots, 2 * slot) != 0:
        if np.int64(load(slots, 2 * slot + 1)) == tag:
            row = np.int64(load(slots, 2 * slot)) - 1
            is_same = True
            for c in range(width):
                is_same &= load(log, row * width + c) == load(log, size * width + c)
            if is_same:
                return row
        slot = slot_in(slot + 1, num_slots)
    store(slots, 2 * slot, np.uint32(size + 1))
    store(slots, 2 * slot + 1, np.uint32(tag))
    memory[at + SIZE] = size + 1
    return size


@kernel(is_inner=True)
def _run_once(address, memory, stores, queue, tables, control):
    """Run the next store of a stratum that is not of its recursion, over all rows of its driver, or go on with it."""
    number = control[NEXT]
    if control[GOES_ON] == 0:
        own = stores[number, OWN]
        memory[own], memory[own + 1] = 0, memory[tables[stores[number, DRIVER]] + VISIBLE]
    control[ONLY] = number
    code = _run(address, memory, stores, queue, tables, control, number)
    control[ONLY] = -1
    return code


@kernel(is_inner=True)
def _has_begun(memory, tables, indexes_after, queue, control, strata, s):
    """Have all rows of a stratum's tables recent; false if its recursion may be an equivalence."""
    first, decides, base = strata[s, FIRST_TABLE], strata[s, DECIDES], strata[s, BASE]
    if decides >= 0 and memory[tables[first] + SIZE] > 0 and _have_columns_one_sum(memory, tables[decides]):
        return False
    if base >= 0:
        _copy(memory, tables[first], tables[base])
        complete(memory, base, tables[base], indexes_after)
    control[NUM_NEWS] = control[NUM_NEXT] = control[PLACE] = control[IS_INDEXED] = control[ROUND] = 0
    for table in range(first, strata[s + 1, FIRST_TABLE]):
        at = tables[table]
        memory[at + HAS_NEWS] = memory[at + START] = memory[at + STABLE] = 0
        memory[at + STOP] = memory[at + VISIBLE] = memory[at + SIZE]
        if memory[at + SIZE] > 0:
            queue[control[NUM_NEWS]] = table
            control[NUM_NEWS] += 1
    return True


@kernel(is_inner=True)
def _have_columns_one_sum(memory, at):
    """Whether both columns of a table have the same sum, as those of a symmetric relation have."""
    log, difference = pointer_at(memory[at + LOG], np.int64), np.int64(0)
    for i in range(memory[at + SIZE]):
        difference += load(log, 2 * i) - load(log, 2 * i + 1)
    return difference == 0


@kernel(is_inner=True)
def _copy(memory, source, target):
    """Insert the rows of a table in one that has none, and room for them."""
    width = memory[source + ROW_WIDTH]
    given, log = pointer_at(memory[source + LOG], np.int64), pointer_at(memory[target + LOG], np.int64)
    for i in range(memory[source + SIZE]):
        for c in range(width):
            store(log, i * width + c, load(given, i * width + c))
        insert(memory, target)


@kernel
def complete(memory, table, at, indexes_after):
    """Have all rows of a table visible, and in the indexes that are made then.

    Where `index.Index` would be dense, rows of one key come in their order here as well.
    """
    size = memory[at + SIZE]
    memory[at + HAS_NEWS] = 0
    memory[at + STABLE] = memory[at + VISIBLE] = size
    for k in range(indexes_after.shape[1]):
        index = indexes_after[table, k]
        if index >= 0:
            _empty(memory, index)
        if index >= 0 and size > 0:
            if memory[index + NUM_KEYS] == 1 and _is_dense(memory, index, size):
                for i in range(size - 1, -1, -1):
                    _enter(memory, index, i)
            else:
                for i in range(size):
                    _enter(memory, index, i)
            memory[index + ENTERED] = size


@kernel(is_inner=True)
def _is_dense(memory, index, size):
    """Whether the values of the one key of an index are as near to one another as those of dense ones."""
    log = pointer_at(memory[memory[index + OF] + LOG], np.int64)
    width, column = memory[index + WIDTH], load(pointer_at(memory[index + KEYS], np.int64), 0)
    low = high = load(log, column)
    for i in range(1, size):
        low, high = min(low, load(log, i * width + column)), max(high, load(log, i * width + column))
    # A difference beyond 64 bits is below zero.
    return 0 <= high - low <= 4 * size + 1024
