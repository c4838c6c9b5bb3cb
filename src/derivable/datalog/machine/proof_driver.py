"""The driver where tags are sets of proofs: what it comes back to merge is merged here, and it goes on.

Candidates have as many factors as their rule has atoms, all one where a store wrote none; those of one row are
multiplied and added up as `kernels.proof_fold` does it.
"""

from __future__ import annotations

import numpy as np

from derivable.datalog.kernels.proof_fold import LIMITS, SLOTS, are_possible, chain, fold_rows, note_literals
from derivable.datalog.kernels.proofs import LITERALS, MOST, ONE, SETS, ZERO
from derivable.datalog.kernels.row_sets import LOG_FULL
from derivable.datalog.machine import driver
from derivable.datalog.machine import words as w
from derivable.datalog.machine.driver import end_merge, insert_candidates, run
from derivable.datalog.policy.costs import FEW_PROOFS
from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import array_at, load, pointer_at, store

# The types of the parameters of `run_proofs`.
TYPES = (*driver.TYPES, "int64", LIMITS, "int64[]", "uint8[]", SETS, SLOTS, "int64[]", LITERALS)


@kernel(" ".join(TYPES))
def run_proofs(
    address, memory, stores, tables, indexes, control, strata, drivers, readers, activity, indexes_after,
    num_factors, limits, pair, noted, sets, slots, used, literals
):  # fmt: skip
    """`run`, and merges of proofs, whose sets are as in `tags.proof_store`.

    pair   [8] int64: room for two sets and their product as `fold_rows` takes them, and how many sets are noted
    noted  [set] see `proof_fold.note_literals`; of any length where there are no triggers
    """
    k, _, has_triggers = limits
    offsets = sets[2]
    while True:
        code = run(address, memory, stores, tables, indexes, control, strata, drivers, readers, activity, indexes_after)
        if code != w.MERGE:
            return code
        at = tables[control[w.ENDING]]
        count = memory[at + w.NUM_CANDIDATES]
        if control[w.STAGE] == 0 and memory[at + w.SIZE] + count >= memory[at + w.ROOM]:
            return LOG_FULL
        factors = memory[at + w.PARTS] + w.CANDIDATE_TAGS
        a, b = array_at(memory[factors], count, np.int64), array_at(memory[factors + w.PART_WORDS], count, np.int64)
        if control[w.STAGE] == 0:
            is_possible = array_at(memory[at + w.CHANGED], count, np.bool_)
            # The one candidate of a row that is new.
            product = pair[5:]
            one_pair = pair, pair[1:], pair[2:], pair[3:], pair[4:], 0, product, product, False, is_possible
            for i in range(count):
                number = _list_factors(memory, at, i, num_factors)
                while number > 2:
                    x, y = a[i], b[i]
                    if k > 1 and x != y and (offsets[x + 1] - offsets[x]) * (offsets[y + 1] - offsets[y]) > MOST:
                        return w.STOPPED
                    pair[0], pair[1], pair[2], pair[3], pair[4], pair[5] = 0, 1, 0, x, y, ZERO
                    if fold_rows(0, 1, one_pair, limits, sets, slots, used, literals) == 0:
                        return w.PROOFS_FULL
                    a[i], b[i] = pair[5], ONE
                    number = _list_factors(memory, at, i, num_factors)
            if has_triggers:
                note_literals(pair[6], used[0], noted, sets, literals)
                pair[6] = used[0]
                if are_possible(0, count, a, b, is_possible, noted, sets, slots, used, literals) < count:
                    return w.PROOFS_FULL
            else:
                for i in range(count):
                    is_possible[i] = a[i] != ZERO and b[i] != ZERO
            num_possible = _put_first(memory, at, is_possible, a, b)
            _forget_factors(memory, at, num_factors, count, num_possible)
            memory[at + w.NUM_CANDIDATES] = num_possible
            insert_candidates(memory, stores, at)
            size = memory[at + w.SIZE]
            memory[at + w.NUM_CHAINED] = chain(
                array_at(memory[at + w.CANDIDATE_ROWS], num_possible, np.int64),
                array_at(memory[at + w.LAST], size, np.int64),
                array_at(memory[at + w.FOLLOWING], num_possible, np.int64),
                array_at(memory[at + w.CHAINED], num_possible, np.int64),
            )
            memory[at + w.FOLDED] = 0
            control[w.STAGE] = 1
        size, count, number = memory[at + w.SIZE], memory[at + w.NUM_CANDIDATES], memory[at + w.NUM_CHAINED]
        rows = array_at(memory[at + w.CHAINED], number, np.int64)
        changed = array_at(memory[at + w.CHANGED], number, np.bool_)
        tags = memory[memory[at + w.PARTS] + w.TAGS]
        last = array_at(memory[at + w.LAST], size, np.int64)
        following = array_at(memory[at + w.FOLLOWING], count, np.int64)
        old, of_rows = memory[at + w.OLD_SIZE], array_at(tags, size, np.int64)
        news, has_news = array_at(memory[at + w.NEWS], size, np.int64), memory[at + w.NEWS] != tags
        candidates = rows, last, following, a, b, old, of_rows, news, has_news, changed
        reached = fold_rows(memory[at + w.FOLDED], number, candidates, limits, sets, slots, used, literals)
        memory[at + w.FOLDED] = reached
        if reached < number:
            return w.PROOFS_FULL
        listed, num_listed = pointer_at(memory[at + w.NEXT_LIST], np.int64), 0
        for i in range(number):
            if changed[i]:
                store(listed, num_listed, rows[i])
                num_listed += 1
        memory[at + w.LISTED] = num_listed
        _forget_factors(memory, at, 2, count)
        end_merge(memory, at, control)
        if k > FEW_PROOFS:
            return w.LIMITS


@kernel
def _list_factors(memory, at, i, num_factors):
    """Have the factors of a candidate that are not one before all others, in their order; returns their number."""
    number, parts = 0, memory[at + w.PARTS]
    for c in range(num_factors):
        factors = pointer_at(memory[parts + w.PART_WORDS * c + w.CANDIDATE_TAGS], np.int64)
        factor = load(factors, i)
        if factor != ONE:
            if number < c:
                store(factors, i, np.int64(ONE))
                store(pointer_at(memory[parts + w.PART_WORDS * number + w.CANDIDATE_TAGS], np.int64), i, factor)
            number += 1
    return number


@kernel
def _forget_factors(memory, at, num_factors, stop, start=0):
    """Have factors of candidates from `start` to `stop` be one."""
    for c in range(num_factors):
        factors = pointer_at(memory[memory[at + w.PARTS] + w.PART_WORDS * c + w.CANDIDATE_TAGS], np.int64)
        for i in range(start, stop):
            store(factors, i, np.int64(ONE))


@kernel
def _put_first(memory, at, is_possible, a, b):
    """Have the candidates that are possible before the others; returns their number."""
    width, words = memory[at + w.ROW_WIDTH], pointer_at(memory[at + w.CANDIDATE_WORDS], np.int64)
    rows, number = pointer_at(memory[at + w.CANDIDATE_ROWS], np.int64), 0
    for i in range(len(is_possible)):
        if is_possible[i]:
            if number < i:
                store(rows, number, load(rows, i))
                for c in range(width):
                    store(words, number * width + c, load(words, i * width + c))
                a[number], b[number] = a[i], b[i]
            number += 1
    return number
