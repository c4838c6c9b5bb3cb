"""Scalars of torch that are elements of one evaluation, each with a graph of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Evaluate = Callable[[torch.Tensor], torch.Tensor]


class Evaluation:
    """What is computed of rows, once: values [tuple] in a graph that ends at a copy of the rows."""

    def __init__(self, rows: torch.Tensor, evaluate: Evaluate):
        self.rows, self.evaluate = rows, evaluate
        self.leaf = rows.detach().requires_grad_()
        with torch.enable_grad():
            self.values = evaluate(self.leaf)

    def scalar(self, place: int) -> torch.Tensor:
        """One of the values, with gradients to the rows."""
        found = _Scalar.apply(self.rows, self, place)
        assert isinstance(found, torch.Tensor)
        return found

    def gradient(self, place: int, weight: torch.Tensor) -> torch.Tensor | None:
        """The weighted gradient of one of the values; where derivatives of it are wanted, it is in a graph."""
        is_wanted = torch.is_grad_enabled()
        rows, values = (self.rows, self.evaluate(self.rows)) if is_wanted else (self.leaf, self.values)
        if not values.requires_grad:
            return None
        choice = torch.zeros_like(values).index_fill(0, torch.tensor([place]), 1.0) * weight
        return torch.autograd.grad(values, rows, choice, retain_graph=True, create_graph=is_wanted)[0]


class _Scalar(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, evaluation: Evaluation, place: int) -> torch.Tensor:
        ctx.evaluation, ctx.place = evaluation, place
        return evaluation.values[place].detach().clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return ctx.evaluation.gradient(ctx.place, grad_outputs[0]), None, None
