"""Engines as PyTorch operators, so that `torch.compile` keeps them in one graph.

What is read by `torch.compile` sees of a fold its arguments' types and axes, and one number: the operator, its
expressions and its kernels are looked at when the graph is made, outside of it.

Operators take tensors and numbers, so an engine is named by its number. In eager mode the autograd functions of
`bridge.torch` are used instead: the dispatcher of custom operators costs more than a small circuit. Compiled graphs
have first derivatives, backwards; that is what AOTAutograd does with any operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import library

from derivable.bridge import arrays
from derivable.bridge import torch as tensors
from derivable.bridge.fold import Fold
from derivable.bridge.protocol import ENGINES, Engine
from derivable.bridge.torch import applied, pulled
from derivable.core.diagnostics import DerivableError

_Tensors = list[torch.Tensor]
# Folds in graphs: a graph knows them by their numbers, and nobody knows how long it lives.
_folds: dict[Fold, Fold] = {}


def prepared(
    kind: Any, operator: Any, arguments: Sequence[tuple[str, Any]], options: tuple[bool, ...], structure: Any
) -> tuple[ModuleType, Fold, _Tensors] | None:
    """What `arrays.prepared` gives, for code that `torch.compile` reads; None for arguments that do not fit, or are no
    tensors, which are then refused or folded outside of the graph."""
    try:
        groups = arrays.groups_of(operator, arguments)
        named = [leaf for _, group in groups for leaf in group]
        if not all(isinstance(array, torch.Tensor) for _, array in (*named, *structure)):
            return None
        leaves = [tensors.as_leaf(leaf, name) for name, leaf in named]
        arrays.check_shapes(operator, groups)
    except DerivableError:
        return None
    fold = _fold_of(kind, operator, options, tuple([leaf.dtype for leaf in leaves]), len(groups))
    return None if fold is None else (tensors, fold, leaves)


@torch.compiler.assume_constant_result
def _fold_of(kind: Any, operator: Any, options: tuple[bool, ...], dtypes: Any, groups: int) -> Fold | None:
    """The fold of an operator on leaves [group and leaf] of these types; None if there is none."""
    try:
        leaves = [("values", torch.empty(0, dtype=dtype)) for dtype in dtypes]
        count = len(leaves) // groups
        parts = [("values", leaves[k : k + count]) for k in range(0, len(leaves), count)]
        fold = arrays.fold_of(tensors, kind, operator, parts, options, {})
    except (DerivableError, AttributeError):
        # An operator that the compiled code itself makes has no attributes before that code runs.
        return None
    return _folds.setdefault(fold, fold).registered()


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
