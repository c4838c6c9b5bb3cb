"""The probability that one of the proofs of an output holds, as a polynomial of the probabilities of random facts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from derivable.core.graph import offsets_of
from derivable.datalog.exact.parts import numbered_groups
from derivable.device.cpu.memory import empty, zeros

# Proofs of which all subsets are few.
FEW = 4
# (number of proofs [root], the proof of each literal, and its random fact from 1 on, negative where it is denied);
# proofs are numbered through all roots.
Proofs = tuple[np.ndarray, np.ndarray, np.ndarray]


def probability_of_proofs(
    proofs: Proofs, samples: np.ndarray, group_of: np.ndarray, k: int, weights: torch.Tensor
) -> torch.Tensor:
    """The probability [root] that one of at most k proofs of each root holds, by inclusion and exclusion.

    samples    [root] ascending; proofs of one sample mention its random facts alone
    group_of   [random fact] the facts that exclude each other, -1 for independent ones
    weights    [random fact] their probabilities; that a fact of a group does not hold is the sum of the others, also
               where these are weights that do not add up to one
    """
    counts, proof, literals = proofs
    variables, denied = np.abs(literals) - 1, literals < 0
    if counts.max(initial=0) <= 1 and not (denied & (group_of[variables] >= 0)).any():
        # One proof, whose literals are the factors of its probability.
        lengths = np.bincount(proof, minlength=int(counts.sum()))
        factors = np.where(denied, variables + len(group_of), variables)
        return Polynomial(np.flatnonzero(counts), None, offsets_of(lengths), factors).values(weights, len(counts))
    bits = ProofBits.of(counts, proof, literals, samples, group_of, k)
    chosen = torch.from_numpy(bits.variables).to(weights.device)
    whole = None
    if denied.any():
        groups = torch.from_numpy(group_of).to(weights.device)
        sums = weights.new_zeros(len(group_of) + 1, dtype=torch.float64).index_add(0, groups + 1, weights.double())
        whole = sums[groups[chosen] + 1]
    return bits.polynomial.values(weights[chosen], len(counts), whole)


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A polynomial of probabilities for each root.

    roots    [term] the root that it is part of, ascending
    signs    [term] 1 or -1, None for ones
    starts   [term + 1] where its factors begin
    factors  [factor] s for a probability, S + s for one less it, where S is the number of probabilities, and 2 S + i
             for one less the sum of the probabilities `members`[`sum_starts`[i]:`sum_starts`[i + 1]]
    """

    roots: np.ndarray
    signs: np.ndarray | None
    starts: np.ndarray
    factors: np.ndarray
    sum_starts: np.ndarray | None = None
    members: np.ndarray | None = None

    def values(self, slots: torch.Tensor, num_roots: int, whole: torch.Tensor | None = None) -> torch.Tensor:
        """[root] the values for probabilities [S]; `whole` [S] is what the group of a slot adds up to, None for 1."""
        given = slots
        if self.signs is not None:
            # Many terms cancel.
            slots = slots.double()

        def moved(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(slots.device)

        columns = [slots, 1 - slots]
        sums = 0 if self.sum_starts is None else len(self.sum_starts) - 1
        if self.sum_starts is not None and self.members is not None and sums:
            which = moved(np.repeat(np.arange(sums), np.diff(self.sum_starts)))
            wholes = 1 if whole is None else whole.to(slots)[moved(self.members[self.sum_starts[:-1]])]
            columns.append(wholes - slots.new_zeros(sums).index_add(0, which, slots[moved(self.members)]))
        columns.append(slots.new_ones(1))
        lengths = np.diff(self.starts)
        longest, factors = int(lengths.max(initial=0)), self.factors
        if len(factors) < longest * len(lengths):
            # Terms of fewer factors are filled up with ones.
            padded = empty((len(lengths), longest), np.int32)
            padded.fill(2 * len(slots) + sums)
            padded[np.arange(longest) < lengths[:, None]] = factors
            factors = padded.ravel()
        products = torch.cat(columns).index_select(0, moved(factors)).reshape(len(lengths), longest).prod(-1)
        if self.signs is not None:
            products = products * moved(self.signs).to(products)
        # Zeros that depend on the probabilities, so that there is a derivative, zero, where there is no proof.
        return slots[:0].sum().expand(num_roots).index_add(0, moved(self.roots), products).to(given)


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The keys that there are, ascending, and for each key its place among them."""
    most = int(keys.max(initial=-1)) + 1
    if most > 4 * len(keys) + 1024:
        found, place = np.unique(keys, return_inverse=True)
        return found, place.reshape(-1)
    is_there = zeros(most, bool)
    is_there[keys] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[keys]


@dataclass(frozen=True, eq=False)
class ProofBits:
    """Proofs as bits; the random facts of a sample that its proofs mention are slots, one sample after the other.

    variables  [slot] its random fact, `groups` [slot] the number of its group in the sample, -1 if it is independent
    first      [root] the first slot of its sample
    bits       [root, k, 2 * word] uint64: what proofs use, then what they deny
    counts     [root] the number of proofs
    """

    variables: np.ndarray
    groups: np.ndarray
    first: np.ndarray
    bits: np.ndarray
    counts: np.ndarray

    @staticmethod
    def of(
        counts: np.ndarray, proof: np.ndarray, literals: np.ndarray, samples: np.ndarray, group_of: np.ndarray, k: int
    ) -> ProofBits:
        """counts [root] of proofs, for each literal its proof, and its random fact from 1 on, negative where it is
        denied; samples [root]"""
        root = np.repeat(np.arange(len(counts)), counts)[proof]
        size = max(len(group_of), 1)
        slots, slot = _numbered(samples[root] * size + np.abs(literals) - 1)
        owner, variables = slots // size, slots % size
        first = np.searchsorted(owner, samples)
        places = slot - first[root]
        words = max(1, -(-(int(places.max(initial=0)) + 1) // 64))
        bits = zeros((len(counts), k, 2 * words), np.uint64)
        place = proof - offsets_of(counts)[root]
        word = places // 64 + words * (literals < 0)
        np.bitwise_or.at(bits, (root, place, word), np.uint64(1) << (places % 64).astype(np.uint64))
        return ProofBits(variables, numbered_groups(owner, group_of[variables]), first, bits, counts)

    @property
    def polynomial(self) -> Polynomial:
        """The probability that one of the proofs of each root holds, by inclusion and exclusion."""
        from derivable.datalog.kernels.proof_terms import proof_terms

        sizes = np.zeros(4, np.int64)
        given = self.bits, self.counts, self.first, self.groups, int(self.groups.max(initial=-1)) + 1
        none = np.empty(0, np.int64)
        if self.counts.max(initial=0) <= FEW:
            # An upper bound: each subset of proofs with all literals of them; few may deny a value.
            literals = np.bitwise_count(self.bits).sum(axis=(1, 2), dtype=np.int64)
            subsets = (1 << self.counts) - 1
            factors = int((subsets * literals).sum())
            members = factors if self.bits[:, :, self.bits.shape[2] // 2 :].any() else 0
            terms = int(subsets.sum())
        else:
            proof_terms(*given, sizes, none, none, none, none, none, none)
            terms, factors, _, members = sizes.tolist()
        lengths = terms, terms, terms + 1, factors, members + 1, members
        arrays = [empty(length, np.int64) for length in lengths]
        arrays[2][0] = arrays[4][0] = 0
        proof_terms(*given, sizes, *arrays)
        terms, factors, sums, members = sizes.tolist()
        lengths = terms, terms, terms + 1, factors, sums + 1, members
        return Polynomial(*(array[:length] for array, length in zip(arrays, lengths)))
