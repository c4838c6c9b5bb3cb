"""The exact probability that one proof of a set holds, by a diagram of decisions; sets are as in `kernels.proofs`."""

from __future__ import annotations

import numpy as np

from derivable.core.splitmix64 import STEP
from derivable.datalog.kernels.proofs import LITERALS, SETS, next_literal
from derivable.device.cpu.built_kernels import kernel

# What spreads states over the slots of a hash.
SPREAD = np.uint64(STEP)


@kernel
def _list_values(blocks, heads, first, last, literals, diagram):
    """List the facts of the proofs `first` to `last` - 1 by what decides them, a fact alone or a choice, best proof
    first; returns (number of values, number of deciders)."""
    _, tied, _, fact, _, _, choice, sizes, _, _, decider_of, value_of, _ = literals
    values, following, uses, denials, heads_of, ends, _, _, _, _ = diagram
    width, count, deciders = blocks.shape[1] - 1, 0, 0
    for row in range(first, last):
        proof = np.uint64(1) << np.uint64(row - first)
        for block in range(heads[row, 0], heads[row + 1, 0]):
            for w in range(width):
                word, word_number = blocks[block, 1 + w], np.int64(blocks[block, 0]) * width + w
                bit = next_literal(word, 0)
                while bit < 64:
                    f = fact[64 * word_number + bit]
                    is_denied = f < 0
                    f = ~f if is_denied else f
                    if not value_of[f]:
                        is_tied = (tied[word_number] >> np.uint64(bit)) & np.uint64(1) != 0 and sizes[choice[f]] > 0
                        decider = decider_of[choice[f]] - 1 if is_tied else -1
                        if decider < 0:
                            decider, heads_of[deciders], ends[deciders] = deciders, -1, np.uint64(0)
                            deciders += 1
                            if is_tied:
                                decider_of[choice[f]] = deciders
                        values[count], uses[count], denials[count] = f, np.uint64(0), np.uint64(0)
                        following[count], heads_of[decider] = heads_of[decider], count
                        count += 1
                        value_of[f] = count
                    if is_denied:
                        denials[value_of[f] - 1] |= proof
                    else:
                        uses[value_of[f] - 1] |= proof
                    bit = next_literal(word, bit + 1)
    left = ~np.uint64(0)
    for decider in range(deciders - 1, -1, -1):
        value, there = heads_of[decider], np.uint64(0)
        while value >= 0:
            there |= uses[value] | denials[value]
            value = following[value]
        # The proofs that this is the last decider of.
        ends[decider] = there & left
        left &= ~there
    for value in range(count):
        f = values[value]
        value_of[f] = 0
        if choice[f] >= 0:
            decider_of[choice[f]] = 0
    return count, deciders


@kernel
def _add_mass(state, mass, diagram, count):
    """Add to the mass of a state of the next decider; the number of its states, -1 if there is no room."""
    slots, states, masses, slots_of = diagram[6:]
    room = states.shape[1]
    at = np.int64((state * SPREAD) >> np.uint64(40)) % len(slots)
    while slots[at]:
        number = slots[at] - 1
        if states[1, number] == state:
            masses[1, number] += mass
            return count
        at = (at + 1) % len(slots)
    if count == room:
        return -1
    slots[at] = count + 1
    states[1, count], masses[1, count] = state, mass
    slots_of[count] = at
    return count + 1


@kernel(
    f"int64[] float64[] {SETS} {LITERALS} (int64[] int64[] uint64[] uint64[] int64[] uint64[] int64[] "
    "uint64[,] float64[,] int64[])",
)
def probability_of(tags, results, sets, literals, diagram):
    """The exact probabilities [set] that one of the proofs holds; -1 for those that need too much room.

    One fact or choice after the other is decided. What matters of the decisions so far is which proofs may still hold:
    a state is the set of these, with the probability of the decisions that lead to it.

    diagram  room: `values` [value] facts, `following` [value] the next of the same decider, `uses` and `denials` of it,
             the proofs that have the value; for each decider its first value and the proofs that it is the last of;
             a hash table `slots`, all zero; `states` and `masses` [2, state], and the slots of states
    """
    (blocks, heads, offsets), chances = sets, literals[5]
    values, following, uses, denials, heads_of, ends, slots, states, masses, slots_of = diagram
    for i in range(len(tags)):
        first, last = offsets[tags[i]], offsets[tags[i] + 1]
        if last - first > 64:
            results[i] = -1.0
            continue
        _, deciders = _list_values(blocks, heads, first, last, literals, diagram)
        count, total = 1, 0.0
        states[0, 0], masses[0, 0] = ~np.uint64(0) >> np.uint64(64 - max(last - first, 1)), 1.0
        if first == last:
            count = 0
        for row in range(first, last):
            if heads[row, 0] == heads[row + 1, 0]:
                count, total = 0, 1.0
        for decider in range(deciders):
            next_count, users, rest = 0, np.uint64(0), 1.0
            value = heads_of[decider]
            while value >= 0:
                users |= uses[value]
                rest -= chances[values[value]]
                value = following[value]
            rest = max(rest, 0.0)
            for s in range(count):
                state, mass = states[0, s], masses[0, s]
                value = heads_of[decider]
                is_rest = True
                while is_rest or value >= 0:
                    if is_rest:
                        killed, chance = users, rest
                    else:
                        killed = (users & ~uses[value]) | denials[value]
                        chance = chances[values[value]]
                        value = following[value]
                    is_rest = False
                    left = state & ~killed
                    if left & ends[decider]:
                        total += mass * chance
                    elif left and chance > 0.0:
                        next_count = _add_mass(left, mass * chance, diagram, next_count)
                        if next_count < 0:
                            break
                if next_count < 0:
                    break
            for s in range(max(next_count, 0)):
                slots[slots_of[s]] = 0
                states[0, s], masses[0, s] = states[1, s], masses[1, s]
            if next_count < 0:
                total = -1.0
                for at in range(len(slots)):
                    slots[at] = 0
                break
            count = next_count
        results[i] = total
