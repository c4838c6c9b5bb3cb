"""A circuit as a PyTorch module; the reverse pass is the kernels' own rule, not autograd through gathers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from derivable.algebra import semirings
from derivable.algebra.semiring import Semiring
from derivable.circuit.circuit import Circuit
from derivable.circuit.evaluate import GRADIENT, VALUES, VALUES_AND_GRADIENT, check_size, fold_rows
from derivable.circuit.plan import Plan, plan_of


def to_torch(circuit: Circuit, semiring: str | Semiring = "log") -> CircuitModule:
    """The module m(weights[*batch, variable], negative_weights=None) -> [*batch, root]."""
    return CircuitModule(circuit, semiring)


class CircuitModule(nn.Module):
    """Evaluates a circuit; no parameters, no buffers.

    m(weights[*batch, variable], negative_weights=None) -> [*batch, root], in the dtype of the weights.
    """

    def __init__(self, circuit: Circuit, semiring: str | Semiring = "log"):
        super().__init__()
        self.circuit = circuit
        self.semiring = semirings.get(semiring)
        self._plan: Plan | None = None

    def extra_repr(self) -> str:
        return f"{self.circuit}, semiring={self.semiring.name!r}"

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_plan"] = None
        return state

    @torch.compiler.disable
    def forward(self, weights: torch.Tensor, negative_weights: torch.Tensor | None = None) -> torch.Tensor:
        plan = self._plan
        if plan is None:
            plan = self._plan = plan_of(self.circuit)
        check_size(weights.shape, plan.num_variables, "weights")
        batch = weights.shape[:-1]
        if len(batch) != 1:
            weights = weights.reshape(-1, plan.num_variables)
        if negative_weights is not None:
            check_size(negative_weights.shape, plan.num_variables, "negative_weights")
            negative_weights = negative_weights.expand(*batch, -1).reshape(-1, plan.num_variables)
        values = _Fold.apply(weights, negative_weights, plan, self.semiring.name)
        return values if len(batch) == 1 else values.reshape(*batch, plan.num_roots)


def _rows(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as a contiguous NumPy array, without a copy if it is one."""
    return tensor.detach().contiguous().numpy()


class _Fold(torch.autograd.Function):
    """Rows [row, variable] to roots [row, root]."""

    @staticmethod
    def forward(ctx, weights, negative_weights, plan: Plan, domain: str):
        rows = _rows(weights)
        negatives = None if negative_weights is None else _rows(negative_weights)
        values = torch.empty((rows.shape[0], plan.num_roots), dtype=weights.dtype)
        out = values.numpy()
        ctx.plan, ctx.domain = plan, domain
        ctx.gradients = None
        if plan.num_roots == 1 and (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            gradient = torch.empty(rows.shape, dtype=weights.dtype)
            negative = None if negatives is None else torch.empty(rows.shape, dtype=weights.dtype)
            fold_rows(
                plan,
                domain,
                VALUES_AND_GRADIENT,
                rows,
                negatives,
                out,
                None,
                gradient.numpy(),
                None if negative is None else negative.numpy(),
            )
            ctx.gradients = gradient, negative
        else:
            fold_rows(plan, domain, VALUES, rows, negatives, out)
        ctx.save_for_backward(weights, negative_weights)
        return values

    @staticmethod
    def backward(ctx, adjoints):
        if ctx.gradients is not None:
            gradient, negative = ctx.gradients
            return adjoints * gradient, None if negative is None else adjoints * negative, None, None
        weights, negative_weights = ctx.saved_tensors
        gradient = torch.empty(weights.shape, dtype=weights.dtype)
        negative = None if negative_weights is None else torch.empty(weights.shape, dtype=weights.dtype)
        fold_rows(
            ctx.plan,
            ctx.domain,
            GRADIENT,
            _rows(weights),
            None if negative_weights is None else _rows(negative_weights),
            None,
            _rows(adjoints),
            gradient.numpy(),
            None if negative is None else negative.numpy(),
        )
        return gradient, negative, None, None
