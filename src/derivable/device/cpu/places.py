"""Scalars of one-dimensional arrays by position, for generated kernels.

A position is not negative, so nothing checks for counting from the end: such a check costs an instruction for each
access and keeps loops from becoming vector code.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# Numba passes the typing context itself; type checkers need not know.
_intrinsic: Any = intrinsic


def _address(context, builder, array_type, array, position_type, position):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [context.cast(builder, position, position_type, types.intp)])


@_intrinsic
def load(typingctx, array, position):
    """array[position]"""

    def codegen(context, builder, signature, args):
        pointer = _address(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        return context.unpack_value(builder, signature.return_type, pointer)

    return array.dtype(array, position), codegen


@_intrinsic
def store(typingctx, array, position, value):
    """array[position] = value, converted to the array's type."""

    def codegen(context, builder, signature, args):
        pointer = _address(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        value = context.cast(builder, args[2], signature.args[2], signature.args[0].dtype)
        context.pack_value(builder, signature.args[0].dtype, value, pointer)
        return context.get_dummy_value()

    return types.void(array, position, value), codegen


@_intrinsic
def choose(typingctx, condition, a, b):
    """a if the condition holds, else b, of one type and without a branch: where guesses would often be wrong.

    Of an `if` LLVM makes a branch again if one of the two comes from memory.
    """
    if a != b:
        return None

    def codegen(context, builder, signature, args):
        found = builder.select(*args)
        found.set_metadata("unpredictable", builder.module.add_metadata([]))
        return found

    return a(types.boolean, a, b), codegen


@_intrinsic
def magnitude_bits(typingctx, value):
    """The bits of |value| of a float as an integer of that width: in the order of the magnitudes, NaN last."""
    bits = types.Integer.from_bitwidth(value.bitwidth)

    def codegen(context, builder, signature, args):
        kind = ir.IntType(value.bitwidth)
        return builder.and_(builder.bitcast(args[0], kind), kind((1 << (value.bitwidth - 1)) - 1))

    return bits(value), codegen


@_intrinsic
def of_bits(typingctx, bits):
    """The float with these bits."""
    result = types.float32 if bits.bitwidth == 32 else types.float64

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(result))

    return result(bits), codegen


@_intrinsic
def hidden(typingctx, number):
    """The int64 number, as one that the compiler cannot trace back.

    LLVM tests whether arrays overlap before all rows if it can tell how a row's position goes on, and that test always
    finds an overlap where positions fall: the loop over columns inside is then never vector code. Of positions that it
    does not understand it tests each row.
    """

    def codegen(context, builder, signature, args):
        kind = ir.IntType(64)
        return builder.asm(ir.FunctionType(kind, [kind]), "", "=r,0", args, False)

    return types.int64(types.int64), codegen
