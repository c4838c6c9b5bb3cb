"""Engines as PyTorch operators, so that `torch.compile` keeps them in one graph.

Operators take tensors and numbers, so an engine is named by its number. In eager mode the autograd functions of
`bridge.torch` are used instead: the dispatcher of custom operators costs more than a small circuit. Compiled graphs
have first derivatives, backwards; that is what AOTAutograd does with any operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import library

from derivable.bridge.protocol import ENGINES, Engine
from derivable.bridge.torch import applied, pulled

_Tensors = list[torch.Tensor]


def call(engine: Engine, structure: torch.Tensor | None, operands: Sequence[Any]) -> _Tensors:
    """The results; the engine is registered."""
    return torch.ops.derivable.apply(list(operands), structure, engine.number)


@library.custom_op("derivable::apply", mutates_args=())
def apply(operands: _Tensors, structure: torch.Tensor | None, number: int) -> _Tensors:
    return [_own(result) for result in applied(ENGINES[number], structure, operands, False)[0]]


@apply.register_fake
def _(operands, structure, number):
    shapes = ENGINES[number].result_shapes(
        None if structure is None else tuple(structure.shape), [tuple(x.shape) for x in operands]
    )
    dtypes = ENGINES[number].result_dtypes([x.dtype for x in operands])
    return [operands[0].new_empty(shape, dtype=dtype) for shape, dtype in zip(shapes, dtypes)]


@library.custom_op("derivable::pull", mutates_args=())
def pull(
    adjoints: _Tensors, operands: _Tensors, results: _Tensors, structure: torch.Tensor | None, number: int
) -> _Tensors:
    """Adjoints of the float operands from those of the float results."""
    found = pulled(ENGINES[number], structure, adjoints, operands, results)
    return [_own(adjoint) for adjoint in found]


@pull.register_fake
def _(adjoints, operands, results, structure, number):
    return [operands[k].new_empty(operands[k].shape) for k in ENGINES[number].float_operands]


def _own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous()


def _remember(ctx, inputs, output):
    operands, structure, ctx.number = inputs
    ctx.save_for_backward(structure, *operands, *output)


def _backward(ctx, adjoints):
    engine = ENGINES[ctx.number]
    structure, *tensors = ctx.saved_tensors
    operands, results = tensors[: engine.num_operands], tensors[engine.num_operands :]
    seeds = [
        torch.zeros_like(results[leaf]) if adjoints[leaf] is None else adjoints[leaf] for leaf in engine.float_results
    ]
    gradients: list[Any] = [None] * len(operands)
    found = pull(seeds, operands, results, structure, ctx.number)
    for operand, adjoint in zip(engine.float_operands, found):
        gradients[operand] = adjoint
    return gradients, None, None


apply.register_autograd(_backward, setup_context=_remember)
