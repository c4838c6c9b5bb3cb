"""The fold by differentiable tensor operations, on any device and to any order of derivative.

Each semiring operation is one autograd function whose reverse rule is the one of `algebra`, so ties and infinities
mean the same as in the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch

from derivable.algebra.expr.emit_arrays import compile_torch
from derivable.algebra.semiring import Semiring
from derivable.circuit.rounds import Rounds, fold_in_rounds


class _Binary(torch.autograd.Function):
    """plus or times with the derivative rule of the semiring."""

    @staticmethod
    def forward(ctx, a, b, value, rule):
        ctx.save_for_backward(a, b)
        ctx.rule = rule
        return value(a, b).expand(a.shape).clone()

    @staticmethod
    def backward(ctx, adjoint):
        a, b = ctx.saved_tensors
        left, right = ctx.rule(a, b, adjoint)
        # No adjoint, no contribution: 0 * inf has no say.
        dead = adjoint == 0
        return torch.where(dead, 0.0, left), torch.where(dead, 0.0, right), None, None


class _Complement(torch.autograd.Function):
    """The weights of negative literals with the derivative rule of the semiring."""

    @staticmethod
    def forward(ctx, a, value, rule):
        ctx.save_for_backward(a)
        ctx.rule = rule
        return value(a).expand(a.shape).clone()

    @staticmethod
    def backward(ctx, adjoint):
        (a,) = ctx.saved_tensors
        return ctx.rule(a, adjoint).expand(a.shape), None, None


@cache
def _operations(ring: Semiring, dtype: str) -> tuple[Callable | None, ...]:
    """(plus, times, complement), each followed by its reverse rule, as functions of tensors."""
    functions = ring.typed(dtype).functions
    names = ("plus", "plus_vjp", "times", "times_vjp", "complement", "complement_vjp")
    return tuple(compile_torch(*functions[name]) if name in functions else None for name in names)


def fold_torch(
    rounds: Rounds, ring: Semiring, weights: torch.Tensor, negative_weights: torch.Tensor | None
) -> torch.Tensor:
    """[row, variable] tensors of one dtype and device to [row, root], by differentiable operations."""
    operations = _operations(ring, str(weights.dtype).removeprefix("torch."))
    if negative_weights is None and not bool(rounds.positive.all()):
        assert operations[4] is not None
        negative_weights = _Complement.apply(weights, *operations[4:])
    device = weights.device

    def take(values: torch.Tensor, rows) -> torch.Tensor:
        return values.index_select(0, torch.as_tensor(rows, device=device))

    def plus(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return _Binary.apply(a, b, *operations[:2])

    def times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return _Binary.apply(a, b, *operations[2:4])

    literals = take(weights.T, rounds.variable)
    if negative_weights is not None:
        positive = torch.as_tensor(rounds.positive, device=device)[:, None]
        literals = torch.where(positive, literals, take(negative_weights.T, rounds.variable))
    shape = (1, weights.shape[0])
    zero = torch.full(shape, ring.zero, dtype=weights.dtype, device=device)
    one = torch.full(shape, ring.one, dtype=weights.dtype, device=device)
    return fold_in_rounds(
        rounds,
        torch.cat([zero, one, literals]),
        plus,
        times,
        take,
        lambda parts: torch.cat(list(parts)),
        lambda array, sizes: array.split(list(sizes)),
    ).T
