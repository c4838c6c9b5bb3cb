"""Kernels of column programs on devices: scalar operations of each row, and folds of segments by any operator."""

from __future__ import annotations

from derivable.algebra.expr.functions import less, logical_not, where
from derivable.algebra.expr.nodes import Constant
from derivable.algebra.typed import TypedMonoid
from derivable.kernel import nodes as n
from derivable.kernel.build import Builder, substitute
from derivable.parallel.program.function import Function


def apply_kernel(function: Function, lanes: int) -> n.Kernel:
    """apply_rows(rows, tiles, given ..., found ...): what a function gives for each row, in tiles of `lanes` rows."""
    k = Builder("apply_rows", lanes)
    rows, tiles = k.scalar("rows"), k.scalar("tiles")
    given = [k.array(f"given{i}_", x.dtype) for i, x in enumerate(function.arguments)]
    found = [k.array(f"found{i}_", x.dtype) for i, x in enumerate(function.values)]
    with k.loop("tile", 0, tiles, parallel=True) as tile:
        start = tile * lanes
        operands = {}
        for array, argument in zip(given, function.arguments):
            operands[argument] = k.register("operand", argument.dtype)
            k.load_line(operands[argument], array, start, count=rows - start)
        for array, value in zip(found, substitute(function.values, operands)):
            k.store_line(array, start, value, count=rows - start)
    return k.kernel()


def fold_segments_kernel(monoid: TypedMonoid, lanes: int) -> n.Kernel:
    """fold_segments(segments, tiles, offsets, values ..., found ...): each lane folds a segment from its first row on.

    offsets  [segment + 1] where segments begin and end; an empty one gives the neutral element
    """
    k = Builder("fold_segments", lanes)
    segments, tiles = k.scalar("segments"), k.scalar("tiles")
    offsets = k.array("offsets", "int64")
    dtypes = monoid.dtypes
    neutral = [Constant(x.item(), of) for x, of in zip(monoid.neutral, dtypes)]
    values, found = ([k.array(f"{name}{i}_", of) for i, of in enumerate(dtypes)] for name in ("values", "found"))
    with k.loop("tile", 0, tiles, parallel=True) as tile:
        count = segments - tile * lanes
        lane = k.lane_numbers()
        at, end = k.register("at"), k.register("end")
        is_segment = less(lane, count)
        k.gather(at, offsets, tile * lanes + lane, is_segment)
        k.gather(end, offsets, tile * lanes + lane + 1, is_segment)
        total = k.registers("total", dtypes)
        for register, array, value in zip(total, values, neutral):
            k.gather(register, array, at, less(at, end), value)
        k.set(at, at + 1)
        is_open = k.register("is_open")
        k.set(is_open, where(k.all_lanes("is_over", logical_not(less(at, end))), 0, 1))
        with k.while_(less(0, is_open)):
            is_row = k.let("is_row", less(at, end))
            row = k.registers("row", dtypes)
            for register, array, value in zip(row, values, neutral):
                k.gather(register, array, at, is_row, value)
            both = substitute(monoid.values, {**dict(zip(monoid.left, total)), **dict(zip(monoid.right, row))})
            k.set(total, [where(is_row, new, old) for new, old in zip(both, total)])
            k.set(at, at + 1)
            k.set(is_open, where(k.all_lanes("is_over", logical_not(less(at, end))), 0, 1))
        for array, register in zip(found, total):
            k.store_line(array, tile * lanes, register, count=count)
    return k.kernel()
