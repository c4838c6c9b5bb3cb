"""Folds of segments and their reverse rule, lowered to the loop IR for any operator.

A single column goes by lines where its operator commutes, lanes compute it, and it multiplies nothing: two lines
of sums (or whatever it is) at a time, which are joined at the end of the segment. A result that is not finite is
computed once more row by row.
"""

from __future__ import annotations

from derivable.algebra.expr.functions import equal, less_equal
from derivable.algebra.expr.nodes import Constant, Expr
from derivable.algebra.typed import TypedMonoid
from derivable.kernel import nodes as n
from derivable.kernel.schedule import Schedule
from derivable.parallel.fold_kernels import (
    Arrays,
    FoldBuilder,
    Registers,
    commutes,
    factors,
    is_finite,
    needs,
    rounds,
)


def segment_kernel(op: TypedMonoid, schedule: Schedule, single: bool) -> n.Kernel:
    """segment(start, stop, first, last, width, offsets, v.., o..): the fold of each segment start..stop."""
    k = FoldBuilder("segment", op, schedule, single)
    start, stop, *_ = k.bounds()
    offsets = k.array("offsets", "int64")
    values, out = k.leaf_arrays("v"), k.leaf_arrays("o")
    with k.loop("s", start, stop) as s:
        head, tail = k.load(offsets, s, "head"), k.load(offsets, s + 1, "tail")
        with k.when(equal(head, tail)):
            with k.columns(s) as (p,):
                k.write(out, p, k.neutral())
            k.continue_()
        if schedule.lanes > 1:
            _by_lines(k, s, head, tail, values, out)
        with k.columns(head, s) as (p, q):
            a = k.read(values, p, "a")
            k.keep(out, q, a)
        with k.loop("e", head + 1, tail) as e, k.columns(e, s) as (p, q):
            a = k.carried(a, out, q, "a")
            k.keep(out, q, k.carry(a, k.folded(a, k.read(values, p, "b"))))
        if single:
            k.write(out, s, a)
    return k.kernel()


def _by_lines(k: FoldBuilder, s: n.Register, head: n.Register, tail: n.Register, values: Arrays, out: Arrays) -> None:
    lanes = k.lanes

    def line(row: Expr, name: str) -> Registers:
        found = k.named(name)
        for c, register in found.items():
            k.load_line(register, values[k.leaf_of(c)], row)
        return found

    with k.when(less_equal(2 * lanes, tail - head)):
        # Two lines: one would wait for itself.
        even, odd = line(head, "even"), line(head + lanes, "odd")
        row = k.let("row", head + 2 * lanes)
        with k.while_(less_equal(row + 2 * lanes, tail)):
            k.assign(even, k.folded(even, line(row, "x")))
            k.assign(odd, k.folded(odd, line(row + lanes, "y")))
            k.set(row, row + 2 * lanes)
        k.assign(even, k.folded(even, odd))
        k.scan_line(list(even.values()), k.op)
        a = k.named("total")
        for c in k.all:
            k.last_lane(even[c], even[c])
            k.first_lane(a[c], even[c])
        with k.loop("e", row, tail) as e:
            k.assign(a, k.folded(a, k.read(values, e, "b")))
        fine: Expr = Constant(True, "bool")
        for c in k.floats:
            if rounds(k.op.values[c]):
                fine = fine & is_finite(a[c], k.stored.dtypes[c])
        with k.when(fine):
            k.write(out, s, a)
            k.continue_()


def segment_back_kernel(op: TypedMonoid, schedule: Schedule, single: bool) -> n.Kernel:
    """segment_back(start, stop, first, last, width, offsets, g.., v.., o.., l.., x..): adjoints of the values.

    g, o  [float leaf] adjoints of the results, and of the values
    l     [leaf whose prefixes the vjp reads] the exclusive prefixes; may be the memory of `o`
    x     [leaf] one row of scratch, for several columns
    """
    k = FoldBuilder("segment_back", op, schedule, single)
    start, stop, *_ = k.bounds()
    offsets = k.array("offsets", "int64")
    floats = op.float_leaves
    given, values, out = k.leaf_arrays("g", floats), k.leaf_arrays("v"), k.leaf_arrays("o", floats)
    kept = k.leaf_arrays("l", needs(op).prefix_leaves(op))
    running = k.leaf_arrays("x")
    zero = Constant(0, "int64")
    with k.loop("s", start, stop) as s:
        head, tail = k.load(offsets, s, "head"), k.load(offsets, s + 1, "tail")
        with k.when(equal(head, tail)):
            k.continue_()
        if k.prefixes:
            with k.columns(head, zero) as (p, z):
                a = k.read(values, p, "a")
                k.keep(running, z, a)
            with k.loop("e", head + 1, tail) as e, k.columns(e, zero) as (p, z):
                a = k.carried(a, running, z, "a")
                k.write(kept, p, {c: a[c] for c in k.prefixes})
                k.keep(running, z, k.carry(a, k.folded(a, k.read(values, p, "b"))))
        # The running adjoint lives in the first row, which needs no prefix.
        with k.columns(s, head) as (p, q):
            r = k.read(given, p, "r", k.floats)
            k.keep(out, q, r)
        with k.loop("e", head + 1, tail, down=True) as e, k.columns(e, head, down=True) as (p, q):
            r = k.carried(r, out, q, "r", k.floats)
            a, b = k.read(kept, p, "a", k.prefixes), k.read(values, p, "b", k.rights)
            made = k.stepped_back(a, b, None, r)
            k.keep(out, q, r)
            k.write(out, p, made)
        if single:
            k.write(out, head, r)
    return k.kernel()


def goes_by_lines(op: TypedMonoid) -> bool:
    """Whether lanes may fold a segment's rows in another order: it commutes, and no line's factors can leave the range
    of numbers that its rows do not leave."""
    return op.size <= 4 and set(op.leaf_sizes) == {1} and commutes(op) and not factors(op)
