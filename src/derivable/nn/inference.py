"""What a logic layer evaluates: an exact circuit, or the derivation graph under another provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.bridge.torch import is_captured
from derivable.bridge.torch_parts import physical, tree_map
from derivable.circuit.graph.circuit import Circuit
from derivable.circuit.queries.transform import without_absences
from derivable.core.diagnostics import DomainError
from derivable.datalog.api.program import Program
from derivable.datalog.exact.exact import ExactQuery, compile_exact, refuse_evidence
from derivable.datalog.facts.inputs import InputMapping
from derivable.datalog.run.limits import Limits, Watch, watched
from derivable.datalog.tags.provenance import EXACT, TOP_PROOFS, Inference
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.nn.derived import DerivedFacts
from derivable.nn.impossible import underivable
from derivable.nn.values import TOLERANCE

if TYPE_CHECKING:
    from derivable.datalog.exact.ground_program import GroundProgram
    from derivable.datalog.tags.carrier import Carrier


def inference_for(
    provenance: Semiring | Inference,
    program: Program,
    inputs: Mapping[str, InputMapping],
    outputs: Mapping[str, Sequence[tuple]],
    k: int,
    facts: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    evidence: Mapping[str, Sequence[tuple]] | None = None,
) -> torch.nn.Module:
    """The module (values, in_logs, out_logs) -> [*batch, output fact]; of provenances but exact, a list.

    evidence  tuples that may be observed, whose numbers come behind the values
    """
    watch = Watch(limits or Limits())
    if provenance is EXACT:
        query = watched(watch, lambda: compile_exact(program, inputs, outputs, facts, watch=watch, evidence=evidence))
        return ExactInference(query, [*inputs, *(["evidence"] if evidence else [])])
    refuse_evidence(program, evidence)
    if isinstance(provenance, Inference) and provenance.instance is not None:
        from derivable.nn.custom import CustomInference

        return CustomInference(provenance, program, inputs, outputs, facts, limits or Limits())
    from derivable.datalog.exact.ground_program import ground

    if provenance is TOP_PROOFS:
        found = _searching(program, inputs, outputs, k, facts, watch)
        if found is not None:
            return found
    semiring = provenance if isinstance(provenance, Semiring) else boolean
    grounded = watched(watch, lambda: ground(program, inputs, outputs, facts, semiring, watch, provenance))
    return inference_on(grounded, list(inputs), provenance, k)


def _searching(
    program: Program,
    inputs: Mapping[str, InputMapping],
    outputs: Mapping[str, Sequence[tuple]],
    k: int,
    facts: Mapping[str, Any] | None,
    watch: Watch,
) -> torch.nn.Module | None:
    """The proofs of runs; None for programs that make random facts, whose derivations have to be known, and for very
    many proofs."""
    from derivable.datalog.exact.ground_program import GroundProgram
    from derivable.nn.derivations import TopProofsInference, adds_conjunctions
    from derivable.nn.proof_search import ProofSearch

    if not adds_conjunctions(k):
        return None
    found = watched(watch, lambda: ProofSearch.of(program, inputs, outputs, facts, k, watch))
    if found is None:
        return None
    search, random = found
    sizes = [len(mapping) for mapping in inputs.values()]
    ends = np.cumsum([0, *sizes])
    variables = {name: np.arange(start, start + size) for name, start, size in zip(inputs, ends.tolist(), sizes)}
    # In a run the facts of the program come first.
    place = np.concatenate([ends[-1] + np.arange(search.num_fixed), np.arange(ends[-1])])
    groups = tuple(place[group] for group in random.groups)
    fixed = np.arange(ends[-1], len(place))
    weights = np.asarray(random.probabilities[: search.num_fixed], np.float64)
    none = np.empty(0, np.int64)
    ground = GroundProgram(
        *(none, none, np.zeros(1, np.int64), none, np.zeros(search.num_roots, np.int64), ()),
        *(len(place), variables, groups, fixed, weights, RandomFacts()),
    )
    return TopProofsInference(ground, list(inputs), k, search)


def inference_on(ground: GroundProgram, names: Sequence[str], provenance: Semiring | Inference, k: int) -> Any:
    """The module of a ground program under a provenance other than exact; `names` are the inputs, in order."""
    from derivable.nn.derivations import ProofSetInference, SemiringInference, TopProofsInference, adds_conjunctions

    if isinstance(provenance, Semiring):
        return SemiringInference(ground, names, provenance)
    if provenance is not TOP_PROOFS or not adds_conjunctions(k):
        return ProofSetInference(ground, names, provenance, k)
    return TopProofsInference(ground, names, k)


class FactColumns(torch.nn.Module):
    """Scatters inputs and fixed probabilities to variable columns.

    columns        for each input, the variable (0-based) of each of its facts
    fixed          [fixed] the variables of the random facts written in the program, fixed_weights their probabilities
    """

    def __init__(self, columns: Sequence[np.ndarray], num_variables: int, fixed: np.ndarray, fixed_weights: np.ndarray):
        super().__init__()
        given = np.concatenate([*columns, fixed]).astype(np.int64)
        place = np.empty(num_variables, np.int64)
        place[given] = np.arange(len(given))
        in_order = bool((place == np.arange(num_variables)).all())
        self.register_buffer("place", None if in_order else torch.as_tensor(place), persistent=False)
        weights = torch.as_tensor(np.array(fixed_weights, np.float64)) if len(fixed) else None
        self.register_buffer("fixed", weights, persistent=False)

    def forward(self, values: list[torch.Tensor], in_logs: bool) -> torch.Tensor:
        """values: [*batch, fact] each -> [*batch, variable]"""
        parts = list(values)
        if self.fixed is not None:
            fixed = cast(torch.Tensor, self.fixed)
            if not parts:
                return (fixed.log() if in_logs else fixed).to(torch.float32)
            fixed = (fixed.log() if in_logs else fixed).to(parts[0])
            parts.append(fixed.expand(*parts[0].shape[:-1], len(fixed)))
        if not parts:
            return torch.zeros(0)
        row = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        return row if self.place is None else row.index_select(-1, cast(torch.Tensor, self.place))


class CircuitFolds(torch.nn.Module):
    """A circuit on probabilities or their logarithms, to either.

    A value of a choice weighs its probability, its absence 1: the worlds of a choice have one value each, and that
    value carries the whole weight.
    """

    def __init__(self, circuit: Circuit, exclusive: np.ndarray):
        super().__init__()
        folded = without_absences(circuit, exclusive)
        self.real, self.log = folded.to_torch(semiring="real"), folded.to_torch(semiring="log")
        self.log_values = folded.to_torch(semiring="real", log_values=True)

    def forward(self, weights: torch.Tensor, in_logs: bool, out_logs: bool) -> torch.Tensor:
        """weights [*batch, variable] -> [*batch, root]"""
        # Circuits take the complements themselves: those of logarithms have no derivative at certain facts.
        if in_logs:
            return snap_to_zero(self.log(snap_to_zero(weights)))
        if out_logs:
            return snap_to_zero(self.log_values(within_unit(weights.clamp_min(0))))
        return within_unit(self.real(weights))


class ExactInference(torch.nn.Module):
    """The compiled circuit in the real and the log semiring."""

    def __init__(self, query: ExactQuery, names: Sequence[str]):
        super().__init__()
        self.circuit: Circuit = query.circuit
        exclusive = np.asarray(query.exclusive, bool)
        self.columns = FactColumns(
            [query.variables[name] for name in names], len(exclusive), query.fixed, query.fixed_weights
        )
        self.folds = CircuitFolds(query.circuit, exclusive)
        self.derived = torch.nn.ModuleList([DerivedFacts(facts) for facts, _ in query.derived])
        self.derived_folds = torch.nn.ModuleList([CircuitFolds(c, exclusive) for _, c in query.derived])
        self.is_conditioned = query.is_conditioned

    @property
    def never(self) -> np.ndarray:
        """[output] bool: what nothing derives."""
        return underivable(self.circuit)[self.is_conditioned :]

    def forward(self, values: list[torch.Tensor], in_logs: bool, out_logs: bool) -> torch.Tensor:
        """values [*batch, fact] each -> [*batch, output fact], probabilities or log-probabilities."""
        weights = self.columns(values, in_logs)
        for facts, folds in zip(self.derived, self.derived_folds):
            found = facts(folds(weights, in_logs, in_logs), in_logs)
            weights = weights.index_copy(-1, cast(torch.Tensor, facts.variables), found)
        roots = self.folds(weights, in_logs, out_logs)
        if not self.is_conditioned:
            return roots
        of_evidence, of_rows = roots[..., :1], roots[..., 1:]
        _require_possible(of_evidence, out_logs or in_logs)
        return snap_to_zero(of_rows - of_evidence) if out_logs or in_logs else within_unit(of_rows / of_evidence)

    def size_text(self) -> str:
        circuit = self.circuit
        return f"{circuit.num_nodes:,} nodes, {circuit.num_edges:,} edges, {circuit.num_levels} levels"


def _require_possible(of_evidence: torch.Tensor, in_logs: bool) -> None:
    """Raise DomainError unless the evidence is possible in all rows [*batch, 1]. A device is not waited for."""
    if is_captured() or not of_evidence.is_cpu:
        return
    known = physical(of_evidence).detach()
    impossible = torch.isneginf(known) if in_logs else known == 0
    if bool(impossible.any()):
        *row, _ = impossible.nonzero()[0].tolist()
        raise DomainError(
            f"the evidence{f' of row {row}' if row else ''} has the probability 0",
            hint="no world with these probabilities has it; if it is only too improbable for a float, take `layer.log`",
        )


def within_unit(values: torch.Tensor) -> torch.Tensor:
    """Probabilities [...] without what rounding has put above 1 or below 0, and gradients untouched.

    Losses such as binary_cross_entropy refuse 1.0000001. Values beyond rounding, which only unnormalised inputs give,
    stay.
    """
    if _are_between(values, 0.0, 1.0):
        return values
    given = values.detach()
    excess = given - given.clamp(0, 1)
    return values - torch.where(excess.abs() <= TOLERANCE.get(values.dtype, 1e-5), excess, 0)


def widened(values: torch.Tensor, dtype: torch.dtype, in_logs: bool = False) -> torch.Tensor:
    """Probabilities, or their logarithms, in a wider type, without what rounding in their own has put out of range."""
    if values.dtype == dtype:
        return values
    return (snap_to_zero if in_logs else within_unit)(values).to(dtype)


def in_range(values: Any, carrier: Carrier) -> Any:
    """A nest of values; where they are probabilities, as of `within_unit`."""
    return tree_map(within_unit, values) if carrier.has_probabilities else values


def snap_to_zero(log_values: torch.Tensor) -> torch.Tensor:
    """The same for log-probabilities: rounding above 0 taken away."""
    if _are_between(log_values, -torch.inf, 0.0):
        return log_values
    excess = log_values.detach()
    return log_values - torch.where((excess > 0) & (excess <= TOLERANCE.get(log_values.dtype, 1e-5)), excess, 0)


def _are_between(values: torch.Tensor, low: float, high: float) -> bool:
    """Whether nothing is to be taken away; where asking would wait for a device, or break a graph, nobody knows."""
    if is_captured() or not values.is_cpu:
        return False
    if not values.numel():
        return True
    lowest, highest = torch.aminmax(physical(values))
    return bool(lowest >= low) and bool(highest <= high)
