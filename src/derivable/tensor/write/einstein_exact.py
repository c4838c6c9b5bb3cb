"""Sums of products in steps, of tensors some of which are sparse, where numbers that are not finite are among them.

What cancels to zero in a step is nothing for the step after it, though a NaN or an infinity there makes the sum NaN. So
such sums are computed as `bridge.products` says: the finite terms by themselves, and then whether there are others.
Their derivatives, of torch in reverse mode, are sums of products again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.bridge.products import adjoint_product, exact_sum
from derivable.tensor.values.values import Coordinates, as_torch, entries_at, has_torch

Axes = tuple[int, ...]
# (values of terms, their axes, those of the result, whether it is dense, the backend) -> the sum, in steps
Contract = Callable[[Sequence[Any], Sequence[Axes], Axes, bool, str | None], Any]


def numbers_of(value: Any) -> Any:
    """The array of the numbers of a term."""
    return value.values if isinstance(value, Coordinates) else value.data if hasattr(value, "indptr") else value


def with_numbers(value: Any, numbers: Any) -> Any:
    """The same with other numbers."""
    if isinstance(value, Coordinates):
        return Coordinates(value.shape, value.indices, numbers)
    if hasattr(value, "indptr"):
        return type(value)((numbers, value.indices, value.indptr), shape=value.shape)
    return numbers


def exact_where_it_matters(
    contract: Contract,
    values: Sequence[Any],
    axes: Sequence[Axes],
    result: Axes,
    is_dense: bool,
    backend: str | None = None,
) -> Any:
    """The sum of products of the values of terms, no axis twice in one of them."""
    arrays = list(map(numbers_of, values))
    in_torch = has_torch(arrays)
    if not all(isinstance(x, np.ndarray) or has_torch([x]) for x in arrays):
        # Arrays of JAX may have no numbers to look at.
        return contract(values, axes, result, is_dense, backend)
    if not all(map(_is_finite, arrays)):
        if in_torch:
            return _in_torch(contract, values, axes, result, is_dense)
        total = _exact(contract, values, axes, result, is_dense)
        return total if backend is None else with_numbers(total, as_torch(np.asarray(numbers_of(total))))
    if not in_torch or not _is_differentiated(arrays):
        return contract(values, axes, result, is_dense, backend)
    return _watched(contract, values, axes, result, is_dense, backend)


def _is_finite(numbers: Any) -> bool:
    """Whether the sum of all numbers is finite; as if it were, where there are no numbers to look at."""
    if isinstance(numbers, np.ndarray):
        return numbers.dtype.kind != "f" or math.isfinite(numbers.sum())
    from derivable.bridge.torch import is_finite

    return is_finite(numbers)


def _is_differentiated(arrays: Sequence[Any]) -> bool:
    import torch

    from derivable.bridge.torch import is_observed

    is_recorded = any(isinstance(x, torch.Tensor) and x.requires_grad for x in arrays)
    return is_recorded and torch.is_grad_enabled() and not is_observed()


def _watched(
    contract: Contract,
    values: Sequence[Any],
    axes: Sequence[Axes],
    result: Axes,
    is_dense: bool,
    backend: str | None,
) -> Any:
    """The sum of finite numbers, with derivatives in reverse mode that are right for any adjoint."""
    import torch

    from derivable.bridge.torch import where_not_finite

    watched = [
        with_numbers(value, numbers.view_as(numbers))
        if isinstance(numbers := numbers_of(value), torch.Tensor) and numbers.requires_grad
        else value
        for value in values
    ]
    total = contract(watched, axes, result, is_dense, backend)
    numbers = numbers_of(total)
    if not numbers.requires_grad:
        return total
    pattern = with_numbers(total, numbers.detach())
    views = {k: numbers_of(view) for k, (value, view) in enumerate(zip(values, watched)) if view is not value}

    def adjoint(position: int, seed: torch.Tensor) -> torch.Tensor:
        return _adjoint(contract, values, axes, result, with_numbers(pattern, seed), position)

    where_not_finite(numbers, views, adjoint)
    return total


@np.errstate(invalid="ignore", over="ignore")
def _exact(contract: Contract, values: Sequence[Any], axes: Sequence[Axes], result: Axes, is_dense: bool) -> Any:
    made: list[Any] = []

    def sums(lists: list[list[Any]]) -> list[Any]:
        terms = [list(map(with_numbers, values, map(np.asarray, each))) for each in lists]
        made[:] = [contract(each, axes, result, is_dense, None) for each in terms]
        return list(map(numbers_of, made))

    total = exact_sum(np, sums, [np.asarray(numbers_of(value)) for value in values], np.any)
    return with_numbers(made[0], total)


def _in_torch(contract: Contract, values: Sequence[Any], axes: Sequence[Axes], result: Axes, is_dense: bool) -> Any:
    import torch

    pattern: list[Any] = []
    numbers = [x if isinstance(x, torch.Tensor) else torch.from_numpy(np.asarray(x)) for x in map(numbers_of, values)]

    class Exact(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *numbers: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(*numbers)
            total = _exact(contract, list(map(_in_numpy, values, numbers)), axes, result, is_dense)
            pattern.append(total)
            return torch.from_numpy(np.asarray(numbers_of(total))).to(numbers[0].dtype)

        @staticmethod
        def backward(ctx: Any, *adjoints: torch.Tensor) -> Any:  # type: ignore[override]
            (seed,), numbers = adjoints, ctx.saved_tensors
            factors = list(map(with_numbers, values, numbers))
            return tuple(
                _adjoint(contract, factors, axes, result, with_numbers(pattern[0], seed), k) if is_needed else None
                for k, is_needed in enumerate(ctx.needs_input_grad)
            )

    total = Exact.apply(*numbers)
    return with_numbers(pattern[0], total)


def _in_numpy(value: Any, numbers: Any) -> Any:
    return with_numbers(value, numbers.detach().numpy())


def _adjoint(
    contract: Contract, values: Sequence[Any], axes: Sequence[Axes], result: Axes, seed: Any, position: int
) -> Any:
    """The adjoint of the numbers of the term at that position, from that of the result."""
    import torch

    factors, (*their, of) = adjoint_product(values, (*axes, result), position, seed, np.ones)
    like, numbers = values[position], numbers_of(values[position])
    is_sparse = numbers is not like
    if is_sparse:
        factors.append(with_numbers(like, np.ones(len(numbers))))
        their.append(of)
    if not torch.is_grad_enabled():
        factors = [_in_numpy(x, numbers_of(x)) if has_torch([numbers_of(x)]) else x for x in factors]
    adjoint = exact_where_it_matters(contract, factors, their, of, not is_sparse)
    by_entry = _at(adjoint, like) if is_sparse else torch.as_tensor(adjoint)
    return by_entry.to(numbers.dtype)


def _at(total: Coordinates, pattern: Coordinates) -> Any:
    """[entry of the pattern] the numbers of a sum there, zero where it has no entry, as a tensor."""
    import torch

    numbers = torch.as_tensor(total.values)
    if not total.num_entries:
        return numbers.new_zeros(pattern.num_entries)
    positions, is_entry = entries_at(pattern.indices, total)
    return torch.where(torch.from_numpy(is_entry), numbers[torch.from_numpy(positions)], 0.0)
