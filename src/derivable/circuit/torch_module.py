"""A circuit as a PyTorch module; the reverse pass is the kernels' own rule, not autograd through gathers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit import torch_op
from derivable.circuit.circuit import Circuit
from derivable.circuit.evaluate import (
    GRADIENT,
    VALUES,
    VALUES_AND_GRADIENT,
    check_complement,
    check_size,
    fold_rows,
)
from derivable.circuit.evaluate_nests import refuse_nests
from derivable.circuit.fold_rows import raise_bad_weight
from derivable.circuit.plan import Plan, plan_of
from derivable.circuit.rounds import Rounds, rounds_of
from derivable.circuit.torch_levels import fold_torch
from derivable.core.diagnostics import DomainError, ShapeError, UnsupportedError
from derivable.device.cpu.memory import contiguous, empty, empty_like

_DTYPES = {"float": (torch.float32, torch.float64), "bool": (torch.bool,)}
_HALF = (torch.float16, torch.bfloat16)


def to_torch(circuit: Circuit, semiring: str | Semiring = "log") -> CircuitModule:
    """The module m(weights[*batch, variable], negative_weights=None) -> [*batch, root].

    Raises UnsupportedError for the counting semiring: tensors hold no integers of any size.
    """
    return CircuitModule(circuit, semiring)


class CircuitModule(nn.Module):
    """Evaluates a circuit; it has no parameters and no buffers, and works wherever its inputs are.

    m(weights[*batch, variable], negative_weights=None) -> [*batch, root], in the dtype of the weights (float16 and
    bfloat16 are computed and returned in float32). The weights may be non-contiguous and on any device, and are
    broadcast against each other. On the CPU the kernels read them in place; elsewhere tensor operations fold the
    circuit. It has gradients of any order; the first comes from the kernels.

    Raises ShapeError for a wrong number of variables, DomainError for weights that are NaN or of another carrier.
    """

    def __init__(self, circuit: Circuit, semiring: str | Semiring = "log"):
        super().__init__()
        self.circuit = circuit
        self.semiring = semirings.get(semiring)
        refuse_nests(self.semiring, "a torch module")
        if self.semiring.carrier == "integer":
            raise UnsupportedError(
                f"tensors hold no integers of any size, which the semiring {self.semiring.name!r} needs",
                hint="use `circuit.evaluate`",
            )
        self._plan: Plan | None = None
        self._number = torch_op.register(self)

    def extra_repr(self) -> str:
        return f"{self.circuit}, semiring={self.semiring.name!r}"

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_plan"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._number = torch_op.register(self)
        # A record that came by pickle is equal to the registered one, but another object.
        ring = self.semiring
        if ring.name in semirings.names() and semirings.get(ring.name) == ring:
            self.semiring = semirings.get(ring.name)

    def forward(self, weights: torch.Tensor, negative_weights: torch.Tensor | None = None) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return self._general(weights, negative_weights)
        plan = self._plan
        if plan is None:
            plan = self._plan = plan_of(self.circuit)
        ring = self.semiring
        # On small circuits checks and views cost as much as the fold: rows that are in order go straight to it.
        if (
            isinstance(weights, torch.Tensor)
            and weights.dim() == 2
            and weights.shape[1] == plan.num_variables
            and weights.is_cpu
            and weights.dtype in _DTYPES[ring.carrier]
            and (
                negative_weights is None
                or (
                    isinstance(negative_weights, torch.Tensor)
                    and negative_weights.shape == weights.shape
                    and negative_weights.is_cpu
                    and negative_weights.dtype is weights.dtype
                )
            )
        ):
            return _Fold.apply(weights, negative_weights, plan, ring)
        return self._general(weights, negative_weights)

    def _general(self, weights: torch.Tensor, negative_weights: torch.Tensor | None) -> torch.Tensor:
        """Any batch shape, dtype and device; `torch.compile` traces this."""
        num_variables, num_roots = self.circuit.num_variables, self.circuit.num_roots
        weights = self._in_carrier(weights, "weights")
        check_size(weights.shape, num_variables, "weights")
        if negative_weights is not None:
            negative_weights = self._in_carrier(negative_weights, "negative_weights")
            check_size(negative_weights.shape, num_variables, "negative_weights")
            if negative_weights.device != weights.device:
                raise DomainError(f"weights are on {weights.device}, negative_weights on {negative_weights.device}")
            if negative_weights.dtype != weights.dtype:
                dtype = torch.promote_types(weights.dtype, negative_weights.dtype)
                weights, negative_weights = weights.to(dtype), negative_weights.to(dtype)
            if negative_weights.shape != weights.shape:
                try:
                    weights, negative_weights = torch.broadcast_tensors(weights, negative_weights)
                except RuntimeError:
                    raise ShapeError(
                        f"weights {tuple(weights.shape)} and negative_weights {tuple(negative_weights.shape)} "
                        "do not broadcast"
                    ) from None
        batch = weights.shape[:-1]
        rows = math.prod(batch)
        weights = weights.reshape(rows, num_variables)
        if negative_weights is not None:
            negative_weights = negative_weights.reshape(rows, num_variables)
        if not weights.is_cpu:
            values = self._on_another_device(weights, negative_weights)
        elif torch.compiler.is_compiling():
            values = torch_op.fold(weights, negative_weights, self._number)
        else:
            values = _Fold.apply(weights, negative_weights, plan_of(self.circuit), self.semiring)
        return values.reshape(*batch, num_roots)

    def _on_another_device(self, weights: torch.Tensor, negative_weights: torch.Tensor | None) -> torch.Tensor:
        plan = plan_of(self.circuit)
        check_complement(plan, self.semiring, negative_weights is not None)
        for tensor in (weights, negative_weights):
            if tensor is not None and bool(tensor.isnan().any()):
                given = [() if t is None else (t.detach().cpu().numpy(),) for t in (weights, negative_weights)]
                raise_bad_weight(self.semiring.name, *given)
        return fold_torch(rounds_for(plan), self.semiring, weights, negative_weights)

    def values_of_rows(self, weights: torch.Tensor, negative_weights: torch.Tensor | None) -> torch.Tensor:
        """[row, variable] CPU tensors to [row, root], without a derivative."""
        plan = plan_of(self.circuit)
        rows = _rows(weights)
        out = empty((rows.shape[0], plan.num_roots), rows.dtype)
        fold_rows(plan, self.semiring, VALUES, rows, _optional_rows(negative_weights), out)
        return torch.from_numpy(out)

    def gradient_of_rows(
        self, weights: torch.Tensor, negative_weights: torch.Tensor | None, adjoints: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The adjoints of [row, variable] CPU tensors for those of the roots [row, root]."""
        return _gradient(plan_of(self.circuit), self.semiring, weights, negative_weights, adjoints)

    def _in_carrier(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        dtypes = _DTYPES[self.semiring.carrier]
        if not isinstance(tensor, torch.Tensor):
            raise DomainError(f"{name} is a {type(tensor).__name__}, not a tensor", hint="use `circuit.evaluate`")
        if tensor.dtype in _HALF and torch.float32 in dtypes:
            return tensor.float()
        if tensor.dtype not in dtypes:
            raise DomainError(
                f"{name} of dtype {tensor.dtype} are not of the carrier of the semiring {self.semiring.name!r}",
                hint=f"use {' or '.join(map(str, dtypes))}",
            )
        return tensor


def rounds_for(plan: Plan) -> Rounds:
    """The rounds of a plan, made on first use."""
    found = plan.scratch.get("rounds")
    if found is None:
        found = plan.scratch["rounds"] = rounds_of(plan)
    return found


def _rows(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as a contiguous NumPy array, without a copy if it is one."""
    return contiguous(tensor.detach().numpy())


def _optional_rows(tensor: torch.Tensor | None) -> np.ndarray | None:
    return None if tensor is None else _rows(tensor)


class _Fold(torch.autograd.Function):
    """Rows [row, variable] to roots [row, root]."""

    @staticmethod
    def forward(ctx, weights, negative_weights, plan: Plan, ring: Semiring):
        rows = _rows(weights)
        negatives = _optional_rows(negative_weights)
        # Made by NumPy and wrapped, which takes half the time of the other way round.
        out = empty((rows.shape[0], plan.num_roots), rows.dtype)
        values = torch.from_numpy(out)
        ctx.plan, ctx.ring = plan, ring
        ctx.gradients = None
        if not ring.differentiable:
            ctx.mark_non_differentiable(values)
        if plan.num_roots == 1 and ring.differentiable and any(ctx.needs_input_grad):
            gradient = empty_like(rows)
            negative = None if negatives is None else empty_like(rows)
            fold_rows(plan, ring, VALUES_AND_GRADIENT, rows, negatives, out, None, gradient, negative)
            ctx.gradients = torch.from_numpy(gradient), None if negative is None else torch.from_numpy(negative)
        else:
            fold_rows(plan, ring, VALUES, rows, negatives, out)
        ctx.save_for_backward(weights, negative_weights)
        return values

    @staticmethod
    def backward(ctx, adjoints):
        if torch.is_grad_enabled():
            weights, negative_weights = ctx.saved_tensors
            found = _differentiable_gradient(ctx.plan, ctx.ring, weights, negative_weights, adjoints)
            return (*found, None, None)
        if ctx.gradients is not None:
            gradient, negative = ctx.gradients
            return _scaled(gradient, adjoints), None if negative is None else _scaled(negative, adjoints), None, None
        weights, negative_weights = ctx.saved_tensors
        found = _gradient(ctx.plan, ctx.ring, weights, negative_weights, adjoints)
        return (*found, None, None)


def _scaled(gradient: torch.Tensor, adjoints: torch.Tensor) -> torch.Tensor:
    return torch.mul(gradient, adjoints, out=torch.from_numpy(empty(gradient.shape, gradient.numpy().dtype)))


def _gradient(plan: Plan, ring: Semiring, weights, negative_weights, adjoints):
    rows, negatives = _rows(weights), _optional_rows(negative_weights)
    gradient = empty_like(rows)
    negative = None if negatives is None else empty_like(rows)
    fold_rows(plan, ring, GRADIENT, rows, negatives, None, _rows(adjoints), gradient, negative)
    return torch.from_numpy(gradient), None if negative is None else torch.from_numpy(negative)


def _differentiable_gradient(plan: Plan, ring: Semiring, weights, negative_weights, adjoints):
    """The gradient as a graph of its own, asked for by create_graph=True."""
    inputs = [weights] if negative_weights is None else [weights, negative_weights]
    # Views, so that this graph ends at the saved tensors and goes on behind them.
    copies = [tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in inputs]
    values = fold_torch(rounds_for(plan), ring, copies[0], copies[1] if len(copies) > 1 else None)
    gradients = torch.autograd.grad(values, copies, adjoints, create_graph=True, allow_unused=True)
    found = [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, gradients, strict=True)]
    return found[0], found[1] if len(found) > 1 else None
