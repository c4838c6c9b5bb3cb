"""Plain pointers to the elements of arrays, for kernels that are made of several functions.

Numba counts references to every array that a function takes, also within compiled code: calls on short ways
through a loop then cost more than the work. A pointer is a number: passing it is free, functions that take
pointers are inlined, and `p[i]` has no check for a negative index. Nothing keeps the array alive and nothing
checks bounds, so a kernel makes its pointers from its own arguments and does not return them. An array that a kernel
makes is given back after the last mention of its name, though a pointer to it is still in use: what a call needs for
itself is `scratch`.
"""

from __future__ import annotations

from typing import Any

from derivable.core.lazy import whole_import

with whole_import():
    from llvmlite import ir
    from numba import extending, types

    from derivable.device.cpu.compiling import cgutils
    from derivable.device.cpu.lanes import intrinsic

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
