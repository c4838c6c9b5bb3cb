"""Worlds: which random facts hold, given the evidence. The most probable ones, samples, and expected counts.

The circuit of the evidence is walked with the probabilities of the facts. A derivation of it says of some facts whether
they hold. The others are open: an independent fact may be either, and a choice may fall on any of its facts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from derivable.circuit.fold.evaluate import value_and_gradient
from derivable.circuit.fold.fold_rows import fold_shares
from derivable.circuit.fold.plan import plan_of
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.queries.most_probable import Alternatives, best_derivations, models_by_weight
from derivable.circuit.queries.sample import draw, shares_of_edges
from derivable.circuit.queries.transform import without_absences
from derivable.core.graph import offsets_of
from derivable.datalog.exact.evidence import Conditioned
from derivable.device.cpu.memory import empty

# Assignments of some tuples that are evaluated together.
TOGETHER = 32


@dataclass(frozen=True, eq=False)
class WorldSpace:
    """The worlds that agree with evidence.

    evidence            its circuit
    fact_probabilities  [fact] the probabilities of the random facts
    groups              [choice][fact] the facts of which exactly one holds
    matters             bool [fact] whether worlds may differ in the fact; the others are as they most probably are
    num_queried         how many of the last items of the evidence were not observed, but are queried
    """

    evidence: Conditioned
    fact_probabilities: np.ndarray
    groups: Sequence[np.ndarray]
    matters: np.ndarray
    num_queried: int = 0

    @cached_property
    def is_choice(self) -> np.ndarray:
        """bool [variable]; behind the facts are the indicators of evidence."""
        return np.append(self.evidence.is_exclusive, np.zeros(len(self.evidence.items), bool))

    @cached_property
    def circuit(self) -> Circuit:
        """That of the evidence. Of a choice it says which fact holds, and of no other one that it does not."""
        return without_absences(self.evidence.circuit, self.is_choice)

    @cached_property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """[variable] of positive literals, and of negative ones, which are one for the facts of a choice."""
        positive = np.append(self.fact_probabilities, [float(item.is_true) for item in self.evidence.items])
        return positive, np.where(self.is_choice, 1.0, 1.0 - positive)

    @cached_property
    def logs(self) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(divide="ignore"):
            return np.log(self.weights[0]), np.log(self.weights[1])

    def log_evidence(self) -> float:
        """Raises DomainError for evidence that holds in no world, with the item."""
        log = self._log_of([()])[0]
        if log == -np.inf:
            raise self.evidence.impossible(self.fact_probabilities.tolist(), self.signs)
        return log

    @cached_property
    def signs(self) -> np.ndarray:
        """bool [item]"""
        return np.array([item.is_true for item in self.evidence.items], bool)

    def log_probabilities(self, worlds: np.ndarray) -> np.ndarray:
        """[world] the logarithms of the probabilities of what matters in worlds bool [world, fact], by themselves."""
        positive, negative = (logs[: len(self.fact_probabilities)] for logs in self.logs)
        return np.where(worlds, positive, negative)[:, self.matters].sum(1)

    # The most probable worlds

    def most_probable(self) -> Iterator[np.ndarray]:
        """Worlds bool [fact], by falling probability."""
        positive, negative = self.logs
        choices = self._alternatives()
        largest = np.where(self.is_choice, positive[choices.default[choices.choice]], np.maximum(positive, negative))
        circuit = self.circuit
        negative = np.where(self.is_choice, 0.0, negative - largest)
        log_best = best_derivations(circuit, (positive - largest)[None], negative[None])
        for model in models_by_weight(circuit, int(circuit.roots[0]), log_best, choices):
            yield model[: len(self.fact_probabilities)]

    def _alternatives(self) -> Alternatives:
        positive, negative = self.logs
        size = len(positive)
        best, choice, default = positive > negative, np.arange(size), np.arange(size)
        best[self.is_choice] = False
        worse = np.minimum(positive, negative) - np.maximum(positive, negative)
        for group in self.groups:
            first = group[np.argmax(positive[group])]
            best[first], choice[group], default[group] = True, first, first
            worse[group] = positive[group] - positive[first]
            worse[first] = -np.inf
        matters = np.append(self.matters, np.zeros(len(self.evidence.items), bool))
        others = np.flatnonzero(matters & (worse > -np.inf))
        others = others[np.lexsort((others, -worse[others], choice[others]))]
        offsets = offsets_of(np.bincount(choice[others], minlength=size))
        return Alternatives(
            best, choice, default, offsets, others, self.is_choice[others] | ~best[others], worse[others]
        )

    # Samples and sums

    def sample(self, count: int, seed: int) -> np.ndarray:
        """Worlds bool [sample, fact], each with its probability given the evidence."""
        circuit = self.circuit
        positive, negative = self.weights
        values = fold_shares(plan_of(circuit).of_all_nodes(), np.frexp(positive[None]), np.frexp(negative[None]))
        shares = shares_of_edges(circuit, values[0][0], values[1][0])
        drawn = empty((count, len(positive)), np.int8)
        stream, rest = np.random.SeedSequence(seed % 2**64).spawn(2)
        first = stream.generate_state(1, np.uint64)[0]
        draw(circuit, int(circuit.roots[0]), shares, np.where(self.is_choice, 0.0, positive), first, drawn)
        worlds = drawn.view(np.bool_)[:, : len(self.fact_probabilities)]
        # Row by row, so that the first samples of more are those of fewer.
        random = np.random.default_rng(rest).random((count, len(self.groups)))
        for number, group in enumerate(self.groups):
            ends = np.cumsum(self.fact_probabilities[group])
            picked = np.minimum(np.searchsorted(ends, random[:, number] * ends[-1], "right"), len(group) - 1)
            is_open = ~worlds[:, group].any(1)
            worlds[np.flatnonzero(is_open), group[picked[is_open]]] = True
        return worlds

    def expected(self) -> np.ndarray:
        """[fact] the probability of each random fact given the evidence."""
        positive, negative = self.logs
        _, holds, fails = value_and_gradient(self.circuit, positive, negative, "log")
        assert holds is not None
        assert fails is not None
        holds, fails = holds[: len(self.fact_probabilities)], fails[: len(self.fact_probabilities)]
        is_open = 1.0 - holds - fails
        for group in self.groups:
            is_open[group] = 1.0 - holds[group].sum()
        return np.clip(holds + np.maximum(is_open, 0.0) * self.fact_probabilities, 0.0, 1.0)

    # Some tuples, summed over all else

    def assignments(self) -> Iterator[tuple[tuple[bool, ...], float]]:
        """(what the items are that are queried, the logarithm of the probability of that and of the evidence), by
        falling probability.

        The probability of what the first items are bounds that of all of them: the best bound is followed first.
        """
        # (minus log probability, number, what the first items are)
        heap: list[tuple[float, int, tuple[bool, ...]]] = [(-self._log_of([()])[0], 0, ())]
        number = 1
        while heap:
            if len(heap[0][2]) == self.num_queried:
                negated, _, values = heapq.heappop(heap)
                yield values, -negated
                continue
            some: list[tuple[bool, ...]] = []
            while heap and len(some) < TOGETHER and len(heap[0][2]) < self.num_queried:
                some.append(heapq.heappop(heap)[2])
            longer = [(*values, is_true) for values in some for is_true in (True, False)]
            for values, log in zip(longer, self._log_of(longer)):
                if log > -np.inf:
                    heapq.heappush(heap, (-log, number, values))
                    number += 1

    def _log_of(self, values: Sequence[tuple[bool, ...]]) -> list[float]:
        """The logarithms of the probabilities of the evidence and of the first ones of the items that are queried."""
        start = len(self.signs) - self.num_queried
        holds = np.ones((len(values), len(self.signs)), bool)
        fails = holds.copy()
        holds[:, :start], fails[:, :start] = self.signs[:start], ~self.signs[:start]
        for row, first in enumerate(values):
            stop = start + len(first)
            holds[row, start:stop] = first
            fails[row, start:stop] = ~holds[row, start:stop]
        return self.evidence.logs(self.fact_probabilities.tolist(), holds, fails)[:, 0].tolist()
