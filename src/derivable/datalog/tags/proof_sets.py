"""The kin of topkproofs: all proofs, proofs that are drawn, and proofs with clauses for negated tuples.

Their tags are numbers of proof sets as those of `topkproofs`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.core import splitmix64
from derivable.datalog.kernels.proofs import ONE, ZERO
from derivable.datalog.tables.tag_columns import reduce_segments
from derivable.datalog.tags.proof_table import Proof, ProofTable, TableTags
from derivable.datalog.tags.topkproofs import ProofTags, TopProofTags


class _AllProofs(ProofTable):
    """Every proof, those that contain others too: with a and b, a set times itself has a, b, and a with b."""

    absorbs = False

    def best(self, proofs: set[Proof]) -> int:
        self.deadline.remaining()
        return self.id_of(tuple(sorted(proofs)))


class ShownProofTags(TopProofTags):
    """topkproofsdebug: the user sees the probability and the proofs, each the set of its facts: n for random fact n, ~n
    where it is not."""

    def show(self, tags: np.ndarray) -> np.ndarray:
        proofs = [frozenset(map(_facts_of, self.store.proofs_of(tag))) for tag in tags.tolist()]
        return _objects(list(zip(super().show(tags).tolist(), proofs)))

    def is_shown(self, tags: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return super().is_shown(tags, np.array([probability for probability, _ in shown], np.float64))

    def weights(self, tags: np.ndarray) -> np.ndarray:
        return super().show(tags)


class AllProofTags(TableTags):
    """proofs: the user sees the proofs alone."""

    table_class = _AllProofs

    def show(self, tags: np.ndarray) -> np.ndarray:
        known = {t: frozenset(map(_facts_of, self.table.sets[t])) for t in set(tags.tolist())}
        return _objects([known[t] for t in tags.tolist()])

    def is_shown(self, tags: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return ~self.is_zero(tags)

    def weights(self, tags: np.ndarray) -> np.ndarray:
        return np.ones(len(tags))


def _objects(values: Sequence[Any]) -> np.ndarray:
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _facts_of(proof: Proof) -> frozenset[int]:
    return frozenset(literal - 1 if literal > 0 else literal for literal in proof)


class _SampledProofs(ProofTable):
    """k proofs that are drawn one after the other by their probabilities, without replacement.

    Each proof has a random number for the whole run, and the k stay for which an exponential variable of the rate
    of their probability is least. So the sum of proof sets is commutative, associative and idempotent, and a recursion
    has a fixpoint. A proof that contains another one is one more, as it may be drawn before that.

    Source: P. Efraimidis and P. Spirakis, Weighted random sampling with a reservoir, 2006.
    """

    absorbs = False

    def rank(self, proof: Proof) -> float:
        chance = self.chance(proof)
        return -math.log(_uniform((self.facts.seed, *proof))) / chance if chance > 0.0 else math.inf


def _uniform(key: tuple[int, ...]) -> float:
    """A number in (0, 1) that follows from the key."""
    return ((splitmix64.finalized(hash(key)) >> 11) + 0.5) / (1 << 53)


class SampledProofTags(TableTags):
    """samplekproofs: `seed` of the run says which proofs are drawn."""

    table_class = _SampledProofs


class ClauseTags(ProofTags):
    """topbottomkclauses: a tag is a set of at most k proofs, or, as ~number, the negation of one.

    Negation is exact, as it only changes the sign. The negation of a proof is a clause, so a negated set is a
    conjunction of clauses, of which plus and times keep the k least probable: by De Morgan those of the k most probable
    proofs. Where sets of both signs meet, the negated one becomes its k most probable proofs.
    """

    def negate(self, a: np.ndarray) -> np.ndarray:
        return np.where((a == ZERO) | (a == ONE), ONE - a, ~a)

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._joined("plus", "times", ZERO, a, b)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._joined("times", "plus", ONE, a, b)

    def _joined(self, operation: str, dual: str, neutral: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """An operation, whose dual is the one on the sets that negated tags negate."""
        joined = np.where(a == neutral, b, a)
        absorbing = ONE + ZERO - neutral
        joined[(a == absorbing) | (b == absorbing)] = absorbing
        open_rows = (a > ONE) | (a < 0)
        open_rows &= (b > ONE) | (b < 0)
        both = np.flatnonzero(open_rows & (a < 0) & (b < 0))
        joined[both] = self.negate(getattr(super(), dual)(~a[both], ~b[both]))
        rest = np.flatnonzero(open_rows & ((a >= 0) | (b >= 0)))
        joined[rest] = getattr(super(), operation)(self._proofs(a[rest]), self._proofs(b[rest]))
        return joined

    def _proofs(self, a: np.ndarray) -> np.ndarray:
        """The proofs of tags, the k most probable ones where a tag is a negated set."""
        sets, negated = a.copy(), np.flatnonzero(a < 0)
        sets[negated] = super().negate(~a[negated])
        return sets

    def reduce(self, tags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return reduce_segments(tags, offsets, self.plus)

    def saturated(self, old: np.ndarray, new: np.ndarray) -> np.ndarray:
        is_saturated = old == new
        # Equal sets may have several numbers; sums of positive ones keep that of the first.
        for row in np.flatnonzero((old < 0) & (new < 0) & ~is_saturated).tolist():
            is_saturated[row] = {*self.store.proofs_of(~old[row])} == {*self.store.proofs_of(~new[row])}
        return is_saturated

    def probabilities(self, tags: np.ndarray, p: Sequence[Any] | None = None) -> list[Any]:
        values = super().probabilities(np.where(tags < 0, ~tags, tags), p)
        return [1.0 - x if negated else x for x, negated in zip(values, (tags < 0).tolist())]

    def show(self, tags: np.ndarray) -> np.ndarray:
        values = super().show(np.where(tags < 0, ~tags, tags))
        return np.where(tags < 0, 1.0 - values, values)

    def is_shown(self, tags: np.ndarray, shown: np.ndarray) -> np.ndarray:
        is_visible, rows = shown != 0.0, np.flatnonzero(tags >= 0)
        is_visible[rows] = super().is_shown(tags[rows], shown[rows])
        return is_visible
