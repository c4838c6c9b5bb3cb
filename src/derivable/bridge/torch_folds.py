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
from functools import lru_cache
from typing import Any

import torch

from derivable.algebra.expr.emit_arrays import compile_torch
from derivable.algebra.typed import TypedMonoid
from derivable.bridge.fold import KERNEL_DTYPES, Fold
from derivable.core.diagnostics import LayoutError, TypeMismatchError, UnsupportedError
from derivable.device.cuda.compiler import Launches, are_aligned, current, processors_of, refusal
from derivable.kernel.emit_triton import compile_triton
from derivable.kernel.nodes import Kernel
from derivable.parallel import grid_scan_kernels as grids
from derivable.parallel.fold_kernels import needs
from derivable.parallel.program import nodes as n

Leaves = list[torch.Tensor]  # [leaf] arrays [row, column, size]
_NAMES = {getattr(torch, name): name for name in KERNEL_DTYPES}
_SCAN = grids.totals_kernel, grids.prefixes_kernel
# Scalars that each lane folds for buckets at most.
FEW_BUCKETS = 32
# Scalars of all copies of buckets, and the number of copies, at most.
COPIED_SCALARS, MOST_COPIES = 1 << 21, 1024


def apply(fold: Fold, structure: Any, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results [leaf], as `Fold.apply` gives them."""
    op, leaves = fold.operator, fold.leaves
    for x in operands:
        if x.device != operands[0].device:
            raise TypeMismatchError(
                f"{fold}: some of its tensors are on {operands[0].device}, some on {x.device}",
                hint="move them to one device: `x.to(device)`; derivatives go through",
            )
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
    made = [_flat(op, leaf, x) for leaf, x in enumerate(results or operands[: fold.leaves])]
    adjoints = {
        leaf: torch.zeros_like(made[leaf]) if seed is None else _flat(op, leaf, seed)
        for leaf, seed in zip(op.float_leaves, seeds)
    }
    if fold.kind == "scan":
        found = _scan_back(op, adjoints, given, made, _starts(structure, given), fold.exclusive, fold.reverse)
    elif fold.kind == "segment_reduce":
        found = _segments_back(op, adjoints, given, structure)
    else:
        found = _by_index_back(op, adjoints, given[:leaves], structure, given[leaves:], made)
    return [_native(op, x, operands[k].shape, operands[k]) for k, x in zip(fold.float_operands, found, strict=True)]


# Tensors


def _structure(fold: Fold, structure: Any, operands: Sequence[torch.Tensor]) -> Any:
    """On the device of the operands; offsets are checked. Raises LayoutError as `Fold.checked` does."""
    if structure is None:
        return None
    if fold.kind == "reduce_by_index":
        # Kernels read them one after the other.
        return structure.to(operands[0].device).contiguous()
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


class _Plan:
    """What kernels do to leaves [leaf] of known types and [row, column, size] on a device, all but the numbers.

    which  the kernels, one after the other; of one chunk the last alone
    of     whether it is the reverse rule, or how many buckets there are
    lanes  rows of a tile, if lanes are rows whatever the number of columns
    more   further numbers that a kernel takes
    """

    def __init__(
        self, which: tuple[Callable, ...], op: TypedMonoid, dtypes: tuple[torch.dtype, ...], rows: int, width: int,
        device: torch.device, of: int = False, lanes: int = 0, more: tuple[int, ...] = (), **ways: bool
    ):  # fmt: skip
        why = refusal(device) if device.type == "cuda" else None
        if why is not None:
            raise UnsupportedError(why)
        self.device = device
        self.totals = grids.scanned(op, grids.Grid(1, **ways), of is True)
        self.cut = grids.cut(self.totals, rows, width, processors_of(device), lanes, **ways)
        self.numbers = rows, width, self.cut.chunks, self.cut.size, *more
        names = tuple(_NAMES[dtype] for dtype in dtypes)
        self.steps = []
        for make in which if self.cut.chunks > 1 else which[-1:]:
            kernel, launch = _compiled(make, op, names, self.cut.grid, of, self.cut.warps)
            self.steps.append((Launches(launch), [parameter.name for parameter in kernel.parameters[4 + len(more) :]]))

    def __call__(self, arrays: dict[str, torch.Tensor], rows: int, width: int, are_zero: bool = False) -> Leaves:
        """Totals, [leaf] arrays [row, column, size], which the kernels write; arrays by name are all else."""
        totals = _empty(self.totals, rows, width, self.device)
        if are_zero:
            totals = [x.zero_() for x in totals]
        arrays.update(_named("t", totals))
        with current(self.device):
            for launch, names in self.steps:
                given = [arrays[name] for name in names]
                launch((self.cut.programs,), are_aligned(given), *self.numbers, *given)
        return totals


@lru_cache(1024)
def _plan(which: tuple[Callable, ...], op: TypedMonoid, *arguments: Any, **options: Any) -> _Plan:
    try:
        return _Plan(which, op, *arguments, **options)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"folds with {op.name} have no kernels on GPUs: {error.message}",
            hint="move the arrays to the CPU: `x.cpu()`; derivatives go through",
        ) from None


def _plan_of(which: tuple[Callable, ...], op: TypedMonoid, values: Leaves, *arguments: Any, **options: Any) -> _Plan:
    rows, width, _ = values[0].shape
    return _plan(which, op, tuple([x.dtype for x in values]), rows, width, values[0].device, *arguments, **options)


@lru_cache(512)
def _compiled(
    make: Callable, op: TypedMonoid, dtypes: tuple[str, ...], grid: grids.Grid, of: int, warps: int
) -> tuple[Kernel, Callable]:
    kernel = make(op, dtypes, grid, of)
    return kernel, compile_triton(kernel, warps, ("chunks", "size"))


def _empty(op: TypedMonoid, rows: int, width: int, device: torch.device) -> Leaves:
    return [
        torch.empty((rows, width, size), dtype=getattr(torch, dtype), device=device)
        for size, dtype in zip(op.leaf_sizes, op.leaf_dtypes)
    ]


def _run_scan(
    op: TypedMonoid,
    arrays: dict[str, torch.Tensor],
    values: Leaves,
    starts: torch.Tensor | None,
    back: bool,
    **ways: bool,
) -> None:
    if starts is not None:
        arrays["starts"] = starts
    plan = _plan_of(_SCAN, op, values, back, segmented=starts is not None, **ways)
    plan(arrays, plan.cut.chunks, values[0].shape[1])


def _named(role: str, leaves: Any) -> dict[str, torch.Tensor]:
    pairs = leaves.items() if isinstance(leaves, dict) else enumerate(leaves)
    return {f"{role}{leaf}": x.view(torch.int8) if x.dtype == torch.bool else x for leaf, x in pairs}


def _scan(
    op: TypedMonoid, values: Leaves, starts: torch.Tensor | None, exclusive: bool = False, reverse: bool = False
) -> Leaves:
    results = [torch.empty_like(x) for x in values]
    if values[0].numel():
        arrays = {**_named("v", values), **_named("o", results)}
        _run_scan(op, arrays, values, starts, False, exclusive=exclusive, reverse=reverse)
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
        arrays = {**_named("g", adjoints), **_named("v", values), **_named("y", results), **_named("o", answers)}
        _run_scan(op.skipping_zeros, arrays, values, starts, True, exclusive=exclusive, reverse=reverse)
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
        plan = _plan_of((grids.totals_kernel,), op, totals)
        totals = plan(_named("v", totals), plan.cut.chunks, totals[0].shape[1])
    if totals[0].shape[0] != 1:
        return [_neutral(op, leaf, x).expand(1, x.shape[1], -1).contiguous() for leaf, x in enumerate(values)]
    return [x.to(like.dtype) for x, like in zip(totals, values)]


def _only_spreads(op: TypedMonoid) -> bool:
    """Whether all elements of a fold have its adjoint."""
    rules = op.adjoints
    return needs(op).additive and all(rules.right[c] is rules.arguments[c] for c in op.float_components)


def _segments_back(op: TypedMonoid, adjoints: dict[int, torch.Tensor], values: Leaves, offsets: torch.Tensor) -> Leaves:
    rows = values[0].shape[0]
    offsets = offsets.to(values[0].device)
    if _only_spreads(op):
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


def _sums(op: TypedMonoid, destination: Leaves, indices: torch.Tensor, values: Leaves) -> Leaves:
    """Of an operator that only adds, by atomic operations."""
    buckets, width, _ = destination[0].shape
    copies = _copies(destination[0], len(indices))
    plan = _plan_of((grids.sums_kernel,), op, values, more=(buckets, copies))
    totals = plan({**_named("v", values), "indices": indices}, copies * buckets, width, are_zero=True)
    return [first + x.view(copies, *first.shape).sum(0, dtype=first.dtype) for first, x in zip(destination, totals)]


def _copies(buckets: torch.Tensor, rows: int) -> int:
    """How many copies of buckets to have, where many rows would wait for each other to change one."""
    return max(1, min(rows // (4 * len(buckets)), COPIED_SCALARS // buckets.numel(), MOST_COPIES))


def _extrema(special: str, first: torch.Tensor, indices: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    """By torch's atomic operations, in copies of the buckets."""
    rows, shape = len(indices), first.shape
    buckets, copies = len(first), _copies(first, rows)
    inside = (indices >= 0) & (indices < buckets)
    where = indices
    if copies > 1:
        each = -(-rows // copies)
        where = torch.arange(rows, device=of.device).div_(each, rounding_mode="floor").mul_(buckets).add_(indices)
    # Rows that are ignored go to a bucket of their own.
    where = torch.where(inside, where, copies * buckets).to(torch.int64)[:, None, None]
    found = first[:1].expand(copies * buckets + 1, *shape[1:]).clone()
    found[:-1].view(copies, *shape).copy_(first)
    found.scatter_reduce_(0, where.expand_as(of), of, f"a{special}")
    parts = found[:-1].view(copies, *shape)
    return parts.amin(0) if special == "min" else parts.amax(0)


def _of_buckets(
    op: TypedMonoid, given: dict[int, torch.Tensor], indices: torch.Tensor, values: Leaves, is_nothing: bool = False
) -> Leaves:
    """[float leaf] for each row what its bucket is given; without a bucket 0, or what is no number."""
    answers = {leaf: torch.empty_like(values[leaf]) for leaf in given}
    plan = _plan_of((grids.spread_kernel,), op, values, int(is_nothing), more=(len(given[min(given)]),))
    plan({**_named("g", given), **_named("o", answers), "indices": indices}, 0, 1)
    return list(answers.values())


def _product_back(
    op: TypedMonoid, adjoint: torch.Tensor, first: torch.Tensor, indices: torch.Tensor, of: torch.Tensor, found: Any
) -> Leaves | None:
    """The product of the other elements is the bucket's divided by the element, as in `product_adjoints`.

    None where a product of some elements may leave the range of normal numbers, as it does where one is 0.
    """
    bounds = torch.finfo(of.dtype)
    (large,) = _by_few(op, len(first), indices, [of.abs().clamp(min=1)])
    large = large * first.abs().clamp(min=1)
    scaled, least = found * adjoint, 4 * bounds.tiny
    is_normal = (found.abs() >= least * large) & (large <= bounds.max)
    is_normal &= ((scaled.abs() >= least) & (scaled.abs() <= bounds.max)) | (adjoint == 0)
    if not bool(is_normal.all()):
        return None
    (answer,) = _of_buckets(op, {0: scaled}, indices, [of])
    # Elements without a bucket may be 0.
    return [scaled / first, torch.where(answer == 0, answer, answer / of)]


def _extremum_back(
    op: TypedMonoid, adjoint: torch.Tensor, first: torch.Tensor, indices: torch.Tensor, of: torch.Tensor, found: Any
) -> Leaves | None:
    """The adjoint of each bucket goes to its first element that has the result, and the destination comes before all.

    None where a sort is better, as many rows have the result, and where a result is no number.
    """
    stays = first == found
    if bool((found != found).any()):
        return None
    (best,) = _of_buckets(op, {0: torch.where(stays, torch.nan, found)}, indices, [of], is_nothing=True)
    rows, columns, scalars = (of == best).nonzero(as_tuple=True)
    if len(rows) > max(64 * found.numel(), len(of) // 64):
        return None
    near = indices.index_select(0, rows).to(torch.int64)
    to = (near * first.shape[1] + columns) * first.shape[2] + scalars
    row = torch.full((found.numel(),), len(of), dtype=torch.int64, device=of.device)
    row.scatter_reduce_(0, to, rows, "amin")
    answer = torch.zeros_like(of)
    is_first = rows == row.index_select(0, to)
    # One row a bucket, so no order matters.
    given = torch.where(is_first, adjoint.reshape(-1).index_select(0, to), 0)
    answer.index_put_((rows, columns, scalars), given, accumulate=True)
    return [torch.where(stays, adjoint, 0), answer]


def _are_few(op: TypedMonoid, destination: Leaves, values: Leaves) -> bool:
    """Whether lanes fold their own rows for all buckets."""
    buckets, width = destination[0].shape[:2]
    return buckets * op.size <= FEW_BUCKETS and width < grids.MANY_COLUMNS and len(values[0]) >= buckets


def _by_few(op: TypedMonoid, buckets: int, indices: torch.Tensor, values: Leaves) -> Leaves:
    """What the rows of each bucket fold to, of few buckets: each lane of a grid folds rows of its own."""
    buckets_of = 1 << (buckets - 1).bit_length()
    width = values[0].shape[1]
    plan = _plan_of((grids.buckets_kernel,), op, values, buckets_of, grids.FEWEST_LANES)
    arrays = {**_named("v", values), "indices": indices}
    totals = plan(arrays, plan.cut.chunks * plan.cut.grid.lanes, width * buckets_of)
    found = _whole(op, totals)
    sizes = [x.shape[-1] for x in values]
    return [x.reshape(width, buckets_of, size).transpose(0, 1)[:buckets] for x, size in zip(found, sizes)]


def _by_index(op: TypedMonoid, destination: Leaves, indices: torch.Tensor, values: Leaves) -> Leaves:
    buckets, rows = destination[0].shape[0], values[0].shape[0]
    if not (buckets and rows):
        return [x.clone() for x in destination]
    if _are_few(op, destination, values):
        return _joined(op, destination, _by_few(op, buckets, indices, values))
    # Atomic additions come in any order.
    if grids.only_adds(op) and not torch.are_deterministic_algorithms_enabled():
        return _sums(op, destination, indices, values)
    if op.special in ("min", "max"):
        return [_extrema(op.special, destination[0], indices, values[0])]
    sorted_by = _Buckets(indices, buckets)
    ordered = [x.index_select(0, sorted_by.order) for x in values]
    prefixes = _scan(op, ordered, sorted_by.starts(rows))
    return _joined(op, destination, _ends(op, prefixes, sorted_by.offsets))


def _by_index_back(
    op: TypedMonoid,
    adjoints: dict[int, torch.Tensor],
    destination: Leaves,
    indices: torch.Tensor,
    values: Leaves,
    results: Leaves,
) -> Leaves:
    """[float operand]: of the destination, then of the values."""
    buckets, rows = destination[0].shape[0], values[0].shape[0]
    if not (buckets and rows):
        return [*adjoints.values(), *(torch.zeros_like(values[leaf]) for leaf in adjoints)]
    if _only_spreads(op):
        return [*(x.clone() for x in adjoints.values()), *_of_buckets(op, adjoints, indices, values)]
    if op.special == "mul" and _are_few(op, destination, values):
        answer = _product_back(op, adjoints[0], destination[0], indices, values[0], results[0])
        if answer is not None:
            return answer
    if op.special in ("min", "max"):
        answer = _extremum_back(op, adjoints[0], destination[0], indices, values[0], results[0])
        if answer is not None:
            return answer
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
