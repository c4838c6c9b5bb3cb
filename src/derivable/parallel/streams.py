"""Copies of memory past the caches, for arrays that do not fit them.

A processor reads a line before it writes to it, unless it is told that the line will not be needed soon: a copy then
moves two thirds of the bytes. Functions take addresses, not arrays, since lines are the same for all types.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from derivable.core.lazy import whole_import

with whole_import():
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from derivable.device.cpu.compiling import njit
    from derivable.device.cpu.lanes import LINE_BYTES

# Numba passes the typing context itself; type checkers need not know.
_intrinsic: Any = intrinsic


@_intrinsic
def _stream(typingctx, target, source):
    """Write the line at address `source` to address `target`, a multiple of its size, past the caches."""

    def codegen(context, builder, signature, args):
        line = ir.VectorType(ir.IntType(64), LINE_BYTES // 8)
        to, of = (builder.inttoptr(address, line.as_pointer()) for address in args)
        stored = builder.store(builder.load(of, align=1), to, align=LINE_BYTES)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@_intrinsic
def _settle(typingctx):
    """Let no later write be seen before the streamed ones."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@njit(cache=True, nogil=True)
def copy_lines(start, stop, target, source):
    """Lines start..stop of the memory at address `source` to that at `target`, a multiple of a line's size."""
    for line in range(start, stop):
        _stream(target + LINE_BYTES * line, source + LINE_BYTES * line)
    _settle()


def whole_lines(array: np.ndarray) -> tuple[int, int]:
    """(bytes before the first whole line of a contiguous array's memory, number of whole lines)"""
    before = min(-array.ctypes.data % LINE_BYTES, array.nbytes)
    return before, (array.nbytes - before) // LINE_BYTES
