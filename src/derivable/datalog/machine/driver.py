"""The compiled driver: strata, their rounds and the stores of these, without Python between, until there is a reason.

A round runs the stores that have rows to go through, in their order; then each table of the stratum ends it: rows that
are new become recent, and candidates with tags are merged first. Round 0 of a stratum is that of the rules before its
recursion. The driver comes back, and is called again where it left, when something has no room, when a store has no
kernel, when a limit is to be looked at: `words` lists the reasons.

address  of the memory; memory [word] int64, and the words of the others: see `words`
stores   [store, STORE_WORDS], strata [stratum + 1, STRATUM_WORDS], control [CONTROL_WORDS] int64
tables   [table] int64, indexes [index] int64: where their words begin
drivers  [store] int64: the table that it goes through
readers  [table, 2] int64: the first store of a recursion that goes through its recent rows, and the one behind the last
activity  [table, 2] int64: whether it has recent rows, and whether it has got new ones in this round
indexes_after  [table, index] int64: where the words of its indexes begin that are made when it is complete, or -1
"""

from __future__ import annotations

import numpy as np

from derivable.datalog.kernels.row_sets import DONE, LOG_FULL
from derivable.datalog.kernels.rows import chain_row, fill_slot, find_row
from derivable.datalog.machine import words as w
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import call_at, load, pointer_at, store

# The types of the parameters of `run`.
TYPES = ("int64", "int64[]", "int64[,]", *["int64[]"] * 3, "int64[,]", "int64[]", *["int64[,]"] * 3)


@kernel(" ".join(TYPES))
def run(address, memory, stores, tables, indexes, control, strata, drivers, readers, activity, indexes_after):
    """Run strata up to one, from the first or from where the last call left; returns why it came back."""
    if control[w.ONLY_TABLE] >= 0:
        reason = _add_up(address, memory, tables[control[w.ONLY_TABLE]], control)
        return w.ENDED if reason == DONE else reason
    if control[w.STRATUM] < 0:
        _clear(memory, stores, tables, indexes, indexes_after)
        _insert_facts(address, memory, tables, control)
        control[w.STRATUM], control[w.NEXT] = 0, strata[0, w.FIRST_STORE]
    while control[w.STRATUM] < control[w.UNTIL]:
        s = control[w.STRATUM]
        first, last = strata[s, w.FIRST_TABLE], strata[s + 1, w.FIRST_TABLE]
        loop, stop = strata[s, w.LOOP], strata[s + 1, w.FIRST_STORE]
        is_once = control[w.ROUND] == 0
        if control[w.IS_ENDING] == 0:
            if control[w.IS_READY] == 0:
                reason = _make_ready(memory, tables, indexes, control, strata)
                if reason != 0:
                    return reason
            for number in range(control[w.NEXT], loop if is_once else control[w.STORES_STOP]):
                if is_once or activity[drivers[number], 0] != 0:
                    reason = _run_store(address, memory, stores, tables, control, activity, number)
                    if reason != 0:
                        control[w.NEXT] = number
                        return reason
            if is_once:
                control[w.TABLES_START], control[w.TABLES_STOP] = first, last
            control[w.IS_ENDING], control[w.ENDING] = 1, control[w.TABLES_START]
        # Of these some have recent rows, or new ones.
        first_active, last_active = control[w.TABLES_START], control[w.TABLES_STOP]
        news = 1
        if control[w.IS_ENDING] == 1:
            for table in range(control[w.ENDING], last_active):
                at = tables[table]
                if (is_once or activity[table, 1] != 0) and memory[at + w.IS_LISTED] != 0:
                    reason = _merge(address, memory, stores, at, control)
                    if reason != 0:
                        control[w.ENDING] = table
                        return reason
            rows = news = 0
            for table in range(first_active, last_active):
                if is_once or activity[table, 0] != 0 or activity[table, 1] != 0:
                    at = tables[table]
                    new = memory[at + w.SIZE] - memory[at + w.VISIBLE]
                    rows += new
                    # Of listed rows some may be older ones, whose tags changed.
                    news += max(new, memory[at + w.LISTED]) + memory[at + w.NUM_WAITING]
            control[w.ROUND] += 1
            control[w.ROWS_LEFT] -= rows
            if news > 0:
                if news > control[w.MOST] or control[w.ROWS_LEFT] <= 0 or control[w.ROUND] >= control[w.ROUNDS]:
                    control[w.IS_ENDING] = 2
                    return w.STOPPED
                if loop < stop and is_once:
                    _keep_base(memory, tables, strata, s, indexes_after)
        control[w.IS_ENDING] = control[w.IS_READY] = control[w.LOOKS] = 0
        if loop == stop or news == 0:
            strata[s, w.NUM_ROUNDS] = control[w.ROUND] - 1
            for table in range(first, last):
                activity[table, 0] = activity[table, 1] = 0
                _complete(memory, table, tables[table], indexes_after)
            control[w.STRATUM], control[w.NEXT], control[w.ROUND] = s + 1, stop, 0
            continue
        memory[w.NEXT_ROUND] += 1
        memory[w.BOUND] += 1
        control[w.NEXT], control[w.STORES_STOP], control[w.TABLES_START], control[w.TABLES_STOP] = (
            stop,
            loop,
            last,
            first,
        )
        for table in range(first_active, last_active):
            if is_once or activity[table, 0] != 0 or activity[table, 1] != 0:
                at = tables[table]
                if memory[at + w.IS_LISTED] != 0:
                    memory[at + w.LIST], memory[at + w.NEXT_LIST] = memory[at + w.NEXT_LIST], memory[at + w.LIST]
                    memory[at + w.STOP], memory[at + w.LISTED] = memory[at + w.LISTED], 0
                    memory[at + w.STABLE] = memory[at + w.VISIBLE] = memory[at + w.SIZE]
                elif memory[at + w.WAITING] != 0:
                    take_piece(memory, at)
                else:
                    memory[at + w.START] = memory[at + w.STABLE] = memory[at + w.STOP]
                    memory[at + w.STOP] = memory[at + w.VISIBLE] = memory[at + w.SIZE]
                activity[table, 0], activity[table, 1] = memory[at + w.STOP] - memory[at + w.START], 0
                if activity[table, 0] != 0:
                    control[w.NEXT] = min(control[w.NEXT], readers[table, 0])
                    control[w.STORES_STOP] = max(control[w.STORES_STOP], readers[table, 1])
                    _activate(control, table)
    return w.ENDED


@kernel
def _activate(control, table):
    """Have a table between those that have recent or new rows."""
    control[w.TABLES_START] = min(control[w.TABLES_START], table)
    control[w.TABLES_STOP] = max(control[w.TABLES_STOP], table + 1)


@kernel
def take_piece(memory, at):
    """Make some rows of a table that wait the recent ones, those of the last pair; its new rows wait from now on.

    The last rows first, and few at once: what is written is read again while it is in cache, and so are the sets of the
    prefixes that they have.
    """
    waiting, number = memory[at + w.WAITING], memory[at + w.NUM_WAITING]
    if memory[at + w.SIZE] > memory[at + w.VISIBLE]:
        memory[waiting + 2 * number], memory[waiting + 2 * number + 1] = memory[at + w.VISIBLE], memory[at + w.SIZE]
        memory[at + w.VISIBLE] = memory[at + w.SIZE]
        number += 1
    memory[at + w.START] = memory[at + w.STOP] = memory[at + w.SIZE]
    if number > 0:
        last = waiting + 2 * (number - 1)
        start, stop = memory[last], memory[last + 1]
        if stop - start > memory[w.PIECE] and number < w.MOST_WAITING:
            start = stop - memory[w.PIECE]
            memory[last + 1] = start
        else:
            number -= 1
        memory[at + w.START], memory[at + w.STOP] = start, stop
    memory[at + w.NUM_WAITING] = number


@kernel
def _make_ready(memory, tables, indexes, control, strata):
    """Have indexes up to date for a round, if its stores are to run in their orders of joins; 0 if all is ready."""
    if control[w.ROUND] == 0:
        memory[w.NEXT_ROUND] += 1
        memory[w.BOUND] = memory[w.NEXT_ROUND] - 2
    if control[w.LOOKS] == 0:
        control[w.LOOKS] = 1
        if control[w.ROUND] == 1 and _may_have_shortcut(memory, tables, strata, control[w.STRATUM]):
            return w.SHORTCUT
    if control[w.LOOKS] == 1:
        control[w.LOOKS] = 2
        if _is_in_doubt(memory, tables, control, strata):
            return w.PLAN_AGAIN
    for x in range(len(indexes)):
        at = indexes[x]
        if memory[memory[at + w.OF] + w.VISIBLE] > memory[at + w.INDEXED] and not _update_index(memory, at):
            control[w.AT] = x
            return w.INDEX_FULL
    control[w.IS_READY] = 1
    return 0


@kernel
def _may_have_shortcut(memory, tables, strata, s):
    """Whether a shortcut may pay for a recursion, for all that is to be seen of its rows here."""
    first, symmetric = strata[s, w.FIRST_TABLE], strata[s, w.SYMMETRIC]
    return symmetric >= 0 and memory[tables[first] + w.SIZE] > 0 and _have_columns_one_sum(memory, tables[symmetric])


@kernel
def _keep_base(memory, tables, strata, s, indexes_after):
    """Keep what a recursion reads of what was before it."""
    first, base = strata[s, w.FIRST_TABLE], strata[s, w.BASE]
    if base >= 0:
        _insert_rows(memory, tables[base], memory[tables[first] + w.LOG], memory[tables[first] + w.SIZE])
        _complete(memory, base, tables[base], indexes_after)


@kernel
def _run_store(address, memory, stores, tables, control, activity, number):
    """Run one store, or go on with it; 0 if it is done with its rows."""
    progress, target = stores[number, w.PROGRESS], tables[stores[number, w.TARGET]]
    if control[w.GOES_ON] == 0:
        driver = tables[stores[number, w.DRIVER]]
        start, stop = memory[driver + w.START], memory[driver + w.STOP]
        if control[w.ROUND] == 0:
            start, stop = 0, memory[driver + w.VISIBLE]
        if stores[number, w.ENTRY] == 0:
            control[w.AT] = number
            return w.NEEDS_KERNEL
        memory[progress], memory[progress + 1] = start, stop
        for k in range(stores[number, w.POSITIONS]):
            memory[progress + 2 + k] = -1
        stores[number, w.RUNS] += 1
    first, left = memory[progress], memory[w.LEFT]
    size, before = memory[target + w.SIZE], memory[target + w.NUM_CANDIDATES]
    if memory[target + w.ADD_UP] != 0:
        code = _run_and_add_up(address, memory, stores[number, w.ENTRY], stores[number, w.BLOCK], target, control)
    else:
        code = call_at(stores[number, w.ENTRY], address, stores[number, w.BLOCK])
        if memory[target + w.NUM_CANDIDATES] > before:
            rows = pointer_at(memory[target + w.CANDIDATE_ROWS], np.int64)
            for i in range(before, memory[target + w.NUM_CANDIDATES]):
                store(rows, i, number)
    driven, added = memory[progress] - first, memory[target + w.SIZE] - size
    if added > 0 or memory[target + w.LISTED] + memory[target + w.NUM_CANDIDATES] > 0:
        activity[stores[number, w.TARGET], 1] = 1
        _activate(control, stores[number, w.TARGET])
    stores[number, w.DRIVEN] += driven
    stores[number, w.CANDIDATES] += left - memory[w.LEFT] - driven
    stores[number, w.ROWS_THIS_ROUND] += added
    control[w.GOES_ON] = 0
    if code != 0:
        control[w.GOES_ON], control[w.AT] = 1, number
        return code
    new_rows = stores[number, w.ROWS_THIS_ROUND]
    if new_rows > 0:
        note = w.NOTES + 2 * (stores[number, w.NUM_NOTED] % w.MOST_NOTES)
        stores[number, note] = control[w.ROUND]
        stores[number, note + 1] = new_rows
        stores[number, w.NUM_NOTED] += 1
        stores[number, w.ROWS] += new_rows
        stores[number, w.ROWS_THIS_ROUND] = 0
    return 0


@kernel
def _run_and_add_up(address, memory, entry, block, target, control):
    """Call the kernel of a store, and add up the candidates that it writes, as often as there is room for no more."""
    while True:
        if control[w.IS_ADDING] == 0:
            control[w.STORE_CODE] = call_at(entry, address, block)
        code = _add_up(address, memory, target, control)
        if code != DONE or control[w.STORE_CODE] != LOG_FULL:
            return code if code != DONE else control[w.STORE_CODE]


@kernel
def _add_up(address, memory, at, control):
    """Insert the candidates of a table and add up their tags, or go on with that."""
    progress = memory[at + w.ADD_UP_PROGRESS]
    if control[w.IS_ADDING] == 0:
        control[w.IS_ADDING], memory[progress], memory[progress + 1] = 1, 0, memory[at + w.NUM_CANDIDATES]
    code = call_at(memory[at + w.ADD_UP], address, memory[at + w.ADD_UP_BLOCK])
    if code == DONE:
        control[w.IS_ADDING] = memory[at + w.NUM_CANDIDATES] = 0
    return code


@kernel
def _merge(address, memory, stores, at, control):
    """End the round of a table with tags, as far as candidates and tags are concerned."""
    if memory[at + w.ADD_UP] != 0:
        return call_at(memory[at + w.END_ROUND], address, memory[at + w.END_ROUND_BLOCK])
    if memory[at + w.NUM_CANDIDATES] == 0:
        return 0
    if memory[at + w.IS_CERTAIN] == 0:
        return w.MERGE
    if memory[at + w.SIZE] + memory[at + w.NUM_CANDIDATES] >= memory[at + w.ROOM]:
        return LOG_FULL
    insert_candidates(memory, stores, at)
    _list_new(memory, at)
    end_merge(memory, at, control)
    return 0


@kernel
def _is_in_doubt(memory, tables, control, strata):
    """Whether the orders of joins may be others for the sizes that there are now, see `Executor.begin_round`."""
    s = control[w.STRATUM]
    if control[w.ROUND] == 0:
        return strata[s, w.ONCE_IS_SIZED] != 0 and control[w.ROWS_LEFT] <= control[w.DOUBT]
    if strata[s, w.LOOP_IS_SIZED] == 0:
        return False
    rows = 0
    for table in range(strata[s, w.FIRST_TABLE], strata[s + 1, w.FIRST_TABLE]):
        rows += memory[tables[table] + w.SIZE]
    if control[w.ROUND] == 1:
        control[w.DOUBT_AGAIN] = control[w.TIMES] * max(control[w.TIMES], rows)
    elif rows < control[w.DOUBT_AGAIN]:
        return False
    else:
        control[w.DOUBT_AGAIN] = control[w.TIMES] * rows
    return control[w.ROWS_LEFT] <= control[w.DOUBT]


# Indexes


@kernel
def _update_index(memory, at):
    """Insert the visible rows of a table into a chained index, see `relations.chain_append`; false without room."""
    stop = memory[memory[at + w.OF] + w.VISIBLE]
    if stop > memory[at + w.INDEX_ROOM]:
        return False
    for i in range(memory[at + w.INDEXED], stop):
        _index_row(memory, at, i)
    memory[at + w.INDEXED] = max(memory[at + w.INDEXED], stop)
    return True


@kernel
def _index_row(memory, at, i):
    """Insert row `i` into a chained index."""
    width, log = memory[at + w.WIDTH], memory[memory[at + w.OF] + w.LOG]
    keys, num_keys = pointer_at(memory[at + w.KEYS], np.int64), memory[at + w.NUM_KEYS]
    heads, num_heads = pointer_at(memory[at + w.HEADS], np.int32), memory[at + w.NUM_HEADS]
    following = pointer_at(memory[at + w.FOLLOWING_ROWS], np.int32)
    if memory[at + w.IS_SHORT] != 0:
        chain_row(pointer_at(log, np.int32), width, keys, num_keys, heads, num_heads, following, i)
    else:
        chain_row(pointer_at(log, np.int64), width, keys, num_keys, heads, num_heads, following, i)


@kernel
def _empty(memory, at):
    """Have no rows in an index."""
    if memory[at + w.INDEXED] > 0:
        heads = pointer_at(memory[at + w.HEADS], np.int32)
        for slot in range(memory[at + w.NUM_HEADS]):
            store(heads, slot, np.int32(-1))
        memory[at + w.INDEXED] = 0


@kernel
def _complete(memory, table, at, indexes_after):
    """Have all rows of a table visible, and in the indexes that are made then.

    Where `index.Index` would be dense, rows of one key come in their order here as well.
    """
    size = memory[at + w.SIZE]
    memory[at + w.STABLE] = memory[at + w.VISIBLE] = size
    for k in range(indexes_after.shape[1]):
        index = indexes_after[table, k]
        if index >= 0:
            _empty(memory, index)
        if index >= 0 and size > 0:
            if memory[index + w.NUM_KEYS] == 1 and _is_dense(memory, index, size):
                for i in range(size - 1, -1, -1):
                    _index_row(memory, index, i)
            else:
                for i in range(size):
                    _index_row(memory, index, i)
            memory[index + w.INDEXED] = size


@kernel
def _is_dense(memory, index, size):
    """Whether the values of the one key of an index are as near to one another as those of dense ones."""
    log = pointer_at(memory[memory[index + w.OF] + w.LOG], np.int64)
    width, column = memory[index + w.WIDTH], load(pointer_at(memory[index + w.KEYS], np.int64), 0)
    low = high = load(log, column)
    for i in range(1, size):
        low, high = min(low, load(log, i * width + column)), max(high, load(log, i * width + column))
    # A difference beyond 64 bits is below zero.
    return 0 <= high - low <= 4 * size + 1024


# Tables of whole programs: each has one hash


@kernel
def _clear(memory, stores, tables, indexes, indexes_after):
    """Empty all tables, indexes and counters of stores."""
    for table in range(len(tables)):
        at = tables[table]
        if memory[at + w.SIZE] > 0:
            slots = pointer_at(memory[at + w.HASH], np.uint32)
            for k in range(2 * memory[at + w.HASH_SLOTS]):
                store(slots, k, np.uint32(0))
        for word in range(w.ROW_WIDTH):
            memory[at + word] = 0
        memory[at + w.LISTED] = 0
        for k in range(indexes_after.shape[1]):
            if indexes_after[table, k] >= 0:
                _empty(memory, indexes_after[table, k])
    for x in range(len(indexes)):
        _empty(memory, indexes[x])
    for number in range(len(stores)):
        for word in range(w.RUNS, w.STORE_WORDS):
            stores[number, word] = 0


@kernel
def _insert_facts(address, memory, tables, control):
    """Insert the candidates of tables, which have room for them, but for those that wait for the end of a round."""
    for table in range(len(tables)):
        at = tables[table]
        count = memory[at + w.NUM_CANDIDATES]
        if count > 0 and memory[at + w.ADD_UP] != 0:
            _add_up(address, memory, at, control)
        elif count > 0 and memory[at + w.IS_LISTED] == 0:
            _insert_rows(memory, at, memory[at + w.CANDIDATE_WORDS], count)
            memory[at + w.NUM_CANDIDATES] = 0


@kernel
def _insert(memory, at):
    """Have the row that the log has behind those of a table, if that is a new one; returns its number."""
    size, width = memory[at + w.SIZE], memory[at + w.ROW_WIDTH]
    log, slots = pointer_at(memory[at + w.LOG], np.int64), pointer_at(memory[at + w.HASH], np.uint32)
    row, slot, tag = find_row(log, slots, memory[at + w.HASH_SLOTS], log, size * width, width)
    if row >= 0:
        return row
    fill_slot(slots, slot, size, tag)
    memory[at + w.SIZE] = size + 1
    return size


@kernel
def _insert_rows(memory, at, words, count):
    """Insert rows, whose words are at an address, in a table that has room for them."""
    width, log, rows = memory[at + w.ROW_WIDTH], pointer_at(memory[at + w.LOG], np.int64), pointer_at(words, np.int64)
    for i in range(count):
        for c in range(width):
            store(log, memory[at + w.SIZE] * width + c, load(rows, i * width + c))
        _insert(memory, at)


@kernel
def _have_columns_one_sum(memory, at):
    """Whether both columns of a table have the same sum, as those of a symmetric relation have."""
    log, difference = pointer_at(memory[at + w.LOG], np.int64), np.int64(0)
    for i in range(memory[at + w.SIZE]):
        difference += load(log, 2 * i) - load(log, 2 * i + 1)
    return difference == 0


# Candidates


@kernel
def insert_candidates(memory, stores, at):
    """Insert the candidates of a table, which has room for them; a new row is one of the store that wrote it first."""
    width, memory[at + w.OLD_SIZE] = memory[at + w.ROW_WIDTH], memory[at + w.SIZE]
    log, words = pointer_at(memory[at + w.LOG], np.int64), pointer_at(memory[at + w.CANDIDATE_WORDS], np.int64)
    rows = pointer_at(memory[at + w.CANDIDATE_ROWS], np.int64)
    for i in range(memory[at + w.NUM_CANDIDATES]):
        number, size = load(rows, i), memory[at + w.SIZE]
        for c in range(width):
            store(log, size * width + c, load(words, i * width + c))
        row = _insert(memory, at)
        store(rows, i, row)
        if row == size and number >= 0:
            stores[number, w.ROWS] += 1


@kernel
def _list_new(memory, at):
    """Have the rows that are new recent in the next round."""
    rows, old = pointer_at(memory[at + w.NEXT_LIST], np.int64), memory[at + w.OLD_SIZE]
    for row in range(old, memory[at + w.SIZE]):
        store(rows, row - old, row)
    memory[at + w.LISTED] = memory[at + w.SIZE] - old


@kernel
def end_merge(memory, at, control):
    """Note when rows became recent; there are no candidates any more."""
    if memory[at + w.STAMPS] != 0:
        rows = pointer_at(memory[at + w.NEXT_LIST], np.int64)
        stamps = pointer_at(memory[at + w.STAMPS], np.int32)
        for i in range(memory[at + w.LISTED]):
            store(stamps, load(rows, i), np.int32(memory[w.NEXT_ROUND]))
    memory[at + w.NUM_CANDIDATES] = control[w.STAGE] = 0
