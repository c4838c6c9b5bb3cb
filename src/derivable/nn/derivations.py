"""Provenances other than exact, evaluated in batches on the ground derivation graph, with gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from derivable.algebra.element import rebuild
from derivable.algebra.semiring import Semiring
from derivable.bridge.engines import TensorFunction
from derivable.bridge.protocol import Engine, Shape
from derivable.bridge.torch import call, is_observed
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.datalog.exact.ground_program import GroundProgram
from derivable.datalog.tags.provenance import PROOFS, TOP_PROOFS, Inference, tags_of
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.device.cpu.memory import contiguous
from derivable.nn.ground_fold import ground_fold, with_chances
from derivable.nn.impossible import underivable
from derivable.nn.inference import FactColumns, within_unit
from derivable.nn.proof_polynomial import probability_of_proofs
from derivable.nn.proof_search import GraphSearch, ProofSearch

Search = ProofSearch | GraphSearch
MAX_PROOFS = 16
"""topkproofs adds and subtracts up to 2^k conjunctions of proofs; of more proofs it makes a decision diagram."""


def adds_conjunctions(k: Any) -> bool:
    """Whether so many proofs are few enough for that. Raises DomainError for what is no number of proofs."""
    if not is_integer(k) or k < 1:
        raise DomainError(f"k is {k!r}; topkproofs keeps at least one proof", hint="k=3, for instance")
    return k <= MAX_PROOFS


def require_probabilities_of(provenance: Inference) -> None:
    """Raise UnsupportedError for a provenance whose tags are no probabilities."""
    if provenance is PROOFS:
        raise UnsupportedError(
            "proofs gives sets of facts, and a layer probabilities",
            hint='provenance="exact" for the probability of all proofs, "topkproofs" for that of some',
        )


class DerivationInference(torch.nn.Module, ABC):
    """Evaluates a program that was grounded once; the graph is acyclic and children come before parents.

    never  [output] bool: what nothing derives
    """

    def __init__(self, ground: GroundProgram, names: Sequence[str]):
        super().__init__()
        self.num_variables = ground.num_variables
        self.size = len(ground.kind), len(ground.children)
        self.roots = np.ascontiguousarray(ground.roots, np.int64)
        self.never = underivable(ground) if len(ground.kind) else None
        self.group_of = np.full(ground.num_variables, -1, np.int64)
        for number, group in enumerate(ground.groups):
            self.group_of[group] = number
        columns = [ground.variables[name] for name in names]
        self.columns = FactColumns(columns, self.num_variables, ground.fixed, ground.fixed_weights)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "engines"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.engines = self._made_engines()

    @abstractmethod
    def _made_engines(self) -> dict[Any, Engine]: ...

    def forward(self, values: list[torch.Tensor], in_logs: bool, out_logs: bool) -> Sequence[torch.Tensor]:
        """values [*batch, fact] each, probabilities -> [*batch, output fact] each scalar of what is shown."""
        assert not in_logs
        assert not out_logs
        return self.evaluate(self.columns(values, False))

    @abstractmethod
    def evaluate(self, rows: torch.Tensor) -> Sequence[torch.Tensor]:
        """rows [*batch, variable] -> [*batch, root] each"""

    def nest(self, parts: Sequence[torch.Tensor]) -> Any:
        """What is shown, from its scalars."""
        return parts[0]

    def size_text(self) -> str:
        return "{:,} nodes, {:,} edges of the derivation graph".format(*self.size)


class SemiringInference(DerivationInference):
    """A semiring's values of the derivations: facts enter by its `fact`, and the outputs are what it shows."""

    def __init__(self, ground: GroundProgram, names: Sequence[str], semiring: Semiring):
        nodes = with_chances(ground, semiring)
        super().__init__(nodes, names)
        self.nodes, self.semiring = nodes, semiring
        typed = semiring.typed()
        typed.require_fact()
        self.shown = typed.shown
        self.like = semiring.one if semiring.show is None else semiring.show(semiring.one)
        self.engines = self._made_engines()

    def _made_engines(self) -> dict[torch.dtype, Engine]:
        precisions = {torch.float32: "float32", torch.float64: "float64"}
        return {dtype: ground_fold(self.nodes, self.semiring, precision) for dtype, precision in precisions.items()}

    def nest(self, parts: Sequence[torch.Tensor]) -> Any:
        if self.shown.shape == ():
            return parts[0]
        remaining, leaves = iter(parts), []
        for shape, size in zip(self.shown.leaf_shapes, self.shown.leaf_sizes):
            scalars = [next(remaining) for _ in range(size)]
            leaves.append(torch.stack(scalars, -1).unflatten(-1, shape) if shape else scalars[0])
        return rebuild(self.shown, self.like, leaves)

    def evaluate(self, rows: torch.Tensor) -> Sequence[torch.Tensor]:
        return call(self.engines[rows.dtype], None, (rows,))


class ProofSetInference(DerivationInference):
    """The probabilities that sets of proofs hold, one data point after the other; see `datalog.tags.proof_sets`.

    Which proofs a set has depends on the row's probabilities; the probability of the set, and its gradient, is exact.
    """

    def __init__(self, ground: GroundProgram, names: Sequence[str], provenance: Inference, k: int):
        super().__init__(ground, names)
        require_probabilities_of(provenance)
        self.ground, self.provenance, self.k = ground, provenance, k
        self.engines = self._made_engines()

    def _made_engines(self) -> dict[Any, Engine]:
        return {"values": TensorFunction("sets of proofs", self._values, 1, (0,), self._shape).registered()}

    def _shape(self, shapes: Sequence[Shape]) -> Shape:
        return *shapes[0][:-1], len(self.roots)

    def evaluate(self, rows: torch.Tensor) -> Sequence[torch.Tensor]:
        return call(self.engines["values"], None, (rows,)) if is_observed() else (self._values(rows),)

    def _values(self, rows: torch.Tensor) -> torch.Tensor:
        batch = rows.shape[:-1]
        # Zeros that depend on the rows, so that there is a derivative, zero, of what no fact changes.
        zero = rows[..., :0].sum(-1).reshape(-1)
        found = [self._row(row) for row in rows.reshape(-1, self.num_variables)]
        values = [torch.stack([zero[i] + value for value in row]) for i, row in enumerate(found)]
        whole = torch.stack(values) if values else zero[:, None].expand(-1, len(self.roots))
        return within_unit(whole.reshape(*batch, len(self.roots)))

    def _row(self, row: torch.Tensor) -> list[Any]:
        random = RandomFacts(row.detach().tolist(), list(self.ground.groups), self.ground.random.seed)
        columns: Any = tags_of(self.provenance, random, self.k)
        return columns.probabilities(self.ground.evaluate(columns), row.unbind())


class TopProofsInference(ProofSetInference):
    """The probability that at least one of the k most probable proofs holds: exact for those proofs.

    A proof is a set of facts that hold and facts that do not. Which k are kept depends on the row's probabilities; the
    probability of their disjunction is then exact, by inclusion and exclusion, with every choice having exactly one
    value, and so is its gradient.
    """

    def __init__(self, ground: GroundProgram, names: Sequence[str], k: int, search: Search | None = None):
        """search  finds the proofs; None finds them in the ground program"""
        super().__init__(ground, names, TOP_PROOFS, k)
        if isinstance(search, ProofSearch):
            self.never = search.never
        self.search = search or GraphSearch(replace(ground, random=RandomFacts()), k)

    def size_text(self) -> str:
        return super().size_text() if isinstance(self.search, GraphSearch) else "run for each batch"

    def _values(self, rows: torch.Tensor) -> torch.Tensor:
        *batch, variables = rows.shape
        count, roots = math.prod(batch), len(self.roots)
        numbers = contiguous(rows.numpy(force=True)).reshape(count, variables)
        counts, proof, literals = self.search(numbers, None if rows.is_cpu else rows.device)
        # The random facts of all rows are numbered one row after the other.
        sample = np.repeat(np.arange(count), roots)
        shift = variables * sample[np.repeat(np.arange(len(counts)), counts)[proof]]
        literals = np.where(literals < 0, literals - shift, literals + shift)
        num_groups = int(self.group_of.max(initial=-1)) + 1
        groups = self.group_of + num_groups * np.arange(count)[:, None]
        group_of = np.where(self.group_of < 0, -1, groups).reshape(-1)
        found = probability_of_proofs((counts, proof, literals), sample, group_of, self.k, rows.reshape(-1))
        return within_unit(found.reshape(*batch, roots))
