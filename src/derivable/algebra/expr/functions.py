"""The functions from which scalar functions are written.

Each works on traced values and expressions (building an expression), and just as well on Python
scalars, NumPy scalars and NumPy arrays (computing the value), so a semiring's `plus` written with
them is at once its meaning, its NumPy reference, and the source of its compiled kernels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from derivable.algebra.expr.nodes import Apply, Constant, Expr
from derivable.algebra.expr.operations import OPERATIONS, operand_dtypes
from derivable.algebra.expr.types import FLOATS, INTEGERS, Dtype, check_dtype, is_number, numpy_dtype, weak_dtype
from derivable.core.diagnostics import TypeMismatchError

LARGEST_UNROLLED_POWER = 64


class Symbolic:
    """Base of `trace.Traced`: a stand-in for a scalar inside a function that is being traced."""

    expr: Expr


def lift(value: Any, beside: tuple[Dtype, ...] = ()) -> Expr:
    """The expression for a traced value, an expression, or a number (weakly typed beside `beside`)."""
    if isinstance(value, Symbolic):
        return value.expr
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if is_number(value):
        return Constant(value, weak_dtype(value, beside))
    raise TypeMismatchError(
        f"a value of type {type(value).__name__} cannot be part of a scalar expression",
        hint="use bool, int and float numbers, and the functions of `derivable`, as in `dv.exp`",
    )


def cast(value: Any, dtype: Any) -> Any:
    """The value converted to a scalar type; floats become integers by truncation."""
    target = check_dtype(dtype)
    if isinstance(value, Symbolic):
        return type(value)(cast(value.expr, target))  # type: ignore[call-arg]
    if isinstance(value, Expr):
        if value.dtype == target:
            return value
        return Apply("cast", (value,), target)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(numpy_dtype(target))[()]


def saturating_cast(value: Any, dtype: Any) -> Any:
    """`cast`, but floats become the integers next to them: those out of range the type's limits, NaN 0."""
    target = check_dtype(dtype)
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


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two; NaN if one is NaN. In a tie the derivative goes to `a`, the first."""
    return apply("minimum", a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two; NaN if one is NaN. In a tie the derivative goes to `a`, the first."""
    return apply("maximum", a, b)


def saturating_add(a: Any, b: Any) -> Any:
    """a + b; integers stop at the limits of their type."""
    return apply("saturating_add", a, b)


def saturating_subtract(a: Any, b: Any) -> Any:
    """a - b; integers stop at the limits of their type."""
    return apply("saturating_subtract", a, b)


def truncate_divide(a: Any, b: Any) -> Any:
    """The quotient towards zero; integers by 0 give 0."""
    return apply("truncate_divide", a, b)


def truncate_remainder(a: Any, b: Any) -> Any:
    """a - truncate_divide(a, b) * b, with the sign of a; integers by 0 give 0."""
    return apply("truncate_remainder", a, b)


def abs(a: Any) -> Any:
    """The absolute value; its derivative at 0 is 0."""
    return apply("abs", a)


def sign(a: Any) -> Any:
    """-1, 0 or 1."""
    return apply("sign", a)


def floor(a: Any) -> Any:
    """The largest integer not above, as a float."""
    return apply("floor", a)


def ceil(a: Any) -> Any:
    """The smallest integer not below, as a float."""
    return apply("ceil", a)


def power(a: Any, b: Any) -> Any:
    """`a` to the power of `b` as floats (`a ** 2` with a small constant integer is unrolled instead)."""
    return apply("power", a, b)


def exp(a: Any) -> Any:
    """The exponential."""
    return apply("exp", a)


def expm1(a: Any) -> Any:
    """exp(a) - 1 without cancellation near 0."""
    return apply("expm1", a)


def log(a: Any) -> Any:
    """The natural logarithm; -inf at 0."""
    return apply("log", a)


def log1p(a: Any) -> Any:
    """log(1 + a) without cancellation near 0."""
    return apply("log1p", a)


def log1mexp(a: Any) -> Any:
    """log(1 - exp(a)) for a <= 0, without cancellation (Maechler 2012); -inf at 0, 0 at -inf."""
    return apply("log1mexp", a)


def logaddexp(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)), stable; -inf is neutral. Derivatives are 0 where both are -inf, never NaN."""
    return apply("logaddexp", a, b)


def sqrt(a: Any) -> Any:
    """The square root; NaN below 0."""
    return apply("sqrt", a)


def sin(a: Any) -> Any:
    """The sine (radians)."""
    return apply("sin", a)


def cos(a: Any) -> Any:
    """The cosine (radians)."""
    return apply("cos", a)


def tanh(a: Any) -> Any:
    """The hyperbolic tangent."""
    return apply("tanh", a)


def sigmoid(a: Any) -> Any:
    """1 / (1 + exp(-a))."""
    return apply("sigmoid", a)


def equal(a: Any, b: Any) -> Any:
    """Whether two are equal, as an operation."""
    return apply("equal", a, b)


def not_equal(a: Any, b: Any) -> Any:
    """Whether two differ, as an operation."""
    return apply("not_equal", a, b)


def less(a: Any, b: Any) -> Any:
    """a < b."""
    return apply("less", a, b)


def less_equal(a: Any, b: Any) -> Any:
    """a <= b."""
    return apply("less_equal", a, b)


def logical_and(a: Any, b: Any) -> Any:
    """Both hold; `a & b` on traced values."""
    return apply("logical_and", a, b)


def logical_or(a: Any, b: Any) -> Any:
    """At least one holds; `a | b` on traced values."""
    return apply("logical_or", a, b)


def logical_xor(a: Any, b: Any) -> Any:
    """Exactly one holds."""
    return apply("logical_xor", a, b)


def logical_not(a: Any) -> Any:
    """It does not hold; `~a` on traced values."""
    return apply("logical_not", a)
