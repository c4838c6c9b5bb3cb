"""The fold by differentiable tensor operations, on any device and to any order of derivative.

Each semiring operation is one autograd function whose reverse rule is the one of `algebra`, so ties and infinities
mean the same as in the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from derivable.algebra.compiled import SemiringExpressions, expressions
from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, in_order
from derivable.algebra.semiring import Semiring
from derivable.circuit.rounds import Rounds, fold_in_rounds

_DTYPES = {"bool": torch.bool, "int64": torch.int64, "float32": torch.float32, "float64": torch.float64}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def _log1mexp(x: torch.Tensor) -> torch.Tensor:
    near = x > -math.log(2.0)
    return torch.where(near, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(torch.where(near, -1.0, x))))


def _logaddexp(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(a, b)


_MEANING: dict[str, Callable] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "floor_divide": lambda a, b: torch.where(b == 0, 0, torch.div(a, b, rounding_mode="floor")),
    "remainder": lambda a, b: torch.where(b == 0, 0, torch.remainder(a, b)),
    "negate": torch.neg,
    "power": torch.pow,
    "abs": torch.abs,
    "sign": torch.sign,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "log1mexp": _log1mexp,
    "logaddexp": _logaddexp,
    "sqrt": torch.sqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "less": torch.lt,
    "less_equal": torch.le,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "logical_not": torch.logical_not,
    "logical_and": torch.logical_and,
    "logical_xor": torch.logical_xor,
    "logical_or": torch.logical_or,
    "where": torch.where,
}


def interpret_torch(exprs: Sequence[Expr], values: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The values of expressions of tensors; `values[i]` stands for the argument of index i."""
    results: dict[Expr, Any] = {}
    for node in in_order(exprs):
        if isinstance(node, Constant):
            results[node] = torch.tensor(node.value, dtype=_DTYPES[node.dtype], device=values[0].device)
        elif isinstance(node, Argument):
            results[node] = values[node.index]
        elif isinstance(node, Apply):
            operands = [results[operand] for operand in node.operands]
            if node.operation == "cast":
                results[node] = operands[0].to(_DTYPES[node.dtype])
            else:
                results[node] = _MEANING[node.operation](*operands).to(_DTYPES[node.dtype])
    return tuple(results[expr] for expr in exprs)


class _Binary(torch.autograd.Function):
    """plus or times with the derivative rule of the semiring."""

    @staticmethod
    def forward(ctx, a, b, expr, rule):
        ctx.save_for_backward(a, b)
        ctx.rule = rule
        return interpret_torch([expr], [a, b])[0].expand(a.shape).clone()

    @staticmethod
    def backward(ctx, adjoint):
        a, b = ctx.saved_tensors
        left, right = interpret_torch(ctx.rule, [a, b, adjoint])
        # No adjoint, no contribution: 0 * inf has no say.
        dead = adjoint == 0
        return torch.where(dead, 0.0, left), torch.where(dead, 0.0, right), None, None


class _Complement(torch.autograd.Function):
    """The weights of negative literals with the derivative rule of the semiring."""

    @staticmethod
    def forward(ctx, a, expr, rule):
        ctx.save_for_backward(a)
        ctx.rule = rule
        return interpret_torch([expr], [a])[0].expand(a.shape).clone()

    @staticmethod
    def backward(ctx, adjoint):
        (a,) = ctx.saved_tensors
        (result,) = interpret_torch([ctx.rule], [a, adjoint, adjoint])
        return result.expand(a.shape), None, None


@cache
def _expressions(ring: Semiring, dtype: str) -> SemiringExpressions:
    return expressions(ring, dtype)


def fold_torch(
    rounds: Rounds, ring: Semiring, weights: torch.Tensor, negative_weights: torch.Tensor | None
) -> torch.Tensor:
    """[row, variable] tensors of one dtype and device to [row, root], by differentiable operations."""
    traced = _expressions(ring, _NAMES[weights.dtype])
    if negative_weights is None and not bool(rounds.positive.all()):
        assert traced.complement is not None
        negative_weights = _Complement.apply(weights, traced.complement, traced.complement_vjp)
    device = weights.device

    def take(values: torch.Tensor, rows) -> torch.Tensor:
        return values.index_select(0, torch.as_tensor(rows, device=device))

    def plus(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return _Binary.apply(a, b, traced.plus, traced.plus_vjp)

    def times(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return _Binary.apply(a, b, traced.times, traced.times_vjp)

    literals = take(weights.T, rounds.variable)
    if negative_weights is not None:
        positive = torch.as_tensor(rounds.positive, device=device)[:, None]
        literals = torch.where(positive, literals, take(negative_weights.T, rounds.variable))
    shape = (1, weights.shape[0])
    zero = torch.full(shape, ring.zero, dtype=weights.dtype, device=device)
    one = torch.full(shape, ring.one, dtype=weights.dtype, device=device)
    return fold_in_rounds(
        rounds, torch.cat([zero, one, literals]), plus, times, take, lambda parts: torch.cat(list(parts))
    ).T
