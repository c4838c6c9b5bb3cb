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
from derivable.datalog.kernels import proof_fold
from derivable.datalog.kernels.proofs import ONE, ZERO
from derivable.datalog.tables.storage import Table
from derivable.datalog.tags.proof_store import ProofStore
from derivable.datalog.tags.proof_table import ProofTable, possible
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags
from derivable.device.cpu.memory import empty, zeros


class ProofTags(ColumnTags):
    """Tag columns of int64 numbers of sets of proofs; `show` gives probabilities."""

    def __init__(self, facts: RandomFacts, k: int = 3):
        super().__init__(np.int64, ZERO, ONE)
        self.store = ProofStore(facts, k)
        # By branching on facts; it has no other sets.
        self.table = ProofTable(facts, k)

    def watch(self, deadline: Deadline) -> None:
        self.store.deadline = self.table.deadline = deadline

    def copy(self, facts: RandomFacts) -> ProofTags:
        made = type(self)(facts, self.store.k)
        made.store = self.store.copy(facts)
        return made

    def anew(self, facts: RandomFacts) -> ProofTags:
        return type(self)(facts, self.store.k)

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.store.plus(a, b)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.store.times(a, b)

    def reduce(self, tags: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return self.store.reduce(tags, offsets)

    def negate(self, a: np.ndarray) -> np.ndarray:
        return self.store.negate(a)

    def may_deny(self, variables: np.ndarray) -> None:
        self.store.deny(variables)

    def fact_tags(self, variables: np.ndarray) -> np.ndarray:
        return self.store.singles(variables)

    def probabilities(self, tags: np.ndarray, p: Sequence[Any] | None = None) -> list[Any]:
        """See `ProofTable.probabilities`."""
        self.table.refresh()
        known: dict[Any, Any] = self.table.chances if p is None else {}
        p = self.table.facts.probabilities if p is None else p
        proofs = {tag: frozenset(self.store.proofs_of(tag)) for tag in set(tags.tolist())}
        chances = {tag: self.table.probability(sets, p, known) for tag, sets in proofs.items()}
        return [chances[tag] for tag in tags.tolist()]

    def literals_of(self, tags: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(number of proofs [row], the proof of each literal, its random fact from 1 on, negative where it is denied):
        proofs are numbered through all rows."""
        proof, literals = self.store.bits_of(tags)
        return self.store.number_of(tags), proof, self.store.literals.signed(literals)

    def show(self, tags: np.ndarray) -> np.ndarray:
        chances = self.store.probability_of(tags)
        # What has too many proofs for that, which share facts in too many ways.
        left = np.flatnonzero(chances < 0.0)
        chances[left] = self.probabilities(tags[left])
        return chances

    def is_shown(self, tags: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return possible(self.table, self.store.proofs_of, tags, shown)


class TopProofTags(ProofTags):
    """The same, where products are made as rows get them (`ProofFold`): a query has a list of two factors for them."""

    form = "proofs"

    def __init__(self, facts: RandomFacts, k: int = 3):
        super().__init__(facts, k)
        # Of a table of that name: its recent rows, and [row] what is new of their tags.
        self.news: dict[str, tuple[Any, np.ndarray]] = {}

    def load_recent(self, table: Table, rows: Any) -> Any:
        recent, news = self.news.get(table.name, (None, None))
        return self.load(table, rows) if news is None or recent is not table.recent else news[rows]

    def combine(self, a: Any, b: Any) -> Any:
        factors = [factor for factor in (*_listed(a), *_listed(b)) if not _are_ones(factor)]
        while len(factors) > 2:
            factors[:2] = [self.times(*factors[:2])]
        return factors if len(factors) == 2 else factors[0] if factors else _listed(a)[0]

    def take(self, tags: Any, rows: Any) -> Any:
        return [tag[rows] for tag in tags] if isinstance(tags, list) else tags[rows]

    def is_zero(self, a: Any) -> Any:
        if not isinstance(a, list):
            return super().is_zero(a)
        possible = self.store.are_possible(*a)
        return np.zeros(len(a[0]), bool) if possible is None else ~possible

    def fold(self, table: Table, is_recursive: bool) -> ProofFold:
        return ProofFold(table, self, is_recursive)

    def has_dropped(self) -> bool:
        used = self.store.used
        was_dropped, used[proof_fold.LOST] = bool(used[proof_fold.LOST]), 0
        return was_dropped


def _listed(tags: Any) -> list[np.ndarray]:
    return tags if isinstance(tags, list) else [tags]


def _are_ones(tags: np.ndarray) -> bool:
    return not len(tags) or (tags[0] == ONE and bool((tags == ONE).all()))


class ProofFold:
    """What rows of a table get at the end of a round, when their proofs are products that are not made yet.

    news  [row] the set of those proofs of a recent row that it has had since it became recent, None where nobody is
          to read these alone
    last  see `kernels.proof_fold.chain`
    """

    def __init__(self, table: Table, algebra: TopProofTags, is_recursive: bool):
        self.table, self.store, self.news_of = table, algebra.store, algebra.news
        # Who reads the stable rows of a relation combines them with news of another, so that those of this one are to
        # be whole.
        self.news = empty(0, np.int64) if is_recursive and self.store.k > 1 and table.stamps is None else None
        self.last = empty(0, np.int64)

    def merge(self, parts: Sequence[tuple[list[np.ndarray], int, Any]], stamp: int) -> np.ndarray:
        """Insert candidates; the rows that have other proofs than before become recent.

        Returns how many rows of each part are new.
        """
        table, store = self.table, self.store
        sizes = [table.size]
        old, count = table.size, sum(count for _, count, _ in parts)
        (a, b), ids, stop = empty((2, count), np.int64), empty(count, np.int64), 0
        for columns, _, tags in parts:
            first, *rest = tags if isinstance(tags, list) else [tags]
            second = rest[0] if rest else None
            possible = store.are_possible(first, second)
            if possible is not None:
                columns, first = [column[possible] for column in columns], first[possible]
                second = None if second is None else second[possible]
            start, stop = stop, stop + len(first)
            a[start:stop], b[start:stop] = first, ONE if second is None else second
            ids[start:stop] = table.insert(columns, len(first))
            sizes.append(table.size)
        a, b, ids = a[:stop], b[:stop], ids[:stop]
        if not len(a):
            return np.diff(sizes)
        if len(self.last) < table.size:
            self.last = zeros(len(table.log), np.int64)
        if self.news is not None and len(self.news) < table.size:
            # Those of rows that are recent no more are not read.
            self.news = empty(len(table.log), np.int64)
        listed, following = empty((2, len(a)), np.int64)
        listed = listed[: proof_fold.chain(ids, self.last, following, listed)]
        changed = store.fold((listed, self.last, following), a, b, old, table.tags, self.news)
        recent = table.recent = listed[changed]
        if self.news is not None:
            self.news_of[table.name] = recent, self.news
        table.become_recent(recent, stamp)
        return np.diff(sizes)
