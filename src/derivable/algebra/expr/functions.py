"""The functions from which scalar functions are written.

Each works on traced values and expressions (building an expression), and just as well on Python
scalars, NumPy scalars and NumPy arrays (computing the value), so a semiring's `plus` written with
them is at once its meaning, its NumPy reference, and the source of its compiled kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from derivable.algebra.expr import parameters
from derivable.algebra.expr.nodes import Apply, Constant, Expr
from derivable.algebra.expr.operations import OPERATIONS, operand_dtypes
from derivable.algebra.expr.types import FLOATS, INTEGERS, Dtype, check_dtype, is_number, numpy_dtype, weak_dtype
from derivable.core.diagnostics import TypeMismatchError

__all__ = [
    "abs",
    "apply",
    "bitcast",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cast",
    "ceil",
    "cos",
    "equal",
    "exp",
    "expm1",
    "floor",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1mexp",
    "log1p",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "not_equal",
    "power",
    "right_shift",
    "saturating_add",
    "saturating_cast",
    "saturating_subtract",
    "sigmoid",
    "sign",
    "sin",
    "sqrt",
    "tanh",
    "truncate_divide",
    "truncate_remainder",
    "where",
]

LARGEST_UNROLLED_POWER = 64
# What operations of bits are of truth values.
_OF_TRUTH = {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}


class Symbolic:
    """Base of `trace.Traced`: a stand-in for a scalar inside a function that is being traced."""

    expr: Expr


def lift(value: Any, beside: tuple[Dtype, ...] = ()) -> Expr:
    """The expression for a traced value, an expression, or a number (weakly typed beside `beside`)."""
    if isinstance(value, Symbolic):
        return value.expr
    value = parameters.symbolic(value)
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if is_number(value):
        return Constant(value, weak_dtype(value, beside))
    hint = "use bool, int and float numbers, and the functions of `derivable`, as in `dv.exp`"
    if hasattr(value, "dtype"):
        hint = parameters.HELD
    raise TypeMismatchError(f"a value of type {type(value).__name__} cannot be part of a scalar expression", hint=hint)


def cast(value: Any, dtype: Any) -> Any:
    """The value converted to a scalar type; floats become integers by truncation."""
    target, value = check_dtype(dtype), parameters.symbolic(value)
    if isinstance(value, Symbolic):
        return type(value)(cast(value.expr, target))  # type: ignore[call-arg]
    if isinstance(value, Expr):
        if value.dtype == target:
            return value
        return Apply("cast", (value,), target)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(numpy_dtype(target))[()]


def bitcast(value: Expr, dtype: Any) -> Expr:
    """The number of a type whose bits are those of another of the same width, float64 and int64, say."""
    return Apply("bitcast", (value,), check_dtype(dtype))


def saturating_cast(value: Any, dtype: Any) -> Any:
    """`cast`, but floats become the integers next to them: those out of range the type's limits, NaN 0."""
    target, value = check_dtype(dtype), parameters.symbolic(value)
    if isinstance(value, Symbolic):
        return type(value)(saturating_cast(value.expr, target))  # type: ignore[call-arg]
    if target not in INTEGERS:
        return cast(value, target)
    if isinstance(value, Expr):
        return Apply("saturating_cast", (value,), target) if value.dtype in FLOATS else cast(value, target)
    value = np.asarray(value)
    row = OPERATIONS["saturating_cast" if value.dtype.kind == "f" else "cast"]
    with np.errstate(all="ignore"):
        return row.meaning(value, dtype=numpy_dtype(target))[()]


def apply(name: str, *operands: Any) -> Any:
    """Apply an operation: builds a node if an operand is symbolic, else computes with NumPy.

    Raises TypeMismatchError for a wrong number or type of operands.
    """
    operands = tuple(map(parameters.symbolic, operands))
    symbolic = [operand for operand in operands if isinstance(operand, (Symbolic, Expr))]
    if any(_holds_symbols(operand) for operand in operands):
        # Small arrays of stand-ins, inside a function of vectors or matrices that is being traced.
        return np.frompyfunc(partial(apply, name), len(operands), 1)(*operands)
    if not symbolic:
        return _compute(name, operands)
    known: tuple[Dtype, ...] = tuple(lift(operand).dtype for operand in symbolic)
    if name == "where":
        # The condition's type says nothing about the branches'.
        known = tuple(lift(o).dtype for o in operands[1:] if isinstance(o, (Symbolic, Expr)))
    if name == "power" and isinstance(operands[1], (int, np.integer)) and not isinstance(operands[1], bool):
        exponent = int(operands[1])
        if 0 <= exponent <= LARGEST_UNROLLED_POWER:
            return _unrolled_power(operands[0], exponent)
    lifted = [lift(operand, known) for operand in operands]
    if name in _OF_TRUTH and all(expr.dtype == "bool" for expr in lifted):
        name = _OF_TRUTH[name]
    targets, dtype = operand_dtypes(name, tuple(expr.dtype for expr in lifted))
    node = Apply(name, tuple(_convert(expr, target) for expr, target in zip(lifted, targets)), dtype)
    for operand in operands:
        if isinstance(operand, Symbolic):
            return type(operand)(node)  # type: ignore[call-arg]
    return node


def _holds_symbols(operand: Any) -> bool:
    if not isinstance(operand, np.ndarray) or operand.dtype != object:
        return False
    return any(isinstance(entry, (Symbolic, Expr)) for entry in operand.flat)


def _convert(expr: Expr, dtype: Dtype) -> Expr:
    if isinstance(expr, Constant) and expr.dtype != dtype:
        return Constant(expr.value, dtype)
    return cast(expr, dtype)


def _unrolled_power(base: Any, exponent: int) -> Any:
    if exponent == 0:
        return apply("add", apply("multiply", base, 0), 1)
    result, square = None, base
    while exponent:
        if exponent & 1:
            result = square if result is None else apply("multiply", result, square)
        exponent >>= 1
        if exponent:
            square = apply("multiply", square, square)
    return result


def _compute(name: str, operands: tuple) -> Any:
    plain = all(isinstance(operand, (bool, int, float)) for operand in operands)
    with np.errstate(all="ignore"):
        try:
            result = OPERATIONS[name].meaning(*(np.asarray(operand) if plain else operand for operand in operands))
        except (TypeError, ValueError) as error:
            kinds = ", ".join(type(operand).__name__ for operand in operands)
            raise TypeMismatchError(f"{name} does not take ({kinds}): {error}") from None
    value = np.asarray(result)[()]
    return value.item() if plain and isinstance(value, np.generic) else value


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`; both are evaluated."""
    return apply("where", condition, a, b)


def _function(name: str, doc: str, function: Any) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _unary(name: str, doc: str) -> Callable[[Any], Any]:
    return _function(name, doc, lambda a: apply(name, a))


def _binary(name: str, doc: str) -> Callable[[Any, Any], Any]:
    return _function(name, doc, lambda a, b: apply(name, a, b))


minimum = _binary("minimum", "The smaller of two; NaN if one is NaN. In a tie the derivative goes to `a`, the first.")
maximum = _binary("maximum", "The larger of two; NaN if one is NaN. In a tie the derivative goes to `a`, the first.")
saturating_add = _binary("saturating_add", "a + b; integers stop at the limits of their type.")
saturating_subtract = _binary("saturating_subtract", "a - b; integers stop at the limits of their type.")
truncate_divide = _binary("truncate_divide", "The quotient towards zero; integers by 0 give 0.")
truncate_remainder = _binary(
    "truncate_remainder", "a - truncate_divide(a, b) * b, with the sign of a; integers by 0 give 0."
)
abs = _unary("abs", "The absolute value; its derivative at 0 is 0.")
sign = _unary("sign", "-1, 0 or 1.")
floor = _unary("floor", "The largest integer not above, as a float.")
ceil = _unary("ceil", "The smallest integer not below, as a float.")
power = _binary(
    "power", "`a` to the power of `b` as floats (`a ** 2` with a small constant integer is unrolled instead)."
)
exp = _unary("exp", "The exponential.")
expm1 = _unary("expm1", "exp(a) - 1 without cancellation near 0.")
log = _unary("log", "The natural logarithm; -inf at 0.")
log1p = _unary("log1p", "log(1 + a) without cancellation near 0.")
log1mexp = _unary("log1mexp", "log(1 - exp(a)) for a <= 0, without cancellation (Maechler 2012); -inf at 0, 0 at -inf.")
logaddexp = _binary(
    "logaddexp", "log(exp(a) + exp(b)), stable; -inf is neutral. Derivatives are 0 where both are -inf, never NaN."
)
sqrt = _unary("sqrt", "The square root; NaN below 0.")
sin = _unary("sin", "The sine (radians).")
cos = _unary("cos", "The cosine (radians).")
tanh = _unary("tanh", "The hyperbolic tangent.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-a)).")
equal = _binary("equal", "Whether two are equal, as an operation.")
not_equal = _binary("not_equal", "Whether two differ, as an operation.")
less = _binary("less", "a < b.")
less_equal = _binary("less_equal", "a <= b.")
logical_and = _binary("logical_and", "Both hold.")
logical_or = _binary("logical_or", "At least one holds.")
logical_xor = _binary("logical_xor", "Exactly one holds.")
bitwise_and = _binary("bitwise_and", "The bits that both integers have; of truth values, both hold.")
bitwise_or = _binary("bitwise_or", "The bits that one of two integers has; of truth values, at least one holds.")
bitwise_xor = _binary("bitwise_xor", "The bits that one of two integers has alone; of truth values, exactly one holds.")
bitwise_not = _unary("bitwise_not", "The bits that an integer does not have; of a truth value, it does not hold.")
left_shift = _binary("left_shift", "The bits of an integer `b` places up; 0 for places out of the type's width.")
right_shift = _binary("right_shift", "Those `b` places down, with copies of the sign; all sign beyond the width.")
logical_not = _unary("logical_not", "It does not hold.")
