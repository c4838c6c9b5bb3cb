"""Kernels on sets of proofs: products, the best of many, negated literals.

A literal is a random fact that a proof uses, or one that it denies; literal n is bit n % 64 of word n // 64. A proof is
a run of blocks of words with their places: one block where there are few literals, and where there are very many, those
that it has literals in. A set of proofs is a run of proofs, best first.

The cost of a proof is minus the logarithm of its probability as an integer (`SCALE`), so that sums do not depend on
their order: the cost of a union is the sum of the costs less that of what both have. Proofs are in one order
everywhere, by cost, number of literals and first literals, so the best of some proofs are the same in any order.
A proof comes after those that it contains.

blocks    [block, 1 + width] uint64: the place of a block, and its words
heads     [row + 1, 2] int64: the first block of a proof, and its cost
offsets   [set + 1] of rows
costs     [literal], 0 for a denied value of a choice; `tied` are the bits of literals in a choice, and `triggers` those
          of them with which the choices of a union have to be resolved
literals  (`fact` [literal], and its complement for one that is denied; `opposite` [literal], the literal of the other
          sign, -1 for none; `chances` [fact]; `choice` [fact]; `sizes` [choice] how many values it has, 0 for a fact
          and its denial; `numbers` and `where`, room for the literals of a proof; and for choices, all zero between
          calls, `chosen`, `denied` and `sums`)
used      [5] the numbers of sets, rows and blocks, and of rows and blocks that were wanted where room came to its end

What is made in between is in `to_blocks` and `to_heads`, and its row numbers are in `order`; `spare` is as long. Arrays
are given one by one where a call costs more than what it does: a tuple of arrays is counted as it is unpacked.
"""

from __future__ import annotations

import math

import numpy as np

from derivable.device.cpu.built_kernels import kernel
from derivable.device.cpu.places import load, store, trailing_zeros

# The cost of a probability of 1/e, and of what has probability 0.
SCALE, IMPOSSIBLE = float(1 << 36), 1 << 48
ZERO, ONE = 0, 1
# Pairs of proofs that a product is made of at once; those of more are marked.
MOST, LONG = 1 << 12, -1
# The types of `blocks`, `heads` and `offsets`, and of `literals`, for the signatures of kernels.
SETS = "uint64[,] int64[,] int64[]"
LITERALS = "(int64[] int64[] float64[] int64[] int64[] int64[] int64[] int64[] int64[] float64[])"
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
def list_literals(rows, blocks, heads, found):
    """Fills found [2, literal]: for each literal of some proofs its place among the rows, and its number."""
    width, total = blocks.shape[1] - 1, 0
    for place in range(len(rows)):
        row = rows[place]
        for block in range(heads[row, 0], heads[row + 1, 0]):
            first = 64 * width * np.int64(blocks[block, 0])
            for w in range(width):
                word = blocks[block, 1 + w]
                bit = next_literal(word, 0) if word else 64
                while bit < 64:
                    found[0, total], found[1, total] = place, first + 64 * w + bit
                    total += 1
                    bit = next_literal(word, bit + 1)


@kernel
def _list_tied(blocks, heads, row, tied, numbers, where):
    """Write the literals of a proof that are in a choice to `numbers`, and the places of their words to `where`.

    Returns how many they are.
    """
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
    fact, _, chances, choice, sizes, numbers, where, chosen, denied, sums = literals
    found = 0
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
            found = 2
        elif sizes[g]:
            denied[g] += 1
            sums[g] += chances[f]
            found = max(found, 1)
            if denied[g] == sizes[g]:
                return -1
    return found


@kernel
def resolve_choices(blocks, heads, row, costs, tied, literals):
    """Resolve the choices of a proof with literals of choices, and compute its cost; false if it contradicts itself."""
    fact, _, _, choice, _, numbers, where, chosen, denied, sums = literals
    count = _list_tied(blocks, heads, row, tied, numbers, where)
    found, total = _choose(blocks, count, literals), 0
    for i in range(count):
        f = fact[numbers[i]]
        g = choice[f if f >= 0 else ~f]
        if denied[g]:
            total += cost_of(1.0 - sums[g])
        chosen[g], denied[g], sums[g] = 0, 0, 0.0
    if found <= 0:
        return found == 0
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
def conflict(blocks, heads, a, b, tied, fact, choice, sizes):
    """What settling the union of two proofs would find: 0 nothing, 1 that they contradict each other, and 2 that it has
    to be done to know."""
    width, found, pairs = blocks.shape[1] - 1, 0, 0
    for block in range(heads[a, 0], heads[a + 1, 0]):
        first = np.int64(blocks[block, 0]) * width
        for w in range(width):
            word = blocks[block, 1 + w] & tied[first + w]
            while word:
                f = fact[64 * (first + w) + trailing_zeros(word)]
                word &= word - np.uint64(1)
                of_f = choice[f if f >= 0 else ~f]
                if f < 0 and sizes[of_f]:
                    found = 2
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
                                found = 2
                            if of_g == of_f and g != f and (g == ~f or (f >= 0 and g >= 0)):
                                return 1
                if pairs > MOST_PAIRS:
                    return 2
    return found


@kernel
def unite(blocks, heads, a, b, to_blocks, to_heads, row, costs, tied, triggers):
    """Write the union of proofs `a` and `b` to a row; whether its choices are to be resolved: it has triggers, and
    both proofs have literals of choices."""
    i, i_end, j, j_end, at = heads[a, 0], heads[a + 1, 0], heads[b, 0], heads[b + 1, 0], to_heads[row, 0]
    total, choices, width = heads[a, 1] + heads[b, 1], np.uint64(0), blocks.shape[1] - 1
    of_a, of_b = np.uint64(0), np.uint64(0)
    while i < i_end or j < j_end:
        has_a = j == j_end or (i < i_end and blocks[i, 0] <= blocks[j, 0])
        has_b = i == i_end or (j < j_end and blocks[j, 0] <= blocks[i, 0])
        place = blocks[i, 0] if has_a else blocks[j, 0]
        to_blocks[at, 0], first = place, np.int64(place) * width
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


@kernel
def _sort(blocks, heads, order, spare, count):
    """Sort the first `count` row numbers of `order`; `spare` is as long."""
    for start in range(0, count, 8):
        stop = min(start + 8, count)
        for i in range(start + 1, stop):
            row, j = order[i], i
            cost = heads[row, 1]
            while j > start:
                other = order[j - 1]
                if heads[other, 1] < cost or (heads[other, 1] == cost and not is_simpler(blocks, heads, row, other)):
                    break
                order[j] = other
                j -= 1
            order[j] = row
    run = 8
    while run < count:
        for start in range(0, count, 2 * run):
            middle, stop = min(start + run, count), min(start + 2 * run, count)
            i, j = start, middle
            for at in range(start, stop):
                is_first = j >= stop
                if not is_first and i < middle:
                    a, b = order[i], order[j]
                    is_first = heads[a, 1] < heads[b, 1]
                    is_first = is_first or (heads[a, 1] == heads[b, 1] and not is_simpler(blocks, heads, b, a))
                if is_first:
                    spare[at] = order[i]
                    i += 1
                else:
                    spare[at] = order[j]
                    j += 1
        for at in range(count):
            order[at] = spare[at]
        run *= 2


@kernel
def _keep_best(blocks, heads, order, spare, count, k, to_blocks, to_heads, first):
    """Write the k best of the first `count` rows of `order`, none of which contains another, from row `first` on.

    Returns how many they are.
    """
    if k == 1:
        for i in range(1, count):
            a, b = order[i], order[0]
            if heads[a, 1] < heads[b, 1] or (heads[a, 1] == heads[b, 1] and is_simpler(blocks, heads, a, b)):
                order[0] = a
        count = min(count, 1)
    else:
        _sort(blocks, heads, order, spare, count)
    kept, at = 0, to_heads[first, 0]
    for i in range(count):
        row, is_new = order[i], True
        start = heads[row, 0]
        for j in range(kept):
            other = to_heads[first + j, 0]
            # Most have other literals in their first word.
            if blocks[start, 0] == to_blocks[other, 0] and to_blocks[other, 1] & ~blocks[start, 1]:
                continue
            if contains(blocks, heads, row, to_blocks, to_heads, first + j):
                is_new = False
                break
        if is_new:
            for block in range(heads[row, 0], heads[row + 1, 0]):
                for w in range(blocks.shape[1]):
                    to_blocks[at, w] = blocks[block, w]
                at += 1
            to_heads[first + kept, 1], to_heads[first + kept + 1, 0] = heads[row, 1], at
            kept += 1
            if kept == k:
                break
    return kept


@kernel
def _close_set(heads, offsets, used, kept):
    """The number of the set of the `kept` rows behind those in use."""
    number, first = used[0], used[1]
    if not kept:
        return ZERO
    if kept == 1 and heads[first, 0] == heads[first + 1, 0]:
        return ONE
    used[0], used[1], used[2] = number + 1, first + kept, heads[first + kept, 0]
    offsets[number + 1] = first + kept
    return number


@kernel
def _has_room(num_rows, num_blocks, num_candidates, blocks, heads, offsets, to_blocks, to_heads, used):
    """Whether a set of so many rows and blocks, and its candidates, can be written; else that is wanted."""
    fits = used[0] + 1 < len(offsets) and used[1] + num_rows < len(heads) and used[2] + num_blocks <= len(blocks)
    if not fits or num_candidates >= len(to_heads) or num_blocks > len(to_blocks):
        used[3], used[4] = max(num_rows, num_candidates), num_blocks
        return False
    return True


@kernel(
    f"int64 int64 int64[] int64[] int64[] int64 {SETS} {SETS} int64[] int64[] int64[] uint64[] {LITERALS} uint64[]",
)
def multiply(
    start,
    stop,
    a,
    b,
    found,
    k,
    blocks,
    heads,
    offsets,
    to_blocks,
    to_heads,
    order,
    spare,
    used,
    costs,
    tied,
    literals,
    triggers,
):
    """The products [pair] of sets of proofs from pair `start` on; returns the pair where room has come to its end."""
    width = blocks.shape[1] - 1
    fact, _, _, choice, sizes, _, _, _, _, _ = literals
    for i in range(start, stop):
        x, y = a[i], b[i]
        if ZERO in (x, y):
            found[i] = ZERO
            continue
        if x in (ONE, y):
            found[i] = y
            continue
        if y == ONE:
            found[i] = x
            continue
        x_first, x_last, y_first, y_last = offsets[x], offsets[x + 1], offsets[y], offsets[y + 1]
        number = (x_last - x_first) * (y_last - y_first)
        if number > MOST:
            found[i] = LONG
            continue
        wanted = (y_last - y_first) * (heads[x_last, 0] - heads[x_first, 0])
        wanted += (x_last - x_first) * (heads[y_last, 0] - heads[y_first, 0])
        if not _has_room(min(k, number), wanted, number, blocks, heads, offsets, to_blocks, to_heads, used):
            return i
        if number == 1:
            row, kept = used[1], 1
            p, q, at = heads[x_first, 0], heads[y_first, 0], heads[row, 0]
            is_narrow = heads[x_first + 1, 0] == p + 1 and heads[y_first + 1, 0] == q + 1
            if is_narrow and blocks[p, 0] == blocks[q, 0]:
                total, base = heads[x_first, 1] + heads[y_first, 1], np.int64(blocks[p, 0]) * width
                choices, of_p, of_q = np.uint64(0), np.uint64(0), np.uint64(0)
                blocks[at, 0] = blocks[p, 0]
                for w in range(width):
                    one, other = blocks[p, 1 + w], blocks[q, 1 + w]
                    blocks[at, 1 + w] = one | other
                    if one & other:
                        total -= cost_of_word(costs, 64 * (base + w), one & other)
                    choices |= (one | other) & triggers[base + w]
                    of_p |= one & tied[base + w]
                    of_q |= other & tied[base + w]
                heads[row + 1, 0], heads[row, 1] = at + 1, total
                has_choices = choices != 0 and of_p != 0 and of_q != 0
            else:
                has_choices = unite(blocks, heads, x_first, y_first, blocks, heads, row, costs, tied, triggers)
            if has_choices:
                code = conflict(blocks, heads, x_first, y_first, tied, fact, choice, sizes)
                if code == 1 or (code == 2 and not resolve_choices(blocks, heads, row, costs, tied, literals)):
                    kept = 0
            found[i] = _close_set(heads, offsets, used, kept)
            continue
        count = 0
        to_heads[0, 0] = 0
        for p in range(x_first, x_last):
            for q in range(y_first, y_last):
                has_choices = unite(blocks, heads, p, q, to_blocks, to_heads, count, costs, tied, triggers)
                if not has_choices or resolve_choices(to_blocks, to_heads, count, costs, tied, literals):
                    order[count] = count
                    count += 1
        kept = _keep_best(to_blocks, to_heads, order, spare, count, k, blocks, heads, used[1])
        found[i] = _close_set(heads, offsets, used, kept)
    return stop


@kernel
def _are_equal(blocks, heads, first, second, count):
    """Whether two runs of rows are the same proofs."""
    start, other = heads[first, 0], heads[second, 0]
    for j in range(1, count + 1):
        if heads[first + j, 0] - start != heads[second + j, 0] - other:
            return False
    for block in range(heads[first + count, 0] - start):
        for w in range(blocks.shape[1]):
            if blocks[start + block, w] != blocks[other + block, w]:
                return False
    return True


@kernel(f"int64 int64 int64[] int64[] int64[] int64 {SETS} {SETS} int64[] int64[]")
def add(start, stop, tags, segments, found, k, blocks, heads, offsets, to_blocks, to_heads, order, spare, used):
    """The sums [segment] of the sets of each segment from `start` on; returns where room has come to its end.

    segments  [segment + 1] where they begin. A sum that says nothing more than the first set of a segment is that set
    """
    for i in range(start, stop):
        first, count, wanted, differs, is_one = ZERO, 0, 0, False, False
        for j in range(segments[i], segments[i + 1]):
            tag = tags[j]
            if tag in (ZERO, first):
                continue
            is_one = is_one or tag == ONE
            if first == ZERO:
                first = tag
            else:
                differs = True
                if k == 1:
                    a, b = offsets[tag], offsets[first]
                    if heads[a, 1] < heads[b, 1] or (heads[a, 1] == heads[b, 1] and is_simpler(blocks, heads, a, b)):
                        first = tag
            count += offsets[tag + 1] - offsets[tag]
            wanted += heads[offsets[tag + 1], 0] - heads[offsets[tag], 0]
        if is_one or not differs or k == 1:
            found[i] = ONE if is_one else first
            continue
        if not _has_room(min(k, count), wanted, count, blocks, heads, offsets, to_blocks, to_heads, used):
            return i
        count = 0
        for j in range(segments[i], segments[i + 1]):
            tag = tags[j]
            if tag != ZERO and (tag != first or not count):
                for row in range(offsets[tag], offsets[tag + 1]):
                    order[count] = row
                    count += 1
        kept = _keep_best(blocks, heads, order, spare, count, k, blocks, heads, used[1])
        if kept == offsets[first + 1] - offsets[first] and _are_equal(blocks, heads, used[1], offsets[first], kept):
            found[i] = first
        else:
            found[i] = _close_set(heads, offsets, used, kept)
    return stop


@kernel(f"int64 int64 int64[] int64 int64[] int64 {SETS} {SETS} int64[] int64[] int64[] uint64[] {LITERALS}")
def deny(
    start,
    stop,
    tags,
    proof,
    found,
    k,
    blocks,
    heads,
    offsets,
    to_blocks,
    to_heads,
    order,
    spare,
    used,
    costs,
    tied,
    literals,
):
    """For each set of a column the k best negations of literals of its proof of that number, each as a proof."""
    opposite, width = literals[1], blocks.shape[1] - 1
    for i in range(start, stop):
        row = offsets[tags[i]] + proof
        number = _number_of_literals(blocks, heads, row)
        if not _has_room(number, number, number, blocks, heads, offsets, to_blocks, to_heads, used):
            return i
        count = 0
        to_heads[0, 0] = 0
        for block in range(heads[row, 0], heads[row + 1, 0]):
            for w in range(width):
                word, first = blocks[block, 1 + w], 64 * (np.int64(blocks[block, 0]) * width + w)
                bit = next_literal(word, 0)
                while bit < 64:
                    literal = opposite[first + bit]
                    to_blocks[count, 0] = literal // (64 * width)
                    for v in range(width):
                        to_blocks[count, 1 + v] = np.uint64(0)
                    to_blocks[count, 1 + literal // 64 % width] = np.uint64(1) << np.uint64(literal & 63)
                    to_heads[count + 1, 0], to_heads[count, 1] = count + 1, costs[literal]
                    order[count] = count
                    # Denied values of choices have no costs yet.
                    if resolve_choices(to_blocks, to_heads, count, costs, tied, literals):
                        count += 1
                    bit = next_literal(word, bit + 1)
        kept = _keep_best(to_blocks, to_heads, order, spare, count, k, blocks, heads, used[1])
        found[i] = _close_set(heads, offsets, used, kept)
    return stop
