"""What expressions mean: a slow and obvious interpreter over NumPy scalars or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, in_order
from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import ShapeError


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
                    value = np.asarray(OPERATIONS[node.operation].meaning(*operands))
                    results[node] = value.astype(node.dtype, copy=False)[()]
    answers = tuple(results[root] for root in roots)
    return answers[0] if single else answers
