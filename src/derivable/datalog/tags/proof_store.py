"""Sets of proofs as rows of bits, for `topkproofs`: a tag is the number of a set.

Facts are numbered in the order in which a run loads them, so those that it does not load cost nothing. Among equally
probable proofs those of fewer literals come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from derivable.core.interrupts import sigint_deferred
from derivable.core.progress import NEVER
from derivable.datalog.kernels import proof_fold, proof_probability
from derivable.datalog.kernels import proofs as kernels
from derivable.datalog.kernels.proofs import IMPOSSIBLE, MOST, ONE, SCALE, ZERO
from derivable.datalog.tables.tag_columns import within
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.device.cpu.memory import empty, longer, next_length, zeros

Proof = tuple[int, ...]
# Pairs of sets between two looks at the clock, and the proofs of a part of a long set: `MOST` of two of them.
LOOKS, PIECE = 1 << 14, 1 << 6
# Words of the widest block, and of blocks among more literals: those of a sample of a batch lie in one or two of them.
WIDEST, SPARSE = 16, 4
# Literals for which room is made at once.
ROOM = 1 << 10
# Rows for which there is room at first: Python runs kernels on so few.
FEW = 1 << 8
# Proofs that slots are made for at first.
SLOTS = 8
# The rows that candidates were derived of, and the chains of candidates; see `kernels.proof_fold.chain`.
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
# States of a decision diagram.
STATES = 1 << 10


class Literals:
    """The literals of a store by their numbers; see `kernels.proofs`.

    of       [variable] the literal that uses a random fact, -1 for one without a number yet
    owner    [variable] its choice, -1 for none, as far as there are `num_groups` of them
    variable [fact] the random fact
    samples  [variable] its sample, -1 for one of all samples: the literals of each sample have separate blocks
    blocks   [sample, number] these, as far as there are any, -1 else; `taken` [sample] is the number of its literals.
             The last row is that of all samples. Blocks are in the order in which their literals come, for each sample
    width    words of a block; 0 where there are no samples, and one block for all
    """

    def __init__(self, facts: RandomFacts, widest: int = WIDEST):
        self.facts, self.widest = facts, widest
        samples = np.concatenate([*facts.samples, np.empty(0, np.int64)])
        self.width, self.samples = 0, samples
        if len(samples) == len(facts.probabilities) and samples.max(initial=-1) >= 0:
            counts = np.bincount(samples[samples >= 0])
            self.width = -(-int(counts.max()) // 64)
            self.width = self.width if self.width <= widest else SPARSE
            self.blocks, self.taken = np.full((len(counts) + 1, 0), -1), zeros(len(counts) + 1, np.int64)
            self.is_of_all = False
        self.of = self.owner = np.empty(0, np.int64)
        self.number = self.num_facts = self.num_groups = self.num_choices = 0
        self.variable = np.empty(0, np.int64)
        self.costs, self.fact, self.opposite, self.choice, self.sizes = (np.empty(0, np.int64) for _ in range(5))
        self.chances, self.is_tied = np.empty(0), np.empty(0, bool)
        # Whether some literals deny values of choices.
        self.denies_values = False
        self._grow(ROOM)

    def copy(self, facts: RandomFacts) -> Literals:
        made = Literals(facts, self.widest)
        made.__dict__.update({n: v.copy() if isinstance(v, np.ndarray) else v for n, v in self.__dict__.items()})
        made.facts = facts
        made._grow(len(made.fact))
        return made

    def _grow(self, room: int) -> None:
        """Have room for so many literals, facts and choices."""
        for name in ("costs", "fact", "opposite", "choice", "sizes", "variable", "chances"):
            old = getattr(self, name)
            made = np.full(room, -1, old.dtype)
            made[: len(old)] = old
            setattr(self, name, made)
        self.is_tied = np.append(self.is_tied, zeros(room - len(self.is_tied), bool))
        self._pack()
        listed = empty(room, np.int64), empty(room, np.int64)
        noted = zeros(room, np.int64), zeros(room, np.int64), zeros(room, np.float64)
        self.rest = self.fact, self.opposite, self.chances, self.choice, self.sizes, *listed, *noted

    def _new(self, facts: np.ndarray, signed: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Numbers of new literals."""
        made = np.arange(self.number, self.number + len(facts))
        if self.width and len(facts):
            made = self._in_blocks(self.variable[facts])
        self.number = max(self.number, int(made.max(initial=-1)) + 1)
        self.fact[made], self.costs[made], self.opposite[made] = signed, costs, -1
        self._tie(facts, made)
        return made

    def _in_blocks(self, variables: np.ndarray) -> np.ndarray:
        """Numbers of new literals of random facts, in the blocks of their samples."""
        sample = np.full(len(variables), len(self.taken) - 1)
        known = variables < len(self.samples)
        sample[known] = self.samples[variables[known]]
        sample[sample < 0] = len(self.taken) - 1
        is_of_all, size = bool((sample == len(self.taken) - 1).any()), 64 * self.width
        if is_of_all != self.is_of_all:
            # What comes next has blocks behind those that there are.
            self.is_of_all = is_of_all
            self.taken = -(-self.taken // size) * size
        order = np.argsort(sample, kind="stable")
        counts = np.bincount(sample, minlength=len(self.taken))
        position = np.empty(len(variables), np.int64)
        position[order] = within(counts)
        position += self.taken[sample]
        self.taken += counts
        most = -(-int(self.taken.max()) // size)
        if most > self.blocks.shape[1]:
            self.blocks = np.pad(self.blocks, [(0, 0), (0, most - self.blocks.shape[1])], constant_values=-1)
        wanted = np.unique(sample + len(self.taken) * (position // size))
        number, owner = np.divmod(wanted, len(self.taken))
        fresh = self.blocks[owner, number] < 0
        first = -(-self.number // size)
        self.blocks[owner[fresh], number[fresh]] = np.arange(first, first + int(fresh.sum()))
        self._make_room(size * (first + int(fresh.sum())) - self.number)
        return size * self.blocks[sample, position // size] + position % size

    def _tie(self, facts: np.ndarray, literals: np.ndarray) -> None:
        literals = literals[self.choice[facts] >= 0]
        if len(literals):
            self.is_tied[literals] = True
            self._pack()

    def _pack(self) -> None:
        """Make bits of `is_tied`; those that deny a fact of no choice trigger nothing."""
        denies = self.fact < 0
        denies &= self.sizes[self.choice[np.where(denies, ~self.fact, 0)]] == 0
        self.tied, self.triggers = (
            np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)
            for bits in (self.is_tied, self.is_tied & ~denies)
        )
        self.has_triggers = bool(self.triggers.any())

    def _make_room(self, count: int) -> None:
        most = max(self.number, self.num_choices) + count
        if most > len(self.fact):
            self._grow(-(-max(most, 2 * len(self.fact)) // ROOM) * ROOM)

    def number_facts(self, variables: np.ndarray) -> np.ndarray:
        """The literals of random facts that are new."""
        groups = self.facts.groups
        self._make_room(len(variables) + len(groups) - self.num_groups)
        top = len(self.facts.probabilities)
        if top > len(self.of):
            grown = np.full((2, next_length(len(self.of), top)), -1)
            grown[:, : len(self.of)] = self.of, self.owner
            self.of, self.owner = grown
        for group in groups[self.num_groups :]:
            self.owner[group], self.sizes[self.num_choices] = self.num_choices, len(group)
            self.num_choices += 1
        self.num_groups = len(groups)
        facts = np.arange(self.num_facts, self.num_facts + len(variables))
        self.num_facts += len(variables)
        probabilities = self.facts.probabilities
        chances = np.array([probabilities[v] for v in variables.tolist()], np.float64)
        self.variable[facts], self.choice[facts], self.chances[facts] = variables, self.owner[variables], chances
        made = self._new(facts, facts, _costs(chances))
        self.of[variables] = made
        return made

    @sigint_deferred()
    def deny(self, literals: np.ndarray) -> None:
        """Have literals of the other sign, too."""
        literals = literals[self.opposite[literals] < 0]
        if not len(literals):
            return
        self._make_room(len(literals))
        facts = self.fact[literals]
        free = facts[self.choice[facts] < 0]
        self.choice[free] = np.arange(self.num_choices, self.num_choices + len(free))
        self.sizes[self.choice[free]] = 0
        self.num_choices += len(free)
        self._tie(free, self.of[self.variable[free]])
        is_value = self.sizes[self.choice[facts]] > 0
        self.denies_values |= bool(is_value.any())
        costs = np.where(is_value, 0, _costs(1.0 - self.chances[facts]))
        made = self._new(facts, ~facts, costs)
        self.opposite[literals], self.opposite[made] = made, literals

    def signed(self, literals: np.ndarray) -> np.ndarray:
        """The random facts from 1 on that literals use, with a minus those that they deny."""
        facts = self.fact[literals]
        return np.where(facts < 0, -1 - self.variable[~facts], 1 + self.variable[facts])


class ProofStore:
    """Sets of proofs as rows of bits; see `kernels.proofs`.

    single  [variable] the set of the proof that is this random fact, -1 for one without a number yet
    widest  words of the widest block
    """

    def __init__(self, facts: RandomFacts, k: int, widest: int = WIDEST):
        self.facts, self.k, self.widest = facts, k, widest
        # Sets of many proofs take long, so their operations look at the clock of the run.
        self.deadline = NEVER
        self.literals = Literals(facts, widest)
        self.is_sparse = self.literals.width > 0
        self.blocks, self.heads = empty((FEW, 1 + max(1, self.literals.width)), np.uint64), zeros((FEW, 2), np.int64)
        # No proof, and the one that needs nothing.
        self.offsets = zeros(FEW, np.int64)
        self.offsets[2] = 1
        self.used = np.array([2, 1, 0, 0, 0, 0, 0, 0])
        self.single = np.empty(0, np.int64)
        self.notes: tuple[np.ndarray, int, Any] = np.empty(0, np.uint8), 0, None
        self._make_slots(SLOTS)

    def copy(self, facts: RandomFacts) -> ProofStore:
        made = ProofStore(facts, self.k, self.widest)
        made.__dict__.update({n: v.copy() if isinstance(v, np.ndarray) else v for n, v in self.__dict__.items()})
        made.facts, made.deadline, made.literals = facts, NEVER, self.literals.copy(facts)
        made.notes = made.notes[0][:0], 0, None
        made._make_slots(SLOTS)
        return made

    @property
    def width(self) -> int:
        """Words of a block."""
        return self.blocks.shape[1] - 1

    @property
    def sets(self) -> tuple[np.ndarray, ...]:
        return self.blocks, self.heads, self.offsets

    @property
    def known(self) -> tuple[np.ndarray, ...]:
        literals = self.literals
        return literals.costs, literals.tied, literals.triggers, *literals.rest

    # Facts

    def singles(self, variables: np.ndarray) -> np.ndarray:
        """The set [fact] of the proof that is a random fact."""
        top = int(variables.max(initial=-1)) + 1
        if top > len(self.single):
            grown = np.full(next_length(len(self.single), top), -1)
            grown[: len(self.single)] = self.single
            self.single = grown
        tags = self.single[variables]
        if (tags < 0).any():
            fresh = variables[tags < 0]
            # Facts that are loaded are in order mostly.
            self._add_literals(fresh if (fresh[1:] > fresh[:-1]).all() else np.unique(fresh))
            tags = self.single[variables]
        return tags

    def singles_of(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """The same of the random facts [fact] of several columns, one after the other, without those below zero."""
        variables = np.concatenate(parts)
        variables = variables[variables >= 0]
        # The literals of each sample are in separate blocks, behind one another.
        if not self.literals.width and (variables[1:] > variables[:-1]).all():
            return self.singles(variables)
        return np.concatenate([self.singles(part[part >= 0]) for part in parts])

    @sigint_deferred()
    def _add_literals(self, fresh: np.ndarray) -> None:
        """Make the sets of the proofs that are new facts."""
        literals, count = self.literals.number_facts(fresh), len(fresh)
        self._widen()
        self.single[fresh] = self._sets_of(literals, self.literals.costs[literals], np.ones(count, np.int64))

    def _sets_of(self, literals: np.ndarray, costs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """New sets [set] of `sizes` [set] proofs, which are one literal each, set after set and best first."""
        count, is_some = len(literals), sizes > 0
        self._make_room(int(is_some.sum()), count, count)
        number, row, block = self.used[:3].tolist()
        blocks = self.blocks[block : block + count]
        blocks[:] = 0
        blocks[:, 0] = literals // (64 * self.width)
        bits = np.uint64(1) << (literals % 64).astype(np.uint64)
        blocks[np.arange(count), 1 + literals // 64 % self.width] = bits
        self.heads[row : row + count, 1] = costs
        self.heads[row + 1 : row + count + 1, 0] = np.arange(block + 1, block + count + 1)
        ends = row + np.cumsum(sizes[is_some])
        self.offsets[number + 1 : number + len(ends) + 1] = ends
        self.used[:3] += len(ends), count, count
        tags = np.full(len(sizes), ZERO)
        tags[is_some] = number + np.arange(len(ends))
        return tags

    def _widen(self) -> None:
        """Have one block for all literals, or once these are many, blocks of `SPARSE` words."""
        needed = max(1, -(-self.literals.number // 64))
        width = needed if needed <= self.widest else SPARSE
        if width != self.width and not self.is_sparse:
            self._make_blocks(width, needed > self.widest)

    @sigint_deferred()
    def _make_blocks(self, width: int, is_sparse: bool) -> None:
        old, count, self.is_sparse = self.width, int(self.used[2]), is_sparse
        words = self.blocks[:count, 1:]
        if width > old:
            self.blocks = empty((len(self.blocks), 1 + width), np.uint64)
            self.blocks[:count, 0], self.blocks[:count, 1 : 1 + old], self.blocks[:count, 1 + old :] = 0, words, 0
        else:
            words = np.pad(words, [(0, 0), (0, -old % width)]).reshape(count, -1, width)
            block, column = np.nonzero(words.any(axis=2))
            self.blocks = empty((next_length(len(block), FEW), 1 + width), np.uint64)
            self.blocks[: len(block), 0], self.blocks[: len(block), 1:] = column, words[block, column]
            before = np.concatenate([[0], np.cumsum(np.bincount(block, minlength=count))])
            rows = int(self.used[1]) + 1
            self.heads[:rows, 0] = before[self.heads[:rows, 0]]
            self.used[2] = len(block)
        self._make_slots(SLOTS)

    # Operations on columns

    def _make_room(self, num_sets: int, num_rows: int, num_blocks: int) -> None:
        sets, rows, blocks = self.used[:3].tolist()
        if sets + num_sets >= len(self.offsets):
            self.offsets = longer(self.offsets, next_length(len(self.offsets), sets + num_sets + 1), sets + 1)
        if rows + num_rows >= len(self.heads):
            self.heads = longer(self.heads, next_length(len(self.heads), rows + num_rows + 1), rows + 1)
        if blocks + num_blocks > len(self.blocks):
            self.blocks = longer(self.blocks, next_length(len(self.blocks), blocks + num_blocks), blocks)

    def _make_slots(self, number: int, span: int = 0) -> None:
        """Have room for these numbers of proofs and of blocks of each; see `kernels.proof_fold`."""
        span = span or max(1, min(2, -(-self.widest // self.width)))
        starts = zeros((2 * number, 2), np.int64)
        starts[::2, 0] = span * np.arange(number)
        self.slots = empty((number * span, 1 + self.width), np.uint64), starts, *empty((2, number), np.int64)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Products; a pair that stands several times in a row is multiplied once."""
        is_next = np.empty(len(a), bool)
        is_next[:1] = True
        np.not_equal(a[1:], a[:-1], out=is_next[1:])
        is_next[1:] |= b[1:] != b[:-1]
        chosen = np.flatnonzero(is_next)
        if 2 * len(chosen) <= len(a):
            return self._distinct_times(a[chosen], b[chosen])[np.cumsum(is_next) - 1]
        return self._distinct_times(a, b)

    def _distinct_times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        products = np.full(len(a), ZERO)
        is_long = (self.number_of(a) * self.number_of(b) > MOST) & (a != b) & (self.k > 1)
        pairs = np.flatnonzero(~is_long)
        self._add(products, pairs, a[pairs], b[pairs], 0)
        for i in np.flatnonzero(is_long).tolist():
            products[i] = self._long_times(int(a[i]), int(b[i]))
        return products

    def _add(self, tags: np.ndarray, rows: np.ndarray, a: np.ndarray, b: np.ndarray, old: int) -> None:
        """Add the products of pairs of sets [pair] to the tags of rows, of which those from `old` on have none."""
        last, (listed, following) = zeros(len(tags), np.int64), empty((2, len(rows)), np.int64)
        listed = listed[: proof_fold.chain(rows, last, following, listed)]
        # All candidates are there: nothing is derived again.
        lost = self.used[proof_fold.LOST]
        self.fold((listed, last, following), np.ascontiguousarray(a), np.ascontiguousarray(b), old, tags, None)
        self.used[proof_fold.LOST] = lost

    def _long_times(self, a: int, b: int) -> int:
        """The product of sets of many proofs: the sum of the products of their parts."""
        total = np.array([ZERO])
        for x in self._parts(a):
            for y in self._parts(b):
                self._add(total, np.array([0]), np.array([x]), np.array([y]), 1)
        return int(total[0])

    def _parts(self, tag: int) -> Iterator[int]:
        """The sets of some of the proofs of a set each."""
        first, last = self.offsets[tag : tag + 2].tolist()
        for low in range(first, last, PIECE):
            high = min(low + PIECE, last)
            start, stop = int(self.heads[low, 0]), int(self.heads[high, 0])
            self._make_room(1, high - low, stop - start)
            number, row, block = self.used[:3].tolist()
            self.blocks[block : block + stop - start] = self.blocks[start:stop]
            self.heads[row : row + high - low, 1] = self.heads[low:high, 1]
            self.heads[row + 1 : row + high - low + 1, 0] = self.heads[low + 1 : high + 1, 0] - start + block
            self.offsets[number + 1] = row + high - low
            self.used[:3] += 1, high - low, stop - start
            yield number

    def reduce(self, tags: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """The sums [segment]; segments are not empty. One that says nothing more than its first set is that set."""
        sums, lengths = tags[segments[:-1]], np.diff(segments)
        others = np.ones(len(tags), bool)
        others[segments[:-1]] = False
        rows = np.repeat(np.arange(len(sums)), lengths - 1)
        self._add(sums, rows, tags[others], np.full(len(rows), ONE), len(sums))
        return sums

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Sums that say nothing more than `a` are `a`."""
        return self.reduce(np.stack([a, b], axis=1).reshape(-1), np.arange(0, 2 * len(a) + 1, 2))

    def are_possible(self, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray | None:
        """Whether products [pair] of sets have a proof, or sets without `b`; None if all have one."""
        if b is None or not self.literals.has_triggers:
            if a.all() and (b is None or b.all()):
                return None
            return a != ZERO if b is None else (a != ZERO) & (b != ZERO)
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        possible, noted = empty(len(a), bool), self._noted()
        start = 0
        while start < len(a):
            self.deadline.remaining()
            stop = min(start + LOOKS, len(a))
            start = proof_fold.are_possible(
                start, stop, a, b, possible, noted, self.sets, self.slots, self.used, self.known
            )
            if start < stop:
                self.make_wanted_room()
        return None if possible.all() else possible

    def _noted(self) -> np.ndarray:
        """See `kernels.proof_fold.note_literals`; sets stay what they are until more literals are in choices."""
        number, triggers = int(self.used[0]), self.literals.triggers
        noted, done, of = self.notes
        if of is not triggers:
            done = 0
        if number > len(noted):
            noted = longer(noted, next_length(len(noted), number), done)
        proof_fold.note_literals(done, number, noted, self.sets, self.known)
        self.notes = noted, number, triggers
        return noted

    def fold(
        self, rows: Rows, a: np.ndarray, b: np.ndarray, old: int, tags: np.ndarray, news: np.ndarray | None
    ) -> np.ndarray:
        """Add products [candidate] to the sets of rows; see `kernels.proof_fold.fold`.

        Returns which of the listed rows have other proofs now.
        """
        changed, start = empty(len(rows[0]), bool), 0
        candidates = *rows, a, b, old, tags, tags if news is None else news, news is not None, changed
        limits = self.k, not self.literals.denies_values, self.literals.has_triggers
        while start < len(changed):
            self.deadline.remaining()
            stop = min(start + LOOKS, len(changed))
            start = proof_fold.fold(start, stop, candidates, limits, self.sets, self.slots, self.used, self.known)
            if start < stop:
                self.make_wanted_room(stop - start)
        return changed

    def make_wanted_room(self, left: int = FEW) -> None:
        """Make the room that a kernel came to the end of, with which that number of rows is left."""
        num_rows, num_blocks, span, slots = self.used[3:7].tolist()
        self.used[3:7] = 0
        self._make_room(2 * left, num_rows + 2 * left, num_blocks + 2 * left)
        if span or slots:
            there = len(self.slots[2])
            self._make_slots(max(there, 2 * slots), max(len(self.slots[0]) // there, 2 * span))

    def deny(self, variables: np.ndarray) -> None:
        """Have literals that deny these random facts, in the order of those that use them: which of equally probable
        proofs stay is then no matter of which sets are negated first."""
        if not len(variables):
            return
        known = self.literals.of
        literals = known[variables[variables < len(known)]]
        self.literals.deny(np.unique(literals[literals >= 0]))
        self._widen()

    def negate(self, a: np.ndarray) -> np.ndarray:
        tags, where = np.unique(a, return_inverse=True)
        numbers = self.number_of(tags)
        self.literals.deny(np.unique(self.bits_of(tags)[1]))
        self._widen()
        result = np.full(len(tags), ONE)
        for proof in range(int(numbers.max(initial=0))):
            rows = np.flatnonzero(numbers > proof)
            # Of those that are to be multiplied some may contradict what they are multiplied with.
            denied = self._denied(self.offsets[tags[rows]] + proof, None if proof else self.k)
            result[rows] = self.times(result[rows], denied) if proof else denied
        return result[where.reshape(-1)]

    def _denied(self, proofs: np.ndarray, k: int | None) -> np.ndarray:
        """For each proof, as its row, the set of the k best proofs that deny one of its literals, or of all."""
        of, literals = self.literals, self._literals_of(proofs)
        number, denied = literals[0], of.opposite[literals[1]]
        facts = of.fact[denied]
        values = np.where(facts < 0, ~facts, facts)
        # Denied values of choices have no costs yet, and that of a choice of one value is impossible.
        sizes = np.where(facts < 0, of.sizes[of.choice[values]], 0)
        costs = np.where(sizes > 0, _costs(1.0 - of.chances[values]), of.costs[denied])
        order = np.lexsort((denied, costs, number))
        order = order[sizes[order] != 1]
        counts = np.bincount(number[order], minlength=len(proofs))
        if k is not None:
            order, counts = order[within(counts) < k], np.minimum(counts, k)
        return self._sets_of(denied[order], costs[order], counts)

    # The proofs of sets

    def number_of(self, tags: np.ndarray) -> np.ndarray:
        """How many proofs sets have."""
        return self.offsets[tags + 1] - self.offsets[tags]

    def bits_of(self, tags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(number of the row, literal) of each literal of the proofs of sets, one set after the other."""
        count = self.number_of(tags)
        rows = np.repeat(self.offsets[tags], count) + within(count)
        return self._literals_of(rows)

    def _literals_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same of rows."""
        length = self.heads[rows + 1, 0] - self.heads[rows, 0]
        words = self.blocks[np.repeat(self.heads[rows, 0], length) + within(length), 1:]
        listed = empty((2, int(np.bitwise_count(words).sum())), np.int64)
        kernels.list_literals(rows, self.blocks, self.heads, listed)
        return listed[0], listed[1]

    def proofs_of(self, tag: int) -> list[Proof]:
        """The proofs of a set, each as signed random facts from 1 on."""
        proof, literals = self.bits_of(np.array([tag]))
        signed = self.literals.signed(literals)
        return [tuple(signed[proof == n].tolist()) for n in range(self.offsets[tag + 1] - self.offsets[tag])]

    def probability_of(self, tags: np.ndarray) -> np.ndarray:
        """The exact probabilities [set] that one of the proofs holds; -1 for those that need too much room."""
        chances, room = np.empty(len(tags)), len(self.literals.fact)
        listed = [empty(room, dtype) for dtype in (np.int64, np.int64, np.uint64, np.uint64, np.int64, np.uint64)]
        states = zeros(4 * STATES, np.int64), empty((2, STATES), np.uint64), empty((2, STATES), np.float64)
        diagram = *listed, *states, empty(STATES, np.int64)
        for start in range(0, len(tags), LOOKS // 16):
            self.deadline.remaining()
            part = slice(start, start + LOOKS // 16)
            proof_probability.probability_of(tags[part], chances[part], self.sets, self.known, diagram)
        return chances


def _costs(chances: np.ndarray) -> np.ndarray:
    """`kernels.cost_of`, of a column."""
    costs = np.full(len(chances), IMPOSSIBLE)
    some = chances > 0.0
    costs[some] = np.minimum(np.rint(-np.log(np.minimum(chances[some], 1.0)) * SCALE), IMPOSSIBLE)
    return costs
