"""A circuit in a semiring as an engine: the kernels' own reverse rule, and the fold in rounds for everything else."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.bridge.protocol import Engine, Functions, Shape
from derivable.circuit.circuit import Circuit
from derivable.circuit.evaluate import GRADIENT, VALUES, VALUES_AND_GRADIENT, fold_rows
from derivable.circuit.plan import Plan, plan_of
from derivable.circuit.rounds import RoundsFold, rounds_of
from derivable.device.cpu.memory import contiguous, empty, empty_like


class CircuitFold(Engine):
    """weights [*batch, variable], and if `has_negatives` the negative weights, of one dtype, to values [*batch, root].

    Where a circuit has one root, its gradient is computed with its value and kept.
    """

    leaves = 1

    def __init__(self, circuit: Circuit, ring: Semiring, has_negatives: bool, dtype: str):
        self.circuit, self.ring, self.dtype = circuit, ring, dtype
        self.groups = 2 if has_negatives else 1
        self.float_leaves = (0,) if ring.differentiable and ring.carrier == "float" else ()
        self.float_operands = tuple(range(self.groups)) if self.float_leaves else ()
        self.needs_negatives = not has_negatives and ring.complement is None and bool((circuit.literal < 0).any())
        self.keeps = bool(self.float_leaves) and circuit.num_roots == 1

    def __str__(self) -> str:
        return f"the fold of {self.circuit} in the semiring {self.ring.name!r}"

    @cached_property
    def plan(self) -> Plan:
        return plan_of(self.circuit)

    @cached_property
    def rounds(self) -> RoundsFold:
        """The same on any device, and of any order."""
        shared = self.plan.others
        rounds = shared.get("rounds") or shared.setdefault("rounds", rounds_of(self.plan))
        typed = self.ring.typed(self.dtype)
        return RoundsFold(rounds, typed.plus, typed.times, typed.complement, self.groups, bool(self.float_leaves))

    @property
    def dual(self) -> Engine:
        return self.rounds.dual

    def elsewhere(self, library: str) -> Functions:
        return self.rounds.elsewhere(library)

    @cached_property
    def key(self) -> str:  # type: ignore[override]
        c = self.circuit
        content = b"".join(a.tobytes() for a in (c.kind, c.literal, c.offsets, c.children, c.roots))
        return f"{hashlib.sha256(content).hexdigest()} {c.num_variables} {self.rounds}"

    def result_shapes(self, structure_shape: Shape | None, shapes: Sequence[Shape]) -> list[Shape]:
        return [(*shapes[0][:-1], self.circuit.num_roots)]

    def apply(self, structure: np.ndarray | None, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        weights, negatives, batch = self._rows(operands)
        out = empty((weights.shape[0], self.circuit.num_roots), weights.dtype)
        fold_rows(self.plan, self.ring, VALUES, weights, negatives, out)
        return [out if batch is None else out.reshape(*batch, out.shape[1])]

    def apply_keeping(
        self, structure: np.ndarray | None, operands: Sequence[np.ndarray], *, whole: bool = False
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        if not self.keeps:
            return self.apply(structure, operands), []
        weights, negatives, batch = self._rows(operands)
        out = empty((weights.shape[0], 1), weights.dtype)
        gradients = [empty_like(operand) for operand in operands]
        by_row = [g if batch is None else g.reshape(weights.shape) for g in gradients]
        fold_rows(self.plan, self.ring, VALUES_AND_GRADIENT, weights, negatives, out, None, *by_row)
        return [out if batch is None else out.reshape(*batch, 1)], gradients

    def keeps_whole(self, shapes: Sequence[Shape]) -> bool:
        return self.keeps

    def kept_whole(self, shapes: Sequence[Shape], dtype: Any) -> list[tuple[Shape, Any]]:
        return [(shape, dtype) for shape in shapes] if self.keeps else []

    def pull(
        self,
        structure: np.ndarray | None,
        adjoints: Sequence[np.ndarray | None],
        operands: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        kept: Sequence[np.ndarray] = (),
    ) -> list[np.ndarray]:
        (seeds,) = adjoints
        assert seeds is not None
        if kept:
            return [np.multiply(gradient, seeds, out=empty_like(gradient)) for gradient in kept]
        weights, negatives, batch = self._rows(operands)
        gradients = [empty_like(operand) for operand in operands]
        seeds = contiguous(seeds).reshape(weights.shape[0], self.circuit.num_roots)
        by_row = [g if batch is None else g.reshape(weights.shape) for g in gradients]
        fold_rows(self.plan, self.ring, GRADIENT, weights, negatives, None, seeds, *by_row)
        return gradients

    def _rows(self, operands: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray | None, Shape | None]:
        """(weights [row, variable], negative weights, the batch shape or None if that is [row])."""
        weights = contiguous(operands[0])
        negatives = contiguous(operands[1]) if self.groups == 2 else None
        if weights.ndim == 2:
            return weights, negatives, None
        batch = weights.shape[:-1]
        flat = math.prod(batch), weights.shape[-1]
        return weights.reshape(flat), None if negatives is None else negatives.reshape(flat), batch
