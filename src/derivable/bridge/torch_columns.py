"""Column programs on torch tensors, on any device: sorts, searches, gathers, folds and scalar operations.

Values are functions that torch differentiates, to any order, forwards and backwards, and maps. Where minima and maxima
tie, the derivative goes to the smallest index. Folds with an operator that torch does not have go pair by pair, in
rounds that halve the rows.

An index is sorted keys. Columns of few bits are packed into one key when the program is made; other keys are packed by
their ranges, which costs a read of the ends, or else replaced by their ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch

from derivable.algebra.expr import interpreter
from derivable.algebra.expr.emit_arrays import compile_torch
from derivable.algebra.expr.nodes import Apply, in_order
from derivable.algebra.semiring import Semiring
from derivable.algebra.typed import TypedMonoid
from derivable.bridge.torch import is_observed
from derivable.bridge.torch_products import exact_times, is_recorded
from derivable.bridge.torch_rows import (
    MOST_ROWS,
    HashRows,
    Known,
    PairColumn,
    Pairs,
    Parts,
    SortedRows,
    packed,
    parts_of,
    sorted_keys,
)
from derivable.bridge.torch_sums import SUMS, sum_of
from derivable.core.diagnostics import UnsupportedError
from derivable.device.cpu.memory import empty
from derivable.device.cuda import row_sets
from derivable.device.cuda.compiler import refusal
from derivable.kernel.emit_triton import emit_triton
from derivable.parallel.program import nodes as n
from derivable.parallel.program.execute import Arrays, Room
from derivable.parallel.row_kernels import apply_kernel, fold_segments_kernel

Key = torch.Tensor
# Bytes of a piece that travels to the host; fewer travel at once.
STAGED = 1 << 24
# Rows from which on it is seen whether they are in order before they are sorted.
LOOKED_AT = 1 << 16
# Rows of a segment that one lane folds at most, where there are many rows, and operations that a kernel is worth.
LONG_SEGMENT, FEW_OPERATIONS = 1 << 10, 2
# Who copies through the buffers, which all threads share.
_copying = threading.Lock()


@dataclass(frozen=True)
class Index:
    """Rows by keys.

    keys    [row] int64 in ascending order
    order   [row] the numbers of the rows; None if they are in order
    encode  keys of probes, by column, as one key, and where they can be there at all; None for one column
    """

    keys: Key
    order: torch.Tensor | None
    encode: Callable[[list[Key]], tuple[Key, torch.Tensor | None]] | None
    types: Sequence[n.Type]


class Torch(Arrays):
    """Columns as tensors.

    device    of all columns
    dtype     of values of the semiring
    semiring  of programs that say `times` and `plus`
    is_exact  whether zero times an infinity or NaN is zero
    piece     pairs of a join that are there at once where a set takes them, or where the rows that they come from may
              be cut
    pairs_at_once  those of a join that may not: no more are sorted at once
    has_kernels  whether joins and sets are Triton's kernels
    most_pairs   the number of pairs of the largest join that was columns

    It keeps constants of static sizes on the device, as long as their nodes live.
    """

    def __init__(
        self,
        device: Any,
        dtype: torch.dtype = torch.float64,
        semiring: Semiring | None = None,
        is_exact: bool = False,
        piece: int = 1 << 25,
        pairs_at_once: int = MOST_ROWS,
    ):
        self.device, self.dtype, self.semiring, self.is_exact = torch.device(device), dtype, semiring, is_exact
        self.piece, self.pairs_at_once = piece, pairs_at_once
        self._constants: WeakKeyDictionary[n.Constant, torch.Tensor] = WeakKeyDictionary()
        self.notes: dict[str, str] = {}
        self.has_kernels = self.device.type == "cuda" and refusal(self.device) is None
        self.most_pairs = 0
        # Joins whose numbers of pairs nobody has read.
        self._joins: list[ref[Pairs]] = []

    def __reduce__(self) -> tuple:
        # Weak references have no pickled form.
        return Torch, (self.device, self.dtype, self.semiring, self.is_exact, self.piece, self.pairs_at_once)

    def note(self, what: str, how: str) -> None:
        """Keep how something was computed, for a profile."""
        self.notes[what] = how

    # Columns and scalar operations

    def constant(self, values: Any, dtype: str, count: int | None) -> torch.Tensor:
        is_number = dtype == n.VALUE and np.asarray(values).dtype != bool
        kind = self.dtype if is_number else _torch_type(values, dtype)
        if isinstance(values, torch.Tensor):
            return values.to(self.device, kind)
        if isinstance(values, np.ndarray) and values.ndim:
            return torch.as_tensor(np.require(values, requirements=["C", "W"]), dtype=kind, device=self.device)
        if count is None:
            return torch.as_tensor(np.asarray(values), dtype=kind, device=self.device)
        return torch.full((count,), np.asarray(values).item(), dtype=kind, device=self.device)

    def constant_of(self, node: n.Constant, count: int | None) -> torch.Tensor:
        found = self._constants.get(node)
        if found is None:
            # A tensor that is made for gradients serves without, and not the other way round.
            with torch.inference_mode(False):
                found = super().constant_of(node, count)
            is_static = count is None or isinstance(node.type.size, int)
            if is_static and not is_observed():
                self._constants[node] = found
        return found

    def to_host(self, column: torch.Tensor, dtype: Any = None) -> np.ndarray:
        column = column.detach()
        if dtype is not None:
            # Integers without a sign are those of the same bits, which torch computes with on every device.
            column = column.to(getattr(torch, f"int{8 * np.dtype(dtype).itemsize}"))
        if column.is_cpu or column.nbytes <= STAGED:
            found = column.cpu().numpy()
        else:
            found = empty(tuple(column.shape), str(column.dtype).removeprefix("torch."))
            copy_in_pieces(column.contiguous(), torch.from_numpy(found), _staging())
        return found if dtype is None else found.view(dtype)

    def rows_to_host(self, columns: list[Any]) -> tuple[np.ndarray, list[int]]:
        # Half the bytes travel.
        ends = [tuple(map(int, torch.aminmax(column))) if len(column) else (0, 0) for column in columns]
        fits = all(low >= 0 and high <= torch.iinfo(torch.int32).max for low, high in ends)
        rows = torch.stack(columns, 1).to(torch.int32 if fits else torch.int64)
        return self.to_host(rows), [max(high, 0) for _, high in ends]

    def gather(self, of: torch.Tensor, rows: Any, otherwise: Any) -> Any:
        if isinstance(rows, range):
            # All of a large relation, which need not be copied.
            return of
        if otherwise is None:
            if isinstance(rows, PairColumn):
                return PairColumn(rows.pairs, rows.side, of) if rows.of is None else of.index_select(0, rows.whole())
            return of.index_select(0, rows.whole() if isinstance(rows, Parts) else rows)
        if not len(of):
            return otherwise
        there = (rows >= 0).view(-1, *[1] * (of.ndim - 1))
        return torch.where(there, of.index_select(0, rows.clamp(min=0)), otherwise)

    def apply(
        self, function: n.Function | str, operands: list[Any], count: int | None, lanes: int | None
    ) -> list[torch.Tensor]:
        shape = tuple(x for x in (count, lanes) if x is not None)
        aligned = [x[:, None] if x.ndim and x.ndim < len(shape) else x for x in operands]
        if isinstance(function, str):
            aligned = torch.broadcast_tensors(*aligned)
            named = n.Function.named(function, tuple(_NAMES[x.dtype] for x in aligned), self.semiring)
            compute: Any = _compiled(named)[0]
            if function == "times":
                compute = self._product_by(compute, aligned)
            (found,) = compute(*aligned)
            return [found.expand(shape)]
        if lanes is None and count and self._may_fuse(aligned) and (kernel := _row_kernel(function)) is not None:
            return kernel(aligned, count)
        compiled, dtypes = _compiled(function)
        if compiled is None or not aligned:
            host = interpreter(function.values)

            def computed(columns: Sequence[np.ndarray], _: int) -> list[np.ndarray]:
                return [np.broadcast_to(x, shape) for x in host(function.by_index(columns))]

            return self.call(computed, aligned, count or 0, [str(value.dtype) for value in function.values])
        given = [x if x.dtype is dtype else x.to(dtype) for x, dtype in zip(aligned, dtypes)]
        return [x if x.shape == shape else x.expand(shape) for x in compiled(*given)]

    def _product_by(self, times: Callable, operands: Sequence[torch.Tensor]) -> Callable:
        """What multiplies: of real numbers such that zero times an infinity is zero in all derivatives too."""
        assert self.semiring is not None
        multiplies = self.semiring.zero == 0 and self.semiring.typed("float64").times.special == "mul"
        if multiplies and (self.is_exact or is_recorded(operands)):
            return lambda left, right: (exact_times(left, right),)
        return partial(self._exact_product, times) if self.is_exact else times

    def _exact_product(self, times: Callable, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor]:
        """The product, and zero where it is no number and a factor is zero.

        Factors are replaced before they are multiplied: the derivative of what is left out would be NaN.
        """
        assert self.semiring is not None
        zero, one = self.semiring.zero, self.semiring.one
        is_nothing = times(left.detach(), right.detach())[0].isnan() & ((left == zero) | (right == zero))
        left, right = (torch.where(is_nothing, one, x) for x in (left, right))
        return (torch.where(is_nothing, zero, times(left, right)[0]),)

    def _may_fuse(self, operands: Sequence[torch.Tensor]) -> bool:
        """Whether kernels may compute with columns, of which nobody wants derivatives."""
        if not self.has_kernels or is_observed():
            return False
        return not any(x.requires_grad for x in operands)

    def bits(self, of: torch.Tensor) -> torch.Tensor:
        return (of + 0.0).view(torch.int64) if of.dtype == torch.float64 else of.contiguous().view(torch.float64)

    def concatenate(self, parts: list[Any]) -> Any:
        if any(map(self.is_late, parts)):
            return Parts([part for column in parts for part in parts_of(column)])
        full = [part for part in parts if len(part)]
        return full[0] if len(full) == 1 else torch.cat(parts)

    def split(self, of: torch.Tensor, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
        return of.split_with_sizes(sizes)

    def zeros(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros(shape)

    def buffer(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor | None:
        # What autograd has recorded must not change.
        return None if torch.is_grad_enabled() else like.new_empty(shape)

    def add_at(self, of: torch.Tensor, rows: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        # On the CPU the one is several times as fast as the other, and where atomics sum, the other.
        return of.index_put_((rows,), more, accumulate=True) if of.is_cpu else of.index_add_(0, rows, more)

    # Folds

    def fold(
        self, of: list[Any], rows: torch.Tensor, count: int, monoid: TypedMonoid | None, is_sorted: bool
    ) -> list[torch.Tensor]:
        if monoid is None:
            assert self.semiring is not None
            return [sum_of(self.semiring)(of[0], rows, count)]
        if len(of) == 1 and monoid.special in SUMS:
            return [SUMS[monoid.special](of[0], rows, count, monoid.neutral[0].item())]
        if not is_sorted:
            rows, order = torch.sort(rows, stable=True)
            of = [part.index_select(0, order) for part in of]
        if count and self._may_fuse(of) and (kernel := _segment_kernel(monoid)) is not None:
            offsets = torch.searchsorted(rows, torch.arange(count + 1, device=self.device))
            # One lane would go through a long segment; to look whether there is one, the host waits.
            if len(rows) <= LOOKED_AT or int((offsets[1:] - offsets[:-1]).max()) <= LONG_SEGMENT:
                return kernel(of, offsets, count)
        return self._folded_by_pairs(of, rows, count, monoid)

    def _folded_by_pairs(
        self, of: list[Any], rows: torch.Tensor, count: int, monoid: TypedMonoid
    ) -> list[torch.Tensor]:
        """Of rows in order: the first with the second of each group, the third with the fourth, and again."""
        plus = n.Function.of("plus", monoid)
        found = [self.constant(neutral, str(neutral.dtype), count) for neutral in monoid.neutral]
        while True:
            number = torch.arange(len(rows), device=self.device)
            lengths = torch.bincount(rows, minlength=count)
            rank = number - (lengths.cumsum(0) - lengths).index_select(0, rows)
            first = (rank % 2 == 0).nonzero().squeeze(1)
            if len(first) == len(rows):
                return [x.index_copy(0, rows, part) for x, part in zip(found, of)]
            partner = (first + 1).clamp(max=len(rows) - 1)
            has_partner = (partner > first) & (rows.index_select(0, partner) == rows.index_select(0, first))
            left = [part.index_select(0, first) for part in of]
            right = [part.index_select(0, partner) for part in of]
            both = self.apply(plus, [*left, *right], len(first), None)
            of = [torch.where(has_partner, x, y) for x, y in zip(both, left)]
            rows = rows.index_select(0, first)

    def fold_lanes(self, of: torch.Tensor) -> torch.Tensor:
        assert self.semiring is not None
        if self.semiring.typed("float64").plus.special == "add":
            return of.sum(1)
        count, lanes = of.shape
        rows = torch.arange(count, device=of.device).repeat_interleave(lanes)
        return sum_of(self.semiring)(of.reshape(-1), rows, count)

    # Rows

    def compact(self, mask: torch.Tensor) -> torch.Tensor:
        return mask.nonzero().squeeze(1)

    def sort(self, columns: list[Any], types: list[n.Type], count: int) -> torch.Tensor | range:
        keys = packed(columns, types)
        if len(keys) > 1:
            ranges = _ranges(keys)
            keys = keys if ranges is None else [_by_ranges(keys, ranges)[0]]
        if len(columns) > 1 and len(keys) == 1 and count > LOOKED_AT and bool((keys[0][1:] >= keys[0][:-1]).all()):
            # To look takes a tenth of the time of a sort; one column is mostly one of numbers of rows, in no order.
            return range(count)
        return _order(keys)

    def unique(self, columns: list[Any], count: int) -> tuple[torch.Tensor, torch.Tensor]:
        is_first = _is_first(columns)
        return self.compact(is_first), is_first.cumsum(0) - 1

    def build(self, columns: list[Any], types: list[n.Type], count: int, is_sorted: bool) -> Index:
        if not columns:
            return Index(torch.zeros(count, dtype=torch.int64, device=self.device), None, None, ())
        keys, encode = packed(columns, types), None
        if len(keys) > 1:
            ranges = _ranges(keys)
            encode = _Ranks(keys) if ranges is None else lambda probes: _by_ranges(probes, ranges)
            key = encode(keys)[0]
        else:
            (key,) = keys
        if is_sorted:
            return Index(key, None, encode, types)
        return Index(*sorted_keys(key), encode, types)

    def _probes(self, probes: list[Any], index: Index, count: int) -> tuple[Key, torch.Tensor | None]:
        if not probes:
            return torch.zeros(count, dtype=torch.int64, device=self.device), None
        keys = packed(probes, index.types)
        return (keys[0].contiguous(), None) if index.encode is None else index.encode(keys)

    def join(self, probes: list[Any], index: Index, count: int) -> tuple[PairColumn, PairColumn]:
        first, counts = self._matches(probes, index, count)
        pairs = Pairs(first, counts, index, self)
        self._joins = [*(known for known in self._joins if known() is not None), ref(pairs)]
        return PairColumn(pairs, 0), PairColumn(pairs, 1)

    def count_pairs(self, pairs: Pairs) -> None:
        """Read how many pairs a join has, and those of other joins that nobody has read yet."""
        joins, self._joins = self._joins, []
        Pairs.count([pairs, *(known for known in (join() for join in joins) if known not in (None, pairs))])

    def is_late(self, column: Any) -> bool:
        return isinstance(column, PairColumn | Parts)

    def whole(self, column: Any) -> torch.Tensor:
        return column if isinstance(column, torch.Tensor) else column.whole()

    def insert(self, columns: list[Any], types: list[n.Type], known: Known | None, room: Room) -> Sequence[Any]:
        rows: SortedRows | HashRows = SortedRows(self, types, room) if known is None else known.rows
        before = rows.count
        assert known is None or known.count == before, "a set that others have inserted into"
        if known is None and self.has_kernels:
            rows = HashRows.of(columns, room) or rows
        fresh = rows.insert(columns)
        if fresh is None:
            there, rows = rows.rows(before), SortedRows(self, types, rows.known)
            rows.insert(there)
            fresh = rows.insert(columns)
        return Known(rows, before, rows.count), *fresh

    def build_of(self, known: Known, positions: Sequence[int], types: list[n.Type], is_earlier: bool) -> Index:
        count = known.before if is_earlier else known.count
        if isinstance(known.rows, HashRows) and sum(of.bits for of in types) <= 64:
            return Index(*known.rows.index(tuple(positions), types, count), None, types)
        return super().build_of(known, positions, types, is_earlier)

    def locate(self, columns: list[Any], types: list[n.Type], known: Known) -> torch.Tensor:
        assert known.count == known.rows.count, "a set that others have inserted into"
        return known.rows.locate(columns)

    def put_at(self, of: torch.Tensor, rows: torch.Tensor, values: torch.Tensor, is_own: bool) -> torch.Tensor:
        return of.index_copy_(0, rows, values) if is_own else of.index_copy(0, rows, values)

    def elements(self, known: Known, is_earlier: bool) -> list[torch.Tensor]:
        return known.rows.rows(known.before if is_earlier else known.count)

    def _matches(self, probes: list[Any], index: Index, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first key of an index that equals each probe, and how many do."""
        key, is_possible = self._probes(probes, index, count)
        if self.has_kernels and is_possible is None:
            first, counts = torch.empty(2, count, dtype=torch.int64, device=self.device)
            row_sets.matches(key, index.keys, first, counts)
            return first, counts
        first, end = torch.searchsorted(index.keys, key), torch.searchsorted(index.keys, key, right=True)
        return first, end - first if is_possible is None else torch.where(is_possible, end - first, 0)

    def find(self, probes: list[Any], index: Index, count: int) -> torch.Tensor:
        key, is_possible = self._probes(probes, index, count)
        size = len(index.keys)
        if not size:
            return torch.full((count,), -1, dtype=torch.int64, device=self.device)
        place = torch.searchsorted(index.keys, key)
        near = place.clamp(max=size - 1)
        is_there = (place < size) & (index.keys.index_select(0, near) == key)
        if is_possible is not None:
            is_there &= is_possible
        row = near if index.order is None else index.order.index_select(0, near)
        return torch.where(is_there, row, -1)


# To the host


@lru_cache(1)
def _staging() -> tuple[torch.Tensor, torch.Tensor]:
    """Two buffers of bytes in memory that the device writes to at full speed, which pageable memory is not."""
    whole = torch.empty(2, STAGED, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    return whole[0], whole[1]


def copy_in_pieces(source: torch.Tensor, target: torch.Tensor, buffers: Sequence[torch.Tensor]) -> None:
    """Copy a contiguous tensor from a device to the host: one buffer is filled while the other one is emptied."""
    given, found = (x.view(-1).view(torch.uint8) for x in (source, target))
    waiting: list[tuple[Any, torch.Tensor, torch.Tensor]] = []

    def finish() -> None:
        event, full, to = waiting.pop(0)
        if event is not None:
            event.synchronize()
        to.copy_(full)

    with _copying:
        for number, (part, to) in enumerate(zip(given.split(len(buffers[0])), found.split(len(buffers[0])))):
            if len(waiting) == len(buffers):
                finish()
            full = buffers[number % len(buffers)][: len(part)]
            full.copy_(part, non_blocking=True)
            event = None
            if source.is_cuda:
                event = torch.cuda.Event()
                event.record(torch.cuda.current_stream(source.device))
            waiting.append((event, full, to))
        while waiting:
            finish()


# Keys


def _is_first(columns: Sequence[Key]) -> torch.Tensor:
    """Which rows differ from the one before."""
    found = torch.empty_like(columns[0], dtype=torch.bool)
    found[:1] = True
    others = found[1:]
    for number, column in enumerate(columns):
        differs = column[1:] != column[:-1]
        others.logical_or_(differs) if number else others.copy_(differs)
    return found


def _order(keys: Sequence[Key]) -> torch.Tensor:
    """The numbers of rows in ascending order, the first key counting most; stable."""
    _, order = sorted_keys(keys[-1])
    for key in keys[-2::-1]:
        order = order.index_select(0, sorted_keys(key.index_select(0, order))[1])
    return order


def _ranges(keys: list[Key]) -> list[tuple[int, int]] | None:
    """(the smallest value, the number of values) of each key, if all together are one key; None if not."""
    if not len(keys[0]):
        return [(0, 1)] * len(keys)
    ends = torch.stack([end for key in keys for end in torch.aminmax(key)]).tolist()
    ranges = [(low, high - low + 1) for low, high in zip(ends[::2], ends[1::2])]
    product = 1
    for _, number in ranges:
        product *= number
    return ranges if product < 1 << 63 else None


def _by_ranges(keys: list[Key], ranges: list[tuple[int, int]]) -> tuple[Key, torch.Tensor]:
    """One key in the same order, and which rows lie in the ranges."""
    found: Any = 0
    inside: Any = True
    for key, (low, number) in zip(keys, ranges):
        place = key - low
        inside = (key >= low) & (key <= low + number - 1) & inside
        found = found * number + place
    return torch.where(inside, found, -1), inside


class _Ranks:
    """One key of several that do not fit: the rank of the first, then the rank of that and the next, and so on."""

    def __init__(self, keys: list[Key]):
        self.values: list[torch.Tensor] = []
        found = keys[0]
        for number, key in enumerate(keys):
            self.values.append(torch.unique(key))
            rank, _ = _rank(key, self.values[-1])
            if not number:
                found = rank
                continue
            pair = found * len(self.values[-1]) + rank
            self.values.append(torch.unique(pair))
            found, _ = _rank(pair, self.values[-1])

    def __call__(self, keys: list[Key]) -> tuple[Key, torch.Tensor]:
        found, inside = _rank(keys[0], self.values[0])
        for key, values, pairs in zip(keys[1:], self.values[1::2], self.values[2::2]):
            rank, is_there = _rank(key, values)
            found, is_pair = _rank(found * len(values) + rank, pairs)
            inside = inside & is_there & is_pair
        return found, inside


def _rank(key: Key, values: torch.Tensor) -> tuple[Key, torch.Tensor]:
    """The place of each key among sorted distinct values, and whether it is one of them."""
    place = torch.searchsorted(values, key.contiguous())
    near = place.clamp(max=max(len(values) - 1, 0))
    return near, (place < len(values)) & (values.index_select(0, near) == key)


# Functions

_NAMES = {torch.float32: "float32", torch.float64: "float64", torch.bool: "bool", torch.int64: "int64"}


def _torch_type(values: Any, dtype: str) -> torch.dtype:
    return torch.bool if dtype == n.VALUE else getattr(torch, dtype)


@lru_cache(512)
def _compiled(function: n.Function) -> tuple[Callable | None, list[torch.dtype]]:
    """The function, None where torch lacks one of its operations, and the types of its operands."""
    dtypes = [getattr(torch, argument.dtype) for argument in function.arguments]
    try:
        return compile_torch(function.values, function.arguments, "columns"), dtypes
    except UnsupportedError:
        return None, dtypes


@lru_cache(512)
def _row_kernel(function: n.Function) -> Callable | None:
    """[operand] columns and their length -> what a function gives, by one kernel; None where it is one operation, or
    Triton lacks one."""
    if sum(isinstance(x, Apply) for x in in_order(function.values)) < FEW_OPERATIONS:
        return None
    kernel = _printed(lambda: apply_kernel(function, row_sets.TILE))
    if kernel is None:
        return None
    dtypes = [getattr(torch, x.dtype) for x in function.arguments]
    results = [getattr(torch, x.dtype) for x in function.values]

    def run(operands: Sequence[torch.Tensor], count: int) -> list[torch.Tensor]:
        given = [x.to(dtype).expand(count).contiguous() for x, dtype in zip(operands, dtypes)]
        found = [torch.empty(count, dtype=dtype, device=given[0].device) for dtype in results]
        kernel(count, count, -(-count // row_sets.TILE), *given, *found)
        return found

    return run


@lru_cache(64)
def _segment_kernel(monoid: TypedMonoid) -> Callable | None:
    """(columns [row], offsets, the number of segments) -> their folds, by one kernel; None where Triton lacks one of
    the operations."""
    kernel = _printed(lambda: fold_segments_kernel(monoid, row_sets.TILE))
    if kernel is None:
        return None

    def run(of: Sequence[torch.Tensor], offsets: torch.Tensor, count: int) -> list[torch.Tensor]:
        found = [torch.empty(count, dtype=x.dtype, device=x.device) for x in of]
        kernel(count, count, -(-count // row_sets.TILE), offsets, *(x.contiguous() for x in of), *found)
        return found

    return run


def _printed(make: Callable[[], Any]) -> Callable | None:
    try:
        made = make()
        return row_sets.kernel_of(emit_triton(made), made.name, row_sets.TILE)
    except UnsupportedError:
        return None
