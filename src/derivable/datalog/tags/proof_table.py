"""Sets of proofs in a table of Python tuples: what provenances of proofs mean, and their engine where sets are odd.

A proof is a set of literals over the random facts; a tag is a number in a table of proof sets (DNFs), so tag columns
are int64 and equal sets have equal tags. Exclusive facts are respected twice: a proof never uses two of one choice,
and the probability of a set is computed by branching on the choice. A proof that contains another one is dropped, which
leaves room for k different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from derivable.core.progress import NEVER, Deadline
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags

Proof = tuple[int, ...]
Proofs = tuple[Proof, ...]
ZERO, ONE = 0, 1
# Proofs, or pairs of tags, between two looks at the clock.
LOOKS = 64


class ProofTable:
    """Hash-consed proof sets over signed 1-based variables, with memoised operations."""

    # Whether proofs that contain another one are dropped; then a set times itself is the set.
    absorbs = True

    def __init__(self, facts: RandomFacts, k: int):
        self.facts = facts
        # Sets of many proofs take long, so their operations look at the clock of the run.
        self.deadline = NEVER
        self.k = k
        self.sets: list[Proofs] = [(), ((),)]
        self.ids: dict[Proofs, int] = {(): ZERO, ((),): ONE}
        self.group: list[int] = []
        self.members: list[list[int]] = []
        self.memo: dict[tuple[str, int, int], int] = {}
        self.chances: dict[frozenset[Proof], float] = {}

    def refresh(self) -> None:
        """Read the groups again: a run adds random facts as it goes."""
        if len(self.members) == len(self.facts.groups):
            # Coins of rules come in every round, and are in no group.
            self.group += [-1] * (len(self.facts.probabilities) - len(self.group))
        else:
            self.group = self.facts.group_of().tolist()
            self.members = [g.tolist() for g in self.facts.groups]

    def id_of(self, proofs: Proofs) -> int:
        number = self.ids.get(proofs)
        if number is None:
            # In this order, so that a Ctrl-C in between does no harm.
            number = len(self.sets)
            self.sets.append(proofs)
            self.ids[proofs] = number
        return number

    def chance(self, proof: Proof) -> float:
        """The probability of one proof."""
        p = self.facts.probabilities
        result = 1.0
        excluded: dict[int, float] = {}
        for literal in proof:
            v = abs(literal) - 1
            if literal > 0:
                result *= p[v]
            elif self.group[v] < 0:
                result *= 1.0 - p[v]
            else:
                excluded[self.group[v]] = excluded.get(self.group[v], 0.0) + p[v]
        for sum_excluded in excluded.values():
            result *= max(0.0, 1.0 - sum_excluded)
        return result

    def is_possible(self, proof: Proof) -> bool:
        """Whether a proof holds in some world, however improbable."""
        self.refresh()
        p = self.facts.probabilities
        excluded: dict[int, float] = {}
        for literal in proof:
            v = abs(literal) - 1
            if literal > 0:
                if p[v] == 0.0:
                    return False
            elif self.group[v] < 0:
                if p[v] == 1.0:
                    return False
            else:
                excluded[self.group[v]] = excluded.get(self.group[v], 0.0) + p[v]
        return all(total < 1.0 for total in excluded.values())

    def merged(self, a: Proof, b: Proof) -> Proof | None:
        """The proof that needs both, None if they contradict each other."""
        literals = set(a) | set(b)
        chosen: dict[int, int] = {}
        excluded: dict[int, int] = {}
        for literal in literals:
            if -literal in literals:
                return None
            g = self.group[abs(literal) - 1]
            if g >= 0:
                if literal > 0:
                    if chosen.setdefault(g, literal) != literal:
                        return None
                else:
                    excluded[g] = excluded.get(g, 0) + 1
        for g, number in excluded.items():
            if g in chosen:
                literals = {x for x in literals if x > 0 or self.group[-x - 1] != g}
            elif number == len(self.members[g]):
                return None
        return tuple(sorted(literals))

    def rank(self, proof: Proof) -> float:
        """By what proofs are ordered; the least comes first."""
        return -self.chance(proof)

    def best(self, proofs: set[Proof]) -> int:
        """The tag of the first k of these proofs, by their rank."""
        ranked = sorted(proofs, key=lambda proof: (self.rank(proof), len(proof), proof))
        if self.absorbs:
            minimal: set[frozenset[int]] = set()
            for number, proof in enumerate(sorted(ranked, key=len)):
                if number % LOOKS == 0:
                    self.deadline.remaining()
                candidate = frozenset(proof)
                if not any(other <= candidate for other in minimal):
                    minimal.add(candidate)
            ranked = [proof for proof in ranked if frozenset(proof) in minimal]
        return self.id_of(tuple(sorted(ranked[: self.k])))

    def plus(self, a: int, b: int) -> int:
        if a in (ZERO, b):
            return b
        if b == ZERO:
            return a
        return self.best(set(self.sets[a]) | set(self.sets[b]))

    def times(self, a: int, b: int) -> int:
        if a == ZERO or b == ZERO:
            return ZERO
        if a == ONE or (a == b and self.absorbs):
            return b
        if b == ONE:
            return a
        products: set[Proof | None] = set()
        for x in self.sets[a]:
            self.deadline.remaining()
            products |= {self.merged(x, y) for y in self.sets[b]}
        return self.best({p for p in products if p is not None})

    def negate(self, a: int, _: int = 0) -> int:
        result = {()}
        for proof in self.sets[a]:
            products = {self.merged(x, (-literal,)) for x in result for literal in proof}
            result = set(self.sets[self.best({p for p in products if p is not None})])
        return self.best(result)

    def column(self, operation: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """An operation on two tag columns; each distinct pair is computed once."""
        self.refresh()
        pairs, where = np.unique(np.stack([a, b], axis=1), axis=0, return_inverse=True)
        results = np.empty(len(pairs), dtype=np.int64)
        compute = getattr(self, operation)
        for i, (x, y) in enumerate(pairs.tolist()):
            if i % LOOKS == 0:
                self.deadline.remaining()
            key = (operation, x, y)
            ids = self.memo.get(key)
            if ids is None:
                ids = self.memo[key] = compute(x, y)
            results[i] = ids
        return results[where.reshape(-1)]

    def probability(self, proofs: frozenset[Proof], p: Sequence[Any], known: dict[frozenset[Proof], Any]) -> Any:
        """The exact probability that one of the proofs holds, by branching on a fact or a choice.

        p      the probabilities of facts, numbers of any kind, such as tensors without dimensions
        known  the probabilities computed with them
        """
        # Sets of thousands of facts are branched on one by one, deeper than Python's stack.
        pending: list[tuple[frozenset[Proof], list[tuple[Any, frozenset[Proof]]] | None]] = [(proofs, None)]
        while pending:
            subject, branches = pending.pop()
            if branches is not None:
                known[subject] = sum((weight * known[rest] for weight, rest in branches), 0.0)
            elif subject not in known:
                if not subject or () in subject:
                    known[subject] = 1.0 if subject else 0.0
                    continue
                branches = self._branches(subject, p)
                pending.append((subject, branches))
                pending.extend((rest, None) for _, rest in branches)
        return known[proofs]

    def _branches(self, proofs: frozenset[Proof], p: Sequence[Any]) -> list[tuple[Any, frozenset[Proof]]]:
        """Pairs of a probability and the proofs that it leaves, by the variable that most proofs name."""
        self.deadline.remaining()
        counts: dict[int, int] = {}
        for proof in proofs:
            for literal in proof:
                counts[abs(literal)] = counts.get(abs(literal), 0) + 1
        variable = max(counts, key=lambda v: (counts[v], -v))
        g = self.group[variable - 1]
        options = [v + 1 for v in self.members[g] if v + 1 in counts] if g >= 0 else [variable]
        branches = [(p[option - 1], _restricted(proofs, options, option)) for option in options]
        rest = 1.0
        for weight, _ in branches:
            rest = rest - weight
        # Of a tensor the derivative counts too where nothing remains.
        if not isinstance(rest, float) or rest > 0.0:
            branches.append((rest, _restricted(proofs, options, 0)))
        return branches

    def probabilities(self, tags: np.ndarray, p: Sequence[Any] | None = None) -> list[Any]:
        """Those of sets [row], with the probabilities of facts, which are those of the run by default."""
        self.refresh()
        known = self.chances if p is None else {}
        p = self.facts.probabilities if p is None else p
        chances = {t: self.probability(frozenset(self.sets[t]), p, known) for t in set(tags.tolist())}
        return [chances[t] for t in tags.tolist()]


def _restricted(proofs: frozenset[Proof], options: list[int], true: int) -> frozenset[Proof]:
    """The proofs where `true` is the one true variable of `options` (0: none of them is)."""
    proofs_left = set()
    fixed = set(options)
    for proof in proofs:
        rest = []
        for literal in proof:
            if abs(literal) not in fixed:
                rest.append(literal)
            elif (literal > 0) != (abs(literal) == true):
                break
        else:
            proofs_left.add(tuple(rest))
    return frozenset(proofs_left)


class TableTags(ColumnTags):
    """Tag columns of int64 numbers of proof sets; `show` gives probabilities."""

    table_class: type[ProofTable] = ProofTable

    def __init__(self, facts: RandomFacts, k: int = 3):
        super().__init__(np.int64, ZERO, ONE)
        self.table = self.table_class(facts, k)

    def watch(self, deadline: Deadline) -> None:
        self.table.deadline = deadline

    def copy(self, facts: RandomFacts) -> TableTags:
        made = type(self)(facts, self.table.k)
        made.table.sets, made.table.ids = [*self.table.sets], dict(self.table.ids)
        return made

    def plus(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.table.column("plus", a, b)

    def times(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.table.column("times", a, b)

    def negate(self, a: np.ndarray) -> np.ndarray:
        return self.table.column("negate", a, np.zeros_like(a))

    def fact_tags(self, variables: np.ndarray) -> np.ndarray:
        self.table.refresh()
        return np.array([self.table.id_of(((v + 1,),)) for v in variables.tolist()], dtype=np.int64)

    def probabilities(self, tags: np.ndarray, p: Sequence[Any] | None = None) -> list[Any]:
        """See `ProofTable.probabilities`."""
        return self.table.probabilities(tags, p)

    def show(self, tags: np.ndarray) -> np.ndarray:
        return np.array(self.probabilities(tags), np.float64)

    def is_shown(self, tags: np.ndarray, shown: np.ndarray) -> np.ndarray:
        return possible(self.table, self.table.sets.__getitem__, tags, shown)


def possible(
    table: ProofTable, proofs_of: Callable[[int], Iterable[Proof]], tags: np.ndarray, chances: np.ndarray
) -> np.ndarray:
    """[row] whether some proof of a tag is possible, which one whose probability underflows is too."""
    is_possible = chances != 0.0
    for row in np.flatnonzero(~is_possible).tolist():
        is_possible[row] = any(map(table.is_possible, proofs_of(int(tags[row]))))
    return is_possible
