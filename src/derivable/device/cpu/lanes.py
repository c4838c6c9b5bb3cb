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

import math
from typing import Any

from derivable.core.lazy import whole_import

with whole_import():
    from llvmlite import ir
    from numba import extending, types

    from derivable.device.cpu.compiling import cgutils, models, njit
    from derivable.device.cpu.python_lanes import LINE_BYTES

# Numba passes the typing context itself; type checkers need not know.
intrinsic: Any = extending.intrinsic


class LaneType(types.Type):
    """A vector of one cache line of `dtype`."""

    def __init__(self, dtype: Any):
        self.dtype = dtype
        self.lanes = LINE_BYTES * 8 // dtype.bitwidth
        super().__init__(f"lanes({dtype} x {self.lanes})")


@extending.register_model(LaneType)
class LaneModel(models.PrimitiveModel):
    """Lanes are an LLVM vector."""

    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, ir_type(fe_type))


def _element(dtype: Any) -> ir.Type:
    if isinstance(dtype, types.Float):
        return ir.DoubleType() if dtype.bitwidth == 64 else ir.FloatType()
    return ir.IntType(dtype.bitwidth)


def ir_type(t: types.Type) -> ir.Type:
    """The LLVM type of a scalar or of lanes."""
    return ir.VectorType(_element(t.dtype), t.lanes) if isinstance(t, LaneType) else _element(t)


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
    undefined = ir.Constant(ir_type(t), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return shuffled(builder, one, undefined, [0] * t.lanes)


def shuffled(builder, first, second, lanes: list[int]):
    """The lanes of those numbers of two vectors, the second one's after the first one's."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    return builder.shuffle_vector(first, second, mask)


def _constant(t: types.Type, value) -> ir.Constant:
    if isinstance(t, LaneType):
        return ir.Constant(ir_type(t), [ir.Constant(_element(t.dtype), value)] * t.lanes)
    return ir.Constant(_element(t), value)


def place_of(context, builder, signature, args):
    """Pointer to array[position], the first two arguments, in memory; a pointer may stand for an array."""
    is_pointer = isinstance(signature.args[0], types.CPointer)
    data = args[0] if is_pointer else context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.gep(data, [context.cast(builder, args[1], signature.args[1], types.intp)])


def _row_of(context, builder, signature, args):
    """Pointer to buffer[row], the first two arguments, as one scalar or one line."""
    if signature.args[0].ndim == 1:
        return place_of(context, builder, signature, args)
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    lines = builder.bitcast(data, ir_type(LaneType(signature.args[0].dtype)).as_pointer())
    return builder.gep(lines, [context.cast(builder, args[1], signature.args[1], types.intp)])


def _content(array_type: types.Array) -> types.Type:
    return array_type.dtype if array_type.ndim == 1 else LaneType(array_type.dtype)


def _align(array_type) -> int:
    return array_type.dtype.bitwidth // 8


@intrinsic
def load(typingctx, buffer, row):
    """buffer[row]: a scalar of a buffer [node], the line of a buffer [node, lane]."""

    def codegen(context, builder, signature, args):
        return builder.load(_row_of(context, builder, signature, args), align=_align(signature.args[0]))

    return _content(buffer)(buffer, row), codegen


@intrinsic
def store(typingctx, buffer, row, value):
    """Write a scalar or a line to buffer[row]."""

    def codegen(context, builder, signature, args):
        builder.store(args[2], _row_of(context, builder, signature, args), align=_align(signature.args[0]))
        return context.get_dummy_value()

    return types.void(buffer, row, _content(buffer)), codegen


@intrinsic
def item(typingctx, array, position):
    """array[position] as int64 or the array's float, for a 1-d array and a position that is not negative."""
    result = types.int64 if isinstance(array.dtype, types.Integer) else array.dtype

    def codegen(context, builder, signature, args):
        value = builder.load(place_of(context, builder, signature, args))
        return context.cast(builder, value, signature.args[0].dtype, signature.return_type)

    return result(array, position), codegen


def of_arity(name: str, arity: int, typed: Any, doc: str) -> Any:
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


def _prefetch(name: str, to_write: int, doc: str):
    def typed(buffer, row):
        def codegen(context, builder, signature, args):
            pointer = _row_of(context, builder, signature, args)
            byte = ir.IntType(8).as_pointer()
            i32 = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
            llvm_function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            builder.call(llvm_function, [builder.bitcast(pointer, byte), i32(to_write), i32(3), i32(1)])
            return context.get_dummy_value()

        return types.void(buffer, row), codegen

    return of_arity(name, 2, typed, doc)


prefetch = _prefetch("prefetch", 0, "Ask for the line of buffer[row]; the row may lie outside the buffer.")
prefetch_to_write = _prefetch("prefetch_to_write", 1, "`prefetch` of a line that will be written.")


@intrinsic
def count_less(typingctx, row, start, number):
    """How many of the sixteen row[start : start + 16] are less than `number`, for a pointer to int32."""

    def codegen(context, builder, signature, args):
        lanes = LaneType(types.int32)
        place = builder.bitcast(builder.gep(args[0], [args[1]]), ir_type(lanes).as_pointer())
        less = builder.icmp_signed("<", builder.load(place, align=4), _splat(builder, lanes, args[2]))
        return builder.zext(builder.ctpop(builder.bitcast(less, ir.IntType(16))), ir.IntType(64))

    return types.int64(row, types.int64, types.int32), codegen


@intrinsic
def zero_of(typingctx, buffer):
    """Zero, in the shape of one row of the buffer."""
    content = _content(buffer)

    def codegen(context, builder, signature, args):
        return _constant(content, 0)

    return content(buffer), codegen


@intrinsic
def like(typingctx, x, value):
    """The scalar `value` in all lanes of the shape of `x`, in the dtype of `x`."""

    def codegen(context, builder, signature, args):
        scalar = context.cast(builder, args[1], signature.args[1], _scalar(signature.return_type))
        return _splat(builder, signature.return_type, scalar)

    return x(x, value), codegen


def _elementwise(name: str, arity: int, build: Any, doc: str, result: Any = lambda t: t):
    """The function of `arity` operands of one type t that build(builder, t, *operands) computes, of type result(t)."""

    def typed(t: Any, *others: Any):
        def codegen(context, builder, signature, args):
            return build(builder, t, *args)

        return None if any(other != t for other in others) else (result(t)(t, *others), codegen)

    return of_arity(name, arity, typed, doc)


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


def _call(builder, name: str, t: types.Type, args):
    kind = ir_type(t)
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
power_of_library = _llvm("power_of_library", 2, "pow", "a to the power of b, as the C library rounds it.")


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
        return builder.sext(compare(predicate, a, b), ir_type(_mask_of(t)))

    return _elementwise(name, 2, build, doc, _mask_of)


less = _compare("less", "<", "a < b as a mask: all bits set where true, zero elsewhere and at NaN.")
less_equal = _compare("less_equal", "<=", "a <= b as a mask.")
equal = _compare("equal", "==", "a == b as a mask.")
not_equal = _compare("not_equal", "!=", "a != b as a mask, set at NaN.")


@intrinsic
def select(typingctx, mask, a, b):
    """a where the mask is set, b elsewhere."""
    if a != b:
        return None

    def codegen(context, builder, signature, args):
        test = builder.icmp_signed("!=", args[0], ir.Constant(args[0].type, None))
        return builder.select(test, args[1], args[2])

    return a(mask, a, b), codegen


def _converting(name: str, method: str, dtype: Any, doc: str):
    def build(builder, t, a):
        return getattr(builder, method)(a, ir_type(_with_dtype(t, dtype)))

    return _elementwise(name, 1, build, doc, lambda t: _with_dtype(t, dtype))


bits_of = _converting("bits_of", "bitcast", types.int64, "The bits of float64 values as int64.")
float_of_bits = _converting("float_of_bits", "bitcast", types.float64, "The float64 values with the given int64 bits.")
to_integer = _converting("to_integer", "fptosi", types.int64, "float64 to int64, truncated; the value must fit.")
to_float = _converting("to_float", "sitofp", types.float64, "int64 to float64.")


def _reduced(name: str, predicate: str, bits: int, doc: str):
    """The function that compares the bits of a mask, one for each lane, with `bits`."""

    def build(builder, t, mask):
        test = builder.icmp_signed("!=", mask, ir.Constant(mask.type, None))
        if isinstance(t, LaneType):
            packed = builder.bitcast(test, ir.IntType(t.lanes))
            test = builder.icmp_signed(predicate, packed, packed.type(bits))
        return test

    return _elementwise(name, 1, build, doc, lambda t: types.boolean)


any_set = _reduced("any_set", "!=", 0, "Whether any lane of the mask is set.")
all_set = _reduced("all_set", "==", -1, "Whether all lanes of the mask are set.")


@njit(cache=True, nogil=True)
def power(a, b):
    """a to the power of b; the exponents that LLVM would replace where it knows them are replaced everywhere."""
    one, half = like(b, 1.0), like(b, 0.5)
    # Of a base that it knows LLVM would make exp2, with other roundings.
    base = select(not_equal(b, like(b, 0.0)), a, b)
    root = select(equal(a, like(a, -math.inf)), like(a, math.inf), absolute(sqrt(a)))
    found = select(equal(b, half), root, power_of_library(base, b))
    found = select(equal(b, negate(one)), divide(one, a), found)
    return select(equal(b, add(one, one)), multiply(a, a), found)


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
