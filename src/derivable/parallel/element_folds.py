"""Folds of elements with any typed operator on the CPU: scans, segment-reduce and their vjps.

A leaf is a C-contiguous array [row, column, size]: `size` scalars of an element. Functions take and return tuples of
leaves, in the operator's order. Forward mode is the same fold with `op.dual`.

Adjoints: one per leaf; None, going in, stands for zeros, and is what leaves without derivative get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra.typed import TypedMonoid
from derivable.device.cpu.memory import contiguous, empty, maker, zeros
from derivable.device.cpu.threads import chunk_bounds, run_chunks
from derivable.parallel.element_cuts import is_wide, narrowest_columns, smallest_chunk
from derivable.parallel.element_kernels import compiled_scan, compiled_segments, scan_schedule, segment_schedule
from derivable.parallel.element_leaves import (
    Adjoints,
    Leaves,
    adjoint_outputs,
    flat,
    incoming_adjoints,
    outgoing_adjoints,
    prefix_arrays,
    pulled_with,
)
from derivable.parallel.log_sum_kernels import is_log_sum


class ScanPlan:
    """A scan of leaves of known shapes [row, *batch, *element]: what does not depend on the numbers is found once.

    exclusive  result[i] folds what comes before row i: the neutral element first
    reverse    from the last row to the first

    Of the methods, offsets [segment + 1] int64 scan each segment on its own.
    """

    def __init__(self, op: TypedMonoid, shapes: Sequence[tuple[int, ...]], exclusive: bool, reverse: bool):
        self.op, self.shift, self.reverse = op, int(exclusive), reverse
        self.rows, self.width = shapes[0][0], math.prod(shapes[0][1:]) // op.leaf_sizes[0]
        self.shapes, self.dtypes = tuple(shapes), tuple(np.dtype(dtype) for dtype in op.leaf_dtypes)
        self.makers = tuple(map(maker, self.shapes, self.dtypes))
        # The arguments of one run over all rows.
        whole = np.array([0, self.rows], np.int64)
        self.segment = None if is_wide(self.width) else (0, 1, 0, self.width, self.width, self.shift, whole)

    @cached_property
    def _forward(self) -> Callable:
        return compiled_scan(self.op, self.width == 1, self.reverse, False)

    def _back(self, results: Sequence[np.ndarray], offsets: np.ndarray | None) -> Callable:
        if self.op.skipping_zeros is self.op:
            return self._plain_back
        if offsets is None:
            last: Any = slice(0, 1) if self.reverse else slice(-1, None)
        else:
            last = np.minimum(offsets[:-1], self.rows - 1) if self.reverse else offsets[1:] - 1
        op = pulled_with(self.op, [result[last] for result in results])
        return self._plain_back if op is self.op else self._careful_back

    @cached_property
    def _plain_back(self) -> Callable:
        return self._back_of(self.op)

    @cached_property
    def _careful_back(self) -> Callable:
        return self._back_of(self.op.skipping_zeros)

    def _back_of(self, op: TypedMonoid) -> Callable:
        run = compiled_scan(op, self.width == 1, self.reverse, True)
        if self.width == 1:
            return run
        sizes = [(self.width * self.op.leaf_sizes[leaf], self.dtypes[leaf]) for leaf in self.op.float_leaves]
        return _with_rows(run, sizes)

    def _run(self, run: Callable, offsets: np.ndarray | None, arrays: Sequence[np.ndarray]) -> None:
        if offsets is None and self.segment is not None:
            run(*self.segment, *map(np.ndarray.ravel, arrays))
        else:
            _run_segments(run, self.rows, self.width, offsets, [array.ravel() for array in arrays], self.shift)

    def apply(self, values: Sequence[np.ndarray], offsets: np.ndarray | None = None) -> list[np.ndarray]:
        """The results [leaf] of values [leaf], both in the shapes and types of the plan."""
        results = [make() for make in self.makers]
        if self.rows and self.width:
            self._run(self._forward, offsets, [*values, *results])
        return results

    def pull(
        self,
        adjoints: Sequence[np.ndarray | None],
        values: Sequence[np.ndarray],
        results: Sequence[np.ndarray],
        offsets: np.ndarray | None = None,
    ) -> list[np.ndarray]:
        """Adjoints of the values [float leaf] from those of the results [float leaf].

        The chain rule in one pass, without Jacobians.
        """
        floats = self.op.float_leaves
        answers = [self.makers[leaf]() for leaf in floats]
        if floats and self.rows and self.width:
            incoming = [
                zeros(self.shapes[leaf], self.dtypes[leaf]) if a is None else contiguous(a, self.dtypes[leaf])
                for leaf, a in zip(floats, adjoints)
            ]
            self._run(self._back(results, offsets), offsets, [*incoming, *values, *results, *answers])
        return answers


def scan(
    op: TypedMonoid,
    values: Sequence[np.ndarray],
    *,
    exclusive: bool = False,
    reverse: bool = False,
    offsets: np.ndarray | None = None,
) -> Leaves:
    """All prefixes along the rows, as `ScanPlan` has them; values are [leaf] arrays [row, column, size]."""
    plan = ScanPlan(op, [leaf.shape for leaf in values], exclusive, reverse)
    return tuple(plan.apply(values, offsets))


def scan_vjp(
    op: TypedMonoid,
    adjoints: Sequence[np.ndarray | None],
    values: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    *,
    exclusive: bool = False,
    reverse: bool = False,
    offsets: np.ndarray | None = None,
) -> Adjoints:
    """Adjoints of the values from those of the results."""
    plan = ScanPlan(op, [leaf.shape for leaf in values], exclusive, reverse)
    found = iter(plan.pull([adjoints[leaf] for leaf in op.float_leaves], values, results, offsets))
    return tuple(next(found) if leaf in op.float_leaves else None for leaf in range(len(values)))


def segment_reduce(op: TypedMonoid, values: Sequence[np.ndarray], offsets: np.ndarray) -> Leaves:
    """The fold of each segment, [segment, column, size] per leaf; the neutral element for an empty one."""
    rows, width = values[0].shape[:2]
    results = tuple(empty((len(offsets) - 1, *leaf.shape[1:]), leaf.dtype) for leaf in values)
    if width:
        run = compiled_segments(op, width == 1, back=False)
        _run_segments(run, rows, width, offsets, [*flat(values), *flat(results)])
    return results


def schedules(kind: str, op: TypedMonoid, width: int) -> tuple[str, str]:
    """How a scan or segment_reduce of `width` columns goes through the rows, and how its reverse rule does."""
    single = width == 1
    if kind == "scan":
        return str(scan_schedule(op, single)), str(scan_schedule(op, single, back=True))
    return str(segment_schedule(op, single)), str(segment_schedule(op, single, back=True))


def segment_reduce_vjp(
    op: TypedMonoid,
    adjoints: Sequence[np.ndarray | None],
    values: Sequence[np.ndarray],
    offsets: np.ndarray,
    results: Sequence[np.ndarray] | None = None,
) -> Adjoints:
    """Adjoints of the values: one vjp of the operator per element, with its exclusive prefix."""
    answers = adjoint_outputs(op, values)
    rows, width = values[0].shape[:2]
    if rows and width and op.float_leaves:
        like = [np.broadcast_to(leaf[:1], (len(offsets) - 1, *leaf.shape[1:])) for leaf in values]
        arrays = [*incoming_adjoints(op, adjoints, like), *flat(values), *outgoing_adjoints(answers)]
        if is_log_sum(op, width == 1):
            _run_segments(compiled_segments(op, True, back=True), rows, width, offsets, arrays)
            return answers
        op = pulled_with(op, results)
        run = compiled_segments(op, width == 1, back=True)
        arrays += prefix_arrays(op, values, answers)
        scratch = _with_rows(run, [(leaf[0].size, leaf.dtype) for leaf in values])
        _run_segments(scratch, rows, width, offsets, arrays)
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


def _with_rows(run: Callable, sizes: Sequence[tuple[int, np.dtype]]) -> Callable:
    """The kernel with rows of scratch as its last arguments, new ones for each chunk."""
    return lambda *arguments: run(*arguments, *(empty(size, dtype) for size, dtype in sizes))
