"""Operations that order entries or put them to places, written in torch; `decompositions` says how rows are called."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from derivable.accelerator.trace.decompositions import refuse, row

# Rounds of a repeated maximum pass over an axis about so often, where ranks compare each pair of its entries.
_PASSES_OF_A_ROUND = 4


def _hot(index: Any, count: int) -> Any:
    return F.one_hot(index, count).double()


def _by_rounds(x: Any, count: int) -> tuple[Any, Any]:
    """The largest entries of the last axis, one after the other: each is then less than all others."""
    low, length = torch.amin(x, -1, True) - 1, x.shape[-1]
    values, places = [], []
    for _ in range(count):
        place = torch.argmax(x, -1)
        values.append(torch.amax(x, -1))
        places.append(place)
        if len(values) < count:
            x = torch.where(F.one_hot(place, length) > 0, low, x)
    return torch.stack(values, -1), torch.stack(places, -1)


def _by_ranks(x: Any, ranks: torch.Tensor) -> tuple[Any, Any]:
    """The entries of the last axis with these ranks: a rank is how many are larger, or alike and before."""
    length = x.shape[-1]
    own, other = x.unsqueeze(-1), x.unsqueeze(-2)
    before = torch.ones(length, length).tril(-1)
    rank = ((other > own).double() + (other == own).double() * before).sum(-1)
    is_there = (rank.unsqueeze(-2) == ranks.double().unsqueeze(-1)).double()
    places = (is_there * torch.arange(length).double()).sum(-1).long()
    return (is_there * x.unsqueeze(-2)).sum(-1), places


def _ordered(input: Any, dim: int, first: int, count: int, is_descending: bool) -> tuple[Any, Any]:
    """Entries of an axis from `first` on in their order, and where they were."""
    x = input.transpose(dim, -1)
    x = x if x.is_floating_point() else x.double()
    x = x if is_descending else -x
    if first == 0 and count * _PASSES_OF_A_ROUND < x.shape[-1]:
        values, places = _by_rounds(x, count)
    else:
        values, places = _by_ranks(x, torch.arange(first, first + count))
    values = (values if is_descending else -values).transpose(dim, -1)
    return values if input.is_floating_point() else values.to(input.dtype), places.transpose(dim, -1)


@row("topk")
def _topk(input: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return torch.return_types.topk(_ordered(input, dim, 0, k, largest))  # type: ignore[attr-defined]


@row("sort")
def _sort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    found = _ordered(input, dim, 0, input.shape[dim], descending)
    return torch.return_types.sort(found)  # type: ignore[attr-defined]


@row("argsort")
def _argsort(input: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return _ordered(input, dim, 0, input.shape[dim], descending)[1]


@row("msort")
def _msort(input: Any) -> Any:
    return _ordered(input, 0, 0, input.shape[0], False)[0]


@row("kthvalue")
def _kthvalue(input: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    found = _ordered(input, dim, k - 1, 1, False)
    found = found if keepdim else tuple(part.squeeze(dim) for part in found)
    return torch.return_types.kthvalue(found)  # type: ignore[attr-defined]


@row("median")
def _median(input: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """Of an even number of entries the lower one."""
    if dim is None:
        flat = input.reshape(-1)
        return _kthvalue(flat, (flat.shape[0] + 1) // 2)[0]
    found = _kthvalue(input, (input.shape[dim] + 1) // 2, dim, keepdim)
    return torch.return_types.median(tuple(found))  # type: ignore[attr-defined]


@row("index_add")
def _index_add(input: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    """A product with rows that are one at one place."""
    hot = _hot(index, input.shape[dim]) * alpha
    return input + (source.transpose(dim, -1) @ hot).transpose(dim, -1)


def _scattered(input: Any, dim: int, index: Any, src: Any) -> tuple[Any, Any]:
    """For each entry of the input the entries that go there, and ones for them, along a new last axis."""
    axis = dim % input.dim()
    others = [n for other, n in enumerate(index.shape) if other != axis]
    own = [n for other, n in enumerate(input.shape) if other != axis]
    refuse(others != own, "a scatter to some rows of a tensor", "an index as large as the input along all other axes")
    hot = _hot(index.transpose(axis, -1), input.shape[axis]).transpose(-1, -2)
    if hasattr(src, "dim"):
        for other, n in enumerate(index.shape):
            src = src.narrow(other, 0, n) if src.shape[other] != n else src
        src = src.transpose(axis, -1).unsqueeze(-2)
    return hot * src, hot


@row("scatter_add")
def _scatter_add(input: Any, dim: int, index: Any, src: Any) -> Any:
    return input + _scattered(input, dim, index, src)[0].sum(-1).transpose(dim, -1)


@row("scatter")
def _scatter(input: Any, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: Any = None) -> Any:
    refuse(reduce is not None, "scatter with reduce", "scatter_add")
    if value is not None or not hasattr(src, "dim"):
        src = src if value is None else value
        hot = _scattered(input, dim, index, 1.0)[1]
        return torch.where(torch.amax(hot, -1).transpose(dim, -1) > 0, float(src), input)
    numbers, hot = (part.sum(-1).transpose(dim, -1) for part in _scattered(input, dim, index, src))
    return torch.where(hot > 0, numbers, input)


@row("cross", "linalg_cross")
def _cross(input: Any, other: Any, dim: int | None = None) -> Any:
    axis = -1 if dim is None else dim
    turned = [(x.roll(-1, axis), x.roll(-2, axis)) for x in (input, other)]
    return turned[0][0] * turned[1][1] - turned[0][1] * turned[1][0]


@row("bucketize")
def _bucketize(input: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    x = input.unsqueeze(-1)
    return (x >= boundaries if right else x > boundaries).sum(-1)


@row("affine_grid")
def _affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    refuse(len(size) != 4, "affine_grid of volumes", "pictures [image, channel, row, column]")
    plain = F.affine_grid(torch.eye(2, 3)[None], [1, *size[1:]], align_corners=bool(align_corners))
    places = torch.cat([plain, torch.ones(*plain.shape[:-1], 1)], -1).flatten(1, 2)
    return (places @ theta.transpose(1, 2)).unflatten(1, tuple(size[2:]))


@row("grid_sample", "grid_sampler")
def _grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """A product of the pixels with what each gives to each place: constant where the grid is, and else one minus the
    distance along each axis."""
    refuse(input.dim() != 4, "grid_sample of volumes", "pictures [image, channel, row, column]")
    images, _, rows, columns = input.shape
    pixels, shape = input.flatten(2), tuple(grid.shape[1:3])
    if isinstance(grid, torch.Tensor):
        grid = grid[:1] if torch.equal(grid, grid[:1].expand_as(grid)) else grid
        each = torch.eye(rows * columns).reshape(1, -1, rows, columns).expand(len(grid), -1, -1, -1)
        options = {"mode": mode, "padding_mode": padding_mode, "align_corners": bool(align_corners)}
        weights = F.grid_sample(each, grid, **options).flatten(2)
        return (pixels @ (weights[0] if len(grid) == 1 else weights)).unflatten(-1, shape)
    refuse(mode != "bilinear", f"grid_sample in mode {mode!r} with a grid that is computed", "mode='bilinear'")
    refuse(padding_mode == "reflection", "grid_sample with reflections", "padding_mode='zeros' or 'border'")
    parts = []
    for axis, count in ((1, rows), (0, columns)):
        place = grid[..., axis].flatten(1)
        place = (place + 1) * ((count - 1) / 2) if align_corners else (place + 1) * (count / 2) - 0.5
        place = place.clamp(0, count - 1) if padding_mode == "border" else place
        parts.append(F.relu(1 - torch.abs(place.unsqueeze(-1) - torch.arange(count).double())))
    weights = (parts[0].unsqueeze(-1) * parts[1].unsqueeze(-2)).reshape(images, math.prod(shape), rows * columns)
    return (pixels @ weights.transpose(1, 2)).unflatten(-1, shape)
