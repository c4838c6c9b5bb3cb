"""Layers of provenances that are Python classes: the program is run on torch scalars, with torch's gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from derivable.bridge.torch import refuse_capture
from derivable.core.diagnostics import TypeMismatchError
from derivable.datalog.api.evaluation import Evaluation
from derivable.datalog.api.program import Program
from derivable.datalog.facts.inputs import InputMapping, taken
from derivable.datalog.facts.load import load_python_facts, tuple_columns
from derivable.datalog.facts.program_facts import load_program_facts
from derivable.datalog.facts.store import new_store
from derivable.datalog.run.limits import Limits, Watch, watched
from derivable.datalog.tags.custom import CustomTags
from derivable.datalog.tags.provenance import Inference, carrier_of
from derivable.datalog.tags.random_facts import RandomFacts


class CustomInference(torch.nn.Module):
    """A run of the program for each data point: the tag of an input fact is its element of the input tensor."""

    # What nothing derives is not known before a run.
    never = None

    def __init__(
        self,
        provenance: Inference,
        program: Program,
        inputs: Mapping[str, InputMapping],
        outputs: Mapping[str, Sequence[tuple]],
        facts: Mapping[str, Any] | None,
        limits: Limits,
    ):
        super().__init__()
        self.provenance, self.inputs, self.outputs, self.limits = provenance, dict(inputs), dict(outputs), limits
        self.facts = taken(facts or {})
        self.program, self.carrier = program, carrier_of(provenance)
        self.ram = program.lowered({**self.inputs, **self.facts})
        # What is wrong with the inputs is said before the first call.
        for name, mapping in self.inputs.items():
            tuple_columns(self.ram.relations[name], list(mapping.tuples), new_store(self.ram).symbols)

    def size_text(self) -> str:
        return f"{len(self.ram.relations)} relations, run for each data point"

    def nest(self, parts: Sequence[torch.Tensor]) -> Any:
        return parts[0]

    def forward(self, values: list[torch.Tensor], in_logs: bool, out_logs: bool) -> Sequence[torch.Tensor]:
        """values [*batch, fact] each -> [*batch, output fact]"""
        refuse_capture("a layer of a provenance of one's own")
        batch = values[0].shape[:-1] if values else ()
        rows = [value.reshape(-1, value.shape[-1]) for value in values]
        count = len(rows[0]) if rows else 1
        found = [self._row([row[i] for row in rows]) for i in range(count)]
        whole = self._collated(found, values[0] if values else torch.zeros(0))
        return (whole.reshape(*batch, -1) if found else whole,)

    def _row(self, rows: Sequence[torch.Tensor]) -> list[Any]:
        """What users see of the output facts, None of one that is not derived."""
        store = new_store(self.ram, RandomFacts())
        store.random.require(self.carrier)
        load_program_facts(self.ram, store)
        given = {name: list(zip(row.unbind(), facts.tuples)) for (name, facts), row in zip(self.inputs.items(), rows)}
        load_python_facts(self.ram, {**given, **self.facts}, store)
        evaluation, watch = Evaluation(self.ram, store, self.provenance, 1), Watch(self.limits)
        watched(watch, lambda: evaluation.run(watch))
        tags, found = evaluation.columns, []
        assert isinstance(tags, CustomTags)
        for name, facts in self.outputs.items():
            table = evaluation.tables[name]
            table.row_set.use_hash(table)
            places = table.find(tuple_columns(self.ram.relations[name], facts, store.symbols), len(facts))
            numbers = [None if place < 0 else table.tags[place : place + 1] for place in places.tolist()]
            found += [None if n is None or tags.is_zero(n)[0] else tags.recovered(n)[0] for n in numbers]
        return found

    def _collated(self, found: list[list[Any]], like: torch.Tensor) -> torch.Tensor:
        own = self.provenance.instance
        if getattr(own, "collate", None) is not None:
            whole = own.collate(found)
            if not isinstance(whole, torch.Tensor):
                raise TypeMismatchError(
                    f"`collate` of the provenance {self.provenance.name} gives a {type(whole).__name__}",
                    hint="a layer returns a tensor [batch, output]",
                )
            return whole
        # Zeros that depend on the inputs, so that there is a derivative, zero, of what no input changes.
        start = like[..., :0].sum()
        rows = [torch.stack([start + tag for tag in numbers_of(self.provenance, row)]) for row in found]
        return torch.stack(rows) if rows else like.new_zeros(*like.shape[:-1], sum(map(len, self.outputs.values())))


def numbers_of(provenance: Inference, tags: Sequence[Any]) -> list[Any]:
    """What users see of tags, that of `zero` for None. Raises TypeMismatchError unless they are numbers."""
    own = provenance.instance
    zero = own.recover_fn(own.zero()) if hasattr(own, "recover_fn") else own.zero()
    found = [zero if tag is None else tag for tag in tags]
    for tag in found:
        if not isinstance(tag, (torch.Tensor, float, int)):
            raise TypeMismatchError(
                f"the tags of the provenance {provenance.name} are no numbers: {tag!r}",
                hint="define `recover_fn`, which makes a number of a tag",
            )
    return found
