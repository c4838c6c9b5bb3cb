"""Plain pointers to the elements of arrays, for kernels that are made of several functions.

Numba counts references to every array that a function takes, also within compiled code: calls on short ways
through a loop then cost more than the work. A pointer is a number: passing it is free, functions that take
pointers are inlined, and `p[i]` has no check for a negative index. Nothing keeps the array alive and nothing
checks bounds, so a kernel makes its pointers from its own arguments and does not return them.
"""

from __future__ import annotations

from numba import types

from derivable.device.cpu.lanes import intrinsic


@intrinsic
def pointer(typingctx, array):
    """Pointer to the first element of a contiguous array; p[i] is array[i]."""

    def codegen(context, builder, signature, args):
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen
