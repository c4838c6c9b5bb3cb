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


def _bit(context, builder, array_type, array, position):
    """(address of the word, its mask with one bit)"""
    width = array_type.dtype.bitwidth
    kind = ir.IntType(width)
    word = builder.lshr(position, position.type(width.bit_length() - 1))
    pointer = _address(context, builder, array_type, array, types.int64, word)
    shift = builder.and_(position, position.type(width - 1))
    shift = builder.trunc(shift, kind) if width < 64 else shift
    return pointer, builder.shl(kind(1), shift)


@_intrinsic
def load_bit(typingctx, array, position):
    """Bit `position` (int64) of an array of unsigned integers."""

    def codegen(context, builder, signature, args):
        pointer, mask = _bit(context, builder, signature.args[0], args[0], args[1])
        found = builder.and_(builder.load(pointer), mask)
        return builder.icmp_unsigned("!=", found, found.type(0))

    return types.boolean(array, types.int64), codegen


@_intrinsic
def set_bit(typingctx, array, position):
    """Make bit `position` (int64) of an array of unsigned integers one."""

    def codegen(context, builder, signature, args):
        pointer, mask = _bit(context, builder, signature.args[0], args[0], args[1])
        builder.store(builder.or_(builder.load(pointer), mask), pointer)
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


_I64 = ir.IntType(64)


@_intrinsic
def hash_word(typingctx, word):
    """The hash of one int64 word: Fibonacci hashing, the high half folded onto the low one."""

    def codegen(context, builder, signature, args):
        found = builder.mul(args[0], _I64(0x9E3779B97F4A7C15))
        return builder.xor(found, builder.lshr(found, _I64(32)))

    return types.int64(types.int64), codegen


@_intrinsic
def mix_word(typingctx, found, word):
    """The hash of the words hashed to `found` and one more: the finalizer of splitmix64."""

    def codegen(context, builder, signature, args):
        mixed = builder.xor(*args)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = builder.mul(builder.xor(mixed, builder.lshr(mixed, _I64(shift))), _I64(factor))
        return builder.xor(mixed, builder.lshr(mixed, _I64(31)))

    return types.int64(types.int64, types.int64), codegen


@_intrinsic
def slot_in(typingctx, found, size):
    """The place of a hash in a table of `size` slots, a power of two."""

    def codegen(context, builder, signature, args):
        return builder.and_(args[0], builder.sub(args[1], _I64(1)))

    return types.int64(types.int64, types.int64), codegen


@_intrinsic
def tag_of(typingctx, found):
    """The high 32 bits of a hash."""

    def codegen(context, builder, signature, args):
        return builder.lshr(args[0], _I64(32))

    return types.int64(types.int64), codegen


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
