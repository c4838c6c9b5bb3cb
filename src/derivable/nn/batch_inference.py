"""How the tags of a batch become values: semirings, proofs, circuits, and classes of a user's own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from derivable.algebra import semirings
from derivable.algebra.expr.functions import logical_and, logical_or, where
from derivable.algebra.semiring import Semiring
from derivable.core.and_or import LITERAL, TRUE
from derivable.datalog.api.batched import RunBatch
from derivable.datalog.exact.exact import ExactQuery, compiled_form
from derivable.datalog.exact.ground_program import derivations, levelled
from derivable.datalog.exact.parts import Parts
from derivable.datalog.exact.unroll import acyclic, normal_form
from derivable.datalog.run.limits import Watch
from derivable.datalog.tables.tag_columns import parts_of
from derivable.datalog.tags.provenance import EXACT, TOP_PROOFS, Inference, tags_of
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags
from derivable.nn.custom import numbers_of
from derivable.nn.derivations import SemiringInference, adds_conjunctions, require_probabilities_of
from derivable.nn.inference import ExactInference
from derivable.nn.proof_polynomial import probability_of_proofs

MOST_KEPT = 1 << 20
"""Nodes of the circuits that an exact layer keeps for structures that it has met."""
NO_FACT = 1 << 31


def batch_inference_for(record: Semiring | Inference, k: int) -> BatchInference:
    """What evaluates the tags of batches under a provenance. Raises UnsupportedError for one without probabilities."""
    if record is EXACT:
        return ExactBatches()
    if isinstance(record, Semiring):
        return SemiringBatches(record) if _with_facts(record) is None else SelectedFacts(record)
    require_probabilities_of(record)
    if record.instance is not None:
        return OwnBatches(record)
    return ProofBatches(k) if record is TOP_PROOFS and adds_conjunctions(k) else ProofSetBatches(record, k)


class BatchInference(ABC):
    """The values of the tags of a batch.

    columns_of  random facts -> the tag columns that it is run on; None for the ground derivation graph
    """

    columns_of: Callable[[RandomFacts], ColumnTags] | None = None

    @abstractmethod
    def __call__(
        self, found: RunBatch, tags: np.ndarray, samples: np.ndarray, weights: torch.Tensor, watch: Watch
    ) -> Any:
        """tags [row], samples [row] whose, weights [random fact] -> [row], or a nest of such"""

    def are_possible(
        self, found: RunBatch, tags: np.ndarray, samples: np.ndarray, weights: torch.Tensor, watch: Watch
    ) -> np.ndarray:
        """[row] whether tuples are in some world, so that values that are zero have underflown."""
        return np.zeros(len(tags), bool)


class SemiringBatches(BatchInference):
    """The derivations of all samples are one graph, evaluated once."""

    def __init__(self, semiring: Semiring):
        self.semiring = semiring

    def __call__(self, found, roots, samples, weights, watch):
        graph = derivations(found.grounding, roots, {}, self.semiring, watch, is_reused=False)
        module = SemiringInference(graph, [], self.semiring)
        return module.nest([part[0] for part in module.evaluate(weights[None])])

    def are_possible(self, found, tags, samples, weights, watch):
        columns, grounding = tags_of(self.semiring, found.random), found.grounding
        assert grounding is not None
        return ~columns.is_zero(levelled(grounding, tags, {}, self.semiring, watch).evaluate(columns))


class OwnBatches(BatchInference):
    """Tags of a class of one's own, torch scalars: all samples are one run."""

    def __init__(self, provenance: Inference):
        self.provenance = provenance

    def columns_of(self, random: RandomFacts) -> ColumnTags:
        return tags_of(self.provenance, random)

    def __call__(self, found, tags, samples, weights, watch):
        columns: Any = found.columns
        shown: list[Any] = [None] * len(tags)
        there = np.flatnonzero(~columns.is_zero(tags))
        for row, tag in zip(there.tolist(), columns.recovered(tags[there])):
            shown[row] = tag
        return _stacked(numbers_of(self.provenance, shown), weights)


@lru_cache
def _with_facts(record: Semiring) -> Semiring | None:
    """The semiring whose values say which fact they are of, where plus and times choose one of two values, as in
    minmaxprob; else None. (value, n) is of fact n - 1, (value, -n) of its negation; `NO_FACT` is beyond all n.

    Of equal values that of the smaller n is the greater one. So there is one order of values, in which zero is the last
    and one the first, and results do not depend on that in which a run finds derivations. A fact of the value zero has
    a derivative, so that nothing is discarded.
    """
    if record.is_exact or not record.is_scalar or record.carrier != "float" or record.fact or record.show:
        return None
    typed, ends = record.typed(), ("min", "max")
    is_plain = record.complement is semirings.godel.complement and record.saturated is record.discard is None
    if typed.plus.special not in ends or typed.times.special not in ends or not is_plain:
        return None

    def choosing(operation: str | None) -> Callable[[Any, Any], Any]:
        def choose(a: Any, b: Any) -> Any:
            less, greater = (b, a) if operation == "max" else (a, b)
            first = logical_or(less[0] < greater[0], logical_and(a[0] == b[0], greater[1] <= less[1]))
            return where(first, a[0], b[0]), where(first, a[1], b[1])

        return choose

    return Semiring(
        f"{record.name} of facts",
        choosing(typed.plus.special),
        choosing(typed.times.special),
        zero=(float(record.zero), NO_FACT if typed.plus.special == "max" else -NO_FACT),
        one=(float(record.one), -NO_FACT if typed.plus.special == "max" else NO_FACT),
        domain=(record.domains[0], (-math.inf, math.inf)),
        complement=lambda a: (1 - a[0], -a[1]),
        fact=lambda tag, variable: (tag, variable + 1),
        weight=lambda a: a[0],
        idempotent_plus=True,
        selective_plus=True,
        idempotent_times=True,
        absorptive=record.absorptive,
        differentiable=False,
    )


class SelectedFacts(BatchInference):
    """The value of an output is that of one fact, which its tag names, and so is its derivative."""

    def __init__(self, semiring: Semiring):
        self.semiring = semiring

    def columns_of(self, random: RandomFacts) -> ColumnTags:
        traced = _with_facts(self.semiring)
        assert traced is not None
        return tags_of(traced, random)

    def __call__(self, found, tags, samples, weights, watch):
        constants, facts = (torch.from_numpy(np.ascontiguousarray(part)).to(weights.device) for part in parts_of(tags))
        if not len(weights):
            return constants.to(weights)
        is_fact = facts.abs() < NO_FACT
        chosen = weights[torch.where(is_fact, facts.abs() - 1, 0)]
        return torch.where(is_fact, torch.where(facts > 0, chosen, 1 - chosen), constants.to(weights))


class ProofSetBatches(BatchInference):
    """Sets of proofs: which proofs they are has no derivative, and the probability that one of them holds has."""

    def __init__(self, provenance: Inference, k: int):
        self.provenance, self.k = provenance, k

    def columns_of(self, random: RandomFacts) -> ColumnTags:
        return tags_of(self.provenance, random, self.k)

    def __call__(self, found, tags, samples, weights, watch):
        columns: Any = found.columns
        return _stacked(columns.probabilities(tags, weights.unbind()), weights)

    def are_possible(self, found, tags, samples, weights, watch):
        columns: Any = found.columns
        return columns.is_shown(tags, np.zeros(len(tags)))


def _stacked(values: Sequence[Any], weights: torch.Tensor) -> torch.Tensor:
    """[row] of numbers and scalars of torch; all depend on the weights, so that there is a derivative, which may be
    zero."""
    zero = weights[:0].sum()
    return torch.stack([zero + value for value in values] or [zero])[: len(values)]


class ExactBatches(BatchInference):
    """Samples whose derivations have the same structure share a circuit, which is compiled once and kept."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Hashable, ExactInference] = OrderedDict()
        self.size = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"kept": OrderedDict(), "size": 0}

    def __call__(self, found, tags, samples, weights, watch, out_logs=False):
        grounding: Any = found.grounding
        form = normal_form(acyclic(grounding.graph.with_roots(tags), watch))
        # Of each sample the nodes that are no constants, once each and in their order: neither what is wanted nor its
        # order is part of the structure.
        is_open = form.kind[form.roots] >= LITERAL
        pairs, where = np.unique(samples[is_open] * form.num_nodes + form.roots[is_open], return_inverse=True)
        root_offsets = np.searchsorted(pairs, form.num_nodes * np.arange(found.batch + 1))
        parts = Parts.of(form.with_roots(pairs % form.num_nodes), root_offsets, found.random.group_of(), True)
        same: dict[Hashable, list[int]] = {}
        for number in np.flatnonzero(np.diff(root_offsets)).tolist():
            same.setdefault(parts.key(number), []).append(number)
        # The constants come first, as zeros and ones that have a derivative.
        values = [weights[:0].sum() + weights.new_tensor([-math.inf, 0.0] if out_logs else [0.0, 1.0])]
        places, start = np.empty(len(pairs), np.int64), 2
        for key, numbers in same.items():
            inference, chosen = self.compiled(key, parts, numbers[0], watch), np.array(numbers)
            low, high = parts.variable_offsets[numbers[0] : numbers[0] + 2]
            slots = parts.variable_offsets[chosen, None] + np.arange(high - low)
            rows = weights[torch.from_numpy(parts.variables[slots]).to(weights.device)]
            values.append(inference([rows], False, out_logs).flatten())
            count = int(root_offsets[numbers[0] + 1] - root_offsets[numbers[0]])
            own = np.arange(len(numbers) * count).reshape(-1, count)
            places[root_offsets[chosen, None] + np.arange(count)] = start + own
            start += own.size
        place = (form.kind[form.roots] == TRUE).astype(np.int64)
        place[is_open] = places[where.reshape(-1)]
        return torch.cat(values)[torch.from_numpy(place).to(weights.device)]

    def are_possible(self, found, tags, samples, weights, watch):
        with torch.no_grad():
            return self(found, tags, samples, weights.double(), watch, True).numpy(force=True) > -np.inf

    def compiled(self, key: Hashable, parts: Parts, number: int, watch: Watch) -> ExactInference:
        """The circuit of parts of one structure."""
        known = self.kept.get(key)
        if known is not None:
            self.kept.move_to_end(key)
            return known
        graph, groups = parts.part(number)
        count, num_groups = len(groups), int(groups.max(initial=-1)) + 1
        members = [np.flatnonzero(groups == group) + 1 for group in range(num_groups)]
        circuit = compiled_form(graph, count, members, watch, f" of sample {number}")
        query = ExactQuery(circuit, {"": np.arange(count)}, groups >= 0, np.empty(0, np.int64), np.empty(0))
        made = self.kept[key] = ExactInference(query, [""])
        self.size += circuit.num_nodes
        while self.size > MOST_KEPT and len(self.kept) > 1:
            self.size -= self.kept.popitem(last=False)[1].circuit.num_nodes
        return made


class ProofBatches(ProofSetBatches):
    """The k most probable proofs of each output, and the exact probability that one of them holds: a polynomial, by
    inclusion and exclusion."""

    def __init__(self, k: int):
        super().__init__(TOP_PROOFS, int(k))

    def __call__(self, found, tags, samples, weights, watch):
        columns: Any = found.columns
        return probability_of_proofs(columns.literals_of(tags), samples, found.random.group_of(), self.k, weights)
