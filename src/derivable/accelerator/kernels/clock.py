"""The time of a program cycle by cycle: the controller, the queues, and who uses the cache X in which cycle.

Nothing is computed here: `machine.timing` says of each instruction what it asks of the cache, in these columns.

    WORK      steps of vec, reads of move and of a store, lines of a load; of nn and vsa all cycles
    FIRST     cycles without a line at the beginning of a load
    READS     of each step or line
    EVERY     steps after which vec has a result
    GAP       cycles without a step after that
    WORDS     that a result is, written one after the other
    TO_WRITE  cycles from the last step of a result to its first word
    TO_END    cycles from the last step, read or line to the end
    SECOND    cycles that the second line of a load comes later than others, after a burst of one line
"""

from __future__ import annotations

from derivable.device.cpu.built_kernels import kernel

COLUMNS = 9
WORK, FIRST, READS, EVERY, GAP, WORDS, TO_WRITE, TO_END, SECOND = range(COLUMNS)
DMA, MOVE, NN, VSA, VEC = range(5)
# What the kernel keeps of each unit: how many of its instructions left the queue and came into it, the cycle from which
# on it is free, its instruction, the steps of it that are left and those that are done, and the cycle from which on the
# head of its queue stands in its register.
STATE = 7
TAKEN, PUSHED, FREE, CURRENT, LEFT, DONE, HEAD = range(STATE)
# Cycles until an instruction can be taken that comes into an empty queue, whose last need is done, or that follows the
# one that is taken: the entry, its register, and the comparison of its needs.
ENTRY, NEED, NEXT = 3, 2, 2
FETCH = 5  # the cycle after a start in which the first instruction comes into its queue
NEVER = 1 << 62


@kernel("int64[] int64[,] int64[,] int64[] int64[] int64 int64 int64[,] int64[] int64[] int64[]")
def clock(units, needs, columns, offsets, numbers, interval, depth, state, writes, begin, end):
    """Say when each instruction is taken and done.

    In each cycle the units that have an instruction use the cache, then those that are free take one, then one is put
    into a queue; so nothing that happens in a cycle is seen before the next one.

    units     [instruction] int64, those of the units only
    needs     [instruction, unit] int64
    columns   [instruction, column] int64
    offsets   [unit + 1], numbers [instruction] int64: the instructions of each unit, one after the other
    interval  cycles from one line of off-chip memory to the next
    depth     of a queue
    state     [unit, STATE] int64 and writes [cycle modulo a power of two] int64, -1: scratch
    begin, end  [instruction] int64, filled
    returns   the cycle in which the last instruction comes into a queue, and how many units took: fewer than there are
              where instructions wait for one another for ever
    """
    count, mask = len(units), len(writes) - 1
    for n in range(count):
        end[n] = NEVER
    put = taken = next_line = vec_resumes = refusals = awake = 0
    vec_waited = move_waited = pauses = False
    cycle = pushed = FETCH - 1
    while taken < count or state[DMA, LEFT] + state[MOVE, LEFT] + state[VEC, LEFT] > 0:
        cycle += 1

        # A load offers a line. Lanes that write come before it, and pause in the cycle after every eighth time that it
        # is put off.
        is_load = state[DMA, LEFT] > 0 and columns[state[DMA, CURRENT], READS] == 0
        offers = is_load and cycle >= next_line
        is_written = writes[cycle & mask] == cycle
        is_due = state[VEC, LEFT] > 0 and cycle >= vec_resumes
        is_stepping = is_due and not pauses
        pauses = offers and is_written and refusals == 7
        if offers and is_written:
            refusals = (refusals + 1) & 7
        elif offers:
            state[DMA, LEFT] -= 1
            n = state[DMA, CURRENT]
            is_first = state[DMA, LEFT] + 1 == columns[n, WORK]
            second = next_line + interval + columns[n, SECOND]
            next_line = max(cycle + interval, second) if is_first else cycle + interval
            if state[DMA, LEFT] == 0:
                end[n] = state[DMA, FREE] = cycle + columns[n, TO_END]

        vec_reads = columns[state[VEC, CURRENT], READS] if is_stepping else 0
        move_reads = state[MOVE, LEFT] > 0
        store_reads = state[DMA, LEFT] > 0 and not is_load
        is_busy = is_due or move_reads or store_reads or offers
        vec_granted, move_granted, store_granted = vec_reads > 0, move_reads, store_reads
        if vec_reads + move_reads + store_reads > 2:
            if vec_reads == 2:
                vec_granted = vec_waited
                move_granted = move_reads and not vec_waited
                store_granted = store_reads and not vec_waited
            else:
                move_granted = move_waited
                store_granted = not move_waited
        vec_waited = vec_reads > 0 and not vec_granted
        move_waited = move_reads and not move_granted

        if is_stepping and not vec_waited:
            n = state[VEC, CURRENT]
            state[VEC, LEFT] -= 1
            state[VEC, DONE] += 1
            if state[VEC, DONE] == columns[n, EVERY]:
                state[VEC, DONE] = 0
                vec_resumes = cycle + 1 + columns[n, GAP]
                for word in range(columns[n, WORDS]):
                    written = cycle + columns[n, TO_WRITE] + word
                    writes[written & mask] = written
            if state[VEC, LEFT] == 0:
                end[n] = state[VEC, FREE] = cycle + columns[n, TO_END]
        if move_granted:
            state[MOVE, LEFT] -= 1
            if state[MOVE, LEFT] == 0:
                n = state[MOVE, CURRENT]
                end[n] = state[MOVE, FREE] = cycle + columns[n, TO_END]
        if store_granted:
            state[DMA, LEFT] -= 1
            if state[DMA, LEFT] == 0:
                n = state[DMA, CURRENT]
                end[n] = state[DMA, FREE] = cycle + columns[n, TO_END]

        # An instruction comes into a queue that was not full.
        is_put = put < count and state[units[put], PUSHED] - state[units[put], TAKEN] < depth

        # Units take the heads of their queues, as soon as what these need was done before this cycle.
        soonest = next_line if is_load else NEVER
        if state[VEC, LEFT] > 0:
            soonest = min(soonest, vec_resumes)
        for unit in range(5):
            free = state[unit, FREE]
            # Until NEED cycles later, others that need what it did may go.
            if free + NEED > cycle:
                soonest = min(soonest, max(free, cycle + 1))
            if free > cycle or state[unit, TAKEN] == state[unit, PUSHED]:
                continue
            if state[unit, HEAD] > cycle:
                soonest = min(soonest, state[unit, HEAD])
                continue
            n = numbers[offsets[unit] + state[unit, TAKEN]]
            is_met = True
            for other in range(5):
                need = needs[n, other]
                if need > 0:
                    is_there = need <= offsets[other + 1] - offsets[other]
                    is_met = is_met and is_there and end[numbers[offsets[other] + need - 1]] <= cycle - NEED
            if not is_met:
                continue
            is_busy = True
            taken += 1
            begin[n] = cycle
            state[unit, TAKEN] += 1
            state[unit, HEAD] = cycle + NEXT
            awake = cycle + NEED
            state[unit, CURRENT] = n
            state[unit, FREE] = NEVER
            if unit in (NN, VSA):
                end[n] = state[unit, FREE] = cycle + columns[n, WORK] + columns[n, TO_END]
                continue
            state[unit, LEFT] = columns[n, WORK]
            state[unit, DONE] = 0
            if unit == DMA:
                next_line = max(next_line, cycle + 1 + columns[n, FIRST])

        if is_put:
            if state[units[put], PUSHED] == state[units[put], TAKEN]:
                state[units[put], HEAD] = cycle + ENTRY
            state[units[put], PUSHED] += 1
            put += 1
            pushed = cycle
        elif not is_busy and cycle >= awake:
            if soonest == NEVER:
                return pushed, taken
            cycle = soonest - 1
    return pushed, taken
