"""Scalars of torch that are elements of one evaluation, and that can be differentiated one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Evaluate = Callable[[torch.Tensor], torch.Tensor]


class Evaluation:
    """What is computed of rows, once: values [tuple] in a graph that ends at a copy of the rows, and stays there.

    known  (this copy, values), where they are known
    """

    def __init__(self, rows: torch.Tensor, evaluate: Evaluate, known: tuple[torch.Tensor, torch.Tensor] | None = None):
        self.rows, self.evaluate = rows, evaluate
        if known is None:
            leaf = rows.detach().requires_grad_()
            with torch.enable_grad():
                known = leaf, evaluate(leaf)
        self.leaf, self.values = known

    def scalars(self) -> list[torch.Tensor]:
        """Each of the values, with gradients to the rows."""
        found = _Values.apply(self.rows, self)
        assert isinstance(found, torch.Tensor)
        return list(found.unbind())

    def gradient(self, weights: torch.Tensor) -> torch.Tensor | None:
        """The gradient of the weighted sum of the values; where derivatives of it are wanted, it is in a graph."""
        is_wanted = torch.is_grad_enabled()
        rows, values = (self.rows, self.evaluate(self.rows)) if is_wanted else (self.leaf, self.values)
        if not values.requires_grad:
            return None
        return torch.autograd.grad(values, rows, weights, retain_graph=True, create_graph=is_wanted)[0]


class _Values(torch.autograd.Function):
    """It saves nothing for its backward in torch's way, which would be freed after a first one."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, evaluation: Evaluation) -> torch.Tensor:
        ctx.evaluation = evaluation
        return evaluation.values.detach().clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return ctx.evaluation.gradient(grad_outputs[0]), None
