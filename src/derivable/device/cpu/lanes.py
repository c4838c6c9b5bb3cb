"""One cache line of numbers as a Numba value: 8 float64, 16 float32 or 8 int64 lanes, or a plain scalar.

LLVM does not turn loops over a short last axis into vector code when the same array is read and written, so
the kernels say what they mean. The functions here accept scalars and lanes alike; which of the two a kernel is
compiled for follows from its buffers: a buffer [node] holds scalars, a buffer [node, lane] holds lanes. Thus a
kernel is written once. On machines with shorter vectors LLVM splits the lanes.

    load(buffer, row) -> x        store(buffer, row, x)        x is buffer[row] or buffer[row, :]
    item(array, position)         an element of a 1-d array, without the check for a negative index
    count_less(row, start, x)     how many of sixteen numbers are less than x
    multiply_add(a, b, c)         a * b + c, fused where the machine can
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LINE_BYTES = 64
# Numba passes the typing context itself; type checkers need not know.
_intrinsic: Any = intrinsic


class LaneType(types.Type):
    """A vector of one cache line of `dtype`."""

    def __init__(self, dtype: Any):
        self.dtype = dtype
        self.lanes = LINE_BYTES * 8 // dtype.bitwidth
        super().__init__(f"lanes({dtype} x {self.lanes})")


@register_model(LaneType)
class LaneModel(models.PrimitiveModel):
    """Lanes are an LLVM vector."""

    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _vector(fe_type.dtype, fe_type.lanes))


def _element(dtype: Any) -> ir.Type:
    if isinstance(dtype, types.Float):
        return ir.DoubleType() if dtype.bitwidth == 64 else ir.FloatType()
    return ir.IntType(dtype.bitwidth)


def _vector(dtype: types.Type, lanes: int) -> ir.Type:
    return ir.VectorType(_element(dtype), lanes)


def _ir_type(t: types.Type) -> ir.Type:
    return _vector(t.dtype, t.lanes) if isinstance(t, LaneType) else _element(t)


def _with_dtype(t: Any, dtype: Any) -> Any:
    return LaneType(dtype) if isinstance(t, LaneType) else dtype


def _scalar(t: Any) -> Any:
    return t.dtype if isinstance(t, LaneType) else t


def _is_float(t: types.Type) -> bool:
    return isinstance(_scalar(t), types.Float)


def _splat(builder, t: types.Type, value):
    """The LLVM scalar `value` in all lanes of `t`."""
    if not isinstance(t, LaneType):
        return value
    vector = _vector(t.dtype, t.lanes)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), t.lanes), [0] * t.lanes)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


def _constant(t: types.Type, value) -> ir.Constant:
    if isinstance(t, LaneType):
        return ir.Constant(_vector(t.dtype, t.lanes), [ir.Constant(_element(t.dtype), value)] * t.lanes)
    return ir.Constant(_element(t), value)


def _address(context, builder, array_type, array, row):
    """Pointer to buffer[row] as one scalar or one line."""
    data = context.make_array(array_type)(context, builder, array).data
    if array_type.ndim == 1:
        return builder.gep(data, [row])
    lane = LaneType(array_type.dtype)
    line = builder.bitcast(data, _vector(lane.dtype, lane.lanes).as_pointer())
    return builder.gep(line, [row])


def _content(array_type: types.Array) -> types.Type:
    return array_type.dtype if array_type.ndim == 1 else LaneType(array_type.dtype)


def _align(array_type) -> int:
    return array_type.dtype.bitwidth // 8


@_intrinsic
def load(typingctx, buffer, row):
    """buffer[row]: a scalar of a buffer [node], the line of a buffer [node, lane]."""

    def codegen(context, builder, signature, args):
        row = context.cast(builder, args[1], signature.args[1], types.intp)
        pointer = _address(context, builder, signature.args[0], args[0], row)
        return builder.load(pointer, align=_align(signature.args[0]))

    return _content(buffer)(buffer, row), codegen


@_intrinsic
def store(typingctx, buffer, row, value):
    """Write a scalar or a line to buffer[row]."""

    def codegen(context, builder, signature, args):
        row = context.cast(builder, args[1], signature.args[1], types.intp)
        pointer = _address(context, builder, signature.args[0], args[0], row)
        builder.store(args[2], pointer, align=_align(signature.args[0]))
        return context.get_dummy_value()

    return types.void(buffer, row, _content(buffer)), codegen


@_intrinsic
def item(typingctx, array, position):
    """array[position] as int64 or the array's float, for a 1-d array and a position that is not negative."""
    result = types.int64 if isinstance(array.dtype, types.Integer) else array.dtype

    def codegen(context, builder, signature, args):
        position = context.cast(builder, args[1], signature.args[1], types.intp)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        value = builder.load(builder.gep(data, [position]))
        return context.cast(builder, value, signature.args[0].dtype, signature.return_type)

    return result(array, position), codegen


def _prefetch(name: str, to_write: int, doc: str):
    def function(typingctx, buffer, row):
        def codegen(context, builder, signature, args):
            row = context.cast(builder, args[1], signature.args[1], types.intp)
            pointer = _address(context, builder, signature.args[0], args[0], row)
            byte = ir.IntType(8).as_pointer()
            i32 = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
            llvm_function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(llvm_function, [builder.bitcast(pointer, byte), i32(to_write), i32(3), i32(1)])
            return context.get_dummy_value()

        return types.void(buffer, row), codegen

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return _intrinsic(function)


prefetch = _prefetch("prefetch", 0, "Ask for the line of buffer[row]; the row may lie outside the buffer.")
prefetch_to_write = _prefetch("prefetch_to_write", 1, "`prefetch` of a line that will be written.")


@_intrinsic
def count_less(typingctx, row, start, number):
    """How many of the sixteen row[start : start + 16] are less than `number`, for a pointer to int32."""

    def codegen(context, builder, signature, args):
        lanes = ir.VectorType(ir.IntType(32), 16)
        place = builder.bitcast(builder.gep(args[0], [args[1]]), lanes.as_pointer())
        undefined = ir.Constant(lanes, ir.Undefined)
        one = builder.insert_element(undefined, args[2], ir.Constant(ir.IntType(32), 0))
        numbers = builder.shuffle_vector(one, undefined, ir.Constant(lanes, [0] * 16))
        less = builder.icmp_signed("<", builder.load(place, align=4), numbers)
        return builder.zext(builder.ctpop(builder.bitcast(less, ir.IntType(16))), ir.IntType(64))

    return types.int64(row, types.int64, types.int32), codegen


@_intrinsic
def zero_of(typingctx, buffer):
    """Zero, in the shape of one row of the buffer."""
    content = _content(buffer)

    def codegen(context, builder, signature, args):
        return _constant(content, 0)

    return content(buffer), codegen


@_intrinsic
def like(typingctx, x, value):
    """The scalar `value` in all lanes of the shape of `x`, in the dtype of `x`."""

    def codegen(context, builder, signature, args):
        scalar = context.cast(builder, args[1], signature.args[1], _scalar(signature.return_type))
        return _splat(builder, signature.return_type, scalar)

    return x(x, value), codegen


def _elementwise(name: str, arity: int, build: Any, doc: str, result: Any = lambda t: t):
    """The function of `arity` operands of one type t that build(builder, t, *operands) computes, of type result(t)."""

    def typed(t: Any, *others: Any):
        if any(other != t for other in others):
            return None

        def codegen(context, builder, signature, args):
            return build(builder, t, *args)

        return result(t)(t, *others), codegen

    def one(typingctx, a):
        return typed(a)

    def two(typingctx, a, b):
        return typed(a, b)

    def three(typingctx, a, b, c):
        return typed(a, b, c)

    function = (one, two, three)[arity - 1]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return _intrinsic(function)


def _binary(name: str, on_float: str | None, on_integer: str | None, doc: str):
    def build(builder, t, a, b):
        return getattr(builder, str(on_float if _is_float(t) else on_integer))(a, b)

    return _elementwise(name, 2, build, doc)


add = _binary("add", "fadd", "add", "a + b, lane by lane.")
subtract = _binary("subtract", "fsub", "sub", "a - b, lane by lane.")
multiply = _binary("multiply", "fmul", "mul", "a * b, lane by lane.")
divide = _binary("divide", "fdiv", None, "a / b, lane by lane.")
bit_and = _binary("bit_and", None, "and_", "a & b of integer lanes.")
bit_or = _binary("bit_or", None, "or_", "a | b of integer lanes.")
bit_xor = _binary("bit_xor", None, "xor", "a ^ b of integer lanes.")
shift_left = _binary("shift_left", None, "shl", "a << b of integer lanes.")
shift_right = _binary("shift_right", None, "ashr", "a >> b of integer lanes, the sign kept.")


def _saturating(name: str, doc: str):
    def build(builder, t, a, b):
        return _call(builder, f"{'s' if _scalar(t).signed else 'u'}{name[11:14]}.sat", t, (a, b))

    return _elementwise(name, 2, build, doc)


saturating_add = _saturating("saturating_add", "a + b of integers, at most to the limits of the type.")
saturating_subtract = _saturating("saturating_subtract", "a - b of integers, at most to the limits of the type.")


def _truncating(name: str, on_signed: str, on_unsigned: str, doc: str):
    def build(builder, t, a, b):
        one, zero = _constant(t, 1), _constant(t, 0)
        by_zero = builder.icmp_unsigned("==", b, zero)
        if not _scalar(t).signed:
            found = getattr(builder, on_unsigned)(a, builder.select(by_zero, one, b))
            return builder.select(by_zero, zero, found)
        # The processor traps at the smallest integer by -1, so that -1 is a case of its own.
        by_minus_one = builder.icmp_signed("==", b, _constant(t, -1))
        safe = builder.select(builder.or_(by_zero, by_minus_one), one, b)
        negated = builder.neg(a) if on_signed == "sdiv" else zero
        found = builder.select(by_minus_one, negated, getattr(builder, on_signed)(a, safe))
        return builder.select(by_zero, zero, found)

    return _elementwise(name, 2, build, doc)


truncate_divide = _truncating("truncate_divide", "sdiv", "udiv", "The quotient of integers towards zero; 0 by 0.")
truncate_remainder = _truncating("truncate_remainder", "srem", "urem", "Its remainder, with the sign of a; 0 by 0.")


def _call(builder, name: str, t: types.Type, args):
    kind = _ir_type(t)
    suffix = {"double": "f64", "float": "f32"}.get(str(_element(_scalar(t))), str(_element(_scalar(t))))
    if isinstance(t, LaneType):
        suffix = f"v{t.lanes}{suffix}"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind] * len(args)), f"llvm.{name}.{suffix}"
    )
    return builder.call(function, args)


def _llvm(name: str, arity: int, intrinsic_name: str, doc: str):
    """The function that calls an intrinsic of LLVM on operands of one float type."""
    return _elementwise(name, arity, lambda builder, t, *args: _call(builder, intrinsic_name, t, args), doc)


multiply_add = _llvm("multiply_add", 3, "fmuladd", "a * b + c of floats, rounded once where the machine can.")
absolute = _llvm("absolute", 1, "fabs", "|a| of floats.")
round_to_even = _llvm("round_to_even", 1, "rint", "The nearest integer, as a float.")
floor = _llvm("floor", 1, "floor", "The largest integer not above, as a float.")
ceil = _llvm("ceil", 1, "ceil", "The smallest integer not below, as a float.")
sqrt = _llvm("sqrt", 1, "sqrt", "The square root.")
# LLVM calls the C library for each lane of these.
exp = _llvm("exp", 1, "exp", "The exponential.")
log = _llvm("log", 1, "log", "The natural logarithm.")
sin = _llvm("sin", 1, "sin", "The sine.")
cos = _llvm("cos", 1, "cos", "The cosine.")
power = _llvm("power", 2, "pow", "a to the power of b.")


def _negate(builder, t, a):
    return builder.fneg(a) if _is_float(t) else builder.neg(a)


negate = _elementwise("negate", 1, _negate, "-a.")
bit_not = _elementwise("bit_not", 1, lambda builder, t, a: builder.not_(a), "~a of integer lanes.")


def _mask_of(t: Any) -> Any:
    # A mask has as many lanes as what was compared, so its lanes are as wide.
    return _with_dtype(t, types.Integer.from_bitwidth(t.dtype.bitwidth if isinstance(t, LaneType) else 64, True))


def _compare(name: str, predicate: str, doc: str):
    def build(builder, t, a, b):
        if _is_float(t):
            # Everything is unequal to NaN, and nothing else holds of it.
            compare = builder.fcmp_unordered if predicate == "!=" else builder.fcmp_ordered
        else:
            compare = builder.icmp_signed if _scalar(t).signed else builder.icmp_unsigned
        return builder.sext(compare(predicate, a, b), _ir_type(_mask_of(t)))

    return _elementwise(name, 2, build, doc, _mask_of)


less = _compare("less", "<", "a < b as a mask: all bits set where true, zero elsewhere and at NaN.")
less_equal = _compare("less_equal", "<=", "a <= b as a mask.")
equal = _compare("equal", "==", "a == b as a mask.")
not_equal = _compare("not_equal", "!=", "a != b as a mask, set at NaN.")


@_intrinsic
def select(typingctx, mask, a, b):
    """a where the mask is set, b elsewhere."""
    if a != b:
        return None

    def codegen(context, builder, signature, args):
        test = builder.icmp_signed("!=", args[0], ir.Constant(args[0].type, None))
        return builder.select(test, args[1], args[2])

    return a(mask, a, b), codegen


@_intrinsic
def bits_of(typingctx, a):
    """The bits of float64 values as int64."""
    result = _with_dtype(a, types.int64)

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], _ir_type(result))

    return result(a), codegen


@_intrinsic
def float_of_bits(typingctx, a):
    """The float64 values with the given int64 bits."""
    result = _with_dtype(a, types.float64)

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], _ir_type(result))

    return result(a), codegen


@_intrinsic
def to_integer(typingctx, a):
    """float64 to int64, truncated; the value must fit."""
    result = _with_dtype(a, types.int64)

    def codegen(context, builder, signature, args):
        return builder.fptosi(args[0], _ir_type(result))

    return result(a), codegen


@_intrinsic
def to_float(typingctx, a):
    """int64 to float64."""
    result = _with_dtype(a, types.float64)

    def codegen(context, builder, signature, args):
        return builder.sitofp(args[0], _ir_type(result))

    return result(a), codegen


@_intrinsic
def any_set(typingctx, mask):
    """Whether any lane of the mask is set."""

    def codegen(context, builder, signature, args):
        test = builder.icmp_signed("!=", args[0], ir.Constant(args[0].type, None))
        if isinstance(mask, LaneType):
            bits = ir.IntType(mask.lanes)
            packed = builder.bitcast(test, bits)
            test = builder.icmp_signed("!=", packed, bits(0))
        return context.cast(builder, test, types.boolean, types.boolean)

    return types.boolean(mask), codegen


@_intrinsic
def all_set(typingctx, mask):
    """Whether all lanes of the mask are set."""

    def codegen(context, builder, signature, args):
        test = builder.icmp_signed("!=", args[0], ir.Constant(args[0].type, None))
        if isinstance(mask, LaneType):
            bits = ir.IntType(mask.lanes)
            packed = builder.bitcast(test, bits)
            test = builder.icmp_signed("==", packed, bits(-1))
        return context.cast(builder, test, types.boolean, types.boolean)

    return types.boolean(mask), codegen


@njit(cache=True, nogil=True)
def log1p(a):
    """log(1 + a) without cancellation: with u = 1 + a as rounded, log(u) a / (u - 1)."""
    one = like(a, 1.0)
    u = add(one, a)
    exact = bit_or(equal(u, one), equal(u, add(u, u)))
    return select(exact, select(equal(u, one), a, log(u)), divide(multiply(log(u), a), subtract(u, one)))


@njit(cache=True, nogil=True)
def expm1(a):
    """exp(a) - 1 without cancellation: with u = exp(a) as rounded, (u - 1) a / log(u)."""
    one = like(a, 1.0)
    u = exp(a)
    near = bit_and(less(absolute(a), one), not_equal(u, one))
    return select(near, divide(multiply(subtract(u, one), a), log(u)), select(equal(u, one), a, subtract(u, one)))


@njit(cache=True, nogil=True)
def logaddexp(a, b):
    """log(exp(a) + exp(b)); -inf is neutral."""
    larger = select(bit_or(less_equal(b, a), not_equal(a, a)), a, b)
    sum_of_both = add(larger, log1p(exp(negate(absolute(subtract(a, b))))))
    return select(equal(a, b), add(a, like(a, 0.6931471805599453)), sum_of_both)
