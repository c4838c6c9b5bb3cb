"""What works on lines: the operations that have a form on them."""

from __future__ import annotations

from collections.abc import Iterable

from derivable.algebra.expr.nodes import Apply, Expr, in_order
from derivable.algebra.expr.operations import OPERATIONS


def has_line_form(exprs: Iterable[Expr]) -> bool:
    """Whether every operation of these expressions works on lines."""
    return all(not isinstance(node, Apply) or line_row(node) is not None for node in in_order(tuple(exprs)))


def line_row(node: Apply) -> str | None:
    """The text of an operation on lines for Numba; None if it has none."""
    if node.operation == "cast":
        pair = node.operands[0].dtype, node.dtype
        return {("int64", "float64"): "to_float({0})", ("float64", "int64"): "to_integer({0})"}.get(pair)
    return OPERATIONS[node.operation].text("lanes", node.dtype)
