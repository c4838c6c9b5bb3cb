"""Simplification: constants folded, neutral and absorbing elements removed.

Common subexpressions need no pass: nodes are shared when they are built. The rules are those of real
numbers: `x * 0` becomes 0 and `x - x` stays. So a simplified expression has the same value wherever
the values of its subexpressions are finite, and at infinities it may have a value where the original
has NaN; the sign of a zero may change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

from derivable.algebra.expr.functions import apply
from derivable.algebra.expr.interpret import interpret
from derivable.algebra.expr.nodes import Apply, Constant, Expr, as_tuple, in_order
from derivable.algebra.expr.types import FLOATS, INTEGERS, LIMITS, UNSIGNED, Dtype, promote


@overload
def simplify(exprs: Expr) -> Expr: ...
@overload
def simplify(exprs: Sequence[Expr]) -> tuple[Expr, ...]: ...
def simplify(exprs: Expr | Sequence[Expr]) -> Any:
    """An equal, usually smaller expression of the same type (several: a tuple)."""
    answers = simplify_into(as_tuple(exprs), {})
    return answers[0] if isinstance(exprs, Expr) else answers


def simplify_into(exprs: Iterable[Expr], done: dict[Expr, Expr]) -> tuple[Expr, ...]:
    """`simplify`, with a table of what was simplified before: for building large expressions in linear time."""
    roots = tuple(exprs)
    for node in in_order(roots, done):
        answer = done[node] = _simplify_node(node, done)
        done.setdefault(answer, answer)
    return tuple(done[root] for root in roots)


# Operation -> the operand that changes nothing on either side; on the right; and the one that decides the result.
NEUTRAL = {"add": 0, "multiply": 1, "minimum": math.inf, "maximum": -math.inf, "logaddexp": -math.inf}
NEUTRAL |= {"logical_and": True, "logical_or": False}
NEUTRAL_RIGHT = {**NEUTRAL, "subtract": 0, "divide": 1, "power": 1}
ABSORBING = {"multiply": 0, "minimum": -math.inf, "maximum": math.inf, "logical_and": False, "logical_or": True}


def _decided(operation: str, operands: tuple[Expr, ...]) -> Expr | None:
    """The operand that is the result because of what the other one is, None if there is none."""
    if len(operands) != 2 or not any(isinstance(operand, Constant) for operand in operands):
        return None
    a, b = operands
    if _is(a, NEUTRAL.get(operation)):
        return b
    if _is(b, NEUTRAL_RIGHT.get(operation)):
        return a
    return next((one for one in operands if _is(one, ABSORBING.get(operation))), None)


def _simplify_node(node: Expr, done: dict[Expr, Expr]) -> Expr:
    if not isinstance(node, Apply):
        return node
    operands = tuple(done[operand] for operand in node.operands)
    while True:
        if all(isinstance(operand, Constant) for operand in operands):
            return Constant(interpret(Apply(node.operation, operands, node.dtype), ()), node.dtype)
        rule = RULES.get(node.operation)
        answer = _decided(node.operation, operands)
        if answer is None and rule:
            answer = rule(node, *operands)
        if answer is None:
            return node if operands == node.operands else Apply(node.operation, operands, node.dtype)
        if not isinstance(answer, Apply):
            return answer
        # Another rule may apply to what this rule built; its operands are simple already.
        node, operands = answer, answer.operands


def _is(expr: Expr, value: float | None) -> bool:
    if value is None or not isinstance(expr, Constant) or (expr.dtype == "bool") != isinstance(value, bool):
        return False
    return expr.value == value


def _same(node: Expr, value: Any) -> Expr:
    return Constant(value, node.dtype)


def _negated(expr: Expr) -> Expr | None:
    return expr.operands[0] if isinstance(expr, Apply) and expr.operation == "negate" else None


def _add(node: Apply, a: Expr, b: Expr) -> Expr | None:
    if (inner := _negated(b)) is not None:
        return apply("subtract", a, inner)
    if (inner := _negated(a)) is not None:
        return apply("subtract", b, inner)
    # The tangents of a choice: where(c, x, 0) + where(c, 0, y) is where(c, x, y).
    if _is_choice(a) and _is_choice(b) and a.operands[0] is b.operands[0]:
        (condition, yes, no), (_, other_yes, other_no) = a.operands, b.operands
        if _is(no, 0) and _is(other_yes, 0):
            return apply("where", condition, yes, other_no)
        if _is(yes, 0) and _is(other_no, 0):
            return apply("where", condition, other_yes, no)
    return None


def _is_choice(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.operation == "where"


def _subtract(node: Apply, a: Expr, b: Expr) -> Expr | None:
    if _is(a, 0):
        return apply("negate", b)
    if (inner := _negated(b)) is not None:
        return apply("add", a, inner)
    return None


def _multiply(node: Apply, a: Expr, b: Expr) -> Expr | None:
    for one, other in ((a, b), (b, a)):
        if _is(one, -1):
            return apply("negate", other)
        # x * where(c, k, 0) with constants (tie rules of min and max) becomes a choice without a product.
        if isinstance(one, Apply) and one.operation == "where":
            condition, yes, no = one.operands
            if all(isinstance(branch, Constant) and branch.value in (0, 1) for branch in (yes, no)):
                zero = _same(node, 0)
                return apply("where", condition, other if _is(yes, 1) else zero, other if _is(no, 1) else zero)
    left, right = _negated(a), _negated(b)
    if left is not None and right is not None:
        return apply("multiply", left, right)
    return None


def _divide(node: Apply, a: Expr, b: Expr) -> Expr | None:
    return apply("negate", a) if _is(b, -1) else None


def _floor_divide(node: Apply, a: Expr, b: Expr) -> Expr | None:
    return a if _is(b, 1) and node.dtype in INTEGERS else None


def _remainder(node: Apply, a: Expr, b: Expr) -> Expr | None:
    return _same(node, 0) if _is(b, 1) and node.dtype in INTEGERS else None


def _negate(node: Apply, a: Expr) -> Expr | None:
    if (inner := _negated(a)) is not None:
        return inner
    if isinstance(a, Apply) and a.operation == "subtract":
        return apply("subtract", a.operands[1], a.operands[0])
    return None


def _power(node: Apply, a: Expr, b: Expr) -> Expr | None:
    if _is(b, 0):
        return _same(node, 1)
    if _is(b, 2):
        return apply("multiply", a, a)
    if _is(b, -1):
        return apply("divide", 1, a)
    return None


def _idempotent(node: Apply, a: Expr, b: Expr) -> Expr | None:
    return a if a is b else None


def _abs(node: Apply, a: Expr) -> Expr | None:
    if node.dtype in UNSIGNED or (isinstance(a, Apply) and a.operation == "abs"):
        return a
    if (inner := _negated(a)) is not None:
        return apply("abs", inner)
    return None


def _where(node: Apply, condition: Expr, a: Expr, b: Expr) -> Expr | None:
    if isinstance(condition, Constant):
        return a if condition.value else b
    if a is b:
        return a
    if isinstance(condition, Apply) and condition.operation == "logical_not":
        return apply("where", condition.operands[0], b, a)
    # A branch that repeats the condition has decided already.
    if isinstance(a, Apply) and a.operation == "where" and a.operands[0] is condition:
        return apply("where", condition, a.operands[1], b)
    if isinstance(b, Apply) and b.operation == "where" and b.operands[0] is condition:
        return apply("where", condition, a, b.operands[2])
    if node.dtype == "bool" and isinstance(a, Constant) and isinstance(b, Constant):
        return condition if a.value else apply("logical_not", condition)
    return None


def _logical_not(node: Apply, a: Expr) -> Expr | None:
    if isinstance(a, Apply) and a.operation == "logical_not":
        return a.operands[0]
    if isinstance(a, Apply) and a.operation in ("equal", "not_equal"):
        return apply("not_equal" if a.operation == "equal" else "equal", *a.operands)
    return None


def _logical_xor(node: Apply, a: Expr, b: Expr) -> Expr | None:
    if a is b:
        return _same(node, False)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Constant):
            return apply("logical_not", other) if one.value else other
    return None


def _equal(node: Apply, a: Expr, b: Expr) -> Expr | None:
    # Only for types without NaN.
    return _same(node, True) if a is b and a.dtype not in FLOATS else None


def _not_equal(node: Apply, a: Expr, b: Expr) -> Expr | None:
    return _same(node, False) if a is b and a.dtype not in FLOATS else None


def _cast(node: Apply, a: Expr) -> Expr | None:
    if a.dtype == node.dtype:
        return a
    # A widening cast under another cast loses nothing.
    if isinstance(a, Apply) and a.operation == "cast" and _is_exact(a.operands[0].dtype, a.dtype):
        inner = a.operands[0]
        # What floats beyond the limits of an integer type become is nobody's promise.
        if inner.dtype not in INTEGERS or a.dtype in INTEGERS or _is_exact(inner.dtype, node.dtype):
            return inner if inner.dtype == node.dtype else Apply("cast", (inner,), node.dtype)
    return None


_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}


def _is_exact(source: Dtype, target: Dtype) -> bool:
    """Whether the target type has every value of the source type."""
    if source == "bool" or source == target:
        return True
    if source in INTEGERS and target != "bool":
        low, high = LIMITS[source]
        least, most = LIMITS.get(target) or (-(2 ** _DIGITS[target]), 2 ** _DIGITS[target])
        return least <= low and high <= most
    return source in FLOATS and target in FLOATS and promote((source, target)) == target


# Operation -> rule(node, *simple operands): the replacement, or None.
RULES: dict[str, Callable[..., Expr | None]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "negate": _negate,
    "power": _power,
    "minimum": _idempotent,
    "maximum": _idempotent,
    "abs": _abs,
    "where": _where,
    "logical_not": _logical_not,
    "logical_and": _idempotent,
    "logical_or": _idempotent,
    "logical_xor": _logical_xor,
    "equal": _equal,
    "not_equal": _not_equal,
    "cast": _cast,
}
