"""Plain pointers to the elements of arrays, for kernels that are made of several functions.

Numba counts references to every array that a function takes, also within compiled code: calls on short ways
through a loop then cost more than the work. A pointer is a number: passing it is free, functions that take
pointers are inlined, and `p[i]` has no check for a negative index. Nothing keeps the array alive and nothing
checks bounds, so a kernel makes its pointers from its own arguments and does not return them. An array that a kernel
makes is given back after the last mention of its name, though a pointer to it is still in use: what a call needs for
itself is `scratch`.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import extending, types

from derivable.device.cpu.building.numba_parts import cgutils
from derivable.device.cpu.building.place_code import intrinsic
from derivable.device.cpu.memory import LINE_BYTES

_with_constants: Any = extending.intrinsic(prefer_literal=True)


@intrinsic
def pointer(typingctx, array):
    """Pointer to the first element of a contiguous array; p[i] is array[i]."""

    def codegen(context, builder, signature, args):
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@_with_constants
def scratch(typingctx, dtype, count):
    """Pointer to `count` numbers of an integer type that nobody has written; they live until the function returns.

    count  a constant; they lie on the stack of the thread, so they are few
    """
    if not isinstance(count, types.IntegerLiteral):
        return None
    element = dtype.dtype

    def codegen(context, builder, signature, args):
        return cgutils.alloca_once(builder, context.get_data_type(element), ir.IntType(64)(count.literal_value))

    return types.CPointer(element)(dtype, count), codegen


@intrinsic
def eight_bytes(typingctx, data, position):
    """data[position : position + 8] as a little-endian uint64."""

    def codegen(context, builder, signature, args):
        place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(64).as_pointer())
        word = builder.load(place, align=1)
        return word if sys.byteorder == "little" else builder.bswap(word)

    return types.uint64(data, types.int64), codegen


@intrinsic
def stream(typingctx, target, source):
    """Write the line at address `source` to address `target`, a multiple of its size, past the caches."""

    def codegen(context, builder, signature, args):
        line = ir.VectorType(ir.IntType(64), LINE_BYTES // 8)
        to, of = (builder.inttoptr(address, line.as_pointer()) for address in args)
        stored = builder.store(builder.load(of, align=1), to, align=LINE_BYTES)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def fence(typingctx):
    """Let no later write be seen before the streamed ones."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen
