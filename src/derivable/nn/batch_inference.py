"""How the tags of a batch become values: semirings, proofs, circuits, and classes of a user's own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from derivable.algebra import semirings
from derivable.algebra.expr.functions import logical_and, logical_or, where
from derivable.algebra.semiring import Semiring
from derivable.core.and_or import LITERAL, TRUE
from derivable.core.graph import offsets_of
from derivable.datalog.api.batched import RunBatch
from derivable.datalog.exact.exact import ExactQuery, compiled_form
from derivable.datalog.exact.ground_program import levelled
from derivable.datalog.exact.parts import Parts, numbered_groups
from derivable.datalog.exact.unroll import normal_form
from derivable.datalog.run.limits import Watch
from derivable.datalog.tables.tag_columns import parts_of
from derivable.datalog.tags.provenance import EXACT, TOP_PROOFS, Inference, tags_of
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags
from derivable.device.cpu.memory import empty, zeros
from derivable.nn.custom import numbers_of
from derivable.nn.derivations import SemiringInference, adds_conjunctions, require_probabilities_of
from derivable.nn.inference import ExactInference

# Proofs of which all subsets are few.
FEW = 4
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
    if record.own is not None:
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
        graph = levelled(found.grounding, roots, {}, self.semiring, watch)
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
        return columns.kept(tags, np.zeros(len(tags)))


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
        form = normal_form(grounding.graph.with_roots(tags), watch)
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
        counts, proof, literals = columns.literals_of(tags)
        variables, group_of = np.abs(literals) - 1, found.random.group_of()
        denied = literals < 0
        if counts.max(initial=0) <= 1 and not (denied & (group_of[variables] >= 0)).any():
            # One proof, whose literals are the factors of its probability.
            lengths = np.bincount(proof, minlength=int(counts.sum()))
            factors = np.where(denied, variables + len(group_of), variables)
            terms = _Terms(np.flatnonzero(counts), None, offsets_of(lengths), factors)
            return terms.sums(weights, len(counts))
        proofs = _Proofs.of(counts, proof, literals, samples, group_of, self.k)
        slots = weights[torch.from_numpy(proofs.variables).to(weights.device)]
        return proofs.terms.sums(slots, len(counts))


@dataclass(frozen=True, eq=False)
class _Terms:
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

    def sums(self, slots: torch.Tensor, num_roots: int) -> torch.Tensor:
        """[root] the values for probabilities [S]."""

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
            columns.append(1 - slots.new_zeros(sums).index_add(0, which, slots[moved(self.members)]))
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
class _Proofs:
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
    ) -> _Proofs:
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
        return _Proofs(variables, numbered_groups(owner, group_of[variables]), first, bits, counts)

    @property
    def terms(self) -> _Terms:
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
        return _Terms(*(array[:length] for array, length in zip(arrays, lengths)))
