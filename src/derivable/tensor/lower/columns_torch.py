"""Columns on torch tensors: `index_select`, `index_add`, `scatter_reduce` and scalar operations, on any device; sums of
semirings whose plus torch does not have are our own folds.

All of them are functions that torch differentiates, to any order, forwards and backwards, and maps. Where minima and
maxima tie, the derivative goes to the smallest index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from derivable.algebra.expr.emit_arrays import compile_torch
from derivable.algebra.expr.functions import apply, lift
from derivable.algebra.expr.nodes import Argument
from derivable.algebra.semiring import Semiring
from derivable.tensor.lower import columns as c
from derivable.tensor.lower.columns import Column


class TorchColumns:
    """Columns as a function of torch tensors.

    is_exact  whether zero times an infinity or NaN is zero
    """

    def __init__(self, results: Sequence[Column], semiring: Semiring, is_exact: bool = False):
        self.results, self.columns, self.semiring = list(results), c.ordered(results), semiring
        self.is_exact = is_exact
        self.sum = _sum_of(semiring)
        # The arrays of places, by device.
        self._places: dict[torch.device, dict[int, torch.Tensor]] = {}

    def __call__(self, given: Mapping[str, torch.Tensor], like: torch.Tensor) -> list[torch.Tensor]:
        """The columns [row, lane].

        given  {name: values [entry]}, or a tensor without axes for a number
        like   a tensor of the type and on the device of the results
        """
        places = self._places_on(like.device)
        values: dict[int, torch.Tensor] = {}
        for column in self.columns:
            parts = [values[id(part)] for part in column.parts]
            values[id(column)] = self._value(column, parts, given, like, places)
        return [values[id(column)] for column in self.results]

    def _places_on(self, device: torch.device) -> dict[int, torch.Tensor]:
        if device not in self._places:
            held = {id(column): column.rows for column in self.columns if isinstance(column, (c.Take, c.Fold))}
            self._places[device] = {
                number: torch.as_tensor(np.ascontiguousarray(rows, np.int64), device=device)
                for number, rows in held.items()
            }
        return self._places[device]

    def _value(
        self, column: Column, parts: list[Any], given: Mapping[str, Any], like: torch.Tensor, places: Mapping[int, Any]
    ) -> Any:
        match column:
            case c.Given():
                return given[column.name]
            case c.Constant():
                array = np.asarray(column.values)
                dtype = torch.bool if array.dtype == bool else like.dtype
                return torch.as_tensor(array.copy(), dtype=dtype, device=like.device)
            case c.Take():
                return parts[0].index_select(0, places[id(column)])
            case c.Fold():
                return self.sum(parts[0], places[id(column)], column.length or 0)
            case c.FoldLanes():
                return self._over_lanes(parts[0])
            case c.Join():
                return torch.cat(parts)
            case c.Reshape():
                return parts[0].reshape(column.shape)
            case c.Apply():
                aligned = [x[:, None] if x.ndim and x.ndim < len(column.shape) else x for x in parts]
                aligned = torch.broadcast_tensors(*aligned)
                kinds = tuple(_NAMES[x.dtype] for x in aligned)
                function = _function(column.operation, kinds, self.semiring)
                is_product = self.is_exact and column.operation == "times"
                found = self._exact_product(function, *aligned) if is_product else function(*aligned)
                return found.expand(column.shape)
        raise AssertionError(column)

    def _exact_product(self, times: Callable, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """The product, and zero where one factor is zero and the other one is not finite.

        Factors are replaced before they are multiplied: the derivative of what is left out would be NaN.
        """
        zero, one = self.semiring.zero, self.semiring.one
        is_nothing = ((left == zero) & ~right.isfinite()) | ((right == zero) & ~left.isfinite())
        left, right = (torch.where(is_nothing, one, x) for x in (left, right))
        return torch.where(is_nothing, zero, times(left, right))

    def _over_lanes(self, values: torch.Tensor) -> torch.Tensor:
        if self.sum is _added:
            return values.sum(1)
        count, lanes = values.shape
        rows = torch.arange(count, device=values.device).repeat_interleave(lanes)
        return self.sum(values.reshape(-1), rows, count)


_NAMES = {torch.float32: "float32", torch.float64: "float64", torch.bool: "bool"}


@lru_cache(256)
def _function(operation: str, dtypes: tuple[Any, ...], semiring: Semiring) -> Callable:
    if operation == "times":
        times = semiring.typed(dtypes[0] if dtypes[0] != "bool" else "float64").times
        return _single(compile_torch(times.values, (*times.left, *times.right), "times"))
    arguments = [Argument(k, dtype) for k, dtype in enumerate(dtypes)]
    return compile_torch(lift(apply(operation, *arguments)), arguments, operation)


def _single(function: Callable) -> Callable:
    return lambda *operands: function(*operands)[0]


# Sums by row: (values [row, lane], to which row each goes, how many rows there are) -> [row, lane].


def _sum_of(semiring: Semiring) -> Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]:
    plus = semiring.typed("float64").plus
    (value,) = plus.values
    name = getattr(value, "operation", "")
    if tuple(value.operands) != (*plus.left, *plus.right) or name not in _SUMS:
        return lambda values, rows, count: _folded(values, rows, count, semiring)
    found, zero = _SUMS[name], semiring.zero
    return found if found in (_added, _any) else lambda values, rows, count: found(values, rows, count, zero)


def _folded(values: torch.Tensor, rows: torch.Tensor, count: int, semiring: Semiring) -> torch.Tensor:
    """By any plus, of which torch has no sums by index: one row after another, in their order."""
    from derivable.bridge.folds import segment_reduce

    order = torch.argsort(rows, stable=True)
    ends = torch.bincount(rows, minlength=count).cumsum(0)
    return segment_reduce(semiring, values.index_select(0, order), torch.cat([ends.new_zeros(1), ends]))


def _added(values: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    return values.new_zeros((count, *values.shape[1:])).index_add(0, rows, values)


def _any(values: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    return _added(values.to(torch.int64), rows, count) > 0


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
    is_best = (fixed == best.index_select(0, rows)) | (fixed != fixed)
    number = torch.arange(size, device=values.device).reshape(-1, *[1] * (values.ndim - 1))
    first = _best(torch.where(is_best, number, size), rows, count, "amin", size)
    chosen = values.gather(0, first.clamp(max=size - 1))
    return torch.where(first < size, chosen, nothing)


def _least(values: torch.Tensor, rows: torch.Tensor, count: int, zero: float) -> torch.Tensor:
    return _extreme(values, rows, count, "amin", zero)


def _greatest(values: torch.Tensor, rows: torch.Tensor, count: int, zero: float) -> torch.Tensor:
    return _extreme(values, rows, count, "amax", zero)


def _log_added(values: torch.Tensor, rows: torch.Tensor, count: int, zero: float) -> torch.Tensor:
    best = _best(values.detach(), rows, count, "amax", zero)
    # Differences of infinities are no numbers.
    shift = torch.where(best.isfinite(), best, 0)
    total = _added((values - shift.index_select(0, rows)).exp(), rows, count)
    is_some = total > 0
    return torch.where(is_some, torch.where(is_some, total, 1).log() + shift, zero)


_SUMS: dict[str, Callable] = {
    "add": _added,
    "logical_or": _any,
    "minimum": _least,
    "maximum": _greatest,
    "logaddexp": _log_added,
}
