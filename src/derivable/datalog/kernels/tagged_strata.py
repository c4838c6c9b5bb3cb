"""The driver of all strata of a program with tags, over small tables: rounds without Python between.

It is the sibling of `strata.run_program`, whose words it shares. Stores write candidates, which wait with their tags
until the round is at its end. Then those of each table are inserted and added up: tags of a semiring by a packed kernel
(`fused.emit_tags.add_up_kernel`), proofs as `kernels.proof_fold` does it.

tags  [table] int64: where the words of the table that are for its tags begin
"""

from __future__ import annotations

import numpy as np

from derivable.datalog.kernels.proof_fold import are_possible, chain, fold, note_literals
from derivable.datalog.kernels.proofs import LONG, ONE, ZERO, multiply
from derivable.datalog.kernels.row_sets import LOG_FULL
from derivable.datalog.kernels.strata import (
    AT,
    BASE,
    BLOCK,
    CANDIDATES,
    DECIDES,
    DRIVEN,
    DRIVER,
    ELSEWHERE,
    ENDED,
    ENTRY,
    FIRST_STORE,
    FIRST_TABLE,
    GOES_ON,
    INDEX_FULL,
    IS_INDEXED,
    LEFT,
    LOG,
    LOOP,
    NEXT,
    NUM_ROUNDS,
    OWN,
    PLACE,
    POSITIONS,
    ROOM,
    ROUND,
    ROW_WIDTH,
    ROWS,
    ROWS_LEFT,
    RUNS,
    SIZE,
    STABLE,
    STRATUM,
    TARGET,
    VISIBLE,
    clear,
    complete,
    have_entered,
    insert,
)
from derivable.datalog.kernels.strata import CONTROL_WORDS as BEFORE
from derivable.device.cpu.places import array_at, call_at, load, pointer_at, store
from derivable.device.cpu.tiers import kernel

# Why the driver came back, besides the codes of `strata`: a set of proofs has no room; orders of joins may be others;
# the clock is to be looked at, as products of sets of more proofs than `FEW` take long.
MERGE, PROOFS_FULL, UNPLANNED, LOOK = 30, 31, 32, 33
FEW = 8
# The words of the control besides those of `strata`: whether stores run or candidates are merged, what of a merge is
# done, and the stratum to stop before; whether the orders of joins of a round are known to be those at hand, how many
# rows may be left of those that all may find before this is in doubt, the rows of a stratum at which it is again, and
# how many times those at hand these are.
IS_MERGING, STAGE, UNTIL, IS_PLANNED, DOUBT, AGAIN, TIMES = range(BEFORE, BEFORE + 7)
CONTROL_WORDS = BEFORE + 7
# The words of a stratum: whether sizes decide on the orders of joins of the stores before its recursion, and of those
# of the recursion.
ONCE_IS_SIZED, LOOP_IS_SIZED = BASE, DECIDES
# The words of a table for its tags. Candidates, how many there are and may be, their words, and their rows, which are
# the stores that found them before they are inserted, -1 for facts; the recent rows; the last round in which a row that
# is stable became recent; the round in which each row did; whether all rows are certain; rows before the round; the
# packed kernel that adds tags up, and its block.
COUNT, GIVEN_ROOM, WORDS, IDS, RECENT, NUM_RECENT, BOUND, STAMPS, IS_CERTAIN, OLD, ADD_UP, ADD_UP_BLOCK = range(12)
# Of proofs: what is new of the tags of recent rows, negated tags, and see `kernels.proof_fold`.
NEWS, NEGATED, LAST, FOLLOWING, LISTED, NUM_LISTED, FOLDED, CHANGED, TOUCHED = range(12, 21)
# For each scalar of a tag, or each factor: the tags of rows, of candidates, and those that are pending.
PARTS, TAGS, GIVEN, PENDING, PART_WORDS = 21, 0, 1, 2, 3


# The types of the parameters of `run_semirings`, and of `run_proofs`.
SEMIRING_TYPES = ("int64", "int64[]", "int64[,]", *["int64[]"] * 4, "int64[,]", "int64[,]")
_SETS, _SLOTS = ("uint64[,]", "int64[,]", "int64[]"), ("uint64[,]", "int64[,]", "int64[]", "int64[]")
_KNOWN = ("int64[]", "uint64[]", "int64[]", "int64[]", "float64[]", *["int64[]"] * 6, "float64[]", "uint64[]")
_OF_RUN = ("int64", "int64", "bool", "bool", "int64[]", "uint8[]")
PROOF_TYPES = (*SEMIRING_TYPES, *_OF_RUN, *_SETS, *_SLOTS, *_SLOTS, "int64[]", *_KNOWN)


@kernel
def run_semirings(address, memory, stores, tables, tags, indexes, control, strata, indexes_after):
    """Run strata up to one, from the first or from where the last call left; returns why it came back."""
    while True:
        code = _go_on(address, memory, stores, tables, tags, indexes, control, strata, indexes_after)
        if code != MERGE:
            return code
        table = control[PLACE]
        at, own = tables[table], tags[table]
        if memory[at + SIZE] + memory[own + COUNT] >= memory[at + ROOM]:
            return LOG_FULL
        _insert_given(memory, stores, at, own)
        if memory[own + IS_CERTAIN] != 0:
            _list_new(memory, at, own)
        else:
            call_at(memory[own + ADD_UP], address, memory[own + ADD_UP_BLOCK])
        _end_merge(memory, own, control)


@kernel
def run_proofs(
    address,
    memory,
    stores,
    tables,
    tags,
    indexes,
    control,
    strata,
    indexes_after,
    num_factors,
    k,
    is_bounded,
    has_triggers,
    pair,
    noted,
    blocks,
    heads,
    offsets,
    made_blocks,
    made_heads,
    made_order,
    made_spare,
    slot_blocks,
    slot_heads,
    slot_order,
    slot_is_new,
    used,
    costs,
    tied,
    fact,
    opposite,
    chances,
    choice,
    sizes,
    numbers,
    where,
    chosen,
    denied,
    sums,
    triggers,
):
    """The same of proofs, whose sets are as in `tags.proof_store`.

    pair   [4] int64: room for two sets and their product, and how many sets are noted
    noted  [set] see `proof_fold.note_literals`; of any length where there are no triggers
    """
    literals = (fact, opposite, chances, choice, sizes, numbers, where, chosen, denied, sums)
    while True:
        code = _go_on(address, memory, stores, tables, tags, indexes, control, strata, indexes_after)
        if code != MERGE:
            return code
        table = control[PLACE]
        at, own = tables[table], tags[table]
        count = memory[own + COUNT]
        if control[STAGE] == 0 and memory[at + SIZE] + count >= memory[at + ROOM]:
            return LOG_FULL
        if memory[own + IS_CERTAIN] != 0:
            _insert_given(memory, stores, at, own)
            _list_new(memory, at, own)
            _forget_factors(memory, own, num_factors, count)
            _end_merge(memory, own, control)
            continue
        a = array_at(memory[own + PARTS + GIVEN], count, np.int64)
        b = array_at(memory[own + PARTS + PART_WORDS + GIVEN], count, np.int64)
        if control[STAGE] == 0:
            for i in range(count):
                number = _list_factors(memory, own, i, num_factors)
                while number > 2:
                    pair[0], pair[1] = a[i], b[i]
                    reached = multiply(
                        0,
                        1,
                        pair,
                        pair[1:],
                        pair[2:],
                        k,
                        blocks,
                        heads,
                        offsets,
                        made_blocks,
                        made_heads,
                        made_order,
                        made_spare,
                        used,
                        costs,
                        tied,
                        literals,
                        triggers,
                    )
                    if reached == 0:
                        return PROOFS_FULL
                    if pair[2] == LONG:
                        return ELSEWHERE
                    a[i], b[i] = pair[2], ONE
                    number = _list_factors(memory, own, i, num_factors)
            found = array_at(memory[own + CHANGED], count, np.bool_)
            if has_triggers:
                note_literals(pair[3], used[0], noted, blocks, heads, offsets, tied, triggers)
                pair[3] = used[0]
                reached = are_possible(
                    0,
                    count,
                    a,
                    b,
                    found,
                    noted,
                    blocks,
                    heads,
                    offsets,
                    slot_blocks,
                    slot_heads,
                    used,
                    costs,
                    tied,
                    literals,
                    triggers,
                )
                if reached < count:
                    return PROOFS_FULL
            else:
                for i in range(count):
                    found[i] = a[i] != ZERO and b[i] != ZERO
            kept = _keep(memory, at, own, found, a, b)
            _forget_factors(memory, own, num_factors, count, kept)
            memory[own + COUNT] = kept
            _insert_given(memory, stores, at, own)
            size = memory[at + SIZE]
            memory[own + NUM_LISTED] = chain(
                array_at(memory[own + IDS], kept, np.int64),
                array_at(memory[own + LAST], size, np.int64),
                array_at(memory[own + FOLLOWING], kept, np.int64),
                array_at(memory[own + LISTED], kept, np.int64),
            )
            memory[own + FOLDED] = 0
            control[STAGE] = 1
        size, count, number = memory[at + SIZE], memory[own + COUNT], memory[own + NUM_LISTED]
        listed = array_at(memory[own + LISTED], number, np.int64)
        changed = array_at(memory[own + CHANGED], number, np.bool_)
        reached = fold(
            memory[own + FOLDED],
            number,
            listed,
            array_at(memory[own + LAST], size, np.int64),
            array_at(memory[own + FOLLOWING], count, np.int64),
            a,
            b,
            memory[own + OLD],
            array_at(memory[own + PARTS + TAGS], size, np.int64),
            array_at(memory[own + NEWS], size, np.int64),
            memory[own + NEWS] != memory[own + PARTS + TAGS],
            changed,
            k,
            is_bounded,
            has_triggers,
            blocks,
            heads,
            offsets,
            slot_blocks,
            slot_heads,
            slot_order,
            slot_is_new,
            used,
            costs,
            tied,
            literals,
            triggers,
        )
        memory[own + FOLDED] = reached
        if reached < number:
            return PROOFS_FULL
        recent, place = pointer_at(memory[own + RECENT], np.int64), 0
        for i in range(number):
            if changed[i]:
                store(recent, place, listed[i])
                place += 1
        memory[own + NUM_RECENT] = place
        _forget_factors(memory, own, 2, count)
        _end_merge(memory, own, control)
        if k > FEW:
            return LOOK


@kernel(is_inner=True)
def _go_on(address, memory, stores, tables, tags, indexes, control, strata, indexes_after):
    """Go on until a table has candidates to merge, or until the end; returns which of them, or what has no room."""
    if control[STRATUM] < 0:
        clear(memory, stores, tables, indexes, indexes_after)
        control[STRATUM], control[NEXT] = 0, strata[0, FIRST_STORE]
    while control[STRATUM] < control[UNTIL]:
        s = control[STRATUM]
        first, last = strata[s, FIRST_TABLE], strata[s + 1, FIRST_TABLE]
        loop, stop = strata[s, LOOP], strata[s + 1, FIRST_STORE]
        if control[IS_MERGING] == 0:
            if control[IS_PLANNED] == 0:
                control[IS_PLANNED] = 1
                if _is_in_doubt(memory, tables, control, strata, s):
                    return UNPLANNED
            if control[IS_INDEXED] == 0 and not have_entered(memory, indexes, control):
                return INDEX_FULL
            end = loop if control[ROUND] == 0 else stop
            while control[NEXT] < end:
                code = _run(address, memory, stores, tables, tags, control)
                if code != 0:
                    return code
                control[NEXT] += 1
            control[IS_MERGING], control[PLACE] = 1, first
        while control[PLACE] < last:
            own = tags[control[PLACE]]
            if memory[own + COUNT] > 0:
                return MERGE
            memory[own + NUM_RECENT] = 0
            control[PLACE] += 1
        has_news = False
        for table in range(first, last):
            at, own = tables[table], tags[table]
            control[ROWS_LEFT] -= memory[at + SIZE] - memory[at + VISIBLE]
            memory[at + STABLE] = memory[at + VISIBLE] = memory[at + SIZE]
            memory[own + BOUND] = control[ROUND]
            has_news |= memory[own + NUM_RECENT] > 0
        if control[ROWS_LEFT] <= 0:
            return ELSEWHERE
        control[ROUND] += 1
        control[IS_MERGING] = control[IS_INDEXED] = control[IS_PLANNED] = 0
        if loop < stop and has_news:
            control[NEXT] = loop
            continue
        strata[s, NUM_ROUNDS] = control[ROUND] - 1
        for table in range(first, last):
            complete(memory, table, tables[table], indexes_after)
        control[STRATUM], control[NEXT], control[ROUND] = s + 1, stop, 0
    return ENDED


@kernel(is_inner=True)
def _is_in_doubt(memory, tables, control, strata, s):
    """Whether the orders of joins may be others for the sizes that there are now, see `Executor.begin_round`."""
    if control[ROUND] == 0:
        return strata[s, ONCE_IS_SIZED] != 0 and control[ROWS_LEFT] <= control[DOUBT]
    if strata[s, LOOP_IS_SIZED] == 0:
        return False
    rows = 0
    for table in range(strata[s, FIRST_TABLE], strata[s + 1, FIRST_TABLE]):
        rows += memory[tables[table] + SIZE]
    if control[ROUND] == 1:
        control[AGAIN] = control[TIMES] * max(control[TIMES], rows)
    elif rows < control[AGAIN]:
        return False
    else:
        control[AGAIN] = control[TIMES] * rows
    return control[ROWS_LEFT] <= control[DOUBT]


@kernel(is_inner=True)
def _run(address, memory, stores, tables, tags, control):
    """Run the next store over all rows of its driver, or in a recursion over the recent ones, or go on with it."""
    number = control[NEXT]
    own, driver = stores[number, OWN], stores[number, DRIVER]
    if control[GOES_ON] == 0:
        stop = memory[tables[driver] + VISIBLE] if control[ROUND] == 0 else memory[tags[driver] + NUM_RECENT]
        if stop == 0:
            return 0
        memory[own], memory[own + 1] = 0, stop
        for k in range(stores[number, POSITIONS]):
            memory[own + 2 + k] = -1
        stores[number, RUNS] += 1
    target, first, left = tags[stores[number, TARGET]], memory[own], memory[LEFT]
    before = memory[target + COUNT]
    code = call_at(stores[number, ENTRY], address, stores[number, BLOCK])
    ids = pointer_at(memory[target + IDS], np.int64)
    for i in range(before, memory[target + COUNT]):
        store(ids, i, number)
    driven = memory[own] - first
    stores[number, DRIVEN] += driven
    stores[number, CANDIDATES] += left - memory[LEFT] - driven
    control[GOES_ON] = 0
    if code != 0:
        control[GOES_ON], control[AT] = 1, number
    return code


@kernel(is_inner=True)
def _insert_given(memory, stores, at, own):
    """Insert the candidates of a table, which has room for them; a new row is one of the store that found it first."""
    width, memory[own + OLD] = memory[at + ROW_WIDTH], memory[at + SIZE]
    log, words = pointer_at(memory[at + LOG], np.int64), pointer_at(memory[own + WORDS], np.int64)
    ids = pointer_at(memory[own + IDS], np.int64)
    for i in range(memory[own + COUNT]):
        number, size = load(ids, i), memory[at + SIZE]
        for c in range(width):
            store(log, size * width + c, load(words, i * width + c))
        row = insert(memory, at)
        store(ids, i, row)
        if row == size and number >= 0:
            stores[number, ROWS] += 1


@kernel(is_inner=True)
def _list_new(memory, at, own):
    """Have the rows recent that are new."""
    recent, old = pointer_at(memory[own + RECENT], np.int64), memory[own + OLD]
    for row in range(old, memory[at + SIZE]):
        store(recent, row - old, row)
    memory[own + NUM_RECENT] = memory[at + SIZE] - old


@kernel(is_inner=True)
def _end_merge(memory, own, control):
    """Note when the recent rows of a table became that; there are no candidates any more."""
    if memory[own + STAMPS] != 0:
        recent = pointer_at(memory[own + RECENT], np.int64)
        stamps = pointer_at(memory[own + STAMPS], np.int32)
        for i in range(memory[own + NUM_RECENT]):
            store(stamps, load(recent, i), np.int32(control[ROUND] + 1))
    memory[own + COUNT] = control[STAGE] = 0
    control[PLACE] += 1


# Factors of candidates: in `GIVEN` of each part, all one where a store wrote none


@kernel(is_inner=True)
def _list_factors(memory, own, i, num_factors):
    """Have the factors of a candidate that are not one before all others, in their order; returns their number."""
    number = 0
    for c in range(num_factors):
        given = pointer_at(memory[own + PARTS + PART_WORDS * c + GIVEN], np.int64)
        factor = load(given, i)
        if factor != ONE:
            if number < c:
                store(given, i, np.int64(ONE))
                store(pointer_at(memory[own + PARTS + PART_WORDS * number + GIVEN], np.int64), i, factor)
            number += 1
    return number


@kernel(is_inner=True)
def _forget_factors(memory, own, num_factors, stop, start=0):
    """Have factors of candidates from `start` to `stop` be one."""
    for c in range(num_factors):
        given = pointer_at(memory[own + PARTS + PART_WORDS * c + GIVEN], np.int64)
        for i in range(start, stop):
            store(given, i, np.int64(ONE))


@kernel(is_inner=True)
def _keep(memory, at, own, found, a, b):
    """Have the candidates that are possible before the others; returns their number."""
    width, words = memory[at + ROW_WIDTH], pointer_at(memory[own + WORDS], np.int64)
    ids, kept = pointer_at(memory[own + IDS], np.int64), 0
    for i in range(len(found)):
        if found[i]:
            if kept < i:
                store(ids, kept, load(ids, i))
                for c in range(width):
                    store(words, kept * width + c, load(words, i * width + c))
                a[kept], b[kept] = a[i], b[i]
            kept += 1
    return kept
