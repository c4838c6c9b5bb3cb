"""Logic programs over batches of samples with facts of their own: one run grounds the whole batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from derivable.algebra.semiring import Semiring
from derivable.bridge.torch_parts import tree_leaves, tree_map
from derivable.core.diagnostics import LimitError
from derivable.datalog.api.batched import BatchRuns, Derived, RunBatch
from derivable.datalog.api.program import Program
from derivable.datalog.facts.batch_facts import BatchFacts
from derivable.datalog.facts.inputs import InputMapping, checked_facts, taken
from derivable.datalog.run.limits import Limits, Watch, watched
from derivable.datalog.tables.tag_columns import concatenate
from derivable.datalog.tags.provenance import Inference, carrier_of, distributes_smoothly
from derivable.nn.batch_inference import batch_inference_for
from derivable.nn.ground_fold import tags_of_chances
from derivable.nn.inference import in_range, widened, within_unit
from derivable.nn.samples import SampleFacts


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
        self.inference = batch_inference_for(record, k)
        self.carrier, self.is_distributive = carrier_of(record, self.name), distributes_smoothly(record)
        self.runs: dict[Hashable, BatchRuns] = {}

    def check(self, varying: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        """Raise BindingError for an input or an output that the program does not have."""
        self.program.batched(frozenset(varying), outputs, self.facts, self.is_distributive)

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

    def kept_run(self, batch: int, inputs: Sequence[tuple[str, SampleFacts]], names: Sequence[str]) -> Any:
        """Run a batch, and return what gives the tuples of each of some relations: name -> `Found`."""
        watch = Watch(self.limits)
        found, weights = watched(watch, lambda: self._derived(batch, inputs, tuple(names), watch))

        def read(name: str) -> Found:
            later = Watch(self.limits)
            return watched(later, lambda: self._shown(found, weights, {name: None}, frozenset(), later)[name])

        return read

    def _call(self, batch, inputs, outputs, listed, watch: Watch) -> tuple[dict[str, Found], RunBatch]:
        found, weights = self._derived(batch, inputs, tuple(outputs), watch)
        return self._shown(found, weights, outputs, listed, watch), found

    def _derived(self, batch, inputs, outputs: tuple[str, ...], watch: Watch) -> tuple[RunBatch, torch.Tensor]:
        """A run, and the numbers of its random facts."""
        names = frozenset(name for name, given in inputs if not given.is_shared)
        inputs = [(name, given.of_each(batch) if name in names else given) for name, given in inputs]
        found = self._runs(names, outputs, inputs).run(
            batch,
            [(name, self._facts(given)) for name, given in inputs],
            self.record,
            self.name,
            watch,
            self.inference.columns_of,
            device_of([given for _, given in inputs]),
        )
        return found, self._weights(found, [given for _, given in inputs])

    def _facts(self, given: SampleFacts) -> BatchFacts:
        """What a run takes: probabilities without what rounding has added, which the layer has let pass."""
        facts, numbers = given.facts, given.probabilities
        if numbers is None or not self.carrier.has_probabilities:
            return facts
        return replace(facts, probabilities=within_unit(numbers.detach()).double().numpy(force=True))

    def _shown(self, found: RunBatch, weights: torch.Tensor, outputs, listed, watch: Watch) -> dict[str, Found]:
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
            samples.append(np.repeat(np.arange(found.batch), counts))
        values = self.inference(found, concatenate(roots), np.concatenate(samples), weights, watch)
        values = in_range(values, self.carrier)
        results, start = {}, 0
        for name, sample in zip(outputs, samples):
            places = slice(start, start + len(sample))
            part = each(values, lambda one, places=places: one[places])
            start += len(sample)
            derived = shown.get(name)
            if derived is None:
                results[name] = Found(sample, None, part)
                continue
            kept = np.flatnonzero(self._is_there(part, found, derived, weights, watch))
            if len(kept) < len(sample):
                derived = derived.only(kept)
                part = each(part, lambda one, kept=kept: one[torch.from_numpy(kept)])
            results[name] = Found(derived.samples, derived.columns, part)
        return results

    def _runs(self, names: frozenset[str], outputs: tuple[str, ...], inputs: Sequence) -> BatchRuns:
        hints = {**self.facts}
        for name, given in inputs:
            if len(given.rows):
                hints.setdefault(name, given.rows)
        program = self.program.batched(names, outputs, hints, self.is_distributive)
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
        first, last = found.shared_facts
        parts = [self._fixed(found, slice(0, first), dtype, device)]
        for part, choices in zip(inputs, found.choices):
            if part.probabilities is None:
                continue
            has_factors = isinstance(part.rows, InputMapping) and part.rows.has_factors
            is_rounded = self.carrier.has_probabilities and not has_factors
            numbers = widened(part.probabilities, dtype) if is_rounded else part.probabilities.to(dtype)
            parts.append(numbers)
            if choices is not None:
                rows, group = (torch.from_numpy(a).to(device) for a in (choices.rows, choices.group))
                sums = numbers.new_zeros(len(choices.rest)).index_add(0, group, numbers[rows])
                parts.append((1 - sums).clamp_min(0))
        parts.append(self._fixed(found, slice(last, None), dtype, device))
        return torch.cat(parts)

    def _fixed(self, found: RunBatch, places: slice, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        numbers = np.asarray(found.random.probabilities[places], np.float64)
        if isinstance(self.record, Semiring):
            numbers = tags_of_chances(numbers, found.random.kinds_of(places), self.record)
        return torch.from_numpy(numbers).to(device, dtype)

    def _is_there(
        self, values: Any, found: RunBatch, derived: Derived, weights: torch.Tensor, watch: Watch
    ) -> np.ndarray:
        """[row] bool: whether a tuple is in some world, as far as its value and its tag show."""
        record = self.record
        if isinstance(values, torch.Tensor):
            numbers = values.detach().numpy(force=True)
            zero = 0.0 if self.carrier.has_probabilities or not isinstance(record, Semiring) else record.zero
            is_plain = not isinstance(record, Semiring) or (record.is_scalar and record.show is None)
            there = numbers != zero if is_plain else np.ones(len(numbers), bool)
            if not there.all():
                there |= self.inference.are_possible(found, derived.tags, derived.samples, weights, watch)
            return there
        return np.ones(len(tree_leaves(values)[0]), bool)


def device_of(inputs: Sequence[SampleFacts]) -> torch.device | None:
    """The device that computes the tags of a batch: that of its probabilities, None for the CPU."""
    devices = [part.probabilities.device for part in inputs if part.probabilities is not None]
    return next((device for device in devices if device.type == "cuda"), None)


def _of_samples(samples: np.ndarray, inputs: Any, outputs: Any, listed: frozenset[str]) -> tuple[Any, Any]:
    """The inputs and outputs of some samples (ascending)."""
    if all(part.is_shared or len(samples) == part.batch for _, part in inputs):
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
