"""Provenances other than exact, evaluated in batches on the ground derivation graph, with gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from derivable.algebra.element import rebuild
from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.circuit.fold_rows import fold, fold_vjp
from derivable.circuit.plan import plan_of
from derivable.core.arguments import is_integer
from derivable.core.diagnostics import DomainError
from derivable.datalog.batched import GroundProgram
from derivable.device.cpu.memory import zeros
from derivable.device.cpu.threads import run_chunks
from derivable.nn import derivations_op
from derivable.nn.inference import FactColumns

MIN_ROWS = 16
"""Batch rows that a thread takes at least; below, starting it costs more than it saves."""

MAX_PROOFS = 16
"""topkproofs adds and subtracts up to 2^k conjunctions of proofs; beyond this, exact inference is cheaper."""


class DerivationInference(torch.nn.Module, ABC):
    """Evaluates a program that was grounded once; the graph is acyclic and children come before parents."""

    def __init__(self, ground: GroundProgram, names: Sequence[str]):
        super().__init__()
        self.num_variables = ground.num_variables
        arrays = (ground.kind, ground.literal - 1, ground.offsets, ground.children)
        self.graph = tuple(np.ascontiguousarray(array, np.int64) for array in arrays)
        self.roots = np.ascontiguousarray(ground.roots, np.int64)
        self.group_of = np.full(ground.num_variables, -1, np.int64)
        for number, group in enumerate(ground.groups):
            self.group_of[group] = number
        columns = [ground.variables[name] for name in names]
        self.columns = FactColumns(columns, self.num_variables, ground.fixed, ground.fixed_weights)
        self._number = derivations_op.register(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._number = derivations_op.register(self)

    def forward(self, values: list[torch.Tensor], in_logs: bool, out_logs: bool) -> list[torch.Tensor]:
        """values [*batch, fact] each, probabilities -> [*batch, output fact] each scalar of what is shown."""
        assert not in_logs
        assert not out_logs
        weights = self.columns(values, False)
        batch = weights.shape[:-1]
        rows = weights.reshape(math.prod(batch), self.num_variables)
        if torch.compiler.is_compiling():
            result = derivations_op.derivations(rows, self._number)
        else:
            result = self.evaluate(rows)
        return [part.reshape(*batch, len(self.roots)) for part in result]

    @abstractmethod
    def evaluate(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """rows [row, variable] -> [row, root] each, differentiable"""

    @abstractmethod
    def gradient(self, rows: torch.Tensor, adjoints: Sequence[torch.Tensor]) -> torch.Tensor:
        """rows [row, variable], adjoints [row, root] each -> adjoints of the rows, without autograd"""

    def nest(self, parts: Sequence[torch.Tensor]) -> Any:
        """What is shown, from its scalars."""
        return parts[0]

    def shown_dtypes(self, dtype: torch.dtype) -> list[torch.dtype]:
        """The types of the scalars of what is shown, for rows of that type."""
        return [dtype]

    def size_text(self) -> str:
        return f"{len(self.graph[0]):,} nodes, {len(self.graph[3]):,} edges of the derivation graph"


class SemiringInference(DerivationInference):
    """A semiring's values of the derivations: facts enter by its `fact`, and the outputs are what it shows."""

    def __init__(self, ground: GroundProgram, names: Sequence[str], semiring: Semiring):
        super().__init__(ground, names)
        self.semiring = semiring
        # Kernels are compiled for circuits, whose children are int32.
        self.nodes = replace(ground, children=ground.children.astype(np.int32))
        typed = semiring.typed()
        typed.require_fact()
        self.shown = typed.shown
        self.like = semiring.one if semiring.show is None else semiring.show(semiring.one)

    def nest(self, parts: Sequence[torch.Tensor]) -> Any:
        if self.shown.shape == ():
            return parts[0]
        remaining, leaves = iter(parts), []
        for shape, size in zip(self.shown.leaf_shapes, self.shown.leaf_sizes):
            scalars = [next(remaining) for _ in range(size)]
            leaves.append(torch.stack(scalars, -1).unflatten(-1, shape) if shape else scalars[0])
        return rebuild(self.shown, self.like, leaves)

    def evaluate(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return list(_Semiring.apply(rows, self))

    def gradient(self, rows: torch.Tensor, adjoints: Sequence[torch.Tensor]) -> torch.Tensor:
        parts = self.fact_values(rows)
        return self.push_down(rows, parts, fold(plan_of(self.nodes), self.semiring, parts), adjoints)

    def shown_dtypes(self, dtype: torch.dtype) -> list[torch.dtype]:
        typed = self.semiring.typed(str(dtype).removeprefix("torch."))
        return [getattr(torch, value.dtype) for value in typed.show.values]

    def typed(self, rows: torch.Tensor) -> TypedSemiring:
        return self.semiring.typed(str(rows.dtype).removeprefix("torch."))

    def fact_values(self, rows: torch.Tensor) -> list[np.ndarray]:
        """[row, variable] of each scalar"""
        typed, variables = self.typed(rows), np.arange(self.num_variables)
        return [np.ascontiguousarray(part) for part in typed.require_fact().apply((_numpy(rows),), (variables,))]

    def push_down(
        self, rows: torch.Tensor, parts: list[np.ndarray], values: list[np.ndarray], adjoints: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Adjoints of the rows [row, variable] for those of what is shown [row, root] each."""
        typed = self.typed(rows)
        if not self.semiring.differentiable or not any(part.dtype.kind == "f" for part in parts):
            return torch.zeros_like(rows)
        (seeds,) = typed.show.apply_vjp([_numpy(adjoint) for adjoint in adjoints], values)
        seeds = [np.ascontiguousarray(seed, part.dtype) for seed, part in zip(seeds, values)]
        _, below, _ = fold_vjp(plan_of(self.nodes), self.semiring, parts, None, seeds)
        pulled, _ = typed.require_fact().apply_vjp(below, (_numpy(rows),), (np.arange(self.num_variables),))
        return torch.as_tensor(np.array(pulled[0])).to(rows)


class _Semiring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, module: SemiringInference) -> tuple[torch.Tensor, ...]:
        ctx.parts, ctx.module = module.fact_values(rows), module
        ctx.values = fold(plan_of(module.nodes), module.semiring, ctx.parts)
        ctx.save_for_backward(rows)
        shown = module.typed(rows).show.apply(ctx.values)
        tensors = tuple(torch.as_tensor(np.array(part)).to(rows.device) for part in shown)
        ctx.mark_non_differentiable(*(tensor for tensor in tensors if not tensor.is_floating_point()))
        return tensors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *adjoints: torch.Tensor):  # type: ignore[override]
        (rows,) = ctx.saved_tensors
        return ctx.module.push_down(rows, ctx.parts, ctx.values, adjoints), None


class TopProofsInference(DerivationInference):
    """The probability that at least one of the k most probable proofs holds: exact for those proofs.

    A proof is a set of facts that hold and facts that do not. Which k are kept depends on the row's
    probabilities; the probability of their disjunction is then exact, by inclusion and exclusion, with
    every choice having exactly one value, and so is its gradient.
    """

    def __init__(self, ground: GroundProgram, names: Sequence[str], k: int):
        if not is_integer(k) or not 1 <= k <= MAX_PROOFS:
            raise DomainError(
                f"k is {k!r}; topkproofs takes 1 to {MAX_PROOFS}", hint='provenance="exact" keeps them all'
            )
        super().__init__(ground, names)
        self.k = k
        self._layout()

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

    def evaluate(self, rows: torch.Tensor) -> list[torch.Tensor]:
        total = rows.new_zeros(len(rows), len(self.roots))
        for sign, possible, values, _ in self._conjunctions(rows):
            total = total + sign * torch.where(possible, values.prod(-1), 0)
        return [total]

    def gradient(self, rows: torch.Tensor, adjoints: Sequence[torch.Tensor]) -> torch.Tensor:
        single: Any = self.single
        factors: Any = self.factors
        result = rows.new_zeros(len(rows), len(factors))
        for sign, possible, values, counted in self._conjunctions(rows.detach()):
            scale = torch.where(possible, sign * adjoints[0], 0)[..., None]
            others = (scale * _product_of_others(values)).index_select(-1, factors)
            result += torch.where(counted, others, 0).sum(1)
        positive = result[:, : self.num_variables].clone()
        positive[:, single] -= result[:, self.num_variables :]
        return positive

    def _conjunctions(self, rows: torch.Tensor) -> Iterator[tuple[float, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """The terms of inclusion and exclusion over sets of proofs, with what `_conjunction` says of them.

        Depth first; a set that contradicts itself in every row and root ends its branch, so proofs that
        exclude each other cost k terms and not 2^k.
        """
        positive, negative, counts = self.proofs(rows)
        single: Any = self.single
        columns = torch.cat([rows, 1 - rows[:, single]], 1)
        present = torch.arange(self.k, device=rows.device) < counts[..., None]
        empty = torch.zeros_like(positive[:, :, 0])
        waiting = [(0, empty, empty, torch.ones_like(present[:, :, 0]), 1.0)]
        while waiting:
            first, held, denied, alive, sign = waiting.pop()
            for proof in range(first, self.k):
                more_held = held | positive[:, :, proof]
                more_denied = denied | negative[:, :, proof]
                possible, values, counted = self._conjunction(columns, more_held, more_denied)
                possible = possible & alive & present[:, :, proof]
                if bool(possible.any()):
                    yield sign, possible, values, counted
                    waiting.append((proof + 1, more_held, more_denied, possible, -sign))

    def _conjunction(
        self, columns: torch.Tensor, held: torch.Tensor, denied: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Whether all held facts can hold and no denied one, and the factors of the probability.

        columns  [row, column]; held and denied [row, root, variable]
        returns  possible [row, root], values [row, root, factor], and which columns they add up [row, root, column]
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
        return possible, torch.where(touched, per_factor(weights), 1), allowed & touched.gather(-1, index)

    def proofs(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Masks [row, root, k, variable] of the facts used and denied, and how many proofs there are [row, root]."""
        from derivable.datalog.kernels.top_proofs import top_proofs

        given = _numpy(rows)
        words = max(1, -(-self.num_variables // 64))
        bits = zeros((len(given), len(self.roots), self.k, 2 * words), np.uint64)
        counts = zeros(bits.shape[:2], np.int64)
        num_groups = int(self.group_of.max(initial=-1)) + 1
        run_chunks(
            top_proofs,
            len(given),
            1,
            *self.graph,
            self.roots,
            given,
            self.group_of,
            num_groups,
            self.k,
            bits,
            counts,
        )
        # The little-endian bytes of a word are its bits in order of the variables.
        flat = np.unpackbits(bits.astype("<u8").view(np.uint8), axis=-1, bitorder="little")
        positive, negative = flat[..., : 64 * words], flat[..., 64 * words :]
        return (
            torch.as_tensor(positive[..., : self.num_variables].astype(bool)).to(rows.device),
            torch.as_tensor(negative[..., : self.num_variables].astype(bool)).to(rows.device),
            torch.as_tensor(counts).to(rows.device),
        )


def _product_of_others(values: torch.Tensor) -> torch.Tensor:
    """[..., factor]: for each factor the product of the others, without dividing by it."""
    ones = torch.ones_like(values[..., :1])
    before = torch.cat([ones, values[..., :-1]], -1).cumprod(-1)
    after = torch.cat([values[..., 1:], ones], -1).flip(-1).cumprod(-1).flip(-1)
    return before * after


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()
