"""Kernels whose outermost loop is cut into pieces, one for each thread.

The cut is by entries where rows of compressed storage are of different lengths. Pieces that write to rows of their own
write to the result; others add up into results of their own, which are added in the order of the pieces. So the same
input and number of threads give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from derivable.algebra.expr.functions import apply
from derivable.algebra.expr.nodes import Expr
from derivable.algebra.semiring import TypedSemiring
from derivable.device.cpu.llvm_code import compile_kernel
from derivable.device.cpu.memory import full
from derivable.device.cpu.threads import get_num_threads, run_chunks
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute
from derivable.tensor.lower.coalesce import coalesced
from derivable.tensor.lower.prefetch import with_prefetches
from derivable.tensor.lower.results import INSIDE, WITH_NAN

# Entries of the largest array below which one thread runs a kernel, and one with more than two loops in one another;
# how many of them there must be for each entry of the results that are added up (docs/decisions/088-tensor-threads.md).
LEAST, LEAST_DEEP, LEAST_SHARE = 1 << 17, 1 << 15, 4


@dataclass(frozen=True)
class Starts:
    """Where the additions of each piece begin, as its first run found out.

    numbers       [piece + 1]
    has_own_rows  whether no two pieces add to the same entry
    """

    numbers: np.ndarray
    has_own_rows: bool

    def are_apart(self, positions: np.ndarray) -> bool:
        """Whether the entries that pieces add to, [addition], come one piece after the other."""
        parts = [positions[a:b] for a, b in pairwise(self.numbers) if a < b]
        return all(left.max() < right.min() for left, right in pairwise(parts))


@dataclass(frozen=True)
class ParallelLoops:
    """A kernel in pieces.

    kernel        as the whole one, and its last parameters are the number of the piece, how many there are, and the
                  first addition of this piece
    kind          where the result goes, as in `Spec`; "number" for one
    has_own_rows  whether no two pieces write to the same entry of a dense result
    """

    kernel: n.Kernel
    kind: str
    has_own_rows: bool
    semiring: TypedSemiring

    @property
    def is_numbered(self) -> bool:
        """Whether it must be known where the additions of each piece begin."""
        return self.kind in ("places", "append", "positions", "positions64")

    @cached_property
    def least(self) -> int:
        return LEAST if _depth(self.kernel.body) <= 2 else LEAST_DEEP

    @cached_property
    def run(self) -> Callable:
        return compile_kernel(with_prefetches(self.kernel))


def in_parallel_loops(
    build: Builder,
    kernel: n.Kernel,
    offsets: Collection[n.Array],
    results: Collection[n.Array],
    returned: Collection[n.Register],
    private: Collection[n.Register],
    count: n.Register | None,
    rows: Collection[Expr],
) -> tuple[n.Kernel, bool] | None:
    """A kernel that runs one piece of the outermost loop, and whether pieces have rows of their own; None where what it
    does cannot be cut.

    offsets   arrays that ascend
    results   arrays that the kernel writes results to
    returned  registers whose values of pieces can be joined: what the kernel returns, and its count
    private   registers of workspaces, of which each piece has its own
    count     how many additions there were so far
    rows      the indices of the rows that are written to
    """
    *before, loop, end = kernel.body
    if not isinstance(loop, n.For) or not isinstance(end, n.Return) or loop.step != 1 or loop.down:
        return None
    # What comes before the loop is done by each piece.
    early = [part for part in n.walk(tuple(before)) if isinstance(part, n.Store) and part.array in results]
    early += [part for part in before if n.blocks_of(part) and _assigned([part]) & set(returned)]
    if early or not _assigned(before) & _assigned([loop]) <= {*returned, *private}:
        return None
    piece, pieces, first = (build.register(name) for name in ("piece", "pieces", "first_addition"))
    if count is not None:
        before = [n.Assign((count,), (first,)) if _assigned([part]) == {count} else part for part in before]
    weights = _weights(loop, offsets)
    with build.block() as bounds:
        low = _bound(build, loop, piece, pieces, weights)
        high = _bound(build, loop, piece + 1, pieces, weights)
    cut = replace(loop, start=low, stop=high)
    body = (*before, *bounds, cut, end)
    parameters = (*kernel.parameters, piece, pieces, first)
    made = replace(kernel, name=f"{kernel.name}_piece", parameters=parameters, body=body)
    return coalesced(made, offsets, low), set(rows) == {loop.target}


def _assigned(block: Sequence[n.Statement]) -> set[n.Register]:
    found: set[n.Register] = set()
    for part in n.walk(tuple(block)):
        found.update(getattr(part, "targets", ()))
        found.update(x for x in (getattr(part, name, None) for name in ("target", "slot", "tag")) if x is not None)
    return found


def _weights(loop: n.For, offsets: Collection[n.Array]) -> n.Array | None:
    """Offsets of the entries of each round."""
    for part in loop.body:
        if isinstance(part, n.Load) and part.array in offsets and part.index == loop.target:
            return part.array
    return None


def _bound(build: Builder, loop: n.For, number: Expr, pieces: Expr, weights: n.Array | None) -> n.Register:
    """Where a piece begins: entries before it and rounds before it are together as many as the others' share."""
    start, stop = build.let("low", loop.start), build.let("high", loop.stop)
    if weights is None:
        return build.let("bound", start + apply("floor_divide", (stop - start) * number, pieces))
    first, last = build.load(weights, start, "weight"), build.load(weights, stop, "weight")
    before = first + start
    share = build.let("share", before + apply("floor_divide", (last + stop - before) * number, pieces))
    with build.while_(start < stop):
        middle = build.let("middle", apply("floor_divide", start + stop, 2))
        weight = build.load(weights, middle, "weight")
        with build.when(weight + middle < share):
            build.set(start, middle + 1)
        with build.otherwise():
            build.set(stop, middle)
    return start


def in_threads(
    whole: Callable, made: ParallelLoops, arguments: Sequence[tuple[str, Any, Any]], starts: Starts | None, most: int
) -> Callable:
    """The kernel as a function of its arguments, cut for the threads that there are.

    arguments  where they come from, as in `Built`
    starts     of additions that are numbered
    most       entries of the largest array

    A "count" of several pieces returns how many additions each has as well: [piece].
    """
    own = [k for k, (source, _, _) in enumerate(arguments) if source == "space"]
    out = [k for k, (source, name, _) in enumerate(arguments) if (source, name) == ("out", "values")]
    has_own_rows = made.has_own_rows if starts is None else starts.has_own_rows
    places = own if has_own_rows else [*own, *out]

    def run(*given: Any) -> Any:
        num = get_num_threads() if starts is None else len(starts.numbers) - 1
        is_costly = not has_own_rows and any(given[k].size * num * LEAST_SHARE > most for k in out)
        if num == 1 or is_costly:
            return whole(*given)
        calls = [_arguments(made, given, c, num, starts, own, places) for c in range(num)]
        piece = made.run
        chunks = run_chunks(lambda first, last: [piece(*calls[c]) for c in range(first, last)], num, 1)
        found = [result for chunk in chunks for result in chunk]
        if not has_own_rows and out:
            for c in range(1, num):
                _add(made.semiring, [calls[0][k] for k in out], [calls[c][k] for k in out])
        return _joined(made, found)

    return run


def _depth(block: Sequence[n.Statement]) -> int:
    """How many loops are in one another."""
    return max((isinstance(part, n.For) + _depth(inner) for part in block for inner in n.blocks_of(part)), default=0)


def _arguments(
    made: ParallelLoops,
    given: Sequence[Any],
    number: int,
    num: int,
    starts: Starts | None,
    own: list[int],
    places: list[int],
) -> list[Any]:
    """Those of a piece: what others write to as well is its own."""
    taken = list(given)
    for k in places if number else ():
        like = given[k]
        zero = 0 if k in own else made.semiring.zero[0]
        taken[k] = full(like.size, zero, like.dtype)
    return [*taken, number, num, 0 if starts is None else int(starts.numbers[number])]


def _joined(made: ParallelLoops, found: list[Any]) -> Any:
    if made.kind == "number":
        total = found[0]
        for value in found[1:]:
            total = made.semiring.semiring.plus(total, value)
        return total
    if made.kind != "count":
        outside = next((outside for outside in reversed(found) if outside not in (INSIDE, WITH_NAN)), None)
        return max(found) if outside is None else outside
    outside = next((result[0] for result in reversed(found) if result[0] != INSIDE), INSIDE)
    counts = np.array([result[1] for result in found])
    return outside, int(counts.sum()), counts


def _add(semiring: TypedSemiring, into: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> None:
    kernel = _adding(semiring)
    flat = [array.reshape(-1) for array in (*into, *others)]
    run_chunks(lambda first, last: kernel(first, last, *flat), flat[0].size, LEAST)


@lru_cache(16)
def _adding(semiring: TypedSemiring) -> Callable:
    build = Builder("add_up")
    first, last = build.scalar("first"), build.scalar("last")
    into, others = (
        [build.array(f"{name}{c}", d) for c, d in enumerate(semiring.dtypes)] for name in ("into", "others")
    )
    plus = semiring.plus
    with build.loop("i", first, last) as i:
        left = [build.load(a, i, "left", d) for a, d in zip(into, semiring.dtypes)]
        right = [build.load(a, i, "right", d) for a, d in zip(others, semiring.dtypes)]
        sums = substitute(plus.values, dict(zip((*plus.left, *plus.right), (*left, *right))))
        for a, x in zip(into, sums):
            build.store(a, i, x)
    return compile_kernel(build.kernel())
