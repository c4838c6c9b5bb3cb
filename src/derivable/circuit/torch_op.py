"""The fold as a PyTorch operator, so that `torch.compile` keeps it in one graph.

Operators take tensors and numbers, so a module is named by a number. In eager mode the module's own autograd function
is used instead: the dispatcher of custom operators costs more than a small circuit.
"""

from __future__ import annotations

import torch
from torch import library

from derivable.core.numbering import Numbering

_modules = Numbering()
register = _modules.register


@library.custom_op("derivable::fold", mutates_args=(), device_types="cpu")
def fold(weights: torch.Tensor, negative_weights: torch.Tensor | None, number: int) -> torch.Tensor:
    """[row, variable] to [row, root]."""
    return _modules[number].values_of_rows(weights, negative_weights)


@fold.register_fake
def _(weights, negative_weights, number):
    return weights.new_empty((weights.shape[0], _modules[number].circuit.num_roots))


@library.custom_op("derivable::fold_gradient", mutates_args=(), device_types="cpu")
def fold_gradient(
    weights: torch.Tensor, negative_weights: torch.Tensor | None, adjoints: torch.Tensor, number: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Adjoints of the weights and of the negative weights (empty if there are none)."""
    gradient, negative = _modules[number].gradient_of_rows(weights, negative_weights, adjoints)
    return gradient, weights.new_empty(0) if negative is None else negative


@fold_gradient.register_fake
def _(weights, negative_weights, adjoints, number):
    empty = torch.empty(weights.shape, dtype=weights.dtype, device=weights.device)
    return empty, weights.new_empty(0) if negative_weights is None else torch.empty_like(empty)


def _remember(ctx, inputs, output):
    weights, negative_weights, ctx.number = inputs
    ctx.save_for_backward(weights, negative_weights)


def _backward(ctx, adjoints):
    weights, negative_weights = ctx.saved_tensors
    gradient, negative = fold_gradient(weights, negative_weights, adjoints, ctx.number)
    return gradient, None if negative_weights is None else negative, None


fold.register_autograd(_backward, setup_context=_remember)
