"""Reduce-by-index and its reverse rule, lowered to the loop IR for any operator.

Rows are taken in order; a row's bucket is `indices[row]`, and rows whose bucket is not one are left out. Buckets that
do not fit a near cache are prefetched (`prefetch`). Most rows of a bucket with many do not change its extremum,
and a store would make the next row wait, so near extrema are compared four rows at a time (`unroll`); far ones are
selected without a branch, since a wrong guess waits for memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

from derivable.algebra.expr.functions import cast, less, less_equal, logical_not, maximum, minimum, not_equal
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.algebra.typed import TypedMonoid
from derivable.device.cpu.memory import LINE_BYTES
from derivable.kernel import nodes as n
from derivable.kernel.schedule import Schedule
from derivable.parallel.fold_kernels import Arrays, FoldBuilder, needs

# How many rows are prefetched at a time, a cache line's of float32, and how many rows ahead.
_LINE, _ROWS_AHEAD = 16, 512


def index_kernel(
    op: TypedMonoid, schedule: Schedule, single: bool, indices: str, rows: str, keeps: bool = False
) -> n.Kernel:
    """index(start, stop, first, last, width, buckets, indices, v.., h.., l..): rows of `v` folded into buckets `h`.

    indices, rows  dtypes: of the indices, and of row numbers where there are some
    keeps          whether there is `l` [leaf whose prefixes the vjp reads], for what each row finds in its bucket
    """
    k = _ByIndex("index", op, schedule, single, indices)
    values, found = k.leaf_arrays("v"), k.leaf_arrays("h")
    kept = k.leaf_arrays("l", needs(op).prefix_leaves(op)) if keeps else {}
    if schedule.unroll > 1:
        k.compared(values[0], found[0], lambda e, bucket, b: k.store(found[0], bucket, b))
        return k.kernel()
    changed = [c for c in k.all if k.op.values[c] is not k.op.left[c]]

    def step(e: Expr, bucket: Expr) -> None:
        with k.columns(e, bucket) as (p, q):
            a, b = k.read(found, q, "a"), k.read(values, p, "b")
            if kept:
                k.write(kept, p, {c: a[c] for c in k.prefixes})
            k.write(found, q, k.computed("r", k.folded(a, b, changed)))

    def outside(e: Expr) -> None:
        with k.columns(e) as (p,):
            k.write(kept, p, {c: Constant(0, k.op.dtypes[c]) for c in k.prefixes})

    k.elements(step, found, list(values.values()), outside if kept else None)
    return k.kernel()


def index_back_kernel(op: TypedMonoid, schedule: Schedule, single: bool, indices: str, rows: str) -> n.Kernel:
    """index_back(..., v.., l.., c.., o..): adjoints `o` of the rows, from the last to the first.

    c  [float leaf] the running adjoints of the buckets. Where they stay as they are nothing is written to them
    """
    k = _ByIndex("index_back", op, schedule, single, indices)
    values, kept = k.leaf_arrays("v"), k.leaf_arrays("l", needs(op).prefix_leaves(op))
    running, out = k.leaf_arrays("c", op.float_leaves), k.leaf_arrays("o", op.float_leaves)
    rules = k.op.adjoints
    changed = [c for c in k.floats if rules.left[c] is not rules.arguments[c]]

    def step(e: Expr, bucket: Expr) -> None:
        with k.columns(e, bucket, down=True) as (p, q):
            r = k.read(running, q, "r", k.floats)
            a, b = k.read(kept, p, "a", k.prefixes), k.read(values, p, "b", k.rights)
            made = k.stepped_back(a, b, None, r)
            k.write(running, q, {c: r[c] for c in changed})
            k.write(out, p, made)

    def outside(e: Expr) -> None:
        with k.columns(e) as (p,):
            k.write(out, p, k.zeros())

    read = {k.leaf_of(c) for c in k.rights}
    rows_read = [*kept.values(), *(values[leaf] for leaf in sorted(read)), *out.values()]
    k.elements(step, running, rows_read, outside, down=True)
    return k.kernel()


def index_winners_kernel(op: TypedMonoid, schedule: Schedule, single: bool, indices: str, rows: str) -> n.Kernel:
    """index_winners(..., v0, h0, l0): `index` of an extremum; `l0` the row whose number a bucket has, if one."""
    k = _ByIndex("index_winners", op, schedule, single, indices)
    values, found, winners = k.leaf_arrays("v"), k.leaf_arrays("h"), k.array("l0", rows)

    def change(e: Expr, bucket: Expr, b: Expr) -> None:
        k.store(found[0], bucket, b)
        k.store(winners, bucket, e)

    if schedule.unroll > 1:
        k.compared(values[0], found[0], change)
        return k.kernel()

    def step(e: Expr, bucket: Expr) -> None:
        with k.columns(e, bucket) as (p, q):
            a, b = k.read(found, q, "a"), k.read(values, p, "b")
            stays = k.let("stays", k.stays(a[0], b[0]))
            k.store(found[0], q, k.choose("best", stays, a[0], b[0]))
            k.store(winners, q, k.choose("row", stays, k.load(winners, q, "won", rows), k.let("mine", e, rows)))

    k.elements(step, {**found, 1: winners}, list(values.values()))
    return k.kernel()


def merge_kernel(op: TypedMonoid, schedule: Schedule, single: bool, indices: str, rows: str) -> n.Kernel:
    """merge(start, stop, parts, items, h.., o..): parts [part, item] of items start..stop, folded in order."""
    k = _Merge("merge", op, schedule, single)
    found, out = k.leaf_arrays("h"), k.leaf_arrays("o")
    with k.loop("m", k.start, k.stop) as m:
        a = k.read(found, m, "a")
        with k.others(m) as q:
            k.assign(a, k.folded(a, k.read(found, q, "b")))
        k.write(out, m, a)
    return k.kernel()


def merge_winners_kernel(op: TypedMonoid, schedule: Schedule, single: bool, indices: str, rows: str) -> n.Kernel:
    """merge_winners(..., h0, l0, o0, x0): `merge` of an extremum; the parts' rows `l0`, of those that win to `x0`."""
    k = _Merge("merge_winners", op, schedule, single)
    found, winners, out, won = k.leaf_arrays("h"), k.array("l0", rows), k.leaf_arrays("o"), k.array("x0", rows)
    with k.loop("m", k.start, k.stop) as m:
        a, row = k.read(found, m, "a"), k.load(winners, m, "row", rows)
        with k.others(m) as q:
            b = k.read(found, q, "b")
            stays = k.let("stays", k.stays(a[0], b[0]))
            k.set(row, k.choose("row", stays, row, k.load(winners, q, "other", rows)))
            k.set(a[0], k.choose("best", stays, a[0], b[0]))
        k.write(out, m, a)
        k.store(won, m, row)
    return k.kernel()


def merge_back_kernel(op: TypedMonoid, schedule: Schedule, single: bool, indices: str, rows: str) -> n.Kernel:
    """merge_back(..., g.., h.., c.., x..): from adjoints `g` [item] those of the parts `c` [part, item].

    x  [part, item] scratch for prefixes
    """
    k = _Merge("merge_back", op, schedule, single)
    given, found, out = k.leaf_arrays("g", op.float_leaves), k.leaf_arrays("h"), k.leaf_arrays("c", op.float_leaves)
    kept = k.leaf_arrays("x")
    with k.loop("m", k.start, k.stop) as m:
        a = k.read(found, m, "a")
        with k.others(m) as q:
            k.write(kept, q, a)
            k.assign(a, k.folded(a, k.read(found, q, "b")))
        r = k.read(given, m, "r", k.floats)
        with k.others(m, down=True) as q:
            before, b = k.read(kept, q, "a", k.prefixes), k.read(found, q, "b", k.rights)
            k.write(out, q, k.stepped_back(before, b, None, r))
        k.write(out, m, r)
    return k.kernel()


class _Extremum(FoldBuilder):
    def stays(self, a: Expr, b: Expr) -> Expr:
        """Whether the extremum of a and b is a, what is not a number included."""
        return self.is_better(a, b) | not_equal(a, a)

    def is_better(self, a: Expr, b: Expr) -> Expr:
        """Whether a is at least as good as b."""
        return less_equal(b, a) if self.op.special == "max" else less_equal(a, b)


class _Merge(_Extremum):
    def __init__(self, name: str, op: TypedMonoid, schedule: Schedule, single: bool):
        super().__init__(name, op, schedule, single)
        self.start, self.stop, self.parts, self.items = (
            self.scalar(name) for name in ("start", "stop", "parts", "items")
        )

    @contextmanager
    def others(self, item: Expr, down: bool = False) -> Iterator[Expr]:
        """The position of an item in each part but the first."""
        with self.loop("c", 1, self.parts, down) as part:
            yield self.let("q", part * self.items + item)


class _ByIndex(_Extremum):
    def __init__(self, name: str, op: TypedMonoid, schedule: Schedule, single: bool, indices: str):
        super().__init__(name, op, schedule, single)
        self.start, self.stop, *_ = self.bounds()
        self.buckets = self.scalar("buckets")
        self.indices = self.array("indices", indices)

    def is_bucket(self, bucket: Expr) -> Expr:
        # One comparison, for those below zero too.
        return less(cast(bucket, "uint64"), cast(self.buckets, "uint64"))

    def elements(
        self,
        step: Callable[[Expr, Expr], None],
        buckets: Arrays,
        rows: Sequence[n.Array],
        outside: Callable[[Expr], None] | None = None,
        down: bool = False,
    ) -> None:
        """`step(row, bucket)` for each row of the range, `outside(row)` where its bucket is none.

        buckets  the arrays that are read at the bucket, by leaf; what is no leaf has elements of one scalar
        rows     the arrays that are read or written at the row
        """
        far = self.schedule.prefetch
        sizes = [(array, self.op.leaf_sizes[leaf] if leaf < len(self.leaves) else 1) for leaf, array in buckets.items()]

        def one(e: Expr, ahead: Expr | None = None) -> None:
            bucket = self.load(self.indices, e, "k")
            if ahead is not None:
                self._ask(sizes, self.load(self.indices, ahead, "ahead"))
            with self.when(self.is_bucket(bucket)):
                step(e, bucket)
            if outside is not None:
                with self.otherwise():
                    outside(e)

        if not far or not self.single:
            with self.loop("e", self.start, self.stop, down) as e:
                if not far:
                    one(e)
                else:
                    one(e, maximum(e - far, self.start) if down else minimum(e + far, self.stop - 1))
            return
        # For single numbers a loop of its own for the last ones costs less than a minimum for each. Between many
        # buckets the processor loses sight of the rows, so their lines are prefetched as well.
        turn = self.let("turn", self.stop if down else self.start)
        left = turn - self.start if down else self.stop - turn
        sign = -1 if down else 1
        with self.while_(less_equal(_LINE + far, left)):
            for array in (self.indices, *rows):
                self.prefetch(array, turn + sign * _ROWS_AHEAD)
            with self.loop("e", turn - _LINE if down else turn, turn if down else turn + _LINE, down) as e:
                one(e, e + sign * far)
            self.set(turn, turn + sign * _LINE)
        with self.loop("e", self.start if down else turn, turn if down else self.stop, down) as e:
            one(e)

    def _ask(self, buckets: Sequence[tuple[n.Array, int]], bucket: Expr) -> None:
        for array, size in buckets:
            if self.single:
                self.prefetch(array, bucket * size)
                continue
            first, last, width = self._columns
            itemsize = 8 if array.dtype in ("int64", "float64") else 1 if array.dtype == "bool" else 4
            with self.loop("line", first * size, last * size, step=LINE_BYTES // itemsize) as line:
                self.prefetch(array, bucket * width * size + line)

    def compared(self, values: n.Array, found: n.Array, change: Callable[[Expr, Expr, Expr], None]) -> None:
        """Extrema of one column: `change(row, bucket, number)` where a row's number takes the place of its bucket's."""

        def one(e: Expr) -> None:
            bucket = self.load(self.indices, e, "k")
            with self.when(self.is_bucket(bucket)):
                a, b = self.load(found, bucket, "a"), self.load(values, e, "b")
                with self.when(logical_not(self.stays(a, b))):
                    change(e, bucket, b)

        steps, turn = self.schedule.unroll, self.let("turn", self.start)
        with self.while_(less_equal(turn + steps, self.stop)):
            places = [self.load(self.indices, turn + d, "k") for d in range(steps)]
            quiet = self.let("quiet", False)
            with self.when(reduce(lambda a, b: a & b, [self.is_bucket(place) for place in places])):
                most = [
                    self.is_better(self.load(found, place, "a"), self.load(values, turn + d, "b"))
                    for d, place in enumerate(places)
                ]
                self.set(quiet, reduce(lambda a, b: a & b, most))
            with self.when(logical_not(quiet)), self.loop("e", turn, turn + steps) as e:
                one(e)
            self.set(turn, turn + steps)
        with self.loop("e", turn, self.stop) as e:
            one(e)
