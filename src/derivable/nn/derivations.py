"""Provenances other than exact, evaluated in batches on the ground derivation graph, with gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from derivable.algebra.element import rebuild
from derivable.algebra.semiring import Semiring
from derivable.bridge.engines import TensorFunction
from derivable.bridge.protocol import Engine, Functions, Shape
from derivable.bridge.torch import call, is_captured, is_observed, physical
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError, UnsupportedError
from derivable.datalog.exact.ground_program import GroundProgram
from derivable.datalog.tables.tag_columns import within
from derivable.datalog.tags.provenance import PROOFS, Inference, tags_of
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.device.cpu.memory import contiguous
from derivable.nn.ground_fold import ground_fold, with_chances
from derivable.nn.impossible import underivable
from derivable.nn.inference import FactColumns, within_unit
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


class TopProofsInference(DerivationInference):
    """The probability that at least one of the k most probable proofs holds: exact for those proofs.

    A proof is a set of facts that hold and facts that do not. Which k are kept depends on the row's
    probabilities; the probability of their disjunction is then exact, by inclusion and exclusion, with
    every choice having exactly one value, and so is its gradient.
    """

    def __init__(self, ground: GroundProgram, names: Sequence[str], k: int, search: Search | None = None):
        """search  finds the proofs; None finds them in the ground program"""
        super().__init__(ground, names)
        if isinstance(search, ProofSearch):
            self.never = search.never
        self.k, self.search = k, search or GraphSearch(replace(ground, random=RandomFacts()), k)
        self._layout()
        self.engines = self._made_engines()

    def size_text(self) -> str:
        return super().size_text() if isinstance(self.search, GraphSearch) else "run for each batch"

    def _layout(self) -> None:
        """Index arrays of the final probability.

        A fact's column is doubled for independent facts ("holds", "does not"), so that every factor, a
        choice or an independent fact, is a set of columns of which exactly one holds.
        """
        single = np.flatnonzero(self.group_of < 0)
        num_groups = int(self.group_of.max(initial=-1)) + 1
        factor = self.group_of.copy()
        factor[single] = num_groups + np.arange(len(single))
        self.num_factors = num_groups + len(single)
        self.register_buffer("single", torch.as_tensor(single), persistent=False)
        factors = np.concatenate([factor, factor[single]])
        self.register_buffer("factors", torch.as_tensor(factors), persistent=False)

    def _made_engines(self) -> dict[str, Engine]:
        polynomial = TensorFunction("the probability of proofs", self.probability, 4, (0,), self._shape)
        return {"proofs": _Proofs(self).registered(), "probability": polynomial.registered()}

    def _shape(self, shapes: Sequence[Shape]) -> Shape:
        return *shapes[0][:-1], len(self.roots)

    def evaluate(self, rows: torch.Tensor) -> Sequence[torch.Tensor]:
        held, denied, present = call(self.engines["proofs"], None, (rows.detach(),))
        # Terms of both signs: many of them cancel.
        operands = rows.double(), held, denied, present
        if is_captured():
            (found,) = call(self.engines["probability"], None, operands)
        else:
            found = self.probability(*operands)
        return (within_unit(found.to(rows.dtype)),)

    def probability(
        self, rows: torch.Tensor, held: torch.Tensor, denied: torch.Tensor, present: torch.Tensor
    ) -> torch.Tensor:
        """rows [*batch, variable] and what `_Proofs` gives to [*batch, root]: inclusion and exclusion."""
        batch = rows.shape[:-1]
        rows = rows.reshape(math.prod(batch), self.num_variables)
        shape = len(rows), len(self.roots), self.k
        masks = held.reshape(*shape, rows.shape[1]), denied.reshape(*shape, rows.shape[1]), present.reshape(shape)
        # Zeros that depend on the rows, so that there is a derivative, zero, where there is no proof.
        total = rows[:, :0].sum(1, keepdim=True).expand(shape[:2])
        for sign, possible, values in self._conjunctions(rows, *masks):
            total = total + sign * torch.where(possible, values.prod(-1), 0)
        return total.reshape(*batch, len(self.roots))

    def _conjunctions(
        self, rows: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, present: torch.Tensor
    ) -> Iterator[tuple[float, torch.Tensor, torch.Tensor]]:
        """The terms of inclusion and exclusion over sets of proofs, with what `_conjunction` says of them.

        Depth first; a set that contradicts itself in every row and root ends its branch, so proofs that
        exclude each other cost k terms and not 2^k.
        """
        single: Any = self.single
        columns = torch.cat([rows, 1 - rows[:, single]], 1)
        empty = torch.zeros_like(positive[:, :, 0])
        waiting = [(0, empty, empty, torch.ones_like(present[:, :, 0]), 1.0)]
        while waiting:
            first, held, denied, alive, sign = waiting.pop()
            for proof in range(first, self.k):
                more_held = held | positive[:, :, proof]
                more_denied = denied | negative[:, :, proof]
                possible, values = self._conjunction(columns, more_held, more_denied)
                possible = possible & alive & present[:, :, proof]
                if bool(physical(possible).any()):
                    yield sign, possible, values
                    waiting.append((proof + 1, more_held, more_denied, possible, -sign))

    def _conjunction(
        self, columns: torch.Tensor, held: torch.Tensor, denied: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether all held facts can hold and no denied one, and the factors of the probability.

        columns  [row, column]; held and denied [row, root, variable]
        returns  possible [row, root], values [row, root, factor]
        """
        single: Any = self.single
        factors: Any = self.factors
        wanted = torch.cat([held, denied[..., single]], -1)
        excluded = torch.cat([denied, held[..., single]], -1)
        index = factors.expand(*wanted.shape)

        def per_factor(values: torch.Tensor) -> torch.Tensor:
            zeros = torch.zeros((*held.shape[:2], self.num_factors), dtype=values.dtype, device=values.device)
            return zeros.scatter_add(-1, index, values)

        fixed = per_factor(wanted.long())
        allowed = ~excluded & (wanted | (fixed.gather(-1, index) == 0))
        touched = per_factor((wanted | excluded).long()) > 0
        possible = ((fixed <= 1) & (~touched | (per_factor(allowed.long()) > 0))).all(-1)
        weights = torch.where(allowed, columns[:, None, :], 0)
        return possible, torch.where(touched, per_factor(weights), 1)


class _Proofs(Engine):
    """The k most probable proofs: rows [*batch, variable] to bool [*batch, root, k, variable] the facts that each uses
    and those that it denies, and [*batch, root, k] whether there is one. They have no derivatives."""

    leaves, float_leaves = 1, ()

    def __init__(self, module: TopProofsInference):
        self.k, self.num_results, self.search = module.k, 3, module.search

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        *batch, variables = shapes[0]
        shape = (*batch, self.search.num_roots, self.k)
        return [(*shape, variables), (*shape, variables), shape]

    def result_dtypes(self, dtypes: Sequence[Any]) -> Sequence[Any]:
        return [torch.bool] * 3

    def apply(self, structure: Any, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._found(operands[0], None)

    def _found(self, given: np.ndarray, device: Any) -> list[np.ndarray]:
        """The results for rows; proofs are searched on a device, None for the CPU."""
        *batch, variables = given.shape
        rows = contiguous(given).reshape(math.prod(batch), variables)
        counts, proof, literals = self.search(rows, device)
        owner, place = np.repeat(np.arange(len(counts)), counts), within(counts)
        held = np.zeros((len(counts), self.k, variables), bool)
        denied = np.zeros_like(held)
        for mask, chosen in ((held, literals > 0), (denied, literals < 0)):
            of = proof[chosen]
            mask[owner[of], place[of], np.abs(literals[chosen]) - 1] = True
        present = np.arange(self.k) < counts[:, None]
        shapes = self.result_shapes(None, [given.shape])
        return [part.reshape(shape) for part, shape in zip((held, denied, present), shapes)]

    def pull(self, structure: Any, adjoints: Any, operands: Any, results: Any, kept: Any = ()) -> list[np.ndarray]:
        return []

    def elsewhere(self, library: str) -> Functions:
        def apply(structure: Any, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            """Facts and proofs are numbered on the CPU."""
            (rows,) = operands
            return [
                torch.from_numpy(array).to(rows.device) for array in self._found(rows.numpy(force=True), rows.device)
            ]

        return apply, self.pull
