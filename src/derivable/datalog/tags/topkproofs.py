"""topkproofs: the k most probable proofs of a tuple, and the exact probability that one of them holds.

A proof is a set of literals over the random facts. Exclusive facts are respected twice: a proof never uses two of one
choice, and the probability of a set is computed by branching on the choice (Scallop multiplies them as if independent).
A proof that contains another one is dropped, which leaves room for k different ones (Scallop keeps both).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.core.progress import Deadline
from derivable.datalog.kernels.proofs import ONE, ZERO
from derivable.datalog.tags.proof_store import ProofStore
from derivable.datalog.tags.proof_table import ProofTable
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags


class ProofTags(ColumnTags):
    """Tag columns of int64 numbers of sets of proofs; `show` gives probabilities."""

    def __init__(self, facts: RandomFacts, k: int = 3):
        super().__init__(np.int64, ZERO, ONE)
        self.store = ProofStore(facts, k)
        # By branching on facts; it has no sets of its own.
        self.table = ProofTable(facts, k)

    def watch(self, deadline: Deadline) -> None:
        self.store.deadline = self.table.deadline = deadline

    def copy(self, facts: RandomFacts) -> ProofTags:
        made = type(self)(facts, self.store.k)
        made.store = self.store.copy(facts)
        return made

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.store.plus(a, b)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.store.times(a, b)

    def reduce(self, tags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return self.store.reduce(tags, offsets)

    def negate(self, a: np.ndarray) -> np.ndarray:
        return self.store.negate(a)

    def fact_tags(self, variables: np.ndarray) -> np.ndarray:
        return self.store.singles(variables)

    def probabilities(self, tags: np.ndarray, p: Sequence[Any] | None = None) -> list[Any]:
        """See `ProofTable.probabilities`."""
        self.table.refresh()
        known: dict[Any, Any] = self.table.chances if p is None else {}
        p = self.table.facts.probabilities if p is None else p
        proofs = {tag: frozenset(self.store.proofs_of(tag)) for tag in set(tags.tolist())}
        found = {tag: self.table.probability(given, p, known) for tag, given in proofs.items()}
        return [found[tag] for tag in tags.tolist()]

    def literals_of(self, tags: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(number of proofs [row], the proof of each literal, its random fact from 1 on, negative where it is denied):
        proofs are numbered through all rows."""
        proof, literals = self.store.bits_of(tags)
        return self.store.number_of(tags), proof, self.store.literals.signed(literals)

    def show(self, tags: np.ndarray) -> np.ndarray:
        found = self.store.chances_of(tags)
        # What has too many proofs for that, which share facts in too many ways.
        left = np.flatnonzero(found < 0.0)
        found[left] = self.probabilities(tags[left])
        return found

    def kept(self, tags: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return shown != 0.0
