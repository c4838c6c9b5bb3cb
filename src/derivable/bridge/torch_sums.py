"""Sums of rows by any plus on torch tensors, with derivatives of any order.

Each is a function (values [row, *lane], to which result each row goes, how many results there are, the neutral element)
-> [result, *lane].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch

from derivable.algebra.semiring import Semiring
from derivable.bridge.torch import is_observed
from derivable.bridge.torch_products import is_recorded


@lru_cache(64)
def sum_of(semiring: Semiring) -> Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]:
    """The sum by the plus of a semiring, whose zero is the neutral element."""
    special = semiring.typed("float64").plus.special
    return partial(SUMS[special], zero=semiring.zero) if special in SUMS else partial(_folded, semiring=semiring)


def _folded(values: torch.Tensor, rows: torch.Tensor, count: int, semiring: Semiring) -> torch.Tensor:
    """By any plus, of which torch has no sums by index: one row after another, in their order."""
    from derivable.bridge.folds import segment_reduce

    order = torch.argsort(rows, stable=True)
    ends = torch.bincount(rows, minlength=count).cumsum(0)
    return segment_reduce(semiring, values.index_select(0, order), torch.cat([ends.new_zeros(1), ends]))


def added(values: torch.Tensor, rows: torch.Tensor, count: int, zero: Any = 0) -> torch.Tensor:
    return values.new_zeros((count, *values.shape[1:])).index_add(0, rows, values)


def any_of(values: torch.Tensor, rows: torch.Tensor, count: int, zero: Any = False) -> torch.Tensor:
    return added(values.to(torch.int64), rows, count) > 0


def _best(values: torch.Tensor, rows: torch.Tensor, count: int, kind: str, start: Any) -> torch.Tensor:
    where = rows.reshape(-1, *[1] * (values.ndim - 1)).expand_as(values)
    filled = values.new_full((count, *values.shape[1:]), start)
    return filled.scatter_reduce(0, where, values, kind, include_self=False)


def _extreme(values: torch.Tensor, rows: torch.Tensor, count: int, kind: str, zero: float) -> torch.Tensor:
    """The first of the best in each row."""
    size = len(rows)
    nothing = values.new_full((count, *values.shape[1:]), zero)
    if not size:
        return nothing
    fixed = values.detach()
    best = _best(fixed, rows, count, kind, zero)
    if not values.requires_grad and not is_observed():
        return best
    is_best = (fixed == best.index_select(0, rows)) | (fixed != fixed)
    number = torch.arange(size, device=values.device).reshape(-1, *[1] * (values.ndim - 1))
    first = _best(torch.where(is_best, number, size), rows, count, "amin", size)
    chosen = values.gather(0, first.clamp(max=size - 1))
    return torch.where(first < size, chosen, nothing)


def least(values: torch.Tensor, rows: torch.Tensor, count: int, zero: float) -> torch.Tensor:
    return _extreme(values, rows, count, "amin", zero)


def greatest(values: torch.Tensor, rows: torch.Tensor, count: int, zero: float) -> torch.Tensor:
    return _extreme(values, rows, count, "amax", zero)


def log_added(values: torch.Tensor, rows: torch.Tensor, count: int, zero: float) -> torch.Tensor:
    best = _best(values.detach(), rows, count, "amax", zero)
    at = best.index_select(0, rows)
    difference: Any = _Difference.apply(values, at) if is_recorded((values,)) else _difference(values, at)
    # A row without terms, or of terms that are all zero, has no logarithm.
    is_some = best != zero
    total = torch.where(is_some, added(difference.exp(), rows, count), 1)
    return torch.where(is_some, total.log() + best, zero)


def _difference(values: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
    return torch.where(values == best, 0.0, values - best)


class _Difference(torch.autograd.Function):
    """`values - best`, which is 0 with slope 1 also for equal infinities; `best` is a constant."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        return _difference(values, best)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *adjoints: torch.Tensor) -> Any:  # type: ignore[override]
        return adjoints[0], None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tangents[0].clone()


SUMS: dict[str | None, Callable[..., torch.Tensor]] = {
    "add": added,
    "or": any_of,
    "min": least,
    "max": greatest,
    "logaddexp": log_added,
}
