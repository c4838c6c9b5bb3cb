"""Sets of proofs between the store of a run and the lanes that devices compute with (`kernels.device_proofs`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from derivable.core.interrupts import sigint_deferred
from derivable.datalog.kernels.proof_form import ABSENT_COST, CHOICE, MOST_WORDS, ProofForm
from derivable.datalog.kernels.proofs import ONE, ZERO
from derivable.datalog.policy.costs import policy
from derivable.datalog.tables.tag_columns import within
from derivable.datalog.tags.proof_store import ProofStore


@dataclass(frozen=True, eq=False)
class ProofLanes:
    """Where the literals of a store are in words. Those of each sample are numbered apart, in the order that they
    have in the store.

    scope     [literal] s + 1 for one of sample s, 0 for one of all samples
    number    [literal] its number in the words of its scope, and in those of all scopes for one of all samples
    choice    [literal] the number of its choice in the words of its scope, -1 for none
    num_scopes  how many scopes there are
    """

    store: ProofStore
    form: ProofForm
    scope: np.ndarray
    number: np.ndarray
    choice: np.ndarray
    num_scopes: int

    @staticmethod
    def of(store: ProofStore) -> ProofLanes | None:
        """Of a store that has the literals of a run, none of which denies a value of a choice; None where they need
        too many words."""
        known = store.literals
        facts = np.arange(known.num_facts)
        denied = facts[known.opposite[known.of[known.variable[facts]]] >= 0]
        facts, is_denied = np.concatenate([facts, denied]), np.repeat([False, True], [len(facts), len(denied)])
        variables = known.variable[facts]
        literals = known.of[variables]
        literals = np.where(is_denied, known.opposite[literals], literals)
        scope = np.zeros(len(facts), np.int64)
        has_sample = variables < len(known.samples)
        if known.width:
            scope[has_sample] = 1 + known.samples[variables[has_sample]]
        # Blocks of samples and blocks of all samples take turns, so that every sample has them in the store's order.
        block = literals // (64 * max(known.width, 1))
        blocks, at = np.unique(block, return_index=True)
        is_of_all = scope[at] == 0
        turn = np.cumsum(np.append(False, is_of_all[1:] != is_of_all[:-1]) if len(blocks) else is_of_all)
        turn = turn[np.searchsorted(blocks, block)]
        number = _numbers(turn, scope, literals)
        choice = known.choice[facts]
        chosen = np.flatnonzero(choice >= 0)
        # The choices of all samples come first.
        choices, first, which = np.unique(choice[chosen], return_index=True, return_inverse=True)
        owner = scope[chosen[first]]
        local = _numbers((owner > 0).astype(np.int64), owner, choices)
        words, choice_words = (-(-int(x.max(initial=-1) + 1) // 64) for x in (number, local))
        if words > MOST_WORDS or choice_words > MOST_WORDS:
            return None
        size = len(known.fact)
        scopes, numbers, local_choices = np.full((3, size), -1)
        scopes[literals], numbers[literals] = scope, number
        local_choices[literals[chosen]] = local[which.reshape(-1)]
        form = ProofForm(store.k, max(words, 1), choice_words, len(denied) > 0)
        return ProofLanes(store, form, scopes, numbers, local_choices, len(known.taken) if known.width else 1)

    @cached_property
    def literal(self) -> np.ndarray:
        """[scope, number] the literal, -1 for none."""
        numbers = np.full((self.num_scopes, 64 * self.form.words), -1)
        literals = np.flatnonzero(self.number >= 0)
        scope, number = self.scope[literals], self.number[literals]
        numbers[:, number[scope == 0]] = literals[scope == 0]
        numbers[scope[scope > 0], number[scope > 0]] = literals[scope > 0]
        return numbers

    @cached_property
    def known(self) -> tuple[np.ndarray, ...]:
        """(costs [scope, number], the bits of literals in choices [scope, word], the literals that deny [scope,
        number], each its number and that of its choice from bit `CHOICE` on, [0], see `device_proofs.improved`)"""
        literal, of = self.literal, self.store.literals
        costs = np.where(literal >= 0, of.costs[literal], 0)
        is_tied = (literal >= 0) & of.is_tied[literal]
        denying = np.zeros((1, 1), np.int64)
        if self.form.denies:
            denying = np.where(literal >= 0, of.opposite[literal], -1)
            denying = np.where(denying >= 0, self.number[denying] + (self.choice[denying] << CHOICE), 0)
        return costs, _packed(is_tied), denying, np.zeros(1, np.int64)

    def lanes_of(self, tags: np.ndarray) -> np.ndarray:
        """[row, lane] sets of the store."""
        form, store = self.form, self.store
        counts = store.number_of(tags)
        lanes = np.zeros((len(tags), form.lanes), np.int64)
        lanes[:, 1 :: form.width] = ABSENT_COST
        rows, rank = np.repeat(np.arange(len(tags)), counts), within(counts)
        lane = 1 + rank * form.width
        lanes[rows, lane] = store.heads[store.offsets[tags][rows] + rank, 1]
        proof, literals = store.bits_of(tags)
        lanes[rows, lane + 1] = np.bincount(proof, minlength=len(rows))
        row, lane = rows[proof], lane[proof] + 2
        np.maximum.at(lanes[:, 0], row, self.scope[literals])
        number, choice = self.number[literals], self.choice[literals]
        np.bitwise_or.at(lanes, (row, lane + number // 64), _bit(number))
        chosen = np.flatnonzero(choice >= 0)
        choice = choice[chosen]
        np.bitwise_or.at(lanes, (row[chosen], lane[chosen] + form.words + choice // 64), _bit(choice))
        return lanes

    @sigint_deferred()
    def sets_of(self, lanes: np.ndarray) -> np.ndarray:
        """The numbers [row] of sets in the store, which are inserted there."""
        form, store = self.form, self.store
        proofs = lanes[:, 1:].reshape(len(lanes), form.k, form.width)
        is_there = proofs[..., 0] < ABSENT_COST
        is_one = (is_there & (proofs[..., 1] == 0)).any(axis=1)
        row, rank = np.nonzero(is_there & ~is_one[:, None])
        chosen, counts = proofs[row, rank], np.bincount(row, minlength=len(lanes))
        proof, literals = self._literals_of(lanes[row, 0], chosen[:, 2 : 2 + form.words])
        block = literals // (64 * store.width)
        is_first = np.ones(len(proof), bool)
        is_first[1:] = (proof[1:] != proof[:-1]) | (block[1:] != block[:-1])
        num_sets, num_blocks = int((counts > 0).sum()), int(is_first.sum())
        store._make_room(num_sets, len(row), num_blocks)
        sets, rows, start = store.used[:3].tolist()
        blocks = store.blocks[start : start + num_blocks]
        blocks[:] = 0
        blocks[:, 0] = block[is_first]
        bits = np.uint64(1) << (literals % 64).astype(np.uint64)
        np.bitwise_or.at(blocks, (np.cumsum(is_first) - 1, 1 + literals // 64 % store.width), bits)
        ends = start + np.cumsum(np.bincount(proof[is_first], minlength=len(row)))
        store.heads[rows : rows + len(row), 1] = chosen[:, 0]
        store.heads[rows + 1 : rows + len(row) + 1, 0] = ends
        store.offsets[sets + 1 : sets + num_sets + 1] = rows + np.cumsum(counts[counts > 0])
        store.used[:3] += num_sets, len(row), num_blocks
        ids = np.where(is_one, ONE, ZERO)
        ids[counts > 0] = np.arange(sets, sets + num_sets)
        return ids

    def _literals_of(self, scope: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the proof of each literal, the literal) of proofs [proof] of these scopes and words, proof by proof, the
        literals of each in ascending order."""
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        step = policy().cache_rows
        for start in range(0, len(words), step):
            piece = np.ascontiguousarray(words[start : start + step]).astype(">i8")
            proof, number = np.nonzero(np.unpackbits(piece.view(np.uint8), axis=1))
            parts.append((start + proof, self.literal[scope[start + proof], number]))
        proof, literals = map(np.concatenate, zip(*parts))
        return proof, literals


def _numbers(turn: np.ndarray, scope: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Numbers within each scope, turn after turn, and in each turn by order; turns begin at one number everywhere."""
    keys = np.lexsort((order, scope, turn))
    pair = turn * (int(scope.max(initial=0)) + 1) + scope
    counts = np.unique(pair[keys], return_counts=True)[1]
    rank = np.empty(len(scope), np.int64)
    rank[keys] = within(counts)
    lengths = np.zeros(int(turn.max(initial=-1)) + 1, np.int64)
    np.maximum.at(lengths, turn, rank + 1)
    return (np.cumsum(lengths) - lengths)[turn] + rank


def _packed(bits: np.ndarray) -> np.ndarray:
    """Words [row, word] int64 of bits, the highest bit for the first."""
    return np.packbits(bits, axis=1).view(">i8").astype(np.int64)


def _bit(number: np.ndarray) -> np.ndarray:
    """The bit of that number in its word, the highest one for the first, int64."""
    return (np.uint64(1) << (63 - number % 64).astype(np.uint64)).view(np.int64)
