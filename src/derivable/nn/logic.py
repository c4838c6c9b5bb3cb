"""A logic program as a layer: probabilities of input facts in, probabilities of derived facts out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from derivable.algebra.semiring import Semiring
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.show.picture import MAX_NODES
from derivable.core import html
from derivable.core.diagnostics import BindingError, DomainError, ShapeError, UnsupportedError
from derivable.core.lazy import without
from derivable.core.registry import nearest
from derivable.datalog.api.program import Program
from derivable.datalog.facts.inputs import InputMapping, as_tuple
from derivable.datalog.run.limits import checked_limits
from derivable.datalog.tags.provenance import EXACT, carrier_of, provenance_of
from derivable.datalog.values.terms import show_value
from derivable.nn.inference import ExactInference, inference_for
from derivable.nn.values import require_distributions, require_factors, require_log_probabilities, require_tags

OutputMapping = Sequence[Any]


class Logic(torch.nn.Module):
    """A logic program whose input facts have probabilities that a network computes.

        layer = dv.nn.Logic(
            "rel sum_2(a + b) = digit_1(a), digit_2(b)",
            inputs={"digit_1": dv.categorical(range(10)), "digit_2": dv.categorical(range(10))},
            outputs={"sum_2": range(19)},
        )
        y = layer(digit_1=p1, digit_2=p2)        # p1, p2 [batch, 10] -> y [batch, 19]

    program      program text, a `derivable.Program`, or the path of a file (a `Path`, or a string ending in .scl);
                 facts in it, tagged or not, take part in every call
    inputs       for each input relation, `dv.categorical(values)` (exactly one holds) or `dv.independent(tuples)`
    outputs      for each output relation, the facts wanted, in order: scalars or tuples; `()` alone asks for the
                 one fact of a relation without arguments and gives no dimension of its own
    provenance   "exact": the probability over all worlds, mutual exclusion respected, compiled once to a circuit;
                 "topkproofs": the exact probability of the k most probable proofs; or a semiring, its record or
                 name: "minmaxprob" (godel), the strongest derivation, by its weakest fact; "addmultprob", sums of
                 products, cut at 1; "max_product", "log", your own. Where values are no probabilities, inputs and
                 outputs are values of the semiring: lengths under "min_plus", scores under "max_plus"
    k            of topkproofs
    facts        further facts that do not change between calls (a map, a knowledge base), as for `Program.run`.
                 Facts that do change from call to call are inputs: `independent`, with probabilities 0 and 1
    time_limit   seconds for deriving and compiling; then CompileTimeout is raised
    tuple_limit, round_limit, memory_limit
                 of deriving, as for `Program.run`
    log_probabilities
                 forward takes and returns log-probabilities, in nats: pass log_softmax, get what nll_loss takes.
                 Exact provenance only.

    Call it with one tensor [*batch, fact] for each input relation, by name or in the order of `inputs`; batch
    shapes broadcast. It returns [*batch, fact] of the output relation, or a dict of these if there are several.
    An empty batch gives an empty result. A fact that the program cannot derive has probability 0.

    The rows of a categorical input add up to one, up to 1e-3. Those of an input declared as
    `dv.categorical(values, factors=True)` are used as they are: an exact output is then the sum over worlds of the
    products of the weights. Other provenances only compare and multiply the weights.

    Gradients are exact for the function computed; ties in minmaxprob go to the smallest index, topkproofs
    differentiates the proofs chosen, and the cut of addmultprob lets gradients pass (as in Scallop).

    A layer can be pickled and copied, and works in DataParallel and torch.compile. It has no parameters.

    Raises, with a hint: BindingError for a missing, superfluous or misspelt input; ShapeError for a tensor
    that does not fit its relation; DomainError for NaN or values outside [0, 1] (see `values.TOLERANCE`), or
    outside the domain of a semiring, and for rows of a choice that do not add up to one;
    and whatever the program itself raises.
    """

    __dir__ = without("carrier", "inference", "size_text")

    def __init__(
        self,
        program: str | os.PathLike | Program,
        inputs: Mapping[str, InputMapping],
        outputs: Mapping[str, OutputMapping],
        provenance: str | Semiring = "exact",
        *,
        k: int = 3,
        facts: Mapping[str, Any] | None = None,
        log_probabilities: bool = False,
        time_limit: float | None = None,
        tuple_limit: int | None = None,
        round_limit: int | None = None,
        memory_limit: int | str | None = None,
    ):
        super().__init__()
        record = provenance_of(provenance)
        if log_probabilities and record is not EXACT:
            raise UnsupportedError(
                f"{record.name} has no log-space form",
                hint='provenance="exact", or take the logarithm of what this layer returns',
            )
        if facts is not None and not isinstance(facts, Mapping):
            raise DomainError(f"facts is a {type(facts).__name__}", hint='map relations: facts={"edge": [(0, 1)]}')
        self.program = _program(program)
        self.provenance = provenance if isinstance(provenance, str) else record.name
        self.carrier = carrier_of(record, self.provenance)
        self.log_probabilities = log_probabilities
        self.inputs = _checked_inputs(inputs)
        self.outputs, self._scalar_outputs = _checked_outputs(outputs)
        limits = checked_limits(None, round_limit, tuple_limit, time_limit, memory_limit)
        self.inference: Any = inference_for(record, self.program, self.inputs, self.outputs, k, facts, limits)

    @property
    def circuit(self):
        """The compiled `derivable.circuit.Circuit`; its roots are the output facts in order. Exact provenance only."""
        if not isinstance(self.inference, ExactInference):
            raise UnsupportedError(f"{self.provenance} evaluates derivations, not a circuit", hint='provenance="exact"')
        return self.inference.circuit

    def forward(self, *positional: torch.Tensor, **inputs: torch.Tensor) -> Any:
        """One tensor [*batch, fact] a relation -> [*batch, fact] or a dict of such; see the class."""
        values = self._values(positional, inputs, in_logs=self.log_probabilities)
        return self._named(self.inference(values, self.log_probabilities, self.log_probabilities))

    def log(self, *positional: torch.Tensor, **inputs: torch.Tensor) -> Any:
        """Like calling the layer with probabilities, but returns log-probabilities (nats) without underflow.

        For a loss: `nll_loss(layer.log(digit_1=p1, digit_2=p2), target)`. With `log_probabilities=True` the
        inputs are log-probabilities here too. Exact provenance only.
        """
        if not isinstance(self.inference, ExactInference):
            raise UnsupportedError(
                f"{self.provenance} has no log-space form", hint='provenance="exact", or take the logarithm yourself'
            )
        values = self._values(positional, inputs, in_logs=self.log_probabilities)
        return self._named(self.inference(values, self.log_probabilities, True))

    def explain(self, stage: str = "layer") -> str:
        """What the layer is made of: "layer"; or a stage of the program ("ram", ...) or the circuit ("levels", ...)."""
        if stage == "layer":
            return self._summary()
        if stage in ("nodes", "levels", "kernels"):
            return self.circuit.explain(stage)
        return self.program.explain(stage)

    def size_text(self) -> str:
        """The size of what is evaluated, for people: "239 nodes, 418 edges, 3 levels"."""
        return self.inference.size_text()

    def extra_repr(self) -> str:
        sides = [
            ", ".join(f"{name}: {len(facts)}" for name, facts in side.items()) for side in (self.inputs, self.outputs)
        ]
        return f"{sides[0]} -> {sides[1]}, provenance={self.provenance!r}"

    def _output_shape(self, name: str) -> str:
        return "[*batch]" if name in self._scalar_outputs else f"[*batch, {len(self.outputs[name])}]"

    def _summary(self) -> str:
        rows = [f"provenance {self.provenance}: {self.inference.size_text()}"]
        rows += [f"input  {name}: {facts!r}, tensor [*batch, {len(facts)}]" for name, facts in self.inputs.items()]
        rows += [f"output {name}: {self._output_shape(name)}" for name in self.outputs]
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        """A table of inputs and outputs for notebooks, and the picture of a small circuit."""
        rows = [("input", name, repr(facts), f"[*batch, {len(facts)}]") for name, facts in self.inputs.items()]
        rows += [("output", name, _shown(facts), self._output_shape(name)) for name, facts in self.outputs.items()]
        title = f"<div><b>Logic</b>, provenance {self.provenance}: {html.safe(self.size_text())}</div>"
        small = isinstance(self.inference, ExactInference) and self.circuit.num_nodes <= MAX_NODES
        picture = self._circuit_of_facts()._repr_html_() if small else ""
        return title + html.table(("", "relation", "facts", "tensor"), rows) + picture

    def _circuit_of_facts(self) -> Circuit:
        """The circuit, with each variable called by the fact that it stands for."""
        names = [f"{name}{_shown([fact])}" for name, facts in self.inputs.items() for fact in facts.tuples]
        count, place = self.circuit.num_variables, self.inference.columns.place
        names += [f"random fact {number}" for number in range(count - len(names))]
        return replace(self.circuit, names=tuple(names[i] for i in (range(count) if place is None else place.tolist())))

    def _named(self, values: Any) -> Any:
        """Cut [*batch, output fact] into the output relations; nests of such are made of their scalars."""
        if len(self.outputs) == 1 and not self._scalar_outputs and isinstance(values, torch.Tensor):
            return values
        result = {}
        start = 0
        for name, facts in self.outputs.items():
            stop = start + len(facts)
            places: Any = start if name in self._scalar_outputs else slice(start, stop)
            if isinstance(values, torch.Tensor):
                result[name] = values[..., places]
            else:
                result[name] = self.inference.nest([part[..., places] for part in values])
            start = stop
        return next(iter(result.values())) if len(result) == 1 else result

    def _values(
        self, positional: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor], in_logs: bool
    ) -> list[torch.Tensor]:
        """The inputs in order, checked, in one floating dtype, [*batch, fact] with one batch shape."""
        tensors = self._matched(positional, named)
        for name, tensor in tensors.items():
            self._check(name, tensor, in_logs)
        batch = self._batch_shape(tensors)
        dtype = torch.float32
        for tensor in tensors.values():
            dtype = torch.promote_types(dtype, tensor.dtype)
        return [
            tensor
            if tensor.dtype == dtype and tensor.shape[:-1] == batch
            else tensor.to(dtype).expand(*batch, tensor.shape[-1])
            for tensor in tensors.values()
        ]

    def _matched(self, positional: tuple, named: dict) -> dict[str, torch.Tensor]:
        if len(positional) > len(self.inputs):
            raise BindingError(f"{len(positional)} tensors, but the inputs are {', '.join(self.inputs)}")
        given = dict(zip(self.inputs, positional))
        for name, tensor in named.items():
            if name not in self.inputs:
                raise BindingError(
                    f"no input relation {name!r}{_near(name, list(self.inputs))}",
                    hint=f"the inputs are {', '.join(self.inputs)}",
                )
            if name in given:
                raise BindingError(f"input {name!r} is given twice, by place and by name")
            given[name] = tensor
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise BindingError(
                f"no tensor for {', '.join(map(repr, missing))}",
                hint=f"call layer({', '.join(f'{name}=...' for name in self.inputs)})",
            )
        return {name: given[name] for name in self.inputs}

    def _check(self, name: str, tensor: Any, in_logs: bool) -> None:
        facts = self.inputs[name]
        if not isinstance(tensor, torch.Tensor):
            raise ShapeError(f"input {name!r} is a {type(tensor).__name__}, not a tensor", hint="torch.as_tensor(...)")
        if tensor.dim() == 0 or tensor.shape[-1] != len(facts):
            raise ShapeError(
                f"input {name!r} has shape {list(tensor.shape)}; {facts!r} needs [*batch, {len(facts)}]",
                hint=f"the last dimension is one probability for each of the {len(facts)} facts of {name}",
            )
        if tensor.is_complex():
            raise ShapeError(f"input {name!r} is complex; probabilities are real")
        if facts.has_factors and self.carrier.has_probabilities:
            if not in_logs:
                require_factors(name, tensor)
            return
        if in_logs:
            require_log_probabilities(name, tensor)
        else:
            require_tags(name, tensor, self.carrier)
        if facts.is_exclusive and self.carrier.has_probabilities:
            require_distributions(name, tensor, in_logs)

    def _batch_shape(self, tensors: dict[str, torch.Tensor]) -> tuple[int, ...]:
        if not tensors:
            return ()
        first, *others = [tensor.shape[:-1] for tensor in tensors.values()]
        if all(shape == first for shape in others):
            return tuple(first)
        try:
            return tuple(torch.broadcast_shapes(first, *others))
        except RuntimeError:
            shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in tensors.items())
            raise ShapeError(
                f"the batch dimensions do not fit together: {shapes}",
                hint="all but the last dimension must be equal, or 1",
            ) from None


def _program(program: str | os.PathLike | Program) -> Program:
    if isinstance(program, Program):
        return program
    if isinstance(program, os.PathLike) or (
        isinstance(program, str) and program.endswith(".scl") and "\n" not in program
    ):
        return Program.from_file(Path(program))
    if isinstance(program, str):
        return Program(program)
    raise DomainError(f"a program is text, a Program or a path, not {type(program).__name__}")


def _checked_inputs(inputs: Mapping[str, InputMapping]) -> dict[str, InputMapping]:
    if not isinstance(inputs, Mapping):
        raise DomainError(
            f"inputs is a {type(inputs).__name__}", hint='map relations: inputs={"digit_1": dv.categorical(range(10))}'
        )
    for name, facts in inputs.items():
        _check_name(name)
        if not isinstance(facts, InputMapping):
            raise DomainError(
                f"input {name!r} is given as {type(facts).__name__}",
                hint="dv.categorical(range(10)) for one choice, dv.independent([...]) for independent facts",
            )
        if facts.probabilities is not None:
            raise DomainError(
                f"input {name!r} has probabilities already",
                hint="leave them out: they are what the layer is called with",
            )
    return dict(inputs)


def _checked_outputs(outputs: Mapping[str, OutputMapping]) -> tuple[dict[str, list[tuple]], frozenset[str]]:
    """The facts of each output relation as tuples, and the relations that give no dimension."""
    if not isinstance(outputs, Mapping):
        raise DomainError(
            f"outputs is a {type(outputs).__name__}",
            hint='map each relation to the facts wanted: outputs={"path": [(0, 1), (0, 2)]}; '
            "`()` asks for the one fact of a relation without arguments",
        )
    if not outputs:
        raise DomainError("a layer needs outputs", hint='outputs={"sum_2": range(19)}')
    facts: dict[str, list[tuple]] = {}
    scalar = set()
    for name, wanted in outputs.items():
        _check_name(name)
        if isinstance(wanted, tuple) and wanted == ():
            facts[name] = [()]
            scalar.add(name)
            continue
        try:
            facts[name] = [as_tuple(value) for value in wanted]
        except TypeError:
            raise DomainError(
                f"output {name!r} is {wanted!r}, which lists no facts", hint="a range or a list of values or tuples"
            ) from None
        if not facts[name]:
            raise DomainError(
                f"output {name!r} lists no facts", hint="() asks for the fact of a relation without arguments"
            )
    return facts, frozenset(scalar)


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise DomainError(f"{name!r} is no name of a relation", hint='map names: {"digit_1": ...}')


def _shown(facts: Sequence[tuple]) -> str:
    """Facts as the language writes them, the first few of many."""
    texts = [f"({', '.join(map(show_value, fact))})" for fact in facts[:8]]
    return ", ".join([*texts, *(["…"] if len(facts) > 8 else [])])


def _near(name: str, known: Sequence[str]) -> str:
    close = nearest(name, known)
    return f"; did you mean {close!r}?" if close else ""
