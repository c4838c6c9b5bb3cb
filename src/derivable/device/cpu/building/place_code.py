"""The code that the compiler emits for the functions of `places`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types

from derivable.core import splitmix64
from derivable.device.cpu.building.numba_parts import cgutils, populate_array

# Numba passes the typing context itself; type checkers need not know.
intrinsic: Any = extending.intrinsic


def of_arity(name: str, arity: int, typed: Any, doc: Any) -> Any:
    """The intrinsic whose signature and code typed(*types of its operands) gives."""
    # Numba reads the number of operands from the parameters.
    function: Any = (
        lambda typingctx, a: typed(a),
        lambda typingctx, a, b: typed(a, b),
        lambda typingctx, a, b, c: typed(a, b, c),
    )[arity - 1]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return intrinsic(function)


def place_of(context, builder, signature, args):
    """Pointer to array[position], the first two arguments, in memory; a pointer may stand for an array."""
    is_pointer = isinstance(signature.args[0], types.CPointer)
    data = args[0] if is_pointer else context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.gep(data, [context.cast(builder, args[1], signature.args[1], types.intp)])


@intrinsic
def item(typingctx, array, position):
    """array[position] as int64 or the array's float, for a 1-d array and a position that is not negative."""
    result = types.int64 if isinstance(array.dtype, types.Integer) else array.dtype

    def codegen(context, builder, signature, args):
        value = builder.load(place_of(context, builder, signature, args))
        return context.cast(builder, value, signature.args[0].dtype, signature.return_type)

    return result(array, position), codegen


def _prefetch(name: str, to_write: int, doc: str) -> Any:
    def typed(array, position):
        def codegen(context, builder, signature, args):
            byte, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
            pointer = builder.bitcast(place_of(context, builder, signature, args), byte)
            kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(function, [pointer, i32(to_write), i32(3), i32(1)])
            return context.get_dummy_value()

        return types.void(array, position), codegen

    return of_arity(name, 2, typed, doc)


prefetch = _prefetch("prefetch", 0, "Ask for array[position]; the position may lie outside the array.")
prefetch_to_write = _prefetch("prefetch_to_write", 1, "`prefetch` of what will be written.")


@intrinsic
def count_less(typingctx, row, start, number):
    """How many of the sixteen row[start : start + 16] are less than `number`, for a pointer to int32."""

    def codegen(context, builder, signature, args):
        line = ir.VectorType(ir.IntType(32), 16)
        place = builder.bitcast(builder.gep(args[0], [args[1]]), line.as_pointer())
        undefined = ir.Constant(line, ir.Undefined)
        one = builder.insert_element(undefined, args[2], ir.IntType(32)(0))
        numbers = builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16))
        less = builder.icmp_signed("<", builder.load(place, align=4), numbers)
        return builder.zext(builder.ctpop(builder.bitcast(less, ir.IntType(16))), ir.IntType(64))

    return types.int64(row, types.int64, types.int32), codegen


@intrinsic
def load(typingctx, array, position):
    """array[position]"""

    def codegen(context, builder, signature, args):
        return context.unpack_value(builder, signature.return_type, place_of(context, builder, signature, args))

    return array.dtype(array, position), codegen


@intrinsic
def store(typingctx, array, position, value):
    """array[position] = value, converted to the array's type."""

    def codegen(context, builder, signature, args):
        value = context.cast(builder, args[2], signature.args[2], signature.args[0].dtype)
        context.pack_value(builder, signature.args[0].dtype, value, place_of(context, builder, signature, args))
        return context.get_dummy_value()

    return types.void(array, position, value), codegen


_I64 = ir.IntType(64)


def _of_words(build: Any) -> Any:
    """The function of int64 words, an int64 itself, that build(builder, *words) emits."""
    arity = build.__code__.co_argcount - 1

    def typed(*words):
        def codegen(context, builder, signature, args):
            return build(builder, *args)

        return types.int64(*[types.int64] * arity), codegen

    return of_arity(build.__name__, arity, typed, build.__doc__)


@_of_words
def hash_word(builder, word):
    """The hash of one int64 word: Fibonacci hashing, the high half folded onto the low one."""
    found = builder.mul(word, _I64(splitmix64.STEP))
    return builder.xor(found, builder.lshr(found, _I64(32)))


@_of_words
def mix_word(builder, found, word):
    """The hash of the words hashed to `found` and one more: the finalizer of splitmix64."""
    mixed = builder.xor(found, word)
    for shift, factor in splitmix64.ROUNDS:
        mixed = builder.mul(builder.xor(mixed, builder.lshr(mixed, _I64(shift))), _I64(factor))
    return builder.xor(mixed, builder.lshr(mixed, _I64(splitmix64.LAST)))


@intrinsic
def trailing_zeros(typingctx, word):
    """The number (int64) of zero bits of a uint64 below the lowest one; 64 for zero."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


@_of_words
def slot_in(builder, found, size):
    """The place of a hash in a table of `size` slots, a power of two."""
    return builder.and_(found, builder.sub(size, _I64(1)))


@_of_words
def tag_of(builder, found):
    """The high 32 bits of a hash."""
    return builder.lshr(found, _I64(32))


@intrinsic
def pointer_at(typingctx, address, dtype):
    """Pointer to the element of type `dtype` at an address, an int64."""
    element = dtype.dtype

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_data_type(element).as_pointer())

    return types.CPointer(element)(types.int64, dtype), codegen


@intrinsic
def array_at(typingctx, address, count, dtype):
    """The array of `count` elements of type `dtype` at an address, an int64; somebody else has its memory."""
    element = dtype.dtype
    result = types.Array(element, 1, "C")

    def codegen(context, builder, signature, args):
        kind = context.get_data_type(element)
        size = context.get_constant(types.intp, context.get_abi_sizeof(kind))
        made = context.make_array(result)(context, builder)
        populate_array(
            made,
            data=builder.inttoptr(args[0], kind.as_pointer()),
            shape=cgutils.pack_array(builder, [args[1]]),
            strides=cgutils.pack_array(builder, [size]),
            itemsize=size,
            meminfo=None,
        )
        return made._getvalue()

    return result(types.int64, types.int64, dtype), codegen


@intrinsic
def call_at(typingctx, address, first, second):
    """Call the C function at an address, `int64 f(int64, int64)`."""

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(_I64, [_I64, _I64])
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def magnitude_bits(typingctx, value):
    """The bits of |value| of a float as an integer of that width: in the order of the magnitudes, NaN last."""
    bits = types.Integer.from_bitwidth(value.bitwidth)

    def codegen(context, builder, signature, args):
        kind = ir.IntType(value.bitwidth)
        return builder.and_(builder.bitcast(args[0], kind), kind((1 << (value.bitwidth - 1)) - 1))

    return bits(value), codegen


@intrinsic
def of_bits(typingctx, bits):
    """The float with these bits."""
    result = types.float32 if bits.bitwidth == 32 else types.float64

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(result))

    return result(bits), codegen
