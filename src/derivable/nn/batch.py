"""Logic programs over batches of samples with facts of their own: one run grounds the whole batch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from derivable.algebra import semirings
from derivable.algebra.expr.functions import equal, logical_and, logical_or, where
from derivable.algebra.semiring import Semiring
from derivable.core.and_or import LITERAL, TRUE
from derivable.core.diagnostics import LimitError, UnsupportedError
from derivable.core.graph import offsets_of
from derivable.datalog.api.batched import BatchRuns, Derived, RunBatch
from derivable.datalog.api.program import Program
from derivable.datalog.exact.exact import ExactQuery
from derivable.datalog.exact.ground_program import levelled
from derivable.datalog.exact.parts import Parts, numbered_groups
from derivable.datalog.exact.unroll import normal_form
from derivable.datalog.facts.inputs import checked_facts, taken
from derivable.datalog.run.limits import Limits, Watch, watched
from derivable.datalog.tables.tag_columns import concatenate, parts_of
from derivable.datalog.tags.provenance import EXACT, PROOFS, TOP_PROOFS, Inference, carrier_of, tags_of
from derivable.datalog.tags.random_facts import CHANCE, RandomFacts
from derivable.datalog.tags.tags import ColumnTags
from derivable.device.cpu.memory import zeros
from derivable.nn.custom import numbers_of
from derivable.nn.derivations import SemiringInference, adds_conjunctions
from derivable.nn.inference import ExactInference
from derivable.nn.samples import SampleFacts

MOST_KEPT = 1 << 20
"""Nodes of the circuits that an exact layer keeps for structures that it has met."""


@dataclass(frozen=True, eq=False)
class Found:
    """Output tuples of a batch, sample by sample.

    samples  [row] int64, ascending
    columns  [row] each, as users see them; None where the caller has listed the tuples
    values   [row], or a nest of such: what the provenance shows
    """

    samples: np.ndarray
    columns: tuple[np.ndarray, ...] | None
    values: Any

    def tuples(self, batch: int) -> list[list[tuple[Any, ...]]]:
        """[sample] the tuples of each."""
        assert self.columns is not None
        return Derived(self.samples, self.columns, self.samples).tuples(batch)

    def spread(self, samples: np.ndarray, counts: np.ndarray | None) -> Found:
        """The same with other numbers of samples, ascending; those between them have no tuples, or if tuples are listed
        `counts` [sample] of them, with zeros."""
        if counts is None:
            return Found(samples[self.samples], self.columns, self.values)
        owner = np.repeat(np.arange(len(counts)), counts)
        places = torch.from_numpy(np.flatnonzero(np.isin(owner, samples)))

        def filled(one: torch.Tensor) -> torch.Tensor:
            return one.new_zeros(len(owner), *one.shape[1:]).index_copy(0, places.to(one.device), one)

        return Found(owner, None, each(self.values, filled))


class BatchLogic:
    """A program under one provenance, for batches.

    program   parsed
    record    the provenance, `name` what the user calls it
    k         of topkproofs
    facts     further facts, the same for all samples
    """

    def __init__(
        self,
        program: Program,
        record: Semiring | Inference,
        name: str | None = None,
        k: int = 3,
        facts: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ):
        self.program, self.record, self.name = program, record, name or record.name
        self.facts, self.limits = taken(checked_facts(facts)), limits or Limits()
        self.inference = _inference_for(record, k)
        self.carrier = carrier_of(record, self.name)
        self.runs: dict[Hashable, BatchRuns] = {}

    def check(self, varying: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        """Raise BindingError for an input or an output that the program does not have."""
        self.program.batched(frozenset(varying), outputs, self.facts)

    def __call__(
        self,
        batch: int,
        inputs: Sequence[tuple[str, SampleFacts]],
        outputs: Mapping[str, Sequence[Any] | Sequence[Sequence[Any]] | None],
        listed: frozenset[str] = frozenset(),
    ) -> dict[str, Found]:
        """The outputs of a batch of samples, with gradients for the probabilities.

        inputs   relations and their facts; a relation may be named several times
        outputs  relation -> the tuples wanted of each sample, or None for all that are derived
        listed   the outputs whose tuples are given sample by sample
        """
        return self.call(batch, inputs, outputs, listed, False)[0]

    def call(
        self,
        batch: int,
        inputs: Sequence[tuple[str, SampleFacts]],
        outputs: Mapping[str, Any],
        listed: frozenset[str],
        skips: bool,
    ) -> tuple[dict[str, Found], dict[int, Exception]]:
        """The outputs, and the errors of the samples that exceed a limit, which have no outputs; without `skips` the
        first of these errors is raised."""
        limits, samples = self.limits, np.arange(batch)
        if limits.tuple_limit is None and limits.round_limit is None:
            return self._run(batch, inputs, outputs, listed, limits)[0], {}
        found, failures = self._attempt(samples, inputs, outputs, listed)
        if found is not None:
            return found, {}
        if failures and not skips:
            raise failures[min(failures)]
        # Each of the others is within the limits.
        chosen = np.array([sample for sample in range(batch) if sample not in failures], np.int64)
        limits = replace(limits, tuple_limit=None, round_limit=None)
        found = self._run(len(chosen), *_of_samples(chosen, inputs, outputs, listed), listed, limits)[0]
        counts = {name: _wanted(wanted, batch, name in listed) for name, wanted in outputs.items()}
        return {name: part.spread(chosen, counts[name]) for name, part in found.items()}, failures

    def _attempt(
        self, samples: np.ndarray, inputs: Any, outputs: Any, listed: frozenset[str]
    ) -> tuple[dict[str, Found] | None, dict[int, Exception]]:
        """The outputs of some samples, or None and the errors of those of them that exceed a limit."""
        limit, limits = self.limits.tuple_limit, self.limits
        if limit is not None:
            limits = replace(limits, tuple_limit=limit * max(1, len(samples)))
        part = _of_samples(samples, inputs, outputs, listed)
        failures: dict[int, Exception] = {}
        try:
            found, grounded = self._run(len(samples), *part, listed, limits)
        except LimitError as error:
            if type(error) is not LimitError:
                raise
            if len(samples) == 1:
                failed = LimitError(f"sample {samples[0]}: {error.message}", hint=error.hint)
                return None, {int(samples[0]): failed}
            for half in np.array_split(samples, 2):
                failures |= self._attempt(half, inputs, outputs, listed)[1]
            return None, failures
        if limit is not None:
            counts = grounded.num_tuples
            for place in np.flatnonzero(counts > limit).tolist():
                failures[int(samples[place])] = LimitError(
                    f"sample {samples[place]}: the run passed tuple_limit = {limit:,}, with {counts[place]:,} tuples",
                    hint="restrict a rule by a condition, or raise tuple_limit",
                )
        return (None, failures) if failures else (found, {})

    def _run(self, batch: int, inputs: Any, outputs: Any, listed: frozenset[str], limits: Limits) -> Any:
        watch = Watch(limits)
        return watched(watch, lambda: self._call(batch, inputs, outputs, listed, watch))

    def _call(self, batch, inputs, outputs, listed, watch: Watch) -> tuple[dict[str, Found], RunBatch]:
        names = frozenset(name for name, _ in inputs)
        found = self._runs(names, tuple(outputs), inputs).run(
            batch,
            [(name, given.facts) for name, given in inputs],
            self.record,
            self.name,
            watch,
            self.inference.columns_of,
        )
        weights = self._weights(found, [given for _, given in inputs])
        roots, samples, shown = [], [], {}
        for name, wanted in outputs.items():
            if wanted is None:
                derived = shown[name] = found.derived(name)
                roots.append(derived.tags)
                samples.append(derived.samples)
                continue
            own = name in listed
            roots.append(found.tags_of(name, wanted if own else None, () if own else wanted))
            counts = [len(sample) for sample in wanted] if own else len(wanted)
            samples.append(np.repeat(np.arange(batch), counts))
        values = self.inference(found, concatenate(roots), np.concatenate(samples), weights, watch)
        results, start = {}, 0
        for name, sample in zip(outputs, samples):
            places = slice(start, start + len(sample))
            part = each(values, lambda one, places=places: one[places])
            start += len(sample)
            derived = shown.get(name)
            if derived is None:
                results[name] = Found(sample, None, part)
                continue
            kept = np.flatnonzero(self._is_there(part))
            if len(kept) < len(sample):
                derived = derived.only(kept)
                part = each(part, lambda one, kept=kept: one[torch.from_numpy(kept)])
            results[name] = Found(derived.samples, derived.columns, part)
        return results, found

    def _runs(self, names: frozenset[str], outputs: tuple[str, ...], inputs: Sequence) -> BatchRuns:
        hints = {**self.facts}
        for name, given in inputs:
            if len(given.rows):
                hints.setdefault(name, given.rows)
        program = self.program.batched(names, outputs, hints)
        key = id(program)
        if key not in self.runs:
            self.runs[key] = BatchRuns(program, self.facts)
        return self.runs[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "runs": {}}

    def _weights(self, found: RunBatch, inputs: Sequence[SampleFacts]) -> torch.Tensor:
        """[random fact] the numbers of all random facts of a batch, in their order."""
        given = [part.probabilities for part in inputs if part.probabilities is not None]
        dtype, device = torch.float32, given[0].device if given else torch.device("cpu")
        for part in given:
            dtype = torch.promote_types(dtype, part.dtype)
        first, last = found.given
        parts = [self._fixed(found, slice(0, first), dtype, device)]
        for part, choices in zip(inputs, found.choices):
            if part.probabilities is None:
                continue
            numbers = part.probabilities.to(dtype)
            parts.append(numbers)
            if choices is not None:
                rows, group = (torch.from_numpy(a).to(device) for a in (choices.rows, choices.group))
                sums = numbers.new_zeros(len(choices.rest)).index_add(0, group, numbers[rows])
                parts.append((1 - sums).clamp_min(0))
        parts.append(self._fixed(found, slice(last, None), dtype, device))
        return torch.cat(parts)

    def _fixed(self, found: RunBatch, places: slice, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        numbers = np.asarray(found.random.probabilities[places], np.float64)
        record = self.record
        if len(numbers) and isinstance(record, Semiring):
            made = found.random.kinds_of(places) == CHANCE
            if (of_probability := record.typed().from_probability) is not None and made.any():
                # These probabilities are computed, whatever the tags of the inputs are.
                with np.errstate(divide="ignore"):
                    (numbers[made],) = of_probability.apply((numbers[made],))
        return torch.from_numpy(numbers).to(device, dtype)

    def _is_there(self, values: Any) -> np.ndarray:
        """[row] bool: whether a tuple is in some world, as far as its value shows."""
        record = self.record
        if isinstance(values, torch.Tensor):
            numbers = values.detach().numpy(force=True)
            zero = 0.0 if self.carrier.has_probabilities or not isinstance(record, Semiring) else record.zero
            is_plain = not isinstance(record, Semiring) or (record.is_scalar and record.show is None)
            return numbers != zero if is_plain else np.ones(len(numbers), bool)
        return np.ones(len(tree_leaves(values)[0]), bool)


def _of_samples(samples: np.ndarray, inputs: Any, outputs: Any, listed: frozenset[str]) -> tuple[Any, Any]:
    """The inputs and outputs of some samples (ascending)."""
    if all(len(samples) == part.batch for _, part in inputs):
        return inputs, outputs
    some = {name: [rows[i] for i in samples] if name in listed else rows for name, rows in outputs.items()}
    return [(name, part.of_samples(samples)) for name, part in inputs], some


def _wanted(wanted: Any, batch: int, is_listed: bool) -> np.ndarray | None:
    """[sample] the number of tuples that are listed for each; None where all are wanted that are derived."""
    if wanted is None:
        return None
    return np.array([len(sample) for sample in wanted]) if is_listed else np.full(batch, len(wanted))


def each(values: Any, function: Any) -> Any:
    """A function of each tensor of a nest."""
    return tree_map(function, values)


def _inference_for(record: Semiring | Inference, k: int) -> BatchInference:
    if record is EXACT:
        return ExactBatches()
    if isinstance(record, Semiring):
        traced = _with_facts(record)
        return SemiringBatches(record) if traced is None else SelectedFacts(traced)
    if record is PROOFS:
        raise UnsupportedError(
            "proofs gives sets of facts, and a layer probabilities",
            hint='provenance="exact" for the probability of all proofs, "topkproofs" for that of some',
        )
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


class SemiringBatches(BatchInference):
    """The derivations of all samples are one graph, evaluated once."""

    def __init__(self, semiring: Semiring):
        self.semiring = semiring

    def __call__(self, found, roots, samples, weights, watch):
        graph = levelled(found.grounding, roots, {}, self.semiring, watch)
        module = SemiringInference(graph, [], self.semiring)
        return module.nest([part[0] for part in module.evaluate(weights[None])])


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
        zero = weights[:0].sum()
        return torch.stack([zero + tag for tag in numbers_of(self.provenance, shown)] or [zero])[: len(tags)]


@lru_cache
def _with_facts(record: Semiring) -> Semiring | None:
    """The semiring whose values say which fact they are of, where plus and times choose one of two values, as in
    minmaxprob; else None. (value, n) is of fact n - 1, (value, -n) of its negation, (value, 0) of none.

    Of equal values that of the smaller n is the greater one. So there is one order of values, and results do not depend
    on that in which a run finds derivations.
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
        zero=(float(record.zero), 0),
        one=(float(record.one), 0),
        domain=(record.domains[0], (-math.inf, math.inf)),
        complement=lambda a: (1 - a[0], -a[1]),
        fact=lambda tag, variable: (tag, variable + 1),
        discard=lambda a: equal(a[0], record.zero),
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
        return tags_of(self.semiring, random)

    def __call__(self, found, tags, samples, weights, watch):
        constants, facts = (torch.from_numpy(np.ascontiguousarray(part)).to(weights.device) for part in parts_of(tags))
        if not len(weights):
            return constants.to(weights)
        chosen = weights[(facts.abs() - 1).clamp_min(0)]
        return torch.where(facts > 0, chosen, torch.where(facts < 0, 1 - chosen, constants.to(weights)))


class ProofSetBatches(BatchInference):
    """Sets of proofs: which proofs they are has no derivative, and the probability that one of them holds has."""

    def __init__(self, provenance: Inference, k: int):
        self.provenance, self.k = provenance, k

    def columns_of(self, random: RandomFacts) -> ColumnTags:
        return tags_of(self.provenance, random, self.k)

    def __call__(self, found, tags, samples, weights, watch):
        columns: Any = found.columns
        zero = weights[:0].sum()
        return torch.stack([zero + value for value in columns.probabilities(tags, weights.unbind())] or [zero])[
            : len(tags)
        ]


class ExactBatches(BatchInference):
    """Samples whose derivations have the same structure share a circuit, which is compiled once and kept."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Hashable, ExactInference] = OrderedDict()
        self.size = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"kept": OrderedDict(), "size": 0}

    def __call__(self, found, tags, samples, weights, watch):
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
        values = [weights[:0].sum() + weights.new_tensor([0.0, 1.0])]
        places, start = np.empty(len(pairs), np.int64), 2
        for key, numbers in same.items():
            inference, chosen = self.compiled(key, parts, numbers[0], watch), np.array(numbers)
            low, high = parts.variable_offsets[numbers[0] : numbers[0] + 2]
            slots = parts.variable_offsets[chosen, None] + np.arange(high - low)
            rows = weights[torch.from_numpy(parts.variables[slots]).to(weights.device)]
            values.append(inference([rows], False, False).flatten())
            count = int(root_offsets[numbers[0] + 1] - root_offsets[numbers[0]])
            own = np.arange(len(numbers) * count).reshape(-1, count)
            places[root_offsets[chosen, None] + np.arange(count)] = start + own
            start += own.size
        place = (form.kind[form.roots] == TRUE).astype(np.int64)
        place[is_open] = places[where.reshape(-1)]
        return torch.cat(values)[torch.from_numpy(place).to(weights.device)]

    def compiled(self, key: Hashable, parts: Parts, number: int, watch: Watch) -> ExactInference:
        """The circuit of parts of one structure."""
        from derivable.circuit.compilation.choice import compile_formula_dag

        known = self.kept.get(key)
        if known is not None:
            self.kept.move_to_end(key)
            return known
        graph, groups = parts.part(number)
        count, num_groups = len(groups), int(groups.max(initial=-1)) + 1
        members = [np.flatnonzero(groups == group) + 1 for group in range(num_groups)]
        circuit = compile_formula_dag(*graph.arrays, count, members, time_limit=watch.remaining())
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
            padded = np.full((len(lengths), longest), 2 * len(slots) + sums)
            padded[np.arange(longest) < lengths[:, None]] = factors
            factors = padded.ravel()
        products = torch.cat(columns).index_select(0, moved(factors)).reshape(len(lengths), longest).prod(-1)
        if self.signs is not None:
            products = products * moved(self.signs).to(products)
        # Zeros that depend on the probabilities, so that there is a derivative, zero, where there is no proof.
        return slots[:0].sum().expand(num_roots).index_add(0, moved(self.roots), products)


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
        slots, slot = np.unique(samples[root] * size + np.abs(literals) - 1, return_inverse=True)
        owner, variables = slots // size, slots % size
        first = np.searchsorted(owner, samples)
        places = slot.reshape(-1) - first[root]
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
        proof_terms(*given, sizes, none, none, none, none, none, none)
        terms, factors, sums, members = sizes.tolist()
        arrays = [np.zeros(size, np.int64) for size in (terms, terms, terms + 1, factors, sums + 1, members)]
        proof_terms(*given, sizes, *arrays)
        return _Terms(*arrays)
