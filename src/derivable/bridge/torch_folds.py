"""Folds and their vjps on the tensors of a GPU, by Triton kernels that are printed from the loop IR.

The functions have the meaning of `Fold.apply` and `Fold.pull`. Scans take two kernels (`parallel.grid_scan_kernels`), a
fold of everything one or two. Segments are scanned as one array with flags, so their lengths do not matter. Of few
buckets each lane folds rows of its own; for many ones sums and extrema are torch's own operations by index, whose sums
of floats vary with the order of additions, and other operators fold the rows in order, as torch sorts them.

Tensors on the CPU run in Triton's interpreter, if that is on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch

from derivable.algebra.expr.emit_arrays import compile_torch
from derivable.algebra.monoid import TypedMonoid
from derivable.bridge.fold import KERNEL_DTYPES, Fold
from derivable.core.diagnostics import LayoutError
from derivable.kernel.emit_triton import compile_triton
from derivable.kernel.nodes import Kernel
from derivable.parallel import grid_scan_kernels as grids
from derivable.parallel.fold_kernels import needs
from derivable.parallel.program import nodes as n

Leaves = list[torch.Tensor]  # [leaf] arrays [row, column, size]
_NAMES = {getattr(torch, name): name for name in KERNEL_DTYPES}
# Scalars that each lane folds for buckets at most.
FEW_BUCKETS = 32


def apply(fold: Fold, structure: Any, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results [leaf], as `Fold.apply` gives them."""
    op, leaves = fold.operator, fold.leaves
    structure = _structure(fold, structure, operands)
    given = [_flat(op, k % leaves, x) for k, x in enumerate(operands)]
    if fold.kind == "scan":
        found = _scan(op, given, _starts(structure, given), fold.exclusive, fold.reverse)
    elif fold.kind == "segment_reduce":
        found = _segments(op, given, structure)[0]
    else:
        found = _by_index(op, given[:leaves], structure, given[leaves:])
    shapes = fold.result_shapes(None if structure is None else tuple(structure.shape), [x.shape for x in operands])
    return [_native(op, x, shape, like) for x, shape, like in zip(found, shapes, operands)]


def pull(
    fold: Fold,
    structure: Any,
    seeds: Sequence[torch.Tensor | None],
    operands: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Adjoints [float operand], as `Fold.pull` gives them."""
    op, leaves = fold.operator, fold.leaves
    structure = _structure(fold, structure, operands)
    given = [_flat(op, k % leaves, x) for k, x in enumerate(operands)]
    made = [_flat(op, leaf, x) for leaf, x in enumerate(results)]
    adjoints = {
        leaf: torch.zeros_like(made[leaf]) if seed is None else _flat(op, leaf, seed)
        for leaf, seed in zip(op.float_leaves, seeds)
    }
    if fold.kind == "scan":
        found = _scan_back(op, adjoints, given, made, _starts(structure, given), fold.exclusive, fold.reverse)
    elif fold.kind == "segment_reduce":
        found = _segments_back(op, adjoints, given, structure)
    else:
        found = _by_index_back(op, adjoints, given[:leaves], structure, given[leaves:])
    return [_native(op, x, operands[k].shape, operands[k]) for k, x in zip(fold.float_operands, found, strict=True)]


# Tensors


def _structure(fold: Fold, structure: Any, operands: Sequence[torch.Tensor]) -> Any:
    """On the device of the operands; offsets are checked. Raises LayoutError as `Fold.checked` does."""
    if structure is None:
        return None
    if fold.kind == "reduce_by_index":
        return structure.to(operands[0].device)
    rows = operands[0].shape[0]
    if structure.device.type == "cpu" or len(structure) == 0:
        fold.checked(structure.cpu().numpy(), operands)
    else:
        is_bad = (structure[0] != 0) | (structure[-1] != rows) | (structure[1:] < structure[:-1]).any()
        if bool(is_bad):
            fold.checked(structure.cpu().numpy(), operands)
            raise LayoutError("offsets changed while they were read")
    # Two offsets are those of a fold of everything, and stay where they are.
    return structure if len(structure) == 2 else structure.to(operands[0].device)


def _flat(op: TypedMonoid, leaf: int, x: torch.Tensor) -> torch.Tensor:
    size = op.leaf_sizes[leaf]
    flat = x.detach().reshape(x.shape[0], math.prod(x.shape[1:]) // size, size).contiguous()
    # The neutral element of min is the largest int64, which smaller types do not hold.
    is_cut = op.special in ("min", "max") and op.leaf_dtypes[leaf] == "int64"
    return flat.to(torch.int64) if is_cut else flat


def _native(op: TypedMonoid, x: torch.Tensor, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    x = x.reshape(shape)
    if x.dtype == like.dtype:
        return x
    if op.special in ("min", "max") and not like.is_floating_point():
        limits = torch.iinfo(like.dtype)
        x = x.clamp(limits.min, min(limits.max, torch.iinfo(torch.int64).max))
    return x.to(like.dtype)


def _starts(offsets: torch.Tensor | None, values: Leaves) -> torch.Tensor | None:
    """[row + 1] 1 where a segment starts, and at the end; None for one segment."""
    if offsets is None:
        return None
    rows, device = values[0].shape[0], values[0].device
    return torch.zeros(rows + 1, dtype=torch.int8, device=device).index_fill_(0, offsets.to(device), 1)


def _neutral(op: TypedMonoid, leaf: int, like: torch.Tensor) -> torch.Tensor:
    """[size] in the type of a tensor on its device."""
    scalars = op.neutral[op.starts[leaf] : op.starts[leaf + 1]]
    return torch.tensor([x.item() for x in scalars], dtype=like.dtype, device=like.device)


# Scans


class _Run:
    """A scan of leaves like `like` by an operator, cut for the device that they are on."""

    def __init__(self, op: TypedMonoid, like: torch.Tensor, grid: dict[str, bool], lanes: int = 0):
        self.rows, self.width, _ = like.shape
        self.device = like.device
        self.cut = grids.cut(op, self.rows, self.width, _multiprocessors(like.device), lanes, **grid)
        self.grid, self.chunks = self.cut.grid, self.cut.chunks

    def __call__(self, which: Callable, op: TypedMonoid, values: Leaves, of: int, arrays: dict[str, Any]) -> None:
        dtypes = tuple(_NAMES[x.dtype] for x in values)
        kernel, launch = _compiled(which, op, dtypes, self.grid, of, self.cut.warps)
        given = [arrays[parameter.name] for parameter in kernel.parameters[4:]]
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            launch(self.cut.programs, self.rows, self.width, self.chunks, self.cut.size, *given)


@lru_cache(64)
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


@lru_cache(512)
def _compiled(
    which: Callable, op: TypedMonoid, dtypes: tuple[str, ...], grid: grids.Grid, of: int, warps: int
) -> tuple[Kernel, Callable]:
    kernel = which(op, dtypes, grid, of)
    return kernel, compile_triton(kernel, warps, ("chunks", "size"))


def _empty(op: TypedMonoid, rows: int, width: int, device: torch.device) -> Leaves:
    return [
        torch.empty((rows, width, size), dtype=getattr(torch, dtype), device=device)
        for size, dtype in zip(op.leaf_sizes, op.leaf_dtypes)
    ]


def _totals(run: _Run, op: TypedMonoid, arrays: dict[str, torch.Tensor], back: bool) -> Leaves:
    """The totals of the chunks [leaf] arrays [chunk, column, size]."""
    totals = _empty(grids.scanned(op, run.grid, back), run.chunks, run.width, run.device)
    arrays.update((f"t{leaf}", _bytes(total)) for leaf, total in enumerate(totals))
    return totals


def _run_scan(
    op: TypedMonoid, arrays: dict[str, torch.Tensor], values: Leaves, grid: dict[str, bool], back: bool
) -> None:
    run = _Run(grids.scanned(op, grids.Grid(1, **grid), back), values[0], grid)
    _totals(run, op, arrays, back)
    for which in (grids.totals_kernel, grids.prefixes_kernel)[run.chunks == 1 :]:
        run(which, op, values, back, arrays)


def _named(role: str, leaves: Any) -> dict[str, torch.Tensor]:
    pairs = leaves.items() if isinstance(leaves, dict) else enumerate(leaves)
    return {f"{role}{leaf}": _bytes(x) for leaf, x in pairs}


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int8) if x.dtype == torch.bool else x


def _scan(
    op: TypedMonoid, values: Leaves, starts: torch.Tensor | None, exclusive: bool = False, reverse: bool = False
) -> Leaves:
    results = [torch.empty_like(x) for x in values]
    if values[0].numel():
        arrays = {**_named("v", values), **_named("o", results)}
        if starts is not None:
            arrays["starts"] = starts
        grid = {"segmented": starts is not None, "exclusive": exclusive, "reverse": reverse}
        _run_scan(op, arrays, values, grid, False)
    return results


def _scan_back(
    op: TypedMonoid,
    adjoints: dict[int, torch.Tensor],
    values: Leaves,
    results: Leaves,
    starts: torch.Tensor | None,
    exclusive: bool = False,
    reverse: bool = False,
) -> Leaves:
    """[float leaf]"""
    answers = {leaf: torch.empty_like(values[leaf]) for leaf in op.float_leaves}
    if answers and values[0].numel():
        arrays = {
            **_named("g", adjoints), **_named("v", values), **_named("y", results), **_named("o", answers)
        }  # fmt: skip
        if starts is not None:
            arrays["starts"] = starts
        grid = {"segmented": starts is not None, "exclusive": exclusive, "reverse": reverse}
        _run_scan(op, arrays, values, grid, True)
    return list(answers.values())


# Folds of segments


def _segments(op: TypedMonoid, values: Leaves, offsets: torch.Tensor) -> tuple[Leaves, Leaves]:
    """(the fold of each segment, all prefixes if they were computed)."""
    if len(offsets) == 2:
        return _whole(op, values), []
    offsets = offsets.to(values[0].device)
    prefixes = _scan(op, values, _starts(offsets, values))
    return _ends(op, prefixes, offsets), prefixes


def _ends(op: TypedMonoid, prefixes: Leaves, offsets: torch.Tensor) -> Leaves:
    """The last prefix of each segment, the neutral element of those without rows."""
    is_empty = (offsets[1:] == offsets[:-1])[:, None, None]
    last = (offsets[1:] - 1).clamp(min=0)
    found = []
    for leaf, x in enumerate(prefixes):
        neutral = _neutral(op, leaf, x)
        if not len(x):
            found.append(neutral.expand(len(last), x.shape[1], -1).contiguous())
        else:
            found.append(torch.where(is_empty, neutral, x.index_select(0, last)))
    return found


def _whole(op: TypedMonoid, values: Leaves) -> Leaves:
    """The fold of all rows, [leaf] arrays [1, column, size]: the totals of chunks, and their total."""
    totals = values
    while totals[0].shape[0] != 1 and totals[0].numel():
        run, parts = _Run(op, totals[0], {}), totals
        arrays = _named("v", parts)
        totals = _totals(run, op, arrays, False)
        run(grids.totals_kernel, op, parts, False, arrays)
    if totals[0].shape[0] != 1:
        return [_neutral(op, leaf, x).expand(1, x.shape[1], -1).contiguous() for leaf, x in enumerate(values)]
    return [x.to(like.dtype) for x, like in zip(totals, values)]


def _segments_back(op: TypedMonoid, adjoints: dict[int, torch.Tensor], values: Leaves, offsets: torch.Tensor) -> Leaves:
    rows = values[0].shape[0]
    offsets = offsets.to(values[0].device)
    if needs(op).additive:
        counts = offsets[1:] - offsets[:-1]
        segment = torch.repeat_interleave(counts, output_size=rows)
        return [adjoint.index_select(0, segment) for adjoint in adjoints.values()]
    starts = _starts(offsets, values)
    prefixes = _scan(op, values, starts)
    return _ends_back(op, adjoints, values, prefixes, offsets, starts)


def _ends_back(op, adjoints, values: Leaves, prefixes: Leaves, offsets: torch.Tensor, starts) -> Leaves:
    is_empty = (offsets[1:] == offsets[:-1])[:, None, None]
    last = (offsets[1:] - 1).clamp(min=0)
    given = {}
    for leaf, adjoint in adjoints.items():
        given[leaf] = torch.zeros_like(values[leaf])
        if len(values[leaf]):
            given[leaf].index_add_(0, last, torch.where(is_empty, 0, adjoint))
    return _scan_back(op, given, values, prefixes, starts)


# Folds by index


class _Buckets:
    """Rows in the order of their buckets, those that are ignored last."""

    def __init__(self, indices: torch.Tensor, buckets: int):
        self.inside = (indices >= 0) & (indices < buckets)
        key = torch.where(self.inside, indices, buckets).to(_key_type(buckets))
        key, self.order = torch.sort(key, stable=True)
        self.offsets = torch.searchsorted(key, torch.arange(buckets + 1, dtype=key.dtype, device=key.device))

    def starts(self, rows: int) -> torch.Tensor:
        found = torch.zeros(rows + 1, dtype=torch.int8, device=self.offsets.device)
        found.index_fill_(0, self.offsets, 1)
        found[0] = 1
        found[-1] = 1
        return found


def _key_type(buckets: int) -> torch.dtype:
    """The narrowest that holds the numbers of the buckets and one more: a sort goes through all its bits."""
    return next(of for of in (torch.uint8, torch.int16, torch.int32, torch.int64) if buckets <= torch.iinfo(of).max)


_BY_TORCH = {"min": "amin", "max": "amax"}


def _by_few(op: TypedMonoid, buckets: int, indices: torch.Tensor, values: Leaves) -> Leaves:
    """What the rows of each bucket fold to, of few buckets: each lane of a grid folds rows of its own."""
    buckets_of = 1 << (buckets - 1).bit_length()
    width = values[0].shape[1]
    run = _Run(op, values[0], {}, grids.FEWEST_LANES)
    totals = _empty(op, run.chunks * run.grid.lanes, width * buckets_of, run.device)
    arrays = {**_named("v", values), **_named("t", totals), "indices": indices}
    run(grids.buckets_kernel, op, values, buckets_of, arrays)
    found = _whole(op, totals)
    sizes = [x.shape[-1] for x in values]
    return [x.reshape(width, buckets_of, size).transpose(0, 1)[:buckets] for x, size in zip(found, sizes)]


def _by_index(op: TypedMonoid, destination: Leaves, indices: torch.Tensor, values: Leaves) -> Leaves:
    buckets, rows = destination[0].shape[0], values[0].shape[0]
    if not (buckets and rows):
        return [x.clone() for x in destination]
    if buckets * op.size <= FEW_BUCKETS and values[0].shape[1] < grids.MANY_COLUMNS and rows >= buckets:
        return _joined(op, destination, _by_few(op, buckets, indices, values))
    if op.special == "add" or op.special in _BY_TORCH:
        (first,), (of,) = destination, values
        inside = (indices >= 0) & (indices < buckets)
        where = torch.where(inside, indices, buckets).to(torch.int64)
        found = torch.cat([first, torch.zeros_like(first[:1])])
        if op.special == "add":
            return [found.index_add_(0, where, of)[:buckets]]
        where = where[:, None, None].expand_as(of)
        return [found.scatter_reduce_(0, where, of, _BY_TORCH[op.special])[:buckets]]
    sorted_by = _Buckets(indices, buckets)
    ordered = [x.index_select(0, sorted_by.order) for x in values]
    prefixes = _scan(op, ordered, sorted_by.starts(rows))
    return _joined(op, destination, _ends(op, prefixes, sorted_by.offsets))


def _by_index_back(
    op: TypedMonoid, adjoints: dict[int, torch.Tensor], destination: Leaves, indices: torch.Tensor, values: Leaves
) -> Leaves:
    """[float operand]: of the destination, then of the values."""
    buckets, rows = destination[0].shape[0], values[0].shape[0]
    if not (buckets and rows):
        return [*adjoints.values(), *(torch.zeros_like(values[leaf]) for leaf in adjoints)]
    if needs(op).additive:
        inside = ((indices >= 0) & (indices < buckets))[:, None, None]
        near = indices.clamp(0, buckets - 1).to(torch.int64)
        return [
            *(adjoint.clone() for adjoint in adjoints.values()),
            *(torch.where(inside, adjoint.index_select(0, near), 0) for adjoint in adjoints.values()),
        ]
    sorted_by = _Buckets(indices, buckets)
    starts = sorted_by.starts(rows)
    ordered = [x.index_select(0, sorted_by.order) for x in values]
    prefixes = _scan(op, ordered, starts)
    totals = _ends(op, prefixes, sorted_by.offsets)
    to_first, to_totals = _joined_back(op, destination, totals, adjoints)
    found = _ends_back(op, to_totals, ordered, prefixes, sorted_by.offsets, starts)
    answers = []
    for adjoint in found:
        unsorted = torch.empty_like(adjoint).index_copy_(0, sorted_by.order, adjoint)
        answers.append(torch.where(sorted_by.inside[:, None, None], unsorted, 0))
    return [*to_first.values(), *answers]


def _joined(op: TypedMonoid, first: Leaves, second: Leaves) -> Leaves:
    """first op second, element by element."""
    like = first[0][:, :, 0]
    found = _function(op)(*_components(op, first), *_components(op, second))
    return _leaves(op, [torch.broadcast_to(x, like.shape) for x in found], first)


def _joined_back(
    op: TypedMonoid, first: Leaves, second: Leaves, adjoints: dict[int, torch.Tensor]
) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
    compute, live = _vjp(op)
    # Those of components that are not floats are not read.
    seeds = [adjoints.get(leaf, x)[:, :, k] for leaf, x in enumerate(first) for k in range(op.leaf_sizes[leaf])]
    operands = [*_components(op, first), *_components(op, second)]
    by_operand = dict(zip(live, compute(*operands, *seeds)))
    full = [torch.broadcast_to(by_operand.get(k, torch.zeros_like(x)), x.shape) for k, x in enumerate(operands)]
    sides = _leaves(op, full[: op.size], first), _leaves(op, full[op.size :], first)
    return tuple({leaf: side[leaf] for leaf in op.float_leaves} for side in sides)  # type: ignore[return-value]


@lru_cache(256)
def _function(op: TypedMonoid) -> Callable:
    """The operator on components of both operands."""
    function = n.Function.of(op.name, op)
    return compile_torch(function.values, function.arguments, "folds")


@lru_cache(256)
def _vjp(op: TypedMonoid) -> tuple[Callable, tuple[int, ...]]:
    """(the vjp of the operator, of components and adjoints, the numbers of the components to which it gives any)."""
    vjp, live = n.Function.of(op.name, op).vjp
    return compile_torch(vjp.values, vjp.arguments, "folds"), live


def _components(op: TypedMonoid, leaves: Leaves) -> list[torch.Tensor]:
    return [
        x[:, :, k].to(getattr(torch, dtype))
        for x, size, dtype in zip(leaves, op.leaf_sizes, op.leaf_dtypes)
        for k in range(size)
    ]


def _leaves(op: TypedMonoid, components: Sequence[torch.Tensor], like: Leaves) -> Leaves:
    return [
        torch.stack(list(components[start:stop]), -1).to(x.dtype)
        for start, stop, x in zip(op.starts, op.starts[1:], like)
    ]
