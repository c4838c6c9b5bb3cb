"""The kin of topkproofs: all proofs, proofs that are drawn, and proofs with clauses for negated tuples.

Their tags are numbers of proof sets as those of `topkproofs`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.core import splitmix64
from derivable.datalog.tags.custom import Provenance
from derivable.datalog.tags.proof_table import ONE, ZERO, Proof, ProofTable, TableTags


class _AllProofs(ProofTable):
    """Every proof, those that contain others too: with a and b, a set times itself has a, b, and a with b."""

    absorbs = False

    def best(self, proofs: set[Proof]) -> int:
        self.deadline.remaining()
        return self.id_of(tuple(sorted(proofs)))


class ShownProofTags(TableTags):
    """topkproofsdebug: the user sees the probability and the proofs, each the set of its facts: n for random fact n, ~n
    where it is not."""

    def proofs(self, tags: np.ndarray) -> list[frozenset[frozenset[int]]]:
        known = {t: frozenset(map(_facts_of, self.table.sets[t])) for t in set(tags.tolist())}
        return [known[t] for t in tags.tolist()]

    def show(self, tags: np.ndarray) -> np.ndarray:
        return _objects(list(zip(self.probabilities(tags), self.proofs(tags))))

    def kept(self, tags: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return np.array([probability != 0.0 for probability, _ in shown], bool)

    def weights(self, tags: np.ndarray) -> np.ndarray:
        return np.array(self.probabilities(tags), np.float64)


class AllProofTags(ShownProofTags):
    """proofs: the user sees the proofs alone."""

    table_class = _AllProofs

    def show(self, tags: np.ndarray) -> np.ndarray:
        return _objects(self.proofs(tags))

    def kept(self, tags: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return ~self.is_zero(tags)

    def weights(self, tags: np.ndarray) -> np.ndarray:
        return np.ones(len(tags))


def _objects(values: Sequence[Any]) -> np.ndarray:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _facts_of(proof: Proof) -> frozenset[int]:
    return frozenset(literal - 1 if literal > 0 else literal for literal in proof)


class ShortestProof(Provenance):
    """realtropicalproofs: the length of the shortest derivation, and the set of the random facts that it uses."""

    def zero(self) -> Any:
        return math.inf, frozenset()

    def one(self) -> Any:
        return 0.0, frozenset()

    def add(self, a: Any, b: Any) -> Any:
        return a if a[0] < b[0] else b

    def mult(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] | b[1]

    def negate(self, tag: Any) -> Any:
        return None

    def saturated(self, old: Any, new: Any) -> bool:
        return old[0] == new[0]

    def discard(self, tag: Any) -> bool:
        return math.isinf(tag[0])

    def fact(self, tag: Any, variable: int) -> Any:
        return float(tag), frozenset([variable])

    def weight(self, tag: Any) -> float:
        return math.exp(-tag[0])


class _SampledProofs(ProofTable):
    """k proofs that are drawn one after the other by their probabilities, without replacement.

    Each proof has a random number for the whole run, and the k are kept for which an exponential variable of the rate
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


class ClauseTags(TableTags):
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
        found = np.where(a == neutral, b, a)
        absorbing = ONE + ZERO - neutral
        found[(a == absorbing) | (b == absorbing)] = absorbing
        open_rows = (a > ONE) | (a < 0)
        open_rows &= (b > ONE) | (b < 0)
        both = np.flatnonzero(open_rows & (a < 0) & (b < 0))
        found[both] = self.negate(getattr(super(), dual)(~a[both], ~b[both]))
        rest = np.flatnonzero(open_rows & ((a >= 0) | (b >= 0)))
        found[rest] = getattr(super(), operation)(self._proofs(a[rest]), self._proofs(b[rest]))
        return found

    def _proofs(self, a: np.ndarray) -> np.ndarray:
        """The proofs of tags, the k most probable ones where a tag is a negated set."""
        found, negated = a.copy(), np.flatnonzero(a < 0)
        found[negated] = super().negate(~a[negated])
        return found

    def probabilities(self, tags: np.ndarray, p: Sequence[Any] | None = None) -> list[Any]:
        found = super().probabilities(np.where(tags < 0, ~tags, tags), p)
        return [1.0 - x if negated else x for x, negated in zip(found, (tags < 0).tolist())]
