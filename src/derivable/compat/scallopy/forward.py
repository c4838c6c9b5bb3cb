"""Forward functions: from tensors or facts of a batch of samples to the probabilities of tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from derivable.compat.scallopy.batches import Batches, Piece
from derivable.compat.scallopy.context import ScallopContext
from derivable.compat.scallopy.input_mapping import InputMapping
from derivable.compat.scallopy.machine import FactList, Machine, Pattern, Settings
from derivable.core.diagnostics import DomainError, TypeMismatchError, UnsupportedError
from derivable.datalog.facts.inputs import as_tuple

if TYPE_CHECKING:
    from derivable.compat.scallopy.provenances import ScallopProvenance

Sample = dict[str, FactList]


class OutputMapping:
    """The tuples of an output, in order; None for all that are found.

    is_single  whether there is one tuple, which has no dimension of its own
    """

    def __init__(self, given: Any):
        self.is_single = isinstance(given, (tuple, bool, int, float, str))
        if isinstance(given, dict):
            given = InputMapping(given)
        if isinstance(given, InputMapping):
            given = None if given.is_none else given.all_tuples()
        self.tuples: tuple[tuple, ...] | None
        if given is None:
            self.tuples = None
        elif self.is_single:
            self.tuples = (as_tuple(given),)
        else:
            self.tuples = tuple(map(as_tuple, given))


class InternalForwardFunction(torch.nn.Module):
    """What `ScallopContext.forward_function` gives: called with tensors [sample, *mapping], or with a list of facts for
    each sample, for each input relation by name.

    context          whose program and facts are those of every sample
    output           the output relation
    output_mapping   its tuples: a list or range gives [sample, tuple], one tuple [sample], None
                     (tuples, [sample, tuple]) for what is found
    output_mappings  relation -> the same, of several outputs
    debug_provenance whether proofs are given too
    jit              accepted; there is an output then

    Raises BindingError for an unknown output, TypeMismatchError for tuples of a mapping that are none of it.
    """

    def __init__(
        self,
        context: ScallopContext,
        output: str | None = None,
        output_mapping: Any = None,
        output_mappings: Mapping[str, Any] | None = None,
        dispatch: str = "parallel",
        debug_provenance: bool = False,
        jit: bool = False,
    ):
        super().__init__()
        if not (context.is_differentiable or context._kind.is_custom):
            raise UnsupportedError(
                "`forward_function` can only be called on a context with a differentiable provenance, not"
                f" {context.provenance!r}",
                hint='provenance="difftopkproofs", for instance',
            )
        if dispatch not in ("single", "serial", "parallel"):
            raise DomainError(f"unknown dispatch {dispatch!r}", hint='"single", "serial" or "parallel"')
        self.context, self.debug_provenance = context, debug_provenance or context.is_debug
        if output is None and isinstance(output_mapping, tuple) and len(output_mapping) == 2:
            first, second = output_mapping
            if isinstance(first, str) and isinstance(second, (list, range, tuple)):
                output, output_mapping = first, second
        self.batches = Batches(context._kind.drops_zero)
        self.outputs: dict[str, OutputMapping] = {}
        if output is not None:
            self.outputs[output] = OutputMapping(output_mapping)
        for name, mapping in (output_mappings or {}).items():
            self.outputs[name] = OutputMapping(mapping)
        if jit and not self.outputs:
            raise DomainError("JIT compiled context must provide one output relation", hint='output="sum_2"')
        self._check(self.outputs)

    def _check(self, outputs: Mapping[str, OutputMapping]) -> None:
        """Raise BindingError or TypeMismatchError for outputs and mappings that do not fit the program."""
        for name, mapping in outputs.items():
            self.context._known(name).checked(name, mapping.tuples or ())

    def forward(
        self,
        disjunctions: Mapping[str, Sequence[Any]] | None = None,
        output_relations: Any = None,
        output_mappings: Any = None,
        outputs: Sequence[str] | None = None,
        **input_facts: Any,
    ) -> Any:
        """The outputs of a batch.

        disjunctions      relation -> for each sample lists of the places of facts that exclude each other
        output_relations  one name, or one name or list of names for each sample, in place of the outputs given before
        output_mappings   a mapping of one output, or relation -> mapping, in place of those given before
        outputs           some of the outputs given before, which alone are computed

        Raises DomainError where there is no input or no output, and where numbers of samples differ.
        """
        samples, device = self._samples(input_facts, disjunctions or {})
        names, mappings = self._wanted(len(samples), output_relations, output_mappings, outputs)
        wanted: dict[str, Any] = {}
        for output, relations in names.items():
            wanted |= dict.fromkeys(filter(None, relations), mappings[output].tuples)
        for name in wanted:
            self.context._known(name)
        fixed = {name: given for name, given in self.context._facts.items() if name not in input_facts}
        machine, settings = self.context._machine(), self.context._settings(self.training)
        if self.context._kind.is_custom:
            every = [{**fixed, **facts} for facts in samples]
            return _of_objects(machine, settings, every, names, mappings, self.context._kind.engine)
        pieces = self.batches.pieces(machine, settings, fixed, samples, wanted) if samples else {}
        proofs = None
        if self.debug_provenance:
            proofs = [machine.proofs({**fixed, **facts}, settings) for facts in samples]
        found = {}
        for output, relations in names.items():
            given = self._output(relations, mappings[output], pieces, proofs)
            found[output] = tuple(one.to(device) if isinstance(one, torch.Tensor) else one for one in given)
            if len(given) == 1:
                (found[output],) = found[output]
        return next(iter(found.values())) if len(found) == 1 else found

    def _wanted(
        self, count: int, relations: Any, mappings: Any, outputs: Sequence[str] | None
    ) -> tuple[dict[str, list[str | None]], dict[str, OutputMapping]]:
        """Output -> the relation of each sample that it is, None where a sample has none; output -> mapping."""
        known = dict(self.outputs)
        one = None
        if isinstance(mappings, Mapping):
            known = {name: OutputMapping(given) for name, given in mappings.items()}
        elif mappings is not None:
            one = OutputMapping(mappings)
        if relations is None and outputs is not None:
            known = {name: known.get(name, OutputMapping(None)) for name in outputs}
        if relations is None:
            known = known or {name: OutputMapping(None) for name in self.context._queries()}
            if not known:
                raise DomainError("there is no output relation", hint="give one to `forward_function`, or at the call")
            names: dict[str, list[str | None]] = {name: [name] * count for name in known}
        elif isinstance(relations, str):
            names = {relations: [relations] * count}
        else:
            if len(relations) != count:
                raise DomainError(f"{len(relations)} output relations for {count} samples")
            if all(isinstance(name, str) for name in relations):
                names = {relations[0] if relations else "": list(relations)}
            else:
                listed = [[given] if isinstance(given, str) else list(given) for given in relations]
                distinct = dict.fromkeys(name for given in listed for name in given)
                names = {name: [name if name in given else None for given in listed] for name in distinct}
        first = (
            next(iter(self.outputs.values()), OutputMapping(None)) if len(self.outputs) == 1 else OutputMapping(None)
        )
        return names, {name: one or known.get(name, first) for name in names}

    def _output(
        self,
        relations: list[str | None],
        mapping: OutputMapping,
        pieces: Mapping[str, Sequence[Piece]],
        proofs: Sequence[Callable[[str], dict[tuple, Any]]] | None,
    ) -> tuple:
        """The values of one output, and what stands beside them."""
        own = [
            (piece, [at for at, place in enumerate(piece.places) if relations[place] == name])
            for name in dict.fromkeys(relations)
            for piece in pieces.get(name or "", ())
        ]
        shown = mapping.tuples
        if shown is None:
            shown = tuple(dict.fromkeys(row for piece, _ in own for row in piece.tuples))
            if len(own) > 1:
                with suppress(TypeError):
                    shown = tuple(sorted(shown))
        values = _assembled(len(relations), shown, own).to(torch.get_default_dtype())
        if not values.requires_grad and torch.is_grad_enabled():
            values.requires_grad_(mapping.tuples is not None or self.training)
        if mapping.is_single:
            values = values[:, 0]
        result: tuple = (values,) if mapping.tuples is not None else (list(shown), values)
        if proofs is None:
            return result
        known = [{} if name is None else of(name) for of, name in zip(proofs, relations)]
        listed = [[one.get(row, []) for row in shown] for one in known]
        return (*result, [one[0] for one in listed] if mapping.is_single else listed)

    # Inputs

    def _samples(self, inputs: Mapping[str, Any], disjunctions: Mapping[str, Any]) -> tuple[list[Sample], Any]:
        """The facts of each sample, with those of the context of the same relations; and the device of the inputs."""
        if not inputs:
            raise DomainError(
                "There is no input to the forward function", hint="give relations by name: f(digit_1=tensor)"
            )
        device, read = torch.device("cpu"), {}
        for name, given in inputs.items():
            self.context._known(name)
            read[name] = self._read(name, given, disjunctions.get(name))
            if isinstance(given, torch.Tensor):
                device = given.device
        sizes = {name: len(samples) for name, samples in read.items()}
        if len(set(sizes.values())) > 1:
            shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise DomainError(f"Inconsistency in batch size: {shown}", hint="all inputs have one number of samples")
        found = []
        for place in range(next(iter(sizes.values()))):
            sample: Sample = {}
            for name, samples in read.items():
                known = self.context._facts.get(name)
                sample[name] = samples[place] if known is None else known.with_more(samples[place])
            found.append(sample)
        return found, device

    def _read(self, name: str, given: Any, disjunctions: Any) -> list[FactList]:
        if isinstance(given, torch.Tensor):
            mapping = self.context._input_mappings.get(name)
            if mapping is None or mapping.is_none:
                raise TypeMismatchError(
                    f"the input `{name}` is a tensor, and the relation has no input mapping",
                    hint=f"add_relation({name!r}, ..., input_mapping=range(10)), or give a list of facts a sample",
                )
            if self.context.is_debug:
                raise TypeMismatchError(
                    f"the input `{name}` is a tensor, and facts have names under {self.context.provenance!r}",
                    hint="give a list of facts a sample: ((probability, name), tuple)",
                )
            tensors, _ = mapping.samples(given)
            return _of_tensors(mapping, tensors.to("cpu"), self.context.supports_disjunctions())
        found = []
        for place, facts in enumerate(given):
            exclusive = None if disjunctions is None else disjunctions[place]
            if isinstance(facts, tuple) and len(facts) == 2 and isinstance(facts[0], list):
                facts, exclusive = facts
            found.append(self._cut(name, self.context._read_facts(name, facts, exclusive)))
        return found

    def _cut(self, name: str, facts: FactList) -> FactList:
        """The most probable facts, as many as are kept of a relation."""
        amount = self.context._retained.get(name)
        if amount is None or len(facts) <= amount:
            return facts
        weights = [1.0 if tag is None else float(tag) for tag in facts.tags]
        kept = sorted(sorted(range(len(weights)), key=lambda i: -weights[i])[:amount])
        ids = None if facts.ids is None else [facts.ids[i] for i in kept]
        tags, groups = [facts.tags[i] for i in kept], [facts.groups[i] for i in kept]
        return FactList([facts.rows[i] for i in kept], tags, groups, ids)


def _of_tensors(mapping: InputMapping, tensors: torch.Tensor, has_groups: bool) -> list[FactList]:
    """The facts of each sample of a tensor [sample, *shape]."""
    tuples = mapping.all_tuples()
    groups = [("tensor", group) if has_groups and group is not None else None for group in mapping.groups()]
    flat = tensors.reshape(len(tensors), -1)
    if mapping.is_whole:
        pattern = mapping.whole_pattern
        if pattern is None or pattern.groups != tuple(groups):
            pattern = mapping.whole_pattern = Pattern(tuple(tuples), tuple(groups), (False,) * len(tuples))
        return [FactList(tuples, row, groups, None, pattern) for row in flat.unbind()]
    found = []
    for tensor, row in zip(tensors, flat):
        kept = mapping.kept(tensor)
        found.append(FactList([tuples[i] for i in kept], row[kept], [groups[i] for i in kept]))
    return found


def _of_objects(
    machine: Machine,
    settings: Settings,
    samples: Sequence[Sample],
    names: Mapping[str, list[str | None]],
    mappings: Mapping[str, OutputMapping],
    provenance: Any,
) -> Any:
    """The outputs under a provenance of one's own: a run for each sample, whose tags it collates."""
    runs = [machine.run(facts, settings) for facts in samples]
    result = {}
    for output, relations in names.items():
        found: list[dict[tuple, Any]] = []
        for name, run in zip(relations, runs):
            view = () if name is None else machine.view(run, name, settings)
            found.append(dict(view.items()) if view else {})
        shown = mappings[output].tuples
        listed = shown is not None
        if shown is None:
            shown = tuple(sorted({row for one in found for row in one}))
        nothing = provenance.recover_fn(provenance.zero())
        whole = provenance.collate([[one.get(row, nothing) for row in shown] for one in found])
        if mappings[output].is_single:
            whole = whole[:, 0] if isinstance(whole, torch.Tensor) else [one[0] for one in whole]
        result[output] = whole if listed else (list(shown), whole)
    return next(iter(result.values())) if len(result) == 1 else result


def _assembled(count: int, shown: Sequence[tuple], own: Sequence[tuple[Piece, list[int]]]) -> torch.Tensor:
    """[sample, tuple] of pieces, with the places of their samples that are meant; 0 where there is nothing."""
    if len(own) == 1 and len(own[0][1]) == count and list(own[0][0].places) == list(range(count)):
        return own[0][0].values
    column = {row: at for at, row in enumerate(shown)}
    dtype = torch.float32
    for piece, _ in own:
        dtype = torch.promote_types(dtype, piece.values.dtype)
    total = torch.zeros(count, len(shown), dtype=dtype)
    for piece, chosen in own:
        rows = torch.tensor([piece.places[at] for at in chosen]).long().unsqueeze(1)
        columns = torch.tensor([column[row] for row in piece.tuples]).long()
        total = total.index_put((rows, columns), piece.values[chosen].to(dtype))
    return total


class ScallopForwardFunction(torch.nn.Module):
    """A program as a module of torch: a context and its forward function in one.

    Arguments beyond those of `ScallopContext` and `InternalForwardFunction`:

    file, program    of the rules: the path of a file, and a text
    relations        pairs (name, types), as for `add_relation`
    rules            texts, as for `add_rule`
    facts            relation -> facts of every sample
    non_probabilistic  the relations whose facts have no tags
    input_mappings   relation -> mapping of its tensors
    output_relation  the output, as `output` of `forward_function`
    retain_topk      relation -> how many facts of a sample are kept
    jit, jit_name, jit_recompile, dispatch, sparse_jacobian, retain_graph, monitors
                     accepted: there is one engine
    """

    def __init__(
        self,
        file: str | None = None,
        program: str | None = None,
        relations: Sequence[tuple[str, Any]] = (),
        rules: Sequence[str] = (),
        facts: Mapping[str, Sequence[Any]] | None = None,
        provenance: str = "difftopkproofs",
        custom_provenance: ScallopProvenance | None = None,
        non_probabilistic: Sequence[str] | None = None,
        input_mappings: Mapping[str, Any] | None = None,
        output_relation: str | None = None,
        output_mapping: Any = None,
        output_mappings: Mapping[str, Any] | None = None,
        k: int = 3,
        train_k: int | None = None,
        test_k: int | None = None,
        wmc_with_disjunctions: bool = False,
        early_discard: bool | None = None,
        iter_limit: int | None = None,
        retain_topk: Mapping[str, int] | None = None,
        jit: bool = False,
        jit_name: str = "",
        jit_recompile: bool = False,
        dispatch: str = "parallel",
        sparse_jacobian: bool = False,
        monitors: Sequence[str] = (),
        retain_graph: bool = False,
    ):
        super().__init__()
        ctx = ScallopContext(
            provenance, custom_provenance, k, wmc_with_disjunctions, train_k, test_k, monitors=monitors
        )
        if file is not None:
            ctx.import_file(file)
        if program is not None:
            ctx.add_program(program)
        for name, types in relations:
            ctx.add_relation(name, types)
        for rule in rules:
            ctx.add_rule(rule)
        ctx.set_non_probabilistic(list(non_probabilistic or ()))
        for name, mapping in (input_mappings or {}).items():
            ctx.set_input_mapping(name, mapping)
        for name, amount in (retain_topk or {}).items():
            ctx.set_sample_topk_facts(name, amount)
        for name, given in (facts or {}).items():
            ctx.add_facts(name, given)
        ctx.set_iter_limit(iter_limit)
        if early_discard is not None:
            ctx.set_early_discard(early_discard)
        self.ctx = ctx
        self.forward_function: Callable[..., Any] = ctx.forward_function(
            output_relation, output_mapping, output_mappings, dispatch, jit=jit
        )

    def forward(
        self,
        disjunctions: Mapping[str, Sequence[Any]] | None = None,
        output_relations: Any = None,
        output_mappings: Any = None,
        outputs: Sequence[str] | None = None,
        **input_facts: Any,
    ) -> Any:
        """The outputs of a batch, as of `InternalForwardFunction`."""
        return self.forward_function(disjunctions, output_relations, output_mappings, outputs, **input_facts)


ForwardFunction = ScallopForwardFunction
Module = ScallopForwardFunction
