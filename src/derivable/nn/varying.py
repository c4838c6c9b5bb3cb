"""The part of a logic layer that takes facts which differ from sample to sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from derivable.core.diagnostics import BindingError, DomainError, ShapeError
from derivable.datalog.facts.inputs import InputMapping, Varying, require_list
from derivable.nn.batch import BatchLogic, Found, each
from derivable.nn.samples import SampleFacts, certain_samples, fixed_samples, kept, samples_of


class VaryingInputs:
    """Calls a program over batches with the inputs of a layer.

    inputs   relation -> `Varying`, or the facts that all samples have with probabilities of their own
    outputs  relation -> the facts wanted in each sample, None for all that are derived
    skips    whether a sample that exceeds a limit fails alone
    """

    def __init__(
        self,
        logic: BatchLogic,
        inputs: Mapping[str, InputMapping | Varying],
        outputs: Mapping[str, Sequence[tuple] | None],
        skips: bool,
    ):
        self.logic, self.inputs, self.outputs, self.skips = logic, inputs, outputs, skips
        self.skipped: dict[int, Exception] = {}

    def size_text(self) -> str:
        """The size of what is evaluated, for people."""
        return "derived in each call"

    def __call__(
        self, given: Mapping[str, Any], certain: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """relation -> [sample, fact], or for each sample a tensor [fact] or (tuples, tensor [fact])"""
        parts: list[tuple[str, SampleFacts]] = []
        sizes: dict[str, int] = {}
        for name, facts in self.inputs.items():
            if isinstance(facts, Varying):
                part = samples_of(name, given[name])
                part.check(name, self.logic.carrier)
                parts.append((name, kept(part, facts)))
                sizes[f"input {name!r}"] = part.batch
        for name, rows in (certain or {}).items():
            part = certain_samples(name, rows)
            parts.append((name, part))
            sizes[f"certain {name!r}"] = part.batch
        outputs: dict[str, Any] = dict(self.outputs)
        for name, rows in (wanted or {}).items():
            if name not in outputs:
                raise BindingError(
                    f"no output relation {name!r}", hint=f"the outputs of the layer are {', '.join(outputs)}"
                )
            rows = list(rows)
            for place, sample in enumerate(rows):
                require_list(sample, f"the outputs {name!r} of sample {place} are")
            outputs[name] = [list(sample) for sample in rows]
            sizes[f"outputs of {name!r}"] = len(outputs[name])
        batch = self._batch(given, sizes)
        for name, facts in self.inputs.items():
            if isinstance(facts, InputMapping):
                parts.append((name, fixed_samples(name, facts, given[name], batch, self.logic.carrier)))
        listed = frozenset(wanted or ())
        found, self.skipped = self.logic.call(batch, parts, outputs, listed, self.skips)
        return {name: self._shown(name, part, batch, name in listed) for name, part in found.items()}

    def _batch(self, given: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
        """The number of samples."""
        if len(set(sizes.values())) > 1:
            shown = ", ".join(f"{what} has {size}" for what, size in sizes.items())
            raise ShapeError(f"the numbers of samples differ: {shown}", hint="give facts for each sample, [] for none")
        if sizes:
            return next(iter(sizes.values()))
        shapes = [given[name].shape for name in self.inputs if isinstance(given[name], torch.Tensor)]
        return max((shape[0] for shape in shapes if len(shape) > 1), default=1)

    def _shown(self, name: str, found: Found, batch: int, is_listed: bool) -> Any:
        wanted = self.outputs[name]
        counts = np.bincount(found.samples, minlength=batch).tolist()
        if wanted is not None and not is_listed:
            return each(found.values, lambda one: one.reshape(batch, len(wanted), *one.shape[1:]))
        if found.columns is None:
            return _split(found.values, counts)
        return list(zip(found.tuples(batch), _split(found.values, counts)))


def _split(values: Any, counts: list[int]) -> list[Any]:
    if isinstance(values, torch.Tensor):
        return list(torch.split(values, counts))
    ends = np.cumsum(counts).tolist()
    return [each(values, lambda one, a=b - n, b=b: one[a:b]) for n, b in zip(counts, ends)]


def checked_on_limit(given: Any) -> bool:
    """Whether samples that exceed a limit are skipped. Raises DomainError for an unknown choice."""
    if given not in ("raise", "skip"):
        raise DomainError(f"on_limit is {given!r}", hint='"raise", or "skip" for a sample that exceeds a limit alone')
    return given == "skip"
