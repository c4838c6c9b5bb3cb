"""Kernels on proofs, of which a set has some: their unions, the choices of these, and their order.

A literal is a random fact that a proof uses, or one that it denies; literal n is bit n % 64 of word n // 64. A proof is
a run of numbered blocks of words: one block where there are few literals, and where there are very many, those that it
has literals in. A set of proofs is a run of proofs, best first.

The cost of a proof is minus the logarithm of its probability as an integer (`SCALE`), so that sums do not depend on
their order: the cost of a union is the sum of the costs less that of what both have. Proofs are in one order
everywhere, by cost, number of literals and first literals, so the best of some proofs are the same in any order.
A proof comes after those that it contains.

blocks    [block, 1 + width] uint64: the number of a block, and its words
heads     [row + 1, 2] int64: the first block of a proof, and its cost
offsets   [set + 1] of rows
used      [5] the numbers of sets, rows and blocks, and of rows and blocks that were wanted where room came to its end

`literals` has what a store knows of literals:
costs     [literal], 0 for a denied value of a choice; `tied` are the bits of literals in a choice, and `triggers` those
          of them with which the choices of a union have to be resolved
`fact`    [literal], and its complement for one that is denied; `opposite` [literal], the literal of the other sign, -1
          for none; `chances` [fact]; `choice` [fact]; `sizes` [choice] how many values it has, 0 for a fact and its
          denial; `numbers` and `where`, room for the literals of a proof; and for choices, all zero between calls,
          `chosen`, `denied` and `sums`
"""

from __future__ import annotations

import math

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import load, store, trailing_zeros

# The cost of a probability of 1/e, and of what has probability 0.
SCALE, IMPOSSIBLE = float(1 << 36), 1 << 48
ZERO, ONE = 0, 1
# Pairs of proofs that a product is made of at once.
MOST = 1 << 12
# The types of a tuple of `blocks`, `heads` and `offsets`, and of `literals`, for the signatures of kernels.
SETS = "(uint64[,] int64[,] int64[])"
LITERALS = (
    "(int64[] uint64[] uint64[] int64[] int64[] float64[] int64[] int64[] int64[] int64[] int64[] int64[] float64[])"
)
# Pairs of literals that are compared sooner than the choices of a union are resolved.
MOST_PAIRS = 64


@kernel
def cost_of(chance):
    """The cost of a probability."""
    if chance <= 0.0:
        return IMPOSSIBLE
    return min(np.int64(np.rint(-math.log(min(chance, 1.0)) * SCALE)), IMPOSSIBLE)


@kernel
def next_literal(word, bit):
    """The first bit of a word that is set, from `bit` on; 64 if there is none."""
    if bit > 63:
        return 64
    word >>= np.uint64(bit)
    return bit + trailing_zeros(word) if word else 64


@kernel
def cost_of_word(costs, first, word):
    """The cost of the literals of a word, the first of which is `first`."""
    total = 0
    while word:
        total += costs[first + trailing_zeros(word)]
        word &= word - np.uint64(1)
    return total


@kernel
def _number_of_literals(blocks, heads, row):
    count = 0
    for block in range(heads[row, 0], heads[row + 1, 0]):
        for w in range(1, blocks.shape[1]):
            word = blocks[block, w]
            while word:
                word &= word - np.uint64(1)
                count += 1
    return count


@kernel("int64[] uint64[,] int64[,] int64[,]")
def list_literals(rows, blocks, heads, listed):
    """Fills listed [2, literal]: for each literal of some proofs its number among the rows, and its number."""
    width, total = blocks.shape[1] - 1, 0
    for number in range(len(rows)):
        row = rows[number]
        for block in range(heads[row, 0], heads[row + 1, 0]):
            first = 64 * width * np.int64(blocks[block, 0])
            for w in range(width):
                word = blocks[block, 1 + w]
                bit = next_literal(word, 0) if word else 64
                while bit < 64:
                    listed[0, total], listed[1, total] = number, first + 64 * w + bit
                    total += 1
                    bit = next_literal(word, bit + 1)


@kernel
def _list_tied(blocks, heads, row, literals):
    """Write the literals of a proof that are in a choice to `numbers`, and the positions of their words to `where`.

    Returns how many they are.
    """
    tied, numbers, where = literals[1], literals[8], literals[9]
    count, width = 0, blocks.shape[1] - 1
    for block in range(heads[row, 0], heads[row + 1, 0]):
        first = np.int64(blocks[block, 0]) * width
        for w in range(width):
            word = blocks[block, 1 + w] & tied[first + w]
            bit = next_literal(word, 0)
            while bit < 64:
                numbers[count], where[count] = 64 * (first + w) + bit, block * (width + 1) + 1 + w
                count += 1
                bit = next_literal(word, bit + 1)
    return count


@kernel
def _choose(blocks, count, literals):
    """Note what the listed literals say of their choices; -1 if they contradict each other, 0 if no value is denied, 1
    if some are, and 2 if literals went: denied values go where another value is used."""
    fact, _, chances, choice, sizes, numbers, where, chosen, denied, sums = literals[3:]
    outcome = 0
    for i in range(count):
        f = fact[numbers[i]]
        if f >= 0:
            if chosen[choice[f]]:
                return -1
            chosen[choice[f]] = f + 1
    for i in range(count):
        f = ~fact[numbers[i]]
        if f < 0:
            continue
        g = choice[f]
        if chosen[g] == f + 1:
            return -1
        if chosen[g]:
            word = load(blocks, where[i]) & ~(np.uint64(1) << np.uint64(numbers[i] & 63))
            store(blocks, where[i], word)
            outcome = 2
        elif sizes[g]:
            denied[g] += 1
            sums[g] += chances[f]
            outcome = max(outcome, 1)
            if denied[g] == sizes[g]:
                return -1
    return outcome


@kernel
def resolve_choices(blocks, heads, row, literals):
    """Resolve the choices of a proof with literals of choices, and compute its cost; false if it contradicts itself."""
    costs, _, _, fact, _, _, choice, _, numbers, _, chosen, denied, sums = literals
    count = _list_tied(blocks, heads, row, literals)
    outcome, total = _choose(blocks, count, literals), 0
    for i in range(count):
        f = fact[numbers[i]]
        g = choice[f if f >= 0 else ~f]
        if denied[g]:
            total += cost_of(1.0 - sums[g])
        chosen[g], denied[g], sums[g] = 0, 0, 0.0
    if outcome <= 0:
        return outcome == 0
    at, width = heads[row, 0], blocks.shape[1] - 1
    for block in range(heads[row, 0], heads[row + 1, 0]):
        is_empty = True
        blocks[at, 0] = blocks[block, 0]
        for w in range(width):
            word = blocks[block, 1 + w]
            if word:
                total += cost_of_word(costs, 64 * (np.int64(blocks[block, 0]) * width + w), word)
                is_empty = False
            blocks[at, 1 + w] = word
        at += not is_empty
    heads[row + 1, 0], heads[row, 1] = at, total
    return True


@kernel
def conflict(blocks, heads, a, b, literals):
    """What settling the union of two proofs would find: 0 nothing, 1 that they contradict each other, and 2 that it has
    to be done to know."""
    tied, fact, choice, sizes = literals[1], literals[3], literals[6], literals[7]
    width, outcome, pairs = blocks.shape[1] - 1, 0, 0
    for block in range(heads[a, 0], heads[a + 1, 0]):
        first = np.int64(blocks[block, 0]) * width
        for w in range(width):
            word = blocks[block, 1 + w] & tied[first + w]
            while word:
                f = fact[64 * (first + w) + trailing_zeros(word)]
                word &= word - np.uint64(1)
                of_f = choice[f if f >= 0 else ~f]
                if f < 0 and sizes[of_f]:
                    outcome = 2
                for other in range(heads[b, 0], heads[b + 1, 0]):
                    second = np.int64(blocks[other, 0]) * width
                    for v in range(width):
                        rest = blocks[other, 1 + v] & tied[second + v]
                        while rest:
                            g = fact[64 * (second + v) + trailing_zeros(rest)]
                            rest &= rest - np.uint64(1)
                            pairs += 1
                            of_g = choice[g if g >= 0 else ~g]
                            if g < 0 and sizes[of_g]:
                                outcome = 2
                            if of_g == of_f and g != f and (g == ~f or (f >= 0 and g >= 0)):
                                return 1
                if pairs > MOST_PAIRS:
                    return 2
    return outcome


@kernel
def unite(blocks, heads, a, b, to_blocks, to_heads, row, literals):
    """Write the union of proofs `a` and `b` to a row; whether its choices are to be resolved: it has triggers, and
    both proofs have literals of choices."""
    costs, tied, triggers = literals[:3]
    i, i_end, j, j_end, at = heads[a, 0], heads[a + 1, 0], heads[b, 0], heads[b + 1, 0], to_heads[row, 0]
    total, choices, width = heads[a, 1] + heads[b, 1], np.uint64(0), blocks.shape[1] - 1
    of_a, of_b = np.uint64(0), np.uint64(0)
    while i < i_end or j < j_end:
        has_a = j == j_end or (i < i_end and blocks[i, 0] <= blocks[j, 0])
        has_b = i == i_end or (j < j_end and blocks[j, 0] <= blocks[i, 0])
        position = blocks[i, 0] if has_a else blocks[j, 0]
        to_blocks[at, 0], first = position, np.int64(position) * width
        if has_a and has_b:
            both = np.uint64(0)
            for w in range(width):
                x, y = blocks[i, 1 + w], blocks[j, 1 + w]
                to_blocks[at, 1 + w] = x | y
                choices |= (x | y) & triggers[first + w]
                of_a |= x & tied[first + w]
                of_b |= y & tied[first + w]
                both |= x & y
            if both:
                for w in range(width):
                    word = blocks[i, 1 + w] & blocks[j, 1 + w]
                    if word:
                        total -= cost_of_word(costs, 64 * (first + w), word)
        else:
            block = i if has_a else j
            some = np.uint64(0)
            for w in range(width):
                to_blocks[at, 1 + w] = blocks[block, 1 + w]
                choices |= blocks[block, 1 + w] & triggers[first + w]
                some |= blocks[block, 1 + w] & tied[first + w]
            if has_a:
                of_a |= some
            else:
                of_b |= some
        i += has_a
        j += has_b
        at += 1
    to_heads[row + 1, 0], to_heads[row, 1] = at, total
    return choices != 0 and of_a != 0 and of_b != 0


@kernel
def is_simpler(blocks, heads, a, b):
    """Whether proof `a` comes before proof `b`, which has the same cost.

    Of as many literals the first that only one of them has decides, so it does not matter in which words these are.
    """
    a_number, b_number = _number_of_literals(blocks, heads, a), _number_of_literals(blocks, heads, b)
    if a_number != b_number:
        return a_number < b_number
    j = heads[b, 0]
    for i in range(heads[a, 0], heads[a + 1, 0]):
        if j == heads[b + 1, 0]:
            return False
        if blocks[i, 0] != blocks[j, 0]:
            return blocks[i, 0] < blocks[j, 0]
        for w in range(1, blocks.shape[1]):
            differing = blocks[i, w] ^ blocks[j, w]
            if differing:
                return blocks[i, w] & differing & (~differing + np.uint64(1)) != 0
        j += 1
    return False


@kernel
def contains(blocks, heads, a, others, other_heads, b):
    """Whether proof `a` has all literals of proof `b` of the others."""
    i = heads[a, 0]
    for j in range(other_heads[b, 0], other_heads[b + 1, 0]):
        while i < heads[a + 1, 0] and blocks[i, 0] < others[j, 0]:
            i += 1
        if i == heads[a + 1, 0] or blocks[i, 0] != others[j, 0]:
            return False
        for w in range(1, blocks.shape[1]):
            if others[j, w] & ~blocks[i, w]:
                return False
    return True
