"""What a run has computed, as a context shows it: each relation when it is first asked for."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from derivable.algebra.semiring import Semiring
from derivable.compat.scallopy.machine import FactList, Machine, Settings

if TYPE_CHECKING:
    import torch

    from derivable.compat.scallopy.batches import Sample
    from derivable.compat.scallopy.context import ScallopContext
    from derivable.compat.scallopy.provenances import Kind
    from derivable.datalog.api.evaluation import Evaluation


def computed(context: ScallopContext, machine: Machine, settings: Settings) -> dict[str, Any]:
    """Relation -> a function that gives its elements."""
    if context.is_differentiable:
        from derivable.compat.scallopy.batches import samples_of

        facts = context._computed_facts
        # What is wrong with a run is said by the run.
        found = samples_of(machine, settings, facts)
        if found is None:
            machine.ground(facts, settings)
        make = partial(_with_gradients, machine, settings, facts, found, context.is_debug, context._kind.drops_zero)
    else:
        make = partial(_elements, machine, context._run[1], settings, context._kind)
    return {name: partial(make, name) for name in machine.relations}


def _elements(machine: Machine, evaluation: Evaluation, settings: Settings, kind: Kind, name: str) -> list[Any]:
    view = machine.view(evaluation, name, settings)
    if not kind.has_tags:
        return list(view)
    tags = view.tag_list()
    if kind.engine in ("tropical", "natural"):
        tags = [int(tag) if math.isfinite(tag) else sys.maxsize for tag in tags]
    if not isinstance(settings.record, Semiring) and kind.is_probabilistic:
        # Facts that exclude each other may add up to more than 1.
        tags = [min(tag, 1.0) for tag in tags]
    return list(zip(tags, view))


def _with_gradients(
    machine: Machine,
    settings: Settings,
    facts: Mapping[str, FactList],
    samples: Callable[[str], Sample] | None,
    is_debug: bool,
    drops_zero: bool,
    name: str,
) -> list[Any]:
    if samples is not None:
        sample = samples(name)
        tags, _ = scalars(sample.evaluate, sample.rows, (sample.leaf, sample.values))
        found: list[Any] = list(zip(tags, sample.tuples))
    else:
        ground = machine.ground(facts, settings)
        tags, values = scalars(lambda rows: ground.evaluated(name, None, rows)[0], ground.probabilities([facts]))
        found = list(zip(tags, ground.tuples(name)))
        if drops_zero:
            found = [one for one, value in zip(found, values.tolist()) if value > 0]
    if not is_debug:
        return found
    proofs = machine.proofs(facts, settings)(name)
    return [((tag, proofs.get(row, [])), row) for tag, row in found]


def scalars(
    evaluate: Callable[[torch.Tensor], torch.Tensor],
    rows: torch.Tensor,
    known: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
    """(scalars, detached values [tuple]) of what is computed of rows; `known` as of `scalar_tag.Evaluation`.

    One scalar after the other can be differentiated, any number of times.
    """
    import torch

    from derivable.compat.scallopy.scalar_tag import Evaluation as Computed

    dtype = torch.get_default_dtype()
    if not rows.requires_grad:
        values = evaluate(rows) if known is None else known[1]
        return [value.to(dtype).detach().requires_grad_() for value in values], values.detach()
    found = Computed(rows, evaluate, known)
    return [scalar.to(dtype) for scalar in found.scalars()], found.values.detach()
