"""Atomic 64-bit integers in arrays, and how a spinning kernel waits: for kernels that several threads run together.

`position` is an index into a 1-d int64 array that is not negative. Loads acquire, stores release, the others do both.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# Numba passes the typing context itself; type checkers need not know.
_intrinsic: Any = intrinsic
_I64 = ir.IntType(64)
_X86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def _pointer(context, builder, signature, args):
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.gep(data, [context.cast(builder, args[1], signature.args[1], types.intp)])


@_intrinsic
def atomic_load(typingctx, array, position):
    """array[position]; what the thread that stored it wrote before is visible."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_pointer(context, builder, signature, args), "acquire", 8)

    return types.int64(array, position), codegen


@_intrinsic
def atomic_store(typingctx, array, position, value):
    """array[position] = value, after everything that this thread wrote before."""

    def codegen(context, builder, signature, args):
        value = context.cast(builder, args[2], signature.args[2], types.int64)
        builder.store_atomic(value, _pointer(context, builder, signature, args), "release", 8)
        return context.get_dummy_value()

    return types.void(array, position, value), codegen


@_intrinsic
def atomic_add(typingctx, array, position, value):
    """array[position] += value; returns what was there before."""

    def codegen(context, builder, signature, args):
        value = context.cast(builder, args[2], signature.args[2], types.int64)
        return builder.atomic_rmw("add", _pointer(context, builder, signature, args), value, "seq_cst")

    return types.int64(array, position, value), codegen


@_intrinsic
def atomic_replace(typingctx, array, position, expected, value):
    """Write value if array[position] is `expected`; returns whether it was."""

    def codegen(context, builder, signature, args):
        expected = context.cast(builder, args[2], signature.args[2], types.int64)
        value = context.cast(builder, args[3], signature.args[3], types.int64)
        pointer = _pointer(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(pointer, expected, value, "acq_rel", "acquire"), 1)

    return types.boolean(array, position, expected, value), codegen


@_intrinsic
def pause(typingctx):
    """Tell the core that this thread spins; nothing on machines without such an instruction."""

    def codegen(context, builder, signature, args):
        if _X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), codegen


if hasattr(os, "sched_yield"):
    _sched_yield: Any = types.ExternalFunction("sched_yield", types.int32())

    @njit(cache=True, nogil=True)
    def give_way():
        """Let another thread have the core, if one waits for it."""
        _sched_yield()

else:

    @njit(cache=True, nogil=True)
    def give_way():
        """Let another thread have the core, if one waits for it."""
        pause()
