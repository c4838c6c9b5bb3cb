"""The outputs of a batch of samples: of derivations that are kept, or of one run over all samples."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from derivable.algebra.semiring import Semiring
from derivable.compat.scallopy.machine import FactList, Facts, Machine, Settings, of_one_type
from derivable.core.diagnostics import DomainError
from derivable.core.graph import offsets_of
from derivable.datalog.run.limits import Limits
from derivable.datalog.tags.provenance import TOP_PROOFS
from derivable.nn.batch import BatchLogic, Found
from derivable.nn.samples import SampleFacts

# Runs over batches that one program keeps.
_LOGICS = 8
# Relation -> the tuples wanted, None for all that are found.
Wanted = Mapping[str, tuple[tuple, ...] | None]


@dataclass(frozen=True, eq=False)
class Piece:
    """Tuples of a relation in some samples.

    places  the samples
    values  [place, tuple]
    """

    places: Sequence[int]
    tuples: Sequence[tuple]
    values: torch.Tensor


class Batches:
    """Batches of one forward function.

    drops_zero  whether a tuple of the probability 0 is not there
    """

    def __init__(self, drops_zero: bool):
        self.drops_zero = drops_zero

    def pieces(
        self, machine: Machine, settings: Settings, fixed: Facts, samples: Sequence[Facts], wanted: Wanted
    ) -> dict[str, list[Piece]]:
        """Relation -> its tuples.

        fixed    the facts that all samples have
        samples  those that each has, all of the same relations

        Samples of the same tuples are evaluated on derivations that are kept from one call to the next; other samples,
        and all where sets of proofs are kept, are one run.
        """
        is_kept = isinstance(settings.record, Semiring) and not machine.has_weights
        is_alike = is_kept and len({_key(facts) for facts in samples}) == 1
        if not (machine.has_tensor_tags or is_alike):
            try:
                return self._of_one_run(machine, settings, fixed, samples, wanted)
            except DomainError:
                # Numbers that are no probabilities are evaluated as they are.
                pass
        return self._of_kept(machine, settings, [{**fixed, **facts} for facts in samples], wanted)

    # Derivations that are kept

    def _of_kept(
        self, machine: Machine, settings: Settings, samples: Sequence[Facts], wanted: Wanted
    ) -> dict[str, list[Piece]]:
        found: dict[str, list[Piece]] = {name: [] for name in wanted}
        for ground, places in machine.batch(samples, settings):
            rows = ground.probabilities([samples[place] for place in places])
            for name, listed in wanted.items():
                values = ground.evaluated(name, listed, rows)
                tuples = list(ground.tuples(name) if listed is None else listed)
                if listed is None and self.drops_zero and len(tuples):
                    kept = (values > 0).any(0).nonzero()[:, 0].tolist()
                    tuples, values = [tuples[i] for i in kept], values[:, kept]
                found[name].append(Piece(places, tuples, values))
        return found

    # One run

    def _of_one_run(
        self, machine: Machine, settings: Settings, fixed: Facts, samples: Sequence[Facts], wanted: Wanted
    ) -> dict[str, list[Piece]]:
        static = {name: given for name, given in fixed.items() if _is_static(given)}
        inputs = [part for name in samples[0] for part in _inputs(name, [facts[name] for facts in samples])]
        for name, given in fixed.items():
            if name not in static:
                inputs += _inputs(name, [given] * len(samples))
        found = _logic(machine, settings, static)(len(samples), inputs, dict(wanted))
        return {name: [_piece(part, len(samples), wanted[name])] for name, part in found.items()}


@dataclass(frozen=True, eq=False)
class Sample:
    """A relation of one sample.

    tuples    those that are found
    rows      [fact] the probabilities of the facts, with gradients to their tags
    evaluate  from such rows to the probabilities [tuple]
    leaf      a copy of the rows that is a leaf of torch, and `values` [tuple] what is evaluated from it
    """

    tuples: Sequence[tuple]
    rows: torch.Tensor
    evaluate: Callable[[torch.Tensor], torch.Tensor]
    leaf: torch.Tensor
    values: torch.Tensor


def samples_of(machine: Machine, settings: Settings, facts: Facts) -> Callable[[str], Sample] | None:
    """Run a program under topkproofs for one sample: what gives a relation of it; None where derivations are to be
    kept, as batches know no better way."""
    if settings.record is not TOP_PROOFS or machine.has_tensor_tags:
        return None
    known = {relation: given for relation, given in facts.items() if relation in machine.relations}
    inputs = [part for relation, given in known.items() for part in _inputs(relation, [given])]
    numbers = [part.probabilities for _, part in inputs if part.probabilities is not None]
    logic, sizes = _logic(machine, settings, {}), [len(one) for one in numbers]
    rows = torch.cat(of_one_type(numbers)) if numbers else torch.zeros(0)
    leaf = rows.detach().requires_grad_()

    def given(rows: torch.Tensor) -> list[tuple[str, SampleFacts]]:
        parts = iter(rows.split(sizes))
        return [
            (n, part if part.probabilities is None else replace(part, probabilities=next(parts))) for n, part in inputs
        ]

    try:
        with torch.enable_grad():
            read = logic.kept_run(1, given(leaf), list(machine.relations))
    except DomainError:
        # Numbers that are no probabilities are evaluated as they are.
        return None

    def sample(name: str) -> Sample:
        with torch.enable_grad():
            found = read(name)
        (tuples,) = found.tuples(1)
        return Sample(tuples, rows, lambda rows: logic(1, given(rows), {name: tuples})[name].values, leaf, found.values)

    return sample


def _logic(machine: Machine, settings: Settings, static: Facts) -> BatchLogic:
    """What runs a program over batches, with facts that all samples have."""
    key = settings, tuple((name, given.pattern, _tags(given)) for name, given in static.items())
    found = machine.logics.pop(key, None)
    if found is None:
        facts = {
            name: [row if tag is None else (tag, row) for tag, row in zip(_tags(given), given.rows)]
            for name, given in static.items()
            if len(given) and name in machine.relations
        }
        limits = Limits(iteration_limit=settings.iteration_limit)
        found = BatchLogic(machine.program, settings.record, None, settings.k, facts, limits)
    machine.logics[key] = found
    if len(machine.logics) > _LOGICS:
        machine.logics.popitem(last=False)
    return found


def _key(facts: Facts) -> Hashable:
    return tuple((name, given.pattern) for name, given in facts.items())


def _is_static(given: FactList) -> bool:
    """Whether facts have no gradients, and do not exclude each other."""
    tags = given.tags if isinstance(given.tags, (list, tuple)) else [given.tags]
    has_gradients = any(isinstance(tag, torch.Tensor) and tag.requires_grad for tag in tags)
    return not has_gradients and all(group is None for group in given.groups)


def _tags(given: FactList) -> tuple[float | None, ...]:
    tags = given.tags if isinstance(given.tags, (list, tuple)) else given.tags.tolist()
    return tuple(tag if tag is None else float(tag) for tag in tags)


def _inputs(name: str, parts: Sequence[FactList]) -> list[tuple[str, SampleFacts]]:
    """The facts of a relation in all samples: those with tags, and those without."""
    found: list[tuple[str, SampleFacts]] = []
    chosen = [np.flatnonzero(~np.array(part.pattern.certain, bool)).tolist() for part in parts]
    if any(chosen):
        rows = [part.rows[i] for part, places in zip(parts, chosen) for i in places]
        numbers: dict[Hashable, int] = {None: -1}
        listed = [
            numbers.setdefault(part.groups[i], len(numbers)) for part, places in zip(parts, chosen) for i in places
        ]
        groups = np.array(listed, np.int64) if len(numbers) > 1 else None
        offsets = offsets_of([len(places) for places in chosen])
        known: dict[int, torch.Tensor] = {}
        numbers_of = of_one_type([part.probabilities(known) for part in parts])
        found.append((name, SampleFacts(rows, offsets, torch.cat(numbers_of), groups)))
    certain = [[row for row, alone in zip(part.rows, part.pattern.certain) if alone] for part in parts]
    if any(certain) or not found:
        rows = [row for one in certain for row in one]
        found.append((name, SampleFacts(rows, offsets_of([len(one) for one in certain]))))
    return found


def _piece(found: Found, count: int, listed: tuple[tuple, ...] | None) -> Piece:
    places = range(count)
    if listed is not None:
        return Piece(places, listed, found.values.reshape(count, len(listed)))
    rows = [row for one in found.tuples(count) for row in one]
    try:
        shown = sorted(set(rows))
    except TypeError:
        shown = list(dict.fromkeys(rows))
    column = {row: at for at, row in enumerate(shown)}
    at = torch.from_numpy(found.samples), torch.tensor([column[row] for row in rows]).long()
    return Piece(places, shown, found.values.new_zeros(count, len(shown)).index_put(at, found.values))
