"""A logic program as a layer: probabilities of input facts in, probabilities of derived facts out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from derivable.algebra.semiring import Semiring
from derivable.bridge.torch import as_node, is_observed, refuse_capture, within_memory
from derivable.bridge.torch_parts import is_legacy_copies
from derivable.circuit.graph.circuit import Circuit
from derivable.core import html
from derivable.core.diagnostics import DomainError, UnsupportedError, warn
from derivable.core.lazy import hidden_names
from derivable.datalog.api.program import Program
from derivable.datalog.facts.inputs import InputMapping, Varying
from derivable.datalog.run.limits import Limits, checked_limits
from derivable.datalog.tags.custom import Provenance
from derivable.datalog.tags.provenance import EXACT, carrier_of, proofs_per_tag, provenance_of
from derivable.datalog.values.terms import show_value
from derivable.nn.batch import BatchLogic, each
from derivable.nn.declared import (
    OutputMapping,
    checked_inputs,
    checked_outputs,
    matched,
    program_of,
    with_evidence,
    with_fact_axis,
)
from derivable.nn.impossible import warn_of_underivable, warn_of_unknown_constants
from derivable.nn.inference import ExactInference, in_range, inference_for, widened
from derivable.nn.values import (
    batch_shape,
    require_distributions,
    require_fact_axis,
    require_factors,
    require_log_probabilities,
    require_tags,
)
from derivable.nn.varying import VaryingInputs, checked_on_limit


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
    inputs       for each input relation, `dv.categorical(values)` (exactly one holds), `dv.independent(tuples)`, or
                 `dv.varying()` where each sample has facts of its own
    outputs      for each output relation, the facts wanted, in order: scalars or tuples; `()` alone asks for the
                 one fact of a relation without arguments and gives no dimension of its own; None asks for whatever is
                 derived in each sample
    provenance   "exact": the probability over all worlds, mutual exclusion respected, compiled once to a circuit;
                 "topkproofs": the exact probability of the k most probable proofs; or a semiring, its record or
                 name: "minmaxprob" (godel), the strongest derivation, by its weakest fact; "addmultprob", sums of
                 products, cut at 1; "max_product", "log", your own. Where values are no probabilities, inputs and
                 outputs are values of the semiring: lengths under "min_plus", scores under "max_plus". An object of a
                 class of your own, a `datalog.Provenance`, is run on torch scalars, one data point after the other
    k            proofs kept by topkproofs and its kin, 3 if it is not given; `diff-top-1-proofs` and the other names of
                 papers say it themselves
    facts        further facts that do not change between calls (a map, a knowledge base), as for `Program.run`.
                 Facts that do change from call to call are inputs: `independent`, with probabilities 0 and 1
    time_limit   seconds for deriving and compiling; then CompileTimeout is raised
    tuple_limit, round_limit, memory_limit
                 of deriving, as for `Program.run`
    on_limit     "raise", or "skip" for samples with facts of their own: one that exceeds a limit of tuples or rounds,
                 which hold for each sample, then has no outputs, and the others have theirs; `skipped` maps its number
                 to the error
    log_probabilities
                 forward takes and returns log-probabilities, in nats: pass log_softmax, get what nll_loss takes.
                 Exact provenance only.
    evidence     for each relation the facts that may be observed, in order, as for `outputs`. The layer has an input
                 `evidence` [*batch, observable fact] then, of all relations one after the other: 1 for a fact that was
                 observed to hold, 0 for one that was observed not to, 0.5 for one that was not observed, and between
                 these the likelihood ratio p : 1 - p of uncertain evidence. What the layer returns are probabilities
                 given the evidence, and given the `evidence` items of the program. Exact provenance only

    Call it with one tensor [*batch, fact] for each input relation, by name or in the order of `inputs`; batch
    shapes broadcast. It returns [*batch, fact] of the output relation, or a dict of these if there are several.
    An empty batch gives an empty result. A fact that the program cannot derive has probability 0.

    A varying input is called with a list that has for each sample (tuples, probabilities [n]), or (tuples,
    probabilities, groups): facts of one group from 0 on exclude each other, -1 is independent. Tuples are a list, an
    array [n, column] or a tuple of columns, each an array [n]; `dv.nn.Ragged` and `dv.nn.Padded` are whole batches. One
    run derives the tuples of all samples. `certain=` has facts of each sample that are certain, `outputs=` the facts
    wanted of each sample, as lists with a list for each sample. What is derived (None) is a list with (tuples, tensor
    [m]) for each sample, what is wanted of each sample a list of tensors.

        layer = dv.nn.Logic("rel answer(x + y) = read(0, x), read(1, y)", {"read": dv.varying()}, {"answer": range(5)})
        y = layer(read=[([(0, 1), (1, 2)], p1), ([(0, 2), (0, 0), (1, 1)], p2)])        # y [2, 5]

    The rows of a categorical input add up to one, up to 1e-3. Those of an input declared as
    `dv.categorical(values, factors=True)` are used as they are: an exact output is then the sum over worlds of the
    products of the weights. Other provenances only compare and multiply the weights.

    Gradients are exact for the function computed; ties in minmaxprob go to the smallest index, topkproofs
    differentiates the proofs chosen, and the cut of addmultprob lets gradients pass (as in Scallop).

    Raises for varying inputs, with the number of the sample: TypeMismatchError for a tuple that does not fit its
    relation, ShapeError for probabilities, groups or offsets that do not fit the tuples.

    A layer can be pickled and copied, and works in DataParallel and torch.compile. It has no parameters.

    Raises, with a hint: BindingError for a missing, superfluous or misspelt input; ShapeError for a tensor
    that does not fit its relation; DomainError for NaN or values outside [0, 1] (see `values.TOLERANCE`), or
    outside the domain of a semiring, and for rows of a choice that do not add up to one;
    and whatever the program itself raises.
    """

    # torch.vmap names what it maps: else by its whole printed form, which torch.compile cannot read.
    __name__ = "Logic"

    def __dir__(self) -> list[str]:
        hidden = ("carrier", "inference", "size_text")
        # torch.jit.trace reads what is listed.
        has_circuit = isinstance(vars(self).get("_modules", {}).get("inference"), ExactInference)
        return hidden_names(*hidden, *(() if has_circuit else ("circuit",)))(self)

    def __init__(
        self,
        program: str | os.PathLike | Program,
        inputs: Mapping[str, InputMapping | Varying],
        outputs: Mapping[str, OutputMapping | None],
        provenance: str | Semiring | Provenance = "exact",
        *,
        k: int | None = None,
        facts: Mapping[str, Any] | None = None,
        log_probabilities: bool = False,
        time_limit: float | None = None,
        tuple_limit: int | None = None,
        round_limit: int | None = None,
        memory_limit: int | str | None = None,
        on_limit: Literal["raise", "skip"] = "raise",
        evidence: Mapping[str, OutputMapping] | None = None,
    ):
        super().__init__()
        record = provenance_of(provenance)
        k = proofs_per_tag(provenance, record, k)
        if log_probabilities and record is not EXACT:
            raise UnsupportedError(
                f"{record.name} has no log-space form",
                hint='provenance="exact", or take the logarithm of what this layer returns',
            )
        if facts is not None and not isinstance(facts, Mapping):
            raise DomainError(f"facts is a {type(facts).__name__}", hint='map relations: facts={"edge": [(0, 1)]}')
        self._has_warned = False
        self.program = program_of(program)
        self.provenance = provenance if isinstance(provenance, str) else record.name
        self.carrier = carrier_of(record, self.provenance)
        self.log_probabilities = log_probabilities
        declared = checked_inputs(inputs)
        self.inputs, observable = with_evidence(declared, evidence)
        self.outputs, self._scalar_outputs = checked_outputs(outputs)
        limits = checked_limits(None, round_limit, tuple_limit, time_limit, memory_limit)
        warn_of_unknown_constants(self.program, declared, facts or {})
        skips = checked_on_limit(on_limit)
        varies = any(isinstance(given, Varying) for given in self.inputs.values())
        if varies or None in self.outputs.values():
            if observable or self.program.evidence:
                raise UnsupportedError(
                    "a layer whose facts differ from sample to sample takes no evidence",
                    hint="declare all facts that there may be, `dv.independent(tuples)`, and outputs",
                )
            self.inference: Any = self._varying(record, k, facts, limits, skips)
        else:
            self.inference = inference_for(record, self.program, declared, self.outputs, k, facts, limits, observable)
            if (never := self.inference.never) is not None:
                is_checked = self.carrier.has_probabilities
                warn_of_underivable(self.program, declared, facts or {}, self.outputs, never, is_checked)

    def _varying(self, record: Any, k: int, facts: Mapping[str, Any] | None, limits: Limits, skips: bool) -> Any:
        if self.log_probabilities:
            raise UnsupportedError(
                "log_probabilities is for inputs that are the same in all samples",
                hint="give probabilities, `log_probabilities.exp()`, and take the logarithm of what the layer returns",
            )
        logic = BatchLogic(self.program, record, self.provenance, k, facts, limits)
        logic.check(tuple(self.inputs), tuple(self.outputs))
        return VaryingInputs(logic, self.inputs, self.outputs, skips)

    @property
    def skipped(self) -> dict[int, Exception]:
        """The samples of the last call that exceeded a limit, where `on_limit="skip"`, and their errors."""
        return getattr(self.inference, "skipped", {})

    @property
    def circuit(self):
        """The compiled `derivable.circuit.Circuit`; its roots are the output facts in order. Exact provenance only.

        With evidence the first root is that, and the others are in conjunction with it.
        """
        if isinstance(self.inference, VaryingInputs):
            raise UnsupportedError(
                "a layer whose facts differ from sample to sample has a circuit for each structure that it meets",
                hint="declare inputs with fixed facts, `dv.independent(tuples)`, for one circuit",
            )
        if not isinstance(self.inference, ExactInference):
            raise UnsupportedError(f"{self.provenance} evaluates derivations, not a circuit", hint='provenance="exact"')
        return self.inference.circuit

    def forward(self, *positional: Any, **inputs: Any) -> Any:
        """One tensor [*batch, fact] a relation -> [*batch, fact] or a dict of such; see the class."""
        if (node := as_node(self, positional, inputs)) is not None:
            return node
        if isinstance(self.inference, VaryingInputs):
            of_samples: Any = self._of_samples
            if torch.compiler.is_compiling():
                # As a decorator it would import torch._dynamo.
                of_samples = torch.compiler.disable(of_samples)
            return of_samples(positional, inputs)
        return self._evaluated(positional, inputs)

    def _of_samples(self, positional: tuple, inputs: dict[str, Any]) -> Any:
        """The outputs of samples with facts of their own."""
        refuse_capture("a layer whose facts differ from sample to sample")
        options = {name: inputs.pop(name, None) for name in ("certain", "outputs") if name not in self.inputs}
        given = with_fact_axis(self.inputs, matched(self.inputs, positional, inputs))
        found = self.inference(given, options.get("certain"), options.get("outputs"))
        for name in self._scalar_outputs:
            if not (options.get("outputs") or {}).get(name):
                found[name] = each(found[name], lambda one: one[:, 0])
        return next(iter(found.values())) if len(found) == 1 else found

    def _evaluated(self, positional: tuple, inputs: dict[str, Any]) -> Any:
        values = self._values(positional, inputs, in_logs=self.log_probabilities)
        return self._inferred(values, self.log_probabilities)

    def _inferred(self, values: list[torch.Tensor], out_logs: bool) -> Any:
        if not values or values[0].is_cpu:
            return self._named(self._found(values, out_logs))
        with within_memory("a layer", values):
            return self._named(self._found(values, out_logs))

    def _found(self, values: list[torch.Tensor], out_logs: bool) -> Any:
        found = self.inference(values, self.log_probabilities, out_logs)
        if not self._has_warned:
            one = found if isinstance(found, torch.Tensor) else found[0] if len(found) == 1 else None
            if one is not None:
                self._watch_for_impossible(one, out_logs)
        # Those of circuits are in order.
        is_exact = isinstance(self.inference, ExactInference)
        return found if is_exact else in_range(found, self.carrier)

    def _watch_for_impossible(self, found: torch.Tensor, in_logs: bool) -> None:
        """Warn when a loss depends on the logarithm of an output whose probability is 0: it is infinite."""
        if is_observed() or not (found.requires_grad and found.is_cpu):
            return
        values = found.detach()
        impossible = torch.isneginf(values) if in_logs else values == 0
        if not bool(impossible.any()):
            return

        def check(adjoints: torch.Tensor | None) -> None:
            # None stands for zeros.
            if adjoints is None or self._has_warned or is_observed() or is_legacy_copies(adjoints):
                return
            # A logarithm of zero has an infinite derivative.
            wanted = (impossible & (adjoints != 0 if in_logs else ~adjoints.isfinite())).nonzero()
            if not len(wanted):
                return
            self._has_warned = True
            *row, place = wanted[0].tolist()
            names = [f"{name}{_shown([fact])}" for name, facts in self.outputs.items() for fact in facts]
            where = f" in row {row} of the batch" if row else ""
            loss = f"the loss depends on {names[place]}, of probability 0{where}: it is infinite, and "
            if in_logs:
                hint = "the program cannot derive that label, or only from facts whose probability is exactly 0"
                warn(f"{loss}has no gradient", hint=hint)
            else:
                hint = "`layer.log(...)` has the logarithms of its outputs, with gradients that are numbers"
                warn(f"{loss}so are its gradients, or NaN", hint=hint)

        found.register_hook(check)

    def log(self, *positional: torch.Tensor, **inputs: torch.Tensor) -> Any:
        """Like calling the layer with probabilities, but returns log-probabilities (nats) without underflow.

        For a loss: `nll_loss(layer.log(digit_1=p1, digit_2=p2), target)`. With `log_probabilities=True` the
        inputs are log-probabilities here too. Exact provenance only.
        """
        if isinstance(self.inference, VaryingInputs):
            raise UnsupportedError(
                "a layer whose facts differ from sample to sample has no log-space form",
                hint="take the logarithm of what it returns",
            )
        if not isinstance(self.inference, ExactInference):
            raise UnsupportedError(
                f"{self.provenance} has no log-space form", hint='provenance="exact", or take the logarithm yourself'
            )
        values = self._values(positional, inputs, in_logs=self.log_probabilities)
        return self._inferred(values, True)

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
            ", ".join(f"{name}: {_size(facts)}" for name, facts in side.items()) for side in (self.inputs, self.outputs)
        ]
        return f"{sides[0]} -> {sides[1]}, provenance={self.provenance!r}"

    def _input_shape(self, name: str) -> str:
        facts = self.inputs[name]
        return "a list [sample]" if isinstance(facts, Varying) else f"[*batch, {len(facts)}]"

    def _output_shape(self, name: str) -> str:
        if self.outputs[name] is None:
            return "a list [sample]"
        return "[*batch]" if name in self._scalar_outputs else f"[*batch, {len(self.outputs[name])}]"

    def _summary(self) -> str:
        rows = [f"provenance {self.provenance}: {self.inference.size_text()}"]
        for name, facts in self.inputs.items():
            kind = "" if isinstance(facts, Varying) else "tensor "
            rows.append(f"input  {name}: {facts!r}, {kind}{self._input_shape(name)}")
        rows += [f"output {name}: {self._output_shape(name)}" for name in self.outputs]
        return "\n".join(rows)

    def _repr_html_(self) -> str:
        """A table of inputs and outputs for notebooks, and the picture of a small circuit."""
        from derivable.circuit.show.picture import MAX_NODES

        rows = [("input", name, repr(facts), self._input_shape(name)) for name, facts in self.inputs.items()]
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
        tensors = with_fact_axis(self.inputs, matched(self.inputs, positional, named))
        for name, tensor in tensors.items():
            self._check(name, tensor, in_logs)
        batch = batch_shape(tensors)
        dtype = torch.float32
        for tensor in tensors.values():
            dtype = torch.promote_types(dtype, tensor.dtype)
        return [
            tensor
            if tensor.dtype == dtype and tensor.shape[:-1] == batch
            else self._widened(name, tensor, dtype, in_logs).expand(*batch, tensor.shape[-1])
            for name, tensor in tensors.items()
        ]

    def _widened(self, name: str, tensor: torch.Tensor, dtype: torch.dtype, in_logs: bool) -> torch.Tensor:
        if self.carrier.has_probabilities and not self.inputs[name].has_factors:
            return widened(tensor, dtype, in_logs)
        return tensor.to(dtype)

    def _check(self, name: str, tensor: Any, in_logs: bool) -> None:
        facts = self.inputs[name]
        require_fact_axis(name, tensor, facts)
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


def _size(facts: Any) -> str:
    """How many facts of a relation there are, for people."""
    return "derived" if facts is None else "varying" if isinstance(facts, Varying) else str(len(facts))


def _shown(facts: Sequence[tuple] | None) -> str:
    """Facts as the language writes them, the first few of many."""
    if facts is None:
        return "whatever is derived"
    texts = [f"({', '.join(map(show_value, fact))})" for fact in facts[:8]]
    return ", ".join([*texts, *(["…"] if len(facts) > 8 else [])])
