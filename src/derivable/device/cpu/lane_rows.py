"""Lanes that hold consecutive rows of one column: from 1-d arrays and back, and moved among the lanes.

load_line(array, position, like) -> x     store_line(array, position, x)     any position, converted to the lanes' type
load_rows(array, position, stride, count, like) -> x     store_rows(array, position, stride, count, x)
    positions position, position + stride, ... for the first `count` lanes; the others repeat the last one
moved_up(x, count, fill)                  lane i is lane i - count of x, and lane i of `fill` below
"""

from __future__ import annotations

from typing import Any

from derivable.core.lazy import whole_import

with whole_import():
    from llvmlite import ir
    from numba import types

    from derivable.device.cpu.lanes import LaneType, intrinsic, ir_type, place_of, shuffled


def _converted(builder, line, source: Any, target: Any, lanes: int):
    """A vector of numbers of one type as those of another: floats among themselves, integers and bools likewise.

    The lanes of a bool are a mask, all bits set where it holds; in arrays it is one byte.
    """
    if source == target:
        return line
    if isinstance(target, types.Float):
        kind = ir.VectorType(ir.DoubleType() if target.bitwidth == 64 else ir.FloatType(), lanes)
        return (builder.fpext if target.bitwidth > source.bitwidth else builder.fptrunc)(line, kind)
    kind = ir.VectorType(ir.IntType(8 * _itemsize(target)), lanes)
    if types.boolean in (source, target):
        test = builder.icmp_signed("!=", line, ir.Constant(line.type, None))
        return builder.zext(test, kind) if target == types.boolean else builder.sext(test, kind)
    if target.bitwidth < source.bitwidth:
        return builder.trunc(line, kind)
    return (builder.sext if source.signed else builder.zext)(line, kind)


def _itemsize(dtype: Any) -> int:
    return 1 if dtype == types.boolean else dtype.bitwidth // 8


def _pointer(context, builder, signature, args, lanes: int):
    place = place_of(context, builder, signature, args)
    return builder.bitcast(place, ir.VectorType(place.type.pointee, lanes).as_pointer())


@intrinsic
def zero_line(typingctx, dtype):
    """Zero in all lanes of a dtype."""
    result = LaneType(dtype.dtype)

    def codegen(context, builder, signature, args):
        return ir.Constant(ir_type(result), None)

    return result(dtype), codegen


@intrinsic
def num_lanes(typingctx, x):
    """The number of lanes, a constant."""

    def codegen(context, builder, signature, args):
        return ir.Constant(ir.IntType(64), x.lanes)

    return types.int64(x), codegen


@intrinsic
def load_line(typingctx, array, position, like):
    """array[position], array[position + 1], ... in the type of `like`."""

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature, args, like.lanes)
        line = builder.load(pointer, align=_itemsize(array.dtype))
        return _converted(builder, line, array.dtype, like.dtype, like.lanes)

    return like(array, position, like), codegen


@intrinsic
def store_line(typingctx, array, position, x):
    """Write the lanes to array[position], array[position + 1], ..."""

    def codegen(context, builder, signature, args):
        pointer = _pointer(context, builder, signature, args, x.lanes)
        line = _converted(builder, args[2], x.dtype, array.dtype, x.lanes)
        builder.store(line, pointer, align=_itemsize(array.dtype))
        return context.get_dummy_value()

    return types.void(array, position, x), codegen


def _rows(context, builder, signature, args):
    """(place(lane) -> position of that lane as an LLVM value, count)"""
    position, stride, count = (context.cast(builder, args[k], signature.args[k], types.intp) for k in (1, 2, 3))
    return lambda lane: builder.add(position, builder.mul(lane, stride)), count


@intrinsic
def load_rows(typingctx, array, position, stride, count, like):
    """array[position], array[position + stride], ... in the type of `like`; lanes from `count` on repeat the last."""

    def codegen(context, builder, signature, args):
        lanes = like.lanes if isinstance(like, LaneType) else 1
        place, there = _rows(context, builder, signature, args)
        data = context.make_array(array)(context, builder, args[0]).data
        scalar = like.dtype if isinstance(like, LaneType) else like
        line = ir.Constant(ir_type(like), ir.Undefined) if isinstance(like, LaneType) else None
        last = builder.sub(there, there.type(1))
        value = None
        for lane in range(lanes):
            at = there.type(lane)
            at = builder.select(builder.icmp_signed("<", at, there), at, last)
            value = context.unpack_value(builder, array.dtype, builder.gep(data, [place(at)]))
            if array.dtype == types.boolean and scalar != types.boolean:
                value = builder.sext(builder.trunc(value, ir.IntType(1)), ir.IntType(scalar.bitwidth))
            else:
                value = context.cast(builder, value, array.dtype, scalar)
            if line is not None:
                line = builder.insert_element(line, value, ir.Constant(ir.IntType(32), lane))
        return value if line is None else line

    return like(array, position, stride, count, like), codegen


@intrinsic
def store_rows(typingctx, array, position, stride, count, x):
    """Write the first `count` lanes to array[position], array[position + stride], ..."""

    def codegen(context, builder, signature, args):
        lanes = x.lanes if isinstance(x, LaneType) else 1
        place, there = _rows(context, builder, signature, args)
        data = context.make_array(array)(context, builder, args[0]).data
        scalar = x.dtype if isinstance(x, LaneType) else x

        def write(lane: int):
            value = args[4]
            if isinstance(x, LaneType):
                value = builder.extract_element(value, ir.Constant(ir.IntType(32), lane))
            if array.dtype == types.boolean and scalar != types.boolean:
                value = builder.icmp_signed("!=", value, value.type(0))
            else:
                value = context.cast(builder, value, scalar, array.dtype)
            context.pack_value(builder, array.dtype, value, builder.gep(data, [place(there.type(lane))]))

        write(0)
        for lane in range(1, lanes):
            with builder.if_then(builder.icmp_signed("<", there.type(lane), there)):
                write(lane)
        return context.get_dummy_value()

    return types.void(array, position, stride, count, x), codegen


@intrinsic(prefer_literal=True)
def moved_up(typingctx, x, count, fill):
    """Lane i is lane i - count of `x`, a literal count; lane i of `fill` below."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    by = min(count.literal_value, x.lanes)

    def codegen(context, builder, signature, args):
        lanes = [x.lanes + lane if lane < by else lane - by for lane in range(x.lanes)]
        return shuffled(builder, args[0], args[2], lanes)

    return x(x, count, fill), codegen


@intrinsic
def backwards(typingctx, x):
    """The last lane first."""

    def codegen(context, builder, signature, args):
        return shuffled(builder, args[0], args[0], list(reversed(range(x.lanes))))

    return x(x), codegen


@intrinsic
def last_lane(typingctx, x):
    """The last lane in all lanes."""

    def codegen(context, builder, signature, args):
        return shuffled(builder, args[0], args[0], [x.lanes - 1] * x.lanes)

    return x(x), codegen


@intrinsic
def first_lane(typingctx, x):
    """The first lane as a scalar."""

    def codegen(context, builder, signature, args):
        return builder.extract_element(args[0], ir.Constant(ir.IntType(32), 0))

    return x.dtype(x), codegen
