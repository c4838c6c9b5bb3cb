"""What works on lines: the operations that are vector code there."""

from __future__ import annotations

from collections.abc import Iterable

from derivable.algebra.expr.nodes import Apply, Expr, in_order

# Divisions of integers, shifts by numbers that differ, and what the C library alone has.
_ROW_BY_ROW = {"floor_divide", "remainder", "truncate_divide", "truncate_remainder", "left_shift", "right_shift"}
_ROW_BY_ROW |= {"saturating_cast", "bitcast", "tanh"}


def has_line_form(exprs: Iterable[Expr]) -> bool:
    """Whether every operation of these expressions works on lines."""
    return all(not isinstance(node, Apply) or _works_on_lines(node) for node in in_order(tuple(exprs)))


def _works_on_lines(node: Apply) -> bool:
    if node.operation == "cast":
        return {node.operands[0].dtype, node.dtype} == {"int64", "float64"}
    return node.operation not in _ROW_BY_ROW
