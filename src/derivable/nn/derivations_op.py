"""Inference over derivations as a PyTorch operator, so that `torch.compile` keeps it in one graph.

Operators take tensors and numbers, so a module is named by a number. In eager mode the module is called directly, and
`torch._dynamo`, which takes seconds to import, stays out.
"""

from __future__ import annotations

import torch
from torch import library

from derivable.core.numbering import Numbering

_modules = Numbering()
register = _modules.register


@library.custom_op("derivable::derivations", mutates_args=())
def derivations(rows: torch.Tensor, number: int) -> list[torch.Tensor]:
    """[row, variable] to [row, root] for each scalar of what is shown."""
    return _modules[number].evaluate(rows)


@derivations.register_fake
def _(rows, number):
    module = _modules[number]
    shape = (rows.shape[0], len(module.roots))
    return [rows.new_empty(shape, dtype=dtype) for dtype in module.shown_dtypes(rows.dtype)]


@library.custom_op("derivable::derivations_gradient", mutates_args=())
def derivations_gradient(rows: torch.Tensor, adjoints: list[torch.Tensor], number: int) -> torch.Tensor:
    """Adjoints of the rows for those of the roots [row, root] each."""
    return _modules[number].gradient(rows, adjoints)


@derivations_gradient.register_fake
def _(rows, adjoints, number):
    return rows.new_empty(rows.shape)


def _remember(ctx, inputs, output):
    rows, ctx.number = inputs
    ctx.save_for_backward(rows)


def _backward(ctx, adjoints):
    (rows,) = ctx.saved_tensors
    return derivations_gradient(rows, adjoints, ctx.number), None


derivations.register_autograd(_backward, setup_context=_remember)
