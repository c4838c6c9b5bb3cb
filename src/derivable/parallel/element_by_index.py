"""Reduce-by-index of elements with any typed operator on the CPU, and its vjp. Leaves are those of `element_folds`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from derivable.algebra.typed import TypedMonoid
from derivable.device.cpu.memory import contiguous, copied, empty, empty_like, full, zeros
from derivable.device.cpu.threads import chunk_bounds, run_chunks
from derivable.parallel.element_cuts import (
    clear,
    copy,
    is_wide,
    narrowest_columns,
    rows_apart,
    smallest_chunk,
)
from derivable.parallel.element_kernels import AHEAD, FARTHER_AHEAD, compiled_by_index
from derivable.parallel.element_leaves import (
    Adjoints,
    Leaves,
    adjoint_outputs,
    flat,
    incoming_adjoints,
    neutral_leaves,
    outgoing_adjoints,
    prefix_arrays,
    pulled_with,
)
from derivable.parallel.extremum_adjoints import (
    begin_winners,
    clear_won,
    gather_adjoint,
    keep_of_destination,
    scatter_adjoint,
)
from derivable.parallel.fold_kernels import needs
from derivable.parallel.product_adjoints import divide, divide_single, outside_range, parts_outside_range

# Buckets that take more bytes than this are prefetched, and further ahead where they take more than the second.
FAR_BYTES = 1 << 20
FARTHER_BYTES = 1 << 23
# Buckets for a row beyond which they are looked up by rows.
SPARSE = 8
# Rows shorter than this are kept apart where each has a thread.
CLOSE_BYTES = 1 << 14


def reduce_by_index(
    op: TypedMonoid,
    destination: Sequence[np.ndarray],
    indices: np.ndarray,
    values: Sequence[np.ndarray],
    *,
    out: Sequence[np.ndarray] | None = None,
) -> Leaves:
    """destination[k] op values[i] op values[j] ... for the rows i, j, ... with index k.

    destination  [leaf] arrays [bucket, column, size]
    indices      [row] int32 or int64; rows with one outside range(bucket) are ignored
    """
    results = tuple(map(empty_like, destination)) if out is None else tuple(out)
    _fold_by_index(_Plan(op, destination, indices, values), "index", values, results)
    return results


def reduce_by_index_keeping(
    op: TypedMonoid,
    destination: Sequence[np.ndarray],
    indices: np.ndarray,
    values: Sequence[np.ndarray],
    *,
    whole: bool = False,
) -> tuple[Leaves, Leaves | None]:
    """`reduce_by_index` when its vjp will follow: (results, what it keeps for `reduce_by_index_vjp`).

    whole  arrays as `kept_whole` says, whether they help or not

    Of extrema it keeps the winners, one array [bucket, column, 1] of int32 or int64: the first row that has the
    result, or -1 where the destination has it; of far more buckets than rows, anything where no row goes. Of other
    operators prefixes, as `kept_leaves` says: [row, column, size] what each element found in its bucket, and where the
    rows were cut for threads, the parts [part * bucket, column, size], since prefixes are then those within a part.
    None where the rule reads neither, or goes faster without.
    """
    extremum = _is_extremum(op)
    plan = _Plan(op, destination, indices, values, 1 if whole and not extremum else None)
    if not (whole or _keeps(plan)):
        return reduce_by_index(op, destination, indices, values), None
    results = tuple(map(empty_like, destination))
    if extremum:
        winners = _no_winners(plan, indices, results[0].shape)
        _fold_by_index(plan, "index_winners", values, results, winners=winners)
        return results, (winners,)
    kept = [empty_like(values[leaf]) for leaf in needs(op).prefix_leaves(op)]
    parts = _fold_by_index(plan, "index_prefixes", values, results, flat(kept))
    shaped = [part.reshape(-1, *leaf.shape[1:]) for part, leaf in zip(parts, destination)]
    return results, (*kept, *shaped)


class IndexPlan:
    """A reduce-by-index of leaves of known shapes [bucket or row, *batch, *element]: what does not depend on the
    numbers is found once.

    shapes   those of the destination, and then of the values
    indices  their dtype

    is_whole  whether one thread does all of it, which the methods are for
    keeps     whether `apply_keeping` keeps what `pull` reads
    pulls     whether `pull` is for its vjp, given what is kept: it only spreads adjoints, or reads no results
    """

    def __init__(self, op: TypedMonoid, shapes: Sequence[tuple[int, ...]], indices: np.dtype):
        leaves = len(op.leaf_sizes)
        self.shapes, self.dtypes = shapes, tuple(np.dtype(dtype) for dtype in op.leaf_dtypes)
        like = [
            [
                np.broadcast_to(np.zeros((), dtype), (shape[0], math.prod(shape[1:]) // size, size))
                for shape, dtype, size in zip(given, self.dtypes, op.leaf_sizes)
            ]
            for given in (shapes[:leaves], shapes[leaves:])
        ]
        self._plan = plan = _Plan(op, like[0], np.empty(0, indices), like[1])
        self.is_whole = plan.parts == 1 and plan.narrowest >= plan.width and plan.smallest >= plan.rows
        self.keeps = _keeps(plan)
        self.pulls = only_spreads(op) or (self.keeps and (_is_extremum(op) or op.skipping_zeros is op))
        self._range = (0, plan.rows, 0, plan.width, plan.width, plan.buckets)

    @cached_property
    def _forward(self) -> Callable:
        return self._plan.kernel("index")

    @cached_property
    def _back(self) -> Callable:
        return self._plan.kernel("index_back")

    def apply(self, operands: Sequence[np.ndarray], indices: np.ndarray) -> list[np.ndarray]:
        """The results [leaf] of the destination and the values."""
        count = len(self.dtypes)
        results = list(map(copied, operands[:count]))
        self._forward(*self._range, indices, *map(np.ndarray.ravel, (*operands[count:], *results)))
        return results

    @cached_property
    def _keeping(self) -> Callable:
        return self._plan.kernel("index_winners" if _is_extremum(self._plan.op) else "index_prefixes")

    def apply_keeping(
        self, operands: Sequence[np.ndarray], indices: np.ndarray
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The results, and what `reduce_by_index_keeping` keeps, in the shapes of operands."""
        if not self.keeps:
            return self.apply(operands, indices), []
        count, op = len(self.dtypes), self._plan.op
        results = list(map(copied, operands[:count]))
        if _is_extremum(op):
            kept = [_no_winners(self._plan, indices, self.shapes[0])]
        else:
            kept = [empty(self.shapes[count + leaf], self.dtypes[leaf]) for leaf in needs(op).prefix_leaves(op)]
        self._keeping(*self._range, indices, *map(np.ndarray.ravel, (*operands[count:], *results, *kept)))
        return results, kept

    def pull(
        self,
        adjoints: Sequence[np.ndarray | None],
        operands: Sequence[np.ndarray],
        indices: np.ndarray,
        kept: Sequence[np.ndarray],
    ) -> list[np.ndarray]:
        """Adjoints [float leaf] of the destination and then of the values."""
        count, op = len(self.dtypes), self._plan.op
        firsts, answers = [], []
        for leaf, adjoint in zip(op.float_leaves, adjoints):
            shape, dtype = self.shapes[leaf], self.dtypes[leaf]
            firsts.append(zeros(shape, dtype) if adjoint is None else contiguous(adjoint, dtype))
            answers.append(empty(self.shapes[count + leaf], dtype))
        # Nobody writes to the caller's adjoints, and results have memory of their own.
        own = list(map(copied, firsts))
        if _is_extremum(op):
            _pull_extremum(self._plan, indices, *map(np.ndarray.ravel, (firsts[0], kept[0], own[0], answers[0])))
        else:
            self._back(*self._range, indices, *map(np.ndarray.ravel, (*operands[count:], *kept, *own, *answers)))
        return [*own, *answers]


def only_spreads(op: TypedMonoid) -> bool:
    """Whether the vjp of a fold does not depend on results: it only spreads adjoints."""
    return needs(op).additive and op.skipping_zeros is op


def kept_leaves(op: TypedMonoid) -> tuple[int, ...]:
    """Which leaves the arrays that are kept have the columns and sizes of; of prefixes the last, those of the parts,
    may be absent."""
    if _is_extremum(op):
        return (0,)
    return *needs(op).prefix_leaves(op), *range(len(op.leaf_sizes))


def kept_whole(op: TypedMonoid, rows: int) -> list[tuple[int, bool, str]]:
    """(leaf, whether its values' shape and not its destination's, dtype) of the arrays that are kept if not cut."""
    if _is_extremum(op):
        return [(0, False, _winner_dtype(rows))]
    return [(leaf, True, op.leaf_dtypes[leaf]) for leaf in needs(op).prefix_leaves(op)]


def keeps_whole(op: TypedMonoid, rows: int, width: int, buckets: int) -> bool:
    """Whether what is kept helps, and its shapes are those of `kept_whole`: rows need not be cut, say."""
    like = [
        tuple(
            np.broadcast_to(np.zeros((), dtype), (n, width, size)) for dtype, size in zip(op.leaf_dtypes, op.leaf_sizes)
        )
        for n in (buckets, rows)
    ]
    plan = _Plan(op, like[0], np.empty(0, np.int64), like[1])
    return (_is_extremum(op) or plan.parts == 1 or plan.wide) and _keeps(plan)


def _keeps(plan: _Plan) -> bool:
    op = plan.op
    if not plan.items or not plan.rows:
        return False
    if _is_extremum(op):
        return bool(op.float_leaves)
    if needs(op).additive or not needs(op).prefix_leaves(op):
        return False
    # Dividing reads less memory than prefixes do, but three more times from the buckets.
    return op.special != "mul" or plan.ahead > 0 or _too_many_to_divide(plan)


def _is_extremum(op: TypedMonoid) -> bool:
    return op.special in ("min", "max")


def _no_winners(plan: _Plan, indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What an extremum begins with: the destination has all results; where rows are few, just those that rows meet."""
    winners = empty(shape, _winner_dtype(plan.rows))
    if plan.is_sparse:
        plan.run_rows(begin_winners, indices, [winners.reshape(-1)])
    else:
        winners.fill(-1)
    return winners


def _winner_dtype(rows: int) -> str:
    return "int32" if rows <= np.iinfo(np.int32).max else "int64"


def _fold_by_index(
    plan: _Plan,
    purpose: str,
    values: Sequence[np.ndarray],
    results: Leaves,
    prefixes: Sequence[np.ndarray] = (),
    winners: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Fills results, flat prefixes and winners; the parts [leaf][part, scalar] of rows that are cut, else none."""
    parts = plan.begun(results)
    if winners is not None:
        results = (*results, winners)
        parts.append(winners.reshape(-1) if plan.parts == 1 else full((plan.parts, plan.items), -1, winners.dtype))
    plan.run(plan.kernel(purpose), flat(values), parts, prefixes)
    if plan.parts == 1:
        return []
    plan.merge("merge" if winners is None else "merge_winners", parts, results)
    return parts


def reduce_by_index_vjp(
    op: TypedMonoid,
    adjoints: Sequence[np.ndarray | None],
    destination: Sequence[np.ndarray],
    indices: np.ndarray,
    values: Sequence[np.ndarray],
    results: Sequence[np.ndarray] | None = None,
    *,
    kept: Sequence[np.ndarray] | None = None,
) -> tuple[Adjoints, Adjoints]:
    """(adjoints of the destination, adjoints of the values).

    results  of the fold, which saves computing them again where the rule needs them
    kept     of `reduce_by_index_keeping`, which saves a walk forward; is not changed

    Generic rule: forward again, keeping each element's exclusive prefix in the memory of its adjoint; then back, one
    vjp of the operator per element. No sort.
    """
    if not op.float_leaves:
        return (None,) * len(destination), (None,) * len(values)
    if needs(op).additive:
        return _additive_vjp(pulled_with(op, results), adjoints, destination, indices, values)
    incoming = incoming_adjoints(op, adjoints, destination)
    if _is_extremum(op):
        return _extremum_vjp(op, incoming[0], destination, indices, values, kept)
    if kept is None and op.special == "mul" and len(values[0]) and len(destination[0]):
        if results is None:
            results = reduce_by_index(op, destination, indices, values)
        firsts, answers = adjoint_outputs(op, destination), adjoint_outputs(op, values)
        arrays = [flat(leaves)[0] for leaves in (destination, values, results, firsts, answers)]
        if _product_vjp(_Plan(op, destination, indices, values), incoming[0], *arrays):
            return firsts, answers
    return _generic_vjp(pulled_with(op, results), incoming, destination, indices, values, kept)


def _additive_vjp(op: TypedMonoid, adjoints, destination, indices, values) -> tuple[Any, Any]:
    """Of sums: each element gets its bucket's adjoint, and the destination the adjoints themselves."""
    answers, incoming = adjoint_outputs(op, values), incoming_adjoints(op, adjoints, destination)
    plan = _Plan(op, destination, indices, values)
    # Nothing is written to the buckets' adjoints, so any number of threads may read them.
    arrays = [*flat(values), *incoming, *outgoing_adjoints(answers)]
    plan.run_rows(plan.kernel("index_back"), indices, arrays)
    firsts: list[Any] = [None] * len(destination)
    for leaf, adjoint in zip(op.float_leaves, incoming):
        firsts[leaf] = copy(empty(destination[leaf].shape, adjoint.dtype), adjoint)
    return tuple(firsts), answers


def _generic_vjp(
    op: TypedMonoid, incoming, destination, indices, values, kept: Sequence[np.ndarray] | None = None
) -> tuple[Any, Any]:
    answers = adjoint_outputs(op, values)
    firsts = adjoint_outputs(op, destination)
    if kept is None:
        plan = _Plan(op, destination, indices, values)
        prefixes = prefix_arrays(op, values, answers)
        parts = []
        if prefixes or plan.parts > 1:
            parts = plan.begun([empty_like(leaf) for leaf in destination])
            plan.run(plan.kernel("index_prefixes"), flat(values), parts, prefixes)
    else:
        count = len(needs(op).prefix_leaves(op))
        prefixes = flat(kept[:count])
        cut = len(kept[count]) // len(destination[0]) if len(kept) > count else 1
        plan = _Plan(op, destination, indices, values, cut)
        parts = [part.reshape(cut, -1) for part in kept[count:]]
    to_first = outgoing_adjoints(firsts)
    running = plan.merge_back(parts, incoming, to_first)
    plan.run(plan.kernel("index_back"), [*flat(values), *prefixes], running, outgoing_adjoints(answers))
    if plan.parts > 1:
        for first, part in zip(to_first, running):
            np.copyto(first, part[0])
    return firsts, answers


class _Plan:
    """How a reduce-by-index is cut for the threads.

    Rows are cut, and each chunk has its own part [part, bucket, column, size]: the first starts from the destination,
    the others from the neutral element, and they are merged in order. There are no more chunks than keep three numbers
    for each bucket and chunk fewer than the values. Where that leaves threads without work, many columns are cut
    instead, and all threads write to one result.

    parts  how many, where that is known; equal rows are then cut at equal places
    """

    def __init__(
        self,
        op: TypedMonoid,
        destination: Sequence[np.ndarray],
        indices: np.ndarray,
        values: Sequence[np.ndarray],
        parts: int | None = None,
    ):
        self.op = op
        self.destination = destination
        self.indices = indices
        self.rows, self.width = values[0].shape[:2]
        self.buckets = len(destination[0])
        self.single = self.width == 1
        self.wide = is_wide(self.width)
        self.items = self.buckets * self.width
        # What happens to buckets is looked up by rows.
        self.is_sparse = SPARSE * self.rows < self.buckets
        self.numbers = sum(leaf.size for leaf in values)
        self.smallest = smallest_chunk(self.rows, self.numbers)
        self.narrowest = narrowest_columns(self.width, self.numbers)
        column_parts = len(chunk_bounds(self.width, self.narrowest)) - 1
        if parts is None:
            parts = max(1, len(chunk_bounds(self.rows, max(self.smallest, 3 * self.buckets))) - 1)
            parts = parts if parts >= column_parts else 1
        self.parts = parts
        self.bounds = [self.rows * c // parts for c in range(parts + 1)]
        nbytes = sum(leaf.nbytes for leaf in destination)
        self.ahead = 0 if nbytes <= FAR_BYTES else AHEAD if nbytes <= FARTHER_BYTES else FARTHER_AHEAD

    def kernel(self, purpose: str) -> Callable:
        rows = _winner_dtype(self.rows)
        return compiled_by_index(self.op, purpose, self.single, self.ahead, str(self.indices.dtype), rows)

    def run(self, run: Callable, shared: Sequence[Any], parts: Sequence[np.ndarray], behind: Sequence[Any]) -> None:
        """Chunk c of the rows with part c of `parts`; with a single part all rows in order, columns in parallel."""
        if self.parts == 1:
            arrays = [*shared, *parts, *behind]

            def columns(first: int, last: int) -> None:
                run(0, self.rows, first, last, self.width, self.buckets, self.indices, *arrays)

            run_chunks(columns, self.width, self.narrowest)
            return
        # Two threads that write to neighbouring bytes wait for each other.
        apart = [rows_apart(part) if part[0].nbytes < CLOSE_BYTES else part for part in parts]

        def chunks(start: int, stop: int) -> None:
            for c in range(start, stop):
                rows = self.bounds[c], self.bounds[c + 1]
                own = [part[c] for part in apart]
                run(*rows, 0, self.width, self.width, self.buckets, self.indices, *shared, *own, *behind)

        run_chunks(chunks, self.parts, 1)
        for part, written in zip(parts, apart):
            if written is not part:
                part[...] = written

    def run_rows(self, run: Callable, indices: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """A kernel whose rows do not depend on each other."""
        rest = (0, self.width, self.width, self.buckets, indices, *arrays)
        run_chunks(run, self.rows, self.smallest, *rest)

    def split(self, array: np.ndarray) -> np.ndarray:
        """[part, scalar], or [scalar] of a single part."""
        return array.reshape(-1) if self.parts == 1 else array.reshape(self.parts, -1)

    def begun(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """[leaf] the parts before any row, as `split` has them; a single one is the results themselves."""
        pairs = zip(results, self.destination)
        if self.parts == 1:
            return [(result if result is leaf else copy(result, leaf)).reshape(-1) for result, leaf in pairs]
        parts = []
        for leaf, neutral in zip(self.destination, neutral_leaves(self.op)):
            part = empty((self.parts, leaf.size), leaf.dtype)
            part[0] = leaf.reshape(-1)
            part[1:].reshape(self.parts - 1, -1, leaf.shape[2])[...] = neutral
            parts.append(part)
        return parts

    def merge(self, purpose: str, parts: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        run = compiled_by_index(self.op, purpose, True, rows=_winner_dtype(self.rows))
        least = smallest_chunk(self.items, sum(part.size for part in parts))
        run_chunks(run, self.items, least, self.parts, self.items, *flat(parts), *flat(results))

    def merge_back(
        self, parts: Sequence[np.ndarray], incoming: Sequence[np.ndarray], firsts: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """[float leaf] adjoints of the parts, which are overwritten; a single part's in the memory of `firsts`."""
        if self.parts == 1:
            return [copy(first, adjoint) for first, adjoint in zip(firsts, incoming)]
        run = compiled_by_index(self.op, "merge_back", True)
        prefixes = [empty_like(part) for part in parts]
        running = [empty_like(parts[leaf]) for leaf in self.op.float_leaves]
        least = smallest_chunk(self.items, sum(part.size for part in parts))
        arrays = [*incoming, *flat(parts), *flat(running), *flat(prefixes)]
        run_chunks(run, self.items, least, self.parts, self.items, *arrays)
        return running


def _extremum_vjp(op: TypedMonoid, incoming, destination, indices, values, kept) -> tuple[Any, Any]:
    """Of min and max: zeros, but the adjoint of a bucket to the row that won."""
    if kept is None:
        _, kept = reduce_by_index_keeping(op, destination, indices, values, whole=True)
        assert kept is not None
    firsts, answers = adjoint_outputs(op, destination), adjoint_outputs(op, values)
    plan = _Plan(op, destination, indices, values)
    _pull_extremum(plan, indices, incoming, *flat([kept[0], firsts[0], answers[0]]))
    return firsts, answers


def _pull_extremum(plan: _Plan, indices: np.ndarray, incoming, winners, to_first, to_values) -> None:
    """Fill the adjoints of the destination and of the values; all arrays are flat."""
    least = smallest_chunk(incoming.size, incoming.size)
    if plan.is_sparse:
        copy(to_first, incoming)
        plan.run_rows(clear_won, indices, [winners, to_first])
    else:
        run_chunks(keep_of_destination, plan.items, least, incoming, winners, to_first)
    if plan.is_sparse or (not plan.single and 8 * plan.items > plan.numbers):
        plan.run_rows(gather_adjoint, indices, [incoming, winners, to_values])
    else:
        clear(to_values)
        run_chunks(scatter_adjoint, plan.items, least, plan.width, incoming, winners, to_values)


def _product_vjp(plan: _Plan, adjoints, destination, values, results, firsts, out) -> bool:
    """Of mul, all arrays flat; False if the generic rule is better, and then nothing is done."""
    if _too_many_to_divide(plan):
        return False
    with np.errstate(all="ignore"):
        scaled = adjoints * results
        bad: Any = outside_range(results, scaled, adjoints)
        if np.count_nonzero(bad) * 8 > len(bad):
            return False
        if plan.single:
            pairs = full((plan.parts, plan.buckets, 2), 1, values.dtype)
            pairs[:, :, 0] = scaled
            plan.run(divide_single, [values, plan.ahead > 0], [plan.split(pairs)], [out])
            large = pairs[:, :, 1].prod(axis=0)
        else:
            bounds = full((plan.parts, plan.buckets, plan.width), 1, values.dtype)
            plan.run(divide, [values, scaled], [plan.split(bounds)], [out])
            large = np.broadcast_to(bounds.prod(axis=(0, 2))[:, None], bounds.shape[1:]).reshape(-1)
        bad |= parts_outside_range(results, destination, large)
        np.divide(scaled, destination, out=firsts)
    if bad.any():
        _repair(plan, bad.reshape(plan.buckets, plan.width).any(axis=1), adjoints, values, firsts, out)
    return True


def _too_many_to_divide(plan: _Plan) -> bool:
    """Whether what is done for each bucket would cost more than it saves."""
    return 4 * plan.items > plan.numbers


def _repair(plan: _Plan, bad: np.ndarray, adjoints, values, firsts, out) -> None:
    """The generic rule for the buckets `bad` [bucket]; flat arrays."""
    buckets = np.flatnonzero(bad)
    number = full(plan.buckets, -1, np.int64)
    number[buckets] = np.arange(len(buckets))
    inside = (plan.indices >= 0) & (plan.indices < plan.buckets)
    rows = np.flatnonzero(inside & bad[np.where(inside, plan.indices, 0)])
    first, answer = _generic_vjp(
        plan.op.skipping_zeros,
        [adjoints.reshape(plan.buckets, -1)[buckets].reshape(-1)],
        [plan.destination[0][buckets]],
        number[plan.indices[rows]],
        [values.reshape(plan.rows, plan.width, 1)[rows]],
    )
    firsts.reshape(plan.buckets, -1)[buckets] = first[0][:, :, 0]
    out.reshape(plan.rows, -1)[rows] = answer[0][:, :, 0]
