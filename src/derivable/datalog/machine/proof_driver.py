"""The driver where tags are sets of proofs: what it comes back to merge is merged here, and it goes on.

Candidates have as many factors as their rule has atoms, all one where a store wrote none; those of one row are
multiplied and added up as `kernels.proof_fold` does it.
"""

from __future__ import annotations

import numpy as np

from derivable.datalog.kernels.proof_fold import are_possible, chain, fold, note_literals
from derivable.datalog.kernels.proofs import LONG, ONE, ZERO, multiply
from derivable.datalog.kernels.row_sets import LOG_FULL
from derivable.datalog.machine import driver
from derivable.datalog.machine import words as w
from derivable.datalog.machine.driver import end_merge, insert_candidates, run
from derivable.datalog.policy.costs import FEW_PROOFS
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import array_at, load, pointer_at, store

_SETS, _SLOTS = ("uint64[,]", "int64[,]", "int64[]"), ("uint64[,]", "int64[,]", "int64[]", "int64[]")
_KNOWN = ("int64[]", "uint64[]", "int64[]", "int64[]", "float64[]", *["int64[]"] * 6, "float64[]", "uint64[]")
_OF_RUN = ("int64", "int64", "bool", "bool", "int64[]", "uint8[]")
# The types of the parameters of `run_proofs`.
TYPES = (*driver.TYPES, *_OF_RUN, *_SETS, *_SLOTS, *_SLOTS, "int64[]", *_KNOWN)


@kernel(" ".join(TYPES))
def run_proofs(
    address,
    memory,
    stores,
    tables,
    indexes,
    control,
    strata,
    drivers,
    readers,
    activity,
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
    """`run`, and merges of proofs, whose sets are as in `tags.proof_store`.

    pair   [4] int64: room for two sets and their product, and how many sets are noted
    noted  [set] see `proof_fold.note_literals`; of any length where there are no triggers
    """
    literals = (fact, opposite, chances, choice, sizes, numbers, where, chosen, denied, sums)
    while True:
        code = run(address, memory, stores, tables, indexes, control, strata, drivers, readers, activity, indexes_after)
        if code != w.MERGE:
            return code
        at = tables[control[w.ENDING]]
        count = memory[at + w.NUM_CANDIDATES]
        if control[w.STAGE] == 0 and memory[at + w.SIZE] + count >= memory[at + w.ROOM]:
            return LOG_FULL
        factors = memory[at + w.PARTS] + w.GIVEN
        a, b = array_at(memory[factors], count, np.int64), array_at(memory[factors + w.PART_WORDS], count, np.int64)
        if control[w.STAGE] == 0:
            for i in range(count):
                number = _list_factors(memory, at, i, num_factors)
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
                        return w.PROOFS_FULL
                    if pair[2] == LONG:
                        return w.STOPPED
                    a[i], b[i] = pair[2], ONE
                    number = _list_factors(memory, at, i, num_factors)
            is_possible = array_at(memory[at + w.CHANGED], count, np.bool_)
            if has_triggers:
                note_literals(pair[3], used[0], noted, blocks, heads, offsets, tied, triggers)
                pair[3] = used[0]
                reached = are_possible(
                    0,
                    count,
                    a,
                    b,
                    is_possible,
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
                    return w.PROOFS_FULL
            else:
                for i in range(count):
                    is_possible[i] = a[i] != ZERO and b[i] != ZERO
            kept = _keep(memory, at, is_possible, a, b)
            _forget_factors(memory, at, num_factors, count, kept)
            memory[at + w.NUM_CANDIDATES] = kept
            insert_candidates(memory, stores, at)
            size = memory[at + w.SIZE]
            memory[at + w.NUM_CHAINED] = chain(
                array_at(memory[at + w.CANDIDATE_ROWS], kept, np.int64),
                array_at(memory[at + w.LAST], size, np.int64),
                array_at(memory[at + w.FOLLOWING], kept, np.int64),
                array_at(memory[at + w.CHAINED], kept, np.int64),
            )
            memory[at + w.FOLDED] = 0
            control[w.STAGE] = 1
        size, count, number = memory[at + w.SIZE], memory[at + w.NUM_CANDIDATES], memory[at + w.NUM_CHAINED]
        rows = array_at(memory[at + w.CHAINED], number, np.int64)
        changed = array_at(memory[at + w.CHANGED], number, np.bool_)
        tags = memory[memory[at + w.PARTS] + w.TAGS]
        reached = fold(
            memory[at + w.FOLDED],
            number,
            rows,
            array_at(memory[at + w.LAST], size, np.int64),
            array_at(memory[at + w.FOLLOWING], count, np.int64),
            a,
            b,
            memory[at + w.OLD_SIZE],
            array_at(tags, size, np.int64),
            array_at(memory[at + w.NEWS], size, np.int64),
            memory[at + w.NEWS] != tags,
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
        memory[at + w.FOLDED] = reached
        if reached < number:
            return w.PROOFS_FULL
        listed, place = pointer_at(memory[at + w.NEXT_LIST], np.int64), 0
        for i in range(number):
            if changed[i]:
                store(listed, place, rows[i])
                place += 1
        memory[at + w.LISTED] = place
        _forget_factors(memory, at, 2, count)
        end_merge(memory, at, control)
        if k > FEW_PROOFS:
            return w.LIMITS


@kernel
def _list_factors(memory, at, i, num_factors):
    """Have the factors of a candidate that are not one before all others, in their order; returns their number."""
    number, parts = 0, memory[at + w.PARTS]
    for c in range(num_factors):
        given = pointer_at(memory[parts + w.PART_WORDS * c + w.GIVEN], np.int64)
        factor = load(given, i)
        if factor != ONE:
            if number < c:
                store(given, i, np.int64(ONE))
                store(pointer_at(memory[parts + w.PART_WORDS * number + w.GIVEN], np.int64), i, factor)
            number += 1
    return number


@kernel
def _forget_factors(memory, at, num_factors, stop, start=0):
    """Have factors of candidates from `start` to `stop` be one."""
    for c in range(num_factors):
        given = pointer_at(memory[memory[at + w.PARTS] + w.PART_WORDS * c + w.GIVEN], np.int64)
        for i in range(start, stop):
            store(given, i, np.int64(ONE))


@kernel
def _keep(memory, at, is_possible, a, b):
    """Have the candidates that are possible before the others; returns their number."""
    width, words = memory[at + w.ROW_WIDTH], pointer_at(memory[at + w.CANDIDATE_WORDS], np.int64)
    rows, kept = pointer_at(memory[at + w.CANDIDATE_ROWS], np.int64), 0
    for i in range(len(is_possible)):
        if is_possible[i]:
            if kept < i:
                store(rows, kept, load(rows, i))
                for c in range(width):
                    store(words, kept * width + c, load(words, i * width + c))
                a[kept], b[kept] = a[i], b[i]
            kept += 1
    return kept
