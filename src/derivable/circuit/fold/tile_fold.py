"""The fold of a planned graph on CUDA tensors by the kernel of `kernels.level_tiles`, launched step by step.

Steps that one program a tile of rows can do follow each other in one launch, behind barriers. A step with more to do is
a launch of its own, whose chunks are shared by as many programs as the device runs at once. No launch depends on
values, so calls can be recorded in CUDA graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from derivable.algebra.semiring import Semiring, TypedSemiring
from derivable.circuit.fold.plan import Plan
from derivable.circuit.fold.tile_plan import TilePlan, tile_plan
from derivable.circuit.kernels.level_fold import LevelFold
from derivable.circuit.kernels.level_tiles import RECORD, tile_kernel
from derivable.device.cuda.compiler import Launches, are_aligned, current, processors_of
from derivable.kernel.emit_triton import compile_triton

# Rows of a tile at most: a line of memory of floats.
_WIDEST = 32
# Lanes of a program, for narrow and for wide levels, for wide ones of a single row, and what a multiprocessor holds.
_NARROW, _WIDE, _WIDEST_ROW, _HELD = 128, 512, 1024, 2048
# Scalars that a first-level cache holds.
_CACHED = 1 << 15
# Scalars of a tile at most: their places have 32 bits.
_LARGEST = (1 << 31) - 1
# Chunks that one program does as fast as a launch of its own spreads them.
_FEW = 8
# Values and adjoints of a part of a batch take no more bytes than these.
_SCRATCH = 4 << 30
Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Layout:
    """How a batch is cut: rows of a tile, lanes of a program, and programs that the device runs at once."""

    width: int
    lanes: int
    programs: int


def layout_of(plan: TilePlan, rows: int, processors: int) -> Layout:
    """As many tiles as there are multiprocessors, or more; lanes for about one level of a tile.

    A tile that a first-level cache does not hold is as wide as lines of memory, so that no part of a line is moved in
    vain, where levels have work enough for programs that share a tile.
    """
    width = _power(rows // processors)
    if (plan.num_slots + plan.num_places) * width > _CACHED and plan.width * rows >= _WIDE * processors:
        width = _power(rows)
    while max(plan.num_slots, plan.num_places) * width > _LARGEST:
        width //= 2
    lanes = _WIDE if plan.width * width > 2 * _NARROW else _NARROW
    if width == 1 and plan.width > _WIDE:
        # One program has all of a row's work, chunk after chunk.
        lanes = _WIDEST_ROW
    return Layout(width, lanes, _HELD // lanes * processors)


def _power(number: int) -> int:
    """The largest power of two up to a number and to `_WIDEST`; 1 for 0."""
    return min(_WIDEST, 1 << max(0, number.bit_length() - 1))


class TileFold:
    """A graph in a semiring of one precision on CUDA tensors.

    Raises UnsupportedError for operations that Triton does not have.
    """

    def __init__(self, plan: Plan, ring: Semiring, precision: str, has_negative: bool):
        self.typed = ring.typed(precision)
        self.fold, self.has_negative = LevelFold(self.typed, plan.has_negation), has_negative
        self.num_variables, self.num_roots = plan.num_variables, plan.num_roots
        self.plan = _shared(plan, not self.fold.is_plus_free)
        # What Triton does not have is found here, before the first launch.
        self._kernel(_NARROW, self.fold.has_gradient)
        self.prepared: dict[Any, _Prepared] = {}

    def __str__(self) -> str:
        plan = self.plan
        return (
            f"kernels by Triton, {plan.num_slots:,} slots and {plan.num_places:,} places in {len(plan.forward)} steps "
            f"forwards and {len(plan.backward)} backwards"
        )

    def values(self, operands: Tensors) -> list[torch.Tensor]:
        """[*batch, root] per component, of weights [*batch, variable] and, where there are, negative weights."""
        return self._folded(operands, None, has_gradient=False)[0]

    def values_and_gradient(self, operands: Tensors, seeds: Tensors | None) -> tuple[list, list]:
        """The values, and the gradients [*batch, variable] of all float operands.

        seeds  [*batch, root] per float component; None for ones
        """
        return self._folded(operands, seeds, has_gradient=True)

    def _folded(self, operands: Tensors, seeds: Tensors | None, has_gradient: bool) -> tuple[list, list]:
        batch, count = operands[0].shape[:-1], len(self.fold.dtypes)
        rows = math.prod(batch)
        given = [_rows(x, rows) for x in operands]
        out = [x.new_empty(rows, self.num_roots) for x in given[:count]]
        by_root = [] if seeds is None else [_rows(x, rows) for x in seeds]
        floats = [given[group + k] for group in range(0, len(given), count) for k in self.fold.floats]
        gradients = [torch.empty_like(x) for x in floats] if has_gradient else []
        if rows:
            largest = self._rows_at_once(rows, has_gradient)
            for start in range(0, rows, largest):
                part = slice(start, start + largest)
                now, into, seeded, pulled = ([x[part] for x in group] for group in (given, out, by_root, gradients))
                self._launch(now, into, seeded, pulled, has_gradient)
        shaped = ([x.view(torch.bool) if x.dtype == torch.int8 else x for x in part] for part in (out, gradients))
        found, adjoints = ([x.reshape(*batch, x.shape[1]) for x in part] for part in shaped)
        return found, adjoints

    def _rows_at_once(self, rows: int, has_gradient: bool) -> int:
        sizes = [torch.empty(0, dtype=getattr(torch, dtype)).element_size() for dtype in self.fold.dtypes]
        of_row = self.plan.num_slots * sum(sizes)
        if has_gradient:
            of_row += self.plan.num_places * sum(sizes[k] for k in self.fold.floats)
        return min(rows, max(_WIDEST, _SCRATCH // of_row // _WIDEST * _WIDEST))

    def _launch(self, given: list, out: list, seeds: list, gradients: list, has_gradient: bool) -> None:
        device, rows, count, floats = given[0].device, len(given[0]), len(self.fold.dtypes), len(self.fold.floats)
        prepared = self._prepared(device, rows, has_gradient, bool(seeds))
        tiles, width = prepared.tiles, prepared.layout.width
        values = [x.new_empty(tiles * self.plan.num_slots * width) for x in given[:count]]
        arguments = [*given, *values, *out]
        if has_gradient:
            edges = [given[k].new_empty(tiles * self.plan.num_places * width) for k in self.fold.floats]
            arguments += [*edges, *(seeds or gradients[:floats]), *gradients]
        with current(device):
            prepared(arguments)

    def _kernel(self, lanes: int, has_gradient: bool) -> Callable:
        return kernel(self.typed, self.fold.has_negation, lanes, self.has_negative, has_gradient)

    def _prepared(self, device: torch.device, rows: int, has_gradient: bool, has_seeds: bool) -> _Prepared:
        key = device, rows, has_gradient, has_seeds
        known = self.prepared.get(key)
        if known is None:
            if len(self.prepared) >= 64:
                self.prepared.clear()
            layout = layout_of(self.plan, rows, processors_of(device))
            sizes = self.num_variables, self.num_roots
            launch = self._kernel(layout.lanes, has_gradient)
            known = _Prepared(launch, self.plan, layout, sizes, device, rows, has_gradient, has_seeds)
            self.prepared[key] = known
        return known


class _Prepared:
    """The tables of one plan on a device, and the launches for a number of rows.

    launches  (record, programs of each axis), in order
    """

    def __init__(
        self,
        launch: Callable,
        plan: TilePlan,
        layout: Layout,
        sizes: tuple[int, int],
        device: torch.device,
        rows: int,
        has_gradient: bool,
        has_seeds: bool,
    ):
        self.launch, self.layout, self.tiles = Launches(launch), layout, -(-rows // layout.width)
        chunks, offsets = plan.chunks(plan.steps(has_gradient, has_seeds), layout.lanes // layout.width)
        self.ranges = launches(np.diff(offsets), -(-layout.programs // self.tiles))
        numbers = self.tiles, rows, layout.width, plan.num_slots, plan.num_places, *sizes
        # Records start where addresses have the factor 16, as Triton compiles for that.
        records = np.zeros((len(self.ranges), -(-len(RECORD) // 2) * 2), np.int64)
        for record, (start, stop, _) in zip(records, self.ranges):
            record[: len(RECORD)] = start, stop, *numbers
        on_device = torch.from_numpy(records).to(device)
        self.launches = [(on_device[k], (self.tiles, members)) for k, (_, _, members) in enumerate(self.ranges)]
        self.tables = [_table(table, device) for table in (offsets, chunks, *plan.tables(layout.width))]

    def __call__(self, arguments: Tensors) -> None:
        is_aligned = are_aligned(arguments)
        for record, programs in self.launches:
            self.launch(programs, is_aligned, record, *self.tables, *arguments)


def launches(chunks: np.ndarray, members: int) -> list[tuple[int, int, int]]:
    """(first step, step after the last, programs for each tile) of each launch.

    chunks   [step] their number
    members  programs for each tile at most
    """
    found: list[tuple[int, int, int]] = []
    for step, count in enumerate(chunks.tolist()):
        shared = min(count, members) if count > _FEW else 1
        if shared <= 1 and found and found[-1][2] == 1:
            found[-1] = (found[-1][0], step + 1, 1)
        else:
            found.append((step, step + 1, max(1, shared)))
    return found


@lru_cache(128)
def kernel(typed: TypedSemiring, has_negation: bool, lanes: int, has_negative: bool, has_gradient: bool) -> Callable:
    """launch(programs, *arguments). Raises UnsupportedError for operations that Triton does not have."""
    return compile_triton(tile_kernel(LevelFold(typed, has_negation), lanes, has_negative, has_gradient), lanes // 32)


def _shared(plan: Plan, in_order: bool) -> TilePlan:
    key = "tiles", in_order
    return plan.others.get(key) or plan.others.setdefault(key, tile_plan(plan.graph, plan.num_variables, in_order))


def _table(table: np.ndarray, device: torch.device) -> torch.Tensor:
    # A kernel takes no address of nothing.
    return torch.from_numpy(table.reshape(-1) if table.size else np.zeros(1, np.int32)).to(device)


def _rows(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """[row, column], contiguous; bools as bytes."""
    found = tensor.detach().reshape(rows, tensor.shape[-1]).contiguous()
    return found.view(torch.int8) if found.dtype == torch.bool else found
