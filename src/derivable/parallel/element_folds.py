"""Folds of elements with any typed operator on the CPU: scans, segment-reduce and their vjps.

A leaf is a C-contiguous array [row, column, size]: `size` scalars of an element. Functions take and return tuples of
leaves, in the operator's order. Forward mode is the same fold with `op.dual`.

Adjoints: one per leaf; None, going in, stands for zeros, and is what leaves without derivative get.
`out` leaves share no memory with the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from derivable.algebra.monoid import TypedMonoid
from derivable.device.cpu.memory import contiguous, empty, zeros
from derivable.device.cpu.threads import chunk_bounds, run_chunks
from derivable.parallel.element_cuts import is_wide, narrowest_columns, smallest_chunk
from derivable.parallel.element_kernels import compiled_scan, compiled_segments, scan_schedule, segment_schedule
from derivable.parallel.element_leaves import (
    Adjoints,
    Leaves,
    adjoint_outputs,
    flat,
    incoming_adjoints,
    neutral_leaves,
    outgoing_adjoints,
    outputs,
    prefix_arrays,
)
from derivable.parallel.element_log_sums import (
    scan_log_sums,
    scan_log_sums_back,
    segment_log_sums,
    segment_log_sums_back,
)


def scan(
    op: TypedMonoid,
    values: Sequence[np.ndarray],
    *,
    exclusive: bool = False,
    reverse: bool = False,
    offsets: np.ndarray | None = None,
    out: Sequence[np.ndarray] | None = None,
) -> Leaves:
    """All prefixes along the rows.

    values     [leaf] arrays [row, column, size]
    exclusive  result[i] folds what comes before row i: the neutral element first
    reverse    from the last row to the first
    offsets    [segment + 1] int64: each segment on its own
    """
    results = outputs(values, out)
    rows, width = values[0].shape[:2]
    if rows and width:
        if width == 1 and op.special == "logaddexp":
            arrays = [*neutral_leaves(op), *flat(values), *flat(results), reverse, exclusive]
            _run_segments(scan_log_sums, rows, width, offsets, arrays)
        else:
            run = compiled_scan(op, width == 1, reverse, False)
            _run_segments(run, rows, width, offsets, [*flat(values), *flat(results)], int(exclusive))
    return results


def scan_vjp(
    op: TypedMonoid,
    adjoints: Sequence[np.ndarray | None],
    values: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    *,
    exclusive: bool = False,
    reverse: bool = False,
    offsets: np.ndarray | None = None,
    out: Sequence[np.ndarray | None] | None = None,
) -> Adjoints:
    """Adjoints of the values from those of the results: the chain rule in one pass, without Jacobians."""
    answers = adjoint_outputs(op, values, out)
    rows, width = values[0].shape[:2]
    if rows and width and op.float_leaves:
        groups = incoming_adjoints(op, adjoints, results), flat(values), flat(results), outgoing_adjoints(answers)
        arrays = list(chain(*groups))
        if width == 1 and op.special == "logaddexp":
            _run_segments(scan_log_sums_back, rows, width, offsets, [*arrays, reverse, exclusive])
        else:
            run = compiled_scan(op, width == 1, reverse, True)
            if width > 1:
                run = _with_rows(run, [values[leaf][0] for leaf in op.float_leaves])
            _run_segments(run, rows, width, offsets, arrays, int(exclusive))
    return answers


class ScanPlan:
    """A scan of leaves of known shapes on one thread: what `scan` and `scan_vjp` find out at each call, found once."""

    def __init__(self, op: TypedMonoid, shapes: Sequence[tuple[int, ...]], exclusive: bool, reverse: bool):
        self.op, self.reverse = op, reverse
        width = math.prod(shapes[0][1:]) // op.leaf_sizes[0]
        self.single = width == 1
        self.shapes, self.dtypes = tuple(shapes), tuple(np.dtype(dtype) for dtype in op.leaf_dtypes)
        self.scratch = tuple((width * op.leaf_sizes[leaf], self.dtypes[leaf]) for leaf in op.float_leaves)
        self.segment = 0, 1, 0, width, width, int(exclusive), np.array([0, shapes[0][0]], np.int64)

    @cached_property
    def _forward(self) -> Callable:
        return compiled_scan(self.op, self.single, self.reverse, False)

    @cached_property
    def _back(self) -> Callable:
        return compiled_scan(self.op, self.single, self.reverse, True)

    def apply(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """values [leaf] in the shapes and types of the plan"""
        results = [empty(shape, dtype) for shape, dtype in zip(self.shapes, self.dtypes)]
        self._forward(*self.segment, *[leaf.ravel() for leaf in (*values, *results)])
        return results

    def pull(
        self, adjoints: Sequence[np.ndarray | None], values: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Adjoints of the values [float leaf] from those of the results [float leaf]."""
        floats = self.op.float_leaves
        answers = [empty(self.shapes[leaf], self.dtypes[leaf]) for leaf in floats]
        incoming = [
            zeros(self.shapes[leaf], self.dtypes[leaf]) if a is None else contiguous(a, self.dtypes[leaf])
            for leaf, a in zip(floats, adjoints)
        ]
        rows = [] if self.single else [empty(size, dtype) for size, dtype in self.scratch]
        self._back(*self.segment, *[a.ravel() for a in (*incoming, *values, *results, *answers)], *rows)
        return answers


def scan_plan(op: TypedMonoid, shapes: Sequence[tuple[int, ...]], exclusive: bool, reverse: bool) -> ScanPlan | None:
    """The plan for leaves [row, *batch, *element]; None if there is nothing to do, columns may be cut, or the kernels
    are others."""
    columns = math.prod(shapes[0][1:]) // op.leaf_sizes[0]
    if is_wide(columns) or not columns * shapes[0][0] or op.special == "logaddexp":
        return None
    return ScanPlan(op, shapes, exclusive, reverse)


def segment_reduce(
    op: TypedMonoid,
    values: Sequence[np.ndarray],
    offsets: np.ndarray,
    *,
    out: Sequence[np.ndarray] | None = None,
) -> Leaves:
    """The fold of each segment, [segment, column, size] per leaf; the neutral element for an empty one."""
    rows, width = values[0].shape[:2]
    if out is None:
        out = tuple(empty((len(offsets) - 1, *leaf.shape[1:]), leaf.dtype) for leaf in values)
    if width:
        arrays = [*flat(values), *flat(out)]
        if width == 1 and op.special == "logaddexp":
            _run_segments(segment_log_sums, rows, width, offsets, [*neutral_leaves(op), *arrays])
        else:
            _run_segments(compiled_segments(op, width == 1, back=False), rows, width, offsets, arrays)
    return tuple(out)


def schedules(kind: str, op: TypedMonoid, width: int) -> tuple[str, str]:
    """How a scan or segment_reduce of so many columns goes through the rows, and how its reverse rule does."""
    single = width == 1
    if single and op.special == "logaddexp":
        by_hand = "lanes 8 in float64, relative to a running reference"
        return by_hand, by_hand
    if kind == "scan":
        return str(scan_schedule(op, single)), str(scan_schedule(op, single, back=True))
    return str(segment_schedule(op, single)), "row by row"


def segment_reduce_vjp(
    op: TypedMonoid,
    adjoints: Sequence[np.ndarray | None],
    values: Sequence[np.ndarray],
    offsets: np.ndarray,
    *,
    out: Sequence[np.ndarray | None] | None = None,
) -> Adjoints:
    """Adjoints of the values: one vjp of the operator per element, with its exclusive prefix."""
    answers = adjoint_outputs(op, values, out)
    rows, width = values[0].shape[:2]
    if rows and width and op.float_leaves:
        like = [np.broadcast_to(leaf[:1], (len(offsets) - 1, *leaf.shape[1:])) for leaf in values]
        arrays = [*incoming_adjoints(op, adjoints, like), *flat(values), *outgoing_adjoints(answers)]
        if width == 1 and op.special == "logaddexp":
            _run_segments(segment_log_sums_back, rows, width, offsets, arrays)
            return answers
        run = compiled_segments(op, width == 1, back=True)
        arrays += prefix_arrays(op, values, answers)
        _run_segments(_with_rows(run, [leaf[0] for leaf in values]), rows, width, offsets, arrays)
    return answers


def _run_segments(
    run: Callable,
    rows: int,
    width: int,
    offsets: np.ndarray | None,
    arrays: Sequence[Any],
    shift: int | None = None,
) -> None:
    """Cut segments for the threads, at nearly equal numbers of elements; a single one of a scan by columns.

    shift  of a scan: 1 if it is exclusive, else 0
    """
    if offsets is None:
        offsets = np.array([0, rows], np.int64)
    segments = len(offsets) - 1
    before: tuple[Any, ...] = (width,) if shift is None else (width, shift)
    if shift is not None and segments == 1 and is_wide(width):
        least = narrowest_columns(width, rows * width)

        def of_columns(first: int, last: int) -> None:
            run(0, 1, first, last, *before, offsets, *arrays)

        run_chunks(of_columns, width, least)
        return
    bounds = chunk_bounds(rows, smallest_chunk(rows, rows * width)) if segments > 1 else [0, rows]
    if len(bounds) <= 2:
        run(0, segments, 0, width, *before, offsets, *arrays)
        return
    cuts = np.searchsorted(offsets, bounds).tolist()
    # Empty segments at either end belong to the first and last chunk.
    cuts[0], cuts[-1] = 0, segments

    def of_segments(start: int, stop: int) -> None:
        for c in range(start, stop):
            run(cuts[c], cuts[c + 1], 0, width, *before, offsets, *arrays)

    run_chunks(of_segments, len(bounds) - 1, 1)


def _with_rows(run: Callable, like: Sequence[np.ndarray]) -> Callable:
    """The kernel with rows of scratch as its last arguments, new ones for each chunk."""
    return lambda *arguments: run(*arguments, *(empty(row.size, row.dtype) for row in like))
