"""What expressions mean: a slow and obvious interpreter over NumPy scalars or arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, in_order
from derivable.core.diagnostics import ShapeError

LOG_HALF = -0.6931471805599453


def _nonzero_divisor(function: Callable) -> Callable:
    def divide(a, b):
        if np.issubdtype(np.result_type(a, b), np.integer):
            # By definition x // 0 = x % 0 = 0 for integers: no route may trap.
            safe = np.where(np.equal(b, 0), np.ones_like(b), b)
            return np.where(np.equal(b, 0), np.zeros_like(np.add(a, b)), function(a, safe))
        return function(a, b)

    return divide


def _log1mexp(x):
    near_zero = np.log(-np.expm1(np.maximum(x, np.asarray(x).dtype.type(2 * LOG_HALF))))
    return np.where(np.greater(x, LOG_HALF), near_zero, np.log1p(-np.exp(x)))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


# Operation -> its meaning on NumPy scalars or arrays that already have the operand types.
MEANING: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": _nonzero_divisor(np.floor_divide),
    "remainder": _nonzero_divisor(np.remainder),
    "negate": np.negative,
    "power": np.power,
    "abs": np.absolute,
    "sign": np.sign,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log1mexp": _log1mexp,
    "logaddexp": np.logaddexp,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "logical_not": np.logical_not,
    "logical_and": np.logical_and,
    "logical_xor": np.logical_xor,
    "logical_or": np.logical_or,
    "where": np.where,
}


def interpret(exprs: Expr | Sequence[Expr], values: Sequence[Any]) -> Any:
    """The value of an expression, or the tuple of values of several.

    values   one NumPy scalar or array per argument index, all of one shape [*batch] or scalars; each is
             cast to its argument's type
    returns  a NumPy scalar or array [*batch] of the expression's type, or a tuple of them

    Overflow, division by zero and invalid operations give inf or NaN silently, as in the compiled
    routes; integers wrap around, and x // 0 = x % 0 = 0.
    """
    single = isinstance(exprs, Expr)
    roots = (exprs,) if single else tuple(exprs)
    results: dict[Expr, Any] = {}
    with np.errstate(all="ignore"):
        for node in in_order(roots):
            if isinstance(node, Constant):
                results[node] = np.dtype(node.dtype).type(node.value)
            elif isinstance(node, Argument):
                if node.index >= len(values):
                    raise ShapeError(f"argument {node.name!r} has index {node.index}, {len(values)} values are given")
                results[node] = np.asarray(values[node.index]).astype(node.dtype)[()]
            elif isinstance(node, Apply):
                operands = [results[operand] for operand in node.operands]
                if node.operation == "cast":
                    results[node] = np.asarray(operands[0]).astype(node.dtype)[()]
                else:
                    # [()] turns the 0-dimensional arrays of np.where into scalars; the type is stated once more
                    # because np.where and the formulas above may widen scalars.
                    value = np.asarray(MEANING[node.operation](*operands))
                    results[node] = value.astype(node.dtype, copy=False)[()]
    answers = tuple(results[root] for root in roots)
    return answers[0] if single else answers
