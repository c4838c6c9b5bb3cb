"""Reduce-by-index of elements with any typed operator on the CPU, and its vjp. Leaves are those of `element_folds`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.device.cpu import element_specials as special
from derivable.device.cpu.element_cuts import copy, is_wide, narrowest_columns, rows_apart, smallest_chunk
from derivable.device.cpu.element_kernels import kernel, needs
from derivable.device.cpu.element_leaves import (
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
from derivable.device.cpu.threads import chunk_bounds, run_chunks
from derivable.parallel.typed_operator import TypedOperator

# Buckets that take more than this are asked for ahead of their use.
FAR_BYTES = 1 << 20
# Rows shorter than this are kept apart where each has a thread.
CLOSE_BYTES = 1 << 14


def reduce_by_index(
    op: TypedOperator,
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
    results = outputs(destination, out)
    _fold_by_index(_Plan(op, destination, indices, values), "index", values, results, [])
    return results


def reduce_by_index_keeping(
    op: TypedOperator,
    destination: Sequence[np.ndarray],
    indices: np.ndarray,
    values: Sequence[np.ndarray],
    *,
    whole: bool = False,
) -> tuple[Leaves, Leaves | None]:
    """`reduce_by_index` when its vjp will be asked for: (results, prefixes for `reduce_by_index_vjp`).

    whole  prefixes whether they help or not, and never cut: then their shapes depend on nothing but the operands'

    The prefixes are leaves of the types `kept_leaves`: [row, column, size] what each element found in its bucket, and
    where the rows were cut for threads, the parts [part * bucket, column, size], since prefixes are then those within
    a part. None where the rule does not read them, or goes faster without.
    """
    plan = _Plan(op, destination, indices, values, 1 if whole else None)
    if not (whole or _keeps_prefixes(plan)):
        return reduce_by_index(op, destination, indices, values), None
    results = outputs(destination, None)
    kept = [np.empty(values[leaf].shape, values[leaf].dtype) for leaf in needs(op).prefix_leaves(op)]
    parts = _fold_by_index(plan, "index_prefixes", values, results, flat(kept))
    shaped = [part.reshape(-1, *leaf.shape[1:]) for part, leaf in zip(parts, destination)]
    return results, (*kept, *shaped)


def kept_leaves(op: TypedOperator) -> tuple[int, ...]:
    """Which leaves the arrays among the prefixes are like; the last ones, those of the parts, may be absent."""
    return *needs(op).prefix_leaves(op), *range(len(op.leaf_sizes))


def keeps_whole_prefixes(op: TypedOperator, rows: int, width: int, buckets: int) -> bool:
    """Whether prefixes help, and rows are not cut for threads anyway, or columns can be cut as well."""
    like = [
        tuple(
            np.broadcast_to(np.zeros((), dtype), (n, width, size)) for dtype, size in zip(op.leaf_dtypes, op.leaf_sizes)
        )
        for n in (buckets, rows)
    ]
    plan = _Plan(op, like[0], np.empty(0, np.int64), like[1])
    return (plan.parts == 1 or plan.wide) and _keeps_prefixes(plan)


def _keeps_prefixes(plan: _Plan) -> bool:
    op = plan.op
    if not plan.items or not plan.rows or needs(op).additive or not needs(op).prefix_leaves(op):
        return False
    # Dividing reads less memory than prefixes do, but three more times from the buckets.
    return op.special not in _SPECIAL_RULES or (op.special == "mul" and (plan.far or _too_many_to_divide(plan)))


def _fold_by_index(plan: _Plan, purpose: str, values, results, prefixes) -> list[np.ndarray]:
    """Fills results and flat prefixes; the parts [leaf][part, scalar] of rows that are cut, else none."""
    if plan.parts > 1:
        parts = plan.parts_of(purpose, values, prefixes)
        plan.merge(parts, results)
        return parts
    for result, leaf in zip(results, plan.destination):
        if result is not leaf:
            copy(result, leaf)
    plan.run_whole(plan.kernel(purpose), [*flat(values), *flat(results), *prefixes])
    return []


def reduce_by_index_vjp(
    op: TypedOperator,
    adjoints: Sequence[np.ndarray | None],
    destination: Sequence[np.ndarray],
    indices: np.ndarray,
    values: Sequence[np.ndarray],
    results: Sequence[np.ndarray] | None = None,
    *,
    prefixes: Sequence[np.ndarray] | None = None,
    out: Sequence[np.ndarray | None] | None = None,
) -> tuple[Adjoints, Adjoints]:
    """(adjoints of the destination, adjoints of the values).

    results   saves computing them again where the rule needs them
    prefixes  of `reduce_by_index_keeping`, which saves the generic rule its walk forward; are not changed
    out       [leaf] for the adjoints of the values

    Generic rule: forward again, keeping each element's exclusive prefix in the memory of its adjoint; then back, one
    vjp of the operator per element. No sort.
    """
    if not op.float_leaves:
        return (None,) * len(destination), (None,) * len(values)
    if needs(op).additive:
        return _additive_vjp(op, adjoints, destination, indices, values, out)
    if prefixes is not None:
        return _generic_vjp(
            op, incoming_adjoints(op, adjoints, destination), destination, indices, values, out, prefixes
        )
    if len(destination[0]) > 2 * len(values[0]):
        return _sparse_vjp(op, adjoints, destination, indices, values, results, out)
    incoming = incoming_adjoints(op, adjoints, destination)
    rule = _SPECIAL_RULES.get(op.special or "")
    if rule is not None and len(values[0]) and len(destination[0]):
        if results is None:
            results = reduce_by_index(op, destination, indices, values)
        firsts, answers = adjoint_outputs(op, destination, None), adjoint_outputs(op, values, out)
        arrays = [flat(leaves)[0] for leaves in (destination, values, results, firsts, answers)]
        if rule(_Plan(op, destination, indices, values), incoming[0], *arrays):
            return firsts, answers
    return _generic_vjp(op, incoming, destination, indices, values, out)


def _additive_vjp(op: TypedOperator, adjoints, destination, indices, values, out) -> tuple[Any, Any]:
    """Of sums: each element gets its bucket's adjoint, and the destination the adjoints themselves."""
    answers, incoming = adjoint_outputs(op, values, out), incoming_adjoints(op, adjoints, destination)
    plan = _Plan(op, destination, indices, values)
    # Nothing is written to the buckets' adjoints, so any number of threads may read them.
    plan.run_rows(plan.kernel("index_back"), [*flat(values), *incoming, *outgoing_adjoints(answers)])
    firsts: list[Any] = [None] * len(destination)
    for leaf, adjoint in zip(op.float_leaves, incoming):
        firsts[leaf] = copy(np.empty(destination[leaf].shape, adjoint.dtype), adjoint)
    return tuple(firsts), answers


def _sparse_vjp(op: TypedOperator, adjoints, destination, indices, values, results, out) -> tuple[Any, Any]:
    """Far more buckets than rows: only those that have rows are looked at; the others pass their adjoint on."""
    incoming = incoming_adjoints(op, adjoints, destination)
    rows = np.flatnonzero((indices >= 0) & (indices < len(destination[0])))
    mark = np.zeros(len(destination[0]), bool)
    mark[indices[rows]] = True
    touched = np.flatnonzero(mark)
    position = np.empty(len(mark), np.int64)
    position[touched] = np.arange(len(touched))
    number = np.full(len(indices), -1)
    number[rows] = position[indices[rows]]
    some = [None if adjoint is None else adjoint.take(touched, axis=0) for adjoint in adjoints]
    inner = [leaf.take(touched, axis=0) for leaf in destination]
    known = None if results is None else [leaf.take(touched, axis=0) for leaf in results]
    changed, answers = reduce_by_index_vjp(op, some, inner, number, values, known, out=out)
    firsts = adjoint_outputs(op, destination, None)
    for leaf, adjoint in zip(op.float_leaves, incoming):
        copy(firsts[leaf], adjoint)
        firsts[leaf][touched] = changed[leaf]
    return firsts, answers


def _generic_vjp(
    op: TypedOperator, incoming, destination, indices, values, out, prefixes: Sequence[np.ndarray] | None = None
) -> tuple[Any, Any]:
    answers = adjoint_outputs(op, values, out)
    firsts = adjoint_outputs(op, destination, None)
    if prefixes is None:
        plan = _Plan(op, destination, indices, values)
        kept = prefix_arrays(op, values, answers)
        parts = []
        if plan.parts > 1:
            parts = plan.parts_of("index_prefixes", values, kept)
        elif kept:
            running = [copy(np.empty(leaf.shape, leaf.dtype), leaf) for leaf in destination]
            plan.run_whole(plan.kernel("index_prefixes"), [*flat(values), *flat(running), *kept])
    else:
        count = len(needs(op).prefix_leaves(op))
        kept = flat(prefixes[:count])
        cut = len(prefixes[count]) // len(destination[0]) if len(prefixes) > count else 1
        plan = _Plan(op, destination, indices, values, cut)
        parts = [part.reshape(cut, -1) for part in prefixes[count:]]
    back = plan.kernel("index_back")
    if plan.parts == 1:
        for first, adjoint in zip(outgoing_adjoints(firsts), incoming):
            copy(first, adjoint)
        plan.run_whole(back, [*flat(values), *kept, *outgoing_adjoints(firsts), *outgoing_adjoints(answers)])
        return firsts, answers
    running = plan.merge_back(parts, incoming)
    plan.run_parts(back, [*flat(values), *kept], running, outgoing_adjoints(answers))
    for first, part in zip(outgoing_adjoints(firsts), running):
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
        op: TypedOperator,
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
        self.numbers = sum(leaf.size for leaf in values)
        self.smallest = smallest_chunk(self.rows, self.numbers)
        self.narrowest = narrowest_columns(self.width, self.numbers)
        column_parts = len(chunk_bounds(self.width, self.narrowest)) - 1
        if parts is None:
            parts = max(1, len(chunk_bounds(self.rows, max(self.smallest, 3 * self.buckets))) - 1)
            parts = parts if parts >= column_parts else 1
        self.parts = parts
        self.bounds = [self.rows * c // parts for c in range(parts + 1)]
        self.far = sum(leaf.nbytes for leaf in destination) > FAR_BYTES

    def kernel(self, purpose: str) -> Callable:
        return kernel(self.op, purpose, self.single, far=self.far)

    def run_whole(self, run: Callable, arrays: Sequence[np.ndarray]) -> None:
        """All rows in order, columns in parallel."""

        def columns(first: int, last: int) -> None:
            run(0, self.rows, first, last, self.width, self.buckets, self.indices, *arrays)

        run_chunks(columns, self.width, self.narrowest)

    def run_rows(self, run: Callable, arrays: Sequence[np.ndarray]) -> None:
        """A kernel whose rows do not depend on each other."""
        rest = (0, self.width, self.width, self.buckets, self.indices, *arrays)
        run_chunks(run, self.rows, self.smallest, *rest)

    def run_parts(
        self,
        run: Callable,
        shared: Sequence[np.ndarray],
        parts: Sequence[np.ndarray],
        behind: Sequence[np.ndarray],
    ) -> None:
        """Chunk c of the rows with part c of `parts`."""
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

    def parts_of(self, purpose: str, values: Sequence[np.ndarray], behind: Sequence[np.ndarray]) -> list[np.ndarray]:
        """[leaf] the parts [part, scalar] after a forward pass over all rows."""
        parts = []
        for leaf, neutral in zip(self.destination, neutral_leaves(self.op)):
            part = np.empty((self.parts, leaf.size), leaf.dtype)
            part[0] = leaf.reshape(-1)
            part[1:].reshape(self.parts - 1, -1, leaf.shape[2])[...] = neutral
            parts.append(part)
        self.run_parts(self.kernel(purpose), flat(values), parts, behind)
        return parts

    def merge(self, parts: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        run = kernel(self.op, "merge", True)
        least = smallest_chunk(self.items, sum(part.size for part in parts))
        run_chunks(run, self.items, least, self.parts, self.items, *flat(parts), *flat(results))

    def merge_back(self, parts: Sequence[np.ndarray], incoming: Sequence[np.ndarray]) -> list[np.ndarray]:
        """[float leaf] adjoints of the parts, which are overwritten."""
        run = kernel(self.op, "merge_back", True)
        prefixes = [np.empty_like(part) for part in parts]
        running = [np.empty_like(parts[leaf]) for leaf in self.op.float_leaves]
        least = smallest_chunk(self.items, sum(part.size for part in parts))
        arrays = [*incoming, *flat(parts), *flat(running), *flat(prefixes)]
        run_chunks(run, self.items, least, self.parts, self.items, *arrays)
        return running


def _extremum_vjp(plan: _Plan, adjoints, destination, values, results, firsts, out) -> bool:
    """Of min and max; all arrays flat."""
    # Cut rows are walked twice, once to tell which part has a bucket's result: two threads would gain nothing, and
    # columns can be cut without.
    cut = plan.parts > 2 and not plan.wide
    run = special.claim if not plan.single else special.claim_far if plan.far else special.claim_near
    least = smallest_chunk(plan.items, plan.items)
    if not cut:
        left, queue = np.empty(plan.items, values.dtype), np.empty(special.QUEUE, np.int64)
        run_chunks(special.offer_whole, plan.items, least, destination, results, adjoints, firsts, left)
        plan.run_whole(run, [values, results, left, queue, out])
        return True
    # Of the values alone: the caller may give a destination that only tells whether it has the result.
    nothing = np.full_like(plan.destination[0], neutral_leaves(plan.op)[0])
    leaf = values.reshape(plan.rows, plan.width, 1)
    parts = _Plan(plan.op, [nothing], plan.indices, [leaf]).parts_of("index", [leaf], [])[0]
    left, queue = np.empty((len(parts), plan.items), values.dtype), np.empty((len(parts), special.QUEUE), np.int64)
    run_chunks(special.offer, plan.items, least, destination, parts, results, adjoints, firsts, left)
    plan.run_parts(run, [values, results], [left, queue], [out])
    return True


def _product_vjp(plan: _Plan, adjoints, destination, values, results, firsts, out) -> bool:
    """Of mul, all arrays flat; False if the generic rule is better, and then nothing is done."""
    if _too_many_to_divide(plan):
        return False
    with np.errstate(all="ignore"):
        scaled = adjoints * results
        bad: Any = special.outside_range(results, scaled, adjoints)
        if np.count_nonzero(bad) * 8 > len(bad):
            return False
        pairs = np.ones((plan.parts, plan.buckets, 2, plan.width), values.dtype)
        pairs[:, :, 0] = scaled.reshape(plan.buckets, plan.width)
        shared, run = [values, values.dtype.type(1)], special.divide_single if plan.single else special.divide
        of_parts = pairs.reshape(plan.parts, -1)
        if plan.parts == 1:
            plan.run_whole(run, [*shared, of_parts[0], out])
        else:
            plan.run_parts(run, shared, [of_parts], [out])
        large = np.maximum(np.abs(destination), 1)
        for part in pairs[:, :, 1]:
            large *= part.reshape(-1)
        bad |= special.parts_outside_range(results, large)
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
    number = np.full(plan.buckets, -1)
    number[buckets] = np.arange(len(buckets))
    inside = (plan.indices >= 0) & (plan.indices < plan.buckets)
    rows = np.flatnonzero(inside & bad[np.where(inside, plan.indices, 0)])
    first, answer = _generic_vjp(
        plan.op,
        [adjoints.reshape(plan.buckets, -1)[buckets].reshape(-1)],
        [plan.destination[0][buckets]],
        number[plan.indices[rows]],
        [values.reshape(plan.rows, plan.width, 1)[rows]],
        None,
    )
    firsts.reshape(plan.buckets, -1)[buckets] = first[0][:, :, 0]
    out.reshape(plan.rows, -1)[rows] = answer[0][:, :, 0]


_SPECIAL_RULES: dict[str, Callable[..., bool]] = {"min": _extremum_vjp, "max": _extremum_vjp, "mul": _product_vjp}
